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
        self._held = np.empty_like(self._parent)  # by root, its number among those that are joined

    def add(self, source: np.ndarray, target: np.ndarray) -> None:
        """Add edges: pairs of nodes, integer arrays of shape (n_edges,) each.

        Consecutive edges of the same source are the fastest.
        """
        for edges in row_blocks(source.size, EDGES_AT_ONCE):
            own = source[edges]
            first = np.flatnonzero(np.diff(own, prepend=-1))
            roots = np.repeat(self._roots(own[first]), np.diff(first, append=own.size))
            self._join(roots, self._roots(target[edges]))

    def sizes(self) -> np.ndarray:
        """Return the size of each component at its lowest node, 0 elsewhere; shape (n_nodes,), int32 or int64."""
        sizes = self._held
        sizes[:] = 0
        for nodes in row_blocks(sizes.size, EDGES_AT_ONCE):
            np.add.at(sizes, self._roots(np.arange(nodes.start, nodes.stop)), sizes.dtype.type(1))
        return sizes

    def _roots(self, nodes: np.ndarray) -> np.ndarray:
        """Return the root of each node, with path halving."""
        parent, roots = self._parent, self._parent[nodes]
        moving = np.flatnonzero(parent[roots] != roots)
        while moving.size:
            below = roots[moving]
            above = parent[parent[below]]
            parent[below] = parent[nodes[moving]] = roots[moving] = above
            moving = moving[parent[above] != above]
        return roots

    def _join(self, a: np.ndarray, b: np.ndarray) -> None:
        apart = a != b
        ends = np.concatenate([a[apart], b[apart]])
        if not ends.size:
            return
        self._held[ends] = np.arange(ends.size, dtype=ends.dtype)
        number = self._held[ends]  # equal for equal roots: the one that was written last
        tails, heads = number.reshape(2, -1)
        graph = sp.coo_array((np.ones(tails.size, dtype=bool), (tails, heads)), shape=(ends.size, ends.size))
        n_components, component = sp.csgraph.connected_components(graph, directed=False)
        component = component[number]
        lowest = np.full(n_components, self._parent.size, ends.dtype)
        np.minimum.at(lowest, component, ends)
        self._parent[ends] = lowest[component]
