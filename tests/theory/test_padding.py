"""Padding changes nothing: nodes of no graph (batch = -1, no edges) and graphs without nodes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, examples, graphs

from softmask.nn import VARIANTS, SoftMaskGNN


@pytest.mark.parametrize("readout", ["sum", "mean"])
@pytest.mark.parametrize("variant", VARIANTS)
@examples(12)
@given(
    graph=graphs(),
    num_layers=st.integers(1, 3),
    nodes=st.integers(0, 4),
    empty=st.integers(0, 2),
    tokens=st.booleans(),
)
def test_padding(variant, readout, graph, num_layers, nodes, empty, tokens):
    numbers = graph.numbers()
    model = numbers.fill(SoftMaskGNN(4, 3, num_layers, 2, **VARIANTS[variant], readout=readout))

    def features(n):
        # Padding may hold anything finite: it must not get through.
        return numbers.permutation(4 * n)[:n] % 4 if tokens else numbers.normal(n, 4)

    x = features(graph.num_nodes)
    weight = numbers.normal(graph.num_graphs, 2)
    names = [name for name, _ in model.named_parameters()]

    def run(*args):
        out, masks = model(*args, return_masks=True)
        loss = (out[: graph.num_graphs] * weight).sum()
        return out, masks, torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)

    out, masks, grads = run(x, graph.edge_index, graph.batch_vector, graph.num_graphs)
    padded_batch = torch.cat([graph.batch_vector, torch.full((nodes,), -1)])
    padded, padded_masks, padded_grads = run(
        torch.cat([x, features(nodes)]), graph.edge_index, padded_batch, graph.num_graphs + empty
    )
    assert padded.shape == (graph.num_graphs + empty, 2)
    torch.testing.assert_close(padded[: graph.num_graphs], out, **EXACT)
    for name, grad, padded_grad in zip(names, grads, padded_grads):
        torch.testing.assert_close(padded_grad, grad, **EXACT, msg=lambda m, name=name: f"{name}: {m}")
    for mask, padded_mask in zip(masks, padded_masks):
        torch.testing.assert_close(padded_mask[: graph.num_nodes], mask, **EXACT)


@examples(20)
@given(graphs(), st.integers(1, 3), st.integers(1, 4))
def test_padding_holds_zero_in_every_layer(graph, num_layers, nodes):
    numbers = graph.numbers()
    model = numbers.fill(SoftMaskGNN(2, 3, num_layers, 2))
    x = numbers.normal(graph.num_nodes + nodes, 2)
    batch = torch.cat([graph.batch_vector, torch.full((nodes,), -1)])
    h = model.node_embeddings(x, graph.edge_index, batch=batch)
    assert (h[graph.num_nodes :] == 0).all()
