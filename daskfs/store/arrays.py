"""Arrays of a store with one interface: Zarr on disk or in an object store, NumPy in memory.

Zarr reads a missing chunk as its fill value. Here that is an error, and chunks carry a CRC-32C, so that every read
detects a deleted, truncated or altered chunk and names it. A failed read does not prove damage: it stays an
:class:`OSError`, and nothing is deleted.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from daskfs.errors import DamagedError, InputError, StoreError
from daskfs.sources.zarr_chunks import check_codecs
from daskfs.storage import ObjectPath, StoragePath, map_concurrent
from daskfs.storage.clients import as_os_errors, client_of
from daskfs.store.epoch import Epoch
from daskfs.store.outputs import OutputLog, Written
from daskfs.store.seals import Seals
from daskfs.store.second_look import ABSENT, look_twice
from daskfs.store.write_errors import explain_write_errors, try_to_remove

DECODE_ERRORS = (ValueError, RuntimeError, OSError, EOFError, zlib.error)
"""Errors that Zarr and its codecs raise for a damaged chunk."""

CHECKSUM_BYTES = 4
"""Bytes of the CRC-32C at the end of a chunk."""

METADATA = "zarr.json"

OTHER = "is whole, and not what its unit wrote"

COMPRESSOR: Literal["lz4"] = "lz4"
BLOSC_LEVEL = 5

CONFLICT_PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0)
"""Seconds before a chunk is written again that met another write of it."""


@dataclass
class ByteCount:
    """Bytes of decoded chunks that a thread read and wrote."""

    read: int = 0
    written: int = 0


_counts = threading.local()


@contextmanager
def counted_bytes() -> Iterator[ByteCount]:
    """Count the bytes of all chunks that this thread reads or writes, whole chunks even for partial reads.

    A nested count is not added to the outer one.
    """
    outer = getattr(_counts, "current", None)
    _counts.current = count = ByteCount()
    try:
        yield count
    finally:
        _counts.current = outer


def count_bytes(read: int = 0, written: int = 0) -> None:
    """Add to the count of this thread, if it has one."""
    current = getattr(_counts, "current", None)
    if current is not None:
        current.read += read
        current.written += written


class Readable(Protocol):
    """An array, or an object that is read like one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the array."""

    def __getitem__(self, selection: Any, /) -> np.ndarray: ...


class StoredArray(Readable, Protocol):
    """Interface of arrays for units."""

    def __setitem__(self, selection: Any, value: Any) -> None: ...


class Watch(NamedTuple):
    """Parts of a store that check and note the chunks of one of its arrays, and the name of the array."""

    epoch: Epoch
    outputs: OutputLog
    seals: Seals
    name: str


class ChunkedArray:
    """Zarr array under a directory or a URL, read and written by slices.

    A source used in place has no watch, and is not written to: other writers omit chunks that hold only the fill value,
    and their Blosc chunks carry no checksum, so at least their length is checked.
    """

    def __init__(self, root: StoragePath, array: Any, watch: Watch | None = None) -> None:
        self._root = root
        self._array = array
        self._watch = watch
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype
        self.chunks: tuple[int, ...] = array.shards or array.chunks
        self._is_plain = watch is not None and _is_plain(array.metadata.to_dict())
        self._chunk_bytes = (
            math.prod(min(c, s) for c, s in zip(self.chunks, self.shape, strict=True)) * self.dtype.itemsize
        )

    def __getitem__(self, selection: Any) -> np.ndarray:
        regions, within = self._regions(selection)
        positions = self._positions(regions)
        count_bytes(read=len(positions) * self._chunk_bytes)
        try:
            if self._is_plain:
                return self._read_chunks(regions, positions)[within]
            for path in map(self._path, positions):
                if self._watch is not None and not path.is_file():
                    raise self._missing(path)
            with self._root.errors():
                return look_twice(self._root, lambda: np.asarray(self._array[selection]), *DECODE_ERRORS)
        except InputError:  # its message names the chunk
            raise
        except DECODE_ERRORS as error:
            if _has_failed(error):
                raise
            damaged = self._remove_damaged(positions)
            paths = damaged or map(self._path, positions[:3])
            msg = f"cannot decode chunk {', '.join(map(str, paths))}: {error}."
            if self._watch is None:
                raise StoreError(msg) from error
            remains = any(path.is_there() for path in damaged)  # in a read-only store
            msg += f" {'Delete it' if remains else 'It was removed'}: {self._watch.epoch.remedy}"
            raise DamagedError(msg, damaged) from error

    def _regions(self, selection: Any) -> tuple[list[range], tuple[Any, ...]]:
        """Return the range of each axis that integers and slices select from, and the selection within these."""
        selection = () if selection is Ellipsis else selection if isinstance(selection, tuple) else (selection,)
        regions: list[range] = []
        within: list[Any] = []
        for axis, size in enumerate(self.shape):
            index = selection[axis] if axis < len(selection) else slice(None)
            if isinstance(index, slice):
                chosen = range(size)[index]
                within.append(slice(None, None, chosen.step))
            else:
                number = range(size)[int(index)]
                chosen = range(number, number + 1)
                within.append(0)
            ascending = chosen if chosen.step > 0 else chosen[::-1]
            regions.append(range(ascending[0], ascending[-1] + 1) if ascending else range(0))
        return regions, tuple(within)

    def _positions(self, regions: list[range]) -> list[tuple[int, ...]]:
        """Return the positions of the chunks that hold values of regions."""
        numbers = (range(r.start // c, -(-r.stop // c)) for r, c in zip(regions, self.chunks, strict=True))
        return list(itertools.product(*numbers))

    def _path(self, position: tuple[int, ...]) -> StoragePath:
        return self._root / self._array.metadata.encode_chunk_key(position)

    def _read_chunks(self, regions: list[range], positions: list[tuple[int, ...]]) -> np.ndarray:
        """Read chunk by chunk; from an object store, prefetch the next ones.

        At least half of a single chunk is returned as a view.
        """
        whole: np.ndarray | None = None
        chunks = map_concurrent(self._root, self._read_encoded, positions, self._chunk_bytes)
        for position in positions:
            origin = [i * c for i, c in zip(position, self.chunks, strict=True)]
            shared = [
                range(max(r.start, o), min(r.stop, o + c)) for r, o, c in zip(regions, origin, self.chunks, strict=True)
            ]
            within = tuple(slice(r.start - o, r.stop - o) for r, o in zip(shared, origin, strict=True))
            part = self._chunk(position, next(chunks))[within]
            if len(positions) == 1 and 2 * part.nbytes >= self._chunk_bytes:
                return part
            if whole is None:
                whole = np.empty([len(r) for r in regions], self.dtype)
            place = tuple(slice(r.start - a.start, r.stop - a.start) for r, a in zip(shared, regions, strict=True))
            whole[place] = part
        return np.empty([len(r) for r in regions], self.dtype) if whole is None else whole

    def _read_encoded(self, position: tuple[int, ...]) -> np.ndarray:
        """Return the stored bytes of one chunk, shape (n_bytes,), uint8."""
        try:
            path = self._path(position)
            return np.frombuffer(look_twice(path, path.read_buffer, *ABSENT), np.uint8)
        except ABSENT as error:
            raise self._missing(path) from error

    def _chunk(self, position: tuple[int, ...], encoded: np.ndarray | None = None) -> np.ndarray:
        """Return the values of one chunk, of its stored bytes if they are known."""
        first = [] if encoded is None else [encoded]

        def look() -> np.ndarray:
            return self._decode_chunk(position, first.pop() if first else self._read_encoded(position))

        return look_twice(self._path(position), look, *DECODE_ERRORS)

    def _decode_chunk(self, position: tuple[int, ...], encoded: np.ndarray) -> np.ndarray:
        """Decode one chunk with the codecs of :func:`zarr_document`.

        Zarr passes each chunk to a thread and back, which costs more than decoding a small one, and copies it into
        newly allocated pages, which takes most of the time for a large one.
        """
        if encoded.size <= CHECKSUM_BYTES:
            msg = f"{encoded.size} bytes, of which the checksum takes {CHECKSUM_BYTES}"
            raise ValueError(msg)
        values = encoded[:-CHECKSUM_BYTES]
        carried = int.from_bytes(encoded[-CHECKSUM_BYTES:].tobytes(), "little")
        if checksum_of(values) != carried:
            msg = "the checksum stored with it is another than that of its bytes"
            raise ValueError(msg)
        assert self._watch is not None
        name = f"{self._watch.name}/{self._array.metadata.encode_chunk_key(position)}"
        if self._watch.seals.stated(name) not in (None, carried):
            msg = f"it {OTHER}"
            raise ValueError(msg)
        chunk = np.empty(self.chunks, self.dtype)
        decode(values, chunk)
        return chunk

    def _missing(self, path: StoragePath) -> DamagedError:
        assert self._watch is not None
        what = "no file" if path.is_there() else "missing"
        return self._watch.epoch.remove_damaged(path, f"chunk {path} is {what}:")

    def _remove_damaged(self, positions: list[tuple[int, ...]]) -> list[StoragePath]:
        """Delete those of our own chunks that do not decode, so that their unit is not done; return their paths."""
        if self._watch is None:
            return []
        removes, damaged = self._watch.epoch.may_change(), list[StoragePath]()
        for position in positions:
            try:
                with self._root.errors():
                    if self._is_plain:
                        self._chunk(position)
                    else:
                        region = (slice(i * c, (i + 1) * c) for i, c in zip(position, self.chunks, strict=True))
                        self._array[tuple(region)]
            except DECODE_ERRORS as error:
                if _has_failed(error):
                    raise
                damaged.append(self._path(position))
                if removes:
                    try_to_remove(damaged[-1])
        return damaged

    def __setitem__(self, selection: Any, value: Any) -> None:
        assert self._watch is not None
        self._watch.epoch.check()
        with explain_write_errors(self._root), self._root.errors():
            self._array[selection] = value
        paths = [self._path(position) for position in self._positions(self._regions(selection)[0])]
        count_bytes(written=len(paths) * self._chunk_bytes)
        noted, name = self._array.store.noted, self._watch.name
        chunks = {f"{name}/{path.name_below(self._root)}": noted.pop(str(path)) for path in paths}
        self._watch.outputs.add_chunks(chunks)


def encode(values: np.ndarray) -> bytes:
    """Compress values as those of chunks are."""
    from numcodecs import blosc

    blosc.use_threads = False  # as Zarr sets it: threads would write blocks in any order
    return bytes(blosc.compress(np.ascontiguousarray(values), COMPRESSOR.encode(), BLOSC_LEVEL, blosc.SHUFFLE))


def decode(encoded: np.ndarray, values: np.ndarray) -> None:
    """Decompress values into an array."""
    from numcodecs.blosc import decompress

    decompress(encoded, values)


def checksum_of(data: bytes | np.ndarray) -> int:
    """Return the CRC-32C of bytes."""
    from google_crc32c import value

    return int(value(data))


def _has_failed(error: BaseException) -> bool:
    """Return whether the system or the store failed to read; codecs raise errors without an ``errno``."""
    return isinstance(error, OSError) and error.errno is not None


def _is_plain(metadata: Mapping[str, Any]) -> bool:
    """Return whether chunks have the codecs of :func:`zarr_document`, and they and this machine are little-endian."""
    codecs = metadata.get("codecs", ())
    if [codec.get("name") for codec in codecs] != ["bytes", "blosc", "crc32c"]:
        return False
    endian = codecs[0].get("configuration", {}).get("endian") or "little"  # dtypes of one byte have none
    return bool(endian == sys.byteorder == "little")


@lru_cache(maxsize=256)
def zarr_document(shape: tuple[int, ...], dtype: np.dtype[Any], chunks: tuple[int, ...]) -> bytes:
    """Return the ``zarr.json`` of one of our arrays: Zarr v3, blosc lz4 with shuffle, a CRC-32C for each chunk.

    It is written directly: Zarr would first check for an existing array, four requests in an object store.
    """
    import zarr
    from zarr.codecs import BloscCodec, Crc32cCodec

    files: dict[str, Any] = {}
    zarr.create_array(
        store=files,
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        compressors=[BloscCodec(cname=COMPRESSOR, clevel=BLOSC_LEVEL, shuffle="shuffle"), Crc32cCodec()],
        fill_value=0,
    )
    return bytes(files[METADATA].to_bytes())


def open_zarr(root: StoragePath, document: bytes | None = None) -> Any:
    """Open one of our Zarr arrays, in which every chunk is written, even if all its values are zero.

    `document` is its ``zarr.json``, if known. Raise :class:`StoreError` if there is no readable array.
    """
    import zarr
    from zarr.errors import MetadataValidationError

    try:
        metadata = json.loads((root / METADATA).read_bytes() if document is None else document)
        check_codecs(metadata, root)
        return zarr.Array.from_dict(_noting_store(root), metadata).with_config({"write_empty_chunks": True})
    except InputError as error:
        raise StoreError(str(error).removesuffix(".")) from None
    except (MetadataValidationError, ValueError, KeyError, TypeError, AttributeError, RecursionError, *ABSENT) as error:
        msg = f"no readable Zarr array at {root}: {error}"
        raise StoreError(msg) from error


def _noting_store(root: StoragePath) -> Any:
    """Return the Zarr store of one of our arrays.

    It notes size and checksum of written chunks by path or URL: reading them back would cost a request, and another
    process may have written since.
    """
    from zarr.storage import StorePath

    on_disk, in_objects = _noting_types()
    return StorePath(in_objects(root.root), root.key) if isinstance(root, ObjectPath) else StorePath(on_disk(root))


@lru_cache(maxsize=1)
def _noting_types() -> tuple[Any, Any]:
    from zarr.storage import LocalStore, ObjectStore

    def of(value: Any) -> Written:
        return len(value), int.from_bytes(bytes(value.as_buffer_like()[-CHECKSUM_BYTES:]), "little")

    class OnDisk(LocalStore):
        def __init__(self, root: Any) -> None:
            super().__init__(root)
            self.noted: dict[str, Written] = {}

        async def set(self, key: str, value: Any) -> None:
            await super().set(key, value)
            self.noted[str(self.root / key)] = of(value)

    class InObjects(ObjectStore[Any]):
        def __init__(self, bucket: str) -> None:
            super().__init__(client_of(bucket))
            self.bucket = bucket
            self.noted: dict[str, Written] = {}

        async def set(self, key: str, value: Any) -> None:
            for pause in (*CONFLICT_PAUSES, None):
                try:
                    with as_os_errors(key):
                        await super().set(key, value)
                    break
                except FileExistsError:  # a request for the same chunk has not ended
                    if pause is None:
                        raise
                    await asyncio.sleep(pause)
            self.noted[f"{self.bucket}/{key}"] = of(value)

    return OnDisk, InObjects
