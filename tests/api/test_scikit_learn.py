"""The estimators as scikit-learn's own: its checks, and its tools around them."""

from __future__ import annotations

import pickle  # noqa: TID251 - of fitted estimators, never of data
from collections.abc import Callable
from functools import cache, partial
from typing import Any, ClassVar

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

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
from daskfs.criteria.registry import criteria
from tests.api.checks import passes_checks
from tests.cases import case
from tests.optional import dask_dataframe as dd
from tests.optional import pandas as pd
from tests.optional import polars as pl

few_neighbors = partial(SSelect, n_neighbors=5)  # the checks fit 10 rows, which have 9 neighbors
ESTIMATORS: list[Callable[..., Any]] = [
    *(few_neighbors if name == "SSelect" else getattr(daskfs, name) for name in criteria()),
    partial(SupervisedLaplacianScore, task="classification"),
    partial(RLSR, score_scaling=None, greedy_filter=True),
    partial(SVMRFE, large_n="landmarks", score_scaling=None),
]


def filtered(n_features_to_select: Any = None) -> RedundancyFilter:
    """Return a selector round another, which takes its scores; tests/api/test_selection.py has its own checks."""
    return RedundancyFilter(FisherScore(), threshold=0.99, n_features_to_select=n_features_to_select)


SELECTORS = [*ESTIMATORS, filtered]
SOME = (FisherScore, SVMRFE, filtered)
"""For tools that see no difference between selectors."""
X, Y = load_iris(return_X_y=True)
NAMES = ["a", "b", "c", "d"]


def test_every_public_selector_is_of_a_criterion() -> None:
    """So that it is tested here."""
    public = {name for name in daskfs.__all__ if hasattr(getattr(daskfs, name), "get_support")}
    assert set(criteria()) == public - {"RedundancyFilter", "Consensus"}


