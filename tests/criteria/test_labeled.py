"""Criteria on labels: SLS, SSLS and LSDF against their formulas, their identities, and labels at the edge of sense.

G5 is Doquire and Verleysen (2011), section 4.1; G9 the closed forms of LSDF.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_iris, load_wine
from sklearn.feature_selection import f_classif

from daskfs import LSDF, FisherScore, LaplacianScore, SemiSupervisedLaplacianScore, SupervisedLaplacianScore, knn_graph
from daskfs.criteria.registry import make_method
from daskfs.errors import JobError
from tests.reference.graph import binary, knn_lists, union_adjacency
from tests.reference.labeled import lsdf, semi_supervised_laplacian_score, supervised_laplacian_score
from tests.reference.scores import class_graph, laplacian_score

FloatArray = NDArray[np.float64]
Neighbors = Literal["d", "x"]


def partly(y: NDArray[Any], share: float, missing: float, seed: int = 0) -> NDArray[Any]:
    known = np.random.default_rng(seed).random(y.size) < share
    return np.where(known, y, missing)


def rows_and_target(n: int = 90, share: float = 1.0, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5)) * [1, 3, 0.1, 10, 1]
    return X, partly(X[:, 0] + 0.2 * X[:, 1] ** 2, share, np.nan, seed)


def rows_and_classes(n: int = 90, share: float = 0.4, seed: int = 0) -> tuple[FloatArray, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 5)) + codes[:, None] * [2, 1, 0.5, 0, 0]
    y = partly(codes, share, -1, seed)
    y[:3] = [0, 1, 2]
    return X, y


def union(X: FloatArray, k: int) -> FloatArray:
    return union_adjacency(*knn_lists(X, k), binary())


class TestSupervised:
    @pytest.mark.parametrize("parameters", [{}, {"n_neighbors": 1}, {"n_neighbors": 12, "t": 0.05}])
    @pytest.mark.parametrize("share", [1.0, 0.3])
    def test_formula(self, parameters: dict[str, Any], share: float) -> None:
        X, y = rows_and_target(share=share)
        expected = supervised_laplacian_score(X, y, parameters.get("n_neighbors", 5), parameters.get("t", 1.0))
        np.testing.assert_allclose(SupervisedLaplacianScore(**parameters).fit(X, y).scores_, expected, rtol=1e-12)

    def test_target_as_it_is(self) -> None:
        X, y = rows_and_target(share=0.5)
        fitted = SupervisedLaplacianScore(standardize_y=False, t=0.2).fit(X, y)
        expected = supervised_laplacian_score(X, y, 5, 0.2, standardize=False)
        np.testing.assert_allclose(fitted.scores_, expected, rtol=1e-12)
        in_units = SupervisedLaplacianScore(t=0.2 / float(np.nanvar(y))).fit(X, y)
        np.testing.assert_allclose(in_units.scores_, expected, rtol=1e-11)

    def test_whole_numbers_with_many_ties(self) -> None:
        X, y = load_diabetes(return_X_y=True)
        assert np.unique(y).size == 214
        fitted = SupervisedLaplacianScore().fit(X, y)
        np.testing.assert_allclose(fitted.scores_, supervised_laplacian_score(X, y), rtol=1e-12)
        few = np.round(y / 100)
        np.testing.assert_allclose(
            SupervisedLaplacianScore().fit(X, few).scores_, supervised_laplacian_score(X, few), rtol=1e-12
        )

    def test_unlabeled_rows_take_no_part(self) -> None:
        X, y = rows_and_target(share=0.4)
        known = ~np.isnan(y)
        alone = SupervisedLaplacianScore().fit(X[known], y[known]).scores_
        np.testing.assert_allclose(SupervisedLaplacianScore().fit(X, y).scores_, alone, rtol=1e-13)

    def test_classes_are_the_class_graph_and_fisher(self) -> None:
        """S3, theorem 1: 1 / (1 + F), also from scikit-learn's F of the analysis of variance."""
        for X, y in (load_iris(return_X_y=True), load_wine(return_X_y=True)):
            scores = SupervisedLaplacianScore(task="classification").fit(X, y).scores_
            np.testing.assert_allclose(scores, laplacian_score(X, class_graph(y)), rtol=1e-10)
            np.testing.assert_allclose(scores, 1 / (1 + FisherScore().fit(X, y).scores_), rtol=1e-13)
            n_classes = np.unique(y).size
            fisher = f_classif(X, y)[0] * (n_classes - 1) / (y.size - n_classes)
            np.testing.assert_allclose(scores, 1 / (1 + fisher), rtol=1e-9)

    def test_perfect_and_constant_features_of_classes(self) -> None:
        y = np.array([0, 0, 1, 1, -1, 2])
        X = np.column_stack([[0, 0, 3, 3, 8, 1], [4, 4, 4, 4, 9, 4], [0, 1, 2, 3, 4, 5], np.full(6, 1e8)])
        scores = SupervisedLaplacianScore(task="classification").fit(X, y).scores_
        assert scores[0] == 0
        np.testing.assert_array_equal(np.isnan(scores), [False, True, False, True])

    def test_one_row_for_each_class(self) -> None:
        X = np.random.default_rng(0).normal(size=(5, 3))
        assert not SupervisedLaplacianScore(task="classification").fit(X, [0, 1, -1, 2, -1]).scores_.any()

    def test_constant_on_the_labeled_rows(self) -> None:
        X, y = rows_and_target(share=0.3)
        X[~np.isnan(y), 2] = 7.5
        fitted = SupervisedLaplacianScore().fit(X, y)
        np.testing.assert_array_equal(np.isnan(fitted.scores_), [False, False, True, False, False])
        assert fitted.ranking_[2] == 5

    @pytest.mark.parametrize("n_labeled", [2, 3, 5, 6, 7])
    def test_fewer_labels_than_neighbors(self, n_labeled: int) -> None:
        X, y = rows_and_target()
        y[n_labeled:] = np.nan
        scores = SupervisedLaplacianScore().fit(X, y).scores_
        np.testing.assert_allclose(scores, supervised_laplacian_score(X, y), rtol=1e-12)
        assert np.isfinite(scores).all()

    def test_every_neighbor_is_the_complete_graph(self) -> None:
        X, y = rows_and_target(30)
        S = np.exp(-((y[:, None] - y[None, :]) ** 2) / y.var()) - np.eye(30)
        np.testing.assert_allclose(SupervisedLaplacianScore(n_neighbors=29).fit(X, y).scores_, laplacian_score(X, S))

    def test_a_width_that_nothing_survives(self) -> None:
        X, y = rows_and_target()
        with pytest.raises(
            ValueError, match=r"heat weights .* are 0 with t = 1e-300.* Raise t, or standardize the target"
        ):
            SupervisedLaplacianScore(t=1e-300).fit(X, y)

    def test_rows_whose_target_is_far_from_all(self) -> None:
        X, y = rows_and_target(share=0.5)
        known = np.flatnonzero(~np.isnan(y))
        y[known[0]] = 1e4
        with pytest.warns(UserWarning, match=rf"^1 of {known.size} labeled rows have no edge .* score\. Raise t\.$"):
            scores = SupervisedLaplacianScore(standardize_y=False).fit(X, y).scores_
        y[known[0]] = np.nan
        np.testing.assert_allclose(scores, SupervisedLaplacianScore(standardize_y=False).fit(X, y).scores_, rtol=1e-12)

    @pytest.mark.filterwarnings("ignore:.* labeled rows have no edge")
    @pytest.mark.parametrize("problem", ["first", "second"])
    def test_published_problems(self, problem: str) -> None:
        """G5 in small; the benchmarks repeat it 300 times."""
        rng = np.random.default_rng(0)
        hits = 0
        for _ in range(5):
            if problem == "first":
                X = rng.random((1000, 8))
                y = np.cos(2 * np.pi * X[:, 0] * X[:, 1]) * np.sin(2 * np.pi * X[:, 2] * X[:, 3])
                informative = {0, 1, 2, 3}
            else:
                X = rng.random((1000, 4))
                y, informative = X[:, 0] ** 2 / X[:, 1] ** 2, {0, 1}
            best = SupervisedLaplacianScore(len(informative)).fit(X, y).get_support(indices=True)
            hits += set(best) == informative
        assert hits >= (4 if problem == "first" else 5)


