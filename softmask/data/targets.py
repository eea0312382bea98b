"""Classes and targets of graphs."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from softmask.data.store import GraphStore
from softmask.errors import DataError


def with_targets(store: GraphStore, y: Sequence[Any] | np.ndarray) -> GraphStore:
    """The store with targets: floats become regression targets, anything else classes."""
    try:
        values = np.asarray(y)
    except ValueError as error:
        raise DataError(f"the targets differ in length: {error}") from None
    if values.ndim == 0 or len(values) != store.num_graphs:
        found = "one" if values.ndim == 0 else len(values)
        raise DataError(f"{store.num_graphs} graphs but {found} targets were given")
    info = dict(store.info)
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
