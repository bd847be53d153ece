"""Exact nearest neighbours of some rows among others.

One matrix product bounds every distance from below and above; only pairs whose lower bound does not exceed the k-th
smallest upper bound are then measured directly, in float64, from differences of the rows. So the result is exact
whatever the offset of the data, while nearly all the work is a float32 product. Neighbours whose squared distances
agree to 40 bits count as tied and go by the lower row number: round-off, the order of columns or a sparse
representation cannot change the graph.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.moments import row_blocks, rows_at_once
from daskfs.kernels.scaling import inverse_or_zero, row_norms

Metric = Literal["euclidean", "cosine"]
METRICS: tuple[Metric, ...] = ("euclidean", "cosine")

TILE_BYTES = 2**25
PAIR_ELEMENTS = 2**21
TIE_BITS = 40
UNIT_ROW_NOISE = 1e-28
"""Squared distance of two unit rows that point the same way: rounding in the division by their norms, nothing else."""
CLOSE_BOUNDS = 1e-9
"""In a crowd of candidates, squared distances whose bounds agree to this share of them count as tied."""
MAX_TIES = 1024
"""Where more rows than this are tied at the k-th distance, only the lowest-numbered ones are measured."""


@dataclass(frozen=True)
class Rows:
    """Rows ready for the distance kernels.

    `values` (n_rows, n_columns) are the rows as the metric sees them: divided by their norm under cosine. `operand` is
    what goes into the matrix product: for dense Euclidean rows float32, shifted by `center` and multiplied by `scale`
    so that the product neither overflows nor drowns in a common offset. `squares` (n_rows,) are the operand's squared
    norms. Under cosine an all-zero row, marked in `is_zero`, has square 1: it is orthogonal to everything, itself
    included, as in scikit-learn.
    """

    values: Block
    metric: Metric
    operand: Any
    squares: np.ndarray
    center: np.ndarray | None
    scale: float
    is_zero: np.ndarray | None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.values.shape[0])

    def part(self, rows: slice | np.ndarray) -> Rows:
        """Return some of the rows, sharing memory where they are dense."""
        is_zero = None if self.is_zero is None else self.is_zero[rows]
        return replace(
            self, values=self.values[rows], operand=self.operand[rows], squares=self.squares[rows], is_zero=is_zero
        )


def as_metric_rows(X: Block, metric: Metric) -> tuple[Block, np.ndarray | None]:
    """Return the rows as the metric sees them and, under cosine, which of them are all zero."""
    if metric == "euclidean":
        return X, None
    norms = row_norms(X)
    inverse = inverse_or_zero(norms)
    unit = sp.csr_matrix(sp.diags_array(inverse) @ X) if is_sparse(X) else X * inverse[:, None]
    return unit, norms == 0


def prepare_rows(X: Block, metric: Metric, like: Rows | None = None) -> Rows:
    """Make rows ready for the kernels.

    Parameters
    ----------
    X
        Dense (n_rows, n_columns) array of any real dtype, or CSR matrix; finite.
    metric
        "euclidean" or "cosine".
    like
        Rows that these will be compared with; gives the shift and scale of the operand.
    """
    values, is_zero = as_metric_rows(X, metric)
    center, scale = None, 1.0
    if is_sparse(values):
        operand: Any = values.astype(np.float64)
        squares = np.asarray(operand.multiply(operand).sum(axis=1)).ravel()
    else:
        if like is not None:
            center, scale = like.center, like.scale
        elif metric == "euclidean":
            center = values.mean(axis=0, dtype=np.float64)
            scale = _operand_scale(values, center)
        operand = _operand(values, center, scale, np.float32)
        squares = np.einsum("ij,ij->i", operand, operand, dtype=np.float64)
    if is_zero is not None:
        squares = np.where(is_zero, 1.0, squares)
    return Rows(values, metric, operand, squares, center, scale, is_zero)


def _operand_scale(values: np.ndarray, center: np.ndarray) -> float:
    spread = np.maximum(values.max(axis=0) - center, center - values.min(axis=0)).max(initial=0.0)
    return 1.0 / float(spread) if spread > 0 else 1.0


def _operand(values: np.ndarray, center: np.ndarray | None, scale: float, dtype: type[np.floating[Any]]) -> np.ndarray:
    operand = np.empty(values.shape, dtype=dtype)
    for rows in row_blocks(values.shape[0], rows_at_once(values.shape[1])):
        block = values[rows].astype(np.float64)
        if center is not None:
            block -= center
            block *= scale
        with np.errstate(over="ignore"):  # queries far from a base of tiny spread: float64 will serve them
            operand[rows] = block
    return operand


def squared_distances(a: Rows, a_index: np.ndarray, b: Rows, b_index: np.ndarray) -> np.ndarray:
    """Return the squared Euclidean distances of the metric's rows ``a[a_index]`` and ``b[b_index]``, pair by pair, in
    float64.

    Under cosine half of it is 1 - cos. Computed from differences; shape (n_pairs,).
    """
    result = np.empty(a_index.shape[0])
    sparse = is_sparse(a.values)
    per_chunk = 16384 if sparse else max(1, PAIR_ELEMENTS // max(a.values.shape[1], 1))
    for start in range(0, a_index.shape[0], per_chunk):
        chunk = slice(start, start + per_chunk)
        difference = a.values[a_index[chunk]].astype(np.float64) - b.values[b_index[chunk]]
        if sparse:
            result[chunk] = np.asarray(difference.multiply(difference).sum(axis=1)).ravel()
        else:
            result[chunk] = np.einsum("ij,ij->i", difference, difference)
    if a.is_zero is not None and b.is_zero is not None:
        result[a.is_zero[a_index] | b.is_zero[b_index]] = 2.0
    return result


def metric_distances(squares: np.ndarray, metric: Metric) -> np.ndarray:
    """Turn squared Euclidean distances of the metric's rows into distances: their root, or 1 - cos."""
    return squares / 2 if metric == "cosine" else np.sqrt(squares)


