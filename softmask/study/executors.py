"""Where the jobs of a study run. Whoever runs them, a job writes the same record."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from softmask.data.store import GraphStore
from softmask.errors import SettingError
from softmask.study.trial import Job
from softmask.study.work import Work

# Called with the number of finished jobs and the epoch of the running one, if it is known; True ends the study.
OnProgress = Callable[[int, int], bool | None]


class Executor(Protocol):
    """Runs jobs to their end."""

    def run(self, work: Work, jobs: Sequence[Job], store: GraphStore, on_progress: OnProgress) -> None:
        """Runs the jobs that have no record yet."""
        ...


class Local:
    """Runs jobs on the devices of this machine: one after the other on one, or one process for each of several.

    Args:
        devices: such as ``["cpu"]`` or ``["cuda:0", "cuda:1"]``.
    """

    def __init__(self, devices: Sequence[str]):
        if not devices:
            raise SettingError("no device to run on")
        self.devices = list(devices)

    def run(self, work: Work, jobs: Sequence[Job], store: GraphStore, on_progress: OnProgress) -> None:
        """Runs the jobs that have no record yet."""
        waiting = [job for job in jobs if not work.done(job)]
        finished = len(jobs) - len(waiting)
        if len(self.devices) > 1 and len(waiting) > 1:
            self._side_by_side(work, waiting, store, lambda n: on_progress(finished + n, 0))
            return
        for job in waiting:
            work.run(job, store, self.devices[0], lambda epoch: on_progress(finished, epoch))  # noqa: B023
            finished += 1
            on_progress(finished, 0)

    def _side_by_side(
        self, work: Work, jobs: Sequence[Job], store: GraphStore, on_done: Callable[[int], bool | None]
    ) -> None:
        from concurrent.futures import ProcessPoolExecutor, as_completed

        from torch import multiprocessing

        # A device is taken from the queue by each process, for good.
        context = multiprocessing.get_context("spawn")
        free = context.SimpleQueue()
        for device in self.devices:
            free.put(device)
        count = min(len(self.devices), len(jobs))
        with ProcessPoolExecutor(count, context, _settle, (work, store, free)) as pool:
            futures = [pool.submit(_work_on, job) for job in jobs]
            try:
                for done, future in enumerate(as_completed(futures), start=1):
                    future.result()
                    on_done(done)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


_settled: dict[str, Any] = {}


def _settle(work: Work, store: GraphStore, free: Any) -> None:
    """The first thing a process does: it keeps what all jobs share."""
    import signal

    # Ctrl-C is for the first process, which then ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _settled.update(work=work, store=store, device=free.get())


def _work_on(job: Job) -> None:
    _settled["work"].run(job, _settled["store"], _settled["device"])
