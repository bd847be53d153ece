"""Check of a criterion for its author."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.criteria.registry import Method, make_method
from daskfs.kernels.blocks import Block
from daskfs.kernels.labels import Labels
from daskfs.plan.inline import memory_context, score_features

N_SAMPLES, N_FEATURES, CONSTANT = 60, 12, 3
SCORE_TOLERANCE = 1e-5
"""Relative difference of scores from other sums of the same values, or of values in float32."""


def check_criterion(name: str, **parameters: Any) -> None:
    """Check that the scores of a criterion follow the laws that runs rely on.

    It is what ``check_estimator`` of scikit-learn is for estimators. Small data are scored in this process: with a
    constant feature, in another order of features and of rows, in blocks of other widths, sparse, and in float32.

    Parameters
    ----------
    name
        Name of the criterion: that of its entry point in the group ``daskfs.criteria``, or a criterion of daskfs.
    **parameters
        Parameters other than the defaults.

    Raises
    ------
    AssertionError
        Naming the law that is broken.
    JobError
        If there is no such criterion, or it has no such parameter.

    Examples
    --------
    >>> import daskfs
    >>> daskfs.check_criterion("FisherScore")
    >>> daskfs.check_criterion("LaplacianScore", n_neighbors=7)
    """
    method, rng = make_method(name, parameters), np.random.default_rng(0)
    X = rng.normal(3.0, 1.0, (N_SAMPLES, N_FEATURES)).astype(np.float32).astype(np.float64)
    X[:, CONSTANT] = 1.0
    labels = _labels(method, X)
    table = _scores(method, X, labels)
    _check(table.shape == (len(method.fields), N_FEATURES), f"scores are of shape (width,) for {method.fields}")
    _check(bool(method.is_excluded(table)[CONSTANT]), "a constant feature has no rank")
    _check(not method.is_excluded(table).all(), "some feature has a rank")
    if method.criterion.is_joint:
        return
    order, rows = rng.permutation(N_FEATURES), rng.permutation(N_SAMPLES)
    permuted = _scores(method, X[:, order], labels)
    _check(np.array_equal(permuted, table[:, order], equal_nan=True), "the order of features changes no score")
    if not method.criterion.uses_graph:  # which all features make
        part = _scores(method, X[:, :5], labels)
        _check(np.array_equal(part, table[:, :5], equal_nan=True), "other features change no score, to the bit")
    others = {
        "the order of rows changes no score": _scores(method, X[rows], labels and labels.of_rows(rows)),
        "sparse X has the scores of dense X": _scores(method, sp.csr_matrix(X), labels),
        "X in float32 has the scores of the same values in float64": _scores(method, X.astype(np.float32), labels),
    }
    for law, other in others.items():
        _check(np.allclose(other[0], table[0], rtol=SCORE_TOLERANCE, atol=SCORE_TOLERANCE, equal_nan=True), law)


def _labels(method: Method, X: np.ndarray) -> Labels | None:
    """Return labels that suffice for a method, which the first feature follows; None if it needs none."""
    if not method.criterion.needs_labels:
        return None
    if getattr(method.parameters, "task", method.criterion.tasks[0]) == "classification":
        return Labels("classification", (X[:, 0] > np.median(X[:, 0])).astype(np.int64), ("a", "b"))
    return Labels("regression", X[:, 0] + X[:, 1], ())


def _scores(method: Method, X: Block, labels: Labels | None) -> np.ndarray:
    return score_features(memory_context(X, labels), [method], labels)[method.label]


def _check(is_kept: bool, law: str) -> None:  # noqa: FBT001 - the law follows
    if not is_kept:
        raise AssertionError(law)
