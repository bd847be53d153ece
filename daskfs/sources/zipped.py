"""Members of an ``.npz`` file, stored or deflated, as arrays that are read in ranges of rows."""

from __future__ import annotations

import errno
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.checks import read_error, unknown_name
from daskfs.sources.npy_file import NPY_BUFFER_BYTES, NPY_HEADER_BYTES, FileRange, NpyFile, parse_header
from daskfs.sources.unpacked import KEPT, ScratchFile, unpack
from daskfs.storage import StoragePath, first_line
from daskfs.storage.file_cache import cached_by_file

# The header before a member's name and extra field; its last two numbers are the lengths of these.
LOCAL_HEADER = struct.Struct("<4s22xHH")
# NotImplementedError: damaged flags look like features of later zip versions.
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError)


class NpzFile:
    """The ``.npz`` file at `path`; `members` are named without the ``.npy`` ending, in the order of the file."""

    def __init__(self, path: StoragePath) -> None:
        self.path = path
        try:
            with path.regular().open("rb") as file, zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
        except (*ZIP_ERRORS, OSError) as error:
            raise read_error(path, error, "is truncated or not an .npz file") from error
        self._entries = {entry.filename.removesuffix(".npy"): entry for entry in entries}
        self.members = tuple(self._entries)

    def open(self, member: str) -> NpyFile:
        """Return a reader of one member; a deflated one is unpacked on its first use in a process."""
        entry, where = self._entry(member)
        is_stored = entry.compress_type == zipfile.ZIP_STORED
        return NpyFile(self._range_of(entry, where) if is_stored else _unpack(self.path, entry.filename), where)

    def open_checked(self, member: str) -> NpyFile:
        """Return a reader of one member, whose checksum has been compared; for a stored one that is a pass over it."""
        entry, _ = self._entry(member)
        if entry.compress_type == zipfile.ZIP_STORED:
            for _ in _blocks(self.path, entry.filename):
                pass
        return self.open(member)

    def header(self, member: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and dtype of one member, without unpacking more of it than its header."""
        entry, where = self._entry(member)
        head = next(_blocks(self.path, entry.filename, NPY_HEADER_BYTES), b"")
        shape, _, dtype, _ = parse_header(head, where)
        return shape, dtype

    def _entry(self, member: str) -> tuple[zipfile.ZipInfo, str]:
        """Return a member that can be read, and its name in messages."""
        if member not in self._entries:
            raise unknown_name(member, "member", self.members, str(self.path))
        entry, where = self._entries[member], f"{self.path}:{member}"
        if entry.flag_bits & 1:
            msg = f"{where} is encrypted."
            raise InputError(msg)
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            msg = (
                f"{where} is compressed by zip method {entry.compress_type}; "
                "write it with numpy.savez or numpy.savez_compressed."
            )
            raise InputError(msg)
        return entry, where

    def _range_of(self, entry: zipfile.ZipInfo, where: str) -> FileRange:
        head = b""
        # In a zip file that lost its beginning, offsets may be negative.
        if entry.header_offset >= 0:
            with self.path.open("rb", buffering=0) as file:
                file.seek(entry.header_offset)
                head = file.read(LOCAL_HEADER.size)
        if len(head) < LOCAL_HEADER.size or head[:4] != b"PK\x03\x04":
            msg = f"{where} cannot be found in the file, which is damaged."
            raise InputError(msg)
        _, name_size, extra_size = LOCAL_HEADER.unpack(head)
        offset = entry.header_offset + LOCAL_HEADER.size + name_size + extra_size
        present = max(0, self.path.stat().st_size - offset)
        return FileRange(self.path, offset, min(entry.file_size, present))


@cached_by_file(KEPT)
def _unpack(path: StoragePath, filename: str) -> ScratchFile:
    return unpack(_blocks(path, filename), _where(path, filename), "write the file with numpy.savez")


def _blocks(path: StoragePath, filename: str, size: int = NPY_BUFFER_BYTES) -> Iterator[bytes]:
    """Yield the unpacked bytes of a member, by `size`; :class:`InputError` if damaged, at the end by its checksum."""
    try:
        with (
            path.regular().open("rb", 4 * size if path.is_remote else -1) as file,
            zipfile.ZipFile(file) as archive,
            archive.open(filename) as member,
        ):
            while block := member.read(size):
                yield block
    except (*ZIP_ERRORS, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # which an offset before the file leads to
            raise
        msg = f"{_where(path, filename)} is damaged: {first_line(error)}"
        raise InputError(msg) from error


def _where(path: StoragePath, filename: str) -> str:
    return f"{path}:{filename.removesuffix('.npy')}"
