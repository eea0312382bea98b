import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_geometric.loader import DataLoader

from softmask.data import Features
from softmask.data.convert import with_targets
from softmask.data.store import GraphStore
from softmask.data.synthetic import motif
from softmask.errors import SettingError
from softmask.fleet import Fleet, Replica
from softmask.fleet.history import find_troubles
from softmask.fleet.snapshot import Snapshot
from softmask.nn import SoftMaskGNN
from softmask.ops import graph_sum, neighbour_sum


@pytest.fixture(scope="module")
def store():
    return motif(num_graphs=40, seed=1)


def _fleet(store, replicas, precision="float64", dropout=0.5, batch_size=8, **options):
    features = Features.of(store)
    outputs = 2 if not store.y.is_floating_point() else store.y.size(1)
    return Fleet(
        lambda: SoftMaskGNN(features.channels, 8, 2, outputs, jk=True, dropout=dropout),
        store,
        features(store),
        replicas,
        batch_size=batch_size,
        precision=precision,
        **options,
    )


def _replicas(n):
    rng = np.random.default_rng(0)
    made = []
    for seed in range(n):
        ids = rng.permutation(40)
        # Parts of different sizes, so that the replicas take different numbers of steps.
        cut = 24 + seed
        made.append(Replica(seed, ids[:cut], {"test": ids[cut:]}, lr=1e-2 / (1 + seed), decay=0.9, decay_every=2))
    return made


def _difference(a, b):
    return max((a[name] - b[name]).abs().max().item() for name in a)


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-9), ("float32", 1e-3)])
def test_a_replica_does_not_depend_on_its_company(store, precision, tolerance):
    replicas = _replicas(10)
    fleet = _fleet(store, replicas, precision)
    together = fleet.train(10)
    assert (fleet.adam.steps >= 30).all()
    turned = _fleet(store, replicas[9:0:-4], precision).train(10)
    for place, r in ((0, 9), (2, 1)):
        alone = _fleet(store, [replicas[r]], precision).train(10)
        assert _difference(alone.weights[0], together.weights[r]) < tolerance
        assert _difference(alone.weights[0], turned.weights[place]) < tolerance
        np.testing.assert_allclose(alone.metric["test"][0], together.metric["test"][r], atol=1e-6)
        np.testing.assert_allclose(alone.loss["test"][0], together.loss["test"][r], atol=10 * tolerance)


def test_the_fleet_trains_as_a_plain_pytorch_loop_does(store):
    """The same graphs in each batch, PyG's batching, torch.optim.Adam, one model: the same weights."""
    from softmask.fleet.batches import deal
    from softmask.ops.keyed import fold_key

    replica = Replica(
        3, np.arange(30), {"test": np.arange(30, 40)}, lr=5e-3, decay=0.5, decay_every=2, weight_decay=0.01
    )
    fleet = _fleet(store, [replica], dropout=0.0)
    torch.manual_seed(3)
    features = Features.of(store)
    model = SoftMaskGNN(features.channels, 8, 2, 2, jk=True, dropout=0.0).double()
    adam = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=0.01)
    decay = torch.optim.lr_scheduler.StepLR(adam, 2, 0.5)
    x = F.one_hot(features(store), features.channels).double()
    data = [store[g] for g in range(len(store))]
    for g, item in enumerate(data):
        item.x = x[int(store.node_ptr[g]) : int(store.node_ptr[g + 1])]
    losses = []
    for epoch in range(1, 6):
        model.train()
        for graphs in deal(fleet.train_plans[0], fold_key(fold_key(fleet.keys, 1), epoch))[:, 0]:
            chosen = graphs[graphs >= 0].tolist()
            batch = next(iter(DataLoader([data[g] for g in chosen], batch_size=len(chosen))))
            adam.zero_grad()
            F.cross_entropy(model(batch.x, batch.edge_index, batch.batch), store.y[chosen]).backward()
            adam.step()
        decay.step()
        model.eval()
        batch = next(iter(DataLoader(data[30:], batch_size=10)))
        with torch.no_grad():
            losses.append(F.cross_entropy(model(batch.x, batch.edge_index, batch.batch), store.y[30:]).item())
    history = fleet.train(5)
    assert _difference(history.weights[0], dict(model.named_parameters())) < 1e-10
    np.testing.assert_allclose(history.loss["test"][0], losses, rtol=1e-9)


