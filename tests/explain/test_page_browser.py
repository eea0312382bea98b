"""The page in a real browser, opened from disk: what is seen and what the controls do."""

import base64
import io
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import torch
from chromium import IN_A_BROWSER
from explain.pages import HOSTILE, explained, page_of, subject

pytestmark = IN_A_BROWSER
SVG = "{http://www.w3.org/2000/svg}"
# The colours on the screen at the middle of nodes. A copy is read, as Chromium warns of reading what it draws on.
PIXELS = """(nodes) => {
  const canvas = document.querySelector("#canvas canvas");
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.fillStyle = getComputedStyle(canvas).backgroundColor;
  copy.fillRect(0, 0, canvas.width, canvas.height);
  copy.drawImage(canvas, 0, 0);
  const at = nodes.map((v) => main.where(v));
  return at.map(({ x, y }) => [...copy.getImageData(Math.round(x), Math.round(y), 1, 1).data].slice(0, 3));
}"""


@pytest.fixture
def show(browser, tmp_path):
    """Opens a page; at the end, nothing may have been complained of or fetched."""
    opened, messages, requests = [], [], []

    def show(text: str, width: int = 1280, scheme: str = "light", wait: bool = True):
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True)
        opened.append(page)
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        if wait:
            _settle(page)
        return page

    yield show
    for page in opened:
        page.close()
    assert messages == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


def _settle(page) -> None:
    """Waits until what was asked for is on the screen."""
    # Not wait_for_function, which evaluates text in the page: its policy forbids that.
    page.evaluate(
        """async () => {
          while (state.made === null) await new Promise(requestAnimationFrame);
          for (let i = 0; i < 4; i++) await new Promise(requestAnimationFrame);
        }"""
    )


def _set(count: int = 6, nodes: int = 12) -> list:
    return [subject(explained(nodes + 3 * i, i, name=f"the {i}th"), 10 * i) for i in range(count)]


def _colour(value: float) -> np.ndarray:
    steps = ["f7fbff", "deebf7", "c6dbef", "9ecae1", "6baed6", "4292c6", "2171b5", "08519c", "08306b"]
    table = np.array([[int(s[i : i + 2], 16) for i in (0, 2, 4)] for s in steps], dtype=float)
    return np.array([np.interp(value * 8, range(9), column) for column in table.T])


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["classes", "numbers", "harmful"])
def test_the_page_is_whole(show, kind: str, scheme: str, width: int) -> None:
    graphs, options = _set(), {}
    if kind == "numbers":
        numbers = {"classes": None, "probabilities": None, "predicted": [1.5, -2e-7, 3e6], "actual": [1.0, 2.0, 3.0]}
        graphs = [subject(explained(9, i, **numbers), i) for i in range(3)]
        options = {"targets": ["mu", "gap", "a target with quite a long name to it"]}
    if kind == "harmful":
        names = {"name": HOSTILE * 3, "classes": [HOSTILE * 2, "b"], "predicted": "b", "actual": HOSTILE * 2}
        said = explained(8, **names)
        said.data.node_role = torch.arange(8) % 2
        graphs, options = [subject(said, labels=[HOSTILE] * 8)], {"roles": [HOSTILE, "motif"]}
    page = show(
        page_of(graphs, HOSTILE if kind == "harmful" else "a set", about="trained on a set", **options), width, scheme
    )
    for view in ("importance", "2", "all"):
        page.locator(f'#tabs [data-view="{"1" if view == "2" else view}"]').click()
        page.keyboard.press("]")
        page.keyboard.press("n")
        _settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#view").bounding_box()["height"] >= 300
        assert page.locator("#node .level").count() == 4
        assert page.locator("#tip").is_visible()
    page.locator("#table summary").click()
    _settle(page)
    assert page.locator("#table tbody tr").count() == graphs[0].nodes
    assert page.evaluate("window.harm") is None
    assert page.locator("script").count() == 3
    assert page.locator("img").count() == 0


