import copy
import math

import pytest
import torch
from theory.graphs import EXACT, Numbers
from torch.nn.utils import parameters_to_vector
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from softmask.nn import VARIANTS, SoftMaskGNN
from softmask.ops import Neighbours, as_neighbours

EDGES = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])  # a path of three nodes, a pair, an isolated node
BATCH = torch.tensor([0, 0, 0, 1, 1, 2])
X = Numbers(0).normal(6, 3).float()
TOKENS = torch.tensor([2, 0, -1, 1, 1, 2])


def one_hot(tokens, kinds):
    """The rows that tokens stand for; several columns add up, and -1 adds nothing."""
    out = torch.zeros(len(tokens), kinds, dtype=torch.float64)
    for v, row in enumerate(tokens.reshape(len(tokens), -1).tolist()):
        for token in row:
            if token >= 0:
                out[v, token] += 1
    return out


def test_repr():
    assert str(SoftMaskGNN(8, 16, 3, 2, multi_channel=True)) == (
        "SoftMaskGNN(8, 16, num_layers=3, out_channels=2, multi_channel=True, jk=False, readout='sum', norm=False)"
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_state_dict_names(variant):
    multi, jk = VARIANTS[variant]["multi_channel"], VARIANTS[variant]["jk"]
    model = SoftMaskGNN(3, 4, 2, 5, **VARIANTS[variant])
    expected = {"lin_in.weight": (4, 3), "lin_in.bias": (4,)}
    for k in range(2):
        for name, shape in {
            "lin_root": (4, 4),
            "lin_rel": (4, 4),
            "mlp.0": (4, 8),
            "mlp.2": (4 if multi else 1, 4),
        }.items():
            expected[f"masks.{k}.{name}.weight"] = shape
            expected[f"masks.{k}.{name}.bias"] = shape[:1]
        expected[f"convs.{k}.lin_root.weight"] = (4, 4)
        expected[f"convs.{k}.lin_rel.weight"] = (4, 4)
    expected |= {"head.0.weight": (4, 8 if jk else 4), "head.0.bias": (4,)}
    last = len(model.head) - 1
    expected |= {f"head.{last}.weight": (5, 4), f"head.{last}.bias": (5,)}
    assert {name: tuple(p.shape) for name, p in model.state_dict().items()} == expected


def test_initial_ranges():
    torch.manual_seed(0)
    model = SoftMaskGNN(50, 64, 2, 40, jk=True, multi_channel=True)
    for name, p in model.named_parameters():
        module = model.get_submodule(name.rsplit(".", 1)[0])
        bound = 1 / math.sqrt(module.weight.shape[1])
        assert 0.8 * bound < p.abs().max() <= bound, name
        assert p.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.3), name


def test_reset_parameters():
    model = SoftMaskGNN(3, 4, 2, 5, head="regressor")
    before = copy.deepcopy(model.state_dict())
    model.reset_parameters()
    for name, p in model.state_dict().items():
        assert not torch.equal(p, before[name]), name


def test_a_seed_fixes_the_weights():
    vectors = []
    for _ in range(2):
        torch.manual_seed(7)
        vectors.append(parameters_to_vector(SoftMaskGNN(3, 4, 2, 5).parameters()))
    assert torch.equal(*vectors)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("head", ["classifier", "regressor"])
def test_shapes(variant, head):
    model = SoftMaskGNN(3, 4, 3, 5, **VARIANTS[variant], head=head)
    out, masks = model(X, EDGES, BATCH, return_masks=True)
    assert out.shape == (3, 5)
    assert [m.shape for m in masks] == [(6, 4 if VARIANTS[variant]["multi_channel"] else 1)] * 3
    assert model.node_embeddings(X, EDGES).shape == (6, 4)
    assert model(X, EDGES).shape == (1, 5)
    assert model(X, EDGES, BATCH, batch_size=7).shape == (7, 5)