def test_adamw_is_torchs(store):
    replica = Replica(0, np.arange(40), lr=5e-3, weight_decay=0.1)
    fleet = _fleet(store, [replica], dropout=0.0, batch_size=40, adamw=True)
    torch.manual_seed(0)
    features = Features.of(store)
    model = SoftMaskGNN(features.channels, 8, 2, 2, jk=True, dropout=0.0).double()
    adam = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.1)
    batch = next(iter(DataLoader([store[g] for g in range(40)], batch_size=40)))
    for _ in range(5):
        adam.zero_grad()
        F.cross_entropy(model(features(store), batch.edge_index, batch.batch), store.y).backward()
        adam.step()
    assert _difference(fleet.train(5).weights[0], dict(model.named_parameters())) < 1e-10


def test_regression_targets_are_scaled_in_float64_and_errors_come_in_their_unit(store):
    # Like total energies: about -400 with differences of interest below 0.01.
    y = -400 + 0.01 * store.sizes.double().numpy() / 40
    energies = with_targets(store, np.stack([y, 1000 * y], axis=1))
    ids = np.arange(40)
    replicas = [Replica(s, ids[:30], {"test": ids[30:]}, target=s, lr=5e-3) for s in (0, 1)]
    fleet = Fleet(
        lambda: SoftMaskGNN(Features.of(store).channels, 8, 2, 1, dropout=0.0, head="regressor"),
        energies,
        Features.of(store)(store),
        replicas,
        batch_size=8,
        loss="mse",
    )
    np.testing.assert_allclose(fleet.mean.squeeze(1), [y[:30].mean(), 1000 * y[:30].mean()], rtol=1e-14)
    history = fleet.train(60)
    spread = y[30:].std()
    assert history.metric["test"][0, -1] < spread
    assert history.metric["test"][1, -1] < 1000 * spread
    assert history.metric["test"][1, -1] > 10 * history.metric["test"][0, -1]


def test_a_diverging_replica_is_named_and_touches_no_other(store):
    healthy = _replicas(2)
    wild = Replica(7, np.arange(30), {"test": np.arange(30, 40)}, lr=1e300)
    alone = _fleet(store, healthy).train(6)
    beside = _fleet(store, [healthy[0], wild, healthy[1]]).train(6)
    assert _difference(alone.weights[0], beside.weights[0]) < 1e-9
    assert _difference(alone.weights[1], beside.weights[2]) < 1e-9
    assert [(t.replica, t.seed) for t in beside.troubles] == [(1, 7)]
    assert "learning rate" in str(beside.troubles[0])


def test_the_best_epoch_is_kept_on_request(store):
    replicas = _replicas(3)
    history = _fleet(store, replicas).train(8, keep="test")
    best = history.metric["test"].argmax(axis=1) + 1
    assert history.epoch.tolist() == best.tolist()
    for r, epochs in enumerate(best):
        again = _fleet(store, replicas).train(int(epochs))
        assert _difference(again.weights[r], history.weights[r]) == 0


def test_the_callback_can_end_the_training(store):
    replicas = _replicas(2)
    history = _fleet(store, replicas).train(50, on_epoch=lambda epoch, metrics: epoch == 3)
    assert history.interrupted
    assert history.epochs == 3
    expected = _fleet(store, replicas).train(3)
    assert not expected.interrupted
    assert _difference(history.weights[0], expected.weights[0]) == 0


def test_dropout_may_differ_from_replica_to_replica(store):
    ids = np.arange(40)
    none, half = (Replica(0, ids, dropout=p, lr=1e-2) for p in (0.0, 0.5))
    both = _fleet(store, [none, half]).train(3)
    assert (
        _difference(both.weights[0], _fleet(store, [Replica(0, ids, lr=1e-2)], dropout=0.0).train(3).weights[0]) < 1e-9
    )
    assert _difference(both.weights[0], both.weights[1]) > 1e-4


@pytest.mark.parametrize(
    ("replica", "words"),
    [
        (Replica(0, []), "no graphs"),
        (Replica(0, [0, 40]), "graph 40"),
        (Replica(0, [-1]), "graph -1"),
        (Replica(0, [0.5]), "graph numbers"),
        (Replica(0, [[0], [1]]), "a list"),
        (Replica(0, 3), "a list"),
        (Replica(0, [0], {"test": []}), "no graphs"),
        (Replica(0, [0], lr=0.0), "learning rate"),
        (Replica(0, [0], lr=float("nan")), "learning rate"),
        (Replica(0, [0], decay=2.0), "decay"),
        (Replica(0, [0], dropout=1.0), "dropout"),
    ],
)
def test_bad_replicas_are_refused_before_any_work(store, replica, words):
    with pytest.raises(SettingError, match=words):
        _fleet(store, [replica])


