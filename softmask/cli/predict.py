"""softmask predict"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from softmask.atomic import atomic_path, check_writable
from softmask.cli import options
from softmask.errors import SettingError

FORMATS = (".csv", ".jsonl", ".parquet")


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file written by [b]softmask fit[/b].")],
    data: options.Data,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write: .csv, .jsonl or .parquet. Without it, CSV is printed."),
    ] = None,
    smiles: options.Smiles = None,
    skip_invalid: options.SkipInvalid = False,
    part: options.Part = None,
    masks: Annotated[bool, typer.Option("--masks", help="Add the masks: for every layer a number per node.")] = False,
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines instead of CSV.")] = False,
) -> None:
    """Predict for all graphs of a set, with probabilities and, if wanted, the masks.

    Multi-channel masks are given by their mean over channels. For a table of molecules the predictions come row by row
    in its order; with --skip-invalid, rows that cannot be used stay there, with nothing predicted.

    [b]Example:[/b] softmask predict mutag.safetensors MUTAG --masks --out predictions.jsonl

    [b]Example:[/b] softmask predict logs.safetensors new.csv --smiles smiles --out predictions.csv

    [b]Example:[/b] softmask predict mu.safetensors qm9 --part test --out test.csv
    """
    if out is not None and out.suffix.lower() not in FORMATS:
        raise SettingError(f"cannot tell the format of {out}: use one of {', '.join(FORMATS)}")
    if out is not None:
        check_writable(out)
    import warnings

    from softmask import load_model
    from softmask.cli.dataset import open_dataset, part_of
    from softmask.data.features import UnseenFeatureWarning

    loaded = load_model(model, device)
    store, table = open_dataset(data, data_dir, smiles, skip_invalid=skip_invalid)
    if table is not None and part is not None:
        raise SettingError("--part is for sets that the model was trained on, not for tables")
    numbers = part_of(loaded, store, part).tolist()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnseenFeatureWarning)
        rows = _rows(loaded, store if part is None else store.select(numbers), numbers, masks)
    if table is not None:
        rows = _by_row(rows, table)
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    if out is None:
        suffix = ".jsonl" if as_json else ".csv"
        sys.stdout.write(_text(rows, suffix))
        return
    _write(rows, out)
    print(f"wrote {len(rows)} predictions to {out}", file=sys.stderr)


def _rows(loaded: Any, store: Any, numbers: list[int], with_masks: bool) -> list[dict[str, Any]]:
    import torch

    from softmask.explain.masks import node_masks

    names = store.info.get("names")
    rows: list[dict[str, Any]] = [
        {"graph": number} | ({"name": names[g]} if names else {}) for g, number in enumerate(numbers)
    ]
    found = loaded.run(store)
    names = loaded.trained_.targets
    if found.probabilities is not None:
        column = f"predicted_{names[0]}" if names else "predicted"
        for row, label, p in zip(rows, found.values.tolist(), found.probabilities.tolist()):
            row[column] = label
            row.update({f"probability_{c}": round(v, 6) for c, v in zip(loaded.classes_.tolist(), p)})
    else:
        columns = found.values.reshape(len(rows), -1).T.tolist()
        targets = ["predicted"] if len(columns) == 1 else [f"predicted_{i}" for i in range(len(columns))]
        if names:
            targets = [f"predicted_{name}" for name in names]
        for target, column in zip(targets, columns):
            for row, value in zip(rows, column):
                row[target] = value
    if with_masks:
        for row, layers in zip(rows, found.masks):
            per_node = node_masks([torch.from_numpy(m) for m in layers])
            row["masks"] = per_node.t().double().numpy().round(4).tolist()
    return rows


def _by_row(rows: list[dict[str, Any]], table: Any) -> list[dict[str, Any]]:
    """A row for each of the table's, with its number from 1 and its SMILES; nothing is predicted where it was skipped.

    That it has the name of the table's column lets the two be joined.
    """
    empty = dict.fromkeys([name for name in rows[0] if name not in ("graph", "name")])
    found = dict(zip(table.rows, rows))
    return [
        {"row": row + 1, table.column: smiles} | {name: found.get(row, empty)[name] for name in empty}
        for row, smiles in enumerate(table.smiles)
    ]


def _text(rows: list[dict[str, Any]], suffix: str) -> str:
    import csv
    import io

    if suffix == ".jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {k: json.dumps(v) if k == "masks" and v is not None else v for k, v in row.items()} for row in rows
    )
    return text.getvalue()


def _write(rows: list[dict[str, Any]], out: Path) -> None:
    with atomic_path(out) as temporary:
        if out.suffix.lower() == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pylist(rows), temporary)
        else:
            temporary.write_text(_text(rows, out.suffix.lower()), encoding="utf-8")
