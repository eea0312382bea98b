import os
import subprocess
import sys
from pathlib import Path

import pytest

from softmask.data.cache import cache_folder, cached
from softmask.data.catalog import open_data
from softmask.data.tu import read_tu

# Says when it builds, and takes long enough that the other process surely asks meanwhile.
BUILD = """
import sys, time, warnings
from pathlib import Path
from softmask.data.cache import cached
from softmask.data.tu import read_tu

def build():
    print("built", flush=True)
    time.sleep(1.0)
    return read_tu(Path(sys.argv[1]))

print("ready", flush=True)
sys.stdin.readline()
print(cached("key", build).content_hash())
"""


def stores() -> list[Path]:
    return sorted((cache_folder() / "stores").glob("*.safetensors"))


def test_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("SOFTMASK_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("SOFTMASK_CACHE")
    assert cache_folder().name == "softmask"


def test_two_processes_build_once(write_tu):
    folder = write_tu()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([sys.executable, "-c", BUILD, str(folder)], **pipes) for _ in range(2)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum(lines.count("built") for lines in outputs) == 1
    assert {lines[-1] for lines in outputs} == {read_tu(folder).content_hash()}
    assert len(stores()) == 1


def test_second_time_is_not_built(write_tu):
    folder = write_tu()
    first = cached("key", lambda: read_tu(folder))
    again = cached("key", lambda: pytest.fail("built again"))
    assert again.content_hash() == first.content_hash()


@pytest.mark.parametrize("spoil", ["truncate", "flip", "nonsense"])
def test_damaged_file_is_built_anew(write_tu, spoil):
    folder = write_tu()
    wanted = open_data(folder).content_hash()
    (path,) = stores()
    data = path.read_bytes()
    path.write_bytes({"truncate": data[:-3], "flip": data[:-1] + bytes([data[-1] ^ 1]), "nonsense": b"x"}[spoil])
    assert open_data(folder).content_hash() == wanted
    assert path.read_bytes() == data


def test_keyed_by_content(write_tu):
    folder = write_tu()
    open_data(folder)
    open_data(folder)
    os.utime(folder / "TOY_A.txt", (0, 0))
    open_data(folder)
    assert len(stores()) == 1
    write_tu(graph_labels="0\n1\n")
    assert open_data(folder).info["classes"] == [0, 1]
    assert len(stores()) == 2


def test_no_place_for_a_cache(write_tu, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SOFTMASK_CACHE", str(tmp_path / "file"))
    assert open_data(write_tu()).num_graphs == 2


def test_an_error_is_not_kept(write_tu):
    folder = write_tu(graph_labels="1\n")
    for _ in range(2):
        with pytest.raises(ValueError, match="graph_labels"):
            open_data(folder)
    write_tu()
    assert open_data(folder).num_graphs == 2
