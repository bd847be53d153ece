"""Sample weights: a row of weight 2 counts as two rows, one of weight 0 not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_wine

from daskfs import (
    DSSFS,
    LSDF,
    RLSR,
    RRPC,
    SSUFS,
    SVMRFE,
    FisherScore,
    InformationGainScore,
    KolmogorovSmirnovScore,
    LaplacianScore,
    PearsonScore,
    SemiSupervisedLaplacianScore,
    SSelect,
    SupervisedLaplacianScore,
    VarianceScore,
    knn_graph,
)
from tests.cases import case
from tests.cli.command import daskfs as command
from tests.optional import pandas as pd
from tests.reference.labeled import joined, mixed_lists, nearest, target_distances
from tests.reference.scores import laplacian_score

FloatArray = NDArray[np.float64]

pytestmark = pytest.mark.filterwarnings("ignore:graph euclidean")  # one column of wine decides

X, CLASSES = load_wine(return_X_y=True)
N = len(X)
Y = np.where(np.arange(N) % 5 == 0, -1, CLASSES)
TARGET = np.where(Y < 0, np.nan, X[:, 0] + X[:, 9] ** 2)
WEIGHTS = np.random.default_rng(0).integers(0, 4, size=N).astype(np.float64)
ROWS = np.repeat(np.arange(N), WEIGHTS.astype(int))

WITHOUT_GRAPH: dict[str, tuple[Callable[[], Any], NDArray[Any]]] = {
    "variance": (VarianceScore, Y),
    "fisher": (FisherScore, Y),
    "pearson classes": (PearsonScore, Y),
    "pearson target": (PearsonScore, TARGET),
    "supervised": (lambda: SupervisedLaplacianScore(task="classification"), Y),
    "greedy": (RRPC, TARGET),
    "kolmogorov": (KolmogorovSmirnovScore, Y),
    "kolmogorov, two classes": (KolmogorovSmirnovScore, np.where(Y == 2, 1, Y)),
    "information": (InformationGainScore, Y),
    "information, three bins": (lambda: InformationGainScore(n_bins=3), Y),
}


FORMS: list[Callable[[FloatArray], Any]] = [np.asarray, sp.csr_matrix, lambda X: da.from_array(X, chunks=(50, 4))]


def fields(fitted: Any) -> FloatArray:
    return np.stack(list(fitted.score_fields_.values()))


@pytest.mark.parametrize("name", WITHOUT_GRAPH)
class TestWithoutGraph:
    def test_whole_weights_are_repeated_rows(self, name: str) -> None:
        make, y = WITHOUT_GRAPH[name]
        expected = make().fit(X[ROWS], y[ROWS])
        for form in FORMS:
            fitted = make().fit(form(X), y, sample_weight=WEIGHTS)
            np.testing.assert_allclose(fields(fitted), fields(expected), rtol=1e-10, atol=1e-12)
            np.testing.assert_array_equal(fitted.ranking_, expected.ranking_)
            assert (np.abs(fitted.scores_ - make().fit(X, y).scores_) > 1e-4).any()

    def test_an_offset_costs_no_digit(self, name: str) -> None:
        make, y = WITHOUT_GRAPH[name]
        exact = np.round(X * 8) / 8
        expected = make().fit(exact, y, sample_weight=WEIGHTS).scores_
        np.testing.assert_allclose(make().fit(exact + 1e8, y, sample_weight=WEIGHTS).scores_, expected, rtol=1e-7)

    def test_ones_are_no_weights(self, name: str) -> None:
        make, y = WITHOUT_GRAPH[name]
        expected = make().fit(X, y)
        np.testing.assert_allclose(
            fields(make().fit(X, y, sample_weight=np.ones(N))), fields(expected), rtol=1e-11, atol=1e-13
        )

    def test_their_scale_does_not_matter(self, name: str) -> None:
        make, y = WITHOUT_GRAPH[name]
        expected = make().fit(X, y, sample_weight=WEIGHTS).scores_
        for factor in (1e-6, 0.1, 7.0):
            np.testing.assert_allclose(make().fit(X, y, sample_weight=factor * WEIGHTS).scores_, expected, rtol=1e-10)

    def test_a_feature_constant_on_the_rows_that_count_is_excluded(self, name: str) -> None:
        make, y = WITHOUT_GRAPH[name]
        data = X.copy()
        data[:, 4] = np.where(WEIGHTS > 0, 2.5, np.arange(N))
        fitted = make().fit(data, y, sample_weight=WEIGHTS)
        assert np.flatnonzero(np.isnan(fitted.scores_)).tolist() == [4]
        assert fitted.ranking_[4] == 13

    def test_rows_of_weight_zero_may_hold_anything(self, name: str) -> None:
        make, y = WITHOUT_GRAPH[name]
        data, other = X.copy(), y.copy()
        data[WEIGHTS == 0] = 1e6
        other[WEIGHTS == 0] = y[0] if np.isnan(y[0]) else 0
        expected = make().fit(X, y, sample_weight=WEIGHTS)
        np.testing.assert_array_equal(make().fit(data, other, sample_weight=WEIGHTS).scores_, expected.scores_)


@pytest.mark.parametrize("make", [RLSR, DSSFS, SSUFS, SVMRFE])
class TestZScores:
    """Of the criteria that scale values so by default."""

    def test_whole_weights_are_repeated_rows(self, make: Callable[[], Any]) -> None:
        expected = make().fit(X[ROWS], Y[ROWS])
        for form in FORMS:
            fitted = make().fit(form(X), Y, sample_weight=WEIGHTS)
            np.testing.assert_allclose(fitted.scores_, expected.scores_, rtol=1e-7, atol=1e-8)
            np.testing.assert_array_equal(fitted.ranking_, expected.ranking_)

    def test_rows_of_weight_zero_may_hold_anything(self, make: Callable[[], Any]) -> None:
        data = np.where(WEIGHTS[:, None] > 0, X, 1e6)
        data[:, 4] = np.where(WEIGHTS > 0, 2.5, np.arange(N))
        expected = make().fit(data[WEIGHTS > 0], Y[WEIGHTS > 0], sample_weight=WEIGHTS[WEIGHTS > 0])
        for form in FORMS:
            fitted = make().fit(form(data), Y, sample_weight=WEIGHTS)
            assert np.flatnonzero(np.isnan(fitted.scores_)).tolist() == [4]
            np.testing.assert_allclose(fitted.scores_, expected.scores_, rtol=1e-7, atol=1e-8)


class TestGraph:
    """An edge counts by the product of the weights of its rows."""

    def weight_matrix(self, diagonal: float = 0.0) -> FloatArray:
        S = knn_graph(X, 6, graph_scaling="zscore").to_csr("connectivity").toarray()
        S *= np.random.default_rng(1).uniform(0.2, 1, size=N)[:, None]
        S = np.maximum(S, S.T)
        np.fill_diagonal(S, diagonal)
        return S

    @pytest.mark.parametrize("diagonal", [0.0, 0.7])
    @pytest.mark.parametrize("make", [LaplacianScore, SSelect, LSDF])
    def test_whole_weights_are_repeated_rows_and_columns_of_the_matrix(
        self, make: Callable[..., Any], diagonal: float
    ) -> None:
        S = self.weight_matrix(diagonal)
        fitted = make(graph=S).fit(X, Y, sample_weight=WEIGHTS)
        expected = make(graph=S[np.ix_(ROWS, ROWS)]).fit(X[ROWS], Y[ROWS])
        np.testing.assert_allclose(fields(fitted), fields(expected), rtol=1e-10)
        assert (np.abs(fitted.scores_ / make(graph=S).fit(X, Y).scores_ - 1) > 1e-3).any()

    @pytest.mark.parametrize("parameters", [{}, {"self_loops": True}, {"weights": "binary"}, {"t": "median"}])
    def test_neighbors_are_found_and_widths_chosen_without_weights(self, parameters: dict[str, Any]) -> None:
        selector = LaplacianScore(**parameters, n_neighbors=6)
        plain = selector.fit(X).score_fields_
        weights = np.random.default_rng(2).uniform(0.1, 3, size=N)
        found = selector.fit(X, sample_weight=weights).scores_
        graph = knn_graph(X, 6)
        lengths = graph.to_csr("distance").toarray()
        lengths = np.maximum(lengths, lengths.T)
        edge = lengths > 0
        squares = (lengths**2)[np.triu(edge)]
        t = np.median(squares) if parameters.get("t") == "median" else squares.mean()
        S = np.where(edge, np.exp(-(lengths**2) / t), 0.0) if parameters.get("weights") != "binary" else edge * 1.0
        if parameters.get("self_loops"):
            np.fill_diagonal(S, 1.0)
        np.testing.assert_allclose(laplacian_score(X, S), plain["score"], rtol=1e-9)
        np.testing.assert_allclose(found, laplacian_score(X, S * np.outer(weights, weights)), rtol=1e-9)

    def test_graphs_of_targets(self) -> None:
        """Targets and rows are z-scored by weight."""
        products, Z = np.outer(WEIGHTS, WEIGHTS), X / X[ROWS].std(axis=0)
        counted = np.where(WEIGHTS > 0, TARGET, np.nan) / np.nanstd(TARGET[ROWS])
        by_target = joined(*nearest(target_distances(counted, standardize=False), 5), 1.0)
        supervised = laplacian_score(X, by_target * products)
        found = SupervisedLaplacianScore().fit(X, TARGET, sample_weight=WEIGHTS).scores_
        np.testing.assert_allclose(found, supervised, rtol=1e-10)
        mixed = joined(*mixed_lists(Z, counted, 30, standardize=False, scaling=None), 1.0)
        mixed[np.ix_(~np.isnan(counted), ~np.isnan(counted))] *= 5.0
        found = SemiSupervisedLaplacianScore().fit(X, TARGET, sample_weight=WEIGHTS).scores_
        np.testing.assert_allclose(found, laplacian_score(X, mixed * products) * supervised, rtol=1e-10)

    def test_ones_are_no_weights_to_the_bit(self) -> None:
        plain, ones = LaplacianScore().fit(X), LaplacianScore().fit(X, sample_weight=np.ones(N))
        np.testing.assert_array_equal(fields(ones), fields(plain))

    def test_rows_of_weight_zero_are_not_isolated(self, recwarn: pytest.WarningsRecorder) -> None:
        S = self.weight_matrix()
        found = LaplacianScore(graph=S).fit(X, sample_weight=WEIGHTS).scores_
        kept = np.flatnonzero(WEIGHTS)
        expected = LaplacianScore(graph=S[np.ix_(kept, kept)]).fit(X[kept], sample_weight=WEIGHTS[kept]).scores_
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        assert not recwarn.list

    def test_isolated_rows_that_count_are_told_of(self) -> None:
        S = self.weight_matrix()
        S[:3], S[:, :3] = 0.0, 0.0
        weights = np.ones(N)
        weights[[0, 8]] = 0.0
        with pytest.warns(UserWarning, match=f"2 of {N} rows have no edge"):
            LaplacianScore(graph=S).fit(X, sample_weight=weights)

    def test_no_edge_left(self) -> None:
        S = np.zeros((N, N))
        S[0, 1] = S[1, 0] = S[2, 3] = S[3, 2] = 1.0
        weights = np.ones(N)
        weights[[0, 3]] = 0.0
        with pytest.raises(ValueError, match="no edge between rows of sample weight above 0 has a weight above 0"):
            LaplacianScore(graph=S).fit(X, sample_weight=weights)


class TestLabels:
    def test_a_class_of_weight_zero_is_absent(self) -> None:
        weights = (CLASSES != 2).astype(np.float64)
        for make in (FisherScore, PearsonScore, KolmogorovSmirnovScore, InformationGainScore):
            found = make().fit(X, CLASSES, sample_weight=weights).scores_
            two = CLASSES != 2
            np.testing.assert_allclose(found, make().fit(X[two], CLASSES[two]).scores_, rtol=1e-10)
            with pytest.raises(ValueError, match="all 59 labeled rows have one class"):
                make().fit(X, CLASSES, sample_weight=(CLASSES == 0).astype(np.float64))

    def test_only_unlabeled_rows_count(self) -> None:
        with pytest.raises(ValueError, match="every labeled row has sample weight 0"):
            FisherScore().fit(X, Y, sample_weight=(Y < 0).astype(np.float64))

    def test_target_that_is_constant_on_the_rows_that_count(self) -> None:
        data, y = load_diabetes(return_X_y=True)
        with pytest.raises(ValueError, match="labeled rows have one value"):
            PearsonScore().fit(data, y, sample_weight=(y == y[0]).astype(np.float64))


SELECTORS: list[Callable[[], Any]] = [
    VarianceScore,
    LaplacianScore,
    FisherScore,
    PearsonScore,
    KolmogorovSmirnovScore,
    InformationGainScore,
    SupervisedLaplacianScore,
    SSelect,
    LSDF,
    RRPC,
    RLSR,
    DSSFS,
    SSUFS,
    SVMRFE,
    lambda: SVMRFE(laplacian=True, criterion="rmb"),
    lambda: SVMRFE(laplacian=True, large_n="landmarks", n_landmarks=40),
]


STORED: list[Callable[[], Any]] = [VarianceScore, LaplacianScore, FisherScore, RRPC, RLSR, SVMRFE]
"""One of each family, of X in tiles on disk; tests/api/test_inputs.py has the others without weights."""


def changed(row: int, value: float) -> FloatArray:
    weights = np.ones(N)
    weights[row] = value
    return weights


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (changed(7, -0.5), r"sample_weight has the weight -0\.5 in row 7: weights of rows are finite numbers from 0"),
        (changed(9, np.nan), "sample_weight has no weight in row 9"),
        (changed(11, np.inf), "sample_weight has the weight inf in row 11"),
        (-np.ones(N), "the weight -1 in row 0, and 177 more rows have none that serves"),
        (np.zeros(N), "sample_weight gives every row a weight of zero"),
        (np.ones(N - 1), rf"(?s)(?=.*\b{N}\b)(?=.*\b{N - 1}\b)"),
        (np.ones((N, 2)), r"\(178, 2\).*one value for each row"),
        (np.full(N, "heavy"), "'heavy' in row 0: weights of rows are numbers"),
        (np.full(N, 1e200), "products overflow"),
        (2.0, "one value for each row|products"),
    ],
    ids=["negative", "nan", "inf", "all negative", "zero", "short", "two columns", "text", "huge", "scalar"],
)
@pytest.mark.parametrize("stored", [STORED, pytest.param(SELECTORS, marks=pytest.mark.long)], ids=["some", "all"])
def test_refused(stored: Any, weights: Any, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    for make, given in [*((make, X) for make in SELECTORS), *((make, tmp_path / "X.npy") for make in stored)]:
        with case(make, type(given)), pytest.raises(ValueError, match=message):
            make().fit(given, CLASSES, sample_weight=weights)


class TestForms:
    def test_accepted(self) -> None:
        expected = FisherScore().fit(X, Y, sample_weight=WEIGHTS).scores_
        forms: list[Any] = [
            WEIGHTS.tolist(),
            WEIGHTS.astype(np.int64),
            WEIGHTS.astype(np.float32),
            pd.Series(WEIGHTS, index=np.arange(N) + 50),
            WEIGHTS[:, None],
        ]
        for form in forms:
            with case(type(form)):
                np.testing.assert_array_equal(FisherScore().fit(X, Y, sample_weight=form).scores_, expected)

    def test_fit_transform_hands_them_on(self) -> None:
        selector = FisherScore(2)
        chosen = selector.fit_transform(X, Y, sample_weight=WEIGHTS)
        np.testing.assert_array_equal(chosen, X[:, FisherScore(2).fit(X, Y, sample_weight=WEIGHTS).get_support()])

    def test_weights_are_left_alone(self) -> None:
        weights = WEIGHTS.copy()
        weights.setflags(write=False)
        for make in SELECTORS:
            make().fit(X, Y, sample_weight=weights)
        np.testing.assert_array_equal(weights, WEIGHTS)

    @pytest.mark.parametrize("stored", [STORED, pytest.param(SELECTORS, marks=pytest.mark.long)], ids=["some", "all"])
    def test_stored_x(self, stored: Any, tmp_path: Path) -> None:
        np.save(tmp_path / "X.npy", X)
        for make in stored:
            expected = make().fit(X, Y, sample_weight=WEIGHTS).scores_
            found = make().fit(tmp_path / "X.npy", Y, sample_weight=WEIGHTS).scores_
            np.testing.assert_allclose(found, expected, rtol=1e-10)

    @pytest.mark.cluster
    def test_weights_of_a_tile_store_hold_unless_others_are_given(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "X.npz", X=X, w=WEIGHTS)
        target = tmp_path / "tiles.zarr"
        converted = command("convert", tmp_path / "X.npz", target, "--weights", "w", "--workers", 0, "-q", "--json")
        assert converted.code == 0, converted.err
        expected = VarianceScore().fit(X, sample_weight=WEIGHTS).scores_
        np.testing.assert_allclose(VarianceScore().fit(target).scores_, expected, rtol=1e-12)
        plain = VarianceScore().fit(X).scores_
        np.testing.assert_allclose(VarianceScore().fit(target, sample_weight=np.ones(N)).scores_, plain, rtol=1e-12)
