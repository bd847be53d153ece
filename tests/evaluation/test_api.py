"""Selectors compared from Python: what jobs find on the same data, to the bit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from matplotlib.figure import Figure
from sklearn.feature_selection import (
    RFE,
    SelectFromModel,
    SelectKBest,
    SequentialFeatureSelector,
    VarianceThreshold,
    chi2,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier

import daskfs
from daskfs import (
    FisherScore,
    LaplacianScore,
    PearsonScore,
    RedundancyFilter,
    SSelect,
    VarianceScore,
    evaluate_selectors,
    knn_graph,
    make_job,
    run_job,
)
from daskfs.errors import InputError, JobError
from daskfs.execution.pool import Pool
from daskfs.job.evaluation import EvaluateBlock
from daskfs.store.layout import EVALUATION_TABLES
from tests.execution.runs import local_client
from tests.optional import pandas as pd

pytestmark = pytest.mark.cluster

N_SAMPLES, N_FEATURES = 60, 12
ATTRIBUTES = ("values", "summary", "comparisons", "gap", "stability", "selection_frequency")


def data(seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return X, shape (60, 12), float64, and three classes, six rows of which have no label."""
    generator = np.random.default_rng(seed)
    y = np.arange(N_SAMPLES) % 3
    X = generator.normal(size=(N_SAMPLES, N_FEATURES))
    X[:, :4] += y[:, None] * np.array([2.0, 1.0, 0.5, 0.25])
    X[generator.random(X.shape) < 0.3] = 0
    y = np.where(np.arange(N_SAMPLES) % 10 == 7, -1, y)
    return X, y


def tables_of_job(
    folder: Path, X: Any, y: np.ndarray, methods: list[Any], evaluate: Mapping[str, Any], **columns: Any
) -> dict[str, Any]:
    """Return the tables of a job's evaluation, None for one that it did not write."""
    found: dict[str, Any] = {"labels": "y"}
    if sp.issparse(X):
        sp.save_npz(folder / "data.npz", X)
        np.save(folder / "y.npy", y)
        found["labels"] = str(folder / "y.npy")
    else:
        np.savez(folder / "data.npz", X=X, y=y, **columns)
        found |= {name: name for name in columns}
    run_job(
        make_job(
            {
                "data": {"source": str(folder / "data.npz"), **found},
                "methods": methods,
                "evaluate": dict(evaluate),
                "cluster": {"workers": 0},
                "output": {"path": str(folder / "run")},
            }
        )
    )
    paths = {name: folder / "run" / f"{name}.parquet" for name in EVALUATION_TABLES}
    return {name: pq.read_table(path) if path.exists() else None for name, path in paths.items()}


def assert_same(found: Any, expected: Mapping[str, Any]) -> None:
    """Check that every table is the same, in values and types."""
    for attribute, name in zip(ATTRIBUTES, EVALUATION_TABLES, strict=True):
        table = getattr(found, attribute)
        if expected[name] is None:
            assert table.num_rows == 0, name
        else:
            assert table.equals(expected[name]), name


SELECTORS = {"LaplacianScore": LaplacianScore(n_neighbors=4), "FisherScore": FisherScore(), "SSelect": SSelect()}
METHODS = [{"name": "LaplacianScore", "n_neighbors": 4}, "FisherScore", "SSelect"]
SHORT: dict[str, Any] = {"n_selected": [2, 5], "n_splits": 3}
BASELINES = ("RandomOrder", "AllFeatures", "MajorityClass")
DESIGNS: dict[str, dict[str, Any]] = {
    "the run's own rankings": {"setting": "transductive", "n_repeats": 2},
    "draws of labels in both settings": {"setting": "both", "labels": [2, 0.5], "n_draws": 2, "n_splits": 2},
    "classes, and only drawn labels": {
        "n_classes": [2, 3],
        "n_subsets": 2,
        "labels": [4],
        "n_draws": 2,
        "n_splits": 2,
        "train_on": "labeled",
    },
    "several models, of some of the rows": {
        "models": ["knn", {"name": "kmeans", "n_restarts": 2}, {"name": "ridge", "label": "R", "alpha": 0.5}],
        "setting": "inductive",
        "max_samples": 40,
        "informative": ["x0", "x1"],
    },
}


