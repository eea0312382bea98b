"""softmask evaluate"""

from typing import Annotated

import typer

from softmask.cli import options
from softmask.cli.interrupt import stop_on_interrupt
from softmask.cli.progress import epoch_bar


def evaluate(
    data: options.Data,
    folds: Annotated[int, typer.Option(help="Into how many parts the graphs are split.")] = 10,
    runs: Annotated[int, typer.Option(help="How many times, each with new folds and new weights.")] = 1,
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
    """Cross-validate a model: how good is it on graphs it has not seen?

    All folds of all runs train together. The score is taken after the last epoch, on the fold that was held out; no
    epoch or setting is chosen on it. The input features (which labels and degrees there are) are taken from all graphs
    of the set, as in the paper; their classes are not looked at for that.

    [b]Example:[/b] softmask evaluate PROTEINS --variant smg --folds 10 --epochs 100
    """
    import json
    import sys

    from rich.console import Console
    from rich.table import Table

    from softmask.data.catalog import open_data
    from softmask.device import pick_device
    from softmask.study.cross_validation import cross_validate
    from softmask.study.provenance import provenance
    from softmask.study.settings import Settings

    settings = Settings(
        variant=variant,
        hidden=hidden,
        layers=layers,
        epochs=epochs,
        lr=lr,
        decay=decay,
        decay_every=decay_every,
        batch_size=batch_size,
        dropout=dropout,
        readout=readout,  # type: ignore[arg-type]
        attributes=attributes,
    )
    picked = pick_device(device)
    store = open_data(data, data_dir)
    classes = store.y is not None and not store.y.is_floating_point()
    what, scale, unit = ("accuracy", 100, " %") if classes else ("mean absolute error", 1, "")
    with stop_on_interrupt() as stop, epoch_bar(f"{runs} x {folds} folds", epochs) as bar:
        result = cross_validate(
            store,
            settings,
            folds=folds,
            runs=runs,
            seed=seed,
            device=str(picked),
            on_epoch=lambda epoch, metric: (
                bar(epoch, lambda: f"{what} {scale * metric.mean():.1f}{unit}") or stop.asked
            ),
        )
    mean, deviation = float(result.metric.mean()), float(result.metric.std(axis=1).mean())
    if as_json:
        record = {
            "data": store.info.get("name", data),
            "data_hash": store.content_hash(),
            "settings": settings.to_json(),
            "metric": what,
            "mean": mean,
            "std_over_folds": deviation,
            "folds": result.metric.tolist(),
            "epochs": result.curve.shape[-1],
            "interrupted": result.interrupted,
            "troubles": [str(t) for t in result.troubles],
            "provenance": provenance(device=str(picked), seed=seed),
        }
        print(json.dumps(record))
    else:
        console = Console()
        table = Table(title=f"{variant} on {store.info.get('name', data)}: {what} on the held-out fold")
        table.add_column("run", justify="right")
        for fold in range(1, folds + 1):
            table.add_column(f"{fold}", justify="right")
        table.add_column("mean", justify="right", style="bold")
        digits = 1 if classes else 4
        for run, row in enumerate(result.metric):
            cells = [f"{scale * v:.{digits}f}" for v in row]
            table.add_row(f"{seed + run}", *cells, f"{scale * row.mean():.{digits}f}")
        console.print(table)
        console.print(
            f"{what} [b]{scale * mean:.{digits}f}{unit}[/b], standard deviation over folds "
            f"{scale * deviation:.{digits}f}; after epoch {result.curve.shape[-1]}, none chosen",
            highlight=False,
        )
        for trouble in result.troubles:
            console.print(f"[yellow]warning:[/] {trouble}", highlight=False)
    if result.interrupted:
        done = result.curve.shape[-1]
        print(f"interrupted: these are the scores after {done} of {epochs} epochs", file=sys.stderr)
        raise typer.Exit(130)
