"""Neighbor lists that other programs found: any form gives the scores of the same lists, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from daskfs import LSDF, SVMRFE, KNNGraph, LaplacianScore, SemiSupervisedLaplacianScore, SSelect, knn_graph
from daskfs.errors import InputError
from daskfs.graph.precomputed import NeighborLists
from daskfs.graph.precomputed_files import open_graph
from daskfs.kernels.neighbors.metrics import checked_metric

N, K = 60, 6
X = np.abs(np.random.default_rng(0).normal(size=(N, 5)))
Pair = tuple[np.ndarray, np.ndarray]
OWN = np.arange(N)[:, None]


class NNDescent:
    """What daskfs reads of a fitted index; pynndescent itself compiles for half a minute."""

    def __init__(self, pair: Pair | None, metric: Any = "euclidean", metric_kwds: Any = None) -> None:
        self.neighbor_graph, self.metric, self.metric_kwds = pair, metric, metric_kwds


NNDescent.__module__ = "pynndescent.pynndescent_"


def lists(k: int = K, **options: Any) -> KNNGraph:
    return knn_graph(X, k, engine="exact", **options)


def with_selves(graph: KNNGraph) -> Pair:
    return np.hstack([OWN, graph.indices]), np.hstack([0.0 * OWN, graph.distances])


def shuffled(pair: Pair, seed: int = 0) -> Pair:
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(pair[0].shape[1]), (len(pair[0]), 1)), axis=1)
    return np.take_along_axis(pair[0], order, axis=1), np.take_along_axis(pair[1], order, axis=1)


def padded(pair: Pair, index: int = -1, distance: float = np.inf) -> Pair:
    return np.insert(pair[0], 2, index, axis=1), np.insert(pair[1], 2, distance, axis=1)


def kneighbors(own: bool) -> Pair:
    search = NearestNeighbors(n_neighbors=K + own).fit(X)
    return search.kneighbors(X if own else None)


SOURCES: dict[str, Callable[[], Any]] = {
    "pair": lambda: (lists().indices, lists().distances),
    "lists": lambda: (lists().indices.tolist(), lists().distances.tolist()),
    "distances first": lambda: (lists().distances, lists().indices),
    "with selves": lambda: with_selves(lists()),
    "shuffled": lambda: shuffled(with_selves(lists())),
    "missing index": lambda: padded(with_selves(lists()), distance=3.4e38),  # as faiss marks it
    "missing distance": lambda: padded(with_selves(lists()), index=5),
    "missing both, shuffled": lambda: shuffled(padded(with_selves(lists()))),
    "int32, Fortran": lambda: tuple(np.asfortranarray(t.astype(f"{t.dtype.kind}8")) for t in with_selves(lists())),
    "unsigned": lambda: (with_selves(lists())[0].astype(np.uint32), with_selves(lists())[1]),
    "NNDescent": lambda: NNDescent(with_selves(lists())),
    "NNDescent by an alias": lambda: NNDescent(with_selves(lists()), "l2"),
}


class TestForms:
    @pytest.mark.parametrize("source", SOURCES)
    def test_scores_of_the_same_lists(self, source: str) -> None:
        for k in (2, K):
            expected = LaplacianScore(n_neighbors=k, graph=lists()).fit(X).scores_
            np.testing.assert_array_equal(
                LaplacianScore(n_neighbors=k, graph=SOURCES[source]()).fit(X).scores_, expected
            )
            graph = knn_graph(X, k, graph=SOURCES[source](), recall=0.7)
            assert (graph.indices.shape, str(graph.indices.dtype), graph.metric) == ((N, k), "int64", "euclidean")
            np.testing.assert_array_equal(graph.indices, lists().indices[:, :k])
            np.testing.assert_array_equal(graph.distances, lists().distances[:, :k])
            np.testing.assert_array_equal(LaplacianScore(n_neighbors=k, graph=graph).fit(X).scores_, expected)
            assert repr(graph) == f"<KNNGraph of 60 rows: {k} neighbors, euclidean, recall unknown>"

    @pytest.mark.parametrize("own", [False, True])
    def test_scikit_learn(self, own: bool) -> None:
        expected = LaplacianScore(n_neighbors=K, graph=lists()).fit(X).scores_
        found = LaplacianScore(n_neighbors=K, graph=kneighbors(own)).fit(X).scores_
        np.testing.assert_allclose(found, expected, rtol=1e-12)

    @pytest.mark.parametrize("source", ["shuffled", "missing index", "int32, Fortran"])
    def test_files(self, tmp_path: Path, source: str) -> None:
        expected = LaplacianScore(n_neighbors=K, graph=lists()).fit(X).scores_
        group = zarr.create_group(tmp_path / "lists", attributes={"metric": "l2"})
        for name, table in zip(("indices", "distances"), SOURCES[source](), strict=True):
            group.create_array(name, data=np.ascontiguousarray(table))
        found = LaplacianScore(n_neighbors=K, graph=tmp_path / "lists").fit(X).scores_
        np.testing.assert_array_equal(found, expected)
        graph = knn_graph(X, K, graph=str(tmp_path / "lists"))
        np.testing.assert_array_equal(graph.indices, lists().indices)

    @pytest.mark.parametrize(
        "selector",
        [
            LSDF(),
            SSelect(n_neighbors=K),
            SVMRFE(laplacian=True, n_neighbors=K),
            SemiSupervisedLaplacianScore(neighbors="x"),
        ],
    )
    def test_every_selector_on_a_graph(self, selector: Any) -> None:
        is_regression = isinstance(selector, SemiSupervisedLaplacianScore)
        known = np.arange(N) % 4 > 0
        y = np.where(known, X[:, 0], np.nan) if is_regression else np.where(known, np.arange(N) % 2, -1)
        selector.set_params(n_neighbors=K, graph_scaling=None)
        expected = selector.set_params(graph=lists()).fit(X, y).scores_
        np.testing.assert_array_equal(
            selector.set_params(graph=shuffled(with_selves(lists()))).fit(X, y).scores_, expected
        )

    @settings(max_examples=30)
    @given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 12), k=st.integers(1, 11), data=st.data())
    def test_any_lists(self, seed: int, n: int, k: int, data: st.DataObject) -> None:
        """Lists in blocks are those of a slow sort of each row."""
        rng, k = np.random.default_rng(seed), min(k, n)
        indices = np.stack([rng.permutation(n)[:k] for _ in range(n)])
        distances = rng.integers(0, 4, size=(n, k)) / 2
        gone = rng.random((n, k)) < data.draw(st.sampled_from([0.0, 0.3]))
        by_index = rng.random((n, k)) < 0.5
        graph = np.where(gone & by_index, -1, indices), np.where(gone & ~by_index, np.inf, distances)
        width = k - bool((graph[0] == np.arange(n)[:, None]).any())
        if not width:
            return
        found = knn_graph(np.zeros((n, 1)), width, graph=graph)
        for row in range(n):
            pairs = zip(distances[row], indices[row], gone[row], strict=True)
            expected = sorted((d, i) for d, i, missing in pairs if not missing and i != row)
            expected = (expected + [(np.inf, -1)] * width)[:width]
            assert list(zip(found.distances[row], found.indices[row], strict=True)) == expected

    def test_negative_by_rounding(self) -> None:
        graph = lists(metric="cosine")
        found = knn_graph(X, K, metric="cosine", graph=(graph.indices, np.where(OWN == 3, -1e-7, graph.distances)))
        assert found.distances[3].tolist() == [0] * K

    def test_inner_products_are_negative(self) -> None:
        graph = KNNGraph(lists().indices, -1 / (1 + lists().distances), "inner_product")
        for given_lists in (graph, (graph.indices, graph.distances)):
            found = knn_graph(X, K, metric="inner_product", graph=given_lists)
            np.testing.assert_array_equal(found.distances, graph.distances)

    @pytest.mark.long
    @pytest.mark.parametrize(("metric", "kwds"), [("euclidean", None), ("cosine", None), ("minkowski", {"p": 3.0})])
    def test_pynndescent(self, metric: str, kwds: dict[str, float] | None) -> None:
        from pynndescent import NNDescent as Index

        rows = X.astype(np.float32)
        index = Index(rows, metric=metric, metric_kwds=kwds, n_neighbors=30, random_state=0)
        expected = knn_graph(rows, K, metric=metric, metric_kwds=kwds, engine="exact")
        for asked in ({}, {"metric": metric, "metric_kwds": kwds}):
            found = knn_graph(rows, K, graph=index, **asked)  # type: ignore[arg-type]
            assert (found.indices == expected.indices).mean() > 0.95
            np.testing.assert_allclose(found.distances, expected.distances, atol=1e-5)
            assert found.metric == ("minkowski(p=3)" if kwds else metric)
            by_index = LaplacianScore(n_neighbors=K, graph=index, **asked).fit(rows).scores_  # type: ignore[arg-type]
            np.testing.assert_array_equal(by_index, LaplacianScore(n_neighbors=K, graph=found).fit(rows).scores_)


class TestMetrics:
    def test_a_pair_has_the_metric_of_the_caller(self) -> None:
        graph = lists(metric="l1", graph_scaling="unit")
        pair = graph.indices, graph.distances
        found = knn_graph(X, K, metric="taxicab", graph_scaling="unit", graph=pair)
        assert (found.metric, found.graph_scaling) == (graph.metric, graph.graph_scaling) == ("manhattan", "unit")
        cosine = LaplacianScore(n_neighbors=K, metric="cosine", weights="cosine", graph=pair).fit(X).scores_
        expected = KNNGraph(*pair, "cosine")
        np.testing.assert_array_equal(
            cosine, LaplacianScore(n_neighbors=K, weights="cosine", metric="cosine", graph=expected).fit(X).scores_
        )

    def test_an_index_has_its_own(self) -> None:
        index = NNDescent(with_selves(lists()), "minkowski", {"p": 3.0, "n_features": 5})  # pynndescent adds the latter
        for asked in ({}, {"metric": "cosine"}):
            assert knn_graph(X, K, graph=index, **asked).metric == "minkowski(p=3)"  # type: ignore[arg-type]

    @pytest.mark.parametrize("kwds", [{"p": 3.0}, {"p": 3.0, "w": np.linspace(1, 2, 5)}])
    def test_arguments_are_saved(self, tmp_path: Path, kwds: dict[str, Any]) -> None:
        graph = lists(metric="wminkowski" if "w" in kwds else "minkowski", metric_kwds=kwds)
        graph.save(tmp_path / "lists")
        found = open_graph(tmp_path / "lists")
        assert isinstance(found, NeighborLists)
        assert found.metric == graph.metric == knn_graph(X, 2, graph=tmp_path / "lists").metric
        assert checked_metric(graph.metric) == graph.metric


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "other rows": (lambda: tuple(t[1:] for t in with_selves(lists())), "graph has 59 rows, and X has n_samples=60"),
    "negative": (lambda: (lists().indices, lists().distances - 0.5), "has a distance that is negative or NaN"),
    "twice": (lambda: padded(with_selves(lists()), 59, 0.25), "row .* lists a row twice"),
    "out of range": (lambda: padded(with_selves(lists()), 60, 0.25), "row 0 lists a row that is none of the 60"),
    "below -1": (lambda: padded(with_selves(lists()), -2, 0.25), "row 0 lists a row that is none of the 60"),
    "other shapes": (
        lambda: (lists().indices, lists().distances[:, 1:]),
        r"\(60, 6\) and distances of shape \(60, 5\)",
    ),
    "empty": (lambda: (np.empty((60, 0), int), np.empty((60, 0))), "two tables of one shape"),
    "two of distances": (lambda: (lists().distances, lists().distances), "indices has dtype float64"),
    "complex": (lambda: (lists().indices, lists().distances * 1j), "distances has dtype complex128"),
    "too short": (lambda: tuple(t[:, :3] for t in with_selves(lists())), "graph has 2 neighbors a row"),
    "only the rows": (lambda: (OWN, OWN * 0.0), "graph has 0 neighbors a row"),
    "similarities": (lambda: NNDescent(with_selves(lists()), "true_angular"), "holds 1 - angle / pi, .*'cosine'"),
    "a function": (lambda: NNDescent(with_selves(lists()), max), "metric must be one of"),
    "bits": (lambda: NNDescent(with_selves(lists()), "bit_hamming"), "packed bits"),
    "a number": (lambda: 5, "graph is 5: pass neighbor lists, a matrix of weights, or the path of either"),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(case: str) -> None:
    source, message = BAD[case]
    for use in (lambda g: knn_graph(X, 3, graph=g), lambda g: LaplacianScore(n_neighbors=3, graph=g).fit(X)):
        with pytest.raises(ValueError, match=message):
            use(source())


@pytest.mark.parametrize("column", range(K))
def test_nan_is_refused_wherever_it_stands(column: int) -> None:
    distances = lists().distances.copy()
    distances[17, column] = np.nan
    with pytest.raises(InputError, match="graph: row 17 has a distance that is negative or NaN"):
        knn_graph(X, 1, graph=(lists().indices, distances))


def test_weights_are_no_lists() -> None:
    with pytest.raises(InputError, match="graph holds no neighbor lists"):
        knn_graph(X, 3, graph=lists().to_csr())
