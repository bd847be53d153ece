"""Metrics: the errors of single features of Iris, clusterings against classes, known features found, cut values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import normalized_mutual_info_score

from daskfs.evaluation.metrics import (
    classes_of,
    cluster_classes,
    cut_value,
    hit_rate,
    matched_accuracy,
    nearest_neighbor_error,
    normalized_mutual_information,
)
from daskfs.kernels.neighbors import distance_bounds
from daskfs.kernels.statistics.normalized_cut import CUT_ROWS, cut_of
from tests.reference import evaluation as reference
from tests.reference.iris import uci_iris
from tests.reference.sselect import nmi


class TestNearestNeighborError:
    PAPER = (Fraction(62, 150), Fraction(78, 150), Fraction(18, 150), Fraction(18, 150))

    def test_single_features_of_iris(self) -> None:
        """He, Cai, Niyogi (2005), section 4.1: 0.41, 0.52, 0.12, 0.12; in integers the ties are ties."""
        X, y = uci_iris()
        tenths = np.rint(X * 10).astype(np.int64)
        found = [nearest_neighbor_error(tenths[:, [r]], y) for r in range(4)]
        assert found == [float(error) for error in self.PAPER]
        assert np.round(found, 4).tolist() == [0.4133, 0.5200, 0.1200, 0.1200]
        assert found == [float(reference.nearest_neighbor_error(tenths[:, [r]].tolist(), y.tolist())) for r in range(4)]

    def test_centimeters_are_tied_as_their_tenths(self) -> None:
        X, y = uci_iris()
        assert [nearest_neighbor_error(X[:, [r]], y) for r in range(4)] == [float(error) for error in self.PAPER]

    @given(st.data())
    def test_against_loops_over_integers(self, data: st.DataObject) -> None:
        shape = data.draw(st.tuples(st.integers(2, 14), st.integers(1, 3)))
        X = data.draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 4)))
        y = data.draw(hnp.arrays(np.int64, shape[0], elements=st.integers(0, 2)))
        expected = float(reference.nearest_neighbor_error(X.tolist(), y.tolist()))
        assert nearest_neighbor_error(X, y) == expected
        assert nearest_neighbor_error(X + 10**8, y) == expected
        assert nearest_neighbor_error(X.astype(np.uint8), y) == expected

    def test_more_rows_than_a_block(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rng = np.random.default_rng(0)
        X, y = rng.integers(0, 20, (400, 2)), rng.integers(0, 3, 400)
        lengths = ((X[:, None] - X[None]) ** 2).sum(axis=2)
        np.fill_diagonal(lengths, 10**6)
        expected = np.mean(y[lengths.argmin(axis=1)] != y)
        monkeypatch.setattr(distance_bounds, "TILE_BYTES", 4 * 400 * 30)
        assert nearest_neighbor_error(X, y) == expected

    def test_columns_that_say_nothing(self) -> None:
        y = np.array([0, 0, 1, 0])
        assert (
            nearest_neighbor_error(np.ones((4, 2)), y) == 0.25
        )  # all fall to the first row, which falls to the second
        assert nearest_neighbor_error(np.ones((4, 0)), y) == 0.25
        assert np.isnan(nearest_neighbor_error(np.ones((1, 2)), y[:1]))


labels_and_clusters = st.integers(1, 20).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.int64, n, elements=st.integers(0, 3)), hnp.arrays(np.int64, n, elements=st.integers(-1, 3))
    )
)


class TestClusters:
    @given(labels_and_clusters)
    def test_matched_accuracy_against_all_permutations(self, case: tuple[np.ndarray, np.ndarray]) -> None:
        y, clusters = case
        assert matched_accuracy(y, clusters) == pytest.approx(reference.matched_accuracy(y.tolist(), clusters.tolist()))

    def test_names_of_clusters_and_classes_say_nothing(self) -> None:
        y, clusters = np.array([7, 7, 3, 3, 3, 9]), np.array([1, 1, 0, 0, 1, 5])
        assert matched_accuracy(y, clusters) == 5 / 6
        assert matched_accuracy(y, np.array([0, 0, 0, 0, 0, 0])) == 0.5
        assert matched_accuracy(y, np.arange(6)) == 0.5
        assert np.isnan(matched_accuracy(y[:0], clusters[:0]))

    def test_matching_of_some_rows_names_the_clusters_of_others(self) -> None:
        names, classes = cluster_classes(np.array([5, 5, 8, 8]), np.array([2, 2, 0, 0]))
        found, known = classes_of(np.array([0, 2, 1, 3]), names, classes)
        assert found[:2].tolist() == [8, 5]
        assert known.tolist() == [True, True, False, False]

    @given(labels_and_clusters)
    def test_nmi_against_its_formula(self, case: tuple[np.ndarray, np.ndarray]) -> None:
        y, clusters = case
        found = normalized_mutual_information(y, clusters)
        assert found == pytest.approx(nmi(y, clusters), abs=1e-12)
        if np.unique(y).size > 1 and np.unique(clusters).size > 1:
            assert found == pytest.approx(normalized_mutual_info_score(y, clusters, average_method="max"), abs=1e-12)

    def test_nmi_of_nothing(self) -> None:
        y = np.array([0, 0, 1])
        assert normalized_mutual_information(y, np.zeros(3, np.int64)) == 0.0
        assert normalized_mutual_information(np.zeros(3, np.int64), np.zeros(3, np.int64)) == 0.0
        assert normalized_mutual_information(y, np.array([4, 4, 2])) == 1.0
        assert np.isnan(normalized_mutual_information(y[:0], y[:0]))


class TestKnownFeatures:
    def test_hit_rate(self) -> None:
        order = np.array([4, 0, 3, 1, 2])
        assert [hit_rate(order, [0, 1], n) for n in range(1, 6)] == [0.0, 0.5, 0.5, 1.0, 1.0]
        assert hit_rate(order, [0, 4, 3], 2) == 2 / 3
        assert hit_rate(order, [4, 4], 1) == 1.0
        assert np.isnan(hit_rate(order, [], 3))


class TestCutValue:
    def test_is_that_of_the_kernel(self) -> None:
        X = np.random.default_rng(0).normal(size=(80, 3))
        assert cut_value(X, 5) == pytest.approx(cut_of(X, 5).value, abs=1e-12)
        assert cut_value(X.astype(np.float32), 5) == pytest.approx(cut_of(X, 5).value, abs=1e-4)

    def test_blobs_are_cut_more_easily_than_a_cloud(self) -> None:
        rng = np.random.default_rng(0)
        cloud = rng.normal(size=(100, 2))
        blobs = cloud + np.repeat([[0.0], [3.5]], 50, axis=0)
        assert cut_value(blobs, 10) < cut_value(cloud, 10)
        assert cut_value(cloud + np.repeat([[0.0], [1e6]], 50, axis=0), 10) == 0.0
        assert np.isnan(cut_value(np.ones((10, 2)), 3))

    def test_many_rows_are_thinned_evenly(self) -> None:
        X = np.random.default_rng(0).normal(size=(CUT_ROWS + 200, 2))
        X[: CUT_ROWS // 2] += 1e3
        assert cut_value(X, 10) == 0.0
        assert cut_value(X[CUT_ROWS // 2 :], 10) > 0.0