def test_other_bad_input(store):
    with pytest.raises(SettingError, match="at least one"):
        _fleet(store, [])
    with pytest.raises(SettingError, match="unknown loss"):
        _fleet(store, _replicas(1), loss="hinge")
    with pytest.raises(SettingError, match="no such part"):
        _fleet(store, _replicas(1)).train(1, keep="valid")
    with pytest.raises(SettingError, match="epochs"):
        _fleet(store, _replicas(1)).train(0)
    with pytest.raises(SettingError, match=r"x holds the token \d+; the model has in_channels=3"):
        Fleet(lambda: SoftMaskGNN(3, 8, 2, 2), store, Features.of(store)(store), _replicas(1))
    with pytest.raises(SettingError, match=r"replica 1 .* no such part"):
        _fleet(store, [*_replicas(1), Replica(7, [0])]).train(1, keep="test")
    with pytest.raises(SettingError, match="patience"):
        _fleet(store, _replicas(1)).train(1, patience=("test", 0))


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (torch.tensor([-1, 1] * 20), "from 0 on"),
        (torch.tensor([0, 1] * 20, dtype=torch.int32), "int64"),
        (torch.zeros(40, 2, dtype=torch.int64), "shape"),
        (torch.zeros(39, dtype=torch.int64), "shape"),
    ],
)
def test_classes_that_are_none_are_refused(store, y, words):
    odd = GraphStore(store.node_ptr, store.row_ptr, store.col, y=y)
    with pytest.raises(SettingError, match=words):
        _fleet(odd, [Replica(0, [0])])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.uint64])
def test_ids_of_any_kind_of_whole_number(store, dtype):
    """To torch, an array of bytes as long as the targets would be a mask."""
    numbers = with_targets(store, store.sizes.double().numpy())
    ids = np.random.default_rng(0).integers(0, 40, 40)
    plain, other = (_fleet(numbers, [Replica(0, ids.astype(t))], loss="mse") for t in (np.int64, dtype))
    assert torch.equal(plain.mean, other.mean)
    assert plain.mean.item() == pytest.approx(store.sizes.numpy()[ids].mean())


class _Pooled(torch.nn.Module):
    """A user's own model: one map of the summed tokens, through whatever `twist` does."""

    def __init__(self, channels, twist, more=None):
        super().__init__()
        self.lin = torch.nn.Linear(channels, 2)
        self.channels, self.twist = channels, twist
        if more is not None:
            more(self)

    def forward(self, x, neighbours, batch, batch_size=None):
        hot = (x.unsqueeze(-1) == torch.arange(self.channels)).to(self.lin.weight)
        return self.twist(self.lin(graph_sum(neighbour_sum(hot, neighbours), batch, batch_size)))


def _own_fleet(store, twist, more=None):
    features = Features.of(store)
    return Fleet(
        lambda: _Pooled(features.channels, twist, more),
        store,
        features(store),
        _replicas(2),
        batch_size=8,
        precision="float64",
    )


def test_any_module_on_our_operators_can_be_a_fleet(store):
    together = _own_fleet(store, lambda out: out).train(5)
    assert together.train_loss.shape == (2, 5)
    assert (together.train_loss[:, -1] < together.train_loss[:, 0]).all()


@torch.library.custom_op("softmask_tests::twice", mutates_args=())
def _twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


