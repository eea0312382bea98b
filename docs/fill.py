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
    picture = f"![Training accuracy by epoch](../results/figure3/figure3.png)\n\n{figure3.caption(RESULTS)}"
    return f"{figure3.markdown(RESULTS)}\n{picture}"


def _pictures_in_short() -> str:
    """The answers of Figure 3, its picture, and one of masks, for the README."""
    records = [record for figure in figure4.FIGURES for record in figure4.gather(RESULTS / figure, figure)]
    record = next(r for r in records if r["set"] == "REDDIT-BINARY")
    picture = record["pictures"][0]
    return "\n\n".join(
        [
            figure3.answers(RESULTS),
            "![Training accuracy by epoch](results/figure3/figure3.png)",
            figure3.caption(RESULTS),
            "What the paper reads from its pictures of masks, as rules that the masks of our three models of each set "
            "meet or not; and the rank correlation of the masks of two models, layer by layer, where 1 would be the "
            "same order of nodes:",
            mask_report.in_short(records),
            f"![Masks of a graph of REDDIT-BINARY](results/figure4/{picture['files'][1]})",
            mask_report.picture_caption(record, picture),
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
            picture = record["pictures"][0]
            said = f"Masks of {record['settings']['layers']} layers on a graph of {record['set']}"
            parts.append(f"![{said}](../results/{figure}/{picture['files'][1]})")
            parts.append(mask_report.picture_caption(record, picture))
    parts += [f"Not run yet: {', '.join(missing)}."] if missing else []
    return "\n\n".join(parts)


PARTS: dict[str, Callable[[], str]] = {
    "table 1": lambda: table1_report.markdown(RESULTS),
    "table 1 in short": lambda: table1_report.summary(RESULTS),
    "table 2": lambda: table2.markdown(RESULTS),
    "table 2 in short": _table2_in_short,
    "baselines in short": lambda: baselines.summary(RESULTS),
    "figures in short": _pictures_in_short,
    "figure 3": _figure3,
    "masks": _masks,
}

if __name__ == "__main__":
    for path, text in tables().items():
        path.write_text(text, encoding="utf-8")
    for path in PAGES:
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")
