"""SVMRFE from the command line: the estimator's scores, what plan, status, run.json and report say, what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from daskfs import SVMRFE, run_job
from daskfs.errors import RunStoppedError
from daskfs.execution.progress import Silent
from daskfs.job.job import load_job
from daskfs.stages.stage import Stage

from .command import Outcome, but_trust, daskfs, refused, rows_of, write_job

pytestmark = pytest.mark.cluster

USAGE, INPUT = 2, 3
N_SAMPLES, N_FEATURES = 60, 7
CONSTANT = 5
VARIANTS: dict[str, dict[str, Any]] = {
    "SVMRFE": {},
    "bound": {"criterion": "rmb", "step": 3, "n_singly": 2},
    "trained again": {"retrain": True, "step": 0.5, "n_singly": 1},
    "pulled": {"laplacian": True, "gamma_intrinsic": 0.5, "step": 2, "n_singly": 1},
    "on the graph of all": {"laplacian": True, "rebuild_graph": False, "n_neighbors": 4},
    "sums": {"large_n": "landmarks", "n_landmarks": 20},
    "sums and anchors": {"large_n": "landmarks", "n_landmarks": 15, "laplacian": True, "n_neighbors": 3},
}
METHODS: list[dict[str, Any]] = [{"name": "SVMRFE", "label": label, **wanted} for label, wanted in VARIANTS.items()]
LOOPS = ("svm-exact", "svm-landmarks-zscore")


def matrix() -> np.ndarray:
    """Return X, shape (60, 7): features 0 and 2 tell classes, 5 is constant."""
    X = np.random.default_rng(6).normal(size=(N_SAMPLES, N_FEATURES))
    X[:, 0] += 3 * (classes() == 0)
    X[:, 2] -= 3 * (classes() == 1)
    X[:, CONSTANT] = -1.5
    return X


def classes() -> np.ndarray:
    return np.arange(N_SAMPLES) % 3


def some() -> np.ndarray:
    """Return classes of two rows in three, and -1."""
    return np.where(np.arange(N_SAMPLES) // 3 % 3 == 0, -1, classes())


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


def article(folder: Path, number: int) -> str:
    """Return the text of the report on the method of a number, without figures."""
    page = (folder / "run/report.html").read_text(encoding="utf-8")
    part = page.split('<article id="method-')[number].partition("</article>")[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", re.sub(r"<svg.*?</svg>", "", part, flags=re.DOTALL)))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Return the folder of a finished run and what it printed; nothing may change it."""
    folder = tmp_path_factory.mktemp("svm")
    outcome = run(folder, some())
    assert outcome.code == 0, outcome.err
    return folder, outcome.json


@pytest.mark.parametrize("label", VARIANTS)
def test_rankings_of_the_estimator(done: tuple[Path, Any], label: str) -> None:
    selector = SVMRFE(**VARIANTS[label]).fit(matrix(), some())
    rows = [row for row in rows_of(done[0] / "run/ranking.csv") if row["method"] == label]
    assert len(rows) == N_FEATURES
    for row in rows:
        feature = int(row["feature"])
        assert float(row["score"] or "nan") == selector.scores_[feature] or feature == CONSTANT
        assert int(row["rank"]) == selector.ranking_[feature]
    assert rows[-1]["note"] == "constant feature"


class TestRunJson:
    def test_route_and_rows(self, done: tuple[Path, Any]) -> None:
        found = done[1]["eliminations"]
        assert list(found) == list(VARIANTS)
        n_labeled = int((some() >= 0).sum())
        sizes = {label: (e["route"], e.get("n_rows"), e.get("n_landmarks")) for label, e in found.items()}
        assert sizes == {
            "SVMRFE": ("exact", n_labeled, None),
            "bound": ("exact", n_labeled, None),
            "trained again": ("exact", n_labeled, None),
            "pulled": ("exact", N_SAMPLES, None),
            "on the graph of all": ("exact", N_SAMPLES, None),
            "sums": ("landmarks", None, 20),
            "sums and anchors": ("landmarks", None, 15),
        }

    def test_rounds(self, done: tuple[Path, Any]) -> None:
        found = done[1]["eliminations"]
        assert [seen["n_left"] for seen in found["SVMRFE"]["rounds"]] == [6, 5, 4, 3, 2]
        assert [seen["n_left"] for seen in found["trained again"]["rounds"]] == [6, 3, 2]
        assert [seen["n_left"] for seen in found["pulled"]["rounds"]] == [6, 4, 2]
        for label, elimination in found.items():
            for seen in elimination["rounds"]:
                assert ("gap" in seen) == (elimination["route"] == "exact")
                assert ("radius" in seen) == (label == "bound")
                assert abs(seen.get("gap", 0.0)) < 1e-9
                assert 0 <= seen.get("bound_share", 0.0) < 1
        assert {seen["radius"] for seen in found["bound"]["rounds"]} == {"exact"}
        assert but_trust(done[1]["warnings"]) == []

    def test_stages_of_loops_ran_in_rounds(self, done: tuple[Path, Any]) -> None:
        rounds = {stage["name"]: stage["rounds"] for stage in done[1]["stages"]}
        assert (rounds["svm-judge"], rounds["svm-drop"]) == (5, 5)
        assert (rounds["svm-sums-zscore"], rounds["svm-solve-zscore"]) == (5, 5)
        assert rounds["svm-tables-exact"] is None


