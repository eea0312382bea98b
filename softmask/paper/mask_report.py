"""The numbers and verdicts on masks as Markdown, for the docs."""

from collections.abc import Sequence
from typing import Any


def markdown(records: Sequence[dict[str, Any]]) -> str:
    """Tables of what masks do layer by layer and of the verdicts, from the contents of ``masks-SET.json`` files."""
    parts = [_verdicts(records)]
    for record in records:
        parts += [_heading(record), _layers(record), _claims(record)]
    return "\n\n".join(parts) + "\n"


def _verdicts(records: Sequence[dict[str, Any]]) -> str:
    rows = [
        f"| {r['set']} | {_accuracies(r)} | {sum(c['verdict'] == 'yes' for c in r['claims'])} of {len(r['claims'])} | "
        f"{'; '.join(c['name'] for c in r['claims'] if c['verdict'] == 'no') or 'none'} |"
        for r in records
    ]
    head = ["| set | test accuracy by seed | claims met | claims not met |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])


def _accuracies(record: dict[str, Any]) -> str:
    return ", ".join(f"{100 * model['accuracy']:.1f}" for model in record["models"])


def _heading(record: dict[str, Any]) -> str:
    data, settings = record["data"], record["settings"]
    lines = [
        f"### {record['set']}",
        "",
        f"SMG with {settings['layers']} layers, hidden {settings['hidden']}, {settings['epochs']} epochs, seeds "
        f"{', '.join(map(str, record['seeds']))}; masks on the {data['test_graphs']} graphs ({data['test_nodes']:,} "
        f"nodes) of the test part.",
    ]
    if record["quick"]:
        lines += ["", "**The quick form: it shows that the recipe works; its numbers say nothing about the paper.**"]
    troubles = [t for model in record["models"] for t in model["troubles"]]
    return "\n".join([*lines, *(line for t in troubles for line in ("", f"Trouble: {t}."))])


def _layers(record: dict[str, Any]) -> str:
    """One row a layer and number, one column a seed; the spread over graphs behind the mean."""
    seeds = record["seeds"]
    layers = range(record["settings"]["layers"])
    columns = ["layer", "what", *(f"seed {s}" for s in seeds)]
    lines = ["| " + " | ".join(columns) + " |", "|---|---|" + "---:|" * len(seeds)]
    for k in layers:
        for i, (what, cell) in enumerate(_numbers(record)):
            cells = [cell(model["layers"][k]) for model in record["models"]]
            lines.append("| " + " | ".join([str(k + 1) if i == 0 else "", what, *cells]) + " |")
    shared = ", ".join(
        f"layer {k + 1}: {_spread(a)}" if a["mean"] is not None else f"layer {k + 1}: -"
        for k, a in enumerate(record["agreement"])
    )
    nodes = ", ".join(f"{name} {100 * share:.1f} %" for name, share in record["node_share"].items())
    return "\n".join(
        [
            *lines,
            "",
            "The number behind ± is the standard deviation over graphs (of the mask itself: over nodes). Correlations "
            "are Spearman's, within each graph.",
            "",
            f"Share of nodes: {nodes}. Rank correlation between the masks of two seeds: {shared}.",
        ]
    )


def _numbers(record: dict[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [
        ("mask", lambda n: f"{n['mean']:.2f} ± {n['std']:.2f}"),
        ("5, 50, 95 % quantile", lambda n: ", ".join(f"{n['quantiles'][q]:.2f}" for q in ("0.05", "0.5", "0.95"))),
        ("deviation within a graph", lambda n: _spread(n["within"])),
        ("nodes with mask below 0.05", lambda n: f"{100 * n['closed']:.0f} %"),
        ("correlation with degree", lambda n: _spread(n["degree"])),
    ]
    if record["figure"] == "figure4":
        rows += [
            ("correlation with distance to hub", lambda n: _spread(n["distance"])),
            ("mask at distance 0, 1, 2, 3+", lambda n: ", ".join(_number(d) for d in n["at_distance"])),
            ("mask of leaves, between, hub", lambda n: ", ".join(_number(r["mean"]) for r in n["role"].values())),
            (
                "share of weight on leaves, between, hub",
                lambda n: ", ".join(_number(s["mean"], 3) for s in n["share"].values()),
            ),
        ]
    if "label" in record["models"][0]["layers"][0]:
        rows.append(("variance explained by node label", lambda n: _number(n["label"])))
    return rows


def _claims(record: dict[str, Any]) -> str:
    lines = ["| the paper says | rule | verdict | first layer to last, by seed |", "|---|---|---|---|"]
    for claim in record["claims"]:
        met = sum(seed["met"] for seed in claim["seeds"])
        numbers = "; ".join(", ".join(_value(n) for n in seed["numbers"]) for seed in claim["seeds"])
        verdict = f"**{claim['verdict']}** ({met} of {len(claim['seeds'])} seeds)"
        lines.append(f"| “{claim['quote']}” | {claim['rule']} | {verdict} | {numbers} |")
    return "\n".join(lines)


def _value(number: Any) -> str:
    return "/".join(_number(n) for n in number) if isinstance(number, list) else _number(number)


def _number(number: float | None, digits: int = 2) -> str:
    return "-" if number is None else f"{number:.{digits}f}"


def _spread(over_graphs: dict[str, Any]) -> str:
    if over_graphs["mean"] is None:
        return "-"
    return f"{over_graphs['mean']:.2f} ± {over_graphs['std']:.2f}"
