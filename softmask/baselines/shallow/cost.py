"""What a kernel will cost, said before it is paid."""

from dataclasses import dataclass

import torch

from softmask.baselines.shallow.choice import MOST_TO_CHOOSE_ON
from softmask.data.store import GraphStore
from softmask.errors import CannotRun
from softmask.fleet.waves import free_memory

MINUTES = 120.0
GIGABYTES = 12.0


@dataclass(frozen=True)
class Cost:
    """Minutes on one core of a processor of today, and gigabytes of memory. Right within a factor of about three."""

    minutes: float
    gigabytes: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.minutes + other.minutes, self.gigabytes + other.gigabytes)

    @property
    def bearable(self) -> bool:
        """Whether it is within two hours, and within 12 GB and the memory that is free."""
        return self.minutes <= MINUTES and self.gigabytes <= _most_memory()

    def sentence(self, name: str, store: GraphStore) -> str:
        """What a baseline will take on a set, in words."""
        return (
            f"{name} on {store.info.get('name', 'this set')} ({store.num_graphs} graphs, {store.num_nodes} nodes, "
            f"{store.num_edges} entries of neighbours) needs about {self.minutes:,.0f} minutes on one core and "
            f"{self.gigabytes:,.1f} GB of memory, for its matrices and ten folds, perhaps three times the minutes"
        )

    def check(self, name: str, store: GraphStore, force: bool) -> None:
        """Refuses what is not bearable, unless it is forced."""
        if force or self.bearable:
            return
        free = _most_memory()
        most = f"the {free:.1f} GB that are free" if free < min(GIGABYTES, self.gigabytes) else f"{GIGABYTES:.0f} GB"
        raise CannotRun(
            f"{self.sentence(name, store)}; without being forced, it stops at {MINUTES:.0f} minutes or {most}. Force "
            "it (--force), take fewer graphs, or choose another baseline (the histograms cost seconds)"
        )


def _most_memory() -> float:
    """Gigabytes that a kernel may take without being forced."""
    return min(GIGABYTES, free_memory(torch.device("cpu")) / 1e9)


def of_machine(store: GraphStore, matrices: int, width: int = 8) -> Cost:
    """Cost of choosing and training the SVM in ten folds, with so many Gram matrices of so many bytes an entry."""
    entries = float(store.num_graphs) ** 2
    chosen_on = min(entries, (MOST_TO_CHOOSE_ON / 0.9) ** 2)
    # Measured: seven C and five inner folds take about 1.2e-6 s times the square of the set, on ENZYMES, IMDB-MULTI,
    # NCI1 and REDDIT-MULTI-5K alike; one fit on all training graphs, a twentieth of that.
    seconds = 10 * (chosen_on * matrices * 1.2e-6 + entries * 6e-8)
    return Cost(seconds / 60, entries * (matrices * width + 24) / 1e9)
