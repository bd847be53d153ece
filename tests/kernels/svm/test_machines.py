"""Machines and spheres with a given kernel: duality, conditions, and other solvers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.svm import SVC

from daskfs.kernels.svm import machines
from daskfs.kernels.svm.machines import Machine, Sphere, find_sphere, fit_machine, is_exact_sphere
from tests.cases import each
from tests.reference import svm as reference
from tests.reference.svm import gaussian, weston


def assert_dual(found: Machine, y: np.ndarray, cost: np.ndarray, tolerance: float = 1e-8) -> None:
    """G7: e'alpha = ||w||^2 + sum_p C_p xi_p, and what goes with it."""
    alpha = found.beta * y
    assert alpha.sum() == pytest.approx(found.squared_norm + cost @ found.slack, rel=tolerance)
    assert (alpha >= 0).all()
    assert (alpha <= cost * (1 + 1e-15)).all()
    assert abs(found.beta.sum()) <= tolerance * alpha.sum()
    assert abs(found.gap) <= tolerance


class TestMachine:
    @each("C", [0.1, 10.0, 1000.0])
    @each("n_features", [1, 2, 8, 52])
    @each("n", [10, 50, 120])
    def test_duality(self, n: int, n_features: int, C: float) -> None:
        X, y = weston(n, 0)
        K = gaussian(X[:, :n_features], 1 / n_features)
        cost = np.full(n, C)
        found = fit_machine(K, y, cost)
        assert_dual(found, y, cost)
        expected = reference.machine(K, y, cost)
        assert found.squared_norm == pytest.approx(expected.squared_norm, rel=1e-6)
        f = K @ found.beta + found.offset
        np.testing.assert_allclose(f - found.offset, K @ expected.beta, atol=1e-5)
        np.testing.assert_allclose(found.slack, np.maximum(0, 1 - y * f), atol=1e-12)
        assert found.squared_norm == pytest.approx(found.beta @ K @ found.beta, rel=1e-9)
        assert found.bound_share == pytest.approx(np.mean(found.beta * y > C * (1 - 1e-6)), abs=1e-12)

    @given(st.integers(2, 40), st.integers(1, 6), st.integers(0, 10**6), st.integers(-2, 3))
    @settings(max_examples=100)
    def test_duality_of_any(self, n: int, n_features: int, seed: int, power: int) -> None:
        """Whole numbers, so that rows are there twice, also in both classes; each row with its own C."""
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 3, (n, n_features)).astype(float)
        y = np.where(rng.permutation(n) < max(1, n // 3), 1.0, -1.0)
        cost = 10.0**power * rng.integers(1, 4, n)
        assert_dual(fit_machine(gaussian(X, 1 / n_features), y, cost), y, cost, 1e-7)

    def test_against_slsqp(self) -> None:
        X, y = weston(14, 5)
        K, C = gaussian(X[:, :4], 0.25), 2.0
        solved = minimize(
            lambda alpha: alpha * y @ K @ (alpha * y) / 2 - alpha.sum(),
            np.full(14, C / 2),
            jac=lambda alpha: y * (K @ (alpha * y)) - 1,
            bounds=[(0, C)] * 14,
            constraints={"type": "eq", "fun": lambda alpha: alpha @ y},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 1000},
        )
        found = fit_machine(K, y, np.full(14, C))
        np.testing.assert_allclose(found.beta * y, solved.x, atol=1e-5)

    @each("weighted", [False, True])
    def test_against_libsvm(self, weighted: bool) -> None:
        X, y = weston(150, 1)
        K = gaussian(X, 1 / 52)
        cost = np.where(np.arange(150) % 3 == 0, 20.0, 10.0) if weighted else np.full(150, 10.0)
        machine = SVC(C=1.0, kernel="precomputed", tol=1e-9).fit(K, y, sample_weight=cost)
        found = fit_machine(K, y, cost)
        np.testing.assert_allclose(K @ found.beta + found.offset, machine.decision_function(K), atol=1e-5)
        np.testing.assert_array_equal(np.flatnonzero(np.abs(found.beta) > 1e-9), np.sort(machine.support_))

    @pytest.mark.parametrize("n_features", [2, 52])
    def test_guess_of_libsvm_changes_nothing(self, n_features: int, monkeypatch: pytest.MonkeyPatch) -> None:
        X, y = weston(200, 2)
        K, cost = gaussian(X[:, :n_features], 1 / n_features), np.full(200, 10.0)
        expected = fit_machine(K, y, cost)
        monkeypatch.setattr(machines, "LIBSVM_ROWS", 0)
        found = fit_machine(K, y, cost)
        np.testing.assert_allclose(found.beta, expected.beta, atol=1e-6)
        assert found.squared_norm == pytest.approx(expected.squared_norm, rel=1e-10)

    def test_any_start_comes_to_the_same(self) -> None:
        X, y = weston(80, 3)
        K, cost = gaussian(X, 1 / 52), np.full(80, 10.0)
        expected = fit_machine(K, y, cost)
        for start in (expected.beta, np.zeros(80), cost * y, fit_machine(gaussian(X[:, 1:], 1 / 52), y, cost).beta):
            found = fit_machine(K, y, cost, start)
            np.testing.assert_allclose(found.beta, expected.beta, atol=1e-8)
            assert found.squared_norm == pytest.approx(expected.squared_norm, rel=1e-12)

    def test_weight_2_is_a_row_twice(self) -> None:
        X, y = weston(40, 4)
        counts = np.where(np.arange(40) < 15, 2, 1)
        repeated = np.repeat(np.arange(40), counts)
        found = fit_machine(gaussian(X, 1 / 52), y, 3.0 * counts)
        twice = fit_machine(gaussian(X[repeated], 1 / 52), y[repeated], np.full(55, 3.0))
        assert found.squared_norm == pytest.approx(twice.squared_norm, rel=1e-9)
        assert found.offset == pytest.approx(twice.offset, abs=1e-8)
        assert 3.0 * counts @ found.slack == pytest.approx(3.0 * twice.slack.sum(), rel=1e-9, abs=1e-9)

    def test_share_at_bound(self) -> None:
        X, y = weston(30, 0)
        K = gaussian(X, 1 / 52)
        assert fit_machine(K, y, np.full(30, 1e-3)).bound_share == 1.0
        assert fit_machine(K, y, np.full(30, 1e4)).bound_share == 0.0

    def test_two_rows(self) -> None:
        found = fit_machine(np.eye(2), np.array([1.0, -1.0]), np.full(2, 10.0))
        np.testing.assert_allclose(found.beta, [1.0, -1.0])
        assert found.squared_norm == pytest.approx(2.0)
        assert (found.offset, found.bound_share) == (0.0, 0.0)

    def test_many_rows(self) -> None:
        """With LIBSVM's guess."""
        X, y = weston(1100, 0)
        K, cost = gaussian(X[:, :8], 1 / 8), np.full(1100, 10.0)
        assert_dual(fit_machine(K, y, cost), y, cost)


def assert_smallest(K: np.ndarray, sphere: Sphere) -> None:
    """No row lies outside, and the center is made of rows that lie on it."""
    assert sphere.weights.min() >= 0
    assert sphere.weights.sum() == pytest.approx(1.0)
    mu = sphere.weights
    squares = np.diagonal(K) - 2 * K @ mu + mu @ K @ mu
    assert squares.max() <= sphere.squared_radius + 1e-9
    np.testing.assert_allclose(squares[mu > 1e-9], sphere.squared_radius, atol=1e-8)


class TestSphere:
    @each("n_features", [1, 2, 8, 52])
    @each("n", [2, 30, 100])
    def test_conditions(self, n: int, n_features: int) -> None:
        X, _ = weston(n, 0)
        K = gaussian(X[:, :n_features], 1 / n_features)
        sphere = find_sphere(K, np.ones(n))
        assert_smallest(K, sphere)
        assert sphere.squared_radius == pytest.approx(reference.squared_radius(K), abs=1e-9)

    def test_against_slsqp_between_its_bounds(self) -> None:
        """Variance form <= R^2 <= largest squared distance to the centroid."""
        X, _ = weston(30, 1)
        K = gaussian(X, 1 / 52)
        solved = minimize(
            lambda mu: mu @ K @ mu - mu @ np.diagonal(K),
            np.full(30, 1 / 30),
            jac=lambda mu: 2 * K @ mu - np.diagonal(K),
            bounds=[(0, None)] * 30,
            constraints={"type": "eq", "fun": lambda mu: mu.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-16, "maxiter": 1000},
        )
        found = find_sphere(K, np.ones(30)).squared_radius
        assert found == pytest.approx(-solved.fun, abs=1e-9)
        squares = np.diagonal(K) - 2 * K.mean(axis=1) + K.mean()
        assert squares.mean() < found < squares.max()

    @given(st.integers(1, 25), st.integers(1, 4), st.integers(0, 10**6))
    @settings(max_examples=100)
    def test_of_any_rows(self, n: int, n_features: int, seed: int) -> None:
        """Also those that are there more than once, with a kernel whose diagonal is not 1."""
        X = np.random.default_rng(seed).integers(-2, 3, (n, n_features)).astype(float)
        K = X @ X.T
        sphere = find_sphere(K, np.ones(n))
        assert_smallest(K, sphere)
        squares = np.diagonal(K) - 2 * K.mean(axis=1) + K.mean()
        assert squares.mean() - 1e-9 <= sphere.squared_radius <= squares.max() + 1e-9

    def test_on_a_line(self) -> None:
        x = np.array([-1.0, 0.5, 4.0, 2.0])
        sphere = find_sphere(np.outer(x, x), np.ones(4))
        assert sphere.squared_radius == pytest.approx(2.5**2)

    def test_weights_do_not_move_it(self) -> None:
        X, _ = weston(20, 2)
        K = gaussian(X, 1 / 52)
        a, b = find_sphere(K, np.ones(20)), find_sphere(K, np.arange(1.0, 21.0))
        assert a.squared_radius == pytest.approx(b.squared_radius, rel=1e-12)

    def test_any_start_comes_to_the_same(self) -> None:
        X, _ = weston(60, 3)
        K = gaussian(X, 1 / 52)
        expected = find_sphere(K, np.ones(60)).squared_radius
        for start in (np.eye(60)[3], find_sphere(gaussian(X[:, 1:], 1 / 52), np.ones(60)).weights):
            assert find_sphere(K, np.ones(60), start).squared_radius == pytest.approx(expected, rel=1e-12)

    def test_one_row(self) -> None:
        assert find_sphere(np.ones((1, 1)), np.ones(1)).squared_radius == 0.0

    def test_variance_form_above_a_size(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its mean counts rows by their weights, so that a row of weight 2 is there twice."""
        X, _ = weston(30, 4)
        K = gaussian(X, 1 / 52)
        exact = find_sphere(K, np.ones(30)).squared_radius
        monkeypatch.setattr(machines, "RADIUS_ROWS", 29)
        assert not is_exact_sphere(30)
        squares = np.diagonal(K) - 2 * K.mean(axis=1) + K.mean()
        found = find_sphere(K, np.ones(30)).squared_radius
        assert found == pytest.approx(squares.mean(), rel=1e-12)
        assert found < exact
        counts = np.where(np.arange(30) < 10, 2, 1)
        repeated = np.repeat(np.arange(30), counts)
        weighted = find_sphere(K, counts.astype(float))
        twice = find_sphere(K[np.ix_(repeated, repeated)], np.ones(40))
        assert weighted.squared_radius == pytest.approx(twice.squared_radius, rel=1e-12)
