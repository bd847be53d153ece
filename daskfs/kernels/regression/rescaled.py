"""Weights of rescaled linear regression: one row w_j of W per feature, most of which become zero.

Notes
-----
Minimized over Theta, by theta_j = ||w_j|| / T with T = sum_j ||w_j||, RLSR's objective in W, for fixed targets Y and
their best offsets b, is

    tr W'SW - 2 tr W'P + gamma T^2 + ||HY||^2,   S = X'HX,  P = X'HY,

which is convex. Iterating on Theta alone (Chen et al. 2017, Algorithm 1) approaches zero rows slowly and never reaches
them. A step here is a few proximal gradient steps, which find the zero rows, and a Newton step on the others, by
conjugate gradients preconditioned with systems in S. S only enters products and systems among active rows, so the steps
serve every form of it (regression/grams.py).

SSUFS adds -eta V'LV, V_j = ||w_j||^2, with L the Laplacian of correlations. Its tangent at the current V bounds it from
above, so with the pull g = 2 eta LV the same steps apply. Where a Newton step finds no descent under the pull, the
update of W for fixed Theta and g is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from daskfs.kernels.regression.grams import Gram, PartOfGram, Solver

Operator = Callable[[np.ndarray], np.ndarray]
N_SHRINKS = 3
"""Proximal steps before each Newton step."""
WORKING_STEPS = 10
"""Maximum rounds of both kinds of steps on a working set of features."""
WORKING_LEAST = 50
NEWTON_ITERATIONS = 30
NEWTON_RESIDUAL = 1e-2
NEARLY_COMMON = 0.5
"""Maximum mean square of the directions of rows across their common line that has a system of its own."""
ONE_LINE = 1e-20
LEAST_PENALTY = 1e-4
"""Minimum share of the penalty in a system, which keeps it positive definite."""
SYSTEM_ITERATIONS = 200
SYSTEM_RESIDUAL = 1e-10
KAPPA = 0.9
"""Share of a row's penalty that its pull may cancel before the step is damped."""
SUFFICIENT = 1e-4
"""Share of the promised decrease that a step along a direction must achieve."""
SHORTEST = 1e-9


@dataclass(frozen=True)
class Iterate:
    """W and S W, each (n_features, n_columns), float64, and the curvature used by the last proximal step.

    `working` is the working set of the last step, ascending, int64; None for none yet.
    """

    W: np.ndarray
    SW: np.ndarray
    curvature: float
    working: np.ndarray | None = None


@dataclass(frozen=True)
class Certificate:
    """Residuals of the Karush-Kuhn-Tucker conditions of a minimum at W.

    `active` is the largest norm of S w_j - p_j + (gamma T / ||w_j|| - g_j) w_j over non-zero rows, as a share of the
    largest entry of P. `inactive` is the largest ||p_j - S w_j|| / (gamma T) over the other rows; above 1, a row must
    become non-zero. `n_active` is the number of non-zero rows.
    """

    active: float
    inactive: float
    n_active: int

    @property
    def worst(self) -> float:
        """The smallest tolerance to which both conditions hold."""
        return max(self.active, self.inactive - 1.0)

    def holds(self, tolerance: float) -> bool:
        """Return whether both conditions hold to a tolerance."""
        return self.worst <= tolerance


def norms(W: np.ndarray) -> np.ndarray:
    """Return the Euclidean norm of each row of W, shape (n_rows,), float64."""
    return np.sqrt(np.einsum("jk,jk->j", W, W))


def start_at(diagonal: np.ndarray, n_columns: int) -> Iterate:
    """Return the iterate of all zeros; every row can become non-zero. `diagonal` is that of S, shape (n_features,)."""
    zeros = np.zeros((diagonal.size, n_columns))
    return Iterate(zeros, zeros.copy(), float(diagonal.max(initial=0.0)) or 1.0)


def objective(at: Iterate, cross: np.ndarray, gamma: float, pull: np.ndarray | None = None) -> float:
    """Return tr W'SW - 2 tr W'P + gamma T^2 - g'V. Arguments as in :func:`certificate`."""
    norm = norms(at.W)
    gained = 0.0 if pull is None else float(pull @ norm**2)
    return float(np.sum(at.W * (at.SW - 2.0 * cross)) + gamma * norm.sum() ** 2) - gained


