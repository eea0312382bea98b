"""A batch through the models of a fleet: through several at once by ``vmap``, or through one as it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn import Module

from softmask.errors import SettingError
from softmask.fleet.batches import Batch
from softmask.fleet.levels import LevelledBatch


class Crew(NamedTuple):
    """Replicas `first` to `last` (excluded), which compute together, their parameters and their statistics.

    With levels it is one replica, and `alone` is its model.
    """

    first: int
    last: int
    parameters: dict[str, Tensor]
    statistics: dict[str, Tensor]
    alone: Module | None = None

    @property
    def rows(self) -> slice:
        """Which replicas these are."""
        return slice(self.first, self.last)


class Forward(NamedTuple):
    """What the models of a crew give for a batch.

    Args:
        out: ``[replicas, slots, outputs]``.
        extra: the losses of their own that they add, ``[replicas]``; zero where they have none.
        masks: on request, each layer's largest mask, ``[replicas, layers]``.
        kept: the statistics that they keep, as this batch leaves them.
    """

    out: Tensor
    extra: Tensor
    masks: Tensor | None
    kept: dict[str, Tensor]


class Models:
    """The models of a fleet, written once for one batch, called for a whole crew.

    Args:
        model: one of them, whose own parameters are not used.
    """

    def __init__(self, model: Module):
        self.model = model
        self.shows_targets = "y" in signature(model.forward).parameters

    def forward(
        self,
        crew: Crew,
        batch: Batch | LevelledBatch,
        buffers: dict[str, Tensor],
        y: Tensor | None = None,
        masks: bool = False,
    ) -> Forward:
        """A batch through the models of a crew; `y` are its targets, for models that see them in training."""
        if isinstance(batch, LevelledBatch):
            return self._alone(crew, batch, buffers, masks)
        slots = batch.graphs.size(1)

        def one(parameters, buffers, x, neighbours, segments, edges, pairs, y):
            tensors, inputs = {**parameters, **buffers}, (x, neighbours, segments)
            given = {"edge_attr": edges, "pos": pairs, "pair_blocks": batch.pair_blocks}
            options = {"batch_size": slots} | {name: value for name, value in given.items() if value is not None}
            options |= {"y": y} if self.shows_targets else {}
            if not masks:
                found = functional_call(self.model, tensors, inputs, options)
                out, extra = found if isinstance(found, tuple) else (found, torch.zeros((), device=x.device))
                if not isinstance(extra, Tensor) or extra.dim():
                    got = list(extra.shape) if isinstance(extra, Tensor) else type(extra).__name__
                    raise SettingError(f"a loss that a model adds must be one number, a tensor without size, got {got}")
                # What the model assigned to its buffers, torch writes back into the dictionary.
                return Forward(out, extra, None, {name: tensors[name] for name in crew.statistics})
            out, used = functional_call(self.model, tensors, inputs, options | {"return_masks": True})
            real = (segments.graph >= 0).unsqueeze(-1)
            largest = torch.stack([torch.where(real, m, 0).amax() for m in used])
            return Forward(out, torch.zeros((), device=x.device), largest, {})

        out_dims: Any = Forward(0, 0, 0 if masks else None, 0)  # type: ignore[arg-type]
        in_dims = (0, 0, *batch.in_dims(), None if y is None else 0)
        run = vmap(one, in_dims=in_dims, out_dims=out_dims, randomness="error")
        tensors, (x, neighbours, segments, _, edges, pairs, _) = buffers | crew.statistics, batch
        return run(crew.parameters, tensors, x, neighbours, segments, edges, pairs, y)

    def _alone(self, crew: Crew, batch: LevelledBatch, buffers: dict[str, Tensor], masks: bool) -> Forward:
        """The same for one replica, whose model is called as it is."""
        assert crew.alone is not None
        model = crew.alone.train(self.model.training)
        for name, value in buffers.items():
            dropout, _, field = name.rpartition(".")
            setattr(model.get_submodule(dropout), field, value.squeeze(0))
        out, used = model(batch.x, batch.levels, return_masks=True)
        none = torch.zeros(1, device=out.device)
        if not masks:
            return Forward(out.unsqueeze(0), none, None, {})
        # A batch without graphs has no masks.
        largest = torch.stack([F.pad(m.reshape(-1), (0, 1)).amax() for m in used])
        return Forward(out.unsqueeze(0), none, largest.unsqueeze(0), {})

    @torch.no_grad()
    def try_out(self, crew: Crew, batch: Batch | LevelledBatch, buffers: dict[str, Tensor], y: Tensor) -> Tensor:
        """What a crew says of a batch, which goes through the models and back.

        Raises:
            SettingError: if the model cannot be a fleet.
        """
        try:
            with _without_loops():
                self.model.eval()
                out = self.forward(crew, batch, {}).out
                # Dropout, and the gradients of an operator, come in training only.
                self.model.train()
                with torch.enable_grad():
                    trained = self.forward(crew, batch, buffers, y)
                    differentiated(trained.out.sum() + trained.extra.sum(), crew)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {(str(error).strip() or 'nothing').splitlines()[0]}"
            if "random operation" in reason:
                reason += "; softmask.nn.KeyedDropout draws for each replica by its own seed"
            raise SettingError(
                "this model cannot be a fleet: it must take (x, neighbours, batch, batch_size), give one tensor (in "
                "training also a loss to add), build on the sums of softmask.ops, and use only operators that vmap "
                f"knows; it said: {reason}"
            ) from error
        if out.dim() != 3 or out.shape[:2] != batch.graphs.shape:
            raise SettingError(f"the model must give [graphs, outputs]; for one graph it gave {list(out.shape[1:])}")
        return out


def differentiated(total: Tensor, crew: Crew) -> tuple[Tensor, ...]:
    """The gradients of a crew's parameters; zero for one that the model does not use."""
    return torch.autograd.grad(total, list(crew.parameters.values()), allow_unused=True, materialize_grads=True)


@contextmanager
def _without_loops() -> Iterator[None]:
    """Without a rule for an operator, vmap would loop over the replicas, one by one, in silence."""
    functorch: Any = torch._C._functorch
    before = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        functorch._set_vmap_fallback_enabled(before)
