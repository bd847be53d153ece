"""Shards: pieces of arrays in one object, read by ranges.

A unit that writes for many others writes one shard instead of files for each of them. Its pieces belong to *segments*,
one for each reader. An index, an object of its own, states size and checksum of each piece. The record of the unit
covers the index, and the index covers the pieces, so a read compares checksums without reading the whole shard.

Notes
-----
Zarr has shards as well, of one array each. Their indexes hold no checksums: a shard that another run wrote could not be
recognized. And zarr-python 3.1 takes 3 to 12 times the processor time to write one, and 3 to 50 times to read from it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from daskfs.storage import map_concurrent
from daskfs.store.arrays import checksum_of, count_bytes, counted_bytes, decode, encode
from daskfs.store.layout import SHARD, SHARD_INDEX
from daskfs.store.second_look import ABSENT, look_twice
from daskfs.store.store import Store

ADJACENT_BYTES = 2**22
"""Bytes of adjacent pieces, decoded, that are read at once; a larger piece is read alone."""
CUT_BYTES = 2**26
"""Bytes of the largest piece; larger ones are cut."""

UNREADABLE_SHARD = (*ABSENT, EOFError, ValueError, RuntimeError)
"""Errors of reading a shard that is missing or damaged."""
Piece = tuple[int, str, np.ndarray]
"""Segment, name of a column, and values; all pieces of a column have the same dtype and, but for rows, shape."""
INDEX_FIELDS = {"segment": "<i4", "column": "u1", "shard": "<i4", "n_rows": "<i4", "size": "<i4", "checksum": "<u4"}


class ShardWriter:
    """Writer of the shards of one unit, and of their index; their names begin with `name`."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name
        self._columns: dict[str, tuple[int, str, tuple[int, ...]]] = {}
        self._table: list[tuple[int, ...]] = []
        self._n_shards = 0

    def write(self, pieces: Iterable[Piece]) -> None:
        """Write one shard; pieces are generated while it is written. Pieces of a segment are read in this order."""
        name = SHARD.format(self._name, self._n_shards)
        if self._store.root is None:
            self._store.shards[name] = [
                self._note_piece(segment, column, values, size=1, checksum=0)
                for segment, column, values in _cut(pieces)
            ]
        else:
            self._store.write_blocks(name, self._encode_pieces(pieces))
        self._n_shards += 1

    def _encode_pieces(self, pieces: Iterable[Piece]) -> Iterator[bytes]:
        for segment, column, values in _cut(pieces):
            block = encode(values)
            self._note_piece(segment, column, values, len(block), checksum_of(block))
            yield block

    def _note_piece(self, segment: int, column: str, values: np.ndarray, size: int, checksum: int) -> np.ndarray:
        number, *_ = self._columns.setdefault(column, (len(self._columns), values.dtype.str, values.shape[1:]))
        count_bytes(written=values.nbytes)
        self._table.append((segment, number, self._n_shards, len(values), size, checksum))
        return values

    def close(self) -> None:
        """Write the index, after which the shards can be read."""
        table = np.array(self._table, np.int64).reshape(-1, len(INDEX_FIELDS))
        fields = {name: table[:, i].astype(dtype) for i, (name, dtype) in enumerate(INDEX_FIELDS.items())}
        columns = [[name, *kind] for name, (_, *kind) in self._columns.items()]
        with counted_bytes():  # an index is no data
            self._store.write_arrays(SHARD_INDEX.format(self._name), fields, {"columns": columns})