def certificate(at: Iterate, cross: np.ndarray, gamma: float, pull: np.ndarray | None = None) -> Certificate:
    """Compute the residuals of the conditions of a minimum at an iterate.

    Parameters
    ----------
    at
        The iterate.
    cross
        P, shape (n_features, n_columns), float64.
    gamma
        Above 0.
    pull
        g, shape (n_features,), float64; None for zeros.
    """
    norm, residual = norms(at.W), at.SW - cross
    total, is_active = float(norm.sum()), norm > 0
    largest = float(np.abs(cross).max(initial=0.0))
    if total == 0.0:
        return Certificate(0.0, 0.0 if largest == 0.0 else np.inf, 0)
    share = gamma * total / norm[is_active]
    if pull is not None:
        share -= pull[is_active]
    left = norms(residual[is_active] + share[:, None] * at.W[is_active])
    others = norms(residual[~is_active])
    return Certificate(
        float(left.max()) / max(largest, np.finfo(np.float64).tiny),
        float(others.max(initial=0.0)) / (gamma * total),
        int(np.count_nonzero(is_active)),
    )


def shrunk(V: np.ndarray, share: float) -> np.ndarray:
    """Return the W that minimizes ||W - V||^2 + share (sum_j ||w_j||)^2, shape of V, (n_features, n_columns), float64.

    Each norm is lowered by share T. T follows from the k rows that stay non-zero: their norms add up to
    (1 + k share) T.
    """
    norm = norms(V)
    descending = -np.sort(-norm)
    totals = np.cumsum(descending) / (1.0 + share * np.arange(1, norm.size + 1))
    staying = np.flatnonzero(descending > share * totals)
    if staying.size == 0:
        return np.zeros_like(V)
    lowered = norm - share * totals[staying[-1]]
    return V * np.divide(lowered, norm, out=np.zeros_like(norm), where=lowered > 0)[:, None]


def shrink(gram: Gram, at: Iterate, cross: np.ndarray, gamma: float, pull: np.ndarray | None = None) -> Iterate:
    """Take one proximal gradient step; the objective does not increase. Arguments as in :func:`certificate`.

    The curvature of the bound starts below the last one, and is raised until the bound holds along the step.
    """
    gradient = at.SW - cross
    pushed = 0.0
    if pull is not None:
        gradient = gradient - pull[:, None] * at.W
        pushed = max(0.0, -float(pull.min(initial=0.0)))
    curvature = at.curvature
    while True:
        bound = curvature + pushed
        W = shrunk(at.W - gradient / bound, gamma / bound)
        step = W - at.W
        square = float(np.sum(step * step))
        if not square > 0.0:  # also where the squares of a step underflow
            return at
        moved = gram.product(step)
        bent = float(np.sum(step * moved))
        if not bent > curvature * square:  # true also if weights have overflowed, which the caller detects
            break
        curvature = max(2.0 * curvature, bent / square)
    return replace(at, W=W, SW=at.SW + moved, curvature=max(1.2 * bent / square, curvature / 1.5))


def conjugate_gradients(
    product: Operator, right: np.ndarray, precondition: Solver, residual: float, max_iterations: int
) -> np.ndarray:
    """Solve a symmetric positive definite system from zero, until the residual has dropped to the share `residual`.

    Each iterate minimizes the quadratic form over a growing space, so the result improves on zero however early it
    stops. It has the shape of `right`, float64.
    """
    solution, left = np.zeros_like(right), right
    target = residual * float(np.sqrt(np.sum(right * right)))
    direction = better = precondition(left)
    slope = float(np.sum(left * better))
    for _ in range(max_iterations):
        if slope <= 0.0:
            break
        image = product(direction)
        curved = float(np.sum(direction * image))
        if curved <= 0.0:  # only rounding is left
            break
        solution = solution + (slope / curved) * direction
        left = left - (slope / curved) * image
        if float(np.sqrt(np.sum(left * left))) <= target:
            break
        better = precondition(left)
        before, slope = slope, float(np.sum(left * better))
        direction = better + (slope / before) * direction
    return solution


