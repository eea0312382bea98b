"""Names, entries, and models of one's own."""

import dataclasses
import functools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from baselines.nets import Small, Wide

from softmask.baselines import BASELINES, Inputs, baseline_settings, find_model, register_model
from softmask.baselines.entry import IN_SPACE
from softmask.baselines.own import OWN, is_reference, own_code, own_model
from softmask.baselines.registry import check_model, title_of, uses_of, way_of
from softmask.baselines.shallow import SHALLOW
from softmask.data.convert import with_targets
from softmask.data.synthetic import motif
from softmask.errors import SettingError
from softmask.paper.published import OURS, published
from softmask.study import Settings, ask

STORE = motif(num_graphs=24, seed=0)
NETS = Path(__file__).with_name("nets.py")


@pytest.fixture(autouse=True)
def _nothing_registered():
    yield
    OWN.clear()


def test_gat_wants_a_size_that_its_heads_can_share():
    with pytest.raises(SettingError, match="hidden must be a multiple of 4 for gat, whose 4 heads share it, got 7"):
        baseline_settings("gat", hidden=7)
    assert baseline_settings("gat", hidden=8).hidden == 8
    assert baseline_settings("gcn", hidden=7).hidden == 7


def test_every_entry_is_whole():
    rows = set(published()["table1"]["accuracy"]) - set(OURS.values())
    fields = {f.name for f in dataclasses.fields(Settings)}
    for name, entry in BASELINES.items():
        assert entry.name == name
        assert entry.row is None or entry.row in rows
        assert entry.about
        assert entry.reference
        assert set(entry.uses) <= fields
        assert set(entry.defaults) <= set(entry.uses) | {"epochs"}
        assert baseline_settings(name).model == name
        assert (entry.source is None) == (entry.way == "once")
    stands = [b.row for b in BASELINES.values() if b.row]
    assert len(stands) == len(set(stands)), "two systems for one row"


def test_what_trains_once_is_what_the_kernels_offer():
    once = {name: b for name, b in BASELINES.items() if b.way == "once"}
    assert set(once) == set(SHALLOW)
    for name, entry in once.items():
        assert ("node labels" in entry.needs) == SHALLOW[name].needs_labels


@pytest.mark.parametrize("name", [b.name for b in BASELINES.values() if b.way != "once"])
def test_every_network_is_built_by_its_settings(name):
    inputs = Inputs(6, 3, "classification", np.array([12, 30, 7]), edge_channels=2)
    model = BASELINES[name].build(inputs, baseline_settings(name, layers=2))
    edges = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    more = {"edge_attr": torch.ones(6, 2)} if name == "ecc" else {}
    more |= {"pos": torch.randn(5, 3)} if IN_SPACE in BASELINES[name].needs else {}
    x = torch.randn(5, 6)
    out = model.eval()(x, edges, torch.tensor([0, 0, 0, 1, 1]), batch_size=2, **more)
    assert out.shape == (2, 3)
    assert torch.isfinite(out).all()


def test_names():
    with pytest.raises(SettingError, match=r"nets\.py is a file; name the class in it too, as nets\.py:MyNet"):
        check_model("nets.py")
    with pytest.raises(SettingError, match="unknown model 'gni'; did you mean gin"):
        Settings(model="gni")
    with pytest.raises(SettingError, match="known are soft-mask, gin"):
        Settings(model="transformer-of-everything")
    with pytest.raises(SettingError, match="given by its name"):
        Settings(model=3)
    assert way_of("soft-mask") == way_of("gin") == "fleet"
    assert title_of({"variant": "smg-jk"}) == "SMG-JK"
    assert title_of({"variant": "smg-jk", "model": "wl"}) == "WL"
    assert title_of({"model": "a/nets.py:MyNet"}) == "MyNet"
    assert uses_of("soft-mask") is None
    assert uses_of("wl") == ("model",)


@pytest.mark.parametrize("name", ["soft-mask", *BASELINES])
def test_capitals_do_not_matter_in_names_that_come_along(name):
    for written in (name.upper(), name.title()):
        assert baseline_settings(written) == baseline_settings(name)
        assert Settings(model=written).model == name
        with pytest.raises(SettingError, match="cannot be called"):
            register_model(written, Small)


def test_capitals_matter_in_names_of_ones_own():
    register_model("Mine", Small)
    assert baseline_settings("Mine").model == "Mine"
    with pytest.raises(SettingError, match="unknown model 'mine'"):
        baseline_settings("mine")
    path = f"{NETS}:Small"
    assert check_model(path) == path
    assert check_model("Package.Module:GIN") == "Package.Module:GIN"


