"""Puts the tables of the result files into the README and the docs, between the comments that name them.

`make tables` does it; a test fails where a page does not show what the files say.
"""

import re
from collections.abc import Callable
from pathlib import Path

from softmask.paper import baselines, figure3, figure4, mask_report, table1_report, table2

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def fill(page: str) -> str:
    """The page with every part between ``<!-- NAME -->`` and ``<!-- end of NAME -->`` made anew."""
    for name, make in PARTS.items():
        between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        page = between.sub(lambda found: f"{found[1]}\n{make().strip()}\n\n{found[2]}", page)  # noqa: B023
    return page


def tables() -> dict[Path, str]:
    """The tables beside the result files."""
    made = {
        RESULTS / "table1.md": table1_report.markdown(RESULTS),
        RESULTS / "table2.md": table2.markdown(RESULTS),
        RESULTS / "baselines.md": baselines.markdown(RESULTS),
        RESULTS / "figure3" / "claims.md": figure3.markdown(RESULTS),
    }
    for figure in figure4.FIGURES:
        if records := figure4.gather(RESULTS / figure, figure):
            made[RESULTS / figure / "masks.md"] = mask_report.markdown(records)
    return made


def _table2_in_short() -> str:
    """The table, how it compares, and which rows are short."""
    return "\n\n".join(table2.markdown(RESULTS).split("\n\n")[:3])


def _figure3() -> str:
    return f"{figure3.markdown(RESULTS)}\n![Training accuracy by epoch](../results/figure3/figure3.png)"


def _pictures_in_short() -> str:
    """The answers of Figure 3, its picture, and one of masks, for the README."""
    record = next(r for r in figure4.gather(RESULTS / "figure4", "figure4") if r["set"] == "REDDIT-BINARY")
    return "\n\n".join(
        [
            figure3.answers(RESULTS),
            "![Training accuracy by epoch](results/figure3/figure3.png)",
            mask_report.agreement(record),
            f"![Masks of a graph of REDDIT-BINARY](results/figure4/{record['pictures'][0]['files'][1]})",
        ]
    )


def _masks() -> str:
    parts, missing = [], []
    for figure, sets in figure4.FIGURES.items():
        records = figure4.gather(RESULTS / figure, figure)
        found = [record["set"] for record in records]
        missing += [name for name in sets if name not in found]
        if not records:
            continue
        parts.append(mask_report.summary(records))
        parts.append(f"All numbers, rules and verdicts: [results/{figure}/masks.md](../results/{figure}/masks.md).")
        for record in records:
            picture = record["pictures"][0]["files"][1]
            said = f"Masks of {record['settings']['layers']} layers on a graph of {record['set']}"
            parts.append(f"![{said}](../results/{figure}/{picture})")
    parts += [f"Not run yet: {', '.join(missing)}."] if missing else []
    return "\n\n".join(parts)


PARTS: dict[str, Callable[[], str]] = {
    "table 1": lambda: table1_report.markdown(RESULTS),
    "table 1 in short": lambda: table1_report.summary(RESULTS),
    "table 2": lambda: table2.markdown(RESULTS),
    "table 2 in short": _table2_in_short,
    "figures in short": _pictures_in_short,
    "figure 3": _figure3,
    "masks": _masks,
}

if __name__ == "__main__":
    for path, text in tables().items():
        path.write_text(text, encoding="utf-8")
    for path in PAGES:
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")
