"""The least time a training step can take: the larger of its arithmetic and its traffic at the machine's ceilings."""

from typing import Any

from softmask.bench.ceilings import Ceilings

# Forward, the matrix products of a node and layer cost 2 d^2 each for L1, L2, W_root and W_rel and 4 d^2 for the
# perceptron's first map; backward costs twice that.
FLOP_PER_NODE_AND_LAYER = 3 * 12
# So many d-wide vectors a node and layer must cross memory forward and backward, even if all else is fused.
VECTORS_PER_NODE_AND_LAYER = 24


def floor(nodes: float, hidden: int, layers: int, ceilings: Ceilings) -> dict[str, Any]:
    """The floor of a training step over `nodes` nodes (of all replicas together, padding not counted)."""
    flop = FLOP_PER_NODE_AND_LAYER * hidden**2 * layers * nodes
    traffic = VECTORS_PER_NODE_AND_LAYER * hidden * layers * nodes * ceilings.width
    arithmetic_ms = 1e3 * flop / ceilings.matrix_flop_per_s
    traffic_ms = 1e3 * traffic / ceilings.copy_bytes_per_s
    return {
        "nodes_per_step": nodes,
        "flop_per_step": flop,
        "bytes_per_step": traffic,
        "arithmetic_ms": arithmetic_ms,
        "traffic_ms": traffic_ms,
        "ms": max(arithmetic_ms, traffic_ms),
    }
