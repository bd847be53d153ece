"""Label columns as Arrow reads them, turned into NumPy vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskfs.errors import InputError

MISSING_CELLS = ("", "NA", "N/A", "nan", "NaN", "NAN", "null", "NULL")


def text_to_labels(column: Any) -> np.ndarray:
    """Return a chunked Arrow column of text as integers, else as floats, else as text.

    Missing values become NaN among floats and ``None`` otherwise, where the vector holds Python objects.
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
    """Return an Arrow array, or a chunked one, of text, numbers or dates as text, shape (n,), objects in which None is
    missing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_floating(kind) or pa.types.is_nested(kind):
        raise InputError(f"{where} has type {kind}; names of rows are text or whole numbers.")
    try:
        text = pc.utf8_trim_whitespace(column.cast(kind).cast(pa.string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{where} has type {kind}, which is no text: {error}") from error
    return np.asarray(text.to_numpy(zero_copy_only=False), dtype=object)


def arrow_to_labels(column: Any, where: str) -> np.ndarray:
    """Return a chunked Arrow column of numbers, booleans, text or dates as a vector, shape (n,).

    Each text is kept once and shared by the rows that hold it. Missing values become NaN among floats, NaT among dates
    and ``None`` otherwise.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_floating(kind):
        return np.asarray(column.cast(pa.float64()).to_numpy())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):  # in UTC where there is a time zone
        return np.asarray(column.to_numpy())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        if column.null_count == 0:
            return np.asarray(column.to_numpy())
    elif not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InputError(f"{where} has type {kind}; labels must be numbers or text.")
    encoded = column.dictionary_encode().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.concat_arrays(encoded.chunks)
    values = np.array([*encoded.dictionary.to_pylist(), None], dtype=object)
    return np.asarray(values[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
