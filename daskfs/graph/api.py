"""The neighbor graph from Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from daskfs.graph.spec import Engine, GraphSpec
from daskfs.kernels.neighbors import METRICS, Metric
from daskfs.kernels.scaling import SCALINGS, Scaling


@dataclass(frozen=True, eq=False)
class KNNGraph:
    """Neighbor lists of every row.

    Attributes
    ----------
    indices
        Shape (n_samples, n_neighbors), int64: neighbors, nearest first, the row itself left out; -1 where there is
        none.
    distances
        Same shape, float64: Euclidean distance, or 1 - cos; inf where there is no neighbor.
    metric
        "euclidean" or "cosine".
    graph_scaling
        Scaling of X that the distances refer to.
    recall
        Share of the true neighbors found, estimated on at most 500 rows by exhaustive search; None when the search was
        exact.
    """

    indices: np.ndarray
    distances: np.ndarray
    metric: Metric
    graph_scaling: Scaling | None = None
    recall: float | None = None

    @property
    def n_neighbors(self) -> int:
        """Length of the lists."""
        return int(self.indices.shape[1])

    def to_csr(self, mode: Literal["distance", "connectivity"] = "distance") -> sp.csr_matrix:
        """Return the lists as an (n_samples, n_samples) CSR matrix, one row a list, as scikit-learn's
        ``kneighbors_graph`` does.
        """
        n_samples = self.indices.shape[0]
        found = self.indices >= 0
        indptr = np.concatenate([[0], np.cumsum(found.sum(axis=1))])
        data = self.distances[found] if mode == "distance" else np.ones(int(found.sum()))
        return sp.csr_matrix((data, self.indices[found], indptr), shape=(n_samples, n_samples))


def knn_graph(
    X: Any,
    n_neighbors: int = 5,
    *,
    metric: Metric = "euclidean",
    graph_scaling: Scaling | None = None,
    engine: Engine = "auto",
    random_state: int = 0,
) -> KNNGraph:
    """Find the nearest neighbors of every row.

    Parameters
    ----------
    X
        Array, CSR matrix, DataFrame, dask array, Zarr array or path, (n_samples, n_features), finite.
    n_neighbors
        Neighbors of each row, at most n_samples - 1. A row is not its own neighbor; ties go to the lower row number.
    metric
        "euclidean", or "cosine" (1 - cos; an all-zero row is at distance 1 from everything).
    graph_scaling
        None, "zscore", "unit" or "log1p", applied on the fly.
    engine
        "exact", "pynndescent" (NN-descent), or "auto": whichever is expected to be quicker, which up to some 10,000
        rows is the exact search.
    random_state
        Seed of the approximate search.

    Returns
    -------
    KNNGraph
        Accepted by every estimator as ``graph``.

    Raises
    ------
    ValueError
        For n_neighbors >= n_samples, NaN or infinite values, or an unknown option.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import knn_graph
    >>> graph = knn_graph(load_iris().data, n_neighbors=3)
    >>> graph.indices[0].tolist()
    [17, 4, 27]
    >>> graph.to_csr().shape
    (150, 150)
    """
    from sklearn.utils import check_array

    from daskfs.planning import check_neighbors
    from daskfs.scoring import find_lists, is_stored, loaded_if_small, opened

    spec = GraphSpec(metric, graph_scaling, engine, random_state)
    _check_options(spec, n_neighbors)
    X = loaded_if_small(X)
    if not is_stored(X):
        X = check_array(X, accept_sparse="csr", dtype="numeric", order="C", ensure_all_finite=False)
    with opened(X, None) as (context, _, client):
        check_neighbors(n_neighbors, context.tiles.shape.n_samples)
        indices, distances, recall = find_lists(context, spec, n_neighbors, client)
    return KNNGraph(indices, distances, metric, graph_scaling, recall)


def _check_options(spec: GraphSpec, n_neighbors: int) -> None:
    choices = {"metric": METRICS, "graph_scaling": (None, *SCALINGS), "engine": ("auto", "exact", "pynndescent")}
    given = {"metric": spec.metric, "graph_scaling": spec.scaling, "engine": spec.engine}
    for key, valid in choices.items():
        if given[key] not in valid:
            msg = f"{key} must be one of {', '.join(map(repr, valid))}; got {given[key]!r}."
            raise ValueError(msg)
    if n_neighbors < 1:
        msg = f"n_neighbors must be at least 1; got {n_neighbors!r}."
        raise ValueError(msg)
