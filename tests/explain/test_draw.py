import builtins
import re
import xml.etree.ElementTree as ET

import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from softmask.data.catalog import open_data
from softmask.data.synthetic import motif
from softmask.errors import SettingError, SoftmaskError
from softmask.explain import draw, draw_masks
from softmask.explain.draw import OUTLINES, _points, _side_by_side, caption, layout, masks_svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def graph():
    return motif(2, seed=1)[1]


def _read(path):
    """Of an SVG: the marks of each layer's nodes, the number of its lines, and all text."""
    tree = ET.parse(path)
    groups = {g.get("id"): g for g in tree.iter(f"{SVG}g")}
    layers = [name for name in groups if name and name.startswith("layer-") and name.endswith("-nodes")]
    marks = [[use.get("style") for use in groups[name].iter(f"{SVG}use")] for name in layers]
    lines = [groups[name.replace("nodes", "edges")].find(f"{SVG}path") for name in layers]
    edges = [line.get("d", "").count("M") for line in lines]
    return marks, edges, ["".join(t.itertext()) for t in tree.iter(f"{SVG}text")]


def test_svg_has_a_panel_for_each_layer_and_a_mark_for_each_node(graph, tmp_path):
    masks = torch.rand(graph.num_nodes, 3)
    path = draw_masks(
        *(graph, masks, tmp_path / "new" / "a.svg", "the title"),
        **{
            "roles": ["background", "motif"],
            "predicted": "house",
            "probability": 0.987,
            "actual": "biclique",
        },
    )
    marks, edges, texts = _read(path)
    assert [len(m) for m in marks] == [graph.num_nodes] * 3
    assert edges == [graph.num_edges // 2] * 3
    for layer in marks:
        assert sum(OUTLINES[1][0].lower() in style for style in layer) == 5  # the motif
    for text in ("layer 1", "layer 2", "layer 3", "mask", "background", "motif", "the title"):
        assert text in texts
    assert "predicted house (probability 0.99), class biclique: wrong" in texts
    assert [p.name for p in path.parent.iterdir()] == ["a.svg"]


def _ring(n):
    around = torch.arange(n)
    return Data(edge_index=torch.stack([around, around.roll(1)]), num_nodes=n)


def test_colour_deepens_with_the_mask_on_one_scale(tmp_path):
    n = 20
    masks = np.stack([np.linspace(0, 0.5, n), np.linspace(0, 1, n)], axis=1)
    # Of nodes with equally many neighbours, the marks stand in the order of the nodes.
    marks, _, _ = _read(draw_masks(_ring(n), masks, tmp_path / "a.svg"))

    def light(style):
        fill = dict(part.split(": ") for part in style.split("; "))["fill"]
        return matplotlib.colors.rgb_to_hsv(matplotlib.colors.to_rgb(fill))[2] + sum(matplotlib.colors.to_rgb(fill))

    for layer in marks:
        lightness = [light(style) for style in layer]
        assert np.all(np.diff(lightness) <= 1e-9)
        assert lightness[-1] < lightness[0]
    # The scale is 0 to 1 in both: white is 0, and 0.5 is not as deep as 1.
    assert marks[0][0] == marks[1][0]
    assert light(marks[0][-1]) > light(marks[1][-1])


def test_hostile_names_stay_text(graph, tmp_path):
    title = "<script>alert('x')</script> & $\\frac{ $x$ \x00\x1b]]> \"quoted\"\nnew line"
    path = draw_masks(
        *(graph, torch.rand(graph.num_nodes, 2), tmp_path / "a.svg", title),
        **{"roles": ["</text><b>", "$_$"], "predicted": "<i>&amp;", "probability": 1.0},
    )
    _, _, texts = _read(path)  # well-formed XML
    joined = " ".join(" ".join(texts).split())
    for part in ("<script>alert('x')</script> & $\\frac{ $x$", "new line", "</text><b>", "$_$", "<i>&amp;"):
        assert part in joined
    assert not list(ET.parse(path).iter(f"{SVG}script"))


def test_long_titles_stay_within_the_picture(graph, tmp_path):
    masks = torch.rand(graph.num_nodes, 2)
    path = draw_masks(graph, masks, tmp_path / "a.png", " ".join(["word"] * 60))
    image = matplotlib.image.imread(path)[..., :3]
    assert image[:, :3].min() == 1.0  # nothing runs over the edges
    assert image[:, -3:].min() == 1.0


def test_png_and_same_bytes_for_the_same_picture(graph, tmp_path):
    masks = torch.rand(graph.num_nodes, 4)
    for suffix in ("png", "svg"):
        a, b = (draw_masks(graph, masks, tmp_path / f"{name}.{suffix}") for name in "ab")
        assert a.read_bytes() == b.read_bytes()
    image = matplotlib.image.imread(tmp_path / "a.png")
    assert image.shape[1] > 1000
    assert image[0, 0, :3].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("edges", "n"),
    [
        ([], 1),
        ([], 3),
        ([(0, 1), (1, 0), (0, 1), (1, 1)], 3),
        ([(0, 1), (1, 2), (3, 4)], 6),
        ([(i, i + 1) for i in range(249)], 250),  # sfdp
    ],
)
def test_any_graph_can_be_drawn(edges, n, tmp_path):
    edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t()
    path = draw_masks(Data(edge_index=edge_index, num_nodes=n), torch.ones(n, 1), tmp_path / "a.svg")
    marks, lines, _ = _read(path)
    assert len(marks[0]) == n
    assert lines == [len({frozenset(e) for e in edges if e[0] != e[1]})]


