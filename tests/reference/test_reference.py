"""The references against printed numbers, exact identities and independent public code.

The golden values have names: G2 is Fisher's score on Iris, G3 and G4 are the Iris numbers of He, Cai, Niyogi
(NIPS 2005, section 4.1), G6 is Geary's C with the invariances. They are compared in every digit they have.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.sparse.csgraph import laplacian
from sklearn.datasets import load_iris, load_wine
from sklearn.feature_selection import f_classif, r_regression
from sklearn.neighbors import kneighbors_graph

from tests.cases import each
from tests.reference.graph import (
    FloatArray,
    IntArray,
    Metric,
    Statistic,
    Weight,
    binary,
    cosine,
    heat,
    heat_t,
    knn_lists,
    union_adjacency,
)
from tests.reference.iris import uci_iris
from tests.reference.rankdata import order
from tests.reference.scikit_feature import scikit_feature_graph, scikit_feature_laplacian_score
from tests.reference.scores import (
    class_graph,
    fisher,
    geary_c,
    laplacian_score,
    one_nn_leave_one_out_error,
    pearson,
    pearson_one_vs_rest,
    variance,
)

F1, F2, F3, F4 = range(4)


def corrected_iris() -> tuple[FloatArray, IntArray]:
    X, y = load_iris(return_X_y=True)
    return X, y


def unit_rows(X: FloatArray) -> FloatArray:
    scaled: FloatArray = X / np.sqrt((X**2).sum(axis=1, keepdims=True))
    return scaled


def graph(X: FloatArray, k: int, weight: Weight, self_loops: bool = False) -> FloatArray:
    return union_adjacency(*knn_lists(X, k), weight, self_loops)


def random_rows(seed: int, n: int = 40, d: int = 6) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(n, d))


def random_weights(seed: int, n: int = 40) -> FloatArray:
    """Symmetric, non-negative, about a third of the pairs joined, nothing on the diagonal."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.uniform(size=(n, n)) * (rng.uniform(size=(n, n)) < 0.3), k=1)
    return upper + upper.T


class TestFisherGolden:
    """G2."""

    def test_corrected_iris(self) -> None:
        np.testing.assert_array_equal(np.round(fisher(*corrected_iris()), 3), [1.623, 0.669, 16.057, 13.061])

    def test_laplacian_score_on_the_class_graph_is_one_over_one_plus_fisher(self) -> None:
        X, y = corrected_iris()
        np.testing.assert_allclose(laplacian_score(X, class_graph(y)), 1 / (1 + fisher(X, y)), rtol=1e-12)

    @each("load", [load_iris, load_wine])
    def test_anova_f_of_scikit_learn(self, load: Callable[..., tuple[FloatArray, IntArray]]) -> None:
        X, y = load(return_X_y=True)
        n, c = len(y), len(np.unique(y))
        np.testing.assert_allclose(fisher(X, y), f_classif(X, y)[0] * (c - 1) / (n - c), rtol=1e-11)


class TestUciIris:
    """G3 and the orders that the paper states."""

    def test_only_two_rows_differ_from_the_corrected_copy(self) -> None:
        uci, corrected = uci_iris()[0], corrected_iris()[0]
        np.testing.assert_array_equal(np.flatnonzero((uci != corrected).any(axis=1)) + 1, [35, 38])
        np.testing.assert_array_equal(uci[[34, 37]], [[4.9, 3.1, 1.5, 0.1]] * 2)

    def test_correlation_with_the_class_index(self) -> None:
        X, y = uci_iris()
        np.testing.assert_array_equal(np.round(pearson(X, y), 4), [0.7826, 0.4194, 0.9490, 0.9565])
        signed = [np.corrcoef(f, y)[0, 1] for f in X.T]
        np.testing.assert_array_equal(np.round(signed, 4), [0.7826, -0.4194, 0.9490, 0.9565])

    def test_leave_one_out_errors_of_single_features(self) -> None:
        X, y = uci_iris()
        errors = [one_nn_leave_one_out_error(f, y) for f in np.rint(X * 10).astype(int).T]
        np.testing.assert_array_equal(np.round(errors, 4), [0.4133, 0.5200, 0.1200, 0.1200])

    def test_orders_by_variance_and_fisher(self) -> None:
        X, y = uci_iris()
        assert order(variance(X), "descending") == [F3, F1, F4, F2]
        assert order(fisher(X, y), "descending") == [F3, F4, F1, F2]


