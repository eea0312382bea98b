"""Where the jobs of a study run. Whoever runs them, a job writes the same record."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from softmask.data.store import GraphStore
from softmask.errors import SettingError, StudyInterrupted
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
            work.check_elsewhere()
            self._side_by_side(work, waiting, store, lambda done: on_progress(finished + done, 0))
            return
        for job in waiting:
            # Its first epoch may take minutes, before which nothing else would be shown.
            if on_progress(finished, 0):
                raise StudyInterrupted
            work.run(job, store, self.devices[0], lambda epoch: on_progress(finished, epoch))  # noqa: B023
            finished += 1
        on_progress(finished, 0)

    def _side_by_side(
        self, work: Work, jobs: Sequence[Job], store: GraphStore, on_progress: Callable[[int], bool | None]
    ) -> None:
        from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
        from concurrent.futures.process import BrokenProcessPool

        from torch import multiprocessing

        # A device is taken from the queue by each process, for good.
        context = multiprocessing.get_context("spawn")
        free, stop = context.SimpleQueue(), context.Event()
        for device in self.devices:
            free.put(device)
        count = min(len(self.devices), len(jobs))
        with ProcessPoolExecutor(count, context, _settle, (work, store, free, stop)) as pool:
            running = {pool.submit(_work_on, job) for job in jobs}
            try:
                while running:
                    ended, running = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
                    for future in ended:
                        future.result()
                    if on_progress(len(jobs) - len(running)):
                        stop.set()
            except BrokenProcessPool:
                raise SettingError(
                    "a worker process died, perhaps for want of memory; finished jobs are kept, and the same command "
                    "goes on"
                ) from None
            finally:
                # However it ends, the workers end after their epoch.
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)


_settled: dict[str, Any] = {}


def _settle(work: Work, store: GraphStore, free: Any, stop: Any) -> None:
    """The first thing a process does: it keeps what all jobs share."""
    import os
    import signal
    from multiprocessing import parent_process
    from threading import Thread

    # Ctrl-C is for the first process, which then ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()

    def end_with_the_parent() -> None:
        # Else a process whose parent was killed would go on, and write into a folder that is no longer locked.
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=end_with_the_parent, daemon=True).start()
    _settled.update(work=work, store=store, device=free.get(), stop=stop)


def _work_on(job: Job) -> None:
    stop = _settled["stop"]
    if stop.is_set():
        raise StudyInterrupted
    _settled["work"].run(job, _settled["store"], _settled["device"], lambda epoch: stop.is_set())
