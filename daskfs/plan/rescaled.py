"""Plan of RLSR, SSUFS and DSSFS: what comes before the loop, the loop, and the tables, for all methods at once that can
share passes over the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from daskfs.kernels.correlationspec import CorrelationSpec
from daskfs.kernels.rescaled import NEWTON_ITERATIONS
from daskfs.methods.registry import Method
from daskfs.methods.rescaled import RescaledParameters, UncorrelatedParameters
from daskfs.plan.candidates import plan_comoments, stored_values
from daskfs.plan.correlations import held_bytes, plan_correlation, read_bytes
from daskfs.plan.stages import PROCESS_BYTES, WEIGHT_BYTES, Stage, available_bytes
from daskfs.plan.tiles import band_bytes, chunk_bytes
from daskfs.scores.rescaled import MAX_HALVINGS, PURPOSE, block_rows, is_dragged, pass_rows
from daskfs.scores.slab import method_to_json
from daskfs.store import layout
from daskfs.store.tiles import Shape

PLANNED_CLASSES = 16
"""Classes that are planned for where nobody knows yet how many there are."""
HELD_SHARE = 0.7
"""Share of a worker's limit that a process may be filled to between units; Dask pauses a worker at 0.8."""
COPIES = 16
"""Arrays of the size of the weights that a solution has at once."""
PRODUCTS = 8
"""Products that a state holds under "cg", in the mean over the rounds."""


