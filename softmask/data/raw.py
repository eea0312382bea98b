"""The text files of one set in TU layout, wherever they lie: in a folder or in a zip file."""

import hashlib
import io
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from softmask.data.archive import open_member, open_zip
from softmask.errors import DataError

REQUIRED = ("A", "graph_indicator")
OPTIONAL = (
    *("graph_labels", "graph_attributes"),
    *("node_labels", "node_attributes", "edge_labels", "edge_attributes"),
)


class RawFiles:
    """The files ``NAME_A.txt``, ``NAME_graph_indicator.txt`` and so on of one set. Use it in a ``with``
    block.

    ``NAME`` is found from the one file that ends in ``_A.txt``; it may lie at the top or one folder down.

    Args:
        path: a folder or a zip file.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._stack = ExitStack()
        self._open: dict[str, Callable[[], BinaryIO]] = {}
        if self.path.is_dir():
            found = _in_folder(self.path)
        elif self.path.is_file():
            found = self._in_zip()
        else:
            raise DataError(f"{self.path}: there is no such file or folder")
        try:
            self.name, kinds = _one_set(self.path, list(found))
        except DataError:
            self._stack.close()
            raise
        self._where = {kind: f"{self.path}{':' if self.path.is_file() else '/'}{file}" for kind, file in kinds.items()}
        self._open = {kind: found[file] for kind, file in kinds.items()}

    def _in_zip(self) -> dict[str, Callable[[], BinaryIO]]:
        archive = self._stack.enter_context(open_zip(self.path))
        # Not is_dir(), which fails on an empty name.
        names = [m.filename for m in archive.infolist() if m.filename and not m.filename.endswith("/")]
        return {name: cast(Callable[[], BinaryIO], partial(open_member, archive, name)) for name in names}

    def __enter__(self) -> "RawFiles":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __contains__(self, kind: str) -> bool:
        return kind in self._open

    def where(self, kind: str) -> str:
        """The file as an error message should name it."""
        return self._where[kind]

    def open(self, kind: str) -> BinaryIO:
        """The bytes of a file, from its beginning."""
        try:
            return self._open[kind]()
        except OSError as error:
            raise DataError(f"{self.where(kind)}: cannot be opened ({error.strerror})") from None

    def digest(self) -> str:
        """SHA-256 over the set's name and the content of its files; a zip and its folder have the same."""
        digest = hashlib.sha256(self.name.encode(errors="surrogateescape"))
        for kind in sorted(self._open):
            with self.open(kind) as stream:
                content = hashlib.file_digest(cast(io.BufferedReader, stream), "sha256")
            digest.update(f"\n{kind} {content.hexdigest()}".encode())
        return digest.hexdigest()


def _in_folder(folder: Path) -> dict[str, Callable[[], BinaryIO]]:
    # PyG keeps a set in NAME/raw, some archives unpack to NAME/NAME: so one folder down is looked at too.
    files = [f for pattern in ("*.txt", "*/*.txt") for f in folder.glob(pattern) if f.is_file()]
    return {f.relative_to(folder).as_posix(): cast(Callable[[], BinaryIO], partial(f.open, "rb")) for f in files}


def _one_set(path: Path, files: list[str]) -> tuple[str, dict[str, str]]:
    """The set's name, and which file holds what."""
    paths = [PurePosixPath(f) for f in files]
    # A leading dot: what macOS puts beside every file of an archive.
    edges = [p for p in paths if p.name.endswith("_A.txt") and len(p.name) > 6 and not p.name.startswith(".")]
    edges = [p for p in edges if len(p.parts) == 1] or [p for p in edges if len(p.parts) == 2]
    if not edges:
        raise DataError(
            f"{path}: not a set in TU layout: there is no file NAME_A.txt (its edges), at the top or one folder down"
        )
    if len(edges) > 1:
        some = ", ".join(sorted(str(e) for e in edges)[:4])
        raise DataError(
            f"{path}: holds {len(edges)} sets ({some}{', ...' if len(edges) > 4 else ''}); give one of them"
        )
    name = edges[0].name.removesuffix("_A.txt")
    known = {f"{name}_{kind}.txt": kind for kind in REQUIRED + OPTIONAL}
    kinds = {known[p.name]: str(p) for p in paths if p.parent == edges[0].parent and p.name in known}
    if "graph_indicator" not in kinds:
        raise DataError(
            f"{path}: the file {name}_graph_indicator.txt is missing; it says for each node which graph it belongs to"
        )
    return name, kinds
