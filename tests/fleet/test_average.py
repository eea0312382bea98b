import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel
from torch_geometric.loader import DataLoader

from softmask import SoftMaskClassifier
from softmask.data import Features
from softmask.data.synthetic import motif
from softmask.errors import SettingError
from softmask.fit_large import fit_large
from softmask.fleet import Fleet, Replica
from softmask.fleet.batches import deal
from softmask.fleet.ranks import joined_ranks
from softmask.fleet.snapshot import Snapshot
from softmask.nn import SoftMaskGNN
from softmask.ops.keyed import fold_key
from softmask.study.grid import by_shape
from softmask.study.settings import Settings


@pytest.fixture(scope="module")
def store():
    return motif(num_graphs=40, seed=1)


def _fleet(store, replicas, **options):
    features = Features.of(store)
    return Fleet(
        lambda: SoftMaskGNN(features.channels, 8, 2, 2, jk=True, dropout=0.0),
        *(store, features(store), replicas, 8),
        **{"precision": "float64", **options},
    )


def _replica(seed=3, average=2.0, train=30):
    return Replica(seed, np.arange(train), {"test": np.arange(train, 40)}, lr=5e-3, average=average)


def _difference(a, b):
    return max((a[name] - b[name]).abs().max().item() for name in a)


@pytest.mark.parametrize("merge", [None, False, True])
def test_the_mean_is_that_of_torchs_averaged_model(store, merge):
    """PyG's batches of the same graphs, torch's Adam, and torch's AveragedModel with the share written anew."""
    replica, epochs = _replica(), 4
    fleet = _fleet(store, [replica], merge=merge)
    torch.manual_seed(3)
    features = Features.of(store)
    model = SoftMaskGNN(features.channels, 8, 2, 2, jk=True, dropout=0.0).double()
    batches = -(-30 // 8)

    def move(mean, now, taken):
        # `taken` counts the steps before this one; torch's first mean is the weights after the first step.
        return mean + (now - mean) * max(1 / (2.0 * batches), 10 / (10 + taken))

    mean = AveragedModel(model, avg_fn=move)
    adam = torch.optim.Adam(model.parameters(), lr=5e-3)
    x = F.one_hot(features(store), features.channels).double()
    graphs = [store[g] for g in range(len(store))]
    for graph, rows in zip(graphs, x.split(store.sizes.tolist())):
        graph.x = rows
    losses = []
    for epoch in range(1, epochs + 1):
        dealt = deal(fleet.train_plans[0], fold_key(fold_key(torch.tensor([3]), 1), torch.tensor(epoch)))
        for ids in dealt[:, 0]:
            batch = next(iter(DataLoader([graphs[i] for i in ids if i >= 0], batch_size=8)))
            adam.zero_grad()
            F.cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y).backward()
            adam.step()
            mean.update_parameters(model)
        test = next(iter(DataLoader(graphs[30:], batch_size=10)))
        out = copy.deepcopy(mean.module).eval()(test.x, test.edge_index, test.batch)
        losses.append(F.cross_entropy(out, test.y).item())
    history = fleet.train(epochs)
    state = dict(mean.module.named_parameters())
    assert _difference(history.weights[0], {name: p.detach() for name, p in state.items()}) < 1e-9
    np.testing.assert_allclose(history.loss["test"][0], losses, atol=1e-9)
    # The training itself goes its own way.
    assert _difference(fleet.stack.state(fleet.stack.flat, 0), dict(model.named_parameters())) < 1e-9
    assert _difference(history.weights[0], fleet.stack.state(fleet.stack.flat, 0)) > 1e-3


def test_company_with_other_windows_changes_nothing(store):
    replicas = [_replica(0, 0.0), _replica(1, 3.0, train=21), _replica(2, 0.5)]
    together = _fleet(store, replicas).train(5)
    for r, replica in enumerate(replicas):
        alone = _fleet(store, [replica]).train(5)
        assert _difference(alone.weights[0], together.weights[r]) < 1e-9
        np.testing.assert_allclose(alone.loss["test"][0], together.loss["test"][r], atol=1e-9)


def test_the_best_epoch_keeps_the_mean_that_was_best(store):
    replica = _replica()
    kept = _fleet(store, [replica]).train(6, keep="test")
    epoch = int(kept.epoch[0])
    assert kept.metric["test"][0, epoch - 1] == kept.metric["test"][0].max()
    assert _difference(kept.weights[0], _fleet(store, [replica]).train(epoch).weights[0]) < 1e-12


@pytest.mark.parametrize("keep", ["last", "test"])
def test_a_stopped_training_goes_on_with_its_means(store, tmp_path, keep):
    whole = _fleet(store, [_replica()]).train(6, keep)
    path = tmp_path / "state.safetensors"
    _fleet(store, [_replica()]).train(6, keep, lambda epoch, _: epoch == 3, Snapshot(path, every=0))
    resumed = _fleet(store, [_replica()]).train(6, keep, snapshot=Snapshot(path))
    assert _difference(whole.weights[0], resumed.weights[0]) == 0
    np.testing.assert_array_equal(whole.loss["test"], resumed.loss["test"])
    # With another window it is another training, which begins anew.
    other = _fleet(store, [_replica(average=3.0)]).train(6, keep, snapshot=Snapshot(path))
    assert _difference(_fleet(store, [_replica(average=3.0)]).train(6, keep).weights[0], other.weights[0]) == 0


def test_the_estimator_keeps_the_mean(store, tmp_path):
    plain = SoftMaskClassifier(hidden=8, epochs=4, device="cpu").fit(store)
    mean = SoftMaskClassifier(hidden=8, epochs=4, average=3, device="cpu").fit(store)
    assert _difference(plain.trained_.model.state_dict(), mean.trained_.model.state_dict()) > 1e-4
    # The training was the same.
    np.testing.assert_allclose(plain.loss_curve_, mean.loss_curve_, rtol=1e-5)
    mean.save(tmp_path / "m.safetensors")
    from softmask import load_model

    assert load_model(tmp_path / "m.safetensors").average == 3


def test_settings_that_differ_in_the_mean_train_in_one_fleet():
    assert by_shape([Settings(average=0), Settings(average=5), Settings(average=5, norm=True)]) == [[0, 1], [2]]
    # A study that was asked before there was such a thing is still the same one.
    assert "average" not in Settings().asked()
    assert Settings(average=5).asked()["average"] == 5


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), "five", True])
def test_bad_windows_are_refused(store, bad):
    with pytest.raises(SettingError, match="average"):
        Settings(average=bad)
    if not isinstance(bad, str | bool):
        with pytest.raises(SettingError, match=r"replica 0 .*average"):
            _fleet(store, [_replica(average=bad)])


def test_where_there_are_no_means_it_is_said(store):
    with pytest.raises(SettingError, match="average is for soft-mask models"):
        Settings(model="gin", average=5)
    with joined_ranks("cpu") as ranks, pytest.raises(SettingError, match="averaged weights"):
        fit_large(store, Settings(average=5), ranks)
