"""Public class for neighbor lists."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from daskfs.graph.partition import block_rows
from daskfs.graph.precomputed import DISTANCES, INDICES, NeighborLists, save_lists
from daskfs.kernels.neighbors.metrics import Metric
from daskfs.kernels.scaling import Scaling


@dataclass(frozen=True, eq=False, repr=False)
class KNNGraph:
    """Neighbor lists of every row.

    Attributes
    ----------
    indices
        Shape (n_samples, n_neighbors), int64: neighbors, nearest first, without the row itself; padded with -1.
    distances
        Same shape, float64: distances by the metric; padded with inf. Both are read from files where there is a `path`.
    metric
        Name of the metric, with its arguments, as in "minkowski(p=3)".
    graph_scaling
        Scaling of X before the search.
    recall
        Share of the true neighbors found, estimated on at most 500 rows by exhaustive search; None for an exact search,
        NaN for lists of another program.
    path
        Zarr group with the lists, None for lists in memory.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import LaplacianScore, knn_graph
    >>> X, y = load_iris(return_X_y=True)
    >>> graph = knn_graph(X, n_neighbors=5)
    >>> graph.to_csr().nnz
    750
    >>> LaplacianScore(graph=graph, n_neighbors=5).fit(X).ranking_.tolist() == (
    ...     LaplacianScore(n_neighbors=5).fit(X).ranking_.tolist()
    ... )
    True
    """

    indices: np.ndarray
    distances: np.ndarray
    metric: Metric
    graph_scaling: Scaling | None = None
    recall: float | None = None
    path: str | None = None

    @property
    def n_neighbors(self) -> int:
        """Length of the lists."""
        return int(self.indices.shape[1])

    def __repr__(self) -> str:
        """Return sizes, metric and recall."""
        scaling = f", graph_scaling={self.graph_scaling!r}" if self.graph_scaling else ""
        quality = "exact" if self.recall is None else f"recall about {self.recall:.1%}"
        quality = "recall unknown" if self.recall is not None and np.isnan(self.recall) else quality
        n_samples, n_neighbors = self.indices.shape
        return f"<KNNGraph of {n_samples} rows: {n_neighbors} neighbors, {self.metric}{scaling}, {quality}>"

    def to_csr(self, mode: Literal["distance", "connectivity"] = "distance") -> sp.csr_matrix:
        """Return the lists as an (n_samples, n_samples) CSR matrix, float64, as scikit-learn's ``kneighbors_graph``."""
        return _csr(self.indices[:], self.distances[:], mode, self.indices.shape[0])

    def to_dask(self, mode: Literal["distance", "connectivity"] = "distance", *, symmetric: bool = False) -> Any:
        """Return the lists as a dask array of CSR blocks of rows, for graphs beyond memory.

        Parameters
        ----------
        mode
            As for :meth:`to_csr`.
        symmetric
            Whether an edge joins two rows of which at least one lists the other, with the value that it has there.

        Returns
        -------
        dask.array.Array
            Shape (n_samples, n_samples), float64. With a `path`, blocks are read from there as they are computed.
        """
        import dask.array

        da: Any = dask.array  # whose functions have no types
        (n_samples, k), size = self.indices.shape, block_rows(self.indices.shape[0])
        lists = [
            da.from_array(array, chunks=(size, k)) if self.path is None else da.from_zarr(f"{self.path}/{name}")
            for name, array in ((INDICES, self.indices), (DISTANCES, self.distances))
        ]
        meta, rows = sp.csr_matrix((0, 0)), lists[0].chunks[0]
        graph = da.map_blocks(_csr, *lists, mode, n_samples, chunks=(rows, (n_samples,)), dtype=float, meta=meta)
        if not symmetric:
            return graph
        mirrored = graph.rechunk((rows, rows)).T.rechunk((rows, (n_samples,)))
        return da.map_blocks(_larger, graph, mirrored, dtype=float, meta=meta)

    def save(self, path: str | Path) -> None:
        """Write the lists as a Zarr group, which an estimator accepts as ``graph`` and a job as ``graph.precomputed``.

        Parameters
        ----------
        path
            Directory to create.

        Raises
        ------
        FileExistsError
            If `path` exists.
        ValueError
            If a list is invalid; the message names the row.
        """
        save_lists(path, NeighborLists("graph", self.indices, self.distances, self.metric, self.graph_scaling))


def _csr(indices: np.ndarray, distances: np.ndarray, mode: str, n_samples: int) -> sp.csr_matrix:
    """Return the lists of some rows as CSR of `n_samples` columns."""
    is_listed = indices >= 0
    indptr = np.concatenate([[0], np.cumsum(is_listed.sum(axis=1))])
    data = distances[is_listed] if mode == "distance" else np.ones(int(is_listed.sum()))
    return sp.csr_matrix((data, indices[is_listed], indptr), shape=(len(indices), n_samples))


def _larger(block: sp.csr_matrix, mirrored: Any) -> sp.csr_matrix:
    return sp.csr_matrix(block.maximum(sp.csr_matrix(mirrored)))