class TestUciIrisLaplacianScore:
    """G4: graph on rows of unit length, score on the data as they are."""

    EXPECTED_ORDERS = (
        {k: [F4, F3, F2, F1] for k in (1, 2, 4)}
        | {k: [F4, F3, F1, F2] for k in (3, *range(5, 15), 16)}
        | {k: [F3, F4, F1, F2] for k in (15, *range(17, 41))}
    )

    def test_five_neighbors_binary(self) -> None:
        X = uci_iris()[0]
        scores = laplacian_score(X, graph(unit_rows(X), 5, binary()))
        np.testing.assert_array_equal(np.round(scores, 4), [0.3682, 0.3868, 0.0450, 0.0394])

    @pytest.mark.parametrize("self_loops", [False, True])
    @pytest.mark.parametrize(
        ("metric", "weight"),
        [
            ("euclidean", binary()),
            ("cosine", binary()),
            ("cosine", cosine()),
            ("euclidean", heat(0.1)),
            ("euclidean", heat(1.0)),
        ],
        ids=["binary", "binary-cosine-metric", "cosine", "heat-0.1", "heat-1"],
    )
    def test_order_for_each_number_of_neighbors(self, metric: Metric, weight: Weight, self_loops: bool) -> None:
        X = uci_iris()[0]
        rows = X if metric == "cosine" else unit_rows(X)
        indices, distances = knn_lists(rows, 40, metric)
        orders = {}
        for k in range(1, 41):
            S = union_adjacency(indices[:, :k], distances[:, :k], weight, self_loops)
            orders[k] = order(laplacian_score(X, S), "ascending")
        assert orders == self.EXPECTED_ORDERS

    def test_cosine_neighbors_are_euclidean_neighbors_of_unit_rows(self) -> None:
        X = uci_iris()[0]
        by_angle, angle_distances = knn_lists(X, 10, "cosine")
        by_chord, chord_lengths = knn_lists(unit_rows(X), 10)
        np.testing.assert_array_equal(by_angle, by_chord)
        np.testing.assert_allclose(angle_distances, chord_lengths**2 / 2, atol=1e-15)


