"""The folder of a study: what was asked, what was split, every number of every epoch, and what came out."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from softmask.atomic import atomic_path
from softmask.errors import DataError

# One row is one model after one epoch. A part that a model does not have is NaN.
KEYS = ("role", "setting", "run", "fold", "repeat", "seed", "epoch")
_AGAIN = "delete the folder {} and give the study's command again: only that job is trained anew"
VALUES = tuple(f"{part}_{what}" for part in ("train", "validation", "test") for what in ("loss", "metric"))


@dataclass(frozen=True)
class Record:
    """A study as it stands in its folder.

    Args:
        folder: where it lies.
        question: ``study.json``: data, hash, task, protocol, settings, seed, provenance.
        splits: ``splits.json``: by run, the test graphs of each fold (and the other parts, for a holdout).
        metrics: by column (see ``KEYS`` and ``VALUES``), one row a model and epoch.
        jobs: ``done.json`` of every finished job: device, seconds, troubles.
        result: ``result.json``, or ``None`` while the study is not finished.
    """

    folder: Path
    question: dict[str, Any]
    splits: list[dict[str, Any]]
    metrics: dict[str, np.ndarray]
    jobs: dict[str, dict[str, Any]]
    result: dict[str, Any] | None

    @property
    def classes(self) -> bool:
        """Whether the metric is an accuracy (the more the better) and not an error."""
        return self.question["task"] == "classification"

    def curves(self, value: str, **where: Any) -> np.ndarray:
        """``[models, epochs]`` of one column, for the models that fit, by setting, run, fold and repeat.

        Behind the last epoch of a model that trained for fewer than another stands NaN.

        Args:
            value: a column, such as ``"test_metric"``.
            where: columns and what they must be: ``role="paper", run=0``.
        """
        chosen = np.ones(len(self.metrics["epoch"]), dtype=bool)
        for name, wanted in where.items():
            chosen &= self.metrics[name] == wanted
        rows = np.flatnonzero(chosen)
        rows = rows[np.lexsort([self.metrics[name][rows] for name in ("epoch", "repeat", "fold", "run", "setting")])]
        epoch = self.metrics["epoch"][rows].astype(np.int64) - 1
        model = np.cumsum(epoch == 0) - 1
        table = np.full((int(model.max(initial=-1)) + 1, int(epoch.max(initial=-1)) + 1), np.nan)
        table[model, epoch] = self.metrics[value][rows]
        return table


def read_record(folder: str | Path) -> Record:
    """Reads a study's folder, finished or not."""
    folder = Path(folder)
    question = read_question(folder)
    done = {path: read_done(path) for path in sorted((folder / "jobs").glob("*/done.json"))}
    # What another question left in the folder does not count.
    done = {path: job for path, job in done.items() if job.get("question") == question.get("hash")}
    tables = [read_metrics(path.with_name("metrics.parquet")) for path in done]
    return Record(
        folder=folder,
        question=question,
        splits=read_json(folder / "splits.json") if (folder / "splits.json").is_file() else [],
        metrics={
            name: np.concatenate([t[name] for t in tables]) if tables else np.zeros(0) for name in (*KEYS, *VALUES)
        },
        jobs={path.parent.name: job for path, job in done.items()},
        result=read_json(folder / "result.json") if (folder / "result.json").is_file() else None,
    )


def read_question(folder: Path) -> dict[str, Any]:
    """Reads ``study.json``."""
    path = folder / "study.json"
    if not path.is_file():
        raise DataError(f"{folder} is not the folder of a study: it has no study.json")
    found = read_json(path)
    if not isinstance(found, dict) or "data_hash" not in found:
        raise DataError(f"{path} is damaged: it is not the question of a study; --fresh begins the study anew")
    return found


def read_done(path: Path) -> dict[str, Any]:
    """Reads a job's ``done.json``."""
    found = read_json(path)
    if not isinstance(found, dict) or "wall_s" not in found:
        raise DataError(f"{path} is damaged; {_AGAIN.format(path.parent)}")
    return found


def write_metrics(path: Path, columns: dict[str, Sequence[Any] | np.ndarray]) -> None:
    """Writes rows of metrics as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: pa.array(columns[name]) for name in (*KEYS, *VALUES)})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary)


def read_metrics(path: Path) -> dict[str, np.ndarray]:
    """Reads rows of metrics, by column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        columns = {name: table[name].to_numpy() for name in (*KEYS, *VALUES)}
        return columns | {"role": columns["role"].astype(str)}
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        raise DataError(f"{path} cannot be read: {error}; {_AGAIN.format(path.parent)}") from None


def write_json(path: Path, content: Any) -> None:
    """Writes JSON, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Reads JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
