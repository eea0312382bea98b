"""Models that hold a matrix of all pairs of nodes: whether they fit, said before they are trained."""

from typing import TYPE_CHECKING

from softmask.baselines.entry import Inputs
from softmask.errors import CannotRun

if TYPE_CHECKING:
    from softmask.study.settings import Settings


def check_memory(title: str, numbers: int, inputs: Inputs, settings: "Settings") -> None:
    """Refuses a model whose batches would not fit into the memory that is free where it trains.

    Args:
        title: of the model.
        numbers: how many float32 numbers a graph with as many nodes as the largest takes in one step of training.
        inputs: the sizes of the set's graphs, and the memory.
        settings: of the model.
    """
    held = 4 * settings.batch_size * numbers
    if inputs.memory is not None and held > inputs.memory:
        raise CannotRun(
            f"{title} holds about {held / 2**30:,.1f} GiB for a batch of {settings.batch_size} graphs of up to "
            f"{int(inputs.sizes.max())} nodes with {settings.hidden} channels, since its matrices are dense, and "
            f"{inputs.memory / 2**30:,.1f} GiB are free here: give a smaller --batch-size or --hidden, leave out the "
            "largest graphs, or take a sparse model"
        )
