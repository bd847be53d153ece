"""What an evaluation is where a job says nothing of it: made in training folds, beside baselines, and never refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import make_scorer, root_mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import daskfs
from daskfs import KNNGraph, LaplacianScore, evaluate_selectors, knn_graph, make_job, run_job
from daskfs.criteria.registry import criteria
from daskfs.errors import JobError, MemoryPlanError
from daskfs.evaluation.design import Design, EvaluationParameters, Selection
from daskfs.job.job import Job
from daskfs.runs import extent
from daskfs.runs.status import plan_job
from daskfs.store import layout
from daskfs.store.store import Store
from tests.cli.command import but_trust
from tests.cli.command import daskfs as command

pytestmark = pytest.mark.cluster

BASELINES = {"RandomOrder", "AllFeatures", "MajorityClass"}


def noise(n_samples: int, n_features: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return values and classes that have nothing to do with each other."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_samples, n_features)), rng.integers(0, 2, n_samples)


def means_on_noise(names: list[str], n_features: int, seeds: range, **wanted: Any) -> dict[tuple[str, int], float]:
    """Return the mean over some seeds of every method's value at every number of features."""
    values: dict[tuple[str, int], list[float]] = {}
    for seed in seeds:
        selectors = [getattr(daskfs, name)() for name in names]
        for row in evaluate_selectors(selectors, *noise(100, n_features, seed), **wanted).summary.to_pylist():
            if row["n_selected"] is not None:
                values.setdefault((row["method"], row["n_selected"]), []).append(row["mean"])
    return {place: float(np.mean(found)) for place, found in values.items()}


def test_no_method_beats_a_coin_that_was_flipped() -> None:
    names = ["FisherScore", "LSDF", "RLSR"]
    found = means_on_noise(names, 600, range(3), n_selected=[10, 50])
    assert {method for method, _ in found} == {*names, *BASELINES}
    assert max(abs(mean - 0.5) for mean in found.values()) < 0.1
    seen = means_on_noise(["FisherScore"], 600, range(2), n_selected=[50], setting="transductive", baselines=False)
    assert seen["FisherScore", 50] > 0.7  # which is what the default is there to keep out


@pytest.mark.long
@pytest.mark.release
def test_no_criterion_beats_a_coin_that_was_flipped() -> None:
    """SSUFS correlates all pairs of features, so it has fewer of them."""
    named = {name for name, one in criteria().items() if "classification" in one.tasks} - {"SSUFS", "RandomOrder"}
    found = means_on_noise(sorted(named), 500, range(10)) | means_on_noise(["SSUFS"], 150, range(10))
    assert {method for method, _ in found} == named | BASELINES | {"SSUFS"}
    assert len(found) == 5 * (len(named) + 2) + 3  # of SSUFS's baselines all features are others
    assert max(abs(mean - 0.5) for mean in found.values()) <= 0.05


