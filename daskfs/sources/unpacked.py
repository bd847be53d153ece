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
from daskfs.storage import Fill, StoragePath, fill_from, first_line, regular
from daskfs.storage.file_cache import cached_by_file

GZIP = ".gz"
BLOCK_BYTES = 4 << 20
KEPT = 8
"""Unpacked files of each kind that a process keeps."""


class Unpacked:
    """An unnamed temporary file, which is deleted with this object."""

    def __init__(self, file: IO[bytes]) -> None:
        self.offset = 0
        self.size = 0
        self._file = file
        weakref.finalize(self, file.close)

    @contextmanager
    def reading(self) -> Iterator[Fill]:
        """Yield the :data:`daskfs.storage.Fill` of the file."""
        yield partial(fill_from, self._file.fileno())


def unpack(blocks: Iterable[bytes], where: str, instead: str) -> Unpacked:
    """Write blocks of bytes to a temporary file; :class:`InputError` says what to do `instead` if they do not fit."""
    file: IO[bytes] = tempfile.TemporaryFile(prefix="daskfs-")  # noqa: SIM115
    unpacked = Unpacked(file)
    try:
        for block in blocks:
            unpacked.size += file.write(block)
        file.flush()
    except OSError as error:
        if error.filename is not None:
            raise  # from reading the archive; the temporary file has no name
        msg = (
            f"{where} could not be unpacked into {tempfile.gettempdir()}: {error}. Point TMPDIR to a larger disk, or "
            f"{instead}."
        )
        raise InputError(msg) from error
    return unpacked


@cached_by_file(KEPT)
def gunzipped(path: StoragePath) -> Unpacked:
    """Return the content of a file that gzip compressed."""
    return unpack(_gzip_blocks(path), str(path), "decompress it first")


def _gzip_blocks(path: StoragePath) -> Iterator[bytes]:
    """Yield the unpacked bytes; :class:`InputError` if damaged."""
    try:
        with regular(path).open("rb") as file, gzip.GzipFile(fileobj=file) as member:
            while block := member.read(BLOCK_BYTES):
                yield block
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        msg = f"{path} is damaged, or not compressed by gzip: {first_line(error)}"
        raise InputError(msg) from error
