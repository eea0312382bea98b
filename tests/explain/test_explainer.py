"""SoftMaskExplainer behind PyG's own Explainer, and with PyG's metrics."""

import numpy as np
import pytest
import torch
from torch_geometric.explain import Explainer
from torch_geometric.explain.config import ThresholdConfig
from torch_geometric.explain.metric import characterization_score, fidelity, unfaithfulness

from softmask.explain import SoftMaskExplainer, node_importance, node_masks
from softmask.nn import MaskNet, SoftMaskConv, SoftMaskGNN

CLASSES = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}
NUMBERS = {"mode": "regression", "task_level": "graph", "return_type": "raw"}
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 4, 5], [1, 0, 2, 1, 3, 2, 5, 4]])
BATCH = torch.tensor([0, 0, 0, 0, 1, 1])


def explainer(model, config=None, algorithm=None, **more):
    algorithm = SoftMaskExplainer() if algorithm is None else algorithm
    settings = {"explanation_type": "model", "node_mask_type": "object", "model_config": config or CLASSES} | more
    return Explainer(model, algorithm, **settings)


def model_and_input(**options):
    torch.manual_seed(0)
    return SoftMaskGNN(3, 8, 3, 2, **options), torch.rand(6, 3)


@pytest.mark.parametrize("jk", [False, True])
@pytest.mark.parametrize("multi_channel", [False, True])
def test_the_node_mask_is_the_importance(jk, multi_channel):
    model, x = model_and_input(jk=jk, multi_channel=multi_channel)
    found = explainer(model)(x, EDGES, batch=BATCH)
    _, masks = model.eval()(x, EDGES, BATCH, return_masks=True)
    own = node_importance(node_masks(masks), EDGES, jk, BATCH)
    own = torch.cat([part / part.max() for part in own.split([4, 2])])
    assert found.node_mask.shape == (6, 1)
    torch.testing.assert_close(found.node_mask[:, 0], own)
    assert found.available_explanations == ["node_mask"]
    assert found.validate()


def test_the_model_is_as_before():
    model, x = model_and_input()
    model.train()
    explainer(model)(x, EDGES, batch=BATCH)
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


def test_regression():
    model, x = model_and_input(head="regressor")
    found = explainer(model, NUMBERS)(x, EDGES, batch=BATCH)
    assert found.target.shape == (2, 2)
    assert float(found.node_mask.max()) == 1.0


def test_the_metrics_of_pyg_take_it():
    model, x = model_and_input()
    chosen = explainer(model)
    found = chosen(x, EDGES, batch=BATCH)
    plus, minus = fidelity(chosen, found)
    score = characterization_score(torch.tensor(plus), torch.tensor(minus))
    assert 0 <= plus <= 1
    assert 0 <= minus <= 1
    assert 0 <= float(score) <= 1
    assert 0 <= unfaithfulness(chosen, found) < 1
    # A mask of ones changes nothing, so it must be perfectly faithful.
    found.node_mask = torch.ones_like(found.node_mask)
    assert fidelity(chosen, found)[1] == 0
    assert unfaithfulness(chosen, found) == pytest.approx(0, abs=1e-6)


def test_thresholds_and_pictures_of_pyg():
    model, x = model_and_input()
    found = explainer(model, threshold_config=ThresholdConfig("topk_hard", 2))(x, EDGES)
    assert sorted(found.node_mask[:, 0].tolist()) == [0, 0, 0, 0, 1, 1]
    part = found.get_explanation_subgraph()
    assert part.num_nodes == 2


class Own(torch.nn.Module):
    """Somebody's model with our layers in it, the mask given by name."""

    def __init__(self):
        super().__init__()
        self.net, self.conv, self.last = MaskNet(3, 4), SoftMaskConv(3, 5), SoftMaskConv(5, 5)
        self.head = torch.nn.Linear(5, 2)

    def forward(self, x, edge_index):
        mask = self.net(x, edge_index)
        h = self.conv(x, edge_index, mask=mask)
        return self.head(self.last(h, edge_index, mask.square()).sum(dim=0, keepdim=True))


def test_a_module_that_holds_the_layers():
    torch.manual_seed(0)
    model, x = Own(), torch.rand(6, 3)
    found = explainer(model)(x, EDGES).node_mask[:, 0]
    mask = model.net(x, EDGES).detach()
    own = node_importance(torch.cat([mask, mask.square()], dim=1), EDGES)
    torch.testing.assert_close(found, own / own.max())
    jk = explainer(model, algorithm=SoftMaskExplainer(jk=True))(x, EDGES).node_mask[:, 0]
    assert not torch.allclose(found, jk)


def test_a_model_without_masks_is_refused():
    class Plain(torch.nn.Module):
        def forward(self, x, edge_index):
            return x.sum(dim=0, keepdim=True)

    with pytest.raises(ValueError, match="no soft-mask layer"):
        explainer(Plain())(torch.rand(6, 3), EDGES)


@pytest.mark.parametrize(
    "wrong",
    [
        {"node_mask_type": "attributes"},
        {"edge_mask_type": "object"},
        {"explanation_type": "phenomenon"},
        {"config": CLASSES | {"task_level": "node"}},
    ],
)
def test_what_it_does_not_explain(wrong, caplog):
    model, _ = model_and_input()
    with pytest.raises(ValueError, match="does not support"):
        explainer(model, **wrong)
    assert "SoftMaskExplainer" in caplog.text


def test_a_reduction_for_the_channels():
    model, x = model_and_input(multi_channel=True)
    by = {r: explainer(model, algorithm=SoftMaskExplainer(r))(x, EDGES).node_mask.numpy() for r in ("mean", "max")}
    assert not np.allclose(by["mean"], by["max"])
