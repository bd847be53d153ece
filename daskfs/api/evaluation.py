"""Comparison of selectors from Python, by the same stages as a job's evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_array

from daskfs.criteria.consensus import with_consensus
from daskfs.criteria.outside import OUTSIDE, outside_method
from daskfs.criteria.registry import Method, check_labels, of_representation
from daskfs.errors import InputError
from daskfs.estimators.base import ScoreSelector, stored_representation
from daskfs.estimators.opening import is_stored, open_input, unpacked
from daskfs.evaluation.plan import used_shape
from daskfs.evaluation.summaries import evaluation_tables, evaluation_warnings
from daskfs.evaluation.trials import EVALUATE_STAGE
from daskfs.evaluation.verdict import evaluation_verdict
from daskfs.job.blocks import GraphBlock
from daskfs.job.checks import check_block
from daskfs.job.evaluation import SIZES, EvaluateBlock
from daskfs.job.job import METHOD_LABEL_BYTES
from daskfs.job.methods import check_names
from daskfs.kernels.labels import LabelCounts, Labels
from daskfs.plan.chain import Chain, check_missing
from daskfs.plan.inline import data_of, run_all, score_features
from daskfs.report.evaluation_view import panel_plot
from daskfs.report.model import Curve, CurvePanel
from daskfs.report.plots import Plot, small_plot
from daskfs.report.terminal import verdict_html, verdict_lines
from daskfs.report.trust import repeated_names_warnings
from daskfs.run_warning import LIMITS, RunWarning, merge_warnings
from daskfs.runs.evaluation import block_warnings, plan_tests
from daskfs.runs.extent import NO_ALL_FEATURES, Extent, fits_unplanned
from daskfs.sources.base import SAMPLE_COLUMNS
from daskfs.sources.checks import check_values
from daskfs.sources.labels import encode_labels
from daskfs.sources.stored_column import StoredColumn
from daskfs.sources.values import as_column
from daskfs.stages.stage import first_parameters
from daskfs.store import layout
from daskfs.store.context import Context, put_sample_column
from daskfs.store.value_checks import check_finite
from daskfs.tiles.plan import TilePlan

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client
    from matplotlib.axes import Axes

CELLS: Mapping[str, Any] = {"float_format": "{:.3g}".format, "na_rep": ""}
"""Look of the means in a notebook or on a terminal, as options of pandas."""
Selectors: TypeAlias = SelectorMixin | Sequence[SelectorMixin] | Mapping[str, SelectorMixin]


@dataclass(frozen=True)
class Evaluation:
    """Result tables of :func:`evaluate_selectors`, each a :class:`pyarrow.Table` (``.to_pandas()``).

    Attributes
    ----------
    values
        One row per value: method, n_selected, n_labeled, repeat, fold, metric, value, model, setting, n_classes,
        subset, labels, draw, n_tested. Columns that do not apply are null.
    summary
        Mean, standard deviation and 95 % confidence interval for each method, model, metric, setting, number of
        classes, amount of labels and number of features. Rows with null n_selected are of the means over all numbers
        of features.
    comparisons
        Mean paired difference of two methods for each such combination, with 95 % confidence interval and p value.
    gap
        Inductive minus transductive values, paired; empty unless both settings were evaluated.
    stability
        Agreement of the selections of one method over folds and draws: Kuncheva's index and the Jaccard index.
    selection_frequency
        How often each feature was selected, its mean rank, and the interval that holds 90 % of its ranks.
    warnings
        Warnings, such as of rankings that failed and folds that are not stratified, those that matter most first; `str`
        of one is its sentence.
    verdict
        The best selector and number of features, with a value corrected for having chosen them, as
        :func:`daskfs.evaluation.verdict.evaluation_verdict` returns it; None without values.
    n_features
        Number of features of X.
    """

    values: Any
    summary: Any
    comparisons: Any
    gap: Any
    stability: Any
    selection_frequency: Any
    warnings: tuple[RunWarning, ...]
    verdict: dict[str, Any] | None
    n_features: int

    def means(self) -> pd.DataFrame:
        """Return the means of one metric: a row for each method, best first, and a column for each number of features.

        Metric, model, setting, number of classes and amount of labels are those of the verdict. The columns of the
        baselines without selection are 0 and n_features; missing combinations are NaN. Without a verdict the table is
        empty.
        """
        table = self._of_verdict().pivot_table(index="method", columns="n_selected", values="mean")
        if self.verdict is None:
            return table
        best = table.max(axis=1) if self.verdict["higher_is_better"] else -table.min(axis=1)
        return table.loc[best.sort_values(ascending=False, kind="stable").index]

    def _of_verdict(self) -> pd.DataFrame:
        """Return the rows of the summary with the metric, model, setting and so on of the verdict; none without one."""
        summary: pd.DataFrame = self.summary.to_pandas().dropna(subset="n_selected").astype({"n_selected": int})
        if self.verdict is None:
            return summary.iloc[:0]
        for key in ("model", "metric", "setting", "n_classes", "labels"):
            choice = self.verdict[key]
            summary = summary[summary[key].isna() if choice is None else summary[key] == choice]
        return summary

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the metric of the verdict by number of selected features.

        Parameters
        ----------
        ax
            Axes to draw on; None for new ones of pyplot.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        InputError
            Without a verdict.
        """
        if (plot := self._curves()) is None:
            msg = "the evaluation has no verdict to draw."
            raise InputError(msg)
        return plot.on(ax)

    def _curves(self) -> Plot | None:
        if self.verdict is None:
            return None
        rows, verdict = self._of_verdict().groupby("method", sort=False), self.verdict
        keys = ("n_selected", "mean", "std", "low", "high")
        curves = [Curve(label=str(name), **{key: list(one[key]) for key in keys}) for name, one in rows]
        panel = CurvePanel(metric=verdict["metric"], higher_is_better=verdict["higher_is_better"], curves=curves)
        return panel_plot(panel)

    def __repr__(self) -> str:
        """Return the verdict and the means."""
        lines = verdict_lines(self.verdict, self.n_features)
        return "\n".join(["<Evaluation>", *lines, self.means().to_string(**CELLS)])

    def _repr_html_(self) -> str:
        """Return the verdict, the means and their plot, for notebooks."""
        text = verdict_html(self.verdict, self.n_features)
        return f"<div>{text}{self.means().to_html(**CELLS, border=0)}{small_plot(self._curves(), self)}</div>"


