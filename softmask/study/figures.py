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


def _paper(record: Record, role: str) -> tuple[np.ndarray, list[Any]]:
    scores, epochs = [], []
    for run in range(record.question["runs"]):
        curves = record.curves("test_metric", role=role, run=run)
        epoch = best_common_epoch(curves, record.classes)
        scores.append(curves[:, epoch])
        epochs.append(epoch + 1)
    return np.array(scores), epochs


def _validated(record: Record, role: str) -> tuple[np.ndarray, list[Any]]:
    shape = (record.question["runs"], record.question["folds"])
    run, fold = (record.curves(name, role=role)[:, 0].astype(int) for name in ("run", "fold"))
    epoch = chosen_epochs(record, role)
    test = record.curves("test_metric", role=role)[np.arange(len(epoch)), epoch]
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (run, fold), test)
    np.add.at(counts, (run, fold), 1)
    return sums / counts, [(epoch[run == r] + 1).tolist() for r in range(shape[0])]


def chosen_epochs(record: Record, role: str) -> np.ndarray:
    """The epoch (from 0) that its validation part chose for each training, in the order of :meth:`Record.curves`."""
    metric, loss = (record.curves(f"validation_{what}", role=role) for what in ("metric", "loss"))
    patience = record.question["patience"]
    return np.array([best_epoch(m, v, record.classes, patience) for m, v in zip(metric, loss)])


def _figure(label: str, scores: np.ndarray, epochs: list[Any]) -> dict[str, Any]:
    means, deviations = scores.mean(axis=1), scores.std(axis=1)
    return {
        "label": label,
        "mean": float(means.mean()),
        "std": float(deviations.mean()),
        "std_of_runs": float(means.std()),
        "runs": [
            {"mean": float(m), "std": float(d), "epoch" if isinstance(e, int) else "epochs": e}
            for m, d, e in zip(means, deviations, epochs, strict=True)
        ],
        "scores": scores.tolist(),
    }


def selection(record: Record, role: str = "select") -> dict[tuple[int, int, int], float]:
    """The validation metric at its chosen epoch of every setting, by ``(setting, run, fold)``."""
    epoch = chosen_epochs(record, role)
    scores = record.curves("validation_metric", role=role)[np.arange(len(epoch)), epoch]
    keys = (record.curves(name, role=role)[:, 0].astype(int).tolist() for name in ("setting", "run", "fold"))
    return dict(zip(zip(*keys), scores.tolist()))


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
