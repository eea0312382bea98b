"""Committees in a fleet, in studies, in models and their files, against their members one by one."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch_geometric.explain import Explainer

from softmask import SoftMaskClassifier, SoftMaskRegressor, load_model
from softmask.data import Features
from softmask.data.convert import with_targets
from softmask.data.synthetic import motif
from softmask.errors import ModelFileError, SettingError
from softmask.explain import SoftMaskExplainer
from softmask.fit_large import fit_large
from softmask.fleet import Fleet, Replica, train_in_waves
from softmask.fleet.committee import members_of
from softmask.fleet.predict import predict
from softmask.fleet.ranks import joined_ranks
from softmask.fleet.snapshot import Snapshot
from softmask.nn import SoftMaskGNN
from softmask.study import Local, ask
from softmask.study.cross_validation import cross_validate
from softmask.study.grid import by_shape
from softmask.study.settings import Settings

TEST = np.arange(30, 40)


@pytest.fixture(scope="module")
def store():
    return motif(num_graphs=40, seed=1)


def _replica(seed=3, **options):
    return Replica(seed, np.arange(30), {"test": TEST}, lr=5e-3, **options)


def _model(store, outputs=2):
    return SoftMaskGNN(Features.of(store).channels, 8, 2, outputs, jk=True, dropout=0.3)


def _fleet(store, replicas, committee, **options):
    outputs = options.pop("outputs", 2)
    features = Features.of(store)
    options = {"precision": "float64", "batch_size": 8, "committee": committee, **options}
    return Fleet(lambda: _model(store, outputs), store, features(store), replicas, **options)


def _said(store, weights, outputs=2):
    """What each of some networks says of the test graphs, one by one."""
    part, features = store.select(TEST), Features.of(store)
    outs = []
    for state in weights:
        model = _model(store, outputs).double()
        model.load_state_dict(state)
        outs.append(predict(model, part, features(part))[0])
    return torch.stack(outs)


def _difference(a, b):
    return max((a[name] - b[name]).abs().max().item() for name in a)


# Levels, where every network computes alone; quotients and plain graphs, in crews that cut committees.
@pytest.mark.parametrize(("merge", "cache"), [(None, 2**30), (False, 2**30), (False, 1), (True, 2**30)])
@pytest.mark.parametrize("average", [0.0, 2.0])
def test_members_train_by_themselves_and_answer_together(store, monkeypatch, merge, cache, average):
    monkeypatch.setattr("softmask.fleet.fleet._TOGETHER", cache)
    replicas = [m for seed in (3, 4) for m in members_of(_replica(seed, average=average), 3)]
    apart, together = _fleet(store, replicas, 1, merge=merge), _fleet(store, replicas, 3, merge=merge)
    a, b = apart.train(4), together.train(4)
    for mine, theirs in zip(a.weights, b.weights, strict=True):
        assert _difference(mine, theirs) < 1e-10
    np.testing.assert_allclose(a.train_loss, b.train_loss, rtol=1e-10)
    y = store.y[TEST]
    for first in (0, 3):
        probabilities = torch.softmax(_said(store, b.weights[first : first + 3]), dim=2).mean(dim=0)
        loss = F.nll_loss(probabilities.log(), y).item()
        right = (probabilities.argmax(dim=1) == y).double().mean().item()
        np.testing.assert_allclose(b.loss["test"][first : first + 3, -1], loss, rtol=1e-9)
        np.testing.assert_allclose(b.metric["test"][first : first + 3, -1], right)
    assert np.abs(a.loss["test"] - b.loss["test"]).max() > 1e-4


def test_numbers_are_averaged_in_their_unit(store):
    sizes = store.sizes.double().numpy()
    store = with_targets(store, np.stack([sizes, 100 + sizes**2], axis=1))
    replicas = members_of(_replica(target=1), 2)
    fleet = _fleet(store, replicas, 2, loss="mse", outputs=1)
    history = fleet.train(5)
    said = _said(store, history.weights, outputs=1)[:, :, 0] * fleet.std[:, :1] + fleet.mean[:, :1]
    error = (said.mean(dim=0) - store.y[TEST, 1]).abs().mean().item()
    np.testing.assert_allclose(history.metric["test"][:, -1], error, rtol=1e-9)


def test_the_best_epoch_is_that_of_the_committee(store):
    replicas = members_of(_replica(), 3)
    kept = _fleet(store, replicas, 3).train(8, keep="test")
    assert len(set(kept.epoch.tolist())) == 1
    best = int(kept.epoch[0])
    assert kept.metric["test"][0, best - 1] == kept.metric["test"][0].max()
    for mine, theirs in zip(kept.weights, _fleet(store, replicas, 3).train(best).weights):
        assert _difference(mine, theirs) < 1e-10


def test_what_trains_beside_a_committee_does_not_matter(store):
    one, other = members_of(_replica(3), 2), members_of(_replica(9), 2)
    both, alone = _fleet(store, one + other, 2).train(3), _fleet(store, other, 2).train(3)
    np.testing.assert_allclose(both.loss["test"][2:], alone.loss["test"], rtol=1e-10)


def test_members_differ_and_the_first_is_the_replica():
    members = members_of(_replica(7), 4)
    assert members[0].seed == 7
    assert len({m.seed for m in members}) == 4
    assert [m.seed for m in members] == [m.seed for m in members_of(_replica(7), 4)]
    assert [m.seed for m in members_of(_replica(7), 2)] == [m.seed for m in members[:2]]


def test_a_snapshot_of_networks_is_none_of_a_committee(store, tmp_path):
    replicas, stop = members_of(_replica(), 2), lambda epoch, _: epoch == 2
    _fleet(store, replicas, 2).train(6, on_epoch=stop, snapshot=Snapshot(tmp_path / "s", every=0))
    again = _fleet(store, replicas, 2).train(6, snapshot=Snapshot(tmp_path / "s"))
    np.testing.assert_allclose(again.loss["test"], _fleet(store, replicas, 2).train(6).loss["test"], rtol=1e-12)
    seen = []
    _fleet(store, replicas, 2).train(6, on_epoch=stop, snapshot=Snapshot(tmp_path / "s", every=0))
    _fleet(store, replicas, 1).train(6, on_epoch=lambda e, _: seen.append(e), snapshot=Snapshot(tmp_path / "s"))
    assert seen[0] == 1


def test_waves_hold_whole_committees(store, monkeypatch):
    features, replicas = Features.of(store), [m for s in range(3) for m in members_of(_replica(s), 2)]
    waves = []
    train = Fleet.train
    monkeypatch.setattr(Fleet, "train", lambda self, *a: waves.append(len(self.replicas)) or train(self, *a))

    def run(needs, memory, committee=2):
        monkeypatch.setattr("softmask.fleet.waves.memory_needs", lambda *_: needs)
        waves.clear()
        asked = (lambda: _model(store), store, features(store), replicas, 2)
        return train_in_waves(*asked, memory=memory, committee=committee, precision="float64")[0]

    whole = run((0, 1), 1000)
    assert waves == [6]
    with pytest.warns(UserWarning, match="4 at a time"):
        parts = run((0, 100), 600)  # of which 540 may be used: five models, or two committees
    assert waves == [4, 2]
    np.testing.assert_allclose(parts.loss["test"], whole.loss["test"], rtol=1e-10)
    with pytest.raises(SettingError, match="one committee of 2 models needs about"):
        run((0, 100), 200)

    def full(self, *args):
        if len(self.replicas) > 2:
            raise torch.OutOfMemoryError("full")
        return train(self, *args)

    monkeypatch.setattr(Fleet, "train", full)
    with pytest.warns(UserWarning, match=r"with [24] models at a time"):
        halved = run((0, 1), 1000)
    np.testing.assert_allclose(halved.loss["test"], whole.loss["test"], rtol=1e-10)
    with pytest.raises(SettingError, match="one committee of 6 models does not fit"):
        run((0, 1), 1000, 6)


def test_committees_that_are_none(store):
    with pytest.raises(SettingError, match="3 replicas are no whole number of committees of 2"):
        _fleet(store, members_of(_replica(), 3), 2)
    with pytest.raises(SettingError, match="whole number"):
        _fleet(store, [_replica()], 0)
    others = {
        "train": Replica(4, np.arange(29), {"test": TEST}),
        "part": Replica(4, np.arange(30), {"validation": TEST}),
        "ids": Replica(4, np.arange(30), {"test": TEST[:-1]}),
        "none": Replica(4, np.arange(30)),
    }
    for other in others.values():
        with pytest.raises(SettingError, match=r"replica 1 \(seed 4\) and replica 0 are of one committee"):
            _fleet(store, [_replica(), other], 2)
    for bad in (0, -1, 1.5, True, "two"):
        with pytest.raises(SettingError, match="committee must be a whole number"):
            Settings(committee=bad)
    with pytest.raises(SettingError, match="committee is for soft-mask models"):
        Settings(model="gin", committee=2)
    with joined_ranks("cpu") as ranks, pytest.raises(SettingError, match="a committee is not for data parallel"):
        fit_large(store, Settings(committee=2), ranks)


def test_studies_ask_the_committee(store, tmp_path):
    settings = Settings(hidden=8, epochs=3, lr=5e-3, committee=2)
    study = ask(store, settings, "both", folds=3, folder=tmp_path / "s", weights=True)
    record = study.run(Local(["cpu"]))
    assert record.result["figures"].keys() == {"paper", "fair"}
    protocol = study.folder / "jobs"
    weights = {job.name: load_file(job / "weights.safetensors") for job in protocol.iterdir()}
    done = sum(len({name.split(".")[0] for name in tensors}) for tensors in weights.values())
    assert done == 3 + 3 * study.question.repeats
    # The first fold of the paper's protocol, whose model is the mean of two networks.
    (tensors,) = weights.values()
    curves = record.curves("test_metric", role="paper", run=0)
    features = Features.of(store)
    test = np.asarray(record.splits[0]["test"][0])
    committee = settings.build_whole(features, 2, "classification")
    committee.load_state_dict({n.removeprefix("0."): t for n, t in tensors.items() if n.startswith("0.")})
    part = store.select(test)
    right = predict(committee, part, features(part))[0].argmax(dim=1) == store.y[test]
    assert right.double().mean().item() == pytest.approx(curves[0, -1])
    assert "committee" not in Settings().asked()
    assert settings.asked()["committee"] == 2
    assert by_shape([Settings(), settings, Settings(hidden=8, epochs=3, lr=1e-3, committee=2)]) == [[0], [1, 2]]


def test_cross_validation_of_committees(store):
    settings = Settings(hidden=8, epochs=2, committee=2)
    seen = []
    found = cross_validate(store, settings, folds=2, on_epoch=lambda epoch, metric: seen.append(len(metric)))
    assert found.curve.shape == (1, 2, 2)
    assert len(found.weights) == 2
    assert seen == [2, 2]
    assert next(iter(found.weights[0])).startswith("members.0.")


@pytest.mark.parametrize("variant", ["smg", "m-smg-jk"])
def test_a_committee_is_fitted_saved_and_explained(store, tmp_path, variant):
    from softmask.explain.faithfulness import predict_kept

    options = {"hidden": 8, "epochs": 3, "lr": 5e-3, "variant": variant, "device": "cpu"}
    clf = SoftMaskClassifier(**options, committee=3).fit(store)
    first = SoftMaskClassifier(**options).fit(store)
    state = clf.trained_.model.members[0].state_dict()
    assert _difference(state, first.trained_.model.state_dict()) < 1e-6  # the first member is the network alone
    each = [torch.softmax(predict(m, store, Features.of(store)(store))[0], 1) for m in clf.trained_.model.members]
    np.testing.assert_allclose(clf.predict_proba(store), torch.stack(each).mean(dim=0), atol=1e-6)
    clf.save(tmp_path / "c.safetensors")
    again = load_model(tmp_path / "c.safetensors", device="cpu")
    assert again.committee == 3
    np.testing.assert_array_equal(again.predict_proba(store), clf.predict_proba(store))
    some = store.select(np.arange(3))
    masks = again.masks(some)[0][0]
    assert masks.shape == (int(some.sizes[0]), 3 if variant == "smg" else 24)
    explained = again.explain(some)[0]
    np.testing.assert_allclose(explained.masks[:, 0], masks.mean(axis=1), atol=1e-6)
    explainer = Explainer(
        *(again.trained_.model, SoftMaskExplainer()),
        explanation_type="model",
        node_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"},
    )
    x = F.one_hot(again.trained_.features(some), again.trained_.features.channels).float()
    found = explainer(x, torch.stack(some.edges()), batch=some.batch).node_mask.squeeze(1).split(some.sizes.tolist())
    np.testing.assert_allclose(explained.importance, found[0], atol=1e-5)
    # With all nodes let in it is the prediction itself: every member has its own masks.
    whole = predict_kept(again, some, [np.ones((1, int(n)), dtype=bool) for n in some.sizes])
    np.testing.assert_allclose(np.concatenate(whole), again.predict_proba(some), atol=1e-6)


def test_numbers_are_fitted_by_committees(store):
    sizes = store.sizes.double().numpy()
    model = SoftMaskRegressor(hidden=8, epochs=3, committee=2, device="cpu").fit(store, sizes)
    x = Features.of(store)(store)
    each = [predict(m, store, x)[0][:, 0] for m in model.trained_.model.members]
    scaled = torch.stack(each).mean(dim=0).numpy()
    np.testing.assert_allclose(model.predict(store), scaled * model.trained_.std[0] + model.trained_.mean[0], rtol=1e-5)


def test_a_file_that_claims_a_committee_it_does_not_hold(store, tmp_path):
    import json

    from safetensors import safe_open
    from safetensors.torch import save_file

    SoftMaskClassifier(hidden=8, epochs=1, device="cpu").fit(store).save(tmp_path / "m.safetensors")
    with safe_open(tmp_path / "m.safetensors", framework="pt") as file:
        head = json.loads(file.metadata()["softmask_model"])
    tensors = load_file(tmp_path / "m.safetensors")
    for layers, claimed, words in (
        *((3, 2, "is missing"), (3, 10**6, "too few or small"), (3, 0, "committee must be")),
        # Neither alone is more than there are tensors; together they would be built at a cost of their product.
        (len(tensors), len(tensors), "too few or small"),
    ):
        head["settings"] |= {"layers": layers, "committee": claimed}
        save_file(tensors, tmp_path / "bad.safetensors", {"softmask_model": json.dumps(head)})
        with pytest.raises(ModelFileError, match=words):
            load_model(tmp_path / "bad.safetensors")