class TestIdentities:
    """G6 and what follows from the definition."""

    @each("seed", range(5))
    def test_geary_is_the_score_with_the_plain_variance(self, seed: int) -> None:
        S = random_weights(seed)
        n = len(S)
        L = np.diag(S.sum(axis=1)) - S
        for f in random_rows(seed).T:
            score_with_identity = (f @ L @ f) / (n * f.var())
            assert geary_c(f, S) == pytest.approx((n - 1) / S.sum() * score_with_identity, rel=1e-12)

    def test_geary_on_a_regular_graph_needs_no_replacement_of_the_degrees(self) -> None:
        n = 12
        ring = np.zeros((n, n))
        for i in range(n):
            ring[i, (i + 1) % n] = ring[(i + 1) % n, i] = 1.0
        F = random_rows(0, n=n)
        expected = (n - 1) / n * laplacian_score(F, ring)
        np.testing.assert_allclose([geary_c(f, ring) for f in F.T], expected, rtol=1e-12)

    @each("seed", range(5))
    def test_spec_phi_2(self, seed: int) -> None:
        """Zhao, Liu (ICML 2007): the cut of the normalized feature, freed of the trivial eigenvector."""
        S, F = random_weights(seed), random_rows(seed)
        root = np.sqrt(S.sum(axis=1))
        trivial = root / np.sqrt(root @ root)
        phi_2 = []
        for f in F.T:
            direction = root * f / np.sqrt((root * f) @ (root * f))
            cut = direction @ laplacian(S, normed=True) @ direction
            phi_2.append(cut / (1 - (direction @ trivial) ** 2))
        np.testing.assert_allclose(phi_2, laplacian_score(F, S), rtol=1e-10)

    @each("seed", range(5))
    def test_half_the_sum_over_ordered_pairs(self, seed: int) -> None:
        S, F = random_weights(seed), random_rows(seed)
        degrees = S.sum(axis=1)
        for f, score in zip(F.T, laplacian_score(F, S), strict=True):
            numerator = (S * (f[:, None] - f[None, :]) ** 2).sum() / 2
            weighted_variance = (degrees * f**2).sum() - (degrees * f).sum() ** 2 / degrees.sum()
            assert score == pytest.approx(numerator / weighted_variance, rel=1e-11)

    @each(("a", "b"), [(1.0, 100.0), (-1.0, 0.0), (1e-3, 7.0), (250.0, -3.0)])
    def test_a_f_plus_b(self, a: float, b: float) -> None:
        F, y = random_rows(1), np.arange(40) % 3
        S = graph(F, 5, heat(2.0))
        np.testing.assert_allclose(laplacian_score(a * F + b, S), laplacian_score(F, S), rtol=1e-9)
        np.testing.assert_allclose(fisher(a * F + b, y), fisher(F, y), rtol=1e-9)
        np.testing.assert_allclose(variance(a * F + b), a**2 * variance(F), rtol=1e-9)

    @each("metric", ["euclidean", "cosine"])
    def test_row_permutation(self, metric: Metric) -> None:
        F = random_rows(2)
        shuffled = F[np.random.default_rng(2).permutation(len(F))]
        in_order = laplacian_score(F, union_adjacency(*knn_lists(F, 5, metric), heat(1.0)))
        permuted = laplacian_score(shuffled, union_adjacency(*knn_lists(shuffled, 5, metric), heat(1.0)))
        np.testing.assert_allclose(permuted, in_order, rtol=1e-11)

    @each("seed", range(10))
    @each("k", [1, 5, 39])
    def test_score_between_0_and_2(self, seed: int, k: int) -> None:
        F = random_rows(seed)
        scores = laplacian_score(F, graph(F, k, heat(1.0)))
        assert ((scores >= 0) & (scores <= 2)).all()

    def test_the_ends_of_the_range(self) -> None:
        pair, two_pairs = np.array([[0.0, 1.0], [1.0, 0.0]]), np.kron(np.eye(2), [[0.0, 1.0], [1.0, 0.0]])
        np.testing.assert_allclose(laplacian_score([[0.0], [1.0]], pair), [2.0])
        np.testing.assert_array_equal(laplacian_score([[0.0], [0.0], [1.0], [1.0]], two_pairs), [0.0])

    def test_complete_binary_graph_gives_every_feature_the_same_score(self) -> None:
        F = random_rows(3)
        n = len(F)
        np.testing.assert_allclose(laplacian_score(F, graph(F, n - 1, binary())), n / (n - 1), rtol=1e-12)


class TestIndependentCode:
    @each("metric", ["euclidean", "cosine"])
    @each("k", [1, 4, 10])
    def test_scikit_learn_graph_and_scipy_laplacian(self, metric: Metric, k: int) -> None:
        F = random_rows(4, n=60)
        directed = kneighbors_graph(F, k, mode="distance", metric=metric, include_self=False)
        edges = directed.maximum(directed.T).toarray()
        theirs = np.where(edges > 0, np.exp(-(edges**2) / 0.7), 0.0)
        ours = union_adjacency(*knn_lists(F, k, metric), heat(0.7))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)

        L, degrees = laplacian(theirs, return_diag=True)
        centered = F - (degrees @ F) / degrees.sum()
        scores = np.diag(centered.T @ L @ centered) / (degrees @ centered**2)
        np.testing.assert_allclose(laplacian_score(F, ours), scores, rtol=1e-12)

    def test_pearson_of_scikit_learn(self) -> None:
        F = random_rows(5)
        y = F @ np.arange(6) + random_rows(6, d=1)[:, 0]
        np.testing.assert_allclose(pearson(F, y), np.abs(r_regression(F, y)), rtol=1e-11)


