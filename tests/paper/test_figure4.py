import json
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib.image
import networkx as nx
import numpy as np
import pytest
import torch

from softmask.data.catalog import open_data
from softmask.data.networkx import from_networkx
from softmask.data.synthetic import motif
from softmask.errors import SettingError, StudyInterrupted
from softmask.explain.statistics import Structure, layer_statistics
from softmask.paper import figure4, paper_settings
from softmask.paper.figure4 import FIGURES, draw_missing, gather, reproduce_masks
from softmask.paper.mask_claims import claims_of
from softmask.paper.mask_pictures import chosen
from softmask.paper.mask_report import markdown, summary
from softmask.paper.published import QUICK

SVG = "{http://www.w3.org/2000/svg}"
REDDIT = ("REDDIT-BINARY", "REDDIT-MULTI-5K", "REDDIT-MULTI-12K")


@pytest.fixture
def store():
    """Graphs of a size that could be of NCI1."""
    return motif(40, seed=0)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(figure4, "PICTURES", 1)
    monkeypatch.setattr(figure4, "QUICK_GRAPHS", 30)
    monkeypatch.setattr(figure4, "QUICK_HIDDEN", 4)


def test_the_recipe():
    assert FIGURES == {"figure4": REDDIT, "collab": ("COLLAB",), "nci1": ("NCI1",), "proteins": ("PROTEINS",)}
    for name in (name for names in FIGURES.values() for name in names):
        settings, paper = figure4.mask_settings(name, None, False), paper_settings(name)
        assert settings.variant == "smg"
        # The figure in the paper has a layer 4.
        assert settings.layers == (4 if name in REDDIT else paper.layers)
        assert settings.epochs == (200 if name in REDDIT else paper.epochs)
        assert (settings.hidden, settings.lr, settings.batch_size) == (paper.hidden, paper.lr, paper.batch_size)
        assert figure4.mask_settings(name, 7, False).epochs == 7


def test_a_record_says_what_was_done_and_found(store, small, tmp_path):
    record = reproduce_masks("NCI1", store, tmp_path / "new", quick=True, seed=3)
    assert record == json.loads((tmp_path / "new" / "masks-NCI1.json").read_text())
    assert record["seeds"] == [3, 4, 5]
    assert record["settings"]["variant"] == "smg"
    assert record["data"]["hash"] == store.content_hash() == record["provenance"]["data_hash"]
    assert record["data"]["test_graphs"] == 6
    assert (record["riser_rise"], record["precision"]) == (0.1, "float32")
    assert len(record["agreement"]) == 3
    for model in record["models"]:
        assert 0 <= model["accuracy"] <= 1
        assert len(model["layers"]) == 3
        for layer in model["layers"]:
            assert 0 < layer["quantiles"]["0.05"] <= layer["mean"] <= layer["quantiles"]["0.95"] < 1
            assert layer["degree"]["graphs"] <= 6
            assert sum(share["mean"] for share in layer["share"].values()) == pytest.approx(1)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["masks-NCI1.json"], "no snapshot is left"
    assert gather(tmp_path / "new", "nci1") == [record]
    assert gather(tmp_path / "new", "collab") == []


def test_pictures_of_test_graphs(store, small, tmp_path):
    record = reproduce_masks("NCI1", store, tmp_path, quick=True)
    (picture,) = record["pictures"]
    svg, png = (tmp_path / name for name in picture["files"])
    assert draw_missing(record, lambda: store, tmp_path) == [svg, png]
    texts = ["".join(t.itertext()) for t in ET.parse(svg).iter(f"{SVG}text")]
    assert f"NCI1, graph {picture['graph']} (SMG, seed {record['picture_seed']})" in texts
    probability = f"(probability {picture['probability']:.2f})"
    assert f"predicted {picture['predicted']} {probability}, class {picture['actual']}" in texts
    assert {"layer 1", "layer 2", "layer 3", "mask"} <= set(texts)
    assert picture["actual"] == store.info["classes"][int(store.y[picture["graph"]])]
    image = matplotlib.image.imread(png)[..., :3]
    assert image.shape[1] > 1000
    assert image.std() > 0.05
    assert min(image[:3].min(), image[-3:].min(), image[:, :3].min(), image[:, -3:].min()) == 1.0


