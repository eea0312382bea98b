import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, examples, graphs

from softmask.bench.usual import UsualFold, UsualGNN, usual_graphs
from softmask.data import Features
from softmask.data.synthetic import motif
from softmask.nn import VARIANTS
from softmask.study.settings import Settings


def _pair(settings, in_channels, outputs):
    """The usual model and ours, with the same weights."""
    features = Features("degree", max_degree=in_channels - 1)
    ours = settings.build(features, outputs, "classification")
    usual = UsualGNN(in_channels, outputs, settings)
    usual.load_state_dict(ours.state_dict(), strict=True)
    return usual, ours


@pytest.mark.parametrize("variant", VARIANTS)
@examples(20)
@given(case=graphs(min_nodes=1), readout=st.sampled_from(["sum", "mean"]))
def test_same_outputs_and_gradients_as_our_model(variant, case, readout):
    torch.manual_seed(case.seed)
    settings = Settings(variant=variant, hidden=5, layers=3, readout=readout, dropout=0.0)
    usual, ours = (m.double() for m in _pair(settings, 4, 3))
    x = F.one_hot(torch.randint(4, (case.num_nodes,)), 4).double()
    rest = (x, case.edge_index, case.batch_vector, case.num_graphs)
    a, b = usual(*rest), ours(*rest)
    torch.testing.assert_close(a, b, **EXACT)
    a.square().sum().backward()
    b.square().sum().backward()
    expected = dict(ours.named_parameters())
    for name, p in usual.named_parameters():
        torch.testing.assert_close(p.grad, expected[name].grad, **EXACT)


@pytest.mark.parametrize("variant", VARIANTS)
def test_same_outputs_in_float32_on_a_set(variant):
    store = motif(num_graphs=12, seed=3)
    features = Features.of(store)
    torch.manual_seed(0)
    usual, ours = _pair(Settings(variant=variant, hidden=16), features.channels, 2)
    usual.eval()
    ours.eval()
    data = next(iter(_loader(usual_graphs(store, features))))
    a = usual(data.x, data.edge_index, data.batch, data.num_graphs)
    source, target = store.edges()
    b = ours(features(store), torch.stack([source, target]), store.batch, store.num_graphs)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6 * b.abs().max().item())


def _loader(items):
    from torch_geometric.loader import DataLoader

    return DataLoader(items, batch_size=len(items))


def test_graphs_are_the_stores_own():
    store = motif(num_graphs=6, seed=1)
    made = usual_graphs(store, Features.of(store))
    for g, data in enumerate(made):
        assert torch.equal(data.edge_index, store[g].edge_index)
        degree = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
        assert torch.equal(data.x.argmax(dim=1), degree)
        assert torch.equal(data.x.sum(dim=1), torch.ones(data.num_nodes))
        assert torch.equal(data.y, store.y[g : g + 1])


def test_a_fold_learns():
    store = motif(num_graphs=40, seed=0)
    torch.manual_seed(0)
    settings = Settings(variant="smg-jk", hidden=16, layers=2, batch_size=16, lr=1e-2, dropout=0.0)
    ids = np.arange(40)
    fold = UsualFold(usual_graphs(store, Features.of(store)), ids, ids, 2, settings, torch.device("cpu"))
    first, batches = fold.train()
    assert batches == 3
    losses = [fold.train()[0] for _ in range(60)]
    assert min(losses) < 0.5 * first
    assert fold.evaluate() > 0.8


def test_training_stops_when_the_time_is_up():
    store = motif(num_graphs=20, seed=0)
    ids = np.arange(20)
    settings = Settings(hidden=4, layers=1, batch_size=5)
    fold = UsualFold(usual_graphs(store, Features.of(store)), ids, ids, 2, settings, torch.device("cpu"))
    assert fold.train(seconds=0.0)[1] == 1
