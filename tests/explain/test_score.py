import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from softmask.errors import SettingError
from softmask.explain import Fidelity, mask_auc, node_masks, precision_at_k


@settings(deadline=None, max_examples=150)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    levels=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    shuffle=st.booleans(),
)
def test_is_the_mean_of_scikit_learns_area(sizes, levels, seed, shuffle):
    rng = np.random.default_rng(seed)
    batch = np.repeat(np.arange(len(sizes)), sizes)
    mask = rng.integers(0, levels, len(batch)) / levels  # few levels: many ties
    truth = rng.random(len(batch)) < 0.4
    if shuffle:
        order = rng.permutation(len(batch))
        batch, mask, truth = batch[order], mask[order], truth[order]
    areas = [
        roc_auc_score(truth[batch == g], mask[batch == g])
        for g in range(len(sizes))
        if 0 < truth[batch == g].sum() < sizes[g]
    ]
    if areas:
        assert mask_auc(mask, truth, batch) == pytest.approx(np.mean(areas), abs=1e-12)
    else:
        with pytest.raises(SettingError, match="nothing to find"):
            mask_auc(mask, truth, batch)


def test_ends_of_the_scale():
    truth = torch.tensor([1, 1, 0, 0, 1, 0, 0], dtype=torch.int8)
    batch = torch.tensor([0, 0, 0, 0, 1, 1, 1])
    perfect = truth.float().unsqueeze(1)
    assert mask_auc(perfect, truth, batch) == 1.0
    assert mask_auc(1 - perfect, truth, batch) == 0.0
    assert mask_auc(torch.full((7,), 0.5), truth, batch) == 0.5


def test_graphs_are_not_mixed():
    """The second graph's masks are larger throughout; within each graph the order is right."""
    mask = torch.tensor([0.2, 0.1, 0.9, 0.8], requires_grad=True)
    assert mask_auc(mask, [True, False, True, False], [0, 0, 1, 1]) == 1.0


def test_graphs_without_truth_are_left_out():
    mask, truth = [0.1, 0.9, 0.3, 0.4, 0.5, 0.6], [0, 1, 0, 0, 1, 1]
    assert mask_auc(mask, truth, [0, 0, 1, 1, 2, 2]) == 1.0


@pytest.mark.parametrize(
    ("mask", "truth", "batch", "message"),
    [
        ([0.1, 0.2], [0, 1, 1], [0, 0, 0], "of 2, 3 and 3 nodes"),
        ([0.1, float("nan")], [0, 1], [0, 0], "node 1 is not a finite"),
        (np.zeros((2, 3)), [0, 1], [0, 0], r"shape \[2, 3\]"),
        ([], [], [], "no nodes"),
    ],
)
def test_wrong_input(mask, truth, batch, message):
    with pytest.raises(SettingError, match=message):
        mask_auc(mask, truth, batch)


def test_node_masks_has_a_column_for_each_layer():
    masks = [torch.rand(5, 1, requires_grad=True), torch.rand(5), torch.rand(5, 8)]
    table = node_masks(masks)
    assert table.shape == (5, 3)
    assert not table.requires_grad
    assert torch.equal(table[:, 0], masks[0][:, 0])
    assert torch.equal(table[:, 1], masks[1])
    for v in range(5):
        assert float(table[v, 2]) == pytest.approx(sum(masks[2][v].tolist()) / 8)
    with pytest.raises(ValueError, match="no masks"):
        node_masks([])


def test_precision_at_k_counts_the_true_among_the_largest():
    score = [0.9, 0.8, 0.1, 0.2, 0.5, 0.4]
    truth = [1, 0, 1, 0, 0, 0]
    batch = [0, 0, 0, 0, 0, 0]
    assert precision_at_k(score, truth, batch) == 0.5
    assert precision_at_k(score, truth, batch, k=1) == 1.0
    assert precision_at_k(score, truth, batch, k=3) == pytest.approx(1 / 3)
    assert precision_at_k(score, truth, batch, k=99) == pytest.approx(1 / 3)


def test_precision_at_k_takes_ties_at_random():
    # Two places for four equals, of which one is true: half a true node among two.
    assert precision_at_k([1, 1, 1, 1], [1, 0, 0, 0], [0] * 4, k=2) == pytest.approx(0.25)
    rng = np.random.default_rng(0)
    score, truth = rng.integers(0, 3, 12), rng.integers(0, 2, 12)
    drawn = [precision_at_k(score + 1e-6 * rng.random(12), truth, [0] * 12, k=5) for _ in range(4000)]
    assert precision_at_k(score, truth, [0] * 12, k=5) == pytest.approx(np.mean(drawn), abs=0.02)


def test_precision_at_k_is_a_mean_over_graphs_that_have_both():
    score, truth, batch = [3, 1, 1, 2, 5, 5], [1, 0, 1, 0, 1, 1], [0, 0, 1, 1, 2, 2]
    assert precision_at_k(score, truth, batch) == 0.5
    with pytest.raises(SettingError, match="k=0"):
        precision_at_k(score, truth, batch, k=0)


@pytest.mark.parametrize(
    ("plus", "minus", "expected"), [(1, 0, 1), (0.5, 0.5, 0.5), (0, 0, 0), (1, 1, 0), (0.5, 0, 2 / 3)]
)
def test_characterization_is_that_of_pyg(plus, minus, expected):
    from torch_geometric.explain.metric import characterization_score

    assert Fidelity(plus, minus, 0.0).characterization == pytest.approx(expected)
    if plus > 0 and minus < 1:
        assert float(characterization_score(plus, minus)) == pytest.approx(expected)