def test_the_graphs_drawn_are_of_a_readable_size_and_of_all_classes():
    recipe = {"nodes": [15, 50], "edges": 1000}
    graphs = [nx.path_graph(n) for n in (*[20] * 30, *[60] * 5, *[10] * 5, *[20] * 10)]
    made = from_networkx(graphs, [0] * 40 + [1] * 10)
    for seed in range(5):
        found = chosen(recipe, made, seed, 4)
        assert len(found) == 4
        assert sorted(made.y[found].tolist()) == [0, 0, 1, 1]
        assert all(len(graphs[g]) == 20 for g in found)
        assert found == chosen(recipe, made, seed, 4)
    assert chosen(recipe, made, 0, 4) != chosen(recipe, made, 1, 4)
    rare = made.select([*range(30), 40])
    assert sorted(rare.y[chosen(recipe, rare, 0, 4)].tolist()) == [0, 0, 0, 1]


def test_what_is_there_is_not_made_again_unless_the_question_differs(store, small, tmp_path, monkeypatch):
    first = reproduce_masks("NCI1", store, tmp_path, quick=True)

    def train(*args):
        raise RuntimeError("it trains")

    monkeypatch.setattr(figure4, "_train", train)
    assert reproduce_masks("NCI1", store, tmp_path, quick=True) == first
    for other in ({"epochs": 9}, {"seed": 1}):
        with pytest.raises(RuntimeError, match="it trains"):
            reproduce_masks("NCI1", store, tmp_path, quick=True, **other)
    # The numbers of risers would be others.
    monkeypatch.setattr(figure4, "RISE", 0.2)
    with pytest.raises(RuntimeError, match="it trains"):
        reproduce_masks("NCI1", store, tmp_path, quick=True)


def test_pictures_are_drawn_from_the_record_alone(store, small, tmp_path, monkeypatch):
    record = reproduce_masks("NCI1", store, tmp_path, quick=True)
    svg, png = draw_missing(record, lambda: store, tmp_path)
    drawn = svg.read_bytes()
    monkeypatch.setattr(figure4, "_train", None)
    svg.unlink()
    png.write_bytes(b"old")
    again = json.loads((tmp_path / "masks-NCI1.json").read_text())
    assert reproduce_masks("NCI1", store, tmp_path, quick=True) == again
    draw_missing(again, lambda: store, tmp_path)
    assert svg.read_bytes() == drawn

    def never():
        raise RuntimeError("there is nothing to draw")

    assert draw_missing(again, never, tmp_path) == [svg, png]
    svg.unlink()
    with pytest.raises(SettingError, match="another NCI1"):
        draw_missing(again, lambda: motif(40, seed=1), tmp_path)


def test_pictures_of_an_older_record_go(store, small, tmp_path):
    old = draw_missing(reproduce_masks("NCI1", store, tmp_path, quick=True), lambda: store, tmp_path)
    other = tmp_path / "masks-COLLAB-1.svg"
    other.touch()
    reproduce_masks("NCI1", store, tmp_path, quick=True, seed=1)
    assert not any(path.exists() for path in old)
    assert other.exists()


def test_masks_in_the_record_are_those_of_the_best_model(store, small, tmp_path, monkeypatch):
    """All graphs of a part kept in the record say the same as the numbers over that part."""
    monkeypatch.setattr(figure4, "PICTURES", 6)
    record = reproduce_masks("NCI1", store, tmp_path, quick=True)
    best = max(record["models"], key=lambda model: model["validation_accuracy"])
    assert record["picture_seed"] == best["seed"]
    assert len(record["pictures"]) == record["data"]["test_graphs"] == 6
    for k, layer in enumerate(best["layers"]):
        masks = np.concatenate([picture["masks"][k] for picture in record["pictures"]])
        assert len(masks) == record["data"]["test_nodes"]
        assert masks.mean() == pytest.approx(layer["mean"], abs=1e-4)
    for picture in record["pictures"]:
        assert np.shape(picture["masks"]) == (3, int(store.sizes[picture["graph"]]))


