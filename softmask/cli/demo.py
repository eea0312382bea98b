"""softmask demo"""

from pathlib import Path
from typing import Annotated, Any

import typer

from softmask.cli import options
from softmask.cli.interrupt import stop_on_interrupt
from softmask.cli.progress import epoch_bar
from softmask.errors import SettingError


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the pictures; made if it is not there.")] = Path(
        "demo"
    ),
    graphs: Annotated[int, typer.Option(help="Number of graphs to make.", min=20)] = 400,
    folds: Annotated[int, typer.Option(help="Into how many parts they are split.")] = 5,
    epochs: Annotated[int, typer.Option(help="How often every training graph is seen.")] = 30,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """See it work: learn to tell two planted motifs apart, and look at which nodes the masks let through.

    The built-in set [b]motif[/b] hides one of two motifs with equal degrees in random graphs; which nodes belong to it
    is known, so the masks can be scored: 1.0 means that all motif nodes get a larger mask than all others, 0.5 is
    chance.

    [b]Example:[/b] softmask demo --out pictures
    """
    import json
    import sys

    from rich.console import Console
    from rich.table import Table

    from softmask.data.synthetic import motif
    from softmask.device import pick_device
    from softmask.study.cross_validation import cross_validate
    from softmask.study.settings import Settings

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"cannot make the folder {out}: {error.strerror}") from None
    store = motif(num_graphs=graphs, seed=seed)
    settings = Settings(variant="smg-jk", hidden=32, layers=4, epochs=epochs, lr=1e-3, batch_size=32, dropout=0.0)
    with stop_on_interrupt() as stop, epoch_bar(f"{folds} models at once", epochs) as bar:
        result = cross_validate(
            store,
            settings,
            folds=folds,
            seed=seed,
            device=str(pick_device(device)),
            on_epoch=lambda epoch, metric: (
                bar(epoch, lambda: f"held-out accuracy {100 * metric.mean():.0f} %") or stop.asked
            ),
        )
    rows = [_fold(store, settings, result, fold) for fold in range(folds)]
    pictures = _draw(store, settings, result, out)
    if result.interrupted:
        done = result.curve.shape[-1]
        print(f"interrupted: these are the scores after {done} of {epochs} epochs", file=sys.stderr)
    if as_json:
        print(json.dumps({"folds": rows, "pictures": [str(p) for p in pictures], "interrupted": result.interrupted}))
        return
    console = Console(emoji=False)
    table = Table(title=f"SMG-JK on 'motif': {graphs} graphs, {folds} folds, scores on the held-out fold")
    for column in ("fold", "accuracy", "masks find the motif", "degree finds the motif"):
        table.add_column(column, justify="right")
    for fold, row in enumerate(rows, start=1):
        table.add_row(f"{fold}", f"{100 * row['accuracy']:.1f} %", f"{row['mask_auc']:.3f}", f"{row['degree_auc']:.3f}")
    table.add_section()
    means = {key: sum(row[key] for row in rows) / folds for key in rows[0]}
    table.add_row(
        "mean",
        f"{100 * means['accuracy']:.1f} %",
        f"{means['mask_auc']:.3f}",
        f"{means['degree_auc']:.3f}",
        style="bold",
    )
    console.print(table)
    console.print("The last two columns are ROC-AUC over the nodes of a graph: 0.5 is chance, 1.0 is perfect.")
    console.print("The masks layer by layer, for graphs that the model had not seen:")
    for picture in pictures:
        console.print(f"  {picture}", soft_wrap=True, highlight=False)
    if result.interrupted:
        raise typer.Exit(130)


def _model(settings: Any, result: Any, fold: int, outputs: int) -> Any:
    model = settings.build_whole(result.features, outputs, "classification")
    model.load_state_dict(result.weights[fold])
    return model


def _fold(store: Any, settings: Any, result: Any, fold: int) -> dict[str, float]:
    from softmask.explain.masks import node_masks
    from softmask.explain.score import mask_auc
    from softmask.fleet.predict import predict

    held_out = store.select(result.folds[0][fold])
    _, masks = predict(_model(settings, result, fold, 2), held_out, result.features(held_out))
    planted = held_out.node_role == held_out.info["roles"].index("motif")
    return {
        "accuracy": float(result.metric[0, fold]),
        "mask_auc": mask_auc(node_masks(masks).mean(dim=1), planted, held_out.batch),
        "degree_auc": mask_auc(held_out.degree(), planted, held_out.batch),
    }


def _draw(store: Any, settings: Any, result: Any, out: Path) -> list[Path]:
    """Two held-out graphs of each class, from the first fold."""
    import torch

    from softmask.explain.draw import draw_masks
    from softmask.explain.masks import node_masks
    from softmask.fleet.predict import predict

    test = result.folds[0][0]
    chosen = [g for c in (0, 1) for g in [g for g in test.tolist() if int(store.y[g]) == c][:2]]
    part = store.select(chosen)
    outputs, masks = predict(_model(settings, result, 0, 2), part, result.features(part))
    per_node = node_masks(masks)
    probabilities = torch.softmax(outputs, dim=1)
    classes = store.info["classes"]
    paths = []
    for i, g in enumerate(chosen):
        best = int(probabilities[i].argmax())
        paths.append(
            draw_masks(
                part[i],
                per_node[int(part.node_ptr[i]) : int(part.node_ptr[i + 1])],
                out / f"motif-{g}.png",
                title=f"motif, graph {g}",
                roles=store.info["roles"],
                predicted=str(classes[best]),
                probability=float(probabilities[i, best]),
                actual=str(classes[int(store.y[g])]),
            )
        )
    return paths
