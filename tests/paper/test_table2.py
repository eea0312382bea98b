import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from softmask import load_model
from softmask.data.catalog import open_data
from softmask.data.features import Features
from softmask.data.qm9 import TARGETS
from softmask.data.splits import holdout
from softmask.errors import FeatureError, ModelFileError, SettingError, StudyInterrupted
from softmask.model_file import TrainedModel, load_trained, save_model
from softmask.nn.geometric_readout import READOUTS
from softmask.paper.regression import BONDS, _as_computed
from softmask.paper.table2 import markdown, other_systems, rows
from softmask.study.geometric import Geometric


def test_the_recipe():
    found = rows()
    assert [r.variant for r in found] == ["smg-jk", "m-smg-jk", "geometric", "dtnn", "mpnn", "ppgn-in-space"]
    assert [r.variant for r in rows(systems=["MPNN"], variants=["smg-jk"])] == ["smg-jk", "mpnn"]
    assert list(other_systems()) == ["DTNN", "MPNN", "PPGNN"]
    for row in found[:2]:
        s = row.settings
        assert (s.layers, s.hidden, s.batch_size, s.epochs, s.lr, s.decay, s.decay_every) == (
            *(3, 64, 64, 500, 5e-4, 0.8, 30),
        )


def test_bond_features_are_the_kind_and_the_relative_length():
    store = open_data("qm9-sample").select(range(20))
    x = BONDS(store)
    assert x.shape == (store.num_edges, 5)
    assert (x[:, :4].sum(dim=1) == 1).all()
    source, target = store.edges()
    for g in range(20):
        mine = store.batch[target] == g
        length = (store.pos[source[mine]] - store.pos[target[mine]]).norm(dim=1)
        torch.testing.assert_close(x[mine, 4], length / length.max(), atol=1e-4, rtol=0)


def test_the_recipe_of_the_geometric_row():
    (row,) = rows(variants=["geometric"])
    targets = open_data("qm9-sample").info["targets"]
    assert list(row.readouts) == targets
    assert set(row.readouts.values()) <= set(READOUTS)
    assert set(row.references) <= set(targets)
    assert row.readouts["mu"] == "dipole"
    assert (row.ratios, row.seed) == (rows()[0].ratios, rows()[0].seed)
    with pytest.raises(SettingError, match="no variant 'gin'; it has smg-jk, m-smg-jk, geometric"):
        rows(variants=["gin"])
    with pytest.raises(SettingError, match="no model 'gin'; it has dtnn, mpnn, ppgn-in-space"):
        rows(systems=["gin"])


def test_the_geometric_row_learns_what_is_left_of_the_targets():
    """Targets less their reference, errors in the same unit; a dipole of zero is the output's zero."""
    store = open_data("qm9-sample").select(range(200))
    (row,) = rows(quick=True, variants=["geometric"])
    train = np.arange(150)
    lesson = row.lesson(store, train)
    assert torch.equal(lesson.store.y[:, 0], store.y[:, 0])
    energy = store.info["targets"].index("U0")
    assert lesson.store.y[:150, energy].std() < 0.1 < store.y[:, energy].std()
    mu = store.y[:150, 0]
    zero = (0 - mu.mean()) / mu.std(correction=0)
    assert lesson.buffers[0]["offset"][0] == pytest.approx(float(zero))
    assert all(b["offset"] == [0.0] for b in lesson.buffers[1:])
    assert all(sum(b["select"]) == 1 for b in lesson.buffers)


def test_the_quick_form(tmp_path):
    store = open_data("qm9-sample").select(range(120))
    for row in rows(quick=True):
        row.run(store, tmp_path, "cpu")
        record = json.loads(row.path(tmp_path).read_text())
        assert set(record["test_mae"]) == set(store.info["targets"])
        for i, name in enumerate(store.info["targets"]):
            chosen = int(np.argmin(record["curves"]["validation"][i]))
            assert record["epoch"][name] == chosen + 1
            # The record's figures are those of the kept file, the curves those of the fleet.
            for part in ("validation", "test"):
                there = record["curves"][part][i][chosen]
                assert record[f"{part}_mae"][name] == pytest.approx(there, rel=1e-4)
        # In the target's own unit: no worse than ten times its spread.
        spread = (store.y - store.y.mean(dim=0)).abs().mean(dim=0)
        assert all(record["test_mae"][n] < 10 * spread[i] for i, n in enumerate(store.info["targets"]))
        assert row.done(store, tmp_path)
        assert not row.done(store, tmp_path / "elsewhere")
        with pytest.raises(SettingError, match="made with other data_hash; move it away"):
            row.done(store.select(range(100)), tmp_path)
        with pytest.raises(SettingError, match="made with other settings"):
            replace(row, settings=replace(row.settings, epochs=99)).done(store, tmp_path)
    text = markdown(tmp_path)
    assert text.startswith("**Made on qm9-sample: this shows that the recipe works")
    assert text.count("\n| ") == 13
    assert "of 24 figures are at or below the paper's" in text
    assert "geometric soft-mask, ours" in text
    assert "DTNN, here" in text
    assert "at or below DTNN and MPNN and PPGNN as measured here on" in text
    assert "It sees the positions of all atoms" in text
    assert all(f"| {name}, " in text for name in store.info["targets"])
    assert all(f"{other}, in the paper" in text for other in other_systems())
    assert "| 0.0934 |" in text


