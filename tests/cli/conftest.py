import sys

import pytest

from softmask.cli import main


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs the command in this process: its exit code, what it printed, and what it complained of."""
    monkeypatch.delenv("SOFTMASK_DATA", raising=False)

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["softmask", *map(str, args)])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return end.value.code or 0, captured.out, captured.err

    return run
