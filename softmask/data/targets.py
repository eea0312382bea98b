"""Classes and targets of graphs."""

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from softmask.data.store import GraphStore
from softmask.errors import DataError


def with_targets(store: GraphStore, y: Sequence[Any] | np.ndarray) -> GraphStore:
    """The store with targets: floats become regression targets, anything else classes. They have no names yet."""
    try:
        values = np.asarray(y)
    except ValueError as error:
        raise DataError(f"the targets differ in length: {error}") from None
    if values.ndim == 0 or len(values) != store.num_graphs:
        found = "one" if values.ndim == 0 else len(values)
        raise DataError(f"{store.num_graphs} graphs but {found} targets were given")
    info = {key: value for key, value in store.info.items() if key != "targets"}
    if values.dtype.kind == "f":
        if values.size == 0:
            raise DataError("no targets were given")
        target = torch.from_numpy(values.astype(np.float64)).reshape(len(values), -1)
        bad = (~torch.isfinite(target).all(dim=1)).nonzero()
        if bad.numel():
            raise DataError(f"graph {int(bad[0])}: its target is not a finite number")
        info.pop("classes", None)
        return dataclasses.replace(store, y=target, info=info)
    if values.size != len(values):
        raise DataError(f"a class is one value a graph, found {list(values.shape)}; targets must be floating point")
    try:
        classes, index = np.unique(values.reshape(-1), return_inverse=True)
    except TypeError as error:
        raise DataError(f"the classes are of kinds that cannot be put in order: {error}") from None
    info["classes"] = classes.tolist()
    return dataclasses.replace(store, y=torch.from_numpy(index.reshape(-1)), info=info)


def pick_targets(store: GraphStore, names: Sequence[str]) -> GraphStore:
    """The store with some of its targets, by their names, in the given order."""
    known = store.info.get("targets")
    name = store.info.get("name", "the set")
    if store.y is None or not store.y.is_floating_point() or not known:
        raise DataError(f"{name} has no targets with names to choose from; leave --target out")
    if len(set(names)) != len(names):
        raise DataError(f"a target is named twice: {', '.join(names)}")
    for wanted in names:
        if wanted not in known:
            close = difflib.get_close_matches(wanted, known, n=1, cutoff=0.4)
            hint = f"did you mean {close[0]}? Its" if close else "its"
            raise DataError(f"{name} has no target {wanted!r}; {hint} targets are {', '.join(known)}")
    columns = [known.index(wanted) for wanted in names]
    return dataclasses.replace(store, y=store.y[:, columns], info={**store.info, "targets": list(names)})
