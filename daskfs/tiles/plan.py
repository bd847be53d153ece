"""The stages that fill a tile store."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from daskfs.kernels.columnhash import N_HASHES
from daskfs.kernels.labels import Task
from daskfs.stages.cost import PROCESS_BYTES, Fixed
from daskfs.stages.stage import Stage, fingerprinted, stages_from
from daskfs.store.rownames import STRETCH_BYTES
from daskfs.store.tiles import Shape, sample_rows
from daskfs.tiles.filling import FACTS_STAGE, FILL_STAGE
from daskfs.tiles.ingest import COLUMNS_STAGE, INGEST_STAGE, LABELS_STAGE
from daskfs.tiles.shapes import band_bytes, chunk_bytes, conversion_bytes, tile_bytes

BESIDE_BYTES = {"weights": 60, "groups": 220, "times": 300, "batch": 260}
"""What a row of a column beside X takes while it is read: groups as text of which a few rows share each, times as text
of which each is another.
"""


@dataclass(frozen=True)
class TilePlan:
    """How X becomes tiles: nothing to do for a finished tile store, else the stages that fill one."""

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
    n_labelled: int | None = None
    note: str | None = None
    missing: str = "refuse"

    @property
    def is_pairwise(self) -> bool:
        """Whether values may be missing that nothing is to stand for."""
        return self.missing == "pairwise"

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able values; :meth:`from_json` is the inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> TilePlan:
        """Rebuild from JSON."""
        return cls(**{**raw, "shape": Shape(**raw["shape"]), "stages": stages_from(raw["stages"])})


def plan_ingest(
    shape: Shape, parameters: Mapping[str, Any], write_x: bool, source_rows: int, reading_bytes: int = 0
) -> tuple[Stage, ...]:
    """Stages that fill a tile store.

    Parameters
    ----------
    shape, parameters, write_x
        What is filled.
    source_rows
        What the source holds beside the rows that it hands on, at most.
    reading_bytes
        What it takes for reading them where that is more.
    """
    band = band_bytes(shape)
    source = source_rows * shape.n_features * shape.itemsize
    if shape.is_sparse:
        source = source_rows * (shape.nnz or 0) // shape.n_samples * (shape.itemsize + 4)
    transient = 4 * tile_bytes(shape) if write_x else 0
    if shape.is_sparse:
        transient = 5 * band
    peak = PROCESS_BYTES + 2 * band + 2 * source + reading_bytes + transient + conversion_bytes(shape.n_features)
    moments = shape.n_bands * (6 + N_HASHES) * shape.n_features * 8
    of_rows = 16 * shape.n_bands * shape.tile_rows  # norms and sums of rows, whole chunks
    written = (shape.x_bytes if write_x else 0) + moments + of_rows
    written += sample_rows(shape).size * -(-shape.x_bytes // shape.n_samples)
    beside = [size for name, size in BESIDE_BYTES.items() if parameters["source"].get(name) is not None]
    columns = 1 + len(beside)  # labels, and columns beside X
    labels = PROCESS_BYTES + 400 * shape.n_features + (60 + sum(beside)) * shape.n_samples
    names = parameters["row_names"]
    labels += STRETCH_BYTES if names else 0
    known = moments + of_rows
    filling: tuple[Stage, ...] = ()
    if parameters["source"]["missing"] != "refuse":  # what is known is taken of the tiles, when their means are known
        seen = 32 * shape.n_bands * shape.n_features
        reading = PROCESS_BYTES + 3 * band + 4 * tile_bytes(shape) + conversion_bytes(shape.n_features)
        reading += 3 * band if shape.is_sparse else 0
        closing = PROCESS_BYTES + 1000 * shape.n_features
        filled = 16 * shape.n_features
        again = 2 * shape.n_bands * filled  # by every unit, which asks whether there is something to fill first
        filling = (
            Stage.of(
                FILL_STAGE, "fill", 1, parameters, (Fixed("rest", closing),), bytes_read=seen, bytes_written=filled
            ),
            Stage.of(
                FACTS_STAGE,
                "facts",
                shape.n_bands,
                parameters,
                (Fixed("rest", reading),),
                bytes_read=chunk_bytes(shape) + again,
                bytes_written=known,
            ),
        )
        written += seen - known
    stages = (
        Stage.of(
            LABELS_STAGE,
            "labels",
            1,
            parameters,
            (Fixed("rest", labels),),
            bytes_read=0,
            bytes_written=(8 * columns + 32 * names) * shape.n_samples,
        ),
        Stage.of(
            INGEST_STAGE,
            "ingest",
            shape.n_bands,
            parameters,
            (Fixed("rest", peak),),
            bytes_read=shape.x_bytes,
            bytes_written=written,
        ),
        *filling,
        Stage.of(
            COLUMNS_STAGE,
            "columns",
            1,
            parameters,
            (Fixed("rest", PROCESS_BYTES + 500 * shape.n_features + 60 * shape.n_samples),),
            bytes_read=moments + 8 * shape.n_samples + (filling[0].bytes_written if filling else 0),
            bytes_written=48 * shape.n_features,
        ),
    )
    return fingerprinted(stages, str(parameters["fingerprint"]))
