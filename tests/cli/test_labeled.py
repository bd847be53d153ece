"""Jobs with criteria on labels: the estimators' scores, what plan and report say of their graphs, resuming, and graphs
from outside.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import yaml

from daskfs import LSDF, FisherScore, SemiSupervisedLaplacianScore, SupervisedLaplacianScore, knn_graph

from .command import Outcome, basic_job, but_trust, daskfs, refused, rows_of, texts, told, write_job

pytestmark = pytest.mark.cluster

USAGE, INPUT = 2, 3
N_SAMPLES, N_FEATURES = 70, 5
SSLS = {"name": "SemiSupervisedLaplacianScore", "label": "SSLS", "n_neighbors": 12}
REGRESSION = ["SupervisedLaplacianScore", SSLS, {**SSLS, "label": "SSLS-x", "neighbors": "x"}]
CLASSES = ["SupervisedLaplacianScore", "LSDF"]


def matrix() -> np.ndarray:
    return np.random.default_rng(2).normal(size=(N_SAMPLES, N_FEATURES)) * [1, 2, 3, 4, 5]


def target() -> np.ndarray:
    return np.where(np.arange(N_SAMPLES) % 3 == 0, matrix()[:, 0].round(1), np.nan)


def classes() -> np.ndarray:
    return np.where(np.arange(N_SAMPLES) % 3 == 0, (matrix()[:, 1] > 0) + (matrix()[:, 1] > 2), -1)


def job(folder: Path, y: np.ndarray, methods: list[Any], name: str = "run", **blocks: Any) -> Path:
    plain = basic_job(folder, methods=methods, output={"path": str(folder / name)})
    np.save(folder / "X.npy", matrix())
    np.save(folder / "y.npy", y)
    return write_job(folder, {**plain, **blocks})


def run(folder: Path, y: np.ndarray, methods: list[Any], name: str = "run", **blocks: Any) -> Outcome:
    return daskfs("run", job(folder, y, methods, name, **blocks), "-q", "--json")


def scores(folder: Path, label: str, name: str = "run") -> np.ndarray:
    rows = [row for row in rows_of(folder / name / "ranking.csv") if row["method"] == label]
    found = {int(row["feature"]): float(row["score"] or "nan") for row in rows}
    return np.array([found[feature] for feature in range(N_FEATURES)])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run on the target; nothing may change it."""
    folder = tmp_path_factory.mktemp("done")
    outcome = run(folder, target(), REGRESSION)
    assert (outcome.code, outcome.err) == (0, "")
    (folder / "result.json").write_text(outcome.out)
    return folder


def test_scores_of_the_estimators_on_a_target(done: Path) -> None:
    X, y = matrix(), target()
    expected = {
        "SupervisedLaplacianScore": SupervisedLaplacianScore(),
        "SSLS": SemiSupervisedLaplacianScore(n_neighbors=12),
        "SSLS-x": SemiSupervisedLaplacianScore(n_neighbors=12, neighbors="x"),
    }
    for label, selector in expected.items():
        np.testing.assert_array_equal(scores(done, label), selector.fit(X, y).scores_)


def test_scores_of_the_estimators_on_classes(tmp_path: Path) -> None:
    assert run(tmp_path, classes(), CLASSES).code == 0
    X, y = matrix(), classes()
    np.testing.assert_array_equal(scores(tmp_path, "LSDF"), LSDF().fit(X, y).scores_)
    expected = SupervisedLaplacianScore(task="classification").fit(X, y).scores_
    np.testing.assert_array_equal(scores(tmp_path, "SupervisedLaplacianScore"), expected)


def test_no_row_unlabeled(tmp_path: Path) -> None:
    y = np.maximum(classes(), 0)
    outcome = run(tmp_path, y, ["LSDF"])
    assert (outcome.code, outcome.err) == (0, "")
    np.testing.assert_allclose(scores(tmp_path, "LSDF"), LSDF().fit(matrix(), y).scores_, rtol=1e-14)
    assert but_trust(outcome.json["warnings"]) == []


