"""Per-sample columns (weights, groups, times, batch), named like labels; they are not features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.checks import check_label_column

MICROSECONDS = 10**6
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES_ARE = "times are all finite numbers, or all ISO dates or datetimes such as 2024-03-01 or 2024-03-01T12:30"


@dataclass(frozen=True)
class Column:
    """The functions of one kind of column.

    Parameters
    ----------
    check
        ``check(values, n_samples, origin)`` returns the values as daskfs uses them, shape (n_samples,), or raises
        :class:`InputError`, which names `origin` and the row.
    describe
        Returns a JSON-able summary of the checked values.
    """

    check: Callable[[Any, int, str], np.ndarray]
    describe: Callable[[np.ndarray], dict[str, Any]]


# ------------------------------------------------------------------ weights
def check_weights(values: Any, n_samples: int, origin: str) -> np.ndarray:
    """Return sample weights as float64, shape (n_samples,).

    Parameters
    ----------
    values
        One number per row, or text that spells a number, shape (n_samples,).
    n_samples, origin
        As in :class:`Column`.

    Raises
    ------
    InputError
        If a weight is missing, not a number, infinite or negative (names the first such row), all weights are 0, or
        the square of their sum overflows.
    """
    raw = check_label_column(values, n_samples, origin, "weights")
    if raw.dtype.kind in "biuf":
        weights = raw.astype(np.float64)
    else:
        weights = np.fromiter((_weight(value, row, origin) for row, value in enumerate(raw)), np.float64, len(raw))
    wrong = np.flatnonzero(~(weights >= 0) | np.isinf(weights))
    if wrong.size:
        value = weights[wrong[0]]
        found = "no weight" if np.isnan(value) else f"the weight {value:g}"
        more = f", and {wrong.size - 1} more rows have none that serves" if wrong.size > 1 else ""
        msg = (
            f"{origin} has {found} in row {int(wrong[0])}{more}: weights of rows are finite numbers from 0 up (0 "
            "leaves a row out)."
        )
        raise InputError(msg)
    if not weights.any():
        msg = f"{origin} gives every row a weight of zero: no row is left to count."
        raise InputError(msg)
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    if not np.isfinite(total * total):
        msg = f"{origin} has weights up to {weights.max():.3g}, whose products overflow: divide them all."
        raise InputError(msg)
    return weights


def _weight(value: Any, row: int, origin: str) -> float:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if text is None or (isinstance(text, str) and not text.strip()):
        return np.nan
    try:
        return float(text)
    except (TypeError, ValueError):
        msg = f"{origin} has {str(text)[:40]!r} in row {row}: weights of rows are numbers."
        raise InputError(msg) from None


def describe_weights(weights: np.ndarray) -> dict[str, Any]:
    """Summarize weights, float64, shape (n_samples,): the number of positive ones, sum, minimum and maximum."""
    return {
        "n_counted": int(np.count_nonzero(weights)),
        "total": float(weights.sum()),
        "minimum": float(weights.min()),
        "maximum": float(weights.max()),
    }


# ------------------------------------------------------------------ groups
def check_groups(values: Any, n_samples: int, origin: str) -> np.ndarray:
    """Return the group number of each row, int64, shape (n_samples,).

    Groups are numbered from 0 in the order of their values, numerically or alphabetically.

    Parameters
    ----------
    values
        Numbers, text or dates, shape (n_samples,); each distinct one is a group.
    n_samples, origin
        As in :class:`Column`.

    Raises
    ------
    InputError
        If a row, even an unlabeled one, has no group to assign it to training or test rows; names the first such row.
    """
    raw = check_label_column(values, n_samples, origin, "groups")
    if raw.dtype.kind in "biufM":
        _refuse_missing(np.flatnonzero(raw != raw), origin, "group", "give every row one")
        return np.unique(raw, return_inverse=True)[1].astype(np.int64, copy=False)
    seen: dict[str, int] = {}
    names = (_text(value) for value in raw)
    codes = np.fromiter((-1 if name is None else seen.setdefault(name, len(seen)) for name in names), np.int64)
    _refuse_missing(np.flatnonzero(codes < 0), origin, "group", "give every row one")
    places = np.empty(len(seen), dtype=np.int64)
    places[[seen[name] for name in sorted(seen)]] = np.arange(len(seen))
    return places[codes]


def describe_groups(groups: np.ndarray) -> dict[str, Any]:
    """Summarize group numbers, integers, shape (n_samples,): the number of groups, smallest and largest size."""
    sizes = np.bincount(groups)
    return {"n_groups": int(sizes.size), "smallest": int(sizes.min()), "largest": int(sizes.max())}


# ------------------------------------------------------------------ batches
def check_batch(values: Any, n_samples: int, origin: str) -> np.ndarray:
    """Return the batch name of each row, text in an object array, shape (n_samples,); equal names share one object.

    Parameters
    ----------
    values
        Numbers, text or dates, shape (n_samples,); each distinct one is a batch.
    n_samples, origin
        As in :class:`Column`.

    Raises
    ------
    InputError
        If a row has no batch of rows to compare it with; names the first such row.
    """
    raw = check_label_column(values, n_samples, origin, "batch")
    seen: dict[str, str] = {}
    names = np.empty(len(raw), dtype=object)
    for row, value in enumerate(raw.astype("U") if raw.dtype.kind == "M" else raw.tolist()):
        name = _text(int(value) if isinstance(value, float) and value.is_integer() else value)
        names[row] = None if name in (None, "NaT") else seen.setdefault(str(name), str(name))
    _refuse_missing(np.flatnonzero([name is None for name in names]), origin, "batch", "give every row one")
    return names


def batch_names(batches: np.ndarray) -> list[str]:
    """Return the distinct names in `batches`, objects, shape (n_samples,), sorted as numbers if possible."""
    names = set(batches.tolist())
    numbers = {name: _number(name) for name in names}
    if all(number is not None and np.isfinite(number) for number in numbers.values()):
        return sorted(names, key=lambda name: (numbers[name], name))
    return sorted(names)


def describe_batch(batches: np.ndarray) -> dict[str, Any]:
    """Summarize batch names, objects, shape (n_samples,): the distinct names and the number of rows of each."""
    names = batch_names(batches)
    sizes = np.bincount(_batch_codes(batches, names), minlength=len(names))
    return {"names": names, "rows": [int(size) for size in sizes]}


def _batch_codes(batches: np.ndarray, names: Sequence[str]) -> np.ndarray:
    code = {name: number for number, name in enumerate(names)}
    return np.fromiter((code[name] for name in batches), np.int64, len(batches))


# ------------------------------------------------------------------ times
def check_times(values: Any, n_samples: int, origin: str) -> np.ndarray:
    """Return the time of each row, shape (n_samples,): numbers as float64, dates as datetime64[us] in UTC.

    Parameters
    ----------
    values
        All finite numbers (larger is later), or all dates (datetime64 or text in ISO 8601), shape (n_samples,). Text
        that spells a number counts as one. Either all datetimes have an offset from UTC or none, which means UTC.
    n_samples, origin
        As in :class:`Column`.

    Raises
    ------
    InputError
        If a time is missing, infinite, or of another kind than the first; names the first such row.
    """
    raw = check_label_column(values, n_samples, origin, "times")
    if raw.dtype.kind == "M":
        times = raw.astype("M8[us]")
        _refuse_missing(np.flatnonzero(np.isnat(times)), origin, "time", TIMES_ARE)
        return times
    if raw.dtype.kind in "biuf":
        times = raw.astype(np.float64)
        _refuse_missing(np.flatnonzero(np.isnan(times)), origin, "time", TIMES_ARE)
    else:
        times = _written_times(raw, origin)
    if times.dtype.kind == "f" and (wrong := np.flatnonzero(np.isinf(times))).size:
        msg = f"{origin} has the time {times[wrong[0]]} in row {wrong[0]}: {TIMES_ARE}."
        raise InputError(msg)
    return times


def as_stored(values: np.ndarray) -> np.ndarray:
    """Convert a checked column, shape (n_samples,), to its stored form.

    Batches become numbers, int64, and dates float64, seconds since 1970-01-01 UTC; other columns stay. Dates less than
    half a microsecond apart may become equal, but never change their order.
    """
    if values.dtype.kind == "O":
        return _batch_codes(values, batch_names(values))
    return values.astype(np.int64) / MICROSECONDS if values.dtype.kind == "M" else values


def as_checked(name: str, values: np.ndarray, described: Mapping[str, Any]) -> np.ndarray:
    """Invert :func:`as_stored`.

    Parameters
    ----------
    name
        Key of the column in :data:`daskfs.sources.base.SAMPLE_COLUMNS`.
    values
        The stored column, shape (n_samples,).
    described
        Summary of the column.
    """
    if name == "times" and isinstance(described["first"], str):
        return np.rint(values * MICROSECONDS).astype(np.int64).astype("M8[us]")
    return np.array(described["names"], dtype=object)[values] if name == "batch" else values


def describe_times(times: np.ndarray) -> dict[str, Any]:
    """Summarize times, float64 or datetime64, shape (n_samples,): the number of distinct ones, first and last."""
    ends = [times.min(), times.max()]
    first, last = [str(t.astype("M8[s]")) for t in ends] if times.dtype.kind == "M" else map(float, ends)
    return {"n_distinct": int(np.unique(times).size), "first": first, "last": last}


def _written_times(raw: np.ndarray, origin: str) -> np.ndarray:
    """Parse times from text, all in the format of the first."""
    texts = [_text(value) for value in raw]
    _refuse_missing(np.flatnonzero([text is None for text in texts]), origin, "time", TIMES_ARE)
    if _number(texts[0]) is not None:
        return np.fromiter(_spelled(texts, _number, origin), np.float64, len(texts))
    began = _datetime(texts[0])
    has_offset = began is not None and began.tzinfo is not None

    def microseconds(text: str | None) -> int | None:
        moment = _datetime(text)
        if moment is None or (moment.tzinfo is not None) != has_offset:
            return None
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - EPOCH) // timedelta(microseconds=1)

    return np.fromiter(_spelled(texts, microseconds, origin), np.int64, len(texts)).astype("M8[us]")


def _spelled(
    texts: list[str | None], parse: Callable[[str | None], float | None], origin: str
) -> Iterator[float | int]:
    for row, text in enumerate(texts):
        value = parse(text)
        if value is None:
            after = "" if row == 0 else f", after {str(texts[0])[:40]!r} in row 0"
            msg = f"{origin} has {str(text)[:40]!r} in row {row}{after}: {TIMES_ARE}, with offset or without."
            raise InputError(msg)
        yield value


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _datetime(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text or "")
    except ValueError:
        return None


# ------------------------------------------------------------------ cells
def _text(value: Any) -> str | None:
    """Return a cell as text, None if it is missing."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if text is None or text != text:
        return None
    return str(text).strip() or None


def _refuse_missing(rows: np.ndarray, origin: str, what: str, advice: str) -> None:
    if rows.size:
        more = f", and {rows.size - 1} more rows have none" if rows.size > 1 else ""
        msg = f"{origin} has no {what} in row {int(rows[0])}{more}: {advice}."
        raise InputError(msg)


COLUMNS = {
    "weights": Column(check_weights, describe_weights),
    "groups": Column(check_groups, describe_groups),
    "times": Column(check_times, describe_times),
    "batch": Column(check_batch, describe_batch),
}
"""Kinds of columns by their keys in the data block."""
