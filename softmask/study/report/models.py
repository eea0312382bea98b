"""Which rows of a record belong to one model."""

from typing import Any

import numpy as np

from softmask.study.record import Record

KEY = ("setting", "run", "fold", "repeat")


def rows_where(record: Record, **where: Any) -> np.ndarray:
    """The rows that fit, such as ``role="paper"``, as indices."""
    chosen = np.ones(len(record.metrics["epoch"]), dtype=bool)
    for name, wanted in where.items():
        # The column of an empty record has no type to compare with.
        chosen &= record.metrics[name].astype(type(wanted)) == wanted
    return np.flatnonzero(chosen)


def group_models(record: Record, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The models among rows of one role.

    Returns:
        ``[models, 4]``: setting, run, fold and repeat of each, in this order; and ``[rows]``, the model of each row.
    """
    columns = [np.unique(record.metrics[name][rows].astype(int), return_inverse=True) for name in KEY]
    # One whole number for the four of them: sorting those is many times faster than sorting rows.
    sizes = tuple(max(len(values), 1) for values, _ in columns)
    keys, member = np.unique(np.ravel_multi_index([inverse for _, inverse in columns], sizes), return_inverse=True)
    places = np.unravel_index(keys, sizes)
    return np.stack([values[place] for (values, _), place in zip(columns, places)], axis=1), member
