import getpass
import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import softmask
from softmask.study.provenance import provenance


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


def test_without_git(monkeypatch):
    monkeypatch.setenv("PATH", "")
    found = provenance()
    assert found["commit"] is None
    assert found["dirty"] is None
