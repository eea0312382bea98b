"""A model of one's own in a module, as worker processes import it."""

import torch
from torch_geometric.nn import GCNConv, global_mean_pool


class Small(torch.nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        # A bias before a batch norm has no gradient but rounding, which Adam would blow up.
        self.conv = GCNConv(in_channels, 8, bias=False)
        self.norm = torch.nn.BatchNorm1d(8)
        self.out = torch.nn.Linear(8, out_channels)

    def forward(self, x, edge_index, batch):
        h = torch.nn.functional.dropout(self.norm(self.conv(x, edge_index)).relu(), 0.2, self.training)
        return self.out(global_mean_pool(h, batch))


class WithEdges(Small):
    def forward(self, x, edge_index, batch, edge_attr):
        self.seen = edge_attr.shape
        return super().forward(x, edge_index, batch)


class NothingToLearn(torch.nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.outputs = out_channels

    def forward(self, x, edge_index, batch):
        return x.new_zeros(int(batch.max()) + 1, self.outputs)


class LearnsNothing(Small):
    def forward(self, x, edge_index, batch):
        return super().forward(x, edge_index, batch).detach()


class Diverges(Small):
    def forward(self, x, edge_index, batch):
        return super().forward(x, edge_index, batch) * float("nan")


class TooFew(Small):
    def forward(self, x, edge_index, batch):
        return super().forward(x, edge_index, batch)[:-1]


class OneOutput(Small):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, 1)


class WithLoss(Small):
    def forward(self, x, edge_index, batch):
        out = super().forward(x, edge_index, batch)
        return (out, 1e3 * self.out.bias.square().sum()) if self.training else out


class Shown(Small):
    """Notes of which targets it was shown, and when."""

    def forward(self, x, edge_index, batch, y):
        self.__dict__.setdefault("shown", []).append((self.training, y))
        return super().forward(x, edge_index, batch)


class OwnLoss(Small):
    """Squares instead of cross entropy."""

    def loss_per_graph(self, out, y):
        return (out - torch.nn.functional.one_hot(y, out.size(1))).square().sum(dim=1)


class MeanLoss(OwnLoss):
    def loss_per_graph(self, out, y):
        return super().loss_per_graph(out, y).mean()


class Tied(Small):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels)
        self.again = self.out


class Lazy(Small):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels)
        self.conv = GCNConv(-1, 8)


class OfData(Small):
    def forward(self, data):
        return super().forward(data.x, data.edge_index, data.batch)


class ThreeSizes(Small):
    def __init__(self, in_channels, hidden, out_channels):
        super().__init__(in_channels, out_channels)


class Wide(Small):
    def __init__(self, in_channels, out_channels, hidden=8):
        super().__init__(in_channels, out_channels)


nothing = 3
