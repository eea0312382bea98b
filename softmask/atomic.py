"""Files that are written whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from softmask.errors import SettingError


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Gives a temporary path in the same folder; on success it takes the place of `path`, else it is removed."""
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
        os.close(handle)
        # mkstemp makes the file private; what replaces `path` should be as readable as any new file.
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
    except OSError as error:
        raise SettingError(f"cannot write {path}: {error.strerror}") from None
    temporary = Path(name)
    try:
        yield temporary
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise SettingError(f"cannot write {path}: {error.strerror or error}") from None
        raise
