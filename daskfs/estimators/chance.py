"""Selector of features in random order."""

from __future__ import annotations

from daskfs.estimators.base import ScoreSelector, selector


@selector
class RandomOrder(ScoreSelector):
    """A random order of the features: the baseline that a ranking should beat.

    ``scores_`` are uniform numbers in [0, 1) that depend on feature index and seed only; large is good. Constant
    features are excluded. Labels and the other values of X are ignored. In an evaluation every draw of labels, subset
    of classes and training fold has its own order.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    random_state
        Seed.
    score_scaling
        Rescaling of X on the fly before it is scored: None, "zscore", "unit", "log1p", "total" or a chain of these, as
        :class:`LaplacianScore` takes it.

    References
    ----------
    O'Neill (2014), "PCG: A family of simple fast space-efficient statistically good algorithms for random number
    generation", HMC-CS-2014-0905: the generator PCG64.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import RandomOrder
    >>> X, other = load_iris().data, load_iris().data ** 2
    >>> bool((RandomOrder().fit(X).ranking_ == RandomOrder().fit(other).ranking_).all())
    True
    """

    _criterion = "RandomOrder"

    random_state: int = 0
