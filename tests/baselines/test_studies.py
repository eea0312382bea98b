"""Baselines as studies: all three ways through the same protocols, records, reports and executors."""

import dataclasses
import os
import re
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from baselines.nets import Small
from rich.console import Console

from softmask.baselines import baseline_settings, register_model
from softmask.baselines.own import OWN
from softmask.baselines.shallow import SHALLOW
from softmask.data.convert import with_targets
from softmask.data.synthetic import motif
from softmask.errors import FeatureError, SettingError, StudyInterrupted
from softmask.study import Local, Settings, ask, read_record
from softmask.study.compare import compare_studies
from softmask.study.figures import figures
from softmask.study.report import html_report, markdown_report, print_report

STORE = motif(num_graphs=48, seed=0)
CPU = Local(["cpu"])
SMALL = "baselines.nets:Small"


@pytest.fixture(autouse=True)
def _nothing_registered():
    yield
    OWN.clear()


def said(record):
    told = StringIO()
    print_report(record, Console(file=told, width=200))
    return told.getvalue()


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """One study of each way, and of our own model, over the same folds."""
    folder = tmp_path_factory.mktemp("studies")
    settings = {
        "smg": Settings(hidden=8, layers=2, epochs=4, batch_size=16),
        "gin": baseline_settings("gin", hidden=8, layers=2, epochs=4, batch_size=16),
        "small": baseline_settings(SMALL, epochs=4, batch_size=16),
        "wl": baseline_settings("wl"),
    }
    return {n: ask(STORE, s, "both", folds=3, repeats=2, folder=folder / n).run(CPU) for n, s in settings.items()}


@pytest.mark.parametrize(
    ("name", "title", "way"),
    [("gin", "GIN", "as a fleet"), ("small", "Small", "one model after the other"), ("wl", "WL", "without epochs")],
)
def test_reports_name_the_model_and_how_it_trained(studies, name, title, way):
    record = studies[name]
    assert f"{title} on motif" in said(record)
    for text in (said(record), markdown_report(record), html_report(record)):
        assert title in text
        assert way in text
        assert "SMG" not in text
    shown = markdown_report(record)
    assert "| variant |" not in shown
    assert ("| hidden |" in shown) == (name == "gin")


def test_what_trains_once_has_one_figure(studies):
    record = studies["wl"]
    figures = record.result["figures"]
    assert figures["paper"]["scores"] == figures["fair"]["scores"]
    assert figures["fair"]["label"] == "no epoch to choose"
    assert "no epochs to choose from" in said(record)
    assert set(record.metrics["epoch"].tolist()) == {1}
    # Three fits, one for each fold, serve both protocols and both repeats; no epoch and no repeat is reported.
    assert record.result["models"] == 3
    assert not any("epoch" in key for figure in figures.values() for run in figure["runs"] for key in run)
    text = markdown_report(record)
    assert "| models | 3 |" in text
    assert "| epoch |" not in text
    assert "retrainings" not in text
    assert "retrainings" in markdown_report(studies["gin"])
    assert record.result["ways"] == ["once"]
    # By hand: the kernel of all graphs, a fit to all that is not in the fold.
    prepared = SHALLOW["wl"].prepare(STORE)
    y = STORE.y.numpy()
    for fold, test in enumerate(record.splits[0]["test"]):
        train = np.setdiff1d(np.arange(48), test)
        from softmask.study.trial import seed_of

        guess = prepared.fit(train, y[train], seed_of("once", 0, fold))(np.array(test)).argmax(axis=1)
        assert figures["fair"]["scores"][0][fold] == pytest.approx((guess == y[test]).mean())


def test_a_model_that_diverges_has_no_figure(tmp_path):
    settings = baseline_settings("baselines.nets:Diverges", epochs=2, batch_size=16)
    record = ask(STORE, settings, "both", folds=3, repeats=2, folder=tmp_path).run(CPU)
    assert [figure["diverged"] for figure in record.result["figures"].values()] == [3, 3]
    assert "Diverges on motif has no figure: it diverged in all 3 folds" in said(record)


def test_a_fold_diverged_where_its_chosen_epoch_did(studies):
    record = studies["small"]
    assert not any("diverged" in figure for figure in figures(record)["figures"].values())
    lost = (record.metrics["fold"] == 1) & (record.metrics["repeat"] == 0)
    columns = {"test_loss": np.nan, "test_metric": 0.0}
    worse = {name: np.where(lost, value, record.metrics[name]) for name, value in columns.items()}
    found = figures(dataclasses.replace(record, metrics=record.metrics | worse))["figures"]
    assert [figure["diverged"] for figure in found.values()] == [1, 1]
    # After the epoch that its validation part chose, here the first, it may do what it likes.
    epoch = record.metrics["epoch"]
    after = {"validation_metric": -epoch, "test_loss": np.where(epoch > 1, np.nan, record.metrics["test_loss"])}
    assert "diverged" not in figures(dataclasses.replace(record, metrics=record.metrics | after))["figures"]["fair"]
    after["test_loss"] = np.where(epoch > 0, np.nan, record.metrics["test_loss"])
    found = figures(dataclasses.replace(record, metrics=record.metrics | after))["figures"]
    assert found["fair"]["diverged"] == 3
    # What trains once has no loss, and does not diverge.
    assert not any("diverged" in figure for figure in figures(studies["wl"])["figures"].values())


