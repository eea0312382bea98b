"""Pictures of masks on molecules: the molecule once for every layer, each atom shaded by its mask."""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.etree import ElementTree

import numpy as np

from softmask.errors import DataError, SettingError, SoftmaskError
from softmask.explain.draw import _clean

if TYPE_CHECKING:
    from softmask.data.store import GraphStore

# The nine steps of ColorBrewer's Blues, of which draw.py's colours are made too, so that all pictures agree.
BLUES = ("f7fbff", "deebf7", "c6dbef", "9ecae1", "6baed6", "4292c6", "2171b5", "08519c", "08306b")
Bonds: TypeAlias = dict[tuple[int, int], int]  # kinds, by their two atoms
_SVG = "{http://www.w3.org/2000/svg}"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_MARGIN, _CAPTION, _LINE, _BAR = 8, 20, 18, 58  # of a picture, in its units
_LETTER = 8.0  # width of a letter of the title in a wide font, capitals of SMILES among them
_SCALE, _WIDEST, _NARROWEST = 26.0, 420, 90  # units an Angstrom; of a molecule; of a panel


def molecule_svg(
    smiles: str,
    masks: np.ndarray,
    title: str = "",
    layer_names: Sequence[str] | None = None,
    dark: bool = False,
) -> str:
    """Draws a molecule as SVG, a panel a layer from left to right, atoms shaded from 0 (white) to 1 (deep blue).

    Args:
        smiles: of the molecule.
        masks: ``[atoms, layers]``, as :func:`node_masks` gives them. With as many rows as the SMILES has atoms, they
            are these in their order, as of :func:`~softmask.data.smiles.from_smiles`; with more, hydrogens are atoms
            of their own and follow in the order of RDKit's ``AddHs``. For graphs of a store, whose order may be
            another, there is :func:`store_molecule_svg`.
        title: a line above the picture.
        layer_names: captions of the panels; by default ``layer 1`` and so on.
        dark: for a dark page: 0 is dark as the page, and 1 is bright.

    Returns:
        An SVG document.
    """
    table = np.asarray(masks, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] == 0:
        raise SettingError(f"masks have shape {list(table.shape)}; a molecule needs [atoms, layers]")
    if not ((table >= 0) & (table <= 1)).all():
        raise SettingError("masks must be numbers from 0 to 1")
    names = [f"layer {k + 1}" for k in range(table.shape[1])] if layer_names is None else list(layer_names)
    if len(names) != table.shape[1]:
        raise SettingError(f"{len(names)} names for {table.shape[1]} layers")
    molecule = laid_out(smiles, len(table))
    return _page([_panel(molecule, table[:, k], dark) for k in range(table.shape[1])], names, title, dark)


def store_molecule_svg(store: "GraphStore", graph: int, masks: np.ndarray, **options: Any) -> str:
    """Draws a molecule of a store that holds SMILES, such as QM9 or one made from SMILES.

    Args:
        store: the set, with the SMILES as names.
        graph: which of its graphs.
        masks: ``[atoms, layers]`` in the order of the graph's nodes.
        options: title, layer_names and dark as for :func:`molecule_svg`.
    """
    table, order = np.asarray(masks), atom_order(store, graph)
    if table.shape[:1] != order.shape:
        raise SettingError(f"masks have shape {list(table.shape)}; this molecule needs [{len(order)}, layers]")
    return molecule_svg(store.info["names"][graph], table[order], **options)


def has_molecules(store: "GraphStore") -> bool:
    """Whether the graphs of a store can be drawn as molecules, seen by its first: it has a SMILES that fits it."""
    try:
        return len(store) > 0 and len(atom_order(store, 0)) > 0
    except SoftmaskError:
        return False