def test_the_slider_takes_nodes_away_and_says_what_is_left(show) -> None:
    graphs = [subject(explained(15, 1), labels=None)]
    said = graphs[0].explanation
    page = show(page_of(graphs))
    page.locator("#threshold").fill("12")  # 12 / 20
    _settle(page)
    kept = said.subgraph(threshold=0.6)
    assert 0 < len(kept) < graphs[0].nodes
    faded = np.setdiff1d(np.arange(graphs[0].nodes), kept)
    assert np.min(page.evaluate(PIXELS, faded.tolist())) > 215, "nearly as white as the page"
    assert (
        np.abs(page.evaluate(PIXELS, kept.tolist()) - np.array([_colour(said.importance[v]) for v in kept])).max() <= 3
    )
    words = page.locator("#kept").text_content()
    assert words.startswith(f"{len(kept)} of {graphs[0].nodes} nodes left: the model says")
    fall = np.linspace(0.9, 0.1, 21)[12]  # of the second class
    assert f"{max(fall, 1 - fall):.2f}" in words
    assert page.locator("#limit").text_content() == "0.60"
    page.locator("#threshold").fill("0")
    _settle(page)
    assert page.locator("#kept").text_content() == f"All {graphs[0].nodes} nodes drawn."


def test_layers_switch_by_tab_and_key(show) -> None:
    graphs = [subject(explained(10), labels=None)]
    said = graphs[0].explanation
    page = show(page_of(graphs))

    def seen() -> np.ndarray:
        return np.array(page.evaluate(PIXELS, list(range(10))))

    assert np.abs(seen() - [_colour(m) for m in said.importance]).max() <= 3
    for k in range(3):
        page.locator(f'#tabs [data-view="{k}"]').click()
        _settle(page)
        assert np.abs(seen() - [_colour(m) for m in said.masks[:, k]]).max() <= 3
        assert page.locator('#tabs [aria-selected="true"]').text_content() == f"Layer {k + 1}"
    page.keyboard.press("1")
    _settle(page)
    assert np.abs(seen() - [_colour(m) for m in said.masks[:, 0]]).max() <= 3
    page.locator("#stretch").check()
    _settle(page)
    low, high = said.masks.min(), said.masks.max()
    assert np.abs(seen() - [_colour((m - low) / (high - low)) for m in said.masks[:, 0]]).max() <= 4
    page.keyboard.press("a")
    _settle(page)
    assert page.locator("#multiples canvas").count() == 3
    assert page.locator("#multiples > div > span").all_text_contents() == ["Layer 1", "Layer 2", "Layer 3"]
    assert page.locator("#canvas").is_hidden()
    page.locator("#multiples > div").nth(1).click()
    assert page.locator('#tabs [aria-selected="true"]').text_content() == "Layer 2"
    page.keyboard.press("ArrowRight")
    assert page.locator('#tabs [aria-selected="true"]').text_content() == "Layer 2", "only where the tabs have focus"
    page.locator('#tabs [data-view="1"]').focus()
    page.keyboard.press("ArrowRight")
    assert page.locator('#tabs [aria-selected="true"]').text_content() == "Layer 3"


def test_a_part_that_is_looked_at_stays_while_layers_and_colours_change(show) -> None:
    page = show(page_of([subject(explained(30))]))
    zoom = "main.graph.zoom()"
    whole = page.evaluate(zoom)
    page.keyboard.press("+")
    larger = page.evaluate(zoom)
    assert larger == pytest.approx(1.25 * whole)
    for key in ("2", "s", "a", "f", "+", "i"):
        page.keyboard.press(key)
        _settle(page)
    page.locator("#theme").click()
    assert page.evaluate(zoom) == pytest.approx(larger), "there is nothing to zoom where all layers are shown"
    page.keyboard.press("f")
    assert page.evaluate(zoom) == pytest.approx(whole)


def test_names_of_layers_hide_no_node(show) -> None:
    page = show(page_of([subject(explained(30))]))
    page.keyboard.press("a")
    _settle(page)
    for outer in page.locator("#multiples > div").all():
        name, drawing = outer.locator("span").bounding_box(), outer.locator("canvas").bounding_box()
        assert name["y"] + name["height"] <= drawing["y"]


def test_filters_filter_and_orders_order(show) -> None:
    graphs = _set(10)
    said = [g.explanation for g in graphs]
    page = show(page_of(graphs))

    def listed() -> list[str]:
        return page.locator("#graphs li b").all_text_contents()

    assert listed() == [s.name for s in said]
    page.locator("#class").select_option("1")
    assert listed() == [s.name for s in said if s.actual == "yes"]
    page.locator("#class").select_option("")
    page.locator("#right").select_option("0")
    assert listed() == [s.name for s in said if s.actual != s.predicted]
    assert page.locator("#count").text_content() == f"{len(listed())} of 10 graphs"
    assert page.locator("#name").text_content() == listed()[0]
    page.locator("#right").select_option("")
    page.locator("#sort").select_option("least confident")
    assert listed() == [s.name for s in sorted(said, key=lambda s: s.probabilities.max())]
    page.locator("#sort").select_option("largest")
    assert listed() == [s.name for s in sorted(said, key=lambda s: -len(s.importance))]
    page.locator("#find").fill("THE 3")
    assert listed() == ["the 3th"]
    page.locator("#find").fill("no such graph")
    assert listed() == []
    assert page.locator("#count").text_content() == "0 of 10 graphs"