def test_models_are_compared_by_name(studies):
    found = compare_studies(studies["smg"], studies["gin"])
    assert (found.name_a, found.name_b) == ("SMG-JK", "GIN")
    assert re.search(r"SMG-JK .* GIN", found.sentence())
    paper = compare_studies(studies["smg"], studies["wl"], "paper").sentence()
    assert "The figure of SMG-JK has the epoch chosen on the test folds, which flatters it and not the other" in paper
    assert "Both figures" in compare_studies(studies["smg"], studies["gin"], "paper").sentence()
    assert "flatters" not in compare_studies(studies["smg"], studies["gin"], "fair").sentence()


def test_every_way_has_the_same_trials(studies):
    keys = ("role", "run", "fold", "repeat")
    wanted = {tuple(t) for t in zip(*(studies["smg"].metrics[k].tolist() for k in keys))}
    for record in studies.values():
        assert {tuple(t) for t in zip(*(record.metrics[k].tolist() for k in keys))} == wanted


def test_one_by_one_goes_on_where_it_stopped(studies, tmp_path):
    settings = baseline_settings(SMALL, epochs=4, batch_size=16)
    calls = []

    def study():
        return ask(STORE, settings, "both", folds=3, repeats=2, folder=tmp_path / "s")

    with pytest.raises(StudyInterrupted):
        study().run(CPU, lambda *progress: calls.append(progress) or len(calls) == 10)
    # Two models are done, the third is not.
    assert len(list((tmp_path / "s").rglob("replicas-*"))) == 2
    assert read_record(tmp_path / "s").result is None
    finished = study().run(CPU)
    assert finished.result["figures"] == studies["small"].result["figures"]
    assert not list((tmp_path / "s").rglob("replicas-*"))


@pytest.mark.slow
def test_several_processes_import_the_model(studies, tmp_path):
    settings = baseline_settings(SMALL, epochs=4, batch_size=16)
    study = ask(STORE, settings, "both", folds=3, repeats=2, jobs=2, folder=tmp_path / "p")
    record = study.run(Local(["cpu", "cpu"]))
    np.testing.assert_allclose(
        record.result["figures"]["fair"]["scores"], studies["small"].result["figures"]["fair"]["scores"]
    )


