"""Plan of what compares features with each other: co-moments, greedy picks and the redundancy filter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from daskfs.errors import MemoryPlanError
from daskfs.kernels.comoments import PRODUCT_COLUMNS, stretch_rows, waiting_bytes
from daskfs.kernels.scaling import row_statistics
from daskfs.scores.correlations import COMOMENTS_STAGE, comoment_rows
from daskfs.scores.greedy import GREEDY_STAGE, SCREEN_STAGE
from daskfs.stages.cost import Cost, Fixed, total
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.tiles import GATHERED, Shape
from daskfs.tiles.shapes import band_bytes, tile_bytes

MAX_CANDIDATES = 20_000
"""Features that are compared with each other at most: their correlations take 3.2 GB."""


def plan_greedy(shape: Shape, method: Mapping[str, Any], process: Cost) -> list[Stage]:
    """Stages of a method that picks its features one by one: candidates, their co-moments, the picks."""
    label, wanted = method["label"], method["parameters"]["n_candidates"]
    count = min(wanted or shape.n_features, shape.n_features)
    check_candidates(count, f"method {label}", "n_candidates")
    done, tables, parameters = f"greedy-{label}", 32 * shape.n_features, {"method": dict(method)}
    screen = total(process) + 200 * shape.n_features
    comoments = plan_comoments(
        shape, f"comoments-{label}", ("greedy", {label: count}), method["parameters"]["score_scaling"], process
    )
    matrices = 3 * 8 * count**2
    return [
        Stage.of(
            SCREEN_STAGE,
            f"candidates-{label}",
            1,
            parameters,
            (Fixed("rest", screen),),
            bytes_read=tables,
            bytes_written=8 * count,
        ),
        replace(comoments, needed_until=done),
        Stage.of(
            GREEDY_STAGE,
            done,
            1,
            parameters,
            (Fixed("rest", screen + matrices),),
            bytes_read=comoments.bytes_written + tables + 8 * count,
            bytes_written=tables,
            clears=layout.COMOMENTS_OF.format("greedy", label),
        ),
    ]


def check_candidates(count: int, where: str, setting: str) -> None:
    """Raise :class:`MemoryPlanError` when so many features cannot be compared with each other."""
    if count > MAX_CANDIDATES:
        msg = (
            f"{where} would compare {count} features with each other, which takes {count**2 * 8 / 2**30:.0f} GiB: set "
            f"{setting} to {MAX_CANDIDATES} or less."
        )
        raise MemoryPlanError(msg)


def plan_comoments(
    shape: Shape, name: str, candidates: tuple[str, Mapping[str, int]], scaling: str | None, process: Cost
) -> Stage:
    """Stage that sums the products of candidates: their purpose, and how many there are of each method."""
    purpose, counts = candidates
    height = stretch_rows(shape.n_samples)
    n_stretches = -(-shape.n_samples // height)
    per_unit = max(1, -(-shape.tile_rows // height))  # a unit reads whole bands
    n_units = -(-n_stretches // per_unit)
    union = min(sum(counts.values()), shape.n_features)
    rows = min(shape.tile_rows, shape.n_samples)
    block = min(GATHERED, shape.n_samples) * (union * (shape.itemsize + (16 if scaling else 0)))
    block += min(GATHERED, shape.n_samples) * max(counts.values()) * shape.itemsize
    band = 5 * band_bytes(shape) if shape.is_sparse else rows * union * shape.itemsize + 3 * tile_bytes(shape)
    sums = sum(8 * count**2 + waiting_bytes(count, shape.n_samples) for count in counts.values())
    sums += 8 * max(counts.values()) * PRODUCT_COLUMNS
    bands = sum(
        -(-min((unit + 1) * per_unit * height, shape.n_samples) // rows) - unit * per_unit * height // rows
        for unit in range(n_units)
    )
    of_band = -(-shape.x_bytes // shape.n_bands) if shape.is_sparse else rows * shape.n_features * shape.itemsize
    norms = 8 * bands * rows * row_statistics(scaling)
    read = bands * of_band + norms + n_units * 8 * sum(counts.values())
    written = n_stretches * sum(8 * (stored_values(count) + count + 1) for count in counts.values())
    parameters = {
        "purpose": purpose,
        "labels": list(counts),
        "scaling": scaling,
        "stretches_per_unit": per_unit,
    }
    peak = total(process) + band + block + sums + 24 * shape.n_samples
    return Stage.of(
        COMOMENTS_STAGE, name, n_units, parameters, (Fixed("rest", peak),), bytes_read=read, bytes_written=written
    )


def stored_values(count: int) -> int:
    """Return the values of whole chunks of a matrix of co-moments."""
    rows = min(comoment_rows(count), count)
    return -(-count // rows) * rows * count