def test_the_geometric_row_alone(tmp_path):
    """Its figures against the unit of the target, from a record that only it has."""
    store = open_data("qm9-sample").select(range(60))
    (row,) = rows(quick=True, variants=["geometric"])
    row.run(store, tmp_path, "cpu")
    record = json.loads(row.path(tmp_path).read_text())
    assert record["readouts"]["r2"] == "extent"
    assert len(record["references"]["r2"]) == 10
    text = markdown(tmp_path)
    assert "figures are at or below the paper's" not in text
    # Of the paper's rows, which were not run, the paper's own figures stand before it.
    assert f"| U0, Ha | 0.0248 | 0.0212 | {record['test_mae']['U0']:#.3g} |" in text
    assert "Not run yet: SMG-JK, M-SMG-JK, DTNN, MPNN, PPGNN." in text
    assert "Made on qm9-sample" in text
    alone = record["constant_mae"]
    assert f"the errors would be: alpha {alone['alpha']:.3g}, r2 {alone['r2']:.3g}, " in text
    train, _, test = holdout(60, row.ratios, 0)
    gap = store.y[:, store.info["targets"].index("gap")].numpy()
    assert alone["gap"] == pytest.approx(np.abs(gap[test] - gap[train].mean()).mean())


def test_kept_models_give_the_figures_of_the_record(tmp_path):
    """Predictions in the target's unit, for any molecules in space, the same from file to file."""
    store = open_data("qm9-sample").select(range(80))
    targets = store.info["targets"]
    _, _, test = holdout(80, (0.8, 0.1, 0.1), 0)
    for row in rows(quick=True, variants=["smg-jk", "geometric"]):
        row.run(store, tmp_path, "cpu")
        record = json.loads(row.path(tmp_path).read_text())
        for target in ("mu", "gap", "r2", "U0"):
            path = row.model_path(tmp_path, target)
            model = load_model(path, "cpu")
            y = store.y[:, targets.index(target)].numpy()
            said = model.predict(store)
            assert np.abs(said - y)[test].mean() == pytest.approx(record["test_mae"][target], rel=1e-6)
            np.testing.assert_allclose(model.predict(list(store)[:3]), said[:3], rtol=1e-5, atol=1e-6)
            assert model.trained_.targets == [target]
            assert model.trained_.summary["unit"] == TARGETS[target][0]
            model.save(tmp_path / "again.safetensors")
            assert (load_model(tmp_path / "again.safetensors", "cpu").predict(store) == said).all()
    # Of a total energy only the rest is learned; the file knows the other part.
    assert np.abs(said - y).max() < 1 < y.std()


def test_molecules_without_positions_are_refused(tmp_path):
    store = open_data("qm9-sample").select(range(40))
    for row in rows(quick=True, variants=["smg-jk", "geometric"]):
        row.run(store, tmp_path, "cpu")
        model = load_model(row.model_path(tmp_path, "gap"), "cpu")
        with pytest.raises(FeatureError, match=r"hydrogens.*these graphs have no positions.*softmask fit"):
            model.predict(["CCO", "c1ccccc1"])
        with pytest.raises(FeatureError, match="trained on molecules in space"):
            model.explain("CCO")


