"""Text files cut into ranges of whole lines by one pass over their bytes, so that any process can parse any range.

One conversion by ``pyarrow.csv.open_csv`` to Parquet in TMPDIR, without ranges, is worse for a large file, because one
process parses all of it before any tile is written. For a CSV file of 207 MB (560,000 x 64 numbers), in seconds of
processor time up to the last row (medians of three), beside 165 MB in TMPDIR for the conversion:

- one process: 4.0 s by ranges, of which 0.15 s find them; 4.6 s by conversion, of which 0.9 s read the Parquet file;
- the slower of two processes: 2.5 s by ranges; 4.2 s by conversion;
- memory: 150 MB by ranges, 300 MB by conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.unpacked import GZIP, gunzipped
from daskfs.storage import StoragePath

NEWLINE = ord("\n")
LONGEST_LINE = 1 << 28
RowText = tuple[int, int, np.ndarray]
"""First row and end row of a range, and its bytes, uint8."""
SCANS_KEPT = 32
"""Scans of each format that a process caches."""


@dataclass(frozen=True, eq=False)
class LineRanges:
    """Ranges of whole lines of a text file.

    Attributes
    ----------
    starts, ends
        Offsets of the first byte of each range, and behind its last one, int64.
    firsts
        Number of the first row of each range, and the number of rows, int64.
    """

    path: StoragePath
    starts: np.ndarray
    ends: np.ndarray
    firsts: np.ndarray

    @property
    def n_rows(self) -> int:
        """Number of rows in all ranges."""
        return int(self.firsts[-1])

    @property
    def row_multiple(self) -> int:
        """Rows of the largest range."""
        return int(np.diff(self.firsts).max(initial=1))

    def overlapping(self, start: int, stop: int) -> Iterator[RowText]:
        """Yield the ranges that overlap rows ``start:stop``, as :meth:`read` does."""
        return self.read(np.flatnonzero(np.maximum(self.firsts[:-1], start) < np.minimum(self.firsts[1:], stop)))

    def read(self, ranges: Iterable[int]) -> Iterator[RowText]:
        """Yield the ranges of the given numbers."""
        for number in ranges:
            data = read_range(self.path, int(self.starts[number]), int(self.ends[number]))
            yield int(self.firsts[number]), int(self.firsts[number + 1]), data


def cut_lines(
    path: StoragePath, size: int, start: int, block_bytes: int, count: Callable[[bytes, int], int]
) -> LineRanges:
    """Cut a file from offset `start` on into ranges of about `block_bytes`; a line is at most 256 MiB.

    ``count(lines, first)`` returns the number of rows in some lines, whose first row has number `first`; lines without
    rows, such as a long comment, are in no range.
    """
    starts, ends, firsts = [], [], [0]
    for end, lines in _whole_lines(path, size, start, block_bytes):
        if n_rows := count(lines, firsts[-1]):
            starts.append(end - len(lines))
            ends.append(end)
            firsts.append(firsts[-1] + n_rows)
    return LineRanges(path, np.array(starts, np.int64), np.array(ends, np.int64), np.array(firsts))


def _whole_lines(path: StoragePath, size: int, start: int, block_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield (end offset, whole lines) from offset `start` on."""
    line_start, remainder = 0, b""
    for block in text_blocks(path, size, block_bytes):
        remainder += bytes(block)
        if len(remainder) > LONGEST_LINE + block_bytes:
            msg = f"{path} has a line of more than {LONGEST_LINE} bytes, so it is no table of text."
            raise InputError(msg)
        if line_start < start:
            skipped = min(start - line_start, len(remainder))
            line_start, remainder = line_start + skipped, remainder[skipped:]
        last = remainder.rfind(b"\n") + 1
        if line_start >= start and last:
            yield line_start + last, remainder[:last]
            line_start, remainder = line_start + last, remainder[last:]
    if remainder:
        yield line_start + len(remainder), remainder


def text_size(path: StoragePath) -> int:
    """Return the bytes of text in a file, which may be compressed."""
    return gunzipped(path).size if path.suffix.lower() == GZIP else path.stat().st_size


def text_blocks(path: StoragePath, size: int, block_bytes: int) -> Iterator[bytes | memoryview]:
    """Yield the `size` bytes of text in a file block by block, unless the first are those of another encoding."""
    blocks: Iterator[Any]
    if path.suffix.lower() == GZIP:
        blocks = (read_range(path, start, min(start + block_bytes, size)).data for start in range(0, size, block_bytes))
    else:
        blocks = path.blocks_ahead(size, block_bytes)
    for number, block in enumerate(blocks):
        if number == 0:
            refuse_other_encodings(bytes(block[:4]), path)
        yield block


def read_range(path: StoragePath, begin: int, end: int) -> np.ndarray:
    """Return bytes ``begin:end`` of the text in a file, uint8; raise :class:`InputError` if it is shorter."""
    with gunzipped(path).reading() if path.suffix.lower() == GZIP else path.open_ranges() as fill:
        data = np.empty(end - begin, np.uint8)
        try:
            fill([(begin, data.data)])
        except EOFError as error:
            msg = f"{path} became shorter while it was being read."
            raise InputError(msg) from error
    return data


def refuse_other_encodings(head: bytes, path: StoragePath) -> None:
    """Raise :class:`InputError` if the first bytes of a file are those of gzip or of text in UTF-16."""
    if head[:2] == b"\x1f\x8b":
        msg = f"{path} is compressed; decompress it first, because rows of it cannot be found otherwise."
        raise InputError(msg)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        msg = f"{path} is in UTF-16; convert it to UTF-8."
        raise InputError(msg)
