"""Plan of SVMRFE: the route of each method, the rows it keeps, the loops of rounds, and the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from daskfs.criteria.registry import Method
from daskfs.criteria.row_partitions import RowPartitions, weights_cost
from daskfs.criteria.slab import method_to_json
from daskfs.criteria.svmrfe.criterion import EXACT_GRAPH_ROWS, EXACT_ROWS, Route, SVMParameters
from daskfs.criteria.svmrfe.elimination import (
    CENTER_BYTES,
    SVM_CHOOSE_STAGE,
    SVM_ROWS_STAGE,
    SVM_TABLES_STAGE,
    gather_parts,
    groups_cost,
    kept_cost,
    rows_key,
    svm_parameters,
)
from daskfs.criteria.svmrfe.exact import (
    LOOP,
    SVM_DROP_STAGE,
    SVM_JUDGE_STAGE,
    copies_cost,
    judging_units,
    round_cost,
    training_cost,
)
from daskfs.criteria.svmrfe.nystroem import (
    SVM_SOLVE_STAGE,
    SVM_SUMS_STAGE,
    all_sums_cost,
    held_rows_cost,
    landmark_parts,
)
from daskfs.stages.cost import HELD_SHARE, PROCESS_BYTES, WORD, Cost, available_bytes, total
from daskfs.stages.stage import PLANNED_CLASSES, Stage
from daskfs.store import layout
from daskfs.store.context import LABEL_CHUNK_ROWS
from daskfs.store.tiles import Shape
from daskfs.tiles.shapes import chunk_bytes

DEFAULT_BYTES = 4 * 2**30
"""Maximum bytes of machines if no limit is known."""


def plan_svm(
    shape: Shape,
    methods: Sequence[Method],
    process: Cost,
    memory_limit: int | None,
    n_classes: int | None = None,
    n_labelled: int | None = None,
) -> list[Stage]:
    """Plan the stages of all methods of the family, after their slabs.

    Parameters
    ----------
    shape
        Shape of X.
    methods
        All methods of a job; those of other families are left out.
    process, memory_limit
        As elsewhere.
    n_classes, n_labelled
        Number of classes, and of rows with a label; None if not known yet.
    """
    loops: dict[str, tuple[Route, list[Method]]] = {}
    for method in methods:
        if isinstance(p := method.parameters, SVMParameters):
            route = route_of(p, shape, n_labelled, memory_limit)
            name = LOOP if route == "exact" else f"svm-landmarks-{p.score_scaling or 'raw'}"
            loops.setdefault(name, (route, []))[1].append(method)
    stages: list[Stage] = []
    for loop, (route, own) in loops.items():
        sizes = [_sizes(svm_parameters(method), route, shape, n_labelled, memory_limit) for method in own]
        stages += _plan_rows(shape, loop, route, own, sizes, process)
        plan = _plan_exact if route == "exact" else _plan_landmarks
        stages += plan(shape, loop, own, sizes, process, memory_limit, n_classes)
        stages.append(_plan_tables(shape, loop, route, own, sizes, process))
    return stages


def route_of(p: SVMParameters, shape: Shape, n_labelled: int | None, memory_limit: int | None) -> Route:
    """Return the route of a method.

    "auto" trains machines on all rows if these are few enough to solve in reasonable time, and fit a worker. Sums over
    landmarks give only the change of the norm.
    """
    if p.large_n != "auto":
        return p.large_n
    if not p.may_use_landmarks:
        return "exact"
    n_rows = _exact_rows(p, shape, n_labelled)
    few = n_rows <= (EXACT_GRAPH_ROWS if p.laplacian else EXACT_ROWS)
    return "exact" if few and _fits(p, shape, n_rows, memory_limit) else "landmarks"


def _fits(p: SVMParameters, shape: Shape, n_rows: int, memory_limit: int | None) -> bool:
    """Return whether a worker can train machines on `n_rows` rows."""
    limit = available_bytes(memory_limit)
    return total(training_cost(p, n_rows, shape.n_features)) <= (DEFAULT_BYTES if limit is None else limit)


def _exact_rows(p: SVMParameters, shape: Shape, n_labelled: int | None) -> int:
    """Return the number of rows that the exact route keeps; all rows if the labels are not known yet."""
    return shape.n_samples if p.laplacian or n_labelled is None else n_labelled


def _sizes(
    p: SVMParameters, route: Route, shape: Shape, n_labelled: int | None, memory_limit: int | None
) -> dict[str, int]:
    n_rows = _exact_rows(p, shape, n_labelled)
    if route == "landmarks":
        return {"n_landmarks": min(p.n_landmarks, n_rows)}
    if n_labelled is None and not p.laplacian:  # labels are not read yet: do not refuse data with few of them
        n_rows = min(n_rows, EXACT_ROWS)
        while n_rows > 2 and not _fits(p, shape, n_rows, memory_limit):
            n_rows //= 2
    return {"n_rows": n_rows}


def _labels_read(parts: RowPartitions) -> int:
    """Return the bytes of labels that the units read, in whole chunks."""
    rows = parts.per_part * parts.height
    rows = rows if rows % LABEL_CHUNK_ROWS == 0 else rows + LABEL_CHUNK_ROWS
    return parts.n_parts * WORD * min(parts.n_samples, rows)


def _state_bytes(n_methods: int, n_features: int) -> int:
    """Return the bytes of the states of some methods: the round of each feature, and its criterion."""
    return n_methods * 2 * WORD * n_features


def _plan_rows(
    shape: Shape,
    loop: str,
    route: Route,
    methods: Sequence[Method],
    sizes: Sequence[Mapping[str, int]],
    process: Cost,
) -> list[Stage]:
    """Plan the stages that choose and gather the kept rows, once for each group."""
    stages: list[Stage] = []
    n, d = shape.n_samples, shape.n_features
    parts = gather_parts(shape)
    groups: dict[str, tuple[Method, int]] = {}
    for method, size in zip(methods, sizes, strict=True):
        groups.setdefault(rows_key(method, route), (method, next(iter(size.values()))))
    for key, (method, n_rows) in groups.items():
        parameters = {"loop": loop, "key": key, "route": route, "methods": [method_to_json(method)]}
        choosing = SVM_CHOOSE_STAGE.cost(n, n_rows, process)
        stages.append(
            Stage.of(
                SVM_CHOOSE_STAGE,
                f"svm-choose-{key}",
                1,
                parameters,
                choosing,
                bytes_read=2 * WORD * n,
                bytes_written=WORD * n_rows,
                needed_until=_tables(loop),
            )
        )
        of_part = WORD * n_rows + CENTER_BYTES * d
        stages.append(
            Stage.of(
                SVM_ROWS_STAGE,
                f"svm-rows-{key}",
                parts.n_parts,
                parameters,
                SVM_ROWS_STAGE.cost(shape, n_rows, process),
                bytes_read=chunk_bytes(shape) + parts.n_parts * of_part + _labels_read(parts),
                bytes_written=total(kept_cost(n_rows, d)),
                needed_until=_tables(loop),
            )
        )
    return stages


def _plan_exact(
    shape: Shape,
    loop: str,
    methods: Sequence[Method],
    sizes: Sequence[Mapping[str, int]],
    process: Cost,
    memory_limit: int | None,
    n_classes: int | None,
) -> list[Stage]:
    d, parameters = shape.n_features, [svm_parameters(method) for method in methods]
    n_rows = [size["n_rows"] for size in sizes]
    n_units = len(judging_units(list(methods), n_classes or PLANNED_CLASSES, d))
    rounds = [total(round_cost(p, n, d)) for p, n in zip(parameters, n_rows, strict=True)]
    own = total(copies_cost(min(n_rows), d))

    def costs(held: int) -> tuple[Cost, Cost]:
        return (
            SVM_JUDGE_STAGE.cost(methods, n_rows, d, held, process),
            SVM_DROP_STAGE.cost(methods, n_rows, d, n_units, held, process),
        )

    rows = total(groups_cost(methods, "exact", n_rows, d))
    busy, kept = max(total(cost) for cost in costs(0)), total(process) + rows
    holding = _held_rounds(shape, busy, kept, rounds, own, memory_limit)
    judging, dropping = costs(min(holding, sum(rounds) - own))
    shared = {"methods": [method_to_json(m) for m in methods], "held_bytes": holding, "round_bytes": rounds}
    states, criteria = _state_bytes(len(methods), d), n_units * WORD * d
    graph = max((2 * WORD * shape.n_samples * p.n_neighbors for p in parameters if p.keeps_graph), default=0)
    judge = Stage.of(
        SVM_JUDGE_STAGE,
        "svm-judge",
        n_units,
        shared,
        judging,
        bytes_read=rows + n_units * (_state_bytes(1, d) + graph),
        bytes_written=criteria,
    )
    drop = Stage.of(
        SVM_DROP_STAGE,
        "svm-drop",
        len(methods),
        shared,
        dropping,
        bytes_read=criteria + states,
        bytes_written=states,
    )
    return _in_turn(loop, judge, drop, methods, d, layout.SVM_CRITERIA_OF)


def _held_rounds(shape: Shape, busy: int, kept: int, rounds: Sequence[int], own: int, memory_limit: int | None) -> int:
    """Return the bytes of rounds that a process may cache: all, or those that fit in addition to one recomputed round.

    `busy` includes one round; `own` bytes of it are counted once if all are cached.
    """
    everything = sum(rounds)
    if memory_limit is None or everything <= _room(shape, busy - own, kept, memory_limit):
        return everything
    return _room(shape, busy, kept, memory_limit)


def _plan_landmarks(
    shape: Shape,
    loop: str,
    methods: Sequence[Method],
    sizes: Sequence[Mapping[str, int]],
    process: Cost,
    memory_limit: int | None,
    n_classes: int | None,
) -> list[Stage]:
    d, columns = shape.n_features, n_classes or PLANNED_CLASSES
    m = [size["n_landmarks"] for size in sizes]
    parts = landmark_parts(shape)
    landmarks = groups_cost(methods, "landmarks", m, d)
    busy = total(SVM_SUMS_STAGE.cost(shape, methods, m, columns, 0, process))
    kept = total(process) + total(groups_cost(methods, "landmarks", m, d, 2))
    whole = total(held_rows_cost(shape, svm_parameters(methods[0]).score_scaling))
    holding = 0 if memory_limit is None else min(_room(shape, busy, kept, memory_limit), whole)
    shared = {
        "methods": [method_to_json(o) for o in methods],
        "loop": loop,
        "held_bytes": holding,
        "all_rows": any(svm_parameters(method).laplacian for method in methods),
    }
    written = parts.n_stretches * total(all_sums_cost(methods, m, columns))
    states = _state_bytes(len(methods), d)
    scaling = loop.removeprefix("svm-landmarks-")
    of_part = states + total(landmarks) + CENTER_BYTES * d
    passes = Stage.of(
        SVM_SUMS_STAGE,
        f"svm-sums-{scaling}",
        parts.n_parts,
        shared,
        SVM_SUMS_STAGE.cost(shape, methods, m, columns, holding, process),
        bytes_read=chunk_bytes(shape) + parts.n_parts * of_part + _labels_read(parts),
        bytes_written=written,
    )
    solve = Stage.of(
        SVM_SOLVE_STAGE,
        f"svm-solve-{scaling}",
        len(methods),
        shared,
        SVM_SOLVE_STAGE.cost(shape, methods, m, columns, holding, process),
        bytes_read=written + states + len(methods) * CENTER_BYTES * d + total(landmarks),
        bytes_written=states,
    )
    return _in_turn(loop, passes, solve, methods, d, layout.SVM_SUMS_OF)


def _room(shape: Shape, busy: int, kept: int, memory_limit: int) -> int:
    """Return the bytes that a process may cache between rounds in addition to its peak memory."""
    free = PROCESS_BYTES + (available_bytes(memory_limit) or 0) - busy - total(weights_cost(shape.n_samples))
    return max(0, min(free, int(HELD_SHARE * memory_limit) - kept))


def _plan_tables(
    shape: Shape,
    loop: str,
    route: Route,
    methods: Sequence[Method],
    sizes: Sequence[Mapping[str, int]],
    process: Cost,
) -> Stage:
    d = shape.n_features
    written = len(methods) * 3 * WORD * d
    parameters = {
        "methods": [method_to_json(method) for method in methods],
        "loop": loop,
        "route": route,
        "sizes": [dict(size) for size in sizes],
        "closing": "svm-drop" if route == "exact" else f"svm-solve-{loop.removeprefix('svm-landmarks-')}",
    }
    clears = layout.SVM_OF.format(loop)
    return Stage.of(
        SVM_TABLES_STAGE,
        _tables(loop),
        len(methods),
        parameters,
        SVM_TABLES_STAGE.cost(d, process),
        bytes_read=written,
        bytes_written=written,
        clears=clears,
    )


def _tables(loop: str) -> str:
    """Return the name of the stage that writes the tables of a loop."""
    return loop.replace("svm-", "svm-tables-", 1)


def _in_turn(
    loop: str, judge: Stage, close: Stage, methods: Sequence[Method], n_features: int, round_files: str
) -> list[Stage]:
    """Return the two stages of a round, with the settings of the loop."""
    common: dict[str, Any] = {
        "loop": loop,
        "max_rounds": max(svm_parameters(method).n_rounds(n_features) for method in methods),
        "needed_until": _tables(loop),
    }
    return [
        replace(judge, **common, clears=round_files.format(loop, "{round}")),
        replace(close, **common, clears=layout.SVM_STATES_OF.format(loop, "{before}")),
    ]
