"""The redundancy filter as a selector round any other."""

from __future__ import annotations

import pickle  # noqa: TID251 - of fitted estimators, never of data
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from daskfs import RRPC, SVMRFE, Consensus, FisherScore, LaplacianScore, PearsonScore, RedundancyFilter, VarianceScore
from tests.api.checks import passes_checks
from tests.optional import pandas as pd
from tests.reference import greedy as reference

X, Y = load_wine(return_X_y=True)
NAMES = [f"f{i}" for i in range(13)]


@pytest.mark.parametrize(
    "estimator",
    [RedundancyFilter(VarianceScore()), RedundancyFilter(FisherScore(), measure="distance_correlation")],
    ids=str,
)
def test_scikit_learn_checks(estimator: Any) -> None:
    passes_checks(estimator)


def defined(measure: str, data: np.ndarray) -> np.ndarray:
    width = data.shape[1]
    compare = reference.correlation if measure == "correlation" else reference.distance_correlation
    return np.array([[compare(data[:, i], data[:, j]) for j in range(width)] for i in range(width)])


@pytest.mark.parametrize("measure", ["correlation", "distance_correlation"])
@pytest.mark.parametrize(
    "estimator",
    [FisherScore(), LaplacianScore(), RRPC(), SVMRFE(step=5, n_singly=3)],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.filterwarnings("ignore:graph euclidean")
def test_walk_as_defined(estimator: Any, measure: Any) -> None:
    similarity = defined(measure, X)
    for threshold in (0.4, 0.6):
        fitted = RedundancyFilter(estimator, measure=measure, threshold=threshold).fit(X, Y)
        order = np.argsort(clone(estimator).fit(X, Y).ranking_).tolist()
        kept = reference.walk(order, similarity, threshold)
        assert np.argsort(fitted.ranking_)[: fitted.n_kept_].tolist() == kept
        assert [i for i in range(13) if fitted.reasons_[i]] == sorted(set(order) - set(kept))


@pytest.mark.parametrize("measure", ["correlation", "distance_correlation"])
def test_demoted_features_follow_those_that_are_kept(measure: Any) -> None:
    """In the order of the ranking, before what was not compared; reasons stay."""
    kept = RedundancyFilter(FisherScore(), measure=measure, threshold=0.4, n_candidates=8).fit(X, Y)
    demoted = RedundancyFilter(FisherScore(), measure=measure, threshold=0.4, n_candidates=8, demote=True)
    demoted.set_params(n_features_to_select=8).fit(X, Y)
    order, first = np.argsort(demoted.ranking_).tolist(), np.argsort(kept.ranking_).tolist()[: kept.n_kept_]
    assert order[: kept.n_kept_] == first
    ranked = np.argsort(kept.estimator_.ranking_).tolist()
    assert order == first + [feature for feature in ranked if feature not in first]
    assert (demoted.n_kept_, demoted.get_support().sum()) == (8, 8)
    assert demoted.reasons_.tolist() == kept.reasons_.tolist()


def test_others_follow_in_the_order_of_the_selector() -> None:
    fitted = RedundancyFilter(FisherScore(), threshold=0.5, n_candidates=6).fit(X, Y)
    order = np.argsort(fitted.estimator_.ranking_).tolist()
    rest = np.argsort(fitted.ranking_)[fitted.n_kept_ :].tolist()
    assert rest == [i for i in order if i in rest]
    np.testing.assert_array_equal(fitted.scores_, FisherScore().fit(X, Y).scores_)
    below = [i for i in order[6:] if fitted.reasons_[i]]
    assert below == [], "beyond the candidates nothing is compared"


class TestSupport:
    def test_no_more_than_are_kept(self) -> None:
        fitted = RedundancyFilter(FisherScore(), threshold=0.3, n_features_to_select=13).fit(X, Y)
        assert fitted.get_support().sum() == fitted.n_kept_ < 13
        assert not any(fitted.reasons_[fitted.get_support()])

    def test_changed_after_fitting(self) -> None:
        fitted = RedundancyFilter(FisherScore(), n_features_to_select=2).fit(X, Y)
        assert fitted.set_params(n_features_to_select=5).transform(X).shape == (178, 5)

    def test_names_of_a_frame(self) -> None:
        frame = pd.DataFrame(X, columns=NAMES)
        fitted = RedundancyFilter(FisherScore(), threshold=0.5, keep=["f3"], drop=["f6"], n_features_to_select=3)
        fitted.set_output(transform="pandas").fit(frame, Y)
        assert "f3" in fitted.transform(frame).columns
        assert fitted.ranking_[3] == 1
        assert fitted.reasons_[6] == "dropped by name"

    def test_numbers_stand_for_names(self) -> None:
        by_number = RedundancyFilter(FisherScore(), keep=[3, np.int64(2)], drop=[6]).fit(X, Y)  # type: ignore[list-item]
        by_name = RedundancyFilter(FisherScore(), keep=["x3", "x2"], drop=["x6"]).fit(X, Y)
        np.testing.assert_array_equal(by_number.ranking_, by_name.ranking_)
        assert by_number.ranking_[[2, 3]].max() == 2

    def test_groups(self) -> None:
        fitted = RedundancyFilter(FisherScore(), measure=None, groups={"x.*": "all"}, max_per_group=3).fit(X, Y)
        assert fitted.n_kept_ == 3
        assert set(fitted.reasons_) == {"", "group all is full"}


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "csr": sp.csr_matrix,
    "dask": lambda X: da.from_array(X, chunks=(60, 5)),
    "float32": lambda X: X.astype(np.float32),
}


