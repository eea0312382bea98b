"""GCN, GraphSAGE, DCNN and ECC against PyG's layers and plain matrices; and as fleets."""

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given
from theory.graphs import EXACT, Numbers, examples, graphs

from softmask.baselines import BASELINES, Inputs, baseline_settings
from softmask.baselines.conv_gnn import ConvGNN, GCNConv, SAGEConv
from softmask.baselines.dcnn import DCNN
from softmask.baselines.ecc import ECC, ECConv
from softmask.baselines.entry import IN_SPACE
from softmask.data import Features
from softmask.data.edge_features import EdgeFeatures
from softmask.data.pyg import from_data
from softmask.data.synthetic import motif
from softmask.fleet import Fleet, Replica
from softmask.ops import as_neighbours
from softmask.ops.edge_table import as_edge_table

EDGES = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])  # a path of three nodes, a pair, an isolated node
BATCH = torch.tensor([0, 0, 0, 1, 1, 2])


@pytest.mark.parametrize(("ours", "theirs"), [(GCNConv, pyg.GCNConv), (SAGEConv, pyg.SAGEConv)])
@examples(25)
@given(graph=graphs(min_nodes=1, messy=False))
def test_the_layers_are_pygs(ours, theirs, graph):
    """With the parameters of the same names; forward and all gradients."""
    numbers = graph.numbers()
    ours = numbers.fill(ours(3, 4))
    theirs = theirs(3, 4).double()
    theirs.load_state_dict(ours.state_dict())
    x, weight = numbers.normal(graph.num_nodes, 3).requires_grad_(), numbers.normal(graph.num_nodes, 4)
    results = []
    for conv, edges in ((ours, as_neighbours(graph.edge_index, graph.num_nodes)), (theirs, graph.edge_index)):
        out = conv(x, edges)
        named = dict(conv.named_parameters())
        results.append((out, *torch.autograd.grad((out * weight).sum(), [x, *(named[n] for n in sorted(named))])))
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, **EXACT)


@pytest.mark.parametrize("readout", ["sum", "mean"])
@pytest.mark.parametrize(("conv", "theirs"), [(GCNConv, pyg.GCNConv), (SAGEConv, pyg.SAGEConv)])
def test_the_model_is_a_stack_of_pygs_layers(conv, theirs, readout):
    numbers = Numbers(1)
    model = numbers.fill(ConvGNN(3, 8, 2, 5, conv=conv, readout=readout))
    pool = pyg.global_add_pool if readout == "sum" else pyg.global_mean_pool
    x, read = numbers.normal(6, 3), []
    h = torch.nn.functional.linear(x, model.lin_in.weight, model.lin_in.bias)
    for layer in model.convs:
        other = theirs(8, 8).double()
        other.load_state_dict(layer.state_dict())
        h = other(h, EDGES).relu()
        read.append(pool(h, BATCH, 3))
    torch.testing.assert_close(model(x, EDGES, BATCH), model.head(torch.cat(read, dim=-1)), **EXACT)


@examples(25)
@given(graph=graphs(min_nodes=1, messy=False, directed=False))
def test_dcnn_is_its_equation_in_matrices(graph):
    numbers = graph.numbers()
    model = numbers.fill(DCNN(3, 2, 4))
    x = numbers.normal(graph.num_nodes, 3)
    adjacency = np.zeros((graph.num_nodes, graph.num_nodes))
    for s, t in graph.edges:
        adjacency[t, s] = 1
    walk = adjacency / np.maximum(adjacency.sum(axis=1, keepdims=True), 1)
    rows = []
    for g in range(graph.num_graphs):
        own = np.flatnonzero(np.array(graph.batch) == g)
        p, features = walk[np.ix_(own, own)], x.numpy()[own]
        means = [(np.linalg.matrix_power(p, j) @ features).sum(axis=0) / max(len(own), 1) for j in range(3)]
        hidden = np.tanh(model.weight.detach().numpy() * np.array(means)).reshape(-1)
        rows.append(model.lin.weight.detach().numpy() @ hidden + model.lin.bias.detach().numpy())
    out = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs)
    np.testing.assert_allclose(out.detach().numpy(), np.array(rows), atol=1e-10)


