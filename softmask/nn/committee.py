"""Several networks that answer as one."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from softmask.nn.soft_mask_gnn import SoftMaskGNN


class Committee(torch.nn.Module):
    r"""Networks of one shape that were trained each by itself, from first weights of its own, and answer together.

    Of classes the answer is the logarithm of the mean of the members' probabilities,

    .. math::
        \log \frac{1}{M} \sum_{i=1}^{M} \operatorname{softmax}(\mathbf{o}_i) ,

    whose softmax is that mean; of numbers it is the mean. The masks of a layer are those of all members side by side.

    Args:
        members: the networks.
        classes: whether their outputs are those of classes.

    Shapes:
        - **x, edge_index, batch, edge_attr, output:** as for :class:`SoftMaskGNN`
        - **masks:** ``[nodes, members]``, or ``[nodes, members * hidden]`` where members have a mask for every channel
    """

    def __init__(self, members: Sequence[SoftMaskGNN], classes: bool):
        super().__init__()
        if not members:
            raise ValueError("a committee needs at least one member")
        self.members = torch.nn.ModuleList(members)
        self.classes = classes

    @property
    def jk(self) -> bool:
        """Whether the members read out all layers."""
        return bool(self.members[0].jk)

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        batch: Any = None,
        batch_size: int | None = None,
        masks: Sequence[Tensor] | None = None,
        return_masks: bool = False,
        edge_attr: Any = None,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Arguments as for :class:`SoftMaskGNN`; preassigned `masks` are laid out as those that are returned."""
        given: list[Sequence[Tensor] | None] = [None] * len(self.members)
        if masks is not None:
            given = list(zip(*(m.chunk(len(self.members), dim=1) for m in masks)))
        outs, used = zip(
            *(
                member(x, edge_index, batch, batch_size, own, return_masks=True, edge_attr=edge_attr)
                for member, own in zip(self.members, given)
            )
        )
        out = joint_answer(torch.stack(outs), self.classes)
        return (out, [torch.cat(layer, dim=1) for layer in zip(*used)]) if return_masks else out

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({len(self.members)} x {self.members[0]!r})"


def joint_answer(outs: Tensor, classes: bool) -> Tensor:
    """What the members of a committee, first dimension of `outs`, say together: see :class:`Committee`."""
    if not classes:
        return outs.mean(dim=0)
    return F.log_softmax(outs, dim=-1).logsumexp(dim=0) - math.log(outs.size(0))


def joint_state(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The state dict of a committee from those of its members; of one alone, its own."""
    if len(states) == 1:
        return dict(states[0])
    return {f"members.{i}.{name}": tensor for i, state in enumerate(states) for name, tensor in state.items()}
