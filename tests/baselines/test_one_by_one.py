"""Plain modules trained one by one: as a loop written by hand trains them, and with the records of a fleet."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from baselines.nets import (
    Lazy,
    LearnsNothing,
    MeanLoss,
    NothingToLearn,
    OfData,
    OneOutput,
    OwnLoss,
    Shown,
    Small,
    Tied,
    TooFew,
    WithEdges,
    WithLoss,
)
from torch_geometric.data import Batch

from softmask.baselines.one_by_one import train_one_by_one
from softmask.data import Features
from softmask.data.convert import with_targets
from softmask.data.synthetic import motif
from softmask.errors import SettingError
from softmask.fleet import Replica

STORE = motif(num_graphs=40, seed=0)
FEATURES = Features.of(STORE)
CHANNELS = FEATURES.channels


def train(replicas, epochs=4, model=Small, store=STORE, outputs=2, **options):
    options = {"batch_size": 8} | options
    x = FEATURES(store)
    return train_one_by_one(lambda: model(CHANNELS, outputs), store, x, CHANNELS, replicas, epochs, **options)


def replicas():
    ids = np.arange(40)
    return [
        Replica(s, ids[: 22 + s], {"validation": ids[26:32], "test": ids[32:]}, lr=1e-2, decay=0.5, decay_every=2)
        for s in range(3)
    ]


def test_a_loop_by_hand():
    """The same batches by another way, Adam with its rate halved every two epochs, evaluation after every epoch."""
    history = train(replicas())
    assert history.train_loss.shape == (3, 4)
    for r, replica in enumerate(replicas()):
        torch.manual_seed(replica.seed)
        model = Small(CHANNELS, 2)
        data = [STORE[g] for g in range(40)]
        for g, item in enumerate(data):
            own = slice(int(STORE.node_ptr[g]), int(STORE.node_ptr[g + 1]))
            item.x = F.one_hot(FEATURES(STORE)[own], CHANNELS).float()
        shuffles = np.random.default_rng(replica.seed)
        moment = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()}
        step = 0
        for epoch in range(4):
            model.train()
            seen = 0.0
            for ids in np.array_split(shuffles.permutation(replica.train), -(-len(replica.train) // 8)):
                batch = Batch.from_data_list([data[g] for g in ids])
                loss = F.cross_entropy(model(batch.x, batch.edge_index, batch.batch), STORE.y[torch.as_tensor(ids)])
                seen += loss.item() * len(ids)
                step += 1
                with torch.no_grad():
                    for (p, (m, v)), g in zip(moment.items(), torch.autograd.grad(loss, model.parameters())):
                        m.mul_(0.9).add_(0.1 * g)
                        v.mul_(0.999).add_(0.001 * g * g)
                        rate = 1e-2 * 0.5 ** (epoch // 2)
                        p -= rate * m / (1 - 0.9**step) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
            assert history.train_loss[r, epoch] == pytest.approx(seen / len(replica.train), abs=1e-4)
            model.eval()
            with torch.no_grad():
                batch = Batch.from_data_list(data[32:])
                out = model(batch.x, batch.edge_index, batch.batch)
            assert history.loss["test"][r, epoch] == pytest.approx(F.cross_entropy(out, STORE.y[32:]).item(), abs=1e-4)
            accuracy = (out.argmax(dim=1) == STORE.y[32:]).double().mean().item()
            assert history.metric["test"][r, epoch] == pytest.approx(accuracy)
        torch.testing.assert_close(
            history.weights[r]["conv.lin.weight"], model.conv.lin.weight.detach(), atol=1e-4, rtol=0
        )


def test_the_company_does_not_matter_and_the_generator_is_left_alone():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    together = train(replicas())
    assert torch.equal(torch.get_rng_state(), before)
    alone = train(replicas()[1:2])
    np.testing.assert_array_equal(alone.loss["test"][0], together.loss["test"][1])
    np.testing.assert_array_equal(alone.train_loss[0], together.train_loss[1])


def test_it_goes_on_with_the_model_that_was_not_done(tmp_path):
    whole, seen = train(replicas()), []
    # Four epochs of three models are told as four epochs; the second model is interrupted.
    cut = train(replicas(), snapshots=tmp_path, on_epoch=lambda epoch: seen.append(epoch) or len(seen) == 6)
    assert cut.interrupted
    assert seen == [0, 0, 1, 1, 1, 2]
    assert [p.name for p in tmp_path.iterdir()] == ["replicas-0.safetensors"]
    again: list[int] = []
    rest = train(replicas(), snapshots=tmp_path, on_epoch=again.append)
    assert len(again) == 8, "the first model is not trained again"
    np.testing.assert_array_equal(rest.loss["test"], whole.loss["test"])
    np.testing.assert_array_equal(rest.train_loss, whole.train_loss)
    for a, b in zip(whole.weights, rest.weights):
        assert all(torch.equal(a[n], b[n]) for n in a)
    # A snapshot of another training is not taken.
    other = train(
        [Replica(9, np.arange(20), {"validation": np.arange(26, 32), "test": np.arange(32, 40)})], snapshots=tmp_path
    )
    assert not np.array_equal(other.loss["test"][0], whole.loss["test"][0])


def test_patience_stops_each_model_by_itself():
    whole = train(replicas(), epochs=20)
    short = train(replicas(), epochs=20, patience=("validation", 3))
    for r in range(3):
        metric = whole.metric["validation"][r]
        stop = next((e for e in range(20) if e - metric[: e + 1].argmax() >= 3), 19) + 1
        assert short.epoch[r] == stop
        np.testing.assert_array_equal(short.metric["validation"][r, :stop], metric[:stop])
        assert np.isnan(short.metric["validation"][r, stop:]).all()
    assert not short.troubles


def test_numbers_are_learned_in_the_unit_of_the_target():
    store = with_targets(STORE, 1000 + 50 * STORE.sizes.double().numpy())
    history = train(replicas(), epochs=60, store=store, outputs=1, loss="mse")
    train_part = store.y[:22].numpy()
    blind = np.abs(store.y[32:].numpy() - train_part.mean()).mean()
    assert history.metric["test"][0, -1] < blind
    assert history.train_loss[0, 0] < 10, "the targets are scaled"


def test_edges_and_losses_of_its_own():
    carried = torch.arange(STORE.num_edges).float().reshape(-1, 1)
    with_edges = train(replicas()[:1], model=WithEdges, edge_x=carried)
    plain = train(replicas()[:1])
    np.testing.assert_array_equal(with_edges.loss["test"], plain.loss["test"])
    pulled = train([Replica(0, np.arange(30), lr=1e-2)], epochs=60, model=WithLoss)
    assert pulled.weights[0]["out.bias"].abs().max() < 0.02
    # The loss that is recorded is that of the task alone, as in a fleet.
    assert pulled.train_loss.max() < 5


def test_targets_are_shown_in_training_only():
    made = []

    def make(channels, outputs):
        made.append(Shown(channels, outputs))
        return made[-1]

    replica = replicas()[0]
    history = train([replica], model=make, epochs=2)
    np.testing.assert_array_equal(history.loss["test"], train([replica], epochs=2).loss["test"])
    assert {training for training, _ in made[0].shown} == {True, False}
    assert all(training == (y is not None) for training, y in made[0].shown)
    shown = torch.cat([y for _, y in made[0].shown if y is not None])
    torch.testing.assert_close(shown.sort().values, STORE.y[replica.train].repeat(2).sort().values)


def test_a_loss_of_its_own_is_trained_and_recorded():
    """By squares the outputs come to add up to 1, to which cross entropy is blind."""
    replica = Replica(0, np.arange(30), {"test": np.arange(30, 40)}, lr=1e-2)
    history = train([replica], epochs=40, model=OwnLoss)
    model = OwnLoss(CHANNELS, 2)
    model.load_state_dict(history.weights[0])
    batch = Batch.from_data_list([STORE[g] for g in range(30, 40)])
    x = F.one_hot(FEATURES(STORE)[int(STORE.node_ptr[30]) :], CHANNELS).float()
    with torch.no_grad():
        out = model.eval()(x, batch.edge_index, batch.batch)
    each = [sum((out[g, k].item() - (k == int(STORE.y[30 + g]))) ** 2 for k in range(2)) for g in range(10)]
    assert history.loss["test"][0, -1] == pytest.approx(np.mean(each), rel=1e-4)
    assert history.train_loss[0, -1] < 0.8 * history.train_loss[0, 0]
    assert out.sum(dim=1).mean().item() == pytest.approx(1, abs=0.15)
    with pytest.raises(SettingError, match=r"loss_per_graph of MeanLoss must give one number a graph; for 8 .* \[\]"):
        train([replica], model=MeanLoss)


def test_models_that_give_something_else_are_refused():
    with pytest.raises(SettingError, match=r"must give \[graphs, outputs\]; for 8 graphs it gave \[7, 2\]"):
        train(replicas(), model=TooFew)
    with pytest.raises(SettingError, match="gives 1 outputs for 2 classes"):
        train(replicas(), model=OneOutput)
    with pytest.raises(SettingError, match=r"the forward of OfData must take \(x, edge_index, batch\): too many"):
        train(replicas(), model=OfData)
    with pytest.raises(SettingError, match="Lazy has layers whose sizes are left open"):
        train(replicas(), model=Lazy)
    with pytest.raises(SettingError, match="NothingToLearn has no parameters to train"):
        train(replicas(), model=NothingToLearn)
    with pytest.raises(SettingError, match="the output of LearnsNothing does not depend on its parameters"):
        train(replicas(), model=LearnsNothing)
    with pytest.raises(SettingError, match=r"must be a torch.nn.Module, got int"):
        train(replicas(), model=lambda *sizes: 3)


def test_a_layer_used_twice_is_kept_under_both_names(tmp_path):
    whole = train(replicas()[:1], model=Tied, snapshots=tmp_path).weights[0]
    again = train(replicas()[:1], model=Tied, snapshots=tmp_path).weights[0]
    assert torch.equal(whole["again.weight"], whole["out.weight"])
    assert torch.equal(whole["again.weight"], again["again.weight"])


def test_a_diverged_model_is_told():
    ids = np.arange(40)
    history = train([Replica(0, ids[:30], {"test": ids[30:]}, lr=1e30)], epochs=3)
    assert "diverged" in str(history.troubles[0])