def test_a_row_that_is_cut_leaves_a_record_and_goes_on(tmp_path):
    store = open_data("qm9-sample").select(range(60))
    (row,) = rows(quick=True, variants=["geometric"])
    row = replace(row, settings=replace(row.settings, epochs=3), whole=5)
    row.run(store, tmp_path / "at-once", "cpu")
    with pytest.raises(StudyInterrupted):
        row.run(store, tmp_path, "cpu", lambda epoch, metrics: epoch == 2)
    record = json.loads(row.path(tmp_path).read_text())
    assert record["cut"]
    assert record["epochs"] == {"trained": 2, "of": 5}
    assert np.shape(record["curves"]["test"]) == (12, 2)
    told = markdown(tmp_path)
    assert "geometric soft-mask, ours\\* |" in told
    assert "and so not what it gives: geometric 2 of 5, cut where it was to have 3." in told
    assert load_model(row.model_path(tmp_path, "mu")).trained_.summary["interrupted"]
    assert not row.done(store, tmp_path)
    # Without its snapshot a shorter try does not replace the longer one.
    snapshots = row.path(tmp_path).with_suffix("") / "snapshots"
    kept = {file: file.read_bytes() for file in snapshots.iterdir()}
    for file in kept:
        file.unlink()
    with pytest.raises(StudyInterrupted):
        row.run(store, tmp_path, "cpu", lambda epoch, metrics: epoch == 1)
    assert json.loads(row.path(tmp_path).read_text()) == record
    for file, content in kept.items():
        file.write_bytes(content)
    seen = []
    row.run(store, tmp_path, "cpu", lambda epoch, metrics: seen.append(epoch))
    assert seen == [3]
    assert row.done(store, tmp_path)
    assert not snapshots.exists()
    there, here = (json.loads(row.path(out).read_text()) for out in (tmp_path / "at-once", tmp_path))
    assert here["curves"] == there["curves"]
    assert here["test_mae"] == there["test_mae"]
    assert "and so not what it gives: geometric 3 of 5." in markdown(tmp_path)


def test_fewer_epochs_end_with_the_same_rate():
    for row, short in zip(rows(), rows(epochs=100), strict=True):
        s, t = row.settings, short.settings
        assert (t.epochs, short.whole) == (100, s.epochs)
        ends = [x.lr * x.decay ** (x.epochs / x.decay_every) for x in (s, t)]
        assert ends[0] == pytest.approx(ends[1])
    with pytest.raises(SettingError, match="--epochs 501: this recipe has 500"):
        rows(epochs=501, variants=["smg-jk"])


def test_weights_are_kept_as_a_gpu_computes_with_them(tmp_path):
    """Rounded to bfloat16 but for head and buffers: half the file, and nothing more is lost by it."""
    store = open_data("qm9-sample").select(range(20))
    features = Features.of(store)
    (row,) = rows(variants=["geometric"])
    model = row.model(features)
    model.offset.fill_(0.1)
    state = _as_computed(model, model.state_dict())
    assert torch.equal(state["head.0.weight"], model.head[0].weight)
    assert torch.equal(state["offset"], model.offset)
    changed = (state["convs.0.lin_in.weight"] - model.convs[0].lin_in.weight).abs()
    assert 0 < changed.max() <= 2**-8 * model.convs[0].lin_in.weight.abs().max()
    sizes = []
    for name, weights in (("whole", model.state_dict()), ("half", state)):
        model.load_state_dict(weights)
        told = {"classes": None, "mean": (0.0,), "std": (1.0,), "summary": {"seed": 0}, "targets": ["mu"]}
        geometric = Geometric("sum", row.num_radial, row.cutoff)
        save_model(
            TrainedModel("regression", row.settings, features, 1, model, **told, geometric=geometric),
            tmp_path / name,
        )
        sizes.append((tmp_path / name).stat().st_size)
        read = load_trained(tmp_path / name).model.state_dict()
        assert all(torch.equal(read[key], weights[key]) for key in weights)
    assert sizes[1] < 0.6 * sizes[0] < 4_000_000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"readout": "maximum"}, "unknown readout"),
        ({"references": ["charges"]}, "unknown readout 'sum' or references"),
        ({"num_radial": 10**9}, "num_radial is 1000000000"),
        ({"cutoff": -1.0}, "cutoff -1.0"),
        ({"coefficients": [1.0]}, "1 coefficients of 1 references"),
        ({"coefficients": [float("inf")] * 5}, "not a finite number"),
        ({"num_radial": 7}, "lin_filter.weight has shape"),
    ],
)
def test_damaged_files_of_geometric_models_are_refused(tmp_path, change, words):
    store = open_data("qm9-sample").select(range(20))
    features = Features.of(store)
    (row,) = rows(quick=True, variants=["geometric"])
    geometric = Geometric("sum", row.num_radial, row.cutoff, ("elements",), (0.5,) * 5)
    assert Geometric.from_json(json.loads(json.dumps(geometric.to_json()))) == geometric
    told = {"classes": None, "mean": (0.0,), "std": (1.0,), "summary": {"seed": 0}, "targets": ["mu"]}
    model = geometric.build(row.settings, features)
    wrong = replace(geometric, **{k: tuple(v) if isinstance(v, list) else v for k, v in change.items()})
    save_model(TrainedModel("regression", row.settings, features, 1, model, **told, geometric=wrong), tmp_path / "m")
    with pytest.raises(ModelFileError, match=words):
        load_trained(tmp_path / "m")