def evaluate_selectors(
    selectors: Selectors,
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    use_rep: Any = None,
    groups: Any = None,
    times: Any = None,
    task: Literal["auto", "classification", "regression"] = "auto",
    n_selected: int | Sequence[int] = SIZES,
    models: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] = ("knn",),
    setting: Literal["transductive", "inductive", "both"] = "inductive",
    baselines: bool = True,
    consensus: bool = False,
    labels: float | Sequence[float] | None = None,
    n_draws: int = 5,
    train_on: Literal["all", "labeled"] = "all",
    n_classes: int | Sequence[int] | None = None,
    n_subsets: int = 20,
    n_splits: int = 5,
    n_repeats: int = 1,
    scaling: Literal["zscore"] | None = "zscore",
    max_samples: int = 10_000,
    informative: str | int | Sequence[str | int] = (),
    random_state: int = 0,
    client: Client | None = None,
) -> Evaluation:
    """Compare selectors by models trained on the first features of their rankings.

    The values are bit-identical to those of the block ``evaluate`` of a job.

    Parameters
    ----------
    selectors
        An unfitted selector, a sequence of them, or a dictionary by the label that tables show; the default label is
        the class name. Their ``n_features_to_select`` is ignored. Any selector of scikit-learn's kind will do, such as
        ``SelectKBest``, ``RFE`` or ``SelectFromModel``: clones of it are fitted in this process to the labeled rows
        that a selection sees, and rank by ``ranking_``, ``scores_`` or the importances of the estimator. A selector
        without any of them, such as ``SequentialFeatureSelector``, ranks only the features that it selects.
    X
        Any X that ``fit`` of a selector takes, shape (n_samples, n_features).
    y
        Labels, shape (n_samples,): classes with -1 for unlabeled rows, or a float target with NaN for these. -1 and 1
        alone are two classes. Of an AnnData also the name of a column of ``obs``; of a path, what ``data.labels`` of a
        job names.
    sample_weight
        Row weights in the selection, shape (n_samples,); a row of weight 2 counts as two rows. None for 1. Only
        selectors of daskfs take them.
    use_rep
        Another representation of the rows, shape (n_samples, n_columns), in which selectors on a neighbor graph compare
        them, as in ``fit``; of an AnnData also the name of a member of ``obsm``. Selections within training folds
        compare those rows of it. None for rows of X.
    groups
        Group of each row, shape (n_samples,): no fold trains and tests on rows of one group.
    times
        Time of each row, shape (n_samples,), numbers or dates: all training rows of a fold are earlier than its test
        rows.
    task
        Type of y. "auto": a float y is a target, any other y holds classes.
    n_selected
        Numbers of selected features to evaluate.
    models
        "knn", "linear-svm", "rbf-svm", "ridge", "kmeans", "1nn-loo", "cut", or the class name of a classifier,
        regressor or clusterer of scikit-learn; or dictionaries with a name, parameters, a label and metrics, such as
        ``{"name": "knn", "n_neighbors": 1, "label": "1NN"}``.
    setting
        "inductive": features are selected anew within each training fold. "transductive": the selection sees the rows
        that models are tested on, and their labels. "both": both settings, and the gap between them.
    baselines
        Whether to evaluate a random order of the features as well (unless a selector is one), all features, and the
        majority class or median target. All features are left out if they would take more than 4 GiB.
    consensus
        Whether to evaluate the median of the ranks of all selectors, as "Consensus", made anew within each fold.
    labels
        Numbers of labels that the selection sees: whole numbers of rows per class (in regression, in total), or shares
        of each class; None for all.
    n_draws
        Draws of labels for each number of labels, the same for all selectors.
    train_on
        "all": models are trained with all labels of the training folds. "labeled": only with the labels that the
        selection saw; in the transductive setting they are tested on all other rows.
    n_classes, n_subsets
        Evaluate on random subsets of `n_classes` classes, `n_subsets` draws of each, instead of on all classes.
    n_splits, n_repeats
        Folds and repetitions of the cross-validation.
    scaling
        Scaling of the columns that models see, fitted on their training rows.
    max_samples
        Maximum number of labeled rows; more are subsampled within classes.
    informative
        Names or indices of features known to be relevant: the metric "hit_rate" is the share of them that is selected.
    random_state
        Seed of all random draws.
    client
        Client whose workers run the units if X is not in memory, as of a dask collection; by
        default the current one. Without any, and for X in memory, this process does.

    Returns
    -------
    Evaluation

    Raises
    ------
    ValueError
        For invalid data, labels or arguments, naming the argument.
    TypeError
        For an object that is no selector.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import FisherScore, LaplacianScore, evaluate_selectors
    >>> X, y = load_iris(return_X_y=True)
    >>> found = evaluate_selectors([FisherScore(), LaplacianScore()], X, y, n_selected=[1, 2])
    >>> means = {(row["method"], row["n_selected"]): round(row["mean"], 3) for row in found.summary.to_pylist()}
    >>> means["FisherScore", 2], means["LaplacianScore", 2], means["AllFeatures", 4], means["MajorityClass", 0]
    (0.967, 0.967, 0.953, 0.333)
    >>> [row["kuncheva"] for row in found.stability.to_pylist() if row["method"] != "RandomOrder"]
    [1.0, 1.0, 1.0, 1.0]
    """
    X, y, use_rep, columns, label_name = unpacked(X, y, use_rep)
    names = None if columns is None else tuple(map(str, columns))
    if not is_stored(X):
        X = check_array(X, accept_sparse="csr", dtype="numeric", order="C", ensure_all_finite=False, input_name="X")
        check_finite(X, 0, names, "X", whole=True)
    y_values = check_values(as_column(y))
    encoded = encode_labels(y_values, y_values.shape[0], task)
    given_columns = {"weights": sample_weight, "groups": groups, "times": times}
    sample_columns = {name: values for name, values in given_columns.items() if values is not None}
    with open_input(X, encoded, client=client, label_name=label_name) as (context, _, pool):
        n_samples = context.tiles.shape.n_samples
        for name, values in sample_columns.items():
            origin = "sample_weight" if name == "weights" else name
            put_sample_column(context.store, StoredColumn(n_samples, origin, name, partial(iter, [values])))
        if names is not None:
            context.tiles.store.write_json(layout.FEATURE_NAMES, list(names))
        feature_names = context.tiles.feature_names()
        block = check_block(
            EvaluateBlock,
            {
                **({} if n_selected is SIZES else {"n_selected": _as_list(n_selected)}),
                "models": models,
                "setting": setting,
                "baselines": baselines,
                "labels": None if labels is None else _as_list(labels),
                "n_draws": n_draws,
                "train_on": train_on,
                "n_classes": None if n_classes is None else _as_list(n_classes),
                "n_subsets": n_subsets,
                "n_splits": n_splits,
                "n_repeats": n_repeats,
                "scaling": scaling,
                "max_samples": max_samples,
                "informative": _as_names(informative, feature_names),
                "random_state": random_state,
            },
        )
        methods = [_method(selector, label, encoded) for label, selector in _selectors_by_label(selectors).items()]
        rep = None
        if use_rep is not None:
            rep, methods = stored_representation(context, use_rep), [of_representation(method) for method in methods]
        if consensus:
            methods = with_consensus(methods)
        weights = context.weights()
        counts = LabelCounts.of(encoded, weights)
        for method in methods:
            check_labels(method.criterion, method.label, counts)
        check_missing(context.tiles.missing_policy, methods)
        outside = [method.label for method in methods if method.criterion is OUTSIDE]
        if outside and weights is not None:
            others = ", ".join(outside)
            msg = f"sample_weight is given, and only selectors of daskfs take it: leave it out, or {others}."
            raise InputError(msg)
        tiles = _tiles_of(context, encoded, sample_columns)
        sample_shape = used_shape(tiles.shape, block.max_samples, tiles.n_labeled)
        extent = Extent(block.max_samples, baselines and fits_unplanned(sample_shape))
        stages = plan_tests(
            block,
            tiles,
            Chain(data_of(context), methods, rep=rep, base=()),
            feature_names,
            GraphBlock(),
            extent=extent,
            has_lists=False,
        )
        parameters = first_parameters(stages, EVALUATE_STAGE)
        assert parameters is not None
        if parameters.anew is None:
            run_all(context, stages[:1], None if outside else pool, quiet=True)
            scores = score_features(context, methods, encoded, rep, pool)
            for method in methods:
                method.check_ranks_any(scores[method.label], n_samples)
        run_all(context, stages, None if outside else pool)
        n_features = tiles.shape.n_features
        warnings = block_warnings(block, methods, n_features) + repeated_names_warnings(feature_names)
        if extent.all_features != baselines:
            text = f"evaluation: it {NO_ALL_FEATURES}, which takes more than 4 GiB"
            warnings.append(RunWarning("evaluation in part", LIMITS, text))
        warnings += evaluation_warnings(context.store, parameters)
        tables = {table.name: table.arrow() for table in evaluation_tables(context, parameters)}
        verdict = evaluation_verdict(context.store, parameters, tables["stability"].to_pylist(), n_features)
        return Evaluation(*tables.values(), tuple(merge_warnings(warnings)), verdict, n_features)  # type: ignore[call-arg]


