"""SVMRFE against Algorithm 1 in a plain loop, on both routes; copies, weights, labels and traps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

from daskfs import SVMRFE, knn_graph
from daskfs.criteria.svmrfe.criterion import SVMParameters
from daskfs.errors import InputError
from tests.reference import svm as reference
from tests.reference.svm import Setting, gaussian, graph_laplacian, weston, zscored

D = 9
"""Features of most tests: two that count, and seven that do not."""


def data(n: int = 40, seed: int = 0, n_unlabeled: int = 0, d: int = D) -> tuple[np.ndarray, np.ndarray]:
    """Return X as drawn, of very different scales, and labels 0, 1 and -1."""
    X, y = weston(n + n_unlabeled, seed, zscore=False)
    codes = (y > 0).astype(np.int64)
    codes[n:] = -1
    return X[:, :d] * 10.0 ** (np.arange(d) % 5 - 2), codes


def three_classes(n: int = 45, n_unlabeled: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    codes = np.arange(n + n_unlabeled) % 3
    X = rng.normal(size=(n + n_unlabeled, 7))
    X[:, 1] += 2.0 * (codes == 1)
    X[:, 4] += 2.0 * (codes == 2)
    codes[n:] = -1
    return X, codes


def leaving(step: float, n_singly: int) -> Callable[[int], int]:
    """Return how many of so many features leave in a round."""

    def count(n_left: int) -> int:
        if n_left <= n_singly:
            return 1
        return max(1, min(int(step if step >= 1 else step * n_left), n_left - n_singly))

    return count


def order_of(fitted: SVMRFE) -> list[int]:
    return np.argsort(fitted.ranking_).tolist()


def first_scores(X: Any, y: Any, sample_weight: Any = None, **parameters: Any) -> np.ndarray:
    """Return the criteria of the first round, in which all features go but one."""
    d = X.shape[1]
    fitted = SVMRFE(step=max(d - 1, 1), n_singly=1, **parameters).fit(X, y, sample_weight)
    assert fitted.n_rounds_ == 1
    return fitted.scores_


def graph(X: np.ndarray) -> np.ndarray:
    return graph_laplacian(X, 6)


def setting_of(d: int = D, **parameters: Any) -> Setting:
    laplacian = graph if parameters.get("laplacian") else None
    names = ("C", "gamma", "criterion", "retrain", "slack_factor")
    given = {name: parameters[name] for name in names if name in parameters}
    if given.get("gamma") is None and parameters["criterion"] == "rfe":
        given["gamma"] = 1.0 / d  # in all rounds; under "rmb", None is 1 / features left
    return Setting(**given, laplacian=laplacian)


KINDS = [
    {"criterion": criterion, "retrain": retrain, "laplacian": laplacian}
    for criterion in ("rfe", "rmb")
    for retrain in (False, True)
    for laplacian in (False, True)
]


def name_of(parameters: dict[str, Any]) -> str:
    return "-".join(str(value) if isinstance(value, str) else key for key, value in parameters.items() if value)


OTHER_VALUES: dict[str, Any] = {
    "C": 0.01,
    "gamma_intrinsic": 0.7,
    "n_neighbors": 3,
    "metric": "cosine",
    "weights": "heat",
    "t": 0.5,
    "self_loops": True,
    "graph_scaling": None,
    "rebuild_graph": False,
    "candidates": "exact",
    "slack": "frozen",
    "slack_factor": 1.2,
    "n_landmarks": 17,
    "ridge": 0.1,
    "random_state": 5,
}


@pytest.mark.parametrize("laplacian", [False, True])
@pytest.mark.parametrize(
    "parameters",
    [*({**kind, "large_n": "exact"} for kind in KINDS if not kind["laplacian"]), {"large_n": "landmarks"}],
    ids=name_of,
)
def test_idle_parameters_have_no_effect(parameters: dict[str, Any], laplacian: bool) -> None:
    """`plan` and the report leave them out."""
    X, y = data(n_unlabeled=12)
    given = {**parameters, "laplacian": laplacian, "step": 4, "n_singly": 2}
    expected = SVMRFE(**given).fit(X, y).scores_
    for name in SVMParameters(**given).idle():
        found = SVMRFE(**given, **{name: OTHER_VALUES[name]}).fit(X, y).scores_
        np.testing.assert_array_equal(found, expected, err_msg=name)


# ------------------------------------------------------------------------------------------------------- Algorithm 1
@pytest.mark.parametrize("parameters", KINDS, ids=name_of)
class TestAlgorithm:
    @pytest.mark.parametrize(("step", "n_singly"), [(0.25, 4), pytest.param(1, 8, marks=pytest.mark.long)])
    @pytest.mark.parametrize("gamma", [None, pytest.param(0.05, marks=pytest.mark.long)])
    def test_ranking(self, parameters: dict[str, Any], step: float, n_singly: int, gamma: float | None) -> None:
        X, y = data(n_unlabeled=15 if parameters["laplacian"] else 0)
        fitted = SVMRFE(
            step=step, n_singly=n_singly, candidates="exact", gamma="auto" if gamma is None else gamma, **parameters
        ).fit(X, y)
        setting = setting_of(gamma=gamma, **parameters)
        expected, rounds = reference.eliminate(
            zscored(X), lambda left: reference.judged(left, y, setting), leaving(step, n_singly)
        )
        assert order_of(fitted) == expected
        gone = fitted.score_fields_["round"]
        assert [np.flatnonzero(gone == number + 1).tolist() for number in range(len(rounds))] == [
            r.tolist() for r in rounds
        ]
        assert gone[expected[0]] == len(rounds) + 1
        assert fitted.n_rounds_ == len(rounds)
        assert [seen["n_left"] for seen in fitted.rounds_] == [
            D - sum(len(r) for r in rounds[:number]) for number in range(len(rounds))
        ]
        np.testing.assert_array_equal(fitted.score_fields_["position"], fitted.ranking_)
        np.testing.assert_array_equal(fitted.score_fields_["score"], fitted.scores_)
        assert fitted.route_ == "exact"

    def test_scores_of_the_last_round_that_judged(self, parameters: dict[str, Any]) -> None:
        X, y = data(n_unlabeled=15 if parameters["laplacian"] else 0)
        fitted = SVMRFE(step=3, n_singly=1, candidates="exact", **parameters).fit(X, y)
        setting = setting_of(**parameters)
        left, Z = np.arange(D), zscored(X)
        for number in range(1, fitted.n_rounds_ + 1):
            values = reference.judged(Z[:, left], y, setting)
            going = fitted.score_fields_["round"][left] == number
            last = going | (left.size == 2)
            np.testing.assert_allclose(fitted.scores_[left[last]], values[last], rtol=1e-6, atol=1e-9 * values.max())
            left = left[~going]

    def test_three_classes(self, parameters: dict[str, Any]) -> None:
        """One against the rest each, criteria summed."""
        X, y = three_classes(n_unlabeled=15 if parameters["laplacian"] else 0)
        found = first_scores(X, y, candidates="exact", **parameters)
        expected = reference.judged(zscored(X), y, setting_of(X.shape[1], **parameters))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * expected.max())
        assert len(reference.one_vs_rest(y)) == 3


def test_first_order_and_exact_keep_the_same_features() -> None:
    """Of 52, eight and fewer of which are judged exactly in either case."""
    for seed in range(3):
        X, y = data(100, seed, d=52)
        first = SVMRFE(2, C=100.0, gamma=1 / 52).fit(X, y)
        exact = SVMRFE(2, C=100.0, gamma=1 / 52, candidates="exact").fit(X, y)
        assert first.get_support(indices=True).tolist() == exact.get_support(indices=True).tolist() == [0, 1]
        assert [r["n_left"] for r in first.rounds_] == [52, 39, 30, 23, 18, 14, 11, 9, 8, 7, 6, 5, 4, 3, 2]


def test_rounds_tell_of_machines() -> None:
    X, y = data(60)
    fitted = SVMRFE(criterion="rmb").fit(X, y)
    for seen in fitted.rounds_:
        assert 2 <= seen["n_support"] <= 60
        assert 0 <= seen["bound_share"] < 1
        assert abs(seen["gap"]) < 1e-9
        assert seen["radius"] == "exact"
    assert "radius" not in SVMRFE().fit(X, y).rounds_[0]


def test_iris() -> None:
    X, y = load_iris(return_X_y=True)
    for parameters in list[Any]([{}, {"candidates": "exact"}, {"criterion": "rmb"}, {"large_n": "landmarks"}]):
        assert set(order_of(SVMRFE(**parameters).fit(X, y))[:2]) == {2, 3}


# -------------------------------------------------------------------------------------------------------- the graph
class TestGraph:
    X, Y = data(40, 1, 20)

    def test_kept_is_the_first_rounds(self) -> None:
        rebuilt = first_scores(self.X, self.Y, laplacian=True)
        kept = first_scores(self.X, self.Y, laplacian=True, rebuild_graph=False)
        np.testing.assert_allclose(kept, rebuilt, rtol=1e-9)
        lists = knn_graph(zscored(self.X), 6)
        given = first_scores(self.X, self.Y, laplacian=True, graph=lists)
        np.testing.assert_allclose(given, rebuilt, rtol=1e-9)
        A = lists.to_csr("connectivity")
        matrix = A.maximum(A.T)
        np.testing.assert_allclose(first_scores(self.X, self.Y, laplacian=True, graph=matrix), rebuilt, rtol=1e-9)

    @pytest.mark.parametrize("weights", ["heat", "cosine"])
    @pytest.mark.parametrize("t", ["mean", "median", 3.0])
    def test_weighted_kept_is_the_first_rounds(self, weights: str, t: float | str) -> None:
        made: dict[str, Any] = {"laplacian": True, "weights": weights, "t": t, "n_neighbors": 4}
        if weights == "cosine":
            made["metric"] = "cosine"
        rebuilt = first_scores(self.X, self.Y, **made)
        kept = first_scores(self.X, self.Y, rebuild_graph=False, **made)
        np.testing.assert_allclose(kept, rebuilt, rtol=1e-8)
        assert np.abs(rebuilt - first_scores(self.X, self.Y, laplacian=True, n_neighbors=4)).max() > 1e-6

    def test_kept_through_all_rounds(self) -> None:
        L = graph_laplacian(zscored(self.X), 6)
        setting = Setting(laplacian=lambda _: L)
        expected, _ = reference.eliminate(
            zscored(self.X), lambda left: reference.judged(left, self.Y, setting), leaving(1, 8)
        )
        for kept in ({"rebuild_graph": False}, {"graph": knn_graph(zscored(self.X), 8)}):
            fitted = SVMRFE(laplacian=True, step=1, candidates="exact", **kept).fit(self.X, self.Y)
            assert order_of(fitted) == expected

    def test_unlabeled_rows_count(self) -> None:
        known = self.Y >= 0
        assert (
            np.abs(
                first_scores(self.X, self.Y, laplacian=True)
                - first_scores(self.X[known], self.Y[known], laplacian=True)
            ).max()
            > 1e-3
        )

    def test_weights_of_rows_are_weights_of_edges(self) -> None:
        weights = np.where(np.arange(60) % 4 == 0, 3.0, 1.0)
        counted = np.repeat(self.X, weights.astype(int), axis=0)
        X = (self.X - counted.mean(axis=0)) / counted.std(axis=0)
        setting = Setting(laplacian=lambda left: graph_laplacian(left, 6, weights))
        expected = reference.criteria(X, np.where(self.Y < 0, 0.0, 2.0 * self.Y - 1), setting, weights)
        for kept in (False, True):
            found = first_scores(
                X, self.Y, weights, laplacian=True, candidates="exact", score_scaling=None, rebuild_graph=not kept
            )
            np.testing.assert_allclose(found, expected, rtol=1e-6)

    @pytest.mark.parametrize("kept", [False, True])
    def test_too_many_neighbors(self, kept: bool) -> None:
        X, y = data(10)
        assert SVMRFE(laplacian=True, n_neighbors=9, rebuild_graph=not kept).fit(X, y).route_ == "exact"
        with pytest.raises(ValueError, match="n_neighbors"):
            SVMRFE(laplacian=True, n_neighbors=10, rebuild_graph=not kept).fit(X, y)

    def test_rows_of_weight_0_are_no_neighbors(self) -> None:
        X, y = data(10)
        weights = np.where(np.arange(10) < 2, 0.0, 1.0)
        with pytest.raises(InputError, match=r"n_neighbors is 8, and 8 rows count: at most 7 neighbors exist\."):
            SVMRFE(laplacian=True, n_neighbors=8).fit(X, y, weights)

    @pytest.mark.filterwarnings("ignore:graph euclidean")  # of columns scaled by hand
    def test_a_graph_without_laplacian(self) -> None:
        with pytest.raises(InputError, match=r"graph needs laplacian=True\."):
            SVMRFE(graph=knn_graph(self.X, 6)).fit(self.X, self.Y)

    @pytest.mark.filterwarnings("ignore:graph euclidean")  # of columns scaled by hand
    def test_a_graph_of_other_rows_or_short_lists(self) -> None:
        with pytest.raises(InputError, match="rows"):
            SVMRFE(laplacian=True, graph=knn_graph(self.X[:30], 6)).fit(self.X, self.Y)
        with pytest.raises(InputError, match="n_neighbors is 6, and graph has 5"):
            SVMRFE(laplacian=True, graph=knn_graph(self.X, 5)).fit(self.X, self.Y)


# ------------------------------------------------------------------------------------------------------- landmarks
def landmark_criteria(
    X: np.ndarray,
    y: np.ndarray,
    *,
    weights: np.ndarray | None = None,
    n_anchors: int = 0,
    exact: bool = True,
    gamma: float | None = None,
) -> np.ndarray:
    """Return what ||f||^2 loses with each feature, all rows being landmarks; y is 0 where there is no label."""
    gamma = 1.0 / X.shape[1] if gamma is None else gamma
    counts = np.ones(len(X)) if weights is None else weights
    Z = X if n_anchors else X[y != 0]
    K, K_landmarks = gaussian(X, gamma, Z), gaussian(Z, gamma)
    L = reference.anchor_laplacian(K, n_anchors, counts) if n_anchors else None
    a, scale = reference.landmark_machine(K, K_landmarks, y, 1e-3, counts, L, 0.1)
    if not exact:
        return scale * np.abs(reference.first_order(K_landmarks, Z, gamma, a))
    return np.array(
        [
            scale * abs(a @ (gaussian(np.delete(Z, column, axis=1), gamma) - K_landmarks) @ a)
            for column in range(X.shape[1])
        ]
    )


LANDMARKS: dict[str, Any] = {"large_n": "landmarks", "n_landmarks": 60}


class TestLandmarks:
    @pytest.mark.parametrize("candidates", ["first_order", "exact"])
    @pytest.mark.parametrize("laplacian", [False, True])
    def test_first_round(self, laplacian: bool, candidates: str) -> None:
        X, y = data(40, 2, 20)
        found = first_scores(X, y, laplacian=laplacian, candidates=candidates, **LANDMARKS)
        expected = landmark_criteria(
            zscored(X),
            np.where(y < 0, 0.0, 2.0 * y - 1),
            n_anchors=6 if laplacian else 0,
            exact=candidates == "exact",
        )
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6 * expected.max())

    def test_ranking(self) -> None:
        X, y = data(50, 3)
        fitted = SVMRFE(step=1, candidates="exact", gamma=0.1, **LANDMARKS).fit(X, y)
        expected, _ = reference.eliminate(
            zscored(X), lambda left: landmark_criteria(left, 2.0 * y - 1, gamma=0.1), leaving(1, 8)
        )
        assert order_of(fitted) == expected
        assert fitted.route_ == "landmarks"
        assert [seen["n_left"] for seen in fitted.rounds_] == list(range(D, 1, -1))

    def test_three_classes(self) -> None:
        X, y = three_classes()
        found = first_scores(X, y, candidates="exact", **LANDMARKS)
        expected = sum(landmark_criteria(zscored(X), problem) for problem in reference.one_vs_rest(y))
        np.testing.assert_allclose(found, expected, rtol=1e-4)

    def test_few_landmarks_keep_what_counts(self) -> None:
        X, y = data(1000, 1, 500, d=52)
        for laplacian in (False, True):
            fitted = SVMRFE(2, large_n="landmarks", n_landmarks=100, gamma=1 / 52, laplacian=laplacian).fit(X, y)
            assert fitted.get_support(indices=True).tolist() == [0, 1]

    def test_they_are_drawn(self) -> None:
        X, y = data(100)
        made: dict[str, Any] = {"large_n": "landmarks", "n_landmarks": 20}
        first = SVMRFE(**made).fit(X, y).scores_
        np.testing.assert_array_equal(SVMRFE(**made).fit(X, y).scores_, first)
        assert np.abs(SVMRFE(random_state=1, **made).fit(X, y).scores_ - first).max() > 1e-6

    def test_all_rows_where_fewer_are_there(self) -> None:
        X, y = data(30)
        few = SVMRFE(large_n="landmarks", n_landmarks=30).fit(X, y).scores_
        np.testing.assert_array_equal(SVMRFE(large_n="landmarks", n_landmarks=10**6).fit(X, y).scores_, few)

    @pytest.mark.parametrize(
        "parameters", [{"retrain": True}, {"criterion": "rmb"}, {"criterion": "rmb", "retrain": True}]
    )
    def test_refused(self, parameters: dict[str, Any]) -> None:
        X, y = data(30)
        with pytest.raises(InputError, match="large_n 'landmarks' is for criterion 'rfe' without retrain"):
            SVMRFE(large_n="landmarks", **parameters).fit(X, y)
        assert SVMRFE(**parameters).fit(X, y).route_ == "exact"


# ------------------------------------------------------------------------------------------------- copies, constants
ROUTES: list[dict[str, Any]] = [{}, {"criterion": "rmb"}, {"laplacian": True}, LANDMARKS]


def tolerance(parameters: dict[str, Any], otherwise: float = 1e-10) -> float:
    """With all rows as landmarks, systems lose digits that coefficients of few of them keep."""
    return 1e-7 if parameters is LANDMARKS else otherwise


@pytest.mark.parametrize("parameters", ROUTES, ids=name_of)
class TestFeatures:
    def test_constant_features(self, parameters: dict[str, Any]) -> None:
        X, y = data()
        with_them = np.column_stack([np.full(40, 0.1), X[:, :4], np.full(40, 1e8 + 0.1), X[:, 4:]])
        fitted = SVMRFE(**parameters).fit(with_them, y)
        assert np.flatnonzero(np.isnan(fitted.scores_)).tolist() == [0, 5]
        assert fitted.ranking_[[0, 5]].tolist() == [D + 1, D + 2]
        others = np.delete(np.arange(D + 2), [0, 5])
        without = SVMRFE(**parameters).fit(X, y)
        np.testing.assert_allclose(fitted.scores_[others], without.scores_, rtol=1e-9)
        np.testing.assert_array_equal(fitted.ranking_[others], without.ranking_)
        for name in ("round", "position"):
            assert np.isnan(fitted.score_fields_[name][[0, 5]]).all()

    def test_all_constant(self, parameters: dict[str, Any]) -> None:
        with pytest.raises(InputError, match="can rank none of the 3 features: every one is excluded"):
            SVMRFE(**parameters).fit(np.full((20, 3), 0.1), np.arange(20) % 2)

    def test_one_feature(self, parameters: dict[str, Any]) -> None:
        X, y = data(d=1)
        fitted = SVMRFE(**parameters).fit(X, y)
        assert fitted.ranking_.tolist() == [1]
        assert np.isfinite(fitted.scores_).all()
        assert fitted.n_rounds_ == 1

    def test_two_features(self, parameters: dict[str, Any]) -> None:
        X, y = data(d=3)
        fitted = SVMRFE(**parameters).fit(X[:, [0, 2]], y)
        assert fitted.ranking_.tolist() == [1, 2]
        assert fitted.n_rounds_ == 1
        assert fitted.score_fields_["round"].tolist() == [2.0, 1.0]

    @pytest.mark.parametrize("candidates", ["first_order", pytest.param("exact", marks=pytest.mark.long)])
    def test_copies(self, parameters: dict[str, Any], candidates: Any) -> None:
        """Alike to the bit: the one of the higher number goes first."""
        X, y = data()
        both = np.hstack([X, X])
        fitted = SVMRFE(candidates=candidates, step=1, n_singly=1, **parameters).fit(both, y)
        first = first_scores(both, y, candidates=candidates, **parameters)
        np.testing.assert_allclose(first[:D], first[D:], rtol=1e-9)
        assert (fitted.score_fields_["round"][:D] > fitted.score_fields_["round"][D:]).all()

    def test_order_of_features(self, parameters: dict[str, Any]) -> None:
        X, y = data()
        order = np.random.default_rng(0).permutation(D)
        fitted, turned = SVMRFE(**parameters).fit(X, y), SVMRFE(**parameters).fit(X[:, order], y)
        np.testing.assert_array_equal(turned.ranking_, fitted.ranking_[order])
        np.testing.assert_allclose(turned.scores_, fitted.scores_[order], rtol=1e-6)

    @pytest.mark.parametrize("offset", [1e4, 1e8])
    def test_offset_and_scale_have_no_say(self, parameters: dict[str, Any], offset: float) -> None:
        X, y = data()
        plain = SVMRFE(**parameters).fit(X, y)
        scale = 10.0 ** (np.arange(D) - 4)
        moved = SVMRFE(**parameters).fit(scale * (zscored(X) + offset), y)
        np.testing.assert_array_equal(moved.ranking_, plain.ranking_)
        np.testing.assert_allclose(moved.scores_, plain.scores_, rtol=1e-4 if offset == 1e8 else 1e-8)

    def test_containers(self, parameters: dict[str, Any]) -> None:
        X, y = data(n_unlabeled=10)
        X[np.random.default_rng(0).random(X.shape) < 0.5] = 0.0
        expected = SVMRFE(**parameters).fit(X, y)
        for form in (sp.csr_matrix(X), da.from_array(X, chunks=(13, 4)), np.asfortranarray(X)):
            found = SVMRFE(**parameters).fit(form, y)
            np.testing.assert_allclose(found.scores_, expected.scores_, rtol=tolerance(parameters))
            np.testing.assert_array_equal(found.ranking_, expected.ranking_)


@pytest.mark.parametrize("scaling", ["unit", "log1p", None])
@pytest.mark.parametrize("parameters", ROUTES, ids=name_of)
def test_other_scalings(parameters: dict[str, Any], scaling: str | None) -> None:
    """The kernel sees rows as they are scaled, dense or sparse."""
    X, y = data(n_unlabeled=10)
    X = np.abs(zscored(X))
    X[np.random.default_rng(0).random(X.shape) < 0.3] = 0.0
    made = {None: X, "log1p": np.log1p(X), "unit": X / np.linalg.norm(X, axis=1, keepdims=True)}[scaling]
    found = first_scores(X, y, score_scaling=scaling, **parameters)
    np.testing.assert_allclose(found, first_scores(made, y, score_scaling=None, **parameters), rtol=1e-8)
    np.testing.assert_allclose(
        first_scores(sp.csr_matrix(X), y, score_scaling=scaling, **parameters), found, rtol=tolerance(parameters)
    )
    if not parameters:
        expected = reference.criteria(made, np.where(y < 0, 0.0, 2.0 * y - 1), Setting())
        np.testing.assert_allclose(first_scores(X, y, score_scaling=scaling, candidates="exact"), expected, rtol=1e-6)


# ---------------------------------------------------------------------------------------------------- weights, labels
@pytest.mark.parametrize(
    "parameters",
    [
        *ROUTES,
        pytest.param({"retrain": True}, marks=pytest.mark.long),
        pytest.param({"criterion": "rmb", "retrain": True}, marks=pytest.mark.long),
    ],
    ids=name_of,
)
class TestWeights:
    def test_weight_0_is_no_row(self, parameters: dict[str, Any]) -> None:
        X, y = data(40, 4, 20)
        X = zscored(X)
        weights = np.where(np.arange(60) % 5 == 0, 0.0, 1.0)
        kept = weights > 0
        found = SVMRFE(score_scaling=None, **parameters).fit(np.where(kept[:, None], X, 1e3), y, weights)
        expected = SVMRFE(score_scaling=None, **parameters).fit(X[kept], y[kept])
        np.testing.assert_allclose(found.scores_, expected.scores_, rtol=1e-6)
        np.testing.assert_array_equal(found.ranking_, expected.ranking_)

    def test_weight_2_is_a_row_twice(self, parameters: dict[str, Any]) -> None:
        """But under a graph, where a row that is there twice has other neighbors."""
        if parameters.get("laplacian"):
            return
        X, y = data(40, 5)
        X, weights = zscored(X), np.where(np.arange(40) % 3 == 0, 2, 1)
        repeated = np.repeat(np.arange(40), weights)
        found = SVMRFE(score_scaling=None, **parameters).fit(X, y, weights)
        twice = SVMRFE(score_scaling=None, **parameters).fit(X[repeated], y[repeated])
        np.testing.assert_allclose(found.scores_, twice.scores_, rtol=1e-4 if parameters is LANDMARKS else 1e-6)
        np.testing.assert_array_equal(found.ranking_, twice.ranking_)
        assert np.abs(found.scores_ / SVMRFE(score_scaling=None, **parameters).fit(X, y).scores_ - 1).max() > 1e-2

    def test_weights_of_1(self, parameters: dict[str, Any]) -> None:
        X, y = data(n_unlabeled=10)
        found, plain = SVMRFE(**parameters).fit(X, y, np.ones(50)), SVMRFE(**parameters).fit(X, y)
        np.testing.assert_allclose(found.scores_, plain.scores_, rtol=1e-9)


@pytest.mark.parametrize("parameters", ROUTES, ids=name_of)
class TestLabels:
    def test_unlabeled_rows_have_no_say_without_a_graph(self, parameters: dict[str, Any]) -> None:
        X, y = data(40, 6, 20)
        X, known = zscored(X), y >= 0
        found = SVMRFE(score_scaling=None, **parameters).fit(X, y).scores_
        alone = SVMRFE(score_scaling=None, **parameters).fit(X[known], y[known]).scores_
        if parameters.get("laplacian"):
            assert np.abs(found - alone).max() > 1e-3
        else:
            np.testing.assert_allclose(found, alone, rtol=tolerance(parameters, 1e-9))

    def test_names_of_classes_have_no_say(self, parameters: dict[str, Any]) -> None:
        X, y = data()
        expected = SVMRFE(**parameters).fit(X, y).scores_
        for other in (1 - y, np.array(["a", "b"])[y]):
            np.testing.assert_allclose(SVMRFE(**parameters).fit(X, other).scores_, expected, rtol=1e-6)

    def test_a_class_without_counted_rows(self, parameters: dict[str, Any]) -> None:
        """The others are told apart as if it were not there."""
        X, y = three_classes(45)
        X, weights = zscored(X), np.where(y == 2, 0.0, 1.0)
        found = SVMRFE(score_scaling=None, **parameters).fit(X, y, weights)
        hidden = np.where(y == 2, -1, y)
        if parameters.get("laplacian"):
            hidden, X = hidden[y != 2], X[y != 2]
        expected = SVMRFE(score_scaling=None, **parameters).fit(X, hidden)
        np.testing.assert_array_equal(found.ranking_, expected.ranking_)
        factor = 2.0 if parameters is LANDMARKS else 1.0  # both problems of the two that are left
        np.testing.assert_allclose(found.scores_, factor * expected.scores_, rtol=1e-6)

    def test_one_class_that_counts(self, parameters: dict[str, Any]) -> None:
        X, y = data()
        with pytest.raises(ValueError, match="class"):
            SVMRFE(**parameters).fit(X, np.zeros(40))
        with pytest.raises(ValueError, match="class"):
            SVMRFE(**parameters).fit(X, y, np.where(y == 0, 1.0, 0.0))

    def test_one_row_of_a_class(self, parameters: dict[str, Any]) -> None:
        X, y = data()
        y = np.where(np.arange(40) == 1, 1, 0)
        assert np.isfinite(SVMRFE(**parameters).fit(X, y).scores_).all()

    def test_two_rows(self, parameters: dict[str, Any]) -> None:
        if parameters.get("laplacian"):
            parameters = {**parameters, "n_neighbors": 1}
        X = np.array([[0.0, 1.0, 5.0], [1.0, 3.0, 5.0]])
        fitted = SVMRFE(**parameters).fit(X, [0, 1])
        assert np.isnan(fitted.scores_).tolist() == [False, False, True]
        assert fitted.ranking_.tolist() == [1, 2, 3]


class TestBounds:
    """Where every alpha is at C."""

    def test_small_cost(self) -> None:
        X, y = data()
        with pytest.warns(UserWarning, match=r"in 8 of 8 rounds every alpha was at C.*; raise C\.$") as caught:
            fitted = SVMRFE(C=1e-4).fit(X, y)
        assert len(caught) == 1
        assert all(seen["bound_share"] == 1.0 for seen in fitted.rounds_)

    def test_large_gamma_intrinsic(self) -> None:
        X, y = data(n_unlabeled=20)
        with pytest.warns(UserWarning, match="lower gamma_intrinsic or raise C"):
            SVMRFE(laplacian=True, C=1e-3, gamma_intrinsic=100.0).fit(X, y)

    def test_rescaling_keeps_a_large_gamma_intrinsic_from_it(self) -> None:
        """Of methods.md, 5.2: the kernel that is not rescaled has every alpha at C at gamma_I = 10."""
        X, y = data(30, 0, 50, d=52)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fitted = SVMRFE(criterion="rmb", laplacian=True, gamma_intrinsic=10.0).fit(X, y)
        assert max(seen["bound_share"] for seen in fitted.rounds_) < 1.0

    def test_landmarks_have_no_alpha(self) -> None:
        X, y = data()
        fitted = SVMRFE(C=1e-4, **LANDMARKS).fit(X, y)
        assert all(set(seen) == {"n_left"} for seen in fitted.rounds_)


class TestManyRounds:
    def test_huge_step(self) -> None:
        X, y = data()
        fitted = SVMRFE(step=10**6, n_singly=3).fit(X, y)
        assert [seen["n_left"] for seen in fitted.rounds_] == [D, 3, 2]

    @pytest.mark.parametrize("step", [0.01, 1, 0.9999])
    def test_any_step_takes_one_at_least(self, step: float) -> None:
        X, y = data()
        fitted = SVMRFE(step=step, n_singly=1).fit(X, y)
        assert sorted(fitted.ranking_.tolist()) == list(range(1, D + 1))
        left = [seen["n_left"] for seen in fitted.rounds_]
        assert left == sorted(left, reverse=True)
        assert len(left) == (1 if step == 0.9999 else D - 1)

    @pytest.mark.long
    @pytest.mark.parametrize("parameters", KINDS, ids=name_of)
    def test_wine(self, parameters: dict[str, Any]) -> None:
        """Three of its 13 features tell its three classes apart."""
        X, y = load_wine(return_X_y=True)
        kept = SVMRFE(3, n_singly=4, **parameters).fit_transform(zscored(X), y)
        assert cross_val_score(SVC(), kept, y).mean() > 0.8
