"""Neighbor graphs from Python."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from daskfs.errors import DaskfsWarning, InputError
from daskfs.graph.dominance import dominance_warnings
from daskfs.graph.knn import KNNGraph
from daskfs.graph.precomputed import NeighborLists
from daskfs.graph.precomputed_files import open_graph
from daskfs.graph.spec import ENGINES, Engine, GraphSpec
from daskfs.kernels.neighbors.metrics import Metric, checked_metric
from daskfs.kernels.scaling import Scaling, checked_scaling

if TYPE_CHECKING:
    from distributed import Client


def knn_graph(
    X: Any,
    n_neighbors: int = 5,
    *,
    metric: Metric = "euclidean",
    metric_kwds: Mapping[str, Any] | None = None,
    graph_scaling: Scaling | None = None,
    engine: Engine = "auto",
    recall: float = 0.98,
    projection: int | Literal["auto"] | None = "auto",
    random_state: int = 0,
    missing: Literal["refuse", "mean", "pairwise"] = "refuse",
    graph: Any = None,
    n_jobs: int | None = -1,
    client: Client | None = None,
    output: str | Path | None = None,
) -> KNNGraph:
    """Find the nearest neighbors of every row.

    Parameters
    ----------
    X
        Array, CSR matrix, DataFrame, dask array, Zarr array, AnnData or path, shape (n_samples, n_features); finite,
        except for NaN as `missing` allows.
    n_neighbors
        Neighbors of each row, at most n_samples - 1. A row is not its own neighbor; ties go to the lower row number.
    metric
        Name of one of pynndescent's metrics, such as "euclidean", "cosine" (1 - cos; an all-zero row is at distance 1
        from all rows), "manhattan", "correlation", "jaccard" or "hellinger"; those of packed bits are refused, and on
        sparse rows those without a sparse form.
    metric_kwds
        Arguments of the metric, such as ``{"p": 3}`` of "minkowski".
    graph_scaling
        Scaling of X on the fly: None, "zscore" (columns), "unit" (rows), "log1p", "total" (every row sum becomes the
        median of the row sums), "total=10000", or a chain such as "total+log1p+zscore", in this order. At its end,
        "pca=50" takes the first 50 principal components of the rescaled rows, or as many as there are rows or features,
        if these are fewer; distances are those of the components in float32. Components are exact for up to 1,024
        features, or 2,048 rows of at most 2**25 values in all; else they are found in five passes by a block Krylov
        method (Musco and Musco, 2015, Algorithm 2). A component that rows do not have, as of constant features, is 0.
    engine
        "exact"; "cells" (compare rows within near k-means cells); "descent" (NN-descent from random trees within each
        group of rows); "pynndescent" (NN-descent by that library within each group, for any metric); or "auto". "auto"
        is exact where that is expected to take at most one second of one core, or at most twice as long as cells and
        the sample that they need (up to some 25,000 rows of 64 features). Otherwise a sample of the rows decides:
        NN-descent where their intrinsic dimension is low (at most 20) and it is expected to be faster than cells, cells
        where these find enough neighbors, else exact search up to half a minute. Metrics that do not follow from
        Euclidean distances, such as "manhattan", are searched by pynndescent, or exactly where that is faster.
    recall
        Share of the true neighbors that "cells" aims at, above 0.5 and below 1.
    projection
        Number of principal directions in which an approximate search compares rows, together with the norm of the
        residual; the best candidates are then measured on all columns. None compares all columns. "auto" takes the
        fewest that keep the neighbors of a sample, for dense rows of at least 192 features and for sparse rows of at
        least 32 values.
    random_state
        Seed of the approximate searches.
    missing
        Treatment of NaN. "refuse": an error. "mean": NaN is replaced by the mean of the column. "pairwise": rows are
        compared in the features that both have, as scikit-learn's ``nan_euclidean_distances`` does; rows without a
        common feature are not neighbors, so lists may be short. Scaling uses the values that are present. "pairwise"
        needs metric "euclidean" and refuses both kinds of NN-descent.
    graph
        Lists of the same rows that another program found, which are checked and brought into order instead of a search:
        a fitted ``pynndescent.NNDescent``, or a pair of tables (indices, distances) by `metric` and `graph_scaling`.
    n_jobs
        Number of threads, of a search without a Dask client; None for 1, -1 for all cores that the process may use.
        The graph does not depend on it.
    client
        Client whose workers run the search if X is not in memory, as of a dask collection; by
        default the current one. Without any, and for X in memory, this process does.
    output
        Directory to create for the lists, which are then read from there, for graphs beyond memory; as
        ``graph.precomputed`` a job takes it. None for lists in memory.

    Returns
    -------
    KNNGraph
        ``indices`` (int64) and ``distances`` (float64), shape (n_samples, n_neighbors), nearest first. Every estimator
        accepts it as ``graph``.

    Raises
    ------
    ValueError
        For n_neighbors >= n_samples, NaN that `missing` does not allow, infinite values, or an unknown option.

    Warns
    -----
    DaskfsWarning
        If a few columns make up nearly all of the squared Euclidean distance of unscaled rows.

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

    from daskfs.estimators.graph import given_graph
    from daskfs.estimators.opening import is_stored, matrix_at_hand, names_of, open_input
    from daskfs.graph.spec import check_neighbors
    from daskfs.plan.inline import find_lists, stored_lists

    columns: Any = projection
    columns = int(columns) if isinstance(columns, np.integer) else columns
    scaling = checked_scaling(graph_scaling, "graph_scaling", of_graph=True)
    metric = checked_metric(metric, metric_kwds)
    spec = GraphSpec(metric, scaling, engine, recall, columns, random_state)
    _check_options(spec, n_neighbors, missing)
    names = names_of(X)
    X = matrix_at_hand(X)
    if not is_stored(X):
        X = check_array(X, accept_sparse="csr", dtype="numeric", order="C", ensure_all_finite=False)
    with open_input(X, None, missing=missing, n_jobs=n_jobs, client=client) as (context, stored_names, pool):
        n_samples = context.tiles.shape.n_samples
        check_neighbors(n_neighbors, n_samples)
        if graph is not None:
            lists = given_graph(graph, metric, scaling)
            if not isinstance(lists, NeighborLists):
                msg = "graph holds no neighbor lists: pass a fitted NNDescent, or a pair of indices and distances."
                raise InputError(msg)
            lists.check_size(n_samples, n_neighbors)
            indices, distances = lists.read(slice(0, n_samples), n_neighbors)
            result = KNNGraph(indices.astype(np.int64), distances, lists.metric, lists.scaling, np.nan)
        else:
            for text in dominance_warnings(context.tiles, [spec], "graph_scaling='zscore'", stored_names or names):
                warnings.warn(f"{text}.", DaskfsWarning, stacklevel=2)
            find: Any = find_lists if output is None else stored_lists
            indices, distances, estimated_recall = find(context, spec, n_neighbors, pool)
            result = KNNGraph(indices, distances, metric, scaling, estimated_recall)
        if output is None:
            return result
        result.save(output)
    saved_lists: Any = open_graph(output)
    return replace(result, indices=saved_lists.indices, distances=saved_lists.distances, path=str(output))


def _check_options(spec: GraphSpec, n_neighbors: int, missing: str) -> None:
    for key, value, valid in (("engine", spec.engine, ENGINES), ("missing", missing, ("refuse", "mean", "pairwise"))):
        if value not in valid:
            msg = f"{key} must be one of {', '.join(map(repr, valid))}; got {value!r}."
            raise ValueError(msg)
    if not 0.5 < spec.recall < 1:
        msg = f"recall must be above 0.5 and below 1; got {spec.recall!r}."
        raise ValueError(msg)
    if spec.projection not in (None, "auto") and not (isinstance(spec.projection, int) and spec.projection >= 1):
        msg = f"projection must be None, 'auto' or a whole number of at least 1; got {spec.projection!r}."
        raise ValueError(msg)
    if n_neighbors < 1:
        msg = f"n_neighbors must be at least 1; got {n_neighbors!r}."
        raise ValueError(msg)
