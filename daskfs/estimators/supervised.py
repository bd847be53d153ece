"""Selectors by criteria on a graph built from the labels only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from daskfs.criteria.registry import Method
from daskfs.estimators.base import TestingSelector, selector
from daskfs.graph.precomputed import Graph
from daskfs.graph.spec import check_neighbors
from daskfs.kernels.labels import Labels


@selector
class SupervisedLaplacianScore(TestingSelector):
    """Supervised Laplacian Score (SLS): the Laplacian Score of the labeled rows, neighbors by label; small is good.

    The score ``f'Lf / f~'D f~``, in [0, 2], is invariant to f -> a f + b. For classes it is ``1 / (1 + Fisher score)``,
    in [0, 1]. NaN (excluded) for a feature that is constant on the labeled rows. Unlabeled rows are ignored.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    task
        "regression": y is numeric; two labeled rows are joined with weight ``exp(-(y_i - y_j)**2 / t)`` if either is
        among the `n_neighbors` nearest of the other by ``|y_i - y_j|``. "classification": y holds classes; each row is
        joined to all rows of its class, itself included, with weight ``1 / n_class``, so that a feature that is
        constant in each class scores 0; the other parameters are ignored.
    n_neighbors
        Neighbors of each labeled row by target, excluding itself; all others if there are fewer. Ties go to the lower
        row number, so the graph does not depend on the number of workers.
    t
        Width of the heat kernel, in squared standard deviations of the target.
    standardize_y
        Whether to divide the target by its population standard deviation over the labeled rows. Otherwise t is in
        squared units of the target.
    significance, fdr_method
        Whether to test every feature: `pvalues_` by permutation of the values over the labeled rows, or of F with
        classes, and `qvalues_`, as in :class:`LaplacianScore`.
    score_scaling
        Rescaling of X on the fly before it is scored: None, "zscore", "unit", "log1p", "total" or a chain of these, as
        :class:`LaplacianScore` takes it.

    Attributes
    ----------
    score_fields_
        "score", "numerator" and "denominator", each of shape (n_features,), float64.

    Raises
    ------
    ValueError
        In `fit`, for fewer than two labeled rows, or labels that are all equal.

    References
    ----------
    Doquire and Verleysen (2011), "Graph Laplacian for Semi-supervised Feature Selection in Regression Problems", IWANN,
    Eq. 4. For classes He, Cai and Niyogi (2005), NIPS 18, Eq. 5. The paper does not mention standardization; without
    it, the result of its kernel of width 1 depends on the unit of the target.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from daskfs import SupervisedLaplacianScore
    >>> X, y = load_diabetes(return_X_y=True)
    >>> SupervisedLaplacianScore(n_features_to_select=2).fit(X, y).get_support(indices=True).tolist()
    [2, 8]
    """

    _criterion = "SupervisedLaplacianScore"
    _needs_labels = True

    task: Literal["regression", "classification"] = "regression"
    n_neighbors: int = 5
    t: float = 1.0
    standardize_y: bool = True

    def _parameters(self, labels: Labels | None) -> Mapping[str, Any]:
        return {"task": self.task, **super()._parameters(labels)}  # "auto" is refused

    def _method(self, n_samples: int, labels: Labels | None) -> tuple[Method, Graph | None]:
        check_neighbors(1, n_samples)
        return super()._method(n_samples, labels)
