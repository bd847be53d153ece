"""How easily rows fall into two clusters: against eigenvalues of the whole graph, and what must not win for nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from daskfs.kernels.statistics.normalized_cut import cut_features, cut_of, lowest_cut, second_eigenvalue
from tests.cases import each
from tests.reference import sselect as reference
from tests.reference.graph import knn_lists


def blobs(*centers: float, n: int = 40, width: float = 0.3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(center, width, (n, 2)) for center in centers])


def words(n: int = 150, seed: int = 0) -> np.ndarray:
    """Counts of five words in documents, most of which have none."""
    return np.random.default_rng(seed).poisson([0.1, 0.2, 0.1, 0.3, 0.05], (n, 5)).astype(np.float64)


class TestAgainstTheWholeGraph:
    @each("k", [2, 3, 5, 10])
    @each("seed", range(3))
    def test_equal_rows_are_one_node_with_the_same_eigenvalue(self, k: int, seed: int) -> None:
        X = words(seed=seed)
        assert len(np.unique(X, axis=0)) < 40
        found = cut_of(X, k)
        assert 0 < found.value < 1
        assert found.value == pytest.approx(reference.second_eigenvalue(reference.graph_of_all_rows(X, k)), abs=1e-12)
        assert found.n_distinct == len(np.unique(X, axis=0))

    @each("seed", range(3))
    def test_full_kernel(self, seed: int) -> None:
        X = words(seed=seed) * 1.5
        distinct = np.unique(X, axis=0)
        lists = knn_lists(distinct, 4)[0]
        squares = ((distinct[:, None] - distinct[None]) ** 2).sum(axis=2)
        joined = [(i, j) for i in range(len(distinct)) for j in range(len(distinct)) if j in lists[i] or i in lists[j]]
        width = np.median([squares[pair] for pair in joined])
        found = cut_of(X, 4)
        assert found.width == pytest.approx(width, rel=1e-12)
        K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / (2 * width)) - np.eye(len(X))
        assert found.kernel_value == pytest.approx(reference.second_eigenvalue(K), abs=1e-12)

    def test_weights_count_as_rows_do(self) -> None:
        X, times = words(60), np.arange(60) % 4
        weighted, repeated = cut_of(X, 3, times.astype(np.float64)), cut_of(np.repeat(X, times, axis=0), 3)
        assert weighted.n_distinct == repeated.n_distinct
        # a row of weight 2 has no edge to itself, the two rows that it stands for have one
        assert weighted.value == pytest.approx(repeated.value, rel=0.05)
        assert cut_of(X, 3, np.ones(60)) == cut_of(X, 3)

    @each("seed", range(3))
    def test_order_and_offset_and_scale(self, seed: int) -> None:
        X = words(seed=seed)
        rows = np.random.default_rng(1).permutation(len(X))
        for other in (X[rows], X + 1e8, 8 * X, np.where(X == 0, -0.0, X)):
            assert cut_of(other, 4).value == pytest.approx(cut_of(X, 4).value, abs=1e-12)

    def test_second_eigenvalue_of_known_graphs(self) -> None:
        complete = np.ones((6, 6)) - np.eye(6)
        assert second_eigenvalue(complete) == pytest.approx(6 / 5, rel=1e-13)
        ring = np.roll(np.eye(12), 1, axis=0) + np.roll(np.eye(12), -1, axis=0)
        assert second_eigenvalue(ring) == pytest.approx(1 - np.cos(2 * np.pi / 12), rel=1e-12)
        assert second_eigenvalue(np.kron(np.eye(2), complete)) == pytest.approx(0, abs=1e-14)
        alone = np.zeros((7, 7))
        alone[:6, :6] = complete
        assert second_eigenvalue(alone) == second_eigenvalue(complete)
        assert np.isnan(second_eigenvalue(np.zeros((3, 3))))


class TestFallingApart:
    def test_two_clusters_are_cut_for_nothing(self) -> None:
        found = cut_of(blobs(0, 50), 5)
        assert (found.value, found.n_components, found.largest_component) == (0.0, 2, 0.5)

    def test_the_nearer_the_clusters_the_dearer_the_cut(self) -> None:
        values = [cut_of(blobs(0, distance, width=1.0), 8).value for distance in (8.0, 4.0, 2.5, 0.0)]
        assert values == sorted(values)
        assert values[0] < 0.1 * values[-1]

    def test_few_outliers_are_not_a_cluster(self) -> None:
        many, few = blobs(0, n=200), blobs(0, n=6, seed=1)
        alone = cut_of(many, 5)
        found = cut_of(np.concatenate([many, few + 500]), 5)
        assert (found.n_components, found.largest_component) == (2, 200 / 206)
        assert found.value == pytest.approx(alone.value, rel=1e-12)
        assert alone.value > 0.01
        assert found.kernel_value == pytest.approx(0, abs=1e-12)  # which is why the kernel does not decide
        assert cut_of(np.concatenate([many, np.repeat(few + 500, 4, axis=0)]), 5).value == 0.0

    def test_heaps_of_equal_rows_are_not_clusters(self) -> None:
        """Of text only: documents without any of the words, with one of them once, ... each far more than k."""
        heaps = np.repeat(
            np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]), (80, 30, 30, 30, 8), axis=0
        )
        found = cut_of(heaps.astype(np.float64), 3)
        assert (found.n_components, found.n_distinct) == (1, 5)
        assert found.value > 0.5

    @each("n", [1, 2, 50])
    def test_equal_rows_alone_have_no_cut(self, n: int) -> None:
        found = cut_of(np.full((n, 3), 7.0), 5)
        assert np.isnan([found.value, found.kernel_value, found.width]).all()
        assert (found.n_components, found.largest_component, found.n_distinct) == (1, 1.0, 1)

    def test_no_rows_and_no_columns(self) -> None:
        assert np.isnan(cut_of(np.ones((5, 0)), 2).value)
        found = cut_of(blobs(0), 2, np.zeros(40))
        assert np.isnan(found.value)
        assert found.n_distinct == 0

    @each("k", [1, 5])
    def test_two_distinct_rows(self, k: int) -> None:
        X = np.repeat([[0.0], [1.0]], (6, 4), axis=0)
        found = cut_of(X, k)
        assert found.n_components == 1
        assert found.value == pytest.approx(reference.second_eigenvalue(np.ones((10, 10)) - np.eye(10)), rel=0.2)


NAN = np.nan
GRID = np.array([0.0, 0.1, 0.2, 0.3])


class TestChoice:
    @each(
        ("values", "place"),
        [
            ([0.4, 0.3, 0.1, 0.2], 2),
            ([0.1, 0.3, 0.2, 0.2], 0),
            ([0.1, 0.1, 0.2, 0.1], 1),
            ([0.1, 0.2, 0.1, 0.1], 2),
            ([0.0, 0.0, 0.0, 0.0], 1),
            ([0.2, 0.1 + 1e-15, 0.1, 0.1], 1),
            ([NAN, NAN, 0.3, 0.2], 3),
            ([NAN, 0.3, 0.3, NAN], 1),
            ([NAN] * 4, None),
        ],
    )
    def test_lowest(self, values: list[float], place: int | None) -> None:
        assert lowest_cut(GRID, np.array(values)) == place

    @each(
        ("wanted", "n_features", "count"),
        [(None, 1, 1), (None, 2, 1), (None, 61, 30), (None, 1000, 50), (7, 1000, 7), (200, 1000, 200), (9, 4, 4)],
    )
    def test_number_of_features(self, wanted: Any, n_features: int, count: int) -> None:
        assert cut_features(wanted, n_features) == count
