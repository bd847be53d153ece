"""The reduced data set: all rows, selected columns, in blocks of whole bands, and what lies beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.execution.progress import Progress
from daskfs.execution.signals import check_stopped
from daskfs.export.collect import Contents
from daskfs.kernels.labels import Labels
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.sources import SourceInfo, SourceSpec
from daskfs.sources.base import BESIDE
from daskfs.sources.row_names import ROWS_AT_ONCE
from daskfs.stages.stage import Stage
from daskfs.store.row_names import decode_names, row_names_of, stretches_of
from daskfs.store.subset import TilePart, columns_to_text, part_spec

BLOCK_BYTES = 2**26
"""What a block holds at most, where a band of the reduced data is not larger."""
STAGE = "export"


@dataclass(frozen=True)
class Reduced:
    """The data of a run with some of its columns, to be read block after block.

    Parameters
    ----------
    contents
        The run.
    features
        Numbers of the columns, ascending.
    progress
        Told of every block.
    """

    contents: Contents
    features: np.ndarray
    progress: Progress

    @property
    def spec(self) -> SourceSpec:
        """As a source."""
        tiles, url = self.contents.tiles, self.contents.tiles_url
        return part_spec(tiles, url, columns=columns_to_text(self.features, tiles.shape.n_features))

    @property
    def info(self) -> SourceInfo:
        """Shape and type."""
        return self._part.info

    @cached_property
    def _part(self) -> TilePart:
        return TilePart(self.spec)

    @property
    def block_rows(self) -> int:
        """Rows of a block: a multiple of those of a band, each of which is read once."""
        shape = self.contents.tiles.shape
        n_values = self.features.size
        if shape.is_sparse:
            n_values = max(1, 2 * (self.info.nnz or 0) // max(shape.n_samples, 1))
        return shape.tile_rows * max(1, BLOCK_BYTES // (shape.tile_rows * n_values * shape.itemsize))

    def blocks(self, block_rows: int | None = None) -> Iterator[np.ndarray | sp.csr_matrix]:
        """Yield the rows in order, dense or CSR, as stored."""
        part = self._part
        ranges = list(row_blocks(part.info.n_samples, block_rows or self.block_rows))
        stage = Stage(STAGE, STAGE, len(ranges), {}, 0)
        self.progress.start_stage(stage, stage.n_units)
        for number, rows in enumerate(ranges):
            block = part.read_rows(rows.start, rows.stop)
            yield block
            size = block.data.nbytes
            del block
            self.progress.unit_done(stage, number, {"bytes_read": int(size)})
            check_stopped()

    def labels(self) -> Labels | None:
        """Return the labels of all rows, None where there are none."""
        return self.contents.tiles.labels()

    def beside(self) -> dict[str, np.ndarray]:
        """Return weights, groups and times, those that there are, by their keys in the data block."""
        found = {name: self._part.read_beside(name) for name in BESIDE}
        return {name: values for name, values in found.items() if values is not None}

    @property
    def name_width(self) -> int:
        """Bytes of the longest name of a row; 0 where rows have no names."""
        described = self.contents.tiles.info.facts.get("row_names")
        return 0 if described is None else int(described["width"])

    def row_names(self) -> Iterator[np.ndarray]:
        """Yield what the rows are called, in order and some at a time, as text, objects; their numbers where they have
        no names.
        """
        if self.name_width:
            yield from map(decode_names, stretches_of(self.contents.tiles))
            return
        for rows in row_blocks(self.info.n_samples, ROWS_AT_ONCE):
            yield np.arange(rows.start, rows.stop).astype(str).astype(object)

    def names_of(self, rows: slice) -> np.ndarray:
        """Return what some rows that have names are called, text, objects."""
        return decode_names(row_names_of(self.contents.tiles, rows))

    def row_arrays(self) -> dict[str, np.ndarray]:
        """Return labels and columns beside X by their keys; classes by name, and an empty one of a row without."""
        found: dict[str, np.ndarray] = {}
        if (labels := self.labels()) is not None:
            found["labels"] = labels.values
            if labels.task == "classification":
                found["labels"] = np.array([*labels.classes, ""])[labels.values]
        return found | {name: as_numbers(values) for name, values in self.beside().items()}


def as_numbers(values: np.ndarray) -> np.ndarray:
    """Return a column that every format holds: dates as ISO text, all else as it is."""
    return np.datetime_as_string(values) if values.dtype.kind == "M" else values


def unused_name(name: str, taken: Any) -> str:
    """Return a name, with as many underscores as it takes for it to be none of others."""
    while name in taken:
        name += "_"
    return name
