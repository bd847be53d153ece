"""Plan of RLSR, SSUFS and DSSFS: stages before the loop, the loop, and the tables, for groups that share passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from daskfs.criteria.centered import CENTERED_FIELDS
from daskfs.criteria.distance_correlation.matrix import feature_correlations_cost, plan_correlation, read_bytes
from daskfs.criteria.registry import Method
from daskfs.criteria.rescaled_regression import passes, solution, state
from daskfs.criteria.rescaled_regression.criterion import RescaledParameters, SolvedBy, UncorrelatedParameters
from daskfs.criteria.rescaled_regression.state import is_dragged, most_products, rescaled_parameters, stored_state_bytes
from daskfs.criteria.row_blocks import blocks_cost, room_between_rounds, row_parts
from daskfs.criteria.rrpc.correlations import plan_comoments, stored_values
from daskfs.kernels.distance_correlation.spec import CorrelationSpec
from daskfs.kernels.scaling import without_zscore
from daskfs.stages.cost import WORD, Cost, Fixed, Objects, fullest, total
from daskfs.stages.stage import PLANNED_CLASSES, Stage
from daskfs.store import layout
from daskfs.store.shape import Shape
from daskfs.tiles.shapes import chunk_bytes

SCALE_ROWS = 3
"""Values of each feature that all stages read from the first: center, scale and diagonal of S."""


def plan_rescaled(
    shape: Shape,
    methods: Sequence[Method],
    slab_columns: int,
    process: Cost,
    memory_limit: int | None,
    n_classes: int | None = None,
) -> list[Stage]:
    """Plan the stages of all methods of the family among `methods`, after their slabs.

    `memory_limit` is in bytes of one worker, None to cache no rows; `n_classes` is None if not known yet.
    """
    methods_of_family = [method for method in methods if isinstance(method.parameters, RescaledParameters)]
    stages: dict[str, Stage] = {}
    for spec in _all_specs(methods_of_family):
        stages |= {s.name: s for s in plan_correlation(shape, spec, slab_columns, process)}
    groups: dict[str, list[Method]] = {}
    for method in methods_of_family:
        groups.setdefault(_key(method, shape), []).append(method)
    columns = n_classes or PLANNED_CLASSES
    for key, methods_of_group in groups.items():
        group = _Group(shape, key, methods_of_group, columns, process)
        stages |= {s.name: s for s in (*_plan_scale(group), *_plan_loop(group, memory_limit), _plan_tables(group))}
    return list(stages.values())


def _key(method: Method, shape: Shape) -> str:
    """Return the name of the group of methods that share passes."""
    parameters = rescaled_parameters(method)
    solver = parameters.solved_by(shape.n_samples, shape.n_features)
    parts = [parameters.score_scaling or "raw", solver, *(["dragged"] if is_dragged(method) else [])]
    return "-".join(parts)


@dataclass(frozen=True)
class _Group:
    """Methods that share passes, and the inputs of their plan; the targets have `n_columns` columns."""

    shape: Shape
    key: str
    methods: Sequence[Method]
    n_columns: int
    process: Cost

    @property
    def first(self) -> RescaledParameters:
        """Parameters of the first method, whose scaling and solver are those of all."""
        return rescaled_parameters(self.methods[0])

    @property
    def solver(self) -> SolvedBy:
        return self.first.solved_by(self.shape.n_samples, self.shape.n_features)

    @property
    def states(self) -> int:
        """Bytes of the states of all methods in the store."""
        return len(self.methods) * stored_state_bytes(self.shape.n_features, self.n_columns, self.solver)

    @property
    def stored_gram(self) -> int:
        """Bytes of S in the store."""
        return WORD * stored_values(self.shape.n_features) if self.solver == "cholesky" else 0

    @property
    def tables(self) -> str:
        return f"rescaled-tables-{self.key}"


def _plan_scale(group: _Group) -> list[Stage]:
    """Plan the stages that make center, scale and, under "cholesky", S."""
    d, key = group.shape.n_features, group.key
    stages: list[Stage] = []
    read = (2 * len(CENTERED_FIELDS) + len(layout.COLUMN_ROWS)) * WORD * d
    if group.solver == "cholesky":
        scaling = without_zscore(group.first.score_scaling)
        name, lists = f"rescaled-comoments-{key}", (passes.RESCALED, {key: d})
        made = plan_comoments(group.shape, name, lists, scaling, group.process, all_features=True)
        stages.append(replace(made, needed_until=f"rescaled-scale-{key}"))
        read += made.bytes_written
    scale = Stage.of(
        passes.RESCALED_SCALE_STAGE,
        f"rescaled-scale-{key}",
        1,
        state.GroupParameters(key, tuple(group.methods), group.solver),
        passes.RESCALED_SCALE_STAGE.cost(group.shape, group.solver, group.process),
        bytes_read=read,
        bytes_written=SCALE_ROWS * WORD * d + group.stored_gram,
        needed_until=group.tables,
        clears=layout.COMOMENTS_OF.format(passes.RESCALED, key),
    )
    return [*stages, scale]


def _plan_loop(group: _Group, memory_limit: int | None) -> list[Stage]:
    """Plan the two stages of a round: a pass over the rows, and the solutions of all methods."""
    shape, key, columns, n_methods = group.shape, group.key, group.n_columns, len(group.methods)
    cut, states, solver = row_parts(shape), group.states, group.solver
    parameter_sets = (method.parameters for method in group.methods)
    specs = dict.fromkeys(p.correlations for p in parameter_sets if isinstance(p, UncorrelatedParameters))
    correlations = (item for spec in specs for item in _correlations_cost(shape, spec))
    # what a process keeps between rounds, without rows: itself, S, and correlations of features
    between_rounds = (*group.process, *solution.kept_cost(shape, solver), *correlations)
    products = max(most_products(method, solver) for method in group.methods)
    # a pass or a solution, which run in turn, without cached rows
    busy = fullest(
        passes.RESCALED_ROWS_STAGE.cost(shape, columns, n_methods, products, between_rounds),
        solution.RESCALED_SOLVE_STAGE.cost(shape, columns, solver, products, between_rounds),
    )
    # rows that a process may cache between rounds
    room = room_between_rounds(shape.n_samples, total(busy), total(between_rounds), memory_limit)
    holding = min(room, total(blocks_cost(shape)))
    cost = (*busy, Fixed("rows held from round to round", holding))
    rounds = most_rounds(group.methods, solver)
    common: dict[str, Any] = {"needed_until": group.tables, "loop": f"rescaled-{key}", "max_rounds": rounds}
    sums = WORD * (shape.n_features + 2) * (columns + 1) * cut.n_stretches * n_methods
    unlabeled_only = solver != "cg" and not is_dragged(group.methods[0])
    parameters = passes.LoopParameters(key, tuple(group.methods), solver, holding, unlabeled_only)
    of_part = states + WORD * (shape.n_samples + SCALE_ROWS * shape.n_features)
    parts = Stage.of(
        passes.RESCALED_ROWS_STAGE,
        f"rescaled-rows-{key}",
        cut.n_parts,
        parameters,
        cost,
        bytes_read=chunk_bytes(shape) + cut.n_parts * of_part,
        bytes_written=sums,
        clears=layout.RESCALED_SUMS_OF.format(key, "{round}"),
        **common,
    )
    solve = Stage.of(
        solution.RESCALED_SOLVE_STAGE,
        f"rescaled-solve-{key}",
        n_methods,
        parameters,
        cost,
        bytes_read=sums + states + group.stored_gram + (shape.x_bytes if solver == "woodbury" else 0),
        bytes_written=states,
        clears=layout.RESCALED_STATES_OF.format(key, "{before}"),
        **common,
    )
    return [parts, solve]


def _plan_tables(group: _Group) -> Stage:
    shape, specs = group.shape, _all_specs(group.methods)
    correlations = fullest((), *(_correlations_cost(shape, spec) for spec in specs))
    written = len(group.methods) * WORD * (len(group.methods[0].criterion.fields) + group.n_columns) * shape.n_features
    compared = sum(read_bytes(shape, spec) for spec in specs)
    return Stage.of(
        passes.RESCALED_TABLES_STAGE,
        group.tables,
        len(group.methods),
        passes.TablesParameters(group.key, tuple(group.methods), group.solver, f"rescaled-solve-{group.key}"),
        passes.RESCALED_TABLES_STAGE.cost(shape.n_features, group.n_columns, correlations, group.process),
        bytes_read=group.states + written + compared,
        bytes_written=written,
        clears=layout.RESCALED_OF.format(group.key),
    )


def _correlations_cost(shape: Shape, spec: CorrelationSpec) -> Cost:
    return (Objects(f"distance correlations {spec.name}", 1, total(feature_correlations_cost(shape, spec))),)


def most_rounds(methods: Sequence[Method], solver: str) -> int | None:
    """Return the maximum number of rounds of methods that share passes.

    One for each update of the targets; SSUFS updates them for RLSR's solution, and as often again from there and after
    each halving, where the first update takes no pass. None under "cg", where a round may be a requested product.
    """
    if solver == "cg":
        return None
    return max(_rounds_of(rescaled_parameters(method)) for method in methods)


def _rounds_of(parameters: RescaledParameters) -> int:
    n_more = solution.MAX_HALVINGS + 2 if isinstance(parameters, UncorrelatedParameters) else 0
    return parameters.max_iter + n_more * (parameters.max_iter - 1)


def _all_specs(methods: Sequence[Method]) -> list[CorrelationSpec]:
    specs = (rescaled_parameters(method).correlations for method in methods)
    return [spec for spec in specs if spec is not None]
