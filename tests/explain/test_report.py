"""The tables of docs/explain.md are those of the result file, and say what the text around them says."""

import json
from pathlib import Path

from softmask.explain.report import render

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "results" / "explain" / "explainers.json").read_text())
PAGE = (ROOT / "docs" / "explain.md").read_text()


def test_the_page_shows_the_tables_of_the_record():
    assert render(RECORD) in PAGE


def test_the_masks_are_the_best_explainer_where_the_page_says_so():
    for name in ("motif", "ba2motifs"):
        methods = RECORD["sets"][name]["methods"]
        ours = methods["soft masks"]
        assert min(ours["auc_by_model"]) >= 0.95
        own = {"soft masks", "walks that start at a node"}
        others = [m for m in methods if m not in own and not m.startswith(("mask of layer", "masks,"))]
        assert all(methods[m]["auc"] < ours["auc"] for m in others)


def test_the_page_quotes_times_and_the_curve():
    for name in ("motif", "ba2motifs"):
        methods = RECORD["sets"][name]["methods"]
        ours, theirs = methods["soft masks"]["seconds"], methods["GNNExplainer, edge mask"]["seconds"]["per_graph"]
        shares = [100 * ours[way] / theirs for way in ("per_graph", "per_graph_by_pyg", "per_graph_at_once")]
        assert "{:.2f} %, {:.2f} % and {:.2f} % on {}".format(*shares, name) in PAGE
        curves = [model["removal"] for model in RECORD["sets"][name]["models"]]
        shares = RECORD["sets"][name]["removal_shares"]
        mean = [sum(c[i] for c in curves) / len(curves) for i in range(len(shares))]
        cells = " | ".join(f"{value:.3f}" for value in mean)
        assert f"| {name} | {cells} |" in PAGE
