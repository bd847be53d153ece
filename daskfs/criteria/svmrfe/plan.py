"""Plan of SVMRFE: the route of each method, the rows it keeps, the loops of rounds, and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from daskfs.criteria.registry import Method
from daskfs.criteria.row_blocks import room_between_rounds, row_parts
from daskfs.criteria.svmrfe import elimination, exact, nystroem
from daskfs.criteria.svmrfe.criterion import EXACT_GRAPH_ROWS, EXACT_ROWS, Route, SVMParameters
from daskfs.criteria.svmrfe.elimination import CENTER_BYTES, groups_cost, kept_cost, rows_key, svm_parameters
from daskfs.stages.cost import WORD, Cost, available_bytes, total
from daskfs.stages.stage import PLANNED_CLASSES, Stage
from daskfs.store import layout
from daskfs.store.context import LABEL_CHUNK_ROWS
from daskfs.store.shape import Shape
from daskfs.tiles.row_partitions import RowPartitions
from daskfs.tiles.shapes import chunk_bytes

DEFAULT_BYTES = 4 * 2**30
"""Maximum bytes of machines if no limit is known."""


def plan_svm(
    shape: Shape,
    methods: Sequence[Method],
    process: Cost,
    memory_limit: int | None,
    n_classes: int | None = None,
    n_labeled: int | None = None,
) -> list[Stage]:
    """Plan the stages of all methods of the family among `methods`, after their slabs.

    `n_classes` and `n_labeled`, the number of rows with a label, are None if not known yet.
    """
    loops: dict[str, tuple[Route, list[Method]]] = {}
    for method in methods:
        if isinstance(p := method.parameters, SVMParameters):
            route = route_of(p, shape, n_labeled, memory_limit)
            name = exact.LOOP if route == "exact" else f"svm-landmarks-{p.score_scaling or 'raw'}"
            loops.setdefault(name, (route, []))[1].append(method)
    stages: list[Stage] = []
    for name, (route, methods_of_route) in loops.items():
        sizes = [_n_kept(svm_parameters(method), route, shape, n_labeled, memory_limit) for method in methods_of_route]
        loop = _Loop(shape, name, route, methods_of_route, sizes, process, memory_limit, n_classes or PLANNED_CLASSES)
        rounds = _plan_exact(loop) if route == "exact" else _plan_landmarks(loop)
        stages += [*_plan_rows(loop), *rounds, _plan_tables(loop)]
    return stages


@dataclass(frozen=True)
class _Loop:
    """Methods that share rounds, and the inputs of their plan; `sizes` are numbers of kept rows, or of landmarks."""

    shape: Shape
    name: str
    route: Route
    methods: Sequence[Method]
    sizes: Sequence[int]
    process: Cost
    memory_limit: int | None
    n_classes: int

    @property
    def parameters(self) -> list[SVMParameters]:
        return [svm_parameters(method) for method in self.methods]

    @property
    def scaling(self) -> str:
        """Name of the scaling of a loop over landmarks."""
        return self.name.removeprefix("svm-landmarks-")

    @property
    def tables(self) -> str:
        return self.name.replace("svm-", "svm-tables-", 1)

    @property
    def states(self) -> int:
        """Bytes of the states of all methods."""
        return len(self.methods) * _state_bytes(self.shape.n_features)


def route_of(p: SVMParameters, shape: Shape, n_labeled: int | None, memory_limit: int | None) -> Route:
    """Return the route of a method.

    "auto" trains machines on all rows if these are few enough to solve in reasonable time, and fit a worker. Sums over
    landmarks give only the change of the norm.
    """
    if p.large_n != "auto":
        return p.large_n
    if not p.may_use_landmarks:
        return "exact"
    n_rows = _exact_rows(p, shape, n_labeled)
    few = n_rows <= (EXACT_GRAPH_ROWS if p.laplacian else EXACT_ROWS)
    return "exact" if few and _fits(p, shape, n_rows, memory_limit) else "landmarks"


def _fits(p: SVMParameters, shape: Shape, n_rows: int, memory_limit: int | None) -> bool:
    """Return whether a worker can train machines on `n_rows` rows."""
    limit = available_bytes(memory_limit)
    needed = (*kept_cost(n_rows, shape.n_features, 2), *exact.judging_cost(p, n_rows, shape.n_features))
    return total(needed) <= (DEFAULT_BYTES if limit is None else limit)


def _exact_rows(p: SVMParameters, shape: Shape, n_labeled: int | None) -> int:
    """Return the number of rows that the exact route keeps; all rows if the labels are not known yet."""
    return shape.n_samples if p.laplacian or n_labeled is None else n_labeled


def _n_kept(p: SVMParameters, route: Route, shape: Shape, n_labeled: int | None, memory_limit: int | None) -> int:
    n_rows = _exact_rows(p, shape, n_labeled)
    if route == "landmarks":
        return min(p.n_landmarks, n_rows)
    if n_labeled is None and not p.laplacian:  # labels are not read yet: do not refuse data with few of them
        n_rows = min(n_rows, EXACT_ROWS)
        while n_rows > 2 and not _fits(p, shape, n_rows, memory_limit):
            n_rows //= 2
    return n_rows


def _labels_read(parts: RowPartitions) -> int:
    """Return the bytes of labels that the units read, in whole chunks."""
    rows = parts.per_part * parts.height
    rows = rows if rows % LABEL_CHUNK_ROWS == 0 else rows + LABEL_CHUNK_ROWS
    return parts.n_parts * WORD * min(parts.n_samples, rows)


def _state_bytes(n_features: int) -> int:
    """Return the bytes of the state of a method: the round of each feature, and its criterion."""
    return 2 * WORD * n_features


def _plan_rows(loop: _Loop) -> list[Stage]:
    """Plan the stages that choose and gather the kept rows, once for each group."""
    stages: list[Stage] = []
    n, d = loop.shape.n_samples, loop.shape.n_features
    parts = row_parts(loop.shape)
    groups: dict[str, tuple[Method, int]] = {}
    for method, size in zip(loop.methods, loop.sizes, strict=True):
        groups.setdefault(rows_key(method, loop.route), (method, size))
    for key, (method, n_rows) in groups.items():
        parameters = elimination.KeptRowsParameters(loop.name, key, loop.route, method)
        choose = Stage.of(
            elimination.SVM_CHOOSE_STAGE,
            f"svm-choose-{key}",
            1,
            parameters,
            elimination.SVM_CHOOSE_STAGE.cost(n, n_rows, loop.process),
            bytes_read=2 * WORD * n,
            bytes_written=WORD * n_rows,
            needed_until=loop.tables,
        )
        of_part = WORD * n_rows + CENTER_BYTES * d
        gather = Stage.of(
            elimination.SVM_ROWS_STAGE,
            f"svm-rows-{key}",
            parts.n_parts,
            parameters,
            elimination.SVM_ROWS_STAGE.cost(loop.shape, n_rows, loop.process),
            bytes_read=chunk_bytes(loop.shape) + parts.n_parts * of_part + _labels_read(parts),
            bytes_written=total(kept_cost(n_rows, d)),
            needed_until=loop.tables,
        )
        stages += [choose, gather]
    return stages


def _plan_exact(loop: _Loop) -> list[Stage]:
    """Plan the two stages of a round that trains machines on the kept rows."""
    d, methods, parameters, n_rows = loop.shape.n_features, loop.methods, loop.parameters, loop.sizes
    n_units = len(exact.judging_units(methods, loop.n_classes, d))
    rounds = [total(exact.round_cost(p, n, d)) for p, n in zip(parameters, n_rows, strict=True)]
    copies = total(exact.copies_cost(min(n_rows), d))

    def costs(cache: int) -> tuple[Cost, Cost]:
        return (
            exact.SVM_JUDGE_STAGE.cost(methods, n_rows, d, cache, loop.process),
            exact.SVM_DROP_STAGE.cost(methods, n_rows, d, n_units, cache, loop.process),
        )

    rows = total(groups_cost(methods, "exact", n_rows, d))
    busy, permanent, limit = max(total(cost) for cost in costs(0)), total(loop.process) + rows, loop.memory_limit
    # all rounds, or those that fit in addition to one recomputed round; its copies are counted once if all are cached
    holding = room_between_rounds(loop.shape.n_samples, busy, permanent, limit)
    if limit is None or sum(rounds) <= room_between_rounds(loop.shape.n_samples, busy - copies, permanent, limit):
        holding = sum(rounds)
    judging, dropping = costs(min(holding, sum(rounds) - copies))
    shared = exact.RoundParameters(tuple(methods), holding, tuple(rounds))
    criteria = n_units * WORD * d
    graph = max((2 * WORD * loop.shape.n_samples * p.n_neighbors for p in parameters if p.keeps_graph), default=0)
    judge = Stage.of(
        exact.SVM_JUDGE_STAGE,
        "svm-judge",
        n_units,
        shared,
        judging,
        bytes_read=rows + n_units * (_state_bytes(d) + graph),
        bytes_written=criteria,
    )
    drop = Stage.of(
        exact.SVM_DROP_STAGE,
        "svm-drop",
        len(methods),
        shared,
        dropping,
        bytes_read=criteria + loop.states,
        bytes_written=loop.states,
    )
    return _in_turn(loop, judge, drop, layout.SVM_CRITERIA_OF)


def _plan_landmarks(loop: _Loop) -> list[Stage]:
    """Plan the two stages of a round: a pass over the rows for sums over landmarks, and the solutions."""
    shape, methods, process, m = loop.shape, loop.methods, loop.process, loop.sizes
    d, columns = shape.n_features, loop.n_classes
    parts = nystroem.landmark_parts(shape)
    landmarks = groups_cost(methods, "landmarks", m, d)
    busy = total(nystroem.SVM_SUMS_STAGE.cost(shape, methods, m, columns, 0, process))
    permanent = total(process) + total(groups_cost(methods, "landmarks", m, d, 2))
    whole = total(nystroem.held_rows_cost(shape, loop.parameters[0].score_scaling))
    holding = min(room_between_rounds(loop.shape.n_samples, busy, permanent, loop.memory_limit), whole)
    all_rows = any(p.laplacian for p in loop.parameters)
    shared = nystroem.LandmarksParameters(tuple(methods), loop.name, holding, all_rows)
    written = parts.n_stretches * total(nystroem.all_sums_cost(methods, m, columns))
    of_part = loop.states + total(landmarks) + CENTER_BYTES * d
    passes = Stage.of(
        nystroem.SVM_SUMS_STAGE,
        f"svm-sums-{loop.scaling}",
        parts.n_parts,
        shared,
        nystroem.SVM_SUMS_STAGE.cost(shape, methods, m, columns, holding, process),
        bytes_read=chunk_bytes(shape) + parts.n_parts * of_part + _labels_read(parts),
        bytes_written=written,
    )
    solve = Stage.of(
        nystroem.SVM_SOLVE_STAGE,
        f"svm-solve-{loop.scaling}",
        len(methods),
        shared,
        nystroem.SVM_SOLVE_STAGE.cost(shape, methods, m, columns, holding, process),
        bytes_read=written + loop.states + len(methods) * CENTER_BYTES * d + total(landmarks),
        bytes_written=loop.states,
    )
    return _in_turn(loop, passes, solve, layout.SVM_SUMS_OF)


def _plan_tables(loop: _Loop) -> Stage:
    d, methods = loop.shape.n_features, tuple(loop.methods)
    written = len(methods) * 3 * WORD * d
    closing = "svm-drop" if loop.route == "exact" else f"svm-solve-{loop.scaling}"
    parameters = elimination.EliminationParameters(methods, loop.name, loop.route, tuple(loop.sizes), closing)
    return Stage.of(
        elimination.SVM_TABLES_STAGE,
        loop.tables,
        len(methods),
        parameters,
        elimination.SVM_TABLES_STAGE.cost(d, loop.process),
        bytes_read=written,
        bytes_written=written,
        clears=layout.SVM_OF.format(loop.name),
    )


def _in_turn(loop: _Loop, judge: Stage, close: Stage, round_files: str) -> list[Stage]:
    """Return the two stages of a round, with the settings of the loop."""
    common: dict[str, Any] = {
        "loop": loop.name,
        "max_rounds": max(p.n_rounds(loop.shape.n_features) for p in loop.parameters),
        "needed_until": loop.tables,
    }
    return [
        replace(judge, **common, clears=round_files.format(loop.name, "{round}")),
        replace(close, **common, clears=layout.SVM_STATES_OF.format(loop.name, "{before}")),
    ]
