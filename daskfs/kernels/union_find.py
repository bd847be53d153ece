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
def sizes(nodes: np.ndarray) -> np.ndarray:
    """Return the number of nodes of each component at its root, 0 elsewhere, shape (n_nodes,).

    `nodes`, shape (n_nodes, 2), is as in :func:`join`; the parent of each node is then its root.
    """
    found = np.zeros(nodes.shape[0], nodes.dtype)
    for node in range(nodes.shape[0]):
        nodes[node, 1] = nodes[nodes[node, 1], 1]
        found[nodes[node, 1]] += 1
    return found
