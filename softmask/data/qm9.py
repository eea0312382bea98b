"""QM9 from the package qm9pack on PyPI: its CSV files to molecules with bonds."""

import csv
import warnings
from collections.abc import Iterator, Sequence
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

import numpy as np

from softmask.data.bonds import Bonds, UnmatchedError, match_bonds
from softmask.data.cache import raw_folder
from softmask.data.molecules import ELEMENTS, SUFFIX, Molecules, Progress, save_molecules
from softmask.data.samples import SAMPLE
from softmask.errors import DataError

_INSTALL = "pip install 'softmask[qm9]'. For a first try without it there is the sample: qm9-sample"
_REINSTALL = "To get the files anew: pip install --force-reinstall --no-deps qm9pack"

PARTS = ("qm9_part1.csv", "qm9_part2.csv", "qm9_part3.csv")
MOLECULES = 130_831

TARGETS = {
    "mu": ("D", "Dipole_debye"),
    "alpha": ("a0^3", "Polarizability_bohr3"),
    "homo": ("Ha", "HOMO_au"),
    "lumo": ("Ha", "LUMO_au"),
    "gap": ("Ha", "HOMO_LUMO_gap_au"),
    "r2": ("a0^2", "R2_bohr2"),
    "zpve": ("Ha", "ZPVE_au"),
    "U0": ("Ha", "InternalEnergy_0K_au"),
    "U": ("Ha", "InternalEnergy_298K_au"),
    "H": ("Ha", "Enthalphy_298K_au"),
    "G": ("Ha", "GibbsFreeEnergy_298K_au"),
    "Cv": ("cal/(mol K)", "Heatcapacity_Cv_cal_mol_K"),
}
"""The targets in the order of ``y``: unit, and the column of the package's files. These are the paper's units."""

_NEEDED = ("Index", "SMILES", "N_atoms", "Elements", "XYZ_Ang", *(column for _, column in TARGETS.values()))


def units(name: str | None, targets: Sequence[str]) -> list[str] | None:
    """The units of targets of QM9 or its sample; ``None`` of those of another set."""
    known = name in ("qm9", SAMPLE) and set(targets) <= set(TARGETS)
    return [TARGETS[target][0] for target in targets] if known else None


class UnmatchedMoleculeWarning(UserWarning):
    """Molecules were left out, because their bonds could not be found."""


class Row(NamedTuple):
    """A line of the package's files."""

    number: int
    smiles: str
    element: np.ndarray  # [atoms]
    position: np.ndarray  # [atoms, 3] float64
    y: list[float]


def get_qm9(folder: Path | None = None, again: bool = False, progress: Progress | None = None) -> Path:
    """Makes the file of all molecules from the installed package, once.

    Args:
        folder: where to put ``qm9.molecules.xz``; by default the cache, where names are looked for.
        again: whether to make it even if it is there.
        progress: called with the molecules so far and in all; then, while the file is written, with bytes.
    """
    folder = Path(folder) if folder is not None else raw_folder()
    path = folder / f"qm9{SUFFIX}"
    if path.exists() and not again:
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made ({error.strerror})") from None
    save_molecules(read_package(progress), path, progress)
    return path


def read_package(progress: Progress | None = None) -> Molecules:
    """All molecules of the installed package. Those whose bonds cannot be found are listed in a warning."""
    # Found, not imported: no code of it is run.
    package = util.find_spec("qm9pack")
    for needed, found in (("qm9pack", package), ("rdkit", util.find_spec("rdkit"))):
        if found is None:
            raise DataError(f"qm9 is made from the package qm9pack with RDKit, and {needed} is missing: {_INSTALL}")
    assert package is not None
    assert package.origin is not None
    folder = Path(package.origin).parent / "data"
    molecules = read_files([folder / part for part in PARTS], progress)
    missing = len(molecules.info["unmatched"])
    if len(molecules) + missing != MOLECULES:
        raise DataError(
            f"{folder}: {len(molecules) + missing:,} molecules, but QM9 has {MOLECULES:,}; is a file cut "
            f"short? {_REINSTALL}"
        )
    version = metadata.version("qm9pack")
    molecules.info["source"] = f"qm9pack {version} (PyPI; MIT License, Copyright (c) 2024 Raghu)"
    return molecules


