"""Jobs of a study on a Ray cluster: one task each. The record is the one that ``Local`` would have written."""

import dataclasses
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

import softmask
from softmask.atomic import atomic_path
from softmask.data.store import GraphStore
from softmask.errors import SettingError, SoftmaskError, StudyInterrupted
from softmask.fleet.waves import SmallerWaveWarning
from softmask.study.executors import OnProgress
from softmask.study.ray_cluster import cluster
from softmask.study.trial import Job
from softmask.study.work import Work

# The state of a job that was interrupted on this machine: it goes on from there on another.
_UNFINISHED = ("replicas-*.safetensors", "spent.json")
# Seconds between two reports of progress, and those a task has to clean up when the study is ended.
_REPORT_S, _END_S = 0.5, 5.0


class OnRay:
    """Runs jobs on the machines of a Ray cluster.

    The graphs go to each machine once. A job whose worker dies (killed, out of memory, machine gone) is run again from
    its beginning; one that is refused is not, and its error is raised here. What a job records comes back to this
    machine, where alone the folder of the study is.

    Args:
        address: ``HOST:PORT`` of the cluster's head, ``auto`` for the cluster that this machine is part of, or
            ``None`` or ``local`` for one of this machine alone, which ends with the jobs.
        device: ``cpu``, or ``cuda`` for one GPU a job.
        cpus: cores a job claims, which are also the threads of its arithmetic.
        retries: how often a job is run again after its worker died.
    """

    def __init__(
        self, address: str | None = None, device: Literal["cpu", "cuda"] = "cpu", cpus: int = 1, retries: int = 3
    ):
        if device not in ("cpu", "cuda"):
            raise SettingError(f"a job on Ray runs on 'cpu' or 'cuda', not on {device!r}; Ray says which GPU")
        if cpus < 1 or retries < 0:
            raise SettingError(f"a job needs at least 1 core and 0 retries, got cpus={cpus} and retries={retries}")
        self.address, self.device, self.cpus, self.retries = address, device, cpus, retries

    def run(self, work: Work, jobs: Sequence[Job], store: GraphStore, on_progress: OnProgress) -> None:
        """Runs the jobs that have no record yet."""
        waiting = [job for job in jobs if not work.done(job)]
        if not waiting:
            return
        work.check_elsewhere(machines=True)
        arrays = {name: t.cpu().numpy() for name, t in store.tensors().items()}
        # Room for the graphs and for what comes back; Ray would take a third of the memory.
        room = max(200 * 2**20, 4 * sum(a.nbytes for a in arrays.values()))
        with cluster(self.address, room) as ray:
            self._check_resources(ray)
            task = ray.remote(
                num_cpus=self.cpus,
                num_gpus=int(self.device == "cuda"),
                max_retries=self.retries,
                # A worker that died is no exception of the job: Ray retries that in any case, and nothing else.
                retry_exceptions=False,
                scheduling_strategy="SPREAD",
            )(_work_on)
            graphs = ray.put((arrays, store.info))
            common = dataclasses.replace(work, folder=Path()), self.device, self.cpus, _versions()
            tasks = {
                task.options(name=f"softmask {job.name}").remote(graphs, job, _unfinished(work, job), *common): job
                for job in waiting
            }
            del graphs
            try:
                self._gather(ray, work, tasks, len(jobs) - len(waiting), on_progress)
            except BaseException:
                _end(ray, list(tasks))
                raise

    def _gather(self, ray: Any, work: Work, tasks: dict[Any, Job], finished: int, on_progress: OnProgress) -> None:
        """Takes what the tasks bring, as they end; `tasks` is left with those that have not."""
        while tasks:
            ready, _ = ray.wait(list(tasks), timeout=_REPORT_S)
            for ref in ready:
                job = tasks.pop(ref)
                _write(work, job, self._outcome(ray, ref, job))
                finished += 1
            if on_progress(finished, 0) and tasks:
                raise StudyInterrupted

    def _outcome(self, ray: Any, ref: Any, job: Job) -> "_Outcome":
        try:
            outcome = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            if "No module named 'softmask" in str(error):
                raise SettingError(
                    f"a machine of the Ray cluster has no softmask {softmask.__version__}; install it on all of them"
                ) from None
            raise
        except ray.exceptions.RayError as error:
            raise SettingError(
                f"job {job.name} could not be finished on the Ray cluster: its worker died each time "
                f"({type(error).__name__}), perhaps for lack of memory. Jobs that were finished are kept: the same "
                "command goes on from there"
            ) from None
        if outcome.error is not None:
            raise outcome.error
        for message in outcome.warnings:
            warnings.warn(f"job {job.name}: {message}", SmallerWaveWarning, stacklevel=5)
        return outcome

    def _check_resources(self, ray: Any) -> None:
        """A task that no machine has room for would wait for ever."""
        needs = {"CPU": self.cpus, "GPU": int(self.device == "cuda")}
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(all(m.get(name, 0) >= n for name, n in needs.items()) for m in machines):
            most = {name: int(max((m.get(name, 0) for m in machines), default=0)) for name in needs}
            raise SettingError(
                f"a job claims {needs['CPU']} cores and {needs['GPU']} GPUs, and no machine of the Ray cluster has "
                f"them (the most are {most['CPU']} cores and {most['GPU']} GPUs on one of {len(machines)} machines)"
            )