class TestReport:
    def test_exact_route(self, done: tuple[Path, Any]) -> None:
        text = article(done[0], 1)
        assert "Order features that stay long are good" in text
        assert "Route exact: machines trained with all labeled rows" in text
        assert f"Rows of the kernel {int((some() >= 0).sum())} " in text
        assert re.search(r"Round Left Support At C Gap 1 6 \d+ [\d.]+ % \S+ 2 5 \d+ ", text)
        assert "scores of different rounds do not compare" in text
        assert "smallest sphere" not in text

    def test_radius(self, done: tuple[Path, Any]) -> None:
        assert "R\N{SUPERSCRIPT TWO} smallest sphere round the rows" in article(done[0], 2)

    def test_landmark_route(self, done: tuple[Path, Any]) -> None:
        text = article(done[0], 6)
        assert "Route landmarks: sums over all rows in every round" in text
        assert "Landmarks 20 " in text
        assert "Round Left 1 6 2 5 " in text

    def test_parameters_that_have_a_say_on_the_route(self, done: tuple[Path, Any]) -> None:
        shown = {label: article(done[0], number) for number, label in enumerate(VARIANTS, 1)}
        assert [label for label, text in shown.items() if " n_landmarks " in text] == ["sums", "sums and anchors"]
        assert [label for label, text in shown.items() if " C 10.00 " in text] == list(VARIANTS)[:5]
        assert [label for label, text in shown.items() if " slack_factor " in text] == ["bound"]

    def test_written_again(self, done: tuple[Path, Any]) -> None:
        before = [article(done[0], number) for number in range(1, len(VARIANTS) + 1)]
        assert daskfs("report", done[0] / "run").code == 0
        assert [article(done[0], number) for number in range(1, len(VARIANTS) + 1)] == before


