"""What the README says: its Python runs, its figures are those of the result files."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_python_example_runs_and_prints_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = next(block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "load_model" in block)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines()[0] == "['ring' 'path']"


def test_reading_figures():
    result = json.loads((ROOT / "results/bench/read_tu.json").read_text())
    ours, theirs = result["softmask"], result["pyg"]
    for figure in (
        f"{ours['edges'] / 1e6:.1f} million edges",
        f"read in {ours['seconds']:.1f} s with {ours['peak_bytes'] / 1e9:.1f} GB",
        f"{result['times_faster']:.1f} times faster",
        f"({theirs['seconds']:.1f} s, {theirs['peak_bytes'] / 1e9:.1f} GB;",
    ):
        assert figure in README
