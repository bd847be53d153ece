"""Values as they are given in memory: what is masked or missing, in whatever way, is missing in one way."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from daskfs.errors import InputError


def is_of(X: Any, library: str) -> bool:
    """Return whether the class of X or a base class belongs to a library, without importing it."""
    return any(kind.__module__.partition(".")[0] == library for kind in type(X).__mro__)


def unmasked(values: Any) -> Any:
    """Return a matrix with NaN in place of its masked entries, integers as float64; a lazy one stays lazy.

    Anything that holds no masked entry is returned as it is.
    """
    if is_of(values, "dask"):
        if not hasattr(values, "map_blocks"):  # a frame
            return values
        meta = values._meta
        if isinstance(meta, np.ma.MaskedArray):
            meta = np.empty(meta.shape, np.float64 if meta.dtype.kind in "biu" else meta.dtype)
        return values.map_blocks(_unmasked_block, meta.dtype, meta=meta)
    if isinstance(values, list | tuple) and any(map(_holds_masked, values)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "converting a masked element to nan" is what is wanted
            values = np.ma.array(values)
    if isinstance(values, np.ma.MaskedArray):
        gone, values = np.ma.getmaskarray(values), np.asarray(values.data)
    elif isinstance(values, np.ndarray) and values.dtype == object:
        gone = _masked_objects(values)
    else:
        return values
    if not gone.any() or values.dtype.kind not in "biufcO":
        return values
    filled = values.astype(np.float64 if values.dtype.kind in "biu" else values.dtype)
    filled[gone] = np.nan
    return unmasked(filled)


def _unmasked_block(block: Any, dtype: np.dtype[Any]) -> Any:
    found = unmasked(block)
    if found is block or found.dtype.kind == dtype.kind:
        return found
    if dtype.kind in "biu":
        msg = f"a block of X has masked entries, and the dask array says that it holds {dtype}: pass X.astype(float)."
        raise InputError(msg)
    return found.astype(dtype)


def _holds_masked(row: Any) -> bool:
    entries = row if isinstance(row, list | tuple) else (row,)
    return any(isinstance(entry, np.ma.MaskedArray) for entry in entries)


def _masked_objects(values: np.ndarray) -> np.ndarray:
    return np.fromiter(map(_is_masked, values.flat), bool, values.size).reshape(values.shape)


def _is_masked(value: Any) -> bool:
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


def as_column(values: Any) -> np.ndarray:
    """Return labels, or other values of which each row has one, as an array, of the type that they have without gaps.

    Missing ones are NaN among floats, NaT among dates, and None among anything else, so that classes stay classes.

    Parameters
    ----------
    values
        Shape (n_samples,) or (n_samples, 1): an array, maybe masked, a sequence, a column of pandas, Polars or Arrow,
        categories, or a dask collection of these.
    """
    import pandas as pd

    if is_of(values, "dask"):
        return as_column(values.compute())
    if is_of(values, "polars") and hasattr(values, "to_series") and values.width == 1:
        values = values.to_series()
    if (is_of(values, "polars") or is_of(values, "pyarrow")) and hasattr(values, "null_count"):
        count = values.null_count() if callable(values.null_count) else values.null_count
        listed = getattr(values, "to_pylist", None) or values.to_list
        values = _objects(listed()) if count else values
    elif isinstance(values, pd.DataFrame) and values.shape[1] == 1:
        return as_column(values.iloc[:, 0])[:, np.newaxis]
    elif is_of(values, "pandas") and values.ndim == 1:
        values = _of_pandas(values)
    elif isinstance(values, list | tuple) and any(map(_holds_masked, values)):
        values = _objects([None if _is_masked(value) else value for value in values])
    elif isinstance(values, np.ma.MaskedArray):
        gone, values = np.ma.getmaskarray(values), np.array(values.data)
        if values.dtype.kind != "V" and gone.any():
            values = values if values.dtype.kind in "fcmM" else values.astype(object)
            values[gone] = None
    try:
        found = np.asarray(values)
    except ValueError:  # rows of several lengths, which are no values
        found = _objects(values)
    if found.dtype == object:
        gone = pd.isna(np.atleast_1d(found)).reshape(found.shape) | _masked_objects(found)
        found = np.where(gone, None, found) if gone.any() else found
    return found


def _objects(values: Any) -> np.ndarray:
    return np.fromiter(values, dtype=object, count=len(values))


def _of_pandas(values: Any) -> np.ndarray:
    import pandas as pd

    if isinstance(values.dtype, pd.CategoricalDtype):
        codes = pd.Categorical(values)
        # a category is a class, but a fractional number would count as a regression target
        names = [name if isinstance(name, int | np.integer | np.bool_) else str(name) for name in codes.categories]
        return _objects([*names, None])[codes.codes]
    if not pd.api.types.is_extension_array_dtype(values.dtype) or not values.isna().any():
        return np.asarray(values)
    if pd.api.types.is_float_dtype(values.dtype):
        return np.asarray(values.to_numpy(np.float64, na_value=np.nan))
    return np.asarray(values.to_numpy(object, na_value=None))