def test_a_validation_part_chooses_the_epoch(store, small, tmp_path, monkeypatch):
    """The three parts are the whole set, and each graph is in one."""
    seen, train = [], figure4._train

    def spy(*args):
        history = train(*args)
        seen.append((args[4], args[5], history))
        return history

    monkeypatch.setattr(figure4, "_train", spy)
    record = reproduce_masks("NCI1", store, tmp_path, quick=True)
    ((training, validation, history),) = seen
    parts = len(training) + len(validation) + record["data"]["test_graphs"]
    assert parts == record["data"]["graphs"] == 30
    assert not set(training) & set(validation)
    for r, model in enumerate(record["models"]):
        curve = history.metric["validation"][r]
        assert model["validation_accuracy"] == curve.max() == curve[model["epoch"] - 1]


def test_an_interrupted_training_goes_on_to_the_same_end(store, small, tmp_path):
    whole = reproduce_masks("NCI1", store, tmp_path / "whole", quick=True)
    with pytest.raises(StudyInterrupted):
        reproduce_masks("NCI1", store, tmp_path / "cut", quick=True, on_epoch=lambda epoch, metrics: epoch == 2)
    assert not (tmp_path / "cut" / "masks-NCI1.json").exists()
    seen = []
    again = reproduce_masks("NCI1", store, tmp_path / "cut", quick=True, on_epoch=lambda e, metrics: seen.append(e))
    assert seen == [3, 4]
    assert {**again, "provenance": None} == {**whole, "provenance": None}


def test_a_quick_form_does_not_take_the_place_of_a_whole_one(store, small, tmp_path):
    reproduce_masks("NCI1", store, tmp_path, epochs=1)
    with pytest.raises(SettingError, match="another folder"):
        reproduce_masks("NCI1", store, tmp_path, quick=True)


@pytest.mark.parametrize("name", ["MUTAG", "nci1", ""])
def test_sets_without_a_figure_are_refused(store, name, tmp_path):
    with pytest.raises(SettingError, match="no figure"):
        reproduce_masks(name, store, tmp_path)


def test_graphs_without_classes_are_refused(store, tmp_path):
    with pytest.raises(SettingError, match="no classes"):
        reproduce_masks("NCI1", from_networkx([nx.path_graph(20)]), tmp_path)


def test_the_hub_is_outlined_on_reddit(small, tmp_path):
    graphs = [nx.random_labeled_tree(55, seed=s) for s in range(20)]
    trees = from_networkx(graphs, [0, 1] * 10)
    made = reproduce_masks("REDDIT-BINARY", trees, tmp_path, quick=True)
    draw_missing(made, lambda: trees, tmp_path)
    tree = ET.parse(tmp_path / made["pictures"][0]["files"][0])
    assert "hub (largest degree)" in "".join(tree.getroot().itertext())
    layers = [g for g in tree.iter(f"{SVG}g") if g.get("id", "").endswith("-nodes")]
    styles = [[use.get("style").lower() for use in layer.iter(f"{SVG}use")] for layer in layers]
    assert [sum("#d55e00" in style for style in layer) for layer in styles] == [1] * 4


def _models(masks_by_layer, graphs):
    """The record of one model with these masks, given as functions of the structure."""
    structure = Structure.of(from_networkx(graphs))
    layers = [layer_statistics(make(structure), structure) | {"risers": 0.0} for make in masks_by_layer]
    return [{"seed": 0, "layers": layers}]


def _verdicts(name, models):
    return {c["name"]: c["verdict"] for c in (claim.check(models) for claim in claims_of(name))}


