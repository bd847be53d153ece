"""Row offsets and number of features of a file in svmlight format, found in one pass over its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.lines import line_bounds, read_lines, refuse_other_encodings
from daskfs.storage import StoragePath

SCAN_BYTES = 1 << 20
SCANS_KEPT = 32
MOST_DIGITS = 10
MOST_FEATURES = 2**31 - 1
COLON, HASH, ZERO, LETTER_D, SPACE = (ord(character) for character in ":#0d ")


@dataclass(frozen=True, eq=False)
class SvmScan:
    """The layout of a file.

    Attributes
    ----------
    starts
        Offsets of ranges of whole lines, and the end of the last one, integers.
    rows
        Number of the first row of each range, and the number of rows, integers.
    n_features
        Number of features up to the highest one with a value.
    is_one_based
        Whether features are numbered from 1, because no value has number 0.
    nnz
        Number of values.
    has_groups
        Whether there are query identifiers.
    """

    starts: np.ndarray
    rows: np.ndarray
    n_features: int
    is_one_based: bool
    nnz: int
    has_groups: bool


@lru_cache(maxsize=SCANS_KEPT)
def scan(path: StoragePath, size: int, mtime_ns: int) -> SvmScan:
    """Scan the file at `path`; the result is cached per process and file state (`size` and `mtime_ns`)."""
    del mtime_ns
    starts, rows = [0], [0]
    lowest, highest, nnz, has_groups = MOST_FEATURES, -1, 0, False
    for offset, block in read_lines(path, size, 0, SCAN_BYTES):
        if offset == 0:
            refuse_other_encodings(block[:4], path)
        data = np.frombuffer(block, dtype=np.uint8)
        begins, ends = line_bounds(data)
        colons = _outside_comments(data, ends)
        numbers = _numbers_before(data, colons, f"{path}: the line of row {rows[-1]} or a later one")
        if numbers.size:
            lowest, highest = min(lowest, int(numbers.min())), max(highest, int(numbers.max()))
        nnz += numbers.size
        has_groups = has_groups or bool(np.any(data[np.maximum(colons - 1, 0)] == LETTER_D))
        rows.append(rows[-1] + _count_rows(data, begins, ends))
        starts.append(offset + len(block))
    is_one_based = lowest > 0
    n_features = 0 if highest < 0 else highest + (0 if is_one_based else 1)
    return SvmScan(np.array(starts), np.array(rows), n_features, is_one_based, nnz, has_groups)


def _outside_comments(data: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the positions of colons outside comments."""
    colons, hashes = np.flatnonzero(data == COLON), np.flatnonzero(data == HASH)
    if not hashes.size:
        return colons
    first_hash = np.full(len(ends) + 1, len(data), dtype=np.int64)
    np.minimum.at(first_hash, np.searchsorted(ends, hashes), hashes)
    return colons[colons < first_hash[np.searchsorted(ends, colons)]]


def _numbers_before(data: np.ndarray, places: np.ndarray, where: str) -> np.ndarray:
    """Return the whole numbers right before the given positions, int64; positions without one are dropped."""
    values = np.zeros(len(places), dtype=np.int64)
    left = np.arange(len(places))
    at, scale, found = places - 1, 1, None
    for _ in range(MOST_DIGITS + 1):
        digits = data[np.maximum(at, 0)] - np.uint8(ZERO)  # characters before "0" wrap around
        going = (digits < 10) & (at >= 0)
        left, at = left[going], at[going] - 1
        values[left] += digits[going].astype(np.int64) * scale
        scale *= 10
        found = left if found is None else found
        if not left.size:
            break
    values = values[found]
    if left.size or (values.size and int(values.max()) > MOST_FEATURES):
        msg = f"{where} has a value of a feature above {MOST_FEATURES}."
        raise InputError(msg)
    return values


def _count_rows(data: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> int:
    """Return the number of lines that are neither blank nor a comment."""
    first = data[np.minimum(begins, max(len(data) - 1, 0))]
    is_row = (first > SPACE) & (first != HASH)
    for line in np.flatnonzero((first <= SPACE) & (ends > begins)):
        is_row[line] = bool(data[begins[line] : ends[line]].tobytes().partition(b"#")[0].strip())
    return int(np.count_nonzero(is_row))