class TestPlan:
    def test_routes_as_json(self, tmp_path: Path) -> None:
        planned = json.loads(daskfs("plan", write(tmp_path, some()), "--json").out)
        loops = {loop["name"]: loop for loop in planned["loops"]}
        assert tuple(loops) == LOOPS
        assert loops["svm-exact"]["stages"] == ["svm-judge", "svm-drop"]
        assert all(loop["max_rounds"] == N_FEATURES - 1 for loop in loops.values())
        assert all(loop["bytes_read"] > 0 and loop["bytes_written"] > 0 for loop in loops.values())
        routes = {found["method"]: found for found in planned["eliminations"]}
        assert routes["SVMRFE"] == {
            "method": "SVMRFE",
            "route": "exact",
            "n_rows": N_SAMPLES,
            "max_rounds": 6,
            "loop": "svm-exact",
        }
        assert routes["sums"]["n_landmarks"] == 20
        assert routes["trained again"]["max_rounds"] == 3
        assert not planned["labels_counted"]

    def test_in_words(self, done: tuple[Path, Any], tmp_path: Path) -> None:
        early = daskfs("plan", write(tmp_path, some())).out
        unknown = "labels are counted with the tiles: until then, routes are as if every row had one"
        assert unknown in early
        assert "method SVMRFE: exact route, machines with a kernel of 60 rows, in 6 rounds at most" in early
        assert "method sums: landmark route, sums over 20 landmarks in one pass over X a round, in 6 rounds" in early
        assert re.search(r"loop svm-exact: .* in 6 rounds at most, which read [\d.]+ MiB and write [\d.]+ MiB", early)
        late = daskfs("plan", done[0] / "job.yaml").out
        assert unknown not in late
        assert "method SVMRFE: exact route, machines with a kernel of 39 rows, in 6 rounds at most" in late
        assert "method pulled: exact route, machines with a kernel of 60 rows" in late

    def test_the_route_goes_by_labeled_rows_of_tiles(self, tmp_path: Path) -> None:
        """Of 40,000 rows few have labels: before anyone has counted them, they are too many for all to be taken."""
        X = np.random.default_rng(0).normal(size=(40_000, 3)).astype(np.float32)
        np.savez(tmp_path / "X.npz", X=X, y=np.where(np.arange(len(X)) < 60, np.arange(len(X)) % 2, -1))
        block = {"source": str(tmp_path / "X.npz"), "labels": "y", "task": "classification"}
        methods = ["SVMRFE", {"name": "SVMRFE", "label": "bound", "criterion": "rmb"}]
        early = json.loads(daskfs("plan", write(tmp_path, some(), data=block, methods=methods), "--json").out)
        assert [found["route"] for found in early["eliminations"]] == ["landmarks", "exact"]
        arguments = ("--labels", "y", "--workers", 0, "-q")
        assert daskfs("convert", tmp_path / "X.npz", tmp_path / "X.zarr", *arguments).code == 0
        block = {"source": str(tmp_path / "X.zarr")}
        late = json.loads(daskfs("plan", write(tmp_path, some(), data=block, methods=methods), "--json").out)
        assert late["labels_counted"]
        assert [(found["route"], found.get("n_rows")) for found in late["eliminations"]] == [("exact", 60)] * 2

    def test_nothing_of_it_without_the_method(self, tmp_path: Path) -> None:
        out = daskfs("plan", write(tmp_path, some(), methods=["VarianceScore"])).out
        assert "loop" not in out
        assert "route" not in out


def test_status_tells_rounds(done: tuple[Path, Any]) -> None:
    lines = {line.split()[0]: line for line in daskfs("status", done[0] / "run").out.splitlines()}
    assert lines["svm-drop"].endswith(" 5 of 5, after 5 rounds")
    assert lines["svm-solve-zscore"].endswith(" 2 of 2, after 5 rounds")
    assert lines["svm-tables-exact"].endswith(" 5 of 5")


