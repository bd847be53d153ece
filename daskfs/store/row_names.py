"""Row names of a tile store: an array of text, written and read a stretch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from daskfs.kernels.statistics.moments import row_blocks
from daskfs.sources import Source
from daskfs.sources.row_names import MAX_NAME_BYTES, NAMES_AT_ONCE
from daskfs.store import layout
from daskfs.store.store import Store
from daskfs.store.tiles import Tiles

STRETCH_BYTES = (5 * MAX_NAME_BYTES + 200) * NAMES_AT_ONCE
"""Peak bytes while a stretch of names is read or written."""
NAMES_SHOWN = 3


def put_row_names(store: Store, source: Source, n_samples: int) -> None:
    """Store the row names of a source and their summary.

    The source is read twice, first for the length of the longest name.
    """
    described = describe_row_names(source)
    assert described is not None
    width = int(described["width"])
    store.create(layout.ROW_NAMES, (n_samples, width), np.uint8, (NAMES_AT_ONCE, width))
    array, start = store.open(layout.ROW_NAMES), 0
    for names in source.read_row_names() or ():
        values = names.astype(f"S{width}").view(np.uint8).reshape(names.size, width)
        array[start : start + names.size] = values
        start += names.size
    store.write_json(layout.ROW_NAMES_JSON, described)


def describe_row_names(source: Source) -> dict[str, Any] | None:
    """Return the first row names of a source, and the bytes of the longest one; None if it has none."""
    parts = source.read_row_names()
    if parts is None:
        return None
    width, first = 1, list[str]()
    for names in parts:
        width = max(width, names.dtype.itemsize)
        first += decode_names(names[: NAMES_SHOWN - len(first)]).tolist()
    return {"first": first, "width": width}


def decode_names(names: np.ndarray) -> np.ndarray:
    """Decode names, UTF-8 in a dtype ``S``, to text of dtype object, shape (n,)."""
    text = np.empty(names.size, dtype=object)
    text[:] = [name.decode() for name in names.tolist()]
    return text


def has_row_names(tiles: Tiles) -> bool:
    """Return whether the rows of tiles have names."""
    return tiles.info.facts.get("row_names") is not None


def row_names_of(tiles: Tiles, rows: slice) -> np.ndarray:
    """Return the names of some rows of tiles that have names, UTF-8 in a dtype ``S``, shape (n,)."""
    values = np.ascontiguousarray(tiles.store.open(layout.ROW_NAMES)[rows])
    return values.view(f"S{values.shape[1]}")[:, 0]


def stretches_of(tiles: Tiles) -> Iterator[np.ndarray]:
    """Yield the names of all rows in order, a chunk at a time, UTF-8 in a dtype ``S``, shape (n,)."""
    for rows in row_blocks(tiles.shape.n_samples, NAMES_AT_ONCE):
        yield row_names_of(tiles, rows)
