"""Many models trained as one program."""

from softmask.fleet.fleet import Fleet, OnEpoch
from softmask.fleet.history import History, Trouble
from softmask.fleet.replica import Replica
from softmask.fleet.waves import train_in_waves

__all__ = ["Fleet", "History", "OnEpoch", "Replica", "Trouble", "train_in_waves"]
