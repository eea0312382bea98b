"""The sum of outer products over the places of each node: definition, gradient, vmap rule, and the plain form."""

import torch
from torch import Tensor

from softmask.ops.segments import side_by_side

try:
    from softmask.ops import triton_outer
except ImportError:  # without triton the plain form serves CUDA too
    triton_outer = None  # type: ignore[assignment]


def outer_sum(a: Tensor, b: Tensor) -> Tensor:
    r"""Sums the outer products of what a node's edges carry,

    .. math::
        \mathbf{Y}_v = \sum_p \mathbf{a}_{vp} \mathbf{b}_{vp}^\top .

    There are a few places, so that the results, which are many times as large as the arguments, are what takes the
    time: on CUDA they are written once, and their gradient is read once.

    Args:
        a: ``[nodes, places, m]``.
        b: ``[nodes, places, n]``.

    Returns:
        ``[nodes, m, n]``.
    """
    return _outer_sum(a, b) if a.is_cuda and triton_outer is not None else _plain(a, b)


def _plain(a: Tensor, b: Tensor) -> Tensor:
    return a.transpose(1, 2) @ b


@torch.library.custom_op("softmask::outer_sum", mutates_args=())
def _outer_sum(a: Tensor, b: Tensor) -> Tensor:
    return _plain(a, b)


@torch.library.custom_op("softmask::outer_sum_backward", mutates_args=())
def _outer_sum_backward(grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return b @ grad.transpose(1, 2), a @ grad


@_outer_sum.register_kernel("cuda")
def _(a, b):
    return triton_outer.outer_sum(a, b)


@_outer_sum_backward.register_kernel("cuda")
def _(grad, a, b):
    return triton_outer.outer_sum_backward(grad, a, b)


@_outer_sum.register_fake
def _(a, b):
    return a.new_empty(a.size(0), a.size(2), b.size(2))


@_outer_sum_backward.register_fake
def _(grad, a, b):
    return a.new_empty(a.shape), b.new_empty(b.shape)


def _setup_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad):
    return _outer_sum_backward(grad, *ctx.saved_tensors)


_outer_sum.register_autograd(_backward, setup_context=_setup_context)


@_outer_sum.register_vmap
def _(info, in_dims, *args):
    return _beside(_outer_sum, info.batch_size, in_dims, args)[0], 0


@_outer_sum_backward.register_vmap
def _(info, in_dims, *args):
    return _beside(_outer_sum_backward, info.batch_size, in_dims, args), (0, 0)


def _beside(op, replicas, in_dims, args):
    """Replicas side by side are one large graph."""
    moved = [side_by_side(t, dim, replicas) for t, dim in zip(args, in_dims)]
    out = op(*(t.flatten(0, 1) for t in moved if t is not None))
    return tuple(t.unflatten(0, (replicas, -1)) for t in (out if isinstance(out, tuple) else (out,)))
