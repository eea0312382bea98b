"""Studies on small synthetic sets: what is trained, what is chosen, what is refused."""

import dataclasses
import shutil

import numpy as np
import pytest
from filelock import FileLock

from softmask.data import Features
from softmask.data.convert import with_targets
from softmask.data.fold_files import Fold
from softmask.data.splits import stratified_folds
from softmask.errors import DataError, SettingError, StudyInterrupted
from softmask.fleet import Fleet, Replica
from softmask.study import Local, Settings, ask, read_record
from softmask.study.protocols import Protocol
from softmask.study.record import KEYS, VALUES
from softmask.study.study import targets_of

CPU = Local(["cpu"])


def _same(a, b):
    order = [np.lexsort([r.metrics[name] for name in KEYS]) for r in (a, b)]
    for name in (*KEYS, *VALUES):
        np.testing.assert_array_equal(a.metrics[name][order[0]], b.metrics[name][order[1]])
    assert a.result["figures"] == b.result["figures"]
    assert a.splits == b.splits


@pytest.fixture(scope="module")
def both(graphs, quick, tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies") / "both"
    return ask(graphs, quick, "both", folds=3, runs=2, repeats=2, folder=folder).run(CPU)


def test_the_paper_figure_against_a_fleet_of_its_own(both, graphs, quick):
    """Fold by fold, with the figure computed by hand."""
    features = Features.of(graphs)
    for run in range(2):
        replicas = [
            Replica(run * 1000 + fold, train, {"test": test}, lr=quick.lr, dropout=quick.dropout)
            for fold, (train, test) in enumerate(stratified_folds(graphs.y.numpy(), 3, run))
        ]
        fleet = Fleet(
            lambda: quick.build(features, 2, "classification"), graphs, features(graphs), replicas, quick.batch_size
        )
        curves = fleet.train(quick.epochs).metric["test"]
        epoch = curves.mean(axis=0).argmax()
        figure = both.result["figures"]["paper"]
        np.testing.assert_allclose(figure["scores"][run], curves[:, epoch], atol=1e-6)
        assert figure["runs"][run]["epoch"] == epoch + 1
        assert figure["runs"][run]["std"] == pytest.approx(curves[:, epoch].std())
    assert figure["label"] == "epoch chosen on the test folds"
    assert figure["mean"] == pytest.approx(np.mean(figure["scores"]))


def test_the_fair_figure_is_the_test_score_where_validation_is_best(both):
    metrics = both.metrics
    scores = np.zeros((2, 3))
    for run in range(2):
        for fold in range(3):
            for repeat in range(2):
                rows = (metrics["role"] == "fair") & (metrics["run"] == run)
                rows &= (metrics["fold"] == fold) & (metrics["repeat"] == repeat)
                order = zip(
                    -metrics["validation_metric"][rows],
                    metrics["validation_loss"][rows],
                    metrics["epoch"][rows],
                    metrics["test_metric"][rows],
                )
                scores[run, fold] += min(order)[3] / 2
    np.testing.assert_allclose(both.result["figures"]["fair"]["scores"], scores)
    gap = both.result["figures"]["paper"]["mean"] - scores.mean()
    assert both.result["gap"] == pytest.approx(gap)


def test_no_graph_is_on_two_sides(graphs, quick):
    study = ask(graphs, [quick, dataclasses.replace(quick, lr=1e-3)], "fair", folds=4, runs=2, repeats=2)
    protocol = Protocol(study.question, study.splits, targets_of(graphs))
    places = {(run, fold): 1 for run in range(2) for fold in range(4)}
    everything = set(range(48))
    for trial in protocol.tested(places, "fair", 2):
        parts = [set(part.tolist()) for part in (trial.train, trial.validation, trial.test)]
        assert set.union(*parts) == everything
        assert sum(map(len, parts)) == 48
        # The validation part has every class.
        assert set(graphs.y[trial.validation].tolist()) == {0, 1}
    for trial in protocol.selection({place: [0, 1] for place in places}):
        assert trial.test is None
        tested = set(study.splits[trial.run]["test"][trial.fold])
        assert not tested & (set(trial.train.tolist()) | set(trial.validation.tolist()))
    for trial in protocol.paper():
        assert set(trial.train.tolist()) | set(trial.test.tolist()) == everything
    # Each of the repeated trainings has a validation part and weights of its own.
    twice = protocol.tested(places, "fair", 2)[:2]
    assert twice[0].seed != twice[1].seed
    assert twice[0].validation.tolist() != twice[1].validation.tolist()


def test_it_goes_on_where_it_stopped(both, graphs, quick, tmp_path, monkeypatch):
    monkeypatch.setattr("softmask.fleet.snapshot.Snapshot.due", lambda self, last=False: True)

    def study():
        return ask(graphs, quick, "both", folds=3, runs=2, repeats=2, folder=tmp_path / "s")

    for stop_at in (2, 5):
        with pytest.raises(StudyInterrupted):
            study().run(CPU, lambda stage, done, jobs, epoch, epochs: epoch == stop_at)  # noqa: B023
        assert read_record(tmp_path / "s").result is None
    seen = []
    finished = study().run(CPU, lambda stage, done, jobs, epoch, epochs: seen.append(epoch))
    assert seen[:2] == [0, 6]  # it begins, and goes on
    _same(finished, both)
    assert not list((tmp_path / "s").rglob("replicas-*")), "no snapshot is left"
    # Once finished, it is not trained again.
    _same(study().run(Local(["nowhere"])), both)


def test_jobs_may_be_many_and_run_side_by_side(both, graphs, quick, tmp_path):
    cut = ask(graphs, quick, "both", folds=3, runs=2, repeats=2, jobs=3, folder=tmp_path / "one")
    alone = cut.run(CPU)
    assert len(alone.jobs) == 3
    np.testing.assert_allclose(
        alone.result["figures"]["fair"]["scores"], both.result["figures"]["fair"]["scores"], atol=0.1
    )
    apart = dataclasses.replace(cut, folder=tmp_path / "two").run(Local(["cpu", "cpu"]))
    _same(alone, apart)


def test_settings_are_chosen_on_validation_parts(graphs, quick, tmp_path):
    points = [dataclasses.replace(quick, lr=lr, hidden=h) for lr in (1e-7, 1e-2) for h in (8, 16)]
    record = ask(graphs, points, "fair", folds=3, repeats=1, folder=tmp_path / "fair").run(CPU)
    selected, tested = (record.metrics["role"] == role for role in ("select", "fair"))
    assert np.isnan(record.metrics["test_metric"][selected]).all()
    for fold in range(3):
        rows = selected & (record.metrics["fold"] == fold)
        best = {}
        for s in range(4):
            mine = rows & (record.metrics["setting"] == s)
            metric, loss = (record.metrics[f"validation_{what}"][mine] for what in ("metric", "loss"))
            best[s] = min(zip(-metric, loss))
        used = set(record.metrics["setting"][tested & (record.metrics["fold"] == fold)].tolist())
        assert used == {min(best, key=best.get)}
    assert record.result["figures"]["fair"]["label"] == "epoch and settings chosen on validation parts"


def test_halving_trains_the_better_settings_longer(graphs, quick, tmp_path):
    points = [dataclasses.replace(quick, lr=lr, epochs=9) for lr in np.geomspace(1e-6, 1e-2, 10).tolist()]
    record = ask(graphs, points, "tune", folds=2, halving=True, folder=tmp_path / "tune").run(CPU)
    kept = {}
    for role, epochs in (("rung1", 1), ("rung2", 3), ("select", 9)):
        rows = record.metrics["role"] == role
        kept[role] = set(record.metrics["setting"][rows].tolist())
        assert record.metrics["epoch"][rows].max() == epochs
    assert [len(k) for k in kept.values()] == [10, 4, 2]
    assert kept["select"] <= kept["rung2"] <= kept["rung1"]
    assert record.result["chosen"] in kept["select"]
    assert record.result["figures"] == {}


def test_patience_ends_a_fleet_early_and_chooses_as_if_each_had_stopped(graphs, quick, tmp_path):
    slow = dataclasses.replace(quick, epochs=60, lr=1e-2)
    record = ask(graphs, slow, "fair", folds=2, repeats=1, patience=3, folder=tmp_path / "s").run(CPU)
    whole = ask(graphs, slow, "fair", folds=2, repeats=1, folder=tmp_path / "w").run(CPU)
    trained = record.metrics["epoch"].max()
    assert trained < 60
    np.testing.assert_array_equal(record.curves("validation_metric"), whole.curves("validation_metric")[:, :trained])
    # What each would have chosen, had it stopped by itself.
    scores = []
    for validation, loss, test in zip(
        *(whole.curves(c) for c in ("validation_metric", "validation_loss", "test_metric"))
    ):
        stop = next((e for e in range(60) if e - validation[: e + 1].argmax() >= 3), 59)
        scores.append(min((-validation[e], loss[e], e, test[e]) for e in range(stop + 1))[3])
    np.testing.assert_allclose(record.result["figures"]["fair"]["scores"][0], scores)


def test_holdout_and_given_parts(graphs, quick, tmp_path):
    record = ask(graphs, quick, "holdout", runs=2, folder=tmp_path / "h").run(CPU)
    assert np.shape(record.result["figures"]["holdout"]["scores"]) == (2, 1)
    figure = record.result["figures"]["holdout"]
    assert figure["std"] == pytest.approx(np.std(figure["scores"]))
    assert figure["runs"][0]["std"] is None
    assert [len(record.splits[0][part][0]) for part in ("train", "validation", "test")] == [38, 5, 5]
    ids = np.arange(48)
    given = [Fold(test=ids[40:], train=ids[:30], validation=ids[30:40])]
    record = ask(graphs, quick, "holdout", given=given, folder=tmp_path / "g").run(CPU)
    assert record.splits[0]["test"] == [ids[40:].tolist()]
    # The given validation part chooses: the same training by hand.
    features = Features.of(graphs)
    seed = int(record.metrics["seed"][0])
    replica = Replica(seed, ids[:30], {"validation": ids[30:40]}, lr=quick.lr, dropout=quick.dropout)
    fleet = Fleet(lambda: quick.build(features, 2, "classification"), graphs, features(graphs), [replica], 16)
    np.testing.assert_allclose(record.curves("validation_loss")[0], fleet.train(6).loss["validation"][0], atol=1e-6)


def test_regression(graphs, tmp_path):
    sizes = with_targets(graphs, graphs.sizes.double().numpy())
    settings = Settings(hidden=16, layers=2, epochs=60, lr=5e-3, dropout=0.0, batch_size=16)
    record = ask(sizes, settings, "both", folds=3, repeats=1, folder=tmp_path / "r").run(CPU)
    y = sizes.y.numpy()
    for figure in record.result["figures"].values():
        assert figure["mean"] < np.abs(y - y.mean()).mean()
    assert record.question["metric"] == "mean absolute error"


def test_changed_settings_are_named_and_fresh_begins_anew(graphs, quick, tmp_path):
    ask(graphs, quick, "paper", folds=3, folder=tmp_path / "s").run(CPU)
    other = ask(graphs, dataclasses.replace(quick, lr=1e-3), "paper", folds=3, seed=4, folder=tmp_path / "s")
    with pytest.raises(SettingError, match=r"lr was 0\.005, now 0\.001.*splits.*seed was 0, now 4.*--fresh"):
        other.run(CPU)
    again = other.run(CPU, fresh=True)
    assert again.question["seed"] == 4
    assert again.metrics["seed"].min() == 4000
    _same(again, dataclasses.replace(other, folder=tmp_path / "new").run(CPU))


def test_what_another_question_left_does_not_count(graphs, quick, tmp_path):
    """As when a command was killed while it threw the old study away."""
    ask(graphs, quick, "paper", folds=3, folder=tmp_path / "s").run(CPU)
    (tmp_path / "s" / "study.json").unlink()
    (tmp_path / "s" / "result.json").unlink()
    longer = dataclasses.replace(quick, epochs=8)
    record = ask(graphs, longer, "paper", folds=3, folder=tmp_path / "s").run(CPU)
    assert record.metrics["epoch"].max() == 8


def test_a_second_study_in_the_folder_is_refused(graphs, quick, tmp_path):
    with FileLock(tmp_path / ".lock"), pytest.raises(SettingError, match="another study is running"):
        ask(graphs, quick, "paper", folds=3, folder=tmp_path).run(CPU)


def test_no_fold_learns_of_its_test_graphs_by_the_settings(graphs, quick, tmp_path):
    """Other labels on the test graphs of one fold must not change which settings are tried and chosen for it."""
    points = [dataclasses.replace(quick, lr=lr) for lr in np.geomspace(1e-5, 3e-2, 7).tolist()]
    given = [Fold(test=test) for _, test in stratified_folds(graphs.y.numpy(), 3, 0)]
    turned = graphs.y.numpy().copy()
    turned[given[0].test] = 1 - turned[given[0].test]
    found = []
    for name, y in (("as it is", graphs.y.numpy()), ("turned", turned)):
        store = with_targets(graphs, [str(c) for c in y])
        study = ask(store, points, "fair", given=given, repeats=1, halving=True, folder=tmp_path / name)
        found.append(study.run(CPU))
    for role in ("rung1", "select", "fair"):
        rows = [(r.metrics["role"] == role) & (r.metrics["fold"] == 0) for r in found]
        tried = [np.unique(r.metrics["setting"][chosen]).tolist() for r, chosen in zip(found, rows)]
        assert tried[0] == tried[1]
    # It bites: the other folds do train on these graphs.
    other = [r.curves("train_loss", role="rung1", fold=1) for r in found]
    assert not np.allclose(*other)


def test_weights_are_kept_on_request(graphs, quick, tmp_path):
    from safetensors.torch import load_file

    study = ask(graphs, quick, "paper", folds=3, folder=tmp_path / "s", weights=True)
    study.run(CPU)
    weights = load_file(tmp_path / "s" / "jobs" / "paper-0-0" / "weights.safetensors")
    model = quick.build(Features.of(graphs), 2, "classification")
    ask(graphs, quick, "paper", folds=3, folder=tmp_path / "t").run(CPU)
    dataclasses.replace(study, folder=tmp_path / "t").run(CPU)
    assert (tmp_path / "t" / "jobs" / "paper-0-0" / "weights.safetensors").is_file(), "asked for afterwards"
    for i in range(3):
        model.load_state_dict({n.removeprefix(f"{i}."): t for n, t in weights.items() if n.startswith(f"{i}.")})


def test_a_full_disk_leaves_what_was_recorded(graphs, quick, tmp_path, monkeypatch):
    cut = ask(graphs, quick, "paper", folds=3, jobs=3, folder=tmp_path / "s")
    import pyarrow.parquet as pq

    real, calls = pq.write_table, []

    def full(table, path):
        calls.append(path)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        real(table, path)

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(SettingError, match="No space left"):
        cut.run(CPU)
    record = read_record(tmp_path / "s")
    assert len(record.jobs) == 1
    assert record.curves("test_metric").shape == (1, quick.epochs)
    monkeypatch.setattr(pq, "write_table", real)
    assert cut.run(CPU).result is not None


def test_bad_questions(graphs, quick, tmp_path):
    two = [quick, dataclasses.replace(quick, lr=1e-3)]
    for words, options in (
        ("never be chosen on", {"settings": two, "protocol": "paper"}),
        ("unknown protocol", {"settings": quick, "protocol": "best"}),
        ("runs", {"settings": quick, "runs": 0}),
        ("repeats", {"settings": quick, "repeats": 0}),
        ("patience", {"settings": quick, "patience": 0}),
        ("no settings", {"settings": []}),
        ("folds", {"settings": quick, "folds": 30}),
        ("ratios", {"settings": quick, "protocol": "holdout", "ratios": (0.5, 0.5)}),
    ):
        with pytest.raises(SettingError, match=words):
            ask(graphs, **options)
    rare = with_targets(graphs, ["a"] * 24 + ["b"] * 20 + ["c"] * 4)
    with pytest.raises(SettingError, match="validation part without every class: class c"):
        ask(rare, quick, "fair", folds=2, validation=0.1, folder=tmp_path / "s").run(CPU)


def test_several_processes_can_be_stopped_and_go_on(both, graphs, quick, tmp_path):
    slow = dataclasses.replace(quick, epochs=2000)
    study = ask(graphs, slow, "both", folds=3, jobs=2, folder=tmp_path / "s")
    with pytest.raises(StudyInterrupted):
        study.run(Local(["cpu", "cpu"]), lambda *progress: any((tmp_path / "s").rglob("jobs/*")))
    assert read_record(tmp_path / "s").result is None


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("study.json", "[]", "study.json is damaged"),
        ("study.json", "{", "cannot be read"),
        ("jobs/paper-0-0/done.json", "{}", "done.json is damaged; delete the folder"),
        ("jobs/paper-0-0/metrics.parquet", "PAR1", "only that job is trained anew"),
    ],
)
def test_damaged_files(graphs, quick, tmp_path, file, content, words):
    ask(graphs, quick, "paper", folds=3, folder=tmp_path).run(CPU)
    (tmp_path / file).write_text(content)
    with pytest.raises(DataError, match=words):
        read_record(tmp_path)


def test_what_can_be_made_again_is(graphs, quick, tmp_path):
    study = ask(graphs, quick, "paper", folds=3, folder=tmp_path)
    before = study.run(CPU)
    (tmp_path / "splits.json").unlink()
    shutil.rmtree(tmp_path / "jobs")
    (tmp_path / "result.json").unlink()
    half = tmp_path / "jobs" / "paper-0-0" / ".metrics.parquet.abc.parquet"
    half.parent.mkdir(parents=True)
    half.write_text("{")
    _same(study.run(CPU), before)
    assert not half.exists()


@pytest.mark.parametrize("fresh", [False, True])
def test_what_is_not_the_studys_own_is_left_alone(graphs, quick, tmp_path, fresh):
    """A folder with other things in it, such as a user's project."""
    mine = [tmp_path / ".config.yaml", tmp_path / "jobs" / "notes.txt", tmp_path / "deep" / ".hidden.txt"]
    for file in mine:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    ask(graphs, quick, "paper", folds=3, folder=tmp_path).run(CPU, fresh=fresh)
    assert [file.read_text() for file in mine] == ["mine"] * 3
