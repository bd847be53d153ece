"""X as a file in svmlight (LIBSVM) format: ``target qid:group feature:value ... # comment``.

As in scikit-learn's ``load_svmlight_file`` by default, features are numbered from 1 if no value in the file has number
0, and from 0 otherwise.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block, stack_blocks
from daskfs.kernels.digits import loses_digits, mark_spelled
from daskfs.sources.base import SourceSpec
from daskfs.sources.checks import MOST_FEATURES, check_shape, file_identity, refuse_options
from daskfs.sources.labeled import LabeledSource
from daskfs.sources.labels import AUTO
from daskfs.sources.lines import NEWLINE, SCANS_KEPT, LineRanges, cut_lines
from daskfs.sources.resolve import resolve_feature_names
from daskfs.storage import StoragePath, first_line
from daskfs.storage.file_cache import cached_by_file

TARGET, GROUPS = "target", "qid"
SIGNED_CLASSES = {-1, 0, 1}


def _are_whole(values: np.ndarray) -> bool:
    present_values = values[~np.isnan(values)]
    return bool(np.all((present_values == np.floor(present_values)) & (np.abs(present_values) < 2**53)))


SCAN_BYTES = 1 << 20
MOST_DIGITS = 10
COLON, HASH, ZERO, LETTER_D, SPACE = (ord(character) for character in ":#0d ")


@dataclass
class SvmScan:
    """The layout of a file, with the lowest and the highest number of a feature that has a value.

    It has groups if there are query identifiers.
    """

    ranges: LineRanges = field(init=False)
    lowest: int = MOST_FEATURES
    highest: int = -1
    nnz: int = 0
    has_groups: bool = False


@cached_by_file(SCANS_KEPT)
def scan(path: StoragePath) -> SvmScan:
    """Scan the file at `path` in one pass over its bytes."""
    facts = SvmScan()

    def count(lines: bytes, first: int) -> int:
        data = np.frombuffer(lines, dtype=np.uint8)
        ends = np.flatnonzero(data == NEWLINE)
        if data[-1] != NEWLINE:
            ends = np.append(ends, len(data))
        colons = _outside_comments(data, ends)
        numbers = _numbers_before(data, colons, f"{path}: the line of row {first} or a later one")
        if numbers.size:
            facts.lowest = min(facts.lowest, int(numbers.min()))
            facts.highest = max(facts.highest, int(numbers.max()))
        facts.nnz += numbers.size
        facts.has_groups |= bool(np.any(data[np.maximum(colons - 1, 0)] == LETTER_D))
        return _count_rows(data, ends)

    facts.ranges = cut_lines(path, path.stat().st_size, 0, SCAN_BYTES, count)
    return facts


class SvmlightSource(LabeledSource):
    """The features of a file in svmlight format as CSR rows, float64, with per-sample columns ``target`` and ``qid``.

    The targets are labels only if ``spec.labels`` is ``target``.
    """

    def __init__(self, spec: SourceSpec, path: StoragePath) -> None:
        refuse_options(spec)
        self._path, self._unlabeled, self._are_whole = path, spec.unlabeled, dict[str, bool]()
        self._layout = layout = scan(path)
        members = (TARGET, GROUPS) if layout.has_groups else (TARGET,)
        super().__init__(spec, "column", labels=members, columns=members)
        self._is_one_based = layout.lowest > 0
        n_features = max(0, layout.highest + (0 if self._is_one_based else 1))
        shape = check_shape((layout.ranges.n_rows, n_features), str(path))
        names, identity = resolve_feature_names(spec, shape[1]), file_identity("svmlight", path)
        self.info = self.describe(shape, np.float64, names, identity, layout.nnz, layout.ranges.row_multiple)

    def _read_rows(self, start: int, stop: int) -> Block:
        parts = [
            self._parse(data.tobytes(), first, last - first)[max(start - first, 0) : stop - first]
            for first, last, data in self._layout.ranges.overlapping(start, stop)
        ]
        return stack_blocks(parts or [sp.csr_matrix((0, self.info.n_features), dtype=np.float64)])

    # ---------------------------------------------------------------------------------------------- per-sample columns
    def _labels_in_parts(self, name: str) -> Iterator[np.ndarray]:
        distinct = set[Any]()
        for part in self._column_in_parts(name):
            if name == TARGET and self._unlabeled == AUTO and len(distinct) <= len(SIGNED_CLASSES):
                distinct.update({*part.tolist()} - {None})
            yield part
        if distinct == SIGNED_CLASSES:
            msg = (
                f"{self._path} has the targets -1, 0 and 1: elsewhere -1 is an unlabeled row, and in this format 0 is "
                "one beside classes -1 and 1. Set data.unlabeled to 0, to -1, or to none."
            )
            raise InputError(msg)

    def _column_in_parts(self, name: str) -> Iterator[np.ndarray]:
        """Yield targets or groups as integers if all are whole numbers, with None for missing ones, else as floats."""
        if name not in self._are_whole:
            self._are_whole[name] = all(map(_are_whole, self._floats(name)))
        for values in self._floats(name):
            if not self._are_whole[name]:
                yield values
            elif np.isnan(values).any():
                yield np.array([int(value) if value == value else None for value in values.tolist()], dtype=object)
            else:
                yield values.astype(np.int64)

    def _floats(self, name: str) -> Iterator[np.ndarray]:
        """Yield targets or groups, float64, NaN where missing."""
        read = self._target_of if name == TARGET else self._group_of
        for first, last, data in self._layout.ranges.overlapping(0, self.info.n_samples):
            rows = filter(None, map(_words, data.tobytes().split(b"\n")))
            yield np.fromiter((read(words, row) for row, words in enumerate(rows, first)), np.float64, last - first)

    def _target_of(self, words: list[bytes], row: int) -> float:
        try:
            target = np.array([float(words[0])])
        except ValueError:
            several = " (several targets of one row are not read)" if b"," in words[0] else ""
            msg = f"{self._path}: row {row} has the target {_repr_of(words[0])}{several}."
            raise InputError(msg) from None
        mark_spelled(target, lambda: words)
        if loses_digits(target).any():
            msg = f"{self._path}: row {row} has the target {_repr_of(words[0])}, an integer that float64 does not hold."
            raise InputError(msg)
        return float(target[0])

    def _group_of(self, words: list[bytes], row: int) -> float:
        if len(words) < 2 or not words[1].startswith(b"qid:"):
            return np.nan
        try:
            return int(words[1][4:])
        except ValueError:
            msg = f"{self._path}: row {row} has {_repr_of(words[1])}; qid is a whole number."
            raise InputError(msg) from None

    def _parse(self, data: bytes, first: int, n_rows: int) -> sp.csr_matrix:
        try:
            X = self._parse_rows(data)
        except (ValueError, OverflowError) as error:
            for row, line in enumerate(filter(_words, data.split(b"\n")), first):
                try:
                    self._parse_rows(line)
                except (ValueError, OverflowError) as cause:
                    msg = f"{self._path}: row {row} (the first is 0): {_explain_error(cause)}"
                    raise InputError(msg) from cause
            msg = f"{self._path} cannot be read from row {first} on: {_explain_error(error)}"
            raise InputError(msg) from error
        if X.shape[0] != n_rows:
            msg = f"{self._path} cannot be read from row {first} on: a row there holds a NUL byte."
            raise InputError(msg)
        return X

    def _parse_rows(self, data: bytes) -> sp.csr_matrix:
        from sklearn.datasets import load_svmlight_file

        X = load_svmlight_file(io.BytesIO(data), n_features=self.info.n_features, zero_based=not self._is_one_based)[0]
        mark_spelled(X.data, lambda: [word.rpartition(b":")[2] for word in _all_words(data) if word[:4] != b"qid:"])
        return sp.csr_matrix(X)


def _words(line: bytes) -> list[bytes]:
    """Return the first words of a line; none of a comment."""
    return line.partition(b"#")[0].split(None, 2)


def _all_words(data: bytes) -> Iterator[bytes]:
    """Yield the words behind the target of each row."""
    return (word for line in data.split(b"\n") for word in line.partition(b"#")[0].split()[1:])


def _repr_of(word: bytes) -> str:
    return repr(word[:40].decode("utf-8", "replace"))


def _explain_error(error: Exception) -> str:
    text = first_line(error).rstrip(".")
    return f"{text}; a row is 'target feature:value feature:value', with ascending features."


def _outside_comments(data: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the positions of colons outside comments."""
    colons, hashes = np.flatnonzero(data == COLON), np.flatnonzero(data == HASH)
    if not hashes.size:
        return colons
    first_hash = np.full(len(ends) + 1, len(data), dtype=np.int64)
    np.minimum.at(first_hash, np.searchsorted(ends, hashes), hashes)
    return colons[colons < first_hash[np.searchsorted(ends, colons)]]


