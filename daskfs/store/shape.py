"""Shape of X and of its tiles, and the samples of its rows that follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Shape:
    """Shape of X and of its tiles. For sparse X `tile_columns` is the width of a slab; its bands hold all columns."""

    n_samples: int
    n_features: int
    dtype: str
    is_sparse: bool
    nnz: int | None
    tile_rows: int
    tile_columns: int

    @property
    def itemsize(self) -> int:
        """Bytes of one value."""
        return int(np.dtype(self.dtype).itemsize)

    @property
    def n_bands(self) -> int:
        """Number of tile rows."""
        return -(-self.n_samples // self.tile_rows)

    @property
    def x_bytes(self) -> int:
        """Bytes of X as stored, before compression."""
        if self.is_sparse:
            return (self.nnz or 0) * (self.itemsize + 4) + self.n_bands * (self.n_features + 1) * 8
        return self.n_samples * self.n_features * self.itemsize

    def band(self, index: int) -> slice:
        """Return the rows of one band."""
        return slice(index * self.tile_rows, min((index + 1) * self.tile_rows, self.n_samples))

    def bands(self, rows: slice) -> Iterator[tuple[int, slice]]:
        """Yield the number of each band that holds some of the rows, and those rows."""
        for index in range(rows.start // self.tile_rows, -(-rows.stop // self.tile_rows)):
            band = self.band(index)
            part = slice(max(band.start, rows.start), min(band.stop, rows.stop))
            if part.start < part.stop:
                yield index, part


CHUNK_VALUES = (2**14, 2**20)
CHUNK_COLUMNS = 256


def sparse_chunk(nnz: int, n_features: int) -> int:
    """Return the number of values per chunk of a sparse band: those of about 256 columns."""
    return int(np.clip(nnz * CHUNK_COLUMNS // max(n_features, 1), *CHUNK_VALUES))


SAMPLE_ROWS = (2**14, 2**20)
SAMPLE_BYTES = 2**28
SAMPLE_SHARE = 8


def sample_rows(shape: Shape) -> np.ndarray:
    """Return the row sample for the partition of space into cells, shape (n_sampled,), ascending, int64.

    One row in eight, between 16,384 and 1,048,576 but within 256 MiB, one from each of as many stretches of equal
    length, so that sorted rows are represented evenly. Only the size of the data determines the sample.
    """
    x_bytes = (shape.nnz or 0) * (shape.itemsize + 4) if shape.is_sparse else shape.x_bytes
    row_bytes = max(1, x_bytes // max(shape.n_samples, 1))
    fitting = max(256, SAMPLE_BYTES // row_bytes)
    count = int(np.clip(shape.n_samples // SAMPLE_SHARE, *SAMPLE_ROWS))
    return spread_rows(shape.n_samples, min(count, fitting, shape.n_samples))


def spread_rows(n_rows: int, count: int) -> np.ndarray:
    """Return `count` rows, one from each of as many stretches of equal length, shape (count,), ascending, int64.

    Both numbers alone determine them.
    """
    number = np.arange(count + 1, dtype=np.int64)
    length, left = divmod(n_rows, max(count, 1))
    starts = number * length + number * left // max(count, 1)  # number * n_rows could exceed an int64
    generator = np.random.default_rng(n_rows)
    return starts[:-1] + np.floor(generator.random(count) * np.diff(starts)).astype(np.int64)


def rows_within(numbers: np.ndarray, rows: slice) -> np.ndarray:
    """Return those of ascending row numbers that lie in a range."""
    return numbers[slice(*np.searchsorted(numbers, [rows.start, rows.stop]))]
