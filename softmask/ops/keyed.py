"""Random numbers that follow from a key alone: the same on every device, in any company, in any order."""

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF


def fold_key(key: Tensor, value: Tensor | int) -> Tensor:
    """A new key from a key and a number: the finaliser of SplitMix64 over both (int64, wrapping)."""
    if isinstance(value, int):
        value = torch.tensor(value, device=key.device)
    z = key + (value + 1) * -0x61C8864680B583EB  # the golden ratio in 64 bits
    z = (z ^ (z >> 30 & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    z = (z ^ (z >> 27 & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return z ^ (z >> 31 & 0x1FFFFFFFF)


def keyed_bits(key: Tensor, place: Tensor) -> Tensor:
    """32 random bits for each place (an int64 tensor below 2^32): the finaliser of MurmurHash3, once per key half."""
    bits = place
    for word in (key & _WORD, key >> 32 & _WORD):
        bits = (bits * 0x9E3779B1 + word) & _WORD
        bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & _WORD
        bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & _WORD
        bits = bits ^ (bits >> 16)
    return bits


def keyed_uniform(key: Tensor, place: Tensor) -> Tensor:
    """Numbers in [0, 1) for each place; 24 bits, exact in float32, so every device compares the same numbers."""
    return (keyed_bits(key, place) >> 8).to(torch.float32) * 2**-24
