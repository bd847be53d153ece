"""Machines over landmarks: streamed sums against dense formulas."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import scipy.sparse as sp

from daskfs.kernels.svm.nystroem import LandmarkKernel, LandmarkMachines, landmark_sums, solve_landmarks
from tests.cases import each
from tests.reference import svm as reference
from tests.reference.svm import anchor_laplacian, gaussian, weston

N, M, GAMMA = 200, 25, 1 / 8
RIDGE, GAMMA_INTRINSIC = 1e-3, 0.1


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X, y with 0 for a third of the rows, and landmarks."""
    X, y = weston(N, seed)
    y[::3] = 0.0
    return X[:, :8], y, X[:M, :8]


def added(
    K: np.ndarray, y: np.ndarray, weights: np.ndarray | None, n_anchors: int, n_blocks: int = 7
) -> Mapping[str, np.ndarray]:
    """Return the sums over blocks of rows."""
    total: dict[str, np.ndarray] = {}
    for rows in np.array_split(np.arange(len(K)), n_blocks):
        own = None if weights is None else weights[rows]
        for name, values in landmark_sums(K[rows], y[rows, None], own, n_anchors).items():
            total[name] = total.get(name, 0.0) + values
    return total


def solved(
    K: np.ndarray, y: np.ndarray, Z: np.ndarray, weights: np.ndarray | None = None, n_anchors: int = 0
) -> LandmarkMachines:
    return solve_landmarks(gaussian(Z, GAMMA), added(K, y, weights, n_anchors), RIDGE, GAMMA_INTRINSIC, n_anchors)


