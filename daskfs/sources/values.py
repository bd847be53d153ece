"""Values as they are given in memory: what is masked or missing, in whatever way, is missing in one way."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.digits import as_floats


def decoded(value: Any) -> Any:
    """Return bytes as text, and any other value as it is."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def is_missing(value: Any) -> bool:
    """Return whether one value of an array of objects is missing: None, NaN, or text without a character."""
    return not value.strip() if isinstance(value, str | bytes) else value is None or value != value


def as_text(value: Any) -> str | None:
    """Return a value as text without white space around it, None if it is missing."""
    return None if is_missing(value) else str(decoded(value)).strip() or None


def as_number(value: Any) -> float | None:
    """Return a number, or the one that text spells; None for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def in_order(names: Collection[str]) -> list[str]:
    """Sort distinct names as numbers if all spell finite ones, else as text."""
    numbers = {name: as_number(name) for name in names}
    if all(number is not None and math.isfinite(number) for number in numbers.values()):
        return sorted(numbers, key=lambda name: (numbers[name], name))
    return sorted(names)


def is_of(X: Any, library: str) -> bool:
    """Return whether the class of X or a base class belongs to a library, without importing it."""
    return any(kind.__module__.partition(".")[0] == library for kind in type(X).__mro__)


def unmasked(values: Any) -> Any:
    """Return a matrix with NaN in place of its masked entries, integers as float64, else as it is; lazy ones lazily.

    A table of Arrow becomes a frame of pandas.
    """
    if is_of(values, "pyarrow") and hasattr(values, "column_names"):
        return values.to_pandas()
    if is_of(values, "dask") and hasattr(values, "map_blocks"):
        meta = values._meta
        if isinstance(meta, np.ma.MaskedArray):
            meta = np.empty(meta.shape, np.float64 if meta.dtype.kind in "biu" else meta.dtype)
        return values.map_blocks(_unmasked_block, meta.dtype, meta=meta)
    if isinstance(values, list | tuple) and any(map(_holds_masked, values)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "converting a masked element to nan" is what is wanted
            values = np.ma.array(values)
    filled, gone = _split_mask(values)
    if gone is None or not gone.any() or filled.dtype.kind not in "biufcO":
        return filled
    filled = as_floats(filled) if filled.dtype.kind in "biu" else filled.copy()
    filled[gone] = np.nan
    return filled


def _unmasked_block(block: Any, dtype: np.dtype[Any]) -> Any:
    filled = unmasked(block)
    if dtype.kind in "biu" and filled.dtype.kind == "f":
        msg = f"a block of X has masked entries, and the dask array says that it holds {dtype}: pass X.astype(float)."
        raise InputError(msg)
    return filled if filled is block else filled.astype(dtype, copy=False)


def _split_mask(values: Any) -> tuple[Any, np.ndarray | None]:
    """Return values without a mask, and the mask of those that have one, or are masked objects; None for no mask."""
    gone = None
    if isinstance(values, np.ma.MaskedArray):
        gone, values = np.ma.getmaskarray(values), np.asarray(values.data)
    if isinstance(values, np.ndarray) and values.dtype == object:
        is_masked = (isinstance(one, np.ma.MaskedArray) and np.ma.is_masked(one) for one in values.flat)
        masked = np.fromiter(is_masked, bool, values.size).reshape(values.shape)
        gone = masked if gone is None else gone | masked
    return values, gone


def _holds_masked(row: Any) -> bool:
    return any(isinstance(entry, np.ma.MaskedArray) for entry in (row if isinstance(row, list | tuple) else (row,)))


def as_column(values: Any) -> np.ndarray:
    """Return labels, or other values of which each row has one, as an array, of the type that they have without gaps.

    Missing ones are NaN among floats, NaT among dates, and None among anything else, so that classes stay classes.

    Parameters
    ----------
    values
        Shape (n_samples,) or (n_samples, 1): an array, maybe masked, a sequence, a column of pandas, Polars or Arrow,
        categories, or a dask collection of these.
    """
    if is_of(values, "dask"):
        return as_column(values.compute())
    if len(getattr(values, "columns", ())) == 1 and len(values.shape) == 2:
        return as_column(values[values.columns[0]])[:, np.newaxis]
    if hasattr(values, "null_count") and not hasattr(values, "columns"):
        # of Polars or Arrow, whose own conversion makes floats of integers
        count = values.null_count() if callable(values.null_count) else values.null_count
        listed = getattr(values, "to_pylist", None) or values.to_list
        values = _objects(listed()) if count else values
    elif is_of(values, "pandas") and hasattr(values, "dtype"):
        values = _of_pandas(values)
    elif isinstance(values, list | tuple) and any(isinstance(one, str | np.ma.MaskedArray) for one in values):
        values = _objects(values)  # beside text, an array would spell the missing ones
    try:
        column, gone = _split_mask(values if isinstance(values, np.ndarray) else np.asarray(values))
    except ValueError:  # rows of several lengths, which are no values
        column, gone = _objects(values), None
    if column.dtype.kind in "OT":
        import pandas as pd

        column = column.astype(object, copy=False)
        missing = pd.isna(np.atleast_1d(column)).reshape(column.shape)
        gone = missing if gone is None else gone | missing
    if gone is not None and column.dtype.kind != "V" and gone.any():
        column = np.array(column, dtype=column.dtype if column.dtype.kind in "fcmM" else object)
        column[gone] = None
    return column


def _objects(values: Any) -> np.ndarray:
    return np.fromiter(values, dtype=object, count=len(values))


def _of_pandas(values: Any) -> Any:
    import pandas as pd

    if isinstance(values.dtype, pd.CategoricalDtype):
        codes = pd.Categorical(values)
        # a category is a class, but a fractional number would count as a regression target
        names = [name if isinstance(name, int | np.integer | np.bool_) else str(name) for name in codes.categories]
        return _objects([*names, None])[codes.codes]
    if not pd.api.types.is_extension_array_dtype(values.dtype) or not values.isna().any():
        return values
    is_float = pd.api.types.is_float_dtype(values.dtype)
    return values.to_numpy(np.float64, na_value=np.nan) if is_float else values.to_numpy(object, na_value=None)
