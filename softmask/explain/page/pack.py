"""A graph as few characters: flat arrays, compressed, in base64. ``data.js`` reads what is written here."""

import base64
import zlib
from collections.abc import Sequence

import numpy as np

from softmask.explain.subject import Subject

FULL = 65535  # of a number from 0 to 1, or of a place
UNIT = 1000.0  # the longer side of the drawing, in the unit of a mark's radius


def pack(subject: Subject, thresholds: Sequence[float], words: dict[str, int]) -> str:
    """The arrays of a graph one after the other, each as unsigned integers of two bytes, the lower first.

    x, y, importance, how many of the thresholds the node stays at, the label (an index into the words, `words` being
    extended), the role, the node's number and that of its neighbours (lower and upper half each), the masks layer by
    layer; then of the edges the step of the first end since the edge before, the second end, and the kind of bond.
    """
    said, nodes = subject.explanation, subject.nodes
    place = _unit(subject.place)
    # Exactly the nodes of Explanation.subgraph(threshold), whatever is lost below in rounding the importance.
    stays = np.searchsorted(np.asarray(thresholds), said.importance, side="right")
    label = [words.setdefault(w, len(words)) for w in subject.labels] if subject.labels else np.zeros(nodes)
    role = said.data.get("node_role")
    own = np.arange(nodes) if (kept := said.data.get("nodes")) is None else kept.cpu().numpy()
    degree = np.bincount(subject.edges.reshape(-1), minlength=nodes) if subject.degree is None else subject.degree
    order = np.lexsort((subject.edges[:, 1], subject.edges[:, 0]))
    first, second = subject.edges[order].T
    arrays = [
        *(place[:, 0] * FULL, place[:, 1] * FULL, said.importance * FULL, stays, label),
        np.zeros(nodes) if role is None else role.cpu().numpy().reshape(-1),
        *(half for whole in (own, degree) for half in (whole % (FULL + 1), whole // (FULL + 1))),
        said.masks.T.reshape(-1) * FULL,
        *(np.diff(first, prepend=0), second),
        np.ones(len(order)) if subject.bonds is None else subject.bonds[order],
    ]
    flat = np.concatenate([np.rint(a) for a in arrays])
    assert flat.min(initial=0) >= 0
    assert flat.max(initial=0) <= FULL
    written = flat.astype("<u2").tobytes()
    return base64.b64encode(zlib.compress(written, 9)).decode()


def radius(subject: Subject) -> float:
    """Of a node's mark, in thousandths of the drawing: few marks touch, and none is too small to point at."""
    most = 420 / np.sqrt(subject.nodes)
    if subject.nodes > 1:
        from scipy.spatial import cKDTree

        place = _unit(subject.place) * UNIT
        most = min(most, 0.42 * float(np.quantile(cKDTree(place).query(place, k=2)[0][:, 1], 0.2)))
    return round(float(np.clip(most, 2.2, 30)), 2)


def _unit(place: np.ndarray) -> np.ndarray:
    """Places from 0 to 1 along the longer side, centred along the other; y downwards, as on a screen."""
    low, high = place.min(axis=0), place.max(axis=0)
    scaled = (place - (low + high) / 2) / max(float((high - low).max()), 1e-12) + 0.5
    return scaled * [1, -1] + [0, 1]