class _Outcome(NamedTuple):
    """What a task gives back: the files of the record, or why there are none."""

    files: dict[str, bytes]
    warnings: list[str]
    error: SoftmaskError | None


def _work_on(
    graphs: tuple[dict[str, Any], dict[str, Any]],
    job: Job,
    unfinished: dict[str, bytes],
    work: Work,
    device: str,
    threads: int,
    versions: dict[str, str],
) -> _Outcome:
    """One job, on a worker: it has no folder of the study, so it works in one of its own."""
    if _versions() != versions:
        here = ", ".join(f"{name} {version}" for name, version in _versions().items())
        there = ", ".join(f"{name} {version}" for name, version in versions.items())
        return _Outcome({}, [], SettingError(f"a machine of the Ray cluster has {here}; the study is run with {there}"))
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(prefix="softmask-") as folder, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", SmallerWaveWarning)
        place = Path(folder) / "jobs" / job.name
        place.mkdir(parents=True)
        for name, content in unfinished.items():
            (place / name).write_bytes(content)
        try:
            dataclasses.replace(work, folder=Path(folder)).run(job, _store(*graphs), device)
        except SoftmaskError as error:
            return _Outcome({}, [], error)
        files = {path.name: path.read_bytes() for path in place.iterdir()}
    return _Outcome(files, [str(w.message) for w in warned if issubclass(w.category, SmallerWaveWarning)], None)


def _store(arrays: dict[str, Any], info: dict[str, Any]) -> GraphStore:
    with warnings.catch_warnings():
        # The arrays lie in memory that all workers of a machine share, so they cannot be written; nor is a store.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return GraphStore(**tensors, info=info)


def _versions() -> dict[str, str]:
    """What must be equal on all machines for equal numbers."""
    return {"softmask": softmask.__version__, "torch": torch.__version__.partition("+")[0]}


def _unfinished(work: Work, job: Job) -> dict[str, bytes]:
    place = work.folder / "jobs" / job.name
    return {path.name: path.read_bytes() for pattern in _UNFINISHED for path in place.glob(pattern)}


def _write(work: Work, job: Job, outcome: _Outcome) -> None:
    """Writes a job's record; the file that says it is complete comes last."""
    place = work.folder / "jobs" / job.name
    place.mkdir(parents=True, exist_ok=True)
    for name in sorted(outcome.files, key=lambda name: name == "done.json"):
        with atomic_path(place / name) as temporary:
            temporary.write_bytes(outcome.files[name])
    for pattern in _UNFINISHED:
        for path in place.glob(pattern):
            path.unlink(missing_ok=True)


def _end(ray: Any, refs: list[Any]) -> None:
    """Ends tasks: kindly, so that they remove their folders, and then for good."""
    if not refs or not ray.is_initialized():
        return
    for ref in refs:
        ray.cancel(ref)
    _, still = ray.wait(refs, num_returns=len(refs), timeout=_END_S)
    for ref in still:
        ray.cancel(ref, force=True)