def _numbers_before(data: np.ndarray, places: np.ndarray, where: str) -> np.ndarray:
    """Return the whole numbers right before the given positions, int64; positions without one are dropped.

    :class:`InputError` for a number between two colons.
    """
    values = np.zeros(len(places), dtype=np.int64)
    left = np.arange(len(places))
    at, scale, has_digits = places - 1, 1, None
    for n_digits in range(MOST_DIGITS + 1):
        digits = data[np.maximum(at, 0)] - np.uint8(ZERO)  # characters before "0" wrap around
        going = (digits < 10) & (at >= 0)
        if n_digits and (data[at[~going & (at >= 0)]] == COLON).any():
            msg = f"{where} has two colons in one word, such as qid:1:2."
            raise InputError(msg)
        left, at = left[going], at[going] - 1
        values[left] += digits[going].astype(np.int64) * scale
        scale *= 10
        has_digits = left if has_digits is None else has_digits
        if not left.size:
            break
    values = values[has_digits]
    if left.size or (values.size and int(values.max()) > MOST_FEATURES):
        msg = f"{where} has a value of a feature above {MOST_FEATURES}."
        raise InputError(msg)
    return values


def _count_rows(data: np.ndarray, ends: np.ndarray) -> int:
    """Return the number of lines that are neither blank nor a comment."""
    begins = np.concatenate(([0], ends[:-1] + 1))
    first = data[begins]
    is_row = (first > SPACE) & (first != HASH)
    for line in np.flatnonzero((first <= SPACE) & (ends > begins)):
        is_row[line] = bool(data[begins[line] : ends[line]].tobytes().partition(b"#")[0].strip())
    return int(np.count_nonzero(is_row))
