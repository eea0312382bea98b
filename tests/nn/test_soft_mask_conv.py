import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, Numbers, examples, graphs
from torch_geometric import EdgeIndex
from torch_geometric.nn import GraphConv, Sequential

from softmask.nn import MaskNet, SoftMaskConv
from softmask.ops import as_neighbours

EDGES = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])  # a path of three nodes, a self loop, an isolated node
X = Numbers(0).normal(4, 3).float()
MASK = Numbers(1).mask(4, 1).float()


def test_repr():
    assert str(SoftMaskConv(8, 16)) == "SoftMaskConv(8, 16)"


def test_parameters():
    """W of equation (3) in two halves, and no bias."""
    shapes = {name: tuple(p.shape) for name, p in SoftMaskConv(3, 5).state_dict().items()}
    assert shapes == {"lin_root.weight": (5, 3), "lin_rel.weight": (5, 3)}


def test_initial_range():
    torch.manual_seed(0)
    conv = SoftMaskConv(64, 128)
    for p in conv.parameters():
        assert p.abs().max() <= 1 / 8
        # A uniform draw of 8192 numbers fills its range and has its standard deviation.
        assert p.abs().max() > 0.99 / 8
        assert p.std().item() == pytest.approx(1 / 8 / math.sqrt(3), rel=0.05)


def test_reset_parameters():
    conv = SoftMaskConv(3, 5)
    before = copy.deepcopy(conv.state_dict())
    conv.reset_parameters()
    for name, p in conv.state_dict().items():
        assert not torch.equal(p, before[name])


def test_lazy():
    conv = SoftMaskConv(-1, 5)
    assert str(conv) == "SoftMaskConv(-1, 5)"
    assert conv(X, EDGES, MASK).shape == (4, 5)
    assert conv.lin_root.weight.shape == conv.lin_rel.weight.shape == (5, 3)
    again = SoftMaskConv(-1, 5)
    again.load_state_dict(conv.state_dict())
    torch.testing.assert_close(again(X, EDGES, MASK), conv(X, EDGES, MASK), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_forms_of_edge_index():
    conv = SoftMaskConv(3, 5)
    expected = conv(X, EDGES, MASK)
    adj_t = torch.sparse_coo_tensor(EDGES.flip(0), torch.ones(5), (4, 4), check_invariants=True)
    forms = [
        EDGES.int(),
        EdgeIndex(EDGES, sparse_size=(4, 4)),
        adj_t,
        adj_t.to_sparse_csr(),
        as_neighbours(EDGES, 4),
    ]
    forms.append(EdgeIndex(EDGES, sparse_size=(4, 4), is_undirected=True))
    for form in forms:
        torch.testing.assert_close(conv(X, form, MASK), expected)


@examples(50)
@given(graphs(), st.integers(1, 3), st.integers(1, 3))
def test_with_masks_of_1_it_is_pygs_graph_conv(graph, c_in, c_out):
    """Before the ReLU, with the weights copied; PyG counts self loops, so they are taken out for it."""
    numbers = graph.numbers()
    conv = numbers.fill(SoftMaskConv(c_in, c_out))
    pyg = GraphConv(c_in, c_out, aggr="add", bias=False).double()
    pyg.load_state_dict(conv.state_dict())
    x = numbers.normal(graph.num_nodes, c_in)
    edge_index = graph.edge_index[:, graph.edge_index[0] != graph.edge_index[1]]
    conv.act = torch.nn.Identity()
    out = conv(x, graph.edge_index, torch.ones(graph.num_nodes, 1, dtype=torch.float64))
    torch.testing.assert_close(out, pyg(x, edge_index), **EXACT)


def test_relu_is_included():
    out = SoftMaskConv(3, 50)(X, EDGES, torch.ones(4, 1))
    assert (out >= 0).all()
    assert (out == 0).any()


def test_other_activations():
    conv = SoftMaskConv(3, 50, act="elu")
    assert (conv(X, EDGES, torch.ones(4, 1)) < 0).any()
    out = conv(X, EDGES, torch.zeros(4, 1))
    assert (out == 0).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_trainable(channels):
    conv = Numbers(2).fill(SoftMaskConv(3, 3))
    x, mask = (
        X.double().requires_grad_(),
        torch.full((4, channels), 0.5, dtype=torch.float64).requires_grad_(),
    )
    conv(x, EDGES, mask).sum().backward()
    for t in (*conv.parameters(), x, mask):
        assert t.grad is not None
        assert t.grad.abs().sum() > 0


@pytest.mark.parametrize("channels", [1, 3])
def test_gradcheck(channels):
    """Of the layer in all its inputs; ELU, because ReLU has a kink."""
    conv = Numbers(0).fill(SoftMaskConv(3, 3, act="elu"))
    numbers = Numbers(1)
    x, mask = numbers.normal(4, 3).requires_grad_(), (numbers.mask(4, channels) * 0.8 + 0.1).requires_grad_()
    names, values = zip(*conv.named_parameters())

    def f(x, mask, *values):
        return torch.func.functional_call(conv, dict(zip(names, values)), (x, EDGES, mask))

    assert torch.autograd.gradcheck(f, (x, mask, *values))


@pytest.mark.parametrize("channels", [1, 3])
def test_compile_without_graph_breaks(channels):
    torch.compiler.reset()
    conv = Numbers(0).fill(SoftMaskConv(3, 3))
    x, mask = Numbers(1).normal(4, 3), Numbers(2).mask(4, channels)
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, EDGES, mask), conv(x, EDGES, mask), **EXACT)
    neighbours = as_neighbours(EDGES, 4)
    torch.testing.assert_close(compiled(x, neighbours, mask), conv(x, EDGES, mask), **EXACT)