def test_a_geometric_file_that_claims_a_committee_is_refused(tmp_path):
    store = open_data("qm9-sample").select(range(20))
    features = Features.of(store)
    (row,) = rows(quick=True, variants=["geometric"])
    geometric = Geometric("sum", row.num_radial, row.cutoff)
    told = {"classes": None, "mean": (0.0,), "std": (1.0,), "summary": {"seed": 0}, "targets": ["mu"]}
    settings, model = replace(row.settings, committee=5), geometric.build(row.settings, features)
    save_model(TrainedModel("regression", settings, features, 1, model, **told, geometric=geometric), tmp_path / "m")
    with pytest.raises(ModelFileError, match="no committee of 5"):
        load_trained(tmp_path / "m")


def test_a_row_in_another_precision_is_another_row(tmp_path):
    store = open_data("qm9-sample").select(range(40))
    (row,) = rows(quick=True, systems=["dtnn"])
    row.run(store, tmp_path, "cpu")
    assert row.done(store, tmp_path)
    with pytest.raises(SettingError, match="made with other precision_asked"):
        replace(row, precision="bf16").done(store, tmp_path)


def test_the_readme_says_how_many_molecules_are_tested():
    root = Path(__file__).parents[2]
    parts = json.loads((root / "results" / "table2" / "geometric-seed0.json").read_text())["parts"]
    assert f"{parts[2]:,} test molecules" in (root / "README.md").read_text()


def test_the_page_quotes_the_effects_of_atoms():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "qm9.md").read_text()
    for target, kinds in (
        ("mu", ("nitrile N", "carbonyl O", "carbonyl C", "alkyl C")),
        ("gap", ("carbonyl C", "alkene or imine C", "amine N", "aromatic C", "alkyl C")),
    ):
        found = json.loads((root / "results" / "table2" / f"atoms-{target}.json").read_text())
        assert f"over the {found['molecules']:,} test molecules" in page
        assert ", ".join(f"{kind} {found['kinds'][kind]['effect']:.3g}" for kind in kinds) in page
        largest = max(found["kinds"], key=lambda kind: found["kinds"][kind]["effect"])
        assert largest == "ammonium N"
        assert f"the N of ammonium, of which there are {found['kinds'][largest]['atoms']}" in page


def test_what_the_page_says_of_more_epochs_is_in_the_curves():
    root = Path(__file__).parents[2]
    falls: dict[bool, list[float]] = {True: [], False: []}
    for variant in ("smg-jk", "m-smg-jk"):
        record = json.loads((root / "results" / "table2" / f"{variant}-seed0.json").read_text())
        for target, curve in zip(record["test_mae"], record["curves"]["validation"], strict=True):
            last = 100 * (1 - min(curve) / min(curve[: len(curve) * 4 // 5]))
            falls[target in ("U0", "U", "H", "G")].append(last)
    page = (root / "docs" / "qm9.md").read_text()
    said = [f"by {min(part):.0f} to {max(part):.0f} %" for part in (falls[True], falls[False])]
    assert f"U0, U, H and G still fell, {said[0]}; those of the other targets {said[1]}." in page


def test_what_the_docs_say_of_rounding_is_in_its_file():
    root = Path(__file__).parents[2]
    found = json.loads((root / "results" / "bench" / "rounding.json").read_text())["mean_deviation"]
    text = (root / "docs" / "qm9.md").read_text()
    for way, said in (
        ("bfloat16", "{:.2g} Ha away from its float64 result"),
        ("all products of TF32", "{:.2g} Ha if all products are of TF32"),
        ("products with edge matrices of TF32", "{:.2g} Ha if only those with the matrices of edges are"),
        ("products with edge matrices of float16", "{:.2g} Ha if only those with the matrices of edges are"),
    ):
        assert said.format(found[way]) in text
