"""The numbers and verdicts on masks as Markdown, for the docs."""

from collections.abc import Sequence
from typing import Any

from softmask.paper.mask_claims import GENERAL, claims_of
from softmask.paper.published import QUICK

# Below this rank correlation of two seeds in every layer, their masks are called different.
_ALIKE = 0.5


def markdown(records: Sequence[dict[str, Any]]) -> str:
    """Tables of what masks do layer by layer and of the verdicts, from the contents of ``masks-SET.json`` files."""
    parts = [QUICK] if any(record["quick"] for record in records) else []
    parts.append(summary(records))
    for record in records:
        parts += [_heading(record), _layers(record), _claims(record)]
    return "\n\n".join(parts) + "\n"


def summary(records: Sequence[dict[str, Any]]) -> str:
    """The spread of masks and what they go with, model by model, and which of the paper's claims are met."""
    distances = any(r["figure"] == "figure4" for r in records)
    head = ["set", "seed", "test accuracy", "deviation of masks within a graph", "rank correlation with degree"]
    head += ["with distance to hub"] if distances else []
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    numbers = ("within", "degree", "distance") if distances else ("within", "degree")
    for r in records:
        for model in r["models"]:
            cells = [r["set"], str(model["seed"]), f"{100 * model['accuracy']:.1f}"]
            cells += [", ".join(_number(layer[what]["mean"]) for layer in model["layers"]) for what in numbers]
            lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "Numbers by layer, first to last, are means over test graphs; correlations over those graphs that have one, "
        "where neither value is the same for all nodes.",
        "",
        *(agreement(r) for r in records),
    ]
    if older := [r["set"] for r in records if not _has_epochs(r)]:
        lines += ["", f"{', '.join(older)}: of the last epoch, made before a validation part chose it."]
    if older := [r["set"] for r in records if "riser_rise" not in r]:
        lines += ["", f"{', '.join(older)}: low becomes high by ranks alone."]
    return "\n".join(lines)


def agreement(record: dict[str, Any]) -> str:
    """In plain words: what our models have in common with the paper's pictures, and with each other."""
    found, general = _checked(record), {claim.name for claim in GENERAL}
    own, common = ([c for c in found if (c["name"] in general) == of_all] for of_all in (False, True))
    quick = " (quick form)" if record["quick"] else ""
    parts = [_met(own, "what the paper says of this set")] if own else []
    parts.append(_met(common, "what it says of all sets"))
    parts[1:] = [part[0].upper() + part[1:] for part in parts[1:]]
    between = [layer["mean"] for layer in record["agreement"]]
    said = (
        f"Between the masks of two seeds the rank correlation is {', '.join(map(_number, between))} by layer, where 1 "
        "would be the same order of nodes"
    )
    if all(mean is not None and mean < _ALIKE for mean in between):
        said += ": which nodes a layer lets through depends on the seed"
    return f"- {record['set']}{quick}: {'. '.join(parts)}. {said}."


def in_short(records: Sequence[dict[str, Any]]) -> str:
    """A row for each set: of the rules how many all our models meet, some, and none; and what seeds have in common."""
    lines = [
        "| set | rules for the set: all models, some, none | rules for all sets | order of nodes, seed against seed |",
        "|---|---|---|---|",
    ]
    general = {claim.name for claim in GENERAL}
    for record in records:
        counts = []
        for of_all in (False, True):
            verdicts = [c["verdict"] for c in _checked(record) if (c["name"] in general) == of_all]
            counts.append(", ".join(str(verdicts.count(verdict)) for verdict in ("yes", "in part", "no")))
        between = ", ".join(_number(layer["mean"]) for layer in record["agreement"])
        lines.append(f"| {record['set']} | {' | '.join(counts)} | {between} |")
    return "\n".join(lines)


def picture_caption(record: dict[str, Any], picture: dict[str, Any]) -> str:
    """What a reader of a picture must know."""
    right = "rightly" if picture["predicted"] == picture["actual"] else "wrongly"
    hub = " The outlined node has the largest degree." if record["figure"] == "figure4" else ""
    outlined = " The outline is the kind of the node." if record["figure"] == "proteins" else ""
    return (
        f"*A graph of {record['set']} that the model had not seen, and takes {right} for one of class "
        f"{picture['predicted']}. The darker a node, the more of it the layer lets through, on one scale for all "
        f"layers.{hub}{outlined}*"
    )


