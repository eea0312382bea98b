"""Explained graphs without a model, for tests of pictures and pages."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from softmask.explain.explanation import Explanation
from softmask.explain.page import THRESHOLDS, html_page
from softmask.explain.subject import Subject

HOSTILE = "</script><script>window.harm = 1</script><img src=x onerror='window.harm = 1'>\"'&\x00\u2028$x$"


def explained(nodes: int, seed: int = 0, layers: int = 3, name: str = "0", **changes: Any) -> Explanation:
    """A random tree with random masks; classes ``no`` and ``yes``."""
    draw = np.random.default_rng(seed)
    tree = [(v, int(draw.integers(v))) for v in range(1, nodes)]
    ends = torch.tensor(tree + [(v, u) for u, v in tree], dtype=torch.long).reshape(-1, 2).t()
    importance = draw.random(nodes)
    chance = float(draw.uniform(0.02, 0.98))
    given: dict[str, Any] = {
        "data": Data(edge_index=ends, num_nodes=nodes),
        "name": name,
        "masks": draw.random((nodes, layers)),
        "importance": importance / importance.max(),
        "predicted": ["no", "yes"][chance > 0.5],
        "probabilities": np.array([1 - chance, chance]),
        "classes": ["no", "yes"],
        "actual": ["no", "yes"][int(draw.integers(2))],
    }
    return Explanation(**(given | changes))


def subject(said: Explanation, number: int = 0, **changes: Any) -> Subject:
    """The graph with its nodes on a spiral."""
    n = len(said.importance)
    angle = np.arange(n) * 0.7
    place = np.sqrt(np.arange(n) + 1.0)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    ends = np.sort(said.data.edge_index.numpy().T, axis=1)
    edges = np.unique(ends, axis=0).reshape(-1, 2)
    labels = [("C", "N", "O", "Cl")[v % 4] for v in range(n)]
    given: dict[str, Any] = {"place": place, "edges": edges, "labels": labels, "whole": n}
    return Subject(said, number, **(given | changes))


def page_of(subjects: Sequence[Subject], title: str = "a set", **options: Any) -> str:
    """A page of these graphs with curves that fall."""
    outputs = 2 if subjects[0].explanation.classes else len(np.atleast_1d(subjects[0].explanation.predicted))
    fall = np.linspace(0.9, 0.1, len(THRESHOLDS))
    curve = np.stack([1 - fall, fall], axis=1) if outputs == 2 else np.repeat(fall[:, None], outputs, axis=1)
    return html_page(subjects, [curve] * len(subjects), title, **options)
