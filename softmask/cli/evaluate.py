"""softmask evaluate"""

from pathlib import Path
from typing import Annotated, Any

import typer

from softmask.cli import options, study
from softmask.errors import SettingError


def evaluate(
    data: options.Data,
    protocol: Annotated[
        str,
        typer.Option(
            help="[b]fair[/b]: a validation part inside each training part chooses the epoch. [b]paper[/b]: the epoch "
            "that is best on the test folds, as papers report it, which flatters. [b]both[/b]: both, and the gap "
            "between them. [b]holdout[/b]: one training, validation and test part."
        ),
    ] = "fair",
    folds: Annotated[int, typer.Option(help="Into how many parts the graphs are split.")] = 10,
    runs: Annotated[int, typer.Option(help="How many times, each with new folds and new weights.")] = 1,
    repeats: Annotated[
        int | None, typer.Option(help="Trainings for each fold of the fair protocol, averaged.", show_default="3")
    ] = None,
    smiles: options.Smiles = None,
    target: options.Target = None,
    task: options.Task = None,
    skip_invalid: options.SkipInvalid = False,
    source: options.Source = None,
    model: options.Model = None,
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
    grid: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Choose the settings too, for each fold on its validation part, from a grid: a TOML file, or bio, "
            "social, quick or paper. Options given beside it win over what it gives one value.",
        ),
    ] = None,
    sample: study.Sample = None,
    halving: Annotated[bool, typer.Option("--halving", help="Drop the worse settings of the grid early.")] = False,
    patience: study.Patience = None,
    validation: Annotated[
        float | None, typer.Option(help="Share of a training part that chooses.", show_default="0.1")
    ] = None,
    fold_files: Annotated[
        Path | None, typer.Option(help="Given folds: a folder with a file of test graphs for each, or one JSON file.")
    ] = None,
    ratios: Annotated[
        str | None,
        typer.Option(help="Of training, validation and test part, for holdout.", show_default="0.8,0.1,0.1"),
    ] = None,
    train_ids: Annotated[Path | None, typer.Option(help="For holdout: file with the graphs to train on.")] = None,
    validation_ids: Annotated[Path | None, typer.Option(help="For holdout: file with those that choose.")] = None,
    test_ids: Annotated[Path | None, typer.Option(help="For holdout: file with those to test on.")] = None,
    seed: options.Seed = 0,
    out: study.Out = None,
    fresh: study.Fresh = False,
    weights: Annotated[bool, typer.Option("--weights", help="Keep the final weights of all models.")] = False,
    force: options.Force = False,
    tensorboard: study.TensorBoard = False,
    device: study.Devices = "auto",
    precision: options.Precision = "auto",
    executor: study.Runner = "local",
    address: study.Address = None,
    jobs: study.Jobs = 1,
    data_dir: options.DataDir = None,
    as_json: options.Json = False,
) -> None:
    """How good is a model on graphs it has not seen?

    All folds of all runs train together. The study's folder keeps every number of every epoch; if the command is
    interrupted, or killed, the same command goes on where it stopped. The input features (which labels and degrees
    there are) are taken from all graphs of the set, as in the paper; their classes are not looked at for that.

    [b]Example:[/b] softmask evaluate PROTEINS --variant smg --protocol both --runs 10

    [b]A baseline:[/b] softmask evaluate PROTEINS --model gin --protocol both --runs 10
    """
    from softmask.baselines.registry import check_options
    from softmask.cli.dataset import open_dataset
    from softmask.study.ask import ask

    if protocol == "tune":
        raise SettingError("to choose settings without testing them, use softmask tune")
    _check(protocol, grid, {"sample": sample, "halving": halving or None}, patience, repeats, validation, ratios)
    store, table = open_dataset(data, data_dir, smiles, target, task, skip_invalid, learn=True)
    given = {
        "model": model,
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
    name = store.info.get("name", data)
    base = options.settings_of(source, name, given, molecules=table is not None)
    settings = [base] if grid is None else options.grid_of(grid, name, sample, seed, base, given)
    idle = {"repeats": repeats, "validation": validation if grid is None else None, "device": device, "force": force}
    check_options((s.model for s in settings), **idle)
    study_ = ask(
        store,
        settings,
        protocol=protocol,
        folds=folds,
        runs=runs,
        repeats=3 if repeats is None else repeats,
        validation=0.1 if validation is None else validation,
        patience=patience,
        halving=halving,
        given=_given(protocol, fold_files, {"train": train_ids, "validation": validation_ids, "test": test_ids}, store),
        ratios=_numbers(ratios or "0.8,0.1,0.1"),
        seed=seed,
        precision=precision,
        jobs=jobs,
        folder=out,
        weights=weights,
        force=force,
    )
    study.tell(study.run_study(study_, executor, address, device, fresh, tensorboard), as_json)


def _check(
    protocol: str,
    grid: str | None,
    search: dict[str, Any],
    patience: int | None,
    repeats: int | None,
    validation: float | None,
    ratios: str | None,
) -> None:
    """Refuses options that would have no effect."""
    for name, value in search.items():
        if grid is None and value is not None:
            raise SettingError(f"--{name} belongs to --grid")
    for name, option, protocols in (
        ("patience", patience, ("fair", "both", "holdout")),
        ("repeats", repeats, ("fair", "both")),
        ("validation", validation, ("fair", "both")),
        ("ratios", ratios, ("holdout",)),
    ):
        if option is not None and protocol not in protocols:
            raise SettingError(f"--{name} belongs to --protocol {' or '.join(protocols)}")


def _given(protocol: str, fold_files: Path | None, parts: dict[str, Path | None], store: Any) -> Any:
    """Folds or parts that stand in files, if any."""
    from softmask.data.fold_files import read_folds, read_parts

    files = {name: path for name, path in parts.items() if path is not None}
    if files and protocol != "holdout":
        raise SettingError("--train-ids, --validation-ids and --test-ids belong to --protocol holdout")
    if fold_files is not None and protocol == "holdout":
        raise SettingError("--fold-files belongs to the protocols with folds; holdout takes --train-ids and so on")
    if files:
        return [read_parts(files, store.num_graphs)]
    return None if fold_files is None else read_folds(fold_files, store.num_graphs)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise SettingError(f"--ratios {text!r}: expected numbers with commas between, such as 0.8,0.1,0.1") from None
