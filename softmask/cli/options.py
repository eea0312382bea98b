"""Options that several commands share."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from softmask.study.settings import Settings

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
Source = Annotated[
    str | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        help="Settings from a TOML file, as [b]softmask tune[/b] writes it; or [b]paper[/b]: what the paper's authors "
        "chose for this set. Options given beside it win.",
    ),
]
Variant = Annotated[str | None, typer.Option(help="smg, smg-jk, m-smg or m-smg-jk.", show_default="smg-jk")]
Hidden = Annotated[int | None, typer.Option(help="Size of the hidden vectors.", show_default="64")]
Layers = Annotated[int | None, typer.Option(help="Number of soft-mask layers.", show_default="3")]
Epochs = Annotated[int | None, typer.Option(help="How often every training graph is seen.", show_default="200")]
Rate = Annotated[float | None, typer.Option(help="Learning rate of Adam.", show_default="0.001")]
Decay = Annotated[
    float | None, typer.Option(help="The rate is multiplied by this every --decay-every epochs.", show_default="1.0")
]
DecayEvery = Annotated[int | None, typer.Option(help="Epochs between two such steps.", show_default="50")]
BatchSize = Annotated[int | None, typer.Option(help="Graphs in a batch.", show_default="128")]
Dropout = Annotated[float | None, typer.Option(help="Dropout in the head.", show_default="0.5")]
Readout = Annotated[str | None, typer.Option(help="sum, or mean.", show_default="sum")]
Attributes = Annotated[
    bool | None,
    typer.Option("--attributes/--no-attributes", help="Use the continuous node attributes too.", show_default="no"),
]
Norm = Annotated[
    bool | None,
    typer.Option(
        "--norm/--no-norm",
        help="Scale every node's vector to unit size in every layer; not the paper's.",
        show_default="no",
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of weights, shuffles, dropout and folds.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]
Precision = Annotated[
    str, typer.Option(help="float32, tf32, bf16 or float64; auto is bf16 on CUDA and float32 on the CPU.")
]


def settings_of(source: str | None, data: str, given: dict[str, Any]) -> "Settings":
    """The settings of a command: from a file or the paper, or the defaults, with what was given on the command line.

    Args:
        source: a TOML file, ``paper``, or ``None`` for the defaults.
        data: the name of the set.
        given: by name, ``None`` where nothing was given.
    """
    from dataclasses import replace

    from softmask.paper import paper_settings
    from softmask.study.grid import read_settings_toml
    from softmask.study.settings import Settings

    if source is None:
        base = Settings()
    else:
        base = paper_settings(data) if source == "paper" else read_settings_toml(source)
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def grid_of(grid: str, data: str, sample: int | None, seed: int, base: "Settings") -> "list[Settings]":
    """The settings to try: all of a grid, or a sample of it, with `base` for what it does not name."""
    from softmask.study.grid import read_grid

    found = read_grid(grid, data)
    if skipped := found.skipped(base):
        print(f"{skipped} combinations of the grid are no valid settings and are left out", file=sys.stderr)
    return found.settings(base) if sample is None else found.sample(sample, seed, base)
