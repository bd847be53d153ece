"""Means and sums of squared deviations that are accurate for large offsets and merge across blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import Block, index_dtype, is_sparse
from daskfs.kernels.panel.backend import PLAIN, Passes
from daskfs.kernels.panel.numpy import column_sums as column_sums
from daskfs.kernels.panel.numpy import weighted_column_sums as weighted_column_sums

ROW_BLOCK = 8192
COMPILED_CELLS = 2**21
"""Cells times columns from which on loops over sparse cells are compiled."""


def rows_at_once(width: int) -> int:
    """Return the number of rows to convert at a time: 8192 up to 512 columns (every panel), fewer in wide bands."""
    return max(16, ROW_BLOCK * 512 // max(width, 512))


def row_blocks(stop: int, size: int = ROW_BLOCK, first: int = 0) -> Iterator[slice]:
    """Split ``range(first, stop)`` into slices of at most `size` rows."""
    for start in range(first, stop, size):
        yield slice(start, min(start + size, stop))


@dataclass(frozen=True)
class Moments:
    """Column moments of some rows.

    `count` is the number of rows, or the sum of their weights; if values are missing, that of the observed values of
    each column, shape (width,). `mean`, `m2` (sum of squared deviations from the mean), `minimum` and `maximum` have
    shape (width,), float64; for a column without observed values they are 0, 0, inf and -inf. `rest`, shape (width,),
    is what the rounding of `mean` leaves out: far from 0, the spread of a column may be less than that.
    """

    count: float | np.ndarray
    mean: np.ndarray
    m2: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray
    rest: float | np.ndarray = 0.0

    @property
    def variance(self) -> np.ndarray:
        """Population variance (divisor n); exactly 0 where the column is constant."""
        return np.where(self.is_constant, 0.0, self.m2 / np.where(np.equal(self.count, 0), 1, self.count))

    @property
    def is_constant(self) -> np.ndarray:
        """True where all observed values are equal, or none is observed, shape (width,), bool."""
        return self.minimum >= self.maximum

    @property
    def extremes(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest values, shape (width,) each; 0 for a column without observed values."""
        is_observed = self.minimum <= self.maximum
        return np.where(is_observed, self.minimum, 0.0), np.where(is_observed, self.maximum, 0.0)


def column_moments(
    F: Block, weights: np.ndarray | None = None, passes: Passes = PLAIN, rows: np.ndarray | None = None
) -> Moments:
    """Return the two-pass moments of each column.

    Parameters
    ----------
    F
        Array of shape (n_rows, width), any real dtype, or CSR matrix, which is not densified. NaN is a missing value,
        and ignored.
    weights
        Frequency weights, shape (n_rows,), float64; 1 each gives the bits of None. Rows of weight 0 do not affect
        minimum and maximum.
    passes
        Backend of the sums.
    rows
        Row numbers of a dense array: moments of ``F[rows]``, with `weights` of these. One block of rows is copied at a
        time.
    """
    if is_sparse(F):
        return _sparse_moments(F, weights)
    n_rows, width = F.shape[0] if rows is None else rows.size, F.shape[1]
    count = n_rows if weights is None else float(weights.sum())
    total = np.zeros(width)
    minimum, maximum = np.full(width, np.inf), np.full(width, -np.inf)
    for block_weights, block in _weighted_blocks(F, weights, rows):
        total += passes.weighted_sums(block, block_weights)[0]
        counted = block_weights[0] > 0
        if counted.any():
            low, high = passes.extremes(block if counted.all() else block[counted])
            np.minimum(minimum, low, out=minimum)
            np.maximum(maximum, high, out=maximum)
    is_observed = np.isnan(total).any()
    if is_observed:
        count, total, minimum, maximum = _observed_sums(F, weights, passes, rows)
    mean = _clip_means(total / np.where(np.equal(count, 0), 1, count), minimum, maximum)
    residual, m2 = np.zeros(width), np.zeros(width)
    for block_weights, block in _weighted_blocks(F, weights, rows):
        values = np.where(np.isnan(block), mean, block) if is_observed else block  # the mean adds an exact 0
        sums, squares = passes.deviation_sums(values, mean, block_weights)
        residual += sums[0]
        m2 += squares[0]
    (mean, rest), m2 = centered(mean, residual, m2, count)
    return Moments(count, mean, m2, minimum, maximum, rest)


