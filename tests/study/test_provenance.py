import getpass
import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import softmask
from softmask.study.provenance import provenance, this_command


def test_says_where_a_result_comes_from():
    found = provenance(["softmask", "evaluate", "MUTAG"], seed=3, data_hash="abc")
    assert found["command"] == "softmask evaluate MUTAG"
    assert found["seed"] == 3
    assert found["data_hash"] == "abc"
    assert found["versions"]["softmask"] == softmask.__version__
    assert found["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["date"])
    assert json.loads(json.dumps(found)) == found


def test_says_nothing_about_the_machine(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/home/someone/bin/softmask", "bench"])
    text = json.dumps(provenance())
    assert json.loads(text)["command"] == "softmask bench"
    for private in (socket.gethostname(), str(Path.home()), str(Path.cwd())):
        assert private not in text
    assert getpass.getuser() == "root" or getpass.getuser() not in text


def test_commit():
    found = provenance()
    folder = Path(softmask.__file__).parent
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True)
    tracked = subprocess.run(["git", "ls-files", "__init__.py"], cwd=folder, capture_output=True, text=True).stdout
    assert found["commit"] == (asked.stdout.strip() if asked.returncode == 0 and tracked else None)


def test_a_change_anywhere_in_the_package_is_seen(tmp_path):
    source = Path(softmask.__file__).parent
    shutil.copytree(source, tmp_path / "softmask", ignore=shutil.ignore_patterns("__pycache__"))

    def git(*arguments):
        name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *name, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def dirty():
        code = "from softmask.study.provenance import _commit; print(_commit()['dirty'])"
        told = subprocess.run(
            [sys.executable, "-B", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return told.stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "all")
    assert dirty() == "False"
    (tmp_path / "softmask" / "ops" / "more.py").write_text("")
    assert dirty() == "True"


def test_without_git(monkeypatch):
    monkeypatch.setenv("PATH", "")
    found = provenance()
    assert found["commit"] is None
    assert found["dirty"] is None


@pytest.mark.parametrize("name", ["softmask", "bin/softmask", "-c", "softmask/__main__.py"])
def test_the_command_names_no_place_of_this_machine(monkeypatch, tmp_path, name):
    argv = [name, "explain", str(tmp_path / "mu.safetensors"), "qm9", "--html", str(tmp_path / "mu.html"), "--out", "x"]
    monkeypatch.setattr("sys.argv", argv)
    assert " ".join(this_command()) == "softmask explain mu.safetensors qm9 --html mu.html"
