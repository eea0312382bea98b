import http.server
import shutil
import threading
from pathlib import Path

import pytest

from softmask.data import catalog
from softmask.data.cache import raw_folder
from softmask.data.catalog import find, open_data
from softmask.data.download import get
from softmask.data.files import save_store
from softmask.data.tu import read_tu
from softmask.errors import DataError


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.delenv("SOFTMASK_DATA", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def zipped(folder: Path) -> Path:
    return Path(shutil.make_archive(str(folder), "zip", folder))


def test_every_form(write_tu, tmp_path):
    folder = write_tu()
    wanted = read_tu(folder)
    save_store(wanted, tmp_path / "packed.safetensors")
    for data in (folder, str(folder), zipped(folder), tmp_path / "packed.safetensors"):
        assert open_data(data).content_hash() == wanted.content_hash()


@pytest.mark.parametrize("form", ["folder", "zip", "store"])
@pytest.mark.parametrize("place", ["data_dir", "environment", "downloads"])
def test_a_name_is_found(write_tu, tmp_path, monkeypatch, form, place):
    home = raw_folder() if place == "downloads" else tmp_path / "home"
    folder = write_tu("SET", folder=home / "SET")
    wanted = read_tu(folder).content_hash()
    if form == "zip":
        zipped(folder)
    elif form == "store":
        save_store(read_tu(folder), home / "SET.safetensors")
    if form != "folder":
        shutil.rmtree(folder)
    if place == "environment":
        monkeypatch.setenv("SOFTMASK_DATA", str(home))
    assert open_data("SET", home if place == "data_dir" else None).content_hash() == wanted


def test_data_dir_goes_first(write_tu, tmp_path, monkeypatch):
    one = write_tu("SET", folder=tmp_path / "one" / "SET")
    two = write_tu("SET", folder=tmp_path / "two" / "SET")
    monkeypatch.setenv("SOFTMASK_DATA", str(tmp_path / "two"))
    assert find("SET", tmp_path / "one") == one
    assert find("SET") == two


def test_not_found_says_what_to_do():
    with pytest.raises(DataError) as caught:
        open_data("MUTAG")
    for hint in ("--data-dir", "SOFTMASK_DATA", "softmask data get MUTAG"):
        assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("typo", "name"),
    [("MUTAGG", "MUTAG"), ("reddit-binary", "REDDIT-BINARY"), ("heirarchy", "hierarchy"), ("QM9", "qm9")],
)
def test_typo(typo, name):
    with pytest.raises(DataError, match=rf"Did you mean {name}\? "):
        open_data(typo)


def test_paths_that_do_not_exist(tmp_path):
    for data in ("sub/MUTAG", "MUTAG.zip", tmp_path / "x.safetensors"):
        with pytest.raises(DataError, match="there is no such file or folder"):
            open_data(data)
    with pytest.raises(DataError, match=r"--data-dir .* no such folder"):
        open_data("MUTAG", tmp_path / "nowhere")
    for data in ("", "a\0b"):
        with pytest.raises(DataError, match="empty or holds a zero byte"):
            open_data(data)


def test_synthetic_names():
    store = open_data("motif:graphs=6,seed=3")
    assert store.num_graphs == 6
    assert store.info["seed"] == 3
    assert open_data("hierarchy:graphs=4").num_graphs == 4
    for bad in ("motif:size=3", "motif:graphs=x", "motif:graphs", "motif:graphs=-1", "motif:graphs=²"):
        with pytest.raises(DataError, match="the form is motif:graphs=500,seed=1"):
            open_data(bad)


def test_catalog_counts_are_whole():
    assert len(catalog.TU_SETS) == 10
    assert sum(c.graphs for c in catalog.TU_SETS.values()) == 32_439


@pytest.fixture
def server(tmp_path, monkeypatch, write_tu):
    """A web server with one good and one bad archive, in place of the collection's."""
    home = tmp_path / "www"
    home.mkdir()
    shutil.move(zipped(write_tu()), home / "TOY.zip")
    (home / "BAD.zip").write_text("<html>sorry</html>")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(home))

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{httpd.server_address[1]}"
        monkeypatch.setattr("torch_geometric.datasets.TUDataset.url", url)
        yield home
        httpd.shutdown()
        thread.join()


def test_download(server):
    seen = []
    path = get("TOY", progress=lambda done, total: seen.append((done, total)))
    assert path == raw_folder() / "TOY.zip"
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
    assert open_data("TOY").num_graphs == 2
    (server / "TOY.zip").unlink()
    assert get("TOY") == path
    with pytest.raises(DataError, match="no such set in the collection"):
        get("TOY", again=True)
    assert [f.name for f in raw_folder().iterdir()] == ["TOY.zip"]


def test_a_bad_download_is_not_kept(server):
    with pytest.raises(DataError, match=r"BAD.zip: not a zip file"):
        get("BAD")
    assert list(raw_folder().iterdir()) == []


def test_no_network(monkeypatch):
    monkeypatch.setattr("torch_geometric.datasets.TUDataset.url", "http://127.0.0.1:9")
    with pytest.raises(DataError) as caught:
        get("MUTAG")
    for hint in ("cannot be reached", "--data-dir", "SOFTMASK_DATA"):
        assert hint in str(caught.value)
    assert list(raw_folder().iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "motif", "qm9-sample"])
def test_names_that_cannot_be_downloaded(name):
    with pytest.raises(DataError):
        get(name)
