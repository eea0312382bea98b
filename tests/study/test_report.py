"""Reports of made-up studies: their numbers against numpy, and that no name in them can do harm."""

import re
import sys
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from softmask.errors import SettingError
from softmask.study.record import KEYS, VALUES, Record, read_record, write_json, write_metrics
from softmask.study.report import html_report, markdown_report, print_report, write_events
from softmask.study.report.axis import linear
from softmask.study.report.curves import mean_curve
from softmask.study.settings import Settings

PAPER_LABEL = "epoch chosen on the test folds"
FAIR_LABEL = "epoch chosen on validation parts"


def synthetic_record(
    protocol: str = "both",
    task: str = "classification",
    runs: int = 2,
    folds: int = 3,
    epochs: int = 12,
    repeats: int = 2,
    settings: int = 1,
    finished: bool = True,
    data: str = "PROTEINS",
    size: float = 0.04,
    troubles: tuple[str, ...] = (),
) -> Record:
    """A study that nobody ran: smooth curves with noise, and figures as the protocols define them."""
    classes = task == "classification"
    random = np.random.default_rng(7)
    grid = [Settings(variant="smg", epochs=epochs, hidden=h, lr=lr) for h in (64, 32, 128) for lr in (1e-3, 5e-4, 5e-3)]
    rows: dict[str, list] = {name: [] for name in (*KEYS, *VALUES)}

    def model(role: str, setting: int, run: int, fold: int, repeat: int) -> dict[str, np.ndarray]:
        t = np.arange(1, epochs + 1) / epochs
        shift = 0.03 * random.normal() - 0.02 * setting
        ends = {"train": 0.9, "validation": 0.74 + shift, "test": 0.75 + shift}
        curve = {}
        for part, end in ends.items():
            rise = 0.5 + (end - 0.5) * (1 - np.exp(-5 * t)) - (part != "train") * 0.04 * t**2
            noisy = rise + 0.012 * random.normal(size=epochs)
            curve[f"{part}_metric"] = noisy if classes else size * (1.2 - noisy)
            curve[f"{part}_loss"] = (1.1 - noisy) * (1 + 40 * np.exp(-60 * t) * (part == "train"))
        for part, roles in (("validation", ("fair", "select")), ("test", ("fair", "paper"))):
            if role not in roles:
                curve[f"{part}_metric"], curve[f"{part}_loss"] = np.full((2, epochs), np.nan)
        rows["epoch"] += range(1, epochs + 1)
        for name, value in zip(KEYS, (role, setting, run, fold, repeat, 1000 * run + fold)):
            rows[name] += [value] * epochs
        for name in VALUES:
            rows[name] += list(curve[name])
        return curve

    best, arg = (np.max, np.argmax) if classes else (np.min, np.argmin)
    figures = {}
    if protocol in ("paper", "both"):
        curves = np.array([[model("paper", 0, r, f, 0)["test_metric"] for f in range(folds)] for r in range(runs)])
        at = arg(curves.mean(axis=1), axis=1)
        figures["paper"] = _figure(PAPER_LABEL, np.stack([curves[r, :, at[r]] for r in range(runs)]), at + 1)
    if protocol in ("fair", "both"):
        scores = np.zeros((runs, folds))
        for r, f in np.ndindex(runs, folds):
            trained = [model("fair", 0, r, f, k) for k in range(repeats)]
            scores[r, f] = np.mean([c["test_metric"][arg(c["validation_metric"])] for c in trained])
        figures["fair"] = _figure(FAIR_LABEL, scores, [None] * runs)
    if protocol == "tune":
        for setting, r, f in np.ndindex(settings, runs, folds):
            best(model("select", (setting + 1) % settings, r, f, 0)["validation_metric"])
    graphs = 1113
    ids = [random.permutation(graphs) for _ in range(runs)]
    question = {
        "data": data,
        "data_hash": "9f2c51d07be3a4f8",
        "task": task,
        "metric": "accuracy" if classes else "mean absolute error",
        "protocol": protocol,
        "runs": runs,
        "folds": folds,
        "repeats": repeats,
        "seed": 0,
        "settings": [s.to_json() for s in grid[:settings]],
        "graphs": graphs,
        "provenance": {
            "command": f"softmask evaluate {data} --variant smg --protocol {protocol} --runs {runs}",
            "date": "2026-01-31T12:00:00Z",
            "commit": "0123456789abcdef0123456789abcdef01234567",
            "dirty": False,
            "versions": {"python": "3.11.9", "softmask": "0.1.0", "torch": "2.13.0", "triton": None},
            "device": "cpu",
            "cpus": 2,
            "system": "Linux x86_64",
        },
    }
    gap = figures["paper"]["mean"] - figures["fair"]["mean"] if len(figures) == 2 else None
    result = {"figures": figures, "gap": gap, "troubles": list(troubles), "wall_s": 112.4, "device_s": 98.0}
    return Record(
        folder=Path("studies/made-up"),
        question=question,
        splits=[{"seed": r, "test": [part.tolist() for part in np.array_split(i, folds)]} for r, i in enumerate(ids)],
        metrics={
            name: np.array(column, dtype=object if name == "role" else None) if column else np.zeros(0)
            for name, column in rows.items()
        },
        jobs={"job-0": {"replicas": runs * folds, "wall_s": 98.0, "device": "cpu", "troubles": []}},
        result=result if finished else None,
    )


