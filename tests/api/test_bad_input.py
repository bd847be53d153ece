"""Messages that name what is wrong: column, row, counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris

from daskfs import (
    DSSFS,
    LSDF,
    RLSR,
    RRPC,
    SSUFS,
    SVMRFE,
    FisherScore,
    InformationGainScore,
    KolmogorovSmirnovScore,
    LaplacianScore,
    PearsonScore,
    RandomOrder,
    SemiSupervisedLaplacianScore,
    SSelect,
    SupervisedLaplacianScore,
    VarianceScore,
    evaluate_selectors,
)
from tests.cases import case
from tests.optional import pandas as pd

X, Y = load_iris(return_X_y=True)
LABELED: list[Callable[..., Any]] = [
    FisherScore,
    PearsonScore,
    KolmogorovSmirnovScore,
    InformationGainScore,
    RRPC,
    LSDF,
    partial(SupervisedLaplacianScore, task="classification"),
    RLSR,
    DSSFS,
    SSUFS,
    SVMRFE,
]
BY_TARGET: list[Callable[..., Any]] = [SupervisedLaplacianScore, SemiSupervisedLaplacianScore]
ESTIMATORS: list[Callable[..., Any]] = [VarianceScore, RandomOrder, LaplacianScore, SSelect, *LABELED, *BY_TARGET]


def saved(X: Any, folder: Path) -> Path:
    np.save(folder / "X.npy", X)
    return folder / "X.npy"


class TestValuesOfX:
    @pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "infinite")])
    @pytest.mark.parametrize(
        "stored", [[VarianceScore, FisherScore], pytest.param(ESTIMATORS, marks=pytest.mark.long)], ids=["some", "all"]
    )
    def test_column_and_row(self, stored: Any, value: float, name: str, tmp_path: Path) -> None:
        bad = X.copy()
        bad[[7, 30], 3] = value
        forms = {
            "array": bad,
            "float32": bad.astype(np.float32),
            "csr": sp.csr_matrix(bad),
            "path": saved(bad, tmp_path),
        }
        for form, given in forms.items():
            for estimator in ESTIMATORS if form != "path" else stored:
                with case(form, estimator), pytest.raises(ValueError, match=rf"column 3 .*{name}.* row 7\b"):
                    estimator().fit(given, Y)

    def test_name_of_the_column(self) -> None:
        frame = pd.DataFrame(X.copy(), columns=["a", "b", "c", "d"])  # before version 3, pandas would write into X
        frame.loc[12, "c"] = np.nan
        for estimator in ESTIMATORS:
            with case(estimator), pytest.raises(ValueError, match=r"column 2 \('c'\).*NaN in row 12"):
                estimator().fit(frame, Y)

    def test_sums_that_overflow_are_not_missing_values(self) -> None:
        large = X.astype(np.float32) * np.float32(1e37)
        for estimator in ESTIMATORS:
            with case(estimator):
                assert np.isfinite(estimator().fit(large, Y).scores_).all()

    @pytest.mark.parametrize(
        "stored",
        [[VarianceScore, LaplacianScore, RLSR, SVMRFE], pytest.param(ESTIMATORS, marks=pytest.mark.long)],
        ids=["some", "all"],
    )
    def test_constant_features_only(self, stored: Any, tmp_path: Path) -> None:
        constant = np.full((150, 2), 0.1)
        told = r"can rank none of the 2 features: every one is excluded \(constant"
        for estimator in ESTIMATORS:
            with case(estimator), pytest.raises(ValueError, match=told):
                estimator().fit(constant, Y)
        for estimator in stored:
            with case(estimator, "stored"), pytest.raises(ValueError, match=told):
                estimator().fit(saved(constant, tmp_path), Y)

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            (X[:, 0], "Expected 2D array, got 1D"),
            (np.empty((0, 4)), "0 sample"),
            (np.empty((150, 0)), r"0 feature"),
            (X.astype(complex), "Complex data not supported"),
            (np.array([["a", "b"], ["c", "d"]]), "could not convert string to float|dtype='numeric'"),
        ],
        ids=["one dimension", "no rows", "no columns", "complex", "text"],
    )
    def test_shape_and_type(self, bad: Any, message: str) -> None:
        for estimator in ESTIMATORS:
            with case(estimator), pytest.raises(ValueError, match=message):
                estimator().fit(bad, Y[: len(bad)])


class TestNeighbors:
    def test_not_fewer_than_rows(self, tmp_path: Path) -> None:
        for k, given in [
            (10, X[:10]),
            (11, X[:10]),
            (500, X[:10]),
            *((k, saved(X[:10], tmp_path)) for k in (10, 11, 500)),
        ]:
            with pytest.raises(ValueError, match=rf"n_neighbors is {k}, and X has n_samples=10 rows: at most 9"):
                LaplacianScore(n_neighbors=k).fit(given)

    @pytest.mark.parametrize(
        "parameters",
        [
            {"n_neighbors": 0},
            {"n_neighbors": 2.5},
            {"metric": "manhatten"},
            {"weights": "gauss"},
            {"t": 0},
            {"t": -1.0},
            {"t": np.inf},
            {"t": np.nan},
            {"t": "mode"},
            {"self_loops": "yes"},
            {"graph_scaling": "minmax"},
            {"score_scaling": "l2"},
            {"graph": 5},
        ],
        ids=str,
    )
    def test_parameters_are_named(self, parameters: dict[str, Any]) -> None:
        name = next(iter(parameters))
        with pytest.raises(ValueError, match=f"LaplacianScore, parameter '{name}': |^{name} is "):
            LaplacianScore(**parameters).fit(X)

    def test_cosine_weights(self) -> None:
        with pytest.raises(ValueError, match="weights 'cosine' need metric 'cosine'"):
            LaplacianScore(weights="cosine").fit(X)


INFINITE = np.where(np.arange(150) == 3, np.inf, Y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (Y[:149], r"(?s)(?=.*\b150\b)(?=.*\b149\b)"),
        (np.resize(Y, 151), r"(?s)(?=.*\b150\b)(?=.*\b151\b)"),
        (Y[:149].astype(float), r"(?s)(?=.*\b150\b)(?=.*\b149\b)"),
        (np.resize(Y, 151).astype(float), r"(?s)(?=.*\b150\b)(?=.*\b151\b)"),
        (None, "requires y to be passed|needs labels"),
        (np.zeros(150, dtype=int), "all 150 labeled rows have one class"),
        (np.full(150, -1), "no row has a class"),
        (np.full(150, np.nan), "no row has a (class|target)"),
        (np.where(Y == 0, -1, 0), "-1 means an unlabeled row, so number two classes 0 and 1"),
        (INFINITE, "infinity|inf in row 3"),
        (-INFINITE, "infinity|inf in row 3"),
        (np.stack([Y, Y], axis=1), r"\(150, 2\)"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "stored", [[FisherScore, RLSR], pytest.param(LABELED, marks=pytest.mark.long)], ids=["some", "all"]
)
def test_labels_that_cannot_serve(stored: Any, y: Any, message: str, tmp_path: Path) -> None:
    path = saved(X, tmp_path)
    cases = [*((estimator, X) for estimator in LABELED), *((estimator, path) for estimator in stored)]
    for estimator, given in cases:
        with case(estimator, type(given)), pytest.raises(ValueError, match=message):
            estimator().fit(given, y)


def test_fisher_refuses_a_continuous_target() -> None:
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        FisherScore().fit(X, X[:, 0] * 1.1)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("transductive", "FisherScore can rank none of the 2 features"),
        ("inductive", "could rank nothing. FisherScore: 5 of 5 rankings failed: every feature is excluded"),
    ],
)
def test_an_evaluation_refuses_constant_features(setting: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        evaluate_selectors([FisherScore()], np.ones((150, 2)), Y, n_selected=1, setting=setting)


def test_pearson_refuses_a_constant_target() -> None:
    with pytest.raises(ValueError, match="all 150 labeled rows have one value"):
        PearsonScore().fit(X, np.full(150, 0.3))


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing\.npy"):
        VarianceScore().fit(tmp_path / "missing.npy")


def test_a_failed_fit_leaves_no_scores() -> None:
    selector = LaplacianScore(n_neighbors=500)
    with pytest.raises(ValueError, match="n_neighbors"):
        selector.fit(X)
    assert not hasattr(selector, "scores_")
    with pytest.raises(ValueError, match="not fitted"):
        selector.transform(X)


def test_text_labels_may_be_missing() -> None:
    X = np.random.default_rng(0).normal(size=(8, 3))
    y = np.array(["a", "b", None, "a", "b", np.nan, "a", "b"], dtype=object)
    known = [label in ("a", "b") for label in y]
    fitted, some = FisherScore().fit(X, y), FisherScore().fit(X[known], y[known].astype(str))
    np.testing.assert_array_equal(fitted.ranking_, some.ranking_)
