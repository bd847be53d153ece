"""Rows in the space of a metric, and distances of pairs, measured in float64 from differences.

Rows with missing values (NaN) are compared on their shared columns: the sum of squared differences is scaled up to all
columns, as in scikit-learn's ``nan_euclidean_distances``. Rows that share no column are infinitely far apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block, column_extremes, is_sparse
from daskfs.kernels.missing import has_missing
from daskfs.kernels.neighbors.metrics import (
    ANGLES,
    CENTERED,
    DISTRIBUTIONS,
    LENGTHS,
    Metric,
    is_own,
    pair_lengths,
    split_metric,
)
from daskfs.kernels.scaling import inverse_or_zero, row_norms, squared_lengths
from daskfs.kernels.statistics.moments import row_blocks, rows_at_once

PAIR_ELEMENTS = 2**16
"""Values of one block of measured pairs: small enough for its buffers to stay in cache."""
SPARSE_PAIR_VALUES = 2**18
"""The same for sparse rows: large enough to outweigh the SciPy calls of each block."""
UNIT_ROW_NOISE = 1e-28
"""Squared distances of unit rows below this are rounding errors of the division by their norms."""
DISTANCES: dict[Metric, Callable[[np.ndarray], np.ndarray]] = {
    "euclidean": np.sqrt,
    "sqeuclidean": np.positive,
    **dict.fromkeys(("cosine", *CENTERED), lambda squares: squares / 2),
    **dict.fromkeys(("dot", "direct_cosine"), lambda squares: np.minimum(squares / 2, 1)),
    "true_angular": lambda squares: np.arccos(np.maximum(1 - squares / 2, -1)) / np.pi,
    "hellinger": lambda squares: np.sqrt(squares / 2),
}
"""Distances by a metric, from finite squared Euclidean distances of its rows."""
SMALLEST_SPREAD = 1e-150
"""Smallest spread that scales by its inverse: squares of this inverse are finite, and squares of smaller values are 0.
"""


@dataclass(frozen=True)
class Rows:
    """Rows prepared for the distance kernels.

    Attributes
    ----------
    values
        Rows in the space of the metric, shape (n_rows, n_columns), see :func:`as_metric_rows`.
    operand
        Factor of the matrix product. Dense rows: float32, (n_rows, n_columns + 2), with `squares` and 1 as last
        columns; under a metric of lengths shifted by `center` and multiplied by `scale`, so that the product neither
        overflows nor loses digits to a common offset. With missing values: (n_rows, n_columns), NaN included.
    squares
        Squared norms of the operand, shape (n_rows,), float64. Empty with missing values: each pair of rows has its
        own. Under pynndescent's functions both are not used.
    is_zero
        True for rows without a direction under a metric of angles, shape (n_rows,), bool. Such a row has square 1: it
        is orthogonal to every row, itself included, as in scikit-learn.
    """

    values: Block
    metric: Metric
    operand: Any
    squares: np.ndarray
    center: np.ndarray | None
    scale: float
    is_zero: np.ndarray | None
    has_missing: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.values.shape[0])

    @property
    def is_own(self) -> bool:
        """Whether distances follow from Euclidean distances; else pynndescent's function computes them."""
        return is_own(self.metric, is_sparse=is_sparse(self.values))

    def part(self, rows: slice | np.ndarray) -> Rows:
        """Return some of the rows, sharing memory where they are dense."""
        is_zero = None if self.is_zero is None else self.is_zero[rows]
        squares = self.squares if self.has_missing else self.squares[rows]
        return replace(self, values=self.values[rows], operand=self.operand[rows], squares=squares, is_zero=is_zero)


def as_metric_rows(X: Block, metric: Metric) -> tuple[Block, np.ndarray | None]:
    """Return the rows that a metric compares, and the mask of those without a direction, shape (n_rows,), bool.

    Under metrics of lengths these are X, and the mask is None. Under metrics of angles they are unit rows: of X, of
    square roots (hellinger), or of centered rows (correlation) or ranks (spearmanr). Other metrics compare X as floats.
    """
    if split_metric(metric)[0] in DISTRIBUTIONS and X.size and X.min() < 0:
        msg = f"metric '{metric}' compares distributions, and a row has the value {X.min():.6g}."
        raise InputError(msg)
    if metric in LENGTHS:
        return X, None
    if not is_own(metric, is_sparse=is_sparse(X)):
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        if not is_sparse(X):
            return np.ascontiguousarray(X, dtype), None
        X = X.astype(dtype)  # a copy, of which pynndescent needs sorted columns and no zeros
        X.sort_indices()
        X.eliminate_zeros()
        return X, None
    if metric == "hellinger":
        X = X.astype(np.float64).sqrt() if is_sparse(X) else np.sqrt(X, dtype=np.float64)
    elif metric in CENTERED:
        if metric == "spearmanr":
            from scipy.stats import rankdata  # which takes as long to import as the rest of SciPy

            X = rankdata(X, axis=1)
        is_constant = X.min(axis=1) == X.max(axis=1)  # whose mean may be rounded
        X = X - X.mean(axis=1, keepdims=True, dtype=np.float64)
        X[is_constant] = 0.0
    norms = row_norms(X)
    inverse = inverse_or_zero(norms)
    unit = sp.csr_matrix(sp.diags_array(inverse) @ X) if is_sparse(X) else X * inverse[:, None]
    return unit, norms == 0


