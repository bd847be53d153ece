"""Steps of the weights: what each one promises, and where all of them together end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskfs.kernels.regression.grams import Gram, MatrixGram, RowsGram
from daskfs.kernels.regression.rescaled import (
    Iterate,
    advance,
    carried_on,
    certificate,
    conjugate_gradients,
    newton,
    norms,
    objective,
    reweight,
    shrink,
    shrunk,
    start_at,
)
from tests.cases import each


def problem(seed: int, n: int = 40, d: int = 12, c: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return centered rows, with correlated columns, a copy and very different scales, and P."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, 4)) @ rng.normal(size=(4, d)) + 0.3 * rng.normal(size=(n, d))
    A[:, 1] = A[:, 0]
    A *= np.logspace(-1, 1, d)
    A -= A.mean(axis=0)
    return A, A.T @ np.eye(c)[rng.integers(0, c, n)]


def solved(gram: Gram, P: np.ndarray, gamma: float, n_steps: int = 400) -> Iterate:
    at = start_at(gram.diagonal, P.shape[1])
    for _ in range(n_steps):
        at = advance(gram, at, P, gamma)
        if certificate(at, P, gamma).holds(1e-10):
            return at
    raise AssertionError


def descended(S: np.ndarray, P: np.ndarray, gamma: float) -> np.ndarray:
    """Coordinate descent, as of tests/reference/rescaled.py, for fixed targets."""
    W, size = np.zeros_like(P), np.zeros(len(P))
    for _ in range(20_000):
        before = W.copy()
        for j in range(len(P)):
            r = P[j] - S[j] @ W + S[j, j] * W[j]
            size[j] = max(0.0, (np.linalg.norm(r) - gamma * (size.sum() - size[j])) / (S[j, j] + gamma))
            W[j] = size[j] * r / np.linalg.norm(r)
        if np.abs(W - before).max() < 1e-12 * np.abs(W).max():
            return W
    raise AssertionError


class TestShrunk:
    @given(st.integers(0, 10**6), st.integers(1, 12), st.floats(1e-6, 1e6))
    def test_conditions_of_the_minimum(self, seed: int, d: int, share: float) -> None:
        V = np.random.default_rng(seed).normal(size=(d, 3))
        W = shrunk(V, share)
        norm, total = norms(W), norms(W).sum()
        active = norm > 0
        assert active.any()
        residual = V[active] - W[active] - share * total * W[active] / norm[active, None]
        np.testing.assert_allclose(residual, 0.0, atol=1e-9 * max(1.0, share * total))
        assert (norms(V[~active]) <= share * total * (1 + 1e-9)).all()

    def test_zeros_and_one_row(self) -> None:
        assert not shrunk(np.zeros((4, 2)), 0.5).any()
        np.testing.assert_allclose(shrunk(np.array([[3.0, 4.0]]), 1.0), [[1.5, 2.0]])

    def test_equal_rows_stay_equal(self) -> None:
        np.testing.assert_array_equal(np.ptp(shrunk(np.ones((5, 2)), 3.0), axis=0), 0.0)


@each(("gamma", "seed"), [(1e-2, 0), (0.1, 1), (3.0, 1), (3.0, 2), (1e4, 2)])
def test_end_is_that_of_coordinate_descent(gamma: float, seed: int) -> None:
    A, P = problem(seed)
    S = A.T @ A
    expected = objective(Iterate(W := descended(S, P, gamma), S @ W, 1.0), P, gamma)
    for gram in (MatrixGram(S), RowsGram(A)):
        at = solved(gram, P, gamma)
        assert objective(at, P, gamma) == pytest.approx(expected, rel=1e-9)
        found, reference = norms(at.W), norms(W)
        # of copies any share is as good as any other
        found[1], reference[1] = found[0] + found[1], reference[0] + reference[1]
        np.testing.assert_allclose(found[1:], reference[1:], atol=1e-5 * reference.max())


@each("gamma", [1e-3, 1.0, 100.0])
def test_no_step_raises_the_objective(gamma: float) -> None:
    A, P = problem(4)
    gram = MatrixGram(A.T @ A)
    at = start_at(gram.diagonal, 3)
    for _ in range(20):
        for step in (shrink, newton):
            before = objective(at, P, gamma)
            at = step(gram, at, P, gamma)
            assert objective(at, P, gamma) <= before + 1e-12 * abs(before)
            np.testing.assert_allclose(at.SW, A.T @ (A @ at.W), atol=1e-8 * np.abs(P).max())


class TestPull:
    """SSUFS's steps are of an objective that the pull of its tangent bounds from above."""

    @each("eta", [1e-3, 1.0, 1e3, 1e6])
    def test_no_step_raises_the_objective_whatever_eta(self, eta: float) -> None:
        A, P = problem(5)
        gram, gamma = MatrixGram(A.T @ A), 1.0
        M = np.corrcoef(A, rowvar=False) ** 2
        L = np.diag(M.sum(axis=1)) - M

        def value(at: Iterate) -> float:
            V = norms(at.W) ** 2
            return objective(at, P, gamma) - eta * float(V @ L @ V)

        at = solved(gram, P, gamma)
        for _ in range(8):
            for step in (
                lambda at: shrink(gram, at, P, gamma, 2 * eta * L @ norms(at.W) ** 2),
                lambda at: reweight(gram, at, P, gamma, 2 * eta * L @ norms(at.W) ** 2),
                lambda at: advance(gram, at, P, gamma, 0.0, lambda V: 2 * eta * L @ V),
                lambda at: newton(gram, at, P, gamma, 2 * eta * L @ norms(at.W) ** 2),
            ):
                before = value(at)
                if before < -1e9:  # beyond the basin of the start nothing bounds it
                    return
                at = step(at)
                assert value(at) <= before + 1e-11 * abs(before)

    def test_without_pull_the_update_for_fixed_theta(self) -> None:
        A, P = problem(6)
        S, gamma = A.T @ A, 2.0
        at = solved(MatrixGram(S), P, gamma)
        moved = Iterate(W := at.W * 1.5, S @ W, 1.0)
        active = np.flatnonzero(norms(W))
        theta = norms(W)[active] / norms(W).sum()
        expected = np.linalg.solve(S[np.ix_(active, active)] + np.diag(gamma / theta), P[active])
        found = reweight(MatrixGram(S), moved, P, gamma, np.zeros(12))
        np.testing.assert_allclose(found.W[active], expected, atol=1e-8 * np.abs(expected).max())


