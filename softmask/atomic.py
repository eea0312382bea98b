"""Files that are written whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from softmask.errors import SettingError


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Gives a temporary path in the same folder; on success it takes the place of `path`, else it is removed."""
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
        os.close(handle)
    except OSError as error:
        raise SettingError(f"cannot write {path}: {error.strerror}") from None
    temporary = Path(name)
    try:
        yield temporary
        # The temporary file is private; what replaces `path` should be as readable as any new file.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise SettingError(f"cannot write {path}: {error.strerror or error}") from None
        if isinstance(error, SafetensorError):  # what safetensors makes of an error of the system
            raise SettingError(f"cannot write {path}: {error}") from None
        raise


def check_writable(path: str | Path) -> None:
    """Refuses a path that could not be written, before hours of work go into what should stand there."""
    path = Path(path)
    if path.is_dir():
        raise SettingError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise SettingError(f"cannot write {path}: there is no folder {path.parent}")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise SettingError(f"cannot write {path}: {error.strerror}") from None