def test_other_processes_cannot_know_what_was_registered_here(tmp_path):
    from softmask.study.ray_executor import OnRay

    register_model("mine", Small)
    study = ask(STORE, baseline_settings("mine", epochs=1), folds=3, repeats=1, jobs=2, folder=tmp_path / "p")
    with pytest.raises(SettingError, match="registered in this process, and jobs in other processes do not know it"):
        study.run(Local(["cpu", "cpu"]))
    with pytest.raises(SettingError, match="registered in this process"):
        study.run(OnRay("local"))
    file = Path(__file__).with_name("nets.py")
    study = ask(STORE, baseline_settings(f"{file}:Small", epochs=1), folds=3, repeats=1, folder=tmp_path / "f")
    with pytest.raises(SettingError, match="a file of this machine"):
        study.run(OnRay("local"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gin", SMALL, "labels-logistic"])
def test_on_ray(name, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    from softmask.study.ray_executor import OnRay

    # A worker must be able to import the model.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
    settings = baseline_settings(name) if name == "labels-logistic" else baseline_settings(name, epochs=2)
    here = ask(STORE, settings, "both", folds=2, repeats=1, jobs=2, folder=tmp_path / "here")
    there = ask(STORE, settings, "both", folds=2, repeats=1, jobs=2, folder=tmp_path / "there")
    assert there.run(OnRay("local")).result["figures"] == here.run(CPU).result["figures"]


def test_a_grid_may_choose_the_model(tmp_path):
    points = [baseline_settings(name, hidden=8, layers=2, epochs=3, lr=1e-2) for name in ("gin", "gcn")]
    record = ask(STORE, [*points, baseline_settings("wl")], "fair", folds=2, repeats=1, folder=tmp_path / "g").run(CPU)
    assert len(record.result["ranking"]) == 3
    assert "GIN / GCN / WL" in said(record)
    chosen = {int(s) for s in record.metrics["setting"][record.metrics["role"] == "fair"]}
    assert chosen <= {0, 1, 2}


def test_numbers(tmp_path):
    store = with_targets(STORE, STORE.sizes.double().numpy())
    for name in ("gin", SMALL, "labels-logistic"):
        settings = baseline_settings(name) if name == "labels-logistic" else baseline_settings(name, epochs=3)
        record = ask(store, settings, "both", folds=2, repeats=1, folder=tmp_path / name.replace(":", "-")).run(CPU)
        assert record.question["metric"] == "mean absolute error"
        assert np.isfinite(record.result["figures"]["fair"]["mean"])


def test_the_model_of_the_docs_runs(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 15
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/baselines.md", "exec"), {"__name__": "__main__"})
    assert 0 <= float(capsys.readouterr().out) <= 1
    # The same file, named on the command line: to be imported runs no study.
    Path("nets.py").write_text(code)
    store, settings = motif(num_graphs=60), baseline_settings("nets.py:MyNet", epochs=1)
    assert ask(store, settings, folds=2, repeats=1, folder="by-name").run(CPU).result
    assert capsys.readouterr().out == ""


def test_the_docs_list_every_baseline():
    from softmask.baselines import BASELINES
    from softmask.paper.published import OURS, published
    from softmask.paper.table2 import other_systems

    page = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text()
    for name in BASELINES:
        assert f"`{name}`" in page
    run = {b.row for b in BASELINES.values()}
    for row in set(published()["table1"]["accuracy"]) - set(OURS.values()) - run:
        assert f"| {row} |" in page, "why it is not run"
    why = page.partition("## Rows of the paper that are not run")[2].partition("## ")[0]
    assert set(published()["table2"]["mae"]) - set(OURS.values()) == set(other_systems())
    # Sets that the paper has a figure of ECC for, and that have no edge labels; MUTAG has.
    figures = {name for name, figure in published()["table1"]["accuracy"]["ECC"].items() if figure is not None}
    assert figures == {"MUTAG", "NCI1", "ENZYMES"}
    assert "| ECC on NCI1 and ENZYMES |" in why


def test_what_trains_once_can_be_stopped_before_its_first_fit(tmp_path):
    """Ctrl-C asks to stop; the kernel's matrix is not waited for, and nothing is kept of it."""
    study = ask(STORE, baseline_settings("rw"), folds=3, folder=tmp_path / "s")
    with pytest.raises(StudyInterrupted):
        study.run(CPU, lambda *_: True)
    assert not list((tmp_path / "s" / "jobs").glob("*/*"))
    assert study.run(CPU).result["models"] == 3


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("wl", {"patience": 5}, "patience has no effect on wl: it has no epochs"),
        ("labels-mlp", {"precision": "bf16"}, "precision has no effect on labels-mlp: it computes in float64"),
        ("wl", {"weights": True}, "weights has no effect on wl: it has none"),
        (SMALL, {"precision": "bf16"}, "it computes in float32"),
    ],
)
def test_options_without_an_effect_are_refused(model, options, said, tmp_path):
    with pytest.raises(SettingError, match=re.escape(said)):
        ask(STORE, baseline_settings(model), folder=tmp_path, **options)


def test_options_with_an_effect_on_some_models_are_not(tmp_path):
    both = [baseline_settings("wl"), baseline_settings("gin", epochs=2)]
    ask(STORE, both, patience=5, precision="float32", folder=tmp_path)
    ask(STORE, baseline_settings(SMALL), precision="float32", patience=5, folder=tmp_path)
    ask(STORE, baseline_settings("wl"), precision="float64", folder=tmp_path)


def test_what_is_refused_before_it_was_trained_leaves_no_study(tmp_path):
    mine = tmp_path / "notes.txt"
    mine.write_text("mine")
    study = ask(STORE, baseline_settings("baselines.nets:TooFew", epochs=2), "paper", folds=3, folder=tmp_path)
    with pytest.raises(SettingError, match="outputs"):
        study.run(CPU)
    assert not (tmp_path / "study.json").exists()
    assert not (tmp_path / "jobs").exists()
    assert mine.read_text() == "mine"


def test_what_trains_once_needs_no_class_in_a_validation_part(tmp_path):
    """Three graphs of a class: a network cannot choose its epoch on a tenth without one; a histogram chooses none."""
    store = with_targets(motif(num_graphs=30), ["few" if g % 10 == 0 else "many" for g in range(30)])
    with pytest.raises(SettingError, match="--validation"):
        ask(store, baseline_settings("gcn", epochs=1), folds=3, folder=tmp_path / "gcn").run(CPU)
    record = ask(store, baseline_settings("labels-logistic"), folds=3, folder=tmp_path / "labels").run(CPU)
    assert np.shape(record.result["figures"]["fair"]["scores"]) == (1, 3)


def test_features_that_are_not_there_leave_no_study(tmp_path):
    study = ask(STORE, baseline_settings("gin", epochs=1, attributes=True), folds=2, folder=tmp_path / "study")
    (study.folder / "events").mkdir(parents=True)
    (study.folder / "events" / "notes").write_text("mine")
    (study.folder / "report.md").write_text("mine")
    with pytest.raises(FeatureError, match="attributes"):
        study.run(CPU)
    # What is somebody else's stays.
    assert {path.name for path in study.folder.iterdir()} == {".lock", "events", "report.md"}
    assert (study.folder / "events" / "notes").read_text() == "mine"
