"""Checks of input values: finite, with squares that float64 holds, and no NaN unless missing values are allowed.

A source is refused at the first band with bad values, and the message counts those of that band: on a terabyte of the
wrong file this saves hours. ``daskfs inspect`` counts them over all rows in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block, column_extremes, is_sparse
from daskfs.kernels.digits import loses_digits

MAX_MAGNITUDE = 1e140
"""Values up to it, and differences down to its inverse, have squares that float64 holds, also times a weight."""
COLUMNS_LISTED = 20
"""Maximum number of columns listed with their counts."""


def check_finite(
    block: Block,
    first_row: int,
    names: tuple[str, ...] | None,
    origin: str,
    *,
    may_miss: bool = False,
    remedy: str = "",
    whole: bool = False,
) -> None:
    """Check that every value and its square are finite, and that those of `whole` columns do not underflow.

    Rows have shape (n_rows, n_features), dense or sparse. In messages they begin at `first_row` of `origin`, columns
    have `names`, if any, and `remedy` is a clause with another remedy for missing values. NaN is allowed if values
    `may_miss`.

    Raises
    ------
    InputError
        Naming the first column with a NaN or infinite value, its first row, and the count of each column; or where a
        magnitude exceeds `MAX_MAGNITUDE`; or as :func:`check_digits` and :func:`check_spread` do.
    """
    values = block.data if is_sparse(block) else block
    if may_miss or values.dtype.kind != "f":
        check_digits(block, first_row, lambda column: _name_of(column, names), origin)
    if values.dtype.kind != "f" or values.size == 0:
        return
    reduce_low, reduce_high = (np.fmin.reduce, np.fmax.reduce) if may_miss else (np.min, np.max)
    largest = max(float(reduce_high(values, axis=None)), -float(reduce_low(values, axis=None)))  # else NaN if any is
    if largest <= MAX_MAGNITUDE or (may_miss and np.isnan(largest)):
        if whole and values.dtype.itemsize > np.dtype(np.float32).itemsize:  # which holds nothing as small
            check_spread(*column_extremes(block), origin, names)
        return
    check_digits(block, first_row, lambda column: _name_of(column, names), origin)
    rows = f"rows {first_row}:{first_row + block.shape[0]}"
    is_bad = np.isinf(values) if may_miss else ~np.isfinite(values)
    if not is_bad.any():
        msg = (
            f"{origin} has values up to {largest:.3g} in {rows}; above {MAX_MAGNITUDE:g} squares overflow. Rescale the "
            "data."
        )
        raise InputError(msg)
    at_row, at_column, bad = _places(block, is_bad)
    columns, counts = np.unique(at_column, return_counts=True)
    here = at_column == columns[0]
    row = int(at_row[here].min())
    value = "NaN" if np.isnan(bad[here][at_row[here].argmin()]) else "an infinite value"
    shown = [
        f"{_name_of(int(c), names)} {count}"
        for c, count in zip(columns[:COLUMNS_LISTED], counts[:COLUMNS_LISTED], strict=True)
    ]
    if columns.size > COLUMNS_LISTED:
        shown.append(f"and {columns.size - COLUMNS_LISTED} more columns")
    if counts.max() == block.shape[0] > 1:
        empty = _name_of(int(columns[counts.argmax()]), names)
        remedy += f". {empty} has no value in {rows}: leave it out (of a table by data.exclude, as rank does)"
    msg = (
        f"{_name_of(int(columns[0]), names)} of {origin} has {value} in row {row + first_row}; {rows} hold {bad.size} "
        f"missing or infinite values in {columns.size} columns: {', '.join(shown)}. Remove or impute them first "
        f"('daskfs inspect' counts them per column, over all rows){remedy}."
    )
    raise InputError(msg)


def check_digits(block: Block, first_row: int, called: Callable[[int], str], origin: str) -> None:
    """Raise :class:`InputError` for integers that float64 does not hold, or that lost digits when they were read.

    Arguments are those of :func:`check_finite`; `called` returns what a column is called in the message.
    """
    if (is_lost := loses_digits(block.data if is_sparse(block) else block)).any():
        at_row, at_column, _ = _places(block, is_lost)
        row, column = min(zip(at_row.tolist(), at_column.tolist(), strict=True))
        msg = (
            f"{called(column)} of {origin} has an integer in row {first_row + row} that float64, in which all methods "
            f"compute, does not hold, as it is beyond 2^53: {len(at_row)} values of rows {first_row}:"
            f"{first_row + block.shape[0]} would lose digits. Subtract an offset or, if it is an identifier, leave the "
            "column out (of a table by data.exclude; rank: --exclude)."
        )
        raise InputError(msg)


def _places(block: Block, chosen: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, columns and values of entries of a block; `chosen` is a mask of its values."""
    if not is_sparse(block):
        at_row, at_column = np.nonzero(chosen)
        return at_row, at_column, block[at_row, at_column]
    entries = block.tocoo()
    return entries.row[chosen], entries.col[chosen], entries.data[chosen]


def check_spread(low: np.ndarray, high: np.ndarray, origin: str, names: Sequence[str] | None) -> None:
    """Raise :class:`InputError` for columns whose smallest and largest values differ, but by too little to be squared.

    `low` and `high` have shape (width,).
    """
    spread = np.subtract(high, low, dtype=np.float64)
    small = np.flatnonzero((spread > 0) & (spread < 1 / MAX_MAGNITUDE))
    if small.size:
        msg = (
            f"{_name_of(int(small[0]), names)} of {origin} has values that differ by {spread[small[0]]:.3g} at most; "
            f"below {1 / MAX_MAGNITUDE:g} squares underflow. Rescale the data, or leave the column out."
        )
        raise InputError(msg)


def _name_of(column: int, names: Sequence[str] | None) -> str:
    return f"column {column}" + (f" ('{names[column]}')" if names is not None else "")
