"""Criteria of backward elimination for support vector machines.

Notes
-----
Without feature i the Gaussian kernel is ``K^(i) = K * exp(gamma (x_i - x_i')^2)``, element by element. The criteria
(Bodo and Minier, Eq. 1 and 2) are the change of ``||w||^2``, and the bound ``(R^2 + 1/C)(||w||^2 + c C sum xi)`` on the
leave-one-out errors. The feature of the smallest value is eliminated.

To first order in gamma, ``K^(i) - K`` is ``gamma K * (x_i - x_i')^2``, and ``sum_pq B_pq (x_p - x_q)^2`` over all
features is one product with the matrix of the rows. So without retraining, all candidates cost about as much as one
exact candidate. The same holds for the slack, and for R^2, which by the envelope theorem changes as if its center were
fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.statistics.moments import row_blocks
from daskfs.kernels.svm.laplacian_kernel import Deformed, deform
from daskfs.kernels.svm.machines import Machine, Sphere, find_sphere, fit_machine

CriterionName = Literal["rfe", "rmb"]
Candidates = Literal["first_order", "exact"]
SlackReading = Literal["recomputed", "frozen"]
COLUMNS_AT_ONCE = 256
LARGEST_FACTOR = 30.0
"""Largest log-factor by which kernel values are multiplied to leave a feature out; beyond, rounding or underflow shows.
"""


@dataclass(frozen=True)
class Rule:
    """Settings of the criterion.

    `C` is the cost of a row of weight 1, `slack_factor` the c of the bound, and `n_singly` the number of remaining
    features up to which candidates are scored one by one.
    """

    criterion: CriterionName
    retrain: bool
    candidates: Candidates
    slack: SlackReading
    slack_factor: float
    C: float
    n_singly: int = 0

    def is_linear(self, n_left: int) -> bool:
        """Return whether the kernel's change is taken to first order in gamma, for all candidates at once.

        It is not if few features are left, each of which contributes much of a distance.
        """
        return self.candidates == "first_order" and not self.retrain and n_left > self.n_singly


@dataclass(frozen=True)
class Kernel:
    """The kernel of one elimination round.

    Attributes
    ----------
    plain
        K between all rows, shape (n, n), float64.
    X
        Remaining features of all rows, shape (n, n_left), float64.
    labeled
        Row numbers of the labeled rows, shape (n_labeled,).
    deformed
        The training kernel under a graph with Laplacian `laplacian`; None to train with K itself.
    squares
        Squared distances, shape (n, n), float64, for leaving a feature out where K is too small; None to use K alone.
    """

    plain: np.ndarray
    X: np.ndarray
    gamma: float
    labeled: np.ndarray
    deformed: Deformed | None = None
    laplacian: sp.csr_matrix | None = None
    gamma_intrinsic: float = 0.0
    squares: np.ndarray | None = None

    @property
    def trained(self) -> np.ndarray:
        """The training kernel, shape (n_labeled, n_labeled), float64."""
        return self.plain if self.deformed is None else self.deformed.values

    def pulled(self, beta: np.ndarray) -> np.ndarray:
        """Return coefficients over all rows, shape (n, ...), float64, for `beta` over the labeled rows.

        With them the plain kernel changes as the training kernel does with `beta`; the root of the scale is included.
        """
        if self.deformed is None:
            return beta
        return np.sqrt(self.deformed.scale) * (self.deformed.pull @ beta)

    def without(self, column: int) -> np.ndarray:
        """Return the plain kernel without a feature, shape (n, n), float64."""
        x = self.X[:, column]
        without = np.square(np.subtract.outer(x, x))
        if self.squares is None:
            without *= self.gamma
            return np.asarray(self.plain * np.exp(without, out=without))
        without -= self.squares
        np.minimum(without, 0.0, out=without)
        without *= self.gamma
        return np.asarray(np.exp(without, out=without))

    def trained_without(self, column: int, candidates: Candidates) -> np.ndarray:
        """Return the training kernel without a feature, shape (n_labeled, n_labeled); graph and scale are kept.

        Under a graph it is taken to first order in the change of the plain kernel, or exactly, by a system of all rows.
        """
        plain = self.without(column)
        if self.deformed is None:
            return plain
        if candidates == "exact":
            assert self.laplacian is not None
            return deform(plain, self.laplacian, self.gamma_intrinsic, self.labeled, self.deformed.scale).values
        plain -= self.plain
        pull = self.deformed.pull
        return self.deformed.values + self.deformed.scale * (pull.T @ (plain @ pull))


def score_candidates(
    kernel: Kernel, machine: Machine, y: np.ndarray, cost: np.ndarray, rule: Rule, columns: slice
) -> np.ndarray:
    """Return the criterion of some remaining features, shape (n_columns,), float64: the smallest is eliminated first.

    They are the `columns` of ``kernel.X``, and `machine` is trained with the kernel of all remaining features; `y` and
    `cost` are as in :func:`daskfs.kernels.svm.machines.fit_machine`.
    """
    if rule.criterion == "rfe":
        return _norm_changes(kernel, machine, y, cost, rule, columns)
    return _bounds(kernel, machine, y, cost, rule, columns)


# ------------------------------------------------------------------------------------------------- changes of the norm
def _norm_changes(
    kernel: Kernel, machine: Machine, y: np.ndarray, cost: np.ndarray, rule: Rule, columns: slice
) -> np.ndarray:
    """Return | ||w||^2 - ||w^(i)||^2 | (Eq. 1)."""
    if not rule.retrain:
        if rule.is_linear(kernel.X.shape[1]):
            u = kernel.pulled(machine.beta)
            return np.abs(first_order_changes(kernel.plain, kernel.X[:, columns], kernel.gamma, u))
        if kernel.deformed is None:
            X = kernel.X[:, columns]
            return np.abs(exact_changes(kernel.plain, X, kernel.gamma, machine.beta, kernel.squares))

    def change(K: np.ndarray) -> float:
        if rule.retrain:
            return abs(machine.squared_norm - fit_machine(K, y, cost, machine.beta).squared_norm)
        return abs(float(machine.beta @ ((K - kernel.trained) @ machine.beta)))

    return _one_by_one(kernel, rule, columns, change)


def first_order_changes(K: np.ndarray, X: np.ndarray, gamma: float, u: np.ndarray) -> np.ndarray:
    """Return ``u'(K^(i) - K)u`` of every column of X to first order in gamma, shape (n_columns,).

    K has shape (n, n), X (n, n_columns) and u (n,), all float64.
    """
    rows = np.flatnonzero(u)
    B = K[np.ix_(rows, rows)]
    B *= u[rows]
    B *= u[rows, None]
    return gamma * spread_along(B, X[rows])


def exact_changes(
    K: np.ndarray, X: np.ndarray, gamma: float, u: np.ndarray, squares: np.ndarray | None = None
) -> np.ndarray:
    """Return ``u'(K^(i) - K)u`` of every column of X, shape (n_columns,); arguments as in :func:`first_order_changes`.

    Squared distances, shape (n, n), serve where a column makes up so much of them that K is too small.
    """
    rows = np.flatnonzero(u)
    inside = np.ix_(rows, rows)
    B = K[inside]
    B *= u[rows]
    B *= u[rows, None]
    values = np.empty(X.shape[1])
    for column, x in enumerate(X[rows].T):
        change = np.subtract.outer(x, x)
        np.square(change, out=change)
        if squares is None or gamma * change.max(initial=0.0) <= LARGEST_FACTOR:
            change *= gamma
            values[column] = float(np.vdot(B, np.expm1(change, out=change)))
        else:
            change -= squares[inside]
            np.minimum(change, 0.0, out=change)
            change *= gamma
            np.exp(change, out=change)
            change -= K[inside]
            values[column] = float(u[rows] @ change @ u[rows])
    return values


def spread_along(B: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return ``sum_pq B_pq (x_p - x_q)^2`` of every column x of X, shape (n_columns,), for a symmetric B."""
    return np.asarray(2.0 * ((X**2).T @ B.sum(axis=1) - np.einsum("pf,pf->f", X, B @ X)))


