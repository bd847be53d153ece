"""Small dense quadratic programs with bounds and one sum, for support vector machines and smallest spheres.

Notes
-----
Active sets change in blocks: all variables that leave their bounds, and all whose multipliers have the wrong sign, at
once. From a good guess this takes a few linear systems, and ends at a solution exact to rounding, which descent methods
only approach. If sets repeat, steps over the most violating pair of variables lead to better sets. If these converge
too slowly, as for nearly singular Q, an interior-point path does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

BLOCKS = 30
"""Maximum number of consecutive changes of sets."""
STEPS = 40
"""Maximum number of pair steps per variable."""
PATH_STEPS = 100
SHRINK = 0.1
"""Factor by which an interior-point step reduces the products of slacks and multipliers."""
RIDGE = 1e-13
"""Share of the mean diagonal that is added to it, more if a system is singular, as for duplicate rows."""
REFINEMENTS = 3
KKT_TOLERANCE = 1e-11


@dataclass(frozen=True)
class BoxProgram:
    """Minimize ``x'Qx / 2 - q'x`` over ``sum(x) = total`` and ``lower <= x <= upper``.

    Q has shape (n, n), float64, symmetric and positive semidefinite; the other arrays have shape (n,), float64.
    """

    Q: np.ndarray
    q: np.ndarray
    total: float
    lower: np.ndarray
    upper: np.ndarray


@dataclass(frozen=True)
class BoxSolution:
    """Solution of a program.

    `x` has shape (n,), float64; `offset` is the multiplier of the sum; `violation` is the largest amount by which a
    multiplier has the wrong sign; `is_free`, shape (n,), bool, marks the variables between their bounds.
    """

    x: np.ndarray
    offset: float
    violation: float
    is_free: np.ndarray


def solve_box(program: BoxProgram, start: np.ndarray) -> BoxSolution:
    """Solve a program; the sets of `start`, a feasible x, shape (n,), float64, are the first guess."""
    x = np.clip(start, program.lower, program.upper)
    solution = by_blocks(program, x)
    for improve in (_by_pairs, _by_path):
        if solution is not None:
            break
        x, is_there = improve(program, x)
        solution = by_blocks(program, x)
        if solution is None and is_there:
            break
    return solution or _solution_of(program, x)


def _scale(program: BoxProgram) -> float:
    largest = np.abs(program.q).max(initial=0.0), np.diagonal(program.Q).max(initial=0.0)
    return KKT_TOLERANCE * float(max(largest))


def by_blocks(program: BoxProgram, start: np.ndarray) -> BoxSolution | None:
    """Change sets until they are stable, from those of `start`, shape (n,), within the bounds; None if they repeat."""
    at_lower, at_upper = start <= program.lower, start >= program.upper
    tolerance, visited = _scale(program), set()
    for _ in range(BLOCKS):
        key = (at_lower.tobytes(), at_upper.tobytes())
        if key in visited:
            return None
        visited.add(key)
        solved = _with_sets(program, at_lower, at_upper)
        if solved is None:
            return None
        x, offset, gradient = solved
        is_free = ~(at_lower | at_upper)
        margin = 1e-12 * np.maximum(1.0, np.abs(x).max(initial=0.0))
        below, above = is_free & (x < program.lower - margin), is_free & (x > program.upper + margin)
        back = (at_lower & (gradient < -tolerance)) | (at_upper & (gradient > tolerance))
        if not (below.any() or above.any() or back.any()):
            return BoxSolution(np.clip(x, program.lower, program.upper), offset, 0.0, is_free)
        at_lower, at_upper = (at_lower & ~back) | below, (at_upper & ~back) | above
    return None


def _with_sets(
    program: BoxProgram, at_lower: np.ndarray, at_upper: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Return x, the multiplier of the sum and the gradient of the Lagrangian for given sets.

    None if the sets cannot meet the sum, or the system cannot be solved.
    """
    x = np.where(at_upper, program.upper, np.where(at_lower, program.lower, 0.0))
    free = np.flatnonzero(~(at_lower | at_upper))
    missing = program.total - float(x.sum())
    is_all = free.size == x.size
    pull = program.q if is_all else program.q - program.Q @ x
    if free.size == 0:
        if abs(missing) > 1e-9 * max(1.0, float(np.abs(x).sum())):
            return None
        # the middle of the offsets that meet all conditions
        ends = [float(pull[at_lower].max())] if at_lower.any() else []
        ends += [float(pull[at_upper].min())] if at_upper.any() else []
        offset = sum(ends) / max(len(ends), 1)
        return x, offset, offset - pull
    solve = _solver(program.Q if is_all else program.Q[np.ix_(free, free)])
    if solve is None:
        return None
    ones = solve(np.ones(free.size))
    step = solve(pull[free])
    offset = (float(step.sum()) - missing) / float(ones.sum())
    x[free] = step - offset * ones
    gradient = program.Q @ x - program.q + offset
    for _ in range(REFINEMENTS):
        missing, size = program.total - float(x.sum()), max(1.0, float(np.abs(x).max()))
        if np.abs(gradient[free]).max() <= _scale(program) * size and abs(missing) <= KKT_TOLERANCE * size:
            break
        # recover digits lost by both solutions, which are far larger than x if the system is singular
        step = solve(gradient[free])
        change = (float(step.sum()) + missing) / float(ones.sum())
        x[free] -= step - change * ones
        offset -= change
        gradient = program.Q @ x - program.q + offset
    return x, offset, gradient


