"""Support vector machines and backward elimination straight from their formulas, on dense data, one feature at a time.

Programs are solved by an interior-point method, which shares nothing with the active sets under test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


# -------------------------------------------------------------------------------------------------------------- data
def weston(n: int, seed: int, *, zscore: bool = True) -> tuple[FloatArray, FloatArray]:
    """Return X, shape (n, 52), and y of -1 and 1: the nonlinear problem of Weston et al. (2000), whose first two
    features count.
    """
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2 == 0, -1.0, 1.0)
    X = rng.normal(size=(n, 52))
    X[:, 2:] *= np.sqrt(20)
    side = rng.choice([-1.0, 1.0], n)
    means = np.where(y[:, None] < 0, side[:, None] * [0.75, 3.0], side[:, None] * [3.0, -3.0])
    X[:, :2] += means
    return (zscored(X) if zscore else X), y


def zscored(X: FloatArray) -> FloatArray:
    return np.asarray((X - X.mean(axis=0)) / X.std(axis=0))


# ----------------------------------------------------------------------------------------------------------- programs
def minimize(
    Q: FloatArray, q: FloatArray, total: float, lower: FloatArray, upper: FloatArray, n_steps: int = 100
) -> tuple[FloatArray, float]:
    """Return x and the multiplier of the sum: min x'Qx / 2 - q'x over sum(x) = total and lower <= x <= upper, which may
    be inf, and between which there is room; by Newton steps towards products of slacks and multipliers that shrink.
    """
    n, bounded = q.size, np.isfinite(upper)
    scale = max(1.0, np.abs(q).max(), np.diagonal(Q).max())
    x, nu = np.where(bounded, (lower + upper) / 2.0, lower + 1.0), 0.0
    below, above = x - lower, np.where(bounded, upper - x, 1.0)
    low, high = np.full(n, scale), np.where(bounded, scale, 0.0)
    for _ in range(n_steps):
        mu = (low @ below + high @ above) / (n + bounded.sum())
        residual = max(np.abs(Q @ x - q + nu - low + high).max(), abs(x.sum() - total))
        size = scale * max(1.0, np.abs(x).max())
        if mu < 1e-13 * size and residual < 1e-11 * size:
            break
        system = np.ones((n + 1, n + 1))
        system[:n, :n] = Q + np.diag(low / below + high / above)
        system[n, n] = 0.0
        aim = 0.1 * mu
        right = -(Q @ x - q + nu) + aim / below - np.where(bounded, aim / above, 0.0)
        step = np.linalg.solve(system, np.append(right, total - x.sum()))
        dx = step[:n]
        dlow = (aim - low * below - low * dx) / below
        dhigh = np.where(bounded, (aim - high * above + high * dx) / above, 0.0)
        length = 1.0
        for value, change in ((below, dx), (above, np.where(bounded, -dx, 0.0)), (low, dlow), (high, dhigh)):
            falling = change < 0
            length = min(length, 0.995 * np.min(-value[falling] / change[falling], initial=np.inf))
        x, nu = x + length * dx, nu + length * step[n]
        below, above = below + length * dx, above - np.where(bounded, length * dx, 0.0)
        low, high = low + length * dlow, high + length * dhigh
    return x, float(nu)


@dataclass(frozen=True)
class Machine:
    """f = K beta + offset; alpha = beta y; losses; ||w||^2."""

    beta: FloatArray
    offset: float
    slack: FloatArray
    squared_norm: float


def machine(K: FloatArray, y: FloatArray, cost: FloatArray) -> Machine:
    """Minimize ||w||^2 / 2 + sum_p cost_p xi_p, by its dual: max e'alpha - alpha'YKY alpha / 2."""
    beta, offset = minimize(K, y, 0.0, np.minimum(0.0, cost * y), np.maximum(0.0, cost * y))
    slack = np.maximum(0.0, 1.0 - y * (K @ beta + offset))
    return Machine(beta, offset, slack, float(beta @ K @ beta))


def squared_radius(K: FloatArray) -> float:
    """max mu'diag(K) - mu'K mu over mu >= 0 of sum 1."""
    n = len(K)
    mu, _ = minimize(2.0 * K, np.diagonal(K), 1.0, np.zeros(n), np.full(n, np.inf))
    return float(mu @ np.diagonal(K) - mu @ K @ mu)


# ------------------------------------------------------------------------------------------------------------ kernels
def gaussian(X: FloatArray, gamma: float, Z: FloatArray | None = None) -> FloatArray:
    differences = X[:, None, :] - (X if Z is None else Z)[None, :, :]
    return np.asarray(np.exp(-gamma * (differences**2).sum(axis=2)))


def graph_laplacian(X: FloatArray, n_neighbors: int, weights: FloatArray | None = None) -> FloatArray:
    """L of the graph in which each row is joined with its nearest ones, edges of weight 1 times those of their rows."""
    squares = ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    nearest = np.argsort(squares, axis=1, kind="stable")[:, :n_neighbors]
    S = np.zeros_like(squares)
    np.put_along_axis(S, nearest, 1.0, axis=1)
    S = np.maximum(S, S.T)
    if weights is not None:
        S *= np.outer(weights, weights)
    return np.asarray(np.diag(S.sum(axis=1)) - S)


def deformed(K: FloatArray, L: FloatArray, gamma_intrinsic: float) -> FloatArray:
    """K - K(I / (2 gamma_I) + LK)^-1 LK between all rows (Bodo and Minier, section 2, with 2 in place of 4)."""
    inner = np.eye(len(K)) / (2.0 * gamma_intrinsic) + L @ K
    return np.asarray(K - K @ np.linalg.solve(inner, L @ K))


def square_loss_values(
    K: FloatArray, L: FloatArray, y: FloatArray, labeled: IntArray, C: float, gamma_intrinsic: float
) -> np.ndarray:
    """f over all rows that minimizes f'K^-1 f / 2 + (C / 2) sum over labeled rows of (y - f)^2 + gamma_I f'Lf."""
    J = np.zeros_like(K)
    J[labeled, labeled] = 1.0
    targets = np.zeros(len(K))
    targets[labeled] = y
    return np.linalg.solve(np.linalg.inv(K) + C * J + 2.0 * gamma_intrinsic * L, C * targets)


# ----------------------------------------------------------------------------------------------------------- criteria
@dataclass(frozen=True)
class Setting:
    """What criteria and kernels are made of; `laplacian` takes X of the features left and returns L."""

    C: float = 10.0
    gamma: float | None = None
    criterion: str = "rfe"
    retrain: bool = False
    slack_factor: float = 2.0
    frozen: bool = False
    laplacian: Callable[[FloatArray], FloatArray] | None = None
    gamma_intrinsic: float = 0.1


def criteria(X: FloatArray, y: FloatArray, setting: Setting, weights: FloatArray | None = None) -> FloatArray:
    """Return | ||w||^2 - ||w^(i)||^2 | (Eq. 1), or (R^2 + 1/C)(||w||^2 + c C sum xi) without feature i (Eq. 2).

    y is -1, 1, or 0 for no label. gamma, the graph and the scale of the deformed kernel stay while one feature is left
    out.
    """
    labeled = np.flatnonzero(y)
    own = y[labeled]
    counts = np.ones(len(y)) if weights is None else weights
    cost = setting.C * counts[labeled]
    gamma = 1.0 / X.shape[1] if setting.gamma is None else setting.gamma
    L = None if setting.laplacian is None else setting.laplacian(X)
    scale = 1.0

    def trained(columns: FloatArray) -> FloatArray:
        K = gaussian(columns if L is not None else columns[labeled], gamma)
        return K if L is None else scale * deformed(K, L, setting.gamma_intrinsic)[np.ix_(labeled, labeled)]

    scale = 1.0 / np.diagonal(trained(X)).mean()
    K = trained(X)
    whole = machine(K, own, cost)

    def loss(squared_norm: float, slack: FloatArray) -> float:
        return squared_norm + setting.slack_factor * float(cost @ slack)

    values = []
    for column in range(X.shape[1]):
        without = trained(np.delete(X, column, axis=1))
        found = machine(without, own, cost) if setting.retrain else None
        norm = found.squared_norm if found else float(whole.beta @ without @ whole.beta)
        if setting.criterion == "rfe":
            values.append(abs(whole.squared_norm - norm))
            continue
        if setting.frozen:
            value = loss(whole.squared_norm, whole.slack)
        elif found:
            value = loss(norm, found.slack)
        else:
            value = loss(norm, np.maximum(0.0, 1.0 - own * (without @ whole.beta + whole.offset)))
        values.append((squared_radius(without) + 1.0 / setting.C) * value)
    return np.array(values)


def first_order(K: FloatArray, X: FloatArray, gamma: float, u: FloatArray) -> FloatArray:
    """gamma sum_pq u_p u_q K_pq (x_p - x_q)^2 of every column x."""
    return np.array([gamma * (np.outer(u, u) * K * np.subtract.outer(x, x) ** 2).sum() for x in X.T])


def eliminate(
    X: FloatArray, judge: Callable[[FloatArray], FloatArray], n_leaving: Callable[[int], int]
) -> tuple[list[int], list[IntArray]]:
    """Algorithm 1: while features are left, judge them and let the least go; return the ranking, best first, and which
    went in each round.
    """
    left, ranking, rounds = np.arange(X.shape[1]), list[int](), list[IntArray]()
    while left.size > 1:
        values = judge(X[:, left])
        order = sorted(range(left.size), key=lambda place: (values[place], -left[place]))
        going = left[order[: n_leaving(left.size)]]
        ranking = [*going[::-1].tolist(), *ranking]
        rounds.append(np.sort(going))
        left = np.setdiff1d(left, going)
    return [*left.tolist(), *ranking], rounds


def one_vs_rest(codes: IntArray) -> list[FloatArray]:
    """Return y of each problem; 0 for rows without a label."""
    present = np.unique(codes[codes >= 0]).tolist()
    chosen = present[1:] if len(present) == 2 else present
    return [np.where(codes < 0, 0.0, np.where(codes == c, 1.0, -1.0)) for c in chosen]


def judged(X: FloatArray, codes: IntArray, setting: Setting) -> FloatArray:
    """Criteria, summed over the problems."""
    return np.sum([criteria(X, y, setting) for y in one_vs_rest(codes)], axis=0)


# ---------------------------------------------------------------------------------------------------------- landmarks
def anchor_laplacian(K: FloatArray, n_anchors: int, weights: FloatArray) -> FloatArray:
    """n_anchors (D - S) with S = Z Lambda^-1 Z' and Lambda = diag(Z'1): rows hang on their nearest landmarks by kernel
    values that sum to 1; a row of weight 2 is there twice.
    """
    Z = np.zeros_like(K)
    for row, values in enumerate(K):
        nearest = np.argsort(-values, kind="stable")[:n_anchors]
        Z[row, nearest] = values[nearest] / values[nearest].sum()
    S = Z @ np.diag(1.0 / (weights @ Z)) @ Z.T * np.outer(weights, weights)
    return np.asarray(n_anchors * (np.diag(S.sum(axis=1)) - S))


def landmark_machine(
    K: FloatArray,
    K_landmarks: FloatArray,
    y: FloatArray,
    ridge: float,
    weights: FloatArray,
    L: FloatArray | None = None,
    gamma_intrinsic: float = 0.0,
) -> tuple[FloatArray, float]:
    """Return a, and the scale of the norm: min sum_p w_p (y_p - f_p)^2 + ridge n scale (||f||^2 + 2 gamma_I f'Lf) over
    f = Ka + b; the scale is the mean diagonal of the deformed kernel.
    """
    norm, scale = K_landmarks, 1.0
    if L is not None:
        norm = K_landmarks + 2.0 * gamma_intrinsic * K.T @ L @ K
        scale = float(weights @ np.diagonal(K @ np.linalg.solve(norm, K.T)) / weights.sum())
    known = y != 0
    n = weights[known].sum()
    design = np.column_stack([K[known], np.ones(known.sum())])
    system = design.T @ (weights[known, None] * design)
    system[:-1, :-1] += ridge * n * scale * norm
    solution: Any = np.linalg.solve(system, design.T @ (weights[known] * y[known]))
    return solution[:-1], scale
