"""From the metrics of a study to its figures."""

from typing import Any

import numpy as np

from softmask.baselines.registry import SOFT_MASK, way_of
from softmask.study.choose import best_common_epoch, best_epoch
from softmask.study.record import Record

LABELS = {
    "paper": "epoch chosen on the test folds",
    "fair": "epoch chosen on validation parts",
    "holdout": "epoch chosen on the validation part",
}
NO_EPOCHS = "no epoch to choose"


def figures(record: Record) -> dict[str, Any]:
    """The figures of a study, by protocol, and the optimism gap where there are both; see ``result.json``."""
    found: dict[str, Any] = {}
    roles = set(record.metrics["role"].tolist())
    for role, make in (("paper", _paper), ("fair", _validated), ("holdout", _validated)):
        if role in roles:
            scores, epochs, diverged = make(record, role)
            label = LABELS[role]
            once = all(way_of(s.get("model", SOFT_MASK)) == "once" for s in record.question["settings"])
            if len(record.question["settings"]) > 1:
                label = label.replace("epoch", "settings" if once else "epoch and settings")
            elif once:
                label = NO_EPOCHS
            found[role] = _figure(label, scores, None if once else epochs)
            if diverged.any():
                found[role]["diverged"] = int(diverged.sum())
    gap = None
    if {"paper", "fair"} <= found.keys():
        gap = found["paper"]["mean"] - found["fair"]["mean"]
    return {"figures": found, "gap": gap}


def _paper(record: Record, role: str) -> tuple[np.ndarray, list[Any], np.ndarray]:
    """The scores of all folds, run by run, the epochs that they are of, and which folds diverged."""
    scores, epochs, diverged = [], [], []
    for run in range(record.question["runs"]):
        curves = record.curves("test_metric", role=role, run=run)
        epoch = best_common_epoch(curves, record.classes)
        scores.append(curves[:, epoch])
        epochs.append(epoch + 1)
        diverged.append(_diverged(record, np.full(len(curves), epoch), role=role, run=run))
    return np.array(scores), epochs, np.array(diverged)


def _validated(record: Record, role: str) -> tuple[np.ndarray, list[Any], np.ndarray]:
    """The same; a fold diverged if any of its repeats did."""
    shape = (record.question["runs"], record.question["folds"])
    run, fold = (record.curves(name, role=role)[:, 0].astype(int) for name in ("run", "fold"))
    epoch = chosen_epochs(record, role)
    test = record.curves("test_metric", role=role)[np.arange(len(epoch)), epoch]
    sums, counts, diverged = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=bool)
    np.add.at(sums, (run, fold), test)
    np.add.at(counts, (run, fold), 1)
    np.logical_or.at(diverged, (run, fold), _diverged(record, epoch, role=role))
    return sums / counts, [(epoch[run == r] + 1).tolist() for r in range(shape[0])], diverged


def _diverged(record: Record, epoch: np.ndarray, **where: Any) -> np.ndarray:
    """Which trainings gave no numbers at their chosen epoch. An output that is none counts as wrong: 0 % correct."""
    loss, setting = record.curves("test_loss", **where), record.curves("setting", **where)[:, 0].astype(int)
    # What trains once has no loss at all.
    trains = np.array([way_of(s.get("model", SOFT_MASK)) != "once" for s in record.question["settings"]])
    return trains[setting] & ~np.isfinite(loss[np.arange(len(loss)), epoch])


def chosen_epochs(record: Record, role: str) -> np.ndarray:
    """The epoch (from 0) that its validation part chose for each training, in the order of :meth:`Record.curves`."""
    metric, loss = (record.curves(f"validation_{what}", role=role) for what in ("metric", "loss"))
    patience = record.question["patience"]
    return np.array([best_epoch(m, v, record.classes, patience) for m, v in zip(metric, loss)])


def _figure(label: str, scores: np.ndarray, epochs: list[Any] | None) -> dict[str, Any]:
    means = scores.mean(axis=1)
    # One part has no spread over folds; of several runs there is the spread over them.
    one = scores.shape[1] == 1
    deviations = [None if one else float(row.std()) for row in scores]
    spread = means.std() if one else scores.std(axis=1).mean()
    return {
        "label": label,
        "mean": float(means.mean()),
        "std": None if one and len(means) == 1 else float(spread),
        "std_of_runs": float(means.std()),
        "runs": [
            {"mean": float(m), "std": d} | ({} if e is None else {"epoch" if isinstance(e, int) else "epochs": e})
            for m, d, e in zip(means, deviations, epochs or [None] * len(means), strict=True)
        ],
        "scores": scores.tolist(),
    }


def selection(record: Record, role: str = "select") -> dict[tuple[int, int, int], tuple[float, float]]:
    """Metric and loss of the validation part at the chosen epoch of every setting, by ``(setting, run, fold)``."""
    epoch = chosen_epochs(record, role)
    model = np.arange(len(epoch))
    metric, loss = (
        record.curves(f"validation_{what}", role=role)[model, epoch].tolist() for what in ("metric", "loss")
    )
    keys = (record.curves(name, role=role)[:, 0].astype(int).tolist() for name in ("setting", "run", "fold"))
    return dict(zip(zip(*keys), zip(metric, loss)))


def rank(metric: float, loss: float, higher: bool, setting: int) -> tuple[Any, ...]:
    """Sorts settings: the best metric first, among equals the smallest loss; a diverged one comes last."""
    return not np.isfinite(metric), -metric if higher else metric, not np.isfinite(loss), loss, setting


def ranking(record: Record, role: str = "select") -> list[dict[str, Any]]:
    """The settings by their mean validation metric over runs and folds, best first."""
    by_setting: dict[int, list[tuple[float, float]]] = {}
    for (setting, _, _), scores in selection(record, role).items():
        by_setting.setdefault(setting, []).append(scores)
    rows = []
    for setting, scores_ in by_setting.items():
        metric, loss = np.array(scores_).T
        rows.append({"setting": setting, "mean": metric.mean(), "std": metric.std(), "loss": loss.mean()})
    rows.sort(key=lambda r: rank(r["mean"], r["loss"], record.classes, int(r["setting"])))
    return [{name: v if name == "setting" else float(v) for name, v in row.items()} for row in rows]