def plan_rescaled(
    shape: Shape,
    methods: Sequence[Method],
    slab_columns: int,
    process_bytes: int,
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
    slab_columns, process_bytes
        As elsewhere.
    memory_limit
        Of one worker, bytes; None where rows are not to be held.
    n_classes
        Number of classes; None where it is not known yet.
    """
    own = [method for method in methods if isinstance(method.parameters, RescaledParameters)]
    stages: dict[str, Stage] = {}
    for spec in _all_specs(own):
        stages |= {s.name: s for s in plan_correlation(shape, spec, slab_columns, process_bytes)}
    groups: dict[str, list[Method]] = {}
    for method in own:
        groups.setdefault(_key(method, shape), []).append(method)
    columns = n_classes or PLANNED_CLASSES
    for key, some in groups.items():
        stages |= {s.name: s for s in _plan_group(shape, key, some, columns, process_bytes, memory_limit)}
    return list(stages.values())


def _key(method: Method, shape: Shape) -> str:
    """Return the name of the group of methods that share passes."""
    parameters = method.parameters
    assert isinstance(parameters, RescaledParameters)
    solver = parameters.solved_by(shape.n_samples, shape.n_features)
    parts = [parameters.score_scaling or "raw", solver, *(["dragged"] if is_dragged(method) else [])]
    return "-".join(parts)


def _plan_group(
    shape: Shape, key: str, methods: Sequence[Method], n_columns: int, process: int, memory_limit: int | None
) -> list[Stage]:
    n, d = shape.n_samples, shape.n_features
    first = methods[0].parameters
    assert isinstance(first, RescaledParameters)
    solver = first.solved_by(n, d)
    raw = [method_to_json(method) for method in methods]
    weights = 8 * d * n_columns
    done, parameters = f"rescaled-tables-{key}", {"key": key, "methods": raw, "solver": solver}
    stages = []
    scaled = process + 200 * d + 24 * n
    read = 8 * 9 * d
    gram = _gram_bytes(shape, solver)
    if solver == "cholesky":
        comoments = plan_comoments(shape, f"rescaled-comoments-{key}", (PURPOSE, {key: d}), first.felt, process)
        comoments = replace(comoments, parameters={**comoments.parameters, "all_features": True})
        stages.append(replace(comoments, needed_until=f"rescaled-scale-{key}"))
        scaled, read = scaled + 3 * 8 * d**2, read + comoments.bytes_written
    clears = layout.COMOMENTS_OF.format(PURPOSE, key)
    written = 8 * 3 * d + (8 * stored_values(d) if solver == "cholesky" else 0)
    stages.append(
        Stage(
            f"rescaled-scale-{key}",
            "rescaled-scale",
            1,
            parameters,
            scaled,
            read,
            written,
            needed_until=done,
            clears=clears,
        )
    )
    specs = {
        s for m in methods if isinstance(m.parameters, UncorrelatedParameters) and (s := m.parameters.correlations)
    }
    kept = process + gram["held"] + sum(held_bytes(shape, spec) for spec in specs)
    height = pass_rows(n)
    n_stretches = -(-n // height)
    per_part = max(1, -(-shape.tile_rows // height))  # a part reads whole bands
    n_parts = -(-n_stretches // per_part)
    passing = _reading_bytes(shape, per_part * height) + 24 * n + 3 * 8 * block_rows(shape) * 2 * n_columns
    passing += len(methods) * weights * (2 * per_part + COPIES)
    solving = gram["working"] + 2 * COPIES * weights + 16 * d + 24 * n  # its state is written from a copy
    if solver == "cg":
        solving += 3 * NEWTON_ITERATIONS * weights
    busy = kept + max(passing, solving)
    available = available_bytes(memory_limit)
    holding = 0
    if memory_limit is not None and available is not None:
        room = min(int(HELD_SHARE * memory_limit) - kept, PROCESS_BYTES + available - busy - WEIGHT_BYTES * n)
        holding = max(0, min(room, shape.x_bytes + 20 * n))
    peak = busy + holding
    loop = {
        "n_parts": n_parts,
        "stretches_per_unit": per_part,
        "held_bytes": holding,
        "unlabelled_only": solver != "cg" and not is_dragged(methods[0]),
    }
    sums = 8 * (d + 2) * (n_columns + 1) * n_stretches * len(methods)
    states = 8 * (COPIES + (PRODUCTS if solver == "cg" else 0)) * d * n_columns * len(methods)
    state_read = (
        states + (8 * stored_values(d) if solver == "cholesky" else 0) + (shape.x_bytes if solver == "woodbury" else 0)
    )
    parts = Stage(
        f"rescaled-rows-{key}",
        "rescaled-rows",
        n_parts,
        {**parameters, **loop},
        peak,
        chunk_bytes(shape) + n_parts * (states + 8 * n + 24 * d),
        sums,
        needed_until=done,
        clears=layout.RESCALED_SUMS_OF.format(key, "{round}"),
        loop=f"rescaled-{key}",
        max_rounds=most_rounds(methods, solver),
    )
    solve = Stage(
        f"rescaled-solve-{key}",
        "rescaled-solve",
        len(methods),
        {**parameters, **loop},
        peak,
        sums + state_read,
        states,
        needed_until=done,
        clears=layout.RESCALED_STATES_OF.format(key, "{before}"),
        loop=f"rescaled-{key}",
        max_rounds=most_rounds(methods, solver),
    )
    tables = process + COPIES * weights + 200 * d + max((held_bytes(shape, s) for s in _all_specs(methods)), default=0)
    closing = {**parameters, "closing": solve.name}
    table_bytes = len(methods) * 8 * (3 + n_columns) * d
    compared = sum(read_bytes(shape, spec) for spec in _all_specs(methods))
    clears = layout.RESCALED_OF.format(key)
    stages += [parts, solve]
    return [
        *stages,
        Stage(
            done,
            "rescaled-tables",
            len(methods),
            closing,
            tables,
            states + table_bytes + compared,
            table_bytes,
            clears=clears,
        ),
    ]


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


def _reading_bytes(shape: Shape, part_rows: int) -> int:
    """Return what a pass takes at once: the rows of a part or of two bands, a tile as stored, decoded and as the rows
    that count, and a block of rows that lies in two bands, scaled, and centered.
    """
    rows, part_rows = block_rows(shape), min(part_rows, 2 * shape.tile_rows)
    if shape.is_sparse:
        per_row = -(-(shape.nnz or 0) // shape.n_samples)
        return 2 * band_bytes(shape) + part_rows * per_row * (shape.itemsize + 4) + 3 * (8 + 4) * per_row * rows
    tile = shape.tile_rows * shape.tile_columns * shape.itemsize
    return (part_rows * shape.itemsize + rows * (2 * shape.itemsize + 16)) * shape.n_features + 3 * tile


def _gram_bytes(shape: Shape, solver: str) -> Mapping[str, int]:
    """Return what a solution holds of S from round to round, and what its systems take beside."""
    n, d = shape.n_samples, shape.n_features
    if solver == "cholesky":
        return {"held": 2 * 8 * d**2, "working": 3 * 8 * d**2}
    if solver == "woodbury":
        few = min(n, d)
        return {"held": 2 * 8 * n * d + 8 * few**2, "working": 2 * 8 * n * d + 3 * 8 * few**2}
    return {"held": 0, "working": 0}
