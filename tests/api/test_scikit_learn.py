"""The estimators as scikit-learn's own: its checks, and its tools around them."""

from __future__ import annotations

import pickle  # noqa: TID251 - of fitted estimators, never of data
from collections.abc import Callable
from functools import partial
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import daskfs
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
    RedundancyFilter,
    SemiSupervisedLaplacianScore,
    SSelect,
    SupervisedLaplacianScore,
    VarianceScore,
    knn_graph,
)
from daskfs.methods.registry import criteria

ESTIMATORS: list[Callable[..., Any]] = [
    VarianceScore,
    LaplacianScore,
    FisherScore,
    PearsonScore,
    KolmogorovSmirnovScore,
    InformationGainScore,
    RRPC,
    partial(SSelect, n_neighbors=5),  # the checks fit 10 rows, which have 9 neighbors
    SupervisedLaplacianScore,
    partial(SupervisedLaplacianScore, task="classification"),
    SemiSupervisedLaplacianScore,
    LSDF,
    RLSR,
    DSSFS,
    SSUFS,
    partial(RLSR, score_scaling=None, greedy_filter=True),
    SVMRFE,
    partial(SVMRFE, large_n="landmarks", score_scaling=None),
    RandomOrder,
]


def filtered(n_features_to_select: Any = None) -> RedundancyFilter:
    """Return a selector round another, which takes its scores; tests/api/test_selection.py has its own checks."""
    return RedundancyFilter(FisherScore(), threshold=0.99, n_features_to_select=n_features_to_select)


SELECTORS = [*ESTIMATORS, filtered]
X, Y = load_iris(return_X_y=True)
NAMES = ["a", "b", "c", "d"]


def test_every_public_selector_is_tested() -> None:
    """Here, whatever is added to the package."""
    public = {name for name in daskfs.__all__ if hasattr(getattr(daskfs, name), "get_support")}
    assert {type(selector()).__name__ for selector in SELECTORS} == public
    assert set(criteria()) == public - {"RedundancyFilter"}


