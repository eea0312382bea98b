"""The command ``softmask``: one command a file. torch is imported inside the commands, so that --help is quick."""

import signal
import sys
from typing import Annotated

import typer
from rich.console import Console

from softmask import __version__
from softmask.cli.app import App
from softmask.cli.bench import bench
from softmask.cli.data import app as data_app
from softmask.cli.demo import demo
from softmask.cli.evaluate import evaluate
from softmask.cli.explain import explain
from softmask.cli.fit import fit
from softmask.cli.interrupt import Interrupted, raise_interrupted
from softmask.cli.models import models
from softmask.cli.predict import predict
from softmask.cli.reproduce import reproduce
from softmask.cli.results import app as results_app
from softmask.cli.tune import tune
from softmask.errors import SoftmaskError

app = App(
    name="softmask",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Predict properties of whole graphs with soft-mask GNNs, and see which substructures they used.",
    epilog="Example: softmask demo; softmask fit motif --out motif.safetensors; softmask evaluate MUTAG",
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"softmask {__version__}")
        raise typer.Exit


for command in (demo, fit, predict, explain, evaluate, models, tune, reproduce, bench):
    app.command()(command)
app.add_typer(data_app, name="data")
app.add_typer(results_app, name="results")


def main() -> None:
    """Runs the command; an error about the user's input is printed in one piece and exits with 2."""
    signal.signal(signal.SIGINT, raise_interrupted)
    try:
        app()
    except SoftmaskError as error:
        Console(stderr=True, emoji=False, soft_wrap=True).print(
            f"[bold red]error:[/] {_plain(str(error))}", highlight=False
        )
        sys.exit(2)
    except Interrupted:
        print("\ninterrupted; nothing was left half written", file=sys.stderr)
        sys.exit(130)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
