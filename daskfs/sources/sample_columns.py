"""Columns beside X, one value for each row: its weight, its group, its time and its batch. They are named as labels
are, and are no features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.base import SourceSpec
from daskfs.sources.checks import check_label_column, check_label_count
from daskfs.sources.resolve import LabelRef, MemberReader, resolve_beside
from daskfs.sources.weights import check_weights

MICROSECONDS = 10**6
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES_ARE = "times are all finite numbers, or all ISO dates or datetimes such as 2024-03-01 or 2024-03-01T12:30"


@dataclass(frozen=True)
class Column:
    """What one kind of column is.

    Parameters
    ----------
    check
        ``check(values, n_samples, origin)`` returns the values as daskfs uses them, shape (n_samples,), or raises
        :class:`InputError` naming `origin` and the row.
    describe
        Returns what a summary says of them, JSON-able.
    """

    check: Callable[[Any, int, str], np.ndarray]
    describe: Callable[[np.ndarray], dict[str, Any]]


class SampleColumns:
    """The columns beside X that the spec of one source names.

    Parameters
    ----------
    spec
        How the user named the data.
    own
        Columns or members of the source.
    kind
        What messages call one of `own`: ``"column"`` or ``"member"``.
    """

    def __init__(self, spec: SourceSpec, own: Sequence[str], kind: str) -> None:
        self._refs = resolve_beside(spec, own, kind)

    @property
    def names(self) -> tuple[str, ...]:
        """Which there are, of :data:`daskfs.sources.base.BESIDE`."""
        return tuple(self._refs)

    @property
    def refs(self) -> tuple[LabelRef, ...]:
        """Where they are."""
        return tuple(self._refs.values())

    def read(self, name: str, n_samples: int, read_member: MemberReader) -> np.ndarray | None:
        """Return one column as :class:`Column` checks it, shape (n_samples,); None where the spec names none.

        Parameters
        ----------
        name
            Of the column.
        n_samples
            Number of rows of X.
        read_member
            Reads what lies inside the source.

        Raises
        ------
        InputError
            As the check of the column.
        """
        ref = self._refs.get(name)
        return None if ref is None else COLUMNS[name].check(ref.read(n_samples, read_member), n_samples, ref.origin)


def describe_weights(weights: np.ndarray) -> dict[str, Any]:
    """Return what a summary says of weights."""
    return {
        "n_counted": int(np.count_nonzero(weights)),
        "total": float(weights.sum()),
        "minimum": float(weights.min()),
        "maximum": float(weights.max()),
    }


# ------------------------------------------------------------------ groups
def check_groups(values: Any, n_samples: int, origin: str) -> np.ndarray:
    """Return the number of each row's group, int64, shape (n_samples,): groups are numbered from 0 in the order of
    their values, numbers by size and text by letters.

    Parameters
    ----------
    values
        Numbers, text or dates; each different one is a group.
    n_samples
        Number of rows of X.
    origin
        What messages call them.

    Raises
    ------
    InputError
        Naming the first row without a group, with or without a label: nobody could tell whether it may be trained on.
    """
    raw = check_label_column(np.asarray(values), origin, "groups")
    check_label_count(len(raw), n_samples, origin, "groups")
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
    """Return what a summary says of groups: how many there are, and the rows of the smallest and largest."""
    sizes = np.bincount(groups)
    return {"n_groups": int(sizes.size), "smallest": int(sizes.min()), "largest": int(sizes.max())}


# ------------------------------------------------------------------ batches
def check_batch(values: Any, n_samples: int, origin: str) -> np.ndarray:
    """Return the name of each row's batch, shape (n_samples,), text that rows of one batch share.

    Parameters
    ----------
    values
        Numbers, text or dates; each different one is a batch.
    n_samples
        Number of rows of X.
    origin
        What messages call them.

    Raises
    ------
    InputError
        Naming the first row without a batch: nobody could tell which rows it is to be compared with.
    """
    raw = check_label_column(np.asarray(values), origin, "batch")
    check_label_count(len(raw), n_samples, origin, "batch")
    seen: dict[str, str] = {}
    names = np.empty(len(raw), dtype=object)
    for row, value in enumerate(raw.astype("U") if raw.dtype.kind == "M" else raw.tolist()):
        name = _text(int(value) if isinstance(value, float) and value.is_integer() else value)
        names[row] = None if name in (None, "NaT") else seen.setdefault(str(name), str(name))
    _refuse_missing(np.flatnonzero([name is None for name in names]), origin, "batch", "give every row one")
    return names


def batch_names(batches: np.ndarray) -> list[str]:
    """Return the names of the batches that rows have, in order: by size where all are numbers, else by letters."""
    names = set(batches.tolist())
    numbers = {name: _number(name) for name in names}
    if all(number is not None and np.isfinite(number) for number in numbers.values()):
        return sorted(names, key=lambda name: (numbers[name], name))
    return sorted(names)


def describe_batch(batches: np.ndarray) -> dict[str, Any]:
    """Return what a summary says of batches: their names and how many rows each has."""
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
        All finite numbers, of which larger ones are later; or all dates: datetime64, or text in ISO 8601. Text that
        spells a number counts as one. Datetimes have an offset from UTC all, or none; those without are taken as UTC.
    n_samples
        Number of rows of X.
    origin
        What messages call them.

    Raises
    ------
    InputError
        Naming the first row whose time is missing, infinite, or of another kind than those before.
    """
    raw = check_label_column(np.asarray(values), origin, "times")
    check_label_count(len(raw), n_samples, origin, "times")
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
        raise InputError(f"{origin} has the time {times[wrong[0]]} in row {wrong[0]}: {TIMES_ARE}.")
    return times


