"""The matrix S = X'HX of a regression: as a matrix, as the rows of X, or as products taken over all rows.

Solvers use the same calls for all: products with S, and products and linear systems with S among some features. Systems
are those of ``s S s + I`` with a scale s >= 0 per feature, so nothing is divided by a weight that goes to zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import scipy.linalg as la

Solver = Callable[[np.ndarray], np.ndarray]
WORTH_COPYING = 2
"""Minimum ratio of features to the chosen ones for which a copy of S among these saves anything."""


class PartOfGram(Protocol):
    """S among some features."""

    def product(self, W: np.ndarray) -> np.ndarray:
        """Return S W, shape (n_some, n_columns), float64."""

    def solver(self, scale: np.ndarray) -> Solver:
        """Return a solver that (approximately) maps R to (S + diag(1 / scale^2))^-1 R; symmetric, positive definite."""


class Gram(Protocol):
    """S, shape (n_features, n_features), float64."""

    diagonal: np.ndarray

    def product(self, W: np.ndarray) -> np.ndarray:
        """Return S W, shape (n_features, n_columns), float64."""

    def among(self, features: np.ndarray) -> PartOfGram:
        """Return S among some features, ascending indices."""

    def within(self, features: np.ndarray) -> Gram | None:
        """Return S among some features as a matrix of its own; None if that saves nothing."""


def factorize(matrix: np.ndarray) -> Solver:
    """Return a solver for a symmetric positive definite matrix, shape (n, n), float64, which is overwritten."""
    factor = la.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    return lambda right: la.cho_solve(factor, right, check_finite=False)


class MatrixGram:
    """S stored as a matrix; systems are solved by Cholesky factors."""

    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix = matrix
        self.diagonal = np.diagonal(matrix).copy()
        self._part: tuple[np.ndarray, _MatrixPart] | None = None

    def product(self, W: np.ndarray) -> np.ndarray:
        """Return S W, shape (n_features, n_columns), float64; only the non-zero rows of W cost time."""
        active = np.flatnonzero(W.any(axis=1))
        if 2 * active.size > W.shape[0]:
            return np.asarray(self._matrix @ W)
        return np.asarray(self._matrix[active].T @ W[active])

    def among(self, features: np.ndarray) -> PartOfGram:
        """Return S among some features; the last result is cached."""
        cached = self._part  # several threads may share this
        if cached is None or not np.array_equal(cached[0], features):
            whole = features.size == self.diagonal.size
            cached = self._part = None  # freed before the next copy
            cached = features, _MatrixPart(self._matrix if whole else self._matrix[np.ix_(features, features)])
            self._part = cached
        return cached[1]

    def within(self, features: np.ndarray) -> Gram | None:
        """Return S among some features if they are few enough, else None."""
        if WORTH_COPYING * features.size > self.diagonal.size:
            return None
        return MatrixGram(self._matrix[np.ix_(features, features)])


class _MatrixPart:
    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix = matrix

    def product(self, W: np.ndarray) -> np.ndarray:
        return np.asarray(self._matrix @ W)

    def solver(self, scale: np.ndarray) -> Solver:
        system = self._matrix * scale
        system *= scale[:, None]
        system[np.diag_indices_from(system)] += 1.0
        solve = factorize(system)
        return lambda right: scale[:, None] * solve(scale[:, None] * right)


class RowsGram:
    """S = A'A by the rows of A, which are fewer than its columns.

    Systems are solved by the Woodbury identity, or by Cholesky factors among fewer features than rows.

    Parameters
    ----------
    rows
        A = H^(1/2) X, shape (n_rows, n_features), float64: centered columns, each row times the root of its weight.
        Copied unless its columns are contiguous.
    """

    def __init__(self, rows: np.ndarray) -> None:
        self._columns = np.ascontiguousarray(rows.T)  # some of them are read at a time
        self.diagonal = np.einsum("ji,ji->j", self._columns, self._columns)
        self._part: tuple[np.ndarray, PartOfGram] | None = None
        self._product: tuple[np.ndarray, np.ndarray] | None = None
        self._few: tuple[np.ndarray, MatrixGram] | None = None

    def product(self, W: np.ndarray) -> np.ndarray:
        """Return A'(A W), shape (n_features, n_columns), float64; the last result is cached.

        In A W, only the non-zero rows of W cost time.
        """
        cached = self._product
        if cached is None or not np.array_equal(cached[0], W):
            active = np.flatnonzero(W.any(axis=1))
            few = 2 * active.size <= W.shape[0]
            inner = W[active].T @ self._columns[active] if few else W.T @ self._columns
            cached = self._product = W.copy(), np.asarray(self._columns @ inner.T)
        return cached[1]

    def within(self, features: np.ndarray) -> Gram | None:
        """Return S among some features if they are no more than rows, else None; the last result is cached."""
        if features.size > min(self._columns.shape):
            return None
        cached = self._few
        if cached is None or not np.array_equal(cached[0], features):
            part = self._columns[features]
            cached = self._few = features, MatrixGram(part @ part.T)
        return cached[1]

    def among(self, features: np.ndarray) -> PartOfGram:
        """Return S among some features; the last result is cached."""
        cached = self._part  # several threads may share this
        if cached is None or not np.array_equal(cached[0], features):
            cached = self._part = None  # freed before the next copy
            part = self._columns if features.size == self.diagonal.size else self._columns[features]
            few = features.size <= part.shape[1]
            cached = features, _MatrixPart(part @ part.T) if few else _RowsPart(part.T)
            self._part = cached
        return cached[1]


class _RowsPart:
    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def product(self, W: np.ndarray) -> np.ndarray:
        return np.asarray(self._rows.T @ (self._rows @ W))

    def solver(self, scale: np.ndarray) -> Solver:
        scaled = self._rows * scale
        system = scaled @ scaled.T
        system[np.diag_indices_from(system)] += 1.0
        solve = factorize(system)

        def solved(right: np.ndarray) -> np.ndarray:
            right = scale[:, None] * right
            return scale[:, None] * (right - scaled.T @ solve(scaled @ right))

        return solved


class ProductNeeded(Exception):  # noqa: N818 - a request to the caller, not an error
    """Request for the product of S and `W` over all rows; the caller computes it and restarts the computation."""

    def __init__(self, W: np.ndarray) -> None:
        self.W = W


class ReplayedGram:
    """S by its products, which are passes over all rows of X.

    Known products are replayed in order, and the first missing one is requested by :class:`ProductNeeded`. A
    computation restarts from the same state each time, and so asks for the same products. Systems are preconditioned by
    their diagonal.

    Parameters
    ----------
    diagonal
        Shape (n_features,), float64.
    products
        Products since the initial state, each (n_features, n_columns), float64.
    """

    def __init__(self, diagonal: np.ndarray, products: Sequence[np.ndarray]) -> None:
        self.diagonal = diagonal
        self._products = products
        self._n_given = 0

    def product(self, W: np.ndarray) -> np.ndarray:
        """Return S W, shape (n_features, n_columns), float64; raise :class:`ProductNeeded` if it is not known yet."""
        if not W.any():
            return np.zeros_like(W)
        if self._n_given == len(self._products):
            raise ProductNeeded(W)
        self._n_given += 1
        return self._products[self._n_given - 1]

    def among(self, features: np.ndarray) -> PartOfGram:
        """Return S among some features, by products with all features."""
        return _ReplayedPart(self, features)

    def within(self, features: np.ndarray) -> Gram | None:
        """Return None: only products of S are known."""
        del features
        return None


class _ReplayedPart:
    def __init__(self, gram: ReplayedGram, features: np.ndarray) -> None:
        self._gram, self._features = gram, features

    def product(self, W: np.ndarray) -> np.ndarray:
        whole = np.zeros((self._gram.diagonal.size, W.shape[1]))
        whole[self._features] = W
        return self._gram.product(whole)[self._features]

    def solver(self, scale: np.ndarray) -> Solver:
        squared = scale**2
        share = squared / (squared * self._gram.diagonal[self._features] + 1.0)
        return lambda right: share[:, None] * right
