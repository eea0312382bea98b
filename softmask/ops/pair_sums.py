"""The filtered sums over all pairs of nodes: definition, gradient, vmap rule, and the plain PyTorch implementation."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from softmask.ops.pair_blocks import Blocks, split_nodes, split_pairs
from softmask.ops.segments import side_by_side

try:
    from softmask.ops import triton_pairs
except ImportError:  # without triton the plain implementation serves CUDA too
    triton_pairs = None  # type: ignore[assignment]


def pair_sums(
    filters: Tensor, x: Tensor, direction: Tensor, vectors: Tensor | None, blocks: Blocks
) -> tuple[Tensor, Tensor]:
    r"""The filtered sums over the nodes of each graph, of numbers and of vectors in space,

    .. math::
        \mathbf{s}_v = \sum_u \mathbf{f}_{vu} \odot \mathbf{x}_u \qquad
        \mathbf{t}_v = \sum_u \mathbf{f}_{vu} \odot (\mathbf{x}_u \otimes \mathbf{r}_{vu} + \mathbf{y}_u) .

    On CUDA, where triton is there, a kernel makes one pass over the filters, and its gradient another; it cannot be
    differentiated twice.

    Args:
        filters: ``[pairs or more, channels]``, zero where there is no pair.
        x: ``[nodes, channels]``.
        direction: ``[pairs or more, 3]``.
        vectors: ``[nodes, 3, channels]``; ``None`` for zero.
        blocks: the layout of nodes and pairs, see :class:`~softmask.ops.pair_blocks.PairBlocks`.

    Returns:
        ``[nodes, channels]`` and ``[nodes, 3, channels]``.
    """
    if not filters.is_cuda or triton_pairs is None:
        return _plain(filters, x, direction, vectors, blocks)
    alone = (filters.unsqueeze(0), x.unsqueeze(0), direction.unsqueeze(0))
    own = None if vectors is None else vectors.unsqueeze(0)
    plain, along = _pair_sums(*alone, own, [size for block in blocks for size in block])
    return plain.squeeze(0), along.squeeze(0)


def _plain(
    filters: Tensor, x: Tensor, direction: Tensor, vectors: Tensor | None, blocks: Blocks
) -> tuple[Tensor, Tensor]:
    """One small matrix product a node."""
    parts = (split_pairs(filters, blocks), split_nodes(x, blocks), split_pairs(direction, blocks))
    carried = [None] * len(blocks) if vectors is None else split_nodes(vectors, blocks)
    sums, turned = zip(*(_of_block(*part) for part in zip(*parts, carried)))
    return torch.cat([s.flatten(0, 1) for s in sums]), torch.cat([t.flatten(0, 1) for t in turned])


def _of_block(filters: Tensor, x: Tensor, direction: Tensor, vectors: Tensor | None) -> tuple[Tensor, Tensor]:
    factors = torch.cat([torch.ones_like(direction[..., :1]), direction], dim=-1).transpose(-1, -2)
    sums = factors @ (filters * x.unsqueeze(1))
    plain, along = sums[..., 0, :], sums[..., 1:, :]
    if vectors is not None:
        along = along + torch.stack([(filters * own.unsqueeze(1)).sum(dim=2) for own in vectors.unbind(2)], dim=2)
    return plain, along


def _blocks(sizes: list[int]) -> Blocks:
    return tuple(zip(sizes[::2], sizes[1::2]))


def _replica(tensors: Sequence[Tensor | None], replica: int, sizes: list[int]) -> list[Any]:
    """The arguments of one replica alone."""
    return [*(None if t is None else t[replica] for t in tensors), _blocks(sizes)]


# The operators take replicas side by side: the first dimension of all tensors.
@torch.library.custom_op("softmask::pair_sums", mutates_args=())
def _pair_sums(
    filters: Tensor, x: Tensor, direction: Tensor, vectors: Tensor | None, sizes: list[int]
) -> tuple[Tensor, Tensor]:
    given = (filters, x, direction, vectors)
    every = [_plain(*_replica(given, r, sizes)) for r in range(len(x))]
    plain, along = (torch.stack(t) for t in zip(*every))
    return plain, along


@torch.library.custom_op("softmask::pair_sums_backward", mutates_args=())
def _pair_sums_backward(
    grad_plain: Tensor,
    grad_along: Tensor,
    filters: Tensor,
    x: Tensor,
    direction: Tensor,
    vectors: Tensor | None,
    sizes: list[int],
    turns: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""The gradients of filters, x, direction (if `turns`) and vectors: with :math:`\mathbf{a}_{vu} = \mathbf{g}_v +
    \sum_k r_{vuk} \mathbf{G}_{vk}` of the gradients :math:`\mathbf{g}` and :math:`\mathbf{G}` of the two sums,

    .. math::
        \frac{\partial}{\partial \mathbf{f}_{vu}} = \mathbf{x}_u \odot \mathbf{a}_{vu} + \sum_k \mathbf{y}_{uk} \odot
        \mathbf{G}_{vk}, \quad
        \frac{\partial}{\partial \mathbf{x}_u} = \sum_v \mathbf{f}_{vu} \odot \mathbf{a}_{vu}, \quad
        \frac{\partial}{\partial \mathbf{y}_{uk}} = \sum_v \mathbf{f}_{vu} \odot \mathbf{G}_{vk}, \quad
        \frac{\partial}{\partial r_{vuk}} = \langle \mathbf{f}_{vu} \odot \mathbf{x}_u, \mathbf{G}_{vk} \rangle .
    """
    given = (grad_plain, grad_along, filters, x, direction, vectors)
    every = [_plain_backward(*_replica(given, r, sizes)) for r in range(len(x))]
    of_filters, of_x, of_direction, of_vectors = (torch.stack(t) for t in zip(*every))
    if not turns:
        of_direction = x.new_empty(0)
    return of_filters, of_x, of_direction, x.new_empty(0) if vectors is None else of_vectors


