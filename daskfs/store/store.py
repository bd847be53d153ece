"""Arrays, small objects and records of finished units under one root, on disk, in an object store or in memory."""

from __future__ import annotations

import io
import json
import math
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any, TypeVar, cast

import numpy as np

from daskfs.errors import DamagedError, StoreError
from daskfs.storage import LocalPath, PathName, StoragePath, as_path, map_concurrent
from daskfs.store.arrays import (
    CHECKSUM_BYTES,
    METADATA,
    OTHER,
    ChunkedArray,
    StoredArray,
    Watch,
    count_bytes,
    counted_bytes,
    open_zarr,
    zarr_document,
)
from daskfs.store.documents import DOCUMENT_NAMES, from_document, to_document, valid_documents
from daskfs.store.epoch import Epoch
from daskfs.store.outputs import OutputLog
from daskfs.store.record_files import RecordFiles, Records
from daskfs.store.seals import Seals
from daskfs.store.second_look import look_twice
from daskfs.store.write_errors import MADE_AGAIN, explain_write_errors

MAX_OPENED = 4096
"""Arrays kept open, 3 kB each. A loop opens others in every round, and a pass over sparse X three for each band."""
MAX_CHUNK_BYTES = 2**30
"""Largest chunk of an array; Blosc takes less than 2**31 bytes."""
CUT_BYTES = 2**26
"""Chunk size of larger arrays: a read needs one chunk in addition to the array."""
FACTS = "facts"
NPY_START = 10
"""Bytes before the header of an array in ``.npy`` format 1.0; the last two are its length."""
NPY_PIECE = 2**18
WRITE_BACK_SECONDS = 60.0
"""Longest time for which a system keeps in memory what was written."""
UNFINISHED_WRITE = re.compile(r"\..+\.\d+\.\d+\.tmp|.+\.[0-9a-f]{32}\.partial")
"""Temporary names of :meth:`Store.write_bytes` and Zarr."""
Value = TypeVar("Value")