def test_masks_that_do_what_the_paper_says_of_reddit_and_masks_that_do_not():
    trees = [nx.random_labeled_tree(40, seed=s) for s in range(3)]

    def on_leaves(s):
        return np.where((s.degree == 1) & (s.distance > 1), 0.9, 0.01)

    def on_root(s):
        return np.where((s.degree == 1) & (s.distance > 1), 0.01, 0.4)

    told = _verdicts("REDDIT-BINARY", _models([on_leaves, on_root], trees))
    reddit = [claim.name for claim in claims_of("REDDIT-BINARY")][:6]
    assert [told[name] for name in reddit] == ["yes"] * 6
    assert (told["masks differ"], told["less so with depth"]) == ("yes", "yes")
    turned = _verdicts("REDDIT-BINARY", _models([on_root, on_leaves], trees))
    assert [turned[name] for name in reddit] == ["no"] * 5 + ["yes"]
    assert turned["less so with depth"] == "no"

    def beside_the_root(s):
        return np.where(s.distance == 1, 0.9, 0.01)

    told = _verdicts("REDDIT-BINARY", _models([beside_the_root, on_root], trees))
    assert (told["first layer without the root"], told["the root gains"]) == ("no", "no"), "the hub is not all of it"


# What a layer of a made-up model says where a claim does not look.
_PLAIN = {"within": {"mean": 0.2}, "degree": {"mean": 0.0}, "closed": 0.2, "label": 0.2, "risers": 0.2}
# Of each claim: the number, what meets it just so, and what misses it by a little.
_EDGES = {
    "masks fall with degree": ("degree", [-0.2, -0.9, -0.11], ([-0.2, -0.9, -0.1], [-0.1, -0.9, -0.9])),
    "masks fall with degree, first layer": ("degree", [-0.11, 0.9, 0.9], ([-0.1, -0.9, -0.9],)),
    "most nodes take part": ("closed", [0.1, 0.49, 0.0], ([0.1, 0.5, 0.0], [0.6, 0.0, 0.0])),
    "with different weights": ("within", [0.05, 0.2, 0.05], ([0.05, 0.2, 0.04], [0.04, 0.2, 0.05])),
    "masks follow the labels": ("label", [0.1, 0.0, 0.0], ([0.09, 0.5, 0.5],)),
    "zeros in the first layer": ("closed", [0.05, 0.0, 0.0], ([0.04, 0.5, 0.5],)),
    "masks differ": ("within", [0.01, 0.05, 0.01], ([0.04, 0.04, 0.04],)),
    "less so with depth": ("within", [0.06, 0.3, 0.05], ([0.05, 0.01, 0.05],)),
    "low becomes high": ("risers", [0.0, 0.0, 0.05], ([0.0, 0.0, 0.04],)),
}


def _made_up(seed, **numbers):
    """A model with these numbers layer by layer, by the name of the statistic."""
    layers = [dict(_PLAIN) for _ in range(3)]
    for key, values in numbers.items():
        for layer, value in zip(layers, values, strict=True):
            layer[key] = {"mean": value} if isinstance(_PLAIN[key], dict) else value
    return {"seed": seed, "layers": layers}


@pytest.mark.parametrize("name", ["NCI1", "PROTEINS", "COLLAB"])
def test_every_claim_is_met_by_a_model_that_just_meets_it_and_missed_by_one_that_just_does_not(name):
    for claim in claims_of(name):
        key, meets, misses = _EDGES[claim.name]
        good = [_made_up(seed, **{key: meets}) for seed in range(3)]
        assert claim.check(good)["verdict"] == "yes", claim.name
        for missed in misses:
            bad = _made_up(2, **{key: missed})
            assert claim.check([bad, bad])["verdict"] == "no", claim.name
            assert claim.check([*good[:2], bad])["verdict"] == "in part", claim.name


def test_one_model_can_meet_every_claim_of_a_set():
    for name, numbers in {
        "NCI1": {"within": [0.3, 0.2, 0.1], "closed": [0.0, 0.1, 0.2]},
        "PROTEINS": {"within": [0.3, 0.2, 0.1], "closed": [0.3, 0.0, 0.0]},
        "COLLAB": {"within": [0.3, 0.2, 0.1], "degree": [-0.7, -0.5, -0.3]},
    }.items():
        assert set(_verdicts(name, [_made_up(0, **numbers)]).values()) == {"yes"}, name


