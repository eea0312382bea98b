"""The numbers and verdicts on masks as Markdown, for the docs."""

from collections.abc import Sequence
from typing import Any


def markdown(records: Sequence[dict[str, Any]]) -> str:
    """Tables of what masks do layer by layer and of the verdicts, from the contents of ``masks-SET.json`` files."""
    parts = [summary(records)]
    for record in records:
        parts += [_heading(record), _layers(record), _claims(record)]
    return "\n\n".join(parts) + "\n"


def summary(records: Sequence[dict[str, Any]]) -> str:
    """One row a set: the spread of masks, what they go with, and which of the paper's claims are met."""
    distances = any(r["figure"] == "figure4" for r in records)
    head = [
        *("set", "test accuracy by seed", "deviation of masks within a graph", "rank correlation with degree"),
        *(("with distance to hub",) if distances else ()),
        *("claims met", "claims not met"),
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in records:
        unmet = [c["name"] for c in r["claims"] if c["verdict"] == "no"]
        numbers = ("within", "degree", "distance") if distances else ("within", "degree")
        cells = [
            *(r["set"] + (" (quick form)" if r["quick"] else ""), _accuracies(r)),
            *(_by_layer(r, what) for what in numbers),
            *(f"{len(r['claims']) - len(unmet)} of {len(r['claims'])}", "; ".join(unmet) or "none"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Numbers by layer, first to last, are means over test graphs and seeds."]
    if older := [r["set"] for r in records if not _has_epochs(r)]:
        lines[-1] += f" {', '.join(older)}: of the last epoch, made before a validation part chose it."
    return "\n".join(lines)


def _by_layer(record: dict[str, Any], what: str) -> str:
    means = []
    for layers in zip(*(model["layers"] for model in record["models"]), strict=True):
        known = [layer[what]["mean"] for layer in layers if layer[what]["mean"] is not None]
        means.append(_number(sum(known) / len(known) if known else None))
    return ", ".join(means)


def _accuracies(record: dict[str, Any]) -> str:
    return ", ".join(f"{100 * model['accuracy']:.1f}" for model in record["models"])


def _heading(record: dict[str, Any]) -> str:
    data, settings = record["data"], record["settings"]
    lines = [
        f"### {record['set']}",
        "",
        f"SMG with {settings['layers']} layers, hidden {settings['hidden']}, {settings['epochs']} epochs, seeds "
        f"{', '.join(map(str, record['seeds']))}; masks on the {data['test_graphs']} graphs ({data['test_nodes']:,} "
        f"nodes) of the test part. The split: {data['split']}. {_epochs(record)}",
    ]
    if record["quick"]:
        lines += ["", "**The quick form: it shows that the recipe works; its numbers say nothing about the paper.**"]
    troubles = [t for model in record["models"] for t in model["troubles"]]
    return "\n".join([*lines, *(line for t in troubles for line in ("", f"Trouble: {t}."))])


def _has_epochs(record: dict[str, Any]) -> bool:
    """Whether a validation part chose the epochs, which it did not in the first records."""
    return all("epoch" in model for model in record["models"])


def _epochs(record: dict[str, Any]) -> str:
    if not _has_epochs(record):
        return "The models are those of the last epoch, and the one drawn is that of the first seed."
    chosen = ", ".join(str(model["epoch"]) for model in record["models"])
    return f"The models are those of epochs {chosen}, and the one drawn is that of seed {record['picture_seed']}."


def _layers(record: dict[str, Any]) -> str:
    """One row a number and seed, one column a layer; the spread over graphs behind the mean."""
    layers = range(record["settings"]["layers"])
    lines = [
        "| what | seed | " + " | ".join(f"layer {k + 1}" for k in layers) + " |",
        "|---|---|" + "---:|" * len(layers),
    ]
    for what, cell in _numbers(record):
        for i, (seed, model) in enumerate(zip(record["seeds"], record["models"], strict=True)):
            cells = [cell(layer) for layer in model["layers"]]
            lines.append("| " + " | ".join([what if i == 0 else "", str(seed), *cells]) + " |")
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
            "are Spearman's, within each graph: above 0 if masks grow with the degree, or away from the hub.",
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
