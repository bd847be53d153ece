"""Plan of the evaluation: rows in use, rankings made anew, and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from daskfs.evaluation.design import DEPTH, DESIGN_STAGE, GATHER_STAGE, Design
from daskfs.evaluation.modelspec import ModelSpec, model_bytes
from daskfs.evaluation.rows import SAMPLE_ROWS_STAGE
from daskfs.evaluation.selection import SAMPLE_LISTS_STAGE, SELECT_STAGE
from daskfs.evaluation.summaries import EVALUATION_TABLES_STAGE, most_frequent
from daskfs.evaluation.trials import EVALUATE_STAGE
from daskfs.stages.cost import Cost, Fixed, MiB, total
from daskfs.stages.stage import Stage
from daskfs.store.tiles import Shape
from daskfs.tiles.shapes import tile_bytes

MAX_PARTS = 64
"""Units that read the rows in use."""
HOLDER = "evaluation"
TABLES_BYTES = 96 * MiB
"""What pyarrow, SciPy's distributions and the ranks of some features add to the process that writes the tables."""


def used_shape(shape: Shape, max_samples: int, n_labelled: int | None) -> Shape:
    """Return the largest shape that the rows in use may have: as many without labels beside the labelled ones;
    `n_labelled` is None where nobody has counted them.
    """
    n_rows = min(2 * max_samples, shape.n_samples)
    if n_labelled is not None:
        n_rows = min(max_samples, n_labelled) + min(max_samples, shape.n_samples - n_labelled)
    nnz = None
    if shape.nnz is not None:  # rows differ in how much they hold
        nnz = min(shape.nnz, -(-2 * shape.nnz * n_rows // shape.n_samples))
    return replace(shape, n_samples=n_rows, nnz=nnz, tile_rows=n_rows, tile_columns=shape.n_features)


def thinned_columns(shape: Shape, n_features: int | None) -> Shape:
    """Return a shape with so many of its columns; None for all of them."""
    if n_features is None:
        return shape
    nnz = None if shape.nnz is None else min(shape.nnz, shape.n_samples * n_features)
    return replace(shape, n_features=n_features, nnz=nnz, tile_columns=n_features)


@dataclass(frozen=True)
class Inside:
    """What a ranking takes that is made within a unit: bytes of its process in neighbor searches and in scoring, and of
    neighbor lists.
    """

    searching: int
    scoring: int
    lists: int


def plan_tests_of_run(shape: Shape, parameters: Mapping[str, Any], process: Cost) -> list[Stage]:
    """Stages that test the run's own rankings."""
    design, slab = Design(parameters), int(parameters["slab_columns"])
    rows = min(int(parameters["max_samples"]), shape.n_samples)
    n_slabs = -(-shape.n_features // slab)
    deepest = deepest_test(design)
    used = min(len(design.methods) * max(design.sizes) if deepest < shape.n_features else deepest, shape.n_features)
    band = 3 * shape.tile_rows * slab * shape.itemsize + 40 * shape.n_samples
    gather = total(process) + band + 3 * rows * min(used, slab) * shape.itemsize
    folds = _folds_bytes(design, rows)
    parameters = {**parameters, "held_bytes": folds}
    model = total(process) + 8 * rows * used + 2 * folds + _tested_bytes(design, parameters, rows)
    read = design.n_tests * (rows * used * shape.itemsize + _world_bytes(design, rows))
    return [
        _plan_design(shape, design, parameters, rows, process),
        Stage.of(
            GATHER_STAGE,
            "gather",
            n_slabs,
            parameters,
            (Fixed("rest", gather),),
            bytes_read=shape.x_bytes,
            bytes_written=rows * used * shape.itemsize,
        ),
        Stage.of(
            EVALUATE_STAGE,
            "evaluate",
            design.n_tests,
            parameters,
            (Fixed("rest", model),),
            bytes_read=read,
            holds=HOLDER,
        ),
        _plan_tables(shape, design, parameters, process),
    ]


def plan_new_rankings(
    shape: Shape, used: Shape, parameters: Mapping[str, Any], process: Cost, inside: Inside
) -> list[Stage]:
    """Stages that rank the rows in use anew, of shape `used`, once for each selection, and test these rankings."""
    design = Design(parameters)
    rows, held, n_parts = used.n_samples, used.x_bytes, int(parameters["n_parts"])
    beside = 60 * rows + 2 * _folds_bytes(design, rows)
    parameters = {**parameters, "held_bytes": held + _folds_bytes(design, rows)}
    part = total(process) + 3 * tile_bytes(shape) + 3 * held + 2 * shape.n_samples // n_parts + 40 * rows
    own = (3 if shape.is_sparse else 2) * held + beside  # all rows, those that are seen, and these column by column
    model = total(process) + held + beside + _tested_bytes(design, parameters, rows)
    per_world, read = _world_bytes(design, rows), shape.x_bytes + 8 * rows * n_parts
    n_sets = len(design.sets_of_rows()) if inside.lists else 0
    stages = [
        _plan_design(shape, design, parameters, rows, process),
        Stage.of(
            SAMPLE_ROWS_STAGE,
            "evaluation-sample",
            n_parts,
            parameters,
            (Fixed("rest", part),),
            bytes_read=read,
            bytes_written=2 * held,
        ),
    ]
    if n_sets:
        searching = inside.searching + own + 2 * inside.lists
        read, written = n_sets * (held + per_world), n_sets * inside.lists
        stages.append(
            Stage.of(
                SAMPLE_LISTS_STAGE,
                "evaluation-lists",
                n_sets,
                parameters,
                (Fixed("rest", searching),),
                bytes_read=read,
                bytes_written=written,
                holds=HOLDER,
            )
        )
    scoring = inside.scoring + own + 2 * inside.lists
    read = design.n_selections * (held + per_world + inside.lists)
    written = design.n_selections * 8 * shape.n_features
    stages += [
        Stage.of(
            SELECT_STAGE,
            "select",
            design.n_selections,
            parameters,
            (Fixed("rest", scoring),),
            bytes_read=read,
            bytes_written=written,
            holds=HOLDER,
        ),
        Stage.of(
            EVALUATE_STAGE,
            "evaluate",
            design.n_tests,
            parameters,
            (Fixed("rest", model),),
            bytes_read=design.n_tests * (held + 2 * per_world + 8 * shape.n_features),
            holds=HOLDER,
        ),
        _plan_tables(shape, design, parameters, process),
    ]
    return stages


def _plan_design(shape: Shape, design: Design, parameters: Mapping[str, Any], rows: int, process: Cost) -> Stage:
    peak = total(process) + 80 * shape.n_samples + 200 * shape.n_features + 2 * _folds_bytes(design, rows) + 100 * rows
    n_methods, of_run = len(design.methods), not parameters["ranks_anew"]
    # labels, and groups or times; of rankings that are there, tables and orders
    read = 16 * shape.n_samples + of_run * 24 * n_methods * shape.n_features
    written = 40 * rows + len(design.worlds) * _folds_bytes(design, rows)
    written += of_run * 16 * n_methods * min(shape.n_features, max(DEPTH, *design.sizes))
    return Stage.of(
        DESIGN_STAGE, "design", 1, parameters, (Fixed("rest", peak),), bytes_read=read, bytes_written=written
    )


def _plan_tables(shape: Shape, design: Design, parameters: Mapping[str, Any], process: Cost) -> Stage:
    n_features, n_sizes, n_methods = shape.n_features, len(design.sizes), len(design.methods)
    n_metrics = sum(max(2, len(model["metrics"])) for model in parameters["models"]) + bool(parameters["informative"])
    tests = design.n_tests if not design.has_folds else design.n_tests * design.n_splits
    if design.has_folds and "inductive" in design.settings:  # a test there is of one fold
        each = n_methods * n_sizes + len(design.baselines)
        inside = len(design.worlds) * design.n_draws * len(design.amounts) * each * design.n_repeats
        tests -= inside * design.n_splits * (design.n_splits - 1)
    values = tests * n_metrics
    n_groups = len(design.settings) * len({world.n_classes for world in design.worlds}) * len(design.amounts)
    pairs = n_groups * n_metrics * (n_sizes + 3) * n_methods * (n_methods + 1) // 2
    order = min(n_features, max(DEPTH, *design.sizes))
    beside = len(design.worlds) * design.n_draws * (design.n_repeats * design.n_splits if design.has_folds else 1)
    frequencies = n_groups * n_methods * sum(min(most_frequent(size), n_features) for size in design.sizes)
    names = 200 * n_features
    held = 1500 * values + 1000 * (pairs + frequencies) + 16 * order * beside + names + TABLES_BYTES
    read = 3 * 8 * order * design.n_selections
    return Stage.of(
        EVALUATION_TABLES_STAGE,
        "evaluation-tables",
        1,
        parameters,
        (Fixed("rest", total(process) + held),),
        bytes_read=read,
    )


def deepest_test(design: Design) -> int:
    """Return the most features that a model is tested with."""
    return max(*design.sizes, *(size for _, size in design.baselines), 0)


def _tested_bytes(design: Design, parameters: Mapping[str, Any], rows: int) -> int:
    """Return the most that a test holds: the columns of the rows in use, a training and a test part of them, as they
    are and scaled, and what a model takes for the labelled rows.
    """
    labelled, columns = min(rows, int(parameters["max_samples"])), deepest_test(design)
    models = max(model_bytes(ModelSpec.from_json(raw), labelled, columns) for raw in parameters["models"])
    return 8 * rows * max(10 * max(design.sizes), 5 * columns) + models


def _folds_bytes(design: Design, rows: int) -> int:
    """Return what the places of a world's rows take, and those of all its folds, each of the labelled ones."""
    return 8 * rows * (1 + (design.n_repeats * design.n_splits if design.has_folds else 0))


def _world_bytes(design: Design, rows: int) -> int:
    """Return what a unit reads of its world: rows, folds, and what is beside the rows in use."""
    return _folds_bytes(design, rows) + 8 * rows * 6
