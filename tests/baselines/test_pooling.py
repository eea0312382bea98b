"""Networks that pool, each against its paper's equations for one graph at a time, in plain matrices."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from theory.graphs import examples, graphs

from softmask.baselines import Inputs, baseline_settings
from softmask.baselines.dgcnn import DGCNN, nodes_to_keep
from softmask.baselines.pooling import build_sagpool, build_topk
from softmask.baselines.ppgn import PPGN
from softmask.baselines.registry import find_model
from softmask.errors import SettingError

CLOSE = {"atol": 1e-8, "rtol": 1e-8}


def one_by_one(graph, x, forward):
    """A function of (features, adjacency) applied to each graph by itself."""
    rows = []
    for g in range(graph.num_graphs):
        own = np.flatnonzero(np.array(graph.batch) == g)
        adjacency = np.zeros((len(own), len(own)))
        place = {v: i for i, v in enumerate(own)}
        for s, t in graph.edges:
            if s in place:
                adjacency[place[t], place[s]] = 1
        rows.append(forward(x[own], adjacency))
    return np.array(rows)


def weights(module):
    return {name: p.detach().numpy() for name, p in module.state_dict().items()}


def highest(score, share):
    """Which nodes a pooling keeps. Of nodes with the same score it may keep either, so those graphs are left out."""
    assume(len(score) < 2 or np.diff(np.sort(score)).min() > 1e-9)
    return np.argsort(-score)[: int(np.ceil(share * len(score)))]


def relu(x):
    return np.maximum(x, 0)


def normal(adjacency):
    """D^-1/2 (A + I) D^-1/2"""
    a = adjacency + np.eye(len(adjacency))
    d = a.sum(axis=1) ** -0.5
    return d[:, None] * a * d


def mean(adjacency):
    """D^-1 (A + I)"""
    a = adjacency + np.eye(len(adjacency))
    return a / a.sum(axis=1, keepdims=True)


def perceptron(w, read):
    h = relu(w["lins.0.weight"] @ read + w["lins.0.bias"])
    h = relu(w["lins.1.weight"] @ h + w["lins.1.bias"])
    return w["lins.2.weight"] @ h + w["lins.2.bias"]


@examples(20)
@given(graph=graphs(min_nodes=1, messy=False, directed=False))
def test_topk_pooling(graph):
    """The nodes with the highest x . p / |p|, each times the tanh of that."""
    numbers = graph.numbers()
    model = numbers.fill(build_topk(Inputs(3, 2, "classification", np.ones(1)), baseline_settings("topk", hidden=4)))
    w = weights(model)

    def forward(x, adjacency):
        read = 0
        for k in range(3):
            h = mean(adjacency) @ x @ w[f"convs.{k}.lin.weight"].T
            h = relu(h + x @ w[f"convs.{k}.skip.weight"].T + w[f"convs.{k}.skip.bias"])
            p = w[f"scores.{k}.weight"][0]
            score = np.tanh(h @ p / np.linalg.norm(p))
            keep = highest(score, 0.8)
            x, adjacency = h[keep] * score[keep, None], adjacency[np.ix_(keep, keep)]
            read = read + np.concatenate([x.mean(axis=0), x.max(axis=0)])
        return perceptron(w, read)

    x = numbers.normal(graph.num_nodes, 3)
    out = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs).detach().numpy()
    np.testing.assert_allclose(out, one_by_one(graph, x.numpy(), forward), **CLOSE)


@examples(20)
@given(graph=graphs(min_nodes=1, messy=False, directed=False))
def test_sagpool(graph):
    """The nodes whose graph convolution to one channel is highest, each times its tanh."""
    numbers = graph.numbers()
    inputs = Inputs(3, 2, "classification", np.ones(1))
    model = numbers.fill(build_sagpool(inputs, baseline_settings("sagpool", hidden=4)))
    w = weights(model)

    def forward(x, adjacency):
        read = 0
        for k in range(3):
            h = relu(normal(adjacency) @ x @ w[f"convs.{k}.lin.weight"].T + w[f"convs.{k}.bias"])
            score = normal(adjacency) @ h @ w[f"scores.{k}.weight"].T + w[f"scores.{k}.bias"]
            score = np.tanh(score[:, 0])
            keep = highest(score, 0.5)
            x, adjacency = h[keep] * score[keep, None], adjacency[np.ix_(keep, keep)]
            read = read + np.concatenate([x.mean(axis=0), x.max(axis=0)])
        return perceptron(w, read)

    x = numbers.normal(graph.num_nodes, 3)
    out = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs).detach().numpy()
    np.testing.assert_allclose(out, one_by_one(graph, x.numpy(), forward), **CLOSE)


@examples(15)
@given(graph=graphs(min_nodes=1, max_nodes=14, messy=False, directed=False))
def test_dgcnn(graph):
    numbers = graph.numbers()
    model = numbers.fill(DGCNN(3, 4, 2, 5, k=10))
    w = weights(model)

    def forward(x, adjacency):
        hidden = []
        for lin in ("lins.0", "lins.1", "last"):
            x = np.tanh(mean(adjacency) @ (x @ w[f"{lin}.weight"].T + w[f"{lin}.bias"]))
            hidden.append(x)
        h = np.concatenate(hidden, axis=1)
        h = h[np.argsort(-h[:, -1], kind="stable")][:10]
        h = np.pad(h, ((0, 10 - len(h)), (0, 0)))
        h = relu(h @ w["conv1.weight"].T + w["conv1.bias"])  # one window a node
        h = h.reshape(5, 2, -1).max(axis=1)
        h = relu(w["conv2.weight"] @ h.reshape(-1) + w["conv2.bias"])  # five nodes, one window
        h = relu(w["lin.weight"] @ h + w["lin.bias"])
        return w["out.weight"] @ h + w["out.bias"]

    x = numbers.normal(graph.num_nodes, 3)
    out = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs).detach().numpy()
    np.testing.assert_allclose(out, one_by_one(graph, x.numpy(), forward), **CLOSE)


def test_dgcnn_keeps_as_many_nodes_as_six_in_ten_graphs_have():
    sizes = np.arange(1, 101)
    assert nodes_to_keep(sizes) == 60
    assert (sizes <= nodes_to_keep(sizes)).mean() == 0.6
    assert nodes_to_keep(np.array([3, 3, 3])) == 10
    with pytest.raises(ValueError, match="at least 10"):
        DGCNN(3, 4, 2, 5, k=9)


@examples(15)
@given(graph=graphs(min_nodes=1, messy=False, directed=False))
def test_ppgn(graph):
    numbers = graph.numbers()
    model = numbers.fill(PPGN(3, 4, 2, 5))
    w = weights(model)

    def mlp(name, x):
        x = relu(x @ w[f"{name}.0.weight"].T + w[f"{name}.0.bias"])
        return relu(x @ w[f"{name}.2.weight"].T + w[f"{name}.2.bias"])

    def forward(x, adjacency):
        n = len(adjacency)
        h = np.zeros((n, n, 4))
        h[:, :, 0] = adjacency
        for v in range(n):
            h[v, v, 1:] = x[v]
        score = 0
        for k in range(2):
            a, b = mlp(f"blocks.{k}.m1", h), mlp(f"blocks.{k}.m2", h)
            product = np.einsum("uwc,wvc->uvc", a, b)
            h = np.concatenate([h, product], axis=2) @ w[f"blocks.{k}.m4.weight"].T + w[f"blocks.{k}.m4.bias"]
            loops = np.array([h[v, v] for v in range(n)]).max(axis=0)
            rest = [h[u, v] for u in range(n) for v in range(n) if u != v]
            read = np.concatenate([loops, np.max(rest, axis=0) if rest else np.zeros(4)])
            score = score + w[f"outs.{k}.weight"] @ read + w[f"outs.{k}.bias"]
        return score

    x = numbers.normal(graph.num_nodes, 3)
    out = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs).detach().numpy()
    np.testing.assert_allclose(out, one_by_one(graph, x.numpy(), forward), **CLOSE)


def test_ppgn_tells_apart_what_weisfeiler_and_leman_do_not():
    """Two triangles and a ring of six, which no sum over neighbours tells apart."""
    torch.manual_seed(0)
    model = PPGN(1, 8, 2, 3).double().eval()
    around = torch.arange(6)
    ring = torch.stack([around, (around + 1) % 6])
    triangles = torch.stack([around, torch.tensor([1, 2, 0, 4, 5, 3])])
    outs = [
        model(torch.ones(6, 1).double(), torch.cat([e, e.flip(0)], dim=1), torch.zeros(6, dtype=torch.long), 1)
        for e in (ring, triangles)
    ]
    assert (outs[0] - outs[1]).abs().max() > 1e-4


def test_ppgn_takes_a_batch_of_graphs_without_nodes():
    """They give what such a graph gives beside another."""
    torch.manual_seed(0)
    model, none = PPGN(1, 8, 2, 3).double().eval(), torch.empty(2, 0, dtype=torch.long)
    alone = model(torch.empty(0, 1).double(), none, torch.empty(0, dtype=torch.long), 2)
    beside = model(torch.ones(1, 1).double(), none, torch.zeros(1, dtype=torch.long), 3)
    torch.testing.assert_close(alone, beside[1:])


def test_ppgn_says_beforehand_what_is_too_large():
    """REDDIT-MULTI-12K: its largest graph has 3782 nodes."""
    inputs = Inputs(3, 2, "classification", np.array([10, 3782]), memory=16 * 2**30)
    settings = baseline_settings("ppgn")
    with pytest.raises(SettingError, match=r"about [\d,.]+ GiB for a batch of 32 graphs of up to 3782 nodes"):
        find_model("ppgn").build(inputs, settings)
    find_model("ppgn").build(inputs._replace(sizes=np.array([10, 30])), settings)


@pytest.mark.parametrize(("nodes", "hidden"), [(40, 5), (40, 16), (150, 5)])
def test_the_estimate_is_what_autograd_keeps(nodes, hidden):
    """Counted by hand: every tensor that a forward pass keeps for its gradient, but for the weights."""
    settings = baseline_settings("ppgn", hidden=hidden, batch_size=2)
    inputs = Inputs(3, 2, "classification", np.array([nodes, nodes]))
    model = find_model("ppgn").build(inputs, settings).train()
    held = numbers_kept(model, nodes, 2) * 4
    # Refused with a little less memory than that, and not with a little more.
    with pytest.raises(SettingError, match="GiB are free here"):
        find_model("ppgn").build(inputs._replace(memory=int(0.8 * held)), settings)
    find_model("ppgn").build(inputs._replace(memory=int(1.25 * held)), settings)


def numbers_kept(model, nodes, graphs, *more):
    """How many float32 numbers a forward pass over paths of so many nodes keeps, but for the weights."""
    kept = {}
    weights_ = {p.data_ptr() for p in model.parameters()}

    def keep(tensor):
        if tensor.data_ptr() not in weights_:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    path = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    path = torch.cat([path, path.flip(0)], dim=1)
    edges = torch.cat([path + nodes * g for g in range(graphs)], dim=1)
    x, batch = torch.randn(graphs * nodes, 3), torch.arange(graphs * nodes) // nodes
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(x, edges, batch, graphs, *more)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) // 4
