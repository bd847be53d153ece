"""Plan of SVMRFE: which route each method takes, the rows it keeps, the loops of rounds, and the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from daskfs.kernels.scaling import without_zscore
from daskfs.kernels.svm import RADIUS_ROWS
from daskfs.methods.registry import Method
from daskfs.methods.svm import EXACT_GRAPH_ROWS, EXACT_ROWS, Route, SVMParameters
from daskfs.scores.elimination import (
    SVM_CHOOSE_STAGE,
    SVM_ROWS_STAGE,
    SVM_TABLES_STAGE,
    gather_parts,
    rows_key,
    svm_parameters,
)
from daskfs.scores.landmarks import SVM_SOLVE_STAGE, SVM_SUMS_STAGE, landmark_parts
from daskfs.scores.machines import LOOP, SVM_DROP_STAGE, SVM_JUDGE_STAGE, judging_units
from daskfs.scores.rowpasses import Parts, block_rows, reading_bytes
from daskfs.scores.slab import method_to_json
from daskfs.stages.cost import HELD_SHARE, PROCESS_BYTES, WEIGHT_BYTES, Cost, Fixed, MiB, available_bytes, total
from daskfs.stages.stage import PLANNED_CLASSES, Stage
from daskfs.store import layout
from daskfs.store.context import LABEL_CHUNK_ROWS
from daskfs.store.tiles import Shape
from daskfs.tiles.shapes import chunk_bytes

LIBSVM_BYTES = 500 * MiB
"""LIBSVM's cache of kernel rows, at most; it is never larger than the kernel."""
CENTER_BYTES = 96
"""What is read of each feature to center and to scale rows: moments, of the slabs and of the tiles."""
DEFAULT_BYTES = 4 * 2**30
"""What machines may take where no limit is known."""


