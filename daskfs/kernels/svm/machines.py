"""Support vector machines and smallest enclosing spheres for a given kernel matrix, solved to rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskfs.kernels.svm.quadratic_program import BoxProgram, by_blocks, solve_box
from daskfs.kernels.threads import sklearn_module

LIBSVM_ROWS = 1000
"""Rows from which on LIBSVM guesses the support vectors; with fewer, the solver is as fast without."""
LIBSVM_TOLERANCE = 1e-4
RADIUS_ROWS = 2000
"""Most rows for which the smallest sphere is computed; above, its bound by the variance is used."""


@dataclass(frozen=True)
class Machine:
    """A machine ``f = K beta + offset`` with hinge losses, beta = alpha y.

    `beta` and `slack`, the losses xi, have shape (n,), float64. `squared_norm` is ||w||^2 = beta'K beta, `bound_share`
    the share of rows whose alpha is at C, and `gap` the duality gap as a share of the primal objective.
    """

    beta: np.ndarray
    offset: float
    slack: np.ndarray
    squared_norm: float
    bound_share: float
    gap: float


@dataclass(frozen=True)
class Sphere:
    """A sphere around the rows: its squared radius, and the weights of its center, shape (n,), float64, with sum 1."""

    squared_radius: float
    weights: np.ndarray


def fit_machine(K: np.ndarray, y: np.ndarray, cost: np.ndarray, start: np.ndarray | None = None) -> Machine:
    """Fit a machine by minimizing ``||w||^2 / 2 + sum_p cost_p xi_p``.

    Parameters
    ----------
    K
        Shape (n, n), float64, symmetric, positive semidefinite.
    y
        Labels -1 and 1, both present, shape (n,), float64.
    cost
        C of each row, above 0, shape (n,), float64.
    start
        beta of a similar machine, shape (n,), float64.
    """
    program = BoxProgram(K, y, 0.0, np.minimum(0.0, cost * y), np.maximum(0.0, cost * y))
    if start is None and y.size < LIBSVM_ROWS:
        start = cost * y / 2.0
    solution = None if start is None else by_blocks(program, start)
    if solution is None:
        solution = solve_box(program, _libsvm_start(K, y, cost))
    f = K @ solution.x + solution.offset
    slack = np.maximum(0.0, 1.0 - y * f)
    squared_norm = float(solution.x @ (f - solution.offset))
    primal = squared_norm / 2.0 + float(cost @ slack)
    dual = float(y @ solution.x) - squared_norm / 2.0
    at_bound = np.abs(solution.x) >= cost * (1.0 - 1e-9)
    gap = (primal - dual) / max(primal, np.finfo(float).tiny)
    return Machine(solution.x, solution.offset, slack, squared_norm, float(at_bound.mean()), gap)


def _libsvm_start(K: np.ndarray, y: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Return LIBSVM's beta as a start; it holds kernels in float32, so this solver adds the remaining digits."""
    machine = sklearn_module("svm").SVC(C=1.0, kernel="precomputed", tol=LIBSVM_TOLERANCE, cache_size=500)
    machine.fit(K, y, sample_weight=cost)
    beta = np.zeros(y.size)
    beta[machine.support_] = machine.dual_coef_[0]
    # values near a bound are set to it
    return np.where(np.abs(beta) > cost * (1.0 - 1e-6), cost * y, np.where(np.abs(beta) < 1e-6 * cost, 0.0, beta))


def find_sphere(K: np.ndarray, weights: np.ndarray, start: np.ndarray | None = None) -> Sphere:
    """Return the smallest sphere that contains all rows: ``max mu'diag(K) - mu'K mu`` over mu >= 0 with sum 1.

    Parameters
    ----------
    K
        Shape (n, n), float64. Above :data:`RADIUS_ROWS` rows, the result is the sphere around the mean whose squared
        radius is the mean squared distance from it: a lower bound on the smallest sphere's.
    weights
        Frequency weights for the mean, shape (n,), float64; the smallest sphere contains all rows.
    start
        Center weights of a similar sphere, shape (n,), float64.
    """
    diagonal = np.diagonal(K)
    mu = weights / weights.sum()
    if is_exact_sphere(mu.size):
        program = BoxProgram(2.0 * K, diagonal, 1.0, np.zeros(mu.size), np.full(mu.size, np.inf))
        mu = solve_box(program, np.full(mu.size, 1.0 / mu.size) if start is None else start).x
    return Sphere(max(float(mu @ diagonal - mu @ (K @ mu)), 0.0), mu)


def is_exact_sphere(n_rows: int) -> bool:
    """Return whether :func:`find_sphere` computes the smallest sphere for this number of rows."""
    return n_rows <= RADIUS_ROWS