class _ForwardOnly(torch.autograd.Function):
    """An operator whose gradient has no rule, which only training asks for."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return _twice(grad)


@pytest.mark.parametrize(
    ("twist", "words"),
    [
        (_twice, "vmap"),
        (lambda out: out if out.sum() > 0 else -out, "vmap"),
        (lambda out: out.sum(dim=0), "must give"),
        (lambda out: (out, 1), "one tensor"),
        (torch.nn.Dropout(0.5), "KeyedDropout"),
        (_ForwardOnly.apply, "vmap"),
    ],
    ids=["an operator without a rule", "a branch on values", "a wrong shape", "two results", "dropout", "no gradient"],
)
def test_a_model_that_cannot_be_a_fleet_is_refused_at_once(store, twist, words):
    with pytest.raises(SettingError, match=words):
        _own_fleet(store, twist)


def _refuse(more, store, words):
    with pytest.raises(SettingError, match=words):
        _own_fleet(store, lambda out: out, more)


def test_parameters_that_cannot_be_stacked_are_refused(store):
    _refuse(lambda model: model.lin.weight.requires_grad_(False), store, "frozen 'lin.weight'")
    _refuse(lambda model: setattr(model, "norm", torch.nn.BatchNorm1d(2)), store, "'norm' is torch's batch norm")
    _refuse(lambda model: delattr(model, "lin"), store, "no parameters")
    _refuse(lambda model: setattr(model, "lazy", torch.nn.LazyLinear(2)), store, "has no size yet")
    sizes = iter((2, 3))
    _refuse(lambda model: setattr(model, "lin", torch.nn.Linear(model.channels, next(sizes))), store, "one shape")


def test_parameters_of_a_single_number_unused_and_shared_ones(store):
    """None of them changes what a fleet computes, and the state dicts load."""

    def more(model):
        model.scale = torch.nn.Parameter(torch.ones(()))
        model.unused = torch.nn.Linear(3, 1)
        model.again = model.lin

    fleet = _own_fleet(store, lambda out: out, more)
    history = fleet.train(5)
    plain = _own_fleet(store, lambda out: out).train(5)
    np.testing.assert_array_equal(history.train_loss, plain.train_loss)
    model = _Pooled(Features.of(store).channels, None, more)
    model.load_state_dict(history.weights[1])
    assert torch.equal(model.lin.weight.double(), plain.weights[1]["lin.weight"].float().double())
    assert model.scale == 1


class _Shut(SoftMaskGNN):
    """Biases that shut every mask of layer 2 from the start."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        torch.nn.init.constant_(self.masks[1].mlp[2].bias, -30.0)


@pytest.mark.parametrize("parts", [{"test": range(20)}, {}], ids=["evaluated", "only trained"])
def test_closed_masks_are_named(parts):
    """A rate too small to open them again; beside it a model whose masks are open."""
    store = motif(num_graphs=20, seed=0)
    features = Features.of(store)
    replica = Replica(4, range(20), parts, lr=1e-6)

    def train(kind):
        return Fleet(lambda: kind(features.channels, 8, 2, 2), store, features(store), [replica]).train(3)

    assert not train(SoftMaskGNN).troubles
    (trouble,) = train(_Shut).troubles
    assert (trouble.seed, trouble.epoch) == (4, 1 if parts else 3)
    assert "masks" in str(trouble)
    assert "learning rate" in str(trouble)


def test_masks_that_are_open_in_one_part_are_open():
    loss, closed, opened = np.ones((2, 3)), np.full((2, 3), 1e-9), np.array([[0.5] * 3, [np.nan] * 3])
    assert [t.replica for t in find_troubles([5, 6], loss, [closed, opened])] == [1]


def test_a_last_step_that_spoils_the_weights_is_named(store):
    replica = Replica(7, np.arange(40), {"test": np.arange(5)}, lr=1e308)
    history = _fleet(store, [replica], "float32", batch_size=40).train(1)
    assert np.isfinite(history.train_loss).all()
    (trouble,) = history.troubles
    assert (trouble.seed, trouble.epoch) == (7, 1)


def test_half_precision_follows_float32(store):
    """The curves of bf16 stay near those of float32: on the CPU too, where the same casts are made."""
    replicas = _replicas(3)
    full = _fleet(store, replicas, "float32").train(10)
    half = _fleet(store, replicas, "bf16").train(10)
    assert np.abs(half.train_loss - full.train_loss).max() < 0.02
    assert np.abs(half.loss["test"] - full.loss["test"]).max() < 0.02


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_crews_change_nothing(store, monkeypatch, loss):
    """On the CPU a few replicas compute at a time; how many must not matter."""
    if loss == "mse":
        sizes = store.sizes.double().numpy()
        store = with_targets(store, np.stack([sizes, sizes**2], axis=1))
    columns = {} if loss == "cross_entropy" else {"target": 1}
    replicas = [Replica(**{**vars(r), "dropout": 0.1 * r.seed, **columns}) for r in _replicas(5)]
    outputs = 2 if loss == "cross_entropy" else 1

    def train(cache):
        monkeypatch.setattr("softmask.fleet.fleet._TOGETHER", cache)
        features = Features.of(store)
        fleet = Fleet(
            lambda: SoftMaskGNN(features.channels, 8, 2, outputs),
            *(store, features(store), replicas),
            batch_size=8,
            loss=loss,
            precision="float64",
            merge=False,  # with levels every replica computes alone
        )
        return len(fleet.crews), fleet.train(4)

    (one, together), (several, apart) = train(2**30), train(2 * 8 * 8 * 500)
    assert one == 1
    assert several > 1
    np.testing.assert_allclose(apart.train_loss, together.train_loss, rtol=1e-10)
    np.testing.assert_allclose(apart.metric["test"], together.metric["test"], rtol=1e-10)
    for a, b in zip(apart.weights, together.weights):
        assert _difference(a, b) < 1e-10


