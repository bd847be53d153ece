"""Selectors by criteria that stand on all rows and on what labels there are."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from daskfs.criteria.registry import Method, label_warnings
from daskfs.criteria.semisupervised import SemiSupervisedParameters
from daskfs.criteria.sselect.trade_off import stored_curve
from daskfs.errors import InputError
from daskfs.estimators.base import ScoreSelector
from daskfs.estimators.graph import GraphSelector, NeighborSelector, given_graph
from daskfs.graph.mixed import open_rows
from daskfs.graph.precomputed import Graph, NeighborLists
from daskfs.graph.spec import WidthRule
from daskfs.kernels.labels import Labels
from daskfs.kernels.neighbors.rows import Metric
from daskfs.kernels.neighbors.weights import WeightKind
from daskfs.kernels.scaling import Scaling
from daskfs.plan.lists import check_neighbors
from daskfs.store.context import Context


class SSelect(GraphSelector):
    """sSelect: a feature as a two-way cut of the neighbor graph, good when it separates few neighbors and falls
    between the classes of the labelled rows; small is good.

    ``trade_off * g'Lg / g'Dg + (1 - trade_off) * (1 - NMI(sign(g), y))`` with g the feature less its mean by degrees
    over all rows. The first term is the Laplacian Score, in [0, 2]; the second, in [0, 1], looks at labelled rows only:
    NMI is the mutual information over the larger entropy, for any number of classes, and 0 where all labelled rows lie
    on one side of the mean. g = 0 counts as the upper side. NaN (excluded) for a feature that is constant on the rows
    which have an edge.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    trade_off
        The paper's lambda, in [0, 1]: 1 is the Laplacian Score, 0 looks at the labels only. "auto" tries 0, 0.1, ...,
        1 and takes the one whose best features cut the rows most easily, as
        :mod:`daskfs.kernels.statistics.normalized_cut` defines it (the paper's Algorithm 3, repaired) and measured it:
        mostly better than the mean of the grid, no better than the paper's 0.1 on text, and worse than both on one set
        of images. Look at `trade_off_curve_`.
    n_cut_features
        How many of the best features "auto" looks at; None for half of them, 50 at most.
    n_neighbors, metric, weights, t, self_loops, graph, graph_scaling, score_scaling
        As :class:`LaplacianScore`; the paper takes 10 neighbors.

    Attributes
    ----------
    score_fields_
        "score", "graph_term" and "label_term" (1 - NMI), each of shape (n_features,), float64.
    trade_off_
        The trade-off in use, as given or as chosen.
    trade_off_curve_
        With "auto", what each trade-off came to: arrays of shape (11,) under "trade_off", "cut_value",
        "n_components", "largest_component" (share of the rows), "kernel_cut_value", "kernel_width" and "n_distinct"
        (rows). Else None.

    Warns
    -----
    UserWarning
        Where all labelled rows have one class: the second term is 1 for every feature, and the first alone ranks.

    References
    ----------
    Zhao and Liu (2007), "Semi-supervised Feature Selection via Spectral Analysis", SIAM Data Mining, Eq. 3.8 and
    Algorithms 1 and 3. Eq. 3.4 and 3.8 agree when the sum is over ordered pairs, which is what is taken here; NMI over
    labelled rows reproduces the paper's footnote 4. The paper leaves the width of its kernel open.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import SSelect
    >>> X, y = load_iris(return_X_y=True)
    >>> partly = np.where(np.arange(150) % 10 == 0, y, -1)
    >>> SSelect(n_features_to_select=2).fit(X, partly).get_support(indices=True).tolist()
    [2, 3]
    """

    _criterion = "SSelect"
    _needs_labels = True
    _task = "classification"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GraphSelector._parameter_constraints,
        "trade_off": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "n_cut_features": [Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(
        self,
        n_features_to_select: float | None = None,
        *,
        trade_off: float | Literal["auto"] = 0.1,
        n_cut_features: int | None = None,
        n_neighbors: int = 10,
        metric: Metric = "euclidean",
        weights: WeightKind = "heat",
        t: WidthRule = "mean",
        self_loops: bool = False,
        graph: Any = None,
        graph_scaling: Scaling | None = None,
        score_scaling: Scaling | None = None,
    ) -> None:
        super().__init__(
            n_features_to_select,
            n_neighbors=n_neighbors,
            metric=metric,
            weights=weights,
            t=t,
            self_loops=self_loops,
            graph=graph,
            graph_scaling=graph_scaling,
            score_scaling=score_scaling,
        )
        self.trade_off = trade_off
        self.n_cut_features = n_cut_features

    def _parameters(self, labels: Labels | None) -> Mapping[str, Any]:
        own = {"trade_off": self.trade_off, "n_cut_features": self.n_cut_features}
        return {**super()._parameters(labels), **own}

    def _method(self, n_samples: int, labels: Labels | None) -> tuple[Method, Graph | None]:
        method, graph = super()._method(n_samples, labels)
        for message in label_warnings(method, labels):
            warnings.warn(f"{message}.", UserWarning, stacklevel=4)
        return method, graph

    def _keep_beside(self, context: Context, method: Method) -> None:
        curve = stored_curve(context.store, method)
        self.trade_off_ = float(self.trade_off) if curve is None else curve["chosen"]
        self.trade_off_curve_ = (
            None
            if curve is None
            else {key: _numbers(values) for key, values in curve.items() if isinstance(values, list)}
        )


class SemiSupervisedLaplacianScore(ScoreSelector):
    """Semi-Supervised Laplacian Score (SSLS) for a target of numbers: the Laplacian Score on a graph of all rows by
    target and by X, times that on the graph of the labelled rows; small is good.

    Two labelled rows are ``d = (y_i - y_j)**2`` apart, any other two ``d = ||x_i - x_j||**2 / n_features``. Rows are
    joined to their nearest by weights ``exp(-d / t)``, `label_weight` times that between labelled rows. On this graph
    the score is ``f'Lf / f~'D f~``, in [0, 2], and it is multiplied by the :class:`SupervisedLaplacianScore` of the
    labelled rows. NaN (excluded) for a feature that is constant on the rows which have an edge. One that is constant on
    the labelled rows only has 0/0 for the second factor, which is left out there.

    Two labelled rows of different targets are the least; fewer, or equal ones: :class:`ValueError`. A row has at most
    n_samples - 1 neighbors and n_labelled - 1 labelled ones: larger numbers mean all of them.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    n_neighbors
        Neighbors of each row in the graph of all rows.
    n_label_neighbors
        Neighbors of each labelled row in the graph of the labelled rows.
    t
        Width of the heat kernel of both graphs, in squared standard deviations.
    label_weight
        The paper's C.
    neighbors
        "d": the nearest rows by d, ties by row number. Pairs of labelled rows are not enumerated: the candidates are
        some hundred rows nearest in X, all of them up to 1024 rows, and the labelled rows nearest by target.
        :mod:`daskfs.graph.mixed` has the rule, and a warning tells of rows whose lists it may leave incomplete. "x":
        the nearest rows in X.
    standardize_y
        Divide differences of targets by their population standard deviation over the labelled rows, without which d
        mixes two scales.
    graph_scaling
        Scaling of X for distances, as :class:`LaplacianScore` takes it. The paper takes z-scores.
    graph
        None to find the neighbors in X, or a :class:`KNNGraph` of the same rows with metric "euclidean", or the path of
        one, whose lists are the candidates and whose scaling counts; at least `n_neighbors` long.

    Attributes
    ----------
    score_fields_
        "score", and its factors "mixed" and "supervised", each of shape (n_features,), float64.

    References
    ----------
    Doquire and Verleysen (2011), "Graph Laplacian for Semi-supervised Feature Selection in Regression Problems", IWANN,
    Eq. 8-10. The paper does not say whether "close" is by x or by d, nor that y is standardized.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from daskfs import SemiSupervisedLaplacianScore
    >>> X, y = load_diabetes(return_X_y=True)
    >>> partly = np.where(np.arange(442) % 5 == 0, y, np.nan)
    >>> SemiSupervisedLaplacianScore(n_features_to_select=2).fit(X, partly).get_support(indices=True).tolist()
    [2, 8]
    """

    _criterion = "SemiSupervisedLaplacianScore"
    _needs_labels = True
    _task = "regression"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **ScoreSelector._parameter_constraints,
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "n_label_neighbors": [Interval(Integral, 1, None, closed="left")],
        "t": [Interval(Real, 0, None, closed="neither")],
        "label_weight": [Interval(Real, 0, None, closed="neither")],
        "neighbors": [StrOptions({"d", "x"})],
        "standardize_y": ["boolean"],
        "graph_scaling": NeighborSelector._parameter_constraints["graph_scaling"],
        "graph": NeighborSelector._parameter_constraints["graph"],
    }

    def __init__(
        self,
        n_features_to_select: float | None = None,
        *,
        n_neighbors: int = 30,
        n_label_neighbors: int = 5,
        t: float = 1.0,
        label_weight: float = 5.0,
        neighbors: Literal["d", "x"] = "d",
        standardize_y: bool = True,
        graph_scaling: Scaling | None = "zscore",
        graph: Any = None,
    ) -> None:
        super().__init__(n_features_to_select)
        self.n_neighbors = n_neighbors
        self.n_label_neighbors = n_label_neighbors
        self.t = t
        self.label_weight = label_weight
        self.neighbors = neighbors
        self.standardize_y = standardize_y
        self.graph_scaling = graph_scaling
        self.graph = graph

    def _parameters(self, labels: Labels | None) -> Mapping[str, Any]:
        del labels
        return {key: value for key, value in self.get_params().items() if key not in ("n_features_to_select", "graph")}

    def _method(self, n_samples: int, labels: Labels | None) -> tuple[Method, Graph | None]:
        parameters = dict(self._parameters(labels))
        check_neighbors(1, n_samples)
        graph = given_graph(self.graph)
        if graph is None:
            return self._made(parameters), None
        if not isinstance(graph, NeighborLists) or graph.metric != "euclidean":
            what = f"neighbors by metric {graph.metric}" if isinstance(graph, NeighborLists) else "a matrix of weights"
            msg = f"graph holds {what}, and Euclidean distances are needed: pass a KNNGraph with metric 'euclidean'."
            raise InputError(msg)
        graph.check_size(n_samples, min(self.n_neighbors, n_samples - 1))
        return self._made({**parameters, "graph_scaling": graph.scaling}), graph

    def _keep_beside(self, context: Context, method: Method) -> None:
        assert isinstance(method.parameters, SemiSupervisedParameters)
        n_open = open_rows(context.store, method.parameters.mixed_graph.name)
        if n_open:
            msg = (
                f"{n_open} labelled rows may have nearer neighbors by d than were found: unlabelled rows beyond the "
                "candidates in X. Raise n_neighbors, or pass a graph with longer lists."
            )
            warnings.warn(msg, UserWarning, stacklevel=3)


class LSDF(NeighborSelector):
    """Locality Sensitive Discriminant Feature: how much a feature varies between classes, against how much it varies
    within them and between neighbors of which one is unlabelled; large is good.

    ``f'L_b f / f'L_w f``. Two labelled rows of different classes are joined by 1 in the first graph; in the second two
    of one class are joined by `same_class_weight`, and two rows of which at least one is unlabelled by 1 where either
    is among the nearest of the other. The sums over pairs of labelled rows are made from counts, means and scatters of
    the classes. NaN (excluded) for a constant feature; 0 where it is constant on the labelled rows only; +inf where it
    is constant within classes and between neighbors, and the classes differ. One class only: :class:`ValueError`.
    Where no row is unlabelled, no neighbors are needed and none are looked for.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    n_neighbors
        Neighbors of each row in X, itself left out, at most n_samples - 1.
    same_class_weight
        The paper's gamma.
    metric
        "euclidean" or "cosine".
    graph
        None to find the neighbors; or a graph as :class:`LaplacianScore` takes it. Of a matrix the weights count as
        they are.
    graph_scaling, score_scaling
        As :class:`LaplacianScore`, for the neighbors and for the scored values.

    Attributes
    ----------
    score_fields_
        "score", "between" (f'L_b f) and "within" (f'L_w f), each of shape (n_features,), float64.

    References
    ----------
    Zhao, Lu and He (2008), "Locality sensitive semi-supervised feature selection", Neurocomputing 71(10-12), 1842-1849.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import LSDF
    >>> X, y = load_iris(return_X_y=True)
    >>> partly = np.where(np.arange(150) % 10 == 0, y, -1)
    >>> LSDF(n_features_to_select=2).fit(X, partly).get_support(indices=True).tolist()
    [2, 3]
    """

    _criterion = "LSDF"
    _needs_labels = True
    _task = "classification"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **NeighborSelector._parameter_constraints,
        "same_class_weight": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        n_features_to_select: float | None = None,
        *,
        n_neighbors: int = 10,
        same_class_weight: float = 100.0,
        metric: Metric = "euclidean",
        graph: Any = None,
        graph_scaling: Scaling | None = None,
        score_scaling: Scaling | None = None,
    ) -> None:
        super().__init__(n_features_to_select)
        self.n_neighbors = n_neighbors
        self.same_class_weight = same_class_weight
        self.metric = metric
        self.graph = graph
        self.graph_scaling = graph_scaling
        self.score_scaling = score_scaling

    def _parameters(self, labels: Labels | None) -> Mapping[str, Any]:
        del labels
        return {key: value for key, value in self.get_params().items() if key not in ("n_features_to_select", "graph")}

    def _method(self, n_samples: int, labels: Labels | None) -> tuple[Method, Graph | None]:
        if labels is not None and labels.is_labelled.all():
            return self._made({**self._parameters(labels), "graph": "none"}), None
        return super()._method(n_samples, labels)


def _numbers(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values])
