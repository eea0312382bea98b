"""Molecules with positions: a small file to carry and to ship, and the GraphStore made from it."""

import dataclasses
import hashlib
import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from softmask.atomic import atomic_path
from softmask.data.bonds import BOND_KINDS, HYBRIDISATIONS
from softmask.data.pack import from_edges
from softmask.data.store import GraphStore
from softmask.errors import DataError, SettingError

SUFFIX = ".molecules.xz"
READER_VERSION = 1
"""Part of the key of the cache: raise it when :meth:`Molecules.to_store` makes another store of the same file."""

ELEMENTS = {"H": 1, "C": 6, "N": 7, "O": 8, "F": 9}
NODE_FEATURES = (*ELEMENTS, "atomic number", "aromatic", "sp", "sp2", "sp3", "hydrogens")
"""The columns of ``node_attr``: those of PyG's QM9, in its order."""

FORMAT = "softmask molecules"
FORMAT_VERSION = 1
_LIMIT = 2**30  # a small file must not unpack to any size; the whole of QM9 is 0.1 of this
_BLOCK = 2**20

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, eq=False)
class Molecules:
    """Molecules as flat arrays that hold nothing twice; atoms and bonds of all of them stand end to end.

    Args:
        index: ``[molecules]`` int32, number of each in the collection it is from.
        atoms, bonds: ``[molecules]`` uint8, how many it has.
        element: ``[all atoms]`` uint8, atomic number.
        hybridisation: ``[all atoms]`` uint8, an index into :data:`~softmask.data.bonds.HYBRIDISATIONS`.
        position: ``[all atoms, 3]`` float32, in Angstrom.
        ends: ``[all bonds, 2]`` uint8, atoms of each bond, counted within the molecule, the lower first.
        kind: ``[all bonds]`` uint8, of :data:`~softmask.data.bonds.BOND_KINDS`.
        y: ``[molecules, targets]`` float64.
        smiles: of each molecule.
        info: ``name``, ``targets`` and ``source`` for the store; and ``unmatched``: a line for each molecule that is
            missing because its bonds could not be found.
    """

    index: np.ndarray
    atoms: np.ndarray
    bonds: np.ndarray
    element: np.ndarray
    hybridisation: np.ndarray
    position: np.ndarray
    ends: np.ndarray
    kind: np.ndarray
    y: np.ndarray
    smiles: list[str]
    info: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.index)

    def select(self, chosen: np.ndarray, name: str) -> "Molecules":
        """Those where a boolean mask is true, under another name."""
        of_atom, of_bond = np.repeat(chosen, self.atoms), np.repeat(chosen, self.bonds)
        arrays: dict[str, Any] = {n: getattr(self, n)[chosen] for n in ("index", "atoms", "bonds", "y")}
        arrays |= {n: getattr(self, n)[of_atom] for n in ("element", "hybridisation", "position")}
        arrays |= {n: getattr(self, n)[of_bond] for n in ("ends", "kind")}
        smiles = [text for text, keep in zip(self.smiles, chosen) if keep]
        return dataclasses.replace(self, **arrays, smiles=smiles, info={**self.info, "name": name})

    def to_store(self) -> GraphStore:
        """As a GraphStore.

        ``node_attr`` holds :data:`NODE_FEATURES`, ``pos`` the positions, ``edge_label`` the kind of each bond,
        ``edge_attr`` its length in Angstrom, ``y`` the targets, ``info["names"]`` the SMILES.
        """
        first = np.repeat(np.cumsum(self.atoms, dtype=np.int64) - self.atoms, self.bonds)
        u, v = (self.ends[:, i].astype(np.int64) for i in (0, 1))
        length = np.sqrt(np.square(self.position[first + u].astype(np.float64) - self.position[first + v]).sum(axis=1))

        # Of the graphs' edges one way stands beside the other: edge i at 2 i and 2 i + 1.
        edges = torch.from_numpy(np.stack([np.stack([u, v], 1), np.stack([v, u], 1)]).reshape(2, -1))
        both = np.repeat(np.arange(len(u)), 2)
        store = from_edges(
            edges.split((2 * self.bonds.astype(np.int64)).tolist(), dim=1),
            self.atoms.tolist(),
            {
                "node_attr": torch.from_numpy(self._features(first + u, first + v)),
                "pos": torch.from_numpy(self.position),
                "edge_label": torch.from_numpy(self.kind[both, None].astype(np.int32)),
                "edge_attr": torch.from_numpy(length[both, None].astype(np.float32)),
                "y": torch.from_numpy(self.y),
            },
            {key: value for key, value in self.info.items() if key != "unmatched"} | {"names": self.smiles},
        )
        return store

    def _features(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """:data:`NODE_FEATURES` of all atoms. An atom is aromatic if a bond of it is, as RDKit has it."""
        count = len(self.element)
        ends, others = np.concatenate([u, v]), np.concatenate([v, u])
        aromatic = np.zeros(count, dtype=bool)
        aromatic[ends[np.tile(self.kind == BOND_KINDS["aromatic"], 2)]] = True
        hydrogens = np.bincount(ends[self.element[others] == 1], minlength=count)
        columns = [*(self.element == z for z in ELEMENTS.values()), self.element, aromatic]
        columns += [self.hybridisation == HYBRIDISATIONS.index(name) for name in ("sp", "sp2", "sp3")]
        columns.append(hydrogens)
        table = np.empty((count, len(NODE_FEATURES)), dtype=np.float32)
        for i, column in enumerate(columns):
            table[:, i] = column
        return table


_ARRAYS: dict[str, tuple[type, str, tuple[int, ...]]] = {
    "index": (np.int32, "molecules", ()),
    "atoms": (np.uint8, "molecules", ()),
    "bonds": (np.uint8, "molecules", ()),
    "element": (np.uint8, "atoms", ()),
    "hybridisation": (np.uint8, "atoms", ()),
    "position": (np.float32, "atoms", (3,)),
    "ends": (np.uint8, "bonds", (2,)),
    "kind": (np.uint8, "bonds", ()),
}


def to_bytes(molecules: Molecules) -> bytes:
    """The content of a file before it is compressed: safetensors, the same bytes for the same molecules."""
    from safetensors.numpy import save

    about = {"format": FORMAT, "format_version": FORMAT_VERSION, "info": molecules.info, "smiles": molecules.smiles}
    arrays = {name: getattr(molecules, name) for name in (*_ARRAYS, "y")}
    arrays["about"] = np.frombuffer(json.dumps(about, sort_keys=True).encode(), dtype=np.uint8)
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def save_molecules(molecules: Molecules, path: Path, progress: Progress | None = None) -> None:
    """Writes molecules to one compressed file, whole or not at all."""
    data = memoryview(to_bytes(molecules))
    # Positions do not repeat: a better preset takes longer and saves nothing.
    compressor = lzma.LZMACompressor(check=lzma.CHECK_SHA256, preset=3)
    try:
        with atomic_path(path) as temporary, temporary.open("wb") as out:
            for first in range(0, len(data), _BLOCK):
                out.write(compressor.compress(data[first : first + _BLOCK]))
                if progress is not None:
                    progress(min(first + _BLOCK, len(data)), len(data))
            out.write(compressor.flush())
    except SettingError as error:
        raise DataError(f"{path}: cannot be written ({error})") from None


def digest(path: Path) -> str:
    """SHA-256 of a file, for the cache."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def load_molecules(path: Path) -> Molecules:
    """Reads what :func:`save_molecules` wrote, and checks it: no file leads to an index out of range."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = Path(path)
    try:
        data = _unpacked(path)
        arrays = load(data)
        about = json.loads(arrays.pop("about").tobytes())
        if about["format"] != FORMAT:
            raise DataError(f"{path}: no file of molecules")
        if about["format_version"] > FORMAT_VERSION:
            raise DataError(
                f"{path}: format {about['format_version']}, this softmask reads up to {FORMAT_VERSION}: update softmask"
            )
        molecules = Molecules(**arrays, smiles=about["smiles"], info=about["info"])
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (lzma.LZMAError, EOFError) as error:
        raise DataError(f"{path}: damaged, or no xz file ({error}); make it again") from None
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: no file of molecules, or damaged ({error}); make it again") from None
    if wrong := _wrong(molecules):
        raise DataError(f"{path}: damaged: {wrong}; make it again")
    return molecules


def _unpacked(path: Path) -> bytes:
    decompressor = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    data = decompressor.decompress(path.read_bytes(), max_length=_LIMIT)
    if not decompressor.eof:
        raise EOFError("truncated" if decompressor.needs_input else f"more than {_LIMIT} bytes when unpacked")
    if decompressor.unused_data:
        raise EOFError("there is more after its end")
    return data


def _wrong(m: Molecules) -> str | None:
    """What is wrong with molecules from a file, if anything."""
    for name, (dtype, _, rest) in _ARRAYS.items():
        array = getattr(m, name)
        if array.dtype != dtype or array.shape[1:] != rest or array.ndim != 1 + len(rest):
            return f"{name} holds {array.dtype} of shape {list(array.shape)}"
    rows = {"molecules": len(m.index), "atoms": int(m.atoms.sum()), "bonds": int(m.bonds.sum())}
    for name, (_, of, _) in _ARRAYS.items():
        if len(getattr(m, name)) != rows[of]:
            return f"{name} has {len(getattr(m, name))} rows, expected {rows[of]}"
    if m.y.dtype != np.float64 or m.y.ndim != 2 or len(m.y) != len(m):
        return f"y holds {m.y.dtype} of shape {list(m.y.shape)}"
    if not np.isfinite(m.y).all() or not np.isfinite(m.position).all():
        return "there is a number that is not finite"
    if not isinstance(m.smiles, list) or len(m.smiles) != len(m) or not all(isinstance(s, str) for s in m.smiles):
        return "there is not one SMILES for each molecule"
    if not isinstance(m.info, dict) or not set(m.info) <= {"name", "targets", "source", "unmatched"}:
        return "the information about the set is missing or has unknown fields"
    if not isinstance(m.info.get("targets"), list) or len(m.info["targets"]) != m.y.shape[1]:
        return "there is not one name for each target"
    size = np.repeat(m.atoms, m.bonds)
    if (m.ends >= size[:, None]).any() or (m.ends[:, 0] >= m.ends[:, 1]).any():
        return "a bond leads out of its molecule or from an atom to itself"
    for name, known in (("element", ELEMENTS.values()), ("kind", BOND_KINDS.values())):
        if not np.isin(getattr(m, name), list(known)).all():
            return f"{name} has an unknown value"
    return "hybridisation has an unknown value" if (m.hybridisation >= len(HYBRIDISATIONS)).any() else None
