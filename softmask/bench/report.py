"""Benchmark records as a Markdown table, for the docs."""

import json
from pathlib import Path

HEAD = """\
| set | models | usual, ms | fleet, ms | ratio | step, ms | step / floor | nodes | padding | GB | first epoch, s |
|---|---|---|---|---|---|---|---|---|---|---|"""


def render(records: list[Path]) -> str:
    """One row for each record that ``softmask bench`` wrote."""
    return "\n".join([HEAD, *map(_row, records)])


def _row(path: Path) -> str:
    record = json.loads(path.read_text())
    usual, fleet = record["usual"], record["fleet"]
    cells = [
        record["name"],
        f"{record['replicas']}",
        f"{usual['ms_per_epoch']:,.0f}",
        short(fleet["ms_per_epoch"]),
        f"{record['ratio']:.1f}",
        short(fleet["ms_per_step"]),
        f"{fleet['step_over_floor']:.1f}",
        # Records from before equal nodes were merged do not say it.
        f"{100 * fleet.get('nodes_computed', record['nodes']) / record['nodes']:.0f} %",
        f"{100 * fleet['padding']:.1f} %",
        f"{fleet['peak_bytes'] / 1e9:.1f}",
        f"{fleet['first_epoch_s']:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def short(ms: float) -> str:
    """Milliseconds in about three figures, never as a power of ten."""
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.2f}" if ms < 10 else f"{ms:.1f}"