def atom_order(store: "GraphStore", graph: int) -> np.ndarray:
    """For each atom of the drawn molecule, in RDKit's order, the node of the store's graph that it is.

    Elements, bonds and their kinds agree under it. Where several orders do, the atoms are alike and the first is taken.
    """
    first, last = store.node_ptr[graph : graph + 2].tolist()
    names, found = store.info.get("names"), _element(store, slice(first, last))
    if names is None or found is None or store.edge_label is None:
        raise DataError(f"{store!r} has no SMILES, elements and kinds of bonds: its graphs are not drawn as molecules")
    molecule, element = laid_out(names[graph], last - first), found.tolist()
    target = np.repeat(np.arange(last - first), np.diff(store.row_ptr[first : last + 1].cpu().numpy()))
    rows = slice(int(store.row_ptr[first]), int(store.row_ptr[last]))
    kind = store.edge_label[rows, 0].cpu().numpy().tolist()
    bonds = dict(zip(zip(target.tolist(), store.col[rows].cpu().numpy().tolist()), kind))
    wanted = [a.GetAtomicNum() for a in molecule.GetAtoms()]
    drawn = {(b.GetBeginAtomIdx(), b.GetEndAtomIdx()): int(b.GetBondType()) for b in molecule.GetBonds()}
    for find in (_same_order, _heavy_order, _matched_order):
        order = find(element, bonds, wanted, drawn)
        if order is not None and _agree(order, element, bonds, wanted, drawn):
            return np.array(order, dtype=np.int64)
    raise DataError(f"graph {graph}: its atoms and bonds are not those of its SMILES {names[graph]}")


def _element(store: "GraphStore", nodes: slice = slice(None)) -> np.ndarray | None:
    """Atomic numbers of nodes of a store, by default all, if it has them."""
    from softmask.data.molecules import NODE_FEATURES

    if store.node_label is not None:
        return store.node_label[nodes, 0].cpu().numpy()
    if store.node_attr is not None and store.pos is not None and store.node_attr.size(1) == len(NODE_FEATURES):
        return store.node_attr[nodes, NODE_FEATURES.index("atomic number")].long().cpu().numpy()
    return None


def _same_order(element: list[int], bonds: Bonds, wanted: list[int], drawn: Bonds) -> list[int]:
    return list(range(len(element)))


def _heavy_order(element: list[int], bonds: Bonds, wanted: list[int], drawn: Bonds) -> list[int]:
    """Heavy atoms in the SMILES' order, as nearly all of QM9 has them, each hydrogen by the atom that holds it."""
    heavy = iter([v for v, z in enumerate(element) if z != 1])
    order = [next(heavy, -1) if z != 1 else -1 for z in wanted]
    held: dict[int, list[int]] = {}
    for v, u in sorted(bonds):
        if element[u] == 1:
            held.setdefault(v, []).append(u)
    for u, v in drawn:  # a hydrogen that was added is the later end of its bond
        if wanted[v] == 1 and held.get(order[u]):
            order[v] = held[order[u]].pop(0)
    return order


def _matched_order(element: list[int], bonds: Bonds, wanted: list[int], drawn: Bonds) -> list[int] | None:
    import networkx as nx
    from networkx.algorithms.isomorphism import GraphMatcher

    given, molecule = nx.Graph(), nx.Graph()
    for graph, atoms, edges in ((given, element, bonds), (molecule, wanted, drawn)):
        graph.add_nodes_from((v, {"z": z}) for v, z in enumerate(atoms))
        graph.add_edges_from((u, v, {"kind": kind}) for (u, v), kind in edges.items())
    matcher = GraphMatcher(molecule, given, lambda a, b: a["z"] == b["z"], lambda a, b: a["kind"] == b["kind"])
    way = next(matcher.isomorphisms_iter(), None)
    return None if way is None else [way[v] for v in range(len(wanted))]


def _agree(order: list[int], element: list[int], bonds: Bonds, wanted: list[int], drawn: Bonds) -> bool:
    if sorted(order) != list(range(len(element))) or [element[v] for v in order] != wanted:
        return False
    return len(bonds) == 2 * len(drawn) and all(bonds.get((order[u], order[v])) == k for (u, v), k in drawn.items())


