"""docs/molecules.md: its commands and its Python run, on a small table with a computed property."""

import csv
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from softmask.cli import main

PAGE = (Path(__file__).parents[2] / "docs/molecules.md").read_text()
QUICK = {name: ["--epochs", "1", "--hidden", "8", "--layers", "2"] for name in ("fit", "evaluate")}


@pytest.fixture
def _tables(tmp_path, monkeypatch):
    """Molecules of QM9 with logP by RDKit in the place of a measured property, one of them spoilt in the new ones."""
    pytest.importorskip("rdkit")
    from rdkit import Chem
    from rdkit.Chem import Crippen

    from softmask.data.catalog import open_data

    smiles = open_data("qm9-sample").info["names"][:60]
    rows = [(f"m{i}", s, round(Crippen.MolLogP(Chem.MolFromSmiles(s)), 3)) for i, s in enumerate(smiles)]
    spoilt = [(f"n{i}", "C(" if i == 3 else s, "") for i, s in enumerate(smiles[:10])]
    for name, table in (("molecules.csv", rows), ("new.csv", spoilt)):
        with (tmp_path / name).open("w", newline="") as stream:
            csv.writer(stream).writerows([("name", "smiles", "logS"), *table])
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_tables")
def test_the_commands_run_as_written(monkeypatch, capsys):
    pytest.importorskip("pygraphviz")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    assert len(commands) >= 7
    for command in commands:
        _, *args = shlex.split(command)
        monkeypatch.setattr(sys, "argv", ["softmask", *args, *QUICK.get(args[0], [])])
        # The one that the page says is refused: a row cannot be used, and --skip-invalid is not given.
        refused = args[:3] == ["predict", "logS.safetensors", "new.csv"] and "--skip-invalid" not in args
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        assert (end.value.code or 0) == (2 if refused else 0), (command, said.err)
        if refused:
            assert "line 5: RDKit cannot read the SMILES 'C('" in said.err
    rows = list(csv.DictReader(Path("predictions.csv").read_text().splitlines()))
    assert list(rows[0]) == ["row", "smiles", "predicted_logS"]
    assert [r["row"] for r in rows if not r["predicted_logS"]] == ["4"]
    assert len(list(Path("pictures").glob("*.svg"))) >= 3


@pytest.mark.usefixtures("_tables")
def test_the_python_runs():
    names: dict = {}
    exec(compile(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], "molecules.md", "exec"), names)
    assert np.isfinite(names["model"].predict(["CCO"])).all()
    assert names["svg"].startswith("<svg")


def test_the_page_says_what_the_code_does():
    from softmask.data.molecule_table import MOST_CLASSES
    from softmask.data.smiles import ATOM_FEATURES

    assert f"more than {MOST_CLASSES} different whole numbers" in PAGE
    for word in ATOM_FEATURES:
        assert word in PAGE


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(((?!http)[^)#]+)\)", PAGE))))
def test_links_lead_somewhere(link):
    assert (Path(__file__).parents[2] / "docs" / link).exists()
