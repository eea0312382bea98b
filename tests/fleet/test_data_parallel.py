import dataclasses
import json
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from fleet.data_parallel_rank import CASES, EPOCHS, model, replica
from safetensors.torch import load_file
from torch_geometric.data import Data

from softmask import SoftMaskClassifier, load_model
from softmask.data import Features
from softmask.data.convert import as_store, with_targets
from softmask.data.features import UnseenFeatureWarning
from softmask.data.files import load_store, save_store
from softmask.data.synthetic import motif
from softmask.errors import SettingError, SoftmaskError
from softmask.fit_large import fit_large
from softmask.fleet import Fleet, Replica
from softmask.fleet.batches import deal, plan
from softmask.fleet.data_parallel import train_data_parallel
from softmask.fleet.ranks import joined_ranks, world_size
from softmask.fleet.shared_features import shared_features
from softmask.fleet.shares import divide
from softmask.study.settings import Settings

TESTS = Path(__file__).parent.parent
# Far beyond what any of these takes: it bounds a hang, and asserts no speed.
PATIENCE = 120


def _stores():
    classes = motif(num_graphs=41, seed=1)
    rng = np.random.default_rng(0)
    # One attribute is constant, and its mean is not quite that constant.
    attr = torch.from_numpy(rng.normal(5, 3, (classes.num_nodes, 2)))
    attr[:, 1] = 0.1
    targets = with_targets(classes, rng.normal(100, 7, (41, 2)))
    return {"classes": classes, "targets": dataclasses.replace(targets, node_attr=attr, node_label=None)}


def _run(folder, world, what):
    """Runs real ranks to their end, and gives exit code and complaints of each; one that hangs is killed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    env = os.environ | {"WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "fleet.data_parallel_rank", str(folder), what]
    processes = [
        subprocess.Popen(command, env=env | {"RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(world)
    ]
    ends = []
    try:
        for process in processes:
            if ends and what == "SIGSTOP":
                process.kill()
            _, err = process.communicate(timeout=PATIENCE)
            ends.append((process.returncode, err))
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return ends


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    for name, store in _stores().items():
        save_store(store, folder / f"{name}.safetensors")
    return folder


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request, folder):
    """What every rank of a world of 2 or 3 real processes found, over gloo."""
    world = request.param
    for code, err in _run(folder, world, "all"):
        assert code == 0, err
    return [json.loads((folder / f"results-{world}-{rank}.json").read_text()) for rank in range(world)]


@pytest.fixture(scope="module")
def alone(folder):
    """The same trainings by an ordinary fleet of one replica, in this process."""
    histories = {}
    for name, (data, loss, precision, batch_size, options) in CASES.items():
        store = load_store(folder / f"{data}.safetensors")
        features = Features.of(store.select(replica().train))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnseenFeatureWarning)
            x = features(store)
        fleet = Fleet(
            lambda f=features, o=options: model(f, 2, o),
            store,
            x,
            [replica()],
            batch_size=batch_size,
            loss=loss,
            precision=precision,
        )
        histories[name] = fleet.train(EPOCHS)
    return histories


@pytest.mark.parametrize("name", CASES)
def test_many_ranks_train_as_one_fleet_does(folder, ranks, alone, name):
    """Dropout included: its choices follow the graphs' slots, whoever holds them."""
    tolerance = 1e-4 if CASES[name][2] == "float32" else 1e-9
    expected = alone[name]
    for rank, results in enumerate(ranks):
        found = results[name]
        np.testing.assert_allclose(found["train_loss"], expected.train_loss[0], rtol=0, atol=tolerance)
        np.testing.assert_allclose(found["train_metric"], expected.train_metric[0], atol=1e-6)
        for part in ("test", "one"):
            np.testing.assert_allclose(found["loss"][part], expected.loss[part][0], rtol=0, atol=10 * tolerance)
            np.testing.assert_allclose(found["metric"][part], expected.metric[part][0], atol=1e-6)
        weights = load_file(folder / f"{name}-{len(ranks)}-{rank}.safetensors")
        for key, value in expected.weights[0].items():
            assert (weights[key] - value).abs().max() < 100 * tolerance
    assert np.ptp(expected.train_loss) > 0.01


