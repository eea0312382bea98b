"""One rank of the trainings that test_data_parallel.py compares: ``python -m fleet.data_parallel_rank FOLDER WHAT``."""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
from safetensors.torch import save_file

from softmask.data.files import load_store
from softmask.data.store import GraphStore
from softmask.errors import SettingError, SoftmaskError
from softmask.fleet import Replica
from softmask.fleet.data_parallel import train_data_parallel
from softmask.fleet.ranks import joined_ranks
from softmask.fleet.shared_features import shared_features
from softmask.nn import SoftMaskGNN

EPOCHS = 6
# By name: the store, the loss, the precision, the batch size, the model.
CASES = {
    "float64": ("classes", "cross_entropy", "float64", 8, {"jk": True}),
    "float32": ("classes", "cross_entropy", "float32", 8, {"jk": True}),
    "channels": ("classes", "cross_entropy", "float64", 8, {"multi_channel": True, "readout": "mean"}),
    "tiny": ("classes", "cross_entropy", "float64", 3, {"dropout": 0.3}),
    "regression": ("targets", "mse", "float64", 8, {"jk": True, "head": "regressor"}),
}


def replica(seed=3):
    ids = np.random.default_rng(0).permutation(41)
    parts = {"test": ids[31:], "one": ids[:1]}
    return Replica(seed, ids[:31], parts, lr=1e-2, decay=0.7, decay_every=2, weight_decay=0.01)


def model(features, outputs, options):
    return SoftMaskGNN(features.channels, 8, 2, outputs, **options)


def _train(folder, name, ranks, on_epoch=None):
    data, loss, precision, batch_size, options = CASES[name]
    store = load_store(folder / f"{data}.safetensors")
    made = replica()
    features = shared_features(store, made.train, ranks)
    outputs = 2 if loss == "cross_entropy" else store.y.size(1)
    history, *_ = train_data_parallel(
        lambda: model(features, outputs, options),
        store,
        features,
        made,
        EPOCHS,
        ranks,
        batch_size=batch_size,
        loss=loss,
        precision=precision,
        on_epoch=on_epoch,
    )
    return history, features


def _all_cases(folder, ranks):
    results = {}
    for name in CASES:
        read: list[list[int]] = []
        with _recorded(read):
            history, features = _train(folder, name, ranks)
        save_file(history.weights[0], folder / f"{name}-{ranks.world}-{ranks.rank}.safetensors")
        results[name] = {
            "train_loss": history.train_loss[0].tolist(),
            "train_metric": history.train_metric[0].tolist(),
            "loss": {part: values[0].tolist() for part, values in history.loss.items()},
            "metric": {part: values[0].tolist() for part, values in history.metric.items()},
            "features": features.to_json(),
            "read": read,
        }
    # Only rank 1 asks to stop, and all do.
    stopped, _ = _train(folder, "float32", ranks, lambda epoch, metrics: ranks.rank == 1 and epoch == 2)
    results["stopped"] = [stopped.epochs, stopped.interrupted]
    results["refused"] = []
    store = load_store(folder / "classes.safetensors")
    features = shared_features(store, range(41), ranks)
    for ids, batch_size in ((range(31), 1), (range(1), 8)):
        try:
            train_data_parallel(
                lambda: model(features, 2, {}), store, features, Replica(0, ids), 1, ranks, batch_size=batch_size
            )
        except SettingError as error:
            results["refused"].append(str(error))
    try:
        train_data_parallel(lambda: model(features, 2, {}), store, features, Replica(ranks.rank, range(31)), 1, ranks)
    except SettingError as error:
        results["refused"].append(str(error))
    (folder / f"results-{ranks.world}-{ranks.rank}.json").write_text(json.dumps(results))


class _recorded:
    """While active, the graphs of every read from a store are noted."""

    def __init__(self, read):
        self.read, self.select = read, GraphStore.select

    def __enter__(self):
        def select(store, graphs):
            self.read.append([int(g) for g in graphs])
            return self.select(store, graphs)

        GraphStore.select = select

    def __exit__(self, *_):
        GraphStore.select = self.select


def _end(how):
    def on_epoch(epoch, metrics):
        if epoch == 2 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), how)

    return on_epoch


def main():
    folder, what = Path(sys.argv[1]), sys.argv[2]
    try:
        with joined_ranks("cpu", timeout=60 if what != "SIGSTOP" else 5) as ranks:
            if what == "all":
                _all_cases(folder, ranks)
            else:
                _train(folder, "float32", ranks, _end(signal.Signals[what]))
    except SoftmaskError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
