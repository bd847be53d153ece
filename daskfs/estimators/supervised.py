"""Selectors by criteria on a graph that the labels alone make."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from daskfs.criteria.registry import Method
from daskfs.estimators.base import ScoreSelector
from daskfs.graph.precomputed import Graph
from daskfs.kernels.labels import Labels
from daskfs.plan.lists import check_neighbors


class SupervisedLaplacianScore(ScoreSelector):
    """Supervised Laplacian Score (SLS): the Laplacian Score on the labelled rows, with neighbors by label instead of by
    X; small is good.

    For a target of numbers two labelled rows are joined, by ``exp(-(y_i - y_j)**2 / t)``, where either is among the
    `n_neighbors` nearest of the other by ``|y_i - y_j|``, and the score is ``f'Lf / f~'D f~``, in [0, 2]. For classes
    each row is joined to all of its class, itself included, by ``1 / n_class``, which makes the score
    ``1 / (1 + Fisher score)``, in [0, 1], and 0 for a feature that is constant in each class. NaN (excluded) for a
    feature that is constant on the labelled rows. Scores do not change with f -> a f + b.

    Rows without a label take no part. Fewer than two labelled rows, or labels that are all equal: :class:`ValueError`.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    task
        "regression": y is a target of numbers. "classification": y holds classes, and no other parameter counts.
    n_neighbors
        Neighbors of each labelled row by target, itself left out. Of rows that are equally far the lower ones count, so
        that many equal targets make one graph, whatever the number of workers. Where there are fewer than
        `n_neighbors` other labelled rows, all of them.
    t
        Width of the heat kernel, in squared standard deviations of the target.
    standardize_y
        Divide differences of targets by their population standard deviation over the labelled rows. Without it t is in
        the target's own squared units.

    Attributes
    ----------
    score_fields_
        "score", "numerator" and "denominator", each of shape (n_features,), float64.

    References
    ----------
    Doquire and Verleysen (2011), "Graph Laplacian for Semi-supervised Feature Selection in Regression Problems", IWANN,
    Eq. 4. For classes He, Cai and Niyogi (2005), NIPS 18, Eq. 5. Differences of targets of any unit vanish in
    the paper's kernel of width 1 unless they are standardized, which it does not mention.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **ScoreSelector._parameter_constraints,
        "task": [StrOptions({"regression", "classification"})],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "t": [Interval(Real, 0, None, closed="neither")],
        "standardize_y": ["boolean"],
    }

    def __init__(
        self,
        n_features_to_select: float | None = None,
        *,
        task: Literal["regression", "classification"] = "regression",
        n_neighbors: int = 5,
        t: float = 1.0,
        standardize_y: bool = True,
    ) -> None:
        super().__init__(n_features_to_select)
        self.task = task
        self.n_neighbors = n_neighbors
        self.t = t
        self.standardize_y = standardize_y

    def _target_task(self, y: np.ndarray) -> str:
        del y
        return self.task

    def _parameters(self, labels: Labels | None) -> Mapping[str, Any]:
        del labels
        return {key: value for key, value in self.get_params().items() if key != "n_features_to_select"}

    def _method(self, n_samples: int, labels: Labels | None) -> tuple[Method, Graph | None]:
        check_neighbors(1, n_samples)
        return super()._method(n_samples, labels)
