"""Arrays of a store: Zarr on disk, plain NumPy in memory, one interface.

Zarr reads a missing chunk as its fill value. Here reading one is an error, and chunks carry a CRC-32C, so that a
deleted, truncated or altered chunk is found when it is read, and named.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from daskfs.errors import DamagedError, InputError, StoreError
from daskfs.sources.zarrchunks import check_blosc, ends_in_blosc
from daskfs.sources.zarrcodecs import check_codecs
from daskfs.store.writing import try_to_remove, writing

DECODE_ERRORS = (ValueError, RuntimeError, OSError, EOFError, zlib.error)
"""What Zarr and its codecs raise for a damaged chunk."""

CHECKSUM_BYTES = 4
"""What the CRC-32C takes at the end of a chunk."""

MADE_AGAIN = "'daskfs run' makes it again, 'daskfs convert' what belongs to a converted store."


def stored_checksum(path: Path) -> int:
    """Return the CRC-32C that one of our chunks carries at its end, without reading the chunk."""
    with path.open("rb") as file:
        file.seek(-CHECKSUM_BYTES, os.SEEK_END)
        return int.from_bytes(file.read(), "little")


@dataclass
class ByteCount:
    """Bytes of decoded chunks that a thread read and wrote."""

    read: int = 0
    written: int = 0


_counts = threading.local()


@contextmanager
def counted_bytes() -> Iterator[ByteCount]:
    """Count the bytes of all chunks that this thread touches, whole chunks even where a part was asked for; what is
    counted inside another count is not in that one.
    """
    outer = getattr(_counts, "current", None)
    _counts.current = count = ByteCount()
    try:
        yield count
    finally:
        _counts.current = outer


def count_bytes(read: int = 0, written: int = 0) -> None:
    """Add to the count of this thread, where it has one."""
    current = getattr(_counts, "current", None)
    if current is not None:
        current.read += read
        current.written += written


class Array(Protocol):
    """What units may do with an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __getitem__(self, selection: Any) -> np.ndarray: ...

    def __setitem__(self, selection: Any, value: Any) -> None: ...