class TestNeighbors:
    def test_triplicate_rows_never_list_themselves(self) -> None:
        rows = np.repeat(random_rows(7, n=10), 3, axis=0)
        indices, distances = knn_lists(rows, 2)
        for i in range(30):
            first = i - i % 3
            assert list(indices[i]) == [j for j in range(first, first + 3) if j != i]
        np.testing.assert_array_equal(distances, 0.0)
        assert graph(rows, 2, binary()).sum() == 60

    def test_ties_go_to_the_lower_index(self) -> None:
        indices, distances = knn_lists([[0], [1], [2], [3]], 2)
        np.testing.assert_array_equal(indices, [[1, 2], [0, 2], [1, 3], [2, 1]])
        np.testing.assert_array_equal(distances, [[1, 2], [1, 1], [1, 1], [1, 2]])

    def test_rounding_does_not_break_ties(self) -> None:
        """In binary, 0.3 - 0.2 < 0.2 - 0.1, so without a tolerance row 1 would prefer row 2."""
        assert 0.3 - 0.2 < 0.2 - 0.1
        np.testing.assert_array_equal(knn_lists([[0.1], [0.2], [0.3]], 1)[0][1], [0])
        centimeters = corrected_iris()[0]
        tenths = np.rint(centimeters * 10)
        np.testing.assert_array_equal(knn_lists(centimeters, 5)[0], knn_lists(tenths, 5)[0])

    def test_unsigned_integers_do_not_wrap(self) -> None:
        distances = knn_lists(np.array([[0], [200], [255]], dtype=np.uint8), 2)[1]
        np.testing.assert_array_equal(distances, [[200, 255], [55, 200], [55, 255]])

    def test_cosine_distance_of_rows_of_zeros_is_one(self) -> None:
        indices, distances = knn_lists([[0, 0], [1, 1], [3, 3], [0, 0], [1, 0]], 4, "cosine")
        np.testing.assert_array_equal(indices[0], [1, 2, 3, 4])
        np.testing.assert_array_equal(distances[0], 1.0)
        np.testing.assert_array_equal(indices[1], [2, 4, 0, 3])
        np.testing.assert_allclose(distances[1], [0, 1 - np.sqrt(0.5), 1, 1], rtol=1e-15)

    @each("k", [0, 3])
    def test_impossible_k(self, k: int) -> None:
        with pytest.raises(ValueError, match=rf"between 1 and n - 1 = 2, not {k}"):
            knn_lists([[0], [1], [2]], k)


class TestAdjacency:
    LINE = ((0.0,), (1.0,), (3.0,), (7.0,))
    """Nearest neighbors 1, 0, 1, 2: edges 0-1, 1-2, 2-3 of length 1, 2, 4, the first found from both ends."""

    def test_union_of_the_lists(self) -> None:
        indices, distances = knn_lists(self.LINE, 1)
        expected = np.zeros((4, 4))
        for i, length in enumerate((1.0, 2.0, 4.0)):
            expected[i, i + 1] = expected[i + 1, i] = np.exp(-(length**2) / 3.0)
        np.testing.assert_allclose(union_adjacency(indices, distances, heat(3.0)), expected, rtol=1e-15)
        np.testing.assert_array_equal(union_adjacency(indices, distances, binary()), expected > 0)

    def test_self_loops_leave_the_numerator_alone(self) -> None:
        F = random_rows(8)
        without, with_loops = graph(F, 5, heat(1.0)), graph(F, 5, heat(1.0), self_loops=True)
        np.testing.assert_array_equal(with_loops - without, np.eye(len(F)))
        np.testing.assert_allclose(
            np.diag(with_loops.sum(axis=1)) - with_loops, np.diag(without.sum(axis=1)) - without, atol=1e-14
        )

    def test_cosine_weight_is_the_cosine(self) -> None:
        S = union_adjacency(*knn_lists([[1.0, 0.0], [1.0, 1.0]], 1, "cosine"), cosine())
        np.testing.assert_allclose(S[0, 1], np.sqrt(0.5), rtol=1e-15)

    @each(("statistic", "expected"), [("mean", (1 + 4 + 16) / 3), ("median", 4.0)])
    def test_t_takes_each_edge_once(self, statistic: Statistic, expected: float) -> None:
        assert heat_t(*knn_lists(self.LINE, 1), statistic) == pytest.approx(expected, rel=1e-15)


