"""Draws the samples anew: ``python -m softmask.data.samples [OUT]``. Needs the package qm9pack and RDKit."""

import sys
from pathlib import Path

from softmask.data.molecules import save_molecules
from softmask.data.qm9 import read_package
from softmask.data.samples import SAMPLE_FILE, draw_sample

if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE_FILE
    save_molecules(draw_sample(read_package()), out)
    print(out)
