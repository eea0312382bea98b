"""What the masks say: numbers, scores, pictures."""

from softmask.explain.draw import draw_masks
from softmask.explain.masks import node_masks
from softmask.explain.score import mask_auc

__all__ = ["draw_masks", "mask_auc", "node_masks"]
