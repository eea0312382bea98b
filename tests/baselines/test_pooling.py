"""Networks that pool, each against its paper's equations for one graph at a time, in plain matrices."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from theory.graphs import examples, graphs

from softmask.baselines import Inputs, baseline_settings
from softmask.baselines.dgcnn import DGCNN, nodes_to_keep
from softmask.baselines.pooling import build_sagpool, build_topk

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
