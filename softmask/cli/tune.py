"""softmask tune"""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from softmask.baselines.registry import SOFT_MASK
from softmask.cli import options, study


def tune(
    data: options.Data,
    smiles: options.Smiles = None,
    target: options.Target = None,
    task: options.Task = None,
    skip_invalid: options.SkipInvalid = False,
    grid: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="The settings to try: a TOML file with a list of values for each, or one that comes along: quick, "
            "bio, social (the paper's own search), or paper (that of the set's family). Options given beside it win "
            "over what it gives one value.",
        ),
    ] = "quick",
    sample: study.Sample = None,
    halving: Annotated[
        bool, typer.Option("--halving", help="Train all settings shortly, the best third longer, and so on.")
    ] = False,
    folds: Annotated[int, typer.Option(help="Into how many parts the graphs are split.")] = 10,
    runs: Annotated[int, typer.Option(help="How many times, each with new folds.")] = 1,
    source: options.Source = None,
    model: options.Model = None,
    variant: options.Variant = None,
    epochs: options.Epochs = None,
    patience: study.Patience = None,
    validation: Annotated[float, typer.Option(help="Share of a training part that chooses.")] = 0.1,
    fold_files: Annotated[
        Path | None,
        typer.Option(help="Given folds, as for [b]evaluate[/b]: their test graphs are left alone, fold by fold."),
    ] = None,
    seed: options.Seed = 0,
    out: study.Out = None,
    fresh: study.Fresh = False,
    tensorboard: study.TensorBoard = False,
    device: study.Devices = "auto",
    precision: options.Precision = "auto",
    executor: study.Runner = "local",
    address: study.Address = None,
    jobs: study.Jobs = 1,
    data_dir: options.DataDir = None,
    as_json: options.Json = False,
) -> None:
    """Choose settings for a set, on validation parts; no test fold is looked at.

    Settings that share shapes train together, with a rate, decay and dropout of their own. The choice is written as
    chosen.toml into the study's folder; [b]evaluate[/b] and [b]fit[/b] take it with --settings.

    The validation parts lie in the training parts of the same folds that [b]evaluate[/b] tests on with the same seed,
    so the choice has seen most graphs. For a figure in which it has not, use [b]evaluate --grid[/b], which chooses anew
    for every fold.

    [b]Example:[/b] softmask tune PROTEINS --grid bio --sample 20 --halving

    [b]Example:[/b] softmask tune molecules.csv --smiles smiles --target logS
    """
    from softmask.cli.dataset import open_dataset
    from softmask.data.fold_files import read_folds
    from softmask.study.ask import ask
    from softmask.study.grid import write_settings_toml

    store, table = open_dataset(data, data_dir, smiles, target, task, skip_invalid, learn=True)
    name = store.info.get("name", data)
    given = {"model": model, "variant": variant, "epochs": epochs}
    base = options.settings_of(source, name, given, molecules=table is not None)
    study_ = ask(
        store,
        options.grid_of(grid, name, sample, seed, base, given),
        protocol="tune",
        folds=folds,
        runs=runs,
        validation=validation,
        patience=patience,
        halving=halving,
        given=None if fold_files is None else read_folds(fold_files, store.num_graphs),
        seed=seed,
        precision=precision,
        jobs=jobs,
        folder=out,
    )
    record = study.run_study(study_, executor, address, device, fresh, tensorboard)
    assert record.result is not None
    chosen, best = study_.question.settings[record.result["chosen"]], record.result["ranking"][0]
    write_settings_toml(
        record.folder / "chosen.toml",
        chosen,
        f"Chosen for {name} among {len(study_.question.settings)} settings: validation {record.question['metric']} "
        f"{best['mean']:.4f}. No test fold was looked at.",
    )
    study.tell(record, as_json)
    if not as_json:
        print(f"the choice: {record.folder / 'chosen.toml'}; to use it:")
        # A baseline is not kept: fit is for soft-mask models.
        more = ["--out", "model.safetensors"] if chosen.model == SOFT_MASK else []
        named = {"--smiles": smiles, "--task": task, "--data-dir": data_dir}
        wishes = [text for option, value in named.items() if value is not None for text in (option, str(value))]
        wishes += [text for one in target or () for text in ("--target", one)]
        wishes += ["--skip-invalid"] if skip_invalid else []
        command = ["softmask", "fit" if more else "evaluate", data, *wishes]
        print("  " + shlex.join([*command, "--settings", str(record.folder / "chosen.toml"), *more]))