def _solver(system: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return a solver of a system, None if it cannot be factorized."""
    ridge = RIDGE * float(np.trace(system)) / len(system)
    for _ in range(4):
        shifted = np.array(system, order="F")  # overwritten by LAPACK
        shifted[np.diag_indices(len(shifted))] += ridge
        try:
            factor = cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            ridge *= 100.0
            continue
        return lambda right: np.asarray(cho_solve(factor, right, check_finite=False))
    return None


def _by_pairs(program: BoxProgram, x: np.ndarray) -> tuple[np.ndarray, bool]:
    """Take steps over two variables at a time; return x, and whether it meets the conditions."""
    x, Q = _summing(program, x.copy()), program.Q
    gradient, diagonal = Q @ x - program.q, np.diagonal(Q)
    tolerance = _scale(program)
    can_rise, can_fall = x < program.upper, x > program.lower
    for _ in range(STEPS * x.size):
        rising = np.where(can_rise, gradient, np.inf)
        i = int(rising.argmin())
        gain = np.where(can_fall, gradient - gradient[i], -np.inf)
        if gain.max() <= tolerance:
            return x, True
        curvature = np.maximum(diagonal[i] + diagonal - 2.0 * Q[i], 1e-300)
        j = int(np.where(gain > 0, gain**2 / curvature, -np.inf).argmax())
        step = min(gain[j] / curvature[j], program.upper[i] - x[i], x[j] - program.lower[j])
        x[i], x[j] = min(x[i] + step, program.upper[i]), max(x[j] - step, program.lower[j])
        gradient += step * (Q[i] - Q[j])
        for place in (i, j):
            can_rise[place], can_fall[place] = x[place] < program.upper[place], x[place] > program.lower[place]
    return x, False


def _summing(program: BoxProgram, x: np.ndarray) -> np.ndarray:
    """Return a feasible x near one within the bounds."""
    missing = program.total - float(x.sum())
    if missing == 0.0:
        return x
    room = program.upper - x if missing > 0 else x - program.lower
    wide = np.isinf(room)
    if wide.any():
        return np.where(wide, x + missing / wide.sum(), x)
    return np.clip(x + missing * room / max(float(room.sum()), 1e-300), program.lower, program.upper)


def _by_path(program: BoxProgram, x: np.ndarray) -> tuple[np.ndarray, bool]:
    """Follow the interior-point path, on which products of slacks and multipliers are equal; return x and False.

    Variables at a bound at its end are set to it. Without an interior, x is returned unchanged.
    """
    lower, upper, size = program.lower, program.upper, x.size
    if not lower.sum() < program.total < upper.sum():
        return x, False
    bounded, scale = np.isfinite(upper), max(_scale(program) / KKT_TOLERANCE, np.finfo(float).tiny)
    x = np.where(bounded, (lower + np.where(bounded, upper, lower)) / 2.0, lower + max(program.total / size, 1.0))
    slack = np.stack([x - lower, np.where(bounded, upper - x, 1.0)])
    dual = scale * np.stack([np.ones(size), bounded.astype(np.float64)])
    offset, sign = 0.0, np.array([[1.0], [-1.0]])
    for _ in range(PATH_STEPS):
        products = float((slack * dual).sum()) / (size + int(bounded.sum()))
        gradient, missing = program.Q @ x - program.q + offset, program.total - float(x.sum())
        extent = max(1.0, float(np.abs(x).max()))
        is_there = products <= KKT_TOLERANCE**2 * scale * extent
        if is_there and np.abs(gradient - dual[0] + dual[1]).max() <= 10 * KKT_TOLERANCE * scale * extent:
            break
        curvature = np.diagonal(program.Q) + (dual / slack).sum(axis=0)
        root = 1.0 / np.sqrt(curvature)
        system = program.Q * root * root[:, None]
        np.fill_diagonal(system, 1.0)
        solve = _solver(system)
        if solve is None:
            break
        target = SHRINK * products * np.stack([np.ones(size), bounded]) / slack
        step, ones = root * solve(root * (target[0] - target[1] - gradient)), root * solve(root)
        change = (float(step.sum()) - missing) / float(ones.sum())
        step = step - change * ones
        dual_step = target - dual - sign * dual / slack * step
        slack_step = sign * step * np.stack([np.ones(size), bounded])
        length = min(1.0, 0.995 * _reach(slack, slack_step), 0.995 * _reach(dual, dual_step))
        x, offset = x + length * step, offset + length * change
        slack, dual = slack + length * slack_step, dual + length * dual_step
    at_bound = slack * scale < dual * extent
    return np.where(at_bound[0], lower, np.where(at_bound[1] & bounded, upper, np.clip(x, lower, upper))), False


def _reach(values: np.ndarray, steps: np.ndarray) -> float:
    """Return the number of steps that positive values can take before one of them is 0."""
    falling = steps < 0
    return float(np.min(-values[falling] / steps[falling], initial=np.inf))


def _solution_of(program: BoxProgram, x: np.ndarray) -> BoxSolution:
    """Return the solution record of an x, with its offset and violation."""
    gradient = program.Q @ x - program.q
    can_rise, can_fall = x < program.upper, x > program.lower
    least = float(gradient[can_rise].min(initial=np.inf))
    most = float(gradient[can_fall].max(initial=-np.inf))
    is_free = can_rise & can_fall
    offset = -float(gradient[is_free].mean()) if is_free.any() else -(least + most) / 2.0
    return BoxSolution(x, offset, max(most - least, 0.0), is_free)
