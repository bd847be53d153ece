"""Whether values can be worked with: finite, small enough for their squares, and none missing unless that is allowed.

A source with values that nothing is said of is refused at the first band that has some, with their counts there: on a
source of a terabyte that is the wrong file, hours are saved. What all rows have, ``daskfs inspect`` counts in one pass.
"""

from __future__ import annotations

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block, is_sparse

MAX_MAGNITUDE = 1e150
LISTED = 20
"""Columns that are listed with their counts."""


def check_finite(
    block: Block,
    first_row: int,
    names: tuple[str, ...] | None,
    origin: str,
    *,
    may_miss: bool = False,
    remedy: str = "",
) -> None:
    """Check that every value is finite, and small enough for its square to be.

    Parameters
    ----------
    block
        Some rows, all columns.
    first_row
        Number of the first of them.
    names
        Of the columns, where they have some.
    origin
        What the rows are of.
    may_miss
        Whether NaN is no mistake.
    remedy
        What else may be done about missing values, a sentence.

    Raises
    ------
    InputError
        Naming the first column with a NaN or infinite value and its first row, and how many each column has.
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
