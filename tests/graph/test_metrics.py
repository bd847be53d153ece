"""Lists by any metric are those of brute force, whichever engine finds them, and what does not serve is refused."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import pairwise_distances

from daskfs import knn_graph
from daskfs.errors import InputError
from daskfs.graph import partition
from daskfs.kernels.neighbors.metrics import checked_metric, is_own, split_metric

N, M, K = 300, 8, 5
RNG = np.random.default_rng(0)
SHARES = RNG.dirichlet(np.ones(M), N).astype(np.float32)
BITS = (RNG.random((N, 40)) < 0.2).astype(np.float32)
COST = np.abs(np.subtract.outer(np.arange(M), np.arange(M))).astype(float)
KWDS: dict[str, dict[str, Any]] = {
    "minkowski": {"p": 3},
    "wminkowski": {"w": np.arange(1.0, M + 1), "p": 3},
    "seuclidean": {"sigma": np.arange(1.0, M + 1)},
    "mahalanobis": {"vinv": np.diag(np.arange(1.0, M + 1))},
    "kantorovich": {"cost": COST},
    "sinkhorn": {"cost": COST},
}
OF_BITS = (
    *("hamming", "jaccard", "dice", "matching", "kulsinski", "rogerstanimoto", "russellrao", "sokalmichener"),
    *("sokalsneath", "yule"),
)
SLOW = ("sinkhorn", "kantorovich", "spearmanr")
"""Some milliseconds for each pair of rows, or a call of SciPy."""
SKLEARN = ("euclidean", "sqeuclidean", "manhattan", "chebyshev", "canberra", "braycurtis", "cosine", "correlation")
FORMLESS = "seuclidean wminkowski mahalanobis inner_product haversine tsss circular_kantorovich sinkhorn yule spearmanr"
"""Metrics without a form for sparse rows, and kantorovich, whose form takes other arguments."""
DENSE_ONLY = {*FORMLESS.split(), "kantorovich", "dot", "direct_cosine", "true_angular"}
OWN = ("dot", "direct_cosine", "true_angular")
"""Those without a sparse form in pynndescent that daskfs's own searches serve."""
DESCENT = {
    np.asarray: ("jaccard", "wminkowski", "mahalanobis"),
    sp.csr_matrix: ("manhattan", "jaccard", "correlation"),
}
"""Metrics of each kind for NNDescent, which compiles for some 20 seconds by each that does not follow from Euclidean
distances: one that it compares by another function, with a number and a vector, with a matrix, and with the number of
columns. Exact lists show that the form of each is right.
"""


def names() -> list[str]:
    from pynndescent.distances import named_distances

    kept = (name for name in named_distances if not name.startswith("bit_"))
    return sorted({split_metric(checked_metric(name, KWDS.get(name, arrays(name))))[0] for name in kept})


def arrays(name: str) -> dict[str, Any]:
    """The arguments of another name of a metric."""
    aliases = {"wasserstein": "kantorovich", "standardised_euclidean": "seuclidean", "weighted_minkowski": "wminkowski"}
    return KWDS.get(aliases.get(name, name), {})


def rows_of(metric: str) -> np.ndarray:
    if metric in OF_BITS:
        return BITS
    X = SHARES[:, :2] if metric == "haversine" else SHARES
    return X[:60] if metric in SLOW else X


def expected_distances(metric: str, X: np.ndarray) -> np.ndarray:
    """All distances by scikit-learn or pynndescent; the own metrics of daskfs are not compared with themselves."""
    from pynndescent.distances import named_distances

    rows = X.astype(np.float64)
    if metric in SKLEARN:
        return np.asarray(pairwise_distances(rows, metric=metric))
    if metric in ("dot", "direct_cosine"):
        return np.minimum(pairwise_distances(rows, metric="cosine"), 1)
    if metric == "true_angular":
        return np.arccos(np.clip(1 - pairwise_distances(rows, metric="cosine"), -1, 1)) / np.pi
    values = [np.asarray(v) if np.ndim(v) else v for v in KWDS.get(metric, {}).values()]
    function, rows = named_distances[metric], np.ascontiguousarray(X)  # pynndescent 0.6 has some for float32 alone
    return np.array([[function(a, b, *values) for b in rows] for a in rows], dtype=np.float64)


