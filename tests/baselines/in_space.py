"""Molecules in space, and what must hold for every network of all pairs of their atoms.

Such a network is given as ``make()``, with as many inputs as :data:`FEATURES` has and one output.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from baselines.company import replicas
from baselines.test_pooling import CLOSE
from theory.graphs import EXACT, Numbers

from softmask.data import Features
from softmask.data.atoms import Atoms
from softmask.data.catalog import open_data
from softmask.data.convert import with_targets
from softmask.fleet import Fleet
from softmask.fleet.batches import blocks_of, deal, plan
from softmask.fleet.pairs import StorePairs, places_in
from softmask.fleet.predict import predict
from softmask.fleet.waves import memory_needs
from softmask.ops.keyed import fold_key
from softmask.ops.pair_blocks import PairBlocks, num_pairs

STORE = open_data("qm9-sample").select(range(40))
STORE = with_targets(STORE, STORE.y[:, 4].double().numpy())  # the gap
FEATURES = Features.of(STORE)
ATOMS = Atoms.of(STORE)


def fleet(make, replicas, **options):
    """Of the molecules; in float64 and with the squared error, unless told otherwise."""
    given = {"batch_size": 8, "loss": "mse", "precision": "float64", "pairs": StorePairs.of_atoms(STORE)}
    return Fleet(make, STORE, FEATURES(STORE), replicas, **(given | options))


def of_molecules(graph, numbers):
    """What a network takes of random graphs: 4 features, positions, and a kind for each bond, the same both ways."""
    x, pos = numbers.normal(graph.num_nodes, 4), numbers.normal(graph.num_nodes, 3)
    kind = (graph.edge_index.sum(dim=0) + graph.edge_index.prod(dim=0)) % 4 + 1
    return x, pos, kind


def one_by_one(graph, x, pos, kind, forward):
    """A function of (features, positions, matrix of kinds), arrays all, applied to each molecule by itself."""
    matrix = np.zeros((graph.num_nodes, graph.num_nodes), dtype=int)
    for (source, target), own in zip(graph.edges, kind.tolist()):
        matrix[target, source] = own if source != target else 0
    rows = []
    for g in range(graph.num_graphs):
        own = np.flatnonzero(np.array(graph.batch) == g)
        rows.append(forward(x[own].numpy(), pos[own].numpy(), matrix[np.ix_(own, own)]))
    return np.array(rows)


def assert_pose_and_order_do_not_matter(graph, model):
    """For a model with 4 inputs: how a molecule lies, and in which order its atoms come."""
    numbers, n = graph.numbers(), graph.num_nodes
    x, pos, kind = of_molecules(graph, numbers)
    out = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs, pos=pos, edge_kind=kind)
    order, (turn, _) = numbers.permutation(n), torch.linalg.qr(numbers.normal(3, 3))
    edges, batch = torch.argsort(order)[graph.edge_index], graph.batch_vector[order]
    moved = (pos @ turn + 3 * numbers.normal(3))[order]
    again = model(x[order], edges, batch, graph.num_graphs, pos=moved, edge_kind=kind)
    torch.testing.assert_close(again, out, rtol=1e-9, atol=1e-9)


def assert_padding_has_no_say(model, forward):
    """Places without an atom and pairs of them, whatever stands there, in blocks of different sizes: a model with 4
    inputs gives what a function of (features, positions, matrix of kinds) does.
    """
    numbers, blocks = Numbers(0), ((1, 4), (1, 2), (2, 3))
    graph = torch.tensor([0, 0, 0, -1, 1, 1, 2, 2, 2, 3, -1, -1])
    x, pos = numbers.normal(12, 4), numbers.normal(12, 3)
    kinds = [np.fromfunction(lambda i, j, g=g: (i * j + i + j + g) % 5, (n, n)) for g, n in enumerate((4, 2, 3, 3))]
    kind = torch.from_numpy(np.concatenate([k.ravel() for k in kinds])).long()
    assert len(kind) == num_pairs(blocks)
    out = model(x, None, graph, 4, pos=PairBlocks(pos, torch.ones(12), kind, blocks))
    for g, matrix in enumerate(kinds):
        here = graph == g
        own = matrix[: here.sum(), : here.sum()].astype(int)
        np.fill_diagonal(own, 0)
        np.testing.assert_allclose(out[g].detach(), forward(x[here].numpy(), pos[here].numpy(), own), **CLOSE)


def assert_a_fleet_is_the_plain_loop(make, loss="mse"):
    """The same molecules in each batch, PyG's form, torch.optim.Adam: weights, the evaluated error, and predictions."""
    (replica,) = replicas()[:1]
    trained = fleet(make, [replica], loss=loss)
    torch.manual_seed(replica.seed)
    model = make().double()
    adam = torch.optim.Adam(model.parameters(), lr=replica.lr)
    mean, std = trained.mean[0], trained.std[0]
    measure = {"mse": F.mse_loss, "mae": F.l1_loss}[loss]

    def out(ids):
        part = STORE.select(ids)
        x, edges, kind = FEATURES(part).double(), torch.stack(part.edges()), Atoms.of(part).kind
        return model(x, edges, part.batch, part.num_graphs, pos=part.pos.double(), edge_kind=kind)

    for epoch in range(1, 4):
        for graphs in deal(trained.train_plans[0], fold_key(fold_key(trained.keys, 1), epoch))[:, 0]:
            ids = graphs[graphs >= 0].tolist()
            adam.zero_grad()
            measure(out(ids), (STORE.y[ids].reshape(-1, 1) - mean) / std).backward()
            adam.step()
    history = trained.train(3)
    for name, p in model.named_parameters():
        torch.testing.assert_close(history.weights[0][name], p.detach(), atol=1e-7, rtol=1e-6)
    test = replica.evaluate["test"].tolist()
    error = (out(test) * std + mean - STORE.y[test].reshape(-1, 1)).abs().mean().item()
    assert history.metric["test"][0, -1] == pytest.approx(error, abs=1e-9)
    # The same through `predict`, which gives masses to a model that takes them.
    found, masks = predict(model, STORE, FEATURES(STORE).double(), atoms=ATOMS._replace(pos=ATOMS.pos.double()))
    torch.testing.assert_close(found[test], out(test).detach(), **EXACT)
    assert masks == []


