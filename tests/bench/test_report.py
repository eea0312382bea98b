"""The tables of docs/speed.md and the figures of the README are those of the result files."""

import json
from pathlib import Path
from statistics import geometric_mean

from softmask.bench.report import HEAD, render, short

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "results" / "bench"


def test_every_row_of_the_docs_is_a_record_and_every_record_is_a_row():
    records = [*BENCH.glob("fleet-*.json"), *BENCH.glob("bf16/fleet-*.json")]
    text = (ROOT / "docs" / "speed.md").read_text()
    after = text[text.index("## Measured") : text.index("## What is aimed at")]
    shown = [line for line in after.splitlines() if line.startswith("|") and line not in HEAD.splitlines()]
    assert sorted(shown) == sorted(render([path]).splitlines()[-1] for path in records)


def test_the_page_on_many_machines_quotes_its_benchmark():
    found = json.loads((BENCH / "many_machines.json").read_text())
    page = (ROOT / "docs" / "many-machines.md").read_text()
    study = " s | ".join(f"{found['study']['seconds'][way]:.1f}" for way in ("one process", "two processes", "ray"))
    assert f"MUTAG | {study} s |" in page
    for name, row in found["one_model"].items():
        one, two = (row["seconds_per_epoch"][n] for n in "12")
        assert f"{name}, d = {row['hidden']} | {one:.2f} s | {two:.2f} s |" in page
    grown = json.loads((BENCH / "growth-cpu.json").read_text())["nodes"]
    seconds, r2 = grown["points"][-1]["ms_per_step"] / 1000, grown["lines"]["ms_per_step"]["r2"]
    speed = (ROOT / "docs" / "speed.md").read_text()
    assert f"takes {seconds:.1f} s (R² of time {r2:.2f})" in speed
    grown = json.loads((BENCH / "growth-nvidia-h200.json").read_text())
    (node_ms, r2), (model_ms, _) = (
        (grown[by]["points"][-1]["ms_per_step"], grown[by]["lines"]["ms_per_step"]["r2"])
        for by in ("nodes", "replicas")
    )
    assert f"takes {node_ms:.1f} ms (R² of time {r2:.3f}), and one of 200 models {model_ms:.1f} ms" in speed


def test_the_page_on_fleets_quotes_the_count_of_merged_nodes():
    page = (ROOT / "docs" / "fleet.md").read_text()
    for name, row in json.loads((BENCH / "merged_nodes.json").read_text())["sets"].items():
        share = row["classes"] / row["nodes"]
        assert (f"{name} {100 * share:.0f} %" in page) == (share <= 0.8)
        assert f"{100 * row['products']:.0f} % on {name}" in page
        if name == "COLLAB":
            assert f"left with {100 * row['entries'] / row['edges']:.0f} % of its edges there" in page


def test_the_page_quotes_aims_and_profile():
    page = (ROOT / "docs" / "speed.md").read_text()

    def of(name):
        found = json.loads((BENCH / f"fleet-nvidia-h200-{name}.json").read_text())
        return found["ratio"], found["fleet"]["step_over_floor"]

    small = [of(name)[0] for name in ("MUTAG", "PROTEINS", "NCI1", "ENZYMES", "IMDB-BINARY", "IMDB-MULTI")]
    reddit = [of(name) for name in ("REDDIT-BINARY", "REDDIT-MULTI-5K", "REDDIT-MULTI-12K")]
    assert f"| {min(small):.0f} to {max(small):.0f}, geometric mean {geometric_mean(small):.0f} |" in page
    assert f"| **{of('PROTEINS')[1]:.1f}, {of('NCI1')[1]:.1f}** |" in page
    assert f"| MUTAG, 100 models | 150 | {of('MUTAG-runs10')[0]:.0f} | | |" in page
    assert f"| COLLAB | 40 | {of('COLLAB')[0]:.0f} | 3 | **{of('COLLAB')[1]:.1f}** |" in page
    ratios, floors = zip(*reddit)
    shown = ", ".join(f"{floor:.1f}" for floor in floors)
    assert f"| the three REDDIT sets | 12 | {min(ratios):.0f} to {max(ratios):.0f} | 2.5 | {shown} |" in page
    for name, aim in (("MUTAG", 3), ("PROTEINS", 1.5)):
        found = json.loads((BENCH / f"fleet-cpu-{name}.json").read_text())
        ratio, share = f"{found['ratio']:.1f}", found["fleet"]["share_of_matrix_rate"]
        ratio = ratio if found["ratio"] >= aim else f"**{ratio}**"
        multiplied = 100 * share * found["fleet"]["nodes_computed"] / found["nodes"]
        done = f"{multiplied:.0f} %" if multiplied >= 60 else f"**{multiplied:.0f} %**"
        assert f"| {name} | {aim} | {ratio} | 60 % | {100 * share:.0f} % | {done} |" in page
    for name, found in json.loads((BENCH / "profile-nvidia-h200.json").read_text())["sets"].items():
        row = next(line for line in page.splitlines() if line.startswith(f"| {name} |") and " ms, " in line)
        told = sorted(f"{kind['us'] / 1000:.2f} ms, {kind['kernels']:.0f}" for kind in found["kinds"].values())
        assert sorted(cell.strip() for cell in row.split("|")[2:-1]) == told


def test_the_page_quotes_the_padding():
    page = (ROOT / "docs" / "speed.md").read_text()
    records = [json.loads(path.read_text()) for path in BENCH.glob("fleet-nvidia-h200-*.json")]
    train, test = ([100 * r["fleet"][part] for r in records] for part in ("padding", "test_padding"))
    assert f"it is {min(train):.0f} to {max(train):.0f} % in the training" in page
    assert f"and {min(test):.0f} to **{max(test):.0f} %** in the test" in page
    above = {r["name"]: f"{r['name']} ({p:.0f} %)" for r, p in zip(records, test) if p > 10}
    assert set(above) == {"PROTEINS", "IMDB-MULTI"}
    assert f"above 10 % are {above['PROTEINS']} and {above['IMDB-MULTI']}" in page


def test_the_readme_quotes_them():
    def record(name):
        return json.loads((BENCH / f"fleet-{name}.json").read_text())

    readme = (ROOT / "README.md").read_text()
    study = json.loads((ROOT / "results" / "studies" / "PROTEINS-smg-both-10-runs" / "result.json").read_text())
    paper, fair = (100 * study["figures"][name]["mean"] for name in ("paper", "fair"))
    assert f"it is {100 * study['gap']:.2f} percentage points: {paper:.2f} % against {fair:.2f} %" in readme
    machines = (ROOT / "docs" / "many-machines.md").read_text()
    assert f"trains {study['models']} models for 200 epochs in {study['device_s']:.0f} s" in machines
    for name, figure in (
        ("nvidia-h200-PROTEINS", "{fleet:.1f} ms, {ratio:.1f} times less"),
        ("nvidia-h200-NCI1", "{ratio:.1f} times less on NCI1"),
        ("nvidia-h200-COLLAB", "{ratio:.1f} on COLLAB"),
        ("nvidia-h200-REDDIT-BINARY", "{ratio:.1f} on REDDIT-BINARY"),
        ("cpu-MUTAG", "{ratio:.1f} times on MUTAG"),
        ("cpu-PROTEINS", "{ratio:.1f} times on PROTEINS"),
    ):
        found = record(name)
        assert figure.format(ratio=found["ratio"], fleet=found["fleet"]["ms_per_epoch"]) in readme


def test_times_are_never_powers_of_ten():
    assert [short(ms) for ms in (0.831, 33.3, 406.9, 10308.4)] == ["0.83", "33.3", "407", "10,308"]