def expected_failures(estimator: Any) -> dict[str, str]:
    """Return the checks that a selector fails by design, with the reason."""
    parameters = criteria()[type(estimator).__name__].parameters
    task = {"task": estimator.task} if hasattr(estimator, "task") and "task" in parameters.model_fields else {}
    # LSDF looks at edges of unlabelled rows only
    has_neighbors = task.get("task") != "auto" and parameters(**task).lists(10) and not isinstance(estimator, LSDF)
    if not has_neighbors:
        return {}
    reason = "neighbors are found without weights: a row that is there twice is its own nearest neighbor"
    return dict.fromkeys([f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")], reason)


@parametrize_with_checks([estimator() for estimator in ESTIMATORS], expected_failed_checks=expected_failures)
def test_scikit_learn_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    """Without SCIPY_ARRAY_API=1 in the environment, scikit-learn itself skips its check of array namespaces."""
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS)
class TestNumberOfFeatures:
    @pytest.mark.parametrize(
        ("wanted", "n_selected"),
        [(None, 6), (1, 1), (5, 5), (13, 13), (40, 13), (0.2, 2), (0.01, 1), (1.0, 13), (np.int64(3), 3)],
    )
    @pytest.mark.filterwarnings("ignore:graph euclidean")
    def test_best_ones_are_selected(self, estimator: Callable[..., Any], wanted: Any, n_selected: int) -> None:
        data, y = load_wine(return_X_y=True)
        fitted = estimator(wanted).fit(data, y)
        support = fitted.get_support()
        assert support.sum() == n_selected
        assert fitted.ranking_[support].max() == n_selected
        np.testing.assert_array_equal(fitted.transform(data), data[:, support])
        assert fitted.get_feature_names_out().tolist() == [f"x{i}" for i in np.flatnonzero(support)]

    @pytest.mark.parametrize("wanted", [0, -1, 1.5, 0.0, "all", np.nan])
    def test_bad_numbers(self, estimator: Callable[..., Any], wanted: Any) -> None:
        with pytest.raises(ValueError, match="n_features_to_select"):
            estimator(wanted).fit(X, Y)

    def test_changed_after_fitting(self, estimator: Callable[..., Any]) -> None:
        fitted = estimator(1).fit(X, Y)
        assert fitted.set_params(n_features_to_select=3).transform(X).shape == (150, 3)


@pytest.mark.parametrize("estimator", SELECTORS)
class TestTools:
    def test_fit_returns_itself_and_leaves_input_alone(self, estimator: Callable[..., Any]) -> None:
        data, y = X.copy(), Y.copy()
        data.setflags(write=False)
        y.setflags(write=False)
        selector = estimator()
        assert selector.fit(data, y) is selector
        np.testing.assert_array_equal(data, X)

    def test_clone_is_unfitted_and_fits_alike(self, estimator: Callable[..., Any]) -> None:
        fitted = estimator(2).fit(X, Y)
        copy = clone(fitted)
        assert not hasattr(copy, "scores_")
        # a selector inside another is cloned too, and equals itself only
        parameters = [{key: repr(value) for key, value in one.get_params().items()} for one in (copy, fitted)]
        assert parameters[0] == parameters[1]
        np.testing.assert_array_equal(copy.fit(X, Y).scores_, fitted.scores_)

    def test_pickle(self, estimator: Callable[..., Any]) -> None:
        fitted = estimator(2).fit(X, Y)
        loaded = pickle.loads(pickle.dumps(fitted))  # noqa: S301
        np.testing.assert_array_equal(loaded.scores_, fitted.scores_)
        np.testing.assert_array_equal(loaded.transform(X), fitted.transform(X))

    def test_pipeline(self, estimator: Callable[..., Any]) -> None:
        model = make_pipeline(StandardScaler(), estimator(2), LogisticRegression()).fit(X, Y)
        scaled = StandardScaler().fit_transform(X)
        np.testing.assert_array_equal(model[1].scores_, estimator(2).fit(scaled, Y).scores_)
        assert model.predict(X).shape == (150,)

    def test_pandas_output_names_the_columns(self, estimator: Callable[..., Any]) -> None:
        frame = pd.DataFrame(X, columns=NAMES, index=np.arange(150) + 1000)
        selector = estimator(2).set_output(transform="pandas").fit(frame, Y)
        result = selector.transform(frame)
        assert isinstance(result, pd.DataFrame)
        names = np.array(NAMES)[selector.get_support()].tolist()
        assert result.columns.tolist() == names == selector.get_feature_names_out().tolist()
        assert selector.feature_names_in_.tolist() == NAMES
        np.testing.assert_array_equal(result.index, frame.index)

    def test_polars_output_names_the_columns(self, estimator: Callable[..., Any]) -> None:
        """And what went in has the scores of the array."""
        frame = pl.DataFrame(X, schema=NAMES)
        selector = estimator(2).set_output(transform="polars").fit(frame, Y)
        result = selector.transform(frame)
        assert isinstance(result, pl.DataFrame)
        assert result.columns == np.array(NAMES)[selector.get_support()].tolist()
        np.testing.assert_array_equal(result.to_numpy(), X[:, selector.get_support()])
        np.testing.assert_array_equal(selector.scores_, estimator(2).fit(X, Y).scores_)

    def test_dask_stays_lazy_in_transform(self, estimator: Callable[..., Any]) -> None:
        def refused(*_: Any, **__: Any) -> None:
            raise AssertionError("computed")

        frame = pd.DataFrame(X, columns=NAMES)
        selector = estimator(2).fit(frame, Y)
        blocks, parts = da.from_array(X, chunks=(40, 3)), dd.from_pandas(frame, npartitions=3)
        plain = estimator(2).fit(X, Y)
        with dask.config.set(scheduler=refused):
            array, table = plain.transform(blocks), selector.transform(parts)
        assert isinstance(array, da.Array)
        assert isinstance(table, dd.DataFrame)
        assert list(table.columns) == selector.get_feature_names_out().tolist()
        for result in (array, table):
            np.testing.assert_array_equal(np.asarray(result.compute()), X[:, selector.get_support()])

    def test_grid_search(self, estimator: Callable[..., Any]) -> None:
        pipeline = make_pipeline(estimator(), KNeighborsClassifier(3))
        name = f"{type(pipeline[0]).__name__.lower()}__n_features_to_select"
        search = GridSearchCV(pipeline, {name: [1, 2, 0.75]}, cv=3).fit(X, Y)
        best = search.best_estimator_
        assert best[0].get_support().sum() == {1: 1, 2: 2, 0.75: 3}[search.best_params_[name]]
        assert search.best_score_ > 0.85
        assert not np.isnan(search.cv_results_["mean_test_score"]).any()

    def test_column_transformer(self, estimator: Callable[..., Any]) -> None:
        frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
        parts = [("some", estimator(2), ["a", "b", "d"]), ("rest", "passthrough", ["c"])]
        transformer = ColumnTransformer(parts).set_output(transform="pandas")
        result = transformer.fit_transform(frame, Y)
        alone = estimator(2).fit(frame[["a", "b", "d"]], Y)
        names = [*(f"some__{name}" for name in alone.get_feature_names_out()), "rest__c"]
        assert result.columns.tolist() == transformer.get_feature_names_out().tolist() == names
        np.testing.assert_array_equal(result.to_numpy()[:, :2], X[:, [0, 1, 3]][:, alone.get_support()])

    def test_weights_are_routed(self, estimator: Callable[..., Any]) -> None:
        weights = np.arange(150) % 4 + 0.5
        with config_context(enable_metadata_routing=True):
            selector = estimator(2).set_fit_request(sample_weight=True)
            last = LogisticRegression().set_fit_request(sample_weight=False).set_score_request(sample_weight=True)
            model = make_pipeline(selector, last).fit(X, Y, sample_weight=weights)
            search = GridSearchCV(model, {f"{model.steps[0][0]}__n_features_to_select": [2]}, cv=3)
            search.fit(X, Y, sample_weight=weights)
        expected = estimator(2).fit(X, Y, sample_weight=weights).scores_
        np.testing.assert_array_equal(model[0].scores_, expected)
        np.testing.assert_array_equal(search.best_estimator_[0].scores_, expected)

    def test_inverse_transform(self, estimator: Callable[..., Any]) -> None:
        fitted = estimator(2).fit(X, Y)
        back = fitted.inverse_transform(fitted.transform(X))
        np.testing.assert_array_equal(back, X * fitted.get_support())

    def test_sparse_transform_stays_sparse(self, estimator: Callable[..., Any]) -> None:
        fitted = estimator(2).fit(sp.csr_matrix(X), Y)
        result = fitted.transform(sp.csr_matrix(X))
        assert sp.issparse(result)
        np.testing.assert_array_equal(result.toarray(), X[:, fitted.get_support()])

    def test_other_number_of_features(self, estimator: Callable[..., Any]) -> None:
        fitted = estimator().fit(X, Y)
        with pytest.raises(ValueError, match=r"3 features.*expecting 4 features"):
            fitted.transform(X[:, :3])

    @pytest.mark.filterwarnings("ignore:graph euclidean")
    def test_fitting_again_forgets_the_first_data(self, estimator: Callable[..., Any]) -> None:
        wine, classes = load_wine(return_X_y=True)
        selector = estimator().fit(pd.DataFrame(wine, columns=[f"f{i}" for i in range(13)]), classes)
        selector.fit(X, Y)
        assert (selector.n_features_in_, selector.scores_.shape, selector.ranking_.shape) == (4, (4,), (4,))
        assert not hasattr(selector, "feature_names_in_")
        np.testing.assert_array_equal(selector.scores_, estimator().fit(X, Y).scores_)


class TestFittedAttributes:
    @pytest.mark.parametrize(
        ("estimator", "fields"),
        [
            (VarianceScore, ["score", "mean", "minimum", "maximum"]),
            (LaplacianScore, ["score", "numerator", "denominator"]),
            (FisherScore, ["score", "between", "within"]),
            (PearsonScore, ["score", "correlation", "class_code"]),
            (RRPC, ["score", "relevance", "redundancy", "step"]),
            (KolmogorovSmirnovScore, ["score", "threshold"]),
            (InformationGainScore, ["score", "bins_in_use", *(f"edge_{i}" for i in range(1, 10))]),
            (SupervisedLaplacianScore, ["score", "numerator", "denominator"]),
            (SemiSupervisedLaplacianScore, ["score", "mixed", "supervised"]),
            (LSDF, ["score", "between", "within"]),
            (RLSR, ["score", "bound", "position"]),
            (DSSFS, ["score", "bound", "position"]),
            (SSUFS, ["score", "bound", "position"]),
            (SVMRFE, ["score", "round", "position"]),
            (RandomOrder, ["score"]),
        ],
    )
    def test_fields(self, estimator: Callable[..., Any], fields: list[str]) -> None:
        fitted = estimator().fit(X, Y)
        assert list(fitted.score_fields_) == fields
        np.testing.assert_array_equal(fitted.score_fields_["score"], fitted.scores_)
        assert all(values.shape == (4,) and values.dtype == np.float64 for values in fitted.score_fields_.values())
        assert (fitted.scores_.dtype, fitted.ranking_.dtype) == (np.float64, np.int64)

    def test_scores_do_not_share_memory_with_fields(self) -> None:
        fitted = VarianceScore().fit(X)
        fitted.scores_[0] = -1.0
        assert fitted.score_fields_["score"][0] > 0

    def test_meaning_of_the_fields(self) -> None:
        variance = VarianceScore().fit(X).score_fields_
        np.testing.assert_allclose(variance["mean"], X.mean(axis=0), rtol=1e-15)
        np.testing.assert_array_equal([variance["minimum"], variance["maximum"]], [X.min(axis=0), X.max(axis=0)])
        fisher = FisherScore().fit(X, Y).score_fields_
        total = 150 * X.var(axis=0)
        np.testing.assert_allclose(fisher["between"] + fisher["within"], total, rtol=1e-12)
        pearson = PearsonScore().fit(X, Y).score_fields_
        for feature, (code, found) in enumerate(zip(pearson["class_code"], pearson["correlation"], strict=True)):
            assert found == pytest.approx(np.corrcoef(X[:, feature], code == Y)[0, 1], rel=1e-12)

    def test_ties_go_by_feature_number(self) -> None:
        fitted = VarianceScore(2).fit(np.column_stack([X[:, 0], X[:, 1], X[:, 0], X[:, 0]]))
        assert fitted.ranking_.tolist() == [1, 4, 2, 3]
        assert fitted.get_support(indices=True).tolist() == [0, 2]


class TestParametersFromNumPy:
    @pytest.mark.parametrize(
        "parameters",
        [
            {"n_neighbors": np.int64(3)},
            {"t": np.float32(2.0)},
            {"t": np.int64(2)},
            {"t": 2},
            {"self_loops": np.bool_(True)},
            {"metric": np.str_("cosine")},
        ],
    )
    def test_scalars(self, parameters: dict[str, Any]) -> None:
        """As a search over ``np.arange`` hands them on."""
        plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in parameters.items()}
        expected = LaplacianScore(**plain).fit(X).scores_
        np.testing.assert_array_equal(LaplacianScore(**parameters).fit(X).scores_, expected)

    def test_grid_over_graph_parameters(self) -> None:
        pipeline = make_pipeline(LaplacianScore(2), KNeighborsClassifier(3))
        grid = {"laplacianscore__n_neighbors": np.arange(3, 6), "laplacianscore__t": np.array([0.5, 1.0])}
        search = GridSearchCV(pipeline, grid, cv=3).fit(X, Y)
        assert len(search.cv_results_["params"]) == 6
        assert search.best_score_ > 0.85


def test_grid_over_features_and_trade_off() -> None:
    pipeline = Pipeline([("select", SSelect()), ("knn", KNeighborsClassifier(3))])
    grid = {"select__n_features_to_select": [1, 2, 3], "select__trade_off": [0.0, 0.1, 1.0, "auto"]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, Y)
    assert len(search.cv_results_["params"]) == 12
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()
    best = search.best_estimator_["select"]
    assert best.get_support().sum() == search.best_params_["select__n_features_to_select"]
    assert best.trade_off == search.best_params_["select__trade_off"]
    assert search.best_score_ > 0.9


@pytest.mark.parametrize("form", ["lists", "dense", "sparse"])
def test_clone_and_pickle_keep_a_graph(form: str) -> None:
    lists = knn_graph(X, 5)
    connected = lists.to_csr("connectivity")
    graph: NDArray[np.float64] | Any = {"lists": lists, "dense": connected.toarray(), "sparse": connected}[form]
    fitted = LaplacianScore(graph=graph).fit(X)
    for copy in (clone(fitted), pickle.loads(pickle.dumps(fitted))):  # noqa: S301
        np.testing.assert_array_equal(copy.fit(X).scores_, fitted.scores_)
    assert "LaplacianScore" in repr(fitted)
