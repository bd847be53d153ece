"""Distinct values of a column that is read in parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from daskfs.errors import InputError

SPAN = 2**16
"""Range of integers that are looked up in a table."""


class MissingValues:
    """Rows without a valid value: the first one with its value, and how many."""

    def __init__(self) -> None:
        self.first, self.count, self.value = 0, 0, np.nan

    def add(self, row: int, is_missing: np.ndarray, values: np.ndarray | None = None) -> None:
        """Add the rows of a mask, shape (n_rows,), whose first row is `row`, maybe with their values, floats."""
        rows = np.flatnonzero(is_missing)
        if rows.size and not self.count:
            self.first = row + int(rows[0])
            self.value = np.nan if values is None else float(values[rows[0]])
        self.count += rows.size

    def refuse(self, origin: str, what: str, advice: str) -> None:
        """Raise :class:`InputError` if there are such rows."""
        if self.count:
            more = f", and {self.count - 1} more rows have none" if self.count > 1 else ""
            msg = f"{origin} has no {what} in row {self.first}{more}: {advice}."
            raise InputError(msg)


class Vocabulary:
    """Distinct values of a column, and the number of rows of each.

    Parameters
    ----------
    name_of
        Returns the name of a value that is no number in an array of numbers, None for a missing one.
    most
        Maximum number of distinct values.
    too_many
        Message of the :class:`InputError` for more.

    Attributes
    ----------
    numbers, names
        Number of rows by value, of arrays of numbers and of others.
    is_numeric
        Whether all parts were arrays of numbers.
    has_fractions
        Whether a value is a float.
    are_numbers
        Whether no value is text.
    has_minus_one
        Whether the number -1 is a value.
    missing
        Rows without a value.
    """

    def __init__(self, name_of: Callable[[Any], str | None], most: int, too_many: str) -> None:
        self._name_of, self._most, self._too_many = name_of, most, too_many
        self.numbers, self.names = defaultdict[Any, int](int), defaultdict[str, int](int)
        self.has_fractions, self.are_numbers, self.has_minus_one = False, True, False
        self.missing, self._n_rows, self.is_numeric = MissingValues(), 0, True

    def add(self, part: np.ndarray) -> None:
        """Add the values of some rows, shape (n_rows,)."""
        values, codes = distinct(part)
        counts = np.bincount(codes + 1, minlength=len(values) + 1)[1:].tolist()
        if part.dtype.kind in "biuf":
            is_named = [True] * len(values)
            self.has_fractions |= part.dtype.kind == "f"
            self.has_minus_one |= part.dtype.kind in "if" and -1 in values
            for value, count in zip(values, counts, strict=True):
                self.numbers[value] += count
        else:
            self.is_numeric = False
            named = [self._name_of(value) for value in values]
            is_named = [name is not None for name in named]
            for name, count in zip(named, counts, strict=True):
                if name is not None:
                    self.names[name] += count
            for kind in {type(value) for value, name in zip(values, named, strict=True) if name is not None}:
                self.are_numbers &= issubclass(kind, (int, float, np.number))
                self.has_fractions |= issubclass(kind, (float, np.floating))
            self.has_minus_one |= "-1" in named and any(value == -1 for value in values)
        self.missing.add(self._n_rows, ~np.array([*is_named, False])[codes])
        self._n_rows += part.size
        if len(self.numbers) + len(self.names) > self._most:
            raise InputError(self._too_many)

    def all_names(self) -> dict[str, int]:
        """Return the number of rows by name, those of numbers included."""
        counts = defaultdict(int, self.names)
        for value, count in self.numbers.items():
            counts[str(self._name_of(value))] += count
        return counts

    def encode(self, part: np.ndarray, codes: Mapping[Any, int], dtype: type) -> np.ndarray:
        """Return the code of each row, shape (n_rows,), -1 for a value that has none.

        `codes` has those of numbers if the column is numeric, else of names.
        """
        values, rows = distinct(part)
        if self.is_numeric:
            codes_of = [codes.get(value, -1) for value in values]
        else:  # most text is its own name
            codes_of = [codes[v] if type(v) is str and v in codes else codes.get(self._name_of(v), -1) for v in values]
        return np.array([*codes_of, -1], dtype=dtype)[rows]


def distinct(part: np.ndarray) -> tuple[list[Any], np.ndarray]:
    """Return the distinct values of an array, shape (n,), in any order, and the index of each row among these, int64.

    The index of a missing number is -1. Values of several types in an array of objects are distinct, if equal too.
    """
    if part.dtype.kind in "biu" and part.size:
        low, high = int(part.min()), int(part.max())
        if high - low < SPAN:
            is_long = part.dtype.kind == "u" and part.itemsize == 8
            offsets = (part - np.uint64(low)).astype(np.int64) if is_long else part.astype(np.int64) - low
            present = np.flatnonzero(np.bincount(offsets))
            table = np.zeros(high - low + 1, dtype=np.int64)
            table[present] = np.arange(present.size)
            values: list[Any] = [low + offset for offset in present.tolist()]
            return [*map(bool, values)] if part.dtype.kind == "b" else values, table[offsets]
    import pandas as pd

    if part.dtype.kind in "biuf":
        wide = np.float64 if part.dtype.kind == "f" and part.itemsize not in (4, 8) else part.dtype.newbyteorder("=")
        codes, uniques = pd.factorize(part.astype(wide, copy=False))
        return uniques.tolist(), codes
    objects = part.astype(object, copy=False)
    if pd.api.types.infer_dtype(objects, skipna=True) in ("string", "bytes"):
        codes, uniques = pd.factorize(objects)
        return [*uniques.tolist(), None], np.where(codes < 0, len(uniques), codes)
    ids: dict[Any, int] = {}
    try:
        codes = np.fromiter((ids.setdefault((type(v), v if v == v else None), len(ids)) for v in objects), np.int64)
    except TypeError:  # a list or an array, which the caller refuses
        return list(objects), np.arange(objects.size)
    return [value for _, value in ids], codes