class TestExclusions:
    def test_constant_feature(self) -> None:
        F = random_rows(9)
        F[:, 2] = 0.1
        y = np.arange(40) % 2
        for scores in (laplacian_score(F, graph(F, 5, heat(1.0))), fisher(F, y), pearson(F, F[:, 0])):
            np.testing.assert_array_equal(np.flatnonzero(np.isnan(scores)), [2])

    def test_feature_constant_where_the_graph_has_edges(self) -> None:
        S = np.zeros((4, 4))
        S[0, 1] = S[1, 0] = S[1, 2] = S[2, 1] = 1.0
        F = [[0.1, 1.0], [0.1, 2.0], [0.1, 4.0], [9.0, 8.0]]
        scores = laplacian_score(F, S)
        assert np.isnan(scores[0])
        without_last_row = laplacian_score([[1.0], [2.0], [4.0]], S[:3, :3])
        np.testing.assert_allclose(scores[1:], without_last_row, rtol=1e-14)

    def test_perfect_feature(self) -> None:
        y = np.array([0, 0, 1, 1, 1])
        F = np.column_stack([0.1 * (y + 1), np.arange(5)])
        scores = fisher(F, y)
        assert scores[0] == np.inf
        assert np.isfinite(scores[1])
        np.testing.assert_allclose(laplacian_score(F, class_graph(y)), 1 / (1 + scores), atol=1e-15)

    def test_unlabeled_rows(self) -> None:
        F, y = random_rows(10), np.arange(40) % 4 - 1
        known = y != -1
        np.testing.assert_array_equal(fisher(F, y), fisher(F[known], y[known]))
        np.testing.assert_array_equal(pearson_one_vs_rest(F, y), pearson_one_vs_rest(F[known], y[known]))
        np.testing.assert_allclose(
            laplacian_score(F, class_graph(y)), laplacian_score(F[known], class_graph(y[known])), rtol=1e-12
        )
        target = np.where(known, y, np.nan)
        np.testing.assert_array_equal(pearson(F, target), pearson(F[known], y[known]))

    def test_one_class_has_no_fisher_score(self) -> None:
        with pytest.raises(ValueError, match="two classes, the labeled rows have 1"):
            fisher(random_rows(0, n=3), [2, 2, -1])


class TestPearsonOneVsRest:
    def test_two_classes_are_the_correlation_with_their_codes(self) -> None:
        F, codes = random_rows(11), np.arange(40) % 2
        np.testing.assert_allclose(pearson_one_vs_rest(F, codes), pearson(F, codes), rtol=1e-12)

    def test_largest_over_the_classes(self) -> None:
        X, y = corrected_iris()
        per_class = [[abs(np.corrcoef(f, y == label)[0, 1]) for f in X.T] for label in range(3)]
        np.testing.assert_allclose(pearson_one_vs_rest(X, y), np.max(per_class, axis=0), rtol=1e-12)


class TestLeaveOneOut:
    def test_the_first_of_the_nearest_rows_decides(self) -> None:
        assert one_nn_leave_one_out_error([5, 5, 5], [0, 0, 1]) == pytest.approx(1 / 3)
        assert one_nn_leave_one_out_error([5, 5, 5], [0, 1, 1]) == pytest.approx(1.0)

    def test_unsigned_integers_do_not_wrap(self) -> None:
        """Modulo 256, 10 would be nearer to 250 than 200 is."""
        feature = np.array([250, 10, 200, 20], dtype=np.uint8)
        assert one_nn_leave_one_out_error(feature, [0, 1, 0, 1]) == 0.0


class TestScikitFeature:
    @each("t", [0.5, 1.0, 3.0])
    def test_is_the_paper_with_self_loops_and_another_t(self, t: float) -> None:
        X = random_rows(12)
        S = graph(X, 5, heat(2 * t**2), self_loops=True)
        np.testing.assert_allclose(scikit_feature_graph(X, 5, t), S, rtol=1e-12)
        np.testing.assert_allclose(scikit_feature_laplacian_score(X, 5, t), laplacian_score(X, S), rtol=1e-11)

    def test_one_minus_the_quotient_with_the_adjacency(self) -> None:
        """The package evaluates 1 - (f'Sf - m) / (f'Df - m) with m = (f'd)^2 / vol."""
        X = uci_iris()[0]
        S = scikit_feature_graph(X, 5, 1.0)
        degrees = S.sum(axis=1)
        mean_part = (X.T @ degrees) ** 2 / degrees.sum()
        expected = 1 - (np.diag(X.T @ S @ X) - mean_part) / (degrees @ X**2 - mean_part)
        np.testing.assert_allclose(scikit_feature_laplacian_score(X, 5, 1.0), expected, rtol=1e-9)

    def test_constant_feature_scores_one(self) -> None:
        X = random_rows(13)
        X[:, 1] = 4.0
        assert scikit_feature_laplacian_score(X, 3, 1.0)[1] == 1.0


class TestOrder:
    def test_both_directions(self) -> None:
        scores = [0.5, np.nan, 0.2, 0.5, np.inf, np.nan, -1.0]
        assert order(scores, "ascending") == [6, 2, 0, 3, 4, 1, 5]
        assert order(scores, "descending") == [4, 0, 3, 2, 6, 1, 5]
