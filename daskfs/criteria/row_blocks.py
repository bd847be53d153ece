"""Blocks of the rows of X that count, as passes over row partitions read them, and their memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from daskfs.criteria.centered import CENTERED_FIELDS
from daskfs.criteria.registry import Method
from daskfs.criteria.slab import slab_table
from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.scaling import Scaling, inverse_or_zero, without_zscore
from daskfs.stages.cost import HELD_SHARE, PROCESS_BYTES, WORD, Array, Cost, Objects, available_bytes, total
from daskfs.store.context import Context
from daskfs.store.shape import Shape
from daskfs.tiles.row_partitions import RowPartitions, block_rows, cut_parts

STRETCHES = 1024


@dataclass(frozen=True)
class RowBlock:
    """Rows of one stretch: values as stored or rescaled, class codes, and weights; None if each counts for one."""

    stretch: int
    values: Block
    codes: np.ndarray
    weights: np.ndarray | None

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        X = self.values
        parts = (X.data, X.indices, X.indptr) if is_sparse(X) else (X,)
        return sum(part.nbytes for part in parts) + 2 * WORD * self.codes.size  # codes, and weights if there are any

    def only(self, chosen: np.ndarray) -> RowBlock:
        """Return the rows of a mask, shape (n_rows,), bool."""
        if chosen.all():
            return self
        weights = None if self.weights is None else self.weights[chosen]
        return RowBlock(self.stretch, self.values[chosen], self.codes[chosen], weights)

    def counted(self, values: np.ndarray) -> np.ndarray:
        """Return values of the rows, shape (n_rows, n_columns), float64, times their weights."""
        return values if self.weights is None else values * self.weights[:, None]


def row_parts(shape: Shape) -> RowPartitions:
    """Return the partition of the rows into the units of a pass."""
    return cut_parts(shape, STRETCHES)


def read_blocks(
    context: Context,
    parts: RowPartitions,
    part: int,
    scaling: Scaling | None,
    which: Literal["all", "labeled", "unlabeled"] = "all",
    chosen: np.ndarray | None = None,
) -> Iterator[RowBlock]:
    """Yield the rows of one part that count, in blocks that end where stretches end; `which` selects by label.

    Values are as stored, or rescaled by :func:`without_zscore` of `scaling`. `chosen`, shape (n_rows of the part,),
    bool, selects rows.
    """
    rows = parts.rows(part)
    labels, weights = context.counted_rows(rows)
    counting = np.ones(rows.stop - rows.start, dtype=bool) if weights is None else weights > 0
    chosen = counting if chosen is None else counting & chosen
    if which != "all":
        chosen &= labels.is_labeled == (which == "labeled")
    blocks = context.tiles.aligned_rows(rows, block_rows(context.tiles.shape), without_zscore(scaling), chosen)
    for place, values in blocks:
        inside = slice(place.start - rows.start, place.stop - rows.start)
        is_counted = chosen[inside]
        counts = None if weights is None else weights[inside][is_counted]
        if values.shape[0]:
            yield RowBlock(place.start // parts.height, values, labels.values[inside][is_counted], counts)


def center_and_scale(context: Context, method: Method, scaling: Scaling | None) -> tuple[np.ndarray, np.ndarray]:
    """Return center and scale factor of each feature, shape (n_features,) each, float64, from the moments of the slabs.

    The factor is 0 for a constant feature.
    """
    table = context.store.open(slab_table(method))[...]
    score, mean = (table[CENTERED_FIELDS.index(name)] for name in ("score", "mean"))
    columns = None if scaling is None else context.tiles.scales.of_columns(scaling)
    scale = np.ones_like(mean) if columns is None else inverse_or_zero(columns.std)
    scale[np.isnan(score)] = 0.0
    return mean, scale


def labels_cost(n_samples: int) -> Cost:
    """List the labels that a unit holds, and the numbers of the rows it reads."""
    return (
        Array("labels, and those of the rows that count", (2, n_samples), "int64"),
        Array("places of the chosen rows", (n_samples,), "int64"),
    )


def blocks_cost(shape: Shape) -> Cost:
    """List all rows of X in blocks, as stored."""
    return (
        Objects("X", 1, shape.x_bytes),
        Array("codes of classes", (shape.n_samples,), "int64"),
        Array("weights of rows in blocks", (shape.n_samples,)),
        Array("where rows begin", (shape.n_samples,), "int32"),
    )


def room_between_rounds(n_samples: int, busy: int, permanent: int, memory_limit: int | None) -> int:
    """Return the bytes that a process may cache between rounds; 0 without a limit.

    `busy` is its peak memory in a round, `permanent` what it keeps anyway; row weights come on top.
    """
    available = available_bytes(memory_limit)
    if memory_limit is None or available is None:
        return 0
    free = PROCESS_BYTES + available - busy - total(weights_cost(n_samples))
    return max(0, min(free, int(HELD_SHARE * memory_limit) - permanent))


def weights_cost(n_samples: int) -> Cost:
    """List the weights of rows that a unit holds, if there are any."""
    return (
        Array("weights of rows", (n_samples,)),
        Array("weights of the rows that count", (n_samples,)),
        Array("which rows count, by number", (n_samples,), "int64"),
    )