@pytest.mark.parametrize("measure", ["correlation", "distance_correlation"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_input(form: str, measure: Any) -> None:
    data = np.where(np.median(X, axis=0) < X, np.round(X, 2), 0.0).astype(np.float32).astype(np.float64)
    expected = RedundancyFilter(FisherScore(), measure=measure, threshold=0.3).fit(data, Y)
    found = RedundancyFilter(FisherScore(), measure=measure, threshold=0.3).fit(FORMS[form](data), Y)
    np.testing.assert_array_equal(found.ranking_, expected.ranking_)
    assert found.reasons_.tolist() == expected.reasons_.tolist()


@pytest.mark.parametrize("measure", ["correlation", "distance_correlation"])
def test_weights_count_rows(measure: Any) -> None:
    weights = np.random.default_rng(0).integers(0, 3, 178)
    weighted = RedundancyFilter(FisherScore(), measure=measure, threshold=0.5).fit(X, Y, sample_weight=weights)
    repeated = RedundancyFilter(FisherScore(), measure=measure, threshold=0.5)
    repeated.fit(np.repeat(X, weights, axis=0), np.repeat(Y, weights))
    assert weighted.reasons_.tolist() == repeated.reasons_.tolist()


def test_scaling_of_the_selector_counts() -> None:
    data = np.exp(np.random.default_rng(4).normal(size=(300, 3)) * 2)
    data[:, 1] = data[:, 0] ** 1.5
    y = np.log1p(data[:, 0])
    fitted = RedundancyFilter(RRPC(score_scaling="log1p"), threshold=0.98).fit(data, y)
    plain = RedundancyFilter(RRPC(), threshold=0.98).fit(data, y)
    assert any(fitted.reasons_)
    assert not any(plain.reasons_)


class TestTools:
    def test_clone_pickle_and_grid(self) -> None:
        selector = RedundancyFilter(FisherScore(), n_features_to_select=3)
        fitted = clone(selector).fit(X, Y)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).ranking_, fitted.ranking_)  # noqa: S301
        assert not hasattr(selector, "ranking_")
        search = GridSearchCV(
            make_pipeline(selector, KNeighborsClassifier(3)), {"redundancyfilter__threshold": [0.5, 0.9]}, cv=3
        )
        assert search.fit(X, Y).best_score_ > 0.5

    @pytest.mark.filterwarnings("ignore:graph euclidean")
    def test_parameters_of_the_selector_are_reached(self) -> None:
        selector = RedundancyFilter(LaplacianScore()).set_params(estimator__n_neighbors=3)
        assert selector.fit(X, Y).estimator_.n_neighbors == 3
        np.testing.assert_array_equal(selector.scores_, LaplacianScore(n_neighbors=3).fit(X).scores_)


class TestMistakes:
    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"keep": ["y3"]}, r"keep names 'y3', and no feature has that name"),
            ({"drop": [13]}, r"there is no feature 13: X has 13 features, from 0 to 12"),
            ({"keep": [-1]}, r"there is no feature -1"),
            ({"keep": ["x1"], "drop": [1]}, r"'x1' is in keep and in drop"),
            ({"groups": {"x1": "a"}}, r"groups and max_per_group need each other"),
            ({"groups": {"z.*": "a"}, "max_per_group": 1}, r"groups: 'z\.\*' is no feature's name and matches none"),
            ({"threshold": 1.0}, r"RedundancyFilter: key 'threshold': .* less than 1"),
            ({"measure": "mutual"}, r"RedundancyFilter: key 'measure': .*'correlation' or"),
            ({"n_candidates": 2, "n_features_to_select": 5}, r"n_candidates is 2, and 5 features are to be selected"),
        ],
    )
    def test_are_named(self, parameters: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            RedundancyFilter(FisherScore(), **parameters).fit(X, Y)

    @pytest.mark.parametrize(
        "estimator",
        [KNeighborsClassifier(), Consensus([FisherScore(), VarianceScore()]), RedundancyFilter(FisherScore())],
        ids=lambda estimator: type(estimator).__name__,
    )
    def test_only_selectors_of_this_package_with_a_criterion(self, estimator: Any) -> None:
        with pytest.raises(ValueError, match="it must be a selector of daskfs with a criterion of its own"):
            RedundancyFilter(estimator).fit(X, Y)

    def test_a_selector_that_fails_leaves_nothing_behind(self) -> None:
        inner = PearsonScore()
        with pytest.raises(ValueError, match="NaN"):
            RedundancyFilter(inner).fit(np.where(X > 1000, np.nan, X), Y)
        assert "_after" not in vars(inner)