def newton(gram: Gram, at: Iterate, cross: np.ndarray, gamma: float, pull: np.ndarray | None = None) -> Iterate:
    """Take one Newton step on the non-zero rows; the objective does not increase. Arguments as in :func:`certificate`.

    With u_j = w_j / ||w_j|| and D_j = gamma T / ||w_j||, the Hessian of half the objective maps V to
    S V + D (V - u u'V) - g V + gamma u sum_k u_k'v_k. Rows that the step would turn by more than a right angle become
    zero.
    """
    norm = norms(at.W)
    active = np.flatnonzero(norm > 0)
    if active.size == 0:
        return at
    W, total = at.W[active], float(norm.sum())
    pulled = 0.0 if pull is None else pull[active, None]
    unit, penalty = W / norm[active, None], (gamma * total / norm[active])[:, None]
    gradient = at.SW[active] - cross[active] + gamma * total * unit - pulled * W
    part = gram.among(active)

    def hessian(V: np.ndarray) -> np.ndarray:
        along = np.einsum("jk,jk->j", unit, V)
        product = part.product(V) + penalty * (V - unit * along[:, None]) + (gamma * along.sum()) * unit
        return product - pulled * V

    solver = _preconditioner(part, unit, penalty, pulled)
    direction = conjugate_gradients(hessian, -gradient, solver, NEWTON_RESIDUAL, NEWTON_ITERATIONS)
    promised = 2.0 * float(np.sum(gradient * direction))
    before, length = objective(at, cross, gamma, pull), 1.0
    while length >= SHORTEST and promised < 0.0:
        moved = length * direction
        turned = np.einsum("jk,jk->j", W, W + moved) <= 0.0
        moved[turned] = -W[turned]
        step = np.zeros_like(at.W)
        step[active] = moved
        new = replace(at, W=at.W + step, SW=at.SW + gram.product(step))
        if objective(new, cross, gamma, pull) <= before + SUFFICIENT * length * promised:
            return new
        length /= 2.0
    return at


def _preconditioner(part: PartOfGram, unit: np.ndarray, penalty: np.ndarray, pulled: np.ndarray | float) -> Solver:
    """Return a solver that approximates the inverse of the Hessian of :func:`newton`.

    A row is penalized across its direction only. Where most rows share one direction, as of two classes, whose weights
    are opposite, the weights along and across it have systems of their own.
    """

    def solver(share: np.ndarray | float) -> Solver:
        added = np.maximum(share * penalty - pulled, LEAST_PENALTY * penalty)
        return part.solver(1.0 / np.sqrt(added[:, 0]))

    n_columns = unit.shape[1]
    axis = np.linalg.eigh(unit.T @ unit)[1][:, -1:]
    aside = np.maximum(1.0 - (unit @ axis) ** 2, 0.0)
    if float(aside.mean()) > NEARLY_COMMON:
        return solver(1.0 - 1.0 / n_columns)
    along = solver(aside)
    if not float(aside.mean()) > ONE_LINE:
        return along
    across = solver(1.0 - aside / (n_columns - 1))

    def solved(right: np.ndarray) -> np.ndarray:
        main = right @ axis
        return along(main) @ axis.T + across(right - main @ axis.T)

    return solved


def advance(
    gram: Gram, at: Iterate, cross: np.ndarray, gamma: float, tolerance: float = 0.0, pull_of: Operator | None = None
) -> Iterate:
    """Take one step of the weights; the objective does not increase.

    It is a few proximal steps and a Newton step. If S among a working set is available, they are repeated there until
    the conditions of a minimum hold to the tolerance; one product of S then updates the others. The set grows from a
    few features, and stays the same as long as the largest violation of the conditions is inside.

    Parameters
    ----------
    gram, at, cross, gamma
        As in :func:`certificate`.
    tolerance
        Of :meth:`Certificate.holds`.
    pull_of
        Returns SSUFS's g for V, both of shape (n_features,), float64; None for RLSR.
    """
    working = at.working
    pull = None if pull_of is None else pull_of(norms(at.W) ** 2)
    if working is None or not _covers(working, at, cross, gamma, pull):
        working = working_set(at, cross)
    working_gram = gram.within(working) if working.size else None
    if working_gram is None:
        return _take_step(gram, at, cross, gamma, pull_of)
    within = None if pull_of is None else _within(pull_of, working, len(cross))
    inner, part = Iterate(at.W[working], at.SW[working], at.curvature), cross[working]
    for _ in range(WORKING_STEPS):
        inner = _take_step(working_gram, inner, part, gamma, within)
        pull = None if within is None else within(norms(inner.W) ** 2)
        # worse than zeros: SSUFS may have left its basin, which the caller detects
        if certificate(inner, part, gamma, pull).holds(tolerance) or not objective(inner, part, gamma) <= 0.0:
            break
    W = np.zeros_like(at.W)
    W[working] = inner.W
    return Iterate(W, gram.product(W), inner.curvature, working)


def _within(pull_of: Operator, working: np.ndarray, n_features: int) -> Operator:
    """Return the pull among a working set, with zeros elsewhere."""

    def pull(V: np.ndarray) -> np.ndarray:
        whole = np.zeros(n_features)
        whole[working] = V
        return pull_of(whole)[working]

    return pull