def read_files(paths: Sequence[Path], progress: Progress | None = None) -> Molecules:
    """The molecules of files in the package's layout, one after the other."""
    from rdkit import rdBase

    rows: list[Row] = []
    found: list[Bonds] = []
    unmatched: list[str] = []
    seen: set[int] = set()
    with rdBase.BlockLogs():
        for path in paths:
            for line, row in _rows(path):
                if row.number in seen:
                    raise DataError(f"{path}, line {line}: molecule {row.number} for the second time")
                seen.add(row.number)
                try:
                    found.append(match_bonds(row.smiles, row.element, row.position))
                    rows.append(row)
                except UnmatchedError as error:
                    unmatched.append(f"{row.number} {row.smiles}: {error}")
                if progress is not None and len(seen) % 256 == 0:
                    progress(len(seen), MOLECULES)
    if not rows:
        raise DataError(f"{', '.join(map(str, paths))}: no molecules")
    if unmatched:
        warnings.warn(
            f"{len(unmatched)} molecules are left out, their bonds could not be found: {'; '.join(unmatched)}",
            UnmatchedMoleculeWarning,
            stacklevel=2,
        )
    return Molecules(
        index=np.array([row.number for row in rows], dtype=np.int32),
        atoms=np.array([len(row.element) for row in rows], dtype=np.uint8),
        bonds=np.array([len(bonds.kind) for bonds in found], dtype=np.uint8),
        element=np.concatenate([row.element for row in rows]),
        hybridisation=np.concatenate([bonds.hybridisation for bonds in found]),
        position=np.concatenate([row.position for row in rows]).astype(np.float32),
        ends=np.concatenate([bonds.ends for bonds in found]),
        kind=np.concatenate([bonds.kind for bonds in found]),
        y=np.array([row.y for row in rows]),
        smiles=[row.smiles for row in rows],
        info={"name": "qm9", "targets": list(TARGETS), "unmatched": unmatched},
    )


def _rows(path: Path) -> Iterator[tuple[int, Row]]:
    """The rows of a file with the number of their line."""
    try:
        # Latin-1 reads any byte: what is wrong comes to light in its own line, not where a block of the file begins.
        with path.open(newline="", encoding="latin-1") as stream:
            reader = csv.reader(stream, strict=True)
            line = 1
            try:
                header = next(reader, [])
                lacking = [name for name in _NEEDED if name not in header]
                if lacking:
                    raise DataError(f"there is no column {lacking[0]}")
                column = {name: header.index(name) for name in _NEEDED}
                line = reader.line_num + 1
                for cells in reader:
                    if len(cells) != len(header):
                        raise DataError(f"{len(cells)} cells, but the first line names {len(header)}")
                    yield line, _row({name: cells[i] for name, i in column.items()})
                    line = reader.line_num + 1
            except (DataError, csv.Error) as error:
                raise DataError(f"{path}, line {line}: {error}. {_REINSTALL}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). {_REINSTALL}") from None


def _row(cells: dict[str, str]) -> Row:
    index, atoms = (_integer(cells[name], name) for name in ("Index", "N_atoms"))
    if not cells["SMILES"].isascii():
        raise DataError(f"SMILES is {cells['SMILES']!r}")
    symbols = cells["Elements"].strip("[]").replace("'", "").split(",")
    strange = [symbol for symbol in symbols if symbol not in ELEMENTS]
    if strange:
        raise DataError(f"unknown element {strange[0][:20]!r}; known are {', '.join(ELEMENTS)}")
    numbers = cells["XYZ_Ang"].replace("[", "").replace("]", "").split(",")
    position = np.array([_number(text, "a position") for text in numbers])
    if len(symbols) != atoms or len(position) != 3 * atoms or atoms > 255:
        raise DataError(f"{atoms} atoms, but {len(symbols)} elements and {len(position)} coordinates")
    y = [_number(cells[column], column) for _, column in TARGETS.values()]
    element = np.array([ELEMENTS[symbol] for symbol in symbols], dtype=np.uint8)
    return Row(index, cells["SMILES"], element, position.reshape(-1, 3), y)


def _integer(text: str, what: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise DataError(f"{what} is {text[:20]!r}, no whole number")
    return int(text)


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise DataError(f"{what} is {text[:20]!r}, no finite number")
    return value
