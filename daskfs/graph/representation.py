"""Stage "representation": copy another representation of the rows into the run store, for a search among them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.graph.rows import create_own_rows, put_own_rows, searched_shape
from daskfs.graph.spec import GraphSpec
from daskfs.kernels.blocks import is_sparse
from daskfs.sources import Source, SourceSpec
from daskfs.sources.state import source_state
from daskfs.stages.cost import PROCESS, WORD, Array, Cost, MiB, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.stage import Stage, digest
from daskfs.store.context import Context
from daskfs.store.row_names import has_row_names, row_names_of
from daskfs.store.shape import Shape, sample_rows
from daskfs.store.store import Store
from daskfs.store.subset import open_part_or_source
from daskfs.store.tiles import Tiles
from daskfs.store.value_checks import check_finite
from daskfs.tiles.ingest import ROW_NAMES_HELD, SourceParameters, planned_source

UNIT_BYTES = 64 * MiB
"""Bytes of the rows that one unit reads at once."""


class RepresentationParameters(SourceParameters, kw_only=True):
    """Parameters of "representation": the source, its name in messages, and the lists that compare its rows."""

    where: str
    graph: GraphSpec


@dataclass(frozen=True)
class Representation:
    """Other columns of the same rows, in which rows are compared.

    Attributes
    ----------
    n_samples, n_columns, dtype
        Size and type of the rows; a floating type.
    where
        Name in messages.
    planned
        The source, its state, and the digest of both; None for rows in memory.
    source_rows, reading_bytes
        What a read of the source holds in addition: rows around those it returns, and bytes.
    has_names
        Whether the source names its rows.
    """

    n_samples: int
    n_columns: int
    dtype: str
    where: str
    planned: SourceParameters | None = None
    source_rows: int = 0
    reading_bytes: int = 0
    has_names: bool = False

    @property
    def identity(self) -> Mapping[str, Any]:
        """State of the source, which decides the results."""
        assert self.planned is not None
        return self.planned.state.contents()

    def completed(self, spec: GraphSpec) -> GraphSpec:
        """Return the spec of neighbor lists that compares these rows."""
        return dataclasses.replace(spec, rep_columns=self.n_columns, rep_dtype=self.dtype)

    def shape(self, shape: Shape) -> Shape:
        """Return the shape of the rows as stored, for X of the given shape."""
        return searched_shape(shape, self.completed(GraphSpec()))


def representation_of(values: np.ndarray, where: str) -> Representation:
    """Return the description of rows in memory, shape (n_samples, n_columns)."""
    n_samples, n_columns = values.shape
    return Representation(n_samples, n_columns, np.result_type(values.dtype, np.float32).name, where)


def open_representation(spec: SourceSpec, where: str) -> Representation:
    """Describe the representation that a source holds; :class:`InputError` for sparse rows."""
    source = open_part_or_source(spec)
    info = source.info
    if info.is_sparse:
        msg = f"{where} is sparse, and rows are compared in a few dense columns: give it principal components."
        raise InputError(msg)
    state = source_state(spec, source)
    fingerprint = digest(state.contents(), spec.model_dump())
    return Representation(
        info.n_samples,
        info.n_features,
        np.result_type(info.dtype, np.float32).name,
        where,
        SourceParameters(source=spec, state=state, fingerprint=fingerprint),
        min(info.row_multiple, info.n_samples),
        getattr(source, "reading_bytes", 0),
        info.has_row_names,
    )


def put_representation(store: Store, shape: Shape, values: np.ndarray) -> None:
    """Store rows in memory, shape (n_samples, n_columns), for a search over X of the given shape."""
    spec = representation_of(values, "use_rep").completed(GraphSpec())
    name, own_shape = str(spec.own_rows), searched_shape(shape, spec)
    create_own_rows(store, name, own_shape)
    put_own_rows(store, name, own_shape, 0, values)


# ------------------------------------------------------------------------------- stage
def create_rows(context: Context, parameters: RepresentationParameters) -> None:
    """Create the array of the rows."""
    spec = parameters.graph
    create_own_rows(context.store, str(spec.own_rows), searched_shape(context.tiles.shape, spec))


def copy_rows(context: Context, parameters: RepresentationParameters, unit: int) -> None:
    """Check and store the rows of one unit; the first unit also compares the names of all rows."""
    spec, where = parameters.graph, parameters.where
    shape = searched_shape(context.tiles.shape, spec)
    height = _unit_rows(shape)
    rows = slice(unit * height, min((unit + 1) * height, shape.n_samples))
    with planned_source(context, parameters, rows if unit else None) as source:
        if unit == 0:
            source.verify()
            check_names(context.tiles, source, where)
        values = source.read_rows(rows.start, rows.stop)
        assert not is_sparse(values)
        is_whole = len(values) == shape.n_samples
        check_finite(values, rows.start, source.info.feature_names, where, whole=is_whole)
    put_own_rows(context.store, str(spec.own_rows), shape, rows.start, values)


def check_names(tiles: Tiles, source: Source, where: str) -> None:
    """Raise :class:`InputError` unless the rows of a source have the names of the rows of X, if both have names."""
    if not has_row_names(tiles):
        return
    start = 0
    for names in source.read_row_names() or ():
        expected_names = row_names_of(tiles, slice(start, start + names.size))
        if (differ := np.flatnonzero(names != expected_names)).size:
            row = int(differ[0])
            msg = (
                f"{where}: row {start + row} is {names[row].decode()!r}, and row {start + row} of the data is "
                f"{expected_names[row].decode()!r}: its rows must be those of the data, in the same order."
            )
            raise InputError(msg)
        start += names.size


def _unit_rows(shape: Shape) -> int:
    """Return the rows of a unit: whole bands."""
    return shape.tile_rows * max(1, UNIT_BYTES // (shape.tile_rows * shape.n_features * shape.itemsize))


def copying_cost(shape: Shape, representation: Representation) -> Cost:
    """Return the memory cost of a unit, for rows of the given shape as stored."""
    rows = min(_unit_rows(shape), shape.n_samples)
    return (
        PROCESS,
        Array("rows as read, checked and stored", (3, rows + representation.source_rows, representation.n_columns)),
        Objects("what a read of the source takes", 1, representation.reading_bytes),
        Objects("the sampled rows", sample_rows(shape).size, WORD),
        *((ROW_NAMES_HELD, ROW_NAMES_HELD) if representation.has_names else ()),
    )


REPRESENTATION_STAGE = StageKind("representation", __name__, copy_rows, copying_cost, arrays=create_rows)


def plan_representation(shape: Shape, representation: Representation) -> Stage:
    """Return the stage that copies a representation, for X of the given shape; raises as :func:`check_size`."""
    check_size(representation, shape.n_samples)
    own_shape, planned = representation.shape(shape), representation.planned
    assert planned is not None
    sampled = sample_rows(own_shape).size * own_shape.n_features * own_shape.itemsize
    return Stage.of(
        REPRESENTATION_STAGE,
        "representation",
        -(-own_shape.n_samples // _unit_rows(own_shape)),
        RepresentationParameters(
            **vars(planned), where=representation.where, graph=representation.completed(GraphSpec())
        ),
        REPRESENTATION_STAGE.cost(own_shape, representation),
        bytes_read=own_shape.x_bytes,
        bytes_written=own_shape.x_bytes + sampled,
    )


def check_size(rep: Representation, n_samples: int) -> None:
    """Raise :class:`InputError` unless a representation has `n_samples` rows."""
    if rep.n_samples != n_samples:
        msg = f"{rep.where} has {rep.n_samples} rows, and X has {n_samples}: it must have one for each row of X."
        raise InputError(msg)
