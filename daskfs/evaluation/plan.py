"""Plan of the evaluation: its stages for the rows in use, recomputed rankings, and tests."""

from __future__ import annotations

from dataclasses import dataclass, replace

from daskfs.evaluation.design import (
    DESIGN_STAGE,
    GATHER_STAGE,
    ORDERS_STAGE,
    Design,
    EvaluationParameters,
    class_subset_cost,
)
from daskfs.evaluation.neighbor_lists import (
    CANDIDATE_ROWS,
    SAMPLE_CANDIDATES_STAGE,
    SAMPLE_LISTS_STAGE,
    candidates_of,
    lists_cost,
)
from daskfs.evaluation.rows import SAMPLE_ROWS_STAGE, sample_cost, seen_cost
from daskfs.evaluation.selection import SELECT_STAGE, SelectParameters
from daskfs.evaluation.summaries import EVALUATION_TABLES_STAGE
from daskfs.evaluation.trials import EVALUATE_STAGE
from daskfs.sources.base import SAMPLE_COLUMNS
from daskfs.stages.cost import WORD, Array, Cost, total
from daskfs.stages.stage import Stage
from daskfs.store.shape import Shape

MAX_PARTS = 64
"""Maximum number of units that read the rows in use."""
HOLDER = "evaluation"


