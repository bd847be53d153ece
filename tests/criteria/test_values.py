"""Printed numbers, exact identities and the slow references, reached through the estimators.

G2 is Fisher's score on Iris, G3 and G4 are the Iris numbers of He, Cai, Niyogi (NIPS 2005, section 4.1), G6 is Geary's
C with the invariances; tests/reference holds the same numbers against formulas written out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy.sparse.csgraph import laplacian
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

import daskfs
from daskfs import FisherScore, LaplacianScore, PearsonScore, VarianceScore, knn_graph
from daskfs.criteria.registry import criteria
from daskfs.kernels.neighbors.weights import WeightKind
from tests.reference.graph import Metric, Weight, binary, cosine, heat, heat_t, knn_lists, union_adjacency
from tests.reference.iris import uci_iris
from tests.reference.rankdata import order
from tests.reference.scikit_feature import scikit_feature_laplacian_score
from tests.reference.scores import class_graph, fisher, geary_c, laplacian_score, pearson, pearson_one_vs_rest, variance

FloatArray = NDArray[np.float64]
F1, F2, F3, F4 = range(4)


def order_of(ranking: NDArray[np.int64]) -> list[int]:
    return np.argsort(ranking).tolist()


def random_rows(seed: int, n: int = 80, d: int = 6) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(n, d))


class TestIris:
    """G2, G3, G4."""

    def test_fisher(self) -> None:
        X, y = load_iris(return_X_y=True)
        np.testing.assert_array_equal(FisherScore().fit(X, y).scores_.round(3), [1.623, 0.669, 16.057, 13.061])

    def test_correlations_with_the_class_index(self) -> None:
        X, y = uci_iris()
        fitted = PearsonScore().fit(X, y.astype(np.float64))
        np.testing.assert_array_equal(fitted.scores_.round(4), [0.7826, 0.4194, 0.9490, 0.9565])
        np.testing.assert_array_equal(fitted.score_fields_["correlation"].round(4), [0.7826, -0.4194, 0.9490, 0.9565])

    def test_orders_by_variance_and_fisher(self) -> None:
        X, y = uci_iris()
        assert order_of(VarianceScore().fit(X).ranking_) == [F3, F1, F4, F2]
        assert order_of(FisherScore().fit(X, y).ranking_) == [F3, F4, F1, F2]

    @pytest.mark.parametrize("graph", [{"metric": "cosine"}, {"graph_scaling": "unit"}])
    def test_laplacian_score(self, graph: dict[str, Any]) -> None:
        scores = LaplacianScore(weights="binary", n_neighbors=5, **graph).fit(uci_iris()[0]).scores_
        np.testing.assert_array_equal(scores.round(4), [0.3682, 0.3868, 0.0450, 0.0394])

    @pytest.mark.parametrize("graph", [{"metric": "cosine"}, {"graph_scaling": "unit"}])
    def test_order_for_each_number_of_neighbors(self, graph: dict[str, Any]) -> None:
        X = uci_iris()[0]
        lists = knn_graph(X, 40, **graph)
        orders = {
            k: order_of(LaplacianScore(weights="binary", n_neighbors=k, graph=lists).fit(X).ranking_)
            for k in range(1, 41)
        }
        early = {k: [F4, F3, F2, F1] for k in (1, 2, 4)} | {k: [F4, F3, F1, F2] for k in (3, *range(5, 15), 16)}
        assert orders == early | {k: [F3, F4, F1, F2] for k in (15, *range(17, 41))}


WEIGHTS: list[tuple[dict[str, Any], Metric, Callable[[Any, Any], Weight]]] = [
    ({}, "euclidean", lambda i, d: heat(heat_t(i, d, "mean"))),
    ({"t": "median"}, "euclidean", lambda i, d: heat(heat_t(i, d, "median"))),
    ({"t": 0.8}, "euclidean", lambda _i, _d: heat(0.8)),
    ({"weights": "binary"}, "euclidean", lambda _i, _d: binary()),
    ({"metric": "cosine"}, "cosine", lambda i, d: heat(heat_t(i, d, "mean"))),
    ({"metric": "cosine", "weights": "binary"}, "cosine", lambda _i, _d: binary()),
    ({"metric": "cosine", "weights": "cosine"}, "cosine", lambda _i, _d: lambda d: max(cosine()(d), 0.0)),
]


def reference_scores(
    X: FloatArray, k: int, metric: Metric, weight: Callable[[Any, Any], Weight], self_loops: bool = False
) -> FloatArray:
    lists = knn_lists(X, k, metric)
    return laplacian_score(X, union_adjacency(*lists, weight(*lists), self_loops))


class TestLaplacianReference:
    @pytest.mark.parametrize("self_loops", [False, True])
    @pytest.mark.parametrize(("parameters", "metric", "weight"), WEIGHTS, ids=[str(row[0]) for row in WEIGHTS])
    @pytest.mark.parametrize(
        "name", ["random", "duplicates", *(pytest.param(name, marks=pytest.mark.long) for name in ("iris", "digits"))]
    )
    def test_whole_way(
        self,
        name: str,
        parameters: dict[str, Any],
        metric: Metric,
        weight: Callable[[Any, Any], Weight],
        self_loops: bool,
    ) -> None:
        X = {
            "random": random_rows(0),
            "iris": load_iris().data,
            "digits": load_digits().data[:120] / 16,
            "duplicates": np.repeat(random_rows(1, n=20), 4, axis=0),
        }[name]
        found = LaplacianScore(self_loops=self_loops, **parameters).fit(X).scores_
        expected = reference_scores(X, 5, metric, weight, self_loops)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        assert np.isnan(found).sum() == (np.ptp(X, axis=0) == 0).sum()

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_given_weights_with_ties_duplicates_and_constants(self, data: st.DataObject) -> None:
        n, d = data.draw(st.integers(3, 12)), data.draw(st.integers(1, 5))
        values = st.one_of(st.integers(-2, 2).map(float), st.floats(-1e3, 1e3, allow_subnormal=False))
        F = data.draw(hnp.arrays(np.float64, (n, d), elements=values))
        offset = data.draw(st.sampled_from([0.0, 1e3]))
        upper = data.draw(hnp.arrays(np.float64, (n, n), elements=st.sampled_from([0.0, 0.0, 0.25, 1.0, 3.0])))
        S = np.triu(upper, k=1)
        S = S + S.T + np.diag(np.full(n, data.draw(st.sampled_from([0.0, 0.5]))))
        assume(np.triu(S, k=1).any() and (S.sum(axis=1) > 0).all())
        is_varying = np.ptp(F, axis=0) > 1e-3
        assume((np.ptp(F, axis=0) == 0).sum() + is_varying.sum() == d)
        assume(is_varying.any())  # constant features alone are refused
        fitted = LaplacianScore(graph=S).fit(F + offset)
        expected = laplacian_score(F + offset, S)
        np.testing.assert_allclose(fitted.scores_, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(np.isnan(fitted.scores_), np.ptp(F + offset, axis=0) == 0)
        assert sorted(fitted.ranking_) == list(range(1, d + 1))

    @pytest.mark.parametrize("seed", range(3))
    def test_same_graph_1e_9(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        F = np.column_stack(
            [random_rows(seed), rng.integers(0, 3, size=80), np.full(80, 0.1), rng.normal(size=80) + 1e4]
        )
        F[40:60] = F[:20]
        lists = knn_lists(F, 6)
        S = union_adjacency(*lists, heat(heat_t(*lists, "mean")))
        found = LaplacianScore(graph=S).fit(F).scores_
        np.testing.assert_allclose(found, laplacian_score(F, S), rtol=1e-9)
        assert np.flatnonzero(np.isnan(found)).tolist() == [7]


class TestOtherReferences:
    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_variance_fisher_and_pearson(self, data: st.DataObject) -> None:
        n, d = data.draw(st.integers(4, 15)), data.draw(st.integers(1, 4))
        values = st.one_of(st.integers(-2, 2).map(float), st.floats(-100, 100, width=16))
        F = data.draw(hnp.arrays(np.float64, (n, d), elements=values)) + data.draw(st.sampled_from([0.0, 1e3]))
        codes = data.draw(hnp.arrays(np.int64, n, elements=st.integers(-1, 2)))
        assume(np.unique(codes[codes >= 0]).size >= 2)
        for rows in (F, F[codes >= 0]):  # a spread that rounding decides is none to compare
            spread = np.ptp(rows, axis=0)
            assume(spread.any() and ((spread == 0) | (spread > 1e-3)).all())
        expected = variance(F)
        expected[np.ptp(F, axis=0) == 0] = np.nan
        np.testing.assert_allclose(VarianceScore().fit(F).scores_, expected, rtol=1e-9)
        np.testing.assert_allclose(FisherScore().fit(F, codes).scores_, fisher(F, codes), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(
            PearsonScore().fit(F, codes).scores_, pearson_one_vs_rest(F, codes), rtol=1e-9, atol=1e-9
        )
        target = np.where(codes < 0, np.nan, codes * 0.7)
        np.testing.assert_allclose(PearsonScore().fit(F, target).scores_, pearson(F, target), rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_digits])
    def test_real_classes(self, load: Callable[..., Any]) -> None:
        X, y = load(return_X_y=True)
        np.testing.assert_allclose(FisherScore().fit(X, y).scores_, fisher(X, y), rtol=1e-9)
        np.testing.assert_allclose(PearsonScore().fit(X, y).scores_, pearson_one_vs_rest(X, y), rtol=1e-9)
        expected = np.where(np.ptp(X, axis=0) == 0, np.nan, variance(X))
        fitted = VarianceScore().fit(X)
        np.testing.assert_allclose(fitted.scores_, expected, rtol=1e-9)
        assert order_of(fitted.ranking_) == order(expected, "descending")

    def test_real_target(self) -> None:
        X, y = load_diabetes(return_X_y=True)
        np.testing.assert_allclose(PearsonScore().fit(X, y).scores_, pearson(X, y), rtol=1e-9)


class TestIdentities:
    """G6, and section 3 of the paper."""

    @pytest.mark.parametrize("seed", range(3))
    def test_geary_from_the_fields(self, seed: int) -> None:
        """Geary's C is (n - 1) / sum(S) times the numerator over n times the plain variance."""
        F = random_rows(seed)
        lists = knn_lists(F, 5)
        S = union_adjacency(*lists, heat(heat_t(*lists, "mean")))
        fields = LaplacianScore().fit(F).score_fields_
        found = (len(F) - 1) / S.sum() * fields["numerator"] / (len(F) * VarianceScore().fit(F).scores_)
        np.testing.assert_allclose(found, [geary_c(f, S) for f in F.T], rtol=1e-10)
        np.testing.assert_array_equal(fields["score"], fields["numerator"] / fields["denominator"])

    @pytest.mark.parametrize("seed", range(3))
    def test_spec_phi_2(self, seed: int) -> None:
        """Zhao, Liu (ICML 2007): the cut of the normalized feature, freed of the trivial eigenvector."""
        F = random_rows(seed)
        S = union_adjacency(*knn_lists(F, 5), binary())
        root = np.sqrt(S.sum(axis=1))
        trivial = root / np.linalg.norm(root)
        directions = root[:, None] * F
        directions /= np.linalg.norm(directions, axis=0)
        cuts = ((laplacian(S, normed=True) @ directions) * directions).sum(axis=0)
        expected = cuts / (1 - (trivial @ directions) ** 2)
        np.testing.assert_allclose(LaplacianScore(weights="binary").fit(F).scores_, expected, rtol=1e-10)

    @pytest.mark.parametrize("load", [load_iris, load_wine])
    def test_class_graph_is_one_over_one_plus_fisher(self, load: Callable[..., Any]) -> None:
        X, y = load(return_X_y=True)
        found = LaplacianScore(graph=class_graph(y)).fit(X).scores_
        np.testing.assert_allclose(found, 1 / (1 + FisherScore().fit(X, y).scores_), rtol=1e-11)

    @pytest.mark.parametrize(("a", "b"), [(1.0, 1e5), (-1.0, 0.0), (1e-3, 7.0), (250.0, -3.0)])
    def test_a_f_plus_b(self, a: float, b: float) -> None:
        F, y = random_rows(1), np.arange(80) % 3
        graph, target = knn_graph(F, 5), F @ np.arange(6.0)
        for estimator, labels in ((LaplacianScore(graph=graph), None), (FisherScore(), y), (PearsonScore(), target)):
            plain, moved = (estimator.fit(values, labels).scores_ for values in (F, a * F + b))
            np.testing.assert_allclose(moved, plain, rtol=1e-9)
        np.testing.assert_allclose(
            VarianceScore().fit(a * F + b).scores_, a**2 * VarianceScore().fit(F).scores_, rtol=1e-9
        )

    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    @pytest.mark.parametrize("weights", ["heat", "binary"])
    def test_permutations_of_rows_and_of_features(self, metric: Metric, weights: WeightKind) -> None:
        rng = np.random.default_rng(2)
        F, y = random_rows(2), np.arange(80) % 3
        rows, features = rng.permutation(80), rng.permutation(6)
        for estimator in (
            LaplacianScore(metric=metric, weights=weights),
            FisherScore(),
            PearsonScore(),
            VarianceScore(),
        ):
            plain = estimator.fit(F, y).scores_
            np.testing.assert_allclose(estimator.fit(F[rows], y[rows]).scores_, plain, rtol=1e-10)
            np.testing.assert_allclose(estimator.fit(F[:, features], y).scores_, plain[features], rtol=1e-10)

    def test_given_graph_a_features_score_does_not_depend_on_the_others_by_a_bit(self) -> None:
        F, y = random_rows(3, d=70), np.arange(80) % 3
        graph = knn_graph(F, 5)
        for estimator in (LaplacianScore(graph=graph), FisherScore(), PearsonScore(), VarianceScore()):
            whole = estimator.fit(F, y).scores_
            for columns in (slice(0, 1), slice(5, 12), slice(60, 70), slice(1, 70)):
                np.testing.assert_array_equal(estimator.fit(F[:, columns], y).scores_, whole[columns])

    @pytest.mark.parametrize("k", [1, 5, 79])
    def test_between_0_and_2(self, k: int) -> None:
        scores = LaplacianScore(n_neighbors=k).fit(random_rows(4)).scores_
        assert ((scores >= 0) & (scores <= 2)).all()

    def test_ends_of_the_range(self) -> None:
        assert LaplacianScore(n_neighbors=1).fit([[0.0], [1.0]]).scores_[0] == 2.0
        two_pairs = np.kron(np.eye(2), [[0.0, 1.0], [1.0, 0.0]])
        assert LaplacianScore(graph=two_pairs).fit([[0.1], [0.1], [0.7], [0.7]]).scores_[0] == 0.0

    def test_complete_binary_graph_gives_every_feature_the_same_score(self) -> None:
        F = random_rows(5)
        scores = LaplacianScore(n_neighbors=79, weights="binary").fit(F).scores_
        np.testing.assert_allclose(scores, 80 / 79, rtol=1e-12)

    def test_complete_graph_equals_the_dense_formula(self) -> None:
        F = random_rows(6, n=20)
        squares = ((F[:, None] - F[None]) ** 2).sum(axis=2)
        S = np.exp(-squares / 3.0) - np.eye(20)
        np.testing.assert_allclose(
            LaplacianScore(n_neighbors=19, t=3.0).fit(F).scores_, laplacian_score(F, S), rtol=1e-11
        )

    def test_self_loops_leave_the_numerator_alone(self) -> None:
        F = random_rows(7)
        plain, looped = (LaplacianScore(self_loops=loops).fit(F).score_fields_ for loops in (False, True))
        np.testing.assert_array_equal(plain["numerator"], looped["numerator"])
        assert (plain["denominator"] < looped["denominator"]).all()


