"""Replicas that are asked together: what they have in common, and what they say as one."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from softmask.errors import SettingError
from softmask.fleet.replica import Replica
from softmask.nn.committee import joint_answer


def members_of(replica: Replica, size: int) -> list[Replica]:
    """A committee in the place of one replica: the first is the replica itself, the others have seeds that follow from
    its seed.
    """
    return [replica if i == 0 else replace(replica, seed=_seed(replica.seed, i)) for i in range(size)]


def _seed(first: int, member: int) -> int:
    return int.from_bytes(hashlib.sha256(repr(("member", first, member)).encode()).digest()[:4], "little")


def check_committees(replicas: Sequence[Replica], size: int) -> None:
    """Refuses committees that are not whole, or whose members do not learn and answer the same."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise SettingError(f"committee must be a whole number of at least 1, got {size!r}")
    if len(replicas) % size:
        raise SettingError(f"{len(replicas)} replicas are no whole number of committees of {size}")
    for place, replica in enumerate(replicas if size > 1 else ()):
        first = replicas[place - place % size]
        same = replica.target == first.target and replica.evaluate.keys() == first.evaluate.keys()
        parts = {"train": (replica.train, first.train)}
        parts |= {name: (replica.evaluate[name], first.evaluate[name]) for name in first.evaluate if same}
        if not same or not all(np.array_equal(ours, theirs) for ours, theirs in parts.values()):
            raise SettingError(
                f"replica {place} (seed {replica.seed}) and replica {place - place % size} are of one committee of "
                f"{size}: they must have the same graphs to train on, the same parts and the same target"
            )


def as_one(out: Tensor, size: int, classes: bool) -> Tensor:
    """The outputs ``[replicas, ...]`` of whole committees, each member's replaced by what its committee says."""
    if size == 1:
        return out
    return joint_answer(out.unflatten(0, (-1, size)).transpose(0, 1), classes).repeat_interleave(size, dim=0)
