"""Bytes of text files: blocks of whole lines, and ranges found by an earlier scan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daskfs.errors import InputError
from daskfs.storage import StoragePath, blocks_ahead, open_ranges

NEWLINE = ord("\n")
LONGEST_LINE = 1 << 28


def read_lines(path: StoragePath, size: int, start: int, block_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, whole lines) from offset `start` on, about `block_bytes` at a time; a line is at most 256 MiB."""
    begun, kept = 0, b""
    for block in blocks_ahead(path, size, block_bytes):
        kept += bytes(block)
        if len(kept) > LONGEST_LINE + block_bytes:
            msg = f"{path} has a line of more than {LONGEST_LINE} bytes, so it is no table of text."
            raise InputError(msg)
        if begun < start:
            skipped = min(start - begun, len(kept))
            begun, kept = begun + skipped, kept[skipped:]
        last = kept.rfind(b"\n") + 1
        if begun >= start and last:
            yield begun, kept[:last]
            begun, kept = begun + last, kept[last:]
    if kept:
        yield begun, kept


def read_range(path: StoragePath, begin: int, end: int) -> np.ndarray:
    """Return bytes ``begin:end`` of a file, uint8; raise :class:`InputError` if it is shorter."""
    with open_ranges(path) as fill:
        data = np.empty(end - begin, np.uint8)
        try:
            fill([(begin, data.data)])
        except EOFError as error:
            msg = f"{path} became shorter while it was being read."
            raise InputError(msg) from error
    return data


def line_bounds(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets in `data`, uint8, at which lines begin and end, without newlines, two int64 vectors."""
    ends = np.flatnonzero(data == NEWLINE)
    if len(data) and data[-1] != NEWLINE:
        ends = np.append(ends, len(data))
    return np.concatenate(([0], ends[:-1] + 1)).astype(np.int64)[: len(ends)], ends


def refuse_other_encodings(head: bytes, path: StoragePath) -> None:
    """Raise :class:`InputError` if the first bytes of a file are those of gzip or of text in UTF-16."""
    if head[:2] == b"\x1f\x8b":
        msg = f"{path} is compressed; decompress it first, because rows of it cannot be found otherwise."
        raise InputError(msg)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        msg = f"{path} is in UTF-16; convert it to UTF-8."
        raise InputError(msg)
