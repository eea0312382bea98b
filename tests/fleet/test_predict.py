"""How the graphs of a store are cut into runs, each of which goes through a model at once."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from softmask.data.store import GraphStore
from softmask.fleet.predict import _NODES, _PAIRS, _PAIRS_CUDA, runs


@given(
    sizes=st.lists(st.integers(0, 9000) | st.integers(0, 40), max_size=60),
    paired=st.booleans(),
    device=st.sampled_from(["cpu", "cuda"]),
)
def test_runs_are_as_long_as_they_may_be(sizes, paired, device):
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    store = GraphStore(ptr, torch.zeros(int(ptr[-1]) + 1, dtype=torch.long), torch.zeros(0, dtype=torch.int32))
    found = runs(store, torch.device(device), paired)

    def held(part):
        return len(part) * max(part) ** 2 if paired else sum(part)

    most = _NODES if not paired else _PAIRS_CUDA if device == "cuda" else _PAIRS
    assert [g for first, last in found for g in range(first, last)] == list(range(len(sizes)))
    for first, last in found:
        assert last - first == 1 or held(sizes[first:last]) <= most
        assert last == len(sizes) or held(sizes[first : last + 1]) > most