def _figure(label: str, scores: np.ndarray, epochs) -> dict:
    by_run = [
        {"mean": float(row.mean()), "std": float(row.std()), "epoch": None if e is None else int(e)}
        for row, e in zip(scores, epochs)
    ]
    deviation = float(scores.std(axis=1).mean())
    return {"label": label, "mean": float(scores.mean()), "std": deviation, "runs": by_run, "scores": scores.tolist()}


def printed(record: Record, width: int = 100) -> str:
    console = Console(file=StringIO(), width=width)
    print_report(record, console)
    return console.file.getvalue()


class Page(HTMLParser):
    """What a browser would see of a page: elements, their attributes, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


STUDIES = {
    "paper": {"protocol": "paper"},
    "fair": {"protocol": "fair"},
    "both": {"protocol": "both"},
    "regression": {"protocol": "both", "task": "regression"},
    "hartree": {"protocol": "both", "task": "regression", "size": 0.004},
    "tune": {"protocol": "tune", "settings": 4},
    "tune errors": {"protocol": "tune", "settings": 4, "task": "regression"},
    "unfinished": {"protocol": "both", "finished": False},
    "one epoch": {"protocol": "both", "epochs": 1, "runs": 1},
    "one fold": {"protocol": "fair", "folds": 1, "runs": 1, "repeats": 1},
}


@pytest.fixture(params=STUDIES, scope="module")
def record(request: pytest.FixtureRequest) -> Record:
    return synthetic_record(**STUDIES[request.param])


def written(record: Record, value: float, four: float) -> str:
    """A value as a reader expects it: percent with one digit, or errors with four significant ones of `four`."""
    if record.classes:
        return f"{100 * value:.1f}"
    if four < 0.1:
        value, four = 1000 * value, 1000 * four
    return f"{value:.{3 - int(np.floor(np.log10(four)))}f}"


def test_the_numbers_are_those_of_numpy(record: Record) -> None:
    reports = [printed(record, 200), markdown_report(record), Page(html_report(record)).text]
    figures = (record.result or {}).get("figures", {})
    four = min((np.mean(f["scores"]) for f in figures.values()), default=1)
    for figure in figures.values():
        scores = np.array(figure["scores"])
        numbers = [*scores.ravel(), scores.mean(), np.std(scores, axis=1).mean(), *scores.mean(axis=1)]
        for report in reports:
            for number in numbers:
                assert re.search(rf"(?<![\d.]){re.escape(written(record, number, four))}(?![\d])", report)


def test_the_label_stands_beside_every_figure() -> None:
    record = synthetic_record("both")
    for report in (printed(record), markdown_report(record), Page(html_report(record)).text):
        assert PAPER_LABEL in report
        assert FAIR_LABEL in report
    paper = synthetic_record("paper")
    mean = f"{100 * np.mean(paper.result['figures']['paper']['scores']):.1f}"
    assert re.search(rf"^paper: {mean} % ± [\d.]+ \({PAPER_LABEL}\)$", printed(paper), re.MULTILINE)
    assert re.search(rf"^Paper protocol: accuracy, %, by fold \({PAPER_LABEL}\)", printed(paper), re.MULTILINE)
    assert re.search(rf"^\| paper \| {mean} \| [\d.]+ \| {PAPER_LABEL} \|$", markdown_report(paper), re.MULTILINE)
    page = html_report(paper)
    assert page.index(PAPER_LABEL) < page.index("<main>"), "the answer in the header carries the label"
    assert re.search(rf'<b>{mean} % <span>[^<]*</span></b><span class="badge paper">{PAPER_LABEL}', page)


def test_the_epochs_of_the_paper_protocol_are_told() -> None:
    record = synthetic_record("paper", epochs=40)
    table = record.metrics
    for run in range(2):
        rows = table["run"] == run
        curves = table["test_metric"][rows].reshape(3, 40)
        epoch = int(curves.mean(axis=0).argmax()) + 1
        assert re.search(rf"^\s*{run + 1} .* {epoch}\s*$", printed(record), re.MULTILINE)
        assert re.search(rf"^\| {run + 1} \|.*\| {epoch} \|$", markdown_report(record), re.MULTILINE)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_gap_has_the_sign_of_optimism(task: str) -> None:
    record = synthetic_record("both", task)
    paper, fair = (np.mean(record.result["figures"][name]["scores"]) for name in ("paper", "fair"))
    better = 100 * (paper - fair) if task == "classification" else fair - paper
    assert better > 0, "the made-up study shows the usual optimism"
    number = (
        f"{better:.1f} percentage points"
        if task == "classification"
        else f"{1000 * better:.2f} \N{MULTIPLICATION SIGN} 10⁻³"
    )
    for report in (printed(record), markdown_report(record), Page(html_report(record)).text):
        assert f"looks {number} better" in " ".join(report.split())
    turned = dict(record.result, figures={"paper": record.result["figures"]["fair"] | {"label": PAPER_LABEL}})
    turned["figures"]["fair"] = record.result["figures"]["paper"] | {"label": FAIR_LABEL}
    other = Record(**{**vars(record), "result": turned})
    assert "Optimism gap: none here" in printed(other)
    assert "Optimism gap" not in printed(synthetic_record("paper"))


def test_ten_runs_of_ten_folds_fit_in_a_hundred_columns() -> None:
    for task in ("classification", "regression"):
        record = synthetic_record("both", task, runs=10, folds=10, repeats=1, size=0.4)
        report = printed(record, 100)
        assert max(map(len, report.splitlines())) <= 100
        assert "…" not in report
        scores = np.array(record.result["figures"]["paper"]["scores"])
        last = " +".join(written(record, s, scores.mean()) for s in scores[9])
        assert re.search(rf"^ *10 +{last} ", report, re.MULTILINE)
    narrow = printed(record, 60)
    assert "median" in narrow
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 60


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_settings_are_ranked_by_validation(task: str) -> None:
    record = synthetic_record("tune", task, settings=5)
    pick = max if task == "classification" else min
    scores = {}
    for setting in range(5):
        rows = record.metrics["setting"] == setting
        models = record.metrics["validation_metric"][rows].reshape(6, 12)
        scores[setting] = float(np.mean([pick(m) for m in models]))
    order = sorted(scores, key=scores.get, reverse=task == "classification")
    table = re.findall(r"^\| (\d+) \| (\d+) \|.*\| (\w*) *\|$", markdown_report(record), re.MULTILINE)
    assert [(int(rank), int(setting) - 1) for rank, setting, _ in table] == list(enumerate(order, 1))
    assert [chosen for *_, chosen in table] == ["yes", "", "", "", ""]
    page = html_report(record)
    assert page.count('<tr class="chosen">') == 1
    assert f'<tr class="chosen"><th scope="row">1</th><td>{order[0] + 1}</td>' in page
    assert f"number {order[0] + 1} of 5 settings (" in " ".join(printed(record).split())
    told = Record(**{**vars(record), "result": record.result | {"chosen": order[2]}})
    assert f'<tr class="chosen"><th scope="row">3</th><td>{order[2] + 1}</td>' in html_report(told)


def test_the_mean_curve_and_its_band() -> None:
    record = synthetic_record("both", runs=3, folds=4, epochs=9)
    order = np.random.default_rng(0).permutation(len(record.metrics["epoch"]))
    shuffled = Record(**{**vars(record), "metrics": {n: c[order] for n, c in record.metrics.items()}})
    curve = mean_curve(shuffled, "test_metric", role="fair")
    fair = record.metrics["role"] == "fair"
    cube = record.metrics["test_metric"][fair].reshape(3, 4, 2, 9).mean(axis=2)
    np.testing.assert_allclose(curve.mean, cube.mean(axis=(0, 1)))
    np.testing.assert_allclose(curve.std, cube.std(axis=1).mean(axis=0))
    assert mean_curve(record, "validation_metric", role="paper") is None


def test_models_that_stopped_early_or_diverged() -> None:
    record = synthetic_record("fair", runs=1, folds=3, repeats=1, epochs=10)
    gone = (record.metrics["fold"] == 2) & (record.metrics["epoch"] > 6)
    metrics = {name: column[~gone].copy() for name, column in record.metrics.items()}
    metrics["train_loss"][5] = np.inf
    metrics["test_metric"][5] = np.nan
    short = Record(**{**vars(record), "metrics": metrics})
    curve = mean_curve(short, "test_metric", role="fair")
    by_fold = record.metrics["test_metric"].reshape(3, 10)
    np.testing.assert_allclose(curve.mean[6:], by_fold[:2, 6:].mean(axis=0))
    np.testing.assert_allclose(curve.mean[5], by_fold[1:, 5].mean())
    page = html_report(short)
    assert "After epoch 6 fewer models train" in page
    assert "nan" not in page.replace("nanum", "").lower().split("<style>")[0] + page.split("</style>")[1].lower()


def test_an_unfinished_study_says_so() -> None:
    record = synthetic_record("both", finished=False)
    for report in (printed(record), markdown_report(record), Page(html_report(record)).text):
        assert "not finished: 18 models recorded in 1 finished job" in " ".join(report.split())
    assert "learning" in html_report(record), "its curves so far are drawn"


def test_a_study_that_has_just_begun(tmp_path: Path) -> None:
    write_json(tmp_path / "study.json", synthetic_record().question)
    record = read_record(tmp_path)
    for report in (printed(record), markdown_report(record), Page(html_report(record)).text):
        assert "0 models recorded in 0 finished jobs" in " ".join(report.split())


def test_a_study_read_from_its_folder_reads_the_same(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    made = synthetic_record("both")
    (tmp_path / "jobs" / "job-0").mkdir(parents=True)
    write_json(tmp_path / "study.json", made.question)
    write_json(tmp_path / "splits.json", made.splits)
    write_json(tmp_path / "result.json", made.result)
    write_metrics(tmp_path / "jobs" / "job-0" / "metrics.parquet", made.metrics)
    write_json(tmp_path / "jobs" / "job-0" / "done.json", made.jobs["job-0"])
    assert html_report(read_record(tmp_path)) == html_report(made)


def test_a_name_cannot_do_harm() -> None:
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> [red]|`a`"
    record = synthetic_record("both", data=evil, troubles=(f"model 3 of {evil} diverged",))
    page = Page(html_report(record))
    assert [tag for tag, _ in page.elements].count("script") == 1, "the page's own"
    assert not any(tag == "img" or any(key.startswith("on") for key in attrs) for tag, attrs in page.elements)
    assert evil in page.text
    assert evil.split("[")[0][:20] in printed(record)
    assert "[red]" in printed(record)
    markdown = markdown_report(record).split("## How to get it again")[0]
    assert "<script" not in markdown
    assert "<img" not in markdown
    columns = {line.count(" | ") for line in markdown.split("## Study")[1].splitlines() if line.startswith("| ")}
    assert len(columns) <= 2, "a bar in a name makes no column"


def test_the_page_needs_nothing_else(record: Record) -> None:
    html = html_report(record)
    assert "://" not in html
    for tag, attrs in Page(html).elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form", "use", "image")
        assert not {"src", "href", "srcset", "xlink:href", "action"} & set(attrs)
    assert "@import" not in html
    assert "url(" not in html


def test_every_chart_has_a_title_and_only_numbers(record: Record) -> None:
    html = html_report(record)
    charts = re.findall(r'<svg [^>]*class="chart.*?</svg>', html, re.DOTALL)
    assert charts
    for chart in charts:
        assert re.match(r'<svg [^>]*role="img" aria-label="[^"]{10,}"[^>]*><title>[^<]{10,}</title>', chart)
        assert not re.search(r"\b(nan|inf|None)\b", chart)


def scale(chart: str, along: str) -> tuple[float, float]:
    """From places in a chart back to values, by two of its tick labels: value = slope * place + shift."""
    anchor = "middle" if along == "x" else "end"
    ticks = re.findall(rf'<text x="([\d.]+)" y="([\d.]+)" text-anchor="{anchor}" class="tick">([\d.]+)</text>', chart)
    places = [float(tick[0]) if along == "x" else float(tick[1]) - 4 for tick in ticks]
    slope, shift = np.polyfit(places, [float(tick[2]) for tick in ticks], 1)
    return float(slope), float(shift)


def test_dots_and_lines_lie_where_the_numbers_are() -> None:
    record = synthetic_record("both", runs=2, folds=3, repeats=2, epochs=30)
    html = html_report(record)
    strips = re.findall(r'<svg [^>]*class="chart strip.*?</svg>', html, re.DOTALL)
    for chart, name in zip(strips, ("fair", "paper"), strict=True):
        slope, shift = scale(chart, "x")
        dots = re.findall(r'<circle cx="([\d.]+)"[^>]*class="fold"><title>run (\d), fold (\d):', chart)
        read = {(int(run) - 1, int(fold) - 1): slope * float(x) + shift for x, run, fold in dots}
        scores = np.array(record.result["figures"][name]["scores"])
        assert read == pytest.approx({place: 100 * scores[place] for place in np.ndindex(2, 3)}, abs=0.05)
    chart = re.findall(r'<svg [^>]*class="chart learning.*?</svg>', html, re.DOTALL)[0]
    (along, first), (up, top) = scale(chart, "x"), scale(chart, "y")
    fair = record.metrics["role"] == "fair"
    for part in ("train", "validation", "test"):
        path = re.search(rf'<path d="M([^"]*)" class="line {part}">', chart)[1]
        drawn = np.array(path.split(), dtype=float).reshape(-1, 2)
        np.testing.assert_allclose(along * drawn[:, 0] + first, np.arange(1, 31), atol=0.05)
        mean = record.metrics[f"{part}_metric"][fair].reshape(-1, 30).mean(axis=0)
        np.testing.assert_allclose(up * drawn[:, 1] + top, 100 * mean, atol=0.1)
    best = np.sort(record.metrics["validation_metric"][fair].reshape(-1, 30).argmax(axis=1)) + 1
    assert f">epoch {best[len(best) // 2]} (median), best on validation<" in chart
    mark = float(re.search(r'<line x1="([\d.]+)"[^>]*class="mark">', chart)[1])
    assert along * mark + first == pytest.approx(best[len(best) // 2], abs=0.1)


def test_a_long_study_stays_a_small_page() -> None:
    record = synthetic_record("both", runs=10, folds=10, repeats=1, epochs=1700)
    page = html_report(record)
    assert len(page.encode()) < 1_000_000
    assert "of 1,700 epochs" in page
    tune = synthetic_record("tune", runs=1, folds=1, settings=9, epochs=1700)
    many = tune.question | {"settings": tune.question["settings"] * 40}
    metrics = {name: np.concatenate([column] * 40) for name, column in tune.metrics.items()}
    metrics["setting"] = metrics["setting"] + 9 * np.repeat(np.arange(40), len(tune.metrics["setting"]))
    assert len(html_report(Record(**{**vars(tune), "question": many, "metrics": metrics})).encode()) < 1_000_000


def test_ticks_are_round() -> None:
    for low, high in ((0.613, 0.874), (61.3, 87.4), (0, 1700), (0.00071, 0.0093), (5, 5)):
        axis = linear(low, high)
        assert axis.low <= low
        assert axis.high >= high
        assert 2 <= len(axis.ticks) <= 9
        steps = np.diff(axis.ticks)
        np.testing.assert_allclose(steps, steps[0])
        mantissa = steps[0] / 10 ** np.floor(np.log10(steps[0]) + 1e-9)
        assert min(abs(mantissa - m) for m in (1, 2, 5)) < 1e-6
        assert [float(axis.tick_label(t).replace(",", "")) for t in axis.ticks] == pytest.approx(axis.ticks)


def test_tensorboard_reads_the_events_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra softmask[tensorboard] is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    record = synthetic_record("both", runs=2, folds=2, repeats=2, epochs=5)
    write_events(record, tmp_path / "events")
    write_events(record, tmp_path / "events")  # again: replaced, not doubled
    model = record.metrics
    rows = (model["role"] == "fair") & (model["run"] == 1) & (model["fold"] == 0) & (model["repeat"] == 1)
    events = EventAccumulator(str(tmp_path / "events/fair/setting-1/run-2-fold-1-repeat-2")).Reload()
    tags = {f"{what}/{part}" for what in ("loss", "metric") for part in ("train", "validation", "test")}
    assert set(events.Tags()["scalars"]) == tags
    read = events.Scalars("metric/test")
    assert [e.step for e in read] == [1, 2, 3, 4, 5]
    np.testing.assert_allclose([e.value for e in read], model["test_metric"][rows], rtol=1e-6)
    paper = EventAccumulator(str(tmp_path / "events/paper/setting-1/mean")).Reload()
    assert set(paper.Tags()["scalars"]) == {t for t in tags if "validation" not in t}
    mean = model["test_metric"][model["role"] == "paper"].reshape(4, 5).mean(axis=0)
    np.testing.assert_allclose([e.value for e in paper.Scalars("metric/test")], mean, rtol=1e-6)
    assert len(list((tmp_path / "events").rglob("*tfevents*"))) == 4 + 8 + 2


def test_without_tensorboard_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(SettingError, match=r"pip install 'softmask\[tensorboard\]'"):
        write_events(synthetic_record(), tmp_path)


def test_a_fold_without_a_number() -> None:
    record = synthetic_record("both", runs=1)
    figures = record.result["figures"]
    for hole in (np.nan, None):
        broken = figures["fair"] | {"mean": hole, "std": hole, "scores": [[0.7, hole, 0.8]]}
        broken["runs"] = [{"mean": hole, "std": hole, "epoch": None}]
        other = Record(**{**vars(record), "result": record.result | {"figures": {**figures, "fair": broken}}})
        for report in (printed(other), markdown_report(other), Page(html_report(other)).text):
            said = " ".join(report.split())
            assert "has no figure, as a fold gave no number (fair: epoch chosen on validation parts)" in said
            assert "The optimism gap cannot be given" in said
            assert not re.search(r"\b(nan|None)\b", said)


@pytest.mark.parametrize("lost", [1, 3])
def test_folds_that_diverged_are_said_beside_the_figure(lost: int) -> None:
    """An output that is no number counts as wrong: in a fold that diverged, 0 %."""
    record = synthetic_record("both", runs=1)
    scores = np.array(record.result["figures"]["fair"]["scores"])
    scores[:, :lost] = 0
    record.result["figures"]["fair"] = _figure(FAIR_LABEL, scores, [None]) | {"diverged": lost}
    told = f"{lost} of 3 folds" if lost < 3 else "all 3 folds"
    for report in (printed(record, 200), markdown_report(record), Page(html_report(record)).text):
        said = " ".join(report.replace("\xa0", " ").split())
        assert f"{FAIR_LABEL}; diverged in {told}" in said
        assert f"{PAPER_LABEL}; diverged" not in said
        assert "The optimism gap cannot be given: a training diverged." in said
        if lost < 3:
            assert f"; it diverged in {told}, and graphs without an output count as wrong." in said
        else:
            assert f"SMG on PROTEINS has no figure: it diverged in {told} (fair: {FAIR_LABEL})" in said
            assert "0.0 % of the graphs" not in said


def test_a_holdout() -> None:
    record = synthetic_record("fair", runs=1, folds=1, repeats=3)
    figure = record.result["figures"].pop("fair") | {"label": "epoch chosen on the validation part"}
    record.result["figures"]["holdout"] = figure
    record.splits[:] = [{"seed": 4, "train": [list(range(800))], "validation": [[801, 802]], "test": [[900]]}]
    mean = f"{100 * figure['scores'][0][0]:.1f} %"
    for report in (printed(record), markdown_report(record), Page(html_report(record)).text):
        said = " ".join(report.replace("\xa0", " ").split())
        assert f"{mean} of the graphs it was not trained on (holdout: epoch chosen on the validation part)." in said
        assert "±" not in said
    assert "train 1 fold of 800 graphs" in markdown_report(record)


def test_folds_that_choose_their_own_settings() -> None:
    tune, fair = synthetic_record("tune", settings=3), synthetic_record("fair", runs=2, folds=3, repeats=2)
    metrics = {name: np.concatenate([tune.metrics[name], fair.metrics[name]]) for name in tune.metrics}
    first = (metrics["role"] == "fair") & (metrics["run"] == 0) & (metrics["fold"] == 1)
    metrics["setting"] = np.where(first, 2, metrics["setting"])
    question = fair.question | {"settings": tune.question["settings"]}
    record = Record(**{**vars(fair), "question": question, "metrics": metrics})
    rows = re.findall(r"^\| \d \| (\d) \|.*\| ([\w ]*?) *\|$", markdown_report(record), re.MULTILINE)
    assert dict(row for row in rows if "fold" in row[1]) == {"1": "5 folds", "3": "1 fold"}
    page = html_report(record)
    assert '<tr class="chosen">' not in page
    assert "Every model has the settings that its fold chose." in page