@pytest.mark.parametrize(
    ("kind", "design"),
    [
        *(("dense", design) for design in DESIGNS),
        pytest.param("sparse", "draws of labels in both settings", marks=pytest.mark.long),
    ],
)
def test_values_are_those_of_a_job(tmp_path: Path, kind: str, design: str) -> None:
    X, y = data()
    if kind == "sparse":
        X = sp.csr_matrix(X)
    wanted = {**SHORT, **DESIGNS[design]}
    expected = tables_of_job(tmp_path, X, y, METHODS, wanted)
    found = evaluate_selectors(SELECTORS, X, y, **wanted)
    assert found.values.num_rows > 20
    assert_same(found, expected)


def test_groups_and_weights_are_those_of_a_job(tmp_path: Path) -> None:
    X, y = data()
    groups, weights = np.arange(N_SAMPLES) // 4 % 9, np.arange(N_SAMPLES) % 4 + 0.5
    wanted = {**SHORT, "setting": "inductive"}
    expected = tables_of_job(tmp_path, X, y, METHODS, wanted, groups=groups, weights=weights)
    found = evaluate_selectors(SELECTORS, X, y, sample_weight=weights, groups=groups.astype(str), **wanted)
    assert_same(found, expected)
    without = evaluate_selectors(SELECTORS, X, y, **wanted)
    assert not found.values.equals(without.values)


def test_times_and_targets_are_those_of_a_job(tmp_path: Path) -> None:
    X, y = data()
    target, times = X[:, 0] * 2 + y, np.arange(N_SAMPLES) // 2 + 0.5
    target[5] = np.nan
    wanted = {**SHORT, "setting": "both"}
    expected = tables_of_job(tmp_path, X, target, ["PearsonScore", "VarianceScore"], wanted, times=times)
    found = evaluate_selectors([PearsonScore(), VarianceScore()], X, target, times=times, **wanted)
    assert_same(found, expected)
    assert set(found.values.column("metric").to_pylist()) == {"rmse"}


def test_x_on_a_cluster(tmp_path: Path) -> None:
    X, y = data()
    wanted = {**SHORT, "setting": "inductive", "n_splits": 2}
    selectors = [LaplacianScore(), FisherScore()]
    expected = evaluate_selectors(selectors, X, y, **wanted)
    stored = tmp_path / "X.npy"
    np.save(stored, X)
    with local_client(1) as client:
        found = evaluate_selectors(selectors, str(stored), y, **wanted)
        assert Pool(client).identities()
    for attribute in ATTRIBUTES:
        assert getattr(found, attribute).equals(getattr(expected, attribute)), attribute
    lazy = evaluate_selectors(selectors, da.from_array(X, chunks=(20, 12)), y, **wanted)
    assert lazy.values.equals(expected.values)


def test_names_of_a_frame_are_told() -> None:
    X, y = data()
    frame = pd.DataFrame(X, columns=[f"gene {i}" for i in range(N_FEATURES)])
    found = evaluate_selectors({"F": FisherScore()}, frame, y, **SHORT, labels=[3], n_draws=2, informative="gene 0")
    assert set(found.selection_frequency.column("name").to_pylist()) <= set(frame.columns)
    assert "hit_rate" in found.summary.column("metric").to_pylist()
    by_number = evaluate_selectors({"F": FisherScore()}, X, y, **SHORT, labels=3, n_draws=2, informative=[0])
    assert by_number.values.equals(found.values)
    assert set(found.values.column("method").to_pylist()) == {"F", *BASELINES}


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_it_shows_the_verdict_and_the_means(task: str) -> None:
    X, y = data()
    selectors = {"P": PearsonScore(), "V": VarianceScore()} if task == "regression" else {"F": FisherScore()}
    labels = X[:, 0] if task == "regression" else y
    found = evaluate_selectors(selectors, X, labels, **{**SHORT, "labels": [5, 9]})
    verdict, table = found.verdict, found.means()
    assert verdict is not None
    assert {*table.index} == {*found.summary.column("method").to_pylist()}
    rows = [row for row in found.summary.to_pylist() if row["metric"] == verdict["metric"]]
    for row in rows:
        if row["labels"] == verdict["labels"] and row["n_selected"] is not None:
            assert table.loc[row["method"], row["n_selected"]] == row["mean"]
    best = (table if verdict["higher_is_better"] else -table).max(axis=1)
    assert list(best) == sorted(best, reverse=True)
    sentence = f"{verdict['method']} with {verdict['n_selected']} of {N_FEATURES} features"
    assert sentence in repr(found)
    assert f"<p>{sentence}" in found._repr_html_()
    assert "nan" not in repr(found).lower()


