"""A GraphStore on disk: one safetensors file, with JSON metadata in its header."""

import json
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softmask.atomic import atomic_path
from softmask.data.store import INFO_FIELDS, GraphStore
from softmask.errors import DataError, SettingError

FORMAT = "softmask graphs"
FORMAT_VERSION = 1
KEY = "softmask"
"""All metadata is one JSON text under this key: safetensors writes several keys in random order."""
_MAX_HEADER = 100_000_000  # safetensors' own limit
# Nodes whose neighbours are checked at once: a set may be larger than the memory.
_PIECE = 65536

_DTYPES: dict[str, tuple[torch.dtype, ...]] = {
    "node_ptr": (torch.int64,),
    "row_ptr": (torch.int64,),
    "col": (torch.int32,),
    "row_ptr_t": (torch.int64,),
    "col_t": (torch.int32,),
    "node_label": (torch.int32,),
    "node_attr": (torch.float32, torch.float64),
    "edge_label": (torch.int32,),
    "edge_attr": (torch.float32, torch.float64),
    "y": (torch.int64, torch.float64),
    "node_role": (torch.int8,),
    "pos": (torch.float32,),
}


def save_store(store: GraphStore, path: Path) -> None:
    """Writes a store to one ``.safetensors`` file; to a temporary name first, so no half file is left."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path = Path(path)
    about = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "info": store.info,
        "content_hash": store.content_hash(),
    }
    tensors = {name: t.detach().cpu().contiguous() for name, t in store.tensors().items()}
    try:
        with atomic_path(path) as temporary:
            save_file(tensors, temporary, metadata={KEY: json.dumps(about)})
    except (SettingError, SafetensorError) as error:
        raise DataError(f"{path}: cannot be written ({error})") from None


def load_store(path: Path, verify: bool = False) -> GraphStore:
    """Opens a store. Its arrays are mapped into memory, not read, until they are used.

    The pointers and neighbours are checked, so that no file can lead to an index out of range. That the
    content is what was written (its hash) is checked on request only: it reads everything.

    Args:
        path: a file that :func:`save_store` wrote.
        verify: whether to compare the content hash.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    about = _about(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            names = list(file.keys())
            unknown = sorted(set(names) - set(_DTYPES))
            if unknown:
                raise DataError(f"{path}: not a store: it holds an array {unknown[0]!r}")
            tensors = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: damaged ({error}); make it again") from None
    info = _info(path, about)
    _check(path, tensors, info)
    store = GraphStore(**tensors, info=info)
    if verify and store.content_hash() != about.get("content_hash"):
        raise DataError(f"{path}: the content is not what was written (its hash differs); make it again")
    return store


def _about(path: Path) -> dict[str, Any]:
    """Our metadata. Read by hand, so that a file cut short and one of another kind get different messages."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = struct.unpack("<Q", stream.read(8).ljust(8, b"\0"))[0]
            # A header begins with a brace; it tells a file that was cut short from one that is something
            # else.
            brace = stream.read(1)
            if size < 10 or brace != b"{" or not 2 <= length <= _MAX_HEADER:
                raise DataError(f"{path}: not a store: no safetensors file, or its beginning is lost")
            if 8 + length > size:
                raise DataError(f"{path}: truncated: {size} bytes, its header alone needs {8 + length}; make it again")
            header = json.loads(brace + stream.read(length - 1))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: not a store: its header is no JSON") from None
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    try:
        about = json.loads(metadata[KEY]) if isinstance(metadata, dict) else None
    except (KeyError, TypeError, ValueError, RecursionError):
        about = None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise DataError(f"{path}: not a store of graphs: a safetensors file of another kind")
    try:
        version = int(about["format_version"])
        ends = [int(field["data_offsets"][1]) for name, field in header.items() if name != "__metadata__"]
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        raise DataError(f"{path}: damaged: its header cannot be understood; make it again") from None
    needed = 8 + length + max(ends, default=0)
    if version > FORMAT_VERSION:
        raise DataError(
            f"{path}: format {version}, this softmask reads up to {FORMAT_VERSION}: update softmask, or make it again"
        )
    if size < needed:
        raise DataError(f"{path}: truncated: {size} of {needed} bytes; make it again")
    return about


def _info(path: Path, about: dict[str, Any]) -> dict[str, Any]:
    info = about.get("info")
    if not isinstance(info, dict) or not set(info) <= set(INFO_FIELDS):
        raise DataError(
            f"{path}: damaged: the information about the set is missing or has unknown fields; make it again"
        )
    for name in ("classes", "targets", "names", "roles"):
        if name in info and not isinstance(info[name], list):
            raise DataError(f"{path}: damaged: {name} is no list; make it again")
    return info


def _check(path: Path, tensors: dict[str, Tensor], info: dict[str, Any]) -> None:
    def need(condition: bool, what: str) -> None:
        if not condition:
            raise DataError(f"{path}: {what}; make the file again")

    for name in ("node_ptr", "row_ptr", "col"):
        need(name in tensors, f"the array {name} is missing")
    need(("row_ptr_t" in tensors) == ("col_t" in tensors), "one of the arrays row_ptr_t and col_t is missing")
    for name, t in tensors.items():
        need(t.dtype in _DTYPES[name], f"the array {name} holds {t.dtype}, expected {_DTYPES[name][0]}")
    pointers = [("node_ptr", "row_ptr", 1), ("row_ptr", "col", 0)]
    if "col_t" in tensors:
        need(tensors["row_ptr_t"].shape == tensors["row_ptr"].shape, "row_ptr and row_ptr_t differ in length")
        need(tensors["col_t"].shape == tensors["col"].shape, "col and col_t differ in length")
        pointers.append(("row_ptr_t", "col_t", 0))
    for name, of, extra in pointers:
        ptr, entries = tensors[name], tensors[of]
        need(ptr.dim() == 1 and entries.dim() == 1, f"{name} or {of} is no list")
        fine = ptr.numel() > 0 and int(ptr[0]) == 0 and int(ptr[-1]) == entries.numel() - extra
        need(fine and bool((ptr[1:] >= ptr[:-1]).all()), f"{name} does not fit {of}")
    graphs, nodes, edges = (tensors[n].numel() for n in ("node_ptr", "row_ptr", "col"))
    graphs, nodes = graphs - 1, nodes - 1
    for name, rows, dims in (
        *(("node_label", nodes, 2), ("node_attr", nodes, 2), ("node_role", nodes, 1), ("pos", nodes, 2)),
        *(("edge_label", edges, 2), ("edge_attr", edges, 2)),
        ("y", graphs, 1 if "y" in tensors and tensors["y"].dtype == torch.int64 else 2),
    ):
        if name in tensors:
            shape = list(tensors[name].shape)
            need(len(shape) == dims and shape[0] == rows, f"{name} has shape {shape}, expected {rows} rows")
    size = torch.repeat_interleave(tensors["node_ptr"].diff(), tensors["node_ptr"].diff()).int()
    for _, name, _ in pointers[1:]:
        col, starts = tensors[name], tensors[f"row_ptr{name[3:]}"]
        for first in range(0, nodes, _PIECE):
            piece = starts[first : first + _PIECE + 1]
            entries = col[int(piece[0]) : int(piece[-1])]
            limit = torch.repeat_interleave(size[first : first + _PIECE], piece.diff())
            need(bool(((entries >= 0) & (entries < limit)).all()), f"{name} leads out of a graph")
    for known, array in (("classes", "y"), ("roles", "node_role")):
        index = tensors.get(array)
        if index is not None and not index.is_floating_point() and index.numel():
            need(known in info, f"the names of the {known} are missing")
            fine = int(index.min()) >= 0 and int(index.max()) < len(info[known])
            need(fine, f"{array} names one of {known} that is not there")
    need("names" not in info or len(info["names"]) == graphs, "names has not one entry for each graph")
    attributes = [
        tensors[n] for n in ("node_attr", "edge_attr", "y", "pos") if n in tensors and tensors[n].is_floating_point()
    ]
    need(
        all(bool(torch.isfinite(t).all()) for t in attributes),
        "there is a number that is not finite",
    )