def centered(
    center: np.ndarray, sums: np.ndarray, squares: np.ndarray, total: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return means in two parts, rounded and what that leaves out, (2, ...), and sums of squares of deviations from it.

    `sums` and `squares` are those of the deviations from a center near the mean, of `total` rows or their weight.
    """
    correction = sums / np.where(np.equal(total, 0), 1, total)
    mean = center + correction
    return np.stack([mean, correction - (mean - center)]), np.maximum(squares - total * correction**2, 0.0)


def _clip_means(mean: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return means inside the data, (width,): the rounded sum of many values may give one that is outside."""
    return np.where(low <= high, np.clip(mean, low, high), mean)


def _observed_sums(
    F: np.ndarray, weights: np.ndarray | None, passes: Passes, rows: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return count, sum, minimum and maximum of the observed values; a missing one is 0 in sums, an exact addend."""
    width = F.shape[1]
    count, total = np.zeros((2, width))
    minimum, maximum = np.full(width, np.inf), np.full(width, -np.inf)
    for block_weights, block in _weighted_blocks(F, weights, rows):
        values = block.astype(np.float64)
        gone = np.isnan(values)
        count += passes.weighted_sums((~gone).astype(np.float64), block_weights)[0]
        gone |= block_weights.T == 0
        values[gone] = np.inf
        np.minimum(minimum, values.min(axis=0), out=minimum)
        values[gone] = -np.inf
        np.maximum(maximum, values.max(axis=0), out=maximum)
        values[gone] = 0.0
        total += passes.weighted_sums(values, block_weights)[0]
    return count, total, minimum, maximum


def _blocks(F: np.ndarray, rows: np.ndarray | None) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield the blocks of F, or of ``F[rows]``, each after its row slice."""
    n_rows, size = F.shape[0] if rows is None else rows.size, rows_at_once(F.shape[1])
    for part in row_blocks(n_rows, size):
        yield part, F[part] if rows is None else F.take(rows[part], axis=0)


def _weighted_blocks(
    F: np.ndarray, weights: RowValues | None, rows: np.ndarray | None, columns: np.ndarray | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the blocks of F, of rows and columns, each after its weights, shape (1, n_rows); ones without weights."""
    ones = np.ones((1, rows_at_once(F.shape[1])))
    for part, block in _blocks(F, rows):
        block_weights = ones[:, : len(block)] if weights is None else weights[part][None]
        yield block_weights, block if columns is None else block[:, columns]


def _sparse_moments(F: sp.csr_matrix, weights: np.ndarray | None) -> Moments:
    n_rows, width = F.shape
    columns = F.tocsc()
    columns.sum_duplicates()  # on the copy: duplicate entries are one value
    owner = np.repeat(np.arange(width), np.diff(columns.indptr))
    values = columns.data.astype(np.float64)
    entry_weights = np.ones(values.size) if weights is None else weights[columns.indices]
    gone = np.isnan(values)
    count: float | np.ndarray = n_rows if weights is None else float(weights.sum())
    n_counted = np.full(width, n_rows if weights is None else np.count_nonzero(weights))
    if gone.any():
        n_counted = n_counted - np.bincount(owner[gone & (entry_weights > 0)], minlength=width)
        count = np.where(n_counted > 0, count - np.bincount(owner[gone], entry_weights[gone], width), 0.0)
    is_counted = ~gone & (entry_weights > 0)
    owner, values, entry_weights = owner[is_counted], values[is_counted], entry_weights[is_counted]
    has_zeros = n_counted > np.bincount(owner, minlength=width)  # implicit ones
    implicit = np.where(has_zeros, 0.0, np.nan)
    minimum, maximum = np.full(width, np.inf), np.full(width, -np.inf)
    np.minimum.at(minimum, owner, values)
    np.maximum.at(maximum, owner, values)
    minimum, maximum = np.fmin(minimum, implicit), np.fmax(maximum, implicit)
    total = np.bincount(owner, entry_weights * values, width)
    mean = _clip_means(total / np.where(np.equal(count, 0), 1, count), minimum, maximum)
    deviation = values - mean[owner]
    zeros = np.where(has_zeros, count - np.bincount(owner, entry_weights, width), 0.0)
    m2 = np.bincount(owner, entry_weights * deviation**2, width) + zeros * mean**2
    residual = np.bincount(owner, entry_weights * deviation, width) - zeros * mean
    (mean, rest), m2 = centered(mean, residual, m2, count)
    return Moments(count, mean, m2, minimum, maximum, rest)


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Merge the moments of two disjoint sets of rows (Chan, Golub and LeVeque 1979, Eq. 2.1)."""
    count = a.count + b.count
    whole = count if np.all(count) else np.where(np.equal(count, 0), 1, count)  # without values all moments are 0
    delta, (mean, rest) = merge_means((a.mean, a.rest), (b.mean, b.rest), b.count / whole)
    return Moments(
        count,
        mean,
        a.m2 + b.m2 + delta**2 * (a.count * b.count / whole),
        np.minimum(a.minimum, b.minimum),
        np.maximum(a.maximum, b.maximum),
        rest,
    )


def merge_means(a: Any, b: Any, share: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return b - a, and the mean of both if b has a share of the rows; means are of two parts, (2, width), float64."""
    gap, rest = b[0] - a[0], b[1] - a[1]
    mean = a[0] + gap * share
    return gap + rest, np.stack([mean, a[1] + rest * share + (gap * share - (mean - a[0]))])


def common_count(counts: np.ndarray) -> float | np.ndarray:
    """Return the counts of :class:`Moments` from stored counts, shape (width,).

    One number if all counts are equal (no value is missing), an int if it is whole.
    """
    if (counts != counts[0]).any():
        return counts
    count = float(counts[0])
    return int(count) if count.is_integer() else count


def compiles_tree(n_rows: int, width: int) -> bool:
    """Return whether :func:`tree_moments` of sparse rows is compiled: cells take longer than loading numba."""
    return n_rows // cell_rows(width, sparse=True) * width >= COMPILED_CELLS


def _has_plain_entries(F: sp.csr_matrix) -> bool:
    """Return whether no value is missing and no two entries have the same place."""
    return bool(F.has_canonical_format) and not (F.dtype.kind == "f" and np.isnan(F.data).any())


def cell_rows(width: int, *, sparse: bool) -> int:
    """Return the rows of one cell of :func:`tree_moments`: a power of two that depends on width and sparsity only.

    No dense band is planned with fewer: its tiles are at least 1 MiB, which is 2**17 values.
    """
    if sparse:
        return 64
    return 1 << (max(1, min(1024, 2**17 // max(width, 1))).bit_length() - 1)


def tree_moments(F: Block, weights: np.ndarray | None = None) -> Moments:
    """Return column moments by merging cells of rows pairwise; arguments as in :func:`column_moments`.

    A band whose number of rows is a power of two, and at least a cell, is a complete subtree: merging bands pairwise
    with :func:`merge_tree` gives the same bits for every such band height.
    """
    if not F.shape[0]:
        return column_moments(F)
    size = cell_rows(F.shape[1], sparse=is_sparse(F))
    if is_sparse(F) and weights is None and compiles_tree(*F.shape) and _has_plain_entries(F):
        tree = import_module("daskfs.kernels.statistics.sparse_tree").sparse_tree
        return Moments(F.shape[0], *tree(F.data, F.indices, F.indptr, F.shape[1], size))
    cells = row_blocks(F.shape[0], size)
    return merge_tree(column_moments(F[rows], None if weights is None else weights[rows]) for rows in cells)


Part = TypeVar("Part")


def merge_tree(parts: Iterable[Part], merge: Callable[[Part, Part], Part] = merge_moments) -> Part:  # type: ignore[assignment]
    """Merge parts of consecutive rows pairwise with `merge` until one is left.

    At most as many parts are held at a time as the number of parts has binary digits.
    """
    waiting: list[tuple[int, Part]] = []  # complete subtrees with their heights, the highest first
    for part in parts:
        height, merged = 0, part
        while waiting and waiting[-1][0] == height:
            height, merged = height + 1, merge(waiting.pop()[1], merged)
        waiting.append((height, merged))
    _, merged = waiting.pop()
    while waiting:
        merged = merge(waiting.pop()[1], merged)
    return merged


class RowValues(Protocol):
    """A value for each row, float64: an array, or one in a store, of which rows are read."""

    def __getitem__(self, rows: slice, /) -> np.ndarray:
        """Return the values of some rows."""


def weighted_deviation(
    F: np.ndarray, weights: RowValues, passes: Passes = PLAIN, columns: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weighted mean, in two parts, and the weighted sum of squared deviations from it, (width,).

    For weights d this is (f'D1 / 1'D1, f~'D f~) of He, Cai and Niyogi (2005, section 3), computed from deviations,
    never as a difference of squares.

    Parameters
    ----------
    F
        Panel, shape (n_rows, n_columns), any real dtype.
    weights
        Shape (n_rows,), float64, non-negative, with a positive sum.
    passes
        Backend of the sums.
    columns
        Numbers of the columns, shape (width,); None for all. One block of rows is copied at a time.
    """
    width = F.shape[1] if columns is None else columns.size
    total, mean = 0.0, np.zeros(width)
    for block_weights, block in _weighted_blocks(F, weights, None, columns):
        total += float(block_weights.sum())
        mean += passes.weighted_sums(block, block_weights)[0]
    mean /= total
    residual, squares = np.zeros((2, width))
    for block_weights, block in _weighted_blocks(F, weights, None, columns):
        sums, squared = passes.deviation_sums(block, mean, block_weights)
        residual += sums[0]
        squares += squared[0]
    return centered(mean, residual, squares, total)


class CenteredSums:
    """Weighted means and sums of squared deviations under several weightings, in one pass.

    Deviations are taken from one center, near the expected means, and corrected for its distance from each mean. That
    costs a bit if the distance equals the spread of the values around the mean, and more beyond: such columns are
    flagged, for :func:`weighted_deviation`.

    Parameters
    ----------
    center
        Shape (width,), float64.
    n_weightings
        Number of weightings.
    passes
        Backend of the sums.
    """

    def __init__(self, center: np.ndarray, n_weightings: int, passes: Passes = PLAIN) -> None:
        self._center, self._passes = center, passes
        self._totals = np.zeros((n_weightings, 1))
        self._sums, self._squares = np.zeros((2, n_weightings, center.size))

    def add(self, F: np.ndarray, weights: np.ndarray) -> None:
        """Add rows of a panel, shape (n_rows, width), with their weights, shape (n_weightings, n_rows)."""
        self._totals += weights.sum(axis=1, keepdims=True)
        for rows in row_blocks(F.shape[0]):
            sums, squares = self._passes.deviation_sums(F[rows], self._center, weights[:, rows])
            self._sums += sums
            self._squares += squares

    def result(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return means in two parts, sums of squares, and True where the center was too far away, (..., width)."""
        means, squares = centered(self._center, self._sums, self._squares, self._totals)
        return means, squares, squares < self._squares / 2


@dataclass(frozen=True)
class ClassMoments:
    """Moments of each class: `counts` (rows or weight), shape (n_classes,); `shifts` and `m2`, (n_classes, width).

    `shifts` are the means of the classes without that of the first class with rows: no offset costs them a digit.
    """

    counts: np.ndarray
    shifts: np.ndarray
    m2: np.ndarray


GROUPED_BYTES = 28
"""Bytes for each row while rows are put in the order of their classes, or those with a target are collected."""


def class_moments(
    F: np.ndarray, codes: np.ndarray, n_classes: int, weights: np.ndarray | None = None, passes: Passes = PLAIN
) -> ClassMoments:
    """Return the two-pass moments of each class over the labeled rows.

    Parameters
    ----------
    F
        Panel, shape (n_rows, width), any real dtype.
    codes
        Shape (n_rows,), class codes from 0; -1 for unlabeled rows, which are left out.
    n_classes
        Number of classes.
    weights
        Frequency weights, shape (n_rows,), float64; None for 1 each.
    passes
        Backend of the sums.
    """
    labeled_rows = np.flatnonzero(codes >= 0).astype(index_dtype(codes.size))  # in half of the memory
    labeled_codes = codes[labeled_rows]
    counts = np.bincount(labeled_codes, None if weights is None else weights[labeled_rows], minlength=n_classes)
    stops = np.cumsum(np.bincount(labeled_codes, minlength=n_classes))
    order = labeled_rows[np.argsort(labeled_codes, kind="stable")]
    del labeled_rows, labeled_codes
    means, m2 = np.empty((2, n_classes, F.shape[1])), np.empty((n_classes, F.shape[1]))
    for code in range(n_classes):
        members = order[stops[code - 1] if code else 0 : stops[code]]
        moments = column_moments(F, None if weights is None else weights[members], passes, members)
        means[:, code] = moments.mean, moments.rest
        m2[code] = np.where(moments.is_constant, 0.0, moments.m2)
    shifts = (means - means[:, [np.argmax(counts > 0)]]).sum(axis=0)
    return ClassMoments(counts, shifts, m2)


@dataclass(frozen=True)
class TargetMoments:
    """Joint moments of each column with one target.

    `m2`, `comoment` and `is_constant` have shape (width,); `target_m2` is that of the target, and `count` the number of
    rows, or their weight.
    """

    count: float
    m2: np.ndarray
    target_m2: float
    comoment: np.ndarray
    is_constant: np.ndarray


def target_moments(
    F: np.ndarray,
    target: np.ndarray,
    weights: np.ndarray | None = None,
    passes: Passes = PLAIN,
    rows: np.ndarray | None = None,
) -> TargetMoments:
    """Return the joint two-pass moments of each column with a target.

    Parameters
    ----------
    F
        Panel, shape (n_rows, width), any real dtype.
    target
        Shape (n_rows,), float64, without missing values.
    weights
        Frequency weights, shape (n_rows,); None for 1 each.
    passes
        Backend of the sums.
    rows
        Row numbers: moments of ``F[rows]``, with target and weights of these.
    """
    moments, of_target = column_moments(F, weights, passes, rows), column_moments(target[:, None], weights, passes)
    comoment = np.zeros(F.shape[1])
    for part, block in _blocks(F, rows):
        deviation = target[part] - of_target.mean - of_target.rest
        products = deviation if weights is None else weights[part] * deviation
        comoment += passes.deviation_sums(block, moments.mean, products[None])[0][0]
    return TargetMoments(float(moments.count), moments.m2, float(of_target.m2[0]), comoment, moments.is_constant)
