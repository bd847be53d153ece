"""Connected components of a graph whose edges are streamed in blocks."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import index_dtype
from daskfs.kernels.statistics.moments import row_blocks

EDGES_AT_ONCE = 2**19


class Components:
    """Union-find over the edges added so far, in O(n_nodes) memory.

    Parameters
    ----------
    n_nodes
        Number of nodes.

    Notes
    -----
    Every node points to a lower node of its component, and the lowest one, the root, to itself. Edges are contracted to
    the roots of their ends; SciPy finds the components of the remaining small graph.
    """

    def __init__(self, n_nodes: int) -> None:
        self._parent = np.arange(n_nodes, dtype=index_dtype(n_nodes))

    def add(self, source: np.ndarray, target: np.ndarray) -> None:
        """Add edges: pairs of nodes, integer arrays of shape (n_edges,) each."""
        for edges in row_blocks(source.size, EDGES_AT_ONCE):
            self._join(self._roots(source[edges]), self._roots(target[edges]))

    def sizes(self) -> np.ndarray:
        """Return the size of each component at its lowest node, 0 elsewhere; shape (n_nodes,), int32 or int64."""
        sizes = np.zeros_like(self._parent)
        for nodes in row_blocks(sizes.size, EDGES_AT_ONCE):
            roots, counts = np.unique(self._roots(np.arange(nodes.start, nodes.stop)), return_counts=True)
            sizes[roots] += counts.astype(sizes.dtype)
        return sizes

    def _roots(self, nodes: np.ndarray) -> np.ndarray:
        """Return the root of each node, with path halving."""
        parent, above = self._parent, self._parent[nodes]
        while True:
            root = parent[above]
            if np.array_equal(root, above):
                return root
            parent[nodes] = root
            nodes, above = root, parent[root]

    def _join(self, a: np.ndarray, b: np.ndarray) -> None:
        apart = a != b
        roots, ends = np.unique(np.stack([a[apart], b[apart]]), return_inverse=True)
        if not roots.size:
            return
        tails, heads = ends.reshape(2, -1)
        graph = sp.coo_array((np.ones(tails.size, dtype=bool), (tails, heads)), shape=(roots.size, roots.size))
        _, component = sp.csgraph.connected_components(graph, directed=False)
        _, lowest = np.unique(component, return_index=True)
        self._parent[roots] = roots[lowest[component]]
