"""Labels in every form, and unlabeled rows, whose hidden labels must not change anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_iris

from daskfs import FisherScore, LaplacianScore, PearsonScore, VarianceScore, evaluate_selectors
from tests.cases import case
from tests.optional import pandas as pd
from tests.reference.scores import fisher, pearson, pearson_one_vs_rest

X, Y = load_iris(return_X_y=True)
TARGET = X @ np.array([1.0, -2.0, 0.5, 3.0]) + np.sin(np.arange(150))
KNOWN = np.random.default_rng(0).uniform(size=150) < 0.3

CLASS_FORMS: dict[str, Callable[[NDArray[np.int64]], Any]] = {
    "int32": lambda y: y.astype(np.int32),
    "list": lambda y: y.tolist(),
    "float": lambda y: y.astype(np.float64),
    "other numbers": lambda y: y * 7 + 3,
    "large numbers": lambda y: y + 2**40,
    "text": lambda y: np.array(["setosa", "versicolor", "virginica"])[y],
    "objects": lambda y: np.array(["setosa", "versicolor", "virginica"], dtype=object)[y],
    "series": lambda y: pd.Series(y, index=np.arange(150) + 7),
    "categories": lambda y: pd.Series(y).map({0: "a", 1: "b", 2: "c"}).astype("category"),
}


class TestClasses:
    def test_forms_of_y(self) -> None:
        expected = FisherScore().fit(X, Y).scores_
        for form, given in CLASS_FORMS.items():
            with case(form):
                np.testing.assert_array_equal(FisherScore().fit(X, given(Y)).scores_, expected)

    def test_pearson_takes_what_is_not_float_for_classes(self) -> None:
        for form, given in CLASS_FORMS.items():
            if form != "float":
                with case(form):
                    found = PearsonScore().fit(X, given(Y))
                    np.testing.assert_allclose(found.scores_, pearson_one_vs_rest(X, Y), rtol=1e-10)
                    assert not np.isnan(found.score_fields_["class_code"]).any()

    def test_pearson_task_settles_it(self) -> None:
        as_target = PearsonScore(task="regression").fit(X, Y)
        np.testing.assert_allclose(as_target.scores_, pearson(X, Y), rtol=1e-10)
        assert np.isnan(as_target.score_fields_["class_code"]).all()
        as_classes = PearsonScore(task="classification").fit(X, Y.astype(np.float64))
        np.testing.assert_allclose(as_classes.scores_, pearson_one_vs_rest(X, Y), rtol=1e-10)

    def test_booleans_are_two_classes(self) -> None:
        np.testing.assert_allclose(FisherScore().fit(X, Y == 1).scores_, fisher(X, (Y == 1).astype(int)), rtol=1e-10)

    @pytest.mark.parametrize("stored", [False, True])
    def test_minus_one_and_one_are_two_classes(self, stored: bool, tmp_path: Path) -> None:
        np.save(tmp_path / "X.npy", X)
        signs = np.where(Y == 2, 1, -1)
        found = FisherScore().fit(tmp_path / "X.npy" if stored else X, signs)
        np.testing.assert_array_equal(found.scores_, FisherScore().fit(X, Y == 2).scores_)
        known = np.where(KNOWN, signs.astype(float), np.nan)
        np.testing.assert_allclose(FisherScore().fit(X, known).scores_, fisher(X[KNOWN], signs[KNOWN] > 0), rtol=1e-10)

    @pytest.mark.cluster
    def test_minus_one_and_one_are_two_classes_of_an_evaluation(self) -> None:
        found, expected = (
            evaluate_selectors([FisherScore()], X, y, n_selected=2, labels=[3], n_draws=2, setting="both").values
            for y in (np.where(Y == 2, 1, -1), Y == 2)
        )
        assert found.equals(expected)

    def test_two_classes_give_pearson_the_sign_of_the_code(self) -> None:
        found = PearsonScore().fit(X, (Y == 2).astype(int)).score_fields_["correlation"]
        np.testing.assert_allclose(found, [np.corrcoef(f, Y == 2)[0, 1] for f in X.T], rtol=1e-10)

    def test_names_of_classes_do_not_matter(self) -> None:
        permuted = np.array([2, 0, 1])[Y]
        for estimator in (FisherScore(), PearsonScore()):
            expected = estimator.fit(X, Y).scores_
            np.testing.assert_allclose(estimator.fit(X, permuted).scores_, expected, rtol=1e-12)


class TestUnlabeledRows:
    @pytest.mark.parametrize("missing", [-1, np.nan])
    def test_fisher_sees_labeled_rows_only(self, missing: float) -> None:
        y = np.where(KNOWN, Y, missing)
        y = y.astype(np.int64) if missing == -1 else y
        np.testing.assert_allclose(FisherScore().fit(X, y).scores_, fisher(X[KNOWN], Y[KNOWN]), rtol=1e-10)

    def test_pearson_classes(self) -> None:
        found = PearsonScore().fit(X, np.where(KNOWN, Y, -1)).scores_
        np.testing.assert_allclose(found, pearson_one_vs_rest(X[KNOWN], Y[KNOWN]), rtol=1e-10)

    def test_pearson_target(self) -> None:
        found = PearsonScore().fit(X, np.where(KNOWN, TARGET, np.nan)).scores_
        np.testing.assert_allclose(found, pearson(X[KNOWN], TARGET[KNOWN]), rtol=1e-10)

    def test_minus_one_is_a_value_like_others_in_a_target(self) -> None:
        target = np.where(KNOWN, TARGET, -1.0)
        np.testing.assert_allclose(PearsonScore().fit(X, target).scores_, pearson(X, target), rtol=1e-10)

    @pytest.mark.parametrize("estimator", [FisherScore, PearsonScore])
    def test_values_of_unlabeled_rows_never_change_anything(self, estimator: Callable[[], Any]) -> None:
        y = np.where(KNOWN, Y, -1)
        expected = estimator().fit(X, y)
        other = X.copy()
        other[~KNOWN] = np.random.default_rng(1).normal(size=other[~KNOWN].shape) * 1e6
        found = estimator().fit(other, y)
        for field, values in expected.score_fields_.items():
            np.testing.assert_array_equal(found.score_fields_[field], values)

    @pytest.mark.parametrize("estimator", [VarianceScore, LaplacianScore])
    def test_criteria_without_labels_ignore_y(self, estimator: Callable[[], Any]) -> None:
        expected = estimator().fit(X).scores_
        for y in (Y, TARGET, ["anything"], np.full(3, np.nan)):
            np.testing.assert_array_equal(estimator().fit(X, y).scores_, expected)

    def test_a_class_that_only_hidden_rows_have(self) -> None:
        y = np.where(KNOWN & (Y != 2), Y, -1)
        labeled = y >= 0
        np.testing.assert_allclose(FisherScore().fit(X, y).scores_, fisher(X[labeled], Y[labeled]), rtol=1e-10)

    @pytest.mark.parametrize("stored", [False, True])
    def test_stored_data_alike(self, stored: bool, tmp_path: Path) -> None:
        np.save(tmp_path / "X.npy", X)
        source = tmp_path / "X.npy" if stored else X
        target = np.where(KNOWN, TARGET, np.nan)
        np.testing.assert_allclose(PearsonScore().fit(source, target).scores_, pearson(X, target), rtol=1e-10)
        y = np.where(KNOWN, Y, -1)
        np.testing.assert_allclose(FisherScore().fit(source, y).scores_, fisher(X, y), rtol=1e-10)
