import copy

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given
from theory.graphs import EXACT, Numbers, examples, graphs
from torch.nn.functional import elu
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from softmask.nn import GAT, GATConv
from softmask.ops import as_neighbours

EDGES = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])  # a path of three nodes, a pair, an isolated node
BATCH = torch.tensor([0, 0, 0, 1, 1, 2])
X = Numbers(0).normal(6, 3)
TOKENS = torch.tensor([2, 0, -1, 1, 1, 2])


class PygStack(torch.nn.Module):
    """The same model of PyG's layers; its parameters have the same names."""

    def __init__(self, channels, hidden, layers, outputs, heads, jk):
        super().__init__()
        self.jk = jk
        self.lin_in = torch.nn.Linear(channels, hidden)
        self.convs = torch.nn.ModuleList(pyg.GATConv(hidden, hidden // heads, heads) for _ in range(layers))
        self.head = pyg.MLP([hidden * (layers if jk else 1), hidden, outputs], norm=None)

    def forward(self, x, edge_index, batch, batch_size):
        x, read = self.lin_in(x), []
        for conv in self.convs:
            x = elu(conv(x, edge_index))
            read.append(pyg.global_add_pool(x, batch, batch_size))
        return self.head(torch.cat(read if self.jk else read[-1:], dim=-1))


def same_weights(model, *args):
    """PyG's model with the weights of ours."""
    weights = {
        n.replace("head.0", "head.lins.0").replace("head.3", "head.lins.1"): p for n, p in model.state_dict().items()
    }
    other = PygStack(*args).double()
    other.load_state_dict(weights)
    return other.eval()


@examples(25)
@given(graph=graphs(min_nodes=1))
def test_the_layer_is_pygs(graph):
    """Also with self loops, edges that stand twice and isolated nodes; forward and all gradients."""
    numbers = graph.numbers()
    ours = numbers.fill(GATConv(3, 4, heads=2))
    theirs = pyg.GATConv(3, 4, heads=2).double()
    theirs.load_state_dict(ours.state_dict())
    x, weight = numbers.normal(graph.num_nodes, 3).requires_grad_(), numbers.normal(graph.num_nodes, 8)
    results = []
    for conv in (ours, theirs):
        out = conv(x, graph.edge_index)
        results.append((out, *torch.autograd.grad((out * weight).sum(), [x, *conv.parameters()])))
    names = [name for name, _ in ours.named_parameters()]
    assert names == [name for name, _ in theirs.named_parameters()]
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, **EXACT)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("jk", [False, True])
def test_the_model_is_a_stack_of_pygs_layers(heads, jk):
    model = Numbers(1).fill(GAT(3, 8, 3, 5, heads=heads, jk=jk))
    expected = same_weights(model, 3, 8, 3, 5, heads, jk)(X, EDGES, BATCH, 3)
    torch.testing.assert_close(model(X, EDGES, BATCH), expected, **EXACT)
    torch.testing.assert_close(model(X, as_neighbours(EDGES, 6), BATCH, batch_size=3), expected, **EXACT)


def test_initial_weights_are_drawn_as_pygs():
    torch.manual_seed(0)
    ours = GATConv(6, 5, heads=3).state_dict()
    torch.manual_seed(0)
    theirs = pyg.GATConv(6, 5, heads=3)
    theirs.reset_parameters()
    for name, p in theirs.state_dict().items():
        assert ours[name].shape == p.shape
        bound = (6 / (15 + 6)) ** 0.5 if name == "lin.weight" else (6 / (3 + 5)) ** 0.5
        assert ours[name].abs().max() <= bound
        assert p.abs().max() <= bound
        assert (name == "bias") == bool((ours[name] == 0).all())


def test_reset_parameters():
    model = Numbers(0).fill(GAT(3, 4, 2, 5))
    before = copy.deepcopy(model.state_dict())
    model.reset_parameters()
    for name, p in model.state_dict().items():
        assert not torch.equal(p, before[name]), name


def test_a_graph_does_not_see_the_others_of_its_batch():
    model = Numbers(2).fill(GAT(3, 4, 2, 5, heads=2, jk=True))
    together = model(X, EDGES, BATCH)
    data = []
    for g, nodes in enumerate(([0, 1, 2], [3, 4], [5])):
        edges = EDGES[:, torch.isin(EDGES[0], torch.tensor(nodes))] - nodes[0]
        data.append(Data(x=X[nodes], edge_index=edges))
        torch.testing.assert_close(model(X[nodes], edges), together[g : g + 1], **EXACT)
    batch = next(iter(DataLoader(data, batch_size=3)))
    torch.testing.assert_close(model(batch.x, batch.edge_index, batch.batch), together, **EXACT)


@pytest.mark.parametrize("tokens", [False, True])
def test_padding_changes_nothing(tokens):
    """Nodes of no graph anywhere, and slots without a graph; the gradients, too, are the same."""
    model = Numbers(3).fill(GAT(3, 4, 2, 5, jk=True))
    x = TOKENS if tokens else X
    place = torch.tensor([0, 1, 2, 4, 5, 7])
    padded = torch.full((9, *x.shape[1:]), 1, dtype=x.dtype)
    padded[place] = x
    batch = torch.full((9,), -1)
    batch[place] = BATCH
    results = []
    for out in (model(x, EDGES, BATCH, 3), model(padded, place[EDGES], batch, 5)[:3]):
        results.append((out, *torch.autograd.grad(out.square().sum(), list(model.parameters()))))
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, **EXACT)


def test_tokens_stand_for_one_hot_vectors():
    model = Numbers(4).fill(GAT(3, 4, 2, 5))
    hot = torch.zeros(6, 3, dtype=torch.float64)
    hot[[0, 1, 3, 4, 5], [2, 0, 1, 1, 2]] = 1
    torch.testing.assert_close(model(TOKENS, EDGES, BATCH), model(hot, EDGES, BATCH), **EXACT)


@pytest.mark.parametrize("jk", [False, True])
def test_every_parameter_gets_a_gradient(jk):
    model = Numbers(5).fill(GAT(3, 8, 2, 5, jk=jk))
    model(X, EDGES, BATCH).square().sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.abs().max() > 0, name


def test_no_graphs_and_no_edges():
    model = GAT(3, 4, 2, 5).eval()
    none = torch.empty(2, 0, dtype=torch.long)
    assert model(torch.zeros(0, 3), none, torch.empty(0, dtype=torch.long)).shape == (0, 5)
    assert torch.isfinite(model(torch.ones(4, 3), none)).all()


def test_half_precision():
    model = Numbers(6).fill(GAT(3, 8, 2, 5))
    expected = model(X, EDGES, BATCH)
    half = model.bfloat16()
    half.head.float()
    out = half(X.bfloat16(), EDGES, BATCH)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), expected, rtol=0.1, atol=0.1)


def test_repr_and_wrong_arguments():
    assert str(GATConv(3, 4, heads=2)) == "GATConv(3, 4, heads=2)"
    assert str(GAT(3, 8, 2, 5)) == "GAT(3, 8, num_layers=2, out_channels=5, heads=4, jk=False)"
    with pytest.raises(ValueError, match="num_layers"):
        GAT(3, 8, 0, 5)
    with pytest.raises(ValueError, match="multiple of heads"):
        GAT(3, 9, 2, 5, heads=4)