class TestSemiSupervised:
    @pytest.mark.parametrize("neighbors", ["d", "x"])
    @pytest.mark.parametrize("share", [0.06, 0.5, 1.0])
    @pytest.mark.parametrize(
        "parameters",
        [
            {},
            {"n_neighbors": 7, "n_label_neighbors": 2, "t": 0.3, "label_weight": 0.5},
            {"graph_scaling": None, "standardize_y": False, "t": 4.0},
        ],
    )
    @pytest.mark.filterwarnings("ignore:graph euclidean")
    def test_formula(self, neighbors: Neighbors, share: float, parameters: dict[str, Any]) -> None:
        X, y = rows_and_target(share=share)
        y[:2] = [0.5, 2.5]
        expected = semi_supervised_laplacian_score(
            X,
            y,
            parameters.get("n_neighbors", 30),
            parameters.get("n_label_neighbors", 5),
            parameters.get("t", 1.0),
            parameters.get("label_weight", 5.0),
            neighbors,
            parameters.get("standardize_y", True),
            parameters.get("graph_scaling", "zscore"),
        )
        fitted = SemiSupervisedLaplacianScore(neighbors=neighbors, **parameters).fit(X, y)
        np.testing.assert_allclose(fitted.scores_, expected, rtol=1e-10)

    @pytest.mark.parametrize("k", [3, 5, 12])
    def test_all_labels_known_is_the_square_of_the_supervised_score(self, k: int) -> None:
        X, y = rows_and_target()
        expected = SupervisedLaplacianScore(n_neighbors=k).fit(X, y).scores_ ** 2
        for label_weight in (0.1, 1.0, 5.0, 100.0):
            fitted = SemiSupervisedLaplacianScore(n_neighbors=k, n_label_neighbors=k, label_weight=label_weight)
            np.testing.assert_allclose(fitted.fit(X, y).scores_, expected, rtol=1e-12)

    def test_without_near_labels_it_is_a_laplacian_score(self) -> None:
        """Two labels that are no neighbors in X leave the first factor to the graph over X."""
        X, y = rows_and_target()
        y[:] = np.nan
        far = np.argsort(X[:, 3])[[0, -1]]
        y[far] = [0.0, 1.0]
        mixed = SemiSupervisedLaplacianScore(n_neighbors=4, neighbors="x", t=2.0).fit(X, y).score_fields_["mixed"]
        plain = LaplacianScore(n_neighbors=4, graph_scaling="zscore", t=2.0 * X.shape[1]).fit(X).scores_
        np.testing.assert_allclose(mixed, plain, rtol=1e-12)

    def test_fields_are_its_factors(self) -> None:
        X, y = rows_and_target(share=0.3)
        fields = SemiSupervisedLaplacianScore().fit(X, y).score_fields_
        np.testing.assert_array_equal(fields["score"], fields["mixed"] * fields["supervised"])
        np.testing.assert_array_equal(fields["supervised"], SupervisedLaplacianScore().fit(X, y).scores_)

    def test_constant_features(self) -> None:
        """On all rows: excluded. On the labeled ones: the first factor alone."""
        X, y = rows_and_target(share=0.2)
        X[:, 1] = 1e8
        X[~np.isnan(y), 2] = 7.5
        fitted = SemiSupervisedLaplacianScore().fit(X, y)
        np.testing.assert_array_equal(np.isnan(fitted.scores_), [False, True, False, False, False])
        assert fitted.scores_[2] == fitted.score_fields_["mixed"][2]
        assert np.isnan(fitted.score_fields_["supervised"][2])

    @pytest.mark.parametrize("n_labeled", [2, 3, 6])
    def test_fewer_labels_than_neighbors(self, n_labeled: int) -> None:
        X, y = rows_and_target()
        y[n_labeled:] = np.nan
        expected = semi_supervised_laplacian_score(X, y)
        np.testing.assert_allclose(SemiSupervisedLaplacianScore().fit(X, y).scores_, expected, rtol=1e-10)

    def test_fewer_rows_than_neighbors(self) -> None:
        X, y = rows_and_target(12, share=0.5)
        expected = semi_supervised_laplacian_score(X, y)
        np.testing.assert_allclose(SemiSupervisedLaplacianScore().fit(X, y).scores_, expected, rtol=1e-10)

    def test_a_graph_that_is_there(self) -> None:
        X, y = rows_and_target(share=0.3)
        graph = knn_graph(X, 89, graph_scaling="unit")
        expected = SemiSupervisedLaplacianScore(graph_scaling="unit").fit(X, y).scores_
        np.testing.assert_array_equal(SemiSupervisedLaplacianScore(graph=graph).fit(X, y).scores_, expected)

    @pytest.mark.parametrize(
        ("graph", "message"),
        [
            (lambda X: knn_graph(X, 40).to_csr(), "graph holds a matrix of weights, and distances are needed"),
            (lambda X: knn_graph(X, 20), "n_neighbors is 30, and graph has 20 neighbors a row"),
            (lambda X: knn_graph(X[1:], 40), "graph has 89 rows, and X has n_samples=90"),
        ],
    )
    @pytest.mark.filterwarnings("ignore:graph euclidean")
    def test_graphs_that_cannot_serve(self, graph: Any, message: str) -> None:
        X, y = rows_and_target(share=0.3)
        with pytest.raises(ValueError, match=message):
            SemiSupervisedLaplacianScore(graph=graph(X)).fit(X, y)


