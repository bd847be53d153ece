"""The reference of support vector machines against other solvers, sums over pairs, and its own conditions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize
from sklearn.neighbors import kneighbors_graph
from sklearn.svm import SVC

from tests.cases import each
from tests.reference import svm
from tests.reference.svm import Setting, gaussian, weston


class TestWeston:
    def test_its_moments(self) -> None:
        X, y = weston(20_000, 0, zscore=False)
        assert X.shape == (20_000, 52)
        for own, (first, second) in ((-1, (0.75, 3.0)), (1, (3.0, -3.0))):
            rows = X[y == own]
            assert len(rows) == 10_000
            np.testing.assert_allclose(np.abs(rows[:, :2].mean(axis=0)), 0.0, atol=0.15)  # two sides, equal odds
            side = np.sign(rows[:, 1])
            np.testing.assert_allclose(
                (rows[:, :2] * side[:, None]).mean(axis=0), [first * np.sign(second), 3.0], atol=0.05
            )
        np.testing.assert_allclose(X[:, 2:].var(axis=0), 20.0, rtol=0.1)

    def test_its_two_features_suffice(self) -> None:
        (X, y), (new, truth) = weston(400, 1), weston(4000, 2)
        error = np.mean(SVC(C=10.0, gamma=0.5).fit(X[:, :2], y).predict(new[:, :2]) != truth)
        assert error < 0.05  # 3.1 % at best


class TestPrograms:
    @each("seed", range(4))
    @each("C", [0.5, 20.0])
    def test_machine_is_libsvms(self, seed: int, C: float) -> None:
        X, y = weston(40, seed)
        K = gaussian(X[:, :5], 0.2)
        found = svm.machine(K, y, np.full(40, C))
        machine = SVC(C=C, kernel="precomputed", tol=1e-10).fit(K, y)
        np.testing.assert_allclose(K @ found.beta + found.offset, machine.decision_function(K), atol=1e-4)
        alpha = found.beta * y
        primal = found.squared_norm / 2 + C * found.slack.sum()
        assert alpha.sum() - found.squared_norm / 2 == pytest.approx(primal, rel=1e-10)

    # a step of SLSQP leaves its bounds by rounding, which SciPy 1.15 warns of before it clips the step
    @pytest.mark.filterwarnings("ignore:Values in x were outside bounds during a minimize step:RuntimeWarning")
    @each("seed", range(4))
    def test_any_program_is_slsqps(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        A, q, lower = rng.normal(size=(12, 6)), rng.normal(size=12), -rng.random(12)
        upper = np.where(rng.random(12) < 0.5, np.inf, lower + 1.0)
        Q = A @ A.T + 0.1 * np.eye(12)
        found, nu = svm.minimize(Q, q, 0.5, lower, upper)
        solved = scipy_minimize(
            lambda x: x @ Q @ x / 2 - q @ x,
            np.clip(np.zeros(12), lower, upper),
            jac=lambda x: Q @ x - q,
            bounds=[(a, None if np.isinf(b) else b) for a, b in zip(lower, upper, strict=True)],
            constraints={"type": "eq", "fun": lambda x: x.sum() - 0.5},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        np.testing.assert_allclose(found, solved.x, atol=1e-5)
        inside = (found > lower + 1e-6) & (found < upper - 1e-6)
        np.testing.assert_allclose((Q @ found - q)[inside], -nu, atol=1e-8)

    def test_sphere_of_three_points(self) -> None:
        """Of an acute triangle it is the circumscribed circle, of an obtuse one its longest side's."""
        for points, radius in (([[0, 0], [2, 0], [1, 1.5]], 1.0833333333), ([[0, 0], [4, 0], [1, 0.5]], 2.0)):
            P = np.array(points, dtype=float)
            assert svm.squared_radius(P @ P.T) == pytest.approx(radius**2, rel=1e-8)


