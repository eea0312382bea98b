"""The masks behind PyG's interface for explainers."""

import logging
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain import Explanation
from torch_geometric.explain.algorithm import ExplainerAlgorithm
from torch_geometric.explain.config import ExplanationType, MaskType, ModelTaskLevel

from softmask.explain.importance import largest_one, node_importance
from softmask.explain.masks import node_masks
from softmask.nn import Committee, SoftMaskConv, SoftMaskGNN
from softmask.nn.edge_soft_mask_conv import EdgeSoftMaskConv


class SoftMaskExplainer(ExplainerAlgorithm):
    r"""Explains models of soft-mask layers by the masks of their own forward pass, as
    :class:`~torch_geometric.explain.AttentionExplainer` does with attention.

    The explanation's ``node_mask``, ``[nodes, 1]``, is :func:`~softmask.explain.node_importance` over all layers in the
    order in which they ran, divided by the largest of the graph. It needs one forward pass and nothing to train, for
    classification and regression of graphs alike. The model may be a :class:`~softmask.nn.SoftMaskGNN`, a
    :class:`~softmask.nn.Committee` of them, or any module whose :class:`~softmask.nn.SoftMaskConv` layers run one after
    the other.

    Args:
        reduction: how the channels of multi-channel masks become one number: ``mean``, ``max`` or ``norm``.
        jk: whether the model reads out all of its layers; by default what its :class:`~softmask.nn.SoftMaskGNN` says,
            else only the last.

    Example:
        >>> explainer = Explainer(
        ...     model, SoftMaskExplainer(), explanation_type="model", node_mask_type="object",
        ...     model_config=dict(mode="multiclass_classification", task_level="graph", return_type="raw"),
        ... )  # doctest: +SKIP
        >>> explanation = explainer(x, edge_index, batch=batch)  # doctest: +SKIP
    """

    def __init__(self, reduction: str = "mean", jk: bool | None = None):
        super().__init__()
        self.reduction = reduction
        self.jk = jk

    def forward(
        self,
        model: torch.nn.Module,
        x: Tensor,
        edge_index: Tensor,
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        **kwargs: Any,
    ) -> Explanation:
        """"""  # noqa: D419
        if isinstance(x, dict):
            raise TypeError(f"{self.__class__.__name__} explains graphs with one kind of node")
        masks = _masks_of(model, x, edge_index, **kwargs)
        jk = self.jk
        if jk is None:
            jk = any(module.jk for module in model.modules() if isinstance(module, SoftMaskGNN))
        batch = kwargs.get("batch")
        if batch is None:
            batch = torch.zeros(x.size(0), dtype=torch.long, device=x.device)
        importance = node_importance(node_masks(masks, self.reduction), edge_index, jk, batch)
        graphs = int(batch.max()) + 1 if batch.numel() else 0
        return Explanation(node_mask=largest_one(importance, batch, graphs).unsqueeze(1))

    def supports(self) -> bool:
        """Explanations of graph-level models, with a mask for each node and none for edges."""
        name = self.__class__.__name__
        if self.explainer_config.explanation_type != ExplanationType.model:
            logging.error(f"'{name}' explains what the model does: set explanation_type='model'")
            return False
        if self.model_config.task_level != ModelTaskLevel.graph:
            logging.error(f"'{name}' explains graph-level models, not task_level={self.model_config.task_level.value}")
            return False
        if self.explainer_config.node_mask_type != MaskType.object:
            logging.error(f"'{name}' gives one number for each node: set node_mask_type='object'")
            return False
        if self.explainer_config.edge_mask_type is not None:
            logging.error(f"'{name}' does not explain edges: leave edge_mask_type out")
            return False
        return True


@torch.no_grad()
def _masks_of(model: torch.nn.Module, *args: Any, **kwargs: Any) -> list[Tensor]:
    """The mask that every soft-mask layer took in one forward pass, in the order in which they ran; of a committee,
    those of all members side by side.
    """
    if isinstance(model, Committee):
        return model(*args, **kwargs, return_masks=True)[1]
    masks: list[Tensor] = []

    def keep(module: torch.nn.Module, given: tuple, named: dict[str, Any], out: Tensor) -> None:
        mask = named["mask"] if "mask" in named else given[2]
        masks.append(mask.detach())

    layers = [module for module in model.modules() if isinstance(module, SoftMaskConv | EdgeSoftMaskConv)]
    handles = [layer.register_forward_hook(keep, with_kwargs=True) for layer in layers]
    try:
        model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    if not masks:
        raise ValueError("the model has no soft-mask layer (SoftMaskConv): there are no masks to explain it with")
    return masks