# -------------------------------------------------------------------- plan, status, report
def test_plan_names_the_lists(done: Path) -> None:
    shown = daskfs("plan", done / "job.yaml", "--json").json
    assert [(graph["name"], graph["engine"]) for graph in shown["graphs"]] == [
        ("euclidean-zscore", "exact"),
        ("target", "sort"),
        ("mixed-d-euclidean-zscore", "69 candidates of each row, and a sort"),
        ("mixed-x-euclidean-zscore", "12 candidates of each row, and a sort"),
    ]
    names = [stage["stage"] for stage in shown["stages"]]
    assert [name for name in names if name.startswith(("neighbors", "targets", "mixed"))] == [
        "neighbors-euclidean-zscore",
        "targets-target",
        "targets-merge-target",
        "mixed-d-euclidean-zscore",
        "mixed-x-euclidean-zscore",
    ]
    lines = daskfs("plan", done / "job.yaml").out.splitlines()
    table = [line for line in lines[1:] if line.split()[0] in {"stage", *names}]
    assert len({len(line) for line in table}) == 1, "columns stand under each other"


def test_status_counts_the_units_of_the_lists(done: Path) -> None:
    rows = {row["stage"]: row for row in daskfs("status", done / "run", "--json").json["stages"]}
    assert all(rows[name]["done"] == 1 for name in ("targets-target", "mixed-d-euclidean-zscore"))


def test_report_tells_how_lists_were_found(done: Path) -> None:
    result = json.loads((done / "result.json").read_text())
    graphs = {graph["name"]: graph for graph in result["graphs"]}
    by_target = graphs["target, k = 5"]
    assert (by_target["metric"], by_target["engine"], by_target["scaling"]) == ("target", "sort", "zscore")
    assert (by_target["n_nodes"], by_target["n_isolated"]) == (24, 0)
    by_both = graphs["mixed-d-euclidean-zscore, k = 12"]
    assert (by_both["n_open"], by_both["n_candidates"], by_both["engine"]) == (0, 69, "exact")
    assert by_both["weightings"][0]["labeled_factor"] == 5
    assert by_both["weightings"][0]["used_by"] == ["SSLS"]
    assert but_trust(result["warnings"]) == []
    html = (done / "run" / "report.html").read_text(encoding="utf-8")
    for text in ("1 (a sort)", "69 nearest in X, and the nearest by target", "heat, times 5.000 between labeled rows"):
        assert text in html


def test_rows_whose_lists_may_miss_some_are_told(tmp_path: Path) -> None:
    X = matrix()
    X[:20] *= 1e-3
    y = np.where(np.arange(N_SAMPLES) < 20, np.linspace(-9, 9, N_SAMPLES), np.nan)
    knn_graph(X, 15).save(tmp_path / "lists")
    path = job(tmp_path, y, [SSLS], graph={"precomputed": str(tmp_path / "lists")}, transform={"graph": None})
    np.save(tmp_path / "X.npy", X)
    outcome = daskfs("run", path, "--json")
    assert outcome.code == 0
    (graph,) = [graph for graph in outcome.json["graphs"] if graph["metric"] != "target"]
    assert graph["n_open"] > 0
    text = f"{graph['n_open']} labeled rows may have nearer neighbors than the 15 candidates in X hold"
    assert text in texts(outcome.json)[0]
    assert text in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


# ---------------------------------------------------------------------------- job files
def test_settings_of_the_graph_over_x_are_not_those_of_the_target(tmp_path: Path, done: Path) -> None:
    graph = {"n_neighbors": 3, "t": "mean", "weights": "binary", "self_loops": True}
    assert run(tmp_path, target(), REGRESSION, graph=graph).code == 0
    assert (tmp_path / "run" / "ranking.csv").read_bytes() == (done / "run" / "ranking.csv").read_bytes()


def test_scaling_of_the_graph_is_that_of_the_job(tmp_path: Path) -> None:
    assert run(tmp_path, target(), [SSLS], transform={"graph": "unit"}).code == 0
    expected = SemiSupervisedLaplacianScore(n_neighbors=12, graph_scaling="unit").fit(matrix(), target()).scores_
    np.testing.assert_array_equal(scores(tmp_path, "SSLS"), expected)


@pytest.mark.parametrize(
    ("y", "methods", "code", "parts"),
    [
        (np.full(N_SAMPLES, 2.5), ["SupervisedLaplacianScore"], INPUT, ["all 70 labeled rows have one value"]),
        (np.where(np.arange(N_SAMPLES) == 4, 1.5, np.nan), [SSLS], INPUT, ["method SSLS", "all 1 labeled rows have"]),
        (classes(), [SSLS], INPUT, ["method SSLS is for regression, and data.task is classification"]),
        (target(), ["LSDF"], INPUT, ["method LSDF is for classification, and data.task is regression"]),
        (target(), [{**SSLS, "neighbours": "x"}], USAGE, ["no parameter 'neighbours'. Did you mean 'neighbors'?"]),
        (target(), [{"name": "SupervisedLaplacianScore", "task": "regression"}], USAGE, ["no parameter 'task'"]),
    ],
)
def test_what_cannot_be(tmp_path: Path, y: np.ndarray, methods: list[Any], code: int, parts: list[str]) -> None:
    refused(run(tmp_path, y, methods), code, *parts)


