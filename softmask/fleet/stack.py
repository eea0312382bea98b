"""The parameters of all replicas as one array, one row a replica."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

# Every parameter begins at a multiple of this many entries, so that matrix kernels can read 16 bytes at once.
_ALIGNMENT = 8


class Stack:
    """The parameters of all replicas as one array ``[replicas, entries]``, and as named views into it.

    An update of :attr:`flat` is an update of all models; the state of replica ``r`` is row ``r``.

    Args:
        make_model: builds one model; its initial weights are drawn under each replica's seed.
        seeds: one for each replica.
        device: where the parameters live.
        dtype: of the parameters.
        compute: precision the model computes in. If it is another than `dtype`, the model works on a copy that
            :meth:`refresh` brings up to date, but for the modules it names in its attribute ``full_precision``.
    """

    def __init__(
        self,
        make_model: Callable[[], Module],
        seeds: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
        compute: torch.dtype,
    ):
        models = []
        with torch.random.fork_rng(devices=[]):
            for seed in seeds:
                torch.manual_seed(seed)
                models.append(make_model())
        self.model = models[0].to(device, dtype)
        self.shapes = {name: p.shape for name, p in self.model.named_parameters()}
        self.offsets: dict[str, int] = {}
        entries = 0
        for name, shape in self.shapes.items():
            self.offsets[name] = entries
            entries += -(-shape.numel() // _ALIGNMENT) * _ALIGNMENT
        self.flat = torch.zeros(len(models), entries, device=device, dtype=dtype)
        for row, model in zip(self.flat, models):
            for name, p in model.named_parameters():
                self._view(row, name).copy_(p.detach())
        self.copy = self.flat if compute == dtype else self.flat.to(compute)

    def _view(self, flat: Tensor, name: str) -> Tensor:
        begin, shape = self.offsets[name], self.shapes[name]
        return flat[..., begin : begin + shape.numel()].unflatten(-1, shape)

    def parameters(self, first: int, last: int) -> dict[str, Tensor]:
        """The parameters of some replicas as leaves that share the memory of :attr:`flat` or of its copy."""
        full = tuple(f"{name}." for name in getattr(self.model, "full_precision", ()))
        return {
            name: self._view((self.flat if name.startswith(full) else self.copy)[first:last], name)
            .detach()
            .requires_grad_()
            for name in self.shapes
        }

    def refresh(self) -> None:
        """Brings the copy that the model computes with up to date."""
        if self.copy is not self.flat:
            self.copy.copy_(self.flat)

    def gather(self, gradients: Sequence[Tensor]) -> Tensor:
        """The gradients of :meth:`parameters`, in their order, as an array laid out as :attr:`flat`."""
        pieces = []
        for g in gradients:
            g = g.reshape(g.size(0), -1).to(self.flat.dtype)
            pieces.append(F.pad(g, (0, -g.size(1) % _ALIGNMENT)))
        return torch.cat(pieces, dim=1)

    def state(self, flat: Tensor, replica: int) -> dict[str, Tensor]:
        """The state dict of one replica, on the CPU."""
        return {name: self._view(flat[replica], name).detach().cpu().clone() for name in self.shapes}