def test_rankings_that_fail_are_told_and_the_others_stay() -> None:
    X, _ = data()
    some = {**SHORT, "labels": [1, 5], "n_draws": 2}
    found = evaluate_selectors({"P": PearsonScore(), "V": VarianceScore()}, X, X[:, 0], **some)
    assert set(found.values.column("labels").to_pylist()) == {1.0, 5.0}
    rows = found.values.to_pylist()
    assert {row["method"] for row in rows if row["labels"] == 1} == {"V", "RandomOrder", "AllFeatures", "MedianTarget"}
    assert {row["method"] for row in rows if row["labels"] == 5} >= {"P", "V"}
    reason = "method P needs labels that differ, and all 1 labeled rows have one value."
    (warning,) = found.warnings
    assert str(warning) == f"evaluation: P with labels 1: 6 of 6 rankings failed: {reason.rstrip('.')}"
    with pytest.raises(InputError, match=r"could rank nothing\. P with labels 1: 6 of 6 rankings failed"):
        evaluate_selectors({"P": PearsonScore()}, X, X[:, 0], **{**some, "labels": 1})


def test_lists_that_a_training_fold_is_too_small_for_fail_their_method_alone() -> None:
    """The others share those that there are."""
    X, y = data()
    selectors = {"near": LaplacianScore(n_neighbors=4), "far": LaplacianScore(n_neighbors=50)}
    wanted: dict[str, Any] = {**SHORT, "setting": "inductive", "n_splits": 3}  # 36 labeled rows and six others
    found = evaluate_selectors(selectors, X, y, **wanted)
    assert set(found.values.column("method").to_pylist()) == {"near", *BASELINES}
    (warning,) = found.warnings
    assert str(warning).startswith(
        "evaluation: far: 3 of 3 rankings failed: n_neighbors is 50, and X has n_samples=42 rows"
    )
    alone = evaluate_selectors({"near": selectors["near"]}, X, y, **wanted)
    assert found.values.equals(alone.values)
    unlabeled = evaluate_selectors(selectors["near"], X, y, **wanted)  # its class is its label
    assert set(unlabeled.values.column("method").to_pylist()) == {"LaplacianScore", *BASELINES}
    assert unlabeled.values.drop(["method"]).equals(alone.values.drop(["method"]))


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"n_selected": 0}, JobError, "n_selected"),
        ({"models": "knm"}, JobError, "Did you mean 'knn'"),
        ({"setting": "inductiv"}, JobError, "setting"),
        ({"labels": [2.5]}, JobError, "labels"),
        ({"groups": [0, 1]}, InputError, "groups"),
        ({"informative": 99}, InputError, "informative has 99"),
        ({"informative": "x99"}, JobError, "informative"),
        ({"n_splits": 61}, InputError, "n_splits"),
        ({"sample_weight": np.full(N_SAMPLES, -1.0)}, InputError, "sample_weight"),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any], error: type[Exception], words: str) -> None:
    X, y = data()
    with pytest.raises(error, match=words):
        evaluate_selectors([FisherScore()], X, y, **{**SHORT, **wrong})


