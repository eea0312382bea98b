"""The sum over neighbours: definition, gradient, vmap rule, and the plain PyTorch implementation."""

import torch
import torch.nn.functional as F
from torch import Tensor

from softmask.ops.levels import Round, list_sum
from softmask.ops.neighbours import Neighbours, replicas_beside
from softmask.ops.segments import side_by_side

try:
    from softmask.ops import triton_sums
except ImportError:  # without triton the plain implementation serves CUDA too
    triton_sums = None  # type: ignore[assignment]


def neighbour_sum(x: Tensor, neighbours: Neighbours | Round, mask: Tensor | None = None) -> Tensor:
    r"""Sums the neighbours' rows, each weighted by its mask,

    .. math::
        \mathbf{y}_v = \sum_{u \in \mathcal{N}(v) \setminus \{v\}} m_u \odot \mathbf{x}_u

    with multiplicity where an edge stands twice, and without self loops; each entry as often as its weight says, if
    the graph has weights.

    Args:
        x: ``[nodes, channels]``.
        neighbours: the graph; or a round of colour refinement, which leads from classes of nodes to finer ones.
        mask: ``[nodes, 1]`` or ``[nodes, channels]``; ``None`` stands for 1.

    Returns:
        ``[nodes, channels]``, or ``[classes of the next level, channels]``.
    """
    if mask is not None and mask.shape not in ((x.shape[0], 1), x.shape):
        raise ValueError(
            f"the mask has shape {list(mask.shape)}; expected [{x.shape[0]}, 1] or {list(x.shape)}, as x has"
        )
    if isinstance(neighbours, Round):
        return list_sum(x if mask is None else x * mask, neighbours.around)
    return _neighbour_sum(x, mask, *neighbours)


@torch.library.custom_op("softmask::neighbour_sum", mutates_args=())
def _neighbour_sum(
    x: Tensor,
    mask: Tensor | None,
    start: Tensor,
    end: Tensor,
    col: Tensor,
    base: Tensor | None,
    start_t: Tensor | None,
    end_t: Tensor | None,
    col_t: Tensor | None,
    bits: Tensor | None,
    bit_row: Tensor | None,
    size: Tensor | None,
    source: Tensor | None,
    offset: Tensor | None,
    hubs: bool | None = None,
    weight: Tensor | None = None,
    weight_t: Tensor | None = None,
    entry: Tensor | None = None,
    replicas: int = 1,
) -> Tensor:
    rows = Neighbours(start, end, col, base, source=source, offset=offset, weight=weight, entry=entry)
    return _plain(x, mask, rows)


def _plain(x: Tensor, mask: Tensor | None, neighbours: Neighbours) -> Tensor:
    source, offset, entry = neighbours.listed()
    if source.numel() == 0:
        return torch.zeros_like(x, memory_format=torch.contiguous_format)
    # embedding_bag adds rows of a table per bag without ever forming [edges, channels]; it weighs them by one
    # number each, so a multi-channel mask is multiplied in beforehand.
    weight = None
    if mask is not None:
        if mask.size(-1) == 1:
            weight = mask.reshape(-1)[source]
        else:
            x = x * mask
    if entry is not None:
        assert neighbours.weight is not None
        count = neighbours.weight[entry].to(x.dtype)
        weight = count if weight is None else weight * count
    return F.embedding_bag(source, x, offset, mode="sum", per_sample_weights=weight)


@_neighbour_sum.register_kernel("cuda")
def _(
    x, mask, start, end, col, base, start_t, end_t, col_t, bits, bit_row, size, source, offset,
    hubs=None, weight=None, weight_t=None, entry=None, replicas=1,
):  # fmt: skip
    if triton_sums is None:
        return _plain(x, mask, Neighbours(start, end, col, base, weight=weight))
    if bits is not None and x.dtype != torch.float64:
        precision = "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
        return triton_sums.bits_sum(x, mask, bits, bit_row, base, size, replicas, precision)
    return triton_sums.csr_sum(x, mask, start, end, col, base, hubs is not False, weight)


@_neighbour_sum.register_fake
def _(
    x, mask, start, end, col, base, start_t, end_t, col_t, bits, bit_row, size, source, offset,
    hubs=None, weight=None, weight_t=None, entry=None, replicas=1,
):  # fmt: skip
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _setup_context(ctx, inputs, output):
    x, mask, *fields, ctx.replicas = inputs
    neighbours = Neighbours(*fields)
    ctx.hubs = neighbours.hubs
    ctx.save_for_backward(None if mask is None else x, mask, *neighbours._replace(hubs=None))


def _backward(ctx, grad):
    x, mask, *fields = ctx.saved_tensors
    turned = Neighbours(*fields)._replace(hubs=ctx.hubs).transpose()
    # The gradient of a sum over in-neighbours is the sum over out-neighbours.
    grad_x = _neighbour_sum(grad, None, *turned, ctx.replicas)
    grad_mask = None
    if mask is not None:
        if ctx.needs_input_grad[1]:
            grad_mask = grad_x * x
            if mask.size(-1) == 1:
                grad_mask = grad_mask.sum(-1, keepdim=True)
        grad_x = grad_x * mask
    return grad_x, grad_mask, *[None] * (len(fields) + 1)


_neighbour_sum.register_autograd(_backward, setup_context=_setup_context)


@_neighbour_sum.register_vmap
def _(
    info, in_dims, x, mask, start, end, col, base, start_t, end_t, col_t, bits, bit_row, size, source, offset,
    hubs=None, weight=None, weight_t=None, entry=None, inner=1,
):  # fmt: skip
    """Replicas side by side are one large graph."""
    replicas = info.batch_size
    if bits is not None and in_dims[9] is not None:
        raise ValueError("the bit matrices belong to the store and are shared by all replicas")
    x, mask = (side_by_side(t, dim, replicas) for t, dim in zip((x, mask), in_dims))
    nodes = x.size(1)
    lists = (start, end, col, base, start_t, end_t, col_t, bits, bit_row, size, source, offset)
    neighbours, dims = Neighbours(*lists, hubs, weight, weight_t, entry), Neighbours(*in_dims[2:14])
    if weight is not None and dims.col is not None:
        raise ValueError("the weights belong to the store and are shared by all replicas")
    flat = replicas_beside(neighbours, dims, replicas, nodes)
    out = _neighbour_sum(
        x.reshape(replicas * nodes, x.size(-1)),
        None if mask is None else mask.reshape(replicas * nodes, mask.size(-1)),
        *flat,
        inner * replicas,
    )
    return out.reshape(replicas, nodes, out.size(-1)), 0
