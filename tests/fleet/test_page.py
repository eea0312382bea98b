"""What docs/fleet.md shows runs, one block after the other."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"


def test_the_python_of_the_page_runs(capsys):
    seen = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, "fleet.md", "exec"), seen)
    assert capsys.readouterr().out.splitlines()[0] == "(4, 10)"
    assert seen["out"].shape == (len(seen["store"]), 2)
    assert [m.shape for m in seen["masks"]] == [(seen["store"].num_nodes, 1)] * 2
    assert seen["history"].train_loss.shape == (4, 5)
    assert seen["logits"].shape == (len(seen["store"]), 2)
    assert seen["none"] == []
