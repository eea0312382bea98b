"""softmask explain"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from softmask.atomic import atomic_path, check_writable
from softmask.cli import options
from softmask.cli.molecules import atom_table, effects_of, named_targets, one_number, units
from softmask.errors import SettingError, SoftmaskError

LIMIT = 20
_AT_ONCE = 400  # graphs


def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file written by [b]softmask fit[/b].")],
    data: options.Data,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write one page to explore in a browser; it needs no network.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Write a picture of each graph into this folder; made if needed.")
    ] = None,
    atoms: Annotated[
        Path | None,
        typer.Option(
            "--atoms",
            help="Molecules: write a table of which kinds of atoms the model uses, over all molecules of the part or "
            "set, as .md, and the same as .json beside it.",
        ),
    ] = None,
    part: options.Part = None,
    smiles: options.Smiles = None,
    skip_invalid: options.SkipInvalid = False,
    graphs: Annotated[
        str | None, typer.Option("--graphs", help="Which graphs, by their numbers from 0: 0,5,7 or 10-19.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            help="How many graphs to draw by chance, evenly over the classes.", min=1, show_default=str(LIMIT)
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            help="Of graphs with more nodes, draw that many that hang together, around the most important.", min=1
        ),
    ] = None,
    reduction: Annotated[
        str, typer.Option(help="How the channels of multi-channel masks become one number: mean, max or norm.")
    ] = "mean",
    seed: Annotated[int, typer.Option(help="Seed of the chance.", min=0)] = 0,
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
) -> None:
    """See which parts of the graphs a model used: pictures layer by layer, and a page to explore.

    The pictures show the masks of each layer from left to right. On the page you choose among the graphs, switch
    between layers, shut out the less important nodes and see how the prediction changes.

    [b]Example:[/b] softmask explain mutag.safetensors MUTAG --html mutag.html --limit 100

    [b]Example:[/b] softmask explain mutag.safetensors MUTAG --svg pictures --graphs 0,5,7

    [b]Example:[/b] softmask explain mu.safetensors qm9 --part test --atoms mu-atoms.md --html mu.html
    """
    if html is None and svg is None and atoms is None:
        raise SettingError("nothing to do: give --html PAGE for a page to explore, or --svg FOLDER for pictures")
    if graphs is not None and limit is not None:
        raise SettingError("give --graphs or --limit, not both")
    if reduction not in ("mean", "max", "norm"):
        raise SettingError(f"--reduction {reduction}: use mean, max or norm")
    wanted = None if graphs is None else _numbers(graphs)
    _check_outputs(html, svg, atoms)
    from softmask import load_model
    from softmask.cli.dataset import part_of
    from softmask.explain.subject import check_drawable, subjects

    loaded = load_model(model, device)
    store = _open(data, data_dir, smiles, skip_invalid, loaded.trained_)
    _check_classes(store, loaded)
    among = part_of(loaded, store, part)
    if wanted is not None:
        _check_numbers(wanted, len(store), data)
    if atoms is not None:
        numbers = among.tolist() if wanted is None else wanted
        atom_table(loaded, store, _explained(loaded, store, numbers, reduction), numbers, model, atoms)
    if html is None and svg is None:
        return
    if wanted is None:
        wanted = _drawn(store, among, LIMIT if limit is None else limit, seed)
    check_drawable(store, wanted, size)
    explained = _explain(loaded, store.select(wanted), reduction)
    if not store.info.get("names"):  # they are called by their number in the whole set
        explained = [replace(said, name=str(number)) for said, number in zip(explained, wanted)]
    shown = list(
        _bar(subjects(store, explained, wanted, size, on_trouble=_warn), len(wanted), "placing nodes of graphs")
    )
    effects = effects_of(loaded, explained, shown)
    if svg is not None:
        _pictures(store, shown, svg, named_targets(loaded, store) if one_number(loaded) else None, effects)
        _say(f"wrote {len(shown)} picture{'s' if len(shown) > 1 else ''} to {svg}")
    if html is not None:
        _page(loaded, store, explained, shown, effects, model, html)
        _say(f"wrote {html} ({html.stat().st_size / 1e6:.1f} MB) with {len(shown)} of {len(store)} graphs")


def _numbers(text: str) -> list[int]:
    """Numbers of graphs, in the order in which they were given, each once."""
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = (p.strip() for p in part.partition("-"))
        last = last if dash else first
        if not all(p.isascii() and p.isdigit() and len(p) <= 9 for p in (first, last)) or int(last) < int(first):
            raise SettingError(f"--graphs {text}: {part.strip()!r} is no number; the form is 0,5,7 or 10-19")
        if int(last) - int(first) > 100_000:
            raise SettingError(f"--graphs {text}: more graphs than anyone can look at")
        found.update(dict.fromkeys(range(int(first), int(last) + 1)))
    return list(found)


def _check_outputs(html: Path | None, svg: Path | None, atoms: Path | None) -> None:
    """All that could go wrong at the end, before any work is done."""
    if atoms is not None:
        if atoms.suffix.lower() != ".md":
            raise SettingError(f"--atoms {atoms}: the table needs a name that ends in .md")
        check_writable(atoms)
        check_writable(atoms.with_suffix(".json"))
    if html is None and svg is None:
        return
    if html is not None:
        if html.suffix.lower() not in (".html", ".htm"):
            raise SettingError(f"--html {html}: the page needs a name that ends in .html")
        check_writable(html)
    if svg is not None:
        try:
            svg.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingError(f"cannot make the folder {svg}: {error.strerror}") from None
        check_writable(svg / "graph-0.svg")
    from importlib.util import find_spec

    for package in ("pygraphviz", *(("matplotlib",) if svg is not None else ())):
        if find_spec(package) is None:
            raise SettingError(f"pictures need {package}: pip install 'softmask[draw]'")


def _check_numbers(wanted: list[int], count: int, data: str) -> None:
    for number in wanted:
        if number >= count:
            raise SettingError(f"there is no graph {number}: {data} has graphs 0 to {count - 1}")


def _open(data: str, data_dir: Path | None, smiles: str | None, skip_invalid: bool, trained: Any) -> Any:
    """The graphs, with what is known of the targets that the model predicts, if anything is."""
    from softmask.cli.dataset import open_dataset
    from softmask.data.sheet import is_sheet
    from softmask.data.targets import pick_targets

    names = trained.targets
    if names and is_sheet(data):
        try:
            return open_dataset(data, data_dir, smiles, names, trained.task, skip_invalid).store
        except SoftmaskError:
            pass  # new molecules, of which nothing is known
    store = open_dataset(data, data_dir, smiles, skip_invalid=skip_invalid).store
    if names and set(names) <= set(store.info.get("targets") or ()):
        store = pick_targets(store, names)
    if store.y is not None:
        numbers = store.y.is_floating_point()
        if numbers != (trained.task == "regression") or (numbers and store.y.size(1) != trained.outputs):
            store = replace(store, y=None)  # of something else than the model predicts
    return store


def _check_classes(store: Any, loaded: Any) -> None:
    """Warns of graphs that seem to be of another set than the model: it would call most of them wrong."""
    if store.y is None or store.y.is_floating_point():
        return
    known = loaded.classes_.tolist()
    strange = [str(c) for c in store.info["classes"] if c not in known]
    if strange:
        _warn(
            f"the model knows the classes {', '.join(map(str, known[:5]))}{', ...' if len(known) > 5 else ''}; these "
            f"graphs also have {', '.join(strange[:5])}{', ...' if len(strange) > 5 else ''}: are they of another set?"
        )


def _drawn(store: Any, among: Any, limit: int, seed: int) -> list[int]:
    """Graphs drawn by chance, in turn from each class, so that rare classes are seen too."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(among)
    if store.y is None or store.y.is_floating_point():
        return sorted(order[:limit].tolist())
    label = store.y.cpu().numpy()[order]
    # The how-manieth of its class each one is: the first of all classes come before the second of any.
    turn = np.empty(len(order), dtype=np.int64)
    for c in np.unique(label):
        turn[label == c] = np.arange(int((label == c).sum()))
    return sorted(order[np.argsort(turn, kind="stable")][:limit].tolist())