class TestLSDF:
    @pytest.mark.parametrize("share", [0.05, 0.4, 1.0])
    @pytest.mark.parametrize("parameters", [{}, {"n_neighbors": 3, "same_class_weight": 1.0}])
    def test_closed_forms_are_the_explicit_graph(self, share: float, parameters: dict[str, Any]) -> None:
        """G9."""
        X, y = rows_and_classes(share=share)
        S = union(X, parameters.get("n_neighbors", 10))
        expected = lsdf(X, S, y, parameters.get("same_class_weight", 100.0))
        np.testing.assert_allclose(LSDF(**parameters).fit(X, y).scores_, expected, rtol=1e-10)

    def test_an_offset_costs_no_digit(self) -> None:
        X, y = rows_and_classes()
        X = np.round(X * 64) / 64
        np.testing.assert_allclose(LSDF().fit(X + 1e8, y).scores_, LSDF().fit(X, y).scores_, rtol=1e-7)

    def test_weights_of_a_matrix_count_as_they_are(self) -> None:
        X, y = rows_and_classes()
        S = union(X, 6) * np.random.default_rng(0).random(90)
        S = np.maximum(S, S.T)
        for graph in (S, sp.csr_matrix(S)):
            np.testing.assert_allclose(LSDF(graph=graph).fit(X, y).scores_, lsdf(X, S, y), rtol=1e-10)

    def test_a_graph_that_is_there(self) -> None:
        X, y = rows_and_classes()
        graph = knn_graph(X, 15, metric="cosine")
        np.testing.assert_array_equal(LSDF(graph=graph).fit(X, y).scores_, LSDF(metric="cosine").fit(X, y).scores_)

    def test_all_labeled_needs_no_neighbors(self) -> None:
        X, y = rows_and_classes(8)
        y[:] = np.arange(8) % 3
        np.testing.assert_allclose(LSDF().fit(X, y).scores_, lsdf(X, np.zeros((8, 8)), y), rtol=1e-12)

    def test_one_row_for_each_class(self) -> None:
        X, y = rows_and_classes(30, 0.0)
        assert (y >= 0).sum() == 3
        np.testing.assert_allclose(LSDF().fit(X, y).scores_, lsdf(X, union(X, 10), y), rtol=1e-10)
        only = LSDF().fit(X[:3], y[:3])
        assert np.isposinf(only.scores_).all()

    def test_constant_features(self) -> None:
        X, y = rows_and_classes()
        X[:, 0] = 3.5
        X[y >= 0, 1] = 2.0
        scores = LSDF().fit(X, y).scores_
        assert np.isnan(scores[0])
        assert scores[1] == 0

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.integers(0, 3), min_size=2, max_size=25), st.floats(0.01, 1e4))
    def test_all_labeled_of_any_sizes(self, codes: list[int], same_class_weight: float) -> None:
        y = np.unique(codes, return_inverse=True)[1]
        if y.max() == 0:
            return
        X = np.random.default_rng(len(codes)).integers(-5, 6, (y.size, 4)).astype(float)
        expected = lsdf(X, np.zeros((y.size, y.size)), y, same_class_weight)
        found = LSDF(same_class_weight=same_class_weight).fit(X, y).scores_
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