def test_in_a_pyg_model():
    model = Sequential(
        "x, edge_index",
        [
            (MaskNet(3, 4), "x, edge_index -> m"),
            (SoftMaskConv(3, 8), "x, edge_index, m -> h"),
            (GraphConv(8, 2), "h, edge_index -> h"),
        ],
    )
    assert model(X, EDGES).shape == (4, 2)


def test_copy_and_double():
    conv = SoftMaskConv(3, 5)
    twin = copy.deepcopy(conv)
    torch.testing.assert_close(twin(X, EDGES, MASK), conv(X, EDGES, MASK), rtol=0, atol=0)
    assert conv.double()(X.double(), EDGES, MASK.double()).dtype == torch.float64


def test_a_mask_per_channel_needs_equal_sizes():
    with pytest.raises(ValueError, match="in_channels equal to out_channels, got 3 and 5"):
        SoftMaskConv(3, 5)(X, EDGES, torch.ones(4, 3))


@pytest.mark.parametrize("shape", [(4, 2), (3, 1), (5, 3), (3,)])
def test_a_mask_that_does_not_fit(shape):
    with pytest.raises(ValueError, match="the mask has shape"):
        SoftMaskConv(3, 3)(X, EDGES, torch.ones(shape))


def test_norm_against_the_definition():
    numbers = Numbers(3)
    conv = numbers.fill(SoftMaskConv(4, 4, norm=True))
    plain = SoftMaskConv(4, 4, act=lambda z: z).double()
    plain.load_state_dict({k: v for k, v in conv.state_dict().items() if k != "scale"})
    x, mask = numbers.normal(5, 4), numbers.mask(5, 1)
    mask[2] = 0.0
    edge_index = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    z = plain(x, edge_index, mask).detach().numpy()
    rms = np.sqrt((z**2).mean(axis=1, keepdims=True) + 1e-6)
    expected = np.maximum(mask.numpy() * conv.scale.detach().numpy() * z / rms, 0)
    np.testing.assert_allclose(conv(x, edge_index, mask).detach().numpy(), expected, atol=1e-12)
    assert (expected[2] == 0).all()
    assert "norm=True" in repr(conv)