def test_graphs_that_lack_what_a_baseline_needs():
    bare = dataclasses.replace(STORE, node_label=None, edge_label=None, edge_attr=None)
    with pytest.raises(SettingError, match="PK needs node labels, and motif"):
        ask(bare, baseline_settings("pk"))
    with pytest.raises(SettingError, match="ECC needs edge labels or attributes"):
        ask(bare, baseline_settings("ecc"))


def test_old_questions_are_still_the_same():
    """The hash of a study from before there were baselines, as it was then."""
    question = ask(STORE, Settings(), "paper", folds=3).question
    asked = question.to_json()
    assert "model" not in asked["settings"][0]
    assert "code" not in asked
    other = ask(STORE, baseline_settings("gin"), "paper", folds=3).question
    assert other.to_json()["settings"][0]["model"] == "gin"
    assert other.hash() != question.hash()


def test_soft_mask_models_alone_can_be_built_to_keep():
    from softmask.data import Features

    with pytest.raises(SettingError, match="only soft-mask models can be kept"):
        baseline_settings("gin").build(Features.of(STORE), 2, "classification")
    with pytest.raises(SettingError, match="soft-mask is no baseline"):
        find_model("soft-mask")


def test_a_registered_model():
    register_model("mine", Small)
    assert isinstance(find_model("mine").build(Inputs(3, 2, "classification", np.ones(1)), Settings()), Small)
    for name in ("gin", "soft-mask", "", "a:b"):
        with pytest.raises(SettingError, match="cannot be called"):
            register_model(name, Small)
    with pytest.raises(SettingError, match="must be a class or a function"):
        register_model("other", 3)


def test_a_model_in_a_file_or_a_module():
    assert is_reference("nets.py:Small")
    assert not is_reference("nets.py")
    assert not is_reference("nets.py:2")
    assert own_model(f"{NETS}:Small").__name__ == "Small"
    assert own_model("torch.nn:Linear") is torch.nn.Linear
    for name, said in (
        (f"{NETS}:Smal", "no class or function Smal"),
        (f"{NETS}:nothing", "no class or function nothing"),
        ("nowhere.py:Net", "there is no file nowhere.py"),
        ("nowhere.to.be.found:Net", "cannot be imported"),
        (f"{NETS}:ThreeSizes", r"must take \(in_channels, out_channels\) alone: missing"),
    ):
        with pytest.raises(SettingError, match=said):
            own_model(name)
    assert Settings(model="nowhere.py:Net").model == "nowhere.py:Net", "nothing is run to look at settings"


def test_a_file_that_does_not_run(tmp_path):
    (tmp_path / "bad.py").write_text("1 / 0")
    with pytest.raises(SettingError, match="cannot be run: ZeroDivisionError"):
        own_model(f"{tmp_path / 'bad.py'}:Net")


def test_a_changed_model_is_another_question(tmp_path):
    file = tmp_path / "net.py"
    file.write_text(NETS.read_text())
    settings = baseline_settings(f"{file}:Small", epochs=1)
    first = ask(STORE, settings, folds=3).question
    assert first.hash() == ask(STORE, settings, folds=3).question.hash()
    file.write_text(NETS.read_text().replace("8)", "9)"))
    assert ask(STORE, settings, folds=3).question.hash() != first.hash()
    with pytest.raises(SettingError, match="cannot be read"):
        own_code("nowhere.py:Net")


def test_what_a_model_is_made_of_belongs_to_its_code(tmp_path, monkeypatch):
    """A layer beside the class, a function that builds it, an argument that is bound: all change the question."""
    monkeypatch.syspath_prepend(tmp_path)

    def code(layer, model):
        file = tmp_path / f"own_{layer}.py"
        file.write_text(f"{NETS.read_text()}\nWIDE = {layer}\ndef build(i, o):\n    return Small(i, o)\n")
        return own_code(f"own_{layer}:{model}")

    for model in ("Small", "build"):
        assert code(8, model) != code(9, model)
    register_model("mine", functools.partial(Wide, hidden=8))
    first = own_code("mine")
    register_model("mine", functools.partial(Wide, hidden=9))
    assert own_code("mine") != first


def test_settings_files_name_no_code(tmp_path):
    from softmask.study.grid import read_settings_toml

    (tmp_path / "s.toml").write_text(f'model = "{NETS}:Small"')
    with pytest.raises(SettingError, match="no code is run because a file names it"):
        read_settings_toml(tmp_path / "s.toml")
    (tmp_path / "s.toml").write_text('model = "gin"\nhidden = 16')
    assert read_settings_toml(tmp_path / "s.toml").model == "gin"


def test_listing_them_does_not_load_torch():
    code = "import sys, softmask.baselines, softmask.cli.models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_tasks():
    numbers = with_targets(STORE, STORE.sizes.double().numpy())
    entry = dataclasses.replace(BASELINES["gin"], tasks=("classification",))
    with pytest.raises(SettingError, match="GIN is for classification, and motif"):
        entry.check(numbers)