def test_the_list_is_walked_with_keys(show) -> None:
    page = show(page_of(_set(4)))
    name = page.locator("#name")
    page.locator("#graphs").focus()
    page.keyboard.press("ArrowDown")
    _settle(page)
    assert name.text_content() == "the 1th"
    assert page.locator("#graphs").get_attribute("aria-activedescendant") == "item-1"
    page.keyboard.press("End")
    _settle(page)
    assert name.text_content() == "the 3th"
    page.keyboard.press("k")
    _settle(page)
    assert name.text_content() == "the 2th"
    page.locator("#find").focus()
    page.keyboard.press("j")
    assert page.locator("#find").input_value() == "j", "a letter in a field is a letter"


def test_pointing_at_a_node_reads_its_numbers(show) -> None:
    one = subject(explained(9, name="a"), 0)
    said, v = one.explanation, 4
    page = show(page_of([one]))
    box = page.locator("#canvas").bounding_box()
    at = page.evaluate("(v) => main.where(v)", v)
    for by in (30, 0):
        page.mouse.move(box["x"] + at["x"] + by, box["y"] + at["y"] + by)
        page.wait_for_timeout(100)
    page.evaluate("async () => { while (state.node === null) await new Promise(requestAnimationFrame); }")
    degree = int((said.data.edge_index[0] == v).sum())
    head = f"Node {v}, label {one.labels[v]}, {degree} neighbour{'s' if degree > 1 else ''}"
    assert page.locator("#tip strong").text_content() == head
    lines = [f"importance {said.importance[v]:.2f}", *(f"layer {k + 1} {m:.2f}" for k, m in enumerate(said.masks[v]))]
    assert page.locator("#tip div").all_text_contents() == lines
    page.mouse.move(5, 5)
    page.locator("h1").hover()
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()
    page.keyboard.press("n")
    assert page.locator("#node p").text_content().startswith(f"Node {int(np.argmax(said.importance))},")


def test_histograms_count_the_nodes(show) -> None:
    said = explained(200)
    page = show(page_of([subject(said)]))
    titles = page.locator("#histograms > div").nth(1).locator("rect title").all_text_contents()
    counts = [int(t.split()[0]) for t in titles]
    assert counts == np.histogram(np.round(said.masks[:, 1] * 65535) / 65535, bins=20, range=(0, 1))[0].tolist()


@pytest.mark.parametrize("view", ["importance", "0", "all"])
def test_the_drawing_can_be_kept(show, view: str, tmp_path: Path) -> None:
    said = explained(12, name=HOSTILE)
    one = subject(said, 17, bonds=np.array([1, 2, 3, 12] * 3)[:11])
    page = show(page_of([one]))
    page.locator(f'#tabs [data-view="{view}"]').click()
    page.locator("#threshold").fill("10")
    name = {"0": "layer-1", "all": "all-layers"}.get(view, view)
    with page.expect_download() as found:
        page.locator("#svg").click()
    assert found.value.suggested_filename == f"graph-17-{name}.svg"
    tree = ET.parse(found.value.path())
    panels = 3 if view == "all" else 1
    marks = list(tree.iter(f"{SVG}circle"))
    assert len(marks) == 12 * panels
    assert sum(m.get("opacity") is not None for m in marks) == panels * (12 - len(said.subgraph(threshold=0.5)))
    assert not list(tree.iter(f"{SVG}script"))
    words = [t.text for t in tree.iter(f"{SVG}text")]
    assert any("predicted" in (w or "") for w in words)
    assert any(w == "C" for w in words)
    with page.expect_download() as found:
        page.locator("#png").click()
    assert found.value.suggested_filename == f"graph-17-{name}.png"
    image = matplotlib.image.imread(io.BytesIO(Path(found.value.path()).read_bytes()), format="png")
    assert image.shape[1] > 1500
    # Some node that stays is as deep as its value says.
    values = said.importance if view == "importance" else said.masks[:, 0]
    deepest = max(said.subgraph(threshold=0.5), key=lambda v: values[v])
    away = np.abs(image[..., :3] * 255 - _colour(values[deepest])).max(axis=2)
    assert (away <= 3).sum() > 50


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_and_the_theme_can_be_switched(show, scheme: str) -> None:
    """Contrast of at least 4.5 to 1 (WCAG 2, level AA) for all text, in both themes."""
    page = show(page_of(_set(), about="some words"), scheme=scheme)
    ask = """() => [...document.querySelectorAll("body *")]
      .filter(e => e.checkVisibility() && !["SCRIPT", "STYLE", "OPTION", "title"].includes(e.tagName))
      .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
      .map(e => {
        const colour = getComputedStyle(e)[e instanceof SVGElement ? "fill" : "color"];
        let behind = e;
        while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
        return [e.textContent.slice(0, 30), colour, getComputedStyle(behind).backgroundColor];
      })"""
    page.keyboard.press("n")
    first = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (_light(first) < 0.1) == (scheme == "dark")
    for _ in range(2):
        seen = page.evaluate(ask)
        assert len(seen) > 50
        assert [(words, f, b) for words, f, b in seen if _contrast(f, b) < 4.5] == []
        page.locator("#theme").click()
    page.locator("#theme").click()
    _settle(page)
    assert (_light(page.evaluate("getComputedStyle(document.body).backgroundColor")) < 0.1) == (scheme == "light")
    behind = page.evaluate("getComputedStyle(document.querySelector('#canvas canvas')).backgroundColor")
    assert (_light(behind) < 0.1) == (scheme == "light"), "the drawing follows the theme"


