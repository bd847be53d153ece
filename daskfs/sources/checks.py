"""Checks shared by all sources: dtype and shape of X, and names and files given by the user."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from daskfs.errors import InputError, first_few, nearest
from daskfs.redaction import CREDENTIALS_BELONG, has_credentials
from daskfs.sources.base import SourceSpec
from daskfs.sources.values import as_column
from daskfs.storage import SCHEMES, StoragePath, as_path, first_line, is_url

MOST_FEATURES = 2**31 - 1
"""Sparse rows have column numbers of 32 bits."""
LISTED_NAMES = 20
COLLECTION = "dask:"
"""Prefix of the source of a dask collection, before dask's token."""
CHANGED = "changed_ns"
"""Key of an identity for the last change time of a source's files, which is no reason alone to call it changed."""
ENCODE = "encode categories as numbers (scikit-learn's OneHotEncoder or OrdinalEncoder)"
CONVERT = "convert classes to text (str), and a target to numbers (float)"


def block_dtype(dtype: np.dtype[Any], where: str) -> np.dtype[Any]:
    """Return the dtype of blocks read from values of `dtype`.

    float32, float64 and integers of at most 16 bits stay; wider integers and floats become float64, float16
    becomes float32, booleans become uint8. Others raise :class:`InputError`, which names `where`.
    """
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind in "iu":
        return np.dtype(np.float64) if dtype.itemsize > 2 else dtype.newbyteorder("=")
    if dtype.kind == "f":
        return np.dtype(np.float32) if dtype.itemsize <= 4 else np.dtype(np.float64)
    if dtype.hasobject:
        msg = f"{where} holds Python objects (dtype object), which are never unpickled; save numbers."
        raise InputError(msg)
    msg = f"{where} has dtype {dtype}; X must hold real numbers."
    raise InputError(msg)


def check_shape(shape: Sequence[int], where: str) -> tuple[int, int]:
    """Return `shape` as (n_samples, n_features); raise :class:`InputError` if it is not 2-D or empty."""
    shape = tuple(int(size) for size in shape)
    if len(shape) != 2:
        msg = f"{where} has shape {shape}; X must have two dimensions, (n_samples, n_features)."
        raise InputError(msg)
    if 0 in shape:
        msg = f"{where} has shape {shape}: there is nothing in it."
        raise InputError(msg)
    return shape[0], shape[1]


def not_numbers(where: str, columns: Sequence[tuple[str, str]], markers: Sequence[str] = ()) -> InputError:
    """Return the error for columns of a table that are no features: each with its name and what it holds.

    `markers` are cells of columns of numbers that may mean missing values.
    """
    cells = list(dict.fromkeys(markers))[:LISTED_NAMES]
    advice = f", set data.missing_values to {cells} where these cells mean missing values" if cells else ""
    if len(columns) == 1:
        ((name, holds),) = columns
        return InputError(f"{where}: column {name!r} {holds}. Put the column in data.exclude{advice}, or {ENCODE}.")
    listed = "; ".join(f"{name!r} {holds}" for name, holds in columns[:LISTED_NAMES])
    more = f"; and {len(columns) - LISTED_NAMES} more" if len(columns) > LISTED_NAMES else ""
    names = json.dumps([name for name, _ in columns[:LISTED_NAMES]], ensure_ascii=False)
    if markers:  # columns of numbers are not those that "non-numeric" leaves out
        return InputError(
            f"{where}: {len(columns)} columns hold cells that are no numbers: {listed}{more}. Set data.exclude to "
            f"{names}{advice}, or {ENCODE}."
        )
    words = '["non-numeric"]' if more else f'{names}, or to ["non-numeric"]'
    return InputError(
        f"{where}: {len(columns)} columns hold no numbers: {listed}{more}. Set data.exclude to {words}, or {ENCODE}."
    )


def check_label_column(values: Any, n_samples: int, where: str | None = None, what: str = "labels") -> np.ndarray:
    """Return `values`, shape (n_samples,) or (n_samples, 1), as a vector.

    :class:`InputError` for another shape, or for a dtype that `what` cannot have, names `where`.
    """
    values = check_values(as_column(values), where, what)
    check_length(len(values), n_samples, where, what)
    return values


def check_values(values: np.ndarray, where: str | None = None, what: str = "labels") -> np.ndarray:
    """Return some of the values that :func:`check_label_column` checks; their number is not checked."""
    name = where or "y"
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        msg = f"{name} has shape {values.shape}; {what} need one value for each row."
        raise InputError(msg)
    dated = what in ("groups", "times", "batch")
    if values.dtype.kind not in ("biufUSTOM" if dated else "biufUSTO"):
        kinds = "numbers, text or dates" if dated else "numbers or text"
        remedy = f": {CONVERT}" if what == "labels" else ""
        msg = f"{name} has dtype {values.dtype}; {what} must be {kinds}{remedy}."
        raise InputError(msg)
    return values


def check_length(n_values: int, n_samples: int, where: str | None = None, what: str = "labels") -> None:
    """Raise :class:`InputError` unless there is one value for each row of X."""
    if n_values != n_samples:
        origin = f" ({what} from {where})" if where else ""
        msg = f"{what} have {n_values} values, X has {n_samples} rows{origin}."
        raise InputError(msg)


