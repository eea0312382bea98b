"""The parameters of all replicas as one array, one row a replica."""

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from softmask.errors import SettingError

# Every parameter begins at a multiple of this many entries, so that matrix kernels can read 16 bytes at once.
_ALIGNMENT = 8


class Stack:
    """The parameters of all replicas as one array ``[replicas, entries]``, and as named views into it.

    An update of :attr:`flat` is an update of all models; the state of replica ``r`` is row ``r``. Behind the parameters
    stand the statistics that models keep while they train (their persistent buffers); they have no gradient.

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
        check_models(models)
        self.model = models[0].to(device, dtype)
        self.shapes = {name: p.shape for name, p in self.model.named_parameters()}
        # A parameter that stands in two places has two names in a state dict, and one place here.
        first = {id(p): name for name, p in self.model.named_parameters()}
        shared = self.model.named_parameters(remove_duplicate=False)
        self.names = {name: first[id(p)] for name, p in shared}
        kept = self.model.state_dict()
        self.statistics = {name: b.shape for name, b in self.model.named_buffers() if name in kept}
        self.shapes |= self.statistics
        self.names |= {name: name for name in self.statistics}
        self.offsets: dict[str, int] = {}
        entries = 0
        for name, shape in self.shapes.items():
            self.offsets[name] = entries
            entries += -(-shape.numel() // _ALIGNMENT) * _ALIGNMENT
        # How many entries are the parameters'.
        self.trained = min((self.offsets[name] for name in self.statistics), default=entries)
        self.flat = torch.zeros(len(models), entries, device=device, dtype=dtype)
        for row, model in zip(self.flat, models):
            state = model.state_dict()
            for name in self.shapes:
                self._view(row, name).copy_(state[name].detach())
        self.copy = self.flat if compute == dtype else self.flat.to(compute)

    def _view(self, flat: Tensor, name: str) -> Tensor:
        begin, shape = self.offsets[name], self.shapes[name]
        # unflatten does not take the shape of a single number.
        return flat[..., begin : begin + shape.numel()].unflatten(-1, shape) if shape else flat[..., begin]

    def parameters(self, first: int, last: int) -> dict[str, Tensor]:
        """The parameters of some replicas as leaves that share the memory of :attr:`flat` or of its copy."""
        full = tuple(f"{name}." for name in getattr(self.model, "full_precision", ()))
        return {
            name: self._view((self.flat if name.startswith(full) else self.copy)[first:last], name)
            .detach()
            .requires_grad_()
            for name in self.shapes
            if name not in self.statistics
        }

    def module(self, replica: int) -> Module:
        """The model of one replica, whose parameters share the memory of :attr:`flat` or of its copy."""
        model = copy.deepcopy(self.model)
        for name, p in self.parameters(replica, replica + 1).items():
            owner, _, field = name.rpartition(".")
            setattr(model.get_submodule(owner), field, torch.nn.Parameter(p.detach().squeeze(0)))
        return model

    def kept(self, first: int, last: int) -> dict[str, Tensor]:
        """The statistics of some replicas, in the memory of :attr:`flat`."""
        return {name: self._view(self.flat[first:last], name).detach() for name in self.statistics}

    def assign(self, replica: int, values: Mapping[str, Sequence[float]]) -> None:
        """Gives buffers of one replica values of its own."""
        for name, value in values.items():
            if name not in self.statistics:
                raise SettingError(f"the model has no persistent buffer {name!r}")
            self._view(self.flat[replica], name).copy_(torch.tensor(value))
        self.refresh()

    def refresh(self) -> None:
        """Brings the copy that the model computes with up to date."""
        if self.copy is not self.flat:
            self.copy.copy_(self.flat)

    def gather(self, gradients: Sequence[Tensor]) -> Tensor:
        """The gradients of :meth:`parameters`, in their order, as an array laid out as :attr:`flat`."""
        pieces = [g.reshape(g.size(0), -1).to(self.flat.dtype) for g in gradients]
        rest = self.flat.size(1) - self.trained
        return _padded(torch.cat([_padded(g, -g.size(1) % _ALIGNMENT) for g in pieces], dim=1), rest)

    def state(self, flat: Tensor, replica: int) -> dict[str, Tensor]:
        """The state dict of one replica, on the CPU."""
        return {name: self._view(flat[replica], own).detach().cpu().clone() for name, own in self.names.items()}


def _padded(rows: Tensor, more: int) -> Tensor:
    # Where nothing is added, torch would make a copy.
    return F.pad(rows, (0, more)) if more else rows


def check_models(models: Sequence[Module]) -> None:
    """Refuses models that cannot share one array of parameters, all of which are trained, or that see padding."""
    lazy = [name for name, p in models[0].named_parameters() if is_lazy(p)]
    if lazy:
        raise SettingError(f"{lazy[0]!r} has no size yet; give the layers of a fleet's model their sizes")
    shapes = [{name: p.shape for name, p in model.named_parameters()} for model in models]
    if not shapes[0]:
        raise SettingError("the model has no parameters to train")
    for place, other in enumerate(shapes):
        if other != shapes[0]:
            names = sorted(name for name, _ in shapes[0].items() ^ other.items())
            raise SettingError(f"the models of a fleet must be of one shape; model {place} differs in {names[0]!r}")
    frozen = [name for name, p in models[0].named_parameters() if not p.requires_grad]
    if frozen:
        raise SettingError(f"a fleet trains every parameter; make the frozen {frozen[0]!r} a buffer of the model")
    norms = [name for name, module in models[0].named_modules() if isinstance(module, _BatchNorm)]
    if norms:
        raise SettingError(
            f"{norms[0]!r} is torch's batch norm, which would count the padding of a batch; use "
            "softmask.baselines.batch_norm.MaskedBatchNorm"
        )
