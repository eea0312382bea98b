"""What the masks say: numbers, scores, pictures."""

from softmask.explain.draw import draw_masks
from softmask.explain.explainer import SoftMaskExplainer
from softmask.explain.explanation import Explanation, explain
from softmask.explain.faithfulness import predict_kept, removal_curve, shut_one, threshold_curve
from softmask.explain.importance import node_importance
from softmask.explain.masks import node_masks
from softmask.explain.score import Fidelity, fidelity, mask_auc, precision_at_k, stability

__all__ = [
    "Explanation",
    "Fidelity",
    "SoftMaskExplainer",
    "draw_masks",
    "explain",
    "fidelity",
    "mask_auc",
    "node_importance",
    "node_masks",
    "precision_at_k",
    "predict_kept",
    "removal_curve",
    "shut_one",
    "stability",
    "threshold_curve",
]
