"""The HTML page of a study in a real browser: what is seen, at the width of a phone and of a desk."""

from pathlib import Path

import pytest
from chromium import IN_A_BROWSER
from study.test_report import STUDIES, synthetic_record

from softmask.study.report import html_report

pytestmark = IN_A_BROWSER

PAGES = STUDIES | {
    "as in the paper": {"protocol": "both", "runs": 10, "folds": 10, "repeats": 1, "epochs": 300},
    "a harmful name": {"protocol": "both", "data": "<script>document.title='run'</script><img src=x>" * 3},
    "with troubles": {"protocol": "paper", "troubles": ("model 3 (run 1, fold 2) diverged at epoch 7",)},
}

# Pairs of texts inside one chart whose boxes overlap by more than a hair, and texts that leave their chart.
OVERLAPS = """() => {
  const found = [];
  for (const chart of document.querySelectorAll("svg.chart")) {
    const frame = chart.getBoundingClientRect();
    const texts = [...chart.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
    for (const [words, box] of texts)
      if (box.left < frame.left - 1 || box.right > frame.right + 1
          || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        found.push(`${words} leaves its chart`);
    texts.forEach(([a, p], i) => texts.slice(i + 1).forEach(([b, q]) => {
      const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      // A box is as high as its line; letters fill some three quarters of it.
      if (wide > 0 && high > 0.25 * Math.min(p.height, q.height)) found.push(`${a} over ${b}`);
    }));
  }
  return found;
}"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("study", PAGES)
def test_the_page_is_whole(browser, tmp_path: Path, study: str, width: int) -> None:
    path = tmp_path / "report.html"
    path.write_text(html_report(synthetic_record(**PAGES[study])), encoding="utf-8")
    scheme = "dark" if width == 390 else "light"
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    messages: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    try:
        page.goto(path.as_uri())
        page.wait_for_load_state("load")
        assert messages == []
        assert requests == [path.as_uri()]
        assert page.title() != "run"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        charts = page.locator("svg.chart")
        assert charts.count() > 0
        for k in range(charts.count()):
            box = charts.nth(k).bounding_box()
            assert box is not None
            assert box["width"] > 300
            assert box["height"] > 100
            assert charts.nth(k).is_visible()
        assert page.evaluate(OVERLAPS) == []
        size = (
            "Math.min(...[...document.querySelectorAll('svg.chart text')].map(t => t.getBoundingClientRect().height))"
        )
        assert page.evaluate(size) >= 11, "the smallest text of a chart can be read"
    finally:
        page.close()


def test_pointing_at_a_curve_reads_its_values(browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    record = synthetic_record("paper", runs=1, folds=2, epochs=10)
    path.write_text(html_report(record), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    try:
        page.goto(path.as_uri())
        chart = page.locator("svg.learning").first
        chart.hover(position={"x": chart.bounding_box()["width"] * 324 / 420 - 1, "y": 90})
        test = 100 * record.metrics["test_metric"].reshape(2, 10).mean(axis=0)[9]
        said = page.locator(".readout").first.text_content()
        assert said.startswith("epoch 10: ")
        assert float(said.rsplit("test ", 1)[1]) == pytest.approx(test, abs=0.01)
    finally:
        page.close()


def test_the_page_is_whole_without_script(browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(html_report(synthetic_record("both")), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(path.as_uri())
        assert page.locator("svg.chart").count() == 6
        assert page.locator("svg.chart").last.bounding_box()["height"] > 100
    finally:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(browser, tmp_path: Path, scheme: str) -> None:
    """Contrast of at least 4.5 to 1 (WCAG 2, level AA) for all text, that of charts too."""
    path = tmp_path / "report.html"
    path.write_text(html_report(synthetic_record("both", troubles=("a model diverged",))), encoding="utf-8")
    page = browser.new_page(color_scheme=scheme)
    ask = """() => [...document.querySelectorAll("body *")]
      .filter(e => e.checkVisibility() && !["SCRIPT", "STYLE", "title"].includes(e.tagName))
      .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
      .map(e => {
        const colour = getComputedStyle(e)[e instanceof SVGElement ? "fill" : "color"];
        let behind = e;
        while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
        return [e.textContent.slice(0, 30), colour, getComputedStyle(behind).backgroundColor];
      })"""
    try:
        page.goto(path.as_uri())
        seen = page.evaluate(ask)
    finally:
        page.close()
    assert len(seen) > 100
    low = [(words, front, back) for words, front, back in seen if _contrast(front, back) < 4.5]
    assert low == []


def _contrast(front: str, back: str) -> float:
    def light(colour: str) -> float:
        parts = [int(c) / 255 for c in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((light(front), light(back)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)
