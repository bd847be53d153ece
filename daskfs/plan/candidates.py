"""Plan of what compares features with each other: co-moments, greedy picks and the redundancy filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from daskfs.errors import MemoryPlanError
from daskfs.kernels.comoments import PRODUCT_COLUMNS, stretch_rows, waiting_bytes
from daskfs.kernels.distance import DISTANCE_ROWS
from daskfs.kernels.scaling import row_statistics
from daskfs.plan.stages import Stage
from daskfs.plan.tiles import band_bytes, tile_bytes
from daskfs.scores.correlations import comoment_rows
from daskfs.store import layout
from daskfs.store.tiles import GATHERED, Shape

MAX_CANDIDATES = 20_000
"""Features that are compared with each other at most: their correlations take 3.2 GB."""


def plan_greedy(shape: Shape, method: Mapping[str, Any], process_bytes: int) -> list[Stage]:
    """Stages of a method that picks its features one by one: candidates, their co-moments, the picks."""
    label, wanted = method["label"], method["parameters"]["n_candidates"]
    count = min(wanted or shape.n_features, shape.n_features)
    check_candidates(count, f"method {label}", "n_candidates")
    done, tables, parameters = f"greedy-{label}", 32 * shape.n_features, {"method": dict(method)}
    screen = process_bytes + 200 * shape.n_features
    comoments = plan_comoments(
        shape, f"comoments-{label}", ("greedy", {label: count}), method["parameters"]["score_scaling"], process_bytes
    )
    matrices = 3 * 8 * count**2
    return [
        Stage(f"candidates-{label}", "screen", 1, parameters, screen, tables, 8 * count),
        replace(comoments, needed_until=done),
        Stage(
            done,
            "greedy",
            1,
            parameters,
            screen + matrices,
            comoments.bytes_written + tables + 8 * count,
            tables,
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
    shape: Shape, name: str, candidates: tuple[str, Mapping[str, int]], scaling: str | None, process_bytes: int
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
    peak = process_bytes + band + block + sums + 24 * shape.n_samples
    return Stage(name, "comoments", n_units, parameters, peak, read, written)


def stored_values(count: int) -> int:
    """Return the values of whole chunks of a matrix of co-moments."""
    rows = min(comoment_rows(count), count)
    return -(-count // rows) * rows * count


def plan_redundancy(
    shape: Shape, methods: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any], columns: int, process_bytes: int
) -> list[Stage]:
    """Stages that walk down the rankings past what is redundant.

    Parameters
    ----------
    shape, columns, process_bytes
        As elsewhere.
    methods
        Methods as JSON.
    wanted
        `measure`, `threshold`, `n_candidates`, `keep`, `drop`, `groups`, `max_per_group` and `scaling`, with numbers of
        features instead of their names.
    """
    labels, measure = [method["label"] for method in methods], wanted["measure"]
    count = min(wanted["n_candidates"] + len(wanted["keep"]), shape.n_features)
    if measure is None:
        count = shape.n_features
    else:
        check_candidates(count, "select.redundancy", "select.redundancy.n_candidates")
    parameters: dict[str, Any] = {"methods": [dict(method) for method in methods], "redundancy": dict(wanted)}
    known = 400 * shape.n_features
    tables = 32 * shape.n_features
    choose = process_bytes + known
    stages = [
        Stage("filter-candidates", "candidates", 1, parameters, choose, len(labels) * tables, 8 * count * len(labels))
    ]
    counts = dict.fromkeys(labels, count)
    held = read = 0
    clears = ""
    if measure == "correlation":
        stage = plan_comoments(shape, "filter-comoments", ("redundancy", counts), wanted["scaling"], process_bytes)
        stages.append(replace(stage, needed_until="filter"))
        held, read, clears = 3 * 8 * count**2, stage.bytes_written, layout.COMOMENTS_FOR.format("redundancy")
    elif measure == "distance_correlation":
        stage = _plan_bins(shape, counts, wanted["scaling"], columns, process_bytes)
        stages.append(replace(stage, needed_until="filter"))
        rows = min(shape.n_samples, DISTANCE_ROWS)
        held = count * (rows + 4096) + 40 * rows + 2**20
        read, clears = len(labels) * count * (rows + 4096), layout.BINNED_OF
        parameters = {**parameters, "purpose": "redundancy", "labels": labels, "slab_columns": columns}
    peak = process_bytes + known + held + 400 * count + 32 * shape.n_samples
    read += 8 * count * len(labels)
    written = 8 * count * len(labels)
    return [*stages, Stage("filter", "filter", len(labels), parameters, peak, read, written, clears=clears)]


def _plan_bins(shape: Shape, counts: Mapping[str, int], scaling: str | None, columns: int, process_bytes: int) -> Stage:
    """Stage that cuts the candidates into bins, slab by slab."""
    union = min(sum(counts.values()), shape.n_features)
    own, rows = min(union, columns), min(shape.n_samples, DISTANCE_ROWS)
    n_units = -(-shape.n_features // columns)
    band = 3 * shape.tile_rows * columns * shape.itemsize + 3 * tile_bytes(shape)
    peak = process_bytes + band + own * rows * (shape.itemsize + 1 + (16 if scaling else 0))
    peak += 100 * rows + 24 * shape.n_samples + own * 4096
    parameters = {"purpose": "redundancy", "labels": list(counts), "scaling": scaling, "slab_columns": columns}
    return Stage("filter-bins", "bins", n_units, parameters, peak, shape.x_bytes, union * (rows + 2048))
