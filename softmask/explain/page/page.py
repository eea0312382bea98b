"""The page: templates, the drawing library and the data of all graphs in one file that needs nothing else."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from softmask.errors import SettingError
from softmask.explain.draw import _clean
from softmask.explain.page.pack import pack, radius
from softmask.explain.subject import Subject
from softmask.study.report.svg import text

THRESHOLDS = tuple(i / 20 for i in range(21))
"""Where the page's slider stops, and the prediction on what is left is known."""

MOST_BYTES = 20_000_000
_SCRIPTS = ("data.js", "look.js", "drawing.js", "picture.js", "charts.js", "list.js", "main.js")


def html_page(
    subjects: Iterable[Subject],
    curves: Sequence[np.ndarray],
    title: str,
    about: str = "",
    targets: Sequence[str] | None = None,
    roles: Sequence[str] | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
    effects: Sequence[np.ndarray] | None = None,
) -> str:
    """Explained graphs as one self-contained page.

    Args:
        subjects: the graphs, at least one, all explained by the same model.
        curves: for each of them ``[thresholds, classes or targets]``, as :func:`~softmask.explain.threshold_curve`
            gives it.
        title: of the page.
        about: a sentence below it.
        targets: for regression, the names of the targets.
        roles: names of the roles of ``node_role``, where the graphs have a ground truth.
        thresholds: of the curves; ascending, from 0.
        effects: for each graph ``[nodes]``, how the prediction of one number changes without each node
            (:func:`~softmask.explain.shut_one`); the page then has a view of it.

    Returns:
        The page. Everything given is data in it: no name is ever read as HTML or script.
    """
    words: dict[str, int] = {}
    graphs, first = [], None
    for subject, curve in zip(subjects, curves, strict=True):
        first = first or subject.explanation
        graphs.append(_graph(subject, curve, thresholds, words))
        if effects is not None:
            graphs[-1]["effect"] = _numbers(effects[len(graphs) - 1])
    if first is None:
        raise SettingError("a page needs at least one graph")
    labelled = any(words)
    content = {
        "title": _clean(title),
        "layers": first.masks.shape[1],
        "classes": None if first.classes is None else [_clean(c) for c in first.classes],
        "targets": None if first.classes is not None else _targets(targets, len(curves[0][0])),
        "thresholds": list(thresholds),
        "words": [_clean(w) for w in words] if labelled else None,
        "roles": None if roles is None else [_clean(r) for r in roles],
        "effects": effects is not None,
        "graphs": graphs,
    }
    page = _assemble(content, title, about)
    if len(page) > MOST_BYTES:
        raise SettingError(
            f"the page would have {len(page) / 1e6:.0f} MB, more than {MOST_BYTES / 1e6:.0f}: choose fewer graphs with "
            "--graphs or --limit, or draw only the most important nodes with --size"
        )
    return page


def _graph(subject: Subject, curve: np.ndarray, thresholds: Sequence[float], words: dict[str, int]) -> dict[str, Any]:
    said = subject.explanation
    graph: dict[str, Any] = {
        "number": subject.number,
        "name": _clean(said.name) if said.name != str(subject.number) else "",
        "nodes": subject.nodes,
        "edges": len(subject.edges),
        "whole": subject.whole or subject.nodes,
        "radius": radius(subject),
        "bonds": subject.bonds is not None,
        "curve": _rounded(np.nan_to_num(curve)),
        "packed": pack(subject, thresholds, words),
    }
    if said.classes is None:
        graph |= {"predicted": _numbers(said.predicted), "actual": _numbers(said.actual)}
        return graph
    place = {_clean(c): i for i, c in enumerate(said.classes)}
    assert said.probabilities is not None
    # A class that the model does not know is written out: the graph is from another set.
    actual = None if said.actual is None else place.get(_clean(said.actual), _clean(said.actual))
    graph |= {"predicted": place[_clean(said.predicted)], "actual": actual}
    graph["probabilities"] = np.round(said.probabilities, 4).tolist()
    return graph


def _numbers(values: Any) -> list[float] | None:
    return None if values is None else [float(f"{v:.6g}") for v in np.atleast_1d(values).tolist()]


def _rounded(curve: np.ndarray) -> list[list[float]]:
    """To five digits of the largest: what is smaller is zero to the model."""
    largest = float(np.abs(curve).max(initial=0))
    return np.round(curve, 4 - (math.floor(math.log10(largest)) if largest else 0)).tolist()


def _targets(names: Sequence[str] | None, count: int) -> list[str]:
    if names is not None and len(names) == count:
        return [_clean(n) for n in names]
    return ["target"] if count == 1 else [f"target {i}" for i in range(count)]


def _assemble(content: dict[str, Any], title: str, about: str) -> str:
    library = _read("vendor/force-graph.min.js")
    scripts = [library, '"use strict";\n' + "\n".join(_read(name) for name in _SCRIPTS)]
    allowed = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    # Should a name ever slip through unescaped, the browser still runs these scripts only, and fetches nothing.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {allowed}"
    # Within a script element nothing but "<" can end it or open a comment.
    data = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    parts = {
        "policy": policy,
        "title": text(_clean(title)),
        "about": text(_clean(about)),
        "style": _read("page.css"),
        "data": data,
        "library": library,
        "script": scripts[1],
        "licence": text(_read("vendor/force-graph.LICENSE")),
    }
    # In one pass, so that nothing that was put in is looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _read("page.html"))


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
