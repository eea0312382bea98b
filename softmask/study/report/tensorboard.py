"""A study as event files for TensorBoard, whose package is an extra."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from softmask.atomic import atomic_path
from softmask.errors import SettingError
from softmask.study.record import VALUES, Record
from softmask.study.report.curves import mean_curve
from softmask.study.report.models import group_models, rows_where

NAME = "events.out.tfevents.0.softmask"
TAGS = {name: "/".join(reversed(name.split("_"))) for name in VALUES}  # train_loss: loss/train


def write_events(record: Record, folder: str | Path) -> Path:
    """Writes the learning curves of a study for ``tensorboard --logdir FOLDER``.

    Every model has a run of its own, ``ROLE/setting-S/run-R-fold-F-repeat-K`` (numbers from 1), and beside them
    ``ROLE/setting-S/mean`` has the mean over models. Tags are ``metric/train``, ``loss/test`` and so on; accuracies
    are fractions, as in the record. Files of an earlier call are replaced.

    Args:
        record: the study, finished or not.
        folder: made if need be.
    """
    _check_installed()
    folder, stamp = Path(folder), _stamp(record)
    for role in sorted(set(record.metrics["role"].astype(str))):
        rows = rows_where(record, role=role)
        models, member = group_models(record, rows)
        by_model = rows[np.lexsort((record.metrics["epoch"][rows].astype(int), member))]
        ends = np.cumsum(np.bincount(member, minlength=len(models)))
        for (setting, run, fold, repeat), mine in zip(models + 1, np.split(by_model, ends[:-1])):
            columns = {name: record.metrics[name][mine].astype(float) for name in VALUES}
            where = folder / role / f"setting-{setting}" / f"run-{run}-fold-{fold}-repeat-{repeat}"
            _write(where, record.metrics["epoch"][mine].astype(int), columns, stamp)
        for setting in np.unique(models[:, 0]).tolist():
            columns = _means(record, role, setting)
            epochs = np.arange(1, len(columns[VALUES[0]]) + 1)
            _write(folder / role / f"setting-{setting + 1}" / "mean", epochs, columns, stamp)
    return folder


def _check_installed() -> None:
    try:
        import tensorboard.summary.writer.record_writer  # noqa: F401
    except ImportError:
        raise SettingError(
            "event files need the package tensorboard, which is not installed: pip install 'softmask[tensorboard]'"
        ) from None


def _write(where: Path, epochs: np.ndarray, columns: dict[str, np.ndarray], stamp: float) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"cannot write {where}: {error.strerror}") from None
    with atomic_path(where / NAME) as temporary, temporary.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=stamp, file_version="brain.Event:2").SerializeToString())
        for k, epoch in enumerate(epochs.tolist()):
            there = [name for name, column in columns.items() if np.isfinite(column[k])]
            values = [Summary.Value(tag=TAGS[name], simple_value=columns[name][k]) for name in there]
            writer.write(Event(wall_time=stamp, step=epoch, summary=Summary(value=values)).SerializeToString())
        writer.flush()


def _means(record: Record, role: str, setting: int) -> dict[str, np.ndarray]:
    """The mean curves of all columns, as long as the longest, NaN where there is none."""
    curves = {name: mean_curve(record, name, role=role, setting=setting) for name in VALUES}
    length = max((len(curve.mean) for curve in curves.values() if curve is not None), default=0)
    means = {name: np.zeros(0) if curve is None else curve.mean for name, curve in curves.items()}
    return {name: np.pad(mean, (0, length - len(mean)), constant_values=np.nan) for name, mean in means.items()}


def _stamp(record: Record) -> float:
    """When the study was made: TensorBoard wants a time, and the record has no time of an epoch."""
    date = record.question.get("provenance", {}).get("date")
    try:
        return datetime.strptime(str(date), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
