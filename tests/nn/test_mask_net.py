import copy
import math

import pytest
import torch
from theory.graphs import EXACT, Numbers
from torch_geometric import EdgeIndex

from softmask.nn import MaskNet
from softmask.ops import as_neighbours

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
X = Numbers(0).normal(4, 3).float()


def test_repr():
    assert str(MaskNet(8, 16)) == "MaskNet(8, 16, out_channels=1)"
    assert str(MaskNet(8, 16, 8)) == "MaskNet(8, 16, out_channels=8)"


def test_parameters():
    """L1, L2 and the perceptron 2d -> d -> 1, all with bias."""
    shapes = {name: tuple(p.shape) for name, p in MaskNet(3, 5, 2).state_dict().items()}
    assert shapes == {
        "lin_root.weight": (5, 3),
        "lin_root.bias": (5,),
        "lin_rel.weight": (5, 3),
        "lin_rel.bias": (5,),
        "mlp.0.weight": (5, 10),
        "mlp.0.bias": (5,),
        "mlp.2.weight": (2, 5),
        "mlp.2.bias": (2,),
    }


def test_initial_range():
    torch.manual_seed(0)
    net = MaskNet(64, 128, 64)
    for lin, fan_in in ((net.lin_root, 64), (net.lin_rel, 64), (net.mlp[0], 256), (net.mlp[2], 128)):
        bound = 1 / math.sqrt(fan_in)
        for p in (lin.weight, lin.bias):
            assert 0.8 * bound < p.abs().max() <= bound
            assert p.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.25)


def test_reset_parameters():
    net = MaskNet(3, 5)
    before = copy.deepcopy(net.state_dict())
    net.reset_parameters()
    for name, p in net.state_dict().items():
        assert not torch.equal(p, before[name]), name


def test_lazy():
    net = MaskNet(-1, 5)
    assert net(X, EDGES).shape == (4, 1)
    assert net.lin_root.weight.shape == net.lin_rel.weight.shape == (5, 3)


@pytest.mark.parametrize("out_channels", [1, 3])
def test_in_the_open_interval(out_channels):
    out = MaskNet(3, 5, out_channels)(X, EDGES)
    assert out.shape == (4, out_channels)
    assert ((out > 0) & (out < 1)).all()


def test_no_mask_is_a_mask_of_1():
    net = MaskNet(3, 5)
    torch.testing.assert_close(net(X, EDGES), net(X, EDGES, torch.ones(4, 1)))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta", "ignore:Sparse invariant checks are")
def test_forms_of_edge_index():
    net = MaskNet(3, 5)
    expected = net(X, EDGES)
    adj_t = torch.sparse_coo_tensor(EDGES.flip(0), torch.ones(4), (4, 4), check_invariants=True)
    for form in (EDGES.int(), EdgeIndex(EDGES, sparse_size=(4, 4)), adj_t, as_neighbours(EDGES, 4)):
        torch.testing.assert_close(net(X, form), expected)


def test_trainable():
    torch.manual_seed(0)
    net = MaskNet(3, 8, 3)
    x, mask = X.clone().requires_grad_(), torch.full((4, 1), 0.5, requires_grad=True)
    net(x, EDGES, mask).sum().backward()
    for name, t in (*net.named_parameters(), ("x", x), ("mask", mask)):
        assert t.grad is not None, name
        assert t.grad.abs().sum() > 0, name


def test_compile_without_graph_breaks():
    torch.compiler.reset()
    net = Numbers(0).fill(MaskNet(3, 5))
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    x, mask = X.double(), Numbers(1).mask(4, 1)
    torch.testing.assert_close(compiled(x, EDGES, mask), net(x, EDGES, mask), **EXACT)


def test_copy():
    net = MaskNet(3, 5)
    torch.testing.assert_close(copy.deepcopy(net)(X, EDGES), net(X, EDGES), rtol=0, atol=0)
