"""Score functions for ``SelectKBest`` and ``SelectPercentile`` of scikit-learn.

Examples
--------
>>> from sklearn.datasets import load_iris
>>> from sklearn.feature_selection import SelectKBest
>>> from daskfs import score_functions
>>> X, y = load_iris(return_X_y=True, as_frame=True)
>>> SelectKBest(score_functions.fisher_score, k=2).fit(X, y).get_feature_names_out().tolist()
['petal length (cm)', 'petal width (cm)']
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from daskfs.estimators.base import ScoreSelector
from daskfs.estimators.filters import (
    FisherScore,
    InformationGainScore,
    KolmogorovSmirnovScore,
    PearsonScore,
    VarianceScore,
)
from daskfs.estimators.graph import LaplacianScore
from daskfs.estimators.semisupervised import LSDF, SemiSupervisedLaplacianScore, SSelect
from daskfs.estimators.supervised import SupervisedLaplacianScore

ScoreFunction = Callable[..., np.ndarray]


def _score_function(selector: type[ScoreSelector], name: str) -> ScoreFunction:
    def scores(X: Any, y: Any = None, **parameters: Any) -> np.ndarray:
        fitted = selector(**parameters).fit(X, y)
        is_better_small = fitted._make_method(fitted._parameters(None)).direction == "ascending"
        return -fitted.scores_ if is_better_small else fitted.scores_

    scores.__name__ = scores.__qualname__ = name
    scores.__doc__ = f"""Return the scores of :class:`daskfs.{selector.__name__}`, high for good features.

    Parameters
    ----------
    X, y
        Data and labels, as for ``fit`` of the selector.
    **parameters
        Parameters of the selector; :func:`functools.partial` sets them for ``SelectKBest``.

    Returns
    -------
    ndarray
        Shape (n_features,), float64: ``scores_``, negated where small scores are good. Excluded features have NaN,
        which ``SelectKBest`` takes for the worst.
    """
    return scores


fisher_score = _score_function(FisherScore, "fisher_score")
information_gain_score = _score_function(InformationGainScore, "information_gain_score")
kolmogorov_smirnov_score = _score_function(KolmogorovSmirnovScore, "kolmogorov_smirnov_score")
laplacian_score = _score_function(LaplacianScore, "laplacian_score")
lsdf = _score_function(LSDF, "lsdf")
pearson_score = _score_function(PearsonScore, "pearson_score")
semisupervised_laplacian_score = _score_function(SemiSupervisedLaplacianScore, "semisupervised_laplacian_score")
sselect = _score_function(SSelect, "sselect")
supervised_laplacian_score = _score_function(SupervisedLaplacianScore, "supervised_laplacian_score")
variance_score = _score_function(VarianceScore, "variance_score")
