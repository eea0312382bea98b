"""Reads a TU set with softmask and with PyG, each in a process of its own: seconds and peak memory.

    SOFTMASK_DATA=~/tu python benchmarks/read_tu.py [NAME] [--out results/bench/read_tu.json]

The time is that from raw text files to the packed form in memory (softmask: GraphStore; PyG: TUDataset, which
also writes its own file), without imports. Peak memory is that of the whole process, imports included.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def by_softmask(folder: Path) -> dict:
    from softmask.data.tu import read_tu

    begin = time.perf_counter()
    store = read_tu(folder)
    seconds = time.perf_counter() - begin
    return {
        "seconds": seconds,
        "graphs": store.num_graphs,
        "edges": store.num_edges,
        "data_hash": store.content_hash(),
    }


def by_pyg(folder: Path) -> dict:
    from torch_geometric.datasets import TUDataset

    name = folder.name
    with tempfile.TemporaryDirectory() as root:
        raw = Path(root) / name / "raw"
        raw.mkdir(parents=True)
        for file in folder.glob("*.txt"):
            (raw / file.name).symlink_to(file.resolve())
        begin = time.perf_counter()
        data = TUDataset(root, name)
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "graphs": len(data), "edges": int(data._data.edge_index.size(1))}


def in_process(reader: str, folder: Path) -> dict:
    command = [sys.executable, __file__, "--reader", reader, str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="COLLAB")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/bench/read_tu.json"))
    parser.add_argument("--reader", choices=["softmask", "pyg"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.reader:
        import resource

        result = {"softmask": by_softmask, "pyg": by_pyg}[arguments.reader](Path(arguments.name))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        print(json.dumps({**result, "peak_bytes": peak}))
        return

    from softmask.data.catalog import find
    from softmask.study.provenance import provenance

    folder = find(arguments.name, arguments.data_dir)
    if not folder.is_dir():
        sys.exit(f"{folder}: PyG reads a folder only; unpack it first")
    with (folder / f"{folder.name}_A.txt").open("rb") as stream:
        # So that both find the file in the system's file cache.
        while stream.read(2**24):
            pass
    ours, theirs = in_process("softmask", folder), in_process("pyg", folder)
    if (ours["graphs"], ours["edges"]) != (theirs["graphs"], theirs["edges"]):
        sys.exit(f"the readers disagree: {ours} and {theirs}")
    result = {
        "set": arguments.name,
        "softmask": ours,
        "pyg": theirs,
        "times_faster": theirs["seconds"] / ours["seconds"],
        "provenance": provenance(["python", "benchmarks/read_tu.py", arguments.name], data_hash=ours.pop("data_hash")),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    temporary = arguments.out.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=2) + "\n")
    temporary.replace(arguments.out)
    for name in ("softmask", "pyg"):
        print(f"{name:9} {result[name]['seconds']:7.1f} s   peak {result[name]['peak_bytes'] / 1e9:.2f} GB")
    print(f"{result['times_faster']:.1f} times faster; written to {arguments.out}")


if __name__ == "__main__":
    main()
