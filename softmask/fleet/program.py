"""One step of a fleet as a program that runs the same way every time: captured once on CUDA, and replayed."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from softmask.ops.neighbour_sum import triton_sums


class Program:
    """A function without arguments that works on fixed tensors, in place.

    On the CPU a call runs it. On CUDA the first call captures it as a CUDA graph, and every call replays the graph:
    one launch instead of hundreds. Warming up runs the function for real, so the tensors it changes are put back.

    Args:
        run: the function; it must not wait for the device, nor change any shape.
        changes: all tensors that it changes.
        device: where they live.
        pool: memory for what comes and goes while it runs, shared with other programs that never run beside it
            (:func:`torch.cuda.graph_pool_handle`); its own if not given.
    """

    def __init__(
        self,
        run: Callable[[], None],
        changes: Sequence[Tensor],
        device: torch.device,
        pool: Any = None,
    ):
        self.run = run
        self.pool = pool
        self.changes = list(changes)
        # Without triton the graph sums wait for the device, which a capture forbids.
        self.captures = device.type == "cuda" and triton_sums is not None
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Runs the function once."""
        if not self.captures:
            self.run()
            return
        capture_all([self])
        assert self.graph is not None
        self.graph.replay()

    def _warm_up(self) -> None:
        before = [t.clone() for t in self.changes]
        side = _side_stream(torch.cuda.current_device())
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.run()
        torch.cuda.current_stream().wait_stream(side)
        for t, old in zip(self.changes, before):
            t.copy_(old)

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        # It gives back what warming up has left, before it begins.
        with torch.cuda.graph(graph, pool=self.pool, stream=_side_stream(torch.cuda.current_device())):
            self.run()
        self.graph = graph


def capture_all(programs: Sequence[Program]) -> None:
    """Captures those programs that are to be captured and are not yet: the one that needs most memory must come first.

    What it leaves in a pool can be cut for the others, where small pieces could not be joined for it. All are warmed
    up before the first is captured, since warming up takes memory beside the pool.
    """
    waiting = [program for program in programs if program.captures and program.graph is None]
    for program in waiting:
        program._warm_up()
    for program in waiting:
        program._capture()


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """The stream in which programs are warmed up and captured: one for all, since the matrix library keeps some of the
    device's memory for every stream that it has seen.
    """
    return torch.cuda.Stream(device)
