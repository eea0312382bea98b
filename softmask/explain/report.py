"""The record of benchmarks/explainers.py as Markdown tables, for the docs."""

from typing import Any

HEAD = """\
| method | ROC-AUC | precision at k | fidelity+ | fidelity- | sparsity | stability | ms a graph |
|---|---|---|---|---|---|---|---|"""


def render(record: dict[str, Any]) -> str:
    """One table for each set, the methods by their ROC-AUC."""
    return "\n\n".join(table(name, found) for name, found in record["sets"].items())


def table(name: str, found: dict[str, Any]) -> str:
    """The table of one set, with a line about its models."""
    accuracy = [100 * m["test_accuracy"] for m in found["models"]]
    models = f"{len(accuracy)} models, accuracy {min(accuracy):.1f} to {max(accuracy):.1f} % on"
    line = f"**{name}**: {models} {found['test_graphs']} test graphs, of which {found['explained_graphs']} explained; "
    line += f"k = {found['true_nodes']}."
    rows = sorted(found["methods"].items(), key=lambda item: -item[1]["auc"])
    return "\n".join([line, "", HEAD, *(_row(method, row) for method, row in rows)])


def _row(method: str, row: dict[str, Any]) -> str:
    low = min(row["auc_by_model"])
    stability = "" if row["stability"] is None else f"{row['stability']:.2f}"
    cells = [
        method,
        f"{row['auc']:.3f} (from {low:.3f})",
        *(f"{row[key]:.2f}" for key in ("precision", "fidelity_plus", "fidelity_minus", "sparsity")),
        stability,
        f"{1000 * row['seconds']['per_graph']:.1f}",
    ]
    return f"| {' | '.join(cells)} |"
