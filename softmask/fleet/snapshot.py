"""The state of a training in the middle, on disk: from it the training goes on as if it had never stopped."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import monotonic

import torch
from torch import Tensor

from softmask.atomic import atomic_path
from softmask.fleet.replica import Replica


class Snapshot:
    """A file that holds the last saved state of one fleet's training.

    Args:
        path: the file; it need not exist.
        every: seconds between two saves, more if saving itself takes more than a twentieth of that; 0 saves after
            every epoch.
        last: whether the state after the last epoch is saved too.
    """

    def __init__(self, path: str | Path, every: float = 30.0, last: bool = True):
        self.path = Path(path)
        self.every = every
        self.last = last
        self.saved = monotonic()

    def due(self, last: bool = False) -> bool:
        """Whether it is time to save; `last` says that the training is at its end."""
        return self.last if last else monotonic() - self.saved >= self.every

    def save(self, state: dict[str, Tensor], fingerprint: str) -> None:
        """Writes the state, in the place of the last one."""
        from safetensors.torch import save_file

        # Which waits for the device to end the epoch; that is no time of saving.
        copies = {name: t.cpu().contiguous() for name, t in state.items()}
        begin = monotonic()
        with atomic_path(self.path) as temporary:
            save_file(copies, temporary, {"of": fingerprint})
        self.saved = monotonic()
        if self.every > 0:
            self.every = max(self.every, 20 * (self.saved - begin))

    def load(self, fingerprint: str) -> dict[str, Tensor] | None:
        """The saved state, if there is one of this very training."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path, framework="pt") as file:
                if (file.metadata() or {}).get("of") != fingerprint:
                    return None
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError):
            return None


def fingerprint(replicas: Sequence[Replica], flat: Tensor, more: str, inputs: Iterable[Tensor] = ()) -> str:
    """Tells trainings apart: by their replicas, their initial weights, what the models see, and what else the caller
    names.
    """
    digest = hashlib.sha256(more.encode())
    for r in replicas:
        rates = (r.seed, r.lr, r.decay, r.decay_every, r.dropout, r.weight_decay, r.average, r.target)
        digest.update(repr(rates).encode())
        for name, ids in [("train", r.train), *sorted(r.evaluate.items())]:
            digest.update(name.encode() + torch.as_tensor(ids).long().numpy().tobytes())
    for t in (flat, *inputs):
        # As bytes: numpy has no bf16.
        digest.update(t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
