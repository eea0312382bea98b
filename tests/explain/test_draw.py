import builtins
import xml.etree.ElementTree as ET

import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from softmask.data.synthetic import motif
from softmask.errors import SettingError, SoftmaskError
from softmask.explain import draw_masks
from softmask.explain.draw import OUTLINES, layout

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
    edges = [len(list(groups[name.replace("nodes", "edges")].iter(f"{SVG}path"))) for name in layers]
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
    assert "predicted house (probability 0.99), class biclique" in texts
    assert [p.name for p in path.parent.iterdir()] == ["a.svg"]


def test_colour_deepens_with_the_mask_on_one_scale(graph, tmp_path):
    n = graph.num_nodes
    masks = np.stack([np.linspace(0, 0.5, n), np.linspace(0, 1, n)], axis=1)
    marks, _, _ = _read(draw_masks(graph, masks, tmp_path / "a.svg"))

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
