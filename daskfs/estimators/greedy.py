"""Selectors that compare features with each other: greedy selection, and a redundancy filter after any ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import clone

from daskfs.criteria.registry import Method
from daskfs.errors import InputError, JobError
from daskfs.estimators.base import ScoreSelector, check_n_features_to_select, selector
from daskfs.estimators.filters import PearsonScore
from daskfs.job.checks import check_block
from daskfs.job.redundancy import RedundancyBlock
from daskfs.kernels.order import ranks
from daskfs.kernels.scaling import checked_scaling
from daskfs.kernels.statistics.permutation import FDRMethod
from daskfs.plan.inline import filter_features
from daskfs.ranking.redundancy import RedundancySpec, check_counts, numbered_choice
from daskfs.store.context import Context


@selector
class RRPC(PearsonScore):
    """Greedy selection by relevance minus redundancy, both Pearson correlations; large is good.

    Each step picks the feature of largest ``P(f, y) - (1 / |S|) sum_{s in S} P(f, s)``, S being the features picked so
    far; the first pick is that of largest ``P(f, y)``. Ties up to rounding go to the lower index. NaN (excluded) if the
    feature is constant on the labeled rows.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    absolute
        Whether P is the absolute correlation; False keeps the sign, as a public implementation does.
    n_candidates
        Number of features, those of largest relevance, that are compared with each other; None for all, at most 20,000.
        The others are ranked after these by relevance, with a score of NaN.
    task
        "auto": a float y is a target, any other y holds classes. Or "regression" or "classification".
    score_scaling
        Scaling of X on the fly: None, "zscore", "unit" (rows), "log1p", "total" (every row sum becomes the median of
        the row sums), "total=10000", or a chain such as "total+log1p".

    Attributes
    ----------
    score_fields_
        Arrays of shape (n_features,), float64: "score", the criterion when the feature was picked; "relevance", P(f, y)
        on the labeled rows, for more than two classes that of the most correlated class indicator; "redundancy", the
        mean correlation with the features picked before, on all rows; "step", the number of the pick.

    Raises
    ------
    ValueError
        In `fit`, for a constant target.

    References
    ----------
    Xu, Tang, He and Man (2017), "Semisupervised Feature Selection Based on Relevance and Redundancy Criteria", IEEE
    Transactions on Neural Networks and Learning Systems 28(9), 1974-1984. Whether the paper uses absolute values
    could not be checked.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import RRPC
    >>> X, y = load_iris(return_X_y=True)
    >>> RRPC().fit(X, y).ranking_.tolist()
    [4, 2, 1, 3]
    """

    _criterion = "RRPC"

    absolute: bool = True
    n_candidates: int | None = 2000
    significance: bool = field(default=False, init=False)
    fdr_method: FDRMethod = field(default="bh", init=False)


@selector
class RedundancyFilter(ScoreSelector):
    """Filter the ranking of a selector: skip features that are redundant, unwanted, or too many of one group.

    The first `n_candidates` features of the ranking are visited in order. A feature is kept unless its absolute
    correlation (or distance correlation) with a kept feature exceeds the threshold. The first kept ones are selected.

    Parameters
    ----------
    estimator
        Selector of daskfs that ranks by a criterion, so neither a Consensus nor another filter; a clone is fitted.
    measure
        "correlation": absolute Pearson correlation on all rows. "distance_correlation": distance correlation (not
        squared), in [0, 1], which includes nonlinear dependence; on at most 100,000 rows, in 128 bins, within 0.002 of
        the exact value, and exact for features of at most 128 distinct values. None: no comparison. A constant feature
        is not redundant with any.
    threshold
        Largest allowed value of the measure, in (0, 1).
    demote
        Whether redundant features may be selected after all that are kept, in the order of their ranks.
    n_candidates
        Number of features of the ranking that are visited, with a measure.
    keep
        Names or indices of features that are always selected first, in the order of their ranks.
    drop
        Names or indices of features that are never selected.
    groups
        Group of features, by feature name or by a regular expression that matches whole names.
    max_per_group
        Maximum number of selected features per group; needs `groups`.
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half. Fewer are selected if fewer are kept.

    Attributes
    ----------
    estimator_
        The fitted selector.
    scores_
        Scores of the selector, shape (n_features,), float64.
    ranking_
        Shape (n_features,), int64: kept features first, in the order in which they were kept; the others follow in the
        order of the selector.
    reasons_
        Shape (n_features,), object: why a feature is not selectable, or demoted, as str; empty for the others.
    n_kept_
        Number of selectable features, int: those that are kept and, with `demote`, the redundant ones after them.

    Raises
    ------
    ValueError
        In ``fit``, for an unknown feature name (with the nearest known one), and for the errors of the selector.

    References
    ----------
    Székely, Rizzo and Bakirov (2007), Annals of Statistics 35(6), Definition 4 (distance correlation).

    Examples
    --------
    >>> import numpy as np
    >>> from daskfs import RedundancyFilter, VarianceScore
    >>> a, b = np.random.default_rng(0).normal(size=(2, 50))
    >>> X = np.column_stack([3 * a, 2 * a, b])
    >>> fitted = RedundancyFilter(VarianceScore(), n_features_to_select=2).fit(X)
    >>> fitted.get_support(indices=True).tolist(), fitted.reasons_[1]
    ([0, 2], 'redundant with x0 (1.00)')
    """

    estimator: ScoreSelector = field(kw_only=False)
    measure: Literal["correlation", "distance_correlation"] | None = "correlation"
    threshold: float = 0.9
    demote: bool = False
    n_candidates: int = 500
    keep: Sequence[str | int] = ()
    drop: Sequence[str | int] = ()
    groups: Mapping[str, str] | str | None = None
    max_per_group: int | None = None
    n_features_to_select: float | None = None
    score_scaling: Any = field(default=None, init=False)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, use_rep: Any = None) -> Self:
        """Fit the selector and filter its ranking.

        Parameters
        ----------
        X, y, sample_weight, use_rep
            As in ``fit`` of the selector, shapes (n_samples, n_features), (n_samples,), (n_samples,) and
            (n_samples, n_columns); `use_rep` only of a selector that takes it.

        Returns
        -------
        self

        Raises
        ------
        InputError
            For only one of `groups` and `max_per_group`, and for invalid names, numbers or counts.
        """
        check_n_features_to_select(self.n_features_to_select)
        inner: Any = clone(self.estimator, safe=False)
        if not isinstance(inner, ScoreSelector) or not hasattr(inner, "_criterion"):
            msg = (
                f"estimator is {self.estimator!r}: it must be a selector of daskfs with a criterion of its own; of a "
                "consensus, filter the selectors that it combines."
            )
            raise InputError(msg)
        if (self.groups is None) != (self.max_per_group is None):
            msg = "groups and max_per_group need each other: give both, or neither."
            raise InputError(msg)
        block = self._block()
        features: np.ndarray = np.empty(0, dtype=np.int64)
        dropped: list[tuple[int, str]] = []

        def walk(context: Context, method: Method, pool: Any) -> None:
            nonlocal features, dropped
            names = inner._names()
            features, dropped = filter_features(context, method, self._filter(block, names), names, pool)

        inner.__dict__["_after"] = walk
        try:
            inner.fit(X, y, sample_weight, **({} if use_rep is None else {"use_rep": use_rep}))
        finally:
            del inner.__dict__["_after"]
        self.estimator_ = inner
        self.scores_, self.score_fields_ = inner.scores_.copy(), inner.score_fields_
        self.n_features_in_ = inner.n_features_in_
        self._name_features(getattr(inner, "feature_names_in_", None))
        rest = np.argsort(inner.ranking_, kind="stable")
        self.ranking_ = ranks(np.concatenate([features, rest[~np.isin(rest, features)]]))
        self.n_kept_ = int(features.size)
        self._is_excluded = self.ranking_ > self.n_kept_
        self._constant = inner._constant
        self._shared_ranks = np.where(self._is_excluded, np.nan, self.ranking_)
        self.reasons_ = inner.reasons_.copy()
        for feature, reason in dropped:
            self.reasons_[feature] = reason
        return self

    def _block(self) -> RedundancyBlock:
        """Return the parameters as a job has them, checked but for `keep` and `drop`, which may hold indices."""
        keys = ("measure", "threshold", "demote", "n_candidates", "groups", "max_per_group")
        try:
            return check_block(RedundancyBlock, {key: getattr(self, key) for key in keys}, type(self).__name__)
        except JobError as error:
            raise InputError(str(error)) from None

    def _filter(self, block: RedundancyBlock, names: list[str]) -> RedundancySpec:
        """Return the filter, with feature indices for names."""
        keep, drop = (_as_names(features, names) for features in (self.keep, self.drop))
        try:
            choice = numbered_choice(names, keep, drop, None if block.groups is None else block.group_of())
            n_wanted: Any = self.n_features_to_select
            if isinstance(n_wanted, Integral):
                reach = None if block.measure is None else block.n_candidates
                check_counts(min(int(n_wanted), len(names)), len(choice.keep), reach)
        except JobError as error:
            raise InputError(str(error)) from None
        scaling = checked_scaling(getattr(self.estimator, "score_scaling", None), "score_scaling")
        return RedundancySpec(**block.model_dump(exclude={"keep", "drop", "groups"}), choice=choice, scaling=scaling)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.estimator._needs_labels
        return tags


def _as_names(features: Sequence[str | int] | str, names: Sequence[str]) -> list[str]:
    """Return feature names for names or indices; InputError for an index out of range."""
    labels = []
    for one in [features] if isinstance(features, str) else features:
        if not isinstance(one, str) and not 0 <= int(one) < len(names):
            msg = f"there is no feature {one}: X has {len(names)} features, from 0 to {len(names) - 1}."
            raise InputError(msg)
        labels.append(one if isinstance(one, str) else names[int(one)])
    return labels
