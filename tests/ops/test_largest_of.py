import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from softmask.ops.largest_of import largest_of


@given(arrays(np.float64, array_shapes(max_dims=3, max_side=5), elements=st.integers(-3, 3).map(float)), st.data())
def test_the_largest_and_one_gradient_for_each(values, data):
    dim = data.draw(st.integers(-values.ndim, values.ndim - 1))
    x = torch.tensor(values, requires_grad=True)
    out = largest_of(x, dim)
    np.testing.assert_array_equal(out.detach().numpy(), values.max(axis=dim))
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(grad.sum(dim), torch.ones_like(out))
    assert set(grad.unique().tolist()) <= {0.0, 1.0}
    assert torch.equal((grad * x).sum(dim), out)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's compiler for the CPU needs g++")
@pytest.mark.filterwarnings("ignore")
def test_compiled_in_half_precision_it_has_a_gradient():
    """That of ``amax`` is NaN where the compiler does not round what it compares: then nothing is equally large."""

    def f(x, y):
        return largest_of((x * 1.37 + y).sin() * y, dim=-1).float().square().sum()

    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 33, dtype=torch.bfloat16, generator=generator) for n in (64, 1))
    x.requires_grad_()
    torch.compiler.reset()
    (grad,) = torch.autograd.grad(torch.compile(f)(x, y), x)
    assert torch.isfinite(grad).all()
    assert ((grad != 0).sum(dim=1) == 1).all()
