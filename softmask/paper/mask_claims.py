"""What the paper reads from its pictures of masks, each as a rule that numbers can meet or not."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Layers = list[dict[str, Any]]
"""The :func:`~softmask.explain.statistics.layer_statistics` of one model, layer by layer."""


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper, and when a trained model agrees with it.

    Args:
        name: a short name.
        quote: the paper's words.
        rule: the rule in words.
        number: what the rule looks at in one layer, or in all of them.
        holds: whether these numbers, first layer to last, meet the rule; never asked if one of them is not known.
    """

    name: str
    quote: str
    rule: str
    number: Callable[[dict[str, Any]], Any]
    holds: Callable[[list[Any]], bool]

    def check(self, models: list[dict[str, Any]]) -> dict[str, Any]:
        """The verdict over all models: yes if every one of them meets the rule, no if none does, else in part."""
        numbers = [[self.number(layer) for layer in model["layers"]] for model in models]
        met = [all(_known(n) for n in layers) and bool(self.holds(layers)) for layers in numbers]
        return {
            "name": self.name,
            "quote": self.quote,
            "rule": self.rule,
            "verdict": "yes" if all(met) else "in part" if any(met) else "no",
            "seeds": [{"seed": m["seed"], "met": ok, "numbers": n} for m, ok, n in zip(models, met, numbers)],
        }


def claims_of(name: str) -> tuple[Claim, ...]:
    """The claims that the paper makes about a set, and then those about all sets, :data:`GENERAL`."""
    own = {"COLLAB": _COLLAB, "NCI1": _NCI1, "PROTEINS": _PROTEINS}
    return (*(_REDDIT if name.startswith("REDDIT") else own.get(name, ())), *GENERAL)


def _known(number: Any) -> bool:
    return all(n is not None for n in number) if isinstance(number, tuple | list) else number is not None


def _mean(*keys: str) -> Callable[[dict[str, Any]], Any]:
    def number(layer: dict[str, Any]) -> Any:
        for key in keys:
            layer = layer[key]
        return layer["mean"]

    return number


GENERAL = (
    Claim(
        "masks differ",
        "the weights of nodes have significant differences",
        "the masks of a graph have a standard deviation of at least 0.05 in at least one layer (mean over graphs)",
        _mean("within"),
        lambda n: max(n) >= 0.05,
    ),
    Claim(
        "less so with depth",
        "the weight differences become less significant in higher layers",
        "the standard deviation of the masks of a graph is smaller in the last layer than in the first (mean over "
        "graphs)",
        _mean("within"),
        lambda n: n[-1] < n[0],
    ),
    Claim(
        "low becomes high",
        "substructures assigned with low weights in lower layers can be assigned with high weights in higher layers",
        "up to the last layer at least 5 % of the nodes went from the lowest third of the masks of their graph to the "
        "highest third in a later layer, and their mask rose by at least 0.1 between the two",
        lambda layer: layer["risers"],
        lambda n: n[-1] >= 0.05,
    ),
)

_REDDIT = (
    Claim(
        "first layer without the root",
        "In the first layer, the weights are completely distributed on leaf parts with almost zero weights on the root "
        "part",
        "in the first layer the hub, the node of the largest degree, and the nodes beside it both have a mean mask "
        "below 0.1, and nodes two steps away have more than both (numbers: hub/beside/two steps)",
        lambda layer: layer["at_distance"][:3],
        lambda n: max(n[0][:2]) < 0.1 and n[0][2] > max(n[0][:2]),
    ),
    Claim(
        "from leaves to root by degree",
        "the weights move from leaf parts to the root part",
        "the rank correlation of mask and degree within a graph is larger in the last layer than in the first (mean "
        "over the graphs that have one)",
        _mean("degree"),
        lambda n: n[-1] > n[0],
    ),
    Claim(
        "from leaves to root by distance",
        "the weights move from leaf parts to the root part",
        "the rank correlation of mask and distance to the hub, the node of the largest degree, within a graph is "
        "smaller in the last layer than in the first (mean over the graphs that have one)",
        _mean("distance"),
        lambda n: n[-1] < n[0],
    ),
    Claim(
        "from leaves to root by share",
        "the weights move from leaf parts to the root part",
        "the leaves have a smaller share of a graph's mask weight in the last layer than in the first (mean over "
        "graphs)",
        _mean("share", "leaves"),
        lambda n: n[-1] < n[0],
    ),
    Claim(
        "the root gains",
        "In higher layers, the weights of the root part are increased",
        "in some higher layer the mean masks of the hub, the node of the largest degree, and of the nodes beside it "
        "are both larger than in the first by at least 0.05 (numbers: hub/beside)",
        lambda layer: layer["at_distance"][:2],
        lambda n: any(min(hub - n[0][0], beside - n[0][1]) >= 0.05 for hub, beside in n[1:]),
    ),
    Claim(
        "last layer in part",
        "only some of the node representations participate in the computation of the final graph representation",
        "between 5 % and 95 % of the nodes have a mask below 0.05 in the last layer",
        lambda layer: layer["closed"],
        lambda n: 0.05 <= n[-1] <= 0.95,
    ),
)

_COLLAB = (
    Claim(
        "masks fall with degree",
        "nodes with many neighbors learn relative low weights",
        "the rank correlation of mask and degree within a graph is below -0.1 in every layer (mean over the "
        "graphs that have one)",
        _mean("degree"),
        lambda n: max(n) < -0.1,
    ),
    Claim(
        "masks fall with degree, first layer",
        "nodes with many neighbors learn relative low weights",
        "the same in the first layer",
        _mean("degree"),
        lambda n: n[0] < -0.1,
    ),
)

_NCI1 = (
    Claim(
        "most nodes take part",
        "the aggregation operation is conducted on most of the nodes",
        "in every layer less than half of the nodes have a mask below 0.05",
        lambda layer: layer["closed"],
        lambda n: max(n) < 0.5,
    ),
    Claim(
        "with different weights",
        "but with different weights",
        "in every layer the masks of a graph have a standard deviation of at least 0.05 (mean over graphs)",
        _mean("within"),
        lambda n: min(n) >= 0.05,
    ),
)

_PROTEINS = (
    Claim(
        "masks follow the labels",
        "the weight distributions are also related to node attributes",
        "the node labels explain at least a tenth of the variance of the masks in the first layer",
        lambda layer: layer["label"],
        lambda n: n[0] >= 0.1,
    ),
    Claim(
        "zeros in the first layer",
        "Nodes with 0 weights in the first layer mean that node attributes are not included",
        "at least 5 % of the nodes have a mask below 0.05 in the first layer",
        lambda layer: layer["closed"],
        lambda n: n[0] >= 0.05,
    ),
)
