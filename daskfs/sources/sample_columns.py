"""Per-sample columns (weights, groups, times, batch), named like labels; they are not features.

A column is checked and stored some rows at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeAlias

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.checks import check_label_column
from daskfs.sources.columns import with_first_rows
from daskfs.sources.values import as_number, as_text, decoded, in_order, is_missing
from daskfs.sources.vocabulary import MissingValues, Vocabulary

Parts: TypeAlias = Callable[[], Iterator[np.ndarray]]
"""Starts a pass over a column: arrays of shape (n_rows,), some rows at a time and in order."""
MICROSECONDS = 10**6
UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES_ARE = "times are all finite numbers, or all ISO dates or datetimes such as 2024-03-01 or 2024-03-01T12:30"
MOST_GROUPS, MOST_BATCHES = 2**24, 2**20
"""Most groups and batches, whose values are held in memory."""
MOST_TIMES = 2**22
"""Most distinct times that are counted."""
MAX_TOTAL = 1e20
"""Largest sum of weights; the smallest is its inverse."""


class Column(ABC):
    """A per-sample column: `read` starts a pass over the values as they are, and `origin` names it in messages."""

    dtype: ClassVar[type] = np.float64

    def __init__(self, read: Parts, origin: str) -> None:
        self._read, self._origin = read, origin

    @abstractmethod
    def checked(self) -> Iterator[np.ndarray]:
        """Yield the values as they are used in memory, part by part.

        :class:`InputError` for an invalid value, with its row, maybe only at the end.
        """

    def stored(self) -> Iterator[np.ndarray]:
        """Yield the values as they are stored, likewise."""
        return self.checked()

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """Return a JSON-able summary of the column, after a pass."""


def whole(kind: type[Column], values: Any, n_samples: int, origin: str, what: str) -> np.ndarray:
    """Return a checked column that is in memory, shape (n_samples,)."""
    raw = check_label_column(values, n_samples, origin, what)
    (checked,) = kind(lambda: iter([raw]), origin).checked()
    return checked


# ------------------------------------------------------------------ weights
class Weights(Column):
    """Number of rows that each row counts for: numbers, or text that spells them, finite and from 0 up.

    They are float64. Not all are 0, and their sum times a square of values neither overflows nor underflows.
    """

    def checked(self) -> Iterator[np.ndarray]:
        """Yield the weights."""
        wrong = MissingValues()
        self._n_counted, self._total, self._ends = 0, 0.0, (np.inf, -np.inf)
        for row, raw in with_first_rows(self._read()):
            if raw.dtype.kind in "biuf":
                weights = raw.astype(np.float64)
            else:
                spelled = (_weight(one, number, self._origin) for number, one in enumerate(raw, row))
                weights = np.fromiter(spelled, np.float64, len(raw))
            wrong.add(row, ~(weights >= 0) | np.isinf(weights), weights)
            self._n_counted += int(np.count_nonzero(weights))
            with np.errstate(over="ignore"):
                self._total += float(weights.sum())
            self._ends = min(self._ends[0], float(weights.min())), max(self._ends[1], float(weights.max()))
            yield weights
        if wrong.count:
            weight = "no weight" if np.isnan(wrong.value) else f"the weight {wrong.value:g}"
            more = f", and {wrong.count - 1} more rows have none that serves" if wrong.count > 1 else ""
            msg = (
                f"{self._origin} has {weight} in row {wrong.first}{more}: weights of rows are finite numbers from 0 up "
                "(0 leaves a row out)."
            )
            raise InputError(msg)
        if not self._n_counted:
            msg = f"{self._origin} gives every row a weight of zero: no row is left to count."
            raise InputError(msg)
        if not 1 / MAX_TOTAL <= self._total <= MAX_TOTAL:
            what = "overflow: divide" if self._total > 1 else "underflow: multiply"
            msg = f"{self._origin} has weights up to {self._ends[1]:.3g}, whose products {what} them all."
            raise InputError(msg)

    def described(self) -> dict[str, Any]:
        """Return the number of positive weights, their sum, minimum and maximum."""
        low, high = self._ends
        return {"n_counted": self._n_counted, "total": self._total, "minimum": low, "maximum": high}


def check_weights(values: Any, n_samples: int, origin: str) -> np.ndarray:
    """Return sample weights in memory as float64, shape (n_samples,); see :class:`Weights`."""
    return whole(Weights, values, n_samples, origin, "weights")


def _weight(value: Any, row: int, origin: str) -> float:
    weight = np.nan if is_missing(value) else as_number(decoded(value))
    if weight is None:
        msg = f"{origin} has {str(decoded(value))[:40]!r} in row {row}: weights of rows are numbers."
        raise InputError(msg)
    return weight


# ------------------------------------------------------------------ groups
class Groups(Column):
    """Groups: numbers, text or dates, of which each distinct one is a group, even of unlabeled rows.

    They become numbers from 0 in the order of their values, numerically or alphabetically, int64.
    """

    dtype = np.int64

    def checked(self) -> Iterator[np.ndarray]:
        """Yield the number of the group of each row."""
        many = f"{self._origin} has more than {MOST_GROUPS:,} groups: leave data.groups out, or make groups larger."
        vocabulary = Vocabulary(as_text, MOST_GROUPS, many)
        for part in map(_dates_as_numbers, self._read()):
            vocabulary.add(part)
        vocabulary.missing.refuse(self._origin, "group", "give every row one")
        rows = vocabulary.numbers if vocabulary.is_numeric else vocabulary.all_names()
        number_of = {key: number for number, key in enumerate(sorted(rows))}
        self._sizes = rows.values()
        for part in map(_dates_as_numbers, self._read()):
            yield vocabulary.encode(part, number_of, np.int64)

    def described(self) -> dict[str, Any]:
        """Return the number of groups, and the smallest and the largest size."""
        return {"n_groups": len(self._sizes), "smallest": min(self._sizes), "largest": max(self._sizes)}


def _dates_as_numbers(part: np.ndarray) -> np.ndarray:
    if part.dtype.kind != "M":
        return part
    return part.astype(object) if np.isnat(part).any() else part.view(np.int64)


# ------------------------------------------------------------------ batches
class Batches(Column):
    """Batches: numbers, text or dates, of which each distinct one is a batch.

    In memory they are names, text in an object array; equal names share one object. They are stored as numbers, int64,
    in the order of :func:`~daskfs.sources.values.in_order`.
    """

    dtype = np.int64

    def checked(self) -> Iterator[np.ndarray]:
        """Yield the name of the batch of each row."""
        for numbers in self.stored():
            yield np.array(self._names, dtype=object)[numbers]

    def stored(self) -> Iterator[np.ndarray]:
        """Yield the number of the batch of each row."""
        vocabulary = Vocabulary(_batch_name, MOST_BATCHES, f"{self._origin} has more than {MOST_BATCHES:,} batches.")
        for part in map(_dates_as_text, self._read()):
            vocabulary.add(part)
        vocabulary.missing.refuse(self._origin, "batch", "give every row one")
        rows = vocabulary.all_names()
        self._names = in_order(rows)
        self._sizes = [rows[name] for name in self._names]
        number_of: dict[Any, int] = {name: number for number, name in enumerate(self._names)}
        if vocabulary.is_numeric:
            number_of = {value: number_of[str(_batch_name(value))] for value in vocabulary.numbers}
        for part in map(_dates_as_text, self._read()):
            yield vocabulary.encode(part, number_of, np.int64)

    def described(self) -> dict[str, Any]:
        """Return the distinct names, and the number of rows of each."""
        return {"names": self._names, "rows": self._sizes}


def _dates_as_text(part: np.ndarray) -> np.ndarray:
    return part.astype("U").astype(object) if part.dtype.kind == "M" else part


def _batch_name(value: Any) -> str | None:
    name = as_text(int(value) if isinstance(value, float) and value.is_integer() else value)
    return None if name == "NaT" else name


# ------------------------------------------------------------------ times
class Times(Column):
    """Times: all finite numbers (larger is later), or all dates (datetime64 or text in ISO 8601).

    Text that spells a number counts as one. Either all datetimes have an offset from UTC or none, which means UTC. In
    memory times are float64, or datetime64[us] in UTC; dates are stored as float64, seconds since 1970-01-01 UTC. Dates
    less than half a microsecond apart may become equal when stored, but never change their order.
    """

    def checked(self) -> Iterator[np.ndarray]:
        """Yield the times."""
        missing, infinite, written = MissingValues(), MissingValues(), _WrittenTimes(self._origin)
        self._ends: list[Any] = []
        self._distinct: np.ndarray | None = np.empty(0)
        for row, raw in with_first_rows(self._read()):
            if raw.dtype.kind == "M":
                times = raw.astype("M8[us]")
                is_missing = np.isnat(times)
            elif raw.dtype.kind in "biuf":
                times = raw.astype(np.float64)
                is_missing = np.isnan(times)
            else:
                texts = list(map(as_text, raw))
                is_missing = np.array([text is None for text in texts])
                times = written.parse(texts, row)
            missing.add(row, is_missing)
            if times.dtype.kind == "f":
                infinite.add(row, np.isinf(times), times)
            self._note(times[~is_missing])
            yield times
        missing.refuse(self._origin, "time", TIMES_ARE)
        if infinite.count:
            msg = f"{self._origin} has the time {infinite.value} in row {infinite.first}: {TIMES_ARE}."
            raise InputError(msg)

    def _note(self, times: np.ndarray) -> None:
        import pandas as pd

        if not times.size:
            return
        self._ends = [min([times.min(), *self._ends[:1]]), max([times.max(), *self._ends[1:]])]
        if self._distinct is not None:
            distinct = pd.unique(times)
            self._distinct = pd.unique(np.concatenate([self._distinct, distinct])) if self._distinct.size else distinct
            if self._distinct.size > MOST_TIMES:
                self._distinct = None

    def stored(self) -> Iterator[np.ndarray]:
        """Yield the times as numbers."""
        for times in self.checked():
            yield times.astype(np.int64) / MICROSECONDS if times.dtype.kind == "M" else times

    def described(self) -> dict[str, Any]:
        """Return the number of distinct times, None for more than 2**22, the first and the last."""
        first, last = (str(t.astype("M8[s]")) if t.dtype.kind == "M" else float(t) for t in self._ends)
        n_distinct = None if self._distinct is None else int(self._distinct.size)
        return {"n_distinct": n_distinct, "first": first, "last": last}


class _WrittenTimes:
    """Parses times from text, all in the format of the first."""

    def __init__(self, origin: str) -> None:
        self._origin, self._first = origin, ""

    def parse(self, texts: list[str | None], row: int) -> np.ndarray:
        """Return the times of rows from `row` on, shape (n_rows,), float64 or datetime64[us]; missing ones are any."""
        self._first = self._first or next((text for text in texts if text is not None), "")
        if not self._first or as_number(self._first) is not None:
            return np.fromiter(self._parse_texts(texts, row, as_number), np.float64, len(texts))
        began = _datetime(self._first)
        has_offset = began is not None and began.tzinfo is not None

        def microseconds(text: str | None) -> int | None:
            moment = _datetime(text)
            if moment is None or (moment.tzinfo is not None) != has_offset:
                return None
            return (moment.replace(tzinfo=moment.tzinfo or UTC) - UNIX_EPOCH) // timedelta(microseconds=1)

        return np.fromiter(self._parse_texts(texts, row, microseconds), np.int64, len(texts)).astype("M8[us]")

    def _parse_texts(
        self, texts: list[str | None], row: int, parse: Callable[[str | None], float | None]
    ) -> Iterator[float | int]:
        for number, text in enumerate(texts, row):
            value = 0 if text is None else parse(text)
            if value is None:
                after = "" if number == 0 else f", after {self._first[:40]!r} in row 0"
                place = f"{self._origin} has {str(text)[:40]!r} in row {number}{after}"
                msg = f"{place}: {TIMES_ARE}, with offset or without."
                raise InputError(msg)
            yield value


def as_checked(name: str, values: np.ndarray, described: Mapping[str, Any]) -> np.ndarray:
    """Return stored values of a column, shape (n_rows,), as they are used in memory; `described` is its summary."""
    if name == "times" and isinstance(described["first"], str):
        return np.rint(values * MICROSECONDS).astype(np.int64).astype("M8[us]")
    return np.array(described["names"], dtype=object)[values] if name == "batch" else values


def _datetime(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text or "")
    except ValueError:
        return None


SAMPLE_COLUMN_KINDS: dict[str, type[Column]] = {"weights": Weights, "groups": Groups, "times": Times, "batch": Batches}
"""Kinds of columns by their keys in the data block."""