def test_layout_keeps_nodes_apart(graph):
    edges = graph.edge_index.t().numpy()
    place = layout(graph.num_nodes, edges)
    assert np.isfinite(place).all()
    apart = np.linalg.norm(place[:, None] - place[None], axis=-1) + 1e9 * np.eye(len(place))
    length = np.linalg.norm(place[edges[:, 0]] - place[edges[:, 1]], axis=1).mean()
    assert apart.min() > 0.05 * length


def test_faults_of_a_layout():
    square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    rim = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    assert draw.faults(square, rim) == 0
    assert draw.faults(square[[0, 2, 1, 3]], rim) == 1, "two edges cross"
    assert draw.faults(square, np.concatenate([rim, rim[:, ::-1], [[2, 2]]])) == 0, "an edge both ways is one"
    crowded = np.concatenate([square, [[0.1, 0.1]]])
    assert draw.faults(crowded, rim) == 2, "two nodes upon each other"
    assert draw.faults(square, np.zeros((0, 2), dtype=int)) == 0


def test_neato_tries_again_where_edges_cross_or_nodes_lie_upon_each_other(real_set):
    store = open_data(real_set("NCI1"))
    better = 0
    for g in (2172, 120, 67, 3353):
        edges, n = store[g].edge_index.t().numpy(), int(store.sizes[g])
        first, best = draw._graphviz(n, edges, "neato"), layout(n, edges)
        assert draw.faults(best, edges) == 0, "these molecules can be drawn in the plane"
        assert np.array_equal(first, best) == (draw.faults(first, edges) == 0)
        better += draw.faults(first, edges) > 0
    assert better >= 2


def _tree(n, seed):
    """Most nodes hang on the first one, and two are apart from it: as on REDDIT."""
    draw = np.random.default_rng(seed)
    return np.array([(v, draw.integers(v) if draw.random() < 0.3 else 0) for v in range(1, n - 2)] + [(n - 2, n - 1)])


def test_sfdp_is_silent_and_places_a_graph_alike_whatever_was_drawn_before(capfd):
    first = layout(120, _tree(120, 0), "sfdp")
    layout(70, _tree(70, 1), "sfdp")
    assert np.array_equal(layout(120, _tree(120, 0), "sfdp"), first)
    assert capfd.readouterr() == ("", "")


def test_the_engine_can_be_chosen():
    edges = _tree(60, 0)
    assert np.array_equal(layout(60, edges), layout(60, edges, "neato"))
    assert not np.allclose(layout(60, edges), layout(60, edges, "sfdp"))