def plan_svm(
    shape: Shape,
    methods: Sequence[Method],
    process: Cost,
    memory_limit: int | None,
    n_classes: int | None = None,
    n_labelled: int | None = None,
) -> list[Stage]:
    """Stages of all methods of the family, after their slabs.

    Parameters
    ----------
    shape
        Of X.
    methods
        All methods of a job; those of other families are left out.
    process, memory_limit
        As elsewhere.
    n_classes, n_labelled
        Number of classes, and of rows with a label; None where they are not known yet.
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
    """Return the route of a method: "auto" trains machines with all rows as long as these are few enough to be solved
    in a while, and fit a worker; sums over landmarks can say no more than what the norm loses.
    """
    if p.large_n != "auto":
        return p.large_n
    if not p.may_use_landmarks:
        return "exact"
    n_rows = _exact_rows(p, shape, n_labelled)
    few = n_rows <= (EXACT_GRAPH_ROWS if p.laplacian else EXACT_ROWS)
    return "exact" if few and _fits(p, shape, n_rows, memory_limit) else "landmarks"


def _fits(p: SVMParameters, shape: Shape, n_rows: int, memory_limit: int | None) -> bool:
    """Return whether a worker can train machines with so many rows."""
    limit = available_bytes(memory_limit)
    return _judging_bytes(p, n_rows, shape.n_features) <= (DEFAULT_BYTES if limit is None else limit)


def _exact_rows(p: SVMParameters, shape: Shape, n_labelled: int | None) -> int:
    """Return how many rows the exact route keeps; where nobody knows yet how many are labelled, as if all were."""
    return shape.n_samples if p.laplacian or n_labelled is None else n_labelled


def _sizes(
    p: SVMParameters, route: Route, shape: Shape, n_labelled: int | None, memory_limit: int | None
) -> dict[str, int]:
    n_rows = _exact_rows(p, shape, n_labelled)
    if route == "landmarks":
        return {"n_landmarks": min(p.n_landmarks, n_rows)}
    if n_labelled is None and not p.laplacian:  # a plan before the labels are read must not refuse a few of them
        n_rows = min(n_rows, EXACT_ROWS)
        while n_rows > 2 and not _fits(p, shape, n_rows, memory_limit):
            n_rows //= 2
    return {"n_rows": n_rows}


def _label_bytes(parts: Parts) -> int:
    """Return what a unit knows of the rows it goes through: labels, weights, and which are wanted."""
    return 48 * min(parts.n_samples, max(parts.per_part * parts.height, LABEL_CHUNK_ROWS))


def _labels_read(parts: Parts) -> int:
    """Return the bytes of labels that the units read, in whole chunks."""
    rows = parts.per_part * parts.height
    return parts.n_parts * 8 * min(parts.n_samples, rows if rows % LABEL_CHUNK_ROWS == 0 else rows + LABEL_CHUNK_ROWS)


def _held_rows(n_rows: int, n_features: int) -> int:
    return 8 * n_rows * n_features + 24 * n_rows


def _round_bytes(p: SVMParameters, n_rows: int) -> int:
    """Return what a process keeps of a round: squared distances, the kernel, and under a graph the deformed one and
    what pulls it.
    """
    return 8 * n_rows**2 * (4 if p.laplacian else 2)


def _working_bytes(p: SVMParameters, n_rows: int, n_features: int) -> int:
    """Return what judging takes beside: a system of the free rows and its factor, or a candidate's kernel, its change
    and a product with it; LIBSVM's cache; the columns that are left, and products with them.
    """
    matrices = 3 + (2 if p.laplacian else 0)
    radius = 8 * min(RADIUS_ROWS, n_rows) ** 2 * (p.criterion == "rmb")
    return 8 * matrices * n_rows**2 + min(LIBSVM_BYTES, 4 * n_rows**2) + radius + 3 * 8 * n_rows * n_features


def _judging_bytes(p: SVMParameters, n_rows: int, n_features: int) -> int:
    """Return what a process takes beyond itself while it judges for one method."""
    return 2 * _held_rows(n_rows, n_features) + _round_bytes(p, n_rows) + _working_bytes(p, n_rows, n_features)


def _plan_rows(
    shape: Shape,
    loop: str,
    route: Route,
    methods: Sequence[Method],
    sizes: Sequence[Mapping[str, int]],
    process: Cost,
) -> list[Stage]:
    """Stages that choose and gather the rows that are kept, once for each group."""
    stages: list[Stage] = []
    n, d = shape.n_samples, shape.n_features
    parts = gather_parts(shape)
    groups: dict[str, tuple[Method, int]] = {}
    for method, size in zip(methods, sizes, strict=True):
        groups.setdefault(rows_key(method, route), (method, next(iter(size.values()))))
    for key, (method, n_rows) in groups.items():
        parameters = {"loop": loop, "key": key, "route": route, "methods": [method_to_json(method)]}
        choosing, written = total(process) + 40 * n + 24 * n_rows, _held_rows(n_rows, d)
        stages.append(
            Stage.of(
                SVM_CHOOSE_STAGE,
                f"svm-choose-{key}",
                1,
                parameters,
                (Fixed("rest", choosing),),
                bytes_read=16 * n,
                bytes_written=8 * n_rows,
                needed_until=_tables(loop),
            )
        )
        of_part = min(n_rows, parts.per_part * parts.height)
        peak = total(process) + reading_bytes(shape, parts.per_part * parts.height) + _label_bytes(parts) + 200 * d
        peak += 8 * n_rows + 2 * 8 * d * of_part + 3 * 8 * d * block_rows(shape)
        read = chunk_bytes(shape) + parts.n_parts * (8 * n_rows + CENTER_BYTES * d) + _labels_read(parts)
        stages.append(
            Stage.of(
                SVM_ROWS_STAGE,
                f"svm-rows-{key}",
                parts.n_parts,
                parameters,
                (Fixed("rest", peak),),
                bytes_read=read,
                bytes_written=written,
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
    rows = sum({rows_key(m, "exact"): _held_rows(n, d) for m, n in zip(methods, n_rows, strict=True)}.values())
    rounds = [_round_bytes(p, n) for p, n in zip(parameters, n_rows, strict=True)]
    working = [_working_bytes(p, n, d) for p, n in zip(parameters, n_rows, strict=True)]
    busy = total(process) + 2 * rows + max(made + own for made, own in zip(rounds, working, strict=True))
    holding = (
        sum(rounds)
        if memory_limit is None
        else min(sum(rounds), _room(shape, busy, total(process) + rows, memory_limit))
    )
    shared = {"methods": [method_to_json(m) for m in methods], "held_bytes": holding, "round_bytes": rounds}
    n_units = len(judging_units(list(methods), n_classes or PLANNED_CLASSES, d))
    states, criteria = len(methods) * 2 * 8 * d, n_units * 8 * d
    graph = max((16 * shape.n_samples * p.n_neighbors for p in parameters if p.keeps_graph), default=0)
    judge_read = rows + n_units * (2 * 8 * d + graph)
    judge = Stage.of(
        SVM_JUDGE_STAGE,
        "svm-judge",
        n_units,
        shared,
        (Fixed("rest", busy + holding),),
        bytes_read=judge_read,
        bytes_written=criteria,
    )
    dropping = total(process) + 2 * rows + holding + 400 * d + criteria
    drop = Stage.of(
        SVM_DROP_STAGE,
        "svm-drop",
        len(methods),
        shared,
        (Fixed("rest", dropping),),
        bytes_read=criteria + states,
        bytes_written=states,
    )
    return _in_turn(loop, judge, drop, methods, d, layout.SVM_CRITERIA_OF)


def _plan_landmarks(
    shape: Shape,
    loop: str,
    methods: Sequence[Method],
    sizes: Sequence[Mapping[str, int]],
    process: Cost,
    memory_limit: int | None,
    n_classes: int | None,
) -> list[Stage]:
    n, d, columns = shape.n_samples, shape.n_features, n_classes or PLANNED_CLASSES
    m = [size["n_landmarks"] for size in sizes]
    parts, height = landmark_parts(shape), block_rows(shape)
    sums = sum(_sum_bytes(svm_parameters(method), k, columns) for method, k in zip(methods, m, strict=True))
    landmarks = {rows_key(o, "landmarks"): _held_rows(k, d) for o, k in zip(methods, m, strict=True)}
    kept = total(process) + 2 * sum(landmarks.values())
    passing = reading_bytes(shape, parts.per_part * parts.height) + _label_bytes(parts) + (parts.per_part + 2) * sums
    passing += 8 * height * (3 * d + 6 * max(m) + 2 * columns) + 2 * 8 * sum(m) * d
    solving = 3 * sums + 8 * (8 * max(m) ** 2 + 4 * max(m) * d)
    busy = kept + max(passing, solving)
    is_stored = without_zscore(svm_parameters(methods[0]).score_scaling) is None  # else rows are held as float64
    whole = shape.x_bytes * (1 if is_stored else max(1, 8 // shape.itemsize)) + 20 * n
    holding = 0 if memory_limit is None else min(_room(shape, busy, kept, memory_limit), whole)
    all_rows = any(svm_parameters(method).laplacian for method in methods)
    shared = {
        "methods": [method_to_json(o) for o in methods],
        "loop": loop,
        "held_bytes": holding,
        "all_rows": all_rows,
    }
    written, states = parts.n_stretches * sums, len(methods) * 2 * 8 * d
    read = chunk_bytes(shape) + parts.n_parts * (states + sum(landmarks.values()) + CENTER_BYTES * d)
    read += _labels_read(parts)
    scaling = loop.removeprefix("svm-landmarks-")
    passes = Stage.of(
        SVM_SUMS_STAGE,
        f"svm-sums-{scaling}",
        parts.n_parts,
        shared,
        (Fixed("rest", busy + holding),),
        bytes_read=read,
        bytes_written=written,
    )
    taken = written + states + len(methods) * CENTER_BYTES * d + sum(landmarks.values())
    solve = Stage.of(
        SVM_SOLVE_STAGE,
        f"svm-solve-{scaling}",
        len(methods),
        shared,
        (Fixed("rest", busy + holding),),
        bytes_read=taken,
        bytes_written=states,
    )
    return _in_turn(loop, passes, solve, methods, d, layout.SVM_SUMS_OF)


def _room(shape: Shape, busy: int, kept: int, memory_limit: int) -> int:
    """Return what a process may hold from round to round beside what it takes when it is busy."""
    free = PROCESS_BYTES + (available_bytes(memory_limit) or 0) - busy - WEIGHT_BYTES * shape.n_samples
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
    written = len(methods) * 3 * 8 * d
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
        (Fixed("rest", total(process) + 400 * d),),
        bytes_read=written,
        bytes_written=written,
        clears=clears,
    )


def _tables(loop: str) -> str:
    """Return the name of the stage that closes a loop."""
    return loop.replace("svm-", "svm-tables-", 1)


def _sum_bytes(p: SVMParameters, n_landmarks: int, n_columns: int) -> int:
    """Return what the sums of one stretch take."""
    return 8 * ((3 if p.laplacian else 1) * n_landmarks**2 + n_landmarks * (n_columns + 2) + n_columns + 2)


def _in_turn(
    loop: str, judge: Stage, close: Stage, methods: Sequence[Method], n_features: int, round_files: str
) -> list[Stage]:
    """Return the two stages of a loop of rounds."""
    common: dict[str, Any] = {
        "loop": loop,
        "max_rounds": max(svm_parameters(method).n_rounds(n_features) for method in methods),
        "needed_until": _tables(loop),
    }
    return [
        replace(judge, **common, clears=round_files.format(loop, "{round}")),
        replace(close, **common, clears=layout.SVM_STATES_OF.format(loop, "{before}")),
    ]
