"""Labels and per-sample columns in files of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.cells import MISSING_CELLS
from daskfs.sources.checks import shorten_names, split_reference
from daskfs.sources.columns import TextColumn
from daskfs.sources.multifile import table_ending
from daskfs.storage import StoragePath

LINES_AT_ONCE = 1 << 16


def parts_of_file(ref: str, n_samples: int, what: str = "labels") -> Callable[[], Iterator[np.ndarray]]:
    """Return a function that starts a pass over labels or a per-sample column in a file, as stored, in parts.

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
        If the file, member or column does not exist.
    """
    found = split_reference(ref)
    if found is None:
        msg = f"data.{what} is {ref!r}: there is no such file."
        raise InputError(msg)
    path, member = found
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _parts_of_npz(path, member)
    if table_ending(path) in (".csv", ".tsv"):
        return _parts_of_table(path, member, n_samples)
    if member is not None:
        msg = f"{path} has no members, so {ref!r} means nothing."
        raise InputError(msg)
    if suffix == ".npy":
        from daskfs.sources.npy_file import NpyFile, whole_file

        return NpyFile(whole_file(path), str(path)).in_parts
    if suffix == ".txt":
        lines = _Lines(path)
        return _with_trailing_blank(TextColumn(lines.parts), lambda: lines.n_blank, n_samples)
    msg = f"{path} cannot be read as {what}; use .npy, .npz, .csv, .tsv or .txt."
    raise InputError(msg)


def _parts_of_npz(path: StoragePath, member: str | None) -> Callable[[], Iterator[np.ndarray]]:
    from daskfs.sources.zipped import NpzFile

    npz = NpzFile(path)
    if member is None:
        member = npz.members[0] if len(npz.members) == 1 else "y"
        if member not in npz.members:
            msg = f"{path} has members {shorten_names(npz.members)}, none of which is 'y'; name one as '{path}:member'."
            raise InputError(msg)
    return npz.open_checked(member).in_parts


def _parts_of_table(path: StoragePath, column: str | None, n_samples: int) -> Callable[[], Iterator[np.ndarray]]:
    from daskfs.sources.csv_table import CsvTable

    table = CsvTable(path)
    number = table.find_column(column)
    blank = table.trailing_blank if len(table.columns) == 1 else 0
    column_of_text = TextColumn(lambda: table.column_parts(number), table.numerals)
    return _with_trailing_blank(column_of_text, lambda: blank, n_samples)


class _Lines:
    """The lines of a text file; `n_blank` is the number of blank ones at its end, known after a pass."""

    def __init__(self, path: StoragePath) -> None:
        self._path, self.n_blank = path, 0

    def parts(self) -> Iterator[Any]:
        """Yield the lines but those as Arrow arrays of text, null where blank."""
        import pyarrow as pa

        self.n_blank = 0
        try:
            with self._path.open(encoding="utf-8-sig") as lines:
                while batch := [line.strip() for line in itertools.islice(lines, LINES_AT_ONCE)]:
                    end = next((row for row in reversed(range(len(batch))) if batch[row]), -1) + 1
                    if end:
                        cells = [*[""] * self.n_blank, *batch[:end]]
                        self.n_blank = 0
                        yield pa.array([None if cell in MISSING_CELLS else cell for cell in cells], type=pa.string())
                    self.n_blank += len(batch) - end
        except UnicodeDecodeError as error:
            msg = f"{self._path} is not text in UTF-8 with one label a line."
            raise InputError(msg) from error


def _with_trailing_blank(
    read: Callable[[], Iterator[np.ndarray]], n_blank: Callable[[], int], n_samples: int
) -> Callable[[], Iterator[np.ndarray]]:
    """Append trailing blank lines to a column as unlabeled rows, up to `n_samples` rows."""

    def parts() -> Iterator[np.ndarray]:
        count, kind = 0, "O"
        for part in read():
            count, kind = count + len(part), part.dtype.kind
            yield part
        missing = min(n_samples - count, n_blank())
        if missing > 0:
            yield np.full(missing, np.nan) if kind == "f" else np.full(missing, None, dtype=object)

    return parts
