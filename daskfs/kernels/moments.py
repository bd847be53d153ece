"""Means and sums of squared deviations that stay right for large offsets and merge across blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import is_sparse

ROW_BLOCK = 8192


def weighted_column_sums(weights: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Return ``weights @ A`` summed row after row.

    Parameters
    ----------
    weights
        Shape (n_rows,).
    A
        Shape (n_rows, width), C order, float64.

    Returns
    -------
    numpy.ndarray
        Shape (width,), float64.

    Notes
    -----
    BLAS and NumPy's pairwise summation would choose the order of additions by the width of the array. This form gives
    each column the same additions in the same order for every width, which is what makes scores independent of the
    blocking.
    """
    if A.shape[1] == 1:  # einsum folds a single column into one pairwise sum
        return np.einsum("e,ec->c", weights, np.repeat(A, 2, axis=1))[:1]
    return np.einsum("e,ec->c", weights, A)


def column_sums(A: np.ndarray) -> np.ndarray:
    """Return the sums over rows of a C-ordered float64 array, in the order of :func:`weighted_column_sums`."""
    return weighted_column_sums(np.ones(A.shape[0]), A)


def rows_at_once(width: int) -> int:
    """Return how many rows to convert at a time: 8192 up to 512 columns (so for every panel), fewer in wide bands."""
    return max(16, ROW_BLOCK * 512 // max(width, 512))


def row_blocks(n_rows: int, size: int = ROW_BLOCK) -> Iterator[slice]:
    """Cut ``range(n_rows)`` into slices of at most `size` rows."""
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


@dataclass(frozen=True)
class Moments:
    """Column moments of some rows.

    `count` is a number of rows or an array of them; `mean`, `m2` (sum of squared deviations from the mean), `minimum`
    and `maximum` have shape (width,), float64.
    """

    count: int
    mean: np.ndarray
    m2: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """Population variance (divisor n); exactly 0 where the column is constant."""
        return np.where(self.is_constant, 0.0, self.m2 / max(self.count, 1))

    @property
    def is_constant(self) -> np.ndarray:
        """True where all values are the same, shape (width,)."""
        return self.minimum == self.maximum


def column_moments(F: np.ndarray | sp.csr_matrix) -> Moments:
    """Two-pass moments of a dense (n_rows, width) array of any real dtype, or of a CSR matrix, without densifying
    it.
    """
    if is_sparse(F):
        return _sparse_moments(F)
    n_rows, width = F.shape
    total = np.zeros(width)
    minimum = np.full(width, np.inf)
    maximum = np.full(width, -np.inf)
    for rows in row_blocks(n_rows, rows_at_once(width)):
        block = np.ascontiguousarray(F[rows], dtype=np.float64)
        total += column_sums(block)
        np.minimum(minimum, block.min(axis=0), out=minimum)
        np.maximum(maximum, block.max(axis=0), out=maximum)
    mean = total / max(n_rows, 1)
    residual = np.zeros(width)
    m2 = np.zeros(width)
    for rows in row_blocks(n_rows, rows_at_once(width)):
        deviation = F[rows].astype(np.float64) - mean
        residual += column_sums(deviation)
        np.multiply(deviation, deviation, out=deviation)
        m2 += column_sums(deviation)
    correction = residual / max(n_rows, 1)
    m2 = np.maximum(m2 - n_rows * correction**2, 0.0)
    return Moments(n_rows, mean + correction, m2, minimum, maximum)


def _sparse_moments(F: sp.csr_matrix) -> Moments:
    n_rows, width = F.shape
    columns = F.tocsc()
    columns.sum_duplicates()  # of the copy: entries stored twice are one value
    stored = np.diff(columns.indptr)
    owner = np.repeat(np.arange(width), stored)
    values = columns.data.astype(np.float64)
    mean = np.bincount(owner, weights=values, minlength=width) / max(n_rows, 1)
    deviation = values - mean[owner]
    m2 = np.bincount(owner, weights=deviation**2, minlength=width) + (n_rows - stored) * mean**2
    implicit = np.where(stored < n_rows, 0.0, np.nan)
    minimum, maximum = np.full(width, np.inf), np.full(width, -np.inf)
    np.minimum.at(minimum, owner, values)
    np.maximum.at(maximum, owner, values)
    return Moments(n_rows, mean, m2, np.fmin(minimum, implicit), np.fmax(maximum, implicit))


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Moments of the union of two disjoint sets of rows (Chan, Golub and LeVeque 1979, Eq. 2.1)."""
    count = a.count + b.count
    if count == 0:
        return a
    delta = b.mean - a.mean
    return Moments(
        count,
        a.mean + delta * (b.count / count),
        a.m2 + b.m2 + delta**2 * (a.count * b.count / count),
        np.minimum(a.minimum, b.minimum),
        np.maximum(a.maximum, b.maximum),
    )


def cell_rows(width: int, sparse: bool) -> int:
    """Return the rows of one cell of :func:`tree_moments`: a power of two that follows from the width alone.

    No dense band is planned with fewer: its tiles are at least 1 MiB, which is 2**17 values.
    """
    if sparse:
        return 64
    return 1 << (max(1, min(1024, 2**17 // max(width, 1))).bit_length() - 1)


def tree_moments(F: np.ndarray | sp.csr_matrix) -> Moments:
    """Moments by cells of rows that are merged two by two.

    A band whose number of rows is a power of two, and at least a cell, is a whole subtree: merging bands two by two
    with :func:`merge_tree` gives the same bits for every such height of bands.
    """
    size = cell_rows(F.shape[1], is_sparse(F))
    return merge_tree([column_moments(F[rows]) for rows in row_blocks(F.shape[0], size)] or [column_moments(F)])


def merge_tree(parts: list[Moments]) -> Moments:
    """Merge moments of consecutive rows, neighbors two by two, until one is left."""
    while len(parts) > 1:
        pairs = [merge_moments(*parts[i : i + 2]) for i in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def weighted_deviation(F: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weighted mean and the weighted sum of squared deviations from it.

    For weights d this is (f'D1 / 1'D1, f~'D f~) of He, Cai and Niyogi (2005, section 3), computed from deviations,
    never as a difference of squares.

    Parameters
    ----------
    F
        Panel, shape (n_rows, width), any real dtype.
    weights
        Shape (n_rows,), non-negative, with a positive sum.
    """
    total = float(weights.sum())
    mean = np.zeros(F.shape[1])
    for rows in row_blocks(F.shape[0]):
        mean += weighted_column_sums(weights[rows], np.ascontiguousarray(F[rows], dtype=np.float64))
    mean /= total
    residual = np.zeros_like(mean)
    squares = np.zeros_like(mean)
    for rows in row_blocks(F.shape[0]):
        deviation = F[rows].astype(np.float64) - mean
        residual += weighted_column_sums(weights[rows], deviation)
        np.multiply(deviation, deviation, out=deviation)
        squares += weighted_column_sums(weights[rows], deviation)
    correction = residual / total
    return mean + correction, np.maximum(squares - total * correction**2, 0.0)


@dataclass(frozen=True)
class ClassMoments:
    """Moments of each class: `counts` (n_classes,), `means` and `m2` (n_classes, width)."""

    counts: np.ndarray
    means: np.ndarray
    m2: np.ndarray


def class_moments(F: np.ndarray, codes: np.ndarray, n_classes: int) -> ClassMoments:
    """Two-pass moments of each class over labelled rows.

    Parameters
    ----------
    F
        Panel, shape (n_rows, width), any real dtype.
    codes
        Shape (n_rows,), class codes from 0, -1 for unlabelled rows, which are left out.
    """
    counts = np.bincount(codes[codes >= 0], minlength=n_classes)
    means = np.empty((n_classes, F.shape[1]))
    m2 = np.empty((n_classes, F.shape[1]))
    for code in range(n_classes):
        moments = column_moments(F[codes == code])
        means[code], m2[code] = moments.mean, np.where(moments.is_constant, 0.0, moments.m2)
    return ClassMoments(counts, means, m2)


@dataclass(frozen=True)
class TargetMoments:
    """Joint moments of each column with one target: m2 of the columns, of the target, and their co-moment, shape
    (width,).
    """

    m2: np.ndarray
    target_m2: float
    comoment: np.ndarray
    is_constant: np.ndarray


def target_moments(F: np.ndarray, target: np.ndarray) -> TargetMoments:
    """Joint two-pass moments of a (n_rows, width) panel with a target of shape (n_rows,) that has no missing value."""
    moments = column_moments(F)
    centered = target - target.mean()
    comoment = np.zeros(F.shape[1])
    for rows in row_blocks(F.shape[0]):
        comoment += weighted_column_sums(centered[rows], F[rows].astype(np.float64) - moments.mean)
    return TargetMoments(moments.m2, float(np.sum(centered * centered)), comoment, moments.is_constant)
