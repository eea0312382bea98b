"""Random graphs for hypothesis, and random numbers to go with them."""

from dataclasses import dataclass

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor

from softmask.nn import SoftMaskConv

EXACT = {"rtol": 1e-10, "atol": 1e-10}


def examples(count: int) -> settings:
    unhurried = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(max_examples=count, deadline=None, suppress_health_check=unhurried)


@dataclass(frozen=True)
class Graphs:
    """Some graphs side by side: edges as (source, target) pairs, and the graph of each node."""

    edges: tuple[tuple[int, int], ...]
    batch: tuple[int, ...]
    num_graphs: int
    seed: int

    @property
    def num_nodes(self) -> int:
        return len(self.batch)

    @property
    def edge_index(self) -> Tensor:
        return torch.tensor(self.edges, dtype=torch.long).reshape(-1, 2).t().contiguous()

    @property
    def batch_vector(self) -> Tensor:
        return torch.tensor(self.batch, dtype=torch.long)

    def numbers(self) -> "Numbers":
        return Numbers(self.seed)

    def induced(self, nodes: list[int]) -> tuple[tuple[int, int], ...]:
        """The edges of the subgraph on `nodes`, renumbered in their order."""
        place = {v: i for i, v in enumerate(nodes)}
        return tuple((place[s], place[t]) for s, t in self.edges if s in place and t in place)


class Numbers:
    """A stream of float64 tensors that depends on the seed alone."""

    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=self.generator)

    def mask(self, *shape: int) -> Tensor:
        """In [0, 1], with the ends 0 and 1 among them."""
        m = torch.rand(*shape, dtype=torch.float64, generator=self.generator) * 1.4 - 0.2
        return m.clamp(0, 1)

    def permutation(self, n: int) -> Tensor:
        return torch.randperm(n, generator=self.generator)

    def fill(self, module: torch.nn.Module) -> torch.nn.Module:
        """The module in float64 and evaluation mode, with parameters of about the usual size."""
        module = module.double().eval()
        with torch.no_grad():
            for p in module.parameters():
                p.copy_(self.normal(*p.shape) * 0.5)
        return module

    def stack(self, channels: int, num_layers: int, norm: bool = False) -> list[SoftMaskConv]:
        return [self.fill(SoftMaskConv(channels, channels, norm=norm)) for _ in range(num_layers)]


@st.composite
def graphs(
    draw,
    max_nodes: int = 7,
    min_nodes: int = 0,
    max_graphs: int = 3,
    directed: bool | None = None,
    messy: bool = True,
) -> Graphs:
    """Up to `max_graphs` graphs with isolated nodes, disconnected parts, or nothing at all.

    `messy` graphs also have self loops and edges that stand more than once; `directed` None leaves it open.
    """
    num_graphs = draw(st.integers(1, max_graphs))
    if directed is None:
        directed = draw(st.booleans())
    edges: list[tuple[int, int]] = []
    batch: list[int] = []
    for g in range(num_graphs):
        n = draw(st.integers(min_nodes, max_nodes))
        first = len(batch)
        if n > 0:
            node = st.integers(first, first + n - 1)
            pairs = draw(st.lists(st.tuples(node, node), max_size=2 * n, unique=not messy))
            if not messy:
                pairs = sorted({(s, t) for s, t in pairs if s != t})
            if not directed:
                turned = [(t, s) for s, t in pairs if s != t]
                pairs = pairs + (turned if messy else [p for p in turned if p not in set(pairs)])
            edges += draw(st.permutations(pairs))
        batch += [g] * n
    return Graphs(tuple(edges), tuple(batch), num_graphs, draw(st.integers(0, 2**31)))


def smg(convs: list[SoftMaskConv], x: Tensor, edge_index: Tensor, masks: list[Tensor]) -> Tensor:
    """The paper's SMG_K(X, A, M): K layers with preassigned masks."""
    for conv, mask in zip(convs, masks, strict=True):
        x = conv(x, edge_index, mask)
    return x
