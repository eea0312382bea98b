"""CapsGNN against loops over nodes, capsules and votes; its losses, its input, and that it learns."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from baselines.company import assert_all_of_it_learns, assert_each_learns_as_alone, replicas
from baselines.test_pooling import CLOSE, numbers_kept, one_by_one, relu, weights
from hypothesis import given
from theory.graphs import EXACT, Numbers, examples, graphs

from softmask.baselines import Inputs, baseline_settings
from softmask.baselines.capsgnn import CapsGNN, Routing, missed
from softmask.baselines.registry import find_model
from softmask.baselines.train import train_baseline
from softmask.data import Features
from softmask.data.catalog import open_data
from softmask.data.convert import with_targets
from softmask.data.synthetic import motif
from softmask.errors import CannotRun
from softmask.fleet import Fleet, Replica, train_in_waves
from softmask.fleet.waves import memory_needs
from softmask.ops.blocks import as_blocks, num_blocks

EDGES = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])  # a path of three nodes, a pair, an isolated node
BATCH = torch.tensor([0, 0, 0, 1, 1, 2])


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def squash(s):
    square = s @ s
    return square / (1 + square) * s / np.sqrt(square + 1e-11), square / (1 + square)


def route(x, w, n):
    """The capsules above, of votes written out one by one: x [nodes, i, d], w [i, j, d, e]."""
    nodes, below, _ = x.shape
    above = w.shape[1]
    vote = {(v, i, j): x[v, i] @ w[i, j] for v in range(nodes) for i in range(below) for j in range(above)}
    b = np.zeros((nodes, below, above))
    for _ in range(3):
        sums = np.zeros((above, w.shape[3]))
        for v in range(nodes):
            for i in range(below):
                c = softmax(b[v, i])
                for j in range(above):
                    sums[j] += c[j] * vote[v, i, j] / n
        found = [squash(s) for s in sums]
        for (v, i, j), u in vote.items():
            b[v, i, j] += u @ found[j][0]
    return np.array([h for h, _ in found]), np.array([a for _, a in found])


def by_hand(w, parts, x, adjacency, with_degree):
    """The lengths of the class capsules of one graph."""
    n = len(adjacency)
    degrees = adjacency.sum(axis=1).astype(int)
    cut = np.split(x, np.cumsum(parts)[:-1], axis=1)
    channels = [part @ w[f"tables.{k}"] for k, part in enumerate(cut)]
    if with_degree:
        channels.append(w[f"tables.{len(parts)}"][degrees])
    channels.append(np.repeat(w[f"tables.{len(channels)}"], n, axis=0))
    h = np.concatenate(channels, axis=1)
    root = np.diag((degrees + 1.0) ** -0.5)
    walk = root @ (adjacency + np.eye(n)) @ root
    layers = []
    for k in range(2):
        h = np.tanh(walk @ (h @ w[f"lins.{k}.weight"].T + w[f"lins.{k}.bias"]))
        layers.append(h)
    h = np.concatenate(layers, axis=1)
    hidden = np.tanh(h @ w["attention.0.weight"].T + w["attention.0.bias"])
    scores = hidden @ w["attention.2.weight"].T + w["attention.2.bias"]
    capsules = h.reshape(n, 4, -1)
    scaled = np.zeros_like(capsules)
    for i in range(4):
        scaled[:, i] = n * softmax(scores[:, i])[:, None] * capsules[:, i]
    of_graph, _ = route(scaled, w["to_graph.weight"], n)
    return route(of_graph[None], w["to_classes.weight"], 1)[1]


@pytest.mark.parametrize("with_degree", [True, False])
@examples(12)
@given(graph=graphs(min_nodes=1, max_nodes=5, messy=False, directed=False))
def test_the_model_by_hand(with_degree, graph):
    """Embeddings, layers, attention and both routings, in float64; with isolated nodes and graphs of one node."""
    numbers = graph.numbers()
    model = numbers.fill(CapsGNN([2, 1], 4, 2, 3, counted=3, max_degree=6 if with_degree else None))
    w = weights(model)
    x = numbers.normal(graph.num_nodes, 3)
    out = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs).detach().numpy()
    expected = one_by_one(graph, x.numpy(), lambda x, adjacency: by_hand(w, [2, 1], x, adjacency, with_degree))
    np.testing.assert_allclose(out, expected, **CLOSE)


@examples(20)
@given(graph=graphs(messy=False, directed=False))
def test_order_and_company_of_nodes_do_not_matter(graph):
    """Also beside graphs without nodes, whose capsules are all zero."""
    numbers = graph.numbers()
    model = numbers.fill(CapsGNN([3], 4, 2, 2, counted=3, max_degree=6))
    x, batch = numbers.normal(graph.num_nodes, 3), graph.batch_vector
    out = model(x, graph.edge_index, batch, graph.num_graphs)
    assert torch.isfinite(out).all()
    assert ((out >= 0) & (out < 1)).all()
    empty = torch.bincount(batch, minlength=graph.num_graphs) == 0
    assert (out[empty] == 0).all()
    # Nodes change their places, but stay in the order of their graphs.
    order = numbers.permutation(graph.num_nodes)
    order = order[batch[order].argsort(stable=True)]
    turned = model(x[order], order.argsort()[graph.edge_index], batch[order], graph.num_graphs)
    torch.testing.assert_close(turned, out, **EXACT)
    for g in range(graph.num_graphs):
        own = [v for v in range(graph.num_nodes) if graph.batch[v] == g]
        edges = torch.tensor(graph.induced(own), dtype=torch.long).reshape(-1, 2).t()
        alone = model(x[own], edges, torch.zeros(len(own), dtype=torch.long), 1)
        torch.testing.assert_close(alone, out[g : g + 1], **EXACT)


def test_what_is_routed_where_has_no_gradient():
    """Against votes that are held, and detached in all rounds but the last."""
    numbers = Numbers(3)
    layer = numbers.fill(Routing(3, 4, 5))
    x, nodes = numbers.normal(2, 6, 3, 5).requires_grad_(), torch.tensor([[6], [6]])
    pull = numbers.normal(2, 4, 5)
    found = torch.autograd.grad((layer(x, nodes)[0] * pull).sum(), [x, layer.weight])
    votes = torch.einsum("gvid,ijde->gvije", x, layer.weight)
    b = torch.zeros(2, 6, 3, 4).double()
    for last in (False, False, True):
        u = votes if last else votes.detach()
        s = (b.softmax(dim=-1).unsqueeze(-1) * u).sum(dim=(1, 2)) / 6
        norm = s.norm(dim=-1, keepdim=True)
        above = norm**2 / (1 + norm**2) * s / norm
        b = b + (u * above[:, None, None]).sum(dim=-1)
    expected = torch.autograd.grad((above * pull).sum(), [x, layer.weight])
    for a, e in zip(found, expected):
        torch.testing.assert_close(a, e, atol=1e-8, rtol=1e-8)


def test_the_loss_of_margins():
    model = CapsGNN([3], 4, 2, 3, counted=3)
    out, y = torch.tensor([[0.95, 0.05, 0.1], [0.5, 0.3, 0.7]]), torch.tensor([0, 1])
    # Long enough where it should be, short enough elsewhere; and neither.
    expected = torch.tensor([0.0, 0.6**2 + 0.5 * (0.4**2 + 0.6**2)])
    torch.testing.assert_close(model.loss_per_graph(out, y), expected)


@examples(25)
@given(graph=graphs(min_nodes=1, messy=False, directed=False))
def test_the_decoder_is_held_to_the_counts(graph):
    numbers = graph.numbers()
    model = CapsGNN([3], 4, 2, 2, counted=3, max_degree=4).double()
    labels = numbers.mask(graph.num_nodes).mul(2.99).long()
    x = torch.nn.functional.one_hot(labels, 3).double()
    degrees = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes)
    counts = model.counts(model._input(x, degrees.unsqueeze(-1)), graph.batch_vector, graph.num_graphs)
    decoded = numbers.mask(graph.num_graphs, 8)
    loss = missed(decoded, counts)
    for g in range(graph.num_graphs):
        own = [v for v in range(graph.num_nodes) if graph.batch[v] == g]
        seen = Counter(int(labels[v]) for v in own) + Counter(3 + min(int(degrees[v]), 4) for v in own)
        assert counts[g].tolist() == [seen[k] for k in range(8)]
        most = max(seen.values())
        there = [(decoded[g, k].item() - seen[k] / most) ** 2 for k in range(8) if seen[k]]
        others = [decoded[g, k].item() ** 2 for k in range(8) if not seen[k]]
        assert loss[g].item() == pytest.approx(max(there) + max(others, default=0))


def test_the_decoder_sees_the_capsule_of_the_true_class_and_in_training_only():
    torch.manual_seed(0)
    model = CapsGNN([3], 8, 2, 3, counted=3, max_degree=2, dropout=0.0).double()
    given_ = (torch.eye(3).double()[[0, 1, 2, 0, 1, 2]], EDGES, BATCH, 3)
    y = torch.tensor([0, 2, 1])
    w = weights(model)
    out, extra = model.train()(*given_, y=y)
    seen = {}
    model.to_classes.register_forward_hook(lambda module, inputs, found: seen.update(capsules=found[0]))
    torch.testing.assert_close(model.eval()(*given_, y=None), out)
    # Labels 0, 1 and 2 and degrees 0, 1 and 2.
    counts = np.array([[1, 1, 1, 0, 2, 1], [1, 1, 0, 0, 2, 0], [0, 0, 1, 1, 0, 0]])
    loss = 0.0
    for g in range(3):
        capsule = seen["capsules"][g, y[g]].detach().numpy()
        hidden = relu(w["decoder.0.weight"] @ capsule + w["decoder.0.bias"])
        decoded = 1 / (1 + np.exp(-(w["decoder.2.weight"] @ hidden + w["decoder.2.bias"])))
        square = (decoded - counts[g] / counts[g].max()) ** 2
        loss += square[counts[g] > 0].max() + square[counts[g] == 0].max()
    assert extra.item() == pytest.approx(0.1 * loss / 3)
    (model.loss_per_graph(out, y).mean() + extra).backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


def test_slots_without_a_graph_do_not_count():
    """Nor padded nodes: outputs, the loss of the decoder, and gradients."""
    numbers = Numbers(5)
    model = numbers.fill(CapsGNN([3], 8, 2, 3, counted=3, max_degree=2, dropout=0.0)).train()
    x, y = torch.eye(3).double()[[0, 1, 2, 0, 1, 2]], torch.tensor([0, 2, 1])
    out, extra = model(x, EDGES, BATCH, 3, y)
    padded = torch.cat([x, numbers.normal(4, 3)]), EDGES, F.pad(BATCH, (0, 4), value=-1), 5, F.pad(y, (0, 2))
    beside, more = model(*padded)
    torch.testing.assert_close(beside[:3], out, **EXACT)
    assert (beside[3:] == 0).all()
    torch.testing.assert_close(more, extra, **EXACT)
    gradients = [
        torch.autograd.grad(o.square().sum() + e, model.parameters()) for o, e in ((out, extra), (beside, more))
    ]
    for a, b in zip(*gradients):
        torch.testing.assert_close(a, b, **EXACT)


def test_a_graph_in_several_blocks_is_routed_as_in_one():
    """A block of its own for every graph, and blocks of 16 nodes: capsules and gradients."""
    numbers, sizes = Numbers(4), torch.tensor([40, 3, 17])
    layer = numbers.fill(Routing(3, 4, 5))
    batch = torch.repeat_interleave(torch.arange(3), sizes)
    x = numbers.normal(60, 15).requires_grad_()
    found = []
    for rows in (40, 16):
        blocks = as_blocks(batch, 3, rows)
        above, length = layer(blocks.gather(x).unflatten(2, (3, 5)), sizes.unsqueeze(1), blocks)
        found.append((above, length, *torch.autograd.grad(above.square().sum(), [x, layer.weight])))
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, **EXACT)


def test_tokens_are_one_hot_vectors():
    model = Numbers(0).fill(CapsGNN([2, 2], 8, 2, 3, counted=4, max_degree=2))
    tokens = torch.tensor([[0, 3], [1, -1], [1, 2]])
    hot = F.one_hot(tokens + 1, 5)[..., 1:].sum(dim=1).double()
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    torch.testing.assert_close(model(tokens, edges), model(hot, edges), **EXACT)


def test_attention_to_one_node_among_many_is_a_number():
    """Scores so far apart that no graph may be scaled by the largest of another."""
    model = Numbers(0).fill(CapsGNN([1], 4, 1, 2, counted=0)).train()
    with torch.no_grad():
        model.attention[2].weight.mul_(1e4)
    x = torch.tensor([[5.0], [-5.0], [-4.0], [-5.0]]).double()
    batch = torch.tensor([0, 1, 1, 1])
    out = model(x, torch.zeros(2, 0, dtype=torch.long), batch, 2)
    assert torch.isfinite(out).all()
    assert (out > 0).all()
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(out.sum(), model.lins.parameters()))


def test_dropout_takes_whole_channels_of_nodes():
    torch.manual_seed(0)
    model = CapsGNN([3], 8, 2, 2, counted=3, max_degree=2, dropout=0.3)
    seen = []
    model.lins[0].register_forward_hook(lambda module, inputs, out: seen.append(inputs[0].unflatten(1, (3, 8))))
    x, batch = torch.eye(3).repeat(200, 1), torch.zeros(600, dtype=torch.long)
    given_ = (x, torch.zeros(2, 0, dtype=torch.long), batch, 1)
    model.eval()(*given_)
    model.train()(*given_)
    whole, dropped = seen
    gone = (dropped == 0).all(dim=2)
    assert gone.float().mean().item() == pytest.approx(0.3, abs=0.05)
    torch.testing.assert_close(dropped[~gone], whole[~gone] / 0.7)


def built(store, **options):
    features = Features.of(store, attributes=options.pop("attributes", False))
    inputs = Inputs(features.channels, 2, "classification", store.sizes.numpy(), features=features, **options)
    return find_model("capsgnn").build(inputs._replace(degree=int(store.degree().max())), baseline_settings("capsgnn"))


def test_each_kind_of_input_is_a_channel():
    """As the authors have it: labels, degrees, a constant. Where there are no labels, degrees stand only once."""
    bare = motif(num_graphs=20, seed=0)
    labels, most = 5, int(bare.degree().max())
    store = dataclasses.replace(bare, node_label=torch.arange(bare.num_nodes).remainder(labels).unsqueeze(-1))

    def tables(model):
        return [len(t) for t in model.tables], model.decoder[2].out_features

    assert tables(built(store)) == ([labels, most + 1, 1], labels + most + 1)
    twice = dataclasses.replace(store, node_label=store.node_label.repeat(1, 2))
    assert tables(built(twice)) == ([labels, labels, most + 1, 1], 2 * labels + most + 1)
    assert tables(built(bare)) == ([most + 1, 1], most + 1)
    # Attributes are no counts: they enter, and are not decoded.
    more = dataclasses.replace(store, node_attr=torch.randn(store.num_nodes, 4))
    assert tables(built(more, attributes=True)) == ([labels, 4, most + 1, 1], labels + most + 1)


STORE = motif(num_graphs=40, seed=0)
FEATURES = Features.of(STORE)


def make():
    return CapsGNN([FEATURES.channels], 8, 2, 2, counted=FEATURES.channels, dropout=0.3)


def fleet(replicas, **options):
    return Fleet(make, STORE, FEATURES(STORE), replicas, **{"batch_size": 8, "precision": "float64"} | options)


def test_a_replica_learns_the_same_whoever_trains_beside_it():
    assert_all_of_it_learns(fleet, assert_each_learns_as_alone(fleet))


def test_half_precision_follows_float32():
    full, half = (fleet(replicas(), precision=p).train(6) for p in ("float32", "bf16"))
    assert np.abs(half.train_loss - full.train_loss).max() < 0.1


def test_what_is_too_large_is_said_beforehand():
    needed = sum(memory_needs(make(), STORE, replicas(), 8, torch.float32, torch.device("cpu")))
    with pytest.raises(
        CannotRun, match=rf"one model needs about {needed / 2**20:.2f} MiB and {needed / 2**21:.2f} MiB are free"
    ):
        train_in_waves(make, STORE, FEATURES(STORE), replicas(), 1, batch_size=8, memory=needed // 2)
    train_in_waves(make, STORE, FEATURES(STORE), replicas()[:1], 1, batch_size=8, memory=2 * needed)


@pytest.mark.parametrize("hidden", [4, 8, 64])
def test_the_estimate_is_what_a_step_holds(hidden):
    """What autograd keeps in a forward pass, and two of the three tables of routing, which come and go."""
    model = CapsGNN([3], hidden, 5, 2, counted=3, max_degree=2).train()

    def held(nodes):
        kept = numbers_kept(model, nodes, 2, torch.tensor([0, 1]))
        return kept + 2 * num_blocks(2 * nodes, 2, 16) * 16 * 10 * 16

    # The difference leaves out the weights.
    estimate = model.numbers_held(1200, 2) - model.numbers_held(400, 2)
    assert 0.8 < estimate / (held(600) - held(200)) < 1.25


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::DeprecationWarning")
def test_on_a_gpu():
    """Compiled and captured: what the CPU computes."""
    expected = fleet(replicas(), precision="float32").train(3)
    exact = fleet(replicas(), precision="float32", device="cuda").train(3)
    np.testing.assert_allclose(exact.train_loss, expected.train_loss, rtol=1e-2, atol=1e-2)
    assert np.isfinite(fleet(replicas(), device="cuda").train(3).train_loss).all()


def test_it_has_classes_only():
    store = with_targets(motif(num_graphs=8, seed=0), np.arange(8.0))
    with pytest.raises(CannotRun, match="CapsGNN is for classification"):
        train_baseline(baseline_settings("capsgnn"), store, [Replica(0, np.arange(8))], epochs=1)


@pytest.mark.real
def test_it_learns_on_mutag(real_set):
    store = open_data(real_set("MUTAG"))
    ids = np.random.default_rng(0).permutation(store.num_graphs)
    replica = Replica(1, ids[:150], {"test": ids[150:]}, lr=1e-2)
    history = train_baseline(baseline_settings("capsgnn"), store, [replica], epochs=80)
    y = store.y.numpy()[ids[:150]]
    # For a while it says the more frequent class of every graph.
    assert history.train_metric[0, -20:].mean() > max(y.mean(), 1 - y.mean()) + 0.05
    assert history.loss["test"][0, -20:].mean() < 0.9 * history.loss["test"][0, 20:40].mean()
    assert not history.troubles
