"""Options that several commands share."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softmask.baselines.registry import BASELINES, SOFT_MASK, baseline_settings, check_model, uses_of
from softmask.errors import SettingError

if TYPE_CHECKING:
    from softmask.study.settings import Settings

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A folder or zip in TU layout, a packed store (.safetensors), a table of molecules (.csv, .tsv, .parquet, "
        ".smi), or a name (see [b]softmask data list[/b]).",
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
Model = Annotated[
    str | None,
    typer.Option(
        help=f"A baseline instead: {', '.join(BASELINES)}; or a module of your own, as nets.py:MyNet. "
        "[b]softmask models[/b] says what they are. Each has settings of its own; options given beside it win.",
        show_default="soft-mask",
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Compute a kernel even if it may need over two hours, 12 GB or all memory that is free."
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
    typer.Option(
        "--attributes/--no-attributes",
        help="Use the continuous node attributes too.",
        show_default="no; yes for a table of molecules",
    ),
]
Norm = Annotated[
    bool | None,
    typer.Option(
        "--norm/--no-norm",
        help="Scale every node's vector to unit size in every layer; not the paper's.",
        show_default="no",
    ),
]
Average = Annotated[
    float | None,
    typer.Option(
        help="Use a mean of the weights over about so many of the last epochs; not the paper's.",
        show_default="0, the weights as they are",
    ),
]
Committee = Annotated[
    int | None,
    typer.Option(
        help="Train so many networks from different first weights and ask them together: so many times "
        "the work; not the paper's.",
        show_default="1",
    ),
]
Edges = Annotated[
    bool | None,
    typer.Option("--edges/--no-edges", help="Use edge labels or attributes too, such as bonds.", show_default="no"),
]
Smiles = Annotated[
    str | None,
    typer.Option(
        "--smiles",
        metavar="COLUMN",
        help="DATA is a table of molecules (.csv, .tsv, .parquet, .smi): its column of SMILES.",
        show_default="the column smiles",
    ),
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="NAME",
        help="What to learn: a column of the table, or a target of a set that has several. Give it several times for "
        "several at once.",
        show_default="all of a set; needed for a table",
    ),
]
Task = Annotated[
    str | None,
    typer.Option(
        metavar="TASK",
        help="classification or regression, for a table whose values do not say it: text and up to 10 different whole "
        "numbers are classes, other numbers are not.",
        show_default="by the values",
    ),
]
SkipInvalid = Annotated[
    bool,
    typer.Option("--skip-invalid", help="Leave out rows of the table that cannot be used, and list them."),
]
Part = Annotated[
    str | None,
    typer.Option(help="Only the train, validation or test part of the set, as the model's file says it was split."),
]
Seed = Annotated[int, typer.Option(help="Seed of weights, shuffles, dropout and folds.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]
Precision = Annotated[
    str,
    typer.Option(
        help="float32, tf32-gradients (TF32 in the backward pass only), tf32, bf16 or float64; auto is bf16 on CUDA "
        "and float32 on the CPU."
    ),
]


def settings_of(source: str | None, data: str, given: dict[str, Any], molecules: bool = False) -> "Settings":
    """The settings of a command: from a file or the paper, or the defaults, with what was given on the command line.

    Args:
        source: a TOML file, ``paper``, or ``None`` for the defaults.
        data: the name of the set.
        given: by name, ``None`` where nothing was given.
        molecules: whether the graphs come from SMILES. Then attributes are used by default: without them an atom is its
            element alone, and hydrogens are nowhere.
    """
    from dataclasses import replace

    from softmask.paper import paper_settings
    from softmask.study.grid import read_settings_toml
    from softmask.study.settings import Settings

    model = None if given.get("model") is None else check_model(given["model"])
    if source is None:
        base = Settings(attributes=molecules) if model is None else baseline_settings(model)
    elif source == "paper" and model not in (None, SOFT_MASK):
        raise SettingError(f"--settings paper is for the soft-mask models; leave it out for the settings of {model}")
    else:
        base = paper_settings(data) if source == "paper" else read_settings_toml(source)
    made = replace(base, **{name: value for name, value in given.items() if value is not None})
    used = uses_of(made.model)
    for name, value in given.items():
        if value is not None and used is not None and name not in used:
            heeds = ", ".join(n.replace("_", "-") for n in used[1:]) or "no setting and chooses its own"
            raise SettingError(f"--{name.replace('_', '-')} has no effect on the model {made.model}; it heeds {heeds}")
    return made


def grid_of(
    grid: str, data: str, sample: int | None, seed: int, base: "Settings", given: dict[str, Any]
) -> "list[Settings]":
    """The settings to try: all of a grid, or a sample of it.

    Args:
        grid: a file, or the name of a grid that comes along.
        data: the name of the set.
        sample: how many of them, if not all.
        seed: of the sample.
        base: where settings that the grid does not name come from.
        given: options of the command line by name, ``None`` where nothing was given. They win over what the grid gives
            one value; where it gives several, one of the two must go.
    """
    from softmask.study.grid import Grid, read_grid

    found = read_grid(grid, data)
    wins = {name: value for name, value in given.items() if value is not None and name in found.values}
    for name in wins:
        if len(values := found.values[name]) > 1:
            raise SettingError(
                f"--{name.replace('_', '-')} {wins[name]}, but the grid {grid} tries {', '.join(map(str, values))}: "
                "leave the option out, or give a grid of your own without it"
            )
    found = Grid(found.name, found.values | {name: (value,) for name, value in wins.items()})
    used = None if "model" in found.values else uses_of(base.model)
    idle = [name for name, values in found.values.items() if used is not None and name not in used and len(values) > 1]
    if idle:
        raise SettingError(f"the grid {grid} varies {', '.join(idle)}: that has no effect on the model {base.model}")
    if skipped := found.skipped(base):
        print(f"{skipped} combinations of the grid are no valid settings and are left out", file=sys.stderr)
    return found.settings(base) if sample is None else found.sample(sample, seed, base)
