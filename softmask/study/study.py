"""A study: a question, its folder, and the way from one to the answer, which may be interrupted at any moment."""

import shutil
from collections.abc import Callable, Container, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from softmask.data.store import GraphStore
from softmask.errors import SettingError, SoftmaskError
from softmask.study.executors import Executor
from softmask.study.figures import figures, rank, ranking, selection
from softmask.study.protocols import HALVING, Place, Protocol
from softmask.study.provenance import provenance
from softmask.study.question import Question
from softmask.study.record import Record, read_question, read_record, write_json
from softmask.study.trial import Trial, jobs_of
from softmask.study.work import Work

# Called with a stage's name, its finished jobs, all its jobs, the epoch of the running job and its epochs.
OnProgress = Callable[[str, int, int, int, int], bool | None]
_WRITTEN = ("jobs", "events", "splits.json", "result.json", "report.md", "report.html", "chosen.toml", "study.json")


@dataclass(frozen=True, eq=False)
class Study:
    """A study: the same question, data and splits give the same answer, however often it was interrupted.

    Args:
        question: what is asked.
        splits: see :func:`softmask.study.protocols.make_splits`.
        store: the graphs.
        folder: where its record goes.
        weights: whether the final weights of all models are kept.
        force: whether kernels are computed that are estimated to take beyond reason.
    """

    question: Question
    splits: list[dict[str, Any]]
    store: GraphStore
    folder: Path
    weights: bool = False
    force: bool = False

    def run(self, executor: Executor, on_progress: OnProgress | None = None, fresh: bool = False) -> Record:
        """Trains what is not yet trained, and gives the finished record.

        Args:
            executor: who runs the jobs.
            on_progress: called now and then; if it returns True, the study stops with
                :class:`~softmask.errors.StudyInterrupted`.
            fresh: forget what an earlier study left in the folder.
        """
        with _locked(self.folder):
            known = (self.folder / "study.json").is_file()
            there = {name for name in _WRITTEN if (self.folder / name).exists()}
            self._begin(fresh)
            if self.weights or not (self.folder / "result.json").is_file():
                try:
                    self._work(executor, on_progress or (lambda *_: None))
                except SoftmaskError:
                    # What is refused before anything was trained leaves no study that could never end.
                    if not known and not any((self.folder / "jobs").glob("*/*")):
                        self._forget(there)
                    raise
        return read_record(self.folder)

    def _forget(self, but: Container[str] = ()) -> None:
        """Removes all that a study writes, `but` what was there before; the question last: as long as it stands, what
        lies beside it is its own.
        """
        for name in _WRITTEN:
            path = self.folder / name
            if name not in but and path.is_dir():
                shutil.rmtree(path)
            elif name not in but:
                path.unlink(missing_ok=True)

    def _begin(self, fresh: bool) -> None:
        """Opens the folder: a new one, or one with the same question."""
        if fresh and (self.folder / "study.json").is_file():
            self._forget()
        asked = self.question.to_json()
        if (self.folder / "study.json").is_file():
            for left in (self.folder / "jobs").glob("*/.*.*"):  # half written by a process that was killed
                left.unlink(missing_ok=True)
            before = read_question(self.folder)
            changed = [k for k in asked if before.get(k) != asked[k]]
            if changed:
                raise SettingError(
                    f"{self.folder} holds a study with other settings: {_changes(before, asked, changed)}. Give "
                    "another folder with --out, or --fresh to throw the old study away and begin anew"
                )
            if not (self.folder / "splits.json").is_file():
                write_json(self.folder / "splits.json", self.splits)
            return
        write_json(self.folder / "splits.json", self.splits)
        write_json(
            self.folder / "study.json",
            asked
            | {
                "targets": self.store.info.get("targets"),
                "hash": self.question.hash(),
                "provenance": provenance(seed=self.question.seed),
            },
        )

    def _work(self, executor: Executor, on_progress: OnProgress) -> None:
        begin, question = monotonic(), self.question
        resumed = (self.folder / "jobs").is_dir()
        work = Work(
            folder=self.folder,
            question=question.hash(),
            settings=question.settings,
            task=question.task,
            precision=question.precision,
            patience=question.patience,
            weights=self.weights,
            force=self.force,
        )
        for stage, trials in self._stages():
            jobs = jobs_of(stage, trials, question.settings, question.jobs)
            epochs = max(t.epochs for t in trials)

            def report(finished: int, epoch: int) -> bool | None:
                return on_progress(stage, finished, len(jobs), epoch, epochs)  # noqa: B023

            executor.run(work, jobs, self.store, report)
        self._answer(None if resumed else round(monotonic() - begin, 3))

    def _stages(self) -> Iterable[tuple[str, list[Trial]]]:
        """The trainings, stage by stage; what a stage trains may depend on the record of those before."""
        question = self.question
        protocol = Protocol(question, self.splits, targets_of(self.store))
        count = len(question.settings)
        places = [(run, fold) for run, split in enumerate(self.splits) for fold in range(len(split["test"]))]
        kept = {place: list(range(count)) for place in places}
        if question.protocol == "tune" or count > 1:
            rung = 0
            while question.halving and count > HALVING:
                # As many rungs as there are times to divide by; the first is the shortest.
                shorter = HALVING ** _rungs(count)
                rung, count = rung + 1, -(-count // HALVING)
                yield f"rung{rung}", protocol.selection(kept, f"rung{rung}", shorter)
                kept = self._better(kept, f"rung{rung}", count)
            yield "select", protocol.selection(kept)
            kept = self._better(kept, "select", 1)
        chosen = {place: settings[0] for place, settings in kept.items()}
        if question.protocol in ("fair", "holdout"):
            repeats = question.repeats if question.protocol == "fair" else 1
            yield question.protocol, protocol.tested(chosen, question.protocol, repeats)
        elif question.protocol == "paper":
            yield "paper", protocol.paper()
        elif question.protocol == "both":
            # One fleet for both: they share the shape.
            yield "both", protocol.paper() + protocol.tested(chosen, "fair", question.repeats)

    def _better(self, kept: dict[Place, list[int]], role: str, count: int) -> dict[Place, list[int]]:
        """The best settings of each fold, by its own validation part: those of other folds hold its test graphs.

        A tuning has no test graphs to keep from and takes the mean over all folds.
        """
        record = read_record(self.folder)
        if self.question.protocol == "tune":
            best = [row["setting"] for row in ranking(record, role)[:count]]
            return dict.fromkeys(kept, best)
        scores = selection(record, role)
        return {
            place: sorted(settings, key=lambda s: rank(*scores[s, *place], record.classes, s))[:count]
            for place, settings in kept.items()
        }

    def _answer(self, seconds: float | None) -> None:
        record = read_record(self.folder)
        result = figures(record)
        roles = set(record.metrics["role"].tolist())
        if "select" in roles:
            result["ranking"] = ranking(record)
            if self.question.protocol == "tune":
                result["chosen"] = result["ranking"][0]["setting"]
        result |= {
            "troubles": [t for job in record.jobs.values() for t in job["troubles"]],
            "models": sum(job["replicas"] for job in record.jobs.values()),
            "devices": sorted({job["device"] for job in record.jobs.values()}),
            "ways": sorted({job.get("way", "fleet") for job in record.jobs.values()}),
            "precisions": sorted({job["precision"] for job in record.jobs.values()}),
            # Of all trainings; and from the first to the last moment, if the study was not interrupted.
            "device_s": round(sum(job["wall_s"] for job in record.jobs.values()), 3),
            "wall_s": seconds,
        }
        write_json(self.folder / "result.json", result)


def _rungs(settings: int) -> int:
    rungs = 0
    while settings > HALVING:
        settings, rungs = -(-settings // HALVING), rungs + 1
    return rungs


def targets_of(store: GraphStore) -> np.ndarray:
    """Targets, or the classes by their names, so that a message can name them."""
    assert store.y is not None
    y = store.y.cpu().numpy()
    return y if store.y.is_floating_point() else np.asarray(store.info["classes"])[y]


def _changes(before: dict[str, Any], now: dict[str, Any], keys: list[str]) -> str:
    said = []
    for key in keys:
        old, new = before.get(key), now[key]
        if key == "settings" and isinstance(old, list) and len(old) == len(new) == 1:
            said += [f"{k} was {old[0].get(k)}, now {v}" for k, v in new[0].items() if old[0].get(k) != v]
        elif key == "settings":
            said.append("the settings to try")
        elif key.endswith("_hash"):
            said.append("the data" if key == "data_hash" else "the splits")
        else:
            said.append(f"{key} was {old}, now {new}")
    return "; ".join(said)


@contextmanager
def _locked(folder: Path):  # type: ignore[no-untyped-def]
    """Keeps other studies out of the folder; the system opens the lock when this process ends, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise SettingError(
            f"another study is running in {folder}; wait for it, or give another folder with --out"
        ) from None
    except OSError as error:
        raise SettingError(f"cannot use the folder {folder}: {error.strerror or error}") from None
    try:
        yield
    finally:
        lock.release()
