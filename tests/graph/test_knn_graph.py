"""``knn_graph`` and graphs handed to an estimator: lists, dense and sparse matrices."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.datasets import load_iris
from sklearn.neighbors import kneighbors_graph

from daskfs import KNNGraph, LaplacianScore, knn_graph
from daskfs.execution import submission
from daskfs.graph import partition, partitioned_search
from daskfs.graph.partitioned_search import BUILD_STAGE
from daskfs.graph.spec import Engine
from daskfs.kernels.neighbors.metrics import Metric
from daskfs.kernels.scaling import Scaling
from daskfs.plan import inline
from daskfs.stages.units import run_unit
from tests.cases import each
from tests.reference.graph import binary, heat, heat_t, knn_lists, union_adjacency
from tests.reference.scores import laplacian_score

FloatArray = NDArray[np.float64]
X = load_iris().data
RANDOM = np.random.default_rng(0).normal(size=(60, 5))


def scaled(values: FloatArray, scaling: Scaling | None) -> FloatArray:
    if scaling == "zscore":
        return (values - values.mean(axis=0)) / values.std(axis=0)
    if scaling == "unit":
        return values / np.sqrt((values**2).sum(axis=1, keepdims=True))
    return np.log1p(values) if scaling == "log1p" else values


class TestKnnGraph:
    @each(
        ("metric", "scaling", "sparse"),
        [
            (metric, scaling, sparse)
            for metric in ("euclidean", "cosine")
            for scaling in (None, "unit", "log1p", "zscore")
            for sparse in (False, True)
            if (metric, scaling, sparse) != ("cosine", "zscore", True)
        ],
    )
    def test_reference(self, metric: Metric, scaling: Scaling | None, sparse: bool) -> None:
        values = np.abs(RANDOM)
        graph = knn_graph(sp.csr_matrix(values) if sparse else values, 6, metric=metric, graph_scaling=scaling)
        indices, distances = knn_lists(scaled(values, scaling), 6, metric)
        np.testing.assert_array_equal(graph.indices, indices)
        np.testing.assert_allclose(graph.distances, distances, rtol=1e-11, atol=1e-15)
        assert (graph.metric, graph.graph_scaling, graph.recall, graph.n_neighbors) == (metric, scaling, None, 6)

    @each("n_jobs", [None, 2, -1])
    @each(("engine", "one_group"), [("cells", 0), ("descent", 0), ("descent", 10_000)])
    def test_threads_change_no_bit(self, engine: Engine, one_group: int, n_jobs: int | None) -> None:
        """Of a search in groups, whose units run at once, or in one by NN-descent."""
        values = np.random.default_rng(0).normal(size=(2000, 12)) + np.arange(2000)[:, None] % 4
        with (
            mock.patch.multiple(partition, GROUP_ROWS=500),
            mock.patch.multiple(inline, BAND_ROWS=256),
            mock.patch.multiple(partitioned_search, ONE_GROUP=one_group),
        ):
            expected = knn_graph(values, 6, engine=engine, n_jobs=1)
            graph = knn_graph(values, 6, engine=engine, n_jobs=n_jobs)
            scores = [LaplacianScore(n_neighbors=6, n_jobs=n).fit(values).scores_.tobytes() for n in (1, n_jobs)]
        np.testing.assert_array_equal(graph.indices, expected.indices)
        assert graph.distances.tobytes() == expected.distances.tobytes()
        assert scores[0] == scores[1]

    def test_units_run_in_as_many_threads_as_asked_for(self) -> None:
        """Both of two searches of a group wait until the other one has begun."""
        both, values = threading.Barrier(2, timeout=60), np.random.default_rng(0).normal(size=(1000, 4))

        def waiting(context: Any, stage: Any, *rest: Any) -> Any:
            if stage.is_of(BUILD_STAGE):
                assert stage.n_units == 2
                both.wait()
            return run_unit(context, stage, *rest)

        with mock.patch.multiple(partition, GROUP_ROWS=500), mock.patch.object(submission, "run_unit", waiting):
            knn_graph(values, 3, engine="cells", n_jobs=2)

    def test_sparse_rows_cannot_be_centered_for_cosines(self) -> None:
        """Dividing without subtracting the mean leaves differences of rows, but not angles, as they are."""
        with pytest.raises(ValueError, match=r"(?=.*zscore)(?=.*cosine)"):
            knn_graph(sp.csr_matrix(RANDOM), 6, metric="cosine", graph_scaling="zscore")

    @each("mode", ["distance", "connectivity"])
    def test_csr_is_scikit_learns(self, mode: Any) -> None:
        """Random rows have no ties, about which the two would differ."""
        ours = knn_graph(RANDOM, 4).to_csr(mode)
        theirs = kneighbors_graph(RANDOM, 4, mode=mode, include_self=False)
        np.testing.assert_allclose(ours.toarray(), theirs.toarray(), rtol=1e-12)
        np.testing.assert_array_equal(np.diff(ours.indptr), 4)

    def test_csr_leaves_out_missing_neighbors(self) -> None:
        indices = np.array([[1, 2], [0, -1], [-1, -1]])
        graph = KNNGraph(indices, np.where(indices < 0, np.inf, 0.5), "euclidean")
        np.testing.assert_array_equal(graph.to_csr().toarray(), [[0, 0.5, 0.5], [0.5, 0, 0], [0, 0, 0]])

    def test_a_projection_may_be_a_number_of_numpys(self) -> None:
        columns: Any = np.int64(3)
        graph = knn_graph(RANDOM, 4, engine="cells", projection=columns)
        np.testing.assert_array_equal(graph.indices, knn_graph(RANDOM, 4, engine="cells", projection=3).indices)

    def test_complete_graph(self) -> None:
        assert knn_graph(RANDOM, 59).indices.shape == (60, 59)

    @each(
        ("change", "message"),
        [
            ({"n_neighbors": 60}, r"n_neighbors is 60, and X has n_samples=60"),
            ({"n_neighbors": 0}, r"n_neighbors must be at least 1; got 0"),
            ({"metric": "manhatten"}, r"metric must be one of .*'manhattan', .*; got 'manhatten'"),
            ({"metric": "bit_jaccard"}, "'bit_jaccard' compares packed bits: .* metric 'jaccard'"),
            ({"metric": "mahalanobis"}, "metric 'mahalanobis' needs metric_kwds with vinv"),
            (
                {"metric": "minkowski", "metric_kwds": {"q": 3}},
                "metric_kwds: metric 'minkowski' has no q; its arguments: p",
            ),
            ({"metric": "minkowski(p=3"}, r"metric 'minkowski\(p=3' has no arguments that can be read"),
            ({"metric": "minkowski", "metric_kwds": {"p": np.inf}}, "arguments of a metric are finite numbers"),
            ({"metric": "haversine"}, "'haversine' compares latitude and longitude, in radians, and X has 5 columns"),
            ({"metric": "seuclidean", "metric_kwds": {"sigma": [1.0]}}, r"'sigma' of shape \(1,\), and X of 5 columns"),
            ({"metric": "manhattan", "engine": "cells"}, "engine 'cells' does not compare rows by metric 'manhattan'"),
            ({"graph_scaling": "minmax"}, "graph_scaling 'minmax': unknown step 'minmax'"),
            ({"engine": "faiss"}, r"engine must be one of 'auto', .*, 'pynndescent'; got 'faiss'"),
            ({"recall": 0.5}, r"recall must be above 0\.5 and below 1; got 0\.5"),
            ({"recall": 1.0}, r"recall must be above 0\.5 and below 1; got 1\.0"),
            ({"recall": np.nan}, r"recall must be above 0\.5 and below 1; got nan"),
            ({"projection": 0}, r"projection must be None, 'auto' or a whole number of at least 1; got 0"),
            ({"projection": "none"}, r"projection must be .*; got 'none'"),
            ({"projection": 2.5}, r"projection must be .*; got 2\.5"),
        ],
    )
    def test_bad_options(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            knn_graph(RANDOM, **change)

    @each(("value", "name"), [(np.nan, "NaN"), (np.inf, "infinite")])
    @each("form", [np.asarray, sp.csr_matrix])
    def test_missing_and_infinite_values_name_the_column(
        self, form: Callable[[Any], Any], value: float, name: str
    ) -> None:
        values = RANDOM.copy()
        values[7, 3] = value
        with pytest.raises(ValueError, match=rf"column 3 .*{name} .*row 7"):
            knn_graph(form(values), 3)


class TestGivenLists:
    def test_same_scores_as_the_graph_that_the_estimator_finds(self) -> None:
        graph = knn_graph(X, 12)
        for k in (3, 12):
            given = LaplacianScore(n_neighbors=k, graph=graph).fit(X).scores_
            np.testing.assert_array_equal(given, LaplacianScore(n_neighbors=k).fit(X).scores_)

    def test_metric_and_scaling_are_the_graphs_own(self) -> None:
        graph = knn_graph(X, 5, metric="cosine")
        given = LaplacianScore(weights="binary", graph=graph).fit(X).scores_
        np.testing.assert_array_equal(given, LaplacianScore(metric="cosine", weights="binary").fit(X).scores_)
        unit = knn_graph(X, 5, graph_scaling="unit")
        given = LaplacianScore(graph=unit).fit(X).scores_
        np.testing.assert_array_equal(given, LaplacianScore(graph_scaling="unit").fit(X).scores_)

    def test_missing_neighbors(self) -> None:
        indices, distances = (part.copy() for part in knn_lists(RANDOM, 4))
        indices[::3, 2:], distances[::3, 2:] = -1, np.inf
        S = np.zeros((60, 60))
        lengths = {(min(i, j), max(i, j)): d for i in range(60) for j, d in zip(indices[i], distances[i]) if j >= 0}  # noqa: B905
        t = np.mean(np.square(list(lengths.values())))
        for (i, j), length in lengths.items():
            S[i, j] = S[j, i] = np.exp(-(length**2) / t)
        found = LaplacianScore(n_neighbors=4, graph=KNNGraph(indices, distances, "euclidean")).fit(RANDOM).scores_
        np.testing.assert_allclose(found, laplacian_score(RANDOM, S), rtol=1e-11)

    def test_the_graph_may_come_from_other_features(self) -> None:
        graph = knn_graph(X[:, 2:], 5)
        expected = laplacian_score(X, union_adjacency(*knn_lists(X[:, 2:], 5), binary()))
        np.testing.assert_allclose(LaplacianScore(weights="binary", graph=graph).fit(X).scores_, expected, rtol=1e-11)

    def test_too_few_neighbors_or_other_rows(self) -> None:
        with pytest.raises(ValueError, match="n_neighbors is 5, and graph has 3 neighbors a row"):
            LaplacianScore(graph=knn_graph(X, 3)).fit(X)
        with pytest.raises(ValueError, match="graph has 150 rows, and X has n_samples=149"):
            LaplacianScore(graph=knn_graph(X, 5)).fit(X[:-1])

    def test_cosine_weights_need_cosines(self) -> None:
        with pytest.raises(ValueError, match="weights 'cosine' need metric 'cosine'"):
            LaplacianScore(weights="cosine", graph=knn_graph(X, 5)).fit(X)


FORMS = [np.asarray, sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.csr_array]


class TestGivenMatrix:
    S = union_adjacency(*knn_lists(RANDOM, 5), heat(heat_t(*knn_lists(RANDOM, 5), "mean")))

    @each("form", FORMS)
    def test_dense_and_sparse(self, form: Callable[[Any], Any]) -> None:
        found = LaplacianScore(graph=form(self.S)).fit(RANDOM).scores_
        np.testing.assert_allclose(found, laplacian_score(RANDOM, self.S), rtol=1e-11)
        np.testing.assert_allclose(found, LaplacianScore().fit(RANDOM).scores_, rtol=1e-11)

    @each("form", FORMS)
    def test_asymmetric_is_symmetrized_by_the_larger_entry(self, form: Callable[[Any], Any]) -> None:
        one_sided = np.random.default_rng(1).uniform(size=(60, 60)) * (
            np.random.default_rng(2).uniform(size=(60, 60)) < 0.1
        )
        np.fill_diagonal(one_sided, 0.0)
        found = LaplacianScore(graph=form(one_sided)).fit(RANDOM).scores_
        np.testing.assert_allclose(found, laplacian_score(RANDOM, np.maximum(one_sided, one_sided.T)), rtol=1e-11)

    def test_diagonal_counts_as_self_loops(self) -> None:
        S = self.S + np.diag(np.random.default_rng(3).uniform(0, 3, size=60))
        found = LaplacianScore(graph=S).fit(RANDOM).scores_
        np.testing.assert_allclose(found, laplacian_score(RANDOM, S), rtol=1e-11)
        assert np.abs(found / laplacian_score(RANDOM, self.S) - 1).min() > 0.1

    def test_rows_without_edges_take_no_part(self) -> None:
        S = self.S.copy()
        S[50:] = S[:, 50:] = 0.0
        F = RANDOM.copy()
        F[:50, 1] = 0.1
        with pytest.warns(UserWarning, match="10 "):
            found = LaplacianScore(graph=S).fit(F).scores_
        np.testing.assert_array_equal(np.isnan(found), [False, True, False, False, False])
        np.testing.assert_allclose(found, laplacian_score(F, S), rtol=1e-11)

    def test_kernel_parameters_do_not_matter(self) -> None:
        plain = LaplacianScore(graph=self.S).fit(RANDOM).scores_
        other = LaplacianScore(graph=self.S, n_neighbors=1000, weights="binary", t=1e-9).fit(RANDOM).scores_
        np.testing.assert_array_equal(plain, other)

    def test_the_given_matrix_is_not_changed(self) -> None:
        S = sp.csr_matrix(self.S)
        S.data[3] = 0.0
        before = S.copy()
        LaplacianScore(graph=S).fit(RANDOM)
        np.testing.assert_array_equal(S.data, before.data)
        assert S.nnz == before.nnz

    @pytest.mark.parametrize(
        ("graph", "message"),
        [
            (np.ones((60, 59)), r"graph has shape \(60, 59\), and X has n_samples=60"),
            (np.ones((59, 59)), r"graph has shape \(59, 59\), and X has n_samples=60"),
            (-np.ones((60, 60)), "graph has negative weights"),
            (np.full((60, 60), np.nan), "graph contains NaN"),
            (np.full((60, 60), np.inf), "graph contains infinity"),
            (np.zeros((60, 60)), "graph has no edges"),
            (np.eye(60), "graph has no edges"),
        ],
        ids=["not square", "another size", "negative", "NaN", "infinite", "zero", "loops only"],
    )
    def test_bad_matrices(self, graph: FloatArray, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            LaplacianScore(graph=graph).fit(RANDOM)