def _covers(working: np.ndarray, at: Iterate, cross: np.ndarray, gamma: float, pull: np.ndarray | None) -> bool:
    """Return whether the features outside a working set are zero, and violate no condition more than those inside."""
    outside = np.ones(len(cross), bool)
    outside[working] = False
    if at.W[outside].any():
        return False
    inner = Iterate(at.W[working], at.SW[working], at.curvature)
    inside = certificate(inner, cross[working], gamma, None if pull is None else pull[working])
    threshold = gamma * float(norms(inner.W).sum()) * (1.0 + max(inside.worst, 0.0))
    return float(norms((cross - at.SW)[outside]).max(initial=0.0)) <= threshold


def _take_step(gram: Gram, at: Iterate, cross: np.ndarray, gamma: float, pull_of: Operator | None) -> Iterate:
    if pull_of is None:
        for _ in range(N_SHRINKS):
            at = shrink(gram, at, cross, gamma)
        return newton(gram, at, cross, gamma)
    at = shrink(gram, at, cross, gamma, pull_of(norms(at.W) ** 2))
    pull = pull_of(norms(at.W) ** 2)
    moved = newton(gram, at, cross, gamma, pull)
    return reweight(gram, at, cross, gamma, pull) if moved is at else moved


def working_set(at: Iterate, cross: np.ndarray) -> np.ndarray:
    """Return the non-zero features and the others nearest to becoming non-zero, ascending, int64.

    The others are half as many, at least 50.
    """
    is_active = at.W.any(axis=1)
    n_active = int(np.count_nonzero(is_active))
    nearness = np.where(is_active, np.inf, norms(cross - at.SW))
    nearest = np.argsort(-nearness, kind="stable")[: n_active + max(WORKING_LEAST, n_active // 2)]
    return np.sort(nearest[nearness[nearest] > 0])


def reweight(gram: Gram, at: Iterate, cross: np.ndarray, gamma: float, pull: np.ndarray) -> Iterate:
    """Update W for fixed Theta under a pull, on the non-zero rows; the objective does not increase.

    Notes
    -----
    (S + diag(gamma / theta - g + rho)) W+ = P + diag(rho) W, where rho_j = max(0, g_j - KAPPA gamma / theta_j) damps
    rows whose pull would outweigh their penalty. The system is positive definite for every pull, and as rho weighs
    ||w_j+ - w_j||^2 it still bounds the objective from above. Arguments as in :func:`certificate`.
    """
    norm = norms(at.W)
    active = np.flatnonzero(norm > 0)
    if active.size == 0:
        return at
    W, penalty = at.W[active], gamma * norm.sum() / norm[active]
    penalties = np.maximum(0.0, pull[active] - KAPPA * penalty)
    added = np.maximum(penalty - pull[active], (1.0 - KAPPA) * penalty)  # penalty - g + rho without cancellation
    part = gram.among(active)
    left = cross[active] - at.SW[active] - (added - penalties)[:, None] * W
    step = np.zeros_like(at.W)
    step[active] = conjugate_gradients(
        lambda V: part.product(V) + added[:, None] * V,
        left,
        part.solver(1.0 / np.sqrt(added)),
        SYSTEM_RESIDUAL,
        SYSTEM_ITERATIONS,
    )
    return replace(at, W=at.W + step, SW=at.SW + gram.product(step))


def join_offset(at: Iterate, offset: np.ndarray, total: float) -> Iterate:
    """Append the offset, shape (n_columns,), as the weight of a feature that is 1 in every row, of weight `total`."""
    return Iterate(np.vstack([at.W, offset]), np.vstack([at.SW, total * offset]), at.curvature)


def carried_on(at: Iterate, before: Iterate | None, start: np.ndarray | None, momentum: float) -> tuple[Iterate, float]:
    """Extrapolate the weights (Nesterov 1983); return the point at which to make the next targets, and the momentum.

    Weights and targets are updated in turn, which converges linearly, and slowly if few rows are labeled; with
    momentum, the square root of the number of rounds suffices.

    Parameters
    ----------
    at, before
        Iterates after this round and the previous one; None in the first.
    start
        Extrapolated W, shape (n_features, n_columns), at which this round began; None if it began at `before`.
    momentum
        At least 1.
    """
    if before is None:
        return at, 1.0
    step, moved = at.W - before.W, at.SW - before.SW
    if start is not None and float(np.sum((start - at.W) * moved)) > 0.0:
        return at, 1.0  # the extrapolation overshot the minimum (O'Donoghue and Candes 2015)
    grown = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
    share = (momentum - 1.0) / grown
    if share == 0.0:
        return at, grown
    return Iterate(at.W + share * step, at.SW + share * moved, at.curvature), grown