def test_everything_can_be_reached_and_has_a_name(show) -> None:
    page = show(page_of(_set(3)))
    missing = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, [tabindex='0'], [role=img]")]
        .filter(e => e.checkVisibility())
        .filter(e => !(e.getAttribute("aria-label") || e.labels?.length || e.textContent.trim()))
        .map(e => e.outerHTML.slice(0, 80))"""
    )
    assert missing == []
    reached = set()
    for _ in range(25):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    for name in (
        "theme",
        "class",
        "right",
        "sort",
        "find",
        "graphs",
        "in",
        "svg",
        "png",
        "canvas",
        "threshold",
        "stretch",
    ):
        assert name in reached, name
    page.locator("#canvas").focus()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus can be seen"


def test_five_thousand_nodes_are_drawn_and_cut(show) -> None:
    said = explained(5000, layers=2)
    one = subject(said, labels=None)
    page = show(page_of([one]))
    page.keyboard.press("a")
    _settle(page)
    page.keyboard.press("i")
    page.locator("#threshold").fill("19")
    _settle(page)
    left = len(said.subgraph(threshold=0.95))
    assert page.locator("#kept").text_content().startswith(f"{left} of 5,000 nodes left")
    assert base64.b64decode(page.evaluate("document.querySelector('#canvas canvas').toDataURL().split(',')[1]"))


def _light(colour: str) -> float:
    parts = [int(c) / 255 for c in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(front: str, back: str) -> float:
    bright, dark = sorted((_light(front), _light(back)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_the_effects_of_atoms_are_a_view_of_their_own(show) -> None:
    said = explained(6, classes=None, probabilities=None, predicted=1.5, actual=2.0, name="CCO")
    molecule = subject(said, bonds=np.ones(5, dtype=int))
    page = show(page_of([molecule], targets=["mu (D)"], effects=[np.array([0, 0.5, -2, 1, 0, 0.25])]))
    assert page.locator("#verdict").text_content().strip() == "mu (D): predicted 1.5, actual 2"
    assert "1.5 (actual 2)" in page.locator("#graphs li").text_content()
    assert page.evaluate("state.view") == "effect", "the page opens with them"
    assert page.locator("#tabs button[aria-selected=true]").text_content() == "Effect"
    page.keyboard.press("i")
    page.keyboard.press("e")
    _settle(page)
    assert page.evaluate("Array.from(main.steps)") == [0, 64, 255, 128, 0, 32]
    assert page.locator("#scale").text_content() == "effect 02"
    assert "6 atoms, 5 bonds" in page.locator("#legend").text_content()
    page.evaluate("point(2)")
    assert "Atom 2, " in page.locator("#node").text_content()
    assert "without it-2" in page.locator("#node").text_content()
    page.evaluate("point(1)")
    assert "without it+0.5" in page.locator("#node").text_content()


def test_pages_without_effects_have_no_such_view(show) -> None:
    page = show(page_of(_set(1)))
    page.keyboard.press("e")
    assert page.locator("#tabs button").all_text_contents()[:2] == ["Importance", "Layer 1"]
    assert page.evaluate("state.view") == "importance"
