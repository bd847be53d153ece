"""Labels: reading from a separate file, and encoding as class codes or regression targets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from daskfs.errors import InputError, JobError, nearest
from daskfs.kernels.labels import Labels
from daskfs.sources.checks import check_label_column, shorten_names, split_reference
from daskfs.sources.multifile import table_ending
from daskfs.storage import StoragePath

TASKS = ("auto", "classification", "regression")
AUTO, NONE = "auto", "none"
"""Values of ``data.unlabeled`` that are not labels."""
SIGNS = ("-1", "1")
# Under task "auto", more classes than this, with fewer rows per class than that, look like a regression target.
MANY_CLASSES = 50
ROWS_PER_CLASS = 5
LINES_AT_ONCE = 1 << 16


def read_labels_file(ref: str, n_samples: int, what: str = "labels") -> np.ndarray:
    """Read labels or a per-sample column from a file, as stored, shape (n_samples,).

    Parameters
    ----------
    ref
        Path of an ``.npy`` file, an ``.npz`` file with one member or a member ``y`` (or
        ``"file.npz:member"``), a ``.csv`` or ``.tsv`` table with one column (or ``"file.csv:column"``), or a
        ``.txt`` file with one value per line, blank for an unlabeled row.
    n_samples
        Number of rows of X.
    what
        "labels", or the key of a per-sample column, for messages.

    Raises
    ------
    InputError
        If the file, member or column does not exist, or does not hold `n_samples` values.
    """
    found = split_reference(ref)
    if found is None:
        msg = f"data.{what} is {ref!r}: there is no such file."
        raise InputError(msg)
    path, member = found
    suffix = path.suffix.lower()
    if suffix == ".npz":
        values = _from_npz(path, member)
    elif table_ending(path) in (".csv", ".tsv"):
        values = _from_table(path, member, n_samples)
    elif member is not None:
        msg = f"{path} has no members, so {ref!r} means nothing."
        raise InputError(msg)
    elif suffix == ".npy":
        from daskfs.sources.npy_file import NpyFile, whole_file

        values = NpyFile(whole_file(path), str(path)).read_all()
    elif suffix == ".txt":
        values = _from_lines(path, n_samples)
    else:
        msg = f"{path} cannot be read as {what}; use .npy, .npz, .csv, .tsv or .txt."
        raise InputError(msg)
    return check_label_column(values, n_samples, ref, what)


def _from_npz(path: StoragePath, member: str | None) -> np.ndarray:
    from daskfs.sources.zipped import NpzFile

    npz = NpzFile(path)
    if member is None:
        member = npz.members[0] if len(npz.members) == 1 else "y"
        if member not in npz.members:
            msg = f"{path} has members {shorten_names(npz.members)}, none of which is 'y'; name one as '{path}:member'."
            raise InputError(msg)
    return npz.open(member).read_all()


def _from_table(path: StoragePath, column: str | None, n_samples: int) -> np.ndarray:
    from daskfs.sources.csv_table import CsvTable

    table = CsvTable(path)
    values = table.read_text_labels(table.find_column(column))
    blank = table.trailing_blank if len(table.columns) == 1 else 0
    return _with_trailing_blank(values, blank, n_samples)


def _from_lines(path: StoragePath, n_samples: int) -> np.ndarray:
    try:
        values, n_blank = _parse_lines(path)
    except UnicodeDecodeError as error:
        msg = f"{path} is not text in UTF-8 with one label a line."
        raise InputError(msg) from error
    return _with_trailing_blank(values, n_blank, n_samples)


def _parse_lines(path: StoragePath) -> tuple[np.ndarray, int]:
    """Return one value per line without the trailing blank lines, and the number of these."""
    import pyarrow as pa

    from daskfs.sources.columns import MISSING_CELLS, text_to_labels

    parts = []
    n_blank = 0
    with path.open(encoding="utf-8-sig") as lines:
        while batch := [line.strip() for line in itertools.islice(lines, LINES_AT_ONCE)]:
            written = [row for row, cell in enumerate(batch) if cell]
            n_blank = len(batch) - 1 - written[-1] if written else n_blank + len(batch)
            parts.append(pa.array([None if cell in MISSING_CELLS else cell for cell in batch], type=pa.string()))
    cells = pa.chunked_array(parts, type=pa.string())
    return text_to_labels(cells.slice(0, len(cells) - n_blank)), n_blank


def _with_trailing_blank(values: np.ndarray, n_blank: int, n_samples: int) -> np.ndarray:
    """Append trailing blank lines as unlabeled rows, up to `n_samples` rows."""
    missing = min(n_samples - len(values), n_blank)
    if missing <= 0:
        return values
    if values.dtype.kind == "f":
        return np.concatenate((values, np.full(missing, np.nan)))
    return np.concatenate((values.astype(object), np.full(missing, None, dtype=object)))


def encode_labels(raw: np.ndarray, n_samples: int, task: str, unlabeled: str = AUTO) -> Labels:
    """Encode stored labels as class codes (int32) or targets (float64), shape (n_samples,).

    Parameters
    ----------
    raw
        Labels as stored, shape (n_samples,). NaN, ``None`` and empty text mark unlabeled rows.
    n_samples
        Number of rows of X.
    task
        ``"classification"``, ``"regression"``, or ``"auto"``: classification for integers, booleans and text,
        regression for floats.
    unlabeled
        A further value that marks unlabeled rows; ``"none"`` for no value; ``"auto"``: the number -1 among classes,
        unless all others are 1, since -1 and 1 are two classes.

    Raises
    ------
    JobError
        If `task` is unknown.
    InputError
        If no row is labeled, a value is invalid, or the task is ambiguous.
    """
    if task not in TASKS:
        msg = f"data.task is {task!r}; it can be {shorten_names(TASKS)}.{nearest(task, TASKS)}"
        raise JobError(msg)
    raw = check_label_column(raw, n_samples)
    if task == "regression" or (task == "auto" and _holds_floats(raw)):
        return Labels("regression", _targets(raw, unlabeled), ())
    is_number = raw.dtype.kind not in "USTO"
    codes, names = _names_of_numbers(raw) if is_number else _names_of_objects(raw)
    code_of = {name: code for code, name in enumerate(names)}
    dropped = _unlabeled_name(raw, code_of, unlabeled)
    code_of.pop(dropped, None)
    classes = tuple(code_of if is_number else _in_order(code_of))
    # The last element is indexed by code -1, which stays -1.
    order = np.full(len(names) + 1, -1, dtype=np.int32)
    for code, name in enumerate(classes):
        order[code_of[name]] = code
    values = order[codes]
    _check_classes(raw, values, classes, task, unlabeled)
    return Labels("classification", values, classes)


def is_missing(raw: np.ndarray) -> np.ndarray:
    """Return the mask of labels that are NaN, None or empty text, shape (n_samples,), bool."""
    if raw.dtype.kind == "f":
        return np.asarray(np.isnan(raw))
    if raw.dtype.kind != "O":
        return np.zeros(raw.shape, dtype=bool)
    return np.fromiter(map(_is_missing, raw), dtype=bool, count=raw.size)


def classes_note(classes: Sequence[str], unlabeled: str | None) -> str | None:
    """Return a note, without a full stop, if -1 was read as a class by default, else None."""
    if unlabeled not in (None, AUTO) or tuple(classes) != SIGNS:
        return None
    return (
        "labels hold -1 and 1 only and are read as two classes; set data.unlabeled (convert --unlabeled) to -1 where "
        "-1 means an unlabeled row, or to none to confirm the classes"
    )


def _unlabeled_name(raw: np.ndarray, names: Collection[str], unlabeled: str) -> str:
    """Return the name in `names` that marks unlabeled rows, or an empty string."""
    if unlabeled == AUTO:
        is_meant = "-1" in names and {*names} != {*SIGNS} and _holds_minus_one(raw)
        return "-1" if is_meant else ""
    number = _number(unlabeled)
    # The name of a number depends on whether all labels are whole numbers.
    forms = [unlabeled.strip()] if number is None else [unlabeled.strip(), f"{number:.0f}", repr(number)]
    return next((form for form in forms if form in names and unlabeled != NONE), "")


def _holds_minus_one(raw: np.ndarray) -> bool:
    """Return whether the labels hold -1 as a number, given that one of them is named "-1"."""
    return raw.dtype.kind in "if" or any(not isinstance(value, (str, bytes)) and value == -1 for value in raw)


def _check_classes(raw: np.ndarray, values: np.ndarray, classes: tuple[str, ...], task: str, unlabeled: str) -> None:
    labeled = int(np.count_nonzero(values >= 0))
    if labeled == 0:
        msg = "labels are empty: no row has a class."
        raise InputError(msg)
    if unlabeled == AUTO and len(classes) == 1 and raw.dtype.kind in "if" and bool(np.any(raw == -1)):
        msg = (
            f"labels hold -1 and one class, {classes[0]!r}; -1 means an unlabeled row, so number two classes 0 and 1, "
            "or set data.unlabeled to none."
        )
        raise InputError(msg)
    if task == "auto" and len(classes) > max(MANY_CLASSES, labeled / ROWS_PER_CLASS):
        msg = (
            f"labels hold {len(classes)} different values in {labeled} rows; set data.task to "
            "'classification' or 'regression'."
        )
        raise InputError(msg)


def _holds_floats(raw: np.ndarray) -> bool:
    if raw.dtype.kind != "O":
        return raw.dtype.kind == "f"
    values = [value for value in raw if not _is_missing(value)]
    numbers = all(isinstance(value, (int, float, np.number)) for value in values)
    return numbers and any(isinstance(value, (float, np.floating)) for value in values)


def _is_missing(value: Any) -> bool:
    if isinstance(value, (str, bytes)):
        return not value.strip()
    return value is None or value != value


def _names_of_numbers(raw: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return each row's index among the distinct values, -1 for NaN, and these values, ascending, as text."""
    known = np.ones(len(raw), dtype=bool)
    if raw.dtype.kind == "f":
        _refuse_infinity(raw)
        known = ~np.isnan(raw)
        whole = raw[known]
        if bool(np.all(whole == np.floor(whole))) and bool(np.all(np.abs(whole) < 2**53)):
            raw = np.where(known, raw, 0).astype(np.int64)
    names, found = np.unique(raw[known], return_inverse=True)
    codes = np.full(len(raw), -1, dtype=np.int32)
    codes[known] = found
    return codes, [str(name) for name in names.tolist()]


