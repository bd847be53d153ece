"""Connected components, and degrees, of a graph whose edges are streamed in blocks."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import index_dtype
from daskfs.kernels.statistics.moments import row_blocks

COMPILED_EDGES = 2**22
"""Edges from which on compiled loops pay: below, holding all edges takes less time than loading numba."""
NODES_AT_ONCE = 2**20
HELD_EDGE_BYTES = 56
"""Bytes of an edge while the components of a graph that is held are found."""


class Components:
    """Components and degrees of the edges added so far.

    If it `holds` the edges, these should be few; else each node holds its degree and another node of its component.
    """

    def __init__(self, n_nodes: int, *, holds: bool) -> None:
        self._n_nodes = n_nodes
        self._held: list[np.ndarray] = []
        self._nodes = None
        if not holds:
            self._nodes = np.zeros((n_nodes, 2), index_dtype(n_nodes))  # degree and parent, which are needed at once
            for nodes in row_blocks(n_nodes, NODES_AT_ONCE):
                self._nodes[nodes, 1] = np.arange(nodes.start, nodes.stop)

    def add(self, source: np.ndarray, target: np.ndarray) -> None:
        """Add edges: pairs of nodes, int64, shape (n_edges,) each."""
        if self._nodes is None:
            self._held.append(np.stack([source, target]))
        else:
            import_module("daskfs.kernels.union_find").join(self._nodes.reshape(-1), source, target)

    def found(self) -> tuple[np.ndarray, int, int]:
        """Return the nodes of each degree, int64, the number of components, and the nodes of the largest one.

        No edges can be added afterwards.
        """
        if self._nodes is not None:
            by_degree = _counts(self._nodes[:, 0])
            return by_degree, *import_module("daskfs.kernels.union_find").components(self._nodes)
        edges = np.concatenate([np.empty((2, 0), np.int64), *self._held], axis=1)
        self._held.clear()
        by_degree = _counts(np.bincount(edges.ravel(), minlength=self._n_nodes))
        graph = sp.coo_array((np.ones(edges.shape[1], np.int32), tuple(edges)), shape=(self._n_nodes, self._n_nodes))
        n_components, component = sp.csgraph.connected_components(graph, directed=False)
        return by_degree, int(n_components), int(np.bincount(component).max())


def _counts(values: np.ndarray) -> np.ndarray:
    """Return the count of each integer from 0 to the largest value, int64."""
    counts = np.zeros(int(values.max(initial=0)) + 1, np.int64)
    for block in row_blocks(values.size, NODES_AT_ONCE):
        counts += np.bincount(values[block], minlength=counts.size)
    return counts