def order_with_ties(query: np.ndarray, squares: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Return the order of pairs by query, then squared distance, then candidate.

    Squared distances of one query that follow each other within 2**-40 are tied, so that values which differ by
    round-off only never decide. Rounding each of them to 40 bits would not do: two such values can lie on either side
    of a rounding boundary.
    """
    order = np.lexsort((squares, query))
    lengths, owners = squares[order], query[order]
    starts = np.ones(order.size, dtype=bool)
    starts[1:] = (owners[1:] != owners[:-1]) | (lengths[1:] > lengths[:-1] * (1 + 2.0**-TIE_BITS))
    return order[np.lexsort((candidate[order], np.cumsum(starts)))]


def exact_neighbors(
    queries: Rows, query_ids: np.ndarray, base: Rows, base_start: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the `k` nearest rows of `base` for each query.

    Parameters
    ----------
    queries
        Rows to find neighbours for, prepared ``like`` the base (or a part of it).
    query_ids
        Row numbers of the queries, shape (n_queries,). A base row with the same number is not its own neighbour.
    base
        Rows to search; row i has the number ``base_start + i``.
    base_start
        Number of the first base row.
    k
        Number of neighbours wanted.

    Returns
    -------
    indices, distances
        Shape (n_queries, k), int64 and float64, nearest first, ties by row number. Where the base holds fewer than k
        other rows, the rest is -1 and inf.
    """
    indices = np.full((queries.n_rows, k), -1, dtype=np.int64)
    distances = np.full((queries.n_rows, k), np.inf)
    per_tile = tile_rows(base.n_rows, int(base.values.shape[1]), is_sparse(base.values))
    for start in range(0, queries.n_rows, per_tile):
        rows = slice(start, min(start + per_tile, queries.n_rows))
        indices[rows], distances[rows] = _tile_neighbors(queries.part(rows), query_ids[rows], base, base_start, k)
    return indices, distances


def tile_rows(n_base: int, n_columns: int, sparse: bool) -> int:
    """Return how many queries go through one matrix product, so that its result stays near 32 MiB."""
    row_bytes = 8 * (n_base + n_columns) if sparse else 4 * n_base
    return int(np.clip(TILE_BYTES // max(row_bytes, 1), 8, 1024))


def _tile_neighbors(
    queries: Rows, query_ids: np.ndarray, base: Rows, base_start: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    own = query_ids - base_start
    k_found = min(k, base.n_rows)
    indices = np.full((queries.n_rows, k), -1, dtype=np.int64)
    distances = np.full((queries.n_rows, k), np.inf)
    query, candidate = _candidates(queries, base, own, k_found)
    squares = squared_distances(queries, query, base, candidate)
    if base.metric == "cosine":
        squares[squares < UNIT_ROW_NOISE] = 0.0
    order = order_with_ties(query, squares, candidate)
    found = np.bincount(query, minlength=queries.n_rows)[:, None]
    place = np.arange(k_found)[None, :]
    row, column = np.nonzero(place < found)
    best = order[(np.cumsum(found) - found[:, 0])[row] + column]
    indices[row, column] = candidate[best] + base_start
    distances[row, column] = metric_distances(squares[best], base.metric)
    return indices, distances


def _candidates(queries: Rows, base: Rows, own: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs (query, base row), sorted by both, that include the k nearest other rows of every query.

    Queries to which float32 leaves too many candidates are bounded again in float64, those alone.
    """
    if is_sparse(base.values) or not (_float32_serves(queries) and _float32_serves(base)):
        mask = _bounded_wide(queries, base, own, k)
    else:
        mask = _bounded(queries, base, own, k, np.float32)
        loose = np.flatnonzero(mask.sum(axis=1) > 4 * k + 64)
        if loose.size:
            mask[loose] = _bounded_wide(queries.part(loose), base, own[loose], k)
    query, candidate = np.nonzero(mask)
    return query, candidate


def _bounded_wide(queries: Rows, base: Rows, own: np.ndarray, k: int) -> np.ndarray:
    """Bound in float64, half a tile at a time, so that it takes no more room than float32 does."""
    half = max(1, TILE_BYTES // (8 * max(base.n_rows, 1)))
    parts = [slice(start, start + half) for start in range(0, queries.n_rows, half)]
    return np.concatenate([_bounded(queries.part(rows), base, own[rows], k, np.float64) for rows in parts])


def _float32_serves(rows: Rows) -> bool:
    """Return whether squares of the operand stay far from where float32 overflows or loses digits to subnormals."""
    positive = rows.squares[rows.squares > 0]
    return positive.size == 0 or bool(positive.min() > 1e-30 and positive.max() < 1e30)


def _bounded(queries: Rows, base: Rows, own: np.ndarray, k: int, dtype: type[np.floating[Any]]) -> np.ndarray:
    """Return which base rows may be among the k nearest others of each query, shape (n_queries, n_base)."""
    own_rows = np.flatnonzero((own >= 0) & (own < base.n_rows))
    own = own[own_rows]
    lower, sums = _products(queries, base, dtype)
    # Rounding grows with the square root of the number of terms. The largest error seen, on offset, integer and
    # Gaussian data of 2 to 40,000 columns, is 7 eps of the sum of squares; the bound is four times that at 100 columns
    # and more above.
    precision = np.finfo(lower.dtype).eps * (16 + 2 * np.sqrt(base.values.shape[1]))
    lower *= -2
    lower += sums
    sums *= precision
    lower[own_rows, own] = np.inf
    upper = lower + sums
    upper.partition(k - 1, axis=1)
    bound = upper[:, k - 1].copy()
    del upper
    lower -= sums
    mask = lower <= bound[:, None]
    mask[own_rows, own] = False
    if lower.dtype == np.float64:  # in float32 these rows are not settled yet
        for row in np.flatnonzero(mask.sum(axis=1) > k + MAX_TIES):
            found = np.flatnonzero(mask[row])
            kept = _thinned(queries, int(row), base, found, lower[row, found], sums[row, found], bound[row], k)
            mask[row] = False
            mask[row, kept] = True
    return mask


def _thinned(
    queries: Rows, row: int, base: Rows, found: np.ndarray, lower: np.ndarray, width: np.ndarray, bound: float, k: int
) -> np.ndarray:
    """Return, of very many candidates, those surely nearer than the k-th and the lowest-numbered of the tied rest.

    Where the bounds are too loose to show a tie, the candidates are measured.
    """
    if 4 * width.max() > CLOSE_BOUNDS * bound:
        found, lower = _measured(queries, row, base, found, k)
        bound = float(np.partition(lower, k - 1)[k - 1])
        width = np.full(found.size, bound * 2.0**-TIE_BITS)
    nearer = lower + 4 * width < bound
    tied = ~nearer & (lower <= bound + width)
    return np.concatenate([found[nearer], found[tied][:MAX_TIES]])


def _measured(queries: Rows, row: int, base: Rows, found: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return candidates with their squared distances, no further than needed to see k of them at distance 0."""
    zero = UNIT_ROW_NOISE if base.metric == "cosine" else 0.0
    squares = np.empty(0)
    while squares.size < found.size and np.count_nonzero(squares <= zero) < k:
        part = found[squares.size : squares.size + 4 * MAX_TIES]
        squares = np.concatenate([squares, squared_distances(queries, np.full(part.size, row), base, part)])
    return found[: squares.size], squares


def _products(queries: Rows, base: Rows, dtype: type[np.floating[Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Return inner products and sums of squared norms of every pair of operand rows."""
    if is_sparse(base.operand):
        products = np.ascontiguousarray((base.operand @ queries.operand.toarray().T).T)
        return products, queries.squares[:, None] + base.squares[None, :]
    if dtype is np.float32:
        sums = queries.squares.astype(np.float32)[:, None] + base.squares.astype(np.float32)[None, :]
        return queries.operand @ base.operand.T, sums
    products = np.empty((queries.n_rows, base.n_rows))
    sums = np.empty_like(products)
    q, q_squares = _wide_operand(queries)
    for columns in row_blocks(base.n_rows, rows_at_once(int(base.values.shape[1]))):
        b, b_squares = _wide_operand(base.part(columns))
        products[:, columns] = q @ b.T
        sums[:, columns] = q_squares[:, None] + b_squares[None, :]
    return products, sums


def _wide_operand(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    operand = _operand(rows.values, rows.center, rows.scale, np.float64)
    squares = np.einsum("ij,ij->i", operand, operand)
    return operand, squares if rows.is_zero is None else np.where(rows.is_zero, 1.0, squares)