def test_status_of_a_stopped_run_and_the_same_command_goes_on(tmp_path: Path) -> None:
    class Stop(Silent):
        def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
            del facts
            if (stage.name, unit) == ("svm-judge", 2 * 3 + 1):
                msg = "enough."
                raise RunStoppedError(msg)

    path = write(tmp_path, some(), methods=[{"name": "SVMRFE", "step": 1, "n_singly": 1}])
    with pytest.raises(RunStoppedError, match="enough"):
        run_job(load_job(path), Stop())
    lines = {line.split()[0]: line for line in daskfs("status", tmp_path / "run").out.splitlines()}
    assert lines["svm-judge"].endswith(" 2 of 3, round 3")
    assert lines["svm-drop"].endswith(" 0 of 1, round 3")
    rows = {row["stage"]: row for row in json.loads(daskfs("plan", path, "--json").out)["stages"]}
    assert (rows["svm-judge"]["done"], rows["svm-judge"]["rounds"]) == (2, 2)
    outcome = daskfs("run", path, "-q", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["recomputed"]["svm-judge"] == 3 * 5 - 8
    selector = SVMRFE(step=1, n_singly=1).fit(matrix(), some())
    rows_found = rows_of(tmp_path / "run/ranking.csv")[:-1]
    assert [float(row["score"]) for row in rows_found] == [selector.scores_[int(row["feature"])] for row in rows_found]


def test_run_in_words_tells_rounds(tmp_path: Path) -> None:
    outcome = daskfs("run", write(tmp_path, classes(), methods=[METHODS[3]]), "-q", "-v")
    assert (outcome.code, outcome.err) == (0, "")
    assert "stage svm-judge: 9 units in 3 rounds, " in outcome.out
    again = daskfs("run", tmp_path / "job.yaml", "-q")
    assert "nothing to do" in again.out


def test_every_alpha_at_its_bound_warns(tmp_path: Path) -> None:
    """So much weight on the graph, and so little cost, that no label tells a feature from another."""
    methods = [{"name": "SVMRFE", "label": "tiny", "C": 1e-4, "step": 3, "n_singly": 1}]
    y = np.where(classes() == 2, -1, classes())
    outcome = run(tmp_path, y, methods=methods)
    words = "method tiny: in 2 of 2 rounds every alpha was at C, which hardly lets labels tell features apart"
    assert [warning.partition(";")[0] for warning in but_trust(outcome.json["warnings"])] == [words]
    assert words in outcome.err
    assert words in (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert {seen["bound_share"] for seen in outcome.json["eliminations"]["tiny"]["rounds"]} == {1.0}
    with pytest.warns(UserWarning, match="in 2 of 2 rounds every alpha was at C"):
        SVMRFE(C=1e-4, step=3, n_singly=1).fit(matrix(), y)


def test_rows_of_weight_zero_are_no_rows_of_the_kernel(tmp_path: Path) -> None:
    weights = (np.arange(N_SAMPLES) % 4 > 0).astype(np.float64)
    np.save(tmp_path / "w.npy", weights)
    data = {name: str(tmp_path / f"{file}.npy") for name, file in (("source", "X"), ("labels", "y"), ("weights", "w"))}
    methods = [METHODS[0], METHODS[3], METHODS[5]]
    outcome = run(tmp_path, some(), data={**data, "task": "classification"}, methods=methods)
    assert outcome.code == 0, outcome.err
    found = outcome.json["eliminations"]
    assert found["SVMRFE"]["n_rows"] == int((weights * (some() >= 0)).sum())
    assert found["pulled"]["n_rows"] == int(weights.sum())
    for method in methods:
        selector = SVMRFE(**VARIANTS[method["label"]]).fit(matrix(), some(), sample_weight=weights)
        rows = [row for row in rows_of(tmp_path / "run/ranking.csv") if row["method"] == method["label"]]
        assert [int(row["rank"]) for row in rows] == [int(selector.ranking_[int(row["feature"])]) for row in rows]


def test_graph_from_outside(tmp_path: Path) -> None:
    """A matrix of weights stands for the graph of every round."""
    S = np.exp(-np.abs(np.subtract.outer(np.arange(N_SAMPLES), np.arange(N_SAMPLES)) % 5).astype(np.float64))
    S = sp.csr_matrix(np.where(S + S.T > 1.2, S + S.T, 0.0))
    sp.save_npz(tmp_path / "S.npz", S)
    graph = {"precomputed": str(tmp_path / "S.npz")}
    outcome = run(tmp_path, some(), methods=[METHODS[3]], graph=graph)
    assert outcome.code == 0, outcome.err
    selector = SVMRFE(**VARIANTS["pulled"], graph=S).fit(matrix(), some())
    rows = rows_of(tmp_path / "run/ranking.csv")
    assert [float(row["score"]) for row in rows[:-1]] == [selector.scores_[int(row["feature"])] for row in rows[:-1]]
    assert (selector.scores_ != SVMRFE(**VARIANTS["pulled"]).fit(matrix(), some()).scores_)[:CONSTANT].all()
    job = write(tmp_path, some(), methods=[METHODS[6]], graph=graph, output={"path": str(tmp_path / "other")})
    refused(daskfs("run", job, "-q"), USAGE, "large_n 'landmarks' has a graph of its own, and takes none from outside")
    with pytest.raises(ValueError, match="large_n='landmarks' has a graph of its own"):
        SVMRFE(laplacian=True, graph=S, large_n="landmarks").fit(matrix(), some())
    with pytest.raises(ValueError, match="graph needs laplacian=True"):
        SVMRFE(graph=S).fit(matrix(), some())


def test_neighbors_of_another_run(tmp_path: Path) -> None:
    """They are kept as if the run had found them itself, without a word on rebuild_graph."""
    (tmp_path / "found").mkdir()
    transform, neighbors = {"graph": "zscore"}, {"name": "LaplacianScore", "n_neighbors": 4}
    assert run(tmp_path / "found", some(), methods=[neighbors], transform=transform).code == 0
    given = {key: value for key, value in METHODS[4].items() if key != "rebuild_graph"}
    graph = {"precomputed": str(tmp_path / "found/run")}
    outcome = run(tmp_path, some(), methods=[given], graph=graph)
    assert outcome.code == 0, outcome.err
    selector = SVMRFE(**VARIANTS["on the graph of all"]).fit(matrix(), some())
    rows = rows_of(tmp_path / "run/ranking.csv")
    assert [float(row["score"]) for row in rows[:-1]] == [selector.scores_[int(row["feature"])] for row in rows[:-1]]
    assert (selector.scores_ != SVMRFE(laplacian=True, n_neighbors=4).fit(matrix(), some()).scores_)[:CONSTANT].any()


def test_redundancy_filter_and_evaluation_after_it(tmp_path: Path) -> None:
    select = {"n_features": 2, "redundancy": {"threshold": 0.9, "n_candidates": 5}}
    evaluate = {"n_selected": [1, 2], "n_splits": 3, "n_repeats": 1, "baselines": False}
    outcome = run(tmp_path, some(), select=select, evaluate=evaluate, methods=[METHODS[0], METHODS[5]])
    assert outcome.code == 0, outcome.err
    for table in ("selected_features", "evaluation"):
        assert {row["method"] for row in rows_of(tmp_path / f"run/{table}.csv")} == {"SVMRFE", "sums"}


class TestRefused:
    @pytest.mark.parametrize(
        ("change", "parts"),
        [
            ({"criterion": "margin"}, ("parameter 'criterion'", "'rfe' or 'rmb'", "'margin'")),
            ({"retrain": "sometimes"}, ("parameter 'retrain'",)),
            ({"C": 0}, ("parameter 'C'", "greater than 0")),
            ({"gamma": -1}, ("parameter 'gamma'",)),
            ({"gamma_intrinsic": 0}, ("parameter 'gamma_intrinsic'",)),
            ({"step": 1.5}, ("parameter 'step'",)),
            ({"step": 0}, ("parameter 'step'",)),
            ({"n_singly": 0}, ("parameter 'n_singly'",)),
            ({"candidates": "some"}, ("parameter 'candidates'", "'exact'")),
            ({"slack": "kept"}, ("parameter 'slack'", "'frozen'")),
            ({"large_n": "random"}, ("parameter 'large_n'", "'landmarks'")),
            ({"n_landmarks": 0}, ("parameter 'n_landmarks'",)),
            ({"ridge": 0}, ("parameter 'ridge'",)),
            ({"gama": 2}, ("has no parameter 'gama'", "Did you mean 'gamma'?")),
            ({"large_n": "landmarks", "retrain": True}, ("large_n 'landmarks'", "without retrain")),
            ({"large_n": "landmarks", "criterion": "rmb"}, ("large_n 'landmarks'", "criterion 'rfe'")),
        ],
        ids=str,
    )
    def test_parameters(self, tmp_path: Path, change: dict[str, Any], parts: tuple[str, ...]) -> None:
        job = write(tmp_path, some(), methods=[{"name": "SVMRFE", **change}])
        refused(daskfs("run", job, "-q"), USAGE, "SVMRFE", *parts)
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        ("y", "words"),
        [
            (np.full(N_SAMPLES, -1), "no row has a class"),
            (np.zeros(N_SAMPLES, dtype=int), "all 60 labeled rows have one class"),
            (np.where(some() == 0, 0, -1), "-1 and one class"),
        ],
        ids=["none", "one class", "two classes as -1 and 1"],
    )
    def test_labels(self, tmp_path: Path, y: np.ndarray, words: str) -> None:
        refused(daskfs("run", write(tmp_path, y, methods=["SVMRFE"]), "-q"), INPUT, words)

    def test_a_target(self, tmp_path: Path) -> None:
        y = np.where(some() < 0, np.nan, some() + 0.5)
        data = {"source": str(tmp_path / "X.npy"), "labels": str(tmp_path / "y.npy"), "task": "regression"}
        outcome = daskfs("run", write(tmp_path, y, data=data, methods=["SVMRFE"]), "-q")
        refused(outcome, INPUT, "method SVMRFE is for classification, and data.task is regression")

    @pytest.mark.parametrize("rebuild", [True, False])
    def test_too_few_rows_for_the_graph(self, tmp_path: Path, rebuild: bool) -> None:
        methods = [{"name": "SVMRFE", "laplacian": True, "n_neighbors": 60, "rebuild_graph": rebuild}]
        outcome = daskfs("run", write(tmp_path, some(), methods=methods), "-q")
        refused(outcome, INPUT, "n_neighbors is 60", "60 rows", "at most 59 neighbors")
