"""Bounds on the squared distances of all pairs of some rows, from matrix products.

Notes
-----
A product is fast but rounded: it bounds the squared distance of each pair, which shows the pairs to measure.

Missing values take three products. With 0 in the place of missing values, and M the mask of the others, the squares of
both rows over their shared columns are ``(A * A) M' + M (B * B)'``, their inner product is ``A B'``, and the number of
these columns ``M M'``. Sparse rows have few missing values in addition to their implicit zeros, so there the columns
where either row misses one are subtracted from all columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.neighbors.rows import Rows, operand_of, shift_rows, squared_distances
from daskfs.kernels.statistics.moments import row_blocks, rows_at_once

TILE_BYTES = 2**25
TILE_ROWS = (8, 1024)
"""Minimum and maximum number of queries of one product."""
GROUP = 16
"""Columns of a tile that share one minimum when the k-th smallest is bounded."""
SHARED_STEPS = 16
"""Sparse entries that a product with dense rows processes in the time a sparse product takes for one shared column."""
DENSE_SHARE, DENSE_COLUMNS = 0.06, 2**15
"""Share of values above which sparse rows are made dense for products, and maximum number of columns for that."""
DENSE_VALUES = 2**21
"""Values of the base rows that are made dense at a time, 8 MiB."""
PART_ELEMENTS = 2**19
"""Pairs of incomplete rows that are bounded at a time: few enough for their arrays to stay in cache."""
BOUND_ROWS = (64, 4096)
TIED = 2.0**-39
"""Squared distances that are larger by this share are no longer tied."""


def tile_rows(queries: Rows, base: Rows) -> int:
    """Return the number of queries of one matrix product, such that its result stays near 32 MiB."""
    n_base, n_columns = base.values.shape
    may_miss = queries.has_missing or base.has_missing
    if is_sparse(base.values):  # incomplete rows also need norms and column counts
        row_bytes = (3 if may_miss else 1) * 8 * (n_base + n_columns)
    else:
        row_bytes = max(4 * n_base, 16 * n_columns) if may_miss else 4 * n_base
    return int(np.clip(TILE_BYTES // max(row_bytes, 1), *TILE_ROWS))


def part_rows(n_queries: int, n_columns: int) -> int:
    """Return the number of base rows that are bounded at a time if rows are incomplete."""
    return int(np.clip(PART_ELEMENTS // max(n_queries, n_columns, 1), *BOUND_ROWS))


def float32_serves(queries: Rows, base: Rows) -> bool:
    """Return whether the first product may be in float32.

    It may for dense rows, and sparse ones that are worth to be made dense, whose squares are far from overflow and from
    subnormal numbers; and for incomplete dense rows, whose bounds cover what each pair loses; but not where
    pynndescent's function computes the distances.
    """
    may_miss = queries.has_missing or base.has_missing
    if not base.is_own:
        return False
    if is_sparse(base.values) and (may_miss or not dense_pays(base.values.nnz, *base.values.shape)):
        return False
    return may_miss or (_keeps_digits(queries) and _keeps_digits(base))


def dense_pays(nnz: int, n_rows: int, n_columns: int) -> bool:
    """Return whether products of sparse rows take less time if some rows at a time are made dense, in float32."""
    return bool(nnz > DENSE_SHARE * n_rows * n_columns and n_columns <= DENSE_COLUMNS)


def _keeps_digits(rows: Rows) -> bool:
    positive = rows.squares[rows.squares > 0]
    return positive.size == 0 or bool(positive.min() > 1e-30 and positive.max() < 1e30)


def tile_buffer(queries: Rows, base: Rows, n_queries: int) -> np.ndarray:
    """Return a float32 buffer for :func:`narrow_bounds` of `n_queries` queries."""
    layers = 2 if queries.has_missing or base.has_missing else 1
    return np.empty((layers, n_queries, base.n_rows), np.float32)


def narrow_bounds(queries: Rows, base: Rows, buffer: np.ndarray) -> Products | IncompleteProducts:
    """Return bounds from products in float32, which are held in a buffer of :func:`tile_buffer`."""
    out = buffer[:, : queries.n_rows]
    if queries.has_missing or base.has_missing:
        return _dense_incomplete(queries, base, out)
    if is_sparse(base.values):
        products = _densified_products(queries, base, out[0])
    else:
        products = np.matmul(_as_query(queries.operand), base.operand.T, out=out[0])
    return Products(products, queries.squares, base.squares, _precision(products.dtype, int(base.values.shape[1])))


def wide_rows(queries: Rows, base: Rows) -> int:
    """Return the number of queries for which :func:`wide_bounds` takes no more memory than a tile."""
    layers = 2 if queries.has_missing or base.has_missing else 1
    return max(1, TILE_BYTES // (8 * layers * max(base.n_rows, 1)))


def wide_bounds(queries: Rows, base: Rows) -> Products | IncompleteProducts:
    """Return bounds from products in float64, or the distances themselves if pynndescent's function computes them."""
    if not base.is_own:
        lengths = all_distances(queries, base)
        return IncompleteProducts(lengths, lengths)
    if queries.has_missing or base.has_missing:
        if is_sparse(base.values):
            return _sparse_incomplete(queries.operand, base.operand)
        return _dense_incomplete(queries, base, np.empty((2, queries.n_rows, base.n_rows)))
    products, squares = _wide_products(queries, base)
    return Products(products, squares, base.squares, _precision(products.dtype, int(base.values.shape[1])))