@examples(25)
@given(graph=graphs(min_nodes=1, messy=False, directed=False))
def test_the_layer_of_ecc_is_pygs_nnconv_with_the_mean(graph):
    numbers = graph.numbers()
    ours = numbers.fill(ECConv(3, 4, 2, edge_hidden=5))
    theirs = pyg.NNConv(3, 4, ours.nn, aggr="mean").double()
    theirs.load_state_dict(ours.state_dict())
    x = numbers.normal(graph.num_nodes, 3).requires_grad_()
    # The same features both ways, as the edges of a molecule have them.
    low, high = graph.edge_index.min(dim=0).values, graph.edge_index.max(dim=0).values
    attr = numbers.normal(graph.num_nodes, graph.num_nodes, 2)[low, high]
    weight = numbers.normal(graph.num_nodes, 4)
    a = ours(x, as_edge_table(graph.edge_index, attr, graph.num_nodes))
    b = theirs(x, graph.edge_index, attr)
    torch.testing.assert_close(a, b, **EXACT)
    for g, h in zip(*(torch.autograd.grad((out * weight).sum(), [x, *ours.nn.parameters()]) for out in (a, b))):
        torch.testing.assert_close(g, h, **EXACT)


@pytest.mark.parametrize("readout", ["sum", "mean"])
def test_ecc_is_a_stack_of_them(readout):
    numbers = Numbers(2)
    model = numbers.fill(ECC(3, 4, 2, 5, 2, readout=readout))
    x, attr = numbers.normal(6, 3), numbers.normal(3, 2).repeat_interleave(2, dim=0)
    h = model.lin_in(x)
    for conv, norm in zip(model.convs, model.norms):
        other, scale = (
            pyg.NNConv(4, 4, conv.nn, aggr="mean", bias=False).double(),
            torch.nn.BatchNorm1d(4).double().eval(),
        )
        other.load_state_dict(conv.state_dict())
        scale.load_state_dict(norm.state_dict(), strict=False)
        h = scale(other(h, EDGES, attr)).relu()
    pool = pyg.global_add_pool if readout == "sum" else pyg.global_mean_pool
    torch.testing.assert_close(model(x, EDGES, BATCH, edge_attr=attr), model.head(pool(h, BATCH, 3)), **EXACT)
    with pytest.raises(ValueError, match="needs edge_attr"):
        model(x, EDGES, BATCH)


def _with_edge_labels():
    data = list(motif(num_graphs=24, seed=1))
    for item in data:
        item.edge_label = (item.edge_index.sum(dim=0) % 3).unsqueeze(-1)
    return from_data(data, name="labelled")


@pytest.mark.parametrize("name", [b.name for b in BASELINES.values() if b.way == "fleet" and IN_SPACE not in b.needs])
def test_as_a_fleet(name):
    """Whoever trains beside it, a replica learns the same, and its loss falls."""
    store = _with_edge_labels()
    features, edges = Features.of(store), EdgeFeatures.of(store) if name == "ecc" else None
    settings = baseline_settings(name, hidden=8, layers=2, lr=0.01, dropout=0.0)
    inputs = Inputs(
        features.channels, 2, "classification", store.sizes.numpy(), None if edges is None else edges.channels
    )

    def train(replicas):
        return Fleet(
            *(lambda: BASELINES[name].build(inputs, settings), store, features(store), replicas),
            batch_size=8,
            precision="float64",
            edge_x=None if edges is None else edges(store),
        ).train(12)

    replicas = [Replica(s, np.arange(12 + 4 * s), {"test": np.arange(20, 24)}) for s in range(2)]
    together = train(replicas)
    for r, replica in enumerate(replicas):
        alone = train([replica])
        np.testing.assert_allclose(alone.loss["test"][0], together.loss["test"][r], atol=1e-6)
    assert (together.train_loss[:, -1] < together.train_loss[:, 0]).all()
    model = BASELINES[name].build(inputs, settings).double()
    model.load_state_dict(together.weights[0])
    out = model.eval()(
        *(features(store), torch.stack(store.edges()), store.batch, 24),
        **({} if edges is None else {"edge_attr": edges(store).double()}),
    )
    loss = getattr(model, "loss_per_graph", torch.nn.functional.cross_entropy)
    expected = loss(out[20:], store.y[20:]).mean().item()
    assert together.loss["test"][0, -1] == pytest.approx(expected, abs=1e-8)
