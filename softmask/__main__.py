"""``python -m softmask`` is the command ``softmask``."""

from softmask.cli import main

main()