def prepare_rows(X: Block, metric: Metric, like: Rows | None = None) -> Rows:
    """Prepare rows for the distance kernels.

    Parameters
    ----------
    X
        Dense (n_rows, n_columns) array of any real dtype, or CSR matrix; finite, or with NaN for missing values under
        "euclidean".
    metric
        Checked metric.
    like
        Rows that these will be compared with; they define the shift and scale of the operand.
    """
    if has_missing(X):
        assert metric == "euclidean"
        return _incomplete_rows(X, like)
    if not is_own(metric, is_sparse=is_sparse(X)):
        rows = metric_rows(X, metric)
        return replace(rows, operand=rows.values, squares=np.zeros(rows.n_rows))
    values, is_zero = as_metric_rows(X, metric)
    center, scale = (None, 1.0) if like is None else (like.center, like.scale)
    if is_sparse(values):
        operand: Any = values.astype(np.float64)
        squares = squared_lengths(operand)
    else:
        if like is None and metric in LENGTHS:
            center = values.mean(axis=0, dtype=np.float64)
            scale = _operand_scale(column_spread(values, center))
        operand, squares = operand_of(values, center, scale, np.float32)
    if is_zero is not None:
        squares = np.where(is_zero, 1.0, squares)
        if not is_sparse(values):
            operand[:, -2] = squares
    return Rows(values, metric, operand, squares, center, scale, is_zero)


def _incomplete_rows(X: Block, like: Rows | None) -> Rows:
    center, scale = (None, 1.0) if like is None else (like.center, like.scale)
    if is_sparse(X):
        operand: Any = X.astype(np.float64)
    else:
        if like is None:
            center = observed_means(X)
            scale = _operand_scale(column_spread(X, center))
        operand = np.empty(X.shape, np.float32)
        for rows in row_blocks(X.shape[0], rows_at_once(X.shape[1])):
            with np.errstate(over="ignore"):
                operand[rows] = shift_rows(X[rows], center, scale)
    return Rows(X, "euclidean", operand, np.empty(0), center, scale, None, has_missing=True)


def observed_means(X: np.ndarray) -> np.ndarray:
    """Return the mean of the observed values of each column, 0 if there is none; shape (n_columns,), float64."""
    total, count = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for rows in row_blocks(X.shape[0], rows_at_once(X.shape[1])):
        is_known = ~np.isnan(X[rows])
        total += X[rows].sum(axis=0, dtype=np.float64, where=is_known)
        count += np.count_nonzero(is_known, axis=0)
    return np.divide(total, count, out=total, where=count > 0)


def shift_rows(values: np.ndarray, center: np.ndarray | None, scale: float) -> np.ndarray:
    """Return a float64 copy of dense rows, minus `center`, shape (n_columns,), and times `scale`."""
    block = values.astype(np.float64)
    if center is not None:
        block -= center
        block *= scale
    return block


def prepare_sketch(block: np.ndarray, like: Rows | None = None) -> Rows:
    """Prepare rows whose last column is the squared length of the rest of the row, outside the other columns.

    `block` has shape (n_rows, n_columns + 1), float32. A product then gives the squared distance in the columns plus
    both rests: the expected squared distance if the directions of the rests are unknown.
    """
    rows = prepare_rows(block[:, :-1], "euclidean", like)
    rest = block[:, -1] * np.float32(rows.scale**2)
    rows.operand[:, -2] += rest
    return replace(rows, squares=rows.squares + rest)


def metric_rows(X: Block, metric: Metric) -> Rows:
    """Return rows that can be measured but not searched: they have no operand."""
    values, is_zero = as_metric_rows(X, metric)
    return Rows(values, metric, None, np.empty(0), None, 1.0, is_zero, has_missing(X))


def column_spread(values: np.ndarray, center: np.ndarray) -> float:
    """Return the largest distance of a dense value from the center of its column; 0 if no value is observed."""
    lowest, highest = column_extremes(values)
    return float(np.fmax.reduce(np.maximum(highest - center, center - lowest), initial=0.0))


def _operand_scale(spread: float) -> float:
    return 1.0 if spread == 0 or 1e-3 < spread < 1e9 else 1.0 / max(spread, SMALLEST_SPREAD)


