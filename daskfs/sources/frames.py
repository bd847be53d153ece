"""Checks for in-memory input that is not numeric: AnnData objects, and DataFrames with columns of text or dates."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Number
from typing import Any

import numpy as np

from daskfs.errors import InputError

LISTED = 5
"""Maximum number of columns that a message names."""


def is_of(X: Any, library: str) -> bool:
    """Return whether the class of X or a base class belongs to a library, without importing it."""
    return any(kind.__module__.partition(".")[0] == library for kind in type(X).__mro__)


def check_input(X: Any) -> None:
    """Check that X can be a numeric matrix; for a Dask DataFrame or Polars query, only by its schema.

    Raises
    ------
    InputError
        For an AnnData object, and for non-numeric columns of a DataFrame, which the message names.
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
    """Yield names and types of the non-numeric columns of a DataFrame; none for other objects."""
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