def _as_list(values: Any) -> list[Any]:
    """Return a scalar or a sequence as a list of Python numbers."""
    elements = np.atleast_1d(np.asarray(values, dtype=object)).tolist()
    return [one.item() if isinstance(one, np.generic) else one for one in elements]


def _as_names(features: Any, names: Sequence[str]) -> list[str]:
    labels = []
    for one in [features] if isinstance(features, str | int) else features:
        if not isinstance(one, str) and not 0 <= int(one) < len(names):
            msg = f"informative has {one}, and X has features 0 to {len(names) - 1}."
            raise InputError(msg)
        labels.append(one if isinstance(one, str) else names[int(one)])
    return labels


def _selectors_by_label(selectors: Selectors) -> dict[str, SelectorMixin]:
    """Return the selectors by label; TypeError for objects that are none."""
    if isinstance(selectors, Mapping):
        pairs: list[tuple[str, Any]] = [(str(label), one) for label, one in selectors.items()]
    else:
        candidates = selectors if isinstance(selectors, Sequence) else [selectors]
        pairs = [(type(one).__name__, one) for one in candidates]
    if not pairs:
        msg = "selectors is empty: pass a selector, or a dictionary of some."
        raise InputError(msg)
    for _, one in pairs:
        if not isinstance(one, SelectorMixin):
            msg = f"{type(one).__name__} is no feature selector: pass one of daskfs or scikit-learn, unfitted."
            raise TypeError(msg)
    check_names([label for label, _ in pairs], "selector", METHOD_LABEL_BYTES, "it names directories")
    return dict(pairs)


def _method(selector: SelectorMixin, label: str, labels: Labels) -> Method:
    """Return the method of a selector; InputError for a selector with a graph."""
    if getattr(selector, "graph", None) is not None:
        msg = f"{label} is given a graph of all rows, and rankings of some have neighbors of their own: leave it out."
        raise InputError(msg)
    if not isinstance(selector, ScoreSelector) or not hasattr(selector, "_criterion"):
        return outside_method(selector, label)
    return selector._make_method(selector._parameters(labels), label)


def _tiles_of(context: Context, labels: Labels, sample_columns: Mapping[str, Any]) -> TilePlan:
    info = context.tiles.info
    return TilePlan(
        context.tiles.store.url,
        info.shape,
        info.fingerprint,
        has_labels=True,
        task=labels.task,
        **{f"has_{name}": name in sample_columns for name in SAMPLE_COLUMNS},  # type: ignore[arg-type]
        n_classes=len(labels.classes) or None,
        n_labeled=int(labels.is_labeled.sum()),
        missing=context.tiles.missing_policy,
    )
