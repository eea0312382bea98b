"""What a set holds, in numbers, and how that differs from what is known of it."""

import dataclasses
from typing import Any

import torch

from softmask.data.catalog import KNOWN, Counts
from softmask.data.features import Features
from softmask.data.qm9 import units
from softmask.data.store import GraphStore
from softmask.errors import DataError

# Edges of a directed set up to which it is counted how many have no counterpart.
_COUNTED = 5_000_000


def statistics(store: GraphStore) -> dict[str, Any]:
    """Counts of a set as plain JSON. ``edges`` are entries of ``col``: an undirected edge counts twice."""
    if store.num_graphs == 0:
        raise DataError(f"{store.info.get('name', 'the set')}: holds no graphs")
    degree = store.degree()
    sizes = store.sizes
    features = Features.of(store)
    return {
        "name": store.info.get("name"),
        "source": store.info.get("source"),
        "graphs": store.num_graphs,
        "nodes": store.num_nodes,
        "nodes_min": int(sizes.min()),
        "nodes_mean": store.num_nodes / store.num_graphs,
        "nodes_max": int(sizes.max()),
        "edges": store.num_edges,
        "directed": store.directed,
        "self_loops_dropped": store.info.get("self_loops", 0),
        "self_loops_kept": store.num_edges - int(degree.sum()),
        "isolated_nodes": int((degree == 0).sum()) if not store.directed else int(_alone(store).sum()),
        "largest_degree": int(degree.max()) if degree.numel() else 0,
        "classes": _classes(store),
        "targets": 0 if store.y is None or not store.y.is_floating_point() else store.y.size(1),
        "target_names": store.info.get("targets"),
        # A table of one's own may have the name of the set, but knows no positions.
        "target_units": None if store.pos is None else units(store.info.get("name"), store.info.get("targets") or ()),
        "node_labels": _distinct(store.node_label),
        "node_attributes": 0 if store.node_attr is None else store.node_attr.size(1),
        "positions": 0 if store.pos is None else store.pos.size(1),
        "edge_labels": _distinct(store.edge_label),
        "edge_attributes": 0 if store.edge_attr is None else store.edge_attr.size(1),
        "roles": store.info.get("roles"),
        "features": {"kind": features.kind, "channels": features.channels},
        "content_hash": store.content_hash(),
    }


def counts(store: GraphStore) -> Counts:
    """The numbers that the catalog keeps."""
    s = statistics(store)
    return Counts(
        graphs=s["graphs"],
        classes=len(s["classes"] or ()),
        nodes=s["nodes"],
        # A loop counts as one edge, whether the reader dropped it or not.
        edges=(s["edges"] - s["self_loops_kept"]) // 2 + s["self_loops_kept"] + s["self_loops_dropped"],
        self_loops=s["self_loops_dropped"] + s["self_loops_kept"],
        isolated=s["isolated_nodes"],
        node_labels=sum(s["node_labels"]),
        node_attributes=s["node_attributes"],
        edge_labels=sum(s["edge_labels"]),
    )


def differences(store: GraphStore) -> list[str]:
    """How a set of a known name differs from what the catalog says of it; empty for other names."""
    if store.num_graphs == 0:
        return [f"{store.info.get('name', 'the set')}: holds no graphs"]
    known = KNOWN.get(store.info.get("name", ""))
    if known is None:
        return []
    found, expected = dataclasses.asdict(counts(store)), dataclasses.asdict(known)
    out = [
        f"{name.replace('_', ' ')}: {found[name]}, but {store.info['name']} has {value}"
        for name, value in expected.items()
        if found[name] != value
    ]
    return [*out, "directed, but all known sets are undirected"] if store.directed else out


def remarks(store: GraphStore) -> list[str]:
    """What is allowed but may surprise."""
    out = []
    classes = _classes(store)
    if store.y is None:
        out.append("no classes and no targets: good for prediction, not for training")
    elif classes is not None:
        if len(classes) == 1:
            out.append("one class only: nothing to learn")
        out += [f"class {c!r} has {n} graph only" for c, n in classes if n == 1]
    if store.directed:
        out.append(direction(store))
    if loops := store.info.get("self_loops"):
        out.append(f"{loops} self loops were dropped: the layers never count them")
    return out


def direction(store: GraphStore) -> str:
    """What it means that some edges of a directed set have no counterpart, and what to do if that was not meant."""
    which = "some edges have no"
    if store.num_edges <= _COUNTED:
        source, target = store.edges()
        proper = source != target
        source, target = source[proper], target[proper]
        there = source * store.num_nodes + target
        alone = int((~torch.isin(target * store.num_nodes + source, there)).sum())
        which = "no edge has a" if alone == len(there) else f"{alone} of {len(there)} edges have no"
    return (
        f"directed: {which} counterpart the other way; messages go from the first node to the second alone. If ties "
        "have no direction here, write each both ways"
    )


def _classes(store: GraphStore) -> list[tuple[Any, int]] | None:
    if store.y is None or store.y.is_floating_point():
        return None
    names = store.info.get("classes") or range(int(store.y.max()) + 1)
    return list(zip(names, torch.bincount(store.y, minlength=len(names)).tolist()))


def _distinct(labels: torch.Tensor | None) -> list[int]:
    return [] if labels is None else [int(torch.unique(column).numel()) for column in labels.t()]


def _alone(store: GraphStore) -> torch.Tensor:
    """Nodes of a directed set without an edge in or out."""
    source, target = store.edges()
    proper = source != target
    touched = torch.zeros(store.num_nodes, dtype=torch.bool)
    touched[source[proper]] = True
    touched[target[proper]] = True
    return ~touched
