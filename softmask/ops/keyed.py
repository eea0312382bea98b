"""Random numbers that follow from a key alone: the same on every device, in any company, in any order."""

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF


def fold_key(key: Tensor, value: Tensor | int) -> Tensor:
    """A new key from a key and a number: the finaliser of SplitMix64 over both (int64, wrapping)."""
    golden = -0x61C8864680B583EB  # 2^64 over the golden ratio, as int64
    if isinstance(value, int):
        # Wrapped here: a tensor made from a number would have to be copied to the device.
        step: Tensor | int = ((value + 1) * golden + 2**63) % 2**64 - 2**63
    else:
        step = (value + 1) * golden
    z = key + step
    z = (z ^ (z >> 30 & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    z = (z ^ (z >> 27 & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return z ^ (z >> 31 & 0x1FFFFFFFF)


def keyed_bits(key: Tensor, place: Tensor) -> Tensor:
    """32 random bits for each place (an int64 tensor below 2^32): the finaliser of MurmurHash3, once per key half."""
    bits = place
    low, high = key & _WORD, key >> 32 & _WORD
    for word, other in ((low, high), (high, low)):
        # A key comes first: the compiler may hold a bare place in 32 bits, where the product would overflow.
        bits = ((bits ^ word) * 0x9E3779B1 + other) & _WORD
        bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & _WORD
        bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & _WORD
        bits = bits ^ (bits >> 16)
    return bits


def keyed_uniform(key: Tensor, place: Tensor) -> Tensor:
    """Numbers in [0, 1) for each place; 24 bits, exact in float32, so every device compares the same numbers."""
    return (keyed_bits(key, place) >> 8).to(torch.float32) * 2**-24
