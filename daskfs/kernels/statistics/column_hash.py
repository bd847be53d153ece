"""Detection of equal columns in one pass over the rows, in any order and any split into blocks.

Notes
-----
A column's hash is the sum over rows of the mixed bits of the value times a pseudo-random number of the row, modulo
2**64. Each column has two, with different numbers. Different columns collide with a probability near 2**-128: where
they differ last, a random 64-bit number would have to cancel the rest, twice. Zeros of either sign add nothing, so
sparse rows cost their stored entries. Values are hashed as float64, which is exact for the values of blocks. Data
crafted to collide are not detected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.statistics.moments import row_blocks

N_HASHES = 2
VALUES_AT_ONCE = 2**15
"""Values mixed at a time, so that their float64 copies stay in cache; also the most rows at a time."""
HASHES_LISTED = 20
_STEP, _MIX, _LAST = (np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_HALF = np.uint64(32)


def column_hashes(X: Block, first_row: int) -> np.ndarray:
    """Return the contribution of some rows to the hashes of their columns, shape (2, n_features), uint64.

    Parameters
    ----------
    X
        Dense (n_rows, n_features) array of real numbers, or a CSR matrix without duplicates.
    first_row
        Row number in all of X of the block's first row.
    """
    hashes = np.zeros((N_HASHES, X.shape[1]), dtype=np.uint64)
    add = _add_sparse if is_sparse(X) else _add_dense
    for rows in row_blocks(X.shape[0], VALUES_AT_ONCE):
        block = X[rows]
        add(block, _row_numbers(first_row + rows.start, block.shape[0]), hashes)
    return hashes


def _add_dense(X: np.ndarray, numbers: np.ndarray, hashes: np.ndarray) -> None:
    for rows in row_blocks(X.shape[0], max(1, VALUES_AT_ONCE // max(X.shape[1], 1))):
        bits = _mix_bits(X[rows])
        for number, total in zip(numbers[:, rows], hashes, strict=True):
            total += np.einsum("i,ij->j", number, bits)


def _add_sparse(X: sp.csr_matrix, numbers: np.ndarray, hashes: np.ndarray) -> None:
    rows = np.searchsorted(X.indptr, np.arange(0, X.nnz, VALUES_AT_ONCE), side="right") - 1
    for start, row in zip(range(0, X.nnz, VALUES_AT_ONCE), rows, strict=True):
        stop = min(start + VALUES_AT_ONCE, X.nnz)
        last = int(np.searchsorted(X.indptr, stop, side="left"))
        counts = np.diff(np.clip(X.indptr[row : last + 1], start, stop))
        bits = _mix_bits(X.data[start:stop])
        for number, total in zip(numbers[:, row:last], hashes, strict=True):
            np.add.at(total, X.indices[start:stop], bits * np.repeat(number, counts))


def first_equal(hashes: np.ndarray) -> np.ndarray:
    """Return, for each column, the first column with the same hashes: itself if no earlier one has them.

    Parameters
    ----------
    hashes
        Hashes over all rows, shape (2, n_features), uint64.

    Returns
    -------
    numpy.ndarray
        Shape (n_features,), int64.
    """
    order = np.lexsort(hashes)  # stable: the first of equal columns comes first
    ordered = hashes[:, order]
    begins = np.concatenate(([True], np.any(ordered[:, 1:] != ordered[:, :-1], axis=0)))
    first = np.empty(hashes.shape[1], dtype=np.int64)
    first[order] = order[begins][np.cumsum(begins) - 1]
    return first


def describe_equal(first: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Summarize equal columns in a JSON-able dict.

    `n_duplicate` is the number of columns that repeat an earlier one, `n_duplicate_groups` the number of groups of
    equal columns, and `duplicate` lists the names in each group: at most 20 groups of at most 20 names.

    Parameters
    ----------
    first
        As :func:`first_equal` returns it.
    names
        Names of all columns.
    """
    repeated = np.flatnonzero(first != np.arange(first.size))
    leaders = np.unique(first[repeated])
    groups = [
        [int(leader), *repeated[first[repeated] == leader][: HASHES_LISTED - 1]] for leader in leaders[:HASHES_LISTED]
    ]
    return {
        "n_duplicate": int(repeated.size),
        "n_duplicate_groups": int(leaders.size),
        "duplicate": [[names[column] for column in group] for group in groups],
    }


def _mix_bits(values: np.ndarray) -> np.ndarray:
    """Return well-mixed bits of the values, uint64: 0 for zeros of either sign, and one number for every NaN."""
    floats = values.astype(np.float64)
    floats += 0.0
    if values.dtype.kind == "f":
        np.copyto(floats, np.nan, where=np.isnan(floats))
    bits = floats.view(np.uint64)
    # small integers differ only in the high bits of a float64, and a product carries bits upward only
    shifted = bits >> _HALF
    bits ^= shifted
    bits *= _MIX
    np.right_shift(bits, _HALF, out=shifted)
    bits ^= shifted
    return bits


def _row_numbers(first_row: int, n_rows: int) -> np.ndarray:
    """Return the pseudo-random numbers of some rows, shape (2, n_rows), uint64 (SplitMix64 of the row number)."""
    rows = np.arange(N_HASHES * first_row, N_HASHES * (first_row + n_rows), dtype=np.uint64)
    bits = (rows + np.uint64(1)) * _STEP
    for shift, factor in ((30, _MIX), (27, _LAST)):
        bits ^= bits >> np.uint64(shift)
        bits *= factor
    bits ^= bits >> np.uint64(31)
    return np.ascontiguousarray(bits.reshape(n_rows, N_HASHES).T)
