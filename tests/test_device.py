"""Where to compute, and how."""

import platform
from pathlib import Path

import pytest
import torch

from softmask.device import freed_memory_kept


def _resident() -> int:
    """MiB of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 2**20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
def test_freed_memory_is_kept_for_the_next_tensors_and_given_back_at_the_end():
    before = _resident()
    with freed_memory_kept(torch.device("cpu")):
        x = torch.ones(300, 2**18)
        del x
        assert _resident() > before + 250
        for other in ("cuda", "cpu"):  # one within another ends nothing
            with freed_memory_kept(torch.device(other)):
                assert _resident() > before + 250
            assert _resident() > before + 250
    assert _resident() < before + 100
    x = torch.ones(300, 2**18)
    del x
    assert _resident() < before + 100


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
def test_it_is_given_back_after_an_error():
    before = _resident()

    def fail():
        torch.ones(300, 2**18).sum()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), freed_memory_kept(torch.device("cpu")):
        fail()
    assert _resident() < before + 100


def test_a_c_library_without_such_a_setting_is_left_alone(monkeypatch):
    monkeypatch.setattr("softmask.device._glibc", lambda: None)
    with freed_memory_kept(torch.device("cpu")):
        assert torch.ones(3).sum() == 3