def _met(claims: list[dict[str, Any]], what: str) -> str:
    """How many rules all our models meet, some, and none."""
    met, some, no = ([c for c in claims if c["verdict"] == v] for v in ("yes", "in part", "no"))
    parts = [f"all our models meet {len(met) or 'none'}{_named(met)}"]
    parts += [f"some meet {len(some)}{_named(some, seeds=True)}"] if some else []
    parts += [f"none meets {len(no)}{_named(no)}"] if no else []
    rules = f"{len(claims)} {'rule' if len(claims) == 1 else 'rules'}"
    return f"of {rules} for {what}, {', '.join(parts)}"


def _named(claims: list[dict[str, Any]], seeds: bool = False) -> str:
    names = "; ".join(f"{c['name']}: {_seeds(c)}" if seeds else c["name"] for c in claims)
    return f" ({names})" if claims else ""


def _checked(record: dict[str, Any]) -> list[dict[str, Any]]:
    """By the rules as they are now, whatever the record was made with."""
    return [claim.check(record["models"]) for claim in claims_of(record["set"])]


def _seeds(claim: dict[str, Any]) -> str:
    return f"{sum(seed['met'] for seed in claim['seeds'])} of {len(claim['seeds'])} seeds"


def _heading(record: dict[str, Any]) -> str:
    data, settings = record["data"], record["settings"]
    trained = f", trained in {record['precision']}" if "precision" in record else ""
    lines = [
        f"### {record['set']}",
        "",
        f"SMG with {settings['layers']} layers, hidden {settings['hidden']}, {settings['epochs']} epochs, seeds "
        f"{', '.join(map(str, record['seeds']))}{trained}; masks on the {data['test_graphs']} graphs "
        f"({data['test_nodes']:,} nodes) of the test part. The split: {data['split']}. {_epochs(record)}",
        "",
        f"The pictures: {record['picture_rule']}.",
    ]
    if "riser_rise" not in record:
        lines += ["", "The nodes that went from low to high are counted by ranks alone, however little the mask rose."]
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
    pairs = len(record["seeds"]) * (len(record["seeds"]) - 1) // 2
    shared = ", ".join(
        f"layer {k + 1}: {_spread(a, pairs * record['data']['test_graphs'], 'pairs')}"
        for k, a in enumerate(record["agreement"])
    )
    nodes = ", ".join(f"{name} {100 * share:.1f} %" for name, share in record["node_share"].items())
    return "\n".join(
        [
            *lines,
            "",
            "The number behind ± is the standard deviation over graphs (of the mask itself: over nodes). Correlations "
            "are Spearman's, within each graph: above 0 if masks grow with the degree, or away from the hub. "
            "A graph has none if all its nodes have the same value; the number of graphs (between seeds: of pairs of "
            "masks) is given where it is not that of all.",
            "",
            f"Share of nodes: {nodes}. Rank correlation between the masks of two seeds: {shared}.",
        ]
    )


def _numbers(record: dict[str, Any]) -> list[tuple[str, Any]]:
    graphs = record["data"]["test_graphs"]
    rows: list[tuple[str, Any]] = [
        ("mask", lambda n: f"{n['mean']:.2f} ± {n['std']:.2f}"),
        ("5, 50, 95 % quantile", lambda n: ", ".join(f"{n['quantiles'][q]:.2f}" for q in ("0.05", "0.5", "0.95"))),
        ("deviation within a graph", lambda n: _spread(n["within"], graphs)),
        ("nodes with mask below 0.05", lambda n: f"{100 * n['closed']:.0f} %"),
        ("correlation with degree", lambda n: _spread(n["degree"], graphs)),
    ]
    if record["figure"] == "figure4":
        rows += [
            ("correlation with distance to hub", lambda n: _spread(n["distance"], graphs)),
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
    for claim in _checked(record):
        numbers = "; ".join(", ".join(_value(n) for n in seed["numbers"]) for seed in claim["seeds"])
        lines.append(f"| “{claim['quote']}” | {claim['rule']} | **{claim['verdict']}** ({_seeds(claim)}) | {numbers} |")
    return "\n".join(lines)


def _value(number: Any) -> str:
    """With three digits that count: 0.0497 must not be shown as the 0.05 that a rule asks for."""
    if isinstance(number, list):
        return "/".join(_value(n) for n in number)
    return _number(number, 3 if number is None or abs(number) >= 0.1 else 4)


def _number(number: float | None, digits: int = 2) -> str:
    return "-" if number is None else f"{number:.{digits}f}"


def _spread(over_graphs: dict[str, Any], all_of_them: int, what: str = "graphs") -> str:
    """Mean and deviation, and over how many graphs if not over all of them."""
    if over_graphs["mean"] is None:
        return "-"
    count = f" ({over_graphs['graphs']} {what})" if over_graphs["graphs"] < all_of_them else ""
    return f"{over_graphs['mean']:.2f} ± {over_graphs['std']:.2f}{count}"
