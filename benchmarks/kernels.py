"""Checks and times the Triton kernels on batches shaped like those of the paper's sets.

    python benchmarks/kernels.py --out kernels.json

Every kernel is compared with float64 arithmetic and timed (captured in a CUDA graph, the median of repeated
replays with a cold L2 cache) beside the plain ways PyTorch offers. The traffic counted is the least there is:
x is read once, y is written once. A case that fails is reported, and the others go on. When the time given by
--budget is nearly up, only the first configuration of each kernel is tried.
"""

import argparse
import functools
import json
import time
import traceback
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
import triton
from torch import Tensor
from triton.testing import do_bench

from softmask.data.store import GraphStore
from softmask.ops.bitmaps import bitmaps
from softmask.ops.triton_sums import BitsConfig, CsrConfig, bits_sum, csr_sum, segment_sum

REPLICAS, GRAPHS = 10, 128
CSR = [CsrConfig(), CsrConfig(depth=2), CsrConfig(warps=8), CsrConfig(warps=1), CsrConfig(near=8)]
CSR_HUBS = [*CSR[:3], CsrConfig(hub=32), CsrConfig(hub=32, far=16), CsrConfig(warps=8, hub=32)]
# Three stages or 64 columns a step ended in an illegal access on an H200 (triton 3.6); two stages do not.
BITS = [BitsConfig(), BitsConfig(128, 128, 32, 8, 2), BitsConfig(64, 128, 32, 8, 2)]


# Graphs shaped like those of a set: an adjacency matrix as pairs (i, j) with i < j


def protein(rng):
    n = int(np.clip(rng.lognormal(3.35, 0.75), 4, 620))
    near = [np.stack([np.arange(n - k), np.arange(k, n)]) for k in (1, 2) if n > k]
    pairs = np.concatenate(near, 1)
    return n, pairs[:, rng.random(pairs.shape[1]) < 0.95]