def test_a_lone_node_is_not_put_inside_a_ring():
    edges = np.array([(v, (v + 1) % 12) for v in range(12)])
    place = layout(13, edges)
    assert np.linalg.norm(place[12] - place[:12].mean(axis=0)) > np.linalg.norm(place[0] - place[:12].mean(axis=0))


def test_the_hub_is_drawn_over_its_neighbours(tmp_path):
    data = Data(edge_index=torch.tensor([[0] * 9, range(1, 10)]), num_nodes=10, node_role=torch.eye(10).long()[0])
    marks, _, _ = _read(draw_masks(data, torch.rand(10, 1), tmp_path / "a.svg", roles=["node", "hub"]))
    assert OUTLINES[1][0].lower() in marks[0][-1]


def test_overlapping_marks_are_moved_apart():
    place = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [100.0, 0.0], [100.0, 50.0]])
    moved = _side_by_side(place, 9.0)
    apart = np.linalg.norm(moved[:, None] - moved, axis=2)[np.triu_indices(5, 1)]
    assert apart.min() * _points(place) > 8.9
    # The others stay, and those that move do not go far.
    np.testing.assert_array_equal(moved[3:], place[3:])
    assert np.linalg.norm(moved - place, axis=1).max() * _points(place) < 18


@pytest.mark.parametrize(("leaves", "larger"), [(9, False), (300, True)])
def test_where_marks_are_tiny_the_hub_is_larger(leaves, larger, tmp_path):
    """Its colour must be seen inside the outline."""
    edges = torch.tensor([[0] * leaves, range(1, leaves + 1)])
    data = Data(edge_index=edges, num_nodes=leaves + 1, node_role=torch.eye(leaves + 1).long()[0])
    path = draw_masks(data, torch.rand(leaves + 1, 2), tmp_path / "a.svg", roles=["node", "hub"])
    groups = {g.get("id"): g for g in ET.parse(path).iter(f"{SVG}g")}
    assert ("layer-1-larger" in groups, "layer-2-larger" in groups) == (larger, larger)
    if larger:
        across = [
            2
            * np.abs(np.array(re.findall(r"-?[\d.]+", groups[name].find(f".//{SVG}path").get("d")), dtype=float)).max()
            for name in ("layer-1-nodes", "layer-1-larger")
        ]
        # Of the drawing's own units.
        assert across[1] > 1.5 * across[0]


def test_larger_marks_keep_their_shape(tmp_path):
    """The label of the hub is told by its shape, which must not vanish under a disc."""
    n = 300
    edges = torch.tensor([[0] * (n - 1), range(1, n)])
    data = Data(edge_index=edges, num_nodes=n, node_role=torch.eye(n).long()[0])
    labels = ["hub"] + ["leaf"] * (n - 1)
    path = draw_masks(data, torch.rand(n, 1), tmp_path / "a.svg", roles=["node", "hub"], labels=labels)
    groups = {g.get("id"): g for g in ET.parse(path).iter(f"{SVG}g")}
    assert "layer-1-larger-1" in groups
    corners = [groups[f"layer-1-{name}-1"].find(f".//{SVG}path").get("d").count("L") for name in ("nodes", "larger")]
    assert corners == [3, 3], "squares, as leaves are discs"


def _marks(tree, layer):
    """The places of a layer's marks, and their diameter without the outline."""
    nodes = {g.get("id"): g for g in tree.iter(f"{SVG}g")}[f"layer-{layer}-nodes"]
    outline = np.array(re.findall(r"-?[\d.]+", nodes.find(f".//{SVG}path").get("d")), dtype=float)
    places = np.array([[float(use.get(c)) for c in "xy"] for use in nodes.iter(f"{SVG}use")])
    return places, 2 * np.abs(outline).max()


