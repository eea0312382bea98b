"""The layer of graph attention networks, on our operators."""

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import glorot, zeros

from softmask.ops import Neighbours, as_neighbours, attention_sum


class GATConv(torch.nn.Module):
    r"""The layer of `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_, its heads side by side,

    .. math::
        \mathbf{h}^{\prime}_v = \mathbf{b} + \big\Vert_{i=1}^{\mathrm{heads}} \sum_{u \in \mathcal{N}(v) \cup \{v\}}
        \alpha^i_{uv} \mathbf{W}^i \mathbf{h}_u, \qquad \alpha^i_{uv} = \mathrm{softmax}_u \, \mathrm{LeakyReLU} \left(
        \mathbf{a}^i_{\mathrm{src}} \cdot \mathbf{W}^i \mathbf{h}_u + \mathbf{a}^i_{\mathrm{dst}} \cdot \mathbf{W}^i
        \mathbf{h}_v \right)

    It computes what PyG's ``GATConv(in_channels, out_channels, heads)`` does, has its parameters by their names, and
    works under ``vmap``. Every node attends to itself once, whether or not it has a self loop.

    Args:
        in_channels: size of each input vector, or ``-1`` to take it from the first input.
        out_channels: size of each head's output.
        heads: number of heads.

    Shapes:
        - **x:** ``[nodes, in_channels]``
        - **edge_index:** ``[2, edges]``, ``EdgeIndex``, sparse ``[nodes, nodes]`` or :class:`~softmask.ops.Neighbours`
        - **output:** ``[nodes, heads * out_channels]``
    """

    def __init__(self, in_channels: int, out_channels: int, heads: int = 1):
        super().__init__()
        self.out_channels = out_channels
        self.heads = heads
        self.lin = Linear(in_channels, heads * out_channels, bias=False, weight_initializer="glorot")
        self.att_src = torch.nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = torch.nn.Parameter(torch.empty(1, heads, out_channels))
        self.bias = torch.nn.Parameter(torch.empty(heads * out_channels))
        self.reset_parameters()

    @property
    def in_channels(self) -> int:
        """Size of each input vector; -1 while it is not known."""
        return self.lin.in_channels

    def reset_parameters(self) -> None:
        """Draws all weights anew (Glorot and Bengio's uniform), and sets the bias to zero."""
        self.lin.reset_parameters()
        glorot(self.att_src)
        glorot(self.att_dst)
        zeros(self.bias)

    def forward(self, x: Tensor, edge_index: Tensor | EdgeIndex | Neighbours) -> Tensor:
        """"""  # noqa: D419
        neighbours = as_neighbours(edge_index, x.size(0))
        x = self.lin(x).unflatten(-1, (self.heads, self.out_channels))
        # Scores go through an exponential: of half precision, 8 bits, their error would be the attention's.
        wide = x if x.dtype == torch.float64 else x.float()
        # As a matrix product of every head. Of a sum of products the compiler (torch 2.11, triton 3.6) made a kernel of
        # the gradient that read from a misaligned address on an H200.
        both = torch.cat([self.att_src, self.att_dst]).permute(1, 2, 0).to(wide.dtype)
        source, target = (wide.transpose(0, 1) @ both).unbind(dim=-1)
        return attention_sum(x, source.t(), target.t(), neighbours, itself=True).flatten(-2) + self.bias

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"
