"""How many nodes of each TU set a fleet computes, when those that no sum can tell apart are one.

    python benchmarks/merged_nodes.py [SET ...]

Writes results/bench/merged_nodes.json.
"""

import sys
from pathlib import Path

from softmask.data import Features
from softmask.data.catalog import open_data
from softmask.fleet.quotient import quotient
from softmask.study.provenance import provenance
from softmask.study.record import write_json

SETS = (
    *("MUTAG", "PROTEINS", "NCI1", "ENZYMES", "IMDB-BINARY", "IMDB-MULTI", "COLLAB"),
    *("REDDIT-BINARY", "REDDIT-MULTI-5K", "REDDIT-MULTI-12K"),
)


def main() -> None:
    """Counts nodes and entries of the neighbour lists, before and after."""
    found = {}
    for name in sys.argv[1:] or SETS:
        store = open_data(name)
        made = quotient(store, Features.of(store)(store)).store
        found[name] = {
            "data_hash": store.content_hash(),
            "nodes": store.num_nodes,
            "classes": made.num_nodes,
            "edges": store.num_edges,
            "entries": made.num_edges,
        }
        print(f"{name}: {made.num_nodes / store.num_nodes:.1%} of {store.num_nodes:,} nodes", flush=True)
    path = Path(__file__).parents[1] / "results" / "bench" / "merged_nodes.json"
    write_json(path, {"sets": found, "provenance": provenance(["python", "benchmarks/merged_nodes.py", *sys.argv[1:]])})


if __name__ == "__main__":
    main()