def expected_failures(estimator: Any) -> dict[str, str]:
    """Return the checks that a selector fails by design, with the reason."""
    parameters = criteria()[type(estimator).__name__].parameters
    task = {"task": estimator.task} if hasattr(estimator, "task") and "task" in parameters.model_fields else {}
    # LSDF looks at edges of unlabeled rows only
    has_neighbors = task.get("task") != "auto" and parameters(**task).lists(10) and not isinstance(estimator, LSDF)
    if not has_neighbors:
        return {}
    reason = "neighbors are found without weights: a row that is there twice is its own nearest neighbor"
    return dict.fromkeys([f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")], reason)


STANDING_FOR_OTHERS = [FisherScore, few_neighbors, RLSR]
"""A filter, a criterion over a graph with labels, and a sparse regression."""


@pytest.mark.parametrize(
    "estimator",
    [pytest.param(e(), marks=() if e in STANDING_FOR_OTHERS else pytest.mark.long) for e in ESTIMATORS],
    ids=str,
)
def test_scikit_learn_checks(estimator: Any) -> None:
    passes_checks(estimator, expected_failures(estimator))


@cache
def fitted(estimator: Callable[..., Any]) -> Any:
    """Return a selector of two features, fitted to X and Y; nothing may change it."""
    return estimator(2).fit(X, Y)


NUMBERS: list[tuple[Any, int]] = [
    (5, 5),
    (None, 6),
    (1, 1),
    (13, 13),
    (40, 13),
    (0.2, 2),
    (0.01, 1),
    (1.0, 13),
    (np.int64(3), 3),
]
"""What may be asked for of 13 features, and how many are selected."""


class TestNumberOfFeatures:
    @pytest.mark.filterwarnings("ignore:graph euclidean")
    def test_best_ones_are_selected(self) -> None:
        data, y = load_wine(return_X_y=True)
        for estimator in ESTIMATORS:
            selector = estimator(5).fit(data, y)
            for wanted, n_selected in NUMBERS:
                with case(estimator, wanted):
                    support = selector.set_params(n_features_to_select=wanted).get_support()
                    assert support.sum() == n_selected
                    assert selector.ranking_[support].max() == n_selected
                    np.testing.assert_array_equal(selector.transform(data), data[:, support])
                    assert selector.get_feature_names_out().tolist() == [f"x{i}" for i in np.flatnonzero(support)]

    def test_bad_numbers(self) -> None:
        for estimator in ESTIMATORS:
            for wanted in (0, -1, 1.5, 0.0, "all", np.nan):
                with case(estimator, wanted), pytest.raises(ValueError, match="n_features_to_select"):
                    estimator(wanted).fit(X, Y)


class TestTools:
    """Of every selector, unless what is looked at is one and the same for all."""

    def test_fit_returns_itself_and_leaves_input_alone(self) -> None:
        data, y = X.copy(), Y.copy()
        data.setflags(write=False)
        y.setflags(write=False)
        for estimator in SELECTORS:
            with case(estimator):
                selector = estimator()
                assert selector.fit(data, y) is selector
        np.testing.assert_array_equal(data, X)

    def test_clone_is_unfitted_and_fits_alike(self) -> None:
        for estimator in SELECTORS:
            with case(estimator):
                first = fitted(estimator)
                copy = clone(first)
                assert not hasattr(copy, "scores_")
                # a selector inside another is cloned too, and equals itself only
                parameters = [{key: repr(value) for key, value in one.get_params().items()} for one in (copy, first)]
                assert parameters[0] == parameters[1]
                np.testing.assert_array_equal(copy.fit(X, Y).scores_, first.scores_)

    def test_pickle(self) -> None:
        for estimator in SELECTORS:
            with case(estimator):
                loaded = pickle.loads(pickle.dumps(fitted(estimator)))  # noqa: S301
                np.testing.assert_array_equal(loaded.scores_, fitted(estimator).scores_)
                np.testing.assert_array_equal(loaded.transform(X), fitted(estimator).transform(X))

    def test_other_number_of_features(self) -> None:
        for estimator in SELECTORS:
            with case(estimator), pytest.raises(ValueError, match=r"3 features.*expecting 4 features"):
                fitted(estimator).transform(X[:, :3])

    def test_inverse_transform(self) -> None:
        for estimator in SELECTORS:
            with case(estimator):
                back = fitted(estimator).inverse_transform(fitted(estimator).transform(X))
                np.testing.assert_array_equal(back, X * fitted(estimator).get_support())

    def test_frames_name_the_columns(self) -> None:
        """And what went in has the scores of the array."""
        frames = {
            "pandas": pd.DataFrame(X, columns=NAMES, index=np.arange(150) + 1000),
            "polars": pl.DataFrame(X, schema=NAMES),
        }
        for estimator in SELECTORS:
            for kind, frame in frames.items():
                with case(estimator, kind):
                    selector = estimator(2).set_output(transform=kind).fit(frame, Y)
                    result = selector.transform(frame)
                    assert type(result) is type(frame)
                    names = np.array(NAMES)[selector.get_support()].tolist()
                    assert list(result.columns) == names == selector.get_feature_names_out().tolist()
                    assert selector.feature_names_in_.tolist() == NAMES
                    np.testing.assert_array_equal(result.to_numpy(), X[:, selector.get_support()])
                    np.testing.assert_array_equal(selector.scores_, fitted(estimator).scores_)
                    if kind == "pandas":
                        np.testing.assert_array_equal(result.index, frame.index)

    @pytest.mark.parametrize("estimators", [SOME, pytest.param(SELECTORS, marks=pytest.mark.long)], ids=["some", "all"])
    def test_dask_stays_lazy_in_transform(self, estimators: Any) -> None:
        def refused(*_: Any, **__: Any) -> None:
            msg = "computed"
            raise AssertionError(msg)

        frame = pd.DataFrame(X, columns=NAMES)
        blocks, parts = da.from_array(X, chunks=(40, 3)), dd.from_pandas(frame, npartitions=3)
        for estimator in estimators:
            selector = estimator(2).fit(frame, Y)
            with dask.config.set(scheduler=refused):
                array, table = fitted(estimator).transform(blocks), selector.transform(parts)
            assert isinstance(array, da.Array)
            assert isinstance(table, dd.DataFrame)
            assert list(table.columns) == selector.get_feature_names_out().tolist()
            for result in (array, table):
                np.testing.assert_array_equal(np.asarray(result.compute()), X[:, selector.get_support()])

    def test_sparse_transform_stays_sparse(self) -> None:
        for estimator in SELECTORS:
            with case(estimator):
                selector = estimator(2).fit(sp.csr_matrix(X), Y)
                result = selector.transform(sp.csr_matrix(X))
                assert sp.issparse(result)
                np.testing.assert_array_equal(result.toarray(), X[:, selector.get_support()])

    @pytest.mark.parametrize(
        "estimator", [pytest.param(e, marks=() if e in SOME else pytest.mark.long) for e in SELECTORS]
    )
    def test_grid_search(self, estimator: Callable[..., Any]) -> None:
        pipeline = make_pipeline(estimator(), KNeighborsClassifier(3))
        name = f"{type(pipeline[0]).__name__.lower()}__n_features_to_select"
        search = GridSearchCV(pipeline, {name: [1, 2, 0.75]}, cv=3).fit(X, Y)
        best = search.best_estimator_
        assert best[0].get_support().sum() == {1: 1, 2: 2, 0.75: 3}[search.best_params_[name]]
        assert search.best_score_ > 0.85
        assert not np.isnan(search.cv_results_["mean_test_score"]).any()

    @pytest.mark.parametrize("estimators", [SOME, pytest.param(SELECTORS, marks=pytest.mark.long)], ids=["some", "all"])
    def test_pipeline(self, estimators: Any) -> None:
        scaled = StandardScaler().fit_transform(X)
        for estimator in estimators:
            model = make_pipeline(StandardScaler(), estimator(2), GaussianNB()).fit(X, Y)
            np.testing.assert_array_equal(model[1].scores_, estimator(2).fit(scaled, Y).scores_)
            assert model.predict(X).shape == (150,)

    @pytest.mark.parametrize("estimators", [SOME, pytest.param(SELECTORS, marks=pytest.mark.long)], ids=["some", "all"])
    def test_column_transformer(self, estimators: Any) -> None:
        frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
        for estimator in estimators:
            parts = [("some", estimator(2), ["a", "b", "d"]), ("rest", "passthrough", ["c"])]
            transformer = ColumnTransformer(parts).set_output(transform="pandas")
            result = transformer.fit_transform(frame, Y)
            alone = estimator(2).fit(frame[["a", "b", "d"]], Y)
            names = [*(f"some__{name}" for name in alone.get_feature_names_out()), "rest__c"]
            assert result.columns.tolist() == transformer.get_feature_names_out().tolist() == names
            np.testing.assert_array_equal(result.to_numpy()[:, :2], X[:, [0, 1, 3]][:, alone.get_support()])

    @pytest.mark.parametrize("searched", [SOME, pytest.param(SELECTORS, marks=pytest.mark.long)], ids=["some", "all"])
    def test_weights_are_routed(self, searched: Any) -> None:
        weights = np.arange(150) % 4 + 0.5
        for estimator in SELECTORS:
            with case(estimator), config_context(enable_metadata_routing=True):
                expected = estimator(2).fit(X, Y, sample_weight=weights).scores_
                last = GaussianNB().set_fit_request(sample_weight=False)
                model = make_pipeline(estimator(2).set_fit_request(sample_weight=True), last)
                np.testing.assert_array_equal(model.fit(X, Y, sample_weight=weights)[0].scores_, expected)
                if estimator in searched:
                    grid = {f"{model.steps[0][0]}__n_features_to_select": [2]}
                    # named, as scikit-learn 1.6 asks nothing of a pipeline's last step for its own score
                    accuracy = get_scorer("accuracy").set_score_request(sample_weight=True)
                    search = GridSearchCV(model, grid, scoring=accuracy, cv=3).fit(X, Y, sample_weight=weights)
                    np.testing.assert_array_equal(search.best_estimator_[0].scores_, expected)

    @pytest.mark.filterwarnings("ignore:graph euclidean")
    def test_fitting_again_forgets_the_first_data(self) -> None:
        wine, classes = load_wine(return_X_y=True)
        frame = pd.DataFrame(wine, columns=[f"f{i}" for i in range(13)])
        for estimator in SELECTORS:
            with case(estimator):
                selector = estimator().fit(frame, classes)
                selector.fit(X, Y)
                assert (selector.n_features_in_, selector.scores_.shape, selector.ranking_.shape) == (4, (4,), (4,))
                assert not hasattr(selector, "feature_names_in_")
                np.testing.assert_array_equal(selector.scores_, fitted(estimator).scores_)


class TestFittedAttributes:
    FIELDS: ClassVar[list[tuple[Callable[..., Any], list[str]]]] = [
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
    ]

    def test_fields(self) -> None:
        for estimator, fields in self.FIELDS:
            with case(estimator):
                found = fitted(estimator)
                assert list(found.score_fields_) == fields
                np.testing.assert_array_equal(found.score_fields_["score"], found.scores_)
                for values in found.score_fields_.values():
                    assert (values.shape, values.dtype) == ((4,), np.float64)
                assert (found.scores_.dtype, found.ranking_.dtype) == (np.float64, np.int64)

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
