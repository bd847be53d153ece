"""The chunks of a Zarr array written by another program: their files, codecs and integrity."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daskfs.errors import InputError
from daskfs.storage import StoragePath

if TYPE_CHECKING:
    import zarr

BLOSC_HEADER_BYTES = 16
CODEC_KEYS = ("codecs", "filters", "compressor", "storage_transformers")
TEXT_CODECS = ("vlen-utf8", "vlen-bytes")
ALL_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


def sampled_chunk_files(
    array: zarr.Array[Any], path: StoragePath, count: int, shape: Sequence[int] | None = None
) -> dict[tuple[int, ...], StoragePath]:
    """Return up to `count` chunk (or shard) files of an array by position, spread over all of it.

    `shape` is that of the part at its start to which the files belong; None for the whole array.
    """
    counts = _chunk_counts(array, shape or array.shape)
    places = np.unique(np.linspace(0, max(math.prod(counts) - 1, 0), count).astype(np.int64))[: math.prod(counts)]
    keys = [tuple(int(i) for i in np.unravel_index(place, counts)) if counts else () for place in places]
    return {key: path / array.metadata.encode_chunk_key(key) for key in keys}


def _chunk_counts(array: zarr.Array[Any], shape: Sequence[int]) -> list[int]:
    """Return the number of chunk files of an array of this shape along each of its dimensions."""
    return [-(-size // step) for size, step in zip(shape, array.shards or array.chunks, strict=True)]


def absent_chunks(array: zarr.Array[Any], path: StoragePath) -> tuple[int, int, str]:
    """Return the number of absent chunk files of an array, that of all, and the name of the first absent one.

    They are listed, by a request for each thousand in an object store. Of an array in shards, absent shards are
    counted; chunks that a shard lacks would take a read of each shard.
    """
    present = np.zeros(_chunk_counts(array, array.shape), dtype=bool)
    for file in path.files_below():
        name = file.name_below(path)
        place = tuple(map(int, re.findall("[0-9]+", name)))[: present.ndim]
        is_within = len(place) == present.ndim and all(map(int.__lt__, place, present.shape))
        if is_within and array.metadata.encode_chunk_key(place) == name:
            present[place] = True
    n_absent = present.size - int(np.count_nonzero(present))
    first = np.unravel_index(np.argmin(present), present.shape) if n_absent else ()
    return n_absent, present.size, array.metadata.encode_chunk_key(tuple(map(int, first)))


def ends_in_blosc(document: dict[str, Any]) -> bool:
    """Return whether, by the metadata, Blosc is the last codec of chunk files, without shards."""
    if "codecs" in document:
        codecs = document["codecs"]
        last = codecs[-1].get("name") if codecs and isinstance(codecs[-1], dict) else None
        return last in ("blosc", "numcodecs.blosc")
    compressor = document.get("compressor")
    return isinstance(compressor, dict) and compressor.get("id") == "blosc"


def check_codecs(document: Mapping[str, Any], array: object) -> None:
    """Raise :class:`InputError` if an array, by its metadata, holds pickle, also in shards, or objects but text."""
    if "pickle" in json.dumps([document.get(key) for key in CODEC_KEYS]).lower():
        msg = f"{array} is encoded with pickle, which is never loaded; write it with another codec."
        raise InputError(msg)
    dtype = document.get("dtype")
    if not isinstance(dtype, str) or "O" not in dtype:
        return
    filters = document.get("filters")
    first = filters[0] if isinstance(filters, list) and filters else None
    codec = first.get("id") if isinstance(first, dict) else None
    if codec not in TEXT_CODECS:
        msg = (
            f"{array} holds Python objects (dtype object, codec {codec or 'none'}), which are never loaded; write text "
            "as vlen-utf8, and numbers as numbers."
        )
        raise InputError(msg)


def check_blosc(header: bytes, size: int, where: object) -> None:
    """Raise :class:`InputError` if a chunk does not have the length in its Blosc header.

    Blosc trusts the header: a truncated chunk would decode to arbitrary numbers or crash the process.
    """
    stated = int.from_bytes(header[12:16], "little")
    if len(header) < BLOSC_HEADER_BYTES or size != stated:
        msg = f"{where} is truncated or damaged: it has {size} bytes, its header says {stated}."
        raise InputError(msg)


def foreign_store(path: StoragePath, *, has_blosc: bool) -> Any:
    """Return the Zarr store path of an array written by another program.

    With `has_blosc`, chunks are checked by :func:`check_blosc` as they are read.
    """
    from zarr.storage import LocalStore, StorePath

    store = path.zarr_store()
    zarr_store = store if isinstance(store, StorePath) else StorePath(LocalStore(store, read_only=True), "")
    return StorePath(_foreign_store()(zarr_store.store, path, zarr_store.path, has_blosc=has_blosc), zarr_store.path)


@lru_cache(maxsize=1)
def _foreign_store() -> Any:
    from zarr.storage import WrapperStore

    class ForeignStore(WrapperStore[Any]):
        """A store that raises errors for chunks that it cannot return.

        :class:`InputError` for an invalid chunk, and :class:`OSError` for an object that the store does not return.
        """

        def __init__(self, store: Any, path: StoragePath, root: str, *, has_blosc: bool) -> None:
            super().__init__(store)
            self._path, self._root, self._has_blosc = path, root, has_blosc

        def _with_store(self, store: Any) -> ForeignStore:
            return type(self)(store, self._path, self._root, has_blosc=self._has_blosc)

        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            name = key.removeprefix(self._root).lstrip("/")
            (self._path / name).regular()
            with self._path.errors():
                buffer = await super().get(key, prototype, byte_range)
            if self._has_blosc and buffer is not None and byte_range is None and name not in ALL_METADATA:
                check_blosc(buffer[:BLOSC_HEADER_BYTES].to_bytes(), len(buffer), self._path / name)
            if buffer is None and isinstance(self._path, Path) and (self._path / name).is_dir():
                msg = f"chunk {self._path / name} is a directory."
                raise InputError(msg)
            return buffer

    return ForeignStore
