"""Fleets of models that take edge features, on real molecules."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Batch, Data

from softmask.data.catalog import open_data
from softmask.data.synthetic import motif
from softmask.errors import SettingError
from softmask.fleet import Fleet, Replica
from softmask.fleet.edges import StoreEdges
from softmask.nn import SoftMaskGNN


@pytest.fixture(scope="module")
def store():
    return open_data("qm9-sample").select(range(60))


def _edge_x(store):
    kinds = (store.edge_label == torch.tensor([1, 2, 3, 12])).double()
    return torch.cat([kinds, store.edge_attr.double()], dim=1)


def _fleet(store, replicas):
    return Fleet(
        lambda: SoftMaskGNN(11, 6, 2, 1, multi_channel=True, jk=True, dropout=0.0, head="regressor", edge_channels=5),
        *(store, store.node_attr.double(), replicas),
        batch_size=16,
        loss="mse",
        precision="float64",
        edge_x=_edge_x(store),
    )


def test_the_counterpart_of_every_edge(store):
    edges = StoreEdges.of(store, _edge_x(store))
    source, target = store.edges()
    there = store.row_ptr[source] + edges.back
    assert torch.equal(source[there], target)
    assert torch.equal(target[there], source)
    assert torch.equal(edges.x[there], edges.x)


def test_a_fleet_computes_what_the_model_does_on_pyg_batches(store):
    ids = np.arange(60)
    fleet = _fleet(store, [Replica(s, ids, {"all": ids}, lr=1e-15, target=t) for s, t in ((0, 2), (1, 7))])
    history = fleet.train(1)
    edge_x = _edge_x(store)
    source, target = store.edges()
    datas = []
    for g in range(60):
        first, last = int(store.node_ptr[g]), int(store.node_ptr[g + 1])
        mine = (target >= first) & (target < last)
        index = torch.stack([source[mine], target[mine]]) - first
        datas.append(Data(x=store.node_attr[first:last].double(), edge_index=index, edge_attr=edge_x[mine]))
    batch = Batch.from_data_list(datas)
    for r, target in enumerate((2, 7)):
        fleet.model.load_state_dict(history.weights[r])
        with torch.no_grad():
            out = fleet.model.eval()(batch.x, batch.edge_index, batch.batch, edge_attr=batch.edge_attr)
        y = store.y[:, target : target + 1]
        scaled = (y - y.mean()) / (y - y.mean()).square().mean().sqrt()
        assert history.loss["all"][r, -1] == pytest.approx(F.mse_loss(out, scaled).item(), abs=1e-10)


def test_a_replica_does_not_depend_on_its_company_and_learns(store):
    replicas = [Replica(s, np.arange(40 + s), {"test": np.arange(45, 60)}, lr=3e-3, target=0) for s in range(3)]
    together = _fleet(store, replicas).train(15)
    alone = _fleet(store, replicas[1:2]).train(15)
    np.testing.assert_allclose(together.train_loss[1], alone.train_loss[0], atol=1e-9)
    assert (together.train_loss[:, -1] < together.train_loss[:, 0]).all()


def test_bad_input(store):
    with pytest.raises(SettingError, match="rows of features"):
        StoreEdges.of(store, torch.zeros(3, 5))
    model = SoftMaskGNN(11, 6, 2, 1, edge_channels=5)
    with pytest.raises(ValueError, match="edge_attr"):
        model(torch.zeros(2, 11), torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(ValueError, match="no norm"):
        SoftMaskGNN(11, 6, 2, 1, edge_channels=5, norm=True)
    plain = motif(num_graphs=6, seed=0)
    with pytest.raises(SettingError, match="rows of features"):
        Fleet(
            lambda: SoftMaskGNN(3, 6, 2, 2, edge_channels=5),
            *(plain, torch.zeros(plain.num_nodes, 3), [Replica(0, [0, 1])]),
            edge_x=torch.zeros(1, 5),
        )
