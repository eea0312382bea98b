"""A set read from beginning to end, past the cache, and what is wrong with it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from softmask.data.catalog import KNOWN, find, is_synthetic, open_data
from softmask.data.files import load_store
from softmask.data.molecules import SUFFIX, load_molecules
from softmask.data.statistics import differences, remarks
from softmask.data.tu import read_tu
from softmask.errors import DataError


@dataclass
class Report:
    """What :func:`check_data` found.

    Args:
        data: the set as it was given.
        problems: what is wrong; empty if the set is fine.
        remarks: what is allowed but may surprise.
        summary: the set in a line.
        known: whether the catalog knows the set, so that its counts could be compared.
    """

    data: str
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    summary: str = ""
    known: bool = False

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"ok": not self.problems, **vars(self)}


def check_data(data: str | Path, data_dir: Path | None = None) -> Report:
    """Reads a set, compares its counts with the catalog where its name is known, and reports.

    Args:
        data: as for :func:`softmask.data.catalog.open_data`.
        data_dir: a folder with sets.
    """
    report = Report(str(data))
    try:
        if is_synthetic(str(data)):
            store = open_data(data)
        else:
            path = find(data, data_dir)
            if path.name.endswith(SUFFIX):
                molecules = load_molecules(path)
                report.remarks = [f"not matched, left out: {line}" for line in molecules.info.get("unmatched", [])]
                store = molecules.to_store()
            else:
                store = load_store(path, verify=True) if path.suffix == ".safetensors" else read_tu(path)
        report.problems = differences(store)
    except DataError as error:
        report.problems.append(str(error))
        return report
    report.known = store.info.get("name") in KNOWN
    report.remarks += remarks(store)
    kind = "directed" if store.directed else "undirected"
    name = store.info.get("name", "unnamed")
    report.summary = f"{name}: {store.num_graphs:,} graphs, {store.num_nodes:,} nodes, {kind}"
    return report
