"""What it is worth on a CPU to keep memory for the next tensors, and to let several models compute together: the time
of an epoch of ten models, in one run.

    python benchmarks/together.py [SET:SYSTEM ...]

Training alone is timed. Once memory was kept, the C library keeps tensors of up to 32 MiB to some degree, so that all
but the first "given back" are quicker than in a new process. Minutes on a CPU. Writes results/bench/together.json.
"""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from softmask.baselines.registry import find_model
from softmask.baselines.train import inputs_of
from softmask.bench.clock import timed
from softmask.data import Features
from softmask.data.catalog import open_data
from softmask.data.splits import stratified_folds
from softmask.device import freed_memory_kept
from softmask.fleet import Fleet, Replica
from softmask.fleet import fleet as module
from softmask.paper.baselines import cells
from softmask.study.provenance import provenance
from softmask.study.record import write_json

CASES = ("IMDB-BINARY:capsgnn", "IMDB-BINARY:topk", "PROTEINS:gin", "PROTEINS:gat", "MUTAG:gcn")
CPU = torch.device("cpu")
# Bytes of one tensor of all models that compute together: less than what it is, that, and more.
SIZES = {"2 MiB": 2 * 2**20, "16 MiB": 16 * 2**20, "32 MiB": 32 * 2**20}


def fleet_of(case: str, together: int) -> Fleet:
    """Ten models of a system of Table 1, one for each fold, so many of which compute together."""
    name, system = case.split(":")
    store = open_data(name)
    assert store.y is not None
    settings = next(cell.settings for cell in cells([name], [system]) if cell.settings.model == system)
    features = Features.of(store)
    inputs = inputs_of(store, features)
    parts = [train for train, _ in stratified_folds(store.y.numpy(), 10, 0)]
    module._TOGETHER = together
    return Fleet(
        lambda: find_model(system).build(inputs, settings),
        *(store, features(store), [Replica(fold, part, {}) for fold, part in enumerate(parts)]),
        batch_size=settings.batch_size,
        device=CPU,
    )


def main() -> None:
    """Each case in all ways, one after the other."""
    found = {}
    for case in sys.argv[1:] or CASES:
        ways: dict[str, Any] = {}
        for size, together in SIZES.items():
            fleet = fleet_of(case, together)
            fleet.train_epoch()
            for kept in (False, True):
                with freed_memory_kept(CPU) if kept else nullcontext():
                    seconds = timed(fleet.train_epoch, CPU, 8.0).median
                ways[f"{size}, {'kept' if kept else 'given back'}"] = {
                    "models_together": fleet.crews[0].last,
                    "ms_per_epoch": 1e3 * seconds,
                }
        for way in ways.values():
            way["time_over_this"] = way["ms_per_epoch"] / ways["16 MiB, kept"]["ms_per_epoch"]
        found[case] = ways
        told = "; ".join(f"{way} {row['time_over_this']:.2f}" for way, row in ways.items())
        print(f"{case}: {told}", flush=True)
    path = Path(__file__).parents[1] / "results" / "bench" / "together.json"
    write_json(
        path,
        {
            "cases": found,
            "seed": 0,
            "threads": torch.get_num_threads(),
            "provenance": provenance(["python", "benchmarks/together.py", *sys.argv[1:]]),
        },
    )


if __name__ == "__main__":
    main()
