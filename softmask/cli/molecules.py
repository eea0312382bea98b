"""What `softmask explain` says of molecules: units, effects of atoms, and the table of their kinds."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from softmask.atomic import atomic_path
from softmask.errors import SettingError


def one_number(loaded: Any) -> bool:
    """Whether a model predicts one number."""
    return loaded.trained_.task == "regression" and loaded.trained_.outputs == 1


def units(loaded: Any) -> list[str]:
    """The unit of each target; empty where it is not known."""
    from softmask.data import qm9

    trained = loaded.trained_
    if unit := trained.summary.get("unit"):
        return [str(unit)]
    # A table may have the name of a set and columns of the names of its targets, but elements are labels there.
    ours = trained.features.kind == "attributes"
    found = qm9.units(trained.summary.get("data"), trained.targets or ()) if ours else None
    return found or [""] * trained.outputs


def named_targets(loaded: Any, store: Any) -> list[str] | None:
    """The names of the targets with their units."""
    names = loaded.trained_.targets or store.info.get("targets")
    if not names or loaded.trained_.task != "regression":
        return names
    return [f"{name} ({unit})" if unit else name for name, unit in zip(names, units(loaded))]


def effects_of(loaded: Any, explained: Sequence[Any], shown: Sequence[Any]) -> list[Any] | None:
    """Of molecules and a model of one number, how its prediction changes without each atom."""
    import warnings

    from softmask.data.features import UnseenFeatureWarning
    from softmask.explain.faithfulness import shut_one

    if not one_number(loaded) or any(subject.bonds is None for subject in shown):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenFeatureWarning)  # said already
        return [change[:, 0] for change in shut_one(loaded, explained)]


def atom_table(
    loaded: Any, store: Any, explained: Iterable[list[Any]], numbers: Sequence[int], model: Path, path: Path
) -> None:
    """Writes the table of kinds of atoms, as Markdown and as JSON with its provenance.

    Args:
        loaded: the model.
        store: the set.
        explained: explanations of the molecules `numbers`, some at a time.
        numbers: molecules of the set.
        model: its file.
        path: of the Markdown; the JSON stands beside it.
    """
    from softmask.explain.atom_kinds import kind_markdown, kind_statistics
    from softmask.explain.faithfulness import shut_one
    from softmask.explain.molecule import has_molecules
    from softmask.study.provenance import provenance

    trained = loaded.trained_
    if not one_number(loaded) or not has_molecules(store):
        raise SettingError("--atoms is for molecules (with SMILES) and a model that predicts one number of them")
    said, effects = [], []
    for some in explained:
        effects += [change[:, 0] for change in shut_one(loaded, some)]
        said += some
    found = kind_statistics(store, said, numbers, effects)
    target, (unit,) = (trained.targets or ["the target"])[0], units(loaded)
    record = {
        "model": {"file": model.name, "targets": trained.targets, "unit": unit} | trained.summary,
        "data": store.info.get("name"),
        "data_hash": store.content_hash(),
        **found,
        "provenance": provenance(),
    }
    text = kind_markdown(found, target, unit)
    for out, content in ((path.with_suffix(".json"), json.dumps(record, indent=1) + "\n"), (path, text)):
        with atomic_path(out) as spare:
            spare.write_text(content, encoding="utf-8")
    print(text)
    print(f"wrote {path} and {path.with_suffix('.json')}: {len(numbers):,} molecules", file=sys.stderr)