def assert_nearest(graph: Any, lengths: np.ndarray) -> None:
    """Every list holds the k smallest distances, each of the row that it names."""
    others = lengths + np.where(np.eye(len(lengths), dtype=bool), np.inf, 0)
    expected = np.sort(others, axis=1)[:, :K]
    tolerance = 2e-5 * np.abs(expected).max()
    np.testing.assert_allclose(np.take_along_axis(others, graph.indices, axis=1), graph.distances, atol=tolerance)
    assert (graph.distances <= expected + tolerance).mean() >= 0.99
    assert (np.diff(graph.distances, axis=1) >= -tolerance).all()


@pytest.mark.parametrize("metric", ["manhattan", "jaccard", "correlation"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_lists_are_those_of_brute_force(metric: str, form: Any) -> None:
    X = rows_of(metric)
    assert_nearest(knn_graph(form(X), K, metric=metric), expected_distances(metric, X))


@pytest.mark.long
@pytest.mark.release
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_lists_by_every_metric_and_both_engines(form: Any) -> None:
    """Exact ones by every metric; those of NNDescent by all metrics that it need not compile, and by one of the others
    that the seed of the run draws: of those of each kind, and of the rest of dense rows.
    """
    is_sparse = form is sp.csr_matrix
    plain = [name for name in names() if not is_own(name, is_sparse=False) and name not in DESCENT[np.asarray]]
    compiled = {random.choice(DESCENT[form]), *(() if is_sparse else random.sample(plain, 1))}
    for metric in names():
        X, kwds = rows_of(metric), KWDS.get(metric)
        if is_sparse and metric in DENSE_ONLY and metric not in OWN:
            with pytest.raises(InputError, match="needs dense X: it has no form for sparse rows"):
                knn_graph(form(X), K, metric=metric, metric_kwds=kwds)
            continue
        lengths = expected_distances(metric, X)
        descends = metric in compiled or is_own(metric, is_sparse=is_sparse)
        for engine in ("exact", "pynndescent") if descends else ("exact",):
            graph = knn_graph(form(X), K, metric=metric, metric_kwds=kwds, engine=engine)
            assert graph.metric.partition("(")[0] == metric
            assert_nearest(graph, lengths)


@pytest.mark.parametrize("engine", ["cells", "descent"])
@pytest.mark.parametrize("metric", ["hellinger", "correlation", "spearmanr", "true_angular", "dot", "sqeuclidean"])
def test_searches_of_daskfs_serve_related_metrics(metric: str, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several groups, and with a row without a direction."""
    monkeypatch.setattr(partition, "GROUP_ROWS", 1000)
    rng = np.random.default_rng(0)
    X = rng.dirichlet(np.ones(10), 30)[rng.integers(0, 30, 4000)] + 0.02 * rng.random((4000, 10))
    X[7] = 0
    exact = knn_graph(X, K, metric=metric, engine="exact")
    found = knn_graph(X, K, metric=metric, engine=engine)
    assert (found.distances <= exact.distances[:, -1:] * (1 + 1e-9) + 1e-12).mean() >= 0.97
    same = found.indices == exact.indices
    np.testing.assert_allclose(found.distances[same], exact.distances[same], rtol=1e-9, atol=1e-12)


def test_zeros_that_are_stored_do_not_count() -> None:
    X = sp.csr_matrix(BITS)
    X.data[::3] = 0
    expected = knn_graph(X.toarray(), K, metric="jaccard")
    np.testing.assert_array_equal(knn_graph(X, K, metric="jaccard").distances, expected.distances)


def test_negative_values_are_no_distribution() -> None:
    with pytest.raises(InputError, match=r"'hellinger' compares distributions, and a row has the value -1"):
        knn_graph(np.array([[1.0, -1.0], [2.0, 3.0], [1.0, 1.0]]), 1, metric="hellinger")


def test_directions_of_rows_without_one() -> None:
    """Constant rows under correlation are at distance 1 from every row, as all-zero rows under cosine are."""
    X = np.array([[3.1, 3.1, 3.1], [0.1, 0.1, 0.1], [1.0, 2.0, 4.0], [2.0, 4.0, 8.1]])
    graph = knn_graph(X, 3, metric="correlation")
    np.testing.assert_array_equal(graph.distances[:2], 1)
    assert graph.indices[2, 0] == 3
