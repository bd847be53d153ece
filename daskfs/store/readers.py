"""Readers of values of X: dense tiles, sparse bands, or a matrix in memory."""

from __future__ import annotations

import copy
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError, StoreError
from daskfs.kernels.blocks import Block, is_sparse, stack_blocks
from daskfs.kernels.missing import fill_missing
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.sources.zarr_array import open_array
from daskfs.storage import as_path
from daskfs.store import layout
from daskfs.store.arrays import ChunkedArray, StoredArray
from daskfs.store.shape import Shape, rows_within, sample_rows
from daskfs.store.store import Store

GATHERED = 4096
"""Rows per block of :meth:`StoredReader.gathered`."""


class MemoryReader:
    """Reader of a matrix in memory, shape (n_samples, n_features), dense or CSR, with NaN where values are missing.

    `fill` has the fill value of each column, shape (n_features,), None if no value is missing. Methods are those of a
    :class:`StoredReader`.
    """

    def __init__(self, shape: Shape, matrix: Block, fill: np.ndarray | None) -> None:
        self.shape = shape
        self._given = matrix
        self._fill = fill

    @cached_property
    def matrix(self) -> Block:
        """X, filled at first use; it is never written to."""
        filled: Block = self._given if self._fill is None else fill_missing(self._given.copy(), self._fill)
        return filled

    @cached_property
    def _by_columns(self) -> sp.csc_matrix | None:
        return self.matrix.tocsc() if is_sparse(self.matrix) else None

    def unfilled(self) -> MemoryReader:
        """Return a reader of NaN where values are missing."""
        return self if self._fill is None else MemoryReader(self.shape, self._given, None)

    def rows(self, rows: slice) -> Block:
        """Return whole rows."""
        return self.matrix[rows] if is_sparse(self.matrix) else np.ascontiguousarray(self.matrix[rows])

    def pieces(self, rows: slice, height: int, chosen: np.ndarray | None) -> Iterator[tuple[int, Block]]:
        """Yield blocks of chosen rows."""
        for _, inside in self.shape.bands(rows):
            for low, high in itertools.pairwise(_cuts(inside, height)):
                of_block = None if chosen is None else chosen[low - rows.start : high - rows.start]
                block = self.matrix[low:high]
                yield high, block if of_block is None or of_block.all() else block[of_block]

    def columns(self, index: int, start: int, stop: int) -> np.ndarray | sp.csc_matrix:
        """Return columns of one band."""
        rows = self.shape.band(index)
        return self.matrix[rows, start:stop] if self._by_columns is None else self._by_columns[:, start:stop][rows]

    def gathered(self, columns: np.ndarray, rows: slice, index: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield row ranges and some columns."""
        del index
        X = self.matrix if self._by_columns is None else self._by_columns[:, columns].tocsr()
        for start, stop in itertools.pairwise(_cuts(rows, GATHERED)):
            part = X[start:stop]
            yield slice(start, stop), part.toarray() if is_sparse(part) else part[:, columns]

    def sampled(self, numbers: np.ndarray) -> Iterator[Block]:
        """Yield the rows."""
        yield self.matrix[numbers]


class StoredReader(ABC):
    """Reader of a tile store, by bands; `is_incomplete` says whether values are missing."""

    matrix = None
    """X is not in memory."""

    def __init__(self, store: Store, shape: Shape, *, is_incomplete: bool) -> None:
        self.store = store
        self.shape = shape
        self._is_incomplete = is_incomplete

    @cached_property
    def _fill(self) -> np.ndarray | None:
        """Fill value of each column, shape (n_features,); None where NaN stays or no value is missing."""
        return self.store.open(layout.FILL)[0] if self._is_incomplete else None

    def _fill_missing(self, block: Any, columns: slice = slice(None)) -> Any:
        return block if self._fill is None else fill_missing(block, self._fill[columns])

    def unfilled(self) -> Self:
        """Return a reader of the same values, with NaN where they are missing."""
        reader = copy.copy(self)
        reader._fill = None
        return reader

    @abstractmethod
    def rows(self, rows: slice, chosen: np.ndarray | None = None) -> Block:
        """Return whole rows, shape (n_rows, n_features), dense in C order or CSR; in one band, the chosen ones."""

    @abstractmethod
    def columns(self, index: int, start: int, stop: int) -> np.ndarray | sp.csc_matrix:
        """Return columns ``start:stop`` of one band, dense or CSC."""

    @abstractmethod
    def gathered(self, columns: np.ndarray, rows: slice, index: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield row ranges that end at multiples of 4096, and some columns of these rows of one band, dense."""

    def pieces(self, rows: slice, height: int, chosen: np.ndarray | None) -> Iterator[tuple[int, Block]]:
        """Yield the end and the chosen rows of blocks that end with a band or at a multiple of `height`.

        `chosen` has shape (n_rows,), bool; None is all. A band is read once and not held beside the next one.
        """
        for _, inside in self.shape.bands(rows):
            of_band = None if chosen is None else chosen[inside.start - rows.start : inside.stop - rows.start]
            if of_band is not None and of_band.all():
                of_band = None
            block = self.rows(inside, of_band)
            cuts = _cuts(inside, height)
            places = np.array(cuts) - inside.start
            if of_band is not None:
                places = np.concatenate([[0], np.cumsum(of_band)])[places]
            for high, (first, last) in zip(cuts[1:], itertools.pairwise(places), strict=True):
                yield high, block[first:last]
            del block  # before the next one is read

    def sampled(self, numbers: np.ndarray) -> Iterator[Block]:
        """Yield rows of :func:`~daskfs.store.shape.sample_rows`, by ascending numbers, in a block for each band."""
        of_sample = sample_rows(self.shape)
        for index, band in self.shape.bands(slice(0, self.shape.n_samples)):
            rows, stored = rows_within(numbers, band), rows_within(of_sample, band)
            if rows.size:
                block = self._sampled_band(index)
                if rows.size < stored.size:
                    block = block[np.searchsorted(stored, rows)]
                yield block
                del block  # before the next one is read

    @abstractmethod
    def _sampled_band(self, index: int) -> Block:
        """Return the sampled rows of one band that has any."""


class DenseReader(StoredReader):
    """Reader of dense tiles: those of the store, or the Zarr array at `x_path`, used in place."""

    def __init__(self, store: Store, shape: Shape, x_path: str | None, *, is_incomplete: bool) -> None:
        super().__init__(store, shape, is_incomplete=is_incomplete)
        self.x_path = x_path

    @cached_property
    def array(self) -> StoredArray:
        """X as stored, shape (n_samples, n_features)."""
        if self.x_path is None:
            return self.store.open(layout.X)
        path = as_path(self.x_path)
        try:
            return ChunkedArray(path, open_array(path))
        except InputError as error:
            msg = f"no readable Zarr array at {path}: {str(error).removesuffix('.')}"
            raise StoreError(msg) from error

    def rows(self, rows: slice, chosen: np.ndarray | None = None) -> np.ndarray:
        """Return whole rows."""
        n_rows = rows.stop - rows.start if chosen is None else int(np.count_nonzero(chosen))
        block = np.empty((n_rows, self.shape.n_features), self.shape.dtype)
        # one tile at a time: Zarr would decode ten concurrently, and each needs memory
        for columns in row_blocks(self.shape.n_features, self.shape.tile_columns):
            tile = self._tile(rows, columns)
            block[:, columns] = tile if chosen is None else tile[chosen]
            del tile
        return block

    def columns(self, index: int, start: int, stop: int) -> np.ndarray:
        """Return columns of one band."""
        return self._tile(self.shape.band(index), slice(start, stop))

    def gathered(self, columns: np.ndarray, rows: slice, index: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield row ranges and some columns; one tile at a time is read."""
        del index
        block = np.empty((rows.stop - rows.start, columns.size), self.shape.dtype)
        for tile in row_blocks(self.shape.n_features, self.shape.tile_columns):
            places = np.flatnonzero((columns >= tile.start) & (columns < tile.stop))
            if places.size:
                block[:, places] = self._tile(rows, tile)[:, columns[places] - tile.start]
        for start, stop in itertools.pairwise(_cuts(rows, GATHERED)):
            yield slice(start, stop), block[start - rows.start : stop - rows.start]

    def _tile(self, rows: slice, columns: slice) -> np.ndarray:
        return self._fill_missing(self.array[rows, columns], columns)

    def _sampled_band(self, index: int) -> np.ndarray:
        return self._fill_missing(self.store.open(layout.SAMPLE.format(index, "values"))[...])


class SparseReader(StoredReader):
    """Reader of sparse bands, each CSC."""

    def rows(self, rows: slice, chosen: np.ndarray | None = None) -> sp.csr_matrix:
        """Return whole rows."""
        block = stack_blocks([*self._rows_by_band(rows)])
        return block if chosen is None else block[chosen]

    def _rows_by_band(self, rows: slice) -> Iterator[sp.csr_matrix]:
        for index in range(rows.start // self.shape.tile_rows, -(-rows.stop // self.shape.tile_rows)):
            first = self.shape.band(index).start
            matrix = self.columns(index, 0, self.shape.n_features).tocsr()
            yield matrix[max(rows.start - first, 0) : rows.stop - first]

    def columns(self, index: int, start: int, stop: int) -> sp.csc_matrix:
        """Return columns of one band."""
        band = self.shape.band(index)
        indptr = self.store.open(layout.SPARSE_INDPTR.format(index))[start : stop + 1]
        entries = slice(int(indptr[0]), int(indptr[-1]))
        shape = band.stop - band.start, stop - start
        if entries.start == entries.stop:
            return sp.csc_matrix(shape, dtype=self.shape.dtype)
        data = self.store.open(layout.SPARSE_DATA.format(index))[entries]
        rows = self.store.open(layout.SPARSE_INDICES.format(index))[entries]
        return self._fill_missing(sp.csc_matrix((data, rows, indptr - indptr[0]), shape=shape), slice(start, stop))

    def gathered(self, columns: np.ndarray, rows: slice, index: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield row ranges and some columns; the band is read whole."""
        first = self.shape.band(index).start
        X = self.columns(index, 0, self.shape.n_features)[:, columns].tocsr()
        for start, stop in itertools.pairwise(_cuts(rows, GATHERED)):
            yield slice(start, stop), X[start - first : stop - first].toarray()

    def _sampled_band(self, index: int) -> sp.csr_matrix:
        data, indices, indptr = (
            self.store.open(layout.SAMPLE.format(index, part))[...] for part in ("data", "indices", "indptr")
        )
        return self._fill_missing(
            sp.csr_matrix((data, indices, indptr), shape=(indptr.size - 1, self.shape.n_features))
        )


Reader = MemoryReader | StoredReader
"""Reader of X, with its dtype; missing values are their fill values, or NaN once `unfilled`."""


def _cuts(rows: slice, height: int) -> list[int]:
    """Return the start and stop of rows, and the multiples of `height` in between, ascending."""
    return [rows.start, *range((rows.start // height + 1) * height, rows.stop, height), rows.stop]
