"""Landmark route of SVMRFE: one pass over the rows in each round, for any n_samples.

A unit sums its part of the rows for every method (kernels/svm/nystroem.py), stretch by stretch; the solution of a round
adds the stretches in order, scores the features by the landmarks and drops the lowest. Methods share passes, and a
process caches rows from round to round as memory allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.criteria.row_blocks import center_and_scale, read_blocks
from daskfs.criteria.svmrfe.criterion import SVMParameters
from daskfs.criteria.svmrfe.elimination import (
    Elimination,
    groups_cost,
    kept_rows,
    label_cost,
    load_state,
    rows_key,
    save_state,
    svm_parameters,
    targets_of,
)
from daskfs.kernels.scaling import Scaling, without_zscore
from daskfs.kernels.svm.elimination import exact_changes, first_order_changes
from daskfs.kernels.svm.nystroem import LandmarkKernel, landmark_sums, solve_landmarks
from daskfs.kernels.threads import one_thread
from daskfs.stages.cost import WORD, Array, Cost, Objects, fullest
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape
from daskfs.tiles.row_partitions import RowPartitions, block_rows, cut_parts, reading_cost

LANDMARK_STRETCHES = (16, 128)
STRETCH_VALUES = 2**22
"""Target values per stretch of a large X; starting a unit takes as long as 10,000s of narrow rows."""


def landmark_parts(shape: Shape) -> RowPartitions:
    """Return the partition of the rows into the units of a pass."""
    rows = max(1, min(2**16, STRETCH_VALUES // shape.n_features))
    least, most = LANDMARK_STRETCHES
    return cut_parts(shape, min(most, max(least, shape.n_samples // rows)))


def n_anchors(parameters: SVMParameters, n_landmarks: int) -> int:
    """Return the number of landmarks that each row is anchored to; 0 for no graph."""
    return min(parameters.n_neighbors, n_landmarks) if parameters.laplacian else 0


def _landmark_kernel(context: Context, loop: str, method: Method, state: Elimination) -> LandmarkKernel:
    p, left = svm_parameters(method), state.left
    mean, scale = center_and_scale(context, method, p.score_scaling)
    Z = np.ascontiguousarray(kept_rows(context, loop, rows_key(method, "landmarks")).values[:, left])
    return LandmarkKernel(Z, left, mean[left], scale[left], p.width(left.size, state.n_features))


class LandmarksParameters(StageParameters):
    """Parameters of both stages of a round.

    `held_bytes` are those of the rows that a process may cache, and `all_rows` says that unlabeled rows count.
    """

    methods: tuple[Method, ...]
    loop: str
    held_bytes: int
    all_rows: bool


def sum_landmarks(context: Context, parameters: LandmarksParameters, unit: int) -> None:
    """Write the sums of one part of the rows for each method in this round."""
    methods, parts = parameters.methods, landmark_parts(context.tiles.shape)
    loop, (number, part) = parameters.loop, divmod(unit, parts.n_parts)
    states = {m: load_state(context, loop, number, m) for m in methods}
    running = {m: _landmark_kernel(context, loop, m, state) for m, state in states.items() if not state.finished}
    if not running:
        return
    scaling = svm_parameters(methods[0]).score_scaling
    blocks = context.holdings.series(
        ("rows", part),
        parameters.held_bytes,
        lambda block: block.nbytes,
        lambda: read_blocks(context, parts, part, scaling, "all" if parameters.all_rows else "labeled"),
    )
    n_classes, stretches = len(context.classes()), parts.stretches(part)
    problems = [1] if n_classes == 2 else range(n_classes)  # coefficients of a class without rows are 0
    totals: dict[Method, dict[str, np.ndarray]] = {}
    with one_thread():
        for block in blocks:
            # bits of products depend on the other rows: drop unlabeled ones where they do not count
            labeled = block.only(block.codes >= 0)
            for method, kernel in running.items():
                p = svm_parameters(method)
                rows = block if p.laplacian else labeled
                if not rows.codes.size:
                    continue
                is_labeled = rows.codes >= 0
                targets = np.stack([is_labeled * targets_of(rows.codes, code) for code in problems], axis=1)
                sums = landmark_sums(kernel(rows.values), targets, rows.weights, n_anchors(p, len(kernel.Z)))
                total = totals.setdefault(method, {k: np.zeros((len(stretches), *v.shape)) for k, v in sums.items()})
                for name, values in sums.items():
                    total[name][block.stretch - stretches.start] += values
    for method in running:
        name = layout.SVM_SUMS.format(loop, number, part, method.label)
        context.store.write_arrays(name, totals.get(method, {}))


def solve_round(context: Context, parameters: LandmarksParameters, unit: int) -> dict[str, Any]:
    """Add up the sums of a round, score the features of one method, drop some, and write its state."""
    methods = parameters.methods
    loop, (number, place) = parameters.loop, divmod(unit, len(methods))
    method = methods[place]
    p, state = svm_parameters(method), load_state(context, loop, number, method)
    if not state.finished:
        with one_thread():
            values = _feature_criteria(context, loop, method, state)
        state.drop(values, p, {})
    return save_state(context, loop, number, method, state)


def _feature_criteria(context: Context, loop: str, method: Method, state: Elimination) -> np.ndarray:
    """Return the criteria of the remaining features, shape (n_left,), summed over the problems."""
    p, kernel = svm_parameters(method), _landmark_kernel(context, loop, method, state)
    K, sums = kernel.between_landmarks(), _sum_stretches(context, loop, method, len(state.rounds))
    machines = solve_landmarks(K, sums, p.ridge, p.gamma_intrinsic, n_anchors(p, len(K)))
    is_linear, squares = p.rule.is_linear(state.left.size), kernel.squares()
    values = np.zeros(state.left.size)
    for a in machines.coefficients.T:
        if is_linear:
            changes = first_order_changes(K, kernel.Z, kernel.gamma, a)
        else:
            changes = exact_changes(K, kernel.Z, kernel.gamma, a, squares)
        values += machines.scale * np.abs(changes)
    return values


def _sum_stretches(context: Context, loop: str, method: Method, number: int) -> Mapping[str, np.ndarray]:
    """Return the sums of all stretches, added in order."""
    total: dict[str, np.ndarray] = {}
    for part in range(landmark_parts(context.tiles.shape).n_parts):
        arrays, _ = context.store.read_arrays(layout.SVM_SUMS.format(loop, number, part, method.label))
        for name, stretches in arrays.items():
            for values in stretches:
                total[name] = total[name] + values if name in total else values.copy()
    return total


def all_sums_cost(methods: Sequence[Method], n_landmarks: Sequence[int], n_columns: int, copies: int = 1) -> Cost:
    """List the sums of `copies` stretches, as :func:`daskfs.kernels.svm.nystroem.landmark_sums` makes them."""
    cost: Cost = ()
    for method, m in zip(methods, n_landmarks, strict=True):
        cost += (
            Array("products of kernel values", (copies, 3 if svm_parameters(method).laplacian else 1, m, m)),
            Array("products of kernel values and targets", (copies, m, n_columns)),
            Array("sums of kernel values and of anchors", (copies, 2, m)),
            Array("sums of targets and of rows", (copies, n_columns + 2)),
        )
    return cost


def held_rows_cost(shape: Shape, scaling: Scaling | None) -> Cost:
    """List all rows as a process caches them: as stored, or rescaled as float64."""
    copies = 1 if without_zscore(scaling) is None else max(1, WORD // shape.itemsize)
    return (
        Objects("rows that are held", copies, shape.x_bytes),
        Array("codes and weights of rows that are held", (2, shape.n_samples)),
        Array("where sparse rows that are held begin", (shape.n_samples,), "int32"),
    )


def landmark_cost(
    shape: Shape, methods: Sequence[Method], n_landmarks: Sequence[int], n_columns: int, cache: int, process: Cost
) -> Cost:
    """List the memory of a unit that sums rows or solves a round, whichever is more, as one process does both in turn.

    `n_landmarks` are those of each method, `n_columns` the number of classes, and `cache` the bytes of cached rows.
    """
    d, most, parts, height = shape.n_features, max(n_landmarks), landmark_parts(shape), block_rows(shape)
    passing = (
        *reading_cost(shape, parts.per_part * parts.height),
        *label_cost(parts),
        *all_sums_cost(methods, n_landmarks, n_columns, parts.per_part + 2),
        Array("rows of a block, in the features that are left, with a label, centered and scaled", (3, height, d)),
        Array("kernel values of a block, rounded, in order, weighted and on anchors", (6, height, most)),
        Array("targets of a block, and times weights", (2, height, n_columns)),
        Array("landmarks in the features that are left, and factors of exponents", (2, sum(n_landmarks), d)),
    )
    solving = (
        *all_sums_cost(methods, n_landmarks, n_columns, 3),
        Array("kernels between landmarks, systems and their factors", (8, most, most)),
        Array("landmarks in the features that are left, factors of exponents, and products", (4, most, d)),
    )
    kept_rows = groups_cost(methods, "landmarks", n_landmarks, d, 2)
    return (*process, *kept_rows, *fullest(passing, solving), Objects("rows that are held", 1, cache))


SVM_SUMS_STAGE = StageKind("svm-sums", __name__, sum_landmarks, landmark_cost, reads_weights=True)
SVM_SOLVE_STAGE = StageKind("svm-solve", __name__, solve_round, landmark_cost)