def _plain_backward(grad_plain, grad_along, filters, x, direction, vectors, blocks):
    of_nodes = [split_nodes(t, blocks) for t in (grad_plain, grad_along, x)]
    of_nodes.append(split_nodes(torch.zeros_like(grad_along) if vectors is None else vectors, blocks))
    of_pairs = [split_pairs(t, blocks) for t in (filters, direction)]
    grads = []
    for g, along, own, y, f, r in zip(*of_nodes, *of_pairs):
        of_seen = g.unsqueeze(2) + r @ along
        of_filters = own.unsqueeze(1) * of_seen + torch.einsum("gukc,gvkc->gvuc", y, along)
        of_direction = (f * own.unsqueeze(1)) @ along.transpose(-1, -2)
        of_x, of_vectors = (f * of_seen).sum(dim=1), torch.einsum("gvuc,gvkc->gukc", f, along)
        made = (of_filters.flatten(0, 2), of_x.flatten(0, 1), of_direction.flatten(0, 2), of_vectors.flatten(0, 1))
        grads.append(made)
    of_filters, of_x, of_direction, of_vectors = (torch.cat(t) for t in zip(*grads))
    # Behind the last pair stands padding.
    of_filters = F.pad(of_filters, (0, 0, 0, len(filters) - len(of_filters)))
    of_direction = F.pad(of_direction, (0, 0, 0, len(direction) - len(of_direction)))
    return of_filters, of_x, of_direction, of_vectors


@_pair_sums.register_kernel("cuda")
def _(filters, x, direction, vectors, sizes):
    return triton_pairs.pair_sums(filters, x, direction, vectors, _blocks(sizes))


@_pair_sums_backward.register_kernel("cuda")
def _(grad_plain, grad_along, filters, x, direction, vectors, sizes, turns):
    grads = (grad_plain, grad_along)
    return triton_pairs.pair_sums_backward(*grads, filters, x, direction, vectors, _blocks(sizes), turns)


@_pair_sums.register_fake
def _(filters, x, direction, vectors, sizes):
    return x.new_empty(x.shape), x.new_empty(*x.shape[:2], 3, x.size(2))


@_pair_sums_backward.register_fake
def _(grad_plain, grad_along, filters, x, direction, vectors, sizes, turns):
    return (
        filters.new_empty(filters.shape),
        x.new_empty(x.shape),
        direction.new_empty(direction.shape if turns else 0),
        x.new_empty(0 if vectors is None else vectors.shape),
    )


def _setup_context(ctx, inputs, output):
    *tensors, ctx.sizes = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx, grad_plain, grad_along):
    turns = ctx.needs_input_grad[2]
    grads = _pair_sums_backward(grad_plain, grad_along, *ctx.saved_tensors, ctx.sizes, turns)
    of_filters, of_x, of_direction, of_vectors = grads
    vectors = ctx.saved_tensors[3]
    return of_filters, of_x, of_direction if turns else None, None if vectors is None else of_vectors, None


_pair_sums.register_autograd(_backward, setup_context=_setup_context)


@_pair_sums.register_vmap
def _(info, in_dims, *args):
    return _beside(_pair_sums, info.batch_size, in_dims, args, 4), (0, 0)


@_pair_sums_backward.register_vmap
def _(info, in_dims, *args):
    grads = _beside(_pair_sums_backward, info.batch_size, in_dims, args, 6)
    # Those that were not asked for are empty.
    return grads, (0, 0, 0 if args[-1] else None, None if args[5] is None else 0)


def _beside(op, replicas, in_dims, args, count):
    """More replicas, side by side with those that the arguments have already. The first `count` are tensors."""
    moved = [side_by_side(t, dim, replicas) for t, dim in zip(args[:count], in_dims)]
    out = op(*(None if t is None else t.flatten(0, 1) for t in moved), *args[count:])
    return tuple(t.unflatten(0, (replicas, -1)) if t.dim() > 1 else t for t in out)