def laid_out(smiles: str, atoms: int) -> Any:
    """The molecule with as many atoms as asked for, hydrogens among them if need be, with places in the plane."""
    try:
        from rdkit import Chem, rdBase
        from rdkit.Chem import rdDepictor
    except ImportError:
        raise DataError("molecules need RDKit: pip install 'softmask[smiles]'") from None
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
        if molecule is None or molecule.GetNumAtoms() == 0:
            raise DataError(f"RDKit cannot read the SMILES {smiles!r}, or it has no atoms")
        heavy = molecule.GetNumAtoms()
        if atoms != heavy:
            molecule = Chem.AddHs(molecule)
        if atoms != molecule.GetNumAtoms():
            raise SettingError(
                f"masks of {atoms} atoms for {smiles}, which has {heavy}, and {molecule.GetNumAtoms()} with hydrogens"
            )
        rdDepictor.SetPreferCoordGen(False)
        rdDepictor.Compute2DCoords(molecule)
    return molecule


def _panel(molecule: Any, mask: np.ndarray, dark: bool) -> ElementTree.Element:
    """One layer as an SVG element of RDKit's, with bonds below the atoms' marks and letters above."""
    from rdkit.Chem.Draw import rdMolDraw2D

    drawer = rdMolDraw2D.MolDraw2DSVG(-1, -1)  # as large as the molecule is
    options: Any = drawer.drawOptions()
    spread = np.ptp(molecule.GetConformer().GetPositions()[:, :2], axis=0).max()
    options.scalingFactor = min(_SCALE, _WIDEST / max(float(spread), 1.0))
    options.useBWAtomPalette()
    options.prepareMolsBeforeDrawing = False  # hydrogens that are nodes of the graph are drawn
    options.clearBackground = False
    options.padding = 0.04
    atoms = list(range(len(mask)))
    molecule = rdMolDraw2D.PrepareMolForDrawing(molecule, kekulize=True, addChiralHs=False)
    drawer.DrawMolecule(
        molecule,
        highlightAtoms=atoms,
        highlightAtomColors=dict.fromkeys(atoms, (0.0, 0.0, 1.0)),
        highlightAtomRadii=dict.fromkeys(atoms, 0.27),
        highlightBonds=[],
    )
    drawer.FinishDrawing()
    panel = ElementTree.fromstring(drawer.GetDrawingText().split("?>", 1)[1])
    lines, marks, letters = [], [], []
    ink = "#d7dbe0" if dark else "#2b2f35"
    for part in panel:
        about = part.get("class", "")
        if part.tag == f"{_SVG}ellipse":
            marks.append(_mark(part, mask[int(about.removeprefix("atom-"))], dark))
        elif about.startswith("atom-") and "fill" in part.attrib:
            part.set("fill", _letters(mask[int(about.split()[0].removeprefix("atom-"))], dark))
            letters.append(part)
        else:
            part.set("style", part.get("style", "").replace("#000000", ink))
            lines.append(part)
    panel[:] = [*lines, *marks, *letters]
    return panel


def _mark(ellipse: ElementTree.Element, mask: float, dark: bool) -> ElementTree.Element:
    """A disc, or for an atom with hydrogens in its letters a disc drawn out, in the mask's colour."""
    x, y, rx, ry = (float(ellipse.get(name, "0")) for name in ("cx", "cy", "rx", "ry"))
    ry *= 1.12
    rx = rx + 0.35 * ry if rx > 1.05 * ry else ry
    mark = ElementTree.Element(f"{_SVG}rect", {"class": ellipse.get("class", "")})
    box = {"x": x - rx, "y": y - ry, "width": 2 * rx, "height": 2 * ry, "rx": ry}
    for name, value in box.items():
        mark.set(name, f"{value:.1f}")
    mark.set("fill", mask_colour(mask, dark))
    mark.set("stroke", "#8a929b")
    mark.set("stroke-width", "0.8")
    title = ElementTree.SubElement(mark, f"{_SVG}title")
    title.text = f"mask {mask:.2f}"
    return mark


def mask_colour(mask: float, dark: bool = False) -> str:
    """The colour of a mask from 0 to 1: that of matplotlib's ``Blues``; for a dark page, from the page to its lightest.

    Args:
        mask: the number.
        dark: whether the page is dark.
    """
    steps = ("14171a", *reversed(BLUES[:-1])) if dark else BLUES
    at = mask * (len(steps) - 1)
    low = min(int(at), len(steps) - 2)
    a, b = (np.array([int(steps[i][j : j + 2], 16) for j in (0, 2, 4)]) for i in (low, low + 1))
    return "#" + "".join(f"{round(v):02x}" for v in (a + (at - low) * (b - a)).tolist())


