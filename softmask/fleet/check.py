"""What no fleet can train, refused before any work starts."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Module

from softmask.data.store import GraphStore
from softmask.errors import SettingError
from softmask.fleet.committee import check_committees
from softmask.fleet.losses import check_loss
from softmask.fleet.replica import Replica


def check(
    store: GraphStore,
    x: Tensor,
    replicas: Sequence[Replica],
    batch_size: int,
    loss: str,
    keep: str = "last",
    patience: tuple[str, int] | None = None,
    committee: int = 1,
) -> None:
    """Refuses what no fleet can train, before any work starts; the arguments are those of :class:`Fleet` and of
    :meth:`Fleet.train`.
    """
    check_loss(loss)
    if not replicas:
        raise SettingError("a fleet needs at least one replica")
    if batch_size < 1:
        raise SettingError(f"batch_size must be at least 1, got {batch_size}")
    if store.y is None:
        raise SettingError("the graphs have no targets to learn")
    if store.y.is_floating_point() == (loss == "cross_entropy"):
        raise SettingError(
            f"the loss {loss!r} does not fit the targets: classes need cross_entropy, numbers mse or mae"
        )
    shape, wanted = list(store.y.shape), "[graphs]" if loss == "cross_entropy" else "[graphs, outputs]"
    if shape[:1] != [store.num_graphs] or len(shape) != wanted.count(",") + 1:
        raise SettingError(f"the targets have shape {shape}; {loss} needs {wanted}, of {store.num_graphs} graphs")
    if loss == "cross_entropy" and (store.y.dtype != torch.int64 or bool((store.y < 0).any())):
        raise SettingError("classes must be numbers from 0 on, of type int64; see softmask.data.convert.with_targets")
    if store.num_nodes == 0:
        raise SettingError("the graphs have no nodes at all")
    if x.size(0) != store.num_nodes:
        raise SettingError(f"x has {x.size(0)} rows, the store {store.num_nodes} nodes")
    for place, replica in enumerate(replicas):
        replica.check(store.num_graphs, place)
        if replica.target is not None and not (store.y.dim() == 2 and 0 <= replica.target < store.y.size(1)):
            raise SettingError(f"replica {place} (seed {replica.seed}): there is no target {replica.target}")
    check_parts(replicas, keep, patience)
    check_committees(replicas, committee)


def check_tokens(x: Tensor, model: Module) -> None:
    """Refuses tokens that a model has no weights for, where it says for how many it has (``in_channels``): they would
    be found in the middle of a training only, on CUDA by an error that ends the process.
    """
    known = getattr(model, "in_channels", None)
    if isinstance(known, int) and not x.is_floating_point() and x.numel() and int(x.max()) >= known:
        raise SettingError(
            f"x holds the token {int(x.max())}; the model has in_channels={known}, so it knows 0 to {known - 1}"
        )


def check_parts(replicas: Sequence[Replica], keep: str, patience: tuple[str, int] | None) -> None:
    """Refuses a choice of weights by a part that is not there, and a patience of no epochs."""
    parts = list(dict.fromkeys(name for r in replicas for name in r.evaluate))
    if keep != "last" and keep not in parts:
        raise SettingError(f"keep={keep!r}: no such part; there is {', '.join(['last', *parts])}")
    for place, r in enumerate(replicas):
        if keep != "last" and keep not in r.evaluate:
            raise SettingError(
                f"keep={keep!r}: replica {place} (seed {r.seed}) has no such part to choose its epoch by"
            )
    # Its part may be missing: one job of a study may have models that no part can stop.
    if patience is not None and patience[1] < 1:
        raise SettingError(f"patience={patience!r}: expected a part and at least 1 epoch")