class TestCertificate:
    def test_as_defined(self) -> None:
        A, P = problem(7)
        S, gamma = A.T @ A, 20.0
        at = solved(MatrixGram(S), P, gamma)
        norm, total = norms(at.W), norms(at.W).sum()
        found = certificate(at, P, gamma)
        inactive = np.flatnonzero(norm == 0)
        assert 0 < found.n_active == 12 - inactive.size < 12
        np.testing.assert_allclose(found.inactive, max(norms(P - S @ at.W)[inactive]) / (gamma * total), rtol=1e-9)
        assert found.holds(1e-10)
        doubled = certificate(Iterate(2 * at.W, 2 * at.SW, 1.0), P, gamma)
        residual = norms(2 * S @ at.W - P + gamma * 2 * total * at.W / np.where(norm > 0, norm, np.inf)[:, None])
        np.testing.assert_allclose(doubled.active, residual[norm > 0].max() / np.abs(P).max(), rtol=1e-9)
        assert not doubled.holds(0.1)

    def test_zeros(self) -> None:
        diagonal = np.ones(3)
        assert certificate(start_at(diagonal, 2), np.zeros((3, 2)), 1.0).holds(0.0)
        assert not certificate(start_at(diagonal, 2), np.ones((3, 2)), 1.0).holds(1e3)

    def test_holds_to_its_worst(self) -> None:
        A, P = problem(8)
        gram = MatrixGram(A.T @ A)
        at = advance(gram, start_at(gram.diagonal, 3), P, 1.0)
        found = certificate(at, P, 1.0)
        assert found.holds(found.worst)
        assert not found.holds(0.99 * found.worst)


