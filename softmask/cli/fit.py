"""softmask fit"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from softmask.atomic import check_writable
from softmask.cli import options
from softmask.cli.interrupt import stop_on_interrupt
from softmask.cli.progress import epoch_bar
from softmask.errors import SettingError


def fit(
    data: options.Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model file to write (.safetensors).")],
    variant: options.Variant = "smg-jk",
    hidden: options.Hidden = 64,
    layers: options.Layers = 3,
    epochs: options.Epochs = 200,
    lr: options.Rate = 1e-3,
    decay: options.Decay = 1.0,
    decay_every: options.DecayEvery = 50,
    batch_size: options.BatchSize = 128,
    dropout: options.Dropout = 0.5,
    readout: options.Readout = "sum",
    attributes: options.Attributes = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
    as_json: options.Json = False,
) -> None:
    """Train a model on all graphs of a set and write it to one file.

    Ctrl-C ends the training after the current epoch and writes the model as far as it got.

    [b]Example:[/b] softmask fit MUTAG --variant m-smg-jk --epochs 300 --out mutag.safetensors
    """
    check_writable(out)
    from softmask.data.catalog import open_data
    from softmask.estimator import SoftMaskClassifier, SoftMaskRegressor

    store = open_data(data, data_dir)
    if store.y is None:
        raise SettingError(f"{data} has no graph labels or targets to learn")
    kind = SoftMaskRegressor if store.y.is_floating_point() else SoftMaskClassifier
    model = kind(
        variant=variant,
        hidden=hidden,
        layers=layers,
        epochs=epochs,
        lr=lr,
        decay=decay,
        decay_every=decay_every,
        batch_size=batch_size,
        dropout=dropout,
        readout=readout,
        attributes=attributes,
        seed=seed,
        device=device,
    )
    with stop_on_interrupt() as stop, epoch_bar(f"training {variant}", epochs) as bar:
        model.fit(store, on_epoch=lambda epoch, metrics: bar(epoch, lambda: "") or stop.asked)
    model.save(out)
    summary = {**model.trained_.summary, "model": str(out), "variant": variant, "troubles": model.troubles_}
    _report(summary, as_json)
    if summary["interrupted"]:
        print(
            f"interrupted: {out} holds the model after {summary['epochs']} of {epochs} epochs",
            file=sys.stderr,
        )
        raise typer.Exit(130)


def _report(summary: dict, as_json: bool) -> None:
    import json

    from rich.console import Console

    if as_json:
        print(json.dumps(summary))
        return
    console = Console()
    console.print(
        f"trained [b]{summary['variant']}[/b] on {summary['graphs']} graphs for {summary['epochs']} epochs, "
        f"training loss {summary['train_loss']:.4f}",
        highlight=False,
    )
    for trouble in summary["troubles"]:
        console.print(f"[yellow]warning:[/] {trouble}", highlight=False)
    console.print(f"wrote {summary['model']}", highlight=False, soft_wrap=True)