BY_RANKS = ("KolmogorovSmirnovScore", "InformationGainScore", "RandomOrder")
"""Criteria that a monotone change of a feature leaves as they are."""


class TestScoreScaling:
    @pytest.mark.parametrize("name", list(criteria()))
    @pytest.mark.filterwarnings("ignore:graph euclidean")
    def test_every_selector_has_the_parameter(self, name: str) -> None:
        """Scores on values scaled on the fly are those on values that were scaled before."""
        X = np.abs(random_rows(8)) * [1, 2, 5, 10, 20, 50]
        y = (X[:, 1] > np.median(X[:, 1])).astype(int) if "classification" in criteria()[name].tasks else X[:, 1]
        selector = getattr(daskfs, name)
        keys = [key for key in ("graph_scaling", "score_scaling") if key in selector().get_params()]
        found, expected = (
            selector(**dict.fromkeys(keys, scaling)).fit(values, y).scores_
            for scaling, values in (("log1p", X), (None, np.log1p(X)))
        )
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert (expected != selector(**dict.fromkeys(keys)).fit(X, y).scores_).any() or name in BY_RANKS

    @pytest.mark.parametrize("scaling", ["unit", "log1p", "zscore"])
    @pytest.mark.filterwarnings("ignore:graph euclidean")  # of columns scaled by hand
    def test_graph_and_scores_are_scaled_apart(self, scaling: Any) -> None:
        X = np.abs(random_rows(8)) * [1, 2, 5, 10, 20, 50]
        moved = {
            "unit": X / np.linalg.norm(X, axis=1, keepdims=True),
            "log1p": np.log1p(X),
            "zscore": (X - X.mean(axis=0)) / X.std(axis=0),
        }[scaling]
        for graph_values, score_values, parameters in (
            (moved, X, {"graph_scaling": scaling}),
            (X, moved, {"score_scaling": scaling}),
            (moved, moved, {"graph_scaling": scaling, "score_scaling": scaling}),
        ):
            lists = knn_lists(graph_values, 5)
            expected = laplacian_score(score_values, union_adjacency(*lists, heat(heat_t(*lists, "mean"))))
            np.testing.assert_allclose(LaplacianScore(**parameters).fit(X).scores_, expected, rtol=1e-9)


