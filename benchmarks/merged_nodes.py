"""How many nodes of each TU set a fleet computes, when those that no sum can tell apart are one; and which share of the
matrix products is left in a batch of 128 graphs, when nodes are one as long as no layer has told them apart.

    python benchmarks/merged_nodes.py [SET ...]

Writes results/bench/merged_nodes.json.
"""

import sys
from pathlib import Path

import numpy as np
import torch

from softmask.data import Features
from softmask.data.catalog import open_data
from softmask.fleet.levels import StoreLevels
from softmask.fleet.quotient import quotient
from softmask.paper import paper_settings
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
        x = Features.of(store)(store)
        made = quotient(store, x).store
        batch = torch.from_numpy(np.random.default_rng(0).permutation(store.num_graphs)[:128])
        products = StoreLevels(store, x, paper_settings(name).layers).share(batch)
        found[name] = {
            "data_hash": store.content_hash(),
            "nodes": store.num_nodes,
            "classes": made.num_nodes,
            "edges": store.num_edges,
            "entries": made.num_edges,
            "products": products,
        }
        share = made.num_nodes / store.num_nodes
        print(f"{name}: {share:.1%} of {store.num_nodes:,} nodes, {products:.1%} of the products", flush=True)
    path = Path(__file__).parents[1] / "results" / "bench" / "merged_nodes.json"
    write_json(path, {"sets": found, "provenance": provenance(["python", "benchmarks/merged_nodes.py", *sys.argv[1:]])})


if __name__ == "__main__":
    main()
