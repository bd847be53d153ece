"""Stages "labels", "ingest" and "columns": tiles from a source, one unit per band of rows, then one that merges.

The pass over the rows checks every value, computes moments and hashes of columns and norms and sums of rows, and
writes the tiles unless the source is used in place.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.labels import Task
from daskfs.kernels.missing import observe
from daskfs.kernels.scaling import median_sum, row_norms, row_sums
from daskfs.kernels.statistics.column_hash import N_HASHES, column_hashes, first_equal
from daskfs.kernels.statistics.moments import Moments, common_count, merge_tree, row_blocks, tree_moments
from daskfs.kernels.statistics.streaming_median import DIGIT_BITS, HELD_VALUES
from daskfs.sources import Source, SourceSpec
from daskfs.sources.base import SAMPLE_COLUMNS
from daskfs.sources.checks import COLLECTION
from daskfs.sources.columns import ROWS_AT_ONCE
from daskfs.sources.labels import LabelEncoding
from daskfs.sources.multifile import PartSizes
from daskfs.sources.sample_columns import MOST_GROUPS
from daskfs.sources.state import SourceState, as_planned
from daskfs.stages.cost import PROCESS, Array, Cost, Fixed, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.completeness import finished_record
from daskfs.store.context import Context, put_label_counts, put_label_parts, put_labels, put_sample_column
from daskfs.store.row_names import STRETCH_BYTES, put_row_names
from daskfs.store.shape import Shape, sparse_chunk
from daskfs.store.store import Store
from daskfs.store.subset import open_part_or_source
from daskfs.store.tiles import TileInfo, Tiles, write_sample
from daskfs.store.value_checks import COLUMNS_LISTED, check_finite, check_spread
from daskfs.tiles.shapes import REORDERED_COPIES, band_cost, moments_cost, tile_cost

SUMS_AT_ONCE = 2**20
"""Row sums in one block of a pass."""
VALUES = "values"
"""Fact of an "ingest" unit: a hash of the values of its band, as the source had them."""
HASH_DIGITS = 16
REMEDY = ", or set data.missing to mean or pairwise where they are missing (rank: --missing mean)"
NAME_BYTES = 400
"""Bytes of a feature name as read from a source, as text, and as JSON."""
LABEL_BYTES = 60
"""Bytes of a label as read from a source, encoded, and stored."""
GROUP_NAME_BYTES = 260
"""Bytes of the name of a group, its number, and the number of its rows."""
SAMPLE_COLUMN_BYTES = {"weights": 60, "groups": 220, "times": 300, "batch": 260}
"""Bytes per row while a per-sample column is read: groups as text shared by a few rows, times as distinct text."""
ROW_NAMES_HELD = Fixed("names of a stretch of rows, as long as they can be", STRETCH_BYTES)


class SourceParameters(StageParameters, kw_only=True):
    """Parameters of stages that read a source.

    Attributes
    ----------
    source, state
        The source, and its state when it was planned.
    fingerprint
        Digest of what decides the rows that are read.
    part_sizes
        Sizes of the files of a table in parts, None for other sources.
    """

    source: SourceSpec
    state: SourceState
    fingerprint: str
    part_sizes: PartSizes | None = None

    @property
    def is_collection(self) -> bool:
        """Whether the source is a dask collection, of which a unit has some blocks only."""
        return self.source.source.startswith(COLLECTION)

    @property
    def origin(self) -> str:
        """Name of the source in messages."""
        return "X" if self.is_collection else self.source.source


@dataclass(frozen=True)
class KeptBands:
    """Bands before appended rows: their number, and the fingerprints of the stages that may have ingested them."""

    n_bands: int
    fingerprints: tuple[str, ...]


class TileParameters(SourceParameters, kw_only=True):
    """Parameters of the stages that fill a tile store.

    Attributes
    ----------
    task
        Task of the labels; "auto" if they decide.
    write_x, x_path
        Whether X is written, and the array that is used in place if not.
    named, row_names
        Whether the source names features, and rows.
    kept
        Bands of earlier tiles that are kept.
    """

    shape: Shape
    task: Task | Literal["auto"]
    write_x: bool
    x_path: str | None
    named: bool
    row_names: bool
    kept: KeptBands | None = None

    @property
    def may_miss(self) -> bool:
        """Whether values of X may be missing."""
        return self.source.missing != "refuse"

    @property
    def sample_columns(self) -> list[str]:
        """Per-sample columns of the source."""
        return [name for name in SAMPLE_COLUMNS if getattr(self.source, name) is not None]


@contextmanager
def planned_source(context: Context, parameters: SourceParameters, rows: slice | None = None) -> Iterator[Source]:
    """Open the source of a stage, cached per run, to read some rows; None for all.

    :class:`InputError` if its state is not the planned one, or changes before the end of the block.
    """
    cached = dict[str, Source]() if parameters.is_collection else context.sources
    if (source := cached.get(parameters.fingerprint)) is None:
        source = open_part_or_source(parameters.source, parameters.part_sizes, context.store.url)
    with as_planned(parameters.source, source, parameters.state, rows):
        yield cached.setdefault(parameters.fingerprint, source)


def create_tile_arrays(context: Context, parameters: TileParameters) -> None:
    """Create the arrays that all bands write to; `parameters` are those of the stages that fill them."""
    store, shape = context.store, parameters.shape
    if parameters.write_x and not shape.is_sparse:
        tile = (shape.tile_rows, shape.tile_columns)
        store.create(layout.X, (shape.n_samples, shape.n_features), shape.dtype, tile)
    tables = [(layout.PARTIALS, len(layout.PARTIAL_ROWS), "f8"), (layout.HASHES, N_HASHES, "u8")]
    if parameters.may_miss:
        tables.append((layout.OBSERVED, len(layout.OBSERVED_ROWS), "f8"))
    for name, height, dtype in tables:
        store.create(name, (shape.n_bands, height, shape.n_features), dtype, (1, height, shape.n_features))
    for name in (layout.ROW_NORMS, layout.ROW_SUMS):
        store.create(name, (shape.n_samples,), np.float64, (shape.tile_rows,))


def ingest_band(context: Context, parameters: TileParameters, unit: int) -> dict[str, Any]:
    """Check one band, write its tiles and sample, and compute moments, hashes, norms and sums.

    If values may be missing, compute only the statistics for the column means.
    """
    shape = parameters.shape
    if (facts := _kept(context, parameters, unit)) is not None:
        return facts
    band = shape.band(unit)
    with planned_source(context, parameters, band) as source:
        block = source.read_rows(band.start, band.stop)
    names, may_miss = source.info.feature_names, parameters.may_miss
    check_finite(block, band.start, names, parameters.origin, may_miss=may_miss, remedy=REMEDY)
    if parameters.write_x:
        _write_band(context.store, shape, unit, block)
    write_sample(context.store, shape, unit, block)
    hashes = column_hashes(block, band.start)
    if may_miss:
        observed = observe(block)
        table = np.stack([getattr(observed, name) for name in layout.OBSERVED_ROWS])
        context.store.open(layout.OBSERVED)[unit : unit + 1] = table[None]
    else:
        take_facts(context.store, shape, unit, block, hashes)
    size = block.data.nbytes + block.indices.nbytes if is_sparse(block) else block.nbytes
    return {"source_bytes": int(size), VALUES: _digest(hashes)}


def _kept(context: Context, parameters: TileParameters, unit: int) -> dict[str, Any] | None:
    """Keep the outputs of a band that was ingested before rows were appended, and return its facts.

    Only the sample is drawn again, since it depends on the number of rows. None if the band is to be ingested: its
    outputs are lost, or X is used in place and has other values than it had.
    """
    kept_bands, store, shape = parameters.kept, context.store, parameters.shape
    if kept_bands is None or unit >= kept_bands.n_bands:
        return None
    record = finished_record(store, INGEST_STAGE.name, unit, kept_bands.fingerprints)
    if record is None:
        return None
    band = shape.band(unit)
    if parameters.write_x:
        info = TileInfo(shape, parameters.fingerprint, parameters.source.source)
        block = Tiles(store, info).read_rows(band)
    else:
        with planned_source(context, parameters, band) as source:
            block = source.read_rows(band.start, band.stop)
        if record["facts"].get(VALUES) != _digest(column_hashes(block, band.start)):
            return None
    store.outputs.add_earlier(record, but=layout.SAMPLE.partition("/")[0])
    write_sample(store, shape, unit, block)
    return dict(record["facts"])


def is_unchanged(context: Context, parameters: TileParameters, unit: int) -> bool:
    """Return whether the source still has the values of a band that was ingested."""
    record, band = context.store.records.get(INGEST_STAGE.name, unit), parameters.shape.band(unit)
    with planned_source(context, parameters, band) as source:
        block = source.read_rows(band.start, band.stop)
    return record is None or record["facts"].get(VALUES) == _digest(column_hashes(block, band.start))


def _digest(hashes: np.ndarray) -> str:
    """Return a digest of the hashes of the columns of a band, for which NaN are equal, and zeros of either sign."""
    return hashlib.sha256(hashes.tobytes()).hexdigest()[:HASH_DIGITS]


def take_facts(store: Store, shape: Shape, index: int, block: Block, hashes: np.ndarray) -> None:
    """Store moments and `hashes` of the columns of band `index`, and norms and sums of its rows.

    `block` holds the rows of the band, shape (n_rows, n_features), dense or CSR.
    """
    band = shape.band(index)
    moments = tree_moments(block)
    nonzero = np.asarray(block.getnnz(axis=0) if is_sparse(block) else np.count_nonzero(block, axis=0))
    columns = moments.count, moments.mean, moments.m2, moments.minimum, moments.maximum, nonzero, moments.rest
    store.open(layout.PARTIALS)[index : index + 1] = np.stack(np.broadcast_arrays(*columns))[None]
    store.open(layout.HASHES)[index : index + 1] = hashes[None]
    store.open(layout.ROW_NORMS)[band] = row_norms(block)
    store.open(layout.ROW_SUMS)[band] = row_sums(block)


def _write_band(store: Store, shape: Shape, index: int, block: Block) -> None:
    if not is_sparse(block):
        X = store.open(layout.X)
        for tile in row_blocks(shape.n_features, shape.tile_columns):
            X[shape.band(index), tile] = block[:, tile]
        return
    columns = block.tocsc()
    columns.sort_indices()
    per_chunk = sparse_chunk(columns.nnz, shape.n_features)
    store.put_array(layout.SPARSE_DATA.format(index), columns.data.astype(shape.dtype), (per_chunk,))
    store.put_array(layout.SPARSE_INDICES.format(index), columns.indices.astype(np.int32), (per_chunk,))
    store.put_array(layout.SPARSE_INDPTR.format(index), columns.indptr.astype(np.int64))


def store_labels(context: Context, parameters: TileParameters, unit: int) -> dict[str, Any]:
    """Read, check and store labels, per-sample columns, feature and row names."""
    del unit
    store, shape = context.store, parameters.shape
    with planned_source(context, parameters) as source:
        store.write_json(layout.SOURCE_WARNINGS, [warning.to_json() for warning in source.verify()])
        if source.info.feature_names is not None:
            _check_names(source.info.feature_names)
            store.write_json(layout.FEATURE_NAMES, list(source.info.feature_names))
        labels = source.labels_column()
        if labels is None:
            put_labels(store, None)
        else:
            encoding = LabelEncoding(labels.parts, parameters.task, parameters.source.unlabeled)
            put_label_parts(store, encoding.task, encoding.classes, encoding.parts(), shape.n_samples)
        for name in SAMPLE_COLUMNS:
            put_sample_column(store, source.sample_column(name))
        put_label_counts(store, shape.n_samples)
        if source.info.has_row_names:
            put_row_names(store, source, shape.n_samples)
    return {}


def _check_names(names: tuple[str, ...]) -> None:
    for column, name in enumerate(names):
        try:
            name.encode()
        except UnicodeEncodeError as error:
            msg = f"the name of column {column}, {name!r}, is not valid Unicode: {error.reason}."
            raise InputError(msg) from error


def close_tiles(context: Context, parameters: TileParameters, unit: int) -> dict[str, Any]:
    """Merge the bands' moments in order, and write ``tiles.json`` last."""
    del unit
    store, shape = context.store, parameters.shape
    labels = store.need_json(layout.LABELS_JSON)
    moments, nonzero = _merge_moments(store, shape)
    check_spread(*moments.extremes, parameters.origin, store.read_json(layout.FEATURE_NAMES, list))
    table = np.stack([moments.mean, moments.variance, *moments.extremes, nonzero, moments.rest])
    store.put_array(layout.COLUMNS, table)
    first = _first_equal(store, shape, moments.is_constant)
    store.put_array(layout.FIRST_EQUAL, first)
    info = TileInfo(
        shape=shape,
        fingerprint=parameters.fingerprint,
        source=parameters.origin,
        x_path=parameters.x_path,
        task=labels["task"],
        classes=tuple(labels["classes"]),
        facts={
            "n_constant": int(moments.is_constant.sum()),
            "n_duplicate": int(np.count_nonzero(first != np.arange(first.size))),
            "n_labeled": labels["n_labeled"],
            "unlabeled": parameters.source.unlabeled,
            "missing": _missing(store, parameters),
            "median_sum": median_sum(lambda: _row_sums(store, shape)),
            "named": parameters.named,
            "row_names": store.need_json(layout.ROW_NAMES_JSON) if parameters.row_names else None,
            **dict.fromkeys(SAMPLE_COLUMNS),
            **{name: store.need_json(layout.SAMPLE_COLUMN_JSON.format(name)) for name in parameters.sample_columns},
            "identity": parameters.state.source,
        },
    )
    store.write_json(layout.TILES_JSON, dataclasses.asdict(info))
    return {}


