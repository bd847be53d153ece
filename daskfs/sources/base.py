"""What a source is: anything whose rows can be read in ranges, any number of times, from any process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from daskfs.kernels.blocks import Block

BESIDE = ("weights", "groups", "times", "batch")
"""Columns beside X, by their keys in the data block."""


@dataclass(frozen=True)
class SourceSpec:
    """How the user named the data. JSON-able, so that a worker can open the same source again.

    Parameters
    ----------
    source
        ``"sklearn:digits"``, ``"synthetic:mixture?n_samples=1000"``, a path, or a URL (``s3://``, ``gs://``,
        ``az://``). Other fields that take a path take a URL as well.
    array
        Member of an ``.npz`` or HDF5 file or of a Zarr group that holds X; ``None`` picks ``X``, or what else can be
        meant.
    labels
        A column of a table or of AnnData's ``obs``, a member of an ``.npz`` or HDF5 file or of a Zarr group, or a path
        (``.npy``, ``.npz``, ``.csv``, ``.txt``; ``"file.npz:member"`` names a member). ``None`` for no labels, except
        that ``sklearn:`` and ``synthetic:`` sources bring theirs along under the name ``"target"``, which is what
        ``None`` means there.
    feature_names
        A path to a text file with one name a line, or a member of an ``.npz`` or Zarr group. Where tabs separate
        columns, names are in the first one, or in that of a number (``"names.tsv:2"``); in 10x's ``features.tsv`` in
        the second. ``None``: what the source says.
    exclude
        Table columns that are no features and that nothing else here names.
    weights
        How many rows each row counts for: named like `labels`. ``None``: every row counts for one.
    groups
        Rows of one group are never on both sides of a split into training and test rows: named like `labels`. ``None``:
        rows are independent.
    times
        Numbers or dates: models are trained on earlier rows than they are tested on. Named like `labels`. ``None``:
        the order in time does not matter.
    dims
        Of an array whose dimensions have names (xarray, NetCDF), the name of the one along the rows of X, and of that
        along its columns. ``None``: in the order of the array.
    transpose
        Of a Matrix Market file, take its columns for the rows of X.
    batch
        Rows of one batch were measured together, and features are scored within each: named like `labels`. ``None``:
        all rows are of one.
    row_names
        What the rows are called: a column of a table or of AnnData's ``obs``, a member of an ``.npz`` or HDF5 file or
        of a Zarr group, or a path: a text file with one name a line (of columns between tabs the first, or that of a
        number, ``"names.tsv:2"``), ``.csv``, ``.npy`` or ``.npz`` (``"file.csv:column"``). ``None``: what the source
        says, if anything.
    only_batch
        Of a tile store with batches, the one whose rows are meant. ``None``: all rows.
    missing
        What becomes of NaN among the values of X: "refuse", "mean" or "pairwise". Sources hand it on as it is.
    unlabeled
        The label that means an unlabeled row, as :func:`daskfs.sources.labels.encode_labels` takes it.
    columns
        Of a tile store, the columns that are features here, as :mod:`daskfs.store.subset` writes them; no user does.
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


@dataclass(frozen=True)
class SourceInfo:
    """What is known of a source without reading its values.

    `dtype` is that of the blocks: float32, float64, or an integer type of at most 16 bits (wider integers are read as
    float64, booleans as uint8, float16 as float32). `identity` changes when the data change (path, size and
    modification time for files, and the tag of objects; parameters for generated data). `nnz` is the number of values
    that a sparse source stores, or an estimate of it. `row_multiple` is the number of rows that the source reads most
    cheaply in one go. `beside` says which of :data:`BESIDE` there are, `has_row_names` whether the rows have names.
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
    beside: tuple[str, ...] = ()
    has_row_names: bool = False


class Source(Protocol):
    """One reader per format behind this protocol."""

    info: SourceInfo

    def read_rows(self, start: int, stop: int) -> Block:
        """Return rows ``start:stop`` as a C-ordered (stop - start, n_features) array or CSR matrix of ``info.dtype``.

        Values are handed on unchecked (NaN stays NaN). Only the rows asked for, and at most one unit of the format
        around them (a row group, a chunk), may be held in memory.
        """
        ...

    def read_labels(self) -> np.ndarray | None:
        """Return the labels as the source holds them, shape (n_samples,), or None when there are none."""
        ...

    def read_beside(self, name: str) -> np.ndarray | None:
        """Return one of :data:`BESIDE`, checked, shape (n_samples,), or None when the spec names none."""
        ...

    def read_row_names(self) -> Iterator[np.ndarray] | None:
        """Return what the rows are called, as :meth:`daskfs.sources.row_names.RowNames.read` does; None for nothing."""
        ...
