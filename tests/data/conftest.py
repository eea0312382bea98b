"""A small set in TU layout to read, and to spoil."""

from collections.abc import Callable
from pathlib import Path

import pytest
from data.toy import FILES

WriteTU = Callable[..., Path]


@pytest.fixture
def tu_files() -> dict[str, str]:
    return dict(FILES)


@pytest.fixture
def write_tu(tmp_path: Path) -> WriteTU:
    """Writes the small set; keywords replace a file's text, or leave the file out if None."""

    def write(name: str = "TOY", folder: Path | None = None, **changes: str | bytes | None) -> Path:
        folder = folder or tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        for kind, text in {**FILES, **changes}.items():
            if text is not None:
                data = text if isinstance(text, bytes) else text.encode()
                (folder / f"{name}_{kind}.txt").write_bytes(data)
        return folder

    return write
