"""Distance correlations of all pairs of columns straight from their definitions, on (n, n) matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def distances(values: FloatArray) -> FloatArray:
    return np.asarray(np.abs(values[:, None] - values[None, :]))


def centered(D: FloatArray) -> FloatArray:
    """Székely, Rizzo and Bakirov (2007), Definition 4: less the means of rows and of columns, plus the mean."""
    return np.asarray(D - D.mean(axis=0) - D.mean(axis=1)[:, None] + D.mean())


def u_centered(D: FloatArray) -> FloatArray:
    """Székely and Rizzo (2014), Definition 2: 0 on the diagonal."""
    n, sums = len(D), D.sum(axis=0)
    A = D - sums / (n - 2) - sums[:, None] / (n - 2) + D.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(A, 0.0)
    return np.asarray(A)


def distance_correlations(X: ArrayLike, *, bias_corrected: bool = False) -> FloatArray:
    """Squared distance correlations, those of U-statistics cut off at 0; rows and columns of constant columns are 0."""
    center = u_centered if bias_corrected else centered
    A = np.array([center(distances(column)).ravel() for column in np.asarray(X, dtype=np.float64).T])
    norms = np.sqrt((A * A).sum(axis=1))
    A = np.divide(A, norms[:, None], out=np.zeros_like(A), where=norms[:, None] > 0)
    return np.maximum(A @ A.T, 0.0)
