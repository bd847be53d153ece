"""Selectors by semi-supervised criteria, which use all rows and the labels of some."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np

from daskfs.criteria.registry import Method, label_warnings
from daskfs.criteria.semisupervised import SemiSupervisedParameters
from daskfs.criteria.sselect.trade_off import stored_curve
from daskfs.errors import DaskfsWarning, InputError
from daskfs.estimators.base import selector
from daskfs.estimators.graph import GraphSelector, NeighborSelector, SearchingSelector
from daskfs.graph.mixed import open_rows
from daskfs.graph.precomputed import Graph, NeighborLists
from daskfs.graph.spec import check_neighbors
from daskfs.kernels.labels import LabelCounts, Labels
from daskfs.kernels.scaling import Scaling
from daskfs.kernels.statistics.permutation import FDRMethod
from daskfs.store.context import Context


@selector
class SSelect(GraphSelector):
    """sSelect: quality of a feature as a cut of the neighbor graph that separates the classes; small is good.

    ``trade_off * g'Lg / g'Dg + (1 - trade_off) * (1 - NMI(sign(g), y))``, where g is the feature minus its
    degree-weighted mean, sign(0) = 1, and the first ratio is the Laplacian Score. NaN (excluded) for a feature that is
    constant on the rows with an edge.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    trade_off
        The paper's lambda, in [0, 1]: 1 is the Laplacian Score, 0 uses the labels only. "auto" tries 0, 0.1, ..., 1 and
        takes the one whose best features give the rows the smallest cut value, as defined in
        :mod:`daskfs.kernels.statistics.normalized_cut` (the paper's Algorithm 3, repaired). Measured there, "auto" was
        mostly better than the mean of the grid, no better than the paper's 0.1 on text, and worse than both on one set
        of images: inspect `trade_off_curve_`.
    n_cut_features
        Number of best features whose cut "auto" evaluates; None for half of them, at most 50.
    n_neighbors, metric, metric_kwds, weights, t, self_loops, graph, graph_scaling, score_scaling, n_jobs
        As :class:`LaplacianScore`; the paper uses 10 neighbors.

    Attributes
    ----------
    score_fields_
        "score", "graph_term" (in [0, 2]) and "label_term" (1 - NMI, in [0, 1]), each of shape (n_features,), float64.
    trade_off_
        The trade-off used, given or chosen, float.
    trade_off_curve_
        With "auto", results of each trade-off: arrays of shape (11,) under "trade_off", "cut_value", "n_components",
        "largest_component" (share of the rows), "kernel_cut_value", "kernel_width" and "n_distinct" (number of distinct
        rows). Else None.

    Warns
    -----
    DaskfsWarning
        If all labeled rows have one class: the second term is 1 for every feature, so only the first one ranks.

    References
    ----------
    Zhao and Liu (2007), "Semi-supervised Feature Selection via Spectral Analysis", SIAM Data Mining, Eq. 3.8 and
    Algorithms 1 and 3. Sums are over ordered pairs, so that Eq. 3.4 and 3.8 agree. NMI, on the labeled rows, is the
    mutual information over the larger entropy, for any number of classes, which reproduces the paper's footnote 4; it
    is 0 if all labeled rows are on one side of the mean. The paper does not specify the width of its kernel.

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

    trade_off: float | Literal["auto"] = 0.1
    n_cut_features: int | None = None
    n_neighbors: int = 10

    def _method(self, n_samples: int, labels: Labels | None) -> tuple[Method, Graph | None]:
        method, graph = super()._method(n_samples, labels)
        for message in label_warnings(method, None if labels is None else LabelCounts.of(labels)):
            warnings.warn(f"{message}.", DaskfsWarning, stacklevel=5)
        return method, graph

    def _keep_other_results(self, context: Context, method: Method) -> None:
        curve = stored_curve(context.store, method)
        self.trade_off_ = float(self.trade_off) if curve is None else curve["chosen"]
        self.trade_off_curve_ = None
        if curve is not None:
            self.trade_off_curve_ = {
                key: np.array([np.nan if value is None else value for value in values])
                for key, values in curve.items()
                if isinstance(values, list)
            }


@selector
class SemiSupervisedLaplacianScore(SearchingSelector):
    """Semi-Supervised Laplacian Score (SSLS) for a numeric target; small is good.

    The Laplacian Score ``f'Lf / f~'D f~`` on a mixed graph of all rows, in [0, 2], times the
    :class:`SupervisedLaplacianScore` of the labeled rows. NaN (excluded) for a feature that is constant on the rows
    with an edge. For a feature that is constant on the labeled rows only, the second factor is 0/0 and left out.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    n_neighbors
        Neighbors of each row in the mixed graph; all others if n_samples - 1 is smaller.
    n_label_neighbors
        Neighbors of each labeled row in the graph of the labeled rows; all others if n_labeled - 1 is smaller.
    t
        Width of the heat kernel of both graphs, in squared standard deviations.
    label_weight
        The paper's C: factor of the weight of edges between two labeled rows; edges have weight ``exp(-d / t)``.
    neighbors
        "d": the nearest rows by the mixed distance d, which is ``(y_i - y_j)**2`` for two labeled rows and
        ``||x_i - x_j||**2 / n_features`` for any other two; ties by row number. Candidates are some hundred rows
        nearest in X (all, up to 1024 rows) and the labeled rows nearest by target, not all pairs of labeled rows:
        :mod:`daskfs.graph.mixed` states the rule. "x": the nearest rows in X.
    standardize_y
        Whether to divide the target by its population standard deviation over the labeled rows; otherwise d mixes two
        scales.
    metric, metric_kwds
        Distance between rows, and its arguments, as for :func:`daskfs.knn_graph`: its square takes the place of
        ``||x_i - x_j||**2 / n_features``, which the paper has.
    graph_scaling
        Scaling of X for distances, as :class:`LaplacianScore`. The paper uses z-scores.
    graph
        Precomputed candidates: neighbor lists of the same rows, as :class:`LaplacianScore` takes them, of at least
        `n_neighbors` entries; their metric and scaling replace the parameters. None to search the neighbors.
    score_scaling
        Rescaling of X on the fly before it is scored: None, "zscore", "unit", "log1p", "total" or a chain of these, as
        :class:`LaplacianScore` takes it.
    n_jobs
        Number of threads, as :class:`LaplacianScore`.

    Attributes
    ----------
    score_fields_
        "score", and its factors "mixed" and "supervised", each of shape (n_features,), float64.

    Raises
    ------
    ValueError
        In `fit`, for fewer than two labeled rows, labels that are all equal, or a `graph` without distances.

    Warns
    -----
    DaskfsWarning
        If candidates may not include all nearest neighbors of some labeled rows.

    References
    ----------
    Doquire and Verleysen (2011), "Graph Laplacian for Semi-supervised Feature Selection in Regression Problems", IWANN,
    Eq. 8-10. The paper does not specify whether "close" is by x or by d, or whether y is standardized.

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

    n_neighbors: int = 30
    n_label_neighbors: int = 5
    t: float = 1.0
    label_weight: float = 5.0
    neighbors: Literal["d", "x"] = "d"
    standardize_y: bool = True
    graph_scaling: Scaling | None = "zscore"

    def _method(self, n_samples: int, labels: Labels | None) -> tuple[Method, Graph | None]:
        check_neighbors(1, n_samples)
        if (graph := self._given_graph()) is None:
            return super()._method(n_samples, labels)
        if not isinstance(graph, NeighborLists):
            msg = "graph holds a matrix of weights, and distances are needed: pass a KNNGraph."
            raise InputError(msg)
        graph.check_size(n_samples, min(self.n_neighbors, n_samples - 1))
        return self._make_method({**self._parameters(labels), **graph.settings}), graph

    def _keep_other_results(self, context: Context, method: Method) -> None:
        assert isinstance(method.parameters, SemiSupervisedParameters)
        if n_open := open_rows(context.store, method.parameters.mixed_graph.name):
            msg = (
                f"{n_open} labeled rows may have nearer neighbors by d than were found: unlabeled rows beyond the "
                "candidates in X. Raise n_neighbors, or pass a graph with longer lists."
            )
            warnings.warn(msg, DaskfsWarning, stacklevel=4)


@selector
class LSDF(NeighborSelector):
    """Locality Sensitive Discriminant Feature: variation between over variation within classes; large is good.

    ``f'L_b f / f'L_w f``, with graphs as under `score_fields_`. NaN (excluded) for a constant feature; 0 if it is
    constant on the labeled rows only; +inf if it is constant within classes and between neighbors, and the classes
    differ. If all rows are labeled, no neighbors are searched.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    n_neighbors
        Neighbors of each row in X, excluding itself, at most n_samples - 1.
    same_class_weight
        The paper's gamma: weight of the edges within a class.
    metric, metric_kwds
        Distance between rows, and its arguments, as for :func:`daskfs.knn_graph`.
    graph
        Precomputed graph, as :class:`LaplacianScore`; weights of a matrix are used unchanged. None to search the
        neighbors.
    significance, fdr_method
        Whether to test every feature: `pvalues_` by permutation of the labels among the labeled rows, whatever the
        graph and the weights, and `qvalues_`, as in :class:`LaplacianScore`.
    graph_scaling, score_scaling, n_jobs
        As :class:`LaplacianScore`, for the neighbors and the scored values.

    Attributes
    ----------
    score_fields_
        "score", "between" (f'L_b f) and "within" (f'L_w f), each of shape (n_features,), float64. L_b has an edge of
        weight 1 between any two labeled rows of different classes. L_w has an edge of weight `same_class_weight`
        between any two of the same class, and one of weight 1 between neighbors (either lists the other) of which
        at least one is unlabeled. Sums over pairs of labeled rows are computed from class counts, means and scatters.

    Raises
    ------
    ValueError
        In `fit`, for a single class.

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

    n_neighbors: int = 10
    same_class_weight: float = 100.0
    significance: bool = False
    fdr_method: FDRMethod = "bh"

    def _method(self, n_samples: int, labels: Labels | None) -> tuple[Method, Graph | None]:
        if labels is not None and labels.is_labeled.all():
            return self._make_method({**self._parameters(labels), "graph": "none"}), None
        return super()._method(n_samples, labels)
