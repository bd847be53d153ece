"""Models of the evaluation: what a job may name, and what comes out, against scikit-learn called directly."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, Literal

import numpy as np
import pytest
import sklearn
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.datasets import make_blobs
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import (
    adjusted_rand_score,
    balanced_accuracy_score,
    f1_score,
    normalized_mutual_info_score,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.svm import SVC, SVR
from threadpoolctl import threadpool_info

from daskfs.errors import InputError, JobError
from daskfs.evaluation import metrics, predictors
from daskfs.evaluation.metrics import cut_value, matched_accuracy, nearest_neighbor_error
from daskfs.evaluation.models import (
    ModelSpec,
    _estimators,
    family_of,
    fewest_rows,
    higher_is_better,
    known_metrics,
    make_model,
    metrics_of,
    model_cost,
    uses_folds,
)
from daskfs.evaluation.predictors import evaluate_model, evaluate_whole
from daskfs.kernels.labels import Task
from daskfs.stages.cost import total

X, CLASSES = make_blobs(120, 4, centers=3, cluster_std=4.0, random_state=0)
X = np.asarray(X * [1.0, 10.0, 0.1, 1.0], dtype=np.float64)
CLASSES = np.asarray(CLASSES, dtype=np.int64)
TARGETS = X[:, 0] * X[:, 2] + np.random.default_rng(0).normal(size=120) + 20
TRAIN = np.random.default_rng(1).permutation(120)[:80]
TEST = np.setdiff1d(np.arange(120), TRAIN)


def standardized(rows: np.ndarray, like: np.ndarray) -> np.ndarray:
    return (rows - like.mean(axis=0)) / like.std(axis=0)


def value_of(
    spec: ModelSpec, task: Task = "classification", scaling: Literal["zscore"] | None = "zscore", seed: int = 0
) -> dict[str, float]:
    y = CLASSES if task == "classification" else TARGETS
    return evaluate_model(spec, task, X, y, TRAIN, TEST, scaling, seed)


class TestAgainstScikitLearn:
    @pytest.mark.parametrize("scaling", ["zscore", None])
    @pytest.mark.parametrize(
        ("name", "parameters", "peer"),
        [
            ("knn", {}, KNeighborsClassifier(5)),
            ("knn", {"n_neighbors": 1, "weights": "distance"}, KNeighborsClassifier(1)),
            ("linear-svm", {}, SVC(kernel="linear", C=1)),
            ("rbf-svm", {"C": 0.1, "gamma": 0.5}, SVC(kernel="rbf", C=0.1, gamma=0.5)),
            ("ridge", {"alpha": 3.0}, RidgeClassifier(alpha=3.0)),
            ("RandomForestClassifier", {"n_estimators": 7}, RandomForestClassifier(7, random_state=5)),
        ],
    )
    def test_classifiers(self, name: str, parameters: dict[str, Any], peer: Any, scaling: Any) -> None:
        train, test = (standardized(X[r], X[TRAIN]) if scaling else X[r] for r in (TRAIN, TEST))
        predicted = peer.fit(train, CLASSES[TRAIN]).predict(test)
        found = value_of(make_model(name, parameters), scaling=scaling, seed=5)
        assert found == {"balanced_accuracy": pytest.approx(balanced_accuracy_score(CLASSES[TEST], predicted))}

    @pytest.mark.parametrize(
        ("name", "parameters", "peer"),
        [
            ("knn", {}, KNeighborsRegressor(5)),
            ("linear-svm", {"epsilon": 0.5}, SVR(kernel="linear", epsilon=0.5)),
            ("rbf-svm", {}, SVR()),
            ("ridge", {}, Ridge()),
        ],
    )
    def test_regressors(self, name: str, parameters: dict[str, Any], peer: Any) -> None:
        train, test = (standardized(X[r], X[TRAIN]) for r in (TRAIN, TEST))
        predicted = peer.fit(train, TARGETS[TRAIN]).predict(test)
        found = value_of(make_model(name, parameters), "regression")
        assert found == {"rmse": pytest.approx(root_mean_squared_error(TARGETS[TEST], predicted), rel=1e-6)}

    def test_metrics_by_the_names_of_scorers(self) -> None:
        peer = LogisticRegression().fit(standardized(X[TRAIN], X[TRAIN]), CLASSES[TRAIN])
        test = standardized(X[TEST], X[TRAIN])
        names = ("f1_macro", "accuracy", "balanced_accuracy", "roc_auc_ovr")
        found = value_of(make_model("LogisticRegression", {}, metrics=names))
        predicted, y = peer.predict(test), CLASSES[TEST]
        assert found == pytest.approx(
            {
                "f1_macro": f1_score(y, predicted, average="macro"),
                "accuracy": np.mean(predicted == y),
                "balanced_accuracy": balanced_accuracy_score(y, predicted),
                "roc_auc_ovr": roc_auc_score(y, peer.predict_proba(test), multi_class="ovr"),
            }
        )
        assert list(found) == list(names)
        r2 = value_of(make_model("ridge", {}, metrics=["r2"]), "regression")
        ridge = Ridge().fit(standardized(X[TRAIN], X[TRAIN]), TARGETS[TRAIN])
        assert r2["r2"] == pytest.approx(r2_score(TARGETS[TEST], ridge.predict(test)))

    def test_every_metric_of_a_family_gives_a_number(self) -> None:
        two = np.minimum(CLASSES, 1)
        for name, task, y in (
            ("LogisticRegression", "classification", two),
            ("KNeighborsRegressor", "regression", TARGETS + 50),
        ):
            spec = make_model(name, {}, task=task, metrics=known_metrics(task))  # type: ignore[arg-type]
            found = evaluate_model(spec, task, X, y, TRAIN, TEST, "zscore", 0)  # type: ignore[arg-type]
            assert tuple(found) == known_metrics(task)  # type: ignore[arg-type]
            assert np.isfinite(list(found.values())).all()
        spec = make_model("kmeans", {"n_restarts": 1}, metrics=known_metrics("clusters"))
        found = evaluate_whole(spec, "classification", X, CLASSES, "zscore", 0)
        assert np.isfinite(list(found.values())).all()
        assert found["adjusted_rand_score"] == value_of_clusters(spec, adjusted_rand_score)


def value_of_clusters(spec: ModelSpec, score: Any) -> float:
    clusters = KMeans(3, n_init=spec.parameters["n_restarts"], random_state=0).fit_predict(standardized(X, X))
    return float(score(CLASSES, clusters))


class TestOnlyTrainingRowsAreSeen:
    @pytest.mark.parametrize("name", ["knn", "rbf-svm", "ridge", "kmeans", "GaussianNB"])
    def test_other_test_rows_change_nothing(self, name: str) -> None:
        """A row is predicted alike alone and among others, however far away these lie."""
        spec = make_model(name, {}, metrics=["accuracy"])
        strange, test = X.copy(), TEST[:10]
        strange[test[::2]] *= -1e6
        shares = [
            evaluate_model(spec, "classification", strange, CLASSES, TRAIN, test[[i]], "zscore", 0)["accuracy"]
            for i in range(test.size)
        ]
        together = evaluate_model(spec, "classification", strange, CLASSES, TRAIN, test, "zscore", 0)
        assert together["accuracy"] == pytest.approx(np.mean(shares))
        assert 0 < np.mean(shares[1::2]) <= 1

    def test_zscore_takes_the_moments_of_the_training_rows(self) -> None:
        """By these the test row is nearest to the last of them; where a far row is counted in, to the second."""
        rows = np.array([[0.0, 0.0], [0.0, 2.0], [2e3, 0.1], [2e3, 2.2], [1.1e3, 2.05], [9e9, 0.0]])
        y = np.array([0, 0, 1, 1, 1, 0])
        one, train = make_model("knn", {"n_neighbors": 1}, metrics=["accuracy"]), np.arange(4)
        assert evaluate_model(one, "classification", rows, y, train, np.array([4]), "zscore", 0) == {"accuracy": 1.0}
        both = evaluate_model(one, "classification", rows, y, train, np.array([4, 5]), "zscore", 0)
        assert both == {"accuracy": 0.5}
        y[5] = 1
        both = evaluate_model(one, "classification", rows, y, train, np.array([4, 5]), "zscore", 0)
        assert both == {"accuracy": 1.0}


class TestClusterers:
    def test_kmeans_keeps_the_best_of_its_restarts(self) -> None:
        values = standardized(X, X)
        best = KMeans(3, n_init=10, random_state=7).fit(values)
        found = evaluate_whole(make_model("kmeans", {}), "classification", X, CLASSES, "zscore", 7)
        assert found == {
            "accuracy": matched_accuracy(CLASSES, best.labels_),
            "nmi": pytest.approx(normalized_mutual_info_score(CLASSES, best.labels_, average_method="max")),
        }
        bad = [KMeans(3, init="random", n_init=1, random_state=seed).fit(values).inertia_ for seed in range(10)]
        assert best.inertia_ <= min(bad) + 1e-9

    def test_as_many_clusters_as_the_rows_have_classes(self) -> None:
        some = np.flatnonzero(CLASSES > 0)
        peer = KMeans(2, n_init=10, random_state=0).fit_predict(X[some])
        found = evaluate_whole(make_model("kmeans", {}), "classification", X[some], CLASSES[some], None, 0)
        assert found["accuracy"] == matched_accuracy(CLASSES[some], peer)
        five = evaluate_whole(make_model("kmeans", {"n_clusters": 5}), "classification", X, CLASSES, None, 0)
        peer = KMeans(5, n_init=10, random_state=0).fit_predict(X)
        assert five["accuracy"] == matched_accuracy(CLASSES, peer)

    def test_other_clusterers_by_class_name(self) -> None:
        found = evaluate_whole(make_model("AgglomerativeClustering", {}), "classification", X, CLASSES, None, 0)
        assert found["accuracy"] == matched_accuracy(CLASSES, AgglomerativeClustering(3).fit_predict(X))
        spec = make_model("DBSCAN", {"eps": 2.0, "min_samples": 3}, metrics=["nmi"])
        peer = normalized_mutual_info_score(
            CLASSES, DBSCAN(eps=2.0, min_samples=3).fit_predict(X), average_method="max"
        )
        assert evaluate_whole(spec, "classification", X, CLASSES, None, 0) == {"nmi": pytest.approx(peer)}

    def test_held_out_rows_get_the_classes_that_clusters_have_in_training(self) -> None:
        """Two clusters: by the training rows 0 and 1; the held-out ones have it the other way round."""
        rows = np.array([0.0, 0.1, 0.2, 9.0, 9.1, 9.2, 0.05, 0.15, 9.05])[:, None]
        y = np.array([0, 0, 0, 1, 1, 1, 1, 1, 0])
        found = evaluate_model(
            make_model("kmeans", {}), "classification", rows, y, np.arange(6), np.arange(6, 9), None, 0
        )
        assert found == {"accuracy": 0.0, "nmi": 1.0}

    def test_rows_that_are_all_alike(self) -> None:
        found = evaluate_whole(make_model("kmeans", {}), "classification", np.ones((6, 2)), CLASSES[:6], None, 0)
        assert found["nmi"] == 0.0
        assert found["accuracy"] == np.bincount(CLASSES[:6]).max() / 6


class TestWithoutFolds:
    def test_leave_one_out_and_cut(self) -> None:
        values = standardized(X, X)
        loo = evaluate_whole(make_model("1nn-loo", {}), "classification", X, CLASSES, "zscore", 0)
        assert loo == {"error": nearest_neighbor_error(values, CLASSES)}
        cut = evaluate_whole(make_model("cut", {"n_neighbors": 4}), "regression", X, TARGETS, "zscore", 0)
        assert cut == {"cut": pytest.approx(cut_value(values, 4), abs=1e-9)}
        assert evaluate_whole(make_model("cut", {}), "classification", X, CLASSES, None, 0)["cut"] == cut_value(X, 10)

    def test_which_models_use_folds(self) -> None:
        names = ["knn", "ridge", "kmeans", "1nn-loo", "cut", "GaussianNB", "KMeans", "DBSCAN"]
        specs = [make_model(name, {}) for name in names]
        assert [uses_folds(spec) for spec in specs] == [True, True, False, False, False, True, False, False]
        inside = [uses_folds(spec, "inductive") for spec in specs]
        assert inside == [True, True, True, False, False, True, True, False]
        with pytest.raises(ValueError, match="is tested on folds"):
            evaluate_whole(specs[0], "classification", X, CLASSES, None, 0)


class TestSeeds:
    def test_the_seed_decides_unless_the_job_does(self) -> None:
        spec = make_model("RandomForestClassifier", {"n_estimators": 3, "max_features": 1})
        values = [value_of(spec, seed=seed) for seed in range(6)]
        assert values == [value_of(spec, seed=seed) for seed in range(6)]
        assert len({value["balanced_accuracy"] for value in values}) > 1
        own = make_model("RandomForestClassifier", {"n_estimators": 3, "max_features": 1, "random_state": 2})
        assert all(value_of(own, seed=seed) == values[2] for seed in range(3))
        assert value_of(spec, seed=2 + 2**32) == value_of(spec, seed=2)


def test_models_run_in_one_thread_and_hold_few_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(X: np.ndarray, y: np.ndarray) -> float:
        del X, y
        assert sklearn.get_config()["working_memory"] <= 64
        return max(library["num_threads"] for library in threadpool_info())

    monkeypatch.setattr(metrics, "nearest_neighbor_error", seen)
    predictors._libraries.cache_clear()  # other tests load libraries that models do not use, such as numba's
    found = evaluate_whole(make_model("1nn-loo", {}), "classification", X, CLASSES, "zscore", 0)
    assert found == {"error": 1}


class TestWhatAJobMaySay:
    def test_json_and_back(self) -> None:
        spec = make_model("knn", {"n_neighbors": 1}, "1NN", ["f1_macro"])
        assert spec == ModelSpec("knn", "1NN", {"n_neighbors": 1}, ("f1_macro",))
        assert make_model("ridge", {}).label == "ridge"

    def test_only_models_of_scikit_learn_can_be_reached(self) -> None:
        assert {kind.__module__.split(".")[0] for kind in _estimators().values()} == {"sklearn"}
        assert {"SVC", "RandomForestRegressor", "SpectralClustering", "DummyClassifier"} <= _estimators().keys()

    def test_the_models_are_those_of_scikit_learn(self) -> None:
        code = (
            "import sys\n"
            "from daskfs.evaluation.models import _estimators\n"
            "models = {*_estimators(), 'FeatureAgglomeration'}\n"
            "assert 'sklearn.utils._testing' not in sys.modules\n"
            "from sklearn.utils.discovery import all_estimators\n"
            "every = dict(all_estimators(type_filter=['classifier', 'regressor', 'cluster']))\n"
            "assert models <= {*every}\n"
            "for name in {*every} - models:\n"
            "    try:\n"
            "        every[name]()\n"
            "    except TypeError:\n"
            "        continue\n"
            "    raise AssertionError(name)\n"
        )
        # without it scikit-learn 1.6 cannot import its list beside array_api_compat
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "SCIPY_ARRAY_API": "1"}, check=True)

    @pytest.mark.parametrize(
        ("name", "parameters", "parts"),
        [
            ("kmean", {}, ["evaluate.models.3: unknown model 'kmean'", "Did you mean 'kmeans'?", "1nn-loo"]),
            ("RandomForest", {}, ["unknown model 'RandomForest'", "Did you mean 'RandomForest"]),
            ("sklearn.svm.SVC", {}, ["unknown model"]),
            ("os.system", {}, ["unknown model"]),
            ("StandardScaler", {}, ["unknown model"]),
            ("VotingClassifier", {}, ["unknown model", "need no other estimator"]),
            ("FeatureAgglomeration", {}, ["unknown model"]),
            ("knn", {"n_neighbours": 3}, ["evaluate.models.3.n_neighbours", "Did you mean 'n_neighbors'?"]),
            ("knn", {"n_neighbors": 0}, ["evaluate.models.3.n_neighbors: ", "Got 0 instead."]),
            ("knn", {"n_neighbors": True}, ["evaluate.models.3.n_neighbors: true and false mean nothing"]),
            ("knn", {"n_jobs": 2}, ["evaluate.models.3.n_jobs: a job does not set it"]),
            ("linear-svm", {"kernel": "rbf"}, ["evaluate.models.3.kernel: model linear-svm has no such parameter"]),
            ("rbf-svm", {"C": "much"}, ["evaluate.models.3.C: ", "'much'"]),
            ("ridge", {"alpha": -1}, ["evaluate.models.3.alpha: "]),
            ("kmeans", {"n_init": 3}, ["evaluate.models.3.n_init", "Parameters: n_restarts, n_clusters, init"]),
            ("kmeans", {"n_restarts": 0}, ["evaluate.models.3.n_restarts", "greater than 0 (got 0)"]),
            ("kmeans", {"n_restarts": True}, ["evaluate.models.3.n_restarts", "got True"]),
            ("kmeans", {"init": "grid"}, ["evaluate.models.3.init", "'k-means++' or 'random'"]),
            ("1nn-loo", {"n_neighbors": 2}, ["evaluate.models.3.n_neighbors", "It has none."]),
            ("cut", {"k": 2}, ["evaluate.models.3.k", "n_neighbors"]),
            ("SelfTrainingClassifier", {"estimator": "SVC"}, ["evaluate.models.3.estimator: "]),
        ],
    )
    def test_names_and_parameters_that_are_none(self, name: str, parameters: dict[str, Any], parts: list[str]) -> None:
        with pytest.raises(JobError) as caught:
            make_model(name, parameters, key="evaluate.models.3")
        message = str(caught.value)
        assert all(part in message for part in parts), message
        assert message.endswith((".", "?"))

    @pytest.mark.parametrize(
        ("name", "metric", "part"),
        [
            ("knn", "f1_makro", "Did you mean 'f1_macro'?"),
            ("knn", "f1_samples", "is no metric of model knn"),
            ("kmeans", "r2", "Metrics: accuracy, nmi, adjusted_mutual_info_score"),
            ("1nn-loo", "accuracy", "Metrics: error."),
            ("cut", "nmi", "Metrics: cut."),
            ("LogisticRegression", "r2", "is no metric of model LogisticRegression"),
            ("SVR", "accuracy", "Metrics: rmse, "),
        ],
    )
    def test_metrics_that_are_none(self, name: str, metric: str, part: str) -> None:
        with pytest.raises(JobError, match=r"^evaluate\.models\.0\.metrics\.0: '") as caught:
            make_model(name, {}, metrics=[metric])
        assert part in str(caught.value)

    def test_metrics_of_a_short_name_follow_the_task(self) -> None:
        assert make_model("knn", {}, metrics=["r2"]).metrics == ("r2",)  # the task is not known yet
        with pytest.raises(JobError, match="'r2' is no metric"):
            make_model("knn", {}, metrics=["r2"], task="classification")
        with pytest.raises(JobError, match=r"models\.0\.epsilon"):
            make_model("rbf-svm", {"epsilon": 0.1}, task="classification")

    @pytest.mark.parametrize(
        ("name", "task", "part"),
        [
            ("kmeans", "regression", "for classes, which its clusters are held against"),
            ("1nn-loo", "regression", "for classes, and the labels are for regression: take knn, ridge or a regressor"),
            ("SVC", "regression", "for classification"),
            ("SVR", "classification", "for regression, and the labels are for classification"),
            ("DBSCAN", "regression", "for classes"),
        ],
    )
    def test_models_that_do_not_serve_the_task(self, name: str, task: Task, part: str) -> None:
        with pytest.raises(JobError, match=rf"^evaluate\.models\.0: model {name} is ") as caught:
            make_model(name, {}, task=task)
        assert part in str(caught.value)
        with pytest.raises(JobError, match=f"model {name} does not serve {task}"):
            family_of(make_model(name, {}), task)

    def test_usual_metrics_and_their_direction(self) -> None:
        cases: list[tuple[str, Task, tuple[str, ...]]] = [
            ("knn", "classification", ("balanced_accuracy",)),
            ("knn", "regression", ("rmse",)),
            ("kmeans", "classification", ("accuracy", "nmi")),
            ("1nn-loo", "classification", ("error",)),
            ("cut", "regression", ("cut",)),
            ("Lasso", "regression", ("rmse",)),
        ]
        for name, task, expected in cases:
            assert metrics_of(make_model(name, {}, task=task), task) == expected
        assert [
            m for m in ("accuracy", "rmse", "error", "nmi", "cut", "r2", "hit_rate") if not higher_is_better(m)
        ] == [
            "rmse",
            "error",
            "cut",
        ]

    def test_rows_that_a_model_needs(self) -> None:
        given = [("knn", {}), ("knn", {"n_neighbors": 9}), ("KNeighborsRegressor", {"n_neighbors": 2}), ("ridge", {})]
        assert [fewest_rows(make_model(name, parameters)) for name, parameters in given] == [5, 9, 2, 1]

    def test_bytes_that_a_model_takes(self) -> None:
        rows, columns = 10_000, 50
        named = ["knn", "rbf-svm", "kmeans", "GaussianProcessRegressor", "RandomForestClassifier", "GaussianNB"]
        found = {name: total(model_cost(make_model(name, {}), rows, columns)) for name in named}
        least = 64 * 2**20 + 6 * 8 * rows * columns
        assert found["knn"] == found["kmeans"] == found["GaussianNB"] == least
        assert found["rbf-svm"] == least + 200 * 2**20  # the cache; a few rows do not fill it
        assert total(model_cost(make_model("linear-svm", {}), 100, 1)) < least
        assert total(model_cost(make_model("rbf-svm", {"cache_size": 10}), rows, columns)) == least + 10 * 2**20
        assert found["GaussianProcessRegressor"] > 8e9
        assert found["RandomForestClassifier"] == least + 100 * rows * 200


class TestRowsThatDoNotServe:
    def check(self, spec: ModelSpec, y: np.ndarray, train: np.ndarray, test: np.ndarray, message: str) -> None:
        with pytest.raises(InputError, match=message):
            evaluate_model(spec, "classification", X[: y.size], y, train, test, "zscore", 0)

    def test_one_class(self) -> None:
        spec = make_model("ridge", {}, "R")
        self.check(spec, np.zeros(10, np.int64), np.arange(6), np.arange(6, 10), "model R: all 6 rows of a training")

    def test_fewer_rows_than_neighbors(self) -> None:
        y = np.arange(10) % 2
        self.check(make_model("knn", {}), y, np.arange(4), np.arange(4, 10), "n_neighbors is 5, .* part has 4 rows")
        five = evaluate_model(
            make_model("knn", {}), "classification", X[:10], y, np.arange(5), np.arange(5, 10), None, 0
        )
        assert 0 <= five["balanced_accuracy"] <= 1

    def test_empty_parts(self) -> None:
        y, none = np.arange(10) % 2, np.empty(0, np.int64)
        self.check(make_model("ridge", {}), y, none, np.arange(10), "0 training and 10 test rows")
        self.check(make_model("ridge", {}), y, np.arange(10), none, "10 training and 0 test rows")
        with pytest.raises(InputError, match="there is no row"):
            evaluate_whole(make_model("kmeans", {}), "classification", X[:0], y[:0], "zscore", 0)

    def test_fewer_rows_than_clusters(self) -> None:
        with pytest.raises(InputError, match="model kmeans: n_clusters is 7, and there are 3 rows"):
            evaluate_whole(make_model("kmeans", {"n_clusters": 7}), "classification", X[:3], CLASSES[:3], None, 0)

    def test_a_metric_of_two_classes_among_three(self) -> None:
        with pytest.raises(InputError, match=r"^model ridge, metric f1: .*multiclass"):
            value_of(make_model("ridge", {}, metrics=["f1"]))

    def test_what_scikit_learn_refuses(self) -> None:
        with pytest.raises(InputError, match=r"^model NB: Negative values.*\.$"):
            value_of(make_model("MultinomialNB", {}, "NB"))


def test_short_names_need_no_scikit_learn() -> None:
    code = (
        "import sys\nfrom daskfs.evaluation.models import make_model\n"
        "for name in ('knn', 'kmeans', 'ridge', 'cut', '1nn-loo'):\n    make_model(name, {})\n"
        "sys.exit('sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
