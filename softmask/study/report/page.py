"""A study as one HTML page that needs nothing else: no network, no script library, no font."""

import base64
import hashlib
from importlib.resources import files
from typing import Any

from softmask.study.record import Record
from softmask.study.report import facts, wording
from softmask.study.report.panels import Panel, learning_panels, strip_panels
from softmask.study.report.ranking import rank_settings, times_chosen
from softmask.study.report.settings_words import in_words, settings_apart, show
from softmask.study.report.svg import element, text
from softmask.study.report.unit import unit_of

SHOWN = 30  # settings of a tuning that are shown at once; the others are behind a click


def html_report(record: Record) -> str:
    """The report of a study, finished or not, as one self-contained page."""
    style, script = (files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    name = wording.title(record)
    # Should a name ever slip through unescaped, the browser still runs this script only, and fetches nothing.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        element("title", text(f"{name}: {record.question['protocol']} study")),
        f"<style>{style}</style>",
    ]
    body = [
        element("header", element("h1", text(name)), element("p", _sentence(wording.answer(record)), class_="answer")),
        element("main", _cards(record), _gap(record), _troubles(record), *_sections(record)),
        f"<script>{script}</script>",
    ]
    return f'<!doctype html>\n<html lang="en">\n<head>{"".join(head)}</head>\n<body>{"".join(body)}</body>\n</html>\n'


def _sections(record: Record) -> list[str]:
    learning, strips = learning_panels(record), strip_panels(record)
    again = facts.command(record)
    return [
        _section("Fold by fold", _strips(strips), *_fold_tables(record)) if strips else "",
        _section("Settings, ranked by validation", *_ranking(record)) if rank_settings(record) else "",
        _section("Learning curves", *(_curves(panel) for panel in learning)) if learning else "",
        _section("Settings", *_settings(record)),
        _section(
            "Study and environment",
            element(
                "div",
                _facts(facts.study_rows(record), "Study"),
                _facts(facts.provenance_rows(record), "Environment"),
                class_="facts",
            ),
        ),
        _section("Splits", element("div", _facts(facts.splits_rows(record)), class_="facts")) if record.splits else "",
        _section(
            "How to get it again",
            element("pre", element("code", text(again))),
            element("p", text("With the same data (compare the hash above), versions and seed."), class_="soft"),
        )
        if again
        else "",
    ]


def _section(heading: str, *inside: str) -> str:
    return element("section", element("h2", text(heading)), *inside)


def _cards(record: Record) -> str:
    unit, figures = unit_of(record), wording.figures_of(record)
    cards = []
    for name, figure in figures.items():
        cards.append(
            _card(
                f"{wording.name_of(name)}, {unit.metric}",
                unit.quantity(figure["mean"]),
                wording.plus_minus(figure, unit),
                element("span", text(wording.how(figure)), class_=f"badge {name}"),
                wording.spread_note(figure),
            )
        )
    for best in (r for r in rank_settings(record) if r.chosen):
        badge = element("span", text("chosen on validation parts"), class_="badge")
        score = f"validation {unit.metric} {unit.quantity(best.mean)}"
        cards.append(
            _card("Chosen setting", f"number {best.setting + 1}", score, badge, in_words(record, best.setting))
        )
    graphs = record.question.get("graphs")
    size = f"on {graphs:,} graphs" if isinstance(graphs, int) else ""
    cards.append(
        _card("Trained", f"{wording.models(record):,}", "models", "", f"{size}; {wording.times(record)}".lstrip("; "))
    )
    return element("div", *cards, class_="cards")


def _card(name: str, number: str, small: str, badge: str, note: str) -> str:
    big = element("b", text(number), " ", element("span", text(small)))
    return element(
        "div",
        element("div", text(name), class_="name"),
        big,
        badge,
        element("p", text(note), class_="soft"),
        class_="card",
    )


def _sentence(words: str) -> str:
    """Text in which no number is parted from its unit at the end of a line."""
    return (
        text(words).replace(" %", "&nbsp;%").replace(" \N{MULTIPLICATION SIGN} ", "&nbsp;\N{MULTIPLICATION SIGN}&nbsp;")
    )


def _gap(record: Record) -> str:
    said = wording.gap(record)
    return element("p", _sentence(said), class_="gap") if said else ""


def _troubles(record: Record) -> str:
    troubles = wording.troubles(record)
    if not troubles:
        return ""
    items = "".join(element("li", text(trouble)) for trouble in troubles)
    return element("div", element("strong", text("Troubles")), f"<ul>{items}</ul>", class_="notice")