class ChunkedArray:
    """A Zarr array under a directory, read and written by slices.

    Parameters
    ----------
    root
        Directory of the array.
    array
        The open ``zarr.Array``.
    on_write
        Called with the paths of the chunks that a write touched.
    foreign
        The array is a source used in place: other writers leave out chunks that hold nothing but the fill value, and
        their Blosc chunks carry no checksum, so at least their length is checked.
    """

    def __init__(
        self, root: Path, array: Any, on_write: Callable[[list[Path]], None] | None = None, *, foreign: bool = False
    ) -> None:
        self._root = root
        self._array = array
        self._on_write = on_write
        self._foreign = foreign
        self._is_blosc = foreign and ends_in_blosc(array.metadata.to_dict())
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype
        shards = getattr(array, "shards", None)
        self.chunks: tuple[int, ...] = shards or array.chunks
        self._is_plain = not foreign and _is_plain(array.metadata.to_dict())
        self._chunk_bytes = (
            math.prod(min(c, s) for c, s in zip(self.chunks, self.shape, strict=True)) * self.dtype.itemsize
        )

    def _touched(self, selection: Any) -> list[Path]:
        selection = () if selection is Ellipsis else selection if isinstance(selection, tuple) else (selection,)
        ranges = []
        for axis, size in enumerate(self.shape):
            index = selection[axis] if axis < len(selection) else slice(None)
            start, stop, _ = (index if isinstance(index, slice) else slice(index, index + 1)).indices(size)
            ranges.append(
                range(start // self.chunks[axis], -(-stop // self.chunks[axis])) if stop > start else range(0)
            )
        encode = self._array.metadata.encode_chunk_key
        return [self._root / encode(position) for position in itertools.product(*ranges)]

    def __getitem__(self, selection: Any) -> np.ndarray:
        touched = self._touched(selection)
        count = getattr(_counts, "current", None)
        if count is not None:
            count.read += len(touched) * self._chunk_bytes
        for path in touched:
            self._check_chunk(path)
        try:
            if self._is_plain and (regions := self._regions(selection)) is not None:
                return self._read(regions)
            return np.asarray(self._array[selection])
        except DECODE_ERRORS as error:
            damaged = self._remove_damaged(touched)
            msg = f"cannot decode chunk {', '.join(str(path) for path in damaged or touched[:3])}: {error}."
            if self._foreign:
                raise StoreError(msg) from error
            msg += f" {_removed(damaged)}: {MADE_AGAIN}"
            raise DamagedError(msg, damaged) from error

    def _check_chunk(self, path: Path) -> None:
        """Raise where Zarr would read the fill value, or worse, for what is no chunk."""
        if self._foreign:
            if path.is_dir():
                msg = f"chunk {path} is a directory."
                raise StoreError(msg)
            if self._is_blosc:
                check_blosc(path)
        elif not path.is_file():
            msg = f"chunk {path} is {'no file' if os.path.lexists(path) else 'missing'}: {MADE_AGAIN}"
            try_to_remove(path)
            raise DamagedError(msg, [path])

    def _regions(self, selection: Any) -> list[range] | None:
        """Return the range that slices select of each axis, None for what is not all slices of step 1."""
        selection = () if selection is Ellipsis else selection if isinstance(selection, tuple) else (selection,)
        if not all(isinstance(index, slice) and index.step in (None, 1) for index in selection):
            return None
        slices = (*selection, *[slice(None)] * (len(self.shape) - len(selection)))
        return [range(*index.indices(size)) for index, size in zip(slices, self.shape, strict=True)]

    def _read(self, regions: list[range]) -> np.ndarray:
        """Read chunk after chunk; of one alone nothing is copied."""
        numbers = [
            range(r.start // c, -(-r.stop // c)) if len(r) else range(0)
            for r, c in zip(regions, self.chunks, strict=True)
        ]
        whole: np.ndarray | None = None
        for position in itertools.product(*numbers):
            origin = [i * c for i, c in zip(position, self.chunks, strict=True)]
            shared = [
                range(max(r.start, o), min(r.stop, o + c)) for r, o, c in zip(regions, origin, self.chunks, strict=True)
            ]
            within = tuple(slice(r.start - o, r.stop - o) for r, o in zip(shared, origin, strict=True))
            part = self._decoded(position)[within]
            if math.prod(len(n) for n in numbers) == 1 and 2 * part.nbytes >= self._chunk_bytes:
                return part
            if whole is None:
                whole = np.empty([len(r) for r in regions], self.dtype)
            place = tuple(slice(r.start - a.start, r.stop - a.start) for r, a in zip(shared, regions, strict=True))
            whole[place] = part
        return np.empty([len(r) for r in regions], self.dtype) if whole is None else whole

    def _decoded(self, position: tuple[int, ...]) -> np.ndarray:
        """Decode one chunk, as :func:`create_zarr` has them written.

        Zarr hands each chunk to a thread of its own and back, which costs more than to decode a small one, and copies
        it into pages that the system has yet to give; of a large one that takes most of the time.
        """
        from google_crc32c import value as checksum
        from numcodecs.blosc import decompress

        path = self._root / self._array.metadata.encode_chunk_key(position)
        with path.open("rb", buffering=0) as file:
            encoded = np.empty(path.stat().st_size, np.uint8)
            size = file.readinto(encoded.data)
        if size is None or size < encoded.size or size <= CHECKSUM_BYTES:
            msg = f"{size} bytes of {encoded.size}, of which the checksum takes {CHECKSUM_BYTES}"
            raise ValueError(msg)
        values = encoded[:-CHECKSUM_BYTES]
        if checksum(values) != int.from_bytes(encoded[-CHECKSUM_BYTES:].tobytes(), "little"):
            msg = "the checksum stored with it is another than that of its bytes"
            raise ValueError(msg)
        chunk = np.empty(self.chunks, self.dtype)
        decompress(values, chunk)
        return chunk

    def _remove_damaged(self, touched: list[Path]) -> list[Path]:
        """Delete those of our own chunks that do not decode, so that their unit counts as not done; return them."""
        if self._foreign:
            return []
        damaged = []
        for path in touched:
            position = [int(part) for part in path.relative_to(self._root).parts[1:]]
            region = tuple(
                slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(position, self.chunks, self.shape, strict=True)
            )
            try:
                self._decoded(tuple(position)) if self._is_plain else self._array[region]
            except DECODE_ERRORS:
                try_to_remove(path)
                damaged.append(path)
        return damaged

    def __setitem__(self, selection: Any, value: Any) -> None:
        with writing(self._root):
            self._array[selection] = value
        touched = self._touched(selection)
        count = getattr(_counts, "current", None)
        if count is not None:
            count.written += len(touched) * self._chunk_bytes
        if self._on_write is not None:
            self._on_write(touched)


def _removed(damaged: list[Path]) -> str:
    is_there = any(os.path.lexists(path) for path in damaged)  # in a store that nobody may write to
    return "Delete it" if is_there else "It was removed"


def _is_plain(metadata: Mapping[str, Any]) -> bool:
    """Return whether chunks are what :func:`create_zarr` makes them on a machine of the usual order of bytes."""
    codecs = metadata.get("codecs", ())
    names = [codec.get("name") for codec in codecs]
    if names != ["bytes", "blosc", "crc32c"]:
        return False
    endian = codecs[0].get("configuration", {}).get("endian") or "little"  # single bytes have none
    return bool(endian == sys.byteorder == "little")


def create_zarr(
    root: Path, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...], *, overwrite: bool = True
) -> Any:
    """Create a Zarr v3 array: blosc lz4 with shuffle, a CRC-32C for each chunk, every chunk written. Chunks that lie
    there are deleted, unless `overwrite` is false.
    """
    import zarr
    from zarr.codecs import BloscCodec, Crc32cCodec

    with writing(root):
        return zarr.create_array(
            store=str(root),
            shape=shape,
            dtype=dtype,
            chunks=tuple(max(1, min(c, s)) for c, s in zip(chunks, shape, strict=True)),
            compressors=[BloscCodec(cname="lz4", clevel=5, shuffle="shuffle"), Crc32cCodec()],
            fill_value=0,
            overwrite=overwrite,
            config={"write_empty_chunks": True},
        )


def open_zarr(root: Path, *, mode: str = "r+") -> Any:
    """Open the Zarr array at `root`; :class:`StoreError` when there is none that can be read."""
    import zarr
    from zarr.errors import ArrayNotFoundError, MetadataValidationError

    try:
        check_codecs(root)
    except InputError as error:
        raise StoreError(str(error).removesuffix(".")) from None
    problems = (
        ArrayNotFoundError,
        FileNotFoundError,
        IsADirectoryError,
        MetadataValidationError,
        ValueError,
        KeyError,
        TypeError,
    )
    try:
        # open_array of Zarr 3.1 takes a config and forgets it
        return zarr.open_array(store=str(root), mode=mode).with_config({"write_empty_chunks": True})
    except problems as error:
        msg = f"no readable Zarr array at {root}: {error}"
        raise StoreError(msg) from error