# ----------------------------------------------------------------------- graphs from outside
@pytest.mark.parametrize("path", ["run", "run/knn/euclidean-zscore", "lists"])
def test_lists_from_outside_give_the_same_bytes(tmp_path: Path, done: Path, path: str) -> None:
    where = done / path
    if path == "lists":
        where = tmp_path / path
        knn_graph(matrix(), 69, graph_scaling="zscore").save(where)
    outcome = run(tmp_path, target(), REGRESSION, graph={"precomputed": str(where)})
    assert (outcome.code, outcome.err) == (0, "")
    assert (tmp_path / "run" / "ranking.csv").read_bytes() == (done / "run" / "ranking.csv").read_bytes()
    names = [stage["name"] for stage in outcome.json["stages"]]
    assert "graph-given" in names
    assert not [name for name in names if name.startswith("neighbors")]


def test_shorter_lists_from_outside_are_the_candidates(tmp_path: Path) -> None:
    knn_graph(matrix(), 40, graph_scaling="zscore").save(tmp_path / "lists")
    outcome = run(tmp_path, target(), REGRESSION, graph={"precomputed": str(tmp_path / "lists")})
    assert outcome.code == 0
    assert [graph.get("n_candidates") for graph in outcome.json["graphs"]] == [None, 40, 12]


def test_lists_from_outside_that_cannot_serve(tmp_path: Path) -> None:
    knn_graph(matrix(), 8, graph_scaling="zscore").save(tmp_path / "short")
    refused(
        run(tmp_path, target(), REGRESSION, graph={"precomputed": str(tmp_path / "short")}),
        INPUT,
        "n_neighbors is 12, and",
        "has 8 neighbors a row",
    )
    knn_graph(matrix(), 20, metric="cosine").save(tmp_path / "cosine")
    refused(
        run(tmp_path, target(), REGRESSION, graph={"precomputed": str(tmp_path / "cosine")}),
        USAGE,
        "method SSLS stands on neighbors by metric euclidean and scaling zscore",
    )


def test_a_matrix_from_outside(tmp_path: Path) -> None:
    """It serves LSDF, whose edges are weights; SSLS measures distances of its own."""
    lists = knn_graph(matrix(), 6).to_csr("connectivity")
    S = sp.csr_matrix(lists.maximum(lists.T)) * 0.5
    sp.save_npz(tmp_path / "S.npz", S)
    graph = {"precomputed": str(tmp_path / "S.npz")}
    assert run(tmp_path, classes(), ["LSDF", "LaplacianScore"], graph=graph).code == 0
    np.testing.assert_array_equal(scores(tmp_path, "LSDF"), LSDF(graph=S).fit(matrix(), classes()).scores_)
    refused(
        run(tmp_path, target(), REGRESSION, "other", graph=graph),
        USAGE,
        "method SSLS stands on distances, and graph.precomputed",
        "is a matrix of weights: give it neighbor lists",
    )
    mixed = run(tmp_path, target(), ["SupervisedLaplacianScore", "LaplacianScore"], "third", graph=graph)
    assert mixed.code == 0
    expected = SupervisedLaplacianScore().fit(matrix(), target()).scores_
    np.testing.assert_array_equal(scores(tmp_path, "SupervisedLaplacianScore", "third"), expected)


# -------------------------------------------------------------------------------- resuming
@pytest.mark.parametrize("lists", ["target", "mixed-d-euclidean-zscore"])
def test_lists_that_are_gone_are_made_again(done: Path, tmp_path: Path, lists: str) -> None:
    folder = shutil.copytree(done, tmp_path / "copy")
    text = (folder / "job.yaml").read_text().replace(str(done), str(folder))
    (folder / "job.yaml").write_text(text)
    first = daskfs("run", folder / "job.yaml", "-q", "--json", "--overwrite")
    assert first.code == 0, first.err
    before = (folder / "run" / "ranking.csv").read_bytes()
    shutil.rmtree(folder / "run" / "knn" / lists / "distances" / "c")
    again = daskfs("run", folder / "job.yaml", "-q", "--json")
    assert again.code == 0, again.err
    stages = ["targets-target", "targets-merge-target"] if lists == "target" else [lists]
    assert again.json["recomputed"] == dict.fromkeys(stages, 1)
    assert (folder / "run" / "ranking.csv").read_bytes() == before