def _cut(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield pieces that have rows, large ones in parts: Blosc takes less than 2**31 bytes."""
    for segment, column, values in pieces:
        step = max(1, CUT_BYTES // max(values[:1].nbytes, 1))
        for start in range(0, len(values), step):
            yield segment, column, values[start : start + step]


class StoredPiece(NamedTuple):
    """Position of a piece; in memory `start` is its number in the shard."""

    shard: str
    column: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int
    checksum: int

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize


def stored_pieces(store: Store, names: Iterable[str], segment: int) -> list[StoredPiece]:
    """Return the pieces of a segment in the shards of each name, in order; raise :class:`DamagedError` for an index."""
    read = partial(_read_index, store, segment, store.seals.entered)
    return list(itertools.chain.from_iterable(map_concurrent(store.root, read, names)))


def _read_index(store: Store, segment: int, inputs: str | None, name: str) -> list[StoredPiece]:
    store.seals.enter(inputs)
    with counted_bytes():
        fields, facts = store.read_arrays(SHARD_INDEX.format(name))
    pieces = []
    shard, size = fields["shard"], fields["size"].astype(np.int64)
    starts = np.cumsum(size) - size
    for i in np.flatnonzero(fields["segment"] == segment):
        column, dtype, row_shape = facts["columns"][fields["column"][i]]
        start = int(starts[i] - starts[np.searchsorted(shard, shard[i])])
        shape = (int(fields["n_rows"][i]), *row_shape)
        shard_name = SHARD.format(name, shard[i])
        checksum = int(fields["checksum"][i])
        pieces.append(StoredPiece(shard_name, column, dtype, shape, start, int(size[i]), checksum))
    return pieces


def read_pieces(store: Store, pieces: Iterable[StoredPiece]) -> Iterator[np.ndarray]:
    """Yield the values of pieces, in order; they may not be written to.

    Pieces that follow each other in a shard are read at once. From an object store the next ranges are prefetched
    (:func:`daskfs.storage.map_concurrent`). Raise :class:`DamagedError` for a shard that is missing or damaged.
    """
    if store.root is None:
        values_of_runs: Iterable[list[np.ndarray]] = ([store.shards[piece.shard][piece.start]] for piece in pieces)
    else:
        runs = list(_runs(pieces))
        largest = max((sum(piece.nbytes for piece in run) for run in runs), default=0)
        values_of_runs = map_concurrent(store.root, partial(_read_run, store), runs, largest)
    for run in values_of_runs:
        for values in run:
            count_bytes(read=values.nbytes)
            yield values


def read_columns(store: Store, pieces: Iterable[StoredPiece], dtypes: Mapping[str, str]) -> list[np.ndarray]:
    """Return columns of pieces as a whole; those without pieces are empty, of the given dtype."""
    parts_by_column: dict[str, list[np.ndarray]] = {name: [] for name in dtypes}
    column_pieces = [piece for piece in pieces if piece.column in parts_by_column]
    for piece, values in zip(column_pieces, read_pieces(store, column_pieces), strict=True):
        parts_by_column[piece.column].append(values)
    return [np.concatenate(parts_by_column.pop(name) or [np.empty(0, dtype)]) for name, dtype in dtypes.items()]


def _runs(pieces: Iterable[StoredPiece]) -> Iterator[list[StoredPiece]]:
    """Yield pieces that are read at once."""
    run: list[StoredPiece] = []
    n_bytes = 0
    for piece in pieces:
        follows = bool(run) and (piece.shard, piece.start) == (run[-1].shard, run[-1].start + run[-1].size)
        if run and not (follows and n_bytes + piece.nbytes <= ADJACENT_BYTES):
            yield run
            run, n_bytes = [], 0
        run.append(piece)
        n_bytes += piece.nbytes
    if run:
        yield run


def _read_run(store: Store, run: Sequence[StoredPiece]) -> list[np.ndarray]:
    path, first = store.path(run[0].shard), run[0].start
    buffer = np.empty(run[-1].start + run[-1].size - first, np.uint8)

    def look() -> list[np.ndarray]:
        with path.open_ranges(is_source=False) as fill:
            fill([(first, buffer.data)])
        return [_decode_piece(piece, buffer[piece.start - first :][: piece.size]) for piece in run]

    try:
        return look_twice(path, look, *UNREADABLE_SHARD)
    except UNREADABLE_SHARD as error:
        what = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged: {error}"
        raise store.epoch.remove_damaged(path, f"{path} {what}:") from error


def _decode_piece(piece: StoredPiece, block: np.ndarray) -> np.ndarray:
    if checksum_of(block) != piece.checksum:
        msg = f"of {piece.size} bytes from {piece.start} on the checksum is not that in the index"
        raise ValueError(msg)
    values = np.empty(piece.shape, piece.dtype)
    decode(block, values)
    return values
