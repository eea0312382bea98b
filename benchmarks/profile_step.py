"""Where the time of a fleet's training step goes on a GPU, by kind of kernel: 10 folds with the paper's settings.

    python benchmarks/profile_step.py [SET ...] [--data-dir FOLDER]

A set is one of Table 1, or a row of Table 2, whose fleet has a model for each target: qm9:smg-jk, qm9:m-smg-jk,
qm9:geometric. Writes results/bench/profile-DEVICE.json, and of rows of Table 2 profile-table2-DEVICE.json.
"""

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from softmask.bench.compare import make_fleet
from softmask.data import Features
from softmask.data.catalog import open_data
from softmask.data.splits import holdout, stratified_folds
from softmask.data.store import GraphStore
from softmask.device import matmul_precision
from softmask.errors import SoftmaskError
from softmask.fleet import Fleet, Replica
from softmask.paper import paper_settings
from softmask.paper.table2 import rows
from softmask.study.provenance import provenance
from softmask.study.record import write_json

SETS = ("PROTEINS", "NCI1", "COLLAB", "REDDIT-BINARY")
LONGEST = 40
STEPS = 20
# The first that fits a kernel's name names its kind.
KINDS = {
    "matrix products": "gemm|cutlass|nvjet|cublas|xmma",
    "sums over pairs of nodes": "^_sums|^_gradients",
    "sums over neighbours and graphs": "csr|bits|segment_sum|hub",
    "fused by the compiler, with a reduction": "triton_(per|red)",
    "fused by the compiler, element by element": "triton_poi",
    "copies": "memcpy|memset|copy",
}


def folds(store: GraphStore, device: str = "cuda") -> Fleet:
    """10 folds with the settings of Table 1."""
    settings = paper_settings(store.info["name"])
    assert store.y is not None
    parts = stratified_folds(store.y.numpy(), 10, 0)
    replicas = [Replica(k, train, {"test": test}, lr=settings.lr) for k, (train, test) in enumerate(parts)]
    return make_fleet(store, Features.of(store), replicas, settings, torch.device(device), "auto")


def targets(store: GraphStore, variant: str, device: str = "cuda") -> Fleet:
    """A model for each target with the settings of Table 2."""
    (row,) = rows(variants=[variant])
    features, train = Features.of(store), holdout(store.num_graphs, row.ratios, row.seed)[0]
    lesson = row.lesson(store, train)
    # Few molecules are evaluated: only the step is looked at.
    replicas = [
        Replica(k, train, {"test": train[:64]}, lr=row.settings.lr, target=k, buffers=buffers)
        for k, buffers in enumerate(lesson.buffers)
    ]
    inputs = (lambda: row.model(features), lesson.store, features(store), replicas)
    return Fleet(*inputs, batch_size=row.settings.batch_size, device=device, **lesson.options)


def step(name: str, data_dir: Path | None) -> dict[str, Any]:
    """Time and number of the kernels of one step, by kind; and those that take longest, by name."""
    data, _, variant = name.partition(":")
    store = open_data(data, data_dir)
    fleet = targets(store, variant) if variant else folds(store)
    # As in training; the first call of a program compiles and captures it, the second runs it warm.
    with matmul_precision(fleet.tf32):
        fleet.begin()
        for _ in range(2):
            fleet.steps[0]()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            fleet.steps[0]()
            torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(STEPS):
            fleet.steps[0]()
        end.record()
        torch.cuda.synchronize()
    kinds: dict[str, dict[str, float]] = defaultdict(lambda: {"us": 0.0, "kernels": 0})
    events = sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)
    for event in events:
        kind = next((k for k, names in KINDS.items() if re.search(names, event.key, re.IGNORECASE)), "others")
        kinds[kind]["us"] += event.self_device_time_total
        kinds[kind]["kernels"] += event.count
    longest = [{"name": e.key, "us": e.self_device_time_total, "kernels": e.count} for e in events[:LONGEST]]
    # Without the profiler, and with what passes between the kernels.
    whole = begin.elapsed_time(end) * 1000 / STEPS
    return {"data_hash": store.content_hash(), "us": whole, "kinds": dict(kinds), "longest": longest}


def main() -> None:
    """Profiles a step on every set named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET", help=f"by default {', '.join(SETS)}")
    parser.add_argument("--data-dir", type=Path, help="a folder with sets, beside SOFTMASK_DATA and the downloads")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("a profile of a GPU needs one")
    device = re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name().lower())
    said = provenance(["python", "benchmarks/profile_step.py", *sys.argv[1:]])
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for name in args.sets:
        file = f"profile-table2-{device}.json" if ":" in name else f"profile-{device}.json"
        try:
            made = step(name, args.data_dir)
        except SoftmaskError as error:
            parser.error(f"{name}: {error}")
        whole = sum(kind["us"] for kind in made["kinds"].values())
        print(f"{name}: {made['us'] / 1000:.2f} ms a step, {whole / 1000:.2f} ms in kernels")
        for kind, of in sorted(made["kinds"].items(), key=lambda item: -item[1]["us"]):
            print(
                f"  {of['us'] / whole:6.1%}  {of['us'] / 1000:7.3f} ms  {of['kernels']:4.0f} kernels  {kind}",
                flush=True,
            )
        for kernel in made["longest"][:10]:
            print(f"    {kernel['us'] / 1000:7.3f} ms  {kernel['kernels']:3d} x {kernel['name'][:90]}", flush=True)
        found[file][name] = made
        # After every set, so that one that fails costs only itself.
        path = Path(__file__).parents[1] / "results" / "bench" / file
        write_json(path, {"sets": found[file], "provenance": said})


if __name__ == "__main__":
    main()
