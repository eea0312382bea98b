"""An explanation in a notebook: a fragment of HTML that needs nothing else, not even a script."""

from typing import TYPE_CHECKING

import numpy as np

from softmask.errors import SoftmaskError
from softmask.explain.draw import _clean, caption, masks_svg
from softmask.study.report.svg import element, text

if TYPE_CHECKING:
    from softmask.explain.explanation import Explanation

MOST_NODES = 500
"""Of larger graphs the most important nodes are shown: a notebook keeps every picture in its file."""
ROWS = 10


def html_of(explanation: "Explanation") -> str:
    """The masks of a graph layer by layer, with the prediction and its most important nodes, as HTML.

    Args:
        explanation: of one graph.

    Returns:
        An element to put into a page. All names are escaped.
    """
    said = explanation
    probability = None if said.probabilities is None else float(said.probabilities.max())
    words = [caption(said.predicted, probability, said.actual)]
    nodes = len(said.importance)
    if nodes > MOST_NODES:
        words.append(f"the {MOST_NODES} most important of {nodes:,} nodes")
    try:
        picture = _picture(said)
    except SoftmaskError as error:  # without Graphviz, say; the numbers can be shown all the same
        picture = element("p", element("em", text(error)))
    return element(
        "div",
        element(
            "p",
            element("strong", text(_clean(f"Graph {said.name}" if said.name.isdigit() else said.name))),
            " ",
            text(_clean("; ".join(words))),
        ),
        element("div", picture, style="overflow-x: auto"),
        element("details", element("summary", text("most important nodes")), _rows(said)),
        class_="softmask-explanation",
    )


def _picture(said: "Explanation") -> str:
    from softmask.data.pyg import from_data
    from softmask.explain.molecule import atom_order, has_molecules, molecule_svg
    from softmask.explain.subgraph import induced
    from softmask.explain.subject import node_labels

    if not len(said.importance):
        return element("p", text("The graph has no nodes."))
    store = from_data([said.data], names=[said.name])
    labels = node_labels(store, 0)
    if has_molecules(store):
        try:
            return molecule_svg(said.name, said.masks[atom_order(store, 0)])
        except SoftmaskError:
            pass  # the name is no SMILES of this graph
    if len(said.importance) <= MOST_NODES:
        return masks_svg(said.data, said.masks, labels=labels)
    kept = said.subgraph(size=MOST_NODES)
    labels = None if labels is None else [labels[v] for v in kept.tolist()]
    return masks_svg(induced(said.data, kept), said.masks[kept], labels=labels)


def _rows(said: "Explanation") -> str:
    head = ["node", "importance", *(f"layer {k + 1}" for k in range(said.masks.shape[1]))]
    order = np.argsort(-said.importance, kind="stable")[:ROWS]
    rows = [[str(v), *(f"{m:.2f}" for m in (said.importance[v], *said.masks[v]))] for v in order.tolist()]
    lines = [element("tr", *(element("td", text(cell)) for cell in row)) for row in rows]
    top = element("tr", *(element("th", text(name)) for name in head))
    return element("table", element("thead", top), element("tbody", *lines))
