"""Packed stores and downloads, kept in the user's cache folder."""

import os
from collections.abc import Callable
from pathlib import Path

from softmask.data.files import FORMAT_VERSION, load_store, save_store
from softmask.data.store import GraphStore
from softmask.errors import DataError


def cache_folder() -> Path:
    """The folder that ``SOFTMASK_CACHE`` names, or else the user's cache folder of this system."""
    if named := os.environ.get("SOFTMASK_CACHE"):
        return Path(named).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("softmask", appauthor=False)


def raw_folder() -> Path:
    """Where downloads are kept, as they came."""
    return cache_folder() / "raw"


def cached(key: str, build: Callable[[], GraphStore]) -> GraphStore:
    """The store kept under a key; built, and kept, if there is none or it is damaged.

    Of several processes that ask for the same key at once one builds, the others wait for it. Where the
    folder cannot be written to, the store is built without being kept.

    Args:
        key: names the content it is built from and the version of what builds it; letters, digits, dashes.
        build: makes the store.
    """
    from filelock import FileLock

    path = cache_folder() / "stores" / f"{key}-f{FORMAT_VERSION}.safetensors"
    if (store := _load(path)) is not None:
        return store
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_suffix(".lock"))
        lock.acquire()
    except OSError:
        return build()
    try:
        if (store := _load(path)) is None:
            store = build()
            try:
                save_store(store, path)
            except DataError:
                return store
            # What a later call will get: the mapped file, so that the memory of the one built can go.
            store = load_store(path)
        return store
    finally:
        lock.release()


def _load(path: Path) -> GraphStore | None:
    try:
        return load_store(path, verify=True) if path.exists() else None
    except (DataError, OSError):
        return None
