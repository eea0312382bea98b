"""How far the arithmetic moves a predicted energy: a model of U0, trained in float32, predicts the same molecules again
with what is multiplied rounded in several ways.

    python benchmarks/rounding.py [--epochs N]

Minutes on a CPU, on the molecules that come with the package. Writes results/bench/rounding.json.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from softmask.data import Features
from softmask.data.catalog import open_data
from softmask.fleet import Fleet, Replica
from softmask.fleet.predict import predict
from softmask.paper.regression import BONDS
from softmask.paper.table2 import rows
from softmask.study.provenance import provenance
from softmask.study.record import write_json

TARGET, SEED = "U0", 0
# Bits behind the point of a number, as bfloat16 and TF32 have them.
HALF, TF32 = 7, 10

Rounding = Callable[[Tensor], Tensor]


def to_bits(t: Tensor, bits: int) -> Tensor:
    """Float32 numbers to the nearest of so many bits, ties to even."""
    drop = 23 - bits
    raw = t.contiguous().view(torch.int32)
    raw = raw + (1 << (drop - 1)) - 1 + ((raw >> drop) & 1)
    return (raw & ~((1 << drop) - 1)).view(torch.float32)


def to_float16(t: Tensor) -> Tensor:
    """Float32 numbers to the nearest of float16, which has the bits of TF32, but fewer exponents."""
    largest = torch.finfo(torch.float16).max
    return t.clamp(-largest, largest).half().float()


class Rounded(TorchFunctionMode):
    """While active, the factors of products of matrices are rounded, of those alone whose first factor has `width`
    columns if that is given.
    """

    def __init__(self, rounding: Rounding, width: int | None = None):
        super().__init__()
        self.rounding, self.width = rounding, width

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the function, on rounded factors if it is a product."""
        products = (F.linear, torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)
        if func in products and self.width in (None, args[0].size(-1)):
            args = (self.rounding(args[0]), self.rounding(args[1]), *args[2:])
        return func(*args, **(kwargs or {}))


def main() -> None:
    """Trains the model, predicts in every way, and writes how far each is from float64."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=24)
    epochs = parser.parse_args().epochs
    store, (row,) = open_data("qm9-sample"), rows(variants=["m-smg-jk"])
    train = np.arange(store.num_graphs)
    lesson, features = row.lesson(store, train), Features.of(store)
    column = store.info["targets"].index(TARGET)
    replica = Replica(SEED, train, {}, lr=1e-3, decay=0.8, decay_every=5, target=column)
    inputs = (lambda: row.model(features), lesson.store, features(store), [replica])
    fleet = Fleet(*inputs, batch_size=32, **lesson.options)
    state = fleet.train(epochs).weights[0]
    scale = fleet.std.item()

    def energies(dtype: torch.dtype, half: bool = False) -> Tensor:
        model = row.model(features).to(dtype)
        model.load_state_dict(state)
        x, edges = features(store).to(dtype), BONDS(store).to(dtype)
        if half:
            # As a fleet computes: vectors and weights in bfloat16, the head in float32.
            model.bfloat16().head.float()
            x, edges = x.bfloat16(), edges.bfloat16()
        return predict(model, store, x, edges)[0].double().squeeze(1) * scale

    # What multiplies the matrices of edges: for each of them a vector.
    wide = row.settings.hidden * row.model(features).convs[0].edge_hidden
    ways: dict[str, tuple[Rounding, int | None]] = {
        "float32": (lambda t: t, None),
        "all products of TF32": (partial(to_bits, bits=TF32), None),
        "products with edge matrices of TF32": (partial(to_bits, bits=TF32), wide),
        "products with edge matrices of float16": (to_float16, wide),
        "products with edge matrices of bfloat16": (partial(to_bits, bits=HALF), wide),
    }
    exact = energies(torch.float64)
    found = {"bfloat16": (energies(torch.float32, half=True) - exact).abs().mean().item()}
    for name, way in ways.items():
        with Rounded(*way):
            found[name] = (energies(torch.float32) - exact).abs().mean().item()
    path = Path("results/bench/rounding.json")
    record = {
        "target": TARGET,
        "unit": "Ha",
        "epochs": epochs,
        "spread": exact.std().item(),
        "mean_deviation": found,
        "data_hash": store.content_hash(),
        "provenance": provenance(seed=SEED),
    }
    write_json(path, record)
    for name, value in found.items():
        print(f"{value:10.6f} Ha  {name}")
    print(path)


if __name__ == "__main__":
    main()
