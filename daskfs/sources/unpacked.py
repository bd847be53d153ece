"""Compressed data, unpacked once in each process that reads ranges of it."""

from __future__ import annotations

import gzip
import tempfile
import weakref
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO

from daskfs.errors import InputError
from daskfs.storage import Fill, StoragePath, first_line
from daskfs.storage.file_cache import cached_by_file
from daskfs.storage.local import fill_from

GZIP = ".gz"
UNPACKED_BYTES = 4 << 20
KEPT = 8
"""Unpacked files of each kind that a process keeps."""


class ScratchFile:
    """An unnamed temporary file, which is deleted with this object.

    If the disk is full, the message names the `content`, and what to do `instead`.
    """

    def __init__(self, content: str, instead: str) -> None:
        self.offset, self.size = 0, 0
        self._content, self._instead = content, instead
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="daskfs-", buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def append(self, data: bytes | memoryview) -> None:
        """Write bytes at the end; :class:`InputError` if they do not fit."""
        rest = memoryview(data)
        try:
            while rest:
                count = self._file.write(rest)
                rest, self.size = rest[count:], self.size + count
        except OSError as error:
            msg = (
                f"{self._content} {tempfile.gettempdir()}: {error}. Point TMPDIR to a larger disk, or {self._instead}."
            )
            raise InputError(msg) from error

    @contextmanager
    def reading(self) -> Iterator[Fill]:
        """Yield the :data:`daskfs.storage.Fill` of the file."""
        yield partial(fill_from, self._file.fileno())


def unpack(blocks: Iterable[bytes], where: str, instead: str) -> ScratchFile:
    """Write blocks of bytes to a temporary file; :class:`InputError` says what to do `instead` if they do not fit."""
    unpacked = ScratchFile(f"{where} could not be unpacked into", instead)
    for block in blocks:
        unpacked.append(block)
    return unpacked


@cached_by_file(KEPT)
def gunzipped(path: StoragePath) -> ScratchFile:
    """Return the content of a file that gzip compressed."""
    return unpack(_gzip_blocks(path), str(path), "decompress it first")


def _gzip_blocks(path: StoragePath) -> Iterator[bytes]:
    """Yield the unpacked bytes; :class:`InputError` if damaged."""
    try:
        with path.regular().open("rb") as file, gzip.GzipFile(fileobj=file) as member:
            while block := member.read(UNPACKED_BYTES):
                yield block
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        msg = f"{path} is damaged, or not compressed by gzip: {first_line(error)}"
        raise InputError(msg) from error
