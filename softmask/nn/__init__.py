"""The layers and the models of the paper."""

from softmask.nn.committee import Committee
from softmask.nn.dropout import KeyedDropout
from softmask.nn.edge_soft_mask_conv import EdgeSoftMaskConv
from softmask.nn.gat import GAT
from softmask.nn.gat_conv import GATConv
from softmask.nn.geometric_conv import GeometricSoftMaskConv
from softmask.nn.geometric_gnn import GeometricSoftMaskGNN
from softmask.nn.mask_net import MaskNet
from softmask.nn.soft_mask_conv import SoftMaskConv
from softmask.nn.soft_mask_gnn import SoftMaskGNN
from softmask.nn.variants import VARIANTS

__all__ = [
    "GAT",
    "VARIANTS",
    "Committee",
    "EdgeSoftMaskConv",
    "GATConv",
    "GeometricSoftMaskConv",
    "GeometricSoftMaskGNN",
    "KeyedDropout",
    "MaskNet",
    "SoftMaskConv",
    "SoftMaskGNN",
]