# ------------------------------------------------------------------------------------------ classes -1 and 1
NOTE = "labels hold -1 and 1 only and are read as two classes; set data.unlabeled"


def signs() -> np.ndarray:
    return np.where(matrix()[:, 1] > 0, 1, -1)


def sign_job(folder: Path, batch: bool = False, **data: Any) -> Path:
    path = job(folder, signs(), ["FisherScore", "LSDF"], evaluate={"n_selected": 2, "n_splits": 3})
    np.save(folder / "batch.npy", np.arange(N_SAMPLES) % 2)
    text = yaml.safe_load(path.read_text())
    text["data"] |= {**data, **({"batch": str(folder / "batch.npy")} if batch else {})}
    return write_job(folder, text)


@pytest.mark.parametrize("batch", [False, True])
def test_minus_one_and_one_are_two_classes_and_the_summary_says_so(batch: bool, tmp_path: Path) -> None:
    outcome = daskfs("run", sign_job(tmp_path, batch), "-q", "--json")
    assert outcome.code == 0
    assert outcome.err.count(NOTE) == 1
    data = outcome.json["data"]
    assert (data["n_labeled"], list(data["classes"])) == (N_SAMPLES, ["-1", "1"])
    others = but_trust(outcome.json["warnings"])
    assert [text for text in others if NOTE in text] == others
    assert (tmp_path / "run" / "report.html").read_text().count(NOTE) == 1
    if not batch:
        expected = FisherScore().fit(matrix(), signs() > 0).scores_
        np.testing.assert_array_equal(scores(tmp_path, "FisherScore"), expected)
    confirmed = daskfs("run", tmp_path / "job.yaml", "-q", "--overwrite", "--set", "data.unlabeled=none")
    assert (confirmed.code, told(confirmed)) == (0, "")


def test_unlabeled_settles_it(tmp_path: Path) -> None:
    refused(daskfs("run", sign_job(tmp_path, unlabeled=-1), "-q"), INPUT, "FisherScore", "one class")
    np.save(tmp_path / "y.npy", np.where(np.arange(N_SAMPLES) % 5 == 0, 9, signs()))
    for unlabeled, classes in (("9", ["-1", "1"]), ("auto", ["1", "9"]), ("none", ["-1", "1", "9"])):
        arguments = (tmp_path / "X.npy", "--labels", tmp_path / "y.npy", "--unlabeled", unlabeled, "--json")
        assert list(daskfs("inspect", *arguments).json["classes"]) == classes


def test_tiles_keep_what_means_an_unlabeled_row(tmp_path: Path) -> None:
    sign_job(tmp_path)
    source = (tmp_path / "X.npy", "--labels", tmp_path / "y.npy")
    assert NOTE in daskfs("inspect", *source).out
    for name, option, noted in (("guessed", (), True), ("settled", ("--unlabeled", "none"), False)):
        tiles = tmp_path / name
        converted = daskfs("convert", source[0], tiles, *source[1:], *option, "--workers", 0, "-q")
        assert (NOTE in converted.out, NOTE in daskfs("inspect", tiles).out) == (noted, noted)
        ranked = {
            "data": {"source": str(tiles)},
            "methods": ["FisherScore"],
            "evaluate": None,
            "cluster": {"workers": 0},
        }
        path = write_job(tmp_path, {**ranked, "output": {"path": str(tmp_path / f"run-{name}")}})
        outcome = daskfs("run", path, "-q", "--json")
        assert (outcome.json["data"]["n_labeled"], NOTE in outcome.err) == (N_SAMPLES, noted)
        told = ("data.unlabeled was settled when", name, "convert again")
        refused(daskfs("plan", path, "--set", "data.unlabeled=none"), USAGE, *told)


def test_a_row_that_svmlight_says_nothing_of(tmp_path: Path) -> None:
    lines = [f"{label} 1:{row % 7} 2:1" for row, label in enumerate(["+1", "-1", "0"] * 8)]
    (tmp_path / "X.svm").write_text("\n".join(lines))
    inspect = ("inspect", tmp_path / "X.svm", "--labels", "target")
    refused(daskfs(*inspect), INPUT, "targets -1, 0 and 1", "data.unlabeled")
    assert daskfs(*inspect, "--unlabeled", "0", "--json").json["classes"] == {"-1": 8, "1": 8}
