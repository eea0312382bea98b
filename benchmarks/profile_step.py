"""Where the time of a fleet's training step goes on a GPU, by kind of kernel: 10 folds with the paper's settings.

    python benchmarks/profile_step.py [SET ...]

Writes results/bench/profile-DEVICE.json.
"""

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
from softmask.data.splits import stratified_folds
from softmask.fleet import Replica
from softmask.paper import paper_settings
from softmask.study.provenance import provenance
from softmask.study.record import write_json

SETS = ("PROTEINS", "NCI1", "COLLAB", "REDDIT-BINARY")
LONGEST = 40
# The first that fits a kernel's name names its kind.
KINDS = {
    "matrix products": "gemm|cutlass|nvjet|cublas|xmma",
    "sums over neighbours and graphs": "csr|bits|segment_sum|hub",
    "fused by the compiler, with a reduction": "triton_(per|red)",
    "fused by the compiler, element by element": "triton_poi",
    "copies": "memcpy|memset|copy",
}


def step(name: str) -> dict[str, Any]:
    """Time and number of the kernels of one step, by kind; and those that take longest, by name."""
    store, settings = open_data(name), paper_settings(name)
    assert store.y is not None
    folds = stratified_folds(store.y.numpy(), 10, 0)
    replicas = [Replica(k, train, {"test": test}, lr=settings.lr) for k, (train, test) in enumerate(folds)]
    fleet = make_fleet(store, Features.of(store), replicas, settings, torch.device("cuda"), "auto")
    fleet.train(1)
    fleet.begin()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        fleet.step()
        torch.cuda.synchronize()
    kinds: dict[str, dict[str, float]] = defaultdict(lambda: {"us": 0.0, "kernels": 0})
    events = sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)
    for event in events:
        kind = next((k for k, names in KINDS.items() if re.search(names, event.key, re.IGNORECASE)), "others")
        kinds[kind]["us"] += event.self_device_time_total
        kinds[kind]["kernels"] += event.count
    longest = [{"name": e.key, "us": e.self_device_time_total, "kernels": e.count} for e in events[:LONGEST]]
    return {"data_hash": store.content_hash(), "kinds": dict(kinds), "longest": longest}


def main() -> None:
    """Profiles a step on every set named."""
    found = {}
    for name in sys.argv[1:] or SETS:
        found[name] = step(name)
        whole = sum(kind["us"] for kind in found[name]["kinds"].values())
        print(f"{name}: {whole / 1000:.2f} ms")
        for kind, of in sorted(found[name]["kinds"].items(), key=lambda item: -item[1]["us"]):
            print(
                f"  {of['us'] / whole:6.1%}  {of['us'] / 1000:7.3f} ms  {of['kernels']:4.0f} kernels  {kind}",
                flush=True,
            )
    device = re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name().lower())
    path = Path(__file__).parents[1] / "results" / "bench" / f"profile-{device}.json"
    write_json(path, {"sets": found, "provenance": provenance(["python", "benchmarks/profile_step.py", *sys.argv[1:]])})


if __name__ == "__main__":
    main()
