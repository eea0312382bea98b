"""The sets known by name, and where to find them."""

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

from softmask.data.cache import cached, raw_folder
from softmask.data.files import load_store
from softmask.data.molecules import READER_VERSION as MOLECULES_VERSION
from softmask.data.molecules import SUFFIX, digest, load_molecules
from softmask.data.raw import RawFiles
from softmask.data.samples import SAMPLE, SAMPLE_FILE
from softmask.data.store import GraphStore
from softmask.errors import DataError


@dataclass(frozen=True)
class Counts:
    """What a set must hold. Edges are undirected ones, a self loop is one; labels are distinct values."""

    graphs: int
    classes: int
    nodes: int
    edges: int
    self_loops: int
    isolated: int
    node_labels: int
    node_attributes: int
    edge_labels: int


TU_SETS: dict[str, Counts] = {
    "MUTAG": Counts(188, 2, 3_371, 3_721, 0, 0, 7, 0, 4),
    "PROTEINS": Counts(1_113, 2, 43_471, 81_044, 0, 5, 3, 1, 0),
    "NCI1": Counts(4_110, 2, 122_747, 132_753, 0, 428, 37, 0, 0),
    "ENZYMES": Counts(600, 6, 19_580, 37_282, 0, 106, 3, 18, 0),
    "IMDB-BINARY": Counts(1_000, 2, 19_773, 96_531, 0, 0, 0, 0, 0),
    "IMDB-MULTI": Counts(1_500, 3, 19_502, 98_903, 0, 0, 0, 0, 0),
    "COLLAB": Counts(5_000, 3, 372_474, 12_288_916, 2_837, 0, 0, 0, 0),
    "REDDIT-BINARY": Counts(2_000, 2, 859_254, 995_508, 0, 21, 0, 0, 0),
    "REDDIT-MULTI-5K": Counts(4_999, 5, 2_542_071, 2_973_778, 0, 45, 0, 0, 0),
    "REDDIT-MULTI-12K": Counts(11_929, 11, 4_669_116, 5_450_243, 0, 89, 0, 0, 0),
}
"""The ten sets of the paper, of the TU Dortmund collection."""

QM9_SETS: dict[str, Counts] = {
    "qm9": Counts(130_831, 0, 2_359_210, 2_440_360, 0, 0, 0, 11, 4),
    SAMPLE: Counts(1_000, 0, 18_198, 18_834, 0, 0, 0, 11, 4),
}
"""The set of the paper's Table 2, made from a package; and 1000 molecules of it, which softmask ships."""

KNOWN = TU_SETS | QM9_SETS

SYNTHETIC = ("hierarchy", "motif", "ba2motifs")
"""Sets with ground truth, made on the spot; ``motif:graphs=500,seed=1`` sets the size and the seed."""


def open_data(data: str | Path, data_dir: Path | None = None) -> GraphStore:
    """Opens a set: a folder or zip file in TU layout, a packed store (``.safetensors``), molecules
    (``.molecules.xz``), or a name.

    A name is looked for as ``NAME/``, ``NAME.zip``, ``NAME.safetensors`` and ``NAME.molecules.xz`` in `data_dir`, in
    the folder that ``SOFTMASK_DATA`` names, and among the downloads. What is no store yet is packed once and then
    kept in the cache.

    Args:
        data: a path, or a name of ``softmask data list``.
        data_dir: a folder with sets.
    """
    if is_synthetic(str(data)):
        return _synthetic(str(data))
    path = find(data, data_dir)
    if path.suffix == ".safetensors":
        return load_store(path)
    if path.name.endswith(SUFFIX):
        key = f"molecules-{digest(path)[:40]}-r{MOLECULES_VERSION}"
        return cached(key, lambda: load_molecules(path).to_store())
    from softmask.data.tu import READER_VERSION, read_raw

    with RawFiles(path) as raw:
        return cached(f"tu-{raw.digest()[:40]}-r{READER_VERSION}", lambda: read_raw(raw))


def find(data: str | Path, data_dir: Path | None = None) -> Path:
    """Where a set lies: the path itself, or that of a name."""
    path = Path(data)
    name = str(data)
    is_path = isinstance(data, Path) or len(path.parts) > 1 or name.endswith((".zip", ".safetensors", SUFFIX))
    if not name or "\0" in name:
        raise DataError("the name of a set, or a path, is empty or holds a zero byte")
    if is_path or path.exists():
        if path.exists():
            return path
        raise DataError(f"{path}: there is no such file or folder")
    folders = [Path(f) for f in (data_dir, os.environ.get("SOFTMASK_DATA")) if f]
    if data_dir is not None and not Path(data_dir).is_dir():
        raise DataError(f"--data-dir {data_dir}: there is no such folder")
    for folder in (*folders, raw_folder()):
        for suffix in ("", ".zip", ".safetensors", SUFFIX):
            if (place := folder / f"{name}{suffix}").exists():
                return place
    if name == SAMPLE:
        return SAMPLE_FILE
    raise DataError(_not_found(name))


def is_synthetic(data: str) -> bool:
    """Whether this names a synthetic set (a file of that name would have to be given as ``./motif``)."""
    return data.partition(":")[0] in SYNTHETIC


def _not_found(name: str) -> str:
    known = {n.lower(): n for n in (*KNOWN, *SYNTHETIC)}
    where = "it is no file or folder here, and not in --data-dir, the folder SOFTMASK_DATA, or the downloads"
    if name in TU_SETS:
        return (
            f"{name}: {where}. Say where it is with --data-dir FOLDER or SOFTMASK_DATA=FOLDER, or download "
            f"it: softmask data get {name}"
        )
    if name == "qm9":
        return (
            f"{name}: {where}. Say where it is with --data-dir FOLDER or SOFTMASK_DATA=FOLDER, or make it from the "
            f"package qm9pack: pip install 'softmask[qm9]', then softmask data get qm9. {SAMPLE} needs neither"
        )
    close = [known[n] for n in difflib.get_close_matches(name.lower(), known, n=1)]
    hint = f"Did you mean {close[0]}? " if close else ""
    return (
        f"{name}: {where}. {hint}Give a path, say where it is with --data-dir FOLDER or "
        "SOFTMASK_DATA=FOLDER, or download it if it is one of the TU collection: softmask data get "
        f"{close[0] if close else name} (known names: softmask data list)"
    )


def _synthetic(data: str) -> GraphStore:
    from softmask.data import synthetic

    name, _, text = data.partition(":")
    options = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if key not in ("graphs", "seed") or not value.isascii() or not value.isdigit() or len(value) > 9:
            raise DataError(f"{data}: {part!r} is no option; the form is {name}:graphs=500,seed=1")
        options["num_graphs" if key == "graphs" else key] = int(value)
    return getattr(synthetic, name)(**options)
