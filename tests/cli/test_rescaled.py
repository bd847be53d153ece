"""RLSR, SSUFS and DSSFS from the command line: the estimators' scores, labels of every kind, and what is refused."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from daskfs import DSSFS, RLSR, SSUFS

from .command import Outcome, daskfs, refused, rows_of, write_job

pytestmark = pytest.mark.cluster

USAGE, INPUT = 2, 3
N_SAMPLES, N_FEATURES = 120, 6
SELECTORS: dict[str, RLSR] = {
    "RLSR": RLSR(gamma=5, max_iter=4),
    "spread out": SSUFS(gamma=5, max_iter=4, eta_relative=0.1),
    "DSSFS": DSSFS(gamma=5, max_iter=4, greedy_filter=True, correlation="exact"),
    "by products": RLSR(gamma=5, max_iter=2, solver="cg"),
}
METHODS: list[dict[str, Any]] = [
    {"name": "RLSR", "gamma": 5, "max_iter": 4},
    {"name": "SSUFS", "label": "spread out", "gamma": 5, "max_iter": 4, "eta_relative": 0.1},
    {"name": "DSSFS", "gamma": 5, "max_iter": 4, "greedy_filter": True, "correlation": "exact"},
    {"name": "RLSR", "label": "by products", "gamma": 5, "max_iter": 2, "solver": "cg"},
]


def matrix() -> np.ndarray:
    X = np.random.default_rng(4).normal(size=(N_SAMPLES, N_FEATURES))
    X[:, 0] += classes()
    X[:, 2] -= 2 * (classes() == 1)
    X[:, 5] = -1.5
    return X


def classes() -> np.ndarray:
    return np.arange(N_SAMPLES) % 3


def some() -> np.ndarray:
    return np.where(np.arange(N_SAMPLES) % 4 == 0, classes(), -1)


def write(folder: Path, y: np.ndarray, **blocks: Any) -> Path:
    np.save(folder / "X.npy", matrix())
    np.save(folder / "y.npy", y)
    job = {
        "data": {"source": str(folder / "X.npy"), "labels": str(folder / "y.npy"), "task": "classification"},
        "methods": METHODS,
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(folder / "run")},
    }
    return write_job(folder, {**job, **blocks})


def run(folder: Path, y: np.ndarray, *arguments: object, **blocks: Any) -> Outcome:
    return daskfs("run", write(folder, y, **blocks), "-q", "--json", *arguments)


def assert_fitted(folder: Path, label: str, y: np.ndarray, weights: np.ndarray | None = None) -> None:
    """Check the table of a method against the estimator's, to the bit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        selector = SELECTORS[label].fit(matrix(), y, sample_weight=weights)
    rows = [row for row in rows_of(folder / "run" / "ranking.csv") if row["method"] == label]
    assert len(rows) == N_FEATURES
    for row in rows:
        feature = int(row["feature"])
        assert float(row["score"] or "nan") == selector.scores_[feature] or feature == 5
        assert int(row["rank"]) == selector.ranking_[feature]
    assert rows[-1]["note"] == "constant feature"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run; nothing may change it."""
    folder = tmp_path_factory.mktemp("rescaled")
    outcome = run(folder, some())
    assert outcome.code == 0, outcome.err
    return folder


@pytest.mark.parametrize("label", SELECTORS)
def test_scores_of_the_estimators(done: Path, label: str) -> None:
    assert_fitted(done, label, some())


def test_report_shows_the_parameters_that_have_a_say(done: Path) -> None:
    page = (done / "run/report.html").read_text(encoding="utf-8")
    parts = page.split('<article id="method-')[1:]
    shown = ['<span class="key">n_correlation_rows' in part for part in parts]
    assert shown == [False, True, True, False]
    assert ['<span class="key">n_components' in part for part in parts] == [False, True, False, False]
    assert ['<span class="key">eta_relative' in part for part in parts] == [False, True, False, False]


def test_eta_given_leaves_eta_relative_no_say(tmp_path: Path) -> None:
    methods = [{"name": "SSUFS", "gamma": 5, "max_iter": 2, "eta": 0.5}]
    assert run(tmp_path, some(), methods=methods).json["solutions"]["SSUFS"]["eta"] == 0.5
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert '<span class="key">eta</span> 0.5' in page
    assert '<span class="key">eta_relative' not in page


def test_methods_set_on_the_command_line(tmp_path: Path) -> None:
    wanted = "methods=[{name: RLSR, gamma: 5, max_iter: 4}]"
    outcome = run(tmp_path, some(), "--set", wanted)
    assert outcome.code == 0
    assert list(outcome.json["solutions"]) == ["RLSR"]
    assert outcome.err.startswith(
        "daskfs: warning: method RLSR: the objective and the weights had not settled when it "
    )
    assert "stopped after 4 rounds; raise max_iter (4), tol or gamma." in outcome.err
    assert_fitted(tmp_path, "RLSR", some())


def test_settled_methods_warn_of_nothing(tmp_path: Path) -> None:
    outcome = run(tmp_path, classes(), methods=[{"name": "RLSR", "gamma": 50}])
    assert (outcome.code, outcome.err, outcome.json["warnings"]) == (0, "", [])
    assert outcome.json["solutions"]["RLSR"]["converged"]
    assert 0 < outcome.json["solutions"]["RLSR"]["kkt_active"] <= 1e-7


def test_weights_of_rows(tmp_path: Path) -> None:
    weights = np.arange(N_SAMPLES) % 3 / 2
    np.save(tmp_path / "w.npy", weights)
    data = {name: str(tmp_path / f"{file}.npy") for name, file in (("source", "X"), ("labels", "y"), ("weights", "w"))}
    assert run(tmp_path, some(), data={**data, "task": "classification"}).code == 0
    for label in SELECTORS:
        assert_fitted(tmp_path, label, some(), weights)


def test_empty_cells_are_no_labels(tmp_path: Path) -> None:
    with (tmp_path / "X.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"f{j}" for j in range(N_FEATURES)), "kind"])
        for row, code in zip(matrix(), some(), strict=True):
            writer.writerow([*map(repr, map(float, row)), "" if code < 0 else f"class {code}"])
    data = {"source": str(tmp_path / "X.csv"), "labels": "kind"}
    outcome = run(tmp_path, some(), data=data)
    assert outcome.code == 0, outcome.err
    assert outcome.json["data"]["n_labeled"] == np.count_nonzero(some() >= 0)
    for label in SELECTORS:
        assert_fitted(tmp_path, label, some())


def test_redundancy_filter_and_evaluation_after_them(tmp_path: Path) -> None:
    select = {"n_features": 2, "redundancy": {"threshold": 0.9, "n_candidates": 5}}
    evaluate = {"n_selected": [1, 2], "n_splits": 3, "n_repeats": 1, "baselines": False}
    outcome = run(tmp_path, some(), select=select, evaluate=evaluate)
    assert outcome.code == 0, outcome.err
    assert {row["method"] for row in rows_of(tmp_path / "run/selected_features.csv")} == set(SELECTORS)
    assert {row["method"] for row in rows_of(tmp_path / "run/evaluation.csv")} == set(SELECTORS)


def test_target_that_is_no_class(tmp_path: Path) -> None:
    y = np.where(some() < 0, np.nan, some() + 0.5)
    data = {"source": str(tmp_path / "X.npy"), "labels": str(tmp_path / "y.npy"), "task": "regression"}
    outcome = daskfs("run", write(tmp_path, y, data=data, methods=["RLSR"]), "-q")
    refused(outcome, INPUT, "method RLSR is for classification, and data.task is regression")
    assert not list((tmp_path / "run").glob("scores/*"))


@pytest.mark.parametrize(
    ("y", "words"),
    [(np.full(N_SAMPLES, -1), "no row has a class"), (np.where(some() == 0, 0, -1), "-1 and one class")],
)
def test_labels_that_do_not_serve(tmp_path: Path, y: np.ndarray, words: str) -> None:
    refused(daskfs("run", write(tmp_path, y, methods=["SSUFS"]), "-q"), INPUT, words)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"gamma": 0}, ("gamma", "0")),
        ({"max_iter": 0}, ("max_iter",)),
        ({"solver": "lu"}, ("solver", "'cg'")),
        ({"eta": 1.0}, ("eta",)),
        ({"correlation": "pearson"}, ("correlation", "'exact'")),
        ({"gama": 2}, ("Did you mean 'gamma'?",)),
    ],
)
def test_parameters_that_are_wrong(tmp_path: Path, change: dict[str, Any], parts: tuple[str, ...]) -> None:
    refused(daskfs("run", write(tmp_path, some(), methods=[{"name": "RLSR", **change}]), "-q"), USAGE, *parts)


def test_plan_as_json_names_the_loops(tmp_path: Path) -> None:
    planned = json.loads(daskfs("plan", write(tmp_path, some()), "--json").out)
    loops = {loop["name"]: loop for loop in planned["loops"]}
    assert list(loops) == ["rescaled-zscore-cholesky", "rescaled-zscore-cholesky-dragged", "rescaled-zscore-cg"]
    assert loops["rescaled-zscore-cholesky-dragged"]["max_rounds"] == 4
    assert loops["rescaled-zscore-cg"]["max_rounds"] is None
    rows = {row["stage"]: row for row in planned["stages"]}
    assert rows["rescaled-rows-zscore-cg"]["rounds"] == 0
    assert "rounds" not in rows["score"]
    text = daskfs("plan", write(tmp_path, some(), methods=["VarianceScore"])).out
    assert "loop" not in text
