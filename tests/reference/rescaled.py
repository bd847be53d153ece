"""RLSR, DSSFS and SSUFS straight from their formulas, on dense data, one feature or one row at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def project(points: FloatArray) -> FloatArray:
    """Return the nearest points of the simplex: max(y - shift, 0), the shift by halving until that adds up to 1."""
    low, high = points.min(axis=1) - 1.0, points.max(axis=1)
    for _ in range(60):
        middle = (low + high) / 2
        is_low = np.maximum(points - middle[:, None], 0.0).sum(axis=1) > 1.0
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    nearest = np.maximum(points - high[:, None], 0.0)
    return np.asarray(nearest / nearest.sum(axis=1)[:, None])


def scaled(X: FloatArray, weights: FloatArray | None = None, *, zscore: bool = True) -> FloatArray:
    """Return z-scores, with 0 for constant columns, or X; less the weighted means."""
    if zscore:
        mean = np.average(X, axis=0, weights=weights)
        spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights))
        X = (X - mean) / np.where(spread > 1e-12 * np.abs(X).max(axis=0), spread, np.inf)
    return np.asarray(X - np.average(X, axis=0, weights=weights))


def row_norms(W: FloatArray) -> FloatArray:
    return np.linalg.norm(W, axis=1)


@dataclass
class Targets:
    """Targets that are best for what is predicted, and the offsets that are best for them, in turn until both agree.

    Labeled rows have indicators of their classes; under DSSFS dragged apart: Y + B * M with M = max(B * (XW + 1b' -
    Y), 0), B = 1 in the column of the class and -1 in the others.
    """

    Z: FloatArray
    codes: NDArray[np.int64]
    weights: FloatArray
    n_classes: int
    dragged: bool = False

    def once(self, predicted: FloatArray) -> FloatArray:
        Y = np.eye(self.n_classes)[self.codes]
        if self.dragged:
            B = np.where(Y == 1, 1.0, -1.0)
            Y += B * np.maximum(B * (predicted - Y), 0.0)
        unknown = self.codes < 0
        if unknown.any():
            Y[unknown] = project(predicted[unknown])
        return Y

    def offset(self, Y: FloatArray, W: FloatArray) -> FloatArray:
        return np.asarray(np.average(Y - self.Z @ W, axis=0, weights=self.weights))

    def best(self, W: FloatArray) -> tuple[FloatArray, FloatArray]:
        b = np.full(self.n_classes, 1.0 / self.n_classes)
        for _ in range(3000):
            Y = self.once(self.Z @ W + b)
            before, b = b, self.offset(Y, W)
            if np.abs(b - before).max() < 1e-14:
                break
        return Y, b


def loss(targets: Targets, W: FloatArray, b: FloatArray, Y: FloatArray, gamma: float) -> float:
    """||XW + 1b' - Y||^2 + gamma (sum_j ||w_j||)^2, rows counted by their weights."""
    squares = (targets.Z @ W + b - Y) ** 2
    return float((targets.weights[:, None] * squares).sum() + gamma * row_norms(W).sum() ** 2)


def uncorrelated_loss(
    targets: Targets, W: FloatArray, b: FloatArray, Y: FloatArray, gamma: float, eta: float, M: FloatArray
) -> float:
    """Zhong et al. (2019), Eq. 5, with half the paper's eta: loss less (eta / 2) V'LV, where V'LV is the sum over pairs
    of m_ij (||w_i||^2 - ||w_j||^2)^2.
    """
    V = row_norms(W) ** 2
    pairs = (M * (V[:, None] - V[None, :]) ** 2)[np.triu_indices(len(V), 1)]
    return loss(targets, W, b, Y, gamma) - eta / 2 * float(pairs.sum())


@dataclass(frozen=True)
class Kkt:
    """Of a W, with its own best targets: residual of rows that are not zero as a share of max |P|; of others as a share
    of gamma T.
    """

    active: float
    inactive: float


def kkt(targets: Targets, W: FloatArray, gamma: float, pull: FloatArray | None = None) -> Kkt:
    Y, _ = targets.best(W)
    counted = targets.Z * targets.weights[:, None]
    mean = np.average(Y, axis=0, weights=targets.weights)
    P, S = counted.T @ (Y - mean), counted.T @ targets.Z
    norms, gradient = row_norms(W), S @ W - P
    total, pull = norms.sum(), np.zeros(len(W)) if pull is None else pull
    active = [
        row_norms(gradient[[j]] + (gamma * total / norms[j] - pull[j]) * W[[j]])[0] for j in np.flatnonzero(norms)
    ]
    inactive = [row_norms(gradient[[j]])[0] / (gamma * total) for j in np.flatnonzero(norms == 0)]
    return Kkt(max(active) / np.abs(P).max(), max(inactive, default=0.0))


def rlsr(targets: Targets, gamma: float, tolerance: float = 1e-9, max_sweeps: int = 20_000) -> FloatArray:
    """Return W by coordinate descent: w_j = t r_j / ||r_j|| with r_j = p_j - sum over k != j of s_jk w_k and
    t = max(0, (||r_j|| - gamma sum over k != j of ||w_k||) / (s_jj + gamma)); targets and offsets after every sweep.
    """
    Z, counted = targets.Z, targets.Z * targets.weights[:, None]
    S = counted.T @ Z
    W = np.zeros((Z.shape[1], targets.n_classes))
    b = np.full(targets.n_classes, 1.0 / targets.n_classes)
    norms = row_norms(W)
    for _ in range(max_sweeps):
        Y = targets.once(Z @ W + b)
        P = counted.T @ (Y - np.average(Y, axis=0, weights=targets.weights))
        before = W.copy()
        for _ in range(10):
            for j in np.flatnonzero(S.diagonal()):
                r = P[j] - S[j] @ W + S[j, j] * W[j]
                size = float(np.sqrt(r @ r))
                norms[j] = max(0.0, (size - gamma * (norms.sum() - norms[j])) / (S[j, j] + gamma))
                W[j] = norms[j] / size * r if size > 0 else 0.0
        b = targets.offset(Y, W)
        if np.abs(W - before).max() <= tolerance * np.abs(W).max():
            return W
    raise AssertionError


def ssufs(
    targets: Targets, W: FloatArray, gamma: float, eta: float, M: FloatArray, n_rounds: int = 400
) -> tuple[FloatArray, list[float]]:
    """Return W and the objective of every round, from RLSR's W on, by systems in all rows that are not zero:
    (S + diag(gamma / theta - g + rho)) W+ = P + diag(rho) W with g = eta LV and rho = max(0, g - 0.9 gamma / theta).
    """
    counted = targets.Z * targets.weights[:, None]
    S, L = counted.T @ targets.Z, np.diag(M.sum(axis=1)) - M
    Y, b = targets.best(W)
    values = []
    for _ in range(n_rounds):
        values.append(uncorrelated_loss(targets, W, b, Y, gamma, eta, M))
        P = counted.T @ (Y - np.average(Y, axis=0, weights=targets.weights))
        norms = row_norms(W)
        on = np.flatnonzero(norms > 1e-12 * norms.max())
        penalty = gamma * norms.sum() / norms[on]
        pull = eta * (L @ norms**2)[on]
        held = np.maximum(0.0, pull - 0.9 * penalty)
        new = np.zeros_like(W)
        new[on] = np.linalg.solve(S[np.ix_(on, on)] + np.diag(penalty - pull + held), P[on] + held[:, None] * W[on])
        W, b = new, targets.offset(Y, new)
        Y = targets.once(targets.Z @ W + b)
    return W, values
