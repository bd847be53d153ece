"""Exact nearest neighbours of some rows among others.

One matrix product bounds every distance; only pairs that may be among the k nearest are then measured directly, in
float64, from differences of the rows. So the result is exact
whatever the offset of the data, while nearly all the work is a float32 product. Neighbours whose squared distances
agree to 40 bits count as tied and go by the lower row number: round-off, the order of columns or a sparse
representation cannot change the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
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
PAIR_ELEMENTS = 2**16
"""Values of one block of measured pairs: small enough for its buffers to stay in cache."""
SPARSE_PAIR_VALUES = 2**18
"""The same of sparse rows, where each block is some calls of SciPy: enough for these not to count."""
GROUP = 16
"""Columns of a tile that share one minimum when the k-th smallest is bounded."""
TIE_BITS = 40
UNIT_ROW_NOISE = 1e-28
"""Squared distance of two unit rows that point the same way: rounding in the division by their norms, nothing else."""
SMALLEST_SPREAD = 1e-150
"""Squares of its inverse are numbers; squares of what is smaller are 0."""
CLOSE_BOUNDS = 1e-9
"""In a crowd of candidates, squared distances whose bounds agree to this share of them count as tied."""
SHARED_STEPS = 16
"""Steps over an entry of sparse rows, in a product with dense ones, that take as long as one over a shared column."""
MAX_TIES = 1024
"""Where more rows than this are tied at the k-th distance, only the lowest-numbered ones are measured."""


@dataclass(frozen=True)
class Rows:
    """Rows ready for the distance kernels.

    `values` (n_rows, n_columns) are the rows as the metric sees them: divided by their norm under cosine. `operand` is
    what goes into the matrix product: for dense rows (n_rows, n_columns + 2) float32 with `squares` and 1 as last
    columns; for dense Euclidean rows shifted by `center` and multiplied by `scale` so that the product neither
    overflows nor drowns in a common offset. `squares` (n_rows,) are the operand's squared norms. Under cosine an
    all-zero row, marked in `is_zero`, has square 1: it is orthogonal to everything, itself included, as in
    scikit-learn.
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
        operand, squares = _operand(values, center, scale, np.float32)
    if is_zero is not None:
        squares = np.where(is_zero, 1.0, squares)
        if not is_sparse(values):
            operand[:, -2] = squares
    return Rows(values, metric, operand, squares, center, scale, is_zero)


def prepare_sketch(block: np.ndarray, like: Rows | None = None) -> Rows:
    """Make rows ready whose last column is the squared length of what the others leave out of them.

    Shape (n_rows, n_columns + 1), float32. A product then gives the squared distance in the columns plus both rests:
    what a squared distance is expected to be when nothing is known of how two rests lie to each other.
    """
    rows = prepare_rows(block[:, :-1], "euclidean", like)
    rest = block[:, -1] * np.float32(rows.scale**2)
    rows.operand[:, -2] += rest
    return replace(rows, squares=rows.squares + rest)


def metric_rows(X: Block, metric: Metric) -> Rows:
    """Return rows that can be measured but not searched: they come without an operand."""
    values, is_zero = as_metric_rows(X, metric)
    return Rows(values, metric, None, np.empty(0), None, 1.0, is_zero)


def _operand_scale(values: np.ndarray, center: np.ndarray) -> float:
    spread = float(np.maximum(values.max(axis=0) - center, center - values.min(axis=0)).max(initial=0.0))
    return 1.0 if spread == 0 or 1e-3 < spread < 1e9 else 1.0 / max(spread, SMALLEST_SPREAD)


