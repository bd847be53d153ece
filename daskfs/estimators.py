"""Scikit-learn selectors. Each is a shell round the stages of a job; no criterion is written twice."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_array, column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from daskfs.errors import InputError, JobError
from daskfs.graph.api import KNNGraph
from daskfs.graph.given import Graph, NeighborLists, WeightMatrix
from daskfs.graph.spec import GraphSpec, WidthRule
from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.labels import Labels
from daskfs.kernels.neighbors import METRICS, Metric
from daskfs.kernels.order import rank_order, ranks
from daskfs.kernels.scaling import SCALINGS, Scaling
from daskfs.kernels.weights import WEIGHT_KINDS, WeightKind
from daskfs.methods.registry import Method, make_method
from daskfs.planning import check_neighbors
from daskfs.scores.slab import graph_needs
from daskfs.scoring import is_stored, loaded_if_small, opened, score_features
from daskfs.sources.labels import encode_labels
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.tiles import check_finite

_AS_ROWS: Mapping[str, Any] = {
    "accept_sparse": "csr",
    "dtype": "numeric",
    "order": "C",
    "ensure_all_finite": False,  # check_finite names the column
}


class _ScoreSelector(SelectorMixin, BaseEstimator):
    """What all selectors share: reading X and y, scoring, ranking, choosing.

    Attributes
    ----------
    scores_
        Shape (n_features,), float64: the criterion's value in its paper's sense and direction; NaN = excluded.
    ranking_
        Shape (n_features,), int64: 1 is best; ties by feature number, excluded features last.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    _criterion: ClassVar[str]
    _needs_labels: ClassVar[bool] = False
    _task: ClassVar[str | None] = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_features_to_select": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="right"),
            None,
        ],
    }

    def __init__(self, n_features_to_select: float | None = None) -> None:
        self.n_features_to_select = n_features_to_select

    def fit(self, X: Any, y: Any = None) -> Self:
        """Score and rank the features.

        Parameters
        ----------
        X
            Array, CSR or CSC matrix, DataFrame, dask array or DataFrame, Zarr array, or the path of any source that
            ``daskfs convert`` reads; shape (n_samples, n_features), finite.
        y
            Labels, shape (n_samples,): class labels with -1 for unlabelled rows, or a float target with NaN for those.
            Ignored by criteria that use none.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For NaN or infinite values (naming column and row), labels that cannot serve, or too few rows.
        """
        self._validate_params()
        columns = getattr(X, "columns", None)
        X = loaded_if_small(X)
        stored = is_stored(X)
        if not stored:
            X, y = self._validated(X, y)
        elif y is not None:
            y = column_or_1d(y, warn=True)
        labels = self._labels(y)
        with opened(X, labels) as (context, names, client):
            shape = context.tiles.shape
            if labels is not None and labels.values.shape[0] != shape.n_samples:
                msg = f"y has {labels.values.shape[0]} values, and X has {shape.n_samples} rows."
                raise InputError(msg)
            if stored:
                self.n_features_in_ = shape.n_features
                names = columns if names is None else names  # of a dask DataFrame
                if names is not None:
                    self.feature_names_in_ = np.array(names, dtype=object)
                elif hasattr(self, "feature_names_in_"):  # of an earlier fit
                    del self.feature_names_in_
            method, specs, given = self._method(shape.n_samples, labels)
            table = score_features(context, [method], specs, labels, given, client)[method.label]
            _warn_of_isolated_rows(context, method)
        self._keep(method, table)
        return self

    def _validated(self, X: Any, y: Any) -> tuple[Any, Any]:
        if not self._needs_labels:
            return self._finite(validate_data(self, X, **_AS_ROWS)), None
        partly = is_sparse(y) or np.asarray(y).dtype.kind != "f"
        if y is None or partly:
            X, y = validate_data(self, X, y, **_AS_ROWS)
            return self._finite(X), y
        # a float y may hold NaN for unlabelled rows, which validate_data refuses
        X = self._finite(validate_data(self, X, **_AS_ROWS))
        y = column_or_1d(y, warn=True)
        if y.shape[0] != X.shape[0]:
            msg = f"y has {y.shape[0]} values, and X has {X.shape[0]} rows."
            raise InputError(msg)
        return X, y

    def _finite(self, X: Any) -> Any:
        names = getattr(self, "feature_names_in_", None)
        check_finite(X, 0, None if names is None else tuple(names), "X")
        return X

    def _labels(self, y: Any) -> Labels | None:
        if y is None or not self._needs_labels:
            return None
        values = np.asarray(y)
        if values.dtype.kind == "f" and np.isinf(values).any():
            msg = "Input y contains infinity."
            raise InputError(msg)
        task = self._target_task(values)
        if task == "classification":
            known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
            check_classification_targets(known)
        return encode_labels(values, values.shape[0], task)

    def _target_task(self, y: np.ndarray) -> str:
        del y
        return self._task or "auto"

    def _parameters(self, labels: Labels | None) -> Mapping[str, Any]:
        del labels
        return {}

    def _method(
        self, n_samples: int, labels: Labels | None
    ) -> tuple[Method, dict[str, tuple[GraphSpec, int]], Graph | None]:
        del n_samples
        return make_method(self._criterion, self._parameters(labels)), {}, None

    def _keep(self, method: Method, table: np.ndarray) -> None:
        self.scores_ = table[0].copy()
        self.ranking_ = ranks(rank_order(self.scores_, method.criterion.direction))
        self.score_fields_ = dict(zip(method.criterion.fields, table.copy(), strict=True))

    def _n_selected(self) -> int:
        n_features = int(self.scores_.shape[0])
        wanted: Any = self.n_features_to_select
        if wanted is None:
            return max(1, n_features // 2)
        if isinstance(wanted, Integral):
            return min(int(wanted), n_features)
        return max(1, int(wanted * n_features))

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self, "ranking_")
        return np.logical_and(self.ranking_ <= self._n_selected(), ~np.isnan(self.scores_))

    def transform(self, X: Any) -> Any:
        """Return the selected columns of X; a dask array stays lazy."""
        if type(X).__module__.startswith("dask.array"):
            return X[:, self.get_support(indices=True)]
        return super().transform(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = self._needs_labels
        return tags


class VarianceScore(_ScoreSelector):
    """Population variance of each feature; large is good.

    A constant feature is excluded. Two-pass in float64, so an offset of 1e8 costs nothing. Labels are ignored.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.

    References
    ----------
    He, Cai and Niyogi (2005), "Laplacian Score for Feature Selection", NIPS 18, section 4 (the baseline).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import VarianceScore
    >>> VarianceScore(n_features_to_select=2).fit(load_iris().data).get_support(indices=True).tolist()
    [0, 2]
    """

    _criterion = "VarianceScore"


class FisherScore(_ScoreSelector):
    """Fisher score: scatter between classes over scatter within, on the labelled rows; large is good.

    ``sum_c n_c (mean_c - mean)**2 / sum_c n_c var_c`` with population variances. +inf where every class is constant and
    they differ; NaN (excluded) where the feature is constant on the labelled rows. Fewer than two classes:
    :class:`ValueError`.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.

    References
    ----------
    He, Cai and Niyogi (2005), NIPS 18, Eq. 4.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import FisherScore
    >>> X, y = load_iris(return_X_y=True)
    >>> FisherScore().fit(X, y).scores_.round(3).tolist()
    [1.623, 0.669, 16.057, 13.061]
    """

    _criterion = "FisherScore"
    _needs_labels = True
    _task = "classification"


class PearsonScore(_ScoreSelector):
    """Absolute Pearson correlation with the target on the labelled rows; large is good.

    With classes, the largest absolute correlation with the indicator of one class against the rest. NaN (excluded)
    where the feature is constant on the labelled rows; a constant target is a :class:`ValueError`.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    task
        "auto": a float y is a target, any other y holds classes. "regression" or "classification" settles it.

    References
    ----------
    Doquire and Verleysen (2011), section 4 (the baseline).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from daskfs import PearsonScore
    >>> X, y = load_diabetes(return_X_y=True)
    >>> PearsonScore(n_features_to_select=2).fit(X, y).get_support(indices=True).tolist()
    [2, 8]
    """

    _criterion = "PearsonScore"
    _needs_labels = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_ScoreSelector._parameter_constraints,
        "task": [StrOptions({"auto", "regression", "classification"})],
    }

    def __init__(
        self,
        n_features_to_select: float | None = None,
        *,
        task: Literal["auto", "regression", "classification"] = "auto",
    ) -> None:
        super().__init__(n_features_to_select)
        self.task = task

    def _target_task(self, y: np.ndarray) -> str:
        if self.task != "auto":
            return self.task
        return "regression" if y.dtype.kind == "f" else "classification"

    def _parameters(self, labels: Labels | None) -> Mapping[str, Any]:
        return {} if labels is None else {"task": labels.task}


