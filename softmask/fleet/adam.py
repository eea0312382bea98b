"""Adam with a learning rate, decay and step count of its own for every replica."""

import torch
from torch import Tensor
from torch.optim.adam import adam

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


class Adam:
    """Adam (or AdamW) over rows: row ``r`` of every array belongs to replica ``r``.

    Args:
        flat: the parameters, ``[replicas, entries]``, updated in place.
        weight_decay: ``[replicas]``.
        decoupled: AdamW's weight decay instead of Adam's.
        trained: how many entries of a row are parameters; with a gradient of zero, the others stay as they are.
    """

    def __init__(self, flat: Tensor, weight_decay: Tensor, decoupled: bool, trained: int | None = None):
        self.flat = flat
        self.mean = torch.zeros_like(flat)
        self.square = torch.zeros_like(flat)
        self.steps = torch.zeros(flat.size(0), 1, device=flat.device, dtype=flat.dtype)
        self.trained = flat.size(1) if trained is None else trained
        self.rates = weight_decay.tolist()
        self.weight_decay = weight_decay.to(flat).unsqueeze(1)
        if self.trained < flat.size(1):
            self.weight_decay = self.weight_decay * (torch.arange(flat.size(1), device=flat.device) < self.trained)
        self.decays = bool((weight_decay != 0).any())
        self.decoupled = decoupled

    def step(self, gradient: Tensor, lr: Tensor, active: Tensor, first: int = 0) -> None:
        """One update with rates ``[replicas]``; rows that are not active stay as they are, whatever their gradient.

        On the CPU the gradient may be that of some rows, from `first` on.
        """
        if self.flat.device.type == "cpu":
            for row, of_row in enumerate(gradient, start=first):
                if active[row]:
                    self._step_row(row, of_row, float(lr[row]))
            return
        self._step_rows(gradient, lr, active)

    def _step_rows(self, gradient: Tensor, lr: Tensor, active: Tensor) -> None:
        on, rate = active.unsqueeze(1), lr.to(self.flat).unsqueeze(1)
        self.steps += on
        # The loss that a model adds may be no number for a batch without graphs; 0 times that would be none, too.
        gradient = torch.where(on, gradient, 0)
        if self.decays and not self.decoupled:
            gradient = gradient + self.weight_decay * self.flat
        # A row that is not active moves by nothing.
        share1, share2 = ((1 - beta) * on.to(self.flat) for beta in (BETA1, BETA2))
        self.mean.lerp_(gradient, share1)
        self.square.lerp_(gradient * gradient, share2)
        # A row that never stepped would divide by 1 - beta^0 = 0.
        taken = self.steps.clamp(min=1)
        spread = (self.square / (1 - BETA2**taken)).sqrt_().add_(EPS)
        if self.decays and self.decoupled:
            self.flat.mul_(1 - on * rate * self.weight_decay)
        self.flat.addcdiv_(self.mean * (on * rate / (1 - BETA1**taken)), spread, value=-1)

    def _step_row(self, row: int, gradient: Tensor, lr: float) -> None:
        # The memory limits it on a CPU: torch's own Adam goes through it once, with what the row's parameters are.
        flat, mean, square = (t[row, : self.trained] for t in (self.flat, self.mean, self.square))
        adam(
            *([flat], [gradient[: self.trained]], [mean], [square], [], [self.steps[row, 0]]),
            fused=True,
            lr=lr,
            beta1=BETA1,
            beta2=BETA2,
            eps=EPS,
            weight_decay=self.rates[row],
            decoupled_weight_decay=self.decoupled,
            amsgrad=False,
            maximize=False,
        )