@pytest.mark.parametrize("engine", ["neato", "sfdp"])
def test_no_mark_is_cut_off(engine, tmp_path):
    path = torch.tensor([range(14), range(1, 15)])  # long and flat
    file = draw_masks(Data(edge_index=path, num_nodes=15), torch.ones(15, 2), tmp_path / "a.svg", engine=engine)
    tree = ET.parse(file)
    panels = [r for c in tree.iter(f"{SVG}clipPath") for r in c.iter(f"{SVG}rect")]
    box = [[float(r.get(side)) for side in ("x", "y", "width", "height")] for r in panels]
    marks, diameter = _marks(tree, 1)
    radius = diameter / 2
    for x, y in marks:
        assert any(a + radius <= x <= a + w - radius and b + radius <= y <= b + h - radius for a, b, w, h in box), (
            "a mark runs over its panel"
        )


@pytest.mark.parametrize("layers", [1, 3, 6])
@pytest.mark.parametrize("stretch", [(1.0, 1.0), (1.0, 0.3), (0.3, 1.0)])
def test_marks_leave_their_edges_to_be_seen(layers, stretch, tmp_path):
    ends = torch.tensor([(v, v + k) for v in range(26) for k in (1, 2)]).t()
    data = Data(edge_index=ends, num_nodes=28)
    place = np.stack([np.arange(28) // 2, np.arange(28) % 2 + np.arange(28) % 5], axis=1) * np.array(stretch)
    tree = ET.parse(draw_masks(data, torch.rand(28, layers), tmp_path / "a.svg", place=place))
    groups = {g.get("id"): g for g in tree.iter(f"{SVG}g")}
    line = groups["layer-1-edges"].find(f"{SVG}path").get("d")
    at = np.array(re.findall(r"-?[\d.]+", line), dtype=float).reshape(-1, 2, 2)
    lengths = np.linalg.norm(at[:, 0] - at[:, 1], axis=1)
    _, diameter = _marks(tree, 1)
    assert 0.5 * np.quantile(lengths, 0.1) < diameter < 0.72 * np.quantile(lengths, 0.1)


def test_a_line_keeps_panels_apart(tmp_path):
    # The last node lies apart from the ring.
    data = Data(edge_index=_ring(12).edge_index, num_nodes=13)
    tree = ET.parse(draw_masks(data, torch.rand(13, 3), tmp_path / "a.svg"))
    groups = {g.get("id"): g for g in tree.iter(f"{SVG}g")}
    lines = [name for name in groups if name and name.startswith("line-")]
    assert lines == ["line-1", "line-2"]
    for k, name in enumerate(lines, start=1):
        x = float(re.findall(r"[\d.]+", groups[name].find(f"{SVG}path").get("d"))[0])
        (left, diameter), (right, _) = _marks(tree, k), _marks(tree, k + 1)
        assert left[:, 0].max() + diameter / 2 < x - 3
        assert right[:, 0].min() - diameter / 2 > x + 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "a.pdf"}, r"\.svg or \.png"),
        ({"masks": torch.rand(3, 2)}, "shape"),
        ({"masks": torch.rand(40)}, "shape"),
        ({"masks": "large"}, "from 0 to 1"),
        ({"masks": "nan"}, "from 0 to 1"),
        ({"roles": ["one"]}, "1 roles were named"),
        ({"data": Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=0)}, "no nodes"),
    ],
)
def test_wrong_input_writes_nothing(graph, change, message, tmp_path):
    n = graph.num_nodes
    named = {"large": torch.full((n, 1), 1.5), "nan": torch.full((n, 1), float("nan"))}
    given = {"data": graph, "masks": torch.rand(n, 2), "path": "a.svg", **change}
    if isinstance(given["masks"], str):
        given["masks"] = named[given["masks"]]
    given["path"] = tmp_path / given["path"]
    with pytest.raises(SettingError, match=message):
        draw_masks(**given)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made(graph, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="cannot make the folder"):
        draw_masks(graph, torch.rand(graph.num_nodes, 1), tmp_path / "file" / "a.svg")


def test_roles_without_a_ground_truth(tmp_path):
    data = Data(edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=2)
    with pytest.raises(SettingError, match="no node_role"):
        draw_masks(data, torch.rand(2, 1), tmp_path / "a.svg", roles=["a", "b"])


@pytest.mark.parametrize("missing", ["matplotlib", "pygraphviz"])
def test_missing_package_says_what_to_install(graph, missing, monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == missing:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SoftmaskError, match=rf"{missing}: pip install 'softmask\[draw\]'"):
        draw_masks(graph, torch.rand(graph.num_nodes, 1), tmp_path / "a.svg")


