"""The reduced data set: all rows of selected columns, in blocks of whole bands, and the per-sample columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from daskfs.execution.progress import Progress
from daskfs.execution.signals import check_stopped
from daskfs.export.collect import RunContents
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.sources import SourceInfo, SourceSpec
from daskfs.sources.base import SAMPLE_COLUMNS
from daskfs.sources.row_names import NAMES_AT_ONCE
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Stage
from daskfs.store.row_names import decode_names, stretches_of
from daskfs.store.subset import TilePart, columns_to_text, part_spec

EXPORT_BLOCK_BYTES = 2**26
"""Maximum size of a block, unless a band of the reduced data is larger."""


@dataclass(frozen=True)
class Reduced:
    """The data of a run with some of its columns, read block by block.

    `features` are the numbers of the columns, ascending, shape (n_selected,), int64.
    """

    contents: RunContents
    features: np.ndarray
    progress: Progress

    @property
    def spec(self) -> SourceSpec:
        """Specification of the reduced data as a source."""
        tiles = self.contents.tiles
        return part_spec(tiles, tiles.store.url, columns=columns_to_text(self.features, tiles.shape.n_features))

    @property
    def info(self) -> SourceInfo:
        """Shape and dtype of the reduced data."""
        return self._part.info

    @cached_property
    def _part(self) -> TilePart:
        return TilePart(self.spec, self.contents.tiles.store.url)

    def blocks(self) -> Iterator[Any]:
        """Yield the rows in order, shape (n_block_rows, n_selected), dense or CSR, in the stored dtype."""
        part, shape = self._part, self.contents.tiles.shape
        n_values = max(1, 2 * (part.info.nnz or 0) // shape.n_samples) if shape.is_sparse else self.features.size
        n_bands = max(1, EXPORT_BLOCK_BYTES // (shape.tile_rows * n_values * shape.itemsize))
        ranges = list(row_blocks(part.info.n_samples, shape.tile_rows * n_bands))  # each band is read once
        stage = Stage("export", "export", len(ranges), StageParameters(), 0)
        self.progress.start_stage(stage, stage.n_units)
        for number, rows in enumerate(ranges):
            block = part.read_rows(rows.start, rows.stop)
            yield block
            size = block.data.nbytes
            del block
            self.progress.unit_done(stage, number, {"bytes_read": int(size)})
            check_stopped()

    @property
    def name_width(self) -> int:
        """Bytes of the longest row name; 0 if rows have no names."""
        described = self.contents.tiles.info.facts.get("row_names")
        return 0 if described is None else int(described["width"])

    def row_names(self) -> Iterator[np.ndarray]:
        """Yield the row names in order, in parts, as object arrays of strings; row numbers if rows have no names."""
        if self.name_width:
            yield from map(decode_names, stretches_of(self.contents.tiles))
            return
        for rows in row_blocks(self.info.n_samples, NAMES_AT_ONCE):
            yield np.arange(rows.start, rows.stop).astype(str).astype(object)

    def row_arrays(self) -> dict[str, np.ndarray]:
        """Return labels and per-sample columns by their keys, each of shape (n_samples,).

        Classes are names, empty for an unlabeled row.
        """
        arrays: dict[str, np.ndarray] = {}
        if (labels := self.contents.tiles.labels()) is not None:
            arrays["labels"] = labels.values
            if labels.task == "classification":
                arrays["labels"] = np.array([*labels.classes, ""])[labels.values]
        for name in SAMPLE_COLUMNS:
            if (values := self._part.read_sample_column(name)) is not None:
                is_text = values.dtype.kind in "MO"
                arrays[name] = values.astype(str) if is_text else values
        return arrays


def unused_name(name: str, taken: Any) -> str:
    """Append underscores to a name until it is not in `taken`."""
    while name in taken:
        name += "_"
    return name