def assert_predicts(K: np.ndarray, found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    """Coefficients of landmarks that are near each other are hardly settled; what they predict is."""
    np.testing.assert_allclose(K @ found, K @ expected, atol=tolerance * np.abs(K @ expected).max())


WEIGHTS = np.random.default_rng(1).integers(0, 3, N).astype(float)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
class TestSums:
    @each("n_blocks", [1, 7, N])
    def test_dense_solution(self, weights: np.ndarray | None, n_blocks: int) -> None:
        X, y, Z = data()
        K = gaussian(X, GAMMA, Z)
        sums = added(K, y, weights, 0, n_blocks)
        found = solve_landmarks(gaussian(Z, GAMMA), sums, RIDGE, GAMMA_INTRINSIC, 0)
        counts = np.ones(N) if weights is None else weights
        expected, _ = reference.landmark_machine(K, gaussian(Z, GAMMA), y, RIDGE, counts)
        assert found.scale == 1.0
        assert_predicts(K, found.coefficients[:, 0], expected)
        assert sums["total"] == counts[y != 0].sum()

    @each("n_anchors", [1, 4, M])
    def test_dense_solution_under_a_graph(self, weights: np.ndarray | None, n_anchors: int) -> None:
        X, y, Z = data()
        K = gaussian(X, GAMMA, Z)
        found = solved(K, y, Z, weights, n_anchors)
        counts = np.ones(N) if weights is None else weights
        L = anchor_laplacian(K, n_anchors, counts)
        expected, scale = reference.landmark_machine(K, gaussian(Z, GAMMA), y, RIDGE, counts, L, GAMMA_INTRINSIC)
        assert found.scale == pytest.approx(scale, rel=1e-6)
        assert_predicts(K, found.coefficients[:, 0], expected)
        assert found.scale < 1, "the kernel shrinks"

    @each("n_anchors", [1, 4, M])
    def test_roughness(self, weights: np.ndarray | None, n_anchors: int) -> None:
        """f'Lf from sums is that of S = Z Lambda^-1 Z', whose degrees are the weights of the rows."""
        X, y, Z = data()
        K = gaussian(X, GAMMA, Z)
        sums = added(K, y, weights, n_anchors)
        counts = np.ones(N) if weights is None else weights
        L = anchor_laplacian(K, n_anchors, counts)
        a = np.random.default_rng(2).normal(size=M)
        hung = sums["anchored"] / np.maximum(sums["anchors"], 1e-300)
        roughness = a @ sums["all_gram"] @ a - a @ hung @ sums["anchored"].T @ a
        assert n_anchors * roughness == pytest.approx((K @ a) @ L @ (K @ a), rel=1e-10)
        assert (np.diag(n_anchors * counts) - L).min() > -1e-12

    def test_several_problems(self, weights: np.ndarray | None) -> None:
        X, y, Z = data()
        K = gaussian(X, GAMMA, Z)
        other = np.where(y == 0, 0.0, np.where(X[:, 3] > 0, 1.0, -1.0))
        both = landmark_sums(K, np.column_stack([y, other]), weights, 4)
        found = solve_landmarks(gaussian(Z, GAMMA), both, RIDGE, GAMMA_INTRINSIC, 4).coefficients
        for column, targets in enumerate((y, other)):
            alone = solved(K, targets, Z, weights, 4).coefficients[:, 0]
            assert_predicts(K, found[:, column], alone, 1e-7)


def test_rows_without_labels_do_not_count_without_a_graph() -> None:
    X, y, Z = data()
    known = y != 0
    K = gaussian(X, GAMMA, Z)
    some = landmark_sums(K[known], y[known, None], None, 0)
    for name, values in landmark_sums(K, y[:, None], None, 0).items():
        np.testing.assert_allclose(values, some[name], rtol=1e-12, atol=1e-12)


def test_weight_2_is_a_row_twice() -> None:
    X, y, Z = data()
    K = gaussian(X, GAMMA, Z)
    repeated = np.repeat(np.arange(N), WEIGHTS.astype(int))
    twice = landmark_sums(K[repeated], y[repeated, None], None, 4)
    for name, values in landmark_sums(K, y[:, None], WEIGHTS, 4).items():
        np.testing.assert_allclose(values, twice[name], rtol=1e-12, atol=1e-12, err_msg=name)


@each("seed", range(3))
def test_all_rows_as_landmarks_are_ridge_regression(seed: int) -> None:
    """f = K (K + lambda n I)^-1 (y - b): with all rows nothing is left out."""
    X, y = weston(60, seed)
    X = X[:, :8]
    K = gaussian(X, GAMMA)
    found = solved(K, y, X).coefficients[:, 0]
    inverse = np.linalg.inv(K + RIDGE * 60 * np.eye(60))
    offset = inverse.sum(axis=0) @ y / inverse.sum()
    expected = inverse @ (y - offset)
    np.testing.assert_allclose(K @ found, K @ expected, atol=2e-6)
    assert found @ K @ found == pytest.approx(expected @ K @ expected, rel=1e-4)


def test_landmarks_that_are_the_same_row() -> None:
    """They share what one of them would have."""
    X, y, Z = data()
    K = gaussian(X, GAMMA, Z)
    once = solved(K, y, Z).coefficients[:, 0]
    Z2 = np.vstack([Z, Z[:5]])
    K2 = gaussian(X, GAMMA, Z2)
    found = solved(K2, y, Z2).coefficients[:, 0]
    np.testing.assert_allclose(K2 @ found, K @ once, atol=1e-5)
    np.testing.assert_allclose(found[:5], found[M:], atol=1e-3 * np.abs(found).max())


@each("n_anchors", [1, 4, M])
def test_a_row_beyond_the_reach_of_all_landmarks(n_anchors: int) -> None:
    """Its kernel values are 0 but for what float64 cannot hold; it has no edge, and nothing is NaN."""
    X, y, Z = data()
    far = X.copy()
    far[M + 1] = 1e4
    K = gaussian(far, GAMMA, Z)
    assert not K[M + 1].any()
    sums = landmark_sums(K[M + 1 : M + 2], y[M + 1 : M + 2, None], None, n_anchors)
    assert not sums["anchors"].any()
    assert not sums["anchored"].any()
    found = solved(K, y, Z, None, n_anchors)
    assert np.isfinite(found.coefficients).all()
    without = np.delete(np.arange(N), M + 1)
    L = np.zeros((N, N))
    L[np.ix_(without, without)] = anchor_laplacian(K[without], n_anchors, np.ones(N - 1))
    expected, _ = reference.landmark_machine(K, gaussian(Z, GAMMA), y, RIDGE, np.ones(N), L, GAMMA_INTRINSIC)
    assert_predicts(K, found.coefficients[:, 0], expected)


class TestKernel:
    LEFT = np.array([0, 2, 3, 6, 7])

    def made(self, offset: float) -> tuple[np.ndarray, np.ndarray, LandmarkKernel]:
        """Return X as stored, with zeros, z-scores of the features left, and the kernel."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(40, 8)) * 10.0 ** rng.integers(-2, 3, 8)
        X[rng.random(X.shape) < 0.5] = 0.0
        X += offset * X.std(axis=0)
        mean, std = X.mean(axis=0), X.std(axis=0)
        left = ((X - mean) / std)[:, self.LEFT]
        kernel = LandmarkKernel(left[:6].copy(), self.LEFT, mean[self.LEFT], 1 / std[self.LEFT], 0.2)
        return X, left, kernel

    def test_dense(self) -> None:
        X, left, kernel = self.made(0.0)
        np.testing.assert_allclose(kernel(X), gaussian(left, 0.2, left[:6]), atol=1e-13)
        np.testing.assert_allclose(kernel.between_landmarks(), gaussian(left[:6], 0.2), atol=1e-13)
        assert (np.diagonal(kernel.between_landmarks()) == 1.0).all()

    @each("offset", [0.0, 20.0, 1e3, 1e8])
    def test_sparse_as_dense(self, offset: float) -> None:
        """Also where the means are far from 0 and products would lose the digits."""
        X, left, kernel = self.made(offset)
        found = kernel(sp.csr_matrix(X))
        np.testing.assert_allclose(found, kernel(X), atol=1e-10)
        np.testing.assert_allclose(found, gaussian(left, 0.2, left[:6]), atol=1e-6 if offset == 1e8 else 1e-10)

    def test_sparse_just_below_the_limit(self) -> None:
        """A squared mean of 1e4 costs four of sixteen digits."""
        X, left, _ = self.made(0.0)
        mean, std = X.mean(axis=0)[self.LEFT], X.std(axis=0)[self.LEFT]
        shifted = LandmarkKernel(left[:6].copy(), self.LEFT, mean + 44.0 * std, 1 / std, 1e-4)
        np.testing.assert_allclose(shifted(sp.csr_matrix(X)), shifted(X), atol=1e-12)
        assert shifted(X).max() < 1.0

    def test_float32(self) -> None:
        X, _, kernel = self.made(0.0)
        stored = X.astype(np.float32)
        np.testing.assert_array_equal(kernel(stored), kernel(stored.astype(np.float64)))
        np.testing.assert_allclose(kernel(sp.csr_matrix(stored)), kernel(stored), atol=1e-10)

    def test_no_rows(self) -> None:
        _, _, kernel = self.made(0.0)
        assert kernel(np.empty((0, 8))).shape == (0, 6)
        assert kernel(sp.csr_matrix((0, 8))).shape == (0, 6)
