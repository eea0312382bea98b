"""What it is worth to PPGNN that the graphs of a batch are of about one size: pairs of places of an epoch beside the
pairs of nodes that there are, and the time of an epoch, against batches of all sizes, in one run.

    python benchmarks/by_size.py [SET ...]

Minutes on a CPU, with narrow networks. Writes results/bench/by_size.json.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from softmask.baselines.ppgn import PPGN
from softmask.bench.clock import timed
from softmask.data import Features
from softmask.data.catalog import open_data
from softmask.data.splits import stratified_folds
from softmask.fleet import Fleet, Replica
from softmask.fleet import fleet as module
from softmask.fleet.by_size import SizeClass, classes_for
from softmask.study.provenance import provenance
from softmask.study.record import write_json

SETS = ("MUTAG", "ENZYMES", "PROTEINS", "NCI1", "IMDB-BINARY", "IMDB-MULTI")
HIDDEN, LAYERS = 16, 3
# Of all sizes, small batches have many large places; its authors have batches of 5, and 32 is where they cost least.
MIXED, BATCH = 32, 5


def mixed(model: torch.nn.Module, sizes: torch.Tensor, batch_size: int) -> list[SizeClass]:
    """All graphs as one class."""
    return [SizeClass(0, int(sizes.max()), batch_size, -(-len(sizes) // batch_size))]


def epoch_of(name: str, batch_size: int, by_size: bool) -> dict[str, Any]:
    """The pairs of places of an epoch, and its time, of one model on the training part of the first fold."""
    store = open_data(name)
    assert store.y is not None
    features, classes = Features.of(store), int(store.y.max()) + 1
    part = stratified_folds(store.y.numpy(), 10, 0)[0][0]
    module.classes_for = classes_for if by_size else mixed
    fleet = Fleet(
        lambda: PPGN(features.channels, HIDDEN, LAYERS, classes),
        *(store, features(store), [Replica(0, part, {})]),
        batch_size=batch_size,
        device="cpu",
    )
    timing = timed(fleet.train_epoch, torch.device("cpu"), 20.0)
    pairs = [made.rows * made.steps for made in fleet.train_plans]
    real = int((store.sizes[torch.from_numpy(np.asarray(part))] ** 2).sum())
    return {
        "batch_size": batch_size,
        "classes": [one._asdict() for one in fleet.classes],
        "steps": len(fleet.order),
        "pairs": sum(pairs),
        "pairs_over_real": sum(pairs) / real,
        "ms_per_epoch": 1e3 * timing.median,
    }


def main() -> None:
    """Each set three times, one after the other."""
    found = {}
    for name in sys.argv[1:] or SETS:
        made = {
            "all sizes": epoch_of(name, MIXED, False),
            "all sizes, small batches": epoch_of(name, BATCH, False),
            "by size, small batches": epoch_of(name, BATCH, True),
        }
        last = made["by size, small batches"]
        for row in made.values():
            row["time_over_by_size"] = row["ms_per_epoch"] / last["ms_per_epoch"]
        found[name] = {"data_hash": open_data(name).content_hash(), "ways": made}
        told = (
            f"{way} {row['pairs_over_real']:.2f} pairs, {row['time_over_by_size']:.2f} time"
            for way, row in made.items()
        )
        print(f"{name}: {'; '.join(told)}", flush=True)
    path = Path(__file__).parents[1] / "results" / "bench" / "by_size.json"
    write_json(
        path,
        {
            "sets": found,
            "hidden": HIDDEN,
            "layers": LAYERS,
            "seed": 0,
            "threads": torch.get_num_threads(),
            "provenance": provenance(["python", "benchmarks/by_size.py", *sys.argv[1:]]),
        },
    )


if __name__ == "__main__":
    main()
