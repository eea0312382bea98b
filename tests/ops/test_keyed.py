import numpy as np
import torch
from scipy import stats

from softmask.ops.keyed import fold_key, keyed_bits, keyed_uniform


def _splitmix(key, value):
    """Independent: Python's whole numbers instead of wrapping int64."""
    word = (1 << 64) - 1
    z = (key + (value + 1) * 0x9E3779B97F4A7C15) & word
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & word
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & word
    z ^= z >> 31
    return z - (1 << 64) if z >> 63 else z


def test_fold_key_is_splitmix64():
    for key in (0, 1, -1, 2**63 - 1, -(2**63), 12345):
        for value in (0, 1, 7, 2**40):
            assert int(fold_key(torch.tensor(key), value)) == _splitmix(key, value)
            assert int(fold_key(torch.tensor([key]), torch.tensor([value]))) == _splitmix(key, value)


def test_bits_look_random():
    bits = keyed_bits(fold_key(torch.tensor(5), 0), torch.arange(1 << 16))
    assert 0 <= int(bits.min()) <= int(bits.max()) < 2**32
    assert bits.unique().numel() > (1 << 16) - 10
    share = torch.stack([(bits >> b & 1).double().mean() for b in range(32)])
    assert (share - 0.5).abs().max() < 0.01


def test_uniform_is_uniform_and_neighbouring_keys_are_independent():
    draws = [keyed_uniform(fold_key(torch.tensor(0), k), torch.arange(20000)).numpy() for k in range(3)]
    for draw in draws:
        assert draw.min() >= 0
        assert draw.max() < 1
        assert stats.kstest(draw, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(draws)[np.triu_indices(3, 1)]).max() < 0.03
    assert abs(np.corrcoef(draws[0][:-1], draws[0][1:])[0, 1]) < 0.03
