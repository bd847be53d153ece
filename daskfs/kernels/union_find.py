"""Compiled union-find over edges that are streamed."""

from __future__ import annotations

import numpy as np

from daskfs.kernels.compiled import compiled, prefetch

AHEAD = 16
"""Edges between the prefetch of a node and its use."""


@compiled
def join(nodes: np.ndarray, source: np.ndarray, target: np.ndarray) -> None:
    """Join the components of the ends of edges, int64, shape (n_edges,) each, and count the edges of each node.

    `nodes`, shape (2 * n_nodes,), has the degree and the parent of each node: a node of the same component that is not
    higher. The lowest one, the root, is its own parent. Paths to the roots of both ends are spliced on the way (Rem's
    algorithm).
    """
    n_edges = source.shape[0]
    for e in range(n_edges):
        if e + AHEAD < n_edges:
            prefetch(nodes, 2 * target[e + AHEAD])
        a, b = source[e], target[e]
        nodes[2 * a] += 1
        nodes[2 * b] += 1
        while nodes[2 * a + 1] != nodes[2 * b + 1]:
            if nodes[2 * a + 1] < nodes[2 * b + 1]:
                a, b = b, a
            above = np.int64(nodes[2 * a + 1])
            nodes[2 * a + 1] = nodes[2 * b + 1]
            if above == a:
                break
            a = above


@compiled
def components(nodes: np.ndarray) -> tuple[int, int]:
    """Return the number of components, and the number of nodes of the largest one.

    `nodes`, shape (n_nodes, 2), is as in :func:`join`; afterwards it has the size of the component at each root, in
    place of degrees, and the root of each node.
    """
    n_components, largest = 0, 0
    for node in range(nodes.shape[0]):
        nodes[node, 0] = 0
        root = nodes[nodes[node, 1], 1]
        nodes[node, 1] = root
        nodes[root, 0] += 1
        if root == node:
            n_components += 1
        largest = max(largest, int(nodes[root, 0]))
    return n_components, largest