def _letters(mask: float, dark: bool) -> str:
    """Black or white, whichever is easier to read on the mask's colour."""
    colour = mask_colour(mask, dark)
    parts = [int(colour[j : j + 2], 16) / 255 for j in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    # Where the contrast to black, (L + 0.05) / 0.05, is that to white, 1.05 / (L + 0.05).
    return "#000000" if luminance > math.sqrt(1.05 * 0.05) - 0.05 else "#ffffff"


def _page(panels: list[ElementTree.Element], names: Sequence[str], title: str, dark: bool) -> str:
    wide, high = (float(panels[0].get(name, "0").removesuffix("px")) for name in ("width", "height"))
    side, tall = math.ceil(max(wide, _NARROWEST)) + _MARGIN, math.ceil(max(high, _NARROWEST))
    width = 2 * _MARGIN + len(panels) * side + _BAR
    lines = textwrap.wrap(_clean(title), int((width - 2 * _MARGIN) / _LETTER))[:4]
    top = _MARGIN + _LINE * len(lines)
    height = top + _CAPTION + tall + _MARGIN
    paper, ink = ("#14171a", "#e8eaed") if dark else ("#ffffff", "#1a1d21")
    root = ElementTree.Element(
        f"{_SVG}svg", {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}", "role": "img"}
    )
    ElementTree.SubElement(root, f"{_SVG}title").text = _clean(title) or "masks on a molecule"
    ElementTree.SubElement(root, f"{_SVG}rect", {"width": str(width), "height": str(height), "fill": paper})
    words = ElementTree.SubElement(root, f"{_SVG}g", {"fill": ink, "font-family": _FONT, "text-anchor": "middle"})
    for i, line in enumerate(lines):
        _text(words, width / 2, _MARGIN + _LINE * i + 13, line, 13)
    for k, (panel, name) in enumerate(zip(panels, names)):
        left = _MARGIN + k * side
        _text(words, left + side / 2, top + 14, _clean(name), 12)
        panel.set("x", f"{left + (side - wide) / 2:.1f}")
        panel.set("y", f"{top + _CAPTION + (tall - high) / 2:.1f}")
        panel.set("class", f"layer-{k + 1}")
        root.append(panel)
    _bar(root, words, _MARGIN + len(panels) * side + 12, top + _CAPTION + 0.1 * tall, 0.8 * tall, dark)
    ElementTree.register_namespace("", _SVG[1:-1])
    return ElementTree.tostring(root, encoding="unicode")


def _bar(root: ElementTree.Element, words: ElementTree.Element, x: float, y: float, height: float, dark: bool) -> None:
    """The colours and what they stand for, 1 above. Steps, not a gradient: an id would clash with another picture's."""
    steps = 64
    for i in range(steps):
        box = {
            "x": x,
            "y": y + height * i / steps,
            "width": 9,
            "height": height / steps + (0.5 if i < steps - 1 else 0),
        }
        fill = mask_colour(1 - (i + 0.5) / steps, dark)
        ElementTree.SubElement(root, f"{_SVG}rect", {k: f"{v:.1f}" for k, v in box.items()} | {"fill": fill})
    frame = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": "9", "height": f"{height:.1f}", "fill": "none"}
    ElementTree.SubElement(root, f"{_SVG}rect", frame | {"stroke": "#8a929b", "stroke-width": "0.8"})
    for value in (0, 0.5, 1):
        _text(words, x + 13, y + height * (1 - value) + 4, str(value), 11, anchor="start")
    _text(words, x + 4.5, y - 8, "mask", 11)


def _text(parent: ElementTree.Element, x: float, y: float, words: str, size: int, anchor: str | None = None) -> None:
    at = {"x": f"{x:.1f}", "y": f"{y:.1f}", "font-size": str(size)}
    ElementTree.SubElement(parent, f"{_SVG}text", at | ({"text-anchor": anchor} if anchor else {})).text = words
