"""The user's description of data, and the facts about a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

SAMPLE_COLUMNS = ("weights", "groups", "times", "batch")
"""Keys of the per-sample columns in the data block."""


@dataclass(frozen=True)
class SourceSpec:
    """The user's description of the data, JSON-able, so that a worker can open the same source.

    All fields but `columns` are keys of the block ``data`` of a job, described in
    :class:`daskfs.job.blocks.DataBlock`.

    Parameters
    ----------
    source
        ``"sklearn:digits"``, ``"synthetic:mixture?n_samples=1000"``, a path, or a URL (``s3://``, ``gs://``,
        ``az://``). Other fields that take a path also take a URL.
    labels, weights, groups, times, batch, row_names
        A column of a table or of AnnData's ``obs``, a member of an ``.npz`` or HDF5 file or of a Zarr group, or a path
        (``"file.npz:member"`` and ``"file.csv:column"`` name what is in it).
    missing
        Treatment of NaN in X: "refuse", "mean" or "pairwise". Sources do not apply it.
    columns
        For a tile store: the columns that are features, as written by :mod:`daskfs.store.subset`, never by users.
    """

    source: str
    array: str | None = None
    labels: str | None = None
    feature_names: str | None = None
    exclude: tuple[str, ...] = ()
    weights: str | None = None
    groups: str | None = None
    times: str | None = None
    batch: str | None = None
    row_names: str | None = None
    only_batch: str | None = None
    columns: str | None = None
    dims: tuple[str, str] | None = None
    transpose: bool = False
    missing: str = "refuse"
    unlabeled: str = "auto"
    delimiter: str | None = None
    decimal: str | None = None
    max_samples: int | None = None
    missing_values: tuple[str | float, ...] = ()

    @property
    def is_part(self) -> bool:
        """Whether the source is a part of a tile store, whose address is `source`."""
        return self.columns is not None or self.only_batch is not None

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON."""
        return asdict(self)


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
    has_labels: bool = field(default=False)
    sample_columns: tuple[str, ...] = ()
    has_row_names: bool = False
