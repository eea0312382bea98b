"""The usual way: one fold after the other, with PyG's layers, PyG's ``DataLoader`` and ``torch.optim.Adam``.

This is what the fleet is compared with. It does the same mathematics as :class:`softmask.nn.SoftMaskGNN`, written as
one writes it with PyG; tests hold the two together.
"""

import time
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Dropout, Linear, Module, ModuleList, ReLU, Sequential
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import MessagePassing, global_add_pool, global_mean_pool
from torch_geometric.utils import remove_self_loops

from softmask.data.features import Features
from softmask.data.store import GraphStore
from softmask.nn import VARIANTS
from softmask.study.settings import Settings


class UsualMaskNet(MessagePassing):
    """Equation (4): the mask of every node; the bias of the neighbours' map counts once per neighbour."""

    def __init__(self, channels: int, out_channels: int):
        super().__init__(aggr="add")
        self.lin_root = Linear(channels, channels)
        self.lin_rel = Linear(channels, channels)
        self.mlp = Sequential(Linear(2 * channels, channels), ReLU(), Linear(channels, out_channels))

    def forward(self, x: Tensor, edge_index: Tensor, mask: Tensor | None) -> Tensor:
        """"""  # noqa: D419
        edge_index, _ = remove_self_loops(edge_index)
        z = x if mask is None else mask * x
        neighbours = self.propagate(edge_index, x=self.lin_rel(z))
        return torch.sigmoid(self.mlp(torch.cat([self.lin_root(z), neighbours], dim=-1).relu()))


class UsualConv(MessagePassing):
    """Equation (3), and with a mask per channel equation (6)."""

    def __init__(self, channels: int):
        super().__init__(aggr="add")
        self.lin_root = Linear(channels, channels, bias=False)
        self.lin_rel = Linear(channels, channels, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor, mask: Tensor) -> Tensor:
        """"""  # noqa: D419
        edge_index, _ = remove_self_loops(edge_index)
        neighbours = self.propagate(edge_index, x=mask * x)
        return (mask * (self.lin_root(x) + self.lin_rel(neighbours))).relu()


class UsualGNN(Module):
    """The whole network; its parameters have the names of :class:`softmask.nn.SoftMaskGNN`."""

    def __init__(self, in_channels: int, out_channels: int, settings: Settings):
        super().__init__()
        d, variant = settings.hidden, VARIANTS[settings.variant]
        self.jk = variant["jk"]
        self.pool = global_add_pool if settings.readout == "sum" else global_mean_pool
        self.lin_in = Linear(in_channels, d)
        self.masks = ModuleList(UsualMaskNet(d, d if variant["multi_channel"] else 1) for _ in range(settings.layers))
        self.convs = ModuleList(UsualConv(d) for _ in range(settings.layers))
        read = d * settings.layers if self.jk else d
        self.head = Sequential(Linear(read, d), ReLU(), Dropout(settings.dropout), Linear(d, out_channels))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int | None = None) -> Tensor:
        """"""  # noqa: D419
        h, mask, read = self.lin_in(x), None, []
        for mask_net, conv in zip(self.masks, self.convs):
            mask = mask_net(h, edge_index, mask)
            h = conv(h, edge_index, mask)
            if self.jk:
                read.append(self.pool(h, batch, batch_size))
        return self.head(torch.cat(read, dim=-1) if self.jk else self.pool(h, batch, batch_size))


def usual_graphs(store: GraphStore, features: Features) -> list[Data]:
    """The graphs as PyG has them: one-hot vectors (or the scaled degree) as ``x``, the class as ``y``."""
    assert store.y is not None
    x = features(store)
    if not x.is_floating_point():
        x = torch.zeros(store.num_nodes, features.num_tokens).scatter_(1, x.reshape(store.num_nodes, -1), 1.0)
    source, target = store.edges()
    node_ptr = store.node_ptr.tolist()
    edge_ptr = store.row_ptr[store.node_ptr].tolist()
    edges = torch.stack([source, target])
    return [
        Data(
            x=x[node_ptr[g] : node_ptr[g + 1]],
            edge_index=edges[:, edge_ptr[g] : edge_ptr[g + 1]] - node_ptr[g],
            y=store.y[g : g + 1],
        )
        for g in range(store.num_graphs)
    ]


class UsualFold:
    """One fold: its model, its optimiser and its two loaders.

    Args:
        graphs: of the whole set.
        train, test: graph numbers.
        outputs: number of classes.
        settings: the model and its training.
        device: where the model lives; the graphs stay on the CPU and are brought there batch by batch.
    """

    def __init__(
        self,
        graphs: Sequence[Data],
        train: np.ndarray,
        test: np.ndarray,
        outputs: int,
        settings: Settings,
        device: torch.device,
    ):
        self.device = device
        self.train_loader = DataLoader([graphs[g] for g in train], batch_size=settings.batch_size, shuffle=True)
        self.test_loader = DataLoader([graphs[g] for g in test], batch_size=settings.batch_size)
        self.model = UsualGNN(graphs[0].num_node_features, outputs, settings).to(device)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=settings.lr)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimiser, settings.decay_every, settings.decay)

    def train(self, seconds: float = float("inf")) -> tuple[float, int]:
        """One epoch; gives the mean loss, and the batches seen: less than all where `seconds` were up before."""
        self.model.train()
        total, graphs, batches, end = 0.0, 0, 0, time.perf_counter() + seconds
        for data in self.train_loader:
            data = data.to(self.device)
            self.optimiser.zero_grad()
            out = self.model(data.x, data.edge_index, data.batch, data.num_graphs)
            loss = F.cross_entropy(out, data.y)
            loss.backward()
            self.optimiser.step()
            total += loss.item() * data.num_graphs
            graphs += data.num_graphs
            batches += 1
            if time.perf_counter() > end:
                break
        self.scheduler.step()
        return total / graphs, batches

    @torch.no_grad()
    def evaluate(self) -> float:
        """The accuracy on the test part."""
        self.model.eval()
        correct, graphs = 0, 0
        for data in self.test_loader:
            data = data.to(self.device)
            out = self.model(data.x, data.edge_index, data.batch, data.num_graphs)
            correct += int((out.argmax(dim=-1) == data.y).sum().item())
            graphs += data.num_graphs
        return correct / graphs