def _operand(
    values: np.ndarray, center: np.ndarray | None, scale: float, dtype: type[np.floating[Any]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return shifted and scaled rows with their squared norms and 1 as last columns, and the squared norms."""
    n_rows, n_columns = values.shape
    operand = np.empty((n_rows, n_columns + 2), dtype=dtype)
    body = operand[:, :-2]
    if values.dtype == dtype and scale == 1.0:
        np.subtract(values, 0 if center is None else center.astype(dtype), out=body)
    else:
        for rows in row_blocks(n_rows, rows_at_once(n_columns)):
            block = values[rows].astype(np.float64)
            if center is not None:
                block -= center
                block *= scale
            with np.errstate(over="ignore"):  # queries far from a base of tiny spread: float64 will serve them
                body[rows] = block
    with np.errstate(over="ignore"):
        operand[:, -2] = np.einsum("ij,ij->i", body, body)
    operand[:, -1] = 1
    return operand, operand[:, -2].astype(np.float64)


def squared_distances(a: Rows, a_index: np.ndarray, b: Rows, b_index: np.ndarray) -> np.ndarray:
    """Return the squared Euclidean distances of the metric's rows ``a[a_index]`` and ``b[b_index]``, pair by pair, in
    float64.

    Under cosine half of it is 1 - cos. Computed from differences; shape (n_pairs,).
    """
    result = np.empty(a_index.shape[0])
    if is_sparse(a.values) and is_sparse(b.values):
        values = max(a.values.nnz // max(a.n_rows, 1), b.values.nnz // max(b.n_rows, 1), 1)
        for pairs in row_blocks(a_index.shape[0], max(1, SPARSE_PAIR_VALUES // values)):
            difference = a.values[a_index[pairs]].astype(np.float64) - b.values[b_index[pairs]]
            result[pairs] = np.asarray(difference.multiply(difference).sum(axis=1)).ravel()
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
            np.einsum("ij,ij->i", difference, difference, out=result[pairs])
    if a.is_zero is not None and b.is_zero is not None:
        result[a.is_zero[a_index] | b.is_zero[b_index]] = 2.0
    return result


def measured_squares(a: Rows, a_index: np.ndarray, b: Rows, b_index: np.ndarray) -> np.ndarray:
    """Return :func:`squared_distances`, with unit rows that point the same way at exactly 0."""
    squares = squared_distances(a, a_index, b, b_index)
    if b.metric == "cosine":
        squares[squares < UNIT_ROW_NOISE] = 0.0
    return squares


def metric_distances(squares: np.ndarray, metric: Metric) -> np.ndarray:
    """Turn squared Euclidean distances of the metric's rows into distances: their root, or 1 - cos."""
    return squares / 2 if metric == "cosine" else np.sqrt(squares)


def order_with_ties(squares: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Return the order of each row's entries by squared distance, then candidate; shapes (n_rows, n_entries).

    Squared distances of one row that follow each other within 2**-40 are tied, so that values which differ by round-off
    only never decide. Rounding each of them to 40 bits would not do: two such values can lie on either side of a
    rounding boundary.
    """
    order = np.argsort(squares, axis=1, kind="stable")
    lengths, names = np.take_along_axis(squares, order, axis=1), np.take_along_axis(candidates, order, axis=1)
    tied = (lengths[:, 1:] <= lengths[:, :-1] * (1 + 2.0**-TIE_BITS)) & np.isfinite(lengths[:, 1:])
    wrong = np.flatnonzero((tied & (names[:, 1:] < names[:, :-1])).any(axis=1))
    if wrong.size:
        group = np.zeros((wrong.size, squares.shape[1]), dtype=np.int64)
        np.cumsum(~tied[wrong], axis=1, out=group[:, 1:])
        row = np.repeat(np.arange(wrong.size), squares.shape[1])
        by_name = np.lexsort((names[wrong].ravel(), group.ravel(), row)).reshape(group.shape)
        order[wrong] = order[wrong].ravel()[by_name]
    return order


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
    per_tile = min(tile_rows(base.n_rows, int(base.values.shape[1]), is_sparse(base.values)), queries.n_rows)
    serves = not is_sparse(base.values) and _float32_serves(queries) and _float32_serves(base)
    buffer = np.empty((per_tile, base.n_rows), np.float32) if serves else None
    for start in range(0, queries.n_rows, per_tile):
        rows = slice(start, min(start + per_tile, queries.n_rows))
        indices[rows], distances[rows] = _tile_neighbors(
            queries.part(rows), query_ids[rows], base, base_start, k, buffer
        )
    return indices, distances


def tile_rows(n_base: int, n_columns: int, sparse: bool) -> int:
    """Return how many queries go through one matrix product, so that its result stays near 32 MiB."""
    row_bytes = 8 * (n_base + n_columns) if sparse else 4 * n_base
    return int(np.clip(TILE_BYTES // max(row_bytes, 1), 8, 1024))


def _tile_neighbors(
    queries: Rows, query_ids: np.ndarray, base: Rows, base_start: int, k: int, buffer: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    own = query_ids - base_start
    k_found = min(k, base.n_rows)
    indices = np.full((queries.n_rows, k), -1, dtype=np.int64)
    distances = np.full((queries.n_rows, k), np.inf)
    query, candidate = _candidates(queries, base, own, k_found, buffer)
    squares = measured_squares(queries, query, base, candidate)
    found = np.bincount(query, minlength=queries.n_rows)
    width = max(int(found.max(initial=0)), k_found)
    place = np.arange(query.size) - np.repeat(np.cumsum(found) - found, found)
    lengths = np.full((queries.n_rows, width), np.inf)
    names = np.full((queries.n_rows, width), -1, dtype=np.int64)
    lengths[query, place], names[query, place] = squares, candidate + base_start
    best = order_with_ties(lengths, names)[:, :k_found]
    indices[:, :k_found] = np.take_along_axis(names, best, axis=1)
    distances[:, :k_found] = metric_distances(np.take_along_axis(lengths, best, axis=1), base.metric)
    return indices, distances


def _candidates(
    queries: Rows, base: Rows, own: np.ndarray, k: int, buffer: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs (query, base row), sorted by both, that include the k nearest other rows of every query.

    Without a `buffer` for float32 products the bounds are float64. Queries to which float32 leaves too many candidates
    are bounded again in float64, those alone.
    """
    if buffer is None:
        mask = _bounded_wide(queries, base, own, k)
    else:
        mask = _bounded(queries, base, own, k, _products(queries, base, buffer[: queries.n_rows]))
    query, candidate = _pairs(mask)
    if buffer is not None:
        loose = np.flatnonzero(np.bincount(query, minlength=queries.n_rows) > 4 * k + 64)
        if loose.size:
            mask[loose] = _bounded_wide(queries.part(loose), base, own[loose], k)
            query, candidate = _pairs(mask)
    return query, candidate


def _pairs(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    row, column = np.divmod(np.flatnonzero(mask), mask.shape[1])
    return row, column


def _bounded_wide(queries: Rows, base: Rows, own: np.ndarray, k: int) -> np.ndarray:
    """Bound in float64, half a tile at a time, so that it takes no more room than float32 does."""
    half = max(1, TILE_BYTES // (8 * max(base.n_rows, 1)))
    parts = [slice(start, start + half) for start in range(0, queries.n_rows, half)]
    return np.concatenate([_wide_part(queries.part(rows), base, own[rows], k) for rows in parts])


def _float32_serves(rows: Rows) -> bool:
    """Return whether squares of the operand stay far from where float32 overflows or loses digits to subnormals."""
    positive = rows.squares[rows.squares > 0]
    return positive.size == 0 or bool(positive.min() > 1e-30 and positive.max() < 1e30)


def _wide_part(queries: Rows, base: Rows, own: np.ndarray, k: int) -> np.ndarray:
    products, squares = _wide_products(queries, base)
    queries = replace(queries, squares=squares)
    mask = _bounded(queries, base, own, k, products)
    crowded = np.flatnonzero(np.count_nonzero(mask, axis=1) > k + MAX_TIES)
    for row in crowded:
        found = np.flatnonzero(mask[row])
        kept = _thinned(queries, int(row), base, found, products[row, found], k)
        mask[row] = False
        mask[row, kept] = True
    return mask


def _bounded(queries: Rows, base: Rows, own: np.ndarray, k: int, products: np.ndarray) -> np.ndarray:
    """Return which base rows may be among the k nearest others of each query, shape (n_queries, n_base).

    `products` holds d**2 up to rounding; the entries of the queries themselves are set to infinity. Rounding is at most
    ``p (|q|**2 + |b|**2)``, and b at distance d has ``|b|**2 <= 2 |q|**2 + 2 d**2``, so a row's own square and its k-th
    smallest product bound everything.
    """
    own_rows = np.flatnonzero((own >= 0) & (own < base.n_rows))
    products[own_rows, own[own_rows]] = np.inf
    p = _precision(products.dtype, int(base.values.shape[1]))
    reach = (_kth_smallest(products, k) + 3 * p * queries.squares) / (1 - 2 * p)
    mask = products <= _limit(reach, queries.squares, p, products.dtype)[:, None]
    mask[own_rows, own[own_rows]] = False
    return mask


def _limit(reach: np.ndarray, squares: np.ndarray, p: float, dtype: np.dtype[Any]) -> np.ndarray:
    """Return what the product of a row and any row within the squared distance `reach` cannot exceed."""
    with np.errstate(over="ignore"):
        return np.nextafter((reach * (1 + 2 * p) + 3 * p * squares).astype(dtype), np.inf, dtype=dtype)


def _precision(dtype: np.dtype[Any], n_columns: int) -> float:
    """Share of the sum of squares that a product may be off.

    Rounding grows with the square root of the number of terms. The largest error seen, on offset, integer and Gaussian
    data of 2 to 40,000 columns, is 7 eps of the sum of squares; the bound is six times that at 100 columns and more
    above.
    """
    return float(np.finfo(dtype).eps) * (24 + 2 * np.sqrt(n_columns))


def _kth_smallest(values: np.ndarray, k: int) -> np.ndarray:
    """Return a close upper bound of the k-th smallest value of each row, float64; shape (n_rows,).

    The k-th smallest of the minima of groups is one: k groups hold a value that is no larger. Only these minima are
    sorted.
    """
    n_rows, width = values.shape
    group = min(GROUP, width // (8 * k))
    if group > 1:
        values = values[:, : width // group * group].reshape(n_rows, group, width // group).min(axis=1)
        values.partition(k - 1, axis=1)
    else:
        values = np.partition(values, k - 1, axis=1)
    return values[:, k - 1].astype(np.float64)


def _thinned(queries: Rows, row: int, base: Rows, found: np.ndarray, products: np.ndarray, k: int) -> np.ndarray:
    """Return, of very many candidates, those surely nearer than the k-th and the lowest-numbered of the tied rest.

    Where the bounds are too loose to show a tie, the candidates are measured.
    """
    width = _precision(products.dtype, int(base.values.shape[1])) * (queries.squares[row] + base.squares[found])
    lower, bound = products - width, float(np.partition(products + width, k - 1)[k - 1])
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


def _products(queries: Rows, base: Rows, out: np.ndarray) -> np.ndarray:
    """Return d**2 of every pair of dense rows, in float32 and up to its rounding."""
    return np.matmul(_as_query(queries.operand), base.operand.T, out=out)


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

    By a product of two sparse matrices, which costs a step for every column that two rows share, where these are few;
    by one with dense queries, which costs a much shorter step for every entry of the base, where they are not.
    """
    in_base, in_queries = (np.bincount(rows.indices, minlength=rows.shape[1]) for rows in (base, queries))
    shared = float(in_base @ in_queries.astype(np.float64))
    if SHARED_STEPS * shared < float(base.nnz) * queries.shape[0]:
        return np.ascontiguousarray((base @ queries.T.tocsr()).toarray().T)
    return np.ascontiguousarray((base @ queries.toarray().T).T)


def _wide_operand(rows: Rows) -> np.ndarray:
    operand, squares = _operand(rows.values, rows.center, rows.scale, np.float64)
    if rows.is_zero is not None:
        operand[:, -2] = np.where(rows.is_zero, 1.0, squares)
    return operand


PRODUCT_ERROR = 1 / 64
"""Share that squared distances taken from products may be off."""
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows, candidates and squared distances, one entry per pair."""
NO_ENTRIES: Entries = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def pair_rows(base: Rows) -> int:
    """Return how many rows :func:`nearest_pairs` and :func:`close_pairs` compare with a base at a time."""
    return tile_rows(base.n_rows, int(base.values.shape[1]), is_sparse(base.values))


def nearest_pairs(queries: Rows, own: np.ndarray, base: Rows, k: int) -> Entries:
    """Return, for each query, pairs with its `k` nearest rows of the base and perhaps some more.

    Parameters
    ----------
    queries, base
        Rows, prepared alike; :func:`pair_rows` queries at most.
    own
        Place in the base of each query, -1 where it is not there, shape (n_queries,).
    k
        Number of neighbours wanted.

    Returns
    -------
    rows, candidates, squares
        Positions in `queries` and `base`, and squared distances of the metric's rows as the float32 product gives them;
        those that would drown in its rounding are measured.
    """
    products, queries = _tile_products(queries, base)
    wanted = _bounded(queries, base, own, min(k, base.n_rows), products)
    row, candidate = _pairs(wanted)
    crowded = NO_ENTRIES
    if row.size > (2 * k + 64) * queries.n_rows:
        crowded = _crowded(wanted, queries, own, base, k)
        row, candidate = _pairs(wanted)
    return _joined([crowded, (row, candidate, _product_squares(products, queries, row, base, candidate))])


def close_pairs(a: Rows, a_reach: np.ndarray, b: Rows, b_reach: np.ndarray, k: int) -> tuple[Entries, Entries]:
    """Return the pairs that lie within reach of either row.

    Parameters
    ----------
    a, b
        Rows that have none in common; `a` prepared ``like`` `b`, :func:`pair_rows` of them at most.
    a_reach, b_reach
        Squared distance (of the metric's rows) beyond which a row has no use for another, shape (n_rows,); negative for
        a row that has no use for any.
    k
        A row of which very many lie within reach gets its `k` nearest.

    Returns
    -------
    of_a, of_b
        What rows of `a` found in `b`, and the other way round; squared distances as in :func:`nearest_pairs`.
    """
    products, tile = _tile_products(a, b)
    p = _precision(products.dtype, int(b.values.shape[1]))
    square_scale = b.scale**2
    wanted_a = products <= _limit(a_reach * square_scale, tile.squares, p, products.dtype)[:, None]
    wanted_b = products <= _limit(b_reach * square_scale, b.squares, p, products.dtype)[None, :]
    i, j = _pairs(wanted_a | wanted_b)
    of_a, of_b = NO_ENTRIES, NO_ENTRIES
    crowded = i.size > (2 * k + 64) * (tile.n_rows + b.n_rows)
    if crowded:
        wanted_a[a_reach < 0] = False
        wanted_b[:, b_reach < 0] = False
        of_a = _crowded(wanted_a, tile, np.full(tile.n_rows, -1), b, k)
        of_b = _crowded(wanted_b.T, b, np.full(b.n_rows, -1), tile, k)
        i, j = _pairs(wanted_a | wanted_b)
    squares = _product_squares(products, tile, i, b, j)
    forward, backward = squares <= a_reach[i], squares <= b_reach[j]
    if crowded:  # rows that have their k nearest by now must not get them again with pairs that the other row wants
        forward &= wanted_a[i, j]
        backward &= wanted_b[i, j]
    of_a = _joined([of_a, (i[forward], j[forward], squares[forward])])
    return of_a, _joined([of_b, (j[backward], i[backward], squares[backward])])


def _tile_products(tile: Rows, base: Rows) -> tuple[np.ndarray, Rows]:
    """Return d**2 of every pair up to rounding, and the tile with the squared norms that went into it."""
    if not is_sparse(base.values) and _float32_serves(tile) and _float32_serves(base):
        return _products(tile, base, np.empty((tile.n_rows, base.n_rows), np.float32)), tile
    products, squares = _wide_products(tile, base)
    return products, replace(tile, squares=squares)


def _product_squares(products: np.ndarray, a: Rows, i: np.ndarray, b: Rows, j: np.ndarray) -> np.ndarray:
    """Return squared distances of pairs from their products, measured where rounding is more than PRODUCT_ERROR."""
    squares = products.ravel().take(i * products.shape[1] + j).astype(np.float64)
    noise = _precision(products.dtype, int(b.values.shape[1])) / PRODUCT_ERROR * (a.squares[i] + b.squares[j])
    squares /= b.scale**2
    drowned = np.flatnonzero(squares * b.scale**2 <= noise)
    if drowned.size:
        squares[drowned] = measured_squares(a, i[drowned], b, j[drowned])
    return squares


def _crowded(wanted: np.ndarray, queries: Rows, own: np.ndarray, base: Rows, k: int) -> Entries:
    """Return the k nearest of rows that want very many, and clear what they want."""
    rows = np.flatnonzero(np.count_nonzero(wanted, axis=1) > 4 * k + 64)
    if not rows.size:
        return NO_ENTRIES
    wanted[rows] = False
    indices, distances = exact_neighbors(queries.part(rows), own[rows], base, 0, k)
    found = indices >= 0
    query = np.broadcast_to(rows[:, None], found.shape)[found]
    squares = distances[found] * 2 if base.metric == "cosine" else distances[found] ** 2
    return query, indices[found], squares


def _joined(parts: Sequence[Entries]) -> Entries:
    if len(parts) == 1:
        return parts[0]
    rows, candidates, squares = zip(*parts, strict=True)
    return np.concatenate(rows), np.concatenate(candidates), np.concatenate(squares)
