"""The chunk files of a local Zarr array: which there are, and whether they are whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daskfs.errors import InputError

if TYPE_CHECKING:
    import zarr

BLOSC_HEADER_BYTES = 16


def chunk_files(array: zarr.Array[Any], path: Path, start: int, stop: int) -> Iterator[Path]:
    """Yield the files that hold rows ``start:stop`` of the array in directory `path`; not all need exist."""
    unit = array.shards or array.chunks
    grid = [range(-(-size // step)) for size, step in zip(array.shape, unit, strict=True)]
    if grid:
        grid[0] = range(start // unit[0], -(-stop // unit[0]))
    for key in itertools.product(*grid):
        yield path / array.metadata.encode_chunk_key(key)


def sampled_chunk_files(array: zarr.Array[Any], path: Path, count: int) -> list[Path]:
    """Return up to `count` chunk files of a matrix, spread over all of it."""
    unit = array.shards or array.chunks
    rows, columns = (-(-size // step) for size, step in zip(array.shape, unit, strict=True))
    places = np.unique(np.linspace(0, rows * columns - 1, count).astype(np.int64))
    keys = [divmod(int(place), columns) for place in places]
    return [path / array.metadata.encode_chunk_key(key) for key in keys]


def ends_in_blosc(document: dict[str, Any]) -> bool:
    """Return whether the metadata say that chunk files are what Blosc wrote, without shards around it."""
    if "codecs" in document:
        codecs = document["codecs"]
        last = codecs[-1].get("name") if codecs and isinstance(codecs[-1], dict) else None
        return last in ("blosc", "numcodecs.blosc")
    compressor = document.get("compressor")
    return isinstance(compressor, dict) and compressor.get("id") == "blosc"


def check_blosc(file: Path) -> None:
    """Raise when a chunk file is not as long as its Blosc header says.

    Blosc trusts the header, so a shortened chunk would decode to arbitrary numbers, or end the process.
    """
    try:
        with file.open("rb") as chunk:
            header = chunk.read(BLOSC_HEADER_BYTES)
            size = chunk.seek(0, 2)
    except FileNotFoundError:
        # Chunks of nothing but the fill value may be left out.
        return
    stated = int.from_bytes(header[12:16], "little")
    if len(header) < BLOSC_HEADER_BYTES or size != stated:
        raise InputError(f"{file} is truncated or damaged: it has {size} bytes, its header says {stated}.")