def operand_of(
    values: np.ndarray, center: np.ndarray | None, scale: float, dtype: type[np.floating[Any]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return shifted and scaled rows with squared norms and 1 as last columns, and the squared norms, float64."""
    n_rows, n_columns = values.shape
    operand = np.empty((n_rows, n_columns + 2), dtype=dtype)
    body = operand[:, :-2]
    if values.dtype == dtype and scale == 1.0:
        np.subtract(values, 0 if center is None else center.astype(dtype), out=body)
    else:
        for rows in row_blocks(n_rows, rows_at_once(n_columns)):
            with np.errstate(over="ignore"):  # queries far from a base of tiny spread are bounded in float64
                body[rows] = shift_rows(values[rows], center, scale)
    with np.errstate(over="ignore"):
        operand[:, -2] = np.einsum("ij,ij->i", body, body)
    operand[:, -1] = 1
    return operand, operand[:, -2].astype(np.float64)


def squared_distances(
    a: Rows, a_index: np.ndarray, b: Rows, b_index: np.ndarray, *, compiles: bool = False
) -> np.ndarray:
    """Return the squared Euclidean distances of pairs ``a[a_index]``, ``b[b_index]``, shape (n_pairs,), float64.

    They are computed from differences of the metric's rows; under cosine half of it is 1 - cos. Infinite for rows that
    share no column. With `compiles`, complete dense rows are compared by a compiled loop. If pynndescent's function
    computes the distances, they are these themselves.
    """
    result = np.empty(a_index.shape[0])
    if not b.is_own:
        sparse = is_sparse(b.values)
        measure = pair_lengths(b.metric, b.values.shape[1], is_sparse=sparse)
        both: tuple[Any, Any] = a.values, b.values
        tail, head = ((part.indptr, part.indices, part.data) if sparse else part for part in both)
        measure(tail, a_index, head, b_index, result)
        return np.where(np.isnan(result), np.inf, result)
    may_miss = a.has_missing or b.has_missing
    if is_sparse(a.values) and is_sparse(b.values):
        values = max(a.values.nnz // max(a.n_rows, 1), b.values.nnz // max(b.n_rows, 1), 1)
        for pairs in row_blocks(a_index.shape[0], max(1, SPARSE_PAIR_VALUES // values)):
            difference = a.values[a_index[pairs]].astype(np.float64) - b.values[b_index[pairs]]
            n_missing = _clear_missing(difference) if may_miss else None
            result[pairs] = np.asarray(difference.multiply(difference).sum(axis=1)).ravel()
            if n_missing is not None:
                _extrapolate(result[pairs], n_missing, difference.shape[1])
    elif compiles and not may_miss and np.float16 not in (a.values.dtype, b.values.dtype):
        # numba takes half a second to load, which exact searches do without
        from daskfs.kernels.neighbors.nearest_lists import pair_squares

        pair_squares(a.values, a_index, b.values, b_index, result)
    else:
        n_columns = a.values.shape[1]
        per_block = max(1, min(PAIR_ELEMENTS // max(n_columns, 1), a_index.shape[0]))
        tails = np.empty((per_block, n_columns), a.values.dtype)
        heads = np.empty((per_block, n_columns), b.values.dtype)
        differences = np.empty((per_block, n_columns))
        for pairs in row_blocks(a_index.shape[0], per_block):
            n_pairs = pairs.stop - pairs.start
            tail, head, difference = tails[:n_pairs], heads[:n_pairs], differences[:n_pairs]
            a.values.take(a_index[pairs], axis=0, out=tail, mode="clip")  # mode "raise" would go through a copy
            b.values.take(b_index[pairs], axis=0, out=head, mode="clip")
            np.subtract(tail, head, out=difference, dtype=np.float64)
            n_missing = _clear_missing(difference) if may_miss else None
            np.einsum("ij,ij->i", difference, difference, out=result[pairs])
            if n_missing is not None:
                _extrapolate(result[pairs], n_missing, n_columns)
    if a.is_zero is not None and b.is_zero is not None:
        result[a.is_zero[a_index] | b.is_zero[b_index]] = 2.0
    return result


def _clear_missing(difference: Any) -> np.ndarray:
    """Replace NaN by 0 in place, and return the number of NaN in each row."""
    if not is_sparse(difference):
        is_missing = np.isnan(difference)
        np.copyto(difference, 0.0, where=is_missing)
        return np.count_nonzero(is_missing, axis=1)
    missing = np.flatnonzero(np.isnan(difference.data))
    difference.data[missing] = 0.0
    return np.diff(np.searchsorted(missing, difference.indptr))


def _extrapolate(sums: np.ndarray, n_missing: np.ndarray, n_columns: int) -> None:
    """Scale sums over the columns that two rows share up to all columns, in place; infinite if they share none."""
    n_shared = n_columns - n_missing
    sums *= n_columns / np.maximum(n_shared, 1)
    sums[n_shared == 0] = np.inf


def measured_squares(
    a: Rows, a_index: np.ndarray, b: Rows, b_index: np.ndarray, *, compiles: bool = False
) -> np.ndarray:
    """Return :func:`squared_distances`, with exactly 0 for unit rows that point the same way."""
    squares = squared_distances(a, a_index, b, b_index, compiles=compiles)
    if b.metric in ANGLES and b.is_own:
        squares[squares < UNIT_ROW_NOISE] = 0.0
    return squares


def metric_distances(squares: np.ndarray, rows: Rows) -> np.ndarray:
    """Convert what :func:`measured_squares` returns to distances of the metric, float64."""
    if not rows.is_own:
        return squares
    return np.where(np.isfinite(squares), DISTANCES[rows.metric](squares), np.inf)
