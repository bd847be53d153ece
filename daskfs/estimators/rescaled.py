"""Selectors by the weights of one regression on class indicators, with the classes of unlabelled rows learned."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar

from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from daskfs.criteria.registry import Method
from daskfs.criteria.rescaled_regression.criterion import SOLVERS, SolverName
from daskfs.criteria.rescaled_regression.passes import solution_of
from daskfs.estimators.base import ScoreSelector
from daskfs.kernels.distance_correlation.spec import CORRELATIONS, Correlation
from daskfs.kernels.labels import Labels
from daskfs.kernels.scaling import Scaling
from daskfs.store.context import Context


class RLSR(ScoreSelector):
    """Rescaled linear square regression: features by their share in a regression on classes; large is good.

    Minimizes ``||XW + 1b' - Y||^2 + gamma (sum_j ||w_j||)^2`` over W, b and the targets of unlabelled rows, which are
    points of the simplex; those of labelled rows are indicators of their classes. That is Eq. 1 with
    ``theta_j = ||w_j|| / sum_k ||w_k||``, the best for any W, put in. The score is theta: it adds up to 1, and is
    exactly 0 for most features where gamma is large. Features of score 0 are ranked by how near they are to coming in,
    "bound" of `score_fields_`. The problem is convex; scores do not depend on where it starts.

    NaN (excluded) for a constant feature.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    gamma
        Penalty, above 0. Its scale is that of X'X: n_samples times that of one row.
    max_iter
        Rounds of weights and targets at most.
    tol
        The rounds end when the objective changes by no larger share, and the weights, with the targets that are best
        for them, meet the conditions of a minimum to 1e-7 of the largest entry of X'Y.
    solver
        How X'X takes part: "cholesky", as a matrix; "woodbury", by the rows of X in one process; "cg", by products over
        all rows, each of which is a pass over X; "auto" takes "woodbury" for fewer rows than features (and at most 2^28
        values), "cg" for more than 20,000 features otherwise, else "cholesky".
    greedy_filter
        Whether features are ranked one by one, next the one of largest ``theta_j (1 - max m_ij)`` over the features i
        before it, with m the squared distance correlation: what is like a better feature comes late, a copy last.
    correlation, n_components, n_correlation_rows
        How distance correlations are had, with `greedy_filter`: as :func:`daskfs.distance_correlation_matrix` takes
        `correlation`, `n_components` and `n_rows`.
    score_scaling
        What X is rescaled by on the fly: "zscore", "unit" (rows), "log1p", "total" (rows add up to the median of their
        sums), "total=10000", a chain such as "total+log1p+zscore", or None. The penalty compares features as they are
        scaled. Columns are centered in any case.

    Attributes
    ----------
    score_fields_
        "score"; "bound", of a feature of score 0 the share of what would bring it in, in [0, 1], and 1 for others;
        "position", its rank.
    coef_
        W, shape (n_features, n_classes), float64, for features that are scaled.
    objective_
        The objective after every round, float64; it never rises, but for rounding.
    n_iter_
        Number of rounds.
    converged_
        Whether both conditions of `tol` were met; a :class:`~sklearn.exceptions.ConvergenceWarning` says when not.
    solution_
        What else is known of the solution, by name: solver, number of features whose score is not 0, how well the
        conditions of a minimum are met, and how distance correlations were had.

    References
    ----------
    Chen, Yuan, Nie and Huang (2017), "Semi-supervised Feature Selection via Rescaled Linear Regression", IJCAI,
    1525-1531. Its Theta is rescaled here as in its formulas, theta^(1/2) on the diagonal; its algorithm is not used, as
    it never makes a weight 0.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import RLSR
    >>> X, y = load_iris(return_X_y=True)
    >>> RLSR(gamma=10).fit(X, np.where(np.arange(150) % 3 == 0, y, -1)).ranking_.tolist()
    [4, 2, 3, 1]
    """

    _criterion = "RLSR"
    _needs_labels = True
    _task = "classification"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **ScoreSelector._parameter_constraints,
        "gamma": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "solver": [StrOptions(set(SOLVERS))],
        "greedy_filter": ["boolean"],
        "correlation": [StrOptions(set(CORRELATIONS))],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_correlation_rows": [Interval(Integral, 1, None, closed="left"), None],
        "score_scaling": [str, None],
    }

    def __init__(
        self,
        n_features_to_select: float | None = None,
        *,
        gamma: float = 1.0,
        max_iter: int = 300,
        tol: float = 1e-8,
        solver: SolverName = "auto",
        greedy_filter: bool = False,
        correlation: Correlation = "auto",
        n_components: int = 8,
        n_correlation_rows: int | None = 100_000,
        score_scaling: Scaling | None = "zscore",
    ) -> None:
        super().__init__(n_features_to_select)
        self.gamma = gamma
        self.max_iter = max_iter
        self.tol = tol
        self.solver = solver
        self.greedy_filter = greedy_filter
        self.correlation = correlation
        self.n_components = n_components
        self.n_correlation_rows = n_correlation_rows
        self.score_scaling = score_scaling

    def _parameters(self, labels: Labels | None) -> Mapping[str, Any]:
        del labels
        return {key: getattr(self, key) for key in self.get_params(deep=False) if key != "n_features_to_select"}

    def _keep_beside(self, context: Context, method: Method) -> None:
        self.coef_, self.solution_ = solution_of(context.store, method)
        self.objective_ = self.solution_.pop("objective")
        self.n_iter_, self.converged_ = self.solution_.pop("n_iter"), self.solution_.pop("converged")
        if not self.converged_:
            msg = (
                f"{self._criterion} stopped after max_iter={self.max_iter} rounds, or where its steps no longer moved "
                "the weights, before the objective and the weights had settled: raise max_iter, tol or gamma."
            )
            warnings.warn(msg, ConvergenceWarning, stacklevel=3)


class DSSFS(RLSR):
    """RLSR with targets that are dragged apart; large is good. A reconstruction.

    The abstract that proposes it adds dragging to RLSR: ``||XW + 1b' - (Y + B * M)||^2`` with M >= 0 and B = 1 in the
    column of a labelled row's class, -1 in the others, so that targets may go beyond 1 in the class of a row and below
    0 in others. No formulas for unlabelled rows, and no code, are public. Here M = 0 for these: their targets stay
    points of the simplex, every block of unknowns is minimized exactly, and the objective never rises.

    NaN (excluded) for a constant feature.

    Parameters
    ----------
    n_features_to_select, gamma, max_iter, tol, solver, greedy_filter, correlation, n_components, n_correlation_rows, \
