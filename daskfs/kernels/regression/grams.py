"""The matrix S = X'HX of a regression, in three shapes: made, as the rows of X it is made of, or as products that
somebody else takes over all rows.

Solvers see the same few calls: products with S, products and linear systems with S among some features only. Systems
are those of ``s S s + I`` with a scale s >= 0 for each feature, so that nothing is ever divided by a weight that goes
to zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import scipy.linalg as la

Solver = Callable[[np.ndarray], np.ndarray]
FEW = 2
"""How many times more features, or rows, there must be for S among some features to save anything."""


class PartOfGram(Protocol):
    """S among some features."""

    def product(self, W: np.ndarray) -> np.ndarray:
        """Return S W, shape (n_some, n_columns)."""

    def solver(self, scale: np.ndarray) -> Solver:
        """Return what turns R into (an approximation of) (S + diag(1 / scale^2))^-1 R; symmetric, positive definite."""


class Gram(Protocol):
    """S, shape (n_features, n_features), float64."""

    diagonal: np.ndarray

    def product(self, W: np.ndarray) -> np.ndarray:
        """Return S W, shape (n_features, n_columns)."""

    def among(self, features: np.ndarray) -> PartOfGram:
        """Return S among some features, ascending."""

    def within(self, features: np.ndarray) -> Gram | None:
        """Return S among some features as a matrix of its own; None where that saves nothing."""


def factorize(matrix: np.ndarray) -> Solver:
    """Return what solves systems of a symmetric positive definite matrix, which is overwritten."""
    factor = la.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    return lambda right: la.cho_solve(factor, right, check_finite=False)


class MatrixGram:
    """S as a matrix: systems by Cholesky factors."""

    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix = matrix
        self.diagonal = np.diagonal(matrix).copy()
        self._part: tuple[np.ndarray, _MatrixPart] | None = None

    def product(self, W: np.ndarray) -> np.ndarray:
        """Return S W; only rows of W that are not zero cost anything."""
        active = np.flatnonzero(W.any(axis=1))
        if 2 * active.size > W.shape[0]:
            return np.asarray(self._matrix @ W)
        return np.asarray(self._matrix[active].T @ W[active])

    def among(self, features: np.ndarray) -> PartOfGram:
        """Return S among some features; of the same ones as last time, the same."""
        found = self._part  # several threads may share this
        if found is None or not np.array_equal(found[0], features):
            whole = features.size == self.diagonal.size
            found = self._part = None  # before the next copy
            found = features, _MatrixPart(self._matrix if whole else self._matrix[np.ix_(features, features)])
            self._part = found
        return found[1]

    def within(self, features: np.ndarray) -> Gram | None:
        """Return S among some features, where these are few enough."""
        if FEW * features.size > self.diagonal.size:
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
    """S = A'A by the rows of A, which are fewer than its columns: systems by the Woodbury identity, or by Cholesky
    factors among fewer features than rows.

    Parameters
    ----------
    rows
        A = H^(1/2) X, shape (n_rows, n_features), float64: centered columns, each row times the root of its weight.
    """

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows
        self.diagonal = np.einsum("ij,ij->j", rows, rows)
        self._part: tuple[np.ndarray, PartOfGram] | None = None
        self._product: tuple[np.ndarray, np.ndarray] | None = None
        self._few: tuple[np.ndarray, MatrixGram] | None = None

    def product(self, W: np.ndarray) -> np.ndarray:
        """Return A'(A W); of the same W as last time, the same. Only rows of W that are not zero cost anything on the
        way in.
        """
        found = self._product
        if found is None or not np.array_equal(found[0], W):
            active = np.flatnonzero(W.any(axis=1))
            inner = self._rows @ W if 2 * active.size > W.shape[0] else self._rows[:, active] @ W[active]
            found = self._product = W.copy(), np.asarray(self._rows.T @ inner)
        return found[1]

    def within(self, features: np.ndarray) -> Gram | None:
        """Return S among some features, where these are few enough; of the same ones as last time, the same."""
        if FEW * features.size > min(self._rows.shape):
            return None
        found = self._few
        if found is None or not np.array_equal(found[0], features):
            part = self._rows[:, features]
            found = self._few = features, MatrixGram(part.T @ part)
        return found[1]

    def among(self, features: np.ndarray) -> PartOfGram:
        """Return S among some features; of the same ones as last time, the same."""
        found = self._part  # several threads may share this
        if found is None or not np.array_equal(found[0], features):
            found = self._part = None  # before the next copy
            part = self._rows if features.size == self._rows.shape[1] else self._rows[:, features]
            few = features.size <= part.shape[0]
            found = features, _MatrixPart(part.T @ part) if few else _RowsPart(part)
            self._part = found
        return found[1]


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


class ProductNeeded(Exception):  # noqa: N818 - no error: what a caller is asked for
    """Somebody has to take the product of S and `W` over all rows, and start again with it."""

    def __init__(self, W: np.ndarray) -> None:
        super().__init__()
        self.W = W


class ReplayedGram:
    """S by its products, which are passes over all rows of X: the ones taken so far are given again in their order, and
    the first that is missing is asked for by :class:`ProductNeeded`. Systems are preconditioned by their diagonal.

    Whoever computes with it starts from the same state each time, and so asks for the same products in the same order.

    Parameters
    ----------
    diagonal
        Shape (n_features,), float64.
    products
        Products since the state that the computation starts from, each of shape (n_features, n_columns).
    """

    def __init__(self, diagonal: np.ndarray, products: Sequence[np.ndarray]) -> None:
        self.diagonal = diagonal
        self._products = products
        self._n_given = 0

    def product(self, W: np.ndarray) -> np.ndarray:
        """Return S W, or ask for it."""
        if not W.any():
            return np.zeros_like(W)
        if self._n_given == len(self._products):
            raise ProductNeeded(W)
        self._n_given += 1
        return self._products[self._n_given - 1]

    def among(self, features: np.ndarray) -> PartOfGram:
        """Return S among some features, by products with all of them."""
        return _ReplayedPart(self, features)

    def within(self, features: np.ndarray) -> Gram | None:
        """Return None: all that is known of S are its products."""
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
