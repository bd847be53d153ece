"""Machines on landmarks (Nyström), from sums over all rows of the size of the landmarks.

Notes
-----
``f = k(x, Z)'a + b`` with landmarks Z and squared losses: the rows enter only by sums of products of their kernel
values, m x m for m landmarks, which are added up block by block. The norm of f is a'K_ZZ a, so its change without a
feature depends on the landmarks alone (svm/elimination.py).

Under a graph, each row is anchored to its nearest landmarks, with its kernel values there, normalized to sum 1, as
weights Z_ps. Rows are neighbors to the extent that they share landmarks (Liu, He and Chang 2010): S = Z Lambda^-1 Z'
with Lambda = diag(Z'1), whose degrees are 1. So f'Lf too follows from sums of the size of the landmarks, over all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.svm.incremental_distances import squared_distances

JITTER = 1e-9
"""Share of its mean diagonal that is added to a system: similar landmarks make it singular."""
SPARSE_CENTER = 1e4
"""Squared length of the scaled mean above which sparse rows are centered as dense ones."""


class LandmarkKernel:
    """The Gaussian kernel between stored rows and landmarks, in the remaining features.

    Parameters
    ----------
    Z
        Landmarks, centered and scaled, shape (m, n_left), float64.
    left
        Numbers of the remaining features, shape (n_left,), ascending.
    mean, scale
        Center and scale of rows, shape (n_left,), float64.
    gamma
        Parameter of the kernel.
    """

    def __init__(self, Z: np.ndarray, left: np.ndarray, mean: np.ndarray, scale: np.ndarray, gamma: float) -> None:
        self.Z, self.gamma = Z, gamma
        self._left, self._mean, self._scale = left, mean, scale
        # exponents are products of (x, |x|^2, 1) with these, in one pass over the rows
        squared_norms = np.einsum("ij,ij->i", Z, Z)
        self._factors = -gamma * np.vstack([-2.0 * Z.T, np.ones(len(Z)), squared_norms])

    def __call__(self, X: Block) -> np.ndarray:
        """Return the kernel values of rows X, (n_rows, n_features), dense or CSR; shape (n_rows, m), float64."""
        part = X if self._left.size == X.shape[1] else X[:, self._left]
        exponents = self._of_sparse(part) if is_sparse(part) else self._of_dense(part)
        return np.exp(exponents, out=exponents)

    def _of_dense(self, X: np.ndarray) -> np.ndarray:
        n_left = self._left.size
        extended = np.empty((len(X), n_left + 2))
        rows = extended[:, :n_left]
        rows[...] = X
        rows -= self._mean
        rows *= self._scale
        np.einsum("ij,ij->i", rows, rows, out=extended[:, n_left])
        extended[:, n_left + 1] = 1.0
        return np.asarray(extended @ self._factors)

    def _of_sparse(self, X: sp.csr_matrix) -> np.ndarray:
        offset = self._mean * self._scale
        if offset @ offset > SPARSE_CENTER:  # sparse products would lose digits
            return self._of_dense(X.toarray())
        S = X.astype(np.float64)
        S.data *= self._scale[S.indices]
        squared_norms = np.asarray(S.multiply(S).sum(axis=1)).ravel() - 2.0 * (S @ offset) + offset @ offset
        exponents = np.asarray(S @ self._factors[:-2])
        exponents -= self.gamma * squared_norms[:, None]
        exponents += self._factors[-1] - 2.0 * self.gamma * (self.Z @ offset)
        return exponents

    def between_landmarks(self) -> np.ndarray:
        """Return K_ZZ, shape (m, m), float64."""
        return np.exp(-self.gamma * self.squares())

    def squares(self) -> np.ndarray:
        """Return the squared distances between landmarks, shape (m, m), float64."""
        squares = squared_distances(self.Z, self.Z)
        np.fill_diagonal(squares, 0.0)
        return np.maximum(squares, 0.0)


def landmark_sums(
    K: np.ndarray, targets: np.ndarray, weights: np.ndarray | None, n_anchors: int
) -> Mapping[str, np.ndarray]:
    """Return the contribution of a block of rows to the sums of :func:`solve_landmarks`.

    Parameters
    ----------
    K
        Kernel values of the rows, shape (n_rows, m), float64.
    targets
        Shape (n_rows, n_problems): -1 or 1, and 0 in all columns of a row without a label.
    weights
        Frequency weights, shape (n_rows,), float64; None for 1 each.
    n_anchors
        Number of landmarks that each row is anchored to; 0 for no graph, where rows without a label do not count.
    """
    sums = _graph_sums(K, weights, n_anchors) if n_anchors else {}
    is_labeled = targets[:, 0] != 0
    if not is_labeled.all():
        K, targets, weights = K[is_labeled], targets[is_labeled], None if weights is None else weights[is_labeled]
    sums["gram"] = sums["all_gram"] if n_anchors and is_labeled.all() else _gram(K, weights)
    counts = np.ones(len(K)) if weights is None else weights
    counted = counts[:, None] * targets
    sums["cross"] = K.T @ counted
    sums["sums"] = counts @ K
    sums["targets"] = counted.sum(axis=0)
    sums["total"] = np.array(counts.sum())
    return sums


def _gram(K: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    heavy = K if weights is None else K * np.sqrt(weights)[:, None]
    return np.asarray(heavy.T @ heavy)


def _graph_sums(K: np.ndarray, weights: np.ndarray | None, n_anchors: int) -> dict[str, np.ndarray]:
    """Return the contribution of rows, with or without a label, to the sums of the graph."""
    anchors = _anchor_weights(K, n_anchors)
    if weights is not None:
        anchors.data *= np.repeat(weights, n_anchors)
    return {
        "all_gram": _gram(K, weights),
        "anchored": np.asarray(anchors.T @ K).T,
        "anchors": np.asarray(anchors.sum(axis=0)).ravel(),
        "all_total": np.array(float(len(K)) if weights is None else weights.sum()),
    }


def _anchor_weights(K: np.ndarray, n_anchors: int) -> sp.csr_matrix:
    """Return the weights of rows on their nearest landmarks (largest kernel values); CSR, shape (n_rows, m)."""
    n_rows, m = K.shape
    # rounded to 32 mantissa bits, so that the choice of equally near landmarks does not depend on how X is stored
    rounded = (K.view(np.int64) + 2**19) >> 20
    if n_anchors < m:
        nearest = np.argpartition(rounded, m - n_anchors, axis=1)[:, m - n_anchors :]
    else:
        nearest = np.tile(np.arange(m), (n_rows, 1))
    values = np.take_along_axis(K, nearest, axis=1)
    total = values.sum(axis=1, keepdims=True)
    values /= np.where(total > 0, total, 1.0)  # a row with kernel value 0 at all landmarks has no edge
    starts = np.arange(0, n_rows * n_anchors + 1, n_anchors)
    return sp.csr_matrix((values.ravel(), nearest.ravel(), starts), shape=(n_rows, m))


@dataclass(frozen=True)
class LandmarkMachines:
    """Coefficients of all problems, shape (m, n_problems), float64, and the factor of the norm.

    Under a graph, `scale` makes the mean diagonal of the kernel 1, over all rows.
    """

    coefficients: np.ndarray
    scale: float


def solve_landmarks(
    K: np.ndarray, sums: Mapping[str, np.ndarray], ridge: float, gamma_intrinsic: float, n_anchors: int
) -> LandmarkMachines:
    """Minimize ``sum (y - f)^2 + ridge n ||f||^2``, with ``||f||^2 + 2 gamma_I f'Lf`` as the norm under a graph.

    Parameters
    ----------
    K
        K_ZZ, shape (m, m), float64.
    sums
        Sums of :func:`landmark_sums` over all rows.
    ridge
        lambda, per labeled row; n is their number.
    gamma_intrinsic, n_anchors
        Weight of f'Lf, and landmarks that a row is anchored to. L is multiplied by `n_anchors`: rows then have the
        weight that as many neighbors with edges of weight 1 would give.
    """
    total = float(sums["total"])
    norm, scale = K, 1.0
    if n_anchors:
        roughness = sums["all_gram"] - (sums["anchored"] / np.maximum(sums["anchors"], 1e-300)) @ sums["anchored"].T
        norm = K + 2.0 * gamma_intrinsic * n_anchors * (roughness + roughness.T) / 2.0
        scale = float(np.trace(_solve_system(norm, sums["all_gram"]))) / float(sums["all_total"])
    gram = sums["gram"] - np.multiply.outer(sums["sums"], sums["sums"]) / total
    cross = sums["cross"] - np.multiply.outer(sums["sums"], sums["targets"] / total)
    return LandmarkMachines(_solve_system(gram + ridge * total * scale * norm, cross), scale)


def _solve_system(system: np.ndarray, right: np.ndarray) -> np.ndarray:
    system = system + np.diag(np.full(len(system), JITTER * np.trace(system) / len(system)))
    return np.asarray(cho_solve(cho_factor(system, lower=True, check_finite=False), right, check_finite=False))
