"""A study that is killed, at any moment and without a word, goes on as if nothing had happened."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from softmask.study import read_record
from softmask.study.record import KEYS, VALUES

# More moments than in a quick run: SOFTMASK_KILLS=10.
KILLS = int(os.environ.get("SOFTMASK_KILLS", "3"))


def _start(folder, data, *more):
    # Saved after every epoch, so that a kill hits the writing of snapshots and records too.
    program = (
        "import softmask.fleet.snapshot as s, sys; s.Snapshot.due = lambda self, last=False: True; "
        "from softmask.cli import main; sys.argv[0] = 'softmask'; main()"
    )
    command = ["evaluate", data, "--protocol", "both", "--folds", "3", "--repeats", "2", "--jobs", "2"]
    command += ["--hidden", "8", "--layers", "2", "--epochs", "12", "--device", "cpu", "--out", folder, "--json", *more]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, command)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def _finish(process):
    _, complaint = process.communicate()
    assert process.returncode == 0, complaint.decode()


@pytest.mark.real
@pytest.mark.slow
def test_sigkill_costs_time_and_nothing_else(real_set, tmp_path):
    data = real_set("MUTAG")
    begin = time.monotonic()
    _finish(_start(tmp_path / "whole", data))
    took = time.monotonic() - begin
    expected = read_record(tmp_path / "whole")
    moments, killed = random.Random(0), 0
    for attempt in range(10 * KILLS):
        if killed == KILLS:
            break
        folder = tmp_path / f"killed-{killed}"
        running = _start(folder, data)
        try:
            running.communicate(timeout=moments.uniform(0.1, 1.0) * took)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.communicate()
            killed += 1
            _finish(_start(folder, data))
        record = read_record(folder)
        for name in (*KEYS, *VALUES):
            np.testing.assert_array_equal(record.metrics[name], expected.metrics[name], err_msg=f"{attempt} {name}")
        assert record.result["figures"] == expected.result["figures"]
        assert not list(folder.rglob("replicas-*.safetensors"))
        if running.returncode == 0:  # it was done before the moment came
            for file in sorted(folder.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
            folder.rmdir()
    assert killed == KILLS


@pytest.mark.real
def test_two_studies_in_one_folder(real_set, tmp_path):
    data = real_set("MUTAG")
    first = _start(tmp_path / "s", data, "--epochs", "2000")
    try:
        while not (tmp_path / "s" / "study.json").is_file():
            assert first.poll() is None
            time.sleep(0.1)
        second = _start(tmp_path / "s", data, "--epochs", "2000")
        _, complaint = second.communicate()
        assert second.returncode == 2
        assert b"another study is running" in complaint
        first.send_signal(signal.SIGINT)
        _, said = first.communicate()
        assert first.returncode == 130
        assert b"the same command goes on" in said
    finally:
        first.kill()
        first.communicate()


def _children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.real
@pytest.mark.slow
def test_workers_end_with_the_command_that_started_them(real_set, tmp_path):
    """Else they would go on and write into a folder that is no longer locked."""
    data = real_set("MUTAG")
    running = _start(tmp_path / "s", data, "--device", "cpu,cpu", "--epochs", "5000")
    while len(list((tmp_path / "s" / "jobs").glob("*/replicas-*"))) < 2:
        assert running.poll() is None
        time.sleep(0.1)
    workers = _children(running.pid)
    assert len(workers) >= 2
    running.send_signal(signal.SIGKILL)
    running.communicate()
    for _ in range(300):
        if not any(Path(f"/proc/{pid}").exists() for pid in workers):
            return
        time.sleep(0.1)
    pytest.fail("workers are still there half a minute after their parent was killed")
