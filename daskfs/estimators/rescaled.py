"""Selectors by the weights of a regression on class indicators that also learns the classes of unlabeled rows."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from daskfs.criteria.registry import Method
from daskfs.criteria.rescaled_regression.criterion import SolverName
from daskfs.criteria.rescaled_regression.passes import solution_of
from daskfs.errors import DaskfsWarning
from daskfs.estimators.base import ScoreSelector, selector
from daskfs.kernels.distance_correlation.spec import Correlation
from daskfs.kernels.scaling import Scaling
from daskfs.store.context import Context


class DaskfsConvergenceWarning(DaskfsWarning, ConvergenceWarning):
    """The rounds of a fit ended before its objective had settled."""


@selector
class RLSR(ScoreSelector):
    """Rescaled linear square regression: share of a feature's weights in a regression on classes; large is good.

    Minimizes ``||XW + 1b' - Y||^2 + gamma (sum_j ||w_j||)^2`` over W, b and the targets Y of unlabeled rows, points of
    the simplex. The score is ``theta_j = ||w_j|| / sum_k ||w_k||``, which sums to 1; for large gamma most are exactly
    0. NaN (excluded) for a constant feature.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    gamma
        Penalty, above 0, on the scale of X'X: it grows with n_samples.
    max_iter
        Maximum number of rounds; each updates weights and targets.
    tol
        The rounds end when the relative change of the objective is at most `tol` and the weights, with their optimal
        targets, satisfy the optimality conditions to 1e-7 of the largest entry of X'Y.
    solver
        Representation of X'X: "cholesky", a matrix; "woodbury", the rows of X in one process; "cg", products over all
        rows, each one pass over X. "auto" takes "woodbury" for fewer rows than features (and at most 2^28 values), else
        "cg" for more than 20,000 features, else "cholesky".
    greedy_filter
        Whether to rank features one by one, next the one of largest ``theta_j (1 - max m_ij)`` over the features i
        already ranked, where m is the squared distance correlation: features similar to better ones rank low, copies
        last.
    correlation, n_components, n_correlation_rows
        With `greedy_filter`: `correlation`, `n_components` and `n_rows` of :func:`daskfs.distance_correlation_matrix`.
    score_scaling
        Scaling of X on the fly: "zscore", "unit" (rows), "log1p", "total" (every row sum becomes the median of the row
        sums), "total=10000", a chain such as "total+log1p+zscore", or None. The penalty applies to scaled features.
        Columns are always centered.

    Attributes
    ----------
    score_fields_
        Arrays of shape (n_features,), float64: "score"; "bound", by which features of score 0 are ranked: the share, in
        [0, 1], of the threshold for a nonzero weight, and 1 for other features; "position", the rank.
    coef_
        W, shape (n_features, n_classes), float64, for scaled features; Y has class indicators for labeled rows.
    objective_
        Objective after every round, shape (n_rounds,), float64; it never increases, except for rounding.
    n_iter_
        Number of rounds, int.
    converged_
        Whether both conditions of `tol` were met.
    solution_
        Further facts of the solution, by name: solver, number of features with nonzero score, residual of the
        optimality conditions, and how distance correlations were computed.

    Warns
    -----
    ConvergenceWarning
        :class:`~sklearn.exceptions.ConvergenceWarning` if `converged_` is False.

    References
    ----------
    Chen, Yuan, Nie and Huang (2017), "Semi-supervised Feature Selection via Rescaled Linear Regression", IJCAI,
    1525-1531, Eq. 1, into which the theta that is optimal for any W is substituted. Its Theta is rescaled here as in
    its formulas, theta^(1/2) on the diagonal. Its algorithm is not used, as it never makes a weight 0; the problem is
    convex, so scores do not depend on the start.

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

    gamma: float = 1.0
    max_iter: int = 300
    tol: float = 1e-8
    solver: SolverName = "auto"
    greedy_filter: bool = False
    correlation: Correlation = "auto"
    n_components: int = 8
    n_correlation_rows: int | None = 100_000
    score_scaling: Scaling | None = "zscore"

    def _keep_other_results(self, context: Context, method: Method) -> None:
        self.coef_, self.solution_ = solution_of(context.store, method)
        self.objective_ = np.asarray(self.solution_.pop("objective"))
        self.n_iter_, self.converged_ = self.solution_.pop("n_iter"), self.solution_.pop("converged")
        if not self.converged_:
            msg = (
                f"{self._criterion} stopped after max_iter={self.max_iter} rounds, or where its steps no longer moved "
                "the weights, before the objective and the weights had settled: raise max_iter, tol or gamma."
            )
            warnings.warn(msg, DaskfsConvergenceWarning, stacklevel=4)


class DSSFS(RLSR):
    """RLSR with dragged targets; large is good. A reconstruction.

    Its loss is ``||XW + 1b' - (Y + B * M)||^2`` with M >= 0 and B = 1 in the column of a labeled row's class, -1 in the
    others: targets may exceed 1 in the class of a row and be negative in others. NaN (excluded) for a constant feature.

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
    Regression-Supplement", AAAI (student abstract). Neither its formulas for unlabeled rows nor its code are public.
    Here M = 0 for these: their targets stay points of the simplex, every block of unknowns is minimized exactly, and
    the objective never increases.

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


@selector
class SSUFS(RLSR):
    """Semi-supervised uncorrelated feature selection, an extension of RLSR; large is good.

    Adds ``-(eta / 2) V'LV`` to RLSR's objective, a reward for weights that differ between correlated features, with
    V_j = ||w_j||^2 and L the Laplacian of M, the squared distance correlations. NaN (excluded) for a constant feature.

    Parameters
    ----------
    n_features_to_select, gamma, max_iter, tol, solver, greedy_filter, score_scaling
        As :class:`RLSR`; the weights satisfy the conditions of a stationary point to 1e-6.
    eta
        The paper's eta; None for `eta_relative`.
    eta_relative
        eta as a share of twice ``eta_ref = gamma / (2 max_j theta_j (LV)_j)`` at RLSR's solution, where the reward of
        some feature starts to exceed its penalty. Ignored if `eta` is given.
    correlation, n_components, n_correlation_rows
        `correlation`, `n_components` and `n_rows` of :func:`daskfs.distance_correlation_matrix`, for M.

    Attributes
    ----------
    score_fields_, coef_, n_iter_, converged_, solution_
        As :class:`RLSR`.
    objective_
        Objective of SSUFS with `eta_used_`, at RLSR's solution and after every round, float64; it never increases,
        except for rounding.
    eta_used_
        The paper's eta, as used, float.
    halvings_
        Number of times eta was halved, int.

    References
    ----------
    Zhong, Chen and Nie (2019), "Semi-Supervised Uncorrelated Feature Selection", EasyChair preprint, Eq. 2 to 5. The
    paper writes eta V'LV, but its update of W is that of half as much; eta here gives the paper's updates. The
    objective is unbounded below for large weights. So RLSR is solved first, and steps are damped where the reward
    exceeds the penalty, so that the objective decreases for every eta. If the weights still leave the basin of RLSR's
    solution, SSUFS restarts from that solution with half the eta. SSUFS spreads the weights of near copies, but hardly
    those of exact copies; `greedy_filter` removes both.

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

    eta: float | None = None
    eta_relative: float = 0.05

    def _keep_other_results(self, context: Context, method: Method) -> None:
        super()._keep_other_results(context, method)
        self.eta_used_, self.halvings_ = self.solution_.pop("eta_used"), self.solution_.pop("halvings")
