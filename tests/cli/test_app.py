import re
from itertools import pairwise

import pytest
import typer.testing
from rich.text import Text

from softmask.cli import app
from softmask.cli.app import flowing

COMMANDS = ("fit", "predict", "explain", "evaluate", "tune", "reproduce", "bench", "data get", "results compare")


def test_paragraphs_flow_and_lines_in_bold_stay():
    text = "What it does.\n\nOne line\nand more of it.\n\n[b]a[/b]: this,\nand that.\n[b]b[/b]: another."
    assert flowing(text) == "What it does.\n\nOne line and more of it.\n\n[b]a[/b]: this, and that.\n[b]b[/b]: another."


@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_of_the_help_ends_long_before_the_terminal_does(command):
    """Where a line is short and the next goes on in the middle of a sentence, its word would have fitted."""
    shown = typer.testing.CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    text = Text.from_ansi(shown.output).plain
    told = [line.strip() for line in text[text.index("Usage") : text.index("─")].splitlines()]
    for line, following in pairwise(told):
        word = re.match(r"[a-z]\S*", following)
        goes_on = word is not None and line[-1:] not in ("", ".") and not following.startswith("softmask")
        assert not goes_on or len(line) + 1 + len(word[0]) > 76