def used_shape(shape: Shape, max_samples: int, n_labeled: int | None) -> Shape:
    """Return the largest shape of the rows in use: up to `max_samples` labeled and as many unlabeled rows.

    `n_labeled` is None if not known.
    """
    n_rows = min(2 * max_samples, shape.n_samples)
    if n_labeled is not None:
        n_rows = min(max_samples, n_labeled) + min(max_samples, shape.n_samples - n_labeled)
    nnz = None
    if shape.nnz is not None:  # rows differ in their number of nonzeros: allow for twice the average
        nnz = min(shape.nnz, -(-2 * shape.nnz * n_rows // shape.n_samples))
    return replace(shape, n_samples=n_rows, nnz=nnz, tile_rows=n_rows, tile_columns=shape.n_features)


def thinned_columns(shape: Shape, n_features: int | None) -> Shape:
    """Return a shape with `n_features` of its columns; None for all of them."""
    if n_features is None:
        return shape
    nnz = None if shape.nnz is None else min(shape.nnz, shape.n_samples * n_features)
    return replace(shape, n_features=n_features, nnz=nnz, tile_columns=n_features)


@dataclass(frozen=True)
class Inside:
    """Peak memory of one re-ranking inside an evaluation unit.

    It is the peak over the stages of the neighbor searches, and of scoring, each including the process; `lists` are the
    neighbor lists of all methods, or the subgraph of a precomputed graph.
    """

    searching: Cost
    scoring: Cost
    lists: tuple[Array, ...]


def plan_tests_of_run(shape: Shape, parameters: EvaluationParameters, process: Cost) -> list[Stage]:
    """Return the stages that test the run's own rankings."""
    design, slab = Design(parameters), parameters.slab_columns
    rows = min(parameters.max_samples, shape.n_samples)
    of_methods = min(len(design.methods) * max(design.sizes), shape.n_features)
    n_used = of_methods if design.most_tested < shape.n_features else shape.n_features
    parameters = replace(parameters, held_bytes=total(class_subset_cost(rows, design)))
    sample = (
        Array("features that models see, of the rows in use", (rows, n_used)),
        *class_subset_cost(rows, design, 2),
    )
    n_slabs, written = -(-shape.n_features // slab), rows * n_used * shape.itemsize
    gather = GATHER_STAGE.cost(shape, slab, rows, n_used, process)
    return [
        _plan_design(shape, design, parameters, rows, process),
        _plan_orders(shape, design, parameters, process),
        Stage.of(GATHER_STAGE, "gather", n_slabs, parameters, gather, bytes_read=shape.x_bytes, bytes_written=written),
        _plan_tests(sample, written + _class_subset_bytes(design, rows), design, parameters, rows, process),
        _plan_tables(shape, design, parameters, process),
    ]


def plan_new_rankings(
    shape: Shape, used: Shape, parameters: EvaluationParameters, process: Cost, inside: Inside
) -> list[Stage]:
    """Return the stages that rank the rows in use, of shape `used`, once per selection, and test these rankings."""
    design, n_parts, rows = Design(parameters), parameters.new_rankings.n_parts, used.n_samples
    parameters = replace(parameters, held_bytes=used.x_bytes + total(class_subset_cost(rows, design)))
    sample = (*sample_cost("rows in use", used), *seen_cost(rows, design))
    read_by_test = used.x_bytes + 2 * _class_subset_bytes(design, rows) + WORD * shape.n_features
    return [
        _plan_design(shape, design, parameters, rows, process),
        Stage.of(
            SAMPLE_ROWS_STAGE,
            "evaluation-sample",
            n_parts,
            parameters,
            SAMPLE_ROWS_STAGE.cost(shape, used, n_parts, process),
            bytes_read=shape.x_bytes + WORD * rows * n_parts,
            bytes_written=2 * used.x_bytes + WORD * rows,
        ),
        *_plan_rankings(used, design, parameters, inside),
        _plan_tests(sample, read_by_test, design, parameters, rows, process),
        _plan_tables(shape, design, parameters, process),
    ]


def _plan_rankings(used: Shape, design: Design, parameters: EvaluationParameters, inside: Inside) -> list[Stage]:
    """Return the stages that find the neighbor lists of each set of rows, if any, and make each selection."""
    each, lists = used.x_bytes + _class_subset_bytes(design, used.n_samples), total(inside.lists)
    candidates = lists_cost(candidates_of(parameters, used.n_samples), used.n_samples)
    n_sets, n_selections = len(design.sets_of_rows()) if lists else 0, design.n_made(combined=False)
    n_combined, order = design.n_made(combined=True), WORD * used.n_features
    n_voting = n_combined and n_selections // n_combined
    n_parts = -(-used.n_samples // CANDIDATE_ROWS) if candidates else 0
    together = Stage.of(
        SAMPLE_CANDIDATES_STAGE,
        "evaluation-candidates",
        n_parts,
        parameters,
        SAMPLE_CANDIDATES_STAGE.cost(inside.searching, candidates, used, design),
        bytes_read=n_parts * each,
        bytes_written=total(candidates),
        holds=HOLDER,
    )
    searches = Stage.of(
        SAMPLE_LISTS_STAGE,
        "evaluation-lists",
        n_sets,
        parameters,
        SAMPLE_LISTS_STAGE.cost(inside.searching, (*inside.lists, *candidates), used, design),
        bytes_read=n_sets * (each + total(candidates)),
        bytes_written=n_sets * lists,
        holds=HOLDER,
    )
    selections = Stage.of(
        SELECT_STAGE,
        "select",
        n_selections,
        SelectParameters(**vars(parameters), combines=False),
        SELECT_STAGE.cost(inside.scoring, inside.lists, used, design),
        bytes_read=n_selections * (each + lists),
        bytes_written=n_selections * order * (1 + design.has_consensus),
        holds=HOLDER,
    )
    ranks = Array("ranks to combine", (4, n_voting, used.n_features))
    combined = Stage.of(
        SELECT_STAGE,
        "select-consensus",
        n_combined,
        SelectParameters(**vars(parameters), combines=True),
        (*SELECT_STAGE.cost(inside.scoring, (), used, design), ranks),
        bytes_read=n_combined * (each + n_voting * 2 * order),
        bytes_written=n_combined * order,
        holds=HOLDER,
    )
    return [stage for stage in (together, searches, selections, combined) if stage.n_units]


def _plan_tests(
    sample: Cost, read: int, design: Design, parameters: EvaluationParameters, rows: int, process: Cost
) -> Stage:
    """Return the stage that tests all selections; a unit reads `read` bytes and takes its columns from `sample`."""
    n_labeled, n_tests = min(rows, parameters.max_samples), design.n_tests
    cost = EVALUATE_STAGE.cost(sample, rows, n_labeled, design, parameters.models, process)
    return Stage.of(EVALUATE_STAGE, "evaluate", n_tests, parameters, cost, bytes_read=n_tests * read, holds=HOLDER)


def _plan_design(shape: Shape, design: Design, parameters: EvaluationParameters, rows: int, process: Cost) -> Stage:
    # labels in up to five passes, and per-sample columns
    read = WORD * (5 + len(SAMPLE_COLUMNS)) * shape.n_samples
    subsets = len(design.class_subsets) * total(class_subset_cost(rows, design))
    written = (2 + len(SAMPLE_COLUMNS)) * WORD * rows + subsets
    cost = DESIGN_STAGE.cost(shape.n_samples, rows, design, process)
    return Stage.of(DESIGN_STAGE, "design", 1, parameters, cost, bytes_read=read, bytes_written=written)


def _plan_orders(shape: Shape, design: Design, parameters: EvaluationParameters, process: Cost) -> Stage:
    n_methods = len(design.methods)
    cost = ORDERS_STAGE.cost(shape.n_features, process)
    read = 3 * WORD * n_methods * shape.n_features
    written = 2 * WORD * n_methods * design.kept_depth(shape.n_features)
    return Stage.of(ORDERS_STAGE, "orders", 1, parameters, cost, bytes_read=read, bytes_written=written)


def _plan_tables(shape: Shape, design: Design, parameters: EvaluationParameters, process: Cost) -> Stage:
    n_metrics = sum(max(2, len(model.metrics)) for model in parameters.models) + bool(parameters.informative)
    cost = EVALUATION_TABLES_STAGE.cost(shape.n_features, design, n_metrics, process)
    # orders are read for stability, and for selection frequencies
    read = 3 * WORD * design.kept_depth(shape.n_features) * design.n_selections
    return Stage.of(EVALUATION_TABLES_STAGE, "evaluation-tables", 1, parameters, cost, bytes_read=read)


def _class_subset_bytes(design: Design, rows: int) -> int:
    """Return the bytes that a unit reads: rows and folds of its class subset, and columns of the rows in use."""
    return total(class_subset_cost(rows, design)) + 6 * WORD * rows
