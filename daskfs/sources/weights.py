"""Sample weights: the number of rows that each row counts for."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.checks import check_label_column


def check_weights(values: Any, n_samples: int, origin: str) -> np.ndarray:
    """Return sample weights as float64, shape (n_samples,).

    Parameters
    ----------
    values
        One number per row, or text that spells a number, shape (n_samples,).
    n_samples
        Number of rows of X.
    origin
        Name in messages.

    Raises
    ------
    InputError
        If a weight is missing, not a number, infinite or negative (names the first such row), all weights are 0, or
        the square of their sum overflows.
    """
    raw = check_label_column(values, n_samples, origin, "weights")
    if raw.dtype.kind in "biuf":
        weights = raw.astype(np.float64)
    else:
        weights = np.fromiter((_number(value, row, origin) for row, value in enumerate(raw)), np.float64, len(raw))
    wrong = np.flatnonzero(~(weights >= 0) | np.isinf(weights))
    if wrong.size:
        value = weights[wrong[0]]
        found = "no weight" if np.isnan(value) else f"the weight {value:g}"
        more = f", and {wrong.size - 1} more rows have none that serves" if wrong.size > 1 else ""
        msg = (
            f"{origin} has {found} in row {int(wrong[0])}{more}: weights of rows are finite numbers from 0 up (0 "
            "leaves a row out)."
        )
        raise InputError(msg)
    if not weights.any():
        msg = f"{origin} gives every row a weight of zero: no row is left to count."
        raise InputError(msg)
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    if not np.isfinite(total * total):
        msg = f"{origin} has weights up to {weights.max():.3g}, whose products overflow: divide them all."
        raise InputError(msg)
    return weights


def _number(value: Any, row: int, origin: str) -> float:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if text is None or (isinstance(text, str) and not text.strip()):
        return np.nan
    try:
        return float(text)
    except (TypeError, ValueError):
        msg = f"{origin} has {str(text)[:40]!r} in row {row}: weights of rows are numbers."
        raise InputError(msg) from None
