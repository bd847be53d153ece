"""Criteria of candidates: against kernels made anew without each feature, and first order against exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import spearmanr

from daskfs.kernels.svm.elimination import (
    Kernel,
    Rule,
    exact_changes,
    first_order_changes,
    score_candidates,
    spread_along,
)
from daskfs.kernels.svm.laplacian_kernel import deform
from daskfs.kernels.svm.machines import Machine, fit_machine
from tests.cases import each
from tests.reference import svm as reference
from tests.reference.svm import Setting, gaussian, graph_laplacian, weston

C, GAMMA_INTRINSIC = 10.0, 0.1
EXACT: dict[str, Any] = {
    "criterion": "rfe",
    "retrain": False,
    "candidates": "exact",
    "slack": "recomputed",
    "slack_factor": 2.0,
    "C": C,
}


def rule(**changed: Any) -> Rule:
    return Rule(**{**EXACT, **changed})


def graph(X: np.ndarray) -> np.ndarray:
    return graph_laplacian(X, 6)


def kernel_of(X: np.ndarray, y: np.ndarray, gamma: float, *, laplacian: bool) -> tuple[Kernel, np.ndarray]:
    """Return the kernel of a round, and y of labeled rows; y is 0 where there is no label."""
    labeled = np.flatnonzero(y)
    if not laplacian:
        own = X[labeled]
        return Kernel(gaussian(own, gamma), own, gamma, np.arange(labeled.size)), y[labeled]
    K, L = gaussian(X, gamma), sp.csr_matrix(graph(X))
    deformed = deform(K, L, GAMMA_INTRINSIC, labeled)
    return Kernel(K, X, gamma, labeled, deformed, L, GAMMA_INTRINSIC), y[labeled]


def found_criteria(X: np.ndarray, y: np.ndarray, gamma: float, made: Rule, *, laplacian: bool) -> np.ndarray:
    kernel, own = kernel_of(X, y, gamma, laplacian=laplacian)
    cost = np.full(own.size, C)
    machine = fit_machine(kernel.trained, own, cost)
    return score_candidates(kernel, machine, own, cost, made, slice(0, X.shape[1]))


def data(n: int, seed: int, n_unlabeled: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X, y = weston(n + n_unlabeled, seed)
    y[n:] = 0.0
    return X, y


@pytest.mark.parametrize("laplacian", [False, True])
@pytest.mark.parametrize(
    ("n_features", "gamma", "retrain"),
    [
        (52, 1 / 52, False),
        pytest.param(52, 1 / 52, True, marks=pytest.mark.long),
        (12, None, False),
        (12, None, True),
        (8, 0.3, False),
        (8, 0.3, True),
    ],
)
class TestExact:
    """First-round criteria to 1e-6; slack and norms of machines that are trained by another solver."""

    def compare(self, n_features: int, gamma: float | None, made: Rule, *, laplacian: bool) -> None:
        X, y = data(40, 0, 20 if laplacian else 0)
        X = X[:, :n_features]
        found = found_criteria(X, y, 1 / n_features if gamma is None else gamma, made, laplacian=laplacian)
        setting = Setting(
            C,
            gamma,
            made.criterion,
            made.retrain,
            made.slack_factor,
            made.slack == "frozen" and not made.retrain,
            graph if laplacian else None,
            GAMMA_INTRINSIC,
        )
        expected = reference.criteria(X, y, setting)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * expected.max())

    def test_rfe(self, n_features: int, gamma: float | None, retrain: bool, laplacian: bool) -> None:
        self.compare(n_features, gamma, rule(retrain=retrain), laplacian=laplacian)

    @each(("factor", "slack"), [(2.0, "recomputed"), (1.0, "recomputed"), (2.0, "frozen")])
    def test_rmb(
        self, n_features: int, gamma: float | None, retrain: bool, laplacian: bool, factor: float, slack: str
    ) -> None:
        made = rule(criterion="rmb", retrain=retrain, slack=slack, slack_factor=factor)
        self.compare(n_features, gamma, made, laplacian=laplacian)


class TestBounds:
    def test_of_the_paper_is_the_sum_of_alpha(self) -> None:
        """By duality (R^2 + 1/C)(||w||^2 + C sum xi) = (R^2 + 1/C) sum alpha (methods.md, V1)."""
        X, y = data(40, 1)
        X = X[:, :10]
        made = rule(criterion="rmb", retrain=True, slack_factor=1.0)
        found = found_criteria(X, y, 0.1, made, laplacian=False)
        for column in range(10):
            K = gaussian(np.delete(X, column, axis=1), 0.1)
            alpha = np.abs(reference.machine(K, y, np.full(40, C)).beta)
            assert found[column] == pytest.approx((reference.squared_radius(K) + 1 / C) * alpha.sum(), rel=1e-6)

    def test_frozen_slack_does_not_see_the_labels(self) -> None:
        X, y = data(60, 2)
        made = rule(criterion="rmb", slack="frozen")
        order = [
            np.argsort(found_criteria(X, labels, 1 / 52, made, laplacian=False)).tolist()
            for labels in (y, np.random.default_rng(0).permutation(y))
        ]
        assert order[0] == order[1]


LONG = [pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10)]


@pytest.mark.parametrize("seed", [0, *LONG])
@pytest.mark.parametrize("laplacian", [False, True])
@pytest.mark.parametrize("criterion", ["rfe", "rmb"])
class TestFirstOrder:
    """All 52 features at once, with gamma 1/52, which "auto" is in the first round."""

    def test_spearman(self, criterion: str, laplacian: bool, seed: int) -> None:
        X, y = data(100, seed, 50 if laplacian else 0)
        values = [
            found_criteria(X, y, 1 / 52, rule(criterion=criterion, candidates=name), laplacian=laplacian)
            for name in ("first_order", "exact")
        ]
        # the deformed kernel bends too, and a bound is a product of two parts that change little
        assert spearmanr(*values).statistic >= (0.9 if laplacian and criterion == "rmb" else 0.95)

    def test_spearman_later(self, criterion: str, laplacian: bool, seed: int) -> None:
        """When 20 are left."""
        X, y = data(100, seed, 50 if laplacian else 0)
        values = [
            found_criteria(X[:, :20], y, 1 / 20, rule(criterion=criterion, candidates=name), laplacian=laplacian)
            for name in ("first_order", "exact")
        ]
        assert spearmanr(*values).statistic >= 0.8
        if criterion == "rfe" and not laplacian:
            assert set(np.argsort(values[0])[-2:]) == {0, 1}


class TestChanges:
    def setup_method(self) -> None:
        self.X, _ = weston(30, 3)
        self.u = np.random.default_rng(0).normal(size=30)
        self.u[::4] = 0.0
        self.gamma = 1 / 52
        self.K = gaussian(self.X, self.gamma)

    def test_first_order(self) -> None:
        found = first_order_changes(self.K, self.X, self.gamma, self.u)
        np.testing.assert_allclose(found, reference.first_order(self.K, self.X, self.gamma, self.u), rtol=1e-10)

    def test_exact(self) -> None:
        found = exact_changes(self.K, self.X, self.gamma, self.u)
        for column in range(52):
            change = gaussian(np.delete(self.X, column, axis=1), self.gamma) - self.K
            assert found[column] == pytest.approx(self.u @ change @ self.u, rel=1e-9, abs=1e-12)

    def test_feature_that_makes_up_all_of_a_distance(self) -> None:
        """Kernel values of 0 say nothing of what they would be without it; distances do."""
        X = self.X[:, :4] * [1, 900, 1, 1]
        squares = (np.subtract.outer(X, X).diagonal(axis1=1, axis2=3) ** 2).sum(axis=-1)
        K = gaussian(X, 0.25)
        assert (K == 0.0).mean() > 0.9
        found = exact_changes(K, X, 0.25, self.u, squares)
        kernel = Kernel(K, X, 0.25, np.arange(30), squares=squares)
        for column in range(4):
            without = gaussian(np.delete(X, column, axis=1), 0.25)
            assert found[column] == pytest.approx(self.u @ (without - K) @ self.u, rel=1e-7, abs=1e-12)
            np.testing.assert_allclose(kernel.without(column), without, rtol=1e-7, atol=1e-12)

    def test_no_kernel_value_is_above_1(self) -> None:
        """Squares kept over many rounds are rounded, and may be less than those of a single feature."""
        X = self.X[:, :3] * [1e-3, 1e9, 1e-3]
        squares = (np.subtract.outer(X, X).diagonal(axis1=1, axis2=3) ** 2).sum(axis=-1)
        kernel = Kernel(gaussian(X, 0.25), X, 0.25, np.arange(30), squares=squares * (1 - 2.0**-50))
        assert kernel.without(1).max() == 1.0

    def test_first_order_is_the_derivative(self) -> None:
        """Of features that take little of a distance the exact change is that to first order."""
        small = 1e-3 * self.X
        found = first_order_changes(self.K, small, self.gamma, self.u)
        np.testing.assert_allclose(found, exact_changes(self.K, small, self.gamma, self.u), rtol=1e-4)

    def test_spread(self) -> None:
        B = np.outer(self.u, self.u) * self.K
        expected = [(B * np.subtract.outer(x, x) ** 2).sum() for x in self.X.T]
        np.testing.assert_allclose(spread_along(B, self.X), expected, rtol=1e-9, atol=1e-10)

    def test_nothing_is_changed(self) -> None:
        before = self.K.copy()
        first_order_changes(self.K, self.X, self.gamma, self.u)
        exact_changes(self.K, self.X, self.gamma, self.u)
        np.testing.assert_array_equal(self.K, before)

    def test_no_coefficients(self) -> None:
        np.testing.assert_array_equal(first_order_changes(self.K, self.X, self.gamma, np.zeros(30)), 0.0)
        np.testing.assert_array_equal(exact_changes(self.K, self.X, self.gamma, np.zeros(30)), 0.0)


@pytest.mark.parametrize("laplacian", [False, True])
class TestFirstOrderBounds:
    """The parts of the bound, each against differences of what it is to be."""

    def made(self, laplacian: bool) -> tuple[Kernel, Machine, np.ndarray, np.ndarray]:
        X, y = data(40, 4, 20 if laplacian else 0)
        X = np.column_stack([X[:, :6], 1e-4 * X[:, 6:12]])  # the last of them hardly change the kernel
        kernel, own = kernel_of(X, y, 0.2, laplacian=laplacian)
        cost = np.where(np.arange(own.size) % 3 == 0, 2 * C, C)
        return kernel, fit_machine(kernel.trained, own, cost), own, cost

    @each("slack", ["recomputed", "frozen"])
    def test_agrees_where_a_feature_is_small(self, laplacian: bool, slack: str) -> None:
        """Changes of the bound, not the bound, whose large part stays."""
        kernel, machine, y, cost = self.made(laplacian)
        small = slice(6, 12)
        base = rule(criterion="rmb", slack=slack)
        exact = score_candidates(kernel, machine, y, cost, base, small)
        linear = score_candidates(
            kernel, machine, y, cost, rule(criterion="rmb", slack=slack, candidates="first_order"), small
        )
        without = [kernel.plain, *(kernel.without(column) for column in range(6, 12))]
        assert max(np.abs(K - kernel.plain).max() for K in without) < 1e-6
        still = score_candidates(
            Kernel(**{**vars(kernel), "X": np.zeros_like(kernel.X)}), machine, y, cost, base, slice(0, 1)
        )
        assert np.abs(exact - still).min() > 1e-9
        np.testing.assert_allclose(linear - still, exact - still, rtol=5e-3)


@each("laplacian", [False, True])
@each("candidates", ["first_order", "exact"])
@each("criterion", ["rfe", "rmb"])
def test_blocks_of_candidates_are_parts_of_all(criterion: str, candidates: str, laplacian: bool) -> None:
    X, y = data(30, 5, 10 if laplacian else 0)
    kernel, own = kernel_of(X[:, :9], y, 1 / 9, laplacian=laplacian)
    cost = np.full(own.size, C)
    machine = fit_machine(kernel.trained, own, cost)
    for retrain in (False, True):
        made = rule(criterion=criterion, candidates=candidates, retrain=retrain)
        whole = score_candidates(kernel, machine, own, cost, made, slice(0, 9))
        parts = [score_candidates(kernel, machine, own, cost, made, slice(a, a + 3)) for a in (0, 3, 6)]
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-12)
        if retrain or candidates == "exact":
            assert np.concatenate(parts).tobytes() == whole.tobytes()


def test_first_order_kernel_of_a_laplacian_machine_is_near_the_exact_one() -> None:
    X, y = data(60, 6, 30)
    kernel, _ = kernel_of(X, y, 1 / 52, laplacian=True)
    for column in (0, 1, 30):
        exact = kernel.trained_without(column, "exact")
        linear = kernel.trained_without(column, "first_order")
        assert np.abs(linear - exact).max() < 0.5 * np.abs(exact - kernel.trained).max()


def few_left(n_singly: int) -> Callable[..., Rule]:
    return lambda **changed: rule(candidates="first_order", n_singly=n_singly, **changed)


@each("criterion", ["rfe", "rmb"])
def test_few_features_are_judged_exactly(criterion: str) -> None:
    """Of eight or fewer, each makes up much of a distance."""
    X, y = data(40, 7)
    exact = found_criteria(X[:, :8], y, 1 / 8, rule(criterion=criterion), laplacian=False)
    for n_singly, same in ((8, True), (7, False)):
        found = found_criteria(X[:, :8], y, 1 / 8, few_left(n_singly)(criterion=criterion), laplacian=False)
        assert (found.tobytes() == exact.tobytes()) == same
