"""Selector by support vector machines."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

from sklearn.utils._param_validation import Interval, StrOptions

from daskfs.criteria.registry import Method
from daskfs.criteria.svmrfe.criterion import LARGE_N, LargeN
from daskfs.criteria.svmrfe.elimination import elimination_warnings, stored_elimination
from daskfs.errors import InputError
from daskfs.estimators.base import ScoreSelector
from daskfs.estimators.graph import given_graph
from daskfs.graph.knn import KNNGraph
from daskfs.graph.precomputed import Graph, NeighborLists
from daskfs.graph.spec import WidthRule
from daskfs.kernels.labels import Labels
from daskfs.kernels.neighbors.rows import METRICS, Metric
from daskfs.kernels.neighbors.weights import WEIGHT_KINDS, WeightKind
from daskfs.kernels.scaling import Scaling
from daskfs.kernels.svm.elimination import Candidates, CriterionName, SlackReading
from daskfs.store.context import Context


class SVMRFE(ScoreSelector):
    """Backward elimination by support vector machines with a Gaussian kernel; features that stay long are good.

    In each round a machine is trained with the features that are left, every one of them is judged by what the machine
    would be without it, and the least go (Algorithm 1). "rfe" judges by ``| ||w||^2 - ||w^(i)||^2 |`` (Eq. 1), "rmb" by
    the bound ``(R^2 + 1/C)(||w||^2 + c C sum xi)`` on the errors of leaving one row out (Eq. 2), with R the radius of
    the smallest sphere round the rows. Of more than two classes each is told from all others, and what the problems say
    of a feature is added up.

    The machine minimizes ``||w||^2 / 2 + C sum xi``; with `laplacian` plus ``gamma_I f'Lf`` over labelled and
    unlabelled rows, by the kernel ``k - k_x'(I / (2 gamma_I) + LK)^-1 L k_z`` (the 1 / (4 gamma_I) of the paper does
    not follow from its objective), rescaled to mean diagonal 1, as it shrinks while gamma_I grows.

    A constant feature is NaN (excluded) and takes no part. Rows without a label (-1, or NaN in a float y) take part
    with `laplacian` only, but count for means and deviations that features are scaled by. A row of sample weight 2
    counts as two: in the cost of its slack, by products of weights at its edges, and in the sums over landmarks.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    criterion
        "rfe" or "rmb".
    retrain
        Whether a machine is trained for every feature left out, instead of keeping beta = alpha y.
    laplacian
        Whether unlabelled rows take part, by a graph.
    C
        Cost of a row that counts for one, above 0.
    gamma
        Of the kernel ``exp(-gamma ||x - z||^2)``; "auto" is 1 over the number of features that are not constant for
        "rfe", and of those left for "rmb", which rank best so.
    gamma_intrinsic
        gamma_I, above 0. Where it is too large for C every alpha is at C, and no label tells a feature from another: a
        warning says so.
    step
        Share of the features left that go in a round, in (0, 1), or their number.
    n_singly
        From so many features on they go one at a time; about twice the number to be selected serves.
    candidates
        "first_order": without `retrain`, all features at once by products of matrices, to first order in gamma, as long
        as more than `n_singly` are left; one by one, a Laplacian machine's kernel changes to first order in the plain
        one's change. "exact": one by one, where a Laplacian machine takes a system of all rows for each.
    slack
        Under "rmb" without `retrain`: the xi "recomputed" from the kernel without the feature, or "frozen" with the
        sum of alpha, so that only R^2 changes and labels have no say; the table of the paper shows that reading.
    slack_factor
        c; 2 is the bound of Chung et al. (2003), 1 that of the paper, whose product is then ``(R^2 + 1/C) sum alpha``.
    n_neighbors, metric, weights, t
        Of the graph, as :class:`LaplacianScore` takes them.
    rebuild_graph
        Whether the graph is that of the features left, in every round, or that of all features.
    graph
        A graph to keep instead, as :class:`LaplacianScore` takes it; with `laplacian`, on the exact route.
    graph_scaling
        What X is rescaled by where the graph is that of all features.
    large_n
        "exact" trains with all labelled rows, and takes the graph of all rows. "landmarks" takes sums over landmarks,
        one pass over X in each round, whose size does not depend on the rows: least squares in place of the hinge, and
        under a graph, rows that share landmarks as neighbors (`n_neighbors` landmarks each; `C` and what else the graph
        is made of have no say). It is for "rfe" without `retrain`. "auto" is "exact" for at most 15,000 labelled rows
        (6,000 rows under a graph) that fit the memory of a worker, and where landmarks cannot serve.
    n_landmarks
        Number of landmarks, drawn from the labelled rows. Under a graph half of them are labelled and half are not, as
        far as there are so many of either; it serves well where it is twice the number of labelled rows, or more.
    ridge
        Weight of the norm over landmarks, as a share of the labelled rows.
    random_state
        Seed of the draw of landmarks.
    score_scaling
        "zscore", "unit" (rows), "log1p", "total", a chain such as "total+log1p+zscore", or None. The kernel sees
        features as they are scaled: without z-scores it sees those of large variance only.

    Attributes
    ----------
    scores_
        The criterion in the last round that judged the feature, shape (n_features,), float64; scores of different
        rounds do not compare. "rfe" is in units of ||w||^2.
    score_fields_
        By name, of shape (n_features,), float64: "score"; "round", in which the feature went, counted from 1, and one
        more for the last; "position", its rank.
    ranking_
        By round, the last first, and by score within a round; of equals the lower number first.
    route_
        "exact" or "landmarks".
    n_rounds_
        Number of rounds, int.
    rounds_
        What was seen in each, by name: features left; on the exact route support vectors, the share of rows whose alpha
        is at C, the duality gap as a share of the objective, and under "rmb" whether R^2 is "exact" or, above 2,000
        rows, its bound by the "variance"; of several problems the most support vectors, the least share and the largest
        gap.

    Raises
    ------
    ValueError
        In `fit`: for values, labels or weights that cannot serve, labels of one class, a float target, `n_neighbors`
        that so few rows do not have, "landmarks" for what it cannot judge, and a `graph` without `laplacian` or with
        "landmarks".

    Warns
    -----
    UserWarning
        Where in some round every alpha was at C.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **ScoreSelector._parameter_constraints,
        "criterion": [StrOptions({"rfe", "rmb"})],
        "retrain": ["boolean"],
        "laplacian": ["boolean"],
        "C": [Interval(Real, 0, None, closed="neither")],
        "gamma": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "gamma_intrinsic": [Interval(Real, 0, None, closed="neither")],
        "step": [Interval(Integral, 1, None, closed="left"), Interval(Real, 0, 1, closed="neither")],
        "n_singly": [Interval(Integral, 1, None, closed="left")],
        "candidates": [StrOptions({"first_order", "exact"})],
        "slack": [StrOptions({"recomputed", "frozen"})],
        "slack_factor": [Interval(Real, 0, None, closed="neither")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "metric": [StrOptions(set(METRICS))],
        "weights": [StrOptions(set(WEIGHT_KINDS))],
        "t": [Interval(Real, 0, None, closed="neither"), StrOptions({"mean", "median"})],
        "rebuild_graph": ["boolean"],
        "graph": [KNNGraph, str, "array-like", "sparse matrix", None],
        "graph_scaling": [str, None],
        "large_n": [StrOptions(set(LARGE_N))],
        "n_landmarks": [Interval(Integral, 1, None, closed="left")],
        "ridge": [Interval(Real, 0, None, closed="neither")],
        "random_state": [Interval(Integral, 0, None, closed="left")],
        "score_scaling": [str, None],
    }

    def __init__(
        self,
        n_features_to_select: float | None = None,
        *,
        criterion: CriterionName = "rfe",
        retrain: bool = False,
        laplacian: bool = False,
        C: float = 10.0,
        gamma: float | Literal["auto"] = "auto",
        gamma_intrinsic: float = 0.1,
        step: float = 0.25,
        n_singly: int = 8,
        candidates: Candidates = "first_order",
        slack: SlackReading = "recomputed",
        slack_factor: float = 2.0,
        n_neighbors: int = 6,
        metric: Metric = "euclidean",
        weights: WeightKind = "binary",
        t: WidthRule = "mean",
        rebuild_graph: bool = True,
        graph: Any = None,
        graph_scaling: Scaling | None = "zscore",
        large_n: LargeN = "auto",
        n_landmarks: int = 200,
        ridge: float = 1e-3,
        random_state: int = 0,
        score_scaling: Scaling | None = "zscore",
    ) -> None:
        super().__init__(n_features_to_select)
        self.criterion = criterion
        self.retrain = retrain
        self.laplacian = laplacian
        self.C = C
        self.gamma = gamma
        self.gamma_intrinsic = gamma_intrinsic
        self.step = step
        self.n_singly = n_singly
        self.candidates = candidates
        self.slack = slack
        self.slack_factor = slack_factor
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.weights = weights
        self.t = t
        self.rebuild_graph = rebuild_graph
        self.graph = graph
        self.graph_scaling = graph_scaling
        self.large_n = large_n
        self.n_landmarks = n_landmarks
        self.ridge = ridge
        self.random_state = random_state
        self.score_scaling = score_scaling

    def _parameters(self, labels: Labels | None) -> Mapping[str, Any]:
        del labels
        others = ("n_features_to_select", "graph")
        return {key: getattr(self, key) for key in self.get_params(deep=False) if key not in others}

    def _method(self, n_samples: int, labels: Labels | None) -> tuple[Method, Graph | None]:
        parameters = dict(self._parameters(labels))
        graph = given_graph(self.graph)
        if graph is None:
            return self._made(parameters), None
        if not self.laplacian:
            msg = "a graph has a say with laplacian=True only."
            raise InputError(msg)
        if self.large_n == "landmarks":
            msg = "large_n='landmarks' has a graph of its own, and takes none from outside."
            raise InputError(msg)
        parameters |= {"rebuild_graph": False, "large_n": "exact"}
        if isinstance(graph, NeighborLists):
            parameters |= {"metric": graph.metric, "graph_scaling": graph.scaling}
            graph.check_size(n_samples, self.n_neighbors)
        else:
            parameters["graph"] = "given"
            graph.check_size(n_samples)
        return self._made(parameters), graph

    def _keep_beside(self, context: Context, method: Method) -> None:
        found = stored_elimination(context.store, method)
        assert found is not None
        self.route_, self.rounds_ = found["route"], found["rounds"]
        self.n_rounds_ = len(self.rounds_)
        for message in elimination_warnings(method, found):
            warnings.warn(message, UserWarning, stacklevel=3)