def test_a_claim_holds_if_it_holds_for_every_seed_and_not_where_nothing_is_known():
    graphs = [nx.lollipop_graph(6, 5)]
    falls = _models([lambda s: 1 / (1 + s.degree)], graphs)
    rises = _models([lambda s: s.degree / 10], graphs)
    (claim,) = [c for c in claims_of("COLLAB") if c.name == "masks fall with degree"]
    assert claim.check(falls)["verdict"] == "yes"
    assert claim.check(rises)["verdict"] == "no"
    both = claim.check(falls + rises)
    assert both["verdict"] == "in part"
    assert [seed["met"] for seed in both["seeds"]] == [True, False]
    assert [seed["numbers"] for seed in both["seeds"]] == [[pytest.approx(-1)], [pytest.approx(1)]]
    # In a clique there is no degree to fall with.
    clique = _models([lambda s: np.linspace(0, 1, len(s.degree))], [nx.complete_graph(5)])
    assert claim.check(clique)["verdict"] == "no"


def test_claims_have_names_and_rules_of_their_own():
    for names in FIGURES.values():
        for name in names:
            claims = claims_of(name)
            assert len({c.name for c in claims}) == len({c.rule for c in claims}) == len(claims) > 3
            for claim in claims:
                assert "hub" not in claim.rule or "the hub, the node of the largest degree" in claim.rule


def test_markdown_shows_numbers_and_verdicts(store, small, tmp_path):
    record = reproduce_masks("NCI1", store, tmp_path, quick=True)
    text = markdown([record])
    lines = text.splitlines()
    for table in (line for line in lines if line.startswith("|---")):
        columns = table.count("|")
        begin = lines.index(table)
        rows = lines[begin - 1 : begin + 3]
        assert all(row.count("|") == columns for row in rows if row.startswith("|"))
    for claim in (c.check(record["models"]) for c in claims_of("NCI1")):
        assert f"| “{claim['quote']}” | {claim['rule']} | **{claim['verdict']}** (" in text
    assert f"The pictures: {record['picture_rule']}." in text
    assert "seeds 0, 1, 2, trained in float32; masks on" in text
    layers = record["models"][0]["layers"]
    shown = " | ".join(f"{layer['mean']:.2f} ± {layer['std']:.2f}" for layer in layers)
    assert f"| mask | 0 | {shown} |" in text
    for model in record["models"]:
        shown = ", ".join(f"{layer['degree']['mean']:.2f}" for layer in model["layers"])
        assert [
            row
            for row in summary([record]).splitlines()
            if row.startswith(f"| NCI1 | {model['seed']} | ") and shown in row
        ]
    assert text.startswith(f"{QUICK}\n\n{summary([record])}")
    chosen = ", ".join(str(model["epoch"]) for model in record["models"])
    assert f"of epochs {chosen}, and the one drawn is that of seed {record['picture_seed']}." in text
    assert "last epoch" not in text
    older = record | {"models": [{k: v for k, v in model.items() if k != "epoch"} for model in record["models"]]}
    assert "NCI1: of the last epoch" in summary([older])
    assert text.count("The quick form") == 1
    assert "correlation with distance to hub" not in text
    assert "nan" not in text.lower()
    assert "None" not in text


@pytest.fixture
def record(store, small, tmp_path):
    return reproduce_masks("NCI1", store, tmp_path, quick=True)


def _with(record, **numbers):
    """The record with models that have these numbers, a list of layers for each seed."""
    models = []
    for r, model in enumerate(record["models"]):
        made = _made_up(model["seed"], **{key: seeds[r] for key, seeds in numbers.items()})["layers"]
        layers = [
            old | {key: old[key] | new[key] if isinstance(new[key], dict) else new[key] for key in numbers}
            for old, new in zip(model["layers"], made)
        ]
        models.append(model | {"layers": layers})
    return record | {"models": models}


def test_verdicts_are_of_the_rules_as_they_are_whatever_the_record_says(record):
    assert "claims" not in record
    old = {"name": "an old claim", "quote": "so", "rule": "thus", "verdict": "yes", "seeds": []}
    assert markdown([record | {"claims": [old]}]) == markdown([record])
    for closed, verdict in ((0.1, "yes"), (0.9, "no")):
        assert f"less than half of the nodes have a mask below 0.05 | **{verdict}** (" in markdown(
            [_with(record, closed=[[closed] * 3] * 3)]
        )


