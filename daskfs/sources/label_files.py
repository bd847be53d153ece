"""Labels and per-sample columns in files of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.checks import shorten_names, split_reference
from daskfs.sources.columns import TextColumn
from daskfs.sources.csv_table import CsvTable
from daskfs.sources.multifile import table_ending
from daskfs.sources.npy_file import NpyFile, whole_file
from daskfs.sources.zipped import NpzFile
from daskfs.storage import StoragePath

LINES_AT_ONCE = 1 << 15


def parts_of_file(ref: str, n_samples: int, what: str = "labels") -> Callable[[], Iterator[np.ndarray]]:
    """Return a function that starts a pass over labels or a per-sample column in a file, as stored, in parts.

    Parameters
    ----------
    ref
        Path of an ``.npy`` file, an ``.npz`` file with one member or a member ``y`` (or ``"file.npz:member"``), a
        ``.csv`` or ``.tsv`` table with one column (or ``"file.csv:column"``), or a ``.txt`` file with one value per
        line, blank for an unlabeled row.
    what
        "labels", or the key of a per-sample column, for messages.

    Raises
    ------
    InputError
        If the file, member or column does not exist.
    """
    if (reference := split_reference(ref)) is None:
        msg = f"data.{what} is {ref!r}: there is no such file."
        raise InputError(msg)
    path, member = reference
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return array_in_file(path, member, "y").in_parts
    if table_ending(path) in (".csv", ".tsv"):
        table = CsvTable(path)
        number = table.find_column(member)
        blank = table.trailing_blank if len(table.columns) == 1 else 0
        column = TextColumn(lambda: table.column_parts(number), table.numerals)
        return partial(_with_trailing_blank, column, lambda: blank, n_samples)
    if member is not None:
        msg = f"{path} has no members, so {ref!r} means nothing."
        raise InputError(msg)
    if suffix == ".npy":
        return array_in_file(path, None).in_parts
    if suffix == ".txt":
        import pyarrow as pa

        lines = TextLines(path, str.strip, "text in UTF-8 with one label a line")
        column = TextColumn(lambda: (pa.array(part, pa.string()) for part in lines.parts()))
        return partial(_with_trailing_blank, column, lambda: lines.n_blank, n_samples)
    msg = f"{path} cannot be read as {what}; use .npy, .npz, .csv, .tsv or .txt."
    raise InputError(msg)


def array_in_file(path: StoragePath, member: str | None, default: str | None = None) -> NpyFile:
    """Open an ``.npy`` file, or a member of an ``.npz`` file: `member`, else the only one, else the `default`."""
    if path.suffix.lower() == ".npy":
        return NpyFile(whole_file(path), str(path))
    npz = NpzFile(path)
    if member is None:
        members = [name for name in npz.members if len(npz.members) == 1 or name == default]
        if not members:
            reason = f", none of which is {default!r}" if default else ""
            msg = f"{path} has members {shorten_names(npz.members)}{reason}; name one as '{path}:member'."
            raise InputError(msg)
        member = members[0]
    return npz.open_checked(member)


class TextLines:
    """A text file with one value a line, which `value_of` returns, empty for none; `content` says so in messages.

    Lines without a value at the end are in no part; `n_blank` is their number after a pass.
    """

    def __init__(self, path: StoragePath, value_of: Callable[[str], str], content: str) -> None:
        self._path, self._value_of, self._content, self.n_blank = path, value_of, content, 0

    def parts(self) -> Iterator[list[str | None]]:
        """Yield the values of some lines at a time, None for none."""
        self.n_blank = 0
        try:
            with self._path.open(encoding="utf-8-sig") as lines:
                while batch := [self._value_of(line) or None for line in itertools.islice(lines, LINES_AT_ONCE)]:
                    end = next((row for row in reversed(range(len(batch))) if batch[row]), -1) + 1
                    if end:
                        yield [*[None] * self.n_blank, *batch[:end]]
                        self.n_blank = 0
                    self.n_blank += len(batch) - end
        except UnicodeDecodeError as error:
            msg = f"{self._path} is not {self._content}."
            raise InputError(msg) from error


def _with_trailing_blank(column: TextColumn, n_blank: Callable[[], int], n_samples: int) -> Iterator[np.ndarray]:
    """Append trailing blank lines to a column as unlabeled rows, up to `n_samples` rows."""
    count, kind = 0, "O"
    for part in column():
        count, kind = count + len(part), part.dtype.kind
        yield part
    missing = min(n_samples - count, n_blank())
    if missing > 0:
        yield np.full(missing, np.nan) if kind == "f" else np.full(missing, None, dtype=object)
