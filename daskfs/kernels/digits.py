"""Whole numbers on their way to float64, which holds all of them up to 2^53, and some beyond.

One that would lose digits becomes a NaN with bits of its own, as NA is in R. So every reader converts in one line, and
the check of values, which has the names of columns, tells such numbers from missing values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

LIMIT = 2**53
MARK = np.uint64(0x7FF8_0000_0000_2053)
"""Bits of the NaN."""


def loses_digits(values: np.ndarray) -> np.ndarray | np.bool_:
    """Return a mask of the integers that float64 does not hold, also Python's among objects, and of marks.

    It is False where the dtype, or the largest integer, says that there are none.
    """
    if values.dtype.kind == "f" and values.dtype.itemsize == MARK.itemsize:
        return np.equal(values.view(values.dtype.str.replace("f", "u")), MARK)
    if values.dtype == object:
        whole = [int(value) if isinstance(value, int | np.integer) else 0 for value in values.flat]
        return np.reshape([abs(value) // (value & -value or 1) > LIMIT for value in whole], values.shape)
    if values.dtype.kind not in "iu" or values.dtype.itemsize < MARK.itemsize or not values.size:
        return np.False_
    if int(values.max()) <= LIMIT and int(values.min()) >= -LIMIT:
        return np.False_
    sizes = np.where(values < 0, np.negative(values), values).astype(np.uint64)  # also of -2^63
    return sizes // np.maximum(sizes & (~sizes + np.uint64(1)), np.uint64(1)) > LIMIT


def as_floats(values: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
    """Return values of any shape in a dtype; in float64, integers that lose digits are marked."""
    with np.errstate(over="ignore"):  # a large long double becomes infinite in float64, which is refused
        floats = values.astype(dtype, copy=False)
    if floats.dtype == np.float64 and values.dtype.kind in "iu" and (is_lost := loses_digits(values)).any():
        floats.view(np.uint64)[is_lost] = MARK
    return floats


def mark_spelled(values: np.ndarray, cells: Callable[[], Sequence[Any]]) -> None:
    """Mark numbers, float64, shape (n,), that lost digits of the `cells` that spell them.

    Cells, of text, bytes or decimals, are asked for only if there are numbers from 2^53 on. One with a decimal sign or
    an exponent is no integer.
    """
    if not (places := np.flatnonzero(np.abs(values) >= LIMIT)).size:
        return
    spelled = cells()
    for place in places.tolist():
        text, number = spelled[place], values[place]
        text = text.decode() if isinstance(text, bytes) else str(text)
        if np.isfinite(number) and text.strip().lstrip("+-").isdigit() and int(text) != int(number):
            values.view(np.uint64)[place] = MARK
