"""The layers and the model of the paper."""

from softmask.nn.dropout import KeyedDropout
from softmask.nn.mask_net import MaskNet
from softmask.nn.soft_mask_conv import SoftMaskConv
from softmask.nn.soft_mask_gnn import SoftMaskGNN
from softmask.nn.variants import VARIANTS

__all__ = ["VARIANTS", "KeyedDropout", "MaskNet", "SoftMaskConv", "SoftMaskGNN"]