score_scaling
        As :class:`RLSR`.

    Attributes
    ----------
    score_fields_, coef_, objective_, n_iter_, converged_, solution_
        As :class:`RLSR`.

    References
    ----------
    Yuan, Chen, Wang, Nie and Jing (2018), "Discriminative Semi-supervised Feature Selection via Rescaled Least Squares
    Regression-Supplement", AAAI (student abstract).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import DSSFS
    >>> X, y = load_iris(return_X_y=True)
    >>> DSSFS(gamma=10).fit(X, np.where(np.arange(150) % 3 == 0, y, -1)).ranking_.tolist()
    [4, 2, 3, 1]
    """

    _criterion = "DSSFS"


class SSUFS(RLSR):
    """Semi-supervised uncorrelated feature selection: RLSR with a reward for weights that differ between correlated
    features; large is good.

    Adds ``-(eta / 2) V'LV`` to RLSR's objective, with V_j = ||w_j||^2 and L the Laplacian of M, the squared distance
    correlations (Eq. 2 to 5). The paper writes eta V'LV, and its update of W is that of half as much: eta here is the
    paper's, and gives the paper's updates. The objective has no minimum: it falls without end once weights are large
    enough. So RLSR is solved first, steps are held back where the reward outweighs the penalty, which keeps the
    objective falling for every eta, and when the weights leave the basin of RLSR's solution all the same, SSUFS begins
    again from there with half the eta: see `eta_used_` and `halvings_`.

    It spreads the weights of features that are nearly copies, and does little for exact copies; `greedy_filter` removes
    both. NaN (excluded) for a constant feature.

    Parameters
    ----------
    n_features_to_select, gamma, max_iter, tol, solver, greedy_filter, score_scaling
        As :class:`RLSR`. The weights meet the conditions of a stationary point to 1e-6.
    eta
        The paper's eta; None for `eta_relative`.
    eta_relative
        eta as a share of twice ``eta_ref = gamma / (2 max_j theta_j (LV)_j)`` at RLSR's solution, where the reward of
        some feature begins to outweigh its penalty. Has no say where `eta` is given.
    correlation, n_components, n_correlation_rows
        How M is had: as :func:`daskfs.distance_correlation_matrix` takes `correlation`, `n_components` and `n_rows`.

    Attributes
    ----------
    score_fields_, coef_, n_iter_, converged_, solution_
        As :class:`RLSR`.
    objective_
        SSUFS's objective, at RLSR's solution and after every round, with `eta_used_`; it never rises,
        but for rounding.
    eta_used_
        The paper's eta that was used.
    halvings_
        How often eta was halved.

    References
    ----------
    Zhong, Chen and Nie (2019), "Semi-Supervised Uncorrelated Feature Selection", EasyChair preprint.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import SSUFS
    >>> X, y = load_iris(return_X_y=True)
    >>> SSUFS(gamma=10).fit(X, np.where(np.arange(150) % 3 == 0, y, -1)).ranking_.tolist()
    [3, 2, 4, 1]
    """

    _criterion = "SSUFS"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **RLSR._parameter_constraints,
        "eta": [Interval(Real, 0, None, closed="neither"), None],
        "eta_relative": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        n_features_to_select: float | None = None,
        *,
        gamma: float = 1.0,
        eta: float | None = None,
        eta_relative: float = 0.05,
        max_iter: int = 300,
        tol: float = 1e-8,
        solver: SolverName = "auto",
        greedy_filter: bool = False,
        correlation: Correlation = "auto",
        n_components: int = 8,
        n_correlation_rows: int | None = 100_000,
        score_scaling: Scaling | None = "zscore",
    ) -> None:
        super().__init__(
            n_features_to_select,
            gamma=gamma,
            max_iter=max_iter,
            tol=tol,
            solver=solver,
            greedy_filter=greedy_filter,
            correlation=correlation,
            n_components=n_components,
            n_correlation_rows=n_correlation_rows,
            score_scaling=score_scaling,
        )
        self.eta = eta
        self.eta_relative = eta_relative

    def _keep_beside(self, context: Context, method: Method) -> None:
        super()._keep_beside(context, method)
        self.eta_used_, self.halvings_ = self.solution_.pop("eta_used"), self.solution_.pop("halvings")
