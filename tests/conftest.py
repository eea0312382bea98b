"""Fixtures for all tests: real sets, a cache folder of one's own, hypothesis' settings."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from chromium import browser  # noqa: F401 (a fixture)
from hypothesis import HealthCheck, settings

# Some virtual machines announce AMX and cannot do it: a product of bf16 would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

with warnings.catch_warnings():
    # PyG calls torch.jit.script when it is imported, which torch says is deprecated.
    warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
    import torch_geometric  # noqa: F401

settings.register_profile(
    "softmask",
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("softmask")


@pytest.fixture(scope="session")
def _downloads() -> Path:
    """The user's own downloads: asked for before `_own_cache` turns the tests away from them."""
    from softmask.data.cache import raw_folder

    return raw_folder()


@pytest.fixture(autouse=True)
def _own_cache(_downloads: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTMASK_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def real_set(_downloads: Path) -> Callable[[str], Path]:
    """A function that says where a real set is; it skips the test, with the reason, if it cannot be had."""
    unreachable: list[str] = []

    def where(name: str) -> Path:
        from softmask.data.catalog import find
        from softmask.data.download import get
        from softmask.errors import DataError

        try:
            return find(name, _downloads if _downloads.is_dir() else None)
        except DataError:
            pass
        if not unreachable:
            try:
                return get(name, _downloads)
            except DataError as error:
                unreachable.append(str(error).split(". ")[0])
        # The same text for every set, which pytest then prints once.
        pytest.skip(f"the real sets are not in SOFTMASK_DATA, and no download: {unreachable[0]}")

    return where
