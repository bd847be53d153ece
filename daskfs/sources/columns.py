"""Conversion of Arrow columns of labels and names to NumPy vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskfs.errors import InputError

TRUE_CELLS, FALSE_CELLS = ("true", "True", "TRUE"), ("false", "False", "FALSE")
MISSING_CELLS = ("", "NA", "N/A", "nan", "NaN", "NAN", "null", "NULL")


def text_to_labels(column: Any) -> np.ndarray:
    """Convert a chunked Arrow column of text to int64, else to float64, else to text, shape (n,).

    Missing values become NaN among floats, and otherwise ``None`` in an object vector.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(column)
    if trimmed.null_count == len(trimmed):
        return np.full(len(trimmed), None, dtype=object)
    try:
        # Floats first: the integer parser also takes hexadecimal text, which may be a class name.
        floats = trimmed.cast(pa.float64())
    except pa.ArrowInvalid:
        return arrow_to_labels(trimmed, "")
    try:
        return arrow_to_labels(trimmed.cast(pa.int64()), "")
    except pa.ArrowInvalid:
        return arrow_to_labels(floats, "")


def arrow_to_names(column: Any, where: str) -> np.ndarray:
    """Convert a (chunked) Arrow array of text, integers or dates to text, object, shape (n,), None if missing.

    Floats and nested types raise :class:`InputError`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_floating(kind) or pa.types.is_nested(kind):
        msg = f"{where} has type {kind}; names of rows are text or whole numbers."
        raise InputError(msg)
    try:
        text = pc.utf8_trim_whitespace(column.cast(kind).cast(pa.string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        msg = f"{where} has type {kind}, which is no text: {error}"
        raise InputError(msg) from error
    return np.asarray(text.to_numpy(zero_copy_only=False), dtype=object)


def arrow_to_labels(column: Any, where: str) -> np.ndarray:
    """Convert a chunked Arrow column of numbers, booleans, text or dates to a vector, shape (n,).

    Rows with equal text share one object. Missing values become NaN among floats, NaT among dates and ``None``
    otherwise. Any other type raises :class:`InputError`.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_floating(kind):
        return np.asarray(column.cast(pa.float64()).to_numpy())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):  # in UTC if it has a time zone
        return np.asarray(column.to_numpy())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        if column.null_count == 0:
            return np.asarray(column.to_numpy())
    elif not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        msg = f"{where} has type {kind}; labels must be numbers or text."
        raise InputError(msg)
    encoded = column.dictionary_encode().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.concat_arrays(encoded.chunks)
    values = np.array([*encoded.dictionary.to_pylist(), None], dtype=object)
    return np.asarray(values[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
