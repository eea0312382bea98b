import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch_geometric.data import Data

from softmask import SoftMaskClassifier, SoftMaskRegressor, load_model
from softmask.data.convert import from_data, with_targets
from softmask.data.synthetic import motif
from softmask.errors import ModelFileError, SettingError


@pytest.fixture(scope="module")
def store():
    return motif(num_graphs=20, seed=0)


@pytest.fixture
def path(store, tmp_path):
    path = tmp_path / "model.safetensors"
    SoftMaskClassifier(hidden=4, layers=2, epochs=1).fit(store).save(path)
    return path


def _parts(path):
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["softmask_model"])  # noqa: SIM118


def _write(path, tensors, head):
    save_file(tensors, path, metadata={"softmask_model": json.dumps(head)})


def test_round_trip(store, path):
    model = load_model(path)
    assert model.get_params()["hidden"] == 4
    assert model.trained_.summary["graphs"] == 20
    model.save(path.with_name("again.safetensors"))
    again = load_model(path.with_name("again.safetensors"))
    np.testing.assert_array_equal(model.predict_proba(store), again.predict_proba(store))


def test_the_description_is_plain_json(path):
    _, head = _parts(path)
    assert head["format"] == 1
    assert head["settings"]["variant"] == "smg-jk"
    assert head["features"]["kind"] == "degree"
    assert head["classes"][0] == ["biclique", "house"]


def test_each_damage_has_its_own_message(path, tmp_path):
    tensors, head = _parts(path)
    bad = tmp_path / "bad.safetensors"

    def refuses(words):
        with pytest.raises(ModelFileError, match=words) as caught:
            load_model(bad)
        assert "bad.safetensors" in str(caught.value)

    refuses("there is no model file")
    content = path.read_bytes()
    for cut in (0, 4, 100, len(content) // 2, len(content) - 1):
        bad.write_bytes(content[:cut])
        refuses("truncated")
    save_file({"a": torch.zeros(2)}, bad)
    refuses("not a softmask model")
    _write(bad, tensors, {**head, "format": 2})
    refuses("format 2.*update")
    _write(bad, {**tensors, "head.0.weight": torch.zeros(3, 3)}, head)
    refuses(r"head.0.weight has shape \[3, 3\]")
    _write(bad, {k: v for k, v in tensors.items() if k != "lin_in.bias"}, head)
    refuses("lin_in.bias is missing")
    _write(bad, {**tensors, "extra": torch.zeros(1)}, head)
    refuses("unknown tensor extra")
    for hidden, words in ((8, "shape"), (10**6, "too few or small"), (2**70, "at most")):
        _write(bad, tensors, {**head, "settings": {**head["settings"], "hidden": hidden}})
        refuses(words)
    for key in head:
        if key not in ("softmask", "torch"):
            _write(bad, tensors, {k: v for k, v in head.items() if k != key})
            refuses("cannot be read|damaged")
    for wrong in ({"variant": "gcn"}, {"hidden": "4"}, {"surprise": 1}):
        _write(bad, tensors, {**head, "settings": {**head["settings"], **wrong}})
        refuses("damaged")
    for wrong in (
        {"format": 0},
        {"format": True},
        {"classes": [["biclique", "house"], "garbage"]},
        {"classes": [["biclique", "house"], "<i8"]},
        {"classes": [["house", "house"], "<U5"]},
        {"classes": [["ax", "bx"], "<U1"]},
        {"classes": [[1.5, 2.5], "<i8"]},
        {"classes": [[[1], [2]], "<i8"]},
        {"features": {**head["features"], "max_degree": -1}},
        {"classes": [[0, 1], "i4,f8"]},
        {"summary": {**head["summary"], "seed": "abc"}},
        {"features": {**head["features"], "values": [[2, 1]]}},
        {"task": "regression", "classes": None},
        {"mean": [float("inf")]},
    ):
        _write(bad, tensors, {**head, **wrong})
        refuses("cannot be read|damaged")
    _write(bad, tensors, {**head, "settings": {**head["settings"], "layers": 20000}})
    refuses("too few")
    nan = tensors["lin_in.bias"].clone()
    nan[0] = torch.nan
    for wrong in (nan, nan.nan_to_num().long(), nan.nan_to_num().half()):
        _write(bad, {**tensors, "lin_in.bias": wrong}, head)
        refuses("finite float32")
    save_file(tensors, bad, metadata={"softmask_model": "[" * 100000})
    refuses("cannot be read")
    save_file(tensors, bad, metadata={"softmask_model": "{"})
    refuses("cannot be read")


def test_files_from_before_there_were_edges_and_models_to_compare_with(store, path):
    """Fields that came later have their defaults; nothing else of the file is different."""
    tensors, head = _parts(path)
    assert "edge_features" not in head
    old = {name: value for name, value in head["settings"].items() if name not in ("edges", "model")}
    _write(path.with_name("old.safetensors"), tensors, {**head, "settings": old})
    model, before = load_model(path), load_model(path.with_name("old.safetensors"))
    assert before.trained_.settings == model.trained_.settings
    np.testing.assert_array_equal(model.predict_proba(store), before.predict_proba(store))


def test_edge_features_and_names_are_kept_and_checked(tmp_path):
    path, bad = tmp_path / "model.safetensors", tmp_path / "bad.safetensors"
    store = _bonds()
    model = SoftMaskRegressor(hidden=4, layers=2, epochs=1, edges=True).fit(store)
    model.save(path)
    loaded = load_model(path)
    assert loaded.trained_.edge_features == model.trained_.edge_features
    assert loaded.trained_.targets == ["length"]
    np.testing.assert_array_equal(loaded.predict(store), model.predict(store))
    tensors, head = _parts(path)
    values = head["edge_features"]["values"][0]
    for wrong in (
        {"edge_features": None},
        {"edge_features": {}},
        {"edge_features": {**head["edge_features"], "values": [values[:-1]]}},
        {"edge_features": {**head["edge_features"], "values": [list(range(10**6))]}},
        {"edge_features": {**head["edge_features"], "values": "__import__('os')"}},
        {"settings": {**head["settings"], "edges": False}},
        {"settings": {**head["settings"], "norm": True}},
        {"settings": {**head["settings"], "model": "os:getcwd"}},
        {"targets": ["a", "b"]},
        {"targets": "length"},
        {"targets": [1]},
    ):
        _write(bad, tensors, {**head, **wrong})
        with pytest.raises(ModelFileError, match=r"bad.safetensors"):
            load_model(bad)


def _bonds():
    """Paths whose edges alternate between two kinds, to be told by their number of nodes."""
    graphs = []
    for n in range(2, 10):
        one_way = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
        kind = (torch.arange(n - 1) % 2).reshape(-1, 1)
        graphs.append(
            Data(edge_index=torch.cat([one_way, one_way.flip(0)], 1), edge_attr=torch.cat([kind, kind]), num_nodes=n)
        )
    store = with_targets(from_data(graphs), np.arange(2.0, 10.0))
    store.info["targets"] = ["length"]
    return store


def test_a_failed_save_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    before = path.read_bytes()
    model = load_model(path)

    def full_disk(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("softmask.model_file.save_file", full_disk)
    with pytest.raises(SettingError, match="No space left"):
        model.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_files_are_as_readable_as_any_new_file(path, tmp_path):
    (tmp_path / "plain").write_text("")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_that_does_not_exist(path):
    with pytest.raises(SettingError, match="cannot write"):
        load_model(path).save(path.parent / "nowhere" / "m.safetensors")
