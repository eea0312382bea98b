"""What the replicas of a fleet learn: classes, or targets scaled by each one's training part."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from softmask.data.store import GraphStore
from softmask.errors import SettingError
from softmask.fleet.replica import Replica


def scaled_targets(store: GraphStore, replicas: Sequence[Replica]) -> tuple[Tensor, Tensor, Tensor]:
    """Classes ``[graphs]``; or targets ``[replicas, graphs, outputs]`` scaled by each replica's training part.

    With them mean and deviation ``[replicas, outputs]``, all in float64: total energies need it.
    """
    assert store.y is not None
    if not store.y.is_floating_point():
        nothing = torch.zeros(len(replicas), 1, device=store.device)
        return store.y, nothing, nothing + 1
    rows, means, stds = [], [], []
    for r in replicas:
        y = store.y if r.target is None else store.y[:, r.target : r.target + 1]
        # torch takes 8 bits for a mask, and some other kinds of whole numbers not at all.
        train = y[torch.as_tensor(np.asarray(r.train, dtype=np.int64), device=y.device)]
        mean = train.mean(dim=0)
        std = (train - mean).square().mean(dim=0).sqrt()
        std = torch.where(std > 0, std, torch.ones_like(std))
        rows.append((y - mean) / std)
        means.append(mean)
        stds.append(std)
    if not all(bool(torch.isfinite(t).all()) for t in (*means, *stds)):
        raise SettingError("the targets are too large: their mean or deviation is not a finite number")
    return torch.stack(rows), torch.stack(means), torch.stack(stds)
