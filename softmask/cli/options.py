"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder or zip in TU layout, a packed store (.safetensors), or a name (see [b]softmask data list[/b]).",
        show_default=False,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder in which named sets are looked for, before SOFTMASK_DATA and the cache."),
]
Variant = Annotated[str, typer.Option(help="The model: smg, smg-jk, m-smg or m-smg-jk.")]
Hidden = Annotated[int, typer.Option(help="Size of the hidden vectors.")]
Layers = Annotated[int, typer.Option(help="Number of soft-mask layers.")]
Epochs = Annotated[int, typer.Option(help="How often every training graph is seen.")]
Rate = Annotated[float, typer.Option(help="Learning rate of Adam.")]
Decay = Annotated[float, typer.Option(help="The rate is multiplied by this every --decay-every epochs.")]
DecayEvery = Annotated[int, typer.Option(help="Epochs between two such steps.")]
BatchSize = Annotated[int, typer.Option(help="Graphs in a batch.")]
Dropout = Annotated[float, typer.Option(help="Dropout in the head.")]
Readout = Annotated[str, typer.Option(help="sum, or mean.")]
Attributes = Annotated[bool, typer.Option("--attributes", help="Use the continuous node attributes too.")]
Seed = Annotated[int, typer.Option(help="Seed of weights, shuffles, dropout and folds.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]