def molecule(rng):
    n = int(np.clip(rng.normal(30, 12), 3, 111))
    ring = rng.integers(0, n - 2, max(n // 10, 1))
    pairs = np.concatenate([np.stack([np.arange(n - 1), np.arange(1, n)]), np.stack([ring, ring + 2])], 1)
    return n, np.unique(pairs, axis=1)


def dense(n, density, rng):
    i, j = np.triu_indices(n, 1)
    kept = rng.random(len(i)) < density
    return n, np.stack([i[kept], j[kept]])


def film(rng):
    return dense(int(np.clip(rng.lognormal(2.9, 0.4), 12, 136)), rng.uniform(0.2, 1), rng)


def collaboration(rng):
    n = int(np.clip(rng.lognormal(4.2, 0.65), 32, 492))
    return dense(n, rng.uniform(0.78, 1) if rng.random() < 0.25 else rng.beta(2, 3), rng)


def thread(rng):
    """A few hubs, to which most nodes are tied, the first one above all."""
    n = int(np.clip(rng.lognormal(5.6, 0.95), 6, 3782))
    hubs = min(int(rng.integers(1, 6)), n - 1)
    weight = 1 / np.arange(1, hubs + 1) ** 1.5
    leaf = np.arange(hubs, n)
    other = np.where(
        rng.random(len(leaf)) < 0.8,
        rng.choice(hubs, len(leaf), p=weight / weight.sum()),
        (rng.random(len(leaf)) * leaf).astype(int),
    )
    more = rng.integers(0, n, (2, n // 6))
    pairs = np.concatenate([np.stack([other, leaf]), more[:, more[0] != more[1]]], 1)
    # Hubs stand anywhere in the numbering.
    return n, np.unique(np.sort(rng.permutation(n)[pairs], 0), axis=1)


SETS = {
    "COLLAB": (collaboration, 256),
    "REDDIT": (thread, 256),
    "PROTEINS": (protein, 128),
    "NCI1": (molecule, 128),
    "IMDB": (film, 256),
}


# The batch a fleet would make


class Batch(NamedTuple):
    start: Tensor
    end: Tensor
    col: Tensor
    base: Tensor
    size: Tensor
    bit_row: Tensor | None
    bits: Tensor | None
    graph: Tensor
    first: Tensor
    last: Tensor
    adjacency: Tensor  # float64 CSR


def batch_of(make, with_bits, device):
    """128 graphs of each of 10 replicas, each padded to the same number of nodes, a multiple of 64."""
    rng = np.random.default_rng(0)
    node_ptr, degree, cols = [0], [], []
    for _ in range(REPLICAS * GRAPHS):
        n, (i, j) = make(rng)
        row, col = np.concatenate([i, j]), np.concatenate([j, i])
        order = np.lexsort((col, row))
        cols.append(col[order].astype(np.int32))
        degree.append(np.bincount(row, minlength=n))
        node_ptr.append(node_ptr[-1] + n)
    row_ptr = np.concatenate([[0], np.cumsum(np.concatenate(degree))])
    store = GraphStore(torch.tensor(node_ptr), torch.tensor(row_ptr), torch.tensor(np.concatenate(cols)))
    bits, bit_row = bitmaps(store) if with_bits else (None, None)

    ends = store.node_ptr[::GRAPHS]
    budget = -(-int(ends.diff().max()) // 64) * 64
    # Where each node of the store stands in the batch.
    replica = store.batch // GRAPHS
    place = torch.arange(store.num_nodes) - ends[replica] + replica * budget
    nodes = REPLICAS * budget

    def spread(values, fill=0):
        return torch.full((nodes,), fill, dtype=values.dtype).index_copy_(0, place, values).to(device)

    first = place[store.node_ptr[:-1]]
    start, end = spread(store.row_ptr[:-1]), spread(store.row_ptr[1:])
    source, target = store.edges()
    crow = torch.cat([torch.zeros(1, dtype=torch.long, device=device), (end - start).cumsum(0)])
    adjacency = torch.sparse_csr_tensor(
        crow,
        place[source].to(device),
        torch.ones(target.numel(), dtype=torch.float64, device=device),
        (nodes, nodes),
        check_invariants=False,
    )
    return Batch(
        start,
        end,
        store.col.to(device),
        spread(first[store.batch]),
        spread(store.sizes[store.batch].int()),
        None if bit_row is None else spread(bit_row),
        None if bits is None else bits.to(device),
        spread(store.batch, -1),
        first.to(device),
        (first + store.sizes).to(device),
        adjacency,
    )


# Checking and timing


def milliseconds(call, capture):
    if capture:
        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call()
        run = graph.replay
    else:
        out, run = None, call
    ms = do_bench(run, warmup=5, rep=30, return_mode="median")
    del out
    return ms


def relative_error(out, expected):
    if not torch.isfinite(out).all():
        return float("nan")
    return float((out.double() - expected).norm() / expected.norm())


def rubbish(*shape, dtype):
    """Leaves NaN in the memory the next output of this size will most likely get."""
    torch.full(shape, float("nan"), dtype=dtype, device="cuda")


class Report:
    """Collects a row for every measurement and prints it."""

    def __init__(self, budget):
        self.rows, self.failures = [], []
        self.begin, self.budget = time.monotonic(), budget
        self.copy = 0.0

    def measure(self, case, kernel, config, call, expected, traffic, tolerance, capture=True):
        try:
            rubbish(*expected.shape, dtype=case[1])
            error = relative_error(call(), expected)
            ms = milliseconds(call, capture)
        except Exception as problem:
            name = f"{case[0]} {str(case[1])[6:]} {kernel} {config}"
            self.failures.append({"case": name, "error": f"{type(problem).__name__}: {problem}"[:400]})
            if capture:
                traceback.print_exc(limit=-3)
            return
        rate = traffic / ms / 1e6
        row = {
            **{"set": case[0], "dtype": str(case[1])[6:], "kernel": kernel, "config": config, "ms": ms},
            **{
                "error": error,
                "right": error <= tolerance,
                "gb_per_s": rate,
                "share_of_copy": rate / self.copy,
            },
        }
        self.rows.append(row)
        print(line(row), flush=True)

    def late(self):
        return time.monotonic() - self.begin > self.budget * 0.75


def line(row):
    right = "" if row["right"] else "  WRONG"
    return (
        f"{row['set']:9}{row['dtype']:9}{row['kernel']:16}{row['ms']:8.3f} ms {row['gb_per_s']:6.0f} GB/s "
        f"{100 * row['share_of_copy']:4.0f} %  err {row['error']:.1e}  {row['config']}{right}"
    )


def short(config, **more):
    return " ".join(f"{k}={v}" for k, v in {**config._asdict(), **more}.items())


def run_case(report, name, batch, dtype, channels):
    case = (name, dtype)
    wide = dtype == torch.float32
    nodes = batch.start.numel()
    x = torch.randn(nodes, channels, device="cuda", dtype=dtype)
    mask = torch.rand(nodes, 1, device="cuda", dtype=dtype)
    expected = torch.sparse.mm(batch.adjacency, x.double() * mask.double())
    measure = functools.partial(report.measure, case, expected=expected, traffic=2 * x.nbytes)
    tolerance = 2e-6 if wide else 5e-3
    lists = batch.start, batch.end, batch.col, batch.base
    hub = name == "REDDIT"
    explore = name in ("COLLAB", "REDDIT", "PROTEINS")

    for k, config in enumerate(CSR_HUBS if hub else CSR):
        if k and (report.late() or not explore):
            break
        for hubs in (True, False) if k == 0 else (hub,):
            call = functools.partial(csr_sum, x, mask, *lists, hubs=hubs, config=config)
            measure("csr_sum", short(config, hubs=hubs), call, tolerance=tolerance)
    if batch.bits is not None:
        maps = batch.bits, batch.bit_row, batch.base, batch.size, REPLICAS
        for k, config in enumerate(BITS):
            if k and (report.late() or not explore or config.channels > channels):
                break
            for precision in ("ieee", "tf32") if wide else ("ieee",):
                call = functools.partial(bits_sum, x, mask, *maps, precision=precision, config=config)
                bound = max(tolerance, 2e-5) if precision == "tf32" else tolerance
                measure("bits_sum", short(config, precision=precision), call, tolerance=bound)

    source, offset = batch.adjacency.col_indices(), batch.adjacency.crow_indices()
    weight = mask.reshape(-1)[source]
    loose = 1e-5 if wide else 2e-2
    measure(
        "embedding_bag",
        "",
        lambda: F.embedding_bag(source, x, offset[:-1], mode="sum", per_sample_weights=weight),
        tolerance=loose,
        capture=False,
    )
    if not report.late():
        adjacency = torch.sparse_csr_tensor(offset, source, weight, (nodes, nodes), check_invariants=False)
        measure("torch.sparse.mm", "", lambda: torch.sparse.mm(adjacency, x), tolerance=loose, capture=False)
        row = torch.repeat_interleave(torch.arange(nodes, device="cuda"), offset.diff())
        measure(
            "index_add",
            "",
            lambda: torch.zeros_like(x).index_add_(0, row, (x * mask)[source]),
            tolerance=4 * loose,
            capture=False,
        )

    graphs, graph = batch.first.numel(), batch.graph
    real = graph >= 0
    zeros = torch.zeros(graphs, channels, device="cuda", dtype=torch.float64)
    sums = zeros.index_add(0, graph[real], x[real].double())
    traffic = x.nbytes + graphs * channels * x.element_size()
    measure = functools.partial(report.measure, case, expected=sums, traffic=traffic)
    measure("segment_sum", "", lambda: segment_sum(x, batch.first, batch.last), tolerance=tolerance)
    padded = graph.clamp(min=0)
    measure(
        "index_add graphs",
        "",
        lambda: torch.zeros(graphs, channels, device="cuda", dtype=dtype).index_add_(0, padded, x * real[:, None]),
        tolerance=10 * loose,
        capture=False,
    )


def copy_bandwidth():
    """Bytes read and written by a large copy, in GB/s."""
    a = torch.randn(1 << 29, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.nbytes / do_bench(lambda: b.copy_(a), warmup=5, rep=60, return_mode="median") / 1e6


def main():
    parser = argparse.ArgumentParser(description="Check and time the Triton kernels.")
    parser.add_argument("--out", type=Path, help="where to write the numbers as JSON")
    parser.add_argument("--budget", type=float, default=90, help="seconds to keep to (default 90)")
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    report = Report(arguments.budget)
    report.copy = copy_bandwidth()
    torch.cuda.empty_cache()
    card = torch.cuda.get_device_name()
    print(
        f"{card}, torch {torch.__version__}, triton {triton.__version__}, copy {report.copy:.0f} GB/s",
        flush=True,
    )
    shapes = {}
    for name in arguments.sets:
        make, channels = SETS[name]
        try:
            batch = batch_of(make, name != "REDDIT", "cuda")
        except Exception:
            traceback.print_exc(limit=-3)
            continue
        degree = batch.end - batch.start
        shapes[name] = {
            **{"nodes": degree.numel(), "edges": int(degree.sum()), "largest_degree": int(degree.max())},
            **{"padding": float((batch.size == 0).double().mean()), "largest_graph": int(batch.size.max())},
        }
        print(
            f"\n{name} ({time.monotonic() - report.begin:.0f} s): {shapes[name]}, channels {channels}",
            flush=True,
        )
        for dtype in (torch.bfloat16, torch.float32):
            try:
                run_case(report, name, batch, dtype, channels)
            except Exception:
                traceback.print_exc(limit=-3)
            torch.cuda.empty_cache()

    print("\nbest of each")
    best = {}
    for row in report.rows:
        precise = "tf32" if "precision=tf32" in row["config"] else ""
        key = row["set"], row["dtype"], row["kernel"], precise
        if row["right"] and (key not in best or row["ms"] < best[key]["ms"]):
            best[key] = row
    for row in best.values():
        print(line(row))
    for row in report.rows:
        if not row["right"]:
            print("WRONG", line(row))
    for failure in report.failures:
        print("FAILED", failure["case"], failure["error"].splitlines()[0][:160])
    print(f"{time.monotonic() - report.begin:.0f} s")
    if arguments.out:
        content = {
            "device": card,
            "torch": torch.__version__,
            "triton": triton.__version__,
            "copy_gb_per_s": report.copy,
        }
        content |= {"sets": shapes, "rows": report.rows, "failures": report.failures}
        arguments.out.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
