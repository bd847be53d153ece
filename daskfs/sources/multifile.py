"""The files of a directory of parts or of a pattern, in natural order of their names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import PurePath
from typing import Any, NamedTuple

from daskfs.errors import InputError
from daskfs.sources.checks import file_state, shorten_names
from daskfs.sources.unpacked import GZIP
from daskfs.storage import StoragePath, as_path, map_concurrent

TEXT_ENDINGS = (".csv", ".tsv", ".txt")
TABLE_ENDINGS = (".parquet", ".pq", *TEXT_ENDINGS)
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
KIND = "parts"
_MAGIC = frozenset("*?[")
_ALIKE = {".pq": ".parquet"}


class PartSizes(NamedTuple):
    """Sizes of the parts of a table, with which a process opens only those that it reads.

    Parameters
    ----------
    n_rows
        Number of rows of each part that is not an empty file.
    dtype
        Name of the dtype of blocks.
    """

    n_rows: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class FileParts:
    """Files that make up one table, of a directory or a pattern, which is `where` in messages.

    `states` are size and modification time (ns) of each file, by path, in the order of the rows.
    """

    where: str
    states: dict[StoragePath, list[int]]

    def identity(self) -> dict[str, Any]:
        """Return a state that changes when a part is changed, added or removed."""
        digest = blake2b(digest_size=16)
        for path, (size, mtime_ns) in self.states.items():
            digest.update(f"{path}\0{size}\0{mtime_ns}\n".encode("utf-8", "surrogatepass"))
        return {"kind": KIND, "path": self.where, "n_parts": len(self.states), "digest": digest.hexdigest()}

    def first(self, n_parts: int) -> FileParts:
        """Return the first parts."""
        return FileParts(self.where, dict(itertools.islice(self.states.items(), n_parts)))

    def changed_part(self) -> str | None:
        """Return the first file that was changed, removed or added, or None."""
        current = find_parts(as_path(self.where))
        now = {} if current is None else current.states
        return next((str(path) for path in [*self.states, *now] if self.states.get(path) != now.get(path)), None)

    def changed_file(self, files: Sequence[StoragePath]) -> str | None:
        """Return the first of some parts that was changed or removed, or None; others are not looked at."""
        states = map_concurrent(files[0], file_state, files)
        return next((str(file) for file, state in zip(files, states, strict=True) if state != self.states[file]), None)


def is_pattern(path: StoragePath) -> bool:
    """Return whether a path that does not exist is a pattern."""
    return not _MAGIC.isdisjoint(str(path))


def find_parts(path: StoragePath) -> FileParts | None:
    """Return the parts in a directory or of a pattern, None if there are none.

    Hidden names, and names with a leading underscore such as ``_SUCCESS`` and ``_metadata``, are skipped.

    Raises
    ------
    InputError
        For files of several formats, compressed files, and folders such as ``year=2024``, which encode a column.
    """
    folder, pattern = path, ["*"]
    if is_pattern(path) and not path.is_dir():
        first = next(number for number, part in enumerate(path.parts) if not _MAGIC.isdisjoint(part))
        pattern = list(path.parts[first:])
        for _ in pattern:
            folder = folder.parent
    else:
        _refuse_columns_of_folders(folder)
    files = {
        file: [status.st_size, status.st_mtime_ns]
        for file, status in folder.files_matching(pattern)
        if not any(map(_is_hidden, file.name_below(folder).split("/"))) and _is_table(file)
    }
    endings = sorted({_ALIKE.get(ending, ending) for ending in map(table_ending, files)})
    if len(endings) > 1:
        msg = (
            f"{path} stands for {' and '.join(endings)} files: name those that are meant, for example by the pattern "
            f"{'DIRECTORY/' if is_pattern(path) else f'{path}/'}*{endings[0]}."
        )
        raise InputError(msg)
    return FileParts(str(path), {file: files[file] for file in sorted(files, key=_natural)}) if files else None


def table_ending(file: StoragePath) -> str:
    """Return the ending that gives the format of a file, in small letters: ``.csv`` for ``.csv.gz``."""
    ending, before = file.suffix.lower(), PurePath(file.stem).suffix.lower()
    return before if ending == GZIP and before in TEXT_ENDINGS else ending


def _is_table(file: StoragePath) -> bool:
    if table_ending(file) in COMPRESSED and PurePath(file.stem).suffix.lower() in TABLE_ENDINGS:
        msg = f"{file} is compressed; decompress it first, because rows in it cannot be reached."
        raise InputError(msg)
    return table_ending(file) in TABLE_ENDINGS


def _refuse_columns_of_folders(folder: StoragePath) -> None:
    below = [child for child in folder.iterdir() if "=" in child.name and not _is_hidden(child.name)]
    if columns := sorted(child.name for child in below if child.is_dir()):
        msg = (
            f"{folder} has the folders {shorten_names(columns)}, whose names stand for the values of a column, "
            "which is not read from there: write the table without them, or name the files by the pattern "
            f"{folder}/*/* to read it without that column."
        )
        raise InputError(msg)


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _natural(file: StoragePath) -> tuple[list[str | int], str]:
    """Return a sort key that puts part-2 before part-10."""
    pieces = re.split("([0-9]+)", str(file))
    return [int(piece) if number % 2 else piece for number, piece in enumerate(pieces)], str(file)
