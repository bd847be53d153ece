"""The user's description of data, and the facts about a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pydantic import Field

from daskfs.data_block import SourceKeys

SAMPLE_COLUMNS = ("weights", "groups", "times", "batch")
"""Keys of the per-sample columns in the data block."""


class SourceSpec(SourceKeys):
    """The user's description of the data, JSON-able, so that a worker can open the same source."""

    unlabeled: str = "auto"
    columns: str | None = Field(
        None, description="Of a tile store: the columns that are features, written by :mod:`daskfs.store.subset` alone."
    )

    @property
    def is_part(self) -> bool:
        """Whether the source is a part of a tile store, whose address is `source`."""
        return self.columns is not None or self.only_batch is not None

    def with_keys(self, **keys: Any) -> Self:
        """Return the spec with other values of some keys."""
        return self.model_copy(update=keys)


@dataclass(frozen=True)
class SourceInfo:
    """Facts about a source that are known without reading its values.

    Attributes
    ----------
    dtype
        Dtype of the blocks: float32, float64, or an integer type of at most 16 bits (wider integers are read as
        float64, booleans as uint8, float16 as float32).
    identity
        Changes when the data change: path, size and modification time of files, tags of objects, or parameters of
        generated data.
    nnz
        Number of values that a sparse source stores, or an estimate.
    row_multiple
        Cheapest number of rows per read.
    sample_columns
        The keys of :data:`SAMPLE_COLUMNS` that the source has.
    """

    n_samples: int
    n_features: int
    dtype: np.dtype[Any]
    is_sparse: bool
    feature_names: tuple[str, ...] | None
    identity: Mapping[str, Any]
    nnz: int | None = None
    row_multiple: int = 1
    has_labels: bool = False
    sample_columns: tuple[str, ...] = ()
    has_row_names: bool = False