def test_all_ranks_end_with_the_same_bits(folder, ranks):
    for name in CASES:
        first, *others = (load_file(folder / f"{name}-{len(ranks)}-{r}.safetensors") for r in range(len(ranks)))
        assert all(torch.equal(first[key], other[key]) for other in others for key in first)


def test_a_rank_reads_its_own_graphs_and_a_batch_at_a_time(ranks):
    """Every training graph is read by one rank only, the same in every epoch, and never the whole set at once."""
    train = set(map(int, replica().train))
    for name, (*_, batch_size, _) in CASES.items():
        owned = []
        for results in ranks:
            # The first reads are those of shared_features: an equal part of the graphs each.
            features, *batches = (r for r in results[name]["read"])
            while len(features) and set(batches[0]) <= set(features) and batches[0] == features:
                batches = batches[1:]
            assert len(features) <= -(-len(train) // len(ranks))
            assert max(map(len, batches)) <= batch_size - len(ranks) + 1
            owned.append({g for batch in batches for g in batch} & train)
            counts = np.bincount([g for batch in batches for g in batch], minlength=41)
            only_trained = sorted(owned[-1] - set(map(int, replica().evaluate["one"])))
            assert set(counts[only_trained]) == {EPOCHS}
        held_out_too = set(map(int, replica().evaluate["one"]))
        assert set.union(*owned) == train
        assert sum(len(o - held_out_too) for o in owned) == len(train - held_out_too)


def test_shared_features_are_those_of_all_training_graphs(ranks):
    for data, case in (("classes", "float64"), ("targets", "regression")):
        expected = Features.of(_stores()[data].select(replica().train))
        for results in ranks:
            found = Features.from_json(results[case]["features"])
            assert dataclasses.replace(found, mean=(), std=()) == dataclasses.replace(expected, mean=(), std=())
            np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
            np.testing.assert_allclose(found.std, expected.std, rtol=1e-12)
            assert found.std[1:] in ((), (1.0,))  # the second attribute is constant


def test_one_rank_can_end_the_training_of_all(ranks):
    assert [results["stopped"] for results in ranks] == [[2, True]] * len(ranks)


def test_what_cannot_be_shared_is_refused_on_every_rank(ranks):
    for results in ranks:
        small, few, different = results["refused"]
        assert f"a batch of 1 graphs cannot be shared by {len(ranks)} processes" in small
        assert f"1 graphs to train on cannot be shared by {len(ranks)}" in few
        assert "different sets, seeds or parts" in different


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_a_rank_that_dies_or_hangs_ends_the_others_with_an_error(folder, how):
    (code, err), _ = _run(folder, 2, how)
    assert code == 2
    assert "LostRankError: rank 0: another process of this training died or did not answer" in err


def test_torchrun_fits_the_model_that_fit_fits(folder, tmp_path):
    out = tmp_path / "model.safetensors"
    command = ("torch.distributed.run", "--standalone", "--nproc-per-node", 2, "-m", "softmask", "fit")
    options = ("--out", out, "--hidden", 8, "--layers", 2, "--epochs", 3, "--batch-size", 16, "--device", "cpu")
    run = subprocess.run(
        [sys.executable, "-m", *map(str, (*command, folder / "classes.safetensors", *options, "--json"))],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    # One process prints, one writes, and nothing else is left behind.
    summary = json.loads(run.stdout)
    assert [p for p in tmp_path.iterdir() if p.name != "cache"] == [out]
    assert summary["processes"] == 2
    store = load_store(folder / "classes.safetensors")
    usual = SoftMaskClassifier(hidden=8, layers=2, epochs=3, batch_size=16, device="cpu").fit(store)
    assert abs(summary["train_loss"] - usual.loss_curve_[-1]) < 1e-4
    probabilities = load_model(out, device="cpu").predict_proba(store)
    np.testing.assert_allclose(probabilities, usual.predict_proba(store), atol=1e-3)


def test_a_world_of_one_needs_no_torchrun(folder):
    store = load_store(folder / "targets.safetensors")
    settings = Settings(hidden=8, layers=2, epochs=4, batch_size=16)
    with joined_ranks("cpu") as ranks:
        fitted = fit_large(store, settings, ranks, seed=5, holdout=0.2)
    assert (fitted.trained.summary["graphs"], fitted.trained.summary["test_graphs"]) == (33, 8)
    assert fitted.trained.summary["test_mean_absolute_error"] == fitted.history.metric["test"][0, -1]
    assert fitted.trained.outputs == 2
    assert not fitted.trained.one_target


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_one_rank_on_cuda_trains_as_on_the_cpu(folder):
    """Over NCCL."""
    store = load_store(folder / "classes.safetensors")
    settings, curves = Settings(hidden=8, layers=2, epochs=4, batch_size=16), []
    for device in ("cpu", "cuda"):
        with joined_ranks(device) as ranks:
            history = fit_large(store, settings, ranks, holdout=0.2, precision="float32").history
        curves.append(np.stack([history.train_loss, history.loss["test"]]))
    np.testing.assert_allclose(*curves, atol=1e-3)


def test_bad_input(folder, monkeypatch):
    store = load_store(folder / "classes.safetensors")
    features = Features.of(store)
    nothing = dataclasses.replace(store, y=None, info={"name": "bare"})
    with joined_ranks("cpu") as ranks:
        train = lambda **o: train_data_parallel(  # noqa: E731
            lambda: model(features, 2, {}), o.pop("store", store), features, Replica(0, range(9)), 1, ranks, **o
        )
        with pytest.raises(SettingError, match="no classes or targets"):
            train(store=nothing)
        with pytest.raises(SettingError, match="does not fit"):
            train(loss="mse")
        with pytest.raises(SettingError, match="bf16"):
            train(precision="bf16")
        with pytest.raises(SoftmaskError, match="bare: its graphs have no classes"):
            fit_large(nothing, Settings(), ranks)
        with pytest.raises(SettingError, match="holdout"):
            fit_large(store, Settings(), ranks, holdout=1.0)
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(SettingError, match="WORLD_SIZE"):
        world_size()


def test_an_error_that_is_no_lost_rank_is_not_called_one(folder):
    with pytest.raises(RuntimeError, match="mine") as raised, joined_ranks("cpu"):
        raise RuntimeError("mine")
    assert not isinstance(raised.value, SoftmaskError)


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_the_slots_are_divided_evenly_and_for_good(world):
    sizes = torch.from_numpy(np.random.default_rng(0).pareto(1.5, 500) * 10).long()
    made = plan([np.arange(500)], sizes, 32)
    rank = divide(made, sizes, world)
    assert set(rank.tolist()) == set(range(world))
    tables = [deal(made, torch.tensor([k]))[:, 0] for k in range(5)]
    owners = [{int(g): int(rank[s]) for row in t for s, g in enumerate(row) if g >= 0} for t in tables]
    assert len(owners[0]) == 500
    assert all(o == owners[0] for o in owners)
    loads = np.bincount([owners[0][g] for g in range(500)], weights=sizes.numpy(), minlength=world)
    groups = sizes.sort(descending=True).values[: int(made.batches[0])].sum()
    assert loads.max() - loads.min() <= groups + 500


def test_features_of_many_windows_are_those_of_all(folder, monkeypatch):
    monkeypatch.setattr("softmask.fleet.shared_features._WINDOW", 3)
    store = load_store(folder / "classes.safetensors")
    # A graph of many neighbours, in one window only: from there on the degree is a number for all.
    star = [store[g] for g in range(5)]
    star.append(Data(edge_index=torch.stack([torch.arange(1, 1201), torch.zeros(1200).long()]), num_nodes=1201))
    with joined_ranks("cpu") as ranks:
        assert shared_features(store, range(41), ranks) == Features.of(store)
        hub = as_store([Data(edge_index=d.edge_index, num_nodes=d.num_nodes) for d in star])
        found, expected = shared_features(hub, range(6), ranks), Features.of(hub)
    assert found.kind == expected.kind == "scaled-degree"
    np.testing.assert_allclose((found.mean, found.std), (expected.mean, expected.std), rtol=1e-12)
