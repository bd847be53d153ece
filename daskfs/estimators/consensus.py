"""Selector of features by the consensus of several selectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from daskfs.criteria.consensus import CONSENSUS, consensus_table
from daskfs.criteria.criterion import Parameters
from daskfs.criteria.registry import Method
from daskfs.errors import InputError
from daskfs.estimators.base import ScoreSelector, check_n_features_to_select, selector


@selector
class Consensus(ScoreSelector):
    """Rank features by the median of the ranks that several selectors give.

    Ranks of equal scores are shared. A feature that a selector excludes has the worst rank there, n_features; one that
    all exclude is excluded. Equal medians are ordered by mean rank, then by index. Selectors of one ranking count once.

    Parameters
    ----------
    estimators
        Two selectors of daskfs or more; clones of them are fitted.
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.

    Attributes
    ----------
    estimators_
        The fitted selectors.
    scores_
        Median rank of each feature, shape (n_features,), float64; small is good, NaN = excluded.
    score_fields_
        Arrays of shape (n_features,), float64: "score", the median rank; "mean_rank"; "n_rankings", how many selectors
        rank the feature; "place", its rank.

    Raises
    ------
    ValueError
        In ``fit``, for fewer than two selectors, and for the errors of each.

    References
    ----------
    Fagin, Kumar and Sivakumar (2003), "Efficient similarity search and classification via rank aggregation", SIGMOD,
    section 2.2: the median of ranks.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import Consensus, FisherScore, LaplacianScore, VarianceScore
    >>> X, y = load_iris(return_X_y=True)
    >>> fitted = Consensus([FisherScore(), LaplacianScore(), VarianceScore()]).fit(X, y)
    >>> fitted.scores_.tolist(), fitted.ranking_.tolist()
    ([2.5, 4.0, 1.0, 2.5], [2, 4, 1, 3])
    """

    def __init__(self, estimators: Sequence[ScoreSelector], *, n_features_to_select: float | None = None) -> None:
        super().__init__(n_features_to_select)
        self.estimators = estimators

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, use_rep: Any = None) -> Self:
        """Fit the selectors and combine their rankings.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit`` of the selectors, shapes (n_samples, n_features), (n_samples,) and (n_samples,).
        use_rep
            Another representation of the rows, shape (n_samples, n_columns), for the selectors that take one.

        Returns
        -------
        self
        """
        check_n_features_to_select(self.n_features_to_select)
        fitted: list[Any] = [clone(estimator, safe=False) for estimator in self.estimators]
        if len(fitted) < 2 or not all(isinstance(one, ScoreSelector) for one in fitted):
            msg = f"estimators is {self.estimators!r}: it must list two selectors of daskfs or more."
            raise InputError(msg)
        for one in fitted:
            takes_rep = use_rep is not None and has_fit_parameter(one, "use_rep")
            one.fit(X, y, sample_weight, **({"use_rep": use_rep} if takes_rep else {}))
        self.estimators_ = fitted
        self.n_features_in_ = fitted[0].n_features_in_
        self._name_features(getattr(fitted[0], "feature_names_in_", None))
        table = consensus_table(one._shared_ranks for one in fitted)
        self._keep(Method(CONSENSUS.name, CONSENSUS, Parameters()), table, fitted[0]._constant)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = any(one._needs_labels for one in self.estimators)
        return tags