def _explain(loaded: Any, store: Any, reduction: Any) -> list[Any]:
    import warnings

    from softmask.data.features import UnseenFeatureWarning
    from softmask.explain.explanation import explain

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnseenFeatureWarning)
        explained = explain(loaded, store, reduction)
    for warning in caught:
        _warn(str(warning.message))
    return explained


def _explained(loaded: Any, store: Any, numbers: Sequence[int], reduction: str) -> Iterator[list[Any]]:
    """Explanations of many graphs, some at a time, with a bar."""
    for first in _bar(range(0, len(numbers), _AT_ONCE), -(-len(numbers) // _AT_ONCE), "explaining graphs"):
        yield _explain(loaded, store.select(numbers[first : first + _AT_ONCE]), reduction)


def _pictures(
    store: Any, shown: Sequence[Any], folder: Path, named: list[str] | None, effects: list[Any] | None
) -> None:
    import numpy as np

    from softmask.explain.draw import caption, draw_masks
    from softmask.explain.molecule import store_molecule_svg

    roles = store.info.get("roles") if store.node_role is not None else None
    for place, subject in enumerate(_bar(shown, len(shown), "drawing graphs")):
        said, path = subject.explanation, folder / f"graph-{subject.number}.svg"
        name = said.name if store.info.get("names") else f"{store.info.get('name', 'data')}, graph {subject.number}"
        if subject.cut:
            name += f", {subject.nodes:,} important of {subject.whole:,} nodes"
        if named and len(named) == 1:
            name += f", {named[0]}"
        about = {"predicted": said.predicted, "probability": _probability(said), "actual": said.actual}
        if subject.bonds is not None:
            table, layers = said.masks, [f"layer {k + 1}" for k in range(said.masks.shape[1])]
            if effects is not None:  # one more panel, from none to the largest of the molecule
                size = np.abs(effects[place])
                table = np.column_stack([table, size / max(float(size.max()), 1e-30)])
                layers.append(f"effect, 1 = {size.max():.3g}")
            options = {"title": f"{name}: {caption(**about)}", "layer_names": layers}
            with atomic_path(path) as spare:
                spare.write_text(store_molecule_svg(store, subject.number, table, **options), encoding="utf-8")
        else:
            draw_masks(
                *(said.data, said.masks, path, name), roles=roles, labels=subject.labels, place=subject.place, **about
            )


def _page(
    loaded: Any,
    store: Any,
    explained: Sequence[Any],
    shown: Sequence[Any],
    effects: list[Any] | None,
    model: Path,
    html: Path,
) -> None:
    import warnings

    from softmask.data.features import UnseenFeatureWarning
    from softmask.explain.faithfulness import threshold_curve
    from softmask.explain.page import THRESHOLDS, html_page

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenFeatureWarning)  # said already
        curves = threshold_curve(loaded, explained, THRESHOLDS)
    name = str(store.info.get("name", "graphs"))
    page = html_page(
        *(shown, curves),
        effects=effects,
        title=f"{name}: what the masks show",
        about=_about(loaded, explained, model, len(store), units(loaded)[0]),
        targets=named_targets(loaded, store),
        roles=store.info.get("roles") if store.node_role is not None else None,
    )
    with atomic_path(html) as spare:
        spare.write_text(page, encoding="utf-8")


def _about(loaded: Any, explained: Sequence[Any], model: Path, count: int, unit: str) -> str:
    settings, summary = loaded.trained_.settings, loaded.trained_.summary
    kind = settings.variant if loaded.trained_.geometric is None else f"geometric {settings.variant}"
    if settings.committee > 1:
        kind = f"a committee of {settings.committee} {kind}"
    words = f"{model.name}: {kind} with {settings.layers} layers, trained on {summary.get('data') or 'graphs'}"
    words += f" ({summary['graphs']:,} graphs). Shown: {len(explained):,} of {count:,} graphs"
    right = [
        said.predicted == said.actual for said in explained if said.actual is not None and said.classes is not None
    ]
    if right:
        return f"{words}, {sum(right):,} of them predicted right."
    known = [abs(said.predicted - said.actual) for said in explained if said.actual is not None]
    if known and one_number(loaded):
        return f"{words}; mean absolute error on these {sum(known) / len(known):.3g}{unit and ' '}{unit}."
    return f"{words}."


def _probability(said: Any) -> float | None:
    return None if said.probabilities is None else float(said.probabilities.max())


def _bar(items: Iterable[Any], total: int, what: str) -> Iterator[Any]:
    """The items, with a bar that counts them on a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True, emoji=False)
    yield from track(items, what, total, console=console, transient=True, disable=not console.is_terminal)


def _say(words: str) -> None:
    print(words, file=sys.stderr)


def _warn(words: str) -> None:
    print(f"warning: {words}", file=sys.stderr)
