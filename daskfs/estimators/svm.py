"""Selector by support vector machines (SVM)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal, Self

from daskfs.criteria.registry import Method
from daskfs.criteria.svmrfe.criterion import LargeN
from daskfs.criteria.svmrfe.elimination import elimination_warnings, stored_elimination
from daskfs.errors import DaskfsWarning, InputError
from daskfs.estimators.base import selector
from daskfs.estimators.graph import NeighborSelector
from daskfs.graph.precomputed import Graph
from daskfs.graph.spec import WidthRule
from daskfs.kernels.labels import Labels
from daskfs.kernels.neighbors.weights import WeightKind
from daskfs.kernels.scaling import Scaling
from daskfs.kernels.svm.elimination import Candidates, CriterionName, SlackReading
from daskfs.store.context import Context


@selector
class SVMRFE(NeighborSelector):
    """Backward elimination by SVMs with a Gaussian kernel; features eliminated late are good.

    Each round trains an SVM, which minimizes ``||w||^2 / 2 + C sum xi``, with the remaining features, computes the
    criterion of each feature and eliminates those of the smallest (Algorithm 1). More than two classes are one-vs-rest
    problems, whose criteria are added. NaN (excluded) for a constant feature.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    criterion
        Of feature i, "rfe": ``| ||w||^2 - ||w^(i)||^2 |``, with w^(i) of the SVM without feature i (Eq. 1). "rmb": the
        bound ``(R^2 + 1/C)(||w||^2 + c C sum xi)`` on the leave-one-out errors without feature i, with R the radius of
        the smallest sphere around the rows (Eq. 2).
    retrain
        Whether to train an SVM without each feature, instead of keeping beta = alpha y.
    laplacian
        Whether to add ``gamma_I f'Lf``, over labeled and unlabeled rows, to the objective. The kernel is then
        ``k - k_x'(I / (2 gamma_I) + LK)^-1 L k_z`` (the 1 / (4 gamma_I) of the paper does not follow from its
        objective), rescaled to mean diagonal 1 over the labeled rows ("landmarks": over all rows), as it shrinks for
        growing gamma_I. Without `laplacian`, unlabeled rows (-1, or NaN in a float y) only contribute to the means and
        deviations that scale the features.
    C
        Slack cost of a row of sample weight 1, above 0. Sample weights also multiply edges and sums over landmarks.
    gamma
        Of the kernel ``exp(-gamma ||x - z||^2)``. "auto" is 1 over the number of non-constant features for "rfe", and 1
        over the number of remaining features for "rmb", which gave the best rankings.
    gamma_intrinsic
        gamma_I, above 0. If it is too large for C, every alpha is at C and labels cannot distinguish features.
    step
        Share, in (0, 1), or number of the remaining features to eliminate per round.
    n_singly
        Number of remaining features from which on one is eliminated per round; about twice the number of features to
        select is adequate.
    candidates
        "first_order": without `retrain`, criteria of all features by matrix products, to first order in gamma, while
        more than `n_singly` remain; then one feature at a time, for a Laplacian SVM to first order in the change of the
        plain kernel. "exact": one feature at a time; a Laplacian SVM solves a system of all rows for each.
    slack
        For "rmb" without `retrain`: "recomputed" derives xi from the kernel without the feature. "frozen" keeps
        ``||w||^2 + c C sum xi``, so that only R^2 changes and labels are ignored, as in the table of the paper.
    slack_factor
        c: 2 is the bound of Chung et al. (2003), 1 that of the paper, whose bound is then ``(R^2 + 1/C) sum alpha``.
    n_neighbors, metric, metric_kwds, weights, t, self_loops
        Parameters of the graph, as :class:`LaplacianScore`.
    rebuild_graph
        Whether to rebuild the graph from the remaining features in every round, or to use that of all features.
    graph
        Precomputed graph for all rounds, as :class:`LaplacianScore`; needs `laplacian` and the exact route.
    graph_scaling
        Scaling of X for a graph of all features.
    large_n
        "exact" trains with all labeled rows and uses the graph of all rows. "landmarks" uses sums over landmarks, one
        pass over X per round, in memory independent of n_samples. It replaces hinge loss by least squares, and the
        graph by one in which rows that share landmarks are neighbors (`n_neighbors` landmarks each); `C` and the other
        graph parameters are ignored. It supports "rfe" without `retrain` only. "auto" is "exact" if "landmarks" is not
        supported, or for at most 15,000 labeled rows (6,000 rows with a graph) that fit the memory of a worker.
    n_landmarks
        Number of landmarks, drawn from the labeled rows. With a graph half of them are labeled and half unlabeled, if
        there are enough of both; use at least twice the number of labeled rows.
    ridge
        Weight of the norm over landmarks, as a share of the number of labeled rows.
    random_state
        Seed of the draw of landmarks.
    score_scaling
        "zscore", "unit" (rows), "log1p", "total", a chain such as "total+log1p+zscore", or None. The kernel uses scaled
        features: without z-scores, those of large variance dominate.
    n_jobs
        Number of threads, as :class:`LaplacianScore`.

    Attributes
    ----------
    scores_
        Criterion in the last round that evaluated the feature, shape (n_features,), float64; scores of different rounds
        are not comparable. "rfe" is in units of ||w||^2.
    score_fields_
        Arrays of shape (n_features,), float64: "score"; "round" of elimination, counted from 1, one more for the last
        remaining feature; "position", the rank.
    ranking_
        By round, the last first, and by score within a round; ties by feature index.
    route_
        "exact" or "landmarks".
    n_rounds_
        Number of rounds, int.
    rounds_
        Facts of each round, by name: number of remaining features; on the exact route the number of support vectors,
        the share of rows with alpha at C, the duality gap as a share of the objective, and for "rmb" whether R^2 is
        "exact" or, above 2,000 rows, bounded by the "variance". Of several one-vs-rest problems, the largest number of
        support vectors, the smallest share and the largest gap.

    Raises
    ------
    ValueError
        In `fit`, for invalid values, labels or weights, labels of one class, a float target, `n_neighbors` too large
        for the number of rows, "landmarks" with unsupported parameters, and a `graph` without `laplacian` or with
        "landmarks".

    Warns
    -----
    DaskfsWarning
        If every alpha was at C in some round.

    References
    ----------
    Bodo and Minier (2008), "Semi-supervised feature selection with SVMs", Studia Universitatis Babes-Bolyai
    Informatica 53(2). Guyon, Weston, Barnhill and Vapnik (2002), Machine Learning 46. Chung, Kao, Sun, Wang and Lin
    (2003), Neural Computation 15(11). Liu, He and Chang (2010), ICML, for graphs over landmarks.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import SVMRFE
    >>> SVMRFE().fit(*load_iris(return_X_y=True)).ranking_.tolist()
    [4, 3, 2, 1]
    """

    _criterion = "SVMRFE"
    _needs_labels = True
    _task = "classification"

    criterion: CriterionName = "rfe"
    retrain: bool = False
    laplacian: bool = False
    C: float = 10.0
    gamma: float | Literal["auto"] = "auto"
    gamma_intrinsic: float = 0.1
    step: float = 0.25
    n_singly: int = 8
    candidates: Candidates = "first_order"
    slack: SlackReading = "recomputed"
    slack_factor: float = 2.0
    n_neighbors: int = 6
    weights: WeightKind = "binary"
    t: WidthRule = "mean"
    self_loops: bool = False
    rebuild_graph: bool = True
    graph_scaling: Scaling | None = "zscore"
    large_n: LargeN = "auto"
    n_landmarks: int = 200
    ridge: float = 1e-3
    random_state: int = 0
    score_scaling: Scaling | None = "zscore"

    def _fit(self, X: Any, y: Any, sample_weight: Any, use_rep: Any = None) -> Self:
        if use_rep is not None and not self.laplacian:
            msg = "use_rep needs laplacian=True."
            raise InputError(msg)
        return super()._fit(X, y, sample_weight, use_rep)

    def _method(self, n_samples: int, labels: Labels | None) -> tuple[Method, Graph | None]:
        if self.graph is None:
            return self._make_method(self._parameters(labels)), None
        if not self.laplacian:
            msg = "graph needs laplacian=True."
            raise InputError(msg)
        if self.large_n == "landmarks":
            msg = "large_n='landmarks' has a graph of its own, and takes none from outside."
            raise InputError(msg)
        return super()._method(n_samples, labels)

    def _parameters(self, labels: Labels | None) -> Mapping[str, Any]:
        settled = {} if self.graph is None else {"rebuild_graph": False, "large_n": "exact"}
        return {**super()._parameters(labels), **settled}

    def _keep_other_results(self, context: Context, method: Method) -> None:
        elimination = stored_elimination(context.store, method)
        assert elimination is not None
        self.route_, self.rounds_ = elimination["route"], elimination["rounds"]
        self.n_rounds_ = len(self.rounds_)
        for message in elimination_warnings(method, elimination):
            warnings.warn(f"{message}.", DaskfsWarning, stacklevel=4)