def _strips(panels: list[Panel]) -> str:
    figures = [
        element("figure", element("h3", text(p.name)), *p.charts, element("figcaption", text(p.caption)))
        for p in panels
    ]
    return element("div", *figures, class_="pair")


def _curves(panel: Panel) -> str:
    hint = element("p", "", class_="readout", aria_hidden="true")
    charts = [element("div", chart, hint) for chart in panel.charts]
    pair = element("div", *charts, class_="pair")
    return element("figure", element("h3", text(panel.name)), pair, element("figcaption", text(panel.caption)))


def _fold_tables(record: Record) -> list[str]:
    unit, tables = unit_of(record), []
    for name, figure in wording.figures_of(record).items():
        epochs = bool(wording.chosen_epochs(figure))
        width = max((len(row) for row in figure["scores"]), default=0)
        # The summary comes first: on a phone the folds are off the screen.
        head = ["run", "mean", "std", *(["epoch"] if epochs else []), *(f"fold {k + 1}" for k in range(width))]
        rows = []
        for number, (scores, run) in enumerate(zip(figure["scores"], figure["runs"]), 1):
            epoch = [run["epoch"]] if epochs else []
            rows.append([number, unit.number(run["mean"]), unit.number(run["std"]), *epoch, *map(unit.number, scores)])
        total = ["all", unit.number(figure["mean"]), unit.number(figure["std"]), *[""] * (width + epochs)]
        caption = f"{wording.name_of(name)} ({figure['label']}): {unit.title}"
        tables.append(_table(caption, head, rows, total))
    return tables


def _ranking(record: Record) -> list[str]:
    unit, ranked = unit_of(record), rank_settings(record)
    settings, differing = record.question["settings"], settings_apart(record)[1]
    often = times_chosen(record)
    head = ["rank", "setting", "validation", "std", "chosen", *(n.replace("_", " ") for n in differing)]
    head += ["models", "epochs"]
    rows, marked = [], []
    for rank, r in enumerate(ranked, 1):
        folds = wording.count(often[r.setting], "fold") if r.setting in often else ""
        score = [unit.number(r.mean), unit.number(r.std), "✓ yes" if r.chosen else folds]
        values = [show(settings[r.setting].get(name)) for name in differing]
        epochs = "" if wording.has_no_epochs(settings[r.setting]) else r.epochs
        rows.append([rank, r.setting + 1, *score, *values, r.models, epochs])
        marked.append(r.chosen)
    caption = (
        f"Validation {unit.title}: the mean over models of each one's best value, and their standard deviation. "
        "The test graphs play no part."
    )
    out = [_table(caption, head, rows[:SHOWN], marked=marked[:SHOWN])]
    if rest := rows[SHOWN:]:
        more = _table("The other settings, in the same order.", head, rest, marked=marked[SHOWN:])
        out.append(element("details", element("summary", text(f"{len(rest)} more settings")), more))
    return out


def _settings(record: Record) -> list[str]:
    differing = settings_apart(record)[1]
    note = "The same in all models."
    if differing:
        note += f" These differ from model to model: {', '.join(n.replace('_', ' ') for n in differing)}."
    rows = facts.settings_rows(record)
    half = (len(rows) + 1) // 2
    return [
        element("p", text(note), class_="soft"),
        element("div", _facts(rows[:half]), _facts(rows[half:]), class_="facts"),
    ]


def _facts(rows: facts.Rows, heading: str = "") -> str:
    lines = [element("tr", element("th", text(name), scope="row"), element("td", text(value))) for name, value in rows]
    title = element("h3", text(heading)) if heading else ""
    return element("div", title, element("table", element("tbody", *lines)))


def _table(
    caption: str,
    head: list[str],
    rows: list[list[Any]],
    total: list[Any] | None = None,
    marked: list[bool] | None = None,
) -> str:
    lines = []
    for k, row in enumerate(rows):
        cells = [element("th", text(row[0]), scope="row"), *(element("td", text(cell)) for cell in row[1:])]
        lines.append(element("tr", *cells, class_="chosen" if marked and marked[k] else None))
    if total:
        cells = [element("th", text(total[0]), scope="row"), *(element("td", text(cell)) for cell in total[1:])]
        lines.append(element("tr", *cells, class_="total"))
    table = element(
        "table",
        element("thead", element("tr", *(element("th", text(h), scope="col") for h in head))),
        element("tbody", *lines),
        class_="numbers",
    )
    scroll = element("div", table, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return element("p", text(caption), class_="soft caption") + scroll