def test_masks_in_and_out():
    """The masks that come out, put in again, give the same output; rows of a matrix are masks, too."""
    model = Numbers(0).fill(SoftMaskGNN(3, 4, 2, 5))
    x = X.double()
    out, masks = model(x, EDGES, BATCH, return_masks=True)
    torch.testing.assert_close(model(x, EDGES, BATCH, masks=masks), out, **EXACT)
    torch.testing.assert_close(model(x, EDGES, BATCH, masks=torch.stack(masks)), out, **EXACT)
    torch.testing.assert_close(model(x, EDGES, BATCH, masks=torch.stack(masks).squeeze(-1)), out, **EXACT)
    with pytest.raises(ValueError, match="masks for 1 layers; the model has 2"):
        model(x, EDGES, BATCH, masks=masks[:1])


def test_lazy():
    model = SoftMaskGNN(-1, 4, 2, 5)
    assert model(X, EDGES, BATCH).shape == (3, 5)
    assert model.lin_in.weight.shape == (4, 3)
    with pytest.raises(ValueError, match="needs floating-point features"):
        SoftMaskGNN(-1, 4, 2, 5)(TOKENS, EDGES, BATCH)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_forms_of_edge_index():
    model = SoftMaskGNN(3, 4, 2, 5).eval()
    expected = model(X, EDGES, BATCH)
    adj_t = torch.sparse_coo_tensor(EDGES.flip(0), torch.ones(6), (6, 6), check_invariants=True)
    undirected = EdgeIndex(EDGES, sparse_size=(6, 6), is_undirected=True)
    for form in (EDGES.int(), undirected, adj_t, adj_t.to_sparse_csr(), as_neighbours(EDGES, 6)):
        torch.testing.assert_close(model(X, form, BATCH), expected)


