"""The paper's equations (3) to (6) in plain numpy: loops over nodes and neighbours, no code of the package.

Slow on purpose: every line should be readable next to the paper. Vectors are float64; a mask of a node is a
vector of length 1 or d. The names of the parameters are those of a SoftMaskGNN's ``state_dict``.
"""

import numpy as np


def relu(a):
    return np.maximum(a, 0.0)


def elu(a):
    return np.array([v if v > 0 else np.expm1(v) for v in np.ravel(a)]).reshape(np.shape(a))


def sigmoid(a):
    return 1.0 / (1.0 + np.exp(-a))


def neighbour_lists(num_nodes, edges):
    """N(v) as a multiset for every v: the sources of the edges into v, without v itself."""
    lists = [[] for _ in range(num_nodes)]
    for source, target in edges:
        if source != target:
            lists[target].append(source)
    return lists


def soft_mask_layer(h, lists, mask, w_root, w_rel, *, act=relu, aggregate="sum", bias=0.0):
    """Equations (3) and (6). ``act``, ``aggregate``, ``bias`` are there to break the paper's constraints."""
    w = np.concatenate([w_root, w_rel], axis=1)
    out = np.zeros((len(h), w.shape[0]))
    for v in range(len(h)):
        total = np.zeros(h.shape[1])
        for u in lists[v]:
            total = total + mask[u] * h[u]
        if aggregate == "mean" and lists[v]:
            total = total / len(lists[v])
        out[v] = act(mask[v] * (w @ np.concatenate([h[v], total])) + bias)
    return out


def mask_layer(h, lists, mask, p, prefix=""):
    """Equation (4); ``mask`` is None in the first layer."""
    out = np.zeros((len(h), len(p[prefix + "mlp.2.bias"])))
    for v in range(len(h)):
        z = h[v] if mask is None else mask[v] * h[v]
        root = p[prefix + "lin_root.weight"] @ z + p[prefix + "lin_root.bias"]
        rel = np.zeros(len(p[prefix + "lin_rel.bias"]))
        for u in lists[v]:
            z = h[u] if mask is None else mask[u] * h[u]
            rel = rel + p[prefix + "lin_rel.weight"] @ z + p[prefix + "lin_rel.bias"]
        hidden = relu(np.concatenate([root, rel]))
        hidden = relu(p[prefix + "mlp.0.weight"] @ hidden + p[prefix + "mlp.0.bias"])
        out[v] = sigmoid(p[prefix + "mlp.2.weight"] @ hidden + p[prefix + "mlp.2.bias"])
    return out


def layers(p, num_layers, x, lists, masks=None):
    """h(1) ... h(K) and the masks m(1) ... m(K), those given or those of the mask networks."""
    h = np.zeros((len(x), len(p["lin_in.bias"])))
    for v in range(len(x)):
        h[v] = p["lin_in.weight"] @ x[v] + p["lin_in.bias"]
    hidden, used = [], []
    mask = None
    for k in range(num_layers):
        mask = mask_layer(h, lists, mask, p, f"masks.{k}.") if masks is None else masks[k]
        h = soft_mask_layer(h, lists, mask, p[f"convs.{k}.lin_root.weight"], p[f"convs.{k}.lin_rel.weight"])
        hidden.append(h)
        used.append(mask)
    return hidden, used


def readout(hidden, batch, num_graphs, jk, kind):
    """The last layer's, or with jk equation (5)'s, SUM or MEAN over the nodes of each graph."""
    out = []
    for g in range(num_graphs):
        parts = []
        for h in hidden if jk else hidden[-1:]:
            total = np.zeros(h.shape[1])
            size = 0
            for v in range(len(h)):
                if batch[v] == g:
                    total = total + h[v]
                    size += 1
            parts.append(total / max(size, 1) if kind == "mean" else total)
        out.append(np.concatenate(parts))
    return out


def model(p, num_layers, x, edges, batch, num_graphs, jk, kind, head, masks=None):
    """The whole network in evaluation mode: one output per graph, and the masks."""
    hidden, used = layers(p, num_layers, x, neighbour_lists(len(x), edges), masks)
    out = []
    for vector in readout(hidden, batch, num_graphs, jk, kind):
        places, act = ((0, 3), relu) if head == "classifier" else ((0, 3, 5), elu)
        for place in places:
            vector = p[f"head.{place}.weight"] @ vector + p[f"head.{place}.bias"]
            if place != places[-1]:
                vector = act(vector)
        out.append(vector)
    return np.array(out).reshape(num_graphs, -1), used