class Store:
    """Arrays, small objects and records under one root.

    Parameters
    ----------
    root
        Directory or URL, or None for a store in the memory of this process, whose arrays are NumPy arrays.
    epoch
        Name of the epoch of the driver of a unit, see :class:`daskfs.store.epoch.Epoch`.
    """

    def __init__(self, root: PathName | None, epoch: str = "") -> None:
        self.root = None if root is None else as_path(root)
        self.epoch = Epoch(self.root, epoch)
        self.records = Records() if self.root is None else RecordFiles(self.root, self.epoch)
        self.seals = Seals(self.root, self.epoch)
        self.outputs = OutputLog()
        self.doubted = (math.inf, math.inf)
        """First and last time of change, in seconds since 1970, of outputs whose checksums are compared, not sizes."""
        self.shards: dict[str, list[np.ndarray]] = {}
        """Pieces of each shard of a store in memory."""
        self._memory: dict[str, np.ndarray] = {}
        self._objects: dict[str, bytes] = {}
        self._together: dict[str, tuple[dict[str, np.ndarray], dict[str, Any]]] = {}
        self._opened: dict[str, ChunkedArray] = {}

    @property
    def url(self) -> str:
        """Path or URL of the store, for messages and for opening it elsewhere."""
        return str(self.root) if self.root is not None else "memory"

    def path(self, name: str) -> StoragePath:
        """Return the path of a name; a store in memory has none."""
        assert self.root is not None
        return self.root.own(name)

    def target(self, name: str) -> StoragePath:
        """Return the path at which a name is written."""
        return self.path(name)

    @property
    def record_files(self) -> RecordFiles:
        """Records of a store that is not in memory."""
        assert isinstance(self.records, RecordFiles)
        return self.records

    def begin_epoch(self, *, fresh: bool = False, keeps_documents: bool = True) -> None:
        """Begin an epoch, which ends those of other drivers.

        Existing records stay valid unless `fresh`, and valid documents if `keeps_documents`.
        """
        if self.root is not None:
            records = {} if fresh else self.record_files.inherited()
            # a loss of power, which ended another driver, leaves files of full size with other contents
            last = self.record_files.last_change(records)
            self.doubted = (last - WRITE_BACK_SECONDS, last)
            self.epoch.begin(records, valid_documents(self.root, self.epoch) if keeps_documents else {})
            self.forget()

    def forget(self) -> None:
        """Drop records and seals that are kept in memory, so that they are read again."""
        for part in (self.epoch, self.records, self.seals):
            part.forget()

    # ------------------------------------------------------------------ arrays
    def create(self, name: str, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...]) -> None:
        """Ensure that an array of this shape, dtype and :func:`stored_chunks` exists, replacing one that differs.

        One that only has fewer rows keeps its chunks.
        """
        if self.root is None:
            self._memory[name] = np.zeros(shape, dtype)
            return
        self.epoch.check()
        path = self.target(f"{name}/{METADATA}").parent
        chunks = stored_chunks(shape, dtype, chunks)
        document = zarr_document(shape, np.dtype(dtype), chunks)
        stored_metadata, array = self._stored_array(path)
        row = (shape[1:], np.dtype(dtype), chunks)
        has_such_rows = array is not None and (array.shape[1:], array.dtype, array.chunks) == row
        if not has_such_rows or array.shape != shape:
            self._opened.pop(name, None)
            with explain_write_errors(path):
                # if metadata are lost, or rows were appended, chunks stay: units' records tell whether they are valid
                if array is not None and not (has_such_rows and array.shape[0] < shape[0]):
                    path.remove()
                (path / METADATA).put(document, synced=False)
            stored_metadata = document
        self.outputs.add_object(f"{name}/{METADATA}", stored_metadata)

    @staticmethod
    def _stored_array(path: StoragePath) -> tuple[bytes, Any]:
        """Return the metadata of an array, and the array; no bytes and None if they are missing or unreadable."""
        try:
            metadata = (path / METADATA).read_own()
            return metadata, open_zarr(path, metadata)
        except (FileNotFoundError, NotADirectoryError, StoreError):
            pass
        except IsADirectoryError:
            (path / METADATA).remove()
        return b"", None

    def open(self, name: str) -> StoredArray:
        """Return an array of the store; raise :class:`StoreError` if it is missing."""
        if self.root is None:
            return self._memory[name]
        opened = self._opened.get(name)
        if opened is None:
            watch = Watch(self.epoch, self.outputs, self.seals, name)
            opened = ChunkedArray(self.path(name), self._array_at(name), watch)
            for oldest in list(self._opened)[: len(self._opened) + 1 - MAX_OPENED]:
                self._opened.pop(oldest, None)
            self._opened[name] = opened
        return opened

    def read_each(self, parts: Iterable[tuple[str, Any]], part_bytes: int = 1) -> Iterator[np.ndarray]:
        """Yield the values of selections of arrays, in order.

        From an object store, prefetch as many of the next ones as `part_bytes` of each allow
        (:func:`daskfs.storage.map_concurrent`).
        """
        inputs = self.seals.entered

        def read(part: tuple[str, Any]) -> tuple[np.ndarray, int]:
            self.seals.enter(inputs)
            with counted_bytes() as counted:
                return self.open(part[0])[part[1]], counted.read

        for values, n_bytes in map_concurrent(self.root, read, parts, part_bytes):
            count_bytes(read=n_bytes)
            yield values

    def _array_at(self, name: str) -> Any:
        path = self.path(name)

        def look() -> Any:
            document = self._read_bytes(f"{name}/{METADATA}")
            if document is None:
                msg = f"no readable Zarr array at {path}: there is no {METADATA}"
                raise StoreError(msg)
            return open_zarr(path, document)

        try:
            return look_twice(path / METADATA, look, StoreError)
        except DamagedError:
            raise
        except StoreError as error:
            raise self.epoch.remove_damaged(path / METADATA, f"{str(error).removesuffix('.')}.") from error

    def put_array(self, name: str, values: np.ndarray, chunks: tuple[int, ...] | None = None) -> None:
        """Store a whole array that one unit owns, of any shape and dtype."""
        chunks = stored_chunks(values.shape, values.dtype, chunks or values.shape)
        self.create(name, values.shape, values.dtype, chunks)
        if values.size:
            self.open(name)[...] = values

    # ----------------------------------------------------------------- objects
    def write_bytes(self, name: str, data: bytes | memoryview) -> None:
        """Write a small object atomically: readers see the old one or the new one."""
        if self.root is None:
            self._objects[name] = bytes(data)
            return
        self.epoch.check()
        path = self.target(name)
        with explain_write_errors(path):
            path.put(data)
        self.outputs.add_object(name, data)

    def write_blocks(self, name: str, blocks: Iterable[bytes]) -> None:
        """Write a large object atomically, block by block, and as at the end of a chunk their CRC-32C."""
        from google_crc32c import extend

        size, checksum = 0, 0

        def followed() -> Iterator[bytes]:
            nonlocal size, checksum
            for block in blocks:
                size, checksum = size + len(block), extend(checksum, block)
                yield block
            self.epoch.check()
            yield checksum.to_bytes(CHECKSUM_BYTES, "little")

        self.epoch.check()
        path = self.target(name)
        with explain_write_errors(path):
            path.put_blocks(followed(), synced=False)
        self.outputs.add_chunks({name: (size + CHECKSUM_BYTES, checksum)})

    def read_bytes(self, name: str) -> bytes | None:
        """Return a small object, None if it is missing; raise :class:`DamagedError` if it is damaged."""
        return self._look_twice(name, lambda: self._read_bytes(name))

    def _look_twice(self, name: str, look: Callable[[], Value], **checks: Callable[[Value], bool]) -> Value:
        return look() if self.root is None else look_twice(self.path(name), look, DamagedError, **checks)

    def _read_bytes(self, name: str) -> bytes | None:
        if self.root is None:
            return self._objects.get(name)
        try:
            data = self.path(name).read_own()
        except (FileNotFoundError, NotADirectoryError) as error:
            if self._expected_checksum(name) is None:
                return None
            raise self._damage_error(name, f"is missing: {MADE_AGAIN}") from error
        except IsADirectoryError as error:
            raise self._damage_error(name, "is damaged: it is a directory.") from error
        if self._expected_checksum(name) not in (None, zlib.crc32(data)):
            raise self._damage_error(name, f"is damaged: it {OTHER}: {MADE_AGAIN}")
        return data

    def write_json(self, name: str, value: Any) -> None:
        """Write an object as JSON with sorted keys, a document with its epoch and checksum."""
        if name in DOCUMENT_NAMES and self.root is not None:
            value = to_document(name, value, self.epoch)
        self.write_bytes(name, json.dumps(value, indent=1, sort_keys=True, allow_nan=False).encode())

    def read_json(self, name: str, kind: type = dict, *, is_expected: bool = False) -> Any:
        """Return a JSON object, or a list if that is the `kind`; None if it is missing, for one that is expected twice.

        Raise :class:`DamagedError` if it is damaged.
        """
        return self._look_twice(
            name, lambda: self._read_json(name, kind), is_wrong=lambda value: is_expected and value is None
        )

    def _read_json(self, name: str, kind: type) -> Any:
        data = self._read_bytes(name)
        if data is None:
            return None
        try:
            value: Any = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self._damage_error(name, f"is damaged: {error}") from error
        if not isinstance(value, kind):
            content = "a list" if isinstance(value, list) else "no object"
            raise self._damage_error(name, f"is damaged: it holds {content}.")
        if name not in DOCUMENT_NAMES or self.root is None:
            return value
        if (document := from_document(name, cast("dict[str, Any]", value))) is None:
            raise self._damage_error(name, "is damaged: its checksum is not that of its content.")
        if document[2] and not self.epoch.counts(name, *document[1:]):
            raise self._damage_error(name, "was written by a process that had lost the run to another one.")
        return document[0]

    def need_json(self, name: str, kind: type = dict) -> Any:
        """Return a JSON object of an earlier stage; raise :class:`DamagedError` if it is missing or damaged."""
        value = self.read_json(name, kind, is_expected=True)
        if value is None:
            raise self._damage_error(name, f"is missing: {MADE_AGAIN}")
        return value

    def _damage_error(self, name: str, problem: str) -> DamagedError:
        if name in DOCUMENT_NAMES:
            problem = f"{problem.rstrip('.')}: {self.epoch.remedy}"
        return DamagedError(f"{self.url}/{name} {problem}", [] if self.root is None else [self.path(name)])

    def write_arrays(self, name: str, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any] | None = None) -> None:
        """Write small arrays, of any shape and dtype, and facts as one object: one file instead of a folder each."""
        count_bytes(written=sum(values.nbytes for values in arrays.values()))
        if self.root is None:  # packing takes longer than a round of few rows
            copies = {key: values.copy() for key, values in arrays.items()}
            self._together[name] = copies, _copy_json(dict(facts or {}))
            return
        named: dict[str, Any] = {f"a-{key}": np.asarray(values, order="C") for key, values in arrays.items()}
        kinds = {key: [values.dtype.str, values.shape] for key, values in named.items()}
        text = json.dumps({"facts": facts or {}, "arrays": kinds}, sort_keys=True, allow_nan=False).encode()
        buffer = io.BytesIO()
        named[FACTS] = np.frombuffer(text, np.uint8)
        np.savez(buffer, **named)
        self.write_bytes(name, buffer.getbuffer())

    def read_arrays(self, name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the arrays and facts of :meth:`write_arrays`; raise :class:`StoreError` if missing or damaged."""
        if name in self._together:
            cached_arrays, cached_facts = self._together[name]
            count_bytes(read=sum(values.nbytes for values in cached_arrays.values()))
            return {key: values.copy() for key, values in cached_arrays.items()}, _copy_json(cached_facts)
        if self.root is None:
            raise self._damage_error(name, "is missing.")
        arrays, facts = self._look_twice(name, lambda: self._read_arrays(name))
        count_bytes(read=sum(values.nbytes for values in arrays.values()))
        return arrays, facts

    def _read_arrays(self, name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        try:
            file = self.path(name).open_whole()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._damage_error(name, "is missing.") from error
        except IsADirectoryError as error:
            raise self._damage_error(name, "is damaged: it is a directory.") from error
        try:
            with file:
                if not self._is_stated(name, file):
                    raise self._damage_error(name, f"is damaged: it {OTHER}: {MADE_AGAIN}")
                archive = zipfile.ZipFile(file)
                description = json.loads(_values_of(archive, FACTS))
                arrays = {
                    key.removeprefix("a-"): np.frombuffer(_values_of(archive, key), np.dtype(kind)).reshape(shape)
                    for key, (kind, shape) in description["arrays"].items()
                }
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise self._damage_error(name, f"is damaged: {error}") from error
        return arrays, description["facts"]

    def delete(self, name: str) -> None:
        """Delete an object, an array or everything below a name, if present."""
        caches: tuple[dict[str, Any], ...] = (self._objects, self._together, self._memory, self._opened, self.shards)
        for names in caches:
            for key in [key for key in names if key == name or key.startswith(f"{name}/")]:
                del names[key]
        if self.root is not None:
            self.target(name).remove()

    def _expected_checksum(self, name: str) -> int | None:
        """Return the checksum of an object that this unit or an earlier stage wrote, None for others."""
        written = self.outputs.checksum(name)
        return self.seals.stated(name) if written is None else written

    def _is_stated(self, name: str, file: IO[bytes]) -> bool:
        """Return whether an open object has the checksum that an earlier stage recorded, if one did."""
        if (stated := self._expected_checksum(name)) is None:
            return True
        checksum = 0
        while piece := file.read(NPY_PIECE):
            checksum = zlib.crc32(piece, checksum)
        file.seek(0)
        return checksum == stated


def remove_unfinished(store: Store) -> None:
    """Delete temporary files and folders of killed processes. An object store has none: its writes are atomic."""
    if not isinstance(store.root, LocalPath):
        return
    for folder, folders, names in os.walk(store.root):
        for name in filter(UNFINISHED_WRITE.fullmatch, (*folders, *names)):
            with suppress(OSError):  # a leftover only costs disk space
                LocalPath(folder, name).remove()


def stored_chunks(shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...]) -> tuple[int, ...]:
    """Return the chunk shape of an array: at most its shape, and cut along its first axes if too large for Blosc.

    An axis of several chunks is cut at the ends of all of them, too, so that a unit that owns whole ones of the chunks
    asked for owns whole ones of these.
    """
    cut, itemsize = [max(1, min(c, s)) for c, s in zip(chunks, shape, strict=True)], np.dtype(dtype).itemsize
    if math.prod(cut) * itemsize > MAX_CHUNK_BYTES:
        for axis, size in enumerate(cut):
            others = math.prod(cut) // size * itemsize
            cut[axis] = min(size, max(1, CUT_BYTES // others))
            if size < shape[axis]:
                cut[axis] = math.gcd(size, 1 << (cut[axis].bit_length() - 1))
    return tuple(cut)


def _copy_json(value: Any) -> Any:
    """Return a deep copy of a JSON value; ``deepcopy`` would take a tenth of the time of a round of few rows."""
    if isinstance(value, dict):
        return {key: _copy_json(one) for key, one in value.items()}
    return [_copy_json(one) for one in value] if isinstance(value, list) else value


def _values_of(archive: zipfile.ZipFile, name: str) -> bytearray:
    """Return the bytes of an array in C order.

    Its header is skipped: NumPy parses headers with ``ast``, which fails when another thread, or a callback of the
    garbage collector, does the same meanwhile (python/cpython#106905).
    """
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as file:
        start = NPY_START + int.from_bytes(file.read(NPY_START)[-2:], "little")
        file.read(start - NPY_START)
        values, filled = bytearray(member.file_size - start), 0
        while piece := file.read(min(NPY_PIECE, len(values) - filled)):
            values[filled : filled + len(piece)] = piece
            filled += len(piece)
    if filled < len(values):
        msg = f"{member.filename} ends after {filled:,} of {len(values):,} bytes"
        raise EOFError(msg)
    return values