def assert_half_precision_follows_float32(make, within=0.1):
    """The losses of all epochs, up to a share of the first one's."""
    full, half = (fleet(make, replicas(), precision=p).train(3).train_loss for p in ("float32", "bf16"))
    assert (np.abs(half - full) < within * full[:, :1]).all()


def assert_pairs_of_places_are_counted(make):
    """In the estimate of the memory that all share."""
    blocks = blocks_of([plan([r.train for r in replicas()], STORE.sizes, 8)], STORE.sizes, places_in(make()))
    assert fleet(make, replicas()).train_plans[0].layout.blocks == blocks
    for compute in (torch.float64, torch.float32, torch.bfloat16):
        shared, _ = memory_needs(make(), STORE, replicas(), 8, compute, torch.device("cpu"))
        assert shared == make().numbers_held(num_pairs(blocks), 8) * compute.itemsize


def assert_it_compiles_whole(make):
    """What runs on CUDA, as far as a CPU can tell: one graph, without a break, that gives the same numbers."""
    trained = fleet(make, replicas())
    trained.begin()
    (crew,) = trained.crews
    prepared = trained._prepare(0, crew)
    again = torch.compile(trained._prepare, backend="aot_eager", fullgraph=True, dynamic=False)(0, crew)
    torch.testing.assert_close(again[0].pairs.pos, prepared[0].pairs.pos, **EXACT)
    plain = trained._loss(crew, *prepared)[0]
    torch._dynamo.reset()
    compiled = torch.compile(trained._loss, backend="aot_eager", fullgraph=True, dynamic=False)(crew, *prepared)[0]
    torch.testing.assert_close(compiled, plain, rtol=1e-9, atol=1e-9)
    gradients = torch.autograd.grad(compiled, list(crew.parameters.values()))
    assert all(bool(torch.isfinite(g).all()) for g in gradients)


def assert_positions_are_asked_for(make):
    """Without them there is nothing to compute."""
    with pytest.raises(ValueError, match="this model needs pos"):
        make()(torch.zeros(2, FEATURES.channels), torch.zeros(2, 0, dtype=torch.long))