class TestDeformed:
    def test_graph(self) -> None:
        X, _ = weston(50, 0)
        A = kneighbors_graph(X, 6).toarray()
        A = np.maximum(A, A.T)
        np.testing.assert_array_equal(svm.graph_laplacian(X, 6), np.diag(A.sum(axis=1)) - A)

    def test_minimizer_of_the_square_loss(self) -> None:
        X, y = weston(30, 0)
        X, labeled = X[:, :4], np.arange(12)
        K, L = gaussian(X, 0.25), svm.graph_laplacian(X, 5)
        f = svm.square_loss_values(K, L, y[:12], labeled, 5.0, 0.2)

        def objective(values: np.ndarray) -> float:
            loss = 2.5 * ((y[:12] - values[:12]) ** 2).sum()
            return float(values @ np.linalg.solve(K, values) / 2 + loss + 0.2 * values @ L @ values)

        best = objective(f)
        rng = np.random.default_rng(0)
        for _ in range(20):
            other = K @ rng.normal(size=30)
            for step in (1e-3, -1e-3):
                assert objective(f + step * other) > best
        kernel = svm.deformed(K, L, 0.2)[:12, :12]
        np.testing.assert_allclose(kernel @ np.linalg.solve(kernel + np.eye(12) / 5, y[:12]), f[:12], atol=1e-10)

    def test_it_is_what_inverses_say(self) -> None:
        X, _ = weston(30, 1)
        K, L = gaussian(X, 1 / 52), svm.graph_laplacian(X, 5)
        np.testing.assert_allclose(svm.deformed(K, L, 0.3), np.linalg.inv(np.linalg.inv(K) + 0.6 * L), atol=1e-10)


class TestElimination:
    def test_the_least_go_first_and_of_equals_the_last(self) -> None:
        order, rounds = svm.eliminate(np.array([[3.0, 1.0, 5.0, 1.0, 4.0]]), lambda X: X[0], lambda _: 1)
        assert order == [2, 4, 0, 1, 3]
        assert [r.tolist() for r in rounds] == [[3], [1], [0], [4]]
        order, rounds = svm.eliminate(
            np.array([[3.0, 1.0, 5.0, 1.0, 4.0]]), lambda X: X[0], lambda n: 3 if n == 5 else 1
        )
        assert order == [2, 4, 0, 1, 3]
        assert [r.tolist() for r in rounds] == [[0, 1, 3], [4]]

    def test_problems(self) -> None:
        codes = np.array([0, 1, -1, 1, 0])
        assert [y.tolist() for y in svm.one_vs_rest(codes)] == [[-1, 1, 0, 1, -1]]
        assert len(svm.one_vs_rest(np.array([0, 1, 2, -1]))) == 3

    def test_the_relevant_features_count(self) -> None:
        X, y = weston(60, 0)
        X = X[:, :8]
        for criterion in ("rfe", "rmb"):
            values = svm.criteria(X, y, Setting(criterion=criterion))
            assert set(np.argsort(values)[-2:]) == {0, 1}


class TestLandmarks:
    def test_roughness_is_a_sum_over_pairs(self) -> None:
        X, _ = weston(25, 0)
        K = gaussian(X[:, :4], 0.25, X[:6, :4])
        L = svm.anchor_laplacian(K, 3, np.ones(25))
        S = -L.copy()
        np.fill_diagonal(S, 0.0)
        f = np.random.default_rng(0).normal(size=25)
        assert f @ L @ f == pytest.approx((S * np.subtract.outer(f, f) ** 2).sum() / 2)
        assert (S >= 0).all()
        np.testing.assert_allclose(L.sum(axis=1), 0.0, atol=1e-12)

    def test_it_is_a_minimum(self) -> None:
        X, y = weston(50, 1)
        y[::4] = 0.0
        K, Z = gaussian(X[:, :4], 0.25, X[:8, :4]), gaussian(X[:8, :4], 0.25)
        weights = np.random.default_rng(0).integers(0, 3, 50).astype(float)
        L = svm.anchor_laplacian(K, 3, weights)
        a, scale = svm.landmark_machine(K, Z, y, 1e-2, weights, L, 0.1)
        known = y != 0

        def objective(a: np.ndarray) -> float:
            f = K @ a
            b = weights[known] @ (y - f)[known] / weights[known].sum()
            loss = weights[known] @ (y - f - b)[known] ** 2
            return float(loss + 1e-2 * weights[known].sum() * scale * (a @ Z @ a + 0.2 * f @ L @ f))

        rng = np.random.default_rng(1)
        for _ in range(20):
            step = 1e-3 * rng.normal(size=8)
            assert objective(a) < min(objective(a + step), objective(a - step))
