"""The sum over a node's edges of vectors times mixtures of matrices: definition, gradient, vmap rule, plain form."""

import torch
from torch import Tensor

try:
    from softmask.ops import triton_mixed
except ImportError:  # without triton the plain form serves CUDA too
    triton_mixed = None  # type: ignore[assignment]

# A kernel holds the vectors of all places of some nodes; beyond so many the plain form is better.
_MOST_PLACES = 8


def mixed_sum(a: Tensor, b: Tensor, matrices: Tensor) -> Tensor:
    r"""Multiplies the vector of every edge with a matrix of its own, a mixture of a few matrices, and sums over the
    edges of each node,

    .. math::
        \mathbf{y}_v = \sum_p \mathbf{b}_{vp} \sum_c a_{vpc} \mathbf{W}_c .

    The matrix of an edge is never formed. The plain form has the sum over edges inside, :math:`\sum_c \left( \sum_p
    a_{vpc} \mathbf{b}_{vp} \right) \mathbf{W}_c`; on CUDA what stands in brackets, many times as large as the
    arguments, is made piece by piece inside a kernel. For float32 arguments its products are of TF32, which rounds what
    is multiplied to 10 bits, as torch's convolutions do; sums are float32.

    Args:
        a: ``[nodes, places, c]``, the mixture of each edge.
        b: ``[nodes, places, m]``, its vector.
        matrices: ``[c, m, n]``.

    Returns:
        ``[nodes, n]``.
    """
    fits = a.is_cuda and triton_mixed is not None and 0 < a.size(1) <= _MOST_PLACES and a.dtype != torch.float64
    if not fits:
        return _plain(a, b, matrices)
    return _mixed_sum(a.unsqueeze(0), b.unsqueeze(0), matrices.unsqueeze(0)).squeeze(0)


def _plain(a: Tensor, b: Tensor, matrices: Tensor) -> Tensor:
    return (a.transpose(-1, -2) @ b).flatten(-2) @ matrices.flatten(-3, -2)


# The operators have all replicas in their first dimension.


@torch.library.custom_op("softmask::mixed_sum", mutates_args=())
def _mixed_sum(a: Tensor, b: Tensor, matrices: Tensor) -> Tensor:
    return _plain(a, b, matrices)


@torch.library.custom_op("softmask::mixed_sum_backward", mutates_args=())
def _mixed_sum_backward(grad: Tensor, a: Tensor, b: Tensor, matrices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    sums = a.transpose(-1, -2) @ b
    of_matrices = (sums.flatten(-2).transpose(-1, -2) @ grad).reshape(matrices.shape)
    of_sums = (grad @ matrices.flatten(-3, -2).transpose(-1, -2)).reshape(sums.shape)
    return b @ of_sums.transpose(-1, -2), a @ of_sums, of_matrices


@_mixed_sum.register_kernel("cuda")
def _(a, b, matrices):
    return triton_mixed.mixed_sum(a, b, matrices)


@_mixed_sum_backward.register_kernel("cuda")
def _(grad, a, b, matrices):
    return triton_mixed.mixed_sum_backward(grad, a, b, matrices)


@_mixed_sum.register_fake
def _(a, b, matrices):
    return a.new_empty(*a.shape[:2], matrices.size(-1))


@_mixed_sum_backward.register_fake
def _(grad, a, b, matrices):
    return tuple(t.new_empty(t.shape) for t in (a, b, matrices))


def _setup_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad):
    return _mixed_sum_backward(grad, *ctx.saved_tensors)


_mixed_sum.register_autograd(_backward, setup_context=_setup_context)


@_mixed_sum.register_vmap
def _(info, in_dims, *args):
    return _together(_mixed_sum, info.batch_size, in_dims, args)[0], 0


@_mixed_sum_backward.register_vmap
def _(info, in_dims, *args):
    return _together(_mixed_sum_backward, info.batch_size, in_dims, args), (0, 0, 0)


def _together(op, replicas, in_dims, args):
    """Replicas of replicas are replicas."""
    moved = [
        (t.unsqueeze(0).expand(replicas, *t.shape) if dim is None else t.movedim(dim, 0)).flatten(0, 1)
        for t, dim in zip(args, in_dims)
    ]
    out = op(*moved)
    return tuple(t.unflatten(0, (replicas, -1)) for t in (out if isinstance(out, tuple) else (out,)))
