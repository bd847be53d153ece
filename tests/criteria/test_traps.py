"""What a correct library returns where formulas, types or data set a trap."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from daskfs import FisherScore, LaplacianScore, PearsonScore, VarianceScore, knn_graph
from daskfs.errors import InputError
from tests.cases import case
from tests.reference.graph import binary, heat, heat_t, knn_lists, union_adjacency
from tests.reference.scores import fisher, laplacian_score

FloatArray = NDArray[np.float64]
ALL: list[Callable[[], Any]] = [VarianceScore, LaplacianScore, FisherScore, PearsonScore]


def rows(n: int = 200, d: int = 5, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(n, d))


Y = np.arange(200) % 3


class TestOffset:
    """A column with mean 1e8 and standard deviation 1 is scored to 1e-6.

    Multiples of 1/64 survive the offset, so the shifted data hold the same information to the last bit.
    """

    F = np.round(rows() * 64) / 64
    SHIFTED = F + 1e8

    def test_the_shift_is_exact(self) -> None:
        np.testing.assert_array_equal(self.SHIFTED - 1e8, self.F)

    @pytest.mark.parametrize("estimator", ALL)
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
    def test_scores(self, estimator: Callable[[], Any], form: Callable[[Any], Any]) -> None:
        expected = estimator().fit(self.F, Y).scores_
        np.testing.assert_allclose(estimator().fit(form(self.SHIFTED), Y).scores_, expected, rtol=1e-6)

    def test_pearson_with_a_shifted_target(self) -> None:
        target = np.round((self.F @ np.arange(5.0)) * 64) / 64
        expected = PearsonScore().fit(self.F, target).scores_
        np.testing.assert_allclose(PearsonScore().fit(self.SHIFTED, target + 1e8).scores_, expected, rtol=1e-6)

    def test_graph(self) -> None:
        np.testing.assert_array_equal(knn_graph(self.SHIFTED, 5).indices, knn_graph(self.F, 5).indices)

    @pytest.mark.parametrize("offset", [1e2, 1e3, 1e4])
    def test_float32_with_an_offset_that_it_holds(self, offset: float) -> None:
        F = np.round(rows() * 16) / 16
        found = LaplacianScore().fit((F + offset).astype(np.float32)).scores_
        np.testing.assert_allclose(found, LaplacianScore().fit(F).scores_, rtol=1e-9)


class TestConstantFeature:
    @pytest.mark.parametrize("value", [0.0, 0.1, 1e8 + 0.1, -1e30])
    @pytest.mark.parametrize("estimator", ALL)
    def test_nan_and_last(self, estimator: Callable[[], Any], value: float) -> None:
        F = rows()
        F[:, [1, 3]] = value
        fitted = estimator().fit(F, Y)
        np.testing.assert_array_equal(np.isnan(fitted.scores_), [False, True, False, True, False])
        assert fitted.ranking_[[1, 3]].tolist() == [4, 5]
        assert not fitted.set_params(n_features_to_select=5).get_support()[[1, 3]].any()

    @pytest.mark.parametrize("n", [3, 7, 11, 23, 49, 101])
    def test_fisher_is_not_fooled_by_the_rounding_of_class_means(self, n: int) -> None:
        """Means of classes of unequal size may differ in the last bit: +inf, the best score there is, if believed."""
        y = (np.arange(2 * n) < n // 3 + 1).astype(int)
        values = [0.1, 0.7, 1 / 3, 123.456, 1e8 + 0.1]
        F = np.column_stack([np.tile(values, (2 * n, 1)), np.arange(2 * n)])
        for estimator in (FisherScore, PearsonScore):
            assert np.isnan(estimator().fit(F, y).scores_).tolist() == [True] * 5 + [False]

    def test_constant_where_the_graph_has_edges(self) -> None:
        X = np.vstack([rows(50, 2), [[100.0, 0.0], [-100.0, 0.0]]])
        F = np.column_stack([X, np.full(52, 0.1)])
        F[50:, 2] = [5.0, -5.0]
        graph = np.zeros((52, 52))
        graph[:50, :50] = union_adjacency(*knn_lists(X[:50], 4), binary())
        with pytest.warns(UserWarning, match=r"2 .*rows"):
            fitted = LaplacianScore(graph=graph).fit(F)
        np.testing.assert_array_equal(np.isnan(fitted.scores_), [False, False, True])
        assert fitted.ranking_[2] == 3

    def test_constant_on_the_labeled_rows(self) -> None:
        F, y = rows(), np.where(np.arange(200) < 60, Y, -1)
        F[:60, 2] = 0.1
        for estimator in (FisherScore(), PearsonScore()):
            assert np.flatnonzero(np.isnan(estimator.fit(F, y).scores_)).tolist() == [2]
        target = np.where(np.arange(200) < 60, rows(200, 1, seed=1)[:, 0], np.nan)
        assert np.flatnonzero(np.isnan(PearsonScore().fit(F, target).scores_)).tolist() == [2]

    @pytest.mark.parametrize("estimator", ALL)
    def test_all_features_constant(self, estimator: Callable[[], Any]) -> None:
        with pytest.raises(InputError, match="can rank none of the 3 features: every one is excluded"):
            estimator().fit(np.full((200, 3), 0.1), Y)


class TestUnderflow:
    def test_every_weight_names_t(self) -> None:
        with pytest.raises(ValueError, match=r"heat weights .* are 0 with t = 1e-05"):
            LaplacianScore(t=1e-5).fit(rows())

    def test_every_weight_with_self_loops_names_t_too(self) -> None:
        """The graph would be loops alone, every score 0 and the ranking that of the feature numbers."""
        with pytest.raises(ValueError, match=r"heat weights .* are 0 with t = 1e-05"):
            LaplacianScore(t=1e-5, self_loops=True).fit(rows())

    @pytest.mark.parametrize(("load", "isolated"), [(load_wine, 9), (load_breast_cancer, 154)])
    @pytest.mark.filterwarnings("ignore:graph euclidean")
    def test_some_nodes_warn_with_their_number_and_the_rest_is_scored(
        self, load: Callable[[], Any], isolated: int
    ) -> None:
        X = load().data
        with pytest.warns(UserWarning, match=rf"\b{isolated} .*rows"):
            found = LaplacianScore(t=1.0).fit(X).scores_
        S = union_adjacency(*knn_lists(X, 5), heat(1.0))
        assert (S.sum(axis=1) == 0).sum() == isolated
        np.testing.assert_allclose(found, laplacian_score(X, S), rtol=1e-9)

    def test_iris_has_none(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            LaplacianScore(t=1.0).fit(load_iris().data)


class TestDuplicatesAndTies:
    def test_triplicates(self) -> None:
        F = np.repeat(rows(30), 3, axis=0)
        for weights, weight in (("binary", binary()), ("heat", heat(1.0))):
            found = LaplacianScore(n_neighbors=4, weights=weights, t=1.0).fit(F).scores_  # type: ignore[arg-type]
            np.testing.assert_allclose(found, laplacian_score(F, union_adjacency(*knn_lists(F, 4), weight)), rtol=1e-9)

    def test_every_edge_of_length_zero(self) -> None:
        F = np.repeat(rows(20), 4, axis=0)
        scores = LaplacianScore(n_neighbors=3).fit(F).scores_
        np.testing.assert_array_equal(scores, 0.0)

    def test_decimals_go_by_index_as_whole_numbers_do(self) -> None:
        """In binary, tenths are not equidistant: ties must survive that."""
        X = load_iris().data
        tenths = np.rint(X * 10)
        plain = LaplacianScore(weights="binary").fit(X).scores_
        np.testing.assert_allclose(plain, LaplacianScore(weights="binary").fit(tenths).scores_, rtol=1e-11)


class TestIntegerTypes:
    @pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint16, np.int32, np.int64, np.bool_])
    def test_never_wrap(self, dtype: type[np.generic]) -> None:
        high = {np.bool_: 2, np.int8: 128}.get(dtype, 256)
        F = np.random.default_rng(3).integers(0, high, size=(200, 6)).astype(dtype)
        for estimator in ALL:
            expected = estimator().fit(F.astype(np.float64), Y).scores_
            for form in (np.asarray, sp.csr_matrix):
                with case(estimator, form):
                    np.testing.assert_allclose(estimator().fit(form(F), Y).scores_, expected, rtol=1e-10)

    @pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int32, np.float32])
    def test_graph_scaling_gives_what_float64_gives(self, dtype: type[np.generic]) -> None:
        high = 2 if dtype is np.bool_ else 128
        F = np.random.default_rng(4).integers(0, high, size=(200, 6)).astype(dtype)
        for metric, scaling in itertools.product(("euclidean", "cosine"), ("zscore", "unit", "log1p")):
            with case(metric, scaling):
                estimator = LaplacianScore(metric=metric, graph_scaling=scaling)
                expected = estimator.fit(F.astype(np.float64)).scores_
                np.testing.assert_allclose(estimator.fit(F).scores_, expected, rtol=1e-10)


class TestSparse:
    F = rows(120, 8, seed=5) * (np.random.default_rng(6).uniform(size=(120, 8)) < 0.4)
    y = Y[:120]

    @pytest.mark.parametrize("estimator", ALL)
    def test_implicit_zeros_take_part(self, estimator: Callable[[], Any]) -> None:
        expected = estimator().fit(self.F, self.y).scores_
        np.testing.assert_allclose(estimator().fit(sp.csr_matrix(self.F), self.y).scores_, expected, rtol=1e-12)

    @pytest.mark.parametrize(
        ("metric", "scaling"),
        [
            ("euclidean", "zscore"),
            ("euclidean", "unit"),
            ("euclidean", "log1p"),
            ("cosine", "unit"),
            ("cosine", "log1p"),
        ],
    )
    def test_scalings(self, metric: Any, scaling: Any) -> None:
        F = np.abs(self.F)
        estimator = LaplacianScore(metric=metric, graph_scaling=scaling, score_scaling=scaling)
        expected = estimator.fit(F).scores_
        np.testing.assert_allclose(estimator.fit(sp.csr_matrix(F)).scores_, expected, rtol=1e-11)

    @pytest.mark.parametrize(
        "parameters", [{}, {"graph_scaling": "zscore"}, {"graph_scaling": "unit"}, {"metric": "cosine"}]
    )
    def test_entries_stored_twice_or_unsorted_or_zero(self, parameters: dict[str, Any]) -> None:
        plain = sp.coo_matrix(self.F)
        row, column = np.tile(plain.row, 2), np.tile(plain.col, 2)
        data = np.concatenate([0.25 * plain.data, 0.75 * plain.data])
        order = np.argsort(row, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=120))])
        odd = sp.csr_matrix((data[order], column[order], indptr), shape=self.F.shape)
        assert odd.nnz == 2 * plain.nnz
        np.testing.assert_allclose(odd.toarray(), self.F, rtol=1e-15)
        expected = LaplacianScore(**parameters).fit(self.F).scores_
        np.testing.assert_allclose(LaplacianScore(**parameters).fit(odd).scores_, expected, rtol=1e-10)
        np.testing.assert_allclose(VarianceScore().fit(odd).scores_, VarianceScore().fit(self.F).scores_, rtol=1e-12)


class TestLog1p:
    @pytest.mark.parametrize("parameter", ["graph_scaling", "score_scaling"])
    @pytest.mark.parametrize("value", [-1.0, -3.0])
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
    def test_values_that_have_no_logarithm(self, form: Callable[[Any], Any], value: float, parameter: str) -> None:
        F = np.abs(rows())
        F[7, 3] = value
        with pytest.raises(ValueError, match="log1p"):
            LaplacianScore(**dict[str, Any]({parameter: "log1p"})).fit(form(F))


class TestLabels:
    def test_perfect_feature(self) -> None:
        F = np.column_stack([rows(), 0.1 * (Y + 1)])
        fitted = FisherScore().fit(F, Y)
        assert fitted.scores_[5] == np.inf
        assert fitted.ranking_[5] == 1
        np.testing.assert_allclose(fitted.scores_[:5], fisher(F, Y)[:5], rtol=1e-9)
        assert PearsonScore().fit(F, 0.1 * (Y + 1)).scores_[5] == pytest.approx(1.0, abs=1e-15)

    def test_one_row_per_class(self) -> None:
        F = rows(3)
        assert np.isposinf(FisherScore().fit(F, [0, 1, 2]).scores_).all()

    @pytest.mark.parametrize(
        ("estimator", "y", "message"),
        [
            (FisherScore, np.zeros(200, dtype=int), "one class"),
            (PearsonScore, np.zeros(200, dtype=int), "one class"),
            (PearsonScore, np.full(200, 0.5), "one value"),
        ],
    )
    def test_labels_that_are_all_the_same(self, estimator: Callable[[], Any], y: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            estimator().fit(rows(), y)


class TestFewRows:
    def test_no_more_neighbors_than_other_rows(self) -> None:
        with pytest.raises(ValueError, match=r"n_neighbors is 5.*n_samples=5.*at most 4"):
            LaplacianScore().fit(rows(5))
        F = rows(6)
        lists = knn_lists(F, 5)
        expected = laplacian_score(F, union_adjacency(*lists, heat(heat_t(*lists, "mean"))))
        np.testing.assert_allclose(LaplacianScore().fit(F).scores_, expected, rtol=1e-10)
