"""Passes over the rows of X in units of a stage: the rows of each unit.

Sums are taken over stretches of rows, whose height depends on the shape of X alone, and added in order, so their bits
do not depend on tiles or workers. A unit takes whole stretches; if both heights are powers of two, no band of tiles is
in two units.
"""

from __future__ import annotations

from dataclasses import dataclass

from daskfs.kernels.regression.centered import rows_per_block
from daskfs.stages.cost import Array, Cost, Objects
from daskfs.store.shape import Shape
from daskfs.tiles.shapes import band_bytes, tile_bytes

SMALLEST_STRETCH = 2**14


@dataclass(frozen=True)
class RowPartitions:
    """Partition of the rows into units of `per_part` stretches of `height` rows."""

    n_samples: int
    height: int
    per_part: int

    @property
    def n_stretches(self) -> int:
        """Number of stretches."""
        return -(-self.n_samples // self.height)

    @property
    def n_parts(self) -> int:
        """Number of units."""
        return -(-self.n_stretches // self.per_part)

    def stretches(self, part: int) -> range:
        """Return the stretches of one part."""
        return range(part * self.per_part, min((part + 1) * self.per_part, self.n_stretches))

    def rows(self, part: int) -> slice:
        """Return the rows of one part."""
        stretches = self.stretches(part)
        return slice(stretches.start * self.height, min(stretches.stop * self.height, self.n_samples))


def cut_parts(shape: Shape, n_stretches: int) -> RowPartitions:
    """Return the parts for at most `n_stretches` stretches of a power of two rows; a part reads whole bands."""
    height = max(SMALLEST_STRETCH, 1 << max(0, -(-shape.n_samples // n_stretches) - 1).bit_length())
    return RowPartitions(shape.n_samples, height, max(1, -(-shape.tile_rows // height)))


def block_rows(shape: Shape) -> int:
    """Return the number of rows that are multiplied together."""
    if not shape.is_sparse:
        return rows_per_block(shape.n_features)
    return rows_per_block(shape.n_features, -(-(shape.nnz or 0) // max(shape.n_samples, 1)))


def reading_cost(shape: Shape, part_rows: int, height: int | None = None) -> Cost:
    """List the rows that a pass holds while it reads units of `part_rows` rows.

    `height` is the number of rows that are multiplied together, by default :func:`block_rows`. CSR is planned with the
    mean number of values per row.
    """
    together, rows = min(part_rows, 2 * shape.tile_rows), height or block_rows(shape)
    if not shape.is_sparse:
        d = shape.n_features
        return (
            Array("rows of a part, or of two bands", (together, d), shape.dtype),
            Objects("a tile as stored, decoded, and its rows that count", 3, tile_bytes(shape)),
            Array("a block that lies in two bands, in parts and whole", (2, rows, d), shape.dtype),
            Array("a block scaled, and centered", (2, rows, d)),
        )
    per_row = -(-(shape.nnz or 0) // shape.n_samples)
    return (
        Objects("a band as stored and decoded", 2, band_bytes(shape)),
        Array("values of the rows of a part, or of two bands", (together, per_row), shape.dtype),
        Array("columns of these values", (together, per_row), "int32"),
        Array("values of a block that lies in two bands, scaled, and centered", (3, rows, per_row)),
        Array("columns of the values of these blocks", (3, rows, per_row), "int32"),
    )