def test_targets_and_losses_that_do_not_fit(store):
    numbers = with_targets(store, store.sizes.double().numpy())
    ids = np.arange(40)
    with pytest.raises(SettingError, match="does not fit the targets"):
        _fleet(store, [Replica(0, ids)], loss="mse")
    with pytest.raises(SettingError, match="does not fit the targets"):
        _fleet(numbers, [Replica(0, ids)])
    for target in (1, -1):
        with pytest.raises(SettingError, match="no target"):
            _fleet(numbers, [Replica(0, ids, target=target)], loss="mse")
    with pytest.raises(SettingError, match="too large"):
        _fleet(with_targets(store, np.array([1e308, -1e308] * 20)), [Replica(0, ids)], loss="mse")
    features = Features.of(store)
    with pytest.raises(SettingError, match="outputs"):
        Fleet(lambda: SoftMaskGNN(features.channels, 8, 2, 1), store, features(store), [Replica(0, ids)])
    for wrong in ({"weight_decay": -1.0}, {"weight_decay": float("nan")}, {"lr": float("inf")}):
        with pytest.raises(SettingError, match=r"weight_decay|learning rate"):
            _fleet(store, [Replica(0, ids, **wrong)])


def test_a_replica_may_lack_a_part(store):
    with_part, without = _replicas(1)[0], Replica(7, np.arange(30))
    history = _fleet(store, [with_part, without]).train(3)
    alone = _fleet(store, [with_part]).train(3)
    np.testing.assert_allclose(history.metric["test"][0], alone.metric["test"][0])
    assert np.isnan(history.metric["test"][1]).all()
    assert not history.troubles


def test_the_training_metric_is_taken_while_training(store):
    """Without dropout and with a rate of almost nothing it is the metric of the training part."""
    ids = np.arange(40)
    history = _fleet(store, [Replica(0, ids, {"all": ids}, lr=1e-12)], dropout=0.0).train(2)
    np.testing.assert_allclose(history.train_metric, history.metric["all"])
    np.testing.assert_allclose(history.train_loss, history.loss["all"], atol=1e-9)


class _Cut(Exception):
    pass


@pytest.mark.parametrize("keep", ["last", "test"])
def test_a_training_goes_on_from_a_snapshot_as_if_it_had_not_stopped(store, tmp_path, keep):
    whole = _fleet(store, _replicas(3), "float32").train(6, keep=keep)

    def cut(epoch, metrics):
        if epoch == 4:
            raise _Cut

    snapshot = Snapshot(tmp_path / "state.safetensors", every=0.0)
    with pytest.raises(_Cut):
        _fleet(store, _replicas(3), "float32").train(6, keep=keep, on_epoch=cut, snapshot=snapshot)
    seen = []
    again = _fleet(store, _replicas(3), "float32").train(
        6, keep=keep, on_epoch=lambda epoch, metrics: seen.append(epoch), snapshot=snapshot
    )
    assert seen == [4, 5, 6]
    for name in ("train_loss", "train_metric", "epoch"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))
    np.testing.assert_array_equal(again.loss["test"], whole.loss["test"])
    assert all(_difference(a, b) == 0 for a, b in zip(again.weights, whole.weights))


def test_a_snapshot_of_another_training_or_a_damaged_one_is_not_used(store, tmp_path):
    path = tmp_path / "state.safetensors"
    _fleet(store, _replicas(2)).train(2, snapshot=Snapshot(path))

    def epochs(replicas, epochs=2, turned=False):
        seen, fleet = [], _fleet(store, replicas)
        if turned:  # as if the nodes had been given another input
            fleet.graphs.x = fleet.graphs.x.flip(0)
        fleet.train(epochs, on_epoch=lambda e, _: seen.append(e), snapshot=Snapshot(path, every=99))
        return seen

    assert epochs(_replicas(2)) == []  # finished already
    saved = path.read_bytes()
    assert epochs(_replicas(2), 3) == [1, 2, 3]
    path.write_bytes(saved)
    assert epochs(_replicas(3)[1:]) == [1, 2]
    path.write_bytes(saved)
    assert epochs(_replicas(2), turned=True) == [1, 2]
    path.write_bytes(saved[: len(saved) // 2])
    assert epochs(_replicas(2)) == [1, 2]
