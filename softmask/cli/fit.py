"""softmask fit"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from softmask.atomic import check_writable
from softmask.cli import options
from softmask.cli.interrupt import stop_on_interrupt
from softmask.cli.progress import epoch_bar
from softmask.errors import SettingError


def fit(
    data: options.Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model file to write (.safetensors).")],
    smiles: options.Smiles = None,
    target: options.Target = None,
    task: options.Task = None,
    skip_invalid: options.SkipInvalid = False,
    source: options.Source = None,
    model: Annotated[str | None, typer.Option("--model", hidden=True)] = None,
    variant: options.Variant = None,
    hidden: options.Hidden = None,
    layers: options.Layers = None,
    epochs: options.Epochs = None,
    lr: options.Rate = None,
    decay: options.Decay = None,
    decay_every: options.DecayEvery = None,
    batch_size: options.BatchSize = None,
    dropout: options.Dropout = None,
    readout: options.Readout = None,
    attributes: options.Attributes = None,
    norm: options.Norm = None,
    average: options.Average = None,
    committee: options.Committee = None,
    edges: options.Edges = None,
    holdout: Annotated[
        float, typer.Option(help="Share of the graphs that are not trained on, but scored after every epoch.")
    ] = 0.0,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
    as_json: options.Json = False,
) -> None:
    """Train a model on all graphs of a set and write it to one file.

    Ctrl-C ends the training after the current epoch and writes the model as far as it got.

    Started by torchrun, all processes train the one model together on a set that may be larger than a device: each
    reads its own share of the graphs. The first process prints and writes.

    [b]Example:[/b] softmask fit MUTAG --variant m-smg-jk --epochs 300 --out mutag.safetensors

    [b]Example:[/b] softmask fit molecules.csv --smiles smiles --target logS --dropout 0 --out logs.safetensors

    [b]Example:[/b] torchrun --nproc-per-node 4 -m softmask fit large.safetensors --out model.safetensors
    """
    from softmask.fleet.ranks import is_first, world_size

    if model is not None:
        raise SettingError(
            "fit, predict and explain are for soft-mask models alone, so leave --model out (--variant says which); "
            f"baselines are measured by softmask evaluate {data} --model NAME"
        )
    if out.suffix != ".safetensors" and not out.is_dir():
        raise SettingError(f"--out {out}: a model file is one of safetensors; name it {out}.safetensors")
    if is_first():
        check_writable(out)
    from softmask.cli.dataset import open_dataset

    store, table = open_dataset(*(data, data_dir, smiles, target, task, skip_invalid), learn=True, quiet=not is_first())
    given = {
        "variant": variant,
        "hidden": hidden,
        "layers": layers,
        "epochs": epochs,
        "lr": lr,
        "decay": decay,
        "decay_every": decay_every,
        "batch_size": batch_size,
        "dropout": dropout,
        "readout": readout,
        "attributes": attributes,
        "norm": norm,
        "average": average,
        "committee": committee,
        "edges": edges,
    }
    settings = options.settings_of(source, store.info.get("name", data), given, molecules=table is not None)
    epochs = settings.epochs
    with stop_on_interrupt() as stop, _bar(f"training {settings.variant}", epochs, is_first()) as bar:

        def on_epoch(epoch: int, metrics: dict) -> bool:
            bar(epoch, lambda: "".join(f"{part} {float(metric[0]):.4f}" for part, metric in metrics.items()))
            return stop.asked

        if world_size() > 1 or holdout:
            trained, troubles = _fit_large(store, settings, seed, device, on_epoch, holdout)
        else:
            trained, troubles = _fit(store, settings, seed, device, on_epoch)
    if not is_first():
        return
    from softmask.model_file import save_model

    save_model(trained, out)
    summary = {**trained.summary, "model": str(out), "variant": settings.variant, "troubles": troubles}
    if settings.committee > 1:
        summary["committee"] = settings.committee
    if table is not None:
        summary |= {"task": trained.task, "targets": trained.targets, "skipped": table.skipped}
    _report(summary, as_json)
    if summary["interrupted"]:
        print(
            f"interrupted: {out} holds the model after {summary['epochs']} of {epochs} epochs",
            file=sys.stderr,
        )
        raise typer.Exit(130)


def _bar(what: str, epochs: int, shown: bool) -> AbstractContextManager[Callable[[int, Callable[[], str]], None]]:
    return epoch_bar(what, epochs) if shown else nullcontext(lambda epoch, note: None)


def _fit(store: Any, settings: Any, seed: int, device: str, on_epoch: Any) -> tuple[Any, list[str]]:
    from softmask.estimator import SoftMaskClassifier, SoftMaskRegressor

    kind = SoftMaskRegressor if store.y.is_floating_point() else SoftMaskClassifier
    model = kind.of(settings, seed, device).fit(store, on_epoch=on_epoch)
    return model.trained_, model.troubles_


def _fit_large(
    store: Any, settings: Any, seed: int, device: str, on_epoch: Any, holdout: float
) -> tuple[Any, list[str]]:
    from softmask.fit_large import fit_large
    from softmask.fleet.ranks import joined_ranks

    with joined_ranks(device) as ranks:
        fitted = fit_large(store, settings, ranks, seed, holdout, on_epoch=on_epoch)
    return fitted.trained, [str(trouble) for trouble in fitted.history.troubles]


def _report(summary: dict, as_json: bool) -> None:
    import json

    from rich.console import Console

    if as_json:
        print(json.dumps(summary))
        return
    console = Console(emoji=False)
    many = f"a committee of {summary['committee']} " if "committee" in summary else ""
    console.print(
        f"trained {many}[b]{summary['variant']}[/b] on {summary['graphs']} graphs for {summary['epochs']} epochs, "
        f"training loss {summary['train_loss']:.4f}",
        highlight=False,
    )
    for score in ("test_accuracy", "test_mean_absolute_error"):
        if score in summary:
            name = score.replace("_", " ")
            console.print(f"{name} {summary[score]:.4f} on {summary['test_graphs']} held-out graphs", highlight=False)
    for trouble in summary["troubles"]:
        console.print(f"[yellow]warning:[/] {trouble}", highlight=False)
    console.print(f"wrote {summary['model']}", highlight=False, soft_wrap=True)