def as_stored(values: np.ndarray) -> np.ndarray:
    """Return a checked column as stores hold it: batches by number, and dates as float64, seconds since 1970-01-01 UTC.
    Dates less than half a microsecond apart may become one time, and never change their order.
    """
    if values.dtype.kind == "O":
        return _batch_codes(values, batch_names(values))
    return values.astype(np.int64) / MICROSECONDS if values.dtype.kind == "M" else values


def as_checked(name: str, values: np.ndarray, described: Mapping[str, Any]) -> np.ndarray:
    """Return a column that a store holds as it was before :func:`as_stored`.

    Parameters
    ----------
    name
        Of :data:`daskfs.sources.base.BESIDE`.
    values
        The column.
    described
        What its summary said of it.
    """
    if name == "times" and isinstance(described["first"], str):
        return np.rint(values * MICROSECONDS).astype(np.int64).astype("M8[us]")
    return np.array(described["names"], dtype=object)[values] if name == "batch" else values


def describe_times(times: np.ndarray) -> dict[str, Any]:
    """Return what a summary says of times: how many different ones there are, and the first and last, numbers or ISO
    datetimes.
    """
    ends = [times.min(), times.max()]
    first, last = [str(t.astype("M8[s]")) for t in ends] if times.dtype.kind == "M" else map(float, ends)
    return {"n_distinct": int(np.unique(times).size), "first": first, "last": last}


def _written_times(raw: np.ndarray, origin: str) -> np.ndarray:
    """Return times that text spells, all in the way that the first does."""
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
            raise InputError(
                f"{origin} has {str(text)[:40]!r} in row {row}{after}: {TIMES_ARE}, with offset or without."
            )
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
    """Return a cell as text, None for one that is missing."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if text is None or text != text:
        return None
    return str(text).strip() or None


def _refuse_missing(rows: np.ndarray, origin: str, what: str, advice: str) -> None:
    if rows.size:
        more = f", and {rows.size - 1} more rows have none" if rows.size > 1 else ""
        raise InputError(f"{origin} has no {what} in row {int(rows[0])}{more}: {advice}.")


COLUMNS = {
    "weights": Column(check_weights, describe_weights),
    "groups": Column(check_groups, describe_groups),
    "times": Column(check_times, describe_times),
    "batch": Column(check_batch, describe_batch),
}
"""By the key of the data block."""