@pytest.mark.parametrize("tokens", [TOKENS, TOKENS.unsqueeze(1), torch.stack([TOKENS, TOKENS.roll(1), TOKENS], 1)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
def test_tokens_are_one_hot_vectors(tokens, dtype):
    """Outputs and the gradients of all parameters."""
    model = Numbers(0).fill(SoftMaskGNN(3, 4, 2, 5, jk=True))
    results = []
    for x in (tokens.to(dtype), one_hot(tokens, 3)):
        out = model(x, EDGES, BATCH)
        results.append((out, torch.autograd.grad(out.square().sum(), list(model.parameters()))))
    torch.testing.assert_close(*results, **EXACT)


@pytest.mark.parametrize("token", [3, 4, 7, -2, -3])
def test_a_token_out_of_range_is_refused(token):
    """It must not silently stand for another kind."""
    model = SoftMaskGNN(3, 4, 2, 5)
    with pytest.raises(IndexError):
        model(torch.tensor([0, token, 1, 2, 2, 1]), EDGES, BATCH)


@pytest.mark.parametrize("head", ["classifier", "regressor"])
@pytest.mark.parametrize("readout", ["sum", "mean"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_trainable(variant, readout, head):
    torch.manual_seed(0)
    model = SoftMaskGNN(3, 16, 3, 5, **VARIANTS[variant], readout=readout, head=head)
    model(X, EDGES, BATCH).square().sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.abs().sum() > 0, name


@pytest.mark.parametrize("variant", ["smg", "m-smg-jk"])
def test_gradcheck_of_the_parameters(variant):
    model = Numbers(5).fill(SoftMaskGNN(2, 2, 2, 1, **VARIANTS[variant]))
    names, values = zip(*model.named_parameters())
    x = X[:, :2].double()

    def f(*values):
        return torch.func.functional_call(model, dict(zip(names, values)), (x, EDGES, BATCH, 3))

    assert torch.autograd.gradcheck(f, values)


def test_a_fleet_is_vmap_over_parameters():
    """The same module for stacked parameters: outputs and gradients are those of the models alone."""
    models = [Numbers(seed).fill(SoftMaskGNN(3, 4, 2, 5, jk=True)) for seed in range(3)]
    params, _ = torch.func.stack_module_state(models)
    rows = torch.tensor([5, 0, 1, 2, 3, 4])
    xs = [X.double() * (r + 1) for r in range(3)]
    graphs = [as_neighbours(rows.roll(r)[EDGES], 6) for r in range(3)]
    stacked = Neighbours(*[None if t[0] is None else torch.stack(t) for t in zip(*graphs)])
    dims = Neighbours(*[None if t is None else 0 for t in stacked])
    batches = torch.stack([BATCH[rows.roll(r)] for r in range(3)])

    def call(p, x, neighbours, batch):
        return torch.func.functional_call(models[0], p, (x, neighbours, batch, 3))

    out = torch.vmap(call, (0, 0, dims, 0))(params, torch.stack(xs), stacked, batches)
    grads = torch.autograd.grad(out.square().sum(), list(params.values()))
    for r, model in enumerate(models):
        alone = model(xs[r], graphs[r], batches[r], 3)
        torch.testing.assert_close(out[r], alone, **EXACT)
        own = torch.autograd.grad(alone.square().sum(), list(model.parameters()))
        for name, grad, grad_alone in zip(params, grads, own):
            torch.testing.assert_close(grad[r], grad_alone, **EXACT, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("variant", ["smg", "m-smg-jk"])
@pytest.mark.parametrize("x", [X.double(), TOKENS])
def test_compile_without_graph_breaks(variant, x):
    torch.compiler.reset()
    model = Numbers(0).fill(SoftMaskGNN(3, 4, 2, 5, **VARIANTS[variant], readout="mean"))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for form in (EDGES, as_neighbours(EDGES, 6)):
        out, expected = (m(x, form, BATCH, 3) for m in (compiled, model))
        torch.testing.assert_close(out, expected, **EXACT)
        grads = [torch.autograd.grad(o.square().sum(), list(model.parameters())) for o in (out, expected)]
        torch.testing.assert_close(*grads, **EXACT)


def test_copy_and_state_dict():
    model = SoftMaskGNN(3, 4, 2, 5).eval()
    twin = copy.deepcopy(model)
    torch.testing.assert_close(twin(X, EDGES, BATCH), model(X, EDGES, BATCH), rtol=0, atol=0)
    other = SoftMaskGNN(3, 4, 2, 5).eval()
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(X, EDGES, BATCH), model(X, EDGES, BATCH), rtol=0, atol=0)
    lazy = copy.deepcopy(SoftMaskGNN(-1, 4, 2, 5).eval())
    lazy.load_state_dict(model.state_dict())
    torch.testing.assert_close(lazy(X, EDGES, BATCH), model(X, EDGES, BATCH), rtol=0, atol=0)


def test_double():
    model = SoftMaskGNN(3, 4, 2, 5).double()
    assert model(X.double(), EDGES, BATCH).dtype == torch.float64
    assert model(TOKENS, EDGES, BATCH).dtype == torch.float64


def test_with_a_loader():
    data = [
        Data(x=X[:3], edge_index=EDGES[:, :4]),
        Data(x=X[3:5], edge_index=EDGES[:, 4:] - 3),
        Data(x=X[5:], edge_index=torch.empty(2, 0, dtype=torch.long)),
    ]
    model = SoftMaskGNN(3, 4, 2, 5).eval()
    batch = next(iter(DataLoader(data, batch_size=3)))
    out = model(batch.x, batch.edge_index, batch.batch)
    torch.testing.assert_close(out, torch.cat([model(d.x, d.edge_index) for d in data]))
    torch.testing.assert_close(out, model(X, EDGES, BATCH))


def test_it_learns():
    """Which of two graphs has an edge: a few steps of Adam suffice."""
    torch.manual_seed(0)
    model = SoftMaskGNN(1, 8, 2, 2, jk=True, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    x, batch, y = torch.ones(4, 1), torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1])
    for _ in range(100):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, torch.tensor([[2, 3], [3, 2]]), batch), y)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.01


def test_nothing():
    model = SoftMaskGNN(3, 4, 2, 5)
    none = torch.empty(2, 0, dtype=torch.long)
    assert model(torch.empty(0, 3), none, torch.empty(0, dtype=torch.long)).shape == (0, 5)
    out = model(torch.empty(0, 3), none)
    assert out.shape == (1, 5)
    assert model(torch.empty(0, 3), none, torch.empty(0, dtype=torch.long), batch_size=2).shape == (2, 5)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"num_layers": 2, "readout": "max"}, "readout must be 'sum' or 'mean', got 'max'"),
        ({"num_layers": 2, "head": "ranker"}, "head must be 'classifier' or 'regressor', got 'ranker'"),
        ({"num_layers": 2, "dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
    ],
)
def test_settings_that_make_no_sense(kwargs, message):
    with pytest.raises(ValueError, match=message):
        SoftMaskGNN(3, 4, out_channels=5, **kwargs)
