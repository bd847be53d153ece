"""Connected components, and degrees, of a graph whose edges are streamed in blocks."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import index_dtype

COMPILED_EDGES = 2**22
"""Edges from which on compiled loops pay: below, holding all edges takes less time than loading numba."""
HELD_EDGE_BYTES = 56
"""Bytes of an edge while the components of a graph that is held are found."""


class Components:
    """Components and degrees of the edges added so far.

    Parameters
    ----------
    n_nodes
        Number of nodes.
    n_edges
        Number of edges that will be added. Few are held; of many, each node holds its degree and another node of its
        component.

    Attributes
    ----------
    degrees
        Number of edges of each node, shape (n_nodes,), int32 or int64.
    """

    def __init__(self, n_nodes: int, n_edges: int) -> None:
        dtype = index_dtype(n_nodes)
        self._held: list[np.ndarray] = []
        self._nodes = None
        if n_edges >= COMPILED_EDGES:
            self._nodes = np.zeros((n_nodes, 2), dtype)  # degree and parent, which are needed at once
            self._nodes[:, 1] = np.arange(n_nodes, dtype=dtype)
            self.degrees = self._nodes[:, 0]
        else:
            self.degrees = np.zeros(n_nodes, dtype)

    def add(self, source: np.ndarray, target: np.ndarray) -> None:
        """Add edges: pairs of nodes, int64, shape (n_edges,) each."""
        if self._nodes is not None:
            import_module("daskfs.kernels.union_find").join(self._nodes.reshape(-1), source, target)
            return
        for ends in (source, target):
            np.add.at(self.degrees, ends, 1)
        self._held.append(np.stack([source, target]))

    def sizes(self) -> np.ndarray:
        """Return the number of nodes of each component, shape (n_components,)."""
        if self._nodes is not None:
            found = import_module("daskfs.kernels.union_find").sizes(self._nodes)
            return np.asarray(found[found > 0])
        n_nodes = self.degrees.size
        source, target = np.concatenate([np.empty((2, 0), np.int64), *self._held], axis=1)
        self._held.clear()
        graph = sp.coo_array((np.ones(source.size, np.int32), (source, target)), shape=(n_nodes, n_nodes))
        return np.bincount(sp.csgraph.connected_components(graph, directed=False)[1])
