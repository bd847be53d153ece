"""Labels: encoding as class codes or regression targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from daskfs.errors import InputError, JobError, nearest
from daskfs.kernels.labels import Labels, Task
from daskfs.sources.cells import NonNumeric, Numerals, numbers_of, trimmed
from daskfs.sources.checks import CONVERT, check_label_column, shorten_names
from daskfs.sources.columns import with_first_rows
from daskfs.sources.values import as_number, as_text, in_order, is_missing
from daskfs.sources.vocabulary import Vocabulary

TASKS = ("auto", "classification", "regression")
AUTO, NONE = "auto", "none"
"""Values of ``data.unlabeled`` that are not labels."""
SIGN_NAMES = ("-1", "1")
# Under task "auto", more classes than this, with fewer rows per class than that, look like a regression target.
MANY_CLASSES = 50
ROWS_PER_CLASS = 5
MOST_CLASSES = 2**20
"""Most classes, whose names are held in memory."""
TOO_MANY_CLASSES = (
    f"labels hold more than {MOST_CLASSES:,} different values: set data.task to regression if they are amounts."
)


def encode_labels(raw: Any, n_samples: int, task: str, unlabeled: str = AUTO) -> Labels:
    """Encode stored labels as class codes (int32) or targets (float64), shape (n_samples,).

    Parameters
    ----------
    raw
        Labels as :func:`daskfs.sources.values.as_column` takes them, shape (n_samples,). Missing ones and empty text
        mark unlabeled rows.
    task, unlabeled
        As for :class:`LabelEncoding`.

    Raises
    ------
    JobError, InputError
        As :class:`LabelEncoding`.
    """
    raw = check_label_column(raw, n_samples)
    encoding = LabelEncoding(lambda: iter([raw]), task, unlabeled)
    (values,) = encoding.parts()
    return Labels(encoding.task, values, encoding.classes)


class LabelEncoding:
    """Encoding of stored labels as class codes or targets, some rows at a time.

    Parameters
    ----------
    read
        Starts a pass over the labels as stored, arrays of shape (n_rows,). NaN, ``None`` and empty text mark unlabeled
        rows. The first pass, for classes, finds their names.
    task
        ``"classification"``, ``"regression"``, or ``"auto"``: classification for integers, booleans and text,
        regression for floats.
    unlabeled
        A further value that marks unlabeled rows; ``"none"`` for no value; ``"auto"``: the number -1 among classes,
        unless all others are 1, since -1 and 1 are two classes.

    Attributes
    ----------
    task, classes
        Task, and names of the classes by code.

    Raises
    ------
    JobError
        If `task` is unknown.
    InputError
        If no row is labeled, a value is invalid, or the task is ambiguous.
    """

    task: Task
    classes: tuple[str, ...]

    def __init__(self, read: Callable[[], Iterator[np.ndarray]], task: str, unlabeled: str = AUTO) -> None:
        if task not in TASKS:
            msg = f"data.task is {task!r}; it can be {shorten_names(TASKS)}.{nearest(task, TASKS)}"
            raise JobError(msg)
        self._read, self._unlabeled, self.task, self.classes = read, unlabeled, "regression", ()
        if task == "regression":
            return
        vocabulary = self._vocabulary = Vocabulary(class_name, MOST_CLASSES, TOO_MANY_CLASSES)
        for row, part in with_first_rows(read()):
            if part.dtype.kind == "f":
                if task == "auto":
                    return
                _refuse_infinity(part, row)
            vocabulary.add(part)
        if task == "auto" and vocabulary.has_fractions and vocabulary.are_numbers:
            return
        self.task = "classification"
        self._codes = self._find_classes(task)

    def _find_classes(self, task: str) -> dict[Any, int]:
        """Set the names of the classes; return the class code of each number, or name if a value is text."""
        vocabulary, unlabeled = self._vocabulary, self._unlabeled
        counts = vocabulary.numbers if vocabulary.is_numeric else vocabulary.all_names()
        name_of = _names_of_numbers(counts) if vocabulary.is_numeric else {name: name for name in counts}
        rows = {name: counts[key] for key, name in name_of.items()}
        dropped = _unlabeled_name(rows, unlabeled, has_minus_one=vocabulary.has_minus_one)
        n_labeled = sum(rows.values()) - rows.pop(dropped, 0)
        self.classes = tuple(rows if vocabulary.is_numeric else in_order(rows))
        if n_labeled == 0:
            msg = "labels are empty: no row has a class."
            raise InputError(msg)
        if unlabeled == AUTO and len(self.classes) == 1 and vocabulary.has_minus_one:
            msg = (
                f"labels hold -1 and one class, {self.classes[0]!r}; -1 means an unlabeled row, so number two classes "
                "0 and 1, or set data.unlabeled to none."
            )
            raise InputError(msg)
        if task == "auto" and len(self.classes) > max(MANY_CLASSES, n_labeled / ROWS_PER_CLASS):
            msg = (
                f"labels hold {len(self.classes)} different values in {n_labeled} rows; set data.task to "
                "'classification' or 'regression'."
            )
            raise InputError(msg)
        code_of = {name: code for code, name in enumerate(self.classes)}
        return {key: code_of[name] for key, name in name_of.items() if name != dropped}

    def parts(self) -> Iterator[np.ndarray]:
        """Yield class codes, int32, -1 if unlabeled, or targets, float64, NaN if unlabeled, for the rows of each part.

        :class:`InputError` for a value that is no target, with its row, and at the end if no row has a target.
        """
        if self.task == "classification":
            for part in self._read():
                yield self._vocabulary.encode(part, self._codes, np.int32)
            return
        is_labeled = False
        for row, part in with_first_rows(self._read()):
            values = _targets(part, row, self._unlabeled)
            is_labeled = is_labeled or not bool(np.isnan(values).all())
            yield values
        if not is_labeled:
            msg = "labels are empty: no row has a target."
            raise InputError(msg)


def refuse_fractions(raw: np.ndarray, method: str) -> None:
    """Raise :class:`InputError` if labels for a method that needs classes, shape (n_samples,), hold fractions."""
    floats = raw if raw.dtype.kind == "f" else np.array([v for v in raw if isinstance(v, float | np.floating)], float)
    labels_known = floats[~np.isnan(floats)]
    if (fractions := labels_known[np.isinf(labels_known) | (labels_known != np.rint(labels_known))]).size:
        msg = f"Unknown label type: continuous. y holds {fractions[0]}, and {method} needs classes: {CONVERT}."
        raise InputError(msg)


def classes_note(classes: Sequence[str], unlabeled: str | None) -> str | None:
    """Return a note, without a full stop, if -1 was read as a class by default, else None."""
    if unlabeled not in (None, AUTO) or tuple(classes) != SIGN_NAMES:
        return None
    return (
        "labels hold -1 and 1 only and are read as two classes; set data.unlabeled (convert --unlabeled) to -1 where "
        "-1 means an unlabeled row, or to none to confirm the classes"
    )


def _unlabeled_name(names: Collection[str], unlabeled: str, *, has_minus_one: bool) -> str:
    """Return the name in `names` that marks unlabeled rows, or an empty string."""
    if unlabeled == AUTO:
        return "-1" if "-1" in names and {*names} != {*SIGN_NAMES} and has_minus_one else ""
    number = as_number(unlabeled)
    # The name of a number depends on whether all labels are whole numbers.
    forms = [unlabeled.strip()] if number is None else [unlabeled.strip(), f"{number:.0f}", repr(number)]
    return next((form for form in forms if form in names and unlabeled != NONE), "")


def _names_of_numbers(numbers: Collection[Any]) -> dict[Any, str]:
    """Return the name of each number, ascending: that of a whole number if all are."""
    ordered = sorted(numbers)
    is_whole = all(not isinstance(value, float) or (value.is_integer() and abs(value) < 2**53) for value in ordered)
    return {value: str(int(value) if is_whole and isinstance(value, float) else value) for value in ordered}


def class_name(value: Any) -> str | None:
    """Return the name of a class, None for a missing label; :class:`InputError` for what is no class."""
    if isinstance(value, (str, bytes)) or is_missing(value):
        return as_text(value)
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (int, float, np.integer, np.floating)):
        number = float(value)
        return str(int(value)) if number.is_integer() else repr(number)
    msg = f"labels hold a value of type {type(value).__name__}; they must be numbers or text: {CONVERT}."
    raise InputError(msg)


def _targets(raw: np.ndarray, first: int, unlabeled: str) -> np.ndarray:
    """Return the targets of rows from `first` on, shape (n_rows,), float64."""
    values = _spelled_targets(raw, first, unlabeled) if raw.dtype.kind in "USTO" else raw.astype(np.float64)
    if (number := as_number(unlabeled)) is not None and math.isfinite(number):
        values[values == number] = np.nan
    _refuse_infinity(values, first)
    return values


def _spelled_targets(raw: np.ndarray, first: int, unlabeled: str) -> np.ndarray:
    """Return targets of which some are text, by the rules of text tables, with the decimal sign that they settle."""
    import pyarrow as pa

    names = [class_name(value) for value in raw]
    is_given = [name is not None and (name != unlabeled or unlabeled in (AUTO, NONE)) for name in names]
    is_text = [has_value and isinstance(value, str | bytes) for value, has_value in zip(raw, is_given, strict=True)]
    cells = trimmed(pa.array([name if text else None for name, text in zip(names, is_text, strict=True)], pa.string()))
    numbers = numbers_of(cells, Numerals.of_table(cells.drop_null().to_pylist()))
    if isinstance(numbers, NonNumeric):
        msg = f"labels hold {numbers.text!r} in row {first + numbers.row}; regression needs numbers."
        raise InputError(msg)
    values = np.array(numbers.to_numpy(zero_copy_only=False))
    others = [row for row, has_value in enumerate(is_given) if has_value and not is_text[row]]
    values[others] = [float(raw[row]) for row in others]
    return values


def _refuse_infinity(values: np.ndarray, first: int) -> None:
    rows = np.flatnonzero(np.isinf(values))
    if len(rows):
        msg = f"labels hold {values[rows[0]]} in row {first + int(rows[0])}; they must be finite."
        raise InputError(msg)