# -------------------------------------------------------------------------------------------------------------- bounds
def _bounds(
    kernel: Kernel, machine: Machine, y: np.ndarray, cost: np.ndarray, rule: Rule, columns: slice
) -> np.ndarray:
    """Return (R^2 + 1/C)(||w||^2 + c C sum xi) without each feature (Eq. 2)."""
    counts = cost / rule.C
    sphere = find_sphere(kernel.trained, counts)

    def loss(squared_norm: float, slack: np.ndarray) -> float:
        return squared_norm + rule.slack_factor * float(cost @ slack)

    if rule.is_linear(kernel.X.shape[1]):
        squares = np.maximum(sphere.squared_radius + _radius_changes(kernel, sphere, columns), 0.0)
        if rule.slack == "frozen":
            losses = np.full(squares.size, loss(machine.squared_norm, machine.slack))
        else:
            losses = _losses(kernel, machine, y, cost, rule, columns)
        return (squares + 1.0 / rule.C) * losses

    def bound(K: np.ndarray) -> float:
        if rule.retrain:
            retrained = fit_machine(K, y, cost, machine.beta)
            value = loss(retrained.squared_norm, retrained.slack)
        elif rule.slack == "frozen":
            value = loss(machine.squared_norm, machine.slack)
        else:
            f = K @ machine.beta
            value = loss(float(machine.beta @ f), np.maximum(0.0, 1.0 - y * (f + machine.offset)))
        return (find_sphere(K, counts, sphere.weights).squared_radius + 1.0 / rule.C) * value

    return _one_by_one(kernel, rule, columns, bound)