@each("gamma", [1e-9, 1.0, 1e9])
def test_nothing_to_fit(gamma: float) -> None:
    gram = MatrixGram(np.eye(4))
    at = advance(gram, start_at(gram.diagonal, 2), np.zeros((4, 2)), gamma)
    assert not at.W.any()
    empty = MatrixGram(np.zeros((4, 4)))  # constant features alone
    assert not advance(empty, start_at(empty.diagonal, 2), np.zeros((4, 2)), gamma).W.any()


def test_one_feature() -> None:
    gram, P = MatrixGram(np.array([[4.0]])), np.array([[3.0, -3.0]])
    np.testing.assert_allclose(solved(gram, P, 2.0).W, P / 6.0, rtol=1e-9)


def test_norms_from_1e_6_to_1e6() -> None:
    """Columns of very different scales, each a part of the answer, under a penalty that none of them feels."""
    rng = np.random.default_rng(9)
    scale = np.logspace(-6, 6, 7)
    Z = rng.normal(size=(60, 7))
    Z -= Z.mean(axis=0)
    weights = rng.normal(size=(7, 2))
    A, Y = Z * scale, Z @ weights
    at = solved(MatrixGram(A.T @ A), A.T @ Y, 1e-18)
    np.testing.assert_allclose(at.W * scale[:, None], weights, rtol=1e-3)


class TestConjugateGradients:
    def test_solves(self) -> None:
        A, P = problem(10)
        S = A.T @ A + np.eye(12)
        found = conjugate_gradients(lambda V: S @ V, P, lambda R: R / np.diagonal(S)[:, None], 1e-13, 500)
        np.testing.assert_allclose(S @ found, P, atol=1e-8 * np.abs(P).max())

    def test_stopped_early_it_is_below_where_it_began(self) -> None:
        A, P = problem(11)
        S = A.T @ A + np.eye(12)
        values = []
        for n in range(6):
            W = conjugate_gradients(lambda V: S @ V, P, lambda R: R, 0.0, n)
            values.append(float(np.sum(W * (S @ W)) - 2 * np.sum(W * P)))
        assert values[0] == 0.0
        assert (np.diff(values) <= 0).all()

    def test_nothing_to_solve(self) -> None:
        assert not conjugate_gradients(lambda V: V, np.zeros((3, 2)), lambda R: R, 1e-10, 10).any()


class TestCarriedOn:
    def test_not_at_first(self) -> None:
        at = Iterate(np.ones((2, 1)), np.ones((2, 1)), 1.0)
        assert carried_on(at, None, None, 1.0) == (at, 1.0)
        carried, momentum = carried_on(at, Iterate(np.zeros((2, 1)), np.zeros((2, 1)), 1.0), None, 1.0)
        assert carried is at
        assert momentum == pytest.approx((1 + 5**0.5) / 2)

    def test_on_the_way_they_went_and_no_further_than_it_is_downhill(self) -> None:
        S = np.diag([2.0, 3.0])
        before, at = (Iterate(W := np.array(v)[:, None], S @ W, 1.0) for v in ([1.0, 0.0], [2.0, 1.0]))
        carried, momentum = carried_on(at, before, np.array([[1.0], [0.5]]), 3.0)
        share = 2.0 / momentum
        np.testing.assert_allclose(carried.W, at.W + share * (at.W - before.W))
        np.testing.assert_allclose(carried.SW, S @ carried.W)
        back, momentum = carried_on(at, before, np.array([[4.0], [4.0]]), 3.0)
        assert (back, momentum) == (at, 1.0)
