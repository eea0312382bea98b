"""The ten sets of the paper: all have the counts of the catalog, the small ones equal PyG's."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch_geometric.io import read_tu_data

from softmask.data.catalog import TU_SETS
from softmask.data.features import Features
from softmask.data.raw import RawFiles
from softmask.data.statistics import counts
from softmask.data.tu import read_tu

pytestmark = pytest.mark.real

SMALL = ["MUTAG", "PROTEINS", "ENZYMES", "NCI1", "IMDB-BINARY", "IMDB-MULTI"]


@pytest.mark.parametrize("name", TU_SETS)
def test_counts(real_set, name):
    store = read_tu(real_set(name))
    assert counts(store) == TU_SETS[name]
    assert not store.directed
    kind = "labels" if TU_SETS[name].node_labels else "scaled-degree" if name.startswith("REDDIT") else "degree"
    assert Features.of(store).kind == kind


def as_folder(path: Path, tmp_path: Path) -> tuple[Path, str]:
    """The raw files as a folder, for PyG, which reads no zip files."""
    with RawFiles(path) as raw:
        for kind in ("A", "graph_indicator", "graph_labels", "node_labels", "node_attributes", "edge_labels"):
            if kind in raw:
                with raw.open(kind) as stream:
                    (tmp_path / f"{raw.name}_{kind}.txt").write_bytes(stream.read())
        return tmp_path, raw.name


@pytest.mark.parametrize("name", SMALL)
def test_same_as_pyg(real_set, name, tmp_path):
    path = real_set(name)
    store = read_tu(path)
    folder, prefix = as_folder(path, tmp_path)
    data, slices, sizes = read_tu_data(str(folder), prefix)
    nodes = slices["x"].diff() if "x" in slices else torch.tensor(data._num_nodes)
    assert torch.equal(store.sizes, nodes)
    assert torch.equal(store.y, data.y)
    # PyG: attributes first, then one-hot labels counted from the smallest.
    attributes = sizes["num_node_attributes"]
    if attributes:
        assert torch.equal(store.node_attr, data.x[:, :attributes])
    if sizes["num_node_labels"]:
        labels = store.node_label.squeeze(1) - store.node_label.min()
        assert torch.equal(labels.long(), data.x[:, attributes:].argmax(dim=1))
    edge_slices = slices["edge_index"].tolist()
    for g in range(store.num_graphs):
        mine = store[g]
        theirs = data.edge_index[:, edge_slices[g] : edge_slices[g + 1]]
        rows = [theirs[0].tolist(), theirs[1].tolist()]
        own = mine.edge_index.tolist()
        if sizes["num_edge_labels"]:
            rows.append(data.edge_attr[edge_slices[g] : edge_slices[g + 1]].argmax(dim=1).tolist())
            own.append((mine.edge_attr.squeeze(1) - store.edge_label.min()).tolist())
        assert Counter(zip(*own)) == Counter(zip(*rows))
