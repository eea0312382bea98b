import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, Numbers, examples
from torch.func import functional_call, vmap

from softmask.baselines.batch_norm import MaskedBatchNorm


def pair(numbers, channels=4):
    """Ours and torch's, with the same parameters."""
    ours, theirs = MaskedBatchNorm(channels).double(), torch.nn.BatchNorm1d(channels).double()
    with torch.no_grad():
        for name in ("weight", "bias"):
            value = numbers.normal(channels)
            getattr(ours, name).copy_(value)
            getattr(theirs, name).copy_(value)
    return ours, theirs


@examples(30)
@given(seed=st.integers(0, 1000), real=st.lists(st.booleans(), min_size=2, max_size=12).filter(lambda r: sum(r) > 1))
def test_it_is_torchs_on_the_rows_that_count(seed, real):
    """Training and evaluation, outputs, gradients and running statistics, over three batches."""
    numbers, mask = Numbers(seed), torch.tensor(real).unsqueeze(-1)
    ours, theirs = pair(numbers)
    for _ in range(3):
        x = (3 + 2 * numbers.normal(len(real), 4)).requires_grad_()
        weight = numbers.normal(len(real), 4)
        a, b = ours(x, mask), theirs(x[mask.squeeze(-1)])
        torch.testing.assert_close(a[mask.squeeze(-1)], b, **EXACT)
        assert (a[~mask.squeeze(-1)] == 0).all()
        gradients = [
            torch.autograd.grad((out * w).sum(), [x, module.weight, module.bias])
            for out, w, module in ((a, weight, ours), (b, weight[mask.squeeze(-1)], theirs))
        ]
        for mine, other in zip(*gradients):
            torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-8)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), **EXACT)
    x = numbers.normal(len(real), 4)
    torch.testing.assert_close(ours.eval()(x, mask)[mask.squeeze(-1)], theirs.eval()(x[mask.squeeze(-1)]), **EXACT)


def test_an_empty_batch_leaves_the_statistics():
    norm = MaskedBatchNorm(3)
    out = norm(torch.full((5, 3), 7.0), torch.zeros(5, 1, dtype=torch.bool))
    assert (out == 0).all()
    assert norm.running_mean.tolist() == [0, 0, 0]
    assert norm.running_var.tolist() == [1, 1, 1]


def test_every_replica_under_vmap_has_statistics_of_its_own():
    numbers = Numbers(0)
    x, real = numbers.normal(3, 6, 2), numbers.normal(3, 6, 1) > -1
    norm = MaskedBatchNorm(2).double()
    stacked = {name: torch.stack([t.detach()] * 3) for name, t in norm.state_dict().items()}

    def one(state, x, real):
        state = dict(state)
        return functional_call(norm, state, (x, real)), state

    out, after = vmap(one)(stacked, x, real)
    for r in range(3):
        alone = MaskedBatchNorm(2).double()
        torch.testing.assert_close(out[r], alone(x[r], real[r]), **EXACT)
        torch.testing.assert_close(after["running_mean"][r], alone.running_mean, **EXACT)
        torch.testing.assert_close(after["running_var"][r], alone.running_var, **EXACT)
    assert norm.running_mean.tolist() == [0, 0]


def test_half_precision_counts_in_float32():
    x = torch.full((3000, 1), 1.0)
    x[0] = 3.0
    norm = MaskedBatchNorm(1)
    norm(x.bfloat16(), torch.ones(3000, 1, dtype=torch.bool))
    assert norm.running_mean.item() == pytest.approx(0.1 * x.mean().item(), rel=1e-4)


def test_reset():
    norm = MaskedBatchNorm(2)
    norm(torch.randn(4, 2), torch.ones(4, 1, dtype=torch.bool))
    norm.reset_parameters()
    assert norm.running_mean.tolist() == [0, 0]
    assert str(norm) == "MaskedBatchNorm(2)"
