"""A small set in TU layout, by kind of file."""

# Two graphs: a triangle with a tail, and an edge with a lonely node.
FILES = {
    "A": "1, 2\n2, 1\n2, 3\n3, 2\n1, 3\n3, 1\n3, 4\n4, 3\n5, 6\n6, 5\n",
    "graph_indicator": "1\n1\n1\n1\n2\n2\n2\n",
    "graph_labels": "1\n-1\n",
    "node_labels": "3\n3\n5\n0\n3\n5\n0\n",
    "node_attributes": "0.5, 1\n1.5, 2\n2.5, 3\n3.5, 4\n4.5, 5\n5.5, 6\n6.5, 7\n",
    "edge_labels": "1\n1\n2\n2\n3\n3\n4\n4\n5\n5\n",
}
