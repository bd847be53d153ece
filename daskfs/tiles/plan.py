"""The stages that fill a tile store."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daskfs.errors import StoreError
from daskfs.kernels.labels import Task
from daskfs.kernels.statistics.column_hash import N_HASHES
from daskfs.kernels.statistics.streaming_median import HELD_VALUES, MEDIAN_PASSES
from daskfs.sources.state import turned_link
from daskfs.stages.cost import WORD
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Stage, first_parameters, stages_from, stages_to_json, with_fingerprints
from daskfs.store import layout
from daskfs.store.addresses import url_of
from daskfs.store.shape import Shape, sample_rows
from daskfs.tiles.imputation import FACTS_STAGE, FILL_STAGE
from daskfs.tiles.ingest import COLUMNS_STAGE, INGEST_STAGE, LABELS_STAGE, TileParameters
from daskfs.tiles.shapes import chunk_bytes, fill_bytes, row_bytes

STORED_NAME_BYTES = 32
"""Bytes of a stored row name, assumed while name lengths are unknown."""


class TileBase(StageParameters):
    """Base of tiles with more rows: the last finished ones, and "ingest" stages of valid bands."""

    parameters: TileParameters
    fingerprints: tuple[str, ...]


@dataclass(frozen=True)
class TilePlan:
    """Plan for the tiles of X: stages that fill a tile store, none if it is complete.

    After rows were appended, `base` is :func:`base_of` the tiles before, and `n_kept` the number of bands kept of them.
    """

    url: str
    shape: Shape
    fingerprint: str
    has_labels: bool
    task: Task | None = None
    write_x: bool = False
    stages: tuple[Stage, ...] = ()
    has_weights: bool = False
    has_groups: bool = False
    has_times: bool = False
    has_batch: bool = False
    n_classes: int | None = None
    n_labeled: int | None = None
    note: str | None = None
    missing: str = "refuse"
    base: TileBase | None = None
    n_kept: int = 0

    @property
    def is_pairwise(self) -> bool:
        """Whether values may be missing and are not filled."""
        return self.missing == "pairwise"

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able values; :meth:`from_json` is the inverse."""
        base = None if self.base is None else self.base.to_json()
        url = layout.TILES_DIR if self.stages else self.url
        plain = dataclasses.asdict(dataclasses.replace(self, stages=(), base=None, url=url))
        return {**plain, "stages": stages_to_json(self.stages), "base": base}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], where: str) -> TilePlan:
        """Rebuild the plan of the tiles of the run in `where` from JSON; a run fills no tiles but its own.

        :class:`StoreError` if it is damaged.
        """
        try:
            base = None if raw["base"] is None else TileBase.from_json(raw["base"])
            shape, stages = Shape(**raw["shape"]), stages_from(raw["stages"], raw["fingerprint"])
            url = url_of(layout.TILES_DIR if stages else raw["url"], where)
            return cls(**{**raw, "shape": shape, "stages": stages, "base": base, "url": url})
        except (KeyError, TypeError, ValueError, StoreError) as error:
            remedy = "choose another output.path, or start over with --overwrite."
            msg = f"{where}/{layout.RUN_JSON} is damaged, in 'tiles': {str(error).rstrip('.')}: {remedy}"
            raise StoreError(msg) from error


def is_of_same_data(begun: Sequence[Stage], now: Sequence[Stage]) -> bool:
    """Return whether stages of tiles that have begun read the files that stages planned now would read."""
    if not begun or not now:
        return not begun and not now
    before, planned = first_parameters(begun, INGEST_STAGE), parameters_of(now)
    if before is None or before.fingerprint != planned.fingerprint:  # others' stages have none
        return False
    return not turned_link(before.state, planned.state)


def parameters_of(tiles: Sequence[Stage]) -> TileParameters:
    """Return the parameters of the stages that fill a tile store, the same for all."""
    parameters = first_parameters(tiles, INGEST_STAGE)
    assert parameters is not None
    return parameters


