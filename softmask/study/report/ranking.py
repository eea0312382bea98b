"""The settings of a tuning, ranked by what the validation parts say."""

from dataclasses import dataclass

import numpy as np

from softmask.study.record import Record
from softmask.study.report.models import group_models, rows_where


@dataclass(frozen=True)
class Ranked:
    """One setting and how it did on the validation parts.

    Args:
        setting: index into the settings of the study.
        mean: over its models, of the best validation metric of each over its epochs.
        std: over its models.
        models: how many there are.
        epochs: the most that one of them trained.
        chosen: whether this is the setting the tuning chose.
    """

    setting: int
    mean: float
    std: float
    models: int
    epochs: int
    chosen: bool


def rank_settings(record: Record) -> list[Ranked]:
    """Settings by their validation metric, the best first; empty where no models were trained to choose settings.

    The chosen one is ``result["chosen"]`` where the study says so, else the best of a finished tuning. Where every
    fold chooses for itself (fair with a grid), none is marked.
    """
    rows = rows_where(record, role="select")
    if not len(rows):
        return []
    worst, better = (-np.inf, np.maximum) if record.classes else (np.inf, np.minimum)
    models, member = group_models(record, rows)
    values = record.metrics["validation_metric"][rows].astype(float)
    best, last = np.full(len(models), worst), np.zeros(len(models), dtype=int)
    better.at(best, member, np.where(np.isfinite(values), values, worst))
    np.maximum.at(last, member, record.metrics["epoch"][rows].astype(int))
    best = np.where(np.isfinite(best), best, np.nan)
    ranked = []
    for setting in np.unique(models[:, 0]):
        mine = models[:, 0] == setting
        row = (float(best[mine].mean()), float(best[mine].std()), int(mine.sum()), int(last[mine].max()))
        ranked.append((int(setting), *row))
    # A setting with a model that never gave a number has no mean, and comes last.
    ranked.sort(key=lambda r: (np.isnan(r[1]), -r[1] if record.classes else r[1], r[0]))
    if record.result is not None and (told := record.result.get("ranking")):
        # The study's own figures, which heed its patience.
        rows_of = {row[0]: row for row in ranked}
        ranked = [(t["setting"], t["mean"], t["std"], *rows_of[t["setting"]][3:]) for t in told]
    chosen = _chosen(record, ranked[0][0])
    return [Ranked(*row, chosen=row[0] == chosen) for row in ranked]


def times_chosen(record: Record) -> dict[int, int]:
    """How many folds of all runs were trained with each setting, where every fold chose its own."""
    models, _ = group_models(record, rows_where(record, role="fair"))
    settings, counts = np.unique(np.unique(models[:, :3], axis=0)[:, 0], return_counts=True)
    return {int(s): int(n) for s, n in zip(settings, counts)}


def _chosen(record: Record, best: int) -> int | None:
    if record.result is None:
        return None
    told = record.result.get("chosen")
    if isinstance(told, int):
        return told
    return best if record.question["protocol"] == "tune" else None