REGRESSION = [SupervisedLaplacianScore, SemiSupervisedLaplacianScore]


class TestEveryOne:
    @pytest.mark.parametrize("estimator", REGRESSION)
    def test_scores_lie_between_0_and_2(self, estimator: Any) -> None:
        X, y = rows_and_target(share=0.5, seed=3)
        fields = estimator().fit(X, y).score_fields_
        for name in ("mixed", "supervised") if estimator is SemiSupervisedLaplacianScore else ("score",):
            assert ((fields[name] >= 0) & (fields[name] <= 2)).all()

    @pytest.mark.parametrize("estimator", REGRESSION)
    @pytest.mark.parametrize("factor", [4.0, -0.5])
    def test_units_and_offsets_of_features_do_not_matter(self, estimator: Any, factor: float) -> None:
        X, y = rows_and_target(share=0.5)
        X = np.round(X * 64) / 64
        expected = estimator().fit(X, y).scores_
        np.testing.assert_allclose(estimator().fit(X * factor + 32.0, y).scores_, expected, rtol=1e-9)

    @pytest.mark.parametrize("estimator", REGRESSION)
    def test_units_and_offsets_of_the_target_do_not_matter(self, estimator: Any) -> None:
        X, y = rows_and_target(share=0.5)
        y = np.round(y * 64) / 64
        np.testing.assert_allclose(estimator().fit(X, y * 1024 + 1e6).scores_, estimator().fit(X, y).scores_, rtol=1e-9)

    @pytest.mark.parametrize("estimator", REGRESSION)
    @pytest.mark.parametrize(
        ("known", "message"),
        [
            ([], "no row has a target"),
            ([1.5], "all 1 labeled rows have one value"),
            ([1.5, 1.5, 1.5], "all 3 labeled rows have one value"),
        ],
    )
    def test_targets_that_cannot_serve(self, estimator: Any, known: list[float], message: str) -> None:
        X, y = rows_and_target()
        y[:] = np.nan
        y[: len(known)] = known
        with pytest.raises(ValueError, match=message):
            estimator().fit(X, y)

    @pytest.mark.parametrize("estimator", [LSDF, lambda: SupervisedLaplacianScore(task="classification")])
    def test_one_class_cannot_serve(self, estimator: Any) -> None:
        X, y = rows_and_classes()
        with pytest.raises(ValueError, match="labeled rows have one class"):
            estimator().fit(X, np.where(y == 1, 1, np.nan))

    @pytest.mark.parametrize("estimator", [*REGRESSION, LSDF])
    def test_rows_that_count_for_nothing_are_as_good_as_unlabeled(self, estimator: Any) -> None:
        X, y = rows_and_target(share=0.5) if estimator is not LSDF else rows_and_classes()
        is_known = ~np.isnan(y) if estimator is not LSDF else y >= 0
        weights = np.ones(len(y))
        weights[np.flatnonzero(is_known)[5:9]] = 0
        fewer = np.where(weights > 0, y, np.nan if estimator is not LSDF else -1)
        found, expected = (estimator().fit(X, labels, sample_weight=weights).scores_ for labels in (y, fewer))
        np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize(
        ("name", "parameters"),
        [
            ("SupervisedLaplacianScore", {"t": "mean"}),
            ("SemiSupervisedLaplacianScore", {"t": 0}),
            ("SemiSupervisedLaplacianScore", {"label_weight": 0}),
            ("SemiSupervisedLaplacianScore", {"neighbors": "y"}),
            ("LSDF", {"same_class_weight": -1}),
            ("LSDF", {"weights": "heat"}),
        ],
    )
    def test_parameters_that_make_no_sense(self, name: str, parameters: dict[str, Any]) -> None:
        with pytest.raises(JobError, match=f"method {name}.* parameter '{next(iter(parameters))}'"):
            make_method(name, parameters)