def _names_of_objects(raw: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return each row's index among the distinct values, -1 for missing ones, and these values as text."""
    seen: dict[str, int] = {}
    codes = np.empty(len(raw), dtype=np.int32)
    for row, value in enumerate(raw):
        name = _class_name(value)
        codes[row] = -1 if name is None else seen.setdefault(name, len(seen))
    return codes, list(seen)


def _in_order(names: Collection[str]) -> list[str]:
    """Sort names as numbers if all are finite numbers, else as text."""
    numbers = [_number(name) for name in names]
    return sorted(names) if None in numbers else [name for _, name in sorted(zip(numbers, names, strict=True))]


def _class_name(value: Any) -> str | None:
    if _is_missing(value):
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (int, float, np.number)):
        number = float(value)
        return str(int(value)) if number.is_integer() else repr(number)
    msg = f"labels hold a value of type {type(value).__name__}; they must be numbers or text."
    raise InputError(msg)


def _number(name: str) -> float | None:
    try:
        number = float(name)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _targets(raw: np.ndarray, unlabeled: str) -> np.ndarray:
    if raw.dtype.kind in "USTO":
        values = np.fromiter((_target(value, row, unlabeled) for row, value in enumerate(raw)), np.float64, len(raw))
    else:
        values = raw.astype(np.float64)
    if (number := _number(unlabeled)) is not None:
        values[values == number] = np.nan
    _refuse_infinity(values)
    if bool(np.isnan(values).all()):
        msg = "labels are empty: no row has a target."
        raise InputError(msg)
    return values


def _target(value: Any, row: int, unlabeled: str) -> float:
    if _is_missing(value) or (unlabeled not in (AUTO, NONE) and _class_name(value) == unlabeled):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        msg = f"labels hold {str(value)!r} in row {row}; regression needs numbers."
        raise InputError(msg) from None


def _refuse_infinity(values: np.ndarray) -> None:
    rows = np.flatnonzero(np.isinf(values))
    if len(rows):
        msg = f"labels hold {values[rows[0]]} in row {int(rows[0])}; they must be finite."
        raise InputError(msg)