def test_the_summary_tells_all_seeds_from_some_and_none(record):
    spread = [[0.3, 0.2, 0.1], [0.3, 0.2, 0.1], [0.01, 0.2, 0.1]]
    made = _with(record, within=spread, closed=[[0.9] * 3] * 3, risers=[[0.0, 0.1, 0.1]] * 3)
    assert (
        "- NCI1 (quick form): of 2 rules for what the paper says of this set, all our models meet none, some meet 1 "
        "(with different weights: 2 of 3 seeds), none meets 1 (most nodes take part). Of 3 rules for what it says of "
        "all sets, all our models meet 2 (masks differ; low becomes high), some meet 1 (less so with depth: 2 of 3 "
        "seeds). Between the masks of two seeds the rank correlation is "
    ) in summary([made])
    alike = {"mean": 0.5, "std": 0.1, "graphs": 9}
    for means, depends in (((0.1, -0.2, 0.49), True), ((0.1, 0.5, 0.2), False)):
        made["agreement"] = [alike | {"mean": mean} for mean in means]
        assert ("depends on the seed." in summary([made])) == depends
    assert "| **in part** (2 of 3 seeds) | 0.300, 0.200, 0.100; 0.300, 0.200, 0.100; 0.0100, 0.200, 0.100 |" in (
        markdown([made])
    )


def test_numbers_do_not_contradict_the_verdict(record):
    text = markdown([_with(record, within=[[0.0497] * 3] * 3)])
    assert "in at least one layer (mean over graphs) | **no** (0 of 3 seeds) | 0.0497, 0.0497, 0.0497; " in text


def test_graphs_that_have_no_correlation_are_counted(record):
    graphs = record["data"]["test_graphs"]
    whole = {"mean": -0.43, "std": 0.2, "graphs": graphs}
    for model in record["models"]:
        for layer in model["layers"]:
            layer["degree"] = whole
    record["agreement"] = [whole | {"graphs": 3 * graphs}] * 3
    assert "-0.43 ± 0.20 (" not in markdown([record])
    record["models"][0]["layers"][1]["degree"] = whole | {"graphs": graphs - 1}
    record["agreement"][2] = whole | {"graphs": 3 * graphs - 1}
    text = markdown([record])
    shown = f"-0.43 ± 0.20 | -0.43 ± 0.20 ({graphs - 1} graphs) | -0.43 ± 0.20 |"
    assert f"| correlation with degree | 0 | {shown}" in text
    assert f"layer 2: -0.43 ± 0.20, layer 3: -0.43 ± 0.20 ({3 * graphs - 1} pairs)." in text


def test_older_records_say_how_their_risers_were_counted(record):
    assert "ranks alone" not in markdown([record])
    older = {key: value for key, value in record.items() if key not in ("riser_rise", "precision")}
    assert "NCI1: low becomes high by ranks alone." in summary([older])
    assert "counted by ranks alone, however little the mask rose." in markdown([older])
    assert "trained in" not in markdown([older])


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", ["PROTEINS", "NCI1", "COLLAB", "REDDIT-BINARY"])
def test_the_quick_form_on_real_sets(name, real_set, tmp_path):
    store = open_data(real_set(name))
    record = reproduce_masks(name, store, tmp_path, quick=True)
    assert len(record["pictures"]) == 4
    draw_missing(record, lambda: store, tmp_path)
    for picture in record["pictures"]:
        svg, png = (tmp_path / file for file in picture["files"])
        assert ET.parse(svg).getroot().tag.endswith("svg")
        assert png.stat().st_size > 20_000
    assert len(record["models"]) == 3
    assert name in markdown([record])
    assert torch.tensor([m["accuracy"] for m in record["models"]]).mean() > 0.4


@pytest.mark.parametrize("figure", FIGURES)
def test_every_record_has_its_pictures(figure):
    folder = Path(__file__).parents[2] / "results" / figure
    for record in gather(folder, figure):
        assert all((folder / name).is_file() for picture in record["pictures"] for name in picture["files"])
