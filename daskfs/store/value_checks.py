"""Checks of input values: finite, with finite squares, and no NaN unless missing values are allowed.

A source is refused at the first band with bad values, and the message counts those of that band: on a terabyte of the
wrong file this saves hours. ``daskfs inspect`` counts them over all rows in one pass.
"""

from __future__ import annotations

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block, is_sparse

MAX_MAGNITUDE = 1e150
LISTED = 20
"""Maximum number of columns listed with their counts."""


def check_finite(
    block: Block,
    first_row: int,
    names: tuple[str, ...] | None,
    origin: str,
    *,
    may_miss: bool = False,
    remedy: str = "",
) -> None:
    """Check that every value and its square are finite.

    Parameters
    ----------
    block
        Some rows, shape (n_rows, n_features), dense or sparse; only float dtypes are checked.
    first_row
        Index of the first of them.
    names
        Names of the columns, if any.
    origin
        Source of the rows, for messages.
    may_miss
        Whether NaN is allowed.
    remedy
        Another remedy for missing values, a clause.

    Raises
    ------
    InputError
        Naming the first column with a NaN or infinite value, its first row, and the count of each column; or where a
        magnitude exceeds `MAX_MAGNITUDE`.
    """
    values = block.data if is_sparse(block) else block
    if values.dtype.kind != "f" or values.size == 0:
        return
    reduce_low, reduce_high = (np.fmin.reduce, np.fmax.reduce) if may_miss else (np.min, np.max)
    largest = max(float(reduce_high(values, axis=None)), -float(reduce_low(values, axis=None)))  # else NaN if any is
    if largest <= MAX_MAGNITUDE or (may_miss and np.isnan(largest)):
        return
    rows = f"rows {first_row}:{first_row + block.shape[0]}"
    is_bad = np.isinf if may_miss else _is_not_finite
    if not is_bad(values).any():
        msg = (
            f"{origin} has values up to {largest:.3g} in {rows}; above {MAX_MAGNITUDE:g} squares overflow. Rescale the "
            "data."
        )
        raise InputError(msg)
    if is_sparse(block):
        entries = block.tocoo()
        chosen = is_bad(entries.data)
        at_row, at_column, bad = entries.row[chosen], entries.col[chosen], entries.data[chosen]
    else:
        at_row, at_column = np.nonzero(is_bad(block))
        bad = block[at_row, at_column]
    columns, counts = np.unique(at_column, return_counts=True)
    here = at_column == columns[0]
    row = int(at_row[here].min())
    value = "NaN" if np.isnan(bad[here][at_row[here].argmin()]) else "an infinite value"
    shown = [f"{_called(int(c), names)} {count}" for c, count in zip(columns[:LISTED], counts[:LISTED], strict=True)]
    if columns.size > LISTED:
        shown.append(f"and {columns.size - LISTED} more columns")
    msg = (
        f"{_called(int(columns[0]), names)} of {origin} has {value} in row {row + first_row}; {rows} hold {bad.size} "
        f"missing or infinite values in {columns.size} columns: {', '.join(shown)}. Remove or impute them first "
        f"('daskfs inspect' counts them per column, over all rows){remedy}."
    )
    raise InputError(msg)


def _is_not_finite(values: np.ndarray) -> np.ndarray:
    return ~np.isfinite(values)


def _called(column: int, names: tuple[str, ...] | None) -> str:
    return f"column {column}" + (f" ('{names[column]}')" if names is not None else "")
