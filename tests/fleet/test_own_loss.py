"""Models that bring a loss of their own, in a fleet: its gradients against plain autograd on the same graphs."""

import networkx as nx
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from theory.graphs import EXACT
from torch_geometric.data import Batch

from softmask.data import Features
from softmask.data.convert import with_targets
from softmask.data.networkx import from_networkx
from softmask.data.synthetic import motif
from softmask.errors import SettingError
from softmask.fleet import Fleet, Replica
from softmask.fleet.predict import predict
from softmask.nn import SoftMaskGNN
from softmask.ops import as_segments, graph_sum, neighbour_sum
from softmask.ops.neighbours import as_neighbours

STORE = motif(num_graphs=40, seed=0)
FEATURES = Features.of(STORE)
# Of different numbers of graphs, so that there are slots without any.
REPLICAS = [Replica(s, np.arange(n), {"test": np.arange(30, 40)}, lr=1e-2) for s, n in enumerate((22, 30, 9))]


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(FEATURES.channels, 4)
        self.out = torch.nn.Linear(4, 2)

    def forward(self, x, neighbours, batch, batch_size):
        neighbours = as_neighbours(neighbours, x.size(0))
        h = self.embed(x)
        return self.out(graph_sum((h + neighbour_sum(h, neighbours)).tanh(), batch, batch_size))


class Pulled(Plain):
    """Adds a loss whose gradient is known: 3 for every bias."""

    def forward(self, x, neighbours, batch, batch_size):
        out = super().forward(x, neighbours, batch, batch_size)
        return (out, 3 * self.out.bias.sum()) if self.training else out


class Shown(Plain):
    """Adds half of the squared output of the true class, in the mean over the graphs that are there."""

    def __init__(self):
        super().__init__()
        self.shown = set()

    def forward(self, x, neighbours, batch, batch_size, y):
        self.shown.add((self.training, y is not None))
        out = super().forward(x, neighbours, batch, batch_size)
        if y is None:
            return out
        there = graph_sum(torch.ones_like(out[:1, :1]).expand(x.size(0), 1), batch, batch_size) > 0
        each = out.gather(1, y.unsqueeze(1)).square() / 2
        return out, torch.where(there, each, 0).sum() / there.sum().clamp(min=1)


class Squares(Plain):
    """Squares instead of cross entropy."""

    def loss_per_graph(self, out, y):
        return (out - F.one_hot(y, 2)).square().sum(dim=1)


class OneForAll(Squares):
    def loss_per_graph(self, out, y):
        return super().loss_per_graph(out, y).mean()


class OneAGraph(Plain):
    def forward(self, x, neighbours, batch, batch_size):
        out = super().forward(x, neighbours, batch, batch_size)
        return (out, out.square().sum(dim=1)) if self.training else out


class NoTensor(Plain):
    def forward(self, x, neighbours, batch, batch_size):
        return super().forward(x, neighbours, batch, batch_size), 0.5


def fleet(model, replicas=REPLICAS, **options):
    return Fleet(model, STORE, FEATURES(STORE), replicas, **{"batch_size": 8, "precision": "float64"} | options)


