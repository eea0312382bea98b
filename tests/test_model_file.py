import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from softmask import SoftMaskClassifier, load_model
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