def test_drawing_leaves_no_global_state(graph, tmp_path):
    import matplotlib
    from matplotlib._pylab_helpers import Gcf

    before = dict(matplotlib.rcParams)
    draw_masks(graph, torch.rand(graph.num_nodes, 1), tmp_path / "a.svg")
    assert dict(matplotlib.rcParams) == before
    assert not Gcf.figs


def test_short_labels_are_written_into_the_marks(tmp_path):
    labels = ["C", "Cl", "<b>", "$x$"[:3], "N"]
    path = draw_masks(_ring(5), np.tile([[0.0], [1.0], [0.5], [0.2], [0.9]], 2), tmp_path / "a.svg", labels=labels)
    _, _, texts = _read(path)
    for label in labels:
        assert texts.count(label) == 2, "once in each layer"
    letters = {
        "".join(t.itertext()): t.get("style", "") for t in ET.parse(path).iter(f"{SVG}text") if "".join(t.itertext())
    }
    assert "#ffffff" in letters["Cl"], "white on the deepest colour"
    assert "#ffffff" not in letters["C"]


def test_few_labels_that_do_not_fit_become_shapes_with_a_legend(tmp_path):
    n = 300
    labels = ["helix" if v % 3 else "sheet & <b>" for v in range(n)]
    path = draw_masks(_ring(n), torch.rand(n, 2), tmp_path / "a.svg", labels=labels)
    tree = ET.parse(path)
    groups = {g.get("id"): g for g in tree.iter(f"{SVG}g")}
    assert [len(list(groups[f"layer-1-nodes-{k}"].iter(f"{SVG}use"))) for k in (0, 1)] == [200, 100]
    texts = ["".join(t.itertext()) for t in tree.iter(f"{SVG}text")]
    assert "label helix" in texts
    assert "label sheet & <b>" in texts


def test_many_labels_that_do_not_fit_are_left_out(tmp_path):
    n = 300
    path = draw_masks(_ring(n), torch.rand(n, 1), tmp_path / "a.svg", labels=[f"word {v % 9}" for v in range(n)])
    marks, _, texts = _read(path)
    assert len(marks[0]) == n
    assert not any("word" in t for t in texts)


def test_places_can_be_given(tmp_path):
    place = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    tree = ET.parse(draw_masks(_ring(3), torch.rand(3, 1), tmp_path / "a.svg", place=place))
    at, _ = _marks(tree, 1)
    assert at[1, 0] > at[0, 0]
    assert at[2, 1] < at[0, 1], "y is upwards in the places, and downwards in the picture"
    assert (at[0, 1] - at[2, 1]) / (at[1, 0] - at[0, 0]) == pytest.approx(2, rel=1e-3)
    for wrong in (place[:2], np.full((3, 2), np.nan)):
        with pytest.raises(SettingError, match="places have shape"):
            draw_masks(_ring(3), torch.rand(3, 1), tmp_path / "b.svg", place=wrong)
    with pytest.raises(SettingError, match="2 labels for the 3 nodes"):
        draw_masks(_ring(3), torch.rand(3, 1), tmp_path / "b.svg", labels=["a", "b"])


def test_captions_of_classes_and_of_numbers():
    assert caption("a", 0.987, "a") == "predicted a (probability 0.99), class a"
    assert caption("a", 0.987, "b") == "predicted a (probability 0.99), class b: wrong"
    assert caption("a", 0.987) == "predicted a (probability 0.99)"
    assert caption(actual="b") == "class b"
    assert caption(1.23456, None, 1.0) == "predicted 1.235, actual 1"
    assert caption([1.0, 2.0, 3.0, 4.0, 5.0]) == "predicted 1, 2, 3, 4, ..."


def test_an_svg_for_a_page(graph):
    text = masks_svg(graph, torch.rand(graph.num_nodes, 2), "a title", predicted="x", probability=0.5)
    assert text.startswith("<svg")
    ET.fromstring(text)
    assert "a title" in text
