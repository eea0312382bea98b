"""Zip files of strangers: looked at before they are opened, and nothing is ever extracted by its path."""

import io
import lzma
import re
import struct
import zipfile
import zlib
from pathlib import Path

from softmask.errors import DataError

MAX_BYTES = 4 * 2**30
"""The most that an archive may hold, unpacked. COLLAB, the largest set of the paper, has 364 MB."""
MAX_RATIO = 1000
"""The most a large member may shrink. Runs of equal lines in real sets shrink by a few hundred."""
RATIO_FROM = 64 * 2**20
"""Smaller members do no harm, whatever their ratio."""

_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
    UnicodeDecodeError,
    struct.error,
)


def open_zip(path: Path) -> zipfile.ZipFile:
    """Opens a zip file and refuses one with paths that lead out of it, or that would unpack to too much."""
    try:
        archive = zipfile.ZipFile(path)
    except (*_BROKEN, ValueError) as error:
        raise DataError(f"{path}: not a zip file, or a damaged one ({error}); get it again") from None
    try:
        _check(path, archive.infolist())
    except DataError:
        archive.close()
        raise
    return archive


def open_member(archive: zipfile.ZipFile, member: str) -> io.BufferedIOBase:
    """The content of a member as a stream; damage found on the way is a :class:`DataError`."""
    return io.BufferedReader(_Member(archive, member), buffer_size=2**20)


def _check(path: Path, members: list[zipfile.ZipInfo]) -> None:
    for member in members:
        parts = re.split(r"[/\\]", member.orig_filename)
        if ".." in parts or parts[0] == "" or re.match(r"[A-Za-z]:", member.orig_filename):
            raise DataError(
                f"{path}: the archive holds the path {member.orig_filename!r}, which leads out of it; not "
                "read. Use an archive from a source that you trust"
            )
        if member.file_size > RATIO_FROM and member.file_size > MAX_RATIO * member.compress_size:
            raise DataError(
                f"{path}: {member.filename} would unpack from {member.compress_size} to {member.file_size} "
                f"bytes, more than {MAX_RATIO} to 1; not read. If it is what you want, unpack it yourself "
                "and give the folder"
            )
    total = sum(member.file_size for member in members)
    if total > MAX_BYTES:
        raise DataError(
            f"{path}: would unpack to {total} bytes, more than {MAX_BYTES}; not read. "
            "If it is what you want, unpack it yourself and give the folder"
        )


class _Member(io.RawIOBase):
    """A member's stream. zipfile gives no more than the size that `_check` saw, and checks the checksum."""

    def __init__(self, archive: zipfile.ZipFile, member: str) -> None:
        self._where = f"{archive.filename}: {member}"
        try:
            self._stream = archive.open(member)
        except _BROKEN as error:
            raise DataError(f"{self._where}: cannot be unpacked ({error}); get the archive again") from None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        try:
            data = self._stream.read(len(buffer))
        except (*_BROKEN, MemoryError) as error:
            raise DataError(f"{self._where}: cannot be unpacked ({error}); get the archive again") from None
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed and hasattr(self, "_stream"):
            self._stream.close()
        super().close()