def _row_sums(store: Store, shape: Shape) -> Iterator[np.ndarray]:
    """Yield the sums of all rows, whole chunks at a time, shapes (n_rows,), float64."""
    sums = store.open(layout.ROW_SUMS)
    height = max(1, SUMS_AT_ONCE // shape.tile_rows) * shape.tile_rows
    return (sums[rows] for rows in row_blocks(shape.n_samples, height))


def _missing(store: Store, parameters: TileParameters) -> dict[str, Any] | None:
    """Return the summary of missing values; None if they are refused."""
    if not parameters.may_miss:
        return None
    names, counts = store.read_json(layout.FEATURE_NAMES, list), store.open(layout.FILL)[1]
    columns = np.flatnonzero(counts)
    return {
        "policy": parameters.source.missing,
        "total": int(counts.sum()),
        "n_columns": int(columns.size),
        "n_unobserved": int(np.count_nonzero(counts == parameters.shape.n_samples)),
        "columns": [[names[c] if names else f"x{c}", int(counts[c])] for c in columns[:COLUMNS_LISTED]],
    }


def _first_equal(store: Store, shape: Shape, is_constant: np.ndarray) -> np.ndarray:
    """Return for each feature the index of the first equal one, shape (n_features,), int64.

    Constant features, which are counted separately, get their own index.
    """
    hashes = store.open(layout.HASHES)
    total = np.zeros((N_HASHES, shape.n_features), dtype=np.uint64)
    for index in range(shape.n_bands):
        total += hashes[index]
    return np.where(is_constant, np.arange(shape.n_features), first_equal(total))


def _merge_moments(store: Store, shape: Shape) -> tuple[Moments, np.ndarray]:
    partials = store.open(layout.PARTIALS)
    nonzero = np.zeros(shape.n_features)

    def parts() -> Iterator[Moments]:
        for index in range(shape.n_bands):
            count, mean, m2, minimum, maximum, band_nonzero, rest = partials[index]
            np.add(nonzero, band_nonzero, out=nonzero)
            yield Moments(common_count(count), mean, m2, minimum, maximum, rest)

    return merge_tree(parts()), nonzero


def labels_cost(shape: Shape, sample_columns: Iterable[str], *, row_names: bool) -> Cost:
    """Return the memory cost of the "labels" unit; `sample_columns` names the per-sample columns that exist."""
    names, n_rows = tuple(sample_columns), min(ROWS_AT_ONCE, shape.n_samples)
    n_groups = min(MOST_GROUPS, shape.n_samples) if "groups" in names else 0
    return (
        PROCESS,
        Objects("names of features", shape.n_features, NAME_BYTES),
        Objects("labels of some rows", n_rows, LABEL_BYTES),
        *(Objects(f"{name} of some rows", n_rows, SAMPLE_COLUMN_BYTES[name]) for name in names),
        *((Objects("names of groups, with their numbers and sizes", n_groups, GROUP_NAME_BYTES),) if n_groups else ()),
        *((ROW_NAMES_HELD,) if row_names else ()),
    )


def ingest_cost(shape: Shape, source_rows: int, reading_bytes: int, *, write_x: bool) -> Cost:
    """Return the memory cost of an "ingest" unit: its band, the source's buffers, and copies for writing."""
    read: Cost = (Array("rows that the source reads in one go", (2, source_rows, shape.n_features), shape.dtype),)
    written = tile_cost(shape, 4) if write_x else ()
    if shape.is_sparse:
        entries = 2, source_rows * (shape.nnz or 0) // shape.n_samples
        values = Array("values of rows that the source reads in one go", entries, shape.dtype)
        read = values, Array("columns of these", entries, "int32")
        written = band_cost(shape, REORDERED_COPIES)
    return (
        PROCESS,
        *band_cost(shape, 2),
        *read,
        Fixed("what the source takes for reading", reading_bytes),
        *written,
        *moments_cost(shape, shape.tile_rows),
    )


def columns_cost(shape: Shape) -> Cost:
    """Return the memory cost of the "columns" unit: moments, hashes, and some row sums."""
    n_features, block = shape.n_features, min(max(SUMS_AT_ONCE, shape.tile_rows), shape.n_samples)
    tables = 8, len(layout.PARTIAL_ROWS), n_features
    return (
        PROCESS,
        Array("moments of bands, and of subtrees that wait for their neighbors", tables),
        Array("moments of all rows", (len(layout.COLUMN_ROWS), n_features)),
        Array("hashes of columns, as they add up and in order", (4, N_HASHES, n_features), "uint64"),
        Array("the first equal columns", (n_features,), "int64"),
        Array("marks of columns", (4, n_features), "bool"),
        Array("sums of some rows, as they are read, positive, and their digits", (8, block)),
        Array("counts of digits, of all blocks and of one, and their sums", (3, 2**DIGIT_BITS), "int64"),
        Array("sums around the median, apart, as one and in order", (3, min(HELD_VALUES + block, shape.n_samples))),
    )


def smaller_blocks(parameters: TileParameters) -> str:
    """Return advice on smaller blocks of a dask collection, as a sentence to add; empty for other sources."""
    if not parameters.is_collection:
        return ""
    rows = parameters.shape.tile_rows
    return f" Or pass X in smaller blocks: X.rechunk({{0: {rows}, 1: -1}}), of a DataFrame X.repartition(...)."


LABELS_STAGE = StageKind("labels", __name__, store_labels, labels_cost)
INGEST_STAGE = StageKind("ingest", __name__, ingest_band, ingest_cost, arrays=create_tile_arrays, advice=smaller_blocks)
COLUMNS_STAGE = StageKind("columns", __name__, close_tiles, columns_cost)
