"""What more processes bring on one machine: a study by two local processes and by Ray, one model by torchrun.

    OMP_NUM_THREADS=1 python benchmarks/many_machines.py --data-dir FOLDER --out results/bench/many_machines.json

Every process has one thread. The machine must be idle and have at least two cores.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from softmask.data.catalog import open_data
from softmask.study import Local, Settings, ask
from softmask.study.provenance import provenance
from softmask.study.ray_executor import OnRay

SETS = {"PROTEINS": 128, "COLLAB": 64}


def study_seconds(store, folder):
    """Seconds of the same study of four jobs, by executor; the records must be equal."""
    settings = Settings(variant="smg", hidden=64, epochs=20)
    executors = {"one process": Local(["cpu"]), "two processes": Local(["cpu", "cpu"]), "ray": OnRay(None, "cpu")}
    seconds, figures = {}, []
    for name, executor in executors.items():
        study = ask(store, settings, "fair", repeats=2, jobs=4, folder=folder / name)
        begin = time.monotonic()
        figures.append(study.run(executor).result["figures"])
        seconds[name] = time.monotonic() - begin
    assert figures[0] == figures[1] == figures[2]
    return seconds


def epoch_seconds(name, hidden, processes, data_dir, folder):
    """Seconds an epoch of one model by so many processes: what four more epochs take."""

    def took(epochs):
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", processes, "-m", "softmask"]
        command += ["fit", name, "--variant", "smg", "--hidden", hidden, "--epochs", epochs, "--device", "cpu"]
        command += ["--data-dir", data_dir, "--out", folder / "m.safetensors"]
        begin = time.monotonic()
        subprocess.run(list(map(str, command)), check=True, capture_output=True, env=os.environ)
        return time.monotonic() - begin

    took(1)  # the set is in the cache from here on
    short, long = took(1), took(5)
    return (long - short) / 4


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("set OMP_NUM_THREADS=1: every process has one thread")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        mutag = open_data("MUTAG", arguments.data_dir)
        content = {
            "study": {"data": "MUTAG", "models": 20, "jobs": 4, "seconds": study_seconds(mutag, place)},
            "one_model": {
                name: {
                    "hidden": hidden,
                    "seconds_per_epoch": {n: epoch_seconds(name, hidden, n, arguments.data_dir, place) for n in (1, 2)},
                }
                for name, hidden in SETS.items()
            },
        }
    content["provenance"] = provenance(["python", "benchmarks/many_machines.py"], seed=0)
    arguments.out.write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
