import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softmask.nn import KeyedDropout

KEYS = st.integers(-(2**63), 2**63 - 1)


def keyed(p, key):
    layer = KeyedDropout(p)
    layer.keyed = True
    layer.key.fill_(key)
    return layer


def kept(p, key, *shape):
    return keyed(p, key)(torch.ones(*shape)) != 0


def within(share, p, n):
    """Six standard deviations of a binomial draw: one in 5e8."""
    return abs(share - p) <= 6 * math.sqrt(p * (1 - p) / n)


def test_repr():
    assert str(KeyedDropout(0.25)) == "KeyedDropout(p=0.25)"


@pytest.mark.parametrize("keyed", [True, False])
def test_evaluation_is_the_identity(keyed):
    layer = KeyedDropout(0.5).eval()
    layer.keyed = keyed
    x = torch.randn(5, 3)
    assert layer(x) is x


def test_unkeyed_is_torchs_dropout():
    x = torch.randn(50, 3)
    torch.manual_seed(3)
    out = KeyedDropout(0.3)(x)
    torch.manual_seed(3)
    assert torch.equal(out, torch.nn.Dropout(0.3)(x))


def test_nothing_of_it_is_saved():
    assert KeyedDropout(0.5).state_dict() == {}


@settings(max_examples=40, deadline=None)
@given(KEYS)
def test_a_draw_depends_on_key_and_place_alone(key):
    """Not on the values, torch's generator, the precision, or what else is drawn."""
    x = torch.randn(7, 5)
    first = keyed(0.5, key)(x)
    torch.rand(10)
    torch.testing.assert_close(keyed(0.5, key)(x), first, rtol=0, atol=0)
    zero = first == 0
    layer = copy.deepcopy(keyed(0.5, key)).double()
    assert torch.equal(layer(torch.ones(7, 5, dtype=torch.float64)) == 0, zero)
    assert torch.equal(kept(0.5, key, 9, 5)[:7], ~zero)  # more rows below change nothing above
    torch.testing.assert_close(first[~zero], 2 * x[~zero])


def hashed(key, place):
    """In Python's own integers: two rounds of MurmurHash3's 32-bit finaliser, both halves of the key in each."""
    bits = place
    low, high = key % 2**32, key // 2**32 % 2**32
    for word, other in ((low, high), (high, low)):
        bits = ((bits ^ word) * 0x9E3779B1 + other) % 2**32
        bits ^= bits >> 16
        bits = bits * 0x85EBCA6B % 2**32
        bits ^= bits >> 13
        bits = bits * 0xC2B2AE35 % 2**32
        bits ^= bits >> 16
    return bits


@settings(max_examples=60, deadline=None)
@given(KEYS, st.sampled_from([0.1, 0.5, 0.75]))
def test_the_draws_are_a_promise(key, p):
    """Results must not change with a version or a device."""
    rate = torch.tensor(p).item()
    assert kept(p, key, 8, 4).flatten().tolist() == [hashed(key, v) >> 8 >= rate * 2**24 for v in range(32)]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@settings(max_examples=15, deadline=None)
@given(key=KEYS)
def test_rate(p, key):
    n = 20000
    mask = kept(p, key, n // 10, 10)
    assert within(1 - mask.double().mean().item(), p, n)
    for column in mask.t():
        assert within(1 - column.double().mean().item(), p, n // 10)


@pytest.mark.parametrize("step", [1, 2, 2**16, 2**31, 2**32, 2**33 + 1])
@settings(max_examples=10, deadline=None)
@given(key=st.integers(-(2**62), 2**62))
def test_keys_are_independent(step, key):
    """Neighbouring keys agree in half of their draws, and so does a draw with the place next to it."""
    n = 20000
    a, b = kept(0.5, key, n), kept(0.5, key + step, n)
    assert within((a == b).double().mean().item(), 0.5, n)
    assert within((a[1:] == b[:-1]).double().mean().item(), 0.5, n - 1)
    assert within((a[1:] == a[:-1]).double().mean().item(), 0.5, n - 1)


def test_across_keys_every_place_has_the_rate():
    draws = torch.stack([kept(0.3, key, 40) for key in range(2000)]).double()
    for place in draws.t():
        assert within(1 - place.mean().item(), 0.3, 2000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_mean_stays(dtype):
    out = keyed(0.25, 5).to(dtype)(torch.ones(40000, dtype=dtype))
    assert out.dtype == dtype
    assert out.unique().tolist() == pytest.approx([0, 4 / 3])
    assert out.mean().item() == pytest.approx(1, abs=0.02)


def test_rate_zero_drops_nothing():
    x = torch.randn(100)
    assert torch.equal(keyed(0.0, 3)(x), x)


def test_vmap_is_a_loop():
    """Different keys, and different rates, side by side."""
    layer = keyed(0.5, 0)
    keys, rates = torch.tensor([3, -5, 2**40]), torch.tensor([0.5, 0.1, 0.8])
    x = torch.randn(3, 6, 4)

    def call(key, rate, x):
        return torch.func.functional_call(layer, {"key": key, "rate": rate}, (x,))

    out = torch.vmap(call)(keys, rates, x)
    for r in range(3):
        assert torch.equal(out[r], keyed(rates[r].item(), int(keys[r]))(x[r]))
    shared = torch.vmap(call, (0, None, None))(keys, rates[0], x[0])
    for r in range(3):
        assert torch.equal(shared[r], keyed(0.5, int(keys[r]))(x[0]))


def test_gradient():
    x = torch.randn(30, dtype=torch.float64, requires_grad=True)
    layer = keyed(0.5, 8).double()
    layer(x).sum().backward()
    assert torch.equal(x.grad, layer(torch.ones(30, dtype=torch.float64)))


def test_compile_without_graph_breaks():
    torch.compiler.reset()
    layer = keyed(0.5, 8)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(5, 4)
    assert torch.equal(compiled(x), layer(x))


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5])
def test_rates_that_make_no_sense(p):
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1"):
        KeyedDropout(p)