def _one_by_one(kernel: Kernel, rule: Rule, columns: slice, judge: Callable[[np.ndarray], float]) -> np.ndarray:
    numbers = range(*columns.indices(kernel.X.shape[1]))
    return np.array([judge(kernel.trained_without(column, rule.candidates)) for column in numbers], dtype=np.float64)


def _radius_changes(kernel: Kernel, sphere: Sphere, columns: slice) -> np.ndarray:
    """Return the first-order change of R^2 without each feature, with the weights of its center fixed."""
    X = kernel.X[:, columns]
    drawn = -first_order_changes(kernel.plain, X, kernel.gamma, kernel.pulled(sphere.weights))
    if kernel.deformed is None:  # a Gaussian kernel keeps its diagonal
        return drawn
    pull = kernel.deformed.pull
    spread = kernel.plain * ((pull * sphere.weights) @ pull.T)
    return drawn + kernel.deformed.scale * kernel.gamma * spread_along(spread, X)


def _losses(
    kernel: Kernel, machine: Machine, y: np.ndarray, cost: np.ndarray, rule: Rule, columns: slice
) -> np.ndarray:
    """Return ||w||^2 + c C sum xi to first order without each feature, with beta and the offset fixed."""
    f = kernel.trained @ machine.beta
    u = kernel.pulled(machine.beta)
    X = kernel.X[:, columns]
    losses = np.empty(X.shape[1])
    along = kernel.plain @ u
    for block in row_blocks(losses.size, COLUMNS_AT_ONCE):
        x = X[:, block]
        change = x**2 * along[:, None] - 2.0 * x * (kernel.plain @ (u[:, None] * x))
        change += kernel.plain @ (u[:, None] * x**2)
        change *= kernel.gamma
        if kernel.deformed is not None:
            change = np.sqrt(kernel.deformed.scale) * (kernel.deformed.pull.T @ change)
        predicted = f[:, None] + change
        slack = np.maximum(0.0, 1.0 - y[:, None] * (predicted + machine.offset))
        losses[block] = machine.beta @ predicted + rule.slack_factor * (cost @ slack)
    return losses
