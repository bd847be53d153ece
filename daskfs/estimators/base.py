"""Base class of the scikit-learn selectors, which run the stages of a job: no criterion is implemented twice."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_array, column_or_1d, estimator_html_repr
from sklearn.utils.validation import check_is_fitted, validate_data

from daskfs.criteria.registry import Method, criterion_named, make_method, of_representation
from daskfs.errors import DaskfsWarning, InputError, JobError, nearest
from daskfs.estimators.opening import (
    is_anndata,
    is_dask_frame,
    is_stored,
    names_of,
    numbered,
    open_input,
    repeated_names,
    unpacked,
    variable_of,
)
from daskfs.graph.dominance import dominance_warnings
from daskfs.graph.halves import NO_BLOCKS, FeatureBlocks
from daskfs.graph.precomputed import Graph
from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.labels import Labels
from daskfs.kernels.order import ranks
from daskfs.kernels.scaling import Scaling
from daskfs.kernels.statistics.permutation import FDRMethod
from daskfs.report.trust import repeated_names_warnings
from daskfs.sources.checks import check_values
from daskfs.sources.labels import encode_labels, refuse_fractions
from daskfs.sources.values import as_column, is_of, unmasked
from daskfs.store.context import Context
from daskfs.store.value_checks import check_finite

if TYPE_CHECKING:
    from daskfs.graph.representation import Representation

FEATURES_SHOWN = 10
"""Number of features that a notebook shows of a fitted selector."""

S = TypeVar("S")


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
def selector(made: type[S]) -> type[S]:
    """Make a dataclass whose ``TypeError`` for its arguments names the class and the nearest parameter."""
    decorated: Any = dataclass(eq=False, repr=False, kw_only=True)(made)
    init = decorated.__init__

    @wraps(init)
    def checked(self: Any, *values: Any, **parameters: Any) -> None:
        try:
            init(self, *values, **parameters)
        except TypeError as error:
            parameter_names, what = list(signature(init).parameters), str(error).partition("()")[2]
            if unknown := next((name for name in parameters if name not in parameter_names), None):
                what = f" has no parameter '{unknown}'.{nearest(unknown, parameter_names[1:])}"
            msg = f"{type(self).__name__}(){what}"
            raise TypeError(msg) from None

    decorated.__init__ = checked
    return made


@selector
class ScoreSelector(SelectorMixin, BaseEstimator):
    """Base class of all selectors: validation of X and y, scoring, ranking and selection.

    Attributes
    ----------
    scores_
        Shape (n_features,), float64: the criterion with the scale and direction of its paper; NaN = excluded.
    ranking_
        Shape (n_features,), int64: 1 is best; ties by feature index, excluded features last.
    reasons_
        Shape (n_features,), str: why a feature is excluded or has no score or p-value; empty for all others.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    pvalues_, qvalues_
        Shape (n_features,), float64: with `significance`, the probability of a score at least as good by chance, and
        the false discovery rate of a selection that ends with the feature (Benjamini and Hochberg 1995); NaN =
        excluded.
    """

    _criterion: ClassVar[str]
    _needs_labels: ClassVar[bool] = False
    _task: ClassVar[str | None] = None

    n_features_to_select: float | None = field(default=None, kw_only=False)
    score_scaling: Scaling | None = None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Score and rank the features.

        Parameters
        ----------
        X
            Array, CSR or CSC matrix, DataFrame, dask array or DataFrame, Zarr array, AnnData (its X), or the path of
            any source that ``daskfs convert`` reads; shape (n_samples, n_features), finite. Only tiles may have missing
            values; the tiles store how to treat them (``daskfs convert --missing``). Under "pairwise" each feature is
            scored from the rows that have it. Dask collections (also in AnnData or xarray, rows first), Zarr arrays and
            paths are read and scored by the workers of a current Dask client, else by threads of this process; all else
            by this process.
        y
            Labels, shape (n_samples,): class labels with -1 for unlabeled rows (None among text), or a float target
            with NaN for those. Classes -1 and 1 alone are two classes, of which NaN marks unlabeled rows. Of an AnnData
            also the name of a column of ``obs``; of a path, what ``data.labels`` of a job names. Ignored by
            unsupervised criteria.
        sample_weight
            Row weights, shape (n_samples,), finite and not negative; None for 1. A row of weight 2 counts as two rows
            and one of weight 0 is ignored in moments, z-scores, class counts, distributions and degrees; an edge counts
            by the product of the weights of its rows. The neighbor search, the widths t and the median of the scaling
            "total" do not use weights.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For NaN or infinite values (naming column and row), non-numeric columns of a DataFrame, invalid labels or
            weights, too few rows, or if every feature is excluded, as all are constant;
            :class:`~daskfs.errors.JobError` for tiles with missing values "pairwise" under a method that needs complete
            features or rows.

        Warns
        -----
        DaskfsWarning
            If a few columns make up nearly all of the squared distance of an unscaled graph, or rows have no edge.
        """
        return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any, use_rep: Any = None) -> Self:
        """Fit to X, or, for the neighbors, to a representation of its rows, shape (n_samples, n_columns)."""
        from daskfs.plan.inline import score_features  # the modules of all stages, at the first fit
        from daskfs.ranking.tables import why_untested

        check_n_features_to_select(self.n_features_to_select)
        self._make_method(self._parameters(None))
        X, y, use_rep, columns, label_name = unpacked(X, y, use_rep)
        stored = is_stored(X)
        if not stored:
            X = self._validate(X, y, columns)
        labels = self._labels(y, None if stored else X.shape[0])
        n_jobs = getattr(self, "n_jobs", None)
        with open_input(X, labels, sample_weight, n_jobs=n_jobs, label_name=label_name) as (context, names, pool):
            shape = context.tiles.shape
            if stored:
                self.n_features_in_ = shape.n_features
                self._name_features(names if columns is None else columns)
            for text in repeated_names_warnings(getattr(self, "feature_names_in_", ())):
                warnings.warn(f"{text}.", DaskfsWarning, stacklevel=3)
            method, graph = self._method_and_graph(context, labels, use_rep)
            table = score_features(context, [method], labels, graph, pool, blocks=self._blocks())[method.label]
            method.check_ranks_any(table, shape.n_samples)
            _warn_of_isolated_rows(context, method)
            self._keep_other_results(context, method)
            if after := getattr(self, "_after", None):  # set by selectors that wrap this one
                after(context, method, pool)
            self._keep(method, table, context.tiles.constant_notes().astype(object))
            if hasattr(self, "pvalues_"):
                untested = (self.reasons_ == "") & np.isnan(self.pvalues_)
                self.reasons_[untested] = f"no p-value: {why_untested(context.store, method)}"
        return self

    def _method_and_graph(
        self, context: Context, labels: Labels | None, use_rep: Any
    ) -> tuple[Method, Graph | Representation | None]:
        """Return the method, and its graph or the representation that its graph is of; None to search in X."""
        method, graph = self._method(context.tiles.shape.n_samples, labels)
        if use_rep is None:
            if graph is None:
                searched = [spec for spec, _ in method.parameters.lists(context.tiles.shape.n_samples).values()]
                names = getattr(self, "feature_names_in_", None)
                for text in dominance_warnings(context.tiles, searched, "graph_scaling='zscore'", names):
                    warnings.warn(f"{text}.", DaskfsWarning, stacklevel=4)
            return method, graph
        if graph is not None:
            msg = "use_rep says how to make a graph, and graph is one already: leave one of them out."
            raise InputError(msg)
        return of_representation(method), stored_representation(context, use_rep)

    def _validate(self, X: Any, y: Any, columns: Sequence[Any] | None) -> Any:
        # y is refused here only if it is needed and None: it may have unlabeled rows, which scikit-learn refuses
        y = None if y is None and self._needs_labels else "no_validation"
        X = validate_data(self, X, y, accept_sparse="csr", dtype="numeric", order="C", ensure_all_finite=False)
        if columns is not None:
            self._name_features(columns)
        names = getattr(self, "feature_names_in_", None)
        check_finite(X, 0, None if names is None else tuple(names), "X", whole=True)
        return X

    def _labels(self, y: Any, n_samples: int | None) -> Labels | None:
        """Return the encoded labels; `n_samples` is the number of rows of X, None if it is not known yet."""
        if y is None or not self._needs_labels:
            return None
        values = as_column(y)
        column = check_values(values)
        if values.ndim == 2:
            column_or_1d(values, warn=True)  # warns only
        if n_samples not in (None, column.shape[0]):
            msg = f"y has {column.shape[0]} values, and X has {n_samples} rows."
            raise InputError(msg)
        if column.dtype.kind == "f" and np.isinf(column).any():
            msg = "Input y contains infinity."
            raise InputError(msg)
        if self._task == "classification":
            refuse_fractions(column, type(self).__name__)
        return encode_labels(column, column.shape[0], str(self._task or getattr(self, "task", "auto")))

    def _parameters(self, labels: Labels | None) -> Mapping[str, Any]:
        """Return the parameters of the criterion: the selector's own of the same names, and the task of the labels."""
        model = criterion_named(self._criterion).parameters
        values = {name: value for name, value in self.get_params(deep=False).items() if name in model.public_fields()}
        task = getattr(self, "task", "auto") if labels is None else labels.task
        if "task" in model.model_fields and task != "auto":
            values["task"] = task
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}

    def _method(self, n_samples: int, labels: Labels | None) -> tuple[Method, Graph | None]:
        """Return the method to score and its precomputed graph, None if there is none."""
        del n_samples
        return self._make_method(self._parameters(labels)), None

    def _blocks(self) -> FeatureBlocks:
        """Return the features that are in no graph that tests one of them."""
        return NO_BLOCKS

    def _make_method(self, parameters: Mapping[str, Any], label: str | None = None) -> Method:
        try:
            return make_method(self._criterion, parameters, label, strict=True)
        except JobError as error:
            raise InputError(str(error)) from None

    def _keep_other_results(self, context: Context, method: Method) -> None:
        """Store results of a method other than its score table as attributes; the base class has none."""

    def _keep(self, method: Method, table: np.ndarray, constant: np.ndarray) -> None:
        self.scores_ = table[0].copy()
        self._constant = constant
        self.reasons_ = method.notes(table, constant)
        self.ranking_ = ranks(method.order(table))
        self._shared_ranks = method.ranks(table)
        self._is_excluded = method.is_excluded(table)
        self.score_fields_ = dict(zip(method.fields, table.copy(), strict=True))
        for name in ("pvalues_", "qvalues_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        if (pvalues := method.pvalues(table)) is not None:
            self.pvalues_, self.qvalues_ = pvalues.copy(), method.qvalues(pvalues)

    def _name_features(self, names: Any) -> None:
        """Keep the names of the features if all are text, as scikit-learn does, instead of those of an earlier fit."""
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _names(self) -> list[str]:
        """Return the names of the features in fit: "x0", "x1", ... if X had none, as in scikit-learn."""
        if hasattr(self, "feature_names_in_"):
            return [str(name) for name in self.feature_names_in_]
        return [f"x{feature}" for feature in range(self.n_features_in_)]

    def _n_selected(self) -> int:
        n_features = int(self.scores_.shape[0])
        n_wanted: Any = self.n_features_to_select
        if n_wanted is None:
            return max(1, n_features // 2)
        if isinstance(n_wanted, Integral):
            return min(int(n_wanted), n_features)
        return max(1, int(n_wanted * n_features))

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self, "ranking_")
        return np.logical_and(self.ranking_ <= self._n_selected(), ~self._is_excluded)

    def scores_frame(self) -> pd.DataFrame:
        """Return the ranking as a frame of pandas: rank, feature, name, score, note; best first, one row a feature.

        The columns are those of ``ranking.csv`` of a job, with pvalue and qvalue if there are any. `feature` is the
        index of a column of X; its name is that of ``feature_names_in_``, or "x0", "x1", ... without names; `note` is
        that of ``reasons_``.
        """
        check_is_fitted(self, "ranking_")
        best_first = np.argsort(self.ranking_, kind="stable")
        names = np.array(self._names(), dtype=object)
        columns = {"rank": self.ranking_, "feature": np.arange(best_first.size), "name": names, "score": self.scores_}
        if hasattr(self, "pvalues_"):
            columns |= {"pvalue": self.pvalues_, "qvalue": self.qvalues_}
        columns["note"] = self.reasons_
        return pd.DataFrame({key: values[best_first] for key, values in columns.items()})

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """Return the representations that a notebook chooses from, by their types."""
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle and not hasattr(super(), "_html_repr"):  # scikit-learn before 1.7 does not call it
            bundle["text/html"] = self._html_repr()
        return bundle

    def _html_repr(self) -> str:
        """Return scikit-learn's diagram and, after `fit`, the first features and a plot of scores, for notebooks."""
        diagram: str = estimator_html_repr(self)
        if not hasattr(self, "ranking_"):
            return diagram
        from daskfs.report.plots import LOG_RANKS, score_curve, small_plot

        ranked = self.scores_frame()
        first = ranked.head(FEATURES_SHOWN).drop(columns="note").to_html(index=False, border=0)
        text = f"<p>{self._n_selected()} of {self.ranking_.size} features selected; the first:</p>"
        curve = {"rank": list(ranked["rank"]), "score": list(ranked["score"])}
        direction = criterion_named(self._criterion).direction if hasattr(self, "_criterion") else None
        plot = score_curve(
            curve, label=type(self).__name__, direction=direction, log_rank=self.ranking_.size > LOG_RANKS
        )
        return f"{diagram}{text}{first}{small_plot(plot, self)}"

    def transform(self, X: Any) -> Any:
        """Return the selected columns of X, shape (n_samples, n_selected), same dtype.

        Dask collections and xarray objects stay what they are, and lazy; of an AnnData it is a view. Raises
        :class:`InputError` for these with another number of features, or other names, than in `fit`.
        """
        X = variable_of(X) if is_of(X, "xarray") else unmasked(X)
        if not (hasattr(X, "dask") or is_anndata(X) or is_of(X, "xarray") or repeated_names(X)):
            return super().transform(X)
        chosen = self.get_support(indices=True)
        if X.shape[1] != self.n_features_in_:
            name = type(self).__name__
            msg = f"X has {X.shape[1]} features, but {name} is expecting {self.n_features_in_} features as input."
            raise InputError(msg)
        for column, name in zip(names_of(X) or (), getattr(self, "feature_names_in_", ()), strict=False):
            if column != name:
                msg = f"The feature names of X should match those of fit, in their order: {column!r} is not {name!r}."
                raise InputError(msg)
        if repeated_names(X):
            return check_array(numbered(X), dtype=None)[:, chosen]
        if is_dask_frame(X):  # iloc refuses columns of one name
            return X.map_partitions(lambda part: part.iloc[:, chosen], meta=X._meta.iloc[:, chosen])
        return X[:, chosen]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = self._needs_labels
        return tags


@selector
class TestingSelector(ScoreSelector):
    """Base class of selectors that can test every feature."""

    significance: bool = False
    fdr_method: FDRMethod = "bh"


def check_n_features_to_select(count: Any) -> None:
    """Raise :class:`InputError` unless it is None, a number of features or a share of them in (0, 1]."""
    is_number = isinstance(count, Real) and not isinstance(count, bool)
    is_valid = is_number and (0 < float(count) <= 1 or (isinstance(count, Integral) and int(count) > 1))
    if count is not None and not is_valid:
        msg = f"n_features_to_select is {count!r}: give a whole number from 1, a share in (0, 1], or None for half."
        raise InputError(msg)


def stored_representation(context: Context, use_rep: Any) -> Representation:
    """Check a representation of the rows of X, shape (n_samples, n_columns), store it, and return its description.

    Raises :class:`InputError` for another number of rows, sparse rows, or values that are not finite.
    """
    from daskfs.graph.representation import check_size, put_representation, representation_of

    if is_sparse(use_rep):
        msg = "use_rep is sparse, and rows are compared in a few dense columns: pass principal components."
        raise InputError(msg)
    values = check_array(unmasked(use_rep), dtype="numeric", ensure_all_finite=False, input_name="use_rep")
    check_finite(values, 0, None, "use_rep", whole=True)
    rep, shape = representation_of(values, "use_rep"), context.tiles.shape
    check_size(rep, shape.n_samples)
    put_representation(context.store, shape, values)
    return rep


def _warn_of_isolated_rows(context: Context, method: Method) -> None:
    from daskfs.criteria.slab import graph_needs
    from daskfs.graph.edges import weight_summary

    for weighting in graph_needs([method]):
        summary = weight_summary(context.store, weighting)
        if summary["n_isolated"]:
            remedy = "" if weighting.graph == "given" else " Raise t, use t='mean' or 'median', or scale the data."
            rows = f"{context.tiles.shape.n_samples} rows"
            if weighting.connects == "labeled":
                rows, remedy = f"{summary['n_meant']} labeled rows", " Raise t."
            msg = (
                f"{summary['n_isolated']} of {rows} have no edge of non-zero weight and take no part in the "
                f"score.{remedy}"
            )
            warnings.warn(msg, DaskfsWarning, stacklevel=4)