def base_of(begun: TilePlan, *, is_finished: bool) -> TileBase:
    """Return the base of tiles with more rows."""
    ingest = next(stage for stage in begun.stages if stage.is_of(INGEST_STAGE))
    if begun.base is None or is_finished or not begun.n_kept:
        return TileBase(parameters_of(begun.stages), (ingest.fingerprint,))
    return dataclasses.replace(begun.base, fingerprints=(*begun.base.fingerprints, ingest.fingerprint))


def plan_ingest(parameters: TileParameters, source_rows: int, reading_bytes: int = 0) -> tuple[Stage, ...]:
    """Return the stages that fill a tile store.

    A source holds up to `source_rows` rows, and `reading_bytes` bytes, in addition to those that a read returns.
    """
    shape, write_x = parameters.shape, parameters.write_x
    filling = _plan_filling(parameters) if parameters.may_miss else ()
    ingest = Stage.of(
        INGEST_STAGE,
        "ingest",
        shape.n_bands,
        parameters,
        INGEST_STAGE.cost(shape, source_rows, reading_bytes, write_x=write_x),
        bytes_read=shape.x_bytes,
        bytes_written=(shape.x_bytes if write_x else 0)
        + (_observed_bytes(shape) if filling else _facts_bytes(shape))
        + sample_rows(shape).size * row_bytes(shape),
    )
    passes = 1 if shape.n_samples <= HELD_VALUES else MEDIAN_PASSES
    columns = Stage.of(
        COLUMNS_STAGE,
        "columns",
        1,
        parameters,
        COLUMNS_STAGE.cost(shape),
        bytes_read=_moments_bytes(shape) + passes * WORD * shape.n_samples + (fill_bytes(shape) if filling else 0),
        bytes_written=WORD * (len(layout.COLUMN_ROWS) + 1) * shape.n_features,  # and the first equal column of each
    )
    row = WORD * (1 + len(parameters.sample_columns)) + STORED_NAME_BYTES * parameters.row_names
    cost = LABELS_STAGE.cost(shape, parameters.sample_columns, row_names=parameters.row_names)
    labels = Stage.of(LABELS_STAGE, "labels", 1, parameters, cost, bytes_written=row * shape.n_samples)
    if parameters.source.weights is not None:  # which all sums of columns take into account
        return with_fingerprints((labels, ingest, *filling, columns), parameters.fingerprint)
    beside = dataclasses.replace(labels, begins_with=ingest.name)
    return with_fingerprints((ingest, *filling, beside, columns), parameters.fingerprint)


def _plan_filling(parameters: TileParameters) -> tuple[Stage, ...]:
    """Return the stages for X with missing values: statistics are computed from tiles when the means are known."""
    shape = parameters.shape
    fill = Stage.of(
        FILL_STAGE,
        "fill",
        1,
        parameters,
        FILL_STAGE.cost(shape.n_features),
        bytes_read=_observed_bytes(shape),
        bytes_written=fill_bytes(shape),
    )
    facts = Stage.of(
        FACTS_STAGE,
        "facts",
        shape.n_bands,
        parameters,
        FACTS_STAGE.cost(shape),
        # fill values twice: every unit first checks whether values are missing
        bytes_read=chunk_bytes(shape) + 2 * shape.n_bands * fill_bytes(shape),
        bytes_written=_facts_bytes(shape),
    )
    return fill, facts


def _moments_bytes(shape: Shape) -> int:
    return WORD * shape.n_bands * (len(layout.PARTIAL_ROWS) + N_HASHES) * shape.n_features


def _facts_bytes(shape: Shape) -> int:
    """Return the bytes of the statistics of columns and rows: moments and hashes, norms and sums in whole chunks."""
    return _moments_bytes(shape) + 2 * WORD * shape.n_bands * shape.tile_rows


def _observed_bytes(shape: Shape) -> int:
    return WORD * shape.n_bands * len(layout.OBSERVED_ROWS) * shape.n_features
