"""What is in memory and no matrix of numbers: AnnData objects, and DataFrames with columns of text, categories or
dates.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Number
from typing import Any

import numpy as np

from daskfs.errors import InputError

LISTED = 5
"""Columns that a message names."""


def is_of(X: Any, library: str) -> bool:
    """Return whether the class of X, or a base of it, belongs to a library, which is not imported for this."""
    return any(kind.__module__.partition(".")[0] == library for kind in type(X).__mro__)


def check_input(X: Any) -> None:
    """Check that X can be a matrix of numbers; of a dask DataFrame or a Polars query, by its schema alone.

    Raises
    ------
    InputError
        For an AnnData object, and for columns of a DataFrame that hold no numbers, naming them.
    """
    if is_of(X, "anndata") and hasattr(X, "obs"):
        msg = (
            "X is an AnnData object: pass adata.X (or adata.layers[...], adata.obsm[...]) as X and adata.obs[...] as "
            "y, or the path of an .h5ad file as X."
        )
        raise InputError(msg)
    frame = X._meta if is_of(X, "dask") else X
    if bad := [f"{name!r} ({dtype})" for name, dtype in _not_numeric(frame)]:
        more = f" and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
        msg = f"columns of X hold no numbers: {', '.join(bad[:LISTED])}{more}. Drop them, or encode them as numbers."
        raise InputError(msg)


def _not_numeric(frame: Any) -> Iterator[tuple[Any, Any]]:
    """Yield names and types of the columns of a DataFrame that hold no numbers; nothing for what is none."""
    if is_of(frame, "pandas") and hasattr(frame, "columns"):
        for number, (name, dtype) in enumerate(zip(frame.columns, frame.dtypes, strict=True)):
            if not _is_numeric(frame, number, dtype):
                yield name, dtype
    elif is_of(frame, "polars") and hasattr(frame, "collect_schema"):
        from polars import Boolean, Null

        for name, dtype in frame.collect_schema().items():
            if not (dtype.is_numeric() or dtype in (Boolean, Null)):
                yield name, dtype


def _is_numeric(frame: Any, number: int, dtype: Any) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    dtype = dtype.categories.dtype if hasattr(dtype, "categories") else dtype
    if dtype == np.dtype(object):
        return all(isinstance(value, (Number, np.bool_)) for value in frame.iloc[:, number].dropna())
    return bool(is_numeric_dtype(dtype) or is_bool_dtype(dtype))