# ----------------------------------------------------------------------------------------------------------- baselines
def saved(folder: Path, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    np.savez(folder / "data.npz", X=X, y=y)
    return {"source": str(folder / "data.npz"), "labels": "y"}


def data_of(task: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    classes = (np.arange(90) % 10 > 6).astype(int)
    X = rng.normal(size=(90, 6))
    X[:, :2] += classes[:, None]
    return X, classes if task == "classification" else X[:, 0] + rng.normal(size=90)


def job_of(folder: Path, data: dict[str, Any], methods: list[Any], **blocks: Any) -> Job:
    raw = {"data": data, "methods": methods, "cluster": {"workers": 0}, "output": {"path": str(folder / "run")}}
    return make_job({**raw, **blocks})


def summary(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / "run" / "evaluation_summary.parquet").to_pylist()
    return rows


@pytest.mark.parametrize("setting", [{}, {"setting": "transductive"}], ids=["by default", "transductive"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_baselines_are_what_scikit_learn_says(tmp_path: Path, task: str, setting: dict[str, str]) -> None:
    X, y = data_of(task)
    method = "FisherScore" if task == "classification" else "PearsonScore"
    run_job(job_of(tmp_path, saved(tmp_path, X, y), [method], evaluate={"n_selected": [1, 3], **setting}))
    folds: Any = StratifiedKFold(5, shuffle=True, random_state=0)
    peer, constant, metric = KNeighborsClassifier(5), DummyClassifier(strategy="most_frequent"), "balanced_accuracy"
    scorer: Any = metric
    if task == "regression":
        folds, metric = KFold(5, shuffle=True, random_state=0), "rmse"
        peer, constant, scorer = KNeighborsRegressor(5), DummyRegressor(strategy="median"), None
        scorer = make_scorer(root_mean_squared_error)
    expected = {
        ("AllFeatures", 6): cross_val_score(make_pipeline(StandardScaler(), peer), X, y, cv=folds, scoring=scorer),
        ("MajorityClass" if task == "classification" else "MedianTarget", 0): cross_val_score(
            constant, X, y, cv=folds, scoring=scorer
        ),
    }
    found = {(row["method"], row["n_selected"]): row for row in summary(tmp_path)}
    for place, values in expected.items():
        assert found[place]["metric"] == metric
        assert found[place]["mean"] == pytest.approx(values.mean(), rel=1e-9)
    assert {(method, 1), (method, 3), ("RandomOrder", 1), ("RandomOrder", 3), *expected} <= set(found)


def test_baselines_are_left_out_or_are_those_that_are_listed(tmp_path: Path) -> None:
    data = saved(tmp_path, *data_of("classification"))
    run_job(job_of(tmp_path, data, ["FisherScore"], evaluate={"baselines": False}))
    assert {row["method"] for row in summary(tmp_path)} == {"FisherScore"}
    listed = [{"name": "RandomOrder", "label": "by chance", "random_state": 3}]
    run_job(job_of(tmp_path, data, listed), overwrite=True)
    assert {row["method"] for row in summary(tmp_path)} == {"by chance", "AllFeatures", "MajorityClass"}
    with pytest.raises(JobError, match="label 'AllFeatures' names a baseline"):
        run_job(job_of(tmp_path, data, [{"name": "FisherScore", "label": "AllFeatures"}]), overwrite=True)


def test_rare_classes_count_as_much_as_others() -> None:
    """To say that all are of the class of 19 in 20 rows is right in 95 of 100, and no better than a coin."""
    X, _ = noise(200, 4, 0)
    y = (np.arange(200) % 20 == 0).astype(int)
    found = evaluate_selectors([daskfs.VarianceScore()], X, y, n_selected=2).summary.to_pylist()
    (majority,) = [row for row in found if row["method"] == "MajorityClass" and row["n_selected"] == 0]
    assert (majority["metric"], majority["mean"]) == ("balanced_accuracy", 0.5)


# ------------------------------------------------------------------------------------------------ labels that were seen
@pytest.mark.parametrize(
    ("methods", "evaluate", "saw"),
    [
        (["LaplacianScore", "FisherScore"], {"setting": "transductive"}, "FisherScore"),
        (["FisherScore", "LSDF"], {"setting": "both"}, "FisherScore, LSDF"),
        (["LaplacianScore"], {"setting": "transductive"}, None),
        (["FisherScore"], {}, None),
        (["FisherScore"], {"setting": "transductive", "labels": [9], "train_on": "labeled"}, None),
    ],
)
def test_methods_that_saw_tested_labels_are_named(
    tmp_path: Path, methods: list[str], evaluate: dict[str, Any], saw: str | None
) -> None:
    """On the terminal, in run.json and in the report; and `plan` says so before."""
    job = {
        "data": saved(tmp_path, *data_of("classification")),
        "methods": methods,
        "evaluate": {"n_selected": [2], **evaluate},
        "cluster": {"workers": 0},
        "output": {"path": str(tmp_path / "run")},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    planned, ran = command("plan", tmp_path / "job.yaml"), command("run", tmp_path / "job.yaml", "-q")
    words = f"evaluation: {saw} saw the labels of the rows that models are tested on"
    page = (tmp_path / "run" / "report.html").read_text()
    warnings = json.loads((tmp_path / "run" / "run.json").read_text())["warnings"]
    for text in (planned.out, ran.err, page, " ".join(one["text"] for one in warnings)):
        assert (words in text) == (saw is not None)
        assert ("saw the labels" in text) == (saw is not None)
    if saw is None and evaluate:
        assert "so the numbers compare the methods with each other" in page
    else:
        assert "compare the methods" not in page


# ------------------------------------------------------------------------------------------- an evaluation that fits
def test_evaluation_by_default_never_makes_a_job_fail(tmp_path: Path) -> None:
    """What does not fit is left out, and said; what is asked for by name is refused."""
    data = {"source": "synthetic:mixture?n_samples=10000&n_features=30000"}
    cluster = {"workers": 2, "memory_limit": "2GiB"}
    methods = ["LaplacianScore", "FisherScore"]
    for evaluate in ({}, {"n_selected": [7]}, {"max_samples": 9000}, {"setting": "transductive"}):
        planned = plan_job(job_of(tmp_path, data, methods, cluster=cluster, evaluate=evaluate))
        (*_, note) = planned["notes"]
        assert "leaves out the baseline of all features" in note
        assert ("labeled rows" in note) == ("setting" not in evaluate)
        assert "evaluate" in [stage["stage"] for stage in planned["stages"]]
    for asked in ({"setting": "inductive"}, {"setting": "transductive", "baselines": True}):
        with pytest.raises(MemoryPlanError, match=r"stage (select|evaluate) needs"):
            plan_job(job_of(tmp_path, data, methods, cluster=cluster, evaluate=asked))
    wide = {"source": "synthetic:mixture?n_samples=200&n_features=1000000"}
    planned = plan_job(job_of(tmp_path, wide, ["VarianceScore"], cluster={"workers": 1, "memory_limit": "2420MiB"}))
    assert planned["notes"] == [
        "evaluation: left out, as it does not fit the memory of a worker; name evaluate.setting to see what it needs"
    ]
    assert "evaluate" not in [stage["stage"] for stage in planned["stages"]]


def test_evaluation_by_default_takes_a_share_of_the_time_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows fewer, and of the features that joint methods rank anew those that lead by themselves."""
    X, y = data_of("classification")
    data = saved(tmp_path, np.tile(X, (1, 3)) + np.arange(18), y)
    monkeypatch.setattr(extent, "ALWAYS_SECONDS", 0.0)
    monkeypatch.setattr(extent, "EVALUATION_SHARE", 1.0)
    for name, value in {"ENOUGH_ROWS": 40, "FEWEST_LABELED": 20, "ENOUGH_FEATURES": 4}.items():
        monkeypatch.setattr(extent, name, value)
    methods = ["FisherScore", "RLSR"]
    result = run_job(job_of(tmp_path, data, methods, evaluate={"n_selected": [2]}))
    (note,) = but_trust(result["warnings"])
    assert note.startswith("evaluation: so that it fits a worker and takes at most about 100% of the time of the run")
    assert "uses 22 of 90 labeled rows, and lets RLSR rank 4 of 18 features in each fold" in note
    store, design = orders_of(tmp_path)
    leading: dict[Any, set[int]] = {}
    for selection, order in design.items():
        leading.setdefault(selection.fold, set())
        if selection.method == "FisherScore":
            leading[selection.fold] = set(order[:4].tolist())
    joint = {selection.fold: set(order.tolist()) for selection, order in design.items() if selection.method == "RLSR"}
    assert joint == leading
    assert store.open(layout.EVALUATION_ROWS).shape == (22,)
    # who asks for so many rows gets them
    full = run_job(job_of(tmp_path, data, methods, evaluate={"n_selected": [2], "max_samples": 90}), overwrite=True)
    assert but_trust(full["warnings"]) == []


def orders_of(folder: Path) -> tuple[Store, dict[Selection, np.ndarray]]:
    """Return the store of a run, and the orders of the selections of its evaluation."""
    store = Store(folder / "run")
    plan = json.loads((folder / "run" / "plan.json").read_text())
    (raw,) = [stage["parameters"] for stage in plan["stages"] if stage["name"] == "evaluate"]
    design = Design(EvaluationParameters.from_json(raw))
    found = {}
    for number in range(design.n_selections):
        selection = design.selection(number)
        found[selection] = store.read_arrays(layout.EVALUATION_ORDER.format(number))[0]["order"]
    return store, found


# ---------------------------------------------------------------------------------------------- graphs from outside
@pytest.mark.parametrize("form", ["lists", "matrix"])
def test_folds_take_the_induced_graph(tmp_path: Path, form: str) -> None:
    """Of rows that are left out for being too many, or tested, no edge is left."""
    X, y = data_of("classification")
    lists = knn_graph(X, 7)
    weights = sp.csr_matrix(lists.to_csr().maximum(lists.to_csr().T))
    weights.data = np.exp(-weights.data)
    weights = sp.csr_matrix(weights + sp.diags(np.linspace(0, 1, 90)))
    path = tmp_path / "graph.npz"
    if form == "lists":
        path = tmp_path / "graph"
        lists.save(path)
    else:
        sp.save_npz(path, weights)
    method = {"name": "LaplacianScore", **({"n_neighbors": 6} if form == "lists" else {})}
    run_job(
        job_of(
            tmp_path,
            saved(tmp_path, X, y),
            [method],
            graph={"precomputed": str(path)},
            evaluate={"n_selected": [2], "max_samples": 80, "baselines": False},
        )
    )
    store, orders = orders_of(tmp_path)
    used = store.open(layout.EVALUATION_ROWS)[...]
    subset_rows = store.read_arrays(layout.EVALUATION_CLASS_SUBSET.format(0))[0]
    assert (used.size, len(orders)) == (80, 5)
    for selection, order in orders.items():
        rows = used[subset_rows[f"train-0-{selection.fold}"]]
        if form == "matrix":
            expected = LaplacianScore(graph=weights[rows][:, rows]).fit(X[rows])
        else:
            expected = LaplacianScore(graph=induced(lists, rows), n_neighbors=6).fit(X[rows])
        np.testing.assert_array_equal(order, np.argsort(expected.ranking_))


def induced(lists: KNNGraph, rows: np.ndarray) -> KNNGraph:
    """Return the first six entries of the lists of some rows, without all other rows."""
    place = {int(row): number for number, row in enumerate(rows)}
    indices, distances = np.full((rows.size, 7), -1), np.full((rows.size, 7), np.inf)
    for number, row in enumerate(rows):
        kept = [
            (place[int(j)], d)
            for j, d in zip(lists.indices[row][:6], lists.distances[row], strict=False)
            if int(j) in place
        ]
        for column, (neighbor, distance) in enumerate(kept):
            indices[number, column], distances[number, column] = neighbor, distance
    return KNNGraph(indices, distances, lists.metric, lists.graph_scaling)
