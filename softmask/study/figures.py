"""From the metrics of a study to its figures."""

from typing import Any

import numpy as np

from softmask.study.choose import best_common_epoch, best_epoch
from softmask.study.record import Record

LABELS = {
    "paper": "epoch chosen on the test folds",
    "fair": "epoch chosen on validation parts",
    "holdout": "epoch chosen on the validation part",
}


def figures(record: Record) -> dict[str, Any]:
    """The figures of a study, by protocol, and the optimism gap where there are both; see ``result.json``."""
    found: dict[str, Any] = {}
    roles = set(record.metrics["role"].tolist())
    for role, make in (("paper", _paper), ("fair", _validated), ("holdout", _validated)):
        if role in roles:
            scores, epochs = make(record, role)
            label = LABELS[role]
            if len(record.question["settings"]) > 1:
                label = label.replace("epoch", "epoch and settings")
            found[role] = _figure(label, scores, epochs)
    gap = None
    if {"paper", "fair"} <= found.keys():
        gap = found["paper"]["mean"] - found["fair"]["mean"]
    return {"figures": found, "gap": gap}


def _paper(record: Record, role: str) -> tuple[np.ndarray, list[int | None]]:
    scores, epochs = [], []
    for run in range(record.question["runs"]):
        curves = record.curves("test_metric", role=role, run=run)
        epoch = best_common_epoch(curves, record.classes)
        scores.append(curves[:, epoch])
        epochs.append(epoch + 1)
    return np.array(scores), list(epochs)


def _validated(record: Record, role: str) -> tuple[np.ndarray, list[int | None]]:
    runs, folds = record.question["runs"], record.question["folds"]
    keys = [record.metrics[name] for name in ("setting", "run", "fold", "repeat")]
    sums, counts = np.zeros((runs, folds)), np.zeros((runs, folds))
    chosen = record.metrics["role"] == role
    for setting, run, fold, repeat in np.unique(np.stack(keys, axis=1)[chosen], axis=0):
        where = {"role": role, "setting": setting, "run": run, "fold": fold, "repeat": repeat}
        epoch = epoch_of(record, where)
        sums[run, fold] += record.curves("test_metric", **where)[0, epoch]
        counts[run, fold] += 1
    return sums / counts, [None] * runs


def epoch_of(record: Record, where: dict[str, Any]) -> int:
    """The epoch (from 0) that its validation part chose for one training."""
    metric, loss = (record.curves(f"validation_{what}", **where)[0] for what in ("metric", "loss"))
    return best_epoch(metric, loss, record.classes, record.question["patience"])


def _figure(label: str, scores: np.ndarray, epochs: list[int | None]) -> dict[str, Any]:
    means, deviations = scores.mean(axis=1), scores.std(axis=1)
    return {
        "label": label,
        "mean": float(means.mean()),
        "std": float(deviations.mean()),
        "std_of_runs": float(means.std()),
        "runs": [
            {"mean": float(m), "std": float(d), "epoch": e} for m, d, e in zip(means, deviations, epochs, strict=True)
        ],
        "scores": scores.tolist(),
    }


def selection(record: Record, role: str = "select") -> dict[tuple[int, int, int], float]:
    """The validation metric at its chosen epoch of every setting, by ``(setting, run, fold)``."""
    chosen = record.metrics["role"] == role
    keys = np.stack([record.metrics[name] for name in ("setting", "run", "fold")], axis=1)
    scores = {}
    for setting, run, fold in np.unique(keys[chosen], axis=0).tolist():
        where = {"role": role, "setting": setting, "run": run, "fold": fold}
        scores[setting, run, fold] = float(record.curves("validation_metric", **where)[0, epoch_of(record, where)])
    return scores


def ranking(record: Record, role: str = "select") -> list[dict[str, Any]]:
    """The settings by their mean validation metric over runs and folds, best first."""
    by_setting: dict[int, list[float]] = {}
    for (setting, _, _), score in selection(record, role).items():
        by_setting.setdefault(setting, []).append(score)
    rows = [
        {"setting": setting, "mean": float(np.mean(scores)), "std": float(np.std(scores))}
        for setting, scores in by_setting.items()
    ]
    sign = -1 if record.classes else 1
    # A diverged setting has no score and comes last; equals keep their order in the grid.
    return sorted(rows, key=lambda r: (not np.isfinite(r["mean"]), sign * r["mean"], r["setting"]))
