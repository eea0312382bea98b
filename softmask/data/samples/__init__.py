"""Small sets that come with softmask, each with the notice of where it is from."""

import dataclasses
import hashlib
from pathlib import Path

import numpy as np

from softmask.data.molecules import SUFFIX, Molecules

SAMPLE = "qm9-sample"
SAMPLE_SIZE = 1000
SAMPLE_SEED = 0
SAMPLE_FILE = Path(__file__).parent / f"{SAMPLE}{SUFFIX}"


def draw_sample(molecules: Molecules) -> Molecules:
    """The molecules of ``qm9-sample`` out of all of QM9, in its order.

    Drawn by a hash of seed and number, which is the same on any machine and with any version of anything.
    """
    key = [hashlib.sha256(f"{SAMPLE} {SAMPLE_SEED} {index}".encode()).digest() for index in molecules.index.tolist()]
    chosen = np.zeros(len(molecules), dtype=bool)
    chosen[sorted(range(len(key)), key=key.__getitem__)[:SAMPLE_SIZE]] = True
    drawn = molecules.select(chosen, SAMPLE)
    source = f"{drawn.info['source']}; its notice: softmask/data/samples/{SAMPLE}.LICENSE"
    return dataclasses.replace(drawn, info={**drawn.info, "source": source})