OUTSIDE = {
    "scores": lambda n: SelectKBest(k=n),
    "ranking": lambda n: RFE(LogisticRegression(), n_features_to_select=n),
    "coefficients": lambda n: SelectFromModel(LogisticRegression(), max_features=n, threshold=-np.inf),
    "importances": lambda n: SelectFromModel(DecisionTreeClassifier(random_state=0), max_features=n, threshold=-np.inf),
    "a getter": lambda n: SelectFromModel(
        LogisticRegression(), max_features=n, threshold=-np.inf, importance_getter=lambda fitted: fitted.coef_[:1]
    ),
    "variances": lambda n: VarianceThreshold(sorted(np.var(data()[0][data()[1] >= 0], axis=0))[-n] * (1 - 1e-9)),
    "selected": lambda n: SequentialFeatureSelector(LogisticRegression(), n_features_to_select=n, cv=2),
    "redundancy": lambda n: RedundancyFilter(VarianceScore(), n_features_to_select=n),
}


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("make", OUTSIDE.values(), ids=OUTSIDE.keys())
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_selectors_of_other_libraries_select_what_they_select(
    kind: Callable[[np.ndarray], Any], make: Callable[[int], Any], n: int
) -> None:
    X, y = data()
    is_known = y >= 0
    chosen = [int(i) for i in make(n).fit(kind(X)[is_known], y[is_known]).get_support(indices=True)]
    found = evaluate_selectors(
        make(n), kind(X), y, n_selected=n, setting="transductive", informative=chosen, baselines=False
    )
    (rate,) = (row["mean"] for row in found.summary.to_pylist() if row["metric"] == "hit_rate" and row["n_selected"])
    assert len(chosen) == n
    assert rate == 1


@pytest.mark.parametrize("setting", ["inductive", "transductive", "both"])
def test_a_selector_of_another_library_is_evaluated_as_one_of_the_same_order(setting: str) -> None:
    X, y = data()
    pair = {"Fisher": FisherScore(), "F": SelectKBest()}  # F grows with Fisher's score
    found = evaluate_selectors(pair, X, y, **{**SHORT, "setting": setting, "labels": 4, "consensus": True})
    of_each = [found.values.filter(pc.field("method") == name).drop(["method"]) for name in [*pair, "Consensus"]]
    assert of_each[0].num_rows > 0
    assert of_each[0].equals(of_each[1])
    assert of_each[0].equals(of_each[2])
    axes = Figure().subplots()
    assert found.plot(axes) is axes
    assert "<svg" in found._repr_html_()


def test_a_selector_that_refuses_its_rows_is_told() -> None:
    X, y = data()
    found = evaluate_selectors([SelectKBest(chi2), FisherScore()], X, y, **SHORT)
    assert [one for one in found.warnings if "rankings failed: SelectKBest failed: Input X must be" in str(one)]
    with pytest.raises(JobError, match="unknown method 'OutsideSelector'"):
        make_job({"data": {"source": "sklearn:iris"}, "methods": ["OutsideSelector"], "output": {"path": "a"}})


def test_wrong_selectors_and_data_are_named() -> None:
    X, y = data()
    for one in (Ridge(), [FisherScore(), Ridge()], {"ridge": Ridge()}):
        with pytest.raises(TypeError, match="Ridge is no feature selector"):
            evaluate_selectors(one, X, y)
    with pytest.raises(InputError, match="only selectors of daskfs take it: leave it out, or SelectKBest"):
        evaluate_selectors([FisherScore(), SelectKBest()], X, y, sample_weight=np.ones(N_SAMPLES))
    with pytest.raises(InputError, match="selectors is empty"):
        evaluate_selectors([], X, y)
    with pytest.raises(JobError, match="two selectors are called 'FisherScore'"):
        evaluate_selectors([FisherScore(), FisherScore()], X, y)
    with pytest.raises(InputError, match="LaplacianScore is given a graph"):
        evaluate_selectors([LaplacianScore(graph=knn_graph(X, 5))], X, y)
    with pytest.raises(InputError, match="y has 59 values, and X has 60 rows"):
        evaluate_selectors([FisherScore()], X, y[1:])
    with pytest.raises(InputError, match="for classification"):
        evaluate_selectors([FisherScore()], X, X[:, 0])
    assert "evaluate_selectors" in daskfs.__all__


def test_the_signature_has_every_key_of_the_block() -> None:
    parameters = inspect.signature(evaluate_selectors).parameters
    keys = EvaluateBlock.model_fields
    lacking = {*keys} - {*parameters}
    assert lacking == {"n_neighbors"}, lacking  # of the model knn, which takes it as a parameter
    defaults = {key: (parameters[key].default, keys[key].default) for key in keys.keys() - lacking - {"models"}}
    assert all(ours == of_block for ours, of_block in defaults.values()), defaults