def all_distances(queries: Rows, base: Rows) -> np.ndarray:
    """Return :func:`squared_distances` of all pairs, shape (n_queries, n_base), float64."""
    lengths, every = np.empty((queries.n_rows, base.n_rows)), np.arange(base.n_rows)
    for row in range(queries.n_rows):
        lengths[row] = squared_distances(queries, np.broadcast_to(row, every.shape), base, every)
    return lengths


def tile_bounds(queries: Rows, base: Rows) -> Products | IncompleteProducts:
    """Return bounds of at most :func:`tile_rows` queries, from products in float32 where it serves."""
    if float32_serves(queries, base):
        return narrow_bounds(queries, base, tile_buffer(queries, base, queries.n_rows))
    return wide_bounds(queries, base)


@dataclass(frozen=True)
class Products:
    """Squared distances of complete rows up to rounding.

    `products` has shape (n_queries, n_base). `query_squares` and `base_squares` are squared norms; `p` is the maximum
    error of a product as a share of the sum of both.
    """

    products: np.ndarray
    query_squares: np.ndarray
    base_squares: np.ndarray
    p: float

    def nearest(self, own_positions: np.ndarray, k: int) -> np.ndarray:
        """Return a mask of base rows that may be among the k nearest others.

        Rounding is at most ``p (|q|**2 + |b|**2)``, and b at distance d has ``|b|**2 <= 2 |q|**2 + 2 d**2``, so a row's
        own square and its k-th smallest product bound everything.
        """
        products, p = self.products, self.p
        own_rows = _own_rows(own_positions, products.shape[1])
        products[own_rows, own_positions[own_rows]] = np.inf
        reach = (_kth_smallest(products, k) + 3 * p * self.query_squares) / (1 - 2 * p)
        mask = products <= _limit(reach, self.query_squares, p, products.dtype)[:, None]
        mask[own_rows, own_positions[own_rows]] = False
        return mask

    def squares(self, query: Any, candidate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the squared distances of some pairs and their maximum errors."""
        squares = self.products.ravel().take(query * self.products.shape[1] + candidate).astype(np.float64)
        return squares, self.p * (self.query_squares[query] + self.base_squares[candidate])

    def as_products(self) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Return products, no half widths, and the terms of queries and base rows in the error of a product."""
        errors = self.p * self.query_squares, self.p * self.base_squares
        return self.products, np.empty((0, 0), self.products.dtype), errors


@dataclass(frozen=True)
class IncompleteProducts:
    """Bounds on the squared distances of rows with missing values, shape (n_queries, n_base) each.

    Both are infinite for two rows that share no column.
    """

    lower: np.ndarray
    upper: np.ndarray

    def nearest(self, own_positions: np.ndarray, k: int) -> np.ndarray:
        """Return a mask of base rows that may be among the k nearest others, or tie with them."""
        own_rows = _own_rows(own_positions, self.upper.shape[1])
        self.lower[own_rows, own_positions[own_rows]] = self.upper[own_rows, own_positions[own_rows]] = np.inf
        kth, most = _kth_smallest(self.upper, k), np.finfo(self.lower.dtype).max
        # rounded up but finite: the reach includes no infinite distance
        reach = np.clip(kth + np.abs(kth) * TIED, -most, most).astype(self.lower.dtype)
        return np.nextafter(reach, most)[:, None] >= self.lower

    def squares(self, query: Any, candidate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the squared distances of some pairs and their maximum errors."""
        lower, upper = (values[query, candidate].astype(np.float64) for values in (self.lower, self.upper))
        error = (upper - lower) / 2
        return np.where(np.isfinite(error), lower + error, 0.0), error

    def as_products(self) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Return lower bounds, half the widths of the bounds, and no further errors of queries and base rows."""
        with np.errstate(invalid="ignore"):  # rows that share no column are infinitely far apart
            half_widths = (self.upper - self.lower) / 2
        return self.lower, half_widths, (np.zeros(len(self.lower)), np.zeros(self.lower.shape[1]))


def _own_rows(own_positions: np.ndarray, n_base: int) -> np.ndarray:
    return np.flatnonzero((own_positions >= 0) & (own_positions < n_base))


def _limit(reach: np.ndarray, squares: np.ndarray, p: float, dtype: np.dtype[Any]) -> np.ndarray:
    """Return an upper bound on the product of a row and any row within the squared distance `reach`."""
    with np.errstate(over="ignore"):
        return np.nextafter((reach * (1 + 2 * p) + 3 * p * squares).astype(dtype), np.inf, dtype=dtype)


def _precision(dtype: np.dtype[Any], n_columns: int) -> float:
    """Return the maximum error of a product as a share of the sum of squares.

    Rounding grows with the square root of the number of terms. The largest error seen, on offset, integer and Gaussian
    data of 2 to 40,000 columns, is 7 eps of the sum of squares; the bound is six times that at 100 columns and more
    above.
    """
    return float(np.finfo(dtype).eps) * (24 + 2 * np.sqrt(n_columns))


def _kth_smallest(values: np.ndarray, k: int) -> np.ndarray:
    """Return a close upper bound of the k-th smallest value of each row, shape (n_rows,), float64.

    The k-th smallest of the group minima is one: k groups hold a value that is no larger. Only these minima are sorted.
    """
    n_rows, width = values.shape
    group = min(GROUP, width // (8 * k))
    if group > 1:
        values = values[:, : width // group * group].reshape(n_rows, group, width // group).min(axis=1)
        values.partition(k - 1, axis=1)
    else:
        values = np.partition(values, k - 1, axis=1)
    return values[:, k - 1].astype(np.float64)


# ------------------------------------------------------------------------------ complete rows
def _as_query(operand: np.ndarray) -> np.ndarray:
    """Return the left factor whose product with an operand is |q|**2 + |b|**2 - 2 qb."""
    query = operand * operand.dtype.type(-2)
    query[:, -2], query[:, -1] = 1, operand[:, -2]
    return query


def _wide_products(queries: Rows, base: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return d**2 of every pair of rows, shape (n_queries, n_base), and |q|**2, both in float64."""
    if is_sparse(base.operand):
        products = _sparse_products(queries.operand, base.operand)
        products *= -2
        products += base.squares
        products += queries.squares[:, None]
        return products, queries.squares
    products = np.empty((queries.n_rows, base.n_rows))
    q = _wide_operand(queries)
    squares = q[:, -2].copy()
    q = _as_query(q)
    for columns in row_blocks(base.n_rows, rows_at_once(int(base.values.shape[1]))):
        np.matmul(q, _wide_operand(base.part(columns)).T, out=products[:, columns])
    return products, squares


def _sparse_products(queries: sp.csr_matrix, base: sp.csr_matrix) -> np.ndarray:
    """Return the inner products of sparse rows, shape (n_queries, n_base), float64, C order.

    A product of two sparse matrices takes a step per column that two rows share; it is used if these are few. Otherwise
    the queries are made dense, for a much shorter step per entry of the base. Of very many columns only those that the
    side with fewer values has are looked at.
    """
    if base.shape[1] > min(base.nnz, queries.nnz):
        indices = np.sort((base if base.nnz < queries.nnz else queries).indices)
        columns = indices[np.diff(indices, prepend=-1) > 0]
        base, queries = _of_columns(base, columns), _of_columns(queries, columns)
    in_base, in_queries = (np.bincount(rows.indices, minlength=rows.shape[1]) for rows in (base, queries))
    shared = float(in_base @ in_queries.astype(np.float64))
    if SHARED_STEPS * shared < float(base.nnz) * queries.shape[0]:
        return np.ascontiguousarray((base @ queries.T.tocsr()).toarray().T)
    return np.ascontiguousarray((base @ queries.toarray().T).T)


def _densified_products(queries: Rows, base: Rows, out: np.ndarray) -> np.ndarray:
    """Return d**2 of every pair of sparse rows in `out`, float32, from dense products of some base rows at a time."""
    query = queries.operand.astype(np.float32).toarray()
    query *= np.float32(-2)
    for rows in row_blocks(base.n_rows, max(1, DENSE_VALUES // query.shape[1])):
        np.matmul(query, base.operand[rows].astype(np.float32).toarray().T, out=out[:, rows])
    out += base.squares.astype(np.float32)
    out += queries.squares.astype(np.float32)[:, None]
    return out


def _of_columns(rows: sp.csr_matrix, columns: np.ndarray) -> sp.csr_matrix:
    """Return some columns of sparse rows, by ascending numbers."""
    place = np.searchsorted(columns, rows.indices)
    entries = np.flatnonzero(place < columns.size)
    entries = entries[columns[place[entries]] == rows.indices[entries]]
    starts = np.searchsorted(entries, rows.indptr)
    return sp.csr_matrix((rows.data[entries], place[entries], starts), shape=(rows.shape[0], columns.size))


def _wide_operand(rows: Rows) -> np.ndarray:
    operand, squares = operand_of(rows.values, rows.center, rows.scale, np.float64)
    if rows.is_zero is not None:
        operand[:, -2] = np.where(rows.is_zero, 1.0, squares)
    return operand


# ---------------------------------------------------------------------------- incomplete rows
def _dense_incomplete(queries: Rows, base: Rows, out: np.ndarray) -> IncompleteProducts:
    """Bound the distances in the dtype of `out`, shape (2, n_queries, n_base), one part of the base at a time."""
    lower, upper = out
    n_columns, dtype = int(base.values.shape[1]), out.dtype
    p = _precision(dtype, n_columns)
    # values below the smallest normal number are lost, once per column in each product
    dropped = dtype.type(4 * n_columns * np.finfo(dtype).tiny)
    query, is_observed = _without_missing(_incomplete_operand(queries, dtype))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        both = np.concatenate([query * query, is_observed], axis=1)
        for part in row_blocks(base.n_rows, part_rows(queries.n_rows, n_columns)):
            rows, seen_base = _without_missing(_incomplete_operand(base.part(part), dtype))
            norms = both @ np.concatenate([seen_base, rows * rows], axis=1).T
            squares = query @ (rows * dtype.type(-2)).T
            squares += norms
            norms *= dtype.type(p)
            norms += dropped
            shared = is_observed @ seen_base.T
            factors = np.divide(dtype.type(n_columns), shared, out=shared)
            np.multiply(squares - norms, factors, out=lower[:, part])
            np.multiply(squares + norms, factors, out=upper[:, part])
            _settle(lower[:, part], upper[:, part], np.isinf(factors))
    return IncompleteProducts(lower, upper)


def _incomplete_operand(rows: Rows, dtype: np.dtype[Any]) -> np.ndarray:
    if dtype == np.float64:
        return shift_rows(rows.values, rows.center, rows.scale)
    operand: np.ndarray = rows.operand
    return operand if rows.has_missing else operand[:, :-2]


def _without_missing(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values with NaN replaced by 0, and the mask of the others as 1 and 0 in the same dtype."""
    is_seen = ~np.isnan(values)
    return np.where(is_seen, values, values.dtype.type(0)), is_seen.astype(values.dtype)


def _sparse_incomplete(queries: sp.csr_matrix, base: sp.csr_matrix) -> IncompleteProducts:
    """Bound the distances of sparse rows in float64, by the columns in which one of them has NaN."""
    n_columns = base.shape[1]
    (query, query_missing), (rows, missing) = _sparse_parts(queries), _sparse_parts(base)
    query_squared, squared = query.multiply(query).tocsr(), rows.multiply(rows).tocsr()
    norms = _row_totals(query_squared)[:, None] + _row_totals(squared)[None, :]
    squares = _sparse_products(query, rows)
    squares *= -2
    squares += norms
    factors = n_columns - _row_totals(query_missing)[:, None] - _row_totals(missing)[None, :]
    for a, b, into, sign in (
        (query_squared, missing, squares, -1),
        (query_missing, squared, squares, -1),
        (query_missing, missing, factors, 1),
    ):
        if a.nnz and b.nnz:
            into += sign * _sparse_products(a, b)
    norms *= _precision(norms.dtype, n_columns)
    norms += 4 * n_columns * np.finfo(np.float64).tiny
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        np.divide(n_columns, factors, out=factors)
        upper = (squares + norms) * factors
        squares -= norms
        squares *= factors
    _settle(squares, upper, np.isinf(factors))
    return IncompleteProducts(squares, upper)


def _sparse_parts(rows: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Return sparse rows with NaN replaced by 0, and a matrix with 1 for each NaN."""
    is_missing = np.isnan(rows.data)
    values = sp.csr_matrix((np.where(is_missing, 0.0, rows.data), rows.indices, rows.indptr), shape=rows.shape)
    starts = np.searchsorted(np.flatnonzero(is_missing), rows.indptr)
    missing = sp.csr_matrix((np.ones(starts[-1]), rows.indices[is_missing], starts), shape=rows.shape)
    return values, missing


def _row_totals(rows: sp.csr_matrix) -> np.ndarray:
    return np.asarray(rows.sum(axis=1)).ravel()


def _settle(lower: np.ndarray, upper: np.ndarray, shares_nothing: np.ndarray) -> None:
    """Set overflowed bounds to -inf and inf, and both bounds of rows that share no column to inf, in place."""
    if not np.isfinite(upper.max(initial=0.0)):
        is_unknown = ~np.isfinite(upper) | ~np.isfinite(lower)
        lower[is_unknown], upper[is_unknown] = -np.inf, np.inf
        lower[shares_nothing] = np.inf
