"""A GraphStore on disk: one safetensors file, with JSON metadata in its header."""

import json
import math
import os
import secrets
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softmask.data.store import INFO_FIELDS, GraphStore
from softmask.errors import DataError

FORMAT = "softmask graphs"
FORMAT_VERSION = 1
_MAX_HEADER = 100_000_000  # safetensors' own limit

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
}


def save_store(store: GraphStore, path: Path) -> None:
    """Writes a store to one ``.safetensors`` file, to a temporary name first, so that no half file is left."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path = Path(path)
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "info": json.dumps(store.info),
        "content_hash": store.content_hash(),
    }
    tensors = {name: t.detach().cpu().contiguous() for name, t in store.tensors().items()}
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        save_file(tensors, temporary, metadata=metadata)
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: cannot be written ({error})") from None
    finally:
        temporary.unlink(missing_ok=True)


def load_store(path: Path, verify: bool = False) -> GraphStore:
    """Opens a store. Its arrays are mapped into memory, not read, until they are used.

    The pointers and neighbours are checked, so that no file can lead to an index out of range. That the content is
    what was written (its hash) is checked on request only: it reads everything.

    Args:
        path: a file that :func:`save_store` wrote.
        verify: whether to compare the content hash.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    metadata = _metadata(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            names = list(file.keys())
            unknown = sorted(set(names) - set(_DTYPES))
            if unknown:
                raise DataError(f"{path}: not a store: it holds an array {unknown[0]!r}")
            tensors = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: damaged ({error}); make it again") from None
    info = _info(path, metadata)
    _check(path, tensors, info)
    store = GraphStore(**tensors, info=info)
    if verify and store.content_hash() != metadata.get("content_hash"):
        raise DataError(f"{path}: the content is not what was written (its hash differs); make it again")
    return store


def _metadata(path: Path) -> dict[str, Any]:
    """The header, read by hand: so that a file cut short and a file of another kind have their own messages."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = struct.unpack("<Q", stream.read(8).ljust(8, b"\0"))[0]
            # A header begins with a brace; it tells a file that was cut short from one that is something else.
            brace = stream.read(1)
            if size < 10 or brace != b"{" or not 2 <= length <= _MAX_HEADER:
                raise DataError(f"{path}: not a store: no safetensors file, or its beginning is lost")
            if 8 + length > size:
                raise DataError(
                    f"{path}: truncated: {size} bytes, its header alone needs {8 + length}; make it again"
                )
            header = json.loads(brace + stream.read(length - 1))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: not a store: its header is no JSON") from None
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise DataError(f"{path}: not a store of graphs: a safetensors file of another kind")
    try:
        version = int(metadata["format_version"])
        needed = (
            8
            + length
            + max((int(f["data_offsets"][1]) for k, f in header.items() if k[:2] != "__"), default=0)
        )
    except (KeyError, TypeError, ValueError, IndexError):
        raise DataError(f"{path}: damaged: its header cannot be understood; make it again") from None
    if version > FORMAT_VERSION:
        raise DataError(
            f"{path}: format {version}, this softmask reads up to {FORMAT_VERSION}: update softmask, or make it again"
        )
    if size < needed:
        raise DataError(f"{path}: truncated: {size} of {needed} bytes; make it again")
    return metadata


def _info(path: Path, metadata: dict[str, Any]) -> dict[str, Any]:
    try:
        info = json.loads(metadata["info"])
    except (KeyError, TypeError, ValueError, RecursionError):
        raise DataError(
            f"{path}: damaged: no information about the set in its header; make it again"
        ) from None
    if not isinstance(info, dict) or not set(info) <= set(INFO_FIELDS):
        raise DataError(f"{path}: damaged: the information about the set has unknown fields; make it again")
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
        need(fine and bool((ptr.diff() >= 0).all()), f"{name} does not fit {of}")
    graphs, nodes, edges = (tensors[n].numel() for n in ("node_ptr", "row_ptr", "col"))
    graphs, nodes = graphs - 1, nodes - 1
    for name, rows, dims in (
        *(("node_label", nodes, 2), ("node_attr", nodes, 2), ("node_role", nodes, 1)),
        *(("edge_label", edges, 2), ("edge_attr", edges, 2)),
        ("y", graphs, 1 if "y" in tensors and tensors["y"].dtype == torch.int64 else 2),
    ):
        if name in tensors:
            shape = list(tensors[name].shape)
            need(len(shape) == dims and shape[0] == rows, f"{name} has shape {shape}, expected {rows} rows")
    size = torch.repeat_interleave(tensors["node_ptr"].diff(), tensors["node_ptr"].diff()).int()
    for ptr, col in (("row_ptr", "col"), ("row_ptr_t", "col_t")):
        if col in tensors and edges:
            limit = torch.repeat_interleave(size, tensors[ptr].diff())
            need(
                int(tensors[col].min()) >= 0 and bool((tensors[col] < limit).all()),
                f"{col} leads out of a graph",
            )
    for name, known, array in (("classes", "classes", "y"), ("roles", "roles", "node_role")):
        t = tensors.get(array)
        if t is not None and not t.is_floating_point() and t.numel():
            need(known in info, f"the names of the {name} are missing")
            need(
                0 <= int(t.min()) and int(t.max()) < len(info[known]),
                f"{array} names one of {name} that is not there",
            )
    need("names" not in info or len(info["names"]) == graphs, "names has not one entry for each graph")
    attributes = [
        tensors[n] for n in ("node_attr", "edge_attr", "y") if n in tensors and tensors[n].is_floating_point()
    ]
    need(
        all(math.isfinite(float(t.sum(dtype=torch.float64))) for t in attributes),
        "there is a number that is not finite",
    )
