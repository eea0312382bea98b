"""softmask models"""

import json
from dataclasses import asdict

from softmask.cli import options


def models(as_json: options.Json = False) -> None:
    """List the baselines that [b]evaluate --model[/b] takes.

    How they train: in a fleet, all models of a study as one program; one by one, on PyG's batches; or once, without
    epochs, with settings of their own chosen inside each training part.

    [b]Example:[/b] softmask evaluate MUTAG --model gin --protocol both
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from softmask.baselines.registry import BASELINES

    if as_json:
        rows = [{k: v for k, v in asdict(b).items() if k != "source"} for b in BASELINES.values()]
        print(json.dumps(rows))
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    for column, whole in (("--model", True), ("trains", True), ("what it is, and from where", False)):
        table.add_column(column, no_wrap=whole)
    for b in BASELINES.values():
        needs = f"; needs {' and '.join(b.needs)}" if b.needs else ""
        table.add_row(b.name, b.way, f"{b.about}{needs}\n[dim]{b.reference}[/]")
    Console(emoji=False).print(table)