class LaplacianScore(_ScoreSelector):
    """Laplacian Score: how little a feature varies along the edges of the neighbor graph, against its variance; small
    is good.

    ``f'Lf / f~'D f~`` with ``f~ = f - (f'D1 / 1'D1) 1``, in [0, 2]. The numerator is a sum over edges of squared
    differences: no cancellation, whatever the offset. NaN (excluded) for a feature that is constant on the rows which
    have an edge. Labels are ignored.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    n_neighbors
        Neighbors of each row, itself left out, at most n_samples - 1. An edge joins two rows when either lists the
        other.
    metric
        "euclidean" or "cosine".
    weights
        "heat": exp(-d**2 / t). "binary": 1. "cosine": the cosine of the rows (needs metric="cosine").
    t
        Width of the heat kernel: a number, or the "mean" or "median" of the squared edge lengths. Where every weight
        underflows to 0: :class:`ValueError`. scikit-feature's exp(-d**2 / (2 t**2)) is ``t = 2 * t**2`` here.
    self_loops
        Give every row an edge of weight 1 to itself, which changes D but not the numerator; scikit-feature and Cai's
        MATLAB code do.
    graph
        None to find the graph; a :class:`KNNGraph` of the same rows (its metric counts, and it must have at least
        `n_neighbors`); or a symmetric (n_samples, n_samples) matrix of weights, dense or sparse, whose diagonal counts
        as self-loops. An asymmetric one is symmetrized by the larger of both entries. A path stands for what lies
        there: the neighbor lists of a run or of :meth:`KNNGraph.save`, a sparse matrix in an ``.npz`` file, or one in
        a Zarr group in AnnData's layout.
    graph_scaling, score_scaling
        None, "zscore", "unit" (rows) or "log1p", on the fly, for the graph and for the scored values. Without it
        both see X as it is.

    References
    ----------
    He, Cai and Niyogi (2005), "Laplacian Score for Feature Selection", NIPS 18, Eq. 1. The paper gives no t.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import LaplacianScore
    >>> LaplacianScore(metric="cosine", weights="binary").fit(load_iris().data).ranking_.tolist()
    [3, 4, 2, 1]
    """

    _criterion = "LaplacianScore"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **_ScoreSelector._parameter_constraints,
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "metric": [StrOptions(set(METRICS))],
        "weights": [StrOptions(set(WEIGHT_KINDS))],
        "t": [Interval(Real, 0, None, closed="neither"), StrOptions({"mean", "median"})],
        "self_loops": ["boolean"],
        "graph": [KNNGraph, str, Path, "array-like", "sparse matrix", None],
        "graph_scaling": [StrOptions(set(SCALINGS)), None],
        "score_scaling": [StrOptions(set(SCALINGS)), None],
    }

    def __init__(
        self,
        n_features_to_select: float | None = None,
        *,
        n_neighbors: int = 5,
        metric: Metric = "euclidean",
        weights: WeightKind = "heat",
        t: WidthRule = "mean",
        self_loops: bool = False,
        graph: Any = None,
        graph_scaling: Scaling | None = None,
        score_scaling: Scaling | None = None,
    ) -> None:
        super().__init__(n_features_to_select)
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.weights = weights
        self.t = t
        self.self_loops = self_loops
        self.graph = graph
        self.graph_scaling = graph_scaling
        self.score_scaling = score_scaling

    def _parameters(self, labels: Labels | None) -> Mapping[str, Any]:
        del labels
        keys = ("n_neighbors", "metric", "weights", "t", "self_loops", "graph_scaling", "score_scaling")
        return {key: getattr(self, key) for key in keys}

    def _method(
        self, n_samples: int, labels: Labels | None
    ) -> tuple[Method, dict[str, tuple[GraphSpec, int]], Graph | None]:
        parameters = dict(self._parameters(labels))
        graph = _given_graph(self.graph)
        if isinstance(graph, NeighborLists):
            parameters |= {"metric": graph.metric, "graph_scaling": graph.scaling}
            graph.check_size(n_samples, self.n_neighbors)
        elif graph is not None:
            parameters["graph"] = "given"
            graph.check_size(n_samples)
        try:
            method = make_method(self._criterion, parameters)
        except JobError as error:
            raise InputError(str(error)) from None
        if graph is not None:
            return method, {}, graph
        check_neighbors(self.n_neighbors, n_samples)
        spec = GraphSpec(self.metric, self.graph_scaling)
        return method, {spec.name: (spec, self.n_neighbors)}, None


def _given_graph(graph: Any) -> Graph | None:
    if graph is None:
        return None
    if isinstance(graph, KNNGraph):
        return NeighborLists("graph", graph.indices, graph.distances, graph.metric, graph.graph_scaling)
    if isinstance(graph, str | Path):
        from daskfs.graph.givenfiles import open_graph

        return open_graph(graph)
    weights = check_array(graph, accept_sparse="csr", dtype=np.float64, input_name="graph", ensure_all_finite=False)
    return WeightMatrix.of(sp.csr_matrix(weights), "graph")


def _warn_of_isolated_rows(context: Context, method: Method) -> None:
    for weighting in graph_needs([method]):
        summary = context.store.read_json(layout.WEIGHT_SUMMARY.format(weighting.key))
        if summary["n_isolated"]:
            remedy = "" if weighting.graph == "given" else " Raise t, use t='mean' or 'median', or scale the data."
            msg = (
                f"{summary['n_isolated']} of {context.tiles.shape.n_samples} rows have no edge of non-zero weight and "
                f"take no part in the score.{remedy}"
            )
            warnings.warn(msg, UserWarning, stacklevel=3)