def check_text(values: np.ndarray, where: str, start: int = 0) -> None:
    """Raise :class:`InputError` for text of fixed width, from row `start` on, that Python has no characters for."""
    if values.dtype.kind == "U" and values.nbytes:
        rows_of = np.atleast_1d(np.ascontiguousarray(values))
        codes = rows_of.reshape(-1).view(f"{values.dtype.str[0]}u4").reshape(len(rows_of), -1)
        if (rows := np.flatnonzero(((codes > 0x10FFFF) | (codes >> 11 == 0x1B)).any(axis=1))).size:  # surrogates
            msg = f"{where} has text in row {start + int(rows[0])} that is not valid Unicode."
            raise InputError(msg)


def shorten_names(names: Sequence[str]) -> str:
    """Return up to twenty of `names`, separated by commas, and the number of the rest."""
    return first_few([repr(name) for name in names], LISTED_NAMES) or "none"


def unknown_name(name: str, kind: str, valid: Sequence[str], where: str) -> InputError:
    """Return the error for a `name` that is not among the `valid` ones; `kind` is a noun such as ``"column"``."""
    return InputError(f"{where} has no {kind} {name!r}; it has {shorten_names(valid)}.{nearest(name, tuple(valid))}")


def check_spec(spec: SourceSpec) -> None:
    """Raise :class:`InputError` for credentials, an unknown URL scheme, or an `array` path that leads elsewhere.

    Symbolic links below a directory belong to the user and are followed.
    """
    for key, value in spec:
        texts = value if isinstance(value, tuple) else (value,)
        if any(isinstance(text, str) and has_credentials(text) for text in texts):
            msg = f"data.{key}: {CREDENTIALS_BELONG}."
            raise InputError(msg)
    if "://" in spec.source and not is_url(spec.source) and not is_generated(spec.source):
        msg = (
            f"{spec.source} is no path, and URLs begin with {', '.join(SCHEMES)}: mount or copy the data, or name "
            "them there."
        )
        raise InputError(msg)
    if spec.array is not None and (PurePath(spec.array).is_absolute() or ".." in PurePath(spec.array).parts):
        msg = f"data.array is {spec.array!r}: name what lies in {spec.source}, without .. or a / in front."
        raise InputError(msg)


def is_generated(source: str) -> bool:
    """Return whether a source name denotes generated or bundled data or a collection, not a path or URL."""
    return source.startswith(("sklearn:", "synthetic:", COLLECTION))


def refuse_options(spec: SourceSpec, *options: str) -> None:
    """Raise :class:`InputError` if the spec sets an option of other kinds of sources than this, which has `options`."""
    of_text = f"is for tables of text (.csv, .tsv, .txt), and {spec.source} is none: leave it out."
    refusals = {
        "array": (
            f"is {spec.array!r}, but {spec.source} holds a single matrix; only .npz and HDF5 files and Zarr groups "
            "have members."
        ),
        "dims": f"is {shorten_names(spec.dims or ())}, but {spec.source} has no dimensions with names: leave it out.",
        "transpose": f"is for Matrix Market files (.mtx), and {spec.source} is none: leave it out.",
        "delimiter": of_text,
        "decimal": of_text,
        "exclude": f"names {shorten_names(spec.exclude)}, but {spec.source} is not a table with named columns.",
    }
    for option, refusal in refusals.items():
        if option not in options and getattr(spec, option) not in (None, False, ()):
            msg = f"data.{option} {refusal}"
            raise InputError(msg)


def split_reference(reference: str) -> tuple[StoragePath, str | None] | None:
    """Split ``"file.npz:member"`` into path and member; return ``None`` if the file does not exist."""
    path = as_path(reference)
    if _is_file(path):
        return path, None
    head, colon, member = reference.rpartition(":")
    if colon and head and not member.startswith("//") and _is_file(as_path(head)):
        return as_path(head), member
    return None


def _is_file(path: StoragePath) -> bool:
    """Return whether `path` is a file; False for a local path that is too long."""
    try:
        return path.is_file()
    except OSError:
        if path.is_remote:
            raise
        return False


def file_identity(kind: str, path: StoragePath, **selection: object) -> dict[str, Any]:
    """Return the state of a file (size and modification time) and the selection from it."""
    status = path.stat()
    return {"kind": kind, "size": status.st_size, "mtime_ns": status.st_mtime_ns, **selection}


def file_state(path: StoragePath) -> list[int] | None:
    """Return size, 0 of a directory, and modification time of a file; None if there is none."""
    state = dated_state(path)
    return state and state[:2]


def dated_state(path: StoragePath) -> list[int] | None:
    """Return the :func:`file_state` of a file and the time of its last change in ns, 0 in an object store."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
    return [size, status.st_mtime_ns, status.st_ctime_ns if isinstance(status, os.stat_result) else 0]


def read_error(path: StoragePath, error: Exception, what: str) -> Exception:
    """Return the error to raise for a failed read: an object that the store did not return is not damaged."""
    if isinstance(error, OSError) and path.is_remote and error.errno is not None:
        return error
    return InputError(f"{path} {what}: {first_line(error)}")


def unreadable(where: object, error: OSError) -> InputError:
    """Return the error for a file that could not be fetched: ``error.filename``, or `where` without one."""
    return InputError(f"{error.filename or where} cannot be read: {error.strerror or error}")
