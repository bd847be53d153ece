"""Plan of RLSR, SSUFS and DSSFS: what comes before the loop, the loop, and the tables, for all methods at once that can
share passes over the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from daskfs.kernels.correlationspec import CorrelationSpec
from daskfs.kernels.rescaled import NEWTON_ITERATIONS
from daskfs.kernels.scaling import without_zscore
from daskfs.methods.registry import Method
from daskfs.methods.rescaled import RescaledParameters, UncorrelatedParameters
from daskfs.scores.candidates import plan_comoments, stored_values
from daskfs.scores.correlationplan import held_bytes, plan_correlation, read_bytes
from daskfs.scores.rescaled import PURPOSE, RESCALED_ROWS_STAGE, RESCALED_SCALE_STAGE, RESCALED_TABLES_STAGE
from daskfs.scores.rescaledsolution import MAX_HALVINGS, RESCALED_SOLVE_STAGE
from daskfs.scores.rescaledstate import is_dragged, row_parts
from daskfs.scores.rowpasses import block_rows, reading_bytes
from daskfs.scores.slab import method_to_json
from daskfs.stages.cost import HELD_SHARE, PROCESS_BYTES, WEIGHT_BYTES, Cost, Fixed, available_bytes, total
from daskfs.stages.stage import PLANNED_CLASSES, Stage
from daskfs.store import layout
from daskfs.store.tiles import Shape
from daskfs.tiles.shapes import chunk_bytes

COPIES = 16
"""Arrays of the size of the weights that a solution has at once."""
PRODUCTS = 8
"""Products that a state holds under "cg", in the mean over the rounds."""


def plan_rescaled(
    shape: Shape,
    methods: Sequence[Method],
    slab_columns: int,
    process: Cost,
    memory_limit: int | None,
    n_classes: int | None = None,
) -> list[Stage]:
    """Stages of all methods of the family, after their slabs.

    Parameters
    ----------
    shape
        Of X.
    methods
        All methods of a job; those of other families are left out.
    slab_columns, process
        As elsewhere.
    memory_limit
        Of one worker, bytes; None where rows are not to be held.
    n_classes
        Number of classes; None where it is not known yet.
    """
    own = [method for method in methods if isinstance(method.parameters, RescaledParameters)]
    stages: dict[str, Stage] = {}
    for spec in _all_specs(own):
        stages |= {s.name: s for s in plan_correlation(shape, spec, slab_columns, process)}
    groups: dict[str, list[Method]] = {}
    for method in own:
        groups.setdefault(_key(method, shape), []).append(method)
    columns = n_classes or PLANNED_CLASSES
    for key, some in groups.items():
        group = _Group(shape, key, some, columns, process)
        stages |= {s.name: s for s in _plan_group(group, memory_limit)}
    return list(stages.values())


def _key(method: Method, shape: Shape) -> str:
    """Return the name of the group of methods that share passes."""
    parameters = method.parameters
    assert isinstance(parameters, RescaledParameters)
    solver = parameters.solved_by(shape.n_samples, shape.n_features)
    parts = [parameters.score_scaling or "raw", solver, *(["dragged"] if is_dragged(method) else [])]
    return "-".join(parts)


@dataclass(frozen=True)
class _Group:
    """Methods that share passes, with what their stages are planned from; the targets have `n_columns` columns."""

    shape: Shape
    key: str
    methods: Sequence[Method]
    n_columns: int
    process: Cost

    @property
    def first(self) -> RescaledParameters:
        """Parameters of the first method, whose scaling and solver are those of all."""
        first = self.methods[0].parameters
        assert isinstance(first, RescaledParameters)
        return first

    @property
    def solver(self) -> str:
        return self.first.solved_by(self.shape.n_samples, self.shape.n_features)

    @property
    def parameters(self) -> dict[str, Any]:
        """What all stages are told."""
        return {"key": self.key, "methods": [method_to_json(m) for m in self.methods], "solver": self.solver}

    @property
    def weights(self) -> int:
        """Bytes of the weights of one method."""
        return 8 * self.shape.n_features * self.n_columns

    @property
    def states(self) -> int:
        """Bytes of the states of all methods."""
        return (COPIES + (PRODUCTS if self.solver == "cg" else 0)) * self.weights * len(self.methods)

    @property
    def stored_gram(self) -> int:
        """Bytes of S in the store."""
        return 8 * stored_values(self.shape.n_features) if self.solver == "cholesky" else 0

    @property
    def tables(self) -> str:
        """Name of the last stage."""
        return f"rescaled-tables-{self.key}"


def _plan_group(group: _Group, memory_limit: int | None) -> list[Stage]:
    return [*_plan_scale(group), *_plan_loop(group, memory_limit), _plan_tables(group)]


def _plan_scale(group: _Group) -> list[Stage]:
    """Stages that make center, scale and S, where it is made."""
    d, key = group.shape.n_features, group.key
    stages: list[Stage] = []
    peak, read = total(group.process) + 200 * d + 24 * group.shape.n_samples, 8 * 11 * d
    if group.solver == "cholesky":
        scaling = without_zscore(group.first.score_scaling)
        made = plan_comoments(group.shape, f"rescaled-comoments-{key}", (PURPOSE, {key: d}), scaling, group.process)
        made = replace(made, parameters={**made.parameters, "all_features": True})
        stages.append(replace(made, needed_until=f"rescaled-scale-{key}"))
        peak, read = peak + 3 * 8 * d**2, read + made.bytes_written
    scale = Stage.of(
        RESCALED_SCALE_STAGE,
        f"rescaled-scale-{key}",
        1,
        group.parameters,
        (Fixed("rest", peak),),
        bytes_read=read,
        bytes_written=8 * 3 * d + group.stored_gram,
        needed_until=group.tables,
        clears=layout.COMOMENTS_OF.format(PURPOSE, key),
    )
    return [*stages, scale]


def _plan_loop(group: _Group, memory_limit: int | None) -> list[Stage]:
    """The two stages of the rounds: a pass over the rows, and the solutions of all methods."""
    shape, key, n_methods = group.shape, group.key, len(group.methods)
    cut, states = row_parts(shape), group.states
    kept, busy = _kept_bytes(group), _busy_bytes(group)
    holding = _holding(shape, kept, kept + busy, memory_limit)
    sums = 8 * (shape.n_features + 2) * (group.n_columns + 1) * cut.n_stretches * n_methods
    parameters = {
        **group.parameters,
        "held_bytes": holding,
        "unlabelled_only": group.solver != "cg" and not is_dragged(group.methods[0]),
    }
    of_rows = chunk_bytes(shape) + cut.n_parts * (states + 8 * shape.n_samples + 24 * shape.n_features)
    of_solutions = sums + states + group.stored_gram + (shape.x_bytes if group.solver == "woodbury" else 0)
    parts = Stage.of(
        RESCALED_ROWS_STAGE,
        f"rescaled-rows-{key}",
        cut.n_parts,
        parameters,
        (Fixed("rest", kept + busy + holding),),
        bytes_read=of_rows,
        bytes_written=sums,
        needed_until=group.tables,
        clears=layout.RESCALED_SUMS_OF.format(key, "{round}"),
        loop=f"rescaled-{key}",
        max_rounds=most_rounds(group.methods, group.solver),
    )
    solve = replace(
        parts,
        name=f"rescaled-solve-{key}",
        kind=RESCALED_SOLVE_STAGE.reference,
        n_units=n_methods,
        bytes_read=of_solutions,
        bytes_written=states,
        clears=layout.RESCALED_STATES_OF.format(key, "{before}"),
    )
    return [parts, solve]


def _kept_bytes(group: _Group) -> int:
    """Return what a process keeps from round to round beside rows: itself, S, and correlations of features."""
    own = (m.parameters for m in group.methods)
    specs = {p.correlations for p in own if isinstance(p, UncorrelatedParameters) and p.correlations}
    held = sum(held_bytes(group.shape, spec) for spec in specs)
    return total(group.process) + _gram_bytes(group.shape, group.solver)["held"] + held


def _busy_bytes(group: _Group) -> int:
    """Return what a pass or a solution takes beside, whichever takes more."""
    shape, weights, cut = group.shape, group.weights, row_parts(group.shape)
    n, d = shape.n_samples, shape.n_features
    passing = reading_bytes(shape, cut.per_part * cut.height) + 24 * n
    passing += 3 * 8 * block_rows(shape) * 2 * group.n_columns
    passing += len(group.methods) * weights * (2 * cut.per_part + COPIES)
    solving = _gram_bytes(shape, group.solver)["working"] + 16 * d + 24 * n
    solving += 2 * COPIES * weights  # a state is written from a copy
    if group.solver == "cg":
        solving += 3 * NEWTON_ITERATIONS * weights
    return max(passing, solving)


def _holding(shape: Shape, kept: int, peak: int, memory_limit: int | None) -> int:
    """Return how much of the rows a process may hold from round to round."""
    available = available_bytes(memory_limit)
    if memory_limit is None or available is None:
        return 0
    room = min(int(HELD_SHARE * memory_limit) - kept, PROCESS_BYTES + available - peak - WEIGHT_BYTES * shape.n_samples)
    return max(0, min(room, shape.x_bytes + 20 * shape.n_samples))


def _plan_tables(group: _Group) -> Stage:
    """The stage that writes what the loop has come to."""
    shape, specs = group.shape, _all_specs(group.methods)
    peak = total(group.process) + COPIES * group.weights + 200 * shape.n_features
    peak += max((held_bytes(shape, spec) for spec in specs), default=0)
    written = len(group.methods) * 8 * (3 + group.n_columns) * shape.n_features
    compared = sum(read_bytes(shape, spec) for spec in specs)
    return Stage.of(
        RESCALED_TABLES_STAGE,
        group.tables,
        len(group.methods),
        {**group.parameters, "closing": f"rescaled-solve-{group.key}"},
        (Fixed("rest", peak),),
        bytes_read=group.states + written + compared,
        bytes_written=written,
        clears=layout.RESCALED_OF.format(group.key),
    )


def most_rounds(methods: Sequence[Method], solver: str) -> int | None:
    """Return how many rounds some methods that share passes take at most.

    One for each update of the targets; SSUFS updates them for RLSR's solution, and as often again from there and after
    each halving, where the first time takes no pass. None where a round may be a product that a solution asks for.
    """
    if solver == "cg":
        return None
    return max(_rounds_of(method) for method in methods)


def _rounds_of(method: Method) -> int:
    parameters = method.parameters
    assert isinstance(parameters, RescaledParameters)
    n_more = MAX_HALVINGS + 2 if isinstance(parameters, UncorrelatedParameters) else 0
    return parameters.max_iter + n_more * (parameters.max_iter - 1)


def _all_specs(methods: Sequence[Method]) -> list[CorrelationSpec]:
    own = (method.parameters for method in methods)
    return [p.correlations for p in own if isinstance(p, RescaledParameters) and p.correlations is not None]


def _gram_bytes(shape: Shape, solver: str) -> Mapping[str, int]:
    """Return what a solution holds of S from round to round, and what its systems take beside."""
    n, d = shape.n_samples, shape.n_features
    if solver == "cholesky":
        return {"held": 2 * 8 * d**2, "working": 3 * 8 * d**2}
    if solver == "woodbury":
        few = min(n, d)
        return {"held": 2 * 8 * n * d + 8 * few**2, "working": 2 * 8 * n * d + 3 * 8 * few**2}
    return {"held": 0, "working": 0}
