"""Zero invariance with edge features: a node that every layer masks cannot be told from one that is not there."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, Numbers, examples, graphs

from softmask.nn import SoftMaskGNN

F, D, E, LAYERS = 3, 4, 2, 3


def _edges(graph):
    pairs = sorted({p for s, t in graph.edges if s != t for p in ((s, t), (t, s))})
    numbers = Numbers(graph.seed + 1)
    by_pair: dict = {}
    attr = [by_pair.setdefault((min(p), max(p)), numbers.normal(E)) for p in pairs]
    return pairs, attr


def _predict(model, x, pairs, attr, masks):
    index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    attr = torch.stack(attr) if attr else torch.zeros(0, E, dtype=torch.float64)
    return model(x, index, masks=masks, edge_attr=attr)


@examples(40)
@given(graphs(directed=False), st.booleans(), st.booleans(), st.data())
def test_a_masked_node_is_invisible_in_the_prediction(graph, multi, jk, data):
    numbers, n = graph.numbers(), graph.num_nodes
    model = numbers.fill(
        SoftMaskGNN(F, D, LAYERS, 2, multi_channel=multi, jk=jk, head="regressor", edge_channels=E)
    ).eval()
    pairs, attr = _edges(graph)
    x, masks = numbers.normal(n, F), numbers.mask(LAYERS, n, D if multi else 1)
    shut = data.draw(st.sets(st.integers(0, n - 1))) if n else set()
    masks[:, sorted(shut)] = 0.0
    whole = _predict(model, x, pairs, attr, masks)
    rest = [v for v in range(n) if v not in shut]
    name = {v: i for i, v in enumerate(rest)}
    inside = [i for i, (s, t) in enumerate(pairs) if s in name and t in name]
    left = [(name[pairs[i][0]], name[pairs[i][1]]) for i in inside]
    without = _predict(model, x[rest], left, [attr[i] for i in inside], masks[:, rest])
    torch.testing.assert_close(whole, without, **EXACT)
    # What a masked node holds, and what its edges carry, is not seen either.
    strange = x.clone()
    strange[sorted(shut)] = 1e3
    touched = [a if i in inside else a + 5 for i, a in enumerate(attr)]
    torch.testing.assert_close(_predict(model, strange, pairs, touched, masks), whole, **EXACT)