def alone(made, r, ids):
    """The model of a replica, and its gradients for a batch as PyG has it, by name."""
    model = type(made.model)().double()
    model.load_state_dict(made.stack.state(made.stack.flat, r))
    batch = Batch.from_data_list([STORE[g] for g in ids])
    nodes = torch.cat([torch.arange(int(STORE.node_ptr[g]), int(STORE.node_ptr[g + 1])) for g in ids])
    y = STORE.y[ids]
    given = (FEATURES(STORE)[nodes], batch.edge_index, batch.batch, len(ids))
    more = (y,) if isinstance(model, Shown) else ()
    found = model.train()(*given, *more)
    out, extra = found if isinstance(found, tuple) else (found, 0.0)
    each = model.loss_per_graph(out, y) if hasattr(model, "loss_per_graph") else F.cross_entropy(out, y)
    (each.mean() + extra).backward()
    return each.mean().item(), {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("model", [Plain, Pulled, Shown, Squares])
def test_gradients_are_those_of_plain_autograd(model):
    made = fleet(model)
    assert (made.tables[0] < 0).any()
    made.model.train()
    for crew in made.crews:
        found, (loss, _), _ = made._gradients(0, crew)
        for r in range(crew.first, crew.last):
            graphs = made.tables[0][0, r]
            mean, expected = alone(made, r, graphs[graphs >= 0])
            for name, gradient in zip(crew.parameters, found):
                torch.testing.assert_close(gradient[r - crew.first], expected[name], **EXACT)
            # What is recorded is the loss of the task.
            assert loss[r - crew.first].item() / int((graphs >= 0).sum()) == pytest.approx(mean)


def test_what_is_added_is_a_known_gradient():
    plain, pulled = fleet(Plain), fleet(Pulled)
    for made in (plain, pulled):
        made.model.train()
    for crew, other in zip(plain.crews, pulled.crews):
        a, b = (dict(zip(c.parameters, f._gradients(0, c)[0])) for f, c in ((plain, crew), (pulled, other)))
        torch.testing.assert_close(b["out.bias"] - a["out.bias"], torch.full_like(a["out.bias"], 3), **EXACT)
        torch.testing.assert_close(b["out.weight"], a["out.weight"], **EXACT)


def test_targets_are_shown_in_training_only():
    made = fleet(Shown)
    made.model.shown.clear()
    made.train(2)
    assert made.model.shown == {(True, True), (False, False)}


def test_a_loss_of_its_own_is_trained_and_recorded():
    history = fleet(Squares).train(30)
    assert (history.train_loss[:, -1] < 0.8 * history.train_loss[:, 0]).all()
    model = Squares().double()
    model.load_state_dict(history.weights[0])
    out = model.eval()(FEATURES(STORE), torch.stack(STORE.edges()), as_segments(STORE.batch), 40)
    each = [(out[g, 0] - (STORE.y[g] == 0).double()) ** 2 + (out[g, 1] - STORE.y[g]) ** 2 for g in range(30, 40)]
    assert history.loss["test"][0, -1] == pytest.approx(torch.stack(each).mean().item())


@pytest.mark.parametrize("model", [Pulled, Shown, Squares])
def test_the_company_does_not_matter(model):
    together = fleet(model).train(3)
    for r, replica in enumerate(REPLICAS):
        by_itself = fleet(model, [replica]).train(3)
        for name, t in by_itself.weights[0].items():
            torch.testing.assert_close(t, together.weights[r][name], rtol=1e-9, atol=1e-9)


def test_a_loss_of_numbers():
    class Far(Plain):
        def loss_per_graph(self, out, y):
            return (out - y).abs().pow(3).sum(dim=1)

    store = with_targets(STORE, torch.stack([STORE.sizes, STORE.sizes % 3], dim=1).double().numpy())
    made = Fleet(Far, store, FEATURES(store), REPLICAS, batch_size=8, loss="mse", precision="float64")
    history = made.train(10)
    assert (history.train_loss[:, -1] < history.train_loss[:, 0]).all()


def test_what_is_no_loss_is_refused_at_once():
    with pytest.raises(SettingError, match=r"loss_per_graph of OneForAll must give one number a graph; .* gave \[\]"):
        fleet(OneForAll)
    with pytest.raises(SettingError, match=r"a loss that a model adds must be one number, .* got \[1\]"):
        fleet(OneAGraph)
    with pytest.raises(SettingError, match="must be one number, a tensor without size, got float"):
        fleet(NoTensor)


@pytest.mark.parametrize("model", [Plain, Shown])
def test_predictions_are_those_of_each_graph(model):
    made = model().double()
    out, masks = predict(made, STORE, FEATURES(STORE))
    assert masks == []
    for g in range(40):
        nodes = slice(int(STORE.node_ptr[g]), int(STORE.node_ptr[g + 1]))
        one = as_segments(torch.zeros(nodes.stop - nodes.start, dtype=torch.int64))
        more = (None,) if model is Shown else ()
        torch.testing.assert_close(out[g : g + 1], made(FEATURES(STORE)[nodes], STORE[g].edge_index, one, 1, *more))


class Masked(SoftMaskGNN):
    """Adds the mean of the masks over all nodes, which no sum over merged nodes would give."""

    def forward(self, x, neighbours, batch, batch_size, return_masks=False):
        out, masks = super().forward(x, neighbours, batch, batch_size=batch_size, return_masks=True)
        if return_masks or not self.training:
            return (out, masks) if return_masks else out
        there = (batch.graph >= 0).unsqueeze(1)
        return out, torch.where(there, masks[0], 0).sum() / there.sum().clamp(min=1)


def test_a_forward_of_its_own_takes_back_that_nodes_meet_in_sums_alone():
    stars = from_networkx([nx.star_graph(3 + g) for g in range(20)], y=[g % 2 for g in range(20)])
    tokens = Features.of(stars)

    def made(kind, merge=None):
        given = (lambda: kind(tokens.channels, 4, 1, 2, dropout=0.0), stars, tokens(stars))
        return Fleet(*given, [Replica(0, np.arange(20), lr=1e-2)], precision="float64", merge=merge)

    assert made(SoftMaskGNN).graphs.quotient is not None
    assert made(type("Named", (SoftMaskGNN,), {})).graphs.quotient is not None
    assert made(type("Says", (Masked,), {"sums_only": True})).graphs.quotient is not None
    assert made(Masked).graphs.quotient is None
    with pytest.raises(SettingError, match="sums_only"):
        made(Masked, merge=True)
