"""The processes that train one model together: who they are, and what they tell each other."""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from softmask.device import pick_device
from softmask.errors import SettingError, SoftmaskError

# Seconds to wait for the others. One batch, or reading one share of the set, takes far less.
TIMEOUT = 300.0


class LostRankError(SoftmaskError):
    """Another process of the training died, or did not answer in time."""


def world_size() -> int:
    """How many processes torchrun started; 1 without it."""
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal() or int(text) < 1:
        raise SettingError(f"WORLD_SIZE={text!r}: must be the number of processes, as torchrun sets it")
    return int(text)


def is_first() -> bool:
    """Whether this process is rank 0, the one that prints and writes; also true without torchrun."""
    return os.environ.get("RANK", "0") == "0"


@dataclass(frozen=True)
class Ranks:
    """One process among those that train together.

    Args:
        rank: its number, from 0.
        world: how many there are.
        device: where it computes.
    """

    rank: int
    world: int
    device: torch.device

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, on the CPU."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def max(self, values: Tensor) -> Tensor:
        """The largest over all ranks, on the CPU."""
        return self._reduced(values, dist.ReduceOp.MAX)

    def gather(self, value: Any) -> list[Any]:
        """A small plain value of every rank, in the order of ranks."""
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def _reduced(self, values: Tensor, how: Any) -> Tensor:
        values = values.detach().to(self.device, copy=True)
        dist.all_reduce(values, how)
        return values.cpu()


@contextmanager
def joined_ranks(device: str = "auto", timeout: float = TIMEOUT) -> Iterator[Ranks]:
    """Joins the processes that torchrun started, or is a world of one without it.

    Ranks on CUDA talk through NCCL, each on the GPU of its number on its machine; ranks on the CPU through gloo.

    Args:
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        timeout: seconds to wait for another rank before :class:`LostRankError` ends the training.
    """
    world, place = world_size(), _place(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    # A world of one needs no address.
    alone: dict[str, Any] = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    try:
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=timedelta(seconds=timeout), **alone)
        yield Ranks(dist.get_rank(), world, place)
    except BaseException as error:
        lost = _lost(error, timeout)
        if world > 1:
            _leave_without_cleaning_up(lost or error)
        elif dist.is_initialized():
            dist.destroy_process_group()
        if lost is not None:
            raise lost from error
        raise
    dist.destroy_process_group()


def _place(device: str) -> torch.device:
    picked = pick_device(device)
    if picked.type != "cuda":
        return picked
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if local >= torch.cuda.device_count():
        raise SettingError(
            f"process {local} of this machine has no GPU: there are {torch.cuda.device_count()}; start at most one "
            "process a GPU, or use --device cpu"
        )
    return torch.device("cuda", local)


def _lost(error: BaseException, timeout: float) -> LostRankError | None:
    """The error that says that another rank is lost, if that is what it means."""
    # gloo throws plain RuntimeErrors; only their text tells them from others.
    if not isinstance(error, dist.DistError) and not (isinstance(error, RuntimeError) and "gloo" in str(error)):
        return None
    reason = (str(error).strip().splitlines() or ["no reason given"])[0]
    return LostRankError(
        f"rank {os.environ.get('RANK', '0')}: another process of this training died or did not answer within "
        f"{timeout:.0f} seconds, so the training ended and no model was written; what it printed says why "
        f"({reason[:200]})"
    )


_ended_by: list[BaseException] = []


def _leave_without_cleaning_up(error: BaseException) -> None:
    """Lets this process, once it is done, end at once.

    To free a DistributedDataParallel whose sums are under way is a deadlock in PyTorch 2.13: it waits for the thread
    of gloo, which waits for Python's lock. The error holds all that must not be freed.
    """
    _ended_by.append(error)

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(2 if isinstance(error, SoftmaskError) else 1 if isinstance(error, Exception) else 130)

    atexit.register(leave)