class TestScikitFeature:
    """Its convention through parameters alone: self-loops, and exp(-d^2 / (2 t^2))."""

    @pytest.mark.parametrize(
        ("k", "t"),
        [
            (1, 0.5),
            (5, 1.0),
            *(pytest.param(k, t, marks=pytest.mark.long) for k, t in ((1, 1.0), (1, 3.0), (5, 0.5), (5, 3.0))),
        ],
    )
    @pytest.mark.parametrize("name", ["iris", "wine", "digits", "random", "duplicates"])
    def test_parity(self, name: str, k: int, t: float) -> None:
        wine = load_wine().data
        X = {
            "iris": np.rint(load_iris().data * 10) / 8,  # the package leaves the order of ties to rounding
            "wine": (wine - wine.mean(axis=0)) / wine.std(axis=0),
            "digits": load_digits().data[:100] / 16,
            "random": random_rows(9),
            "duplicates": np.repeat(random_rows(10, n=20), 3, axis=0),
        }[name]
        found = LaplacianScore(n_neighbors=k, self_loops=True, weights="heat", t=2 * t**2).fit(X).scores_
        expected = scikit_feature_laplacian_score(X, k, t)
        expected[np.ptp(X, axis=0) == 0] = np.nan  # the package reports 1 for these
        np.testing.assert_allclose(found, expected, rtol=1e-9)
