"""Sums over a node's edges of vectors times mixtures of matrices: definition, gradient, vmap rule, plain form."""

import torch
from torch import Tensor

from softmask.ops.segments import side_by_side

try:
    from softmask.ops import triton_outer
except ImportError:  # without triton the plain form serves CUDA too
    triton_outer = None  # type: ignore[assignment]


def mixed_sum(a: Tensor, b: Tensor, matrices: Tensor) -> Tensor:
    r"""Multiplies the vector of every edge with a matrix of its own, a mixture of a few matrices, and sums over the
    edges of each node,

    .. math::
        \mathbf{y}_v = \sum_p \mathbf{b}_{vp} \sum_c a_{vpc} \mathbf{W}_c = \sum_c \Big( \sum_p a_{vpc} \mathbf{b}_{vp}
        \Big) \mathbf{W}_c .

    The matrix of an edge is never formed: what stands in brackets, an outer product of every edge, is summed over the
    edges first, and the rest is one product of matrices. There are a few places, so that these sums, which are many
    times as large as the arguments, are what takes the time: on CUDA they are written once, and their gradient is read
    once. For float32 arguments what is multiplied there is rounded to float16, whose 10 bits are those of TF32, and
    added in float32; the gradients of a and b are of bfloat16, with 7 bits. What float16 cannot hold, a sum beyond
    65504, becomes that.

    Args:
        a: ``[nodes, places, c]``, the mixture of each edge.
        b: ``[nodes, places, m]``, its vector.
        matrices: ``[c, m, n]``.

    Returns:
        ``[nodes, n]``.
    """
    if not a.is_cuda or triton_outer is None:
        return (a.transpose(1, 2) @ b).flatten(1) @ matrices.flatten(0, 1)
    return _mixed_sum(a.unsqueeze(0), b.unsqueeze(0), matrices.unsqueeze(0))[0].squeeze(0)


# The operators have all replicas in their first dimension.


def _kept(a: Tensor) -> torch.dtype:
    """The type of the sums."""
    return torch.float16 if a.is_cuda and a.dtype == torch.float32 else a.dtype


def _plain(a: Tensor, b: Tensor, matrices: Tensor) -> tuple[Tensor, Tensor]:
    sums = (a.transpose(2, 3) @ b).flatten(2)
    return sums @ matrices.flatten(1, 2), sums


def _plain_backward(
    grad: Tensor, a: Tensor, b: Tensor, matrices: Tensor, sums: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    of_sums = (grad @ matrices.flatten(1, 2).mT).unflatten(2, (a.size(3), b.size(3)))
    return b @ of_sums.mT, a @ of_sums, (sums.mT @ grad).reshape(matrices.shape)


@torch.library.custom_op("softmask::mixed_sum", mutates_args=())
def _mixed_sum(a: Tensor, b: Tensor, matrices: Tensor) -> tuple[Tensor, Tensor]:
    """The results, and the sums of outer products ``[replicas, nodes, c * m]``."""
    return _plain(a, b, matrices)


@torch.library.custom_op("softmask::mixed_sum_backward", mutates_args=())
def _mixed_sum_backward(
    grad: Tensor, a: Tensor, b: Tensor, matrices: Tensor, sums: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return _plain_backward(grad, a, b, matrices, sums)


@_mixed_sum.register_kernel("cuda")
def _(a, b, matrices):
    if a.dtype == torch.float64:
        return _plain(a, b, matrices)
    kept = _kept(a)
    sums = triton_outer.outer_sum(a.flatten(0, 1), b.flatten(0, 1), kept).flatten(1).unflatten(0, a.shape[:2])
    return torch.bmm(sums, matrices.flatten(1, 2).to(kept), out_dtype=a.dtype), sums


@_mixed_sum_backward.register_kernel("cuda")
def _(grad, a, b, matrices, sums):
    if a.dtype == torch.float64 or grad.numel() == 0:
        return _plain_backward(grad, a, b, matrices, sums.to(a.dtype))
    if sums.dtype == grad.dtype:
        of_matrices = torch.bmm(sums.mT, grad)
    else:
        # Float16 has no room for gradients as small as they can be: the largest of each replica becomes 1.
        largest = torch.linalg.vector_norm(grad, torch.inf, dim=(1, 2), keepdim=True)
        largest = largest.clamp_(min=torch.finfo(grad.dtype).tiny)
        scaled = torch.div(grad, largest, out=torch.empty_like(grad, dtype=sums.dtype))
        of_matrices = torch.bmm(sums.mT, scaled, out_dtype=grad.dtype).mul_(largest)
    # As many numbers as the sums, which are only on their way to those of the arguments.
    of_sums = torch.bmm(grad.bfloat16(), matrices.flatten(1, 2).bfloat16().mT)
    flat = of_sums.flatten(0, 1).unflatten(1, (a.size(3), b.size(3)))
    of_a, of_b = triton_outer.outer_sum_backward(flat, a.flatten(0, 1), b.flatten(0, 1))
    return of_a.reshape(a.shape), of_b.reshape(b.shape), of_matrices.reshape(matrices.shape)


@_mixed_sum.register_fake
def _(a, b, matrices):
    sums = a.new_empty(*a.shape[:2], a.size(3) * b.size(3), dtype=_kept(a))
    return a.new_empty(*a.shape[:2], matrices.size(3)), sums


@_mixed_sum_backward.register_fake
def _(grad, a, b, matrices, sums):
    return tuple(t.new_empty(t.shape) for t in (a, b, matrices))


def _setup_context(ctx, inputs, output):
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*inputs, output[1])


def _backward(ctx, grad, _):
    return _mixed_sum_backward(grad, *ctx.saved_tensors)


_mixed_sum.register_autograd(_backward, setup_context=_setup_context)


@_mixed_sum.register_vmap
def _(info, in_dims, *args):
    return _together(_mixed_sum, info.batch_size, in_dims, args)


@_mixed_sum_backward.register_vmap
def _(info, in_dims, *args):
    return _together(_mixed_sum_backward, info.batch_size, in_dims, args)


def _together(op, replicas, in_dims, args):
    """Replicas of replicas are replicas."""
    moved = [side_by_side(t, dim, replicas) for t, dim in zip(args, in_dims)]
    out = op(*(t.flatten(0, 1) for t in moved if t is not None))
    return tuple(t.unflatten(0, (replicas, -1)) for t in out), (0,) * len(out)
