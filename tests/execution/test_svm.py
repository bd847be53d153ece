"""Jobs of SVMRFE: tiles, workers, stops, loss and what runs tell, on both routes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
import zarr

from daskfs import make_job as make_loaded
from daskfs import run_job
from daskfs.errors import RunStoppedError
from daskfs.execution import submission
from daskfs.execution.progress import Silent
from daskfs.job.job import Job
from daskfs.runs.status import plan_job, run_status
from daskfs.stages.stage import Stage
from daskfs.stages.units import run_unit
from tests.cli.command import but_trust
from tests.execution.runs import (
    Stop,
    local_client,
    n_planned_units,
    recorded,
    records,
    run,
    scale,
    write_job,
)

pytestmark = pytest.mark.cluster

N_SAMPLES, N_FEATURES = 33_000, 11
EXACT: list[Any] = [
    {"name": "SVMRFE", "n_singly": 3, "large_n": "exact"},
    {"name": "SVMRFE", "label": "bound", "criterion": "rmb", "retrain": True, "step": 0.5, "n_singly": 2},
    {"name": "SVMRFE", "label": "raw", "score_scaling": None, "large_n": "exact", "step": 2, "n_singly": 1},
]
OVER_LANDMARKS: list[Any] = [
    {"name": "SVMRFE", "label": "landmarks", "large_n": "landmarks", "n_landmarks": 20, "n_singly": 3},
    {"name": "SVMRFE", "label": "graph", "large_n": "landmarks", "laplacian": True, "n_landmarks": 15, "step": 0.5},
    {
        "name": "SVMRFE",
        "label": "raw landmarks",
        "large_n": "landmarks",
        "score_scaling": None,
        "n_landmarks": 20,
        "step": 4,
    },
]
METHODS = [*EXACT, *OVER_LANDMARKS]
LAPLACIAN: list[Any] = [
    {"name": "SVMRFE", "label": "rebuilt", "laplacian": True, "n_singly": 3},
    {"name": "SVMRFE", "label": "kept", "laplacian": True, "rebuild_graph": False, "criterion": "rmb", "step": 0.5},
    {"name": "SVMRFE", "label": "retrained", "laplacian": True, "retrain": True, "weights": "heat", "step": 0.5},
]
JUDGE, DROP = "svm-judge", "svm-drop"
SUMS, SOLVE = "svm-sums-zscore", "svm-solve-zscore"
TILES = {"one tile": (N_SAMPLES, N_FEATURES), "both": (16384, 5)}
OUTPUTS = ("ranking.csv", "selected_features.csv", "evaluation.csv")


def table(n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return X, whose columns hang on the class of a row, the last of which is constant, and labels of a few rows."""
    rng = np.random.default_rng(0)
    classes = np.arange(n_samples) % 3
    X = rng.normal(size=(n_samples, N_FEATURES)).astype(np.float32)
    X[:, :3] += 1.5 * rng.normal(size=(3, 3))[classes]
    X[:, 3] = X[:, 0] + 0.1 * X[:, 3]
    X[:, -1] = 1
    return X, np.where(rng.permutation(n_samples) < 60, classes, -1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """X in several tiles, and a few of its rows."""
    folder = tmp_path_factory.mktemp("svm-data")
    X, y = table(N_SAMPLES)
    for name, chunks in TILES.items():
        zarr.create_array(folder / f"{name}.zarr", shape=X.shape, dtype=X.dtype, chunks=chunks)[...] = X
    np.save(folder / "y.npy", y)
    X, y = table(128)
    X = np.round(8 * X) / 8  # bands of fewer rows than a cell of the moments give the same bits where sums are exact
    zarr.create_array(folder / "few.zarr", shape=X.shape, dtype=X.dtype, chunks=(64, 4))[...] = X
    zarr.create_array(folder / "few in one.zarr", shape=X.shape, dtype=X.dtype, chunks=X.shape)[...] = X
    np.save(folder / "few.npy", y)
    return folder


def make_job(data: Path, folder: Path, source: str = "both", **blocks: Any) -> Path:
    labels = "few.npy" if source.startswith("few") else "y.npy"
    job = {
        "data": {"source": str(data / f"{source}.zarr"), "labels": str(data / labels), "task": "classification"},
        "methods": LAPLACIAN if source.startswith("few") else METHODS,
        "evaluate": None,
        "select": {"n_features": 3},
        "cluster": {"workers": 0},
    }
    return write_job(folder, "replaced", **{**job, **blocks})


def loaded(path: Path) -> Job:
    return make_loaded(yaml.safe_load(path.read_text()))


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run over one tile that nobody disturbed, of both routes and three loops."""
    folder = tmp_path_factory.mktemp("svm")
    run_job(loaded(make_job(data, folder, "one tile")))
    return folder / "run"


@pytest.fixture(scope="module")
def laplacian(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of machines under a graph of all rows."""
    folder = tmp_path_factory.mktemp("svm-few")
    run_job(loaded(make_job(data, folder, "few in one")))
    return folder / "run"


def tables(folder: Path) -> dict[str, bytes]:
    """Return the whole table of every method, and how it was found."""
    found = {path.name: zarr.open_array(path)[...].tobytes() for path in (folder / "scores").iterdir()}
    facts = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("elimination.json")}
    assert len(found) >= 3
    return found | facts


def assert_same(folder: Path, expected: Path) -> None:
    found, wanted = tables(folder), tables(expected)
    assert found.keys() == wanted.keys()
    for name, content in wanted.items():
        assert found[name] == content, name
    for name in OUTPUTS:
        if (expected / name).exists():
            assert (folder / name).read_bytes() == (expected / name).read_bytes(), name


def facts_of(folder: Path, stage: str) -> dict[int, dict[str, Any]]:
    return {unit: record["facts"] for unit, record in recorded(folder, stage).items()}


def left_over(folder: Path) -> list[Path]:
    return [path for path in (folder / "svm").rglob("*") if path.is_file()]


def rounds_of(folder: Path, stage: str) -> int:
    manifest = json.loads((folder / "run.json").read_text())
    return int(next(s for s in manifest["stages"] if s["name"] == stage)["rounds"])


# ---------------------------------------------------------------------------------------------- the same to the bit
def test_tiles(data: Path, undisturbed: Path, tmp_path: Path) -> None:
    """And parts of rows; of few rows and of all methods see test_determinism.py."""
    run_job(loaded(make_job(data, tmp_path, "both")))
    assert_same(tmp_path / "run", undisturbed)


def test_tiles_under_a_graph(data: Path, laplacian: Path, tmp_path: Path) -> None:
    run_job(loaded(make_job(data, tmp_path, "few")))
    assert_same(tmp_path / "run", laplacian)


@pytest.mark.long
def test_threads(data: Path, laplacian: Path, tmp_path: Path) -> None:
    """Two units at a time share a process and what it holds."""
    run_job(loaded(make_job(data, tmp_path, "few", cluster={"workers": 0, "threads": 2})))
    assert_same(tmp_path / "run", laplacian)


@pytest.mark.long
@pytest.mark.parametrize(("source", "expected"), [("both", "undisturbed"), ("few", "laplacian")])
def test_workers(data: Path, tmp_path: Path, source: str, expected: str, request: pytest.FixtureRequest) -> None:
    cluster = {"workers": 2, "threads": 2, "memory_limit": "1GiB"}
    run(make_job(data, tmp_path, source, cluster=cluster))
    assert_same(tmp_path / "run", request.getfixturevalue(expected))


@pytest.mark.long
def test_order_of_units(data: Path, laplacian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turned = set[str]()

    def backwards(context: Any, stage: Stage, unit: int, inputs: str | None) -> dict[str, Any]:
        number, place = divmod(unit, stage.n_units)
        turned.add(stage.name)
        return run_unit(context, stage, number * stage.n_units + stage.n_units - 1 - place, inputs)

    monkeypatch.setattr(submission, "run_unit", backwards)
    run_job(loaded(make_job(data, tmp_path, "few")))
    assert {JUDGE, DROP} <= turned
    assert_same(tmp_path / "run", laplacian)


@pytest.mark.parametrize(
    ("source", "expected"), [pytest.param("both", "undisturbed", marks=pytest.mark.long), ("few", "laplacian")]
)
def test_nothing_is_held(
    data: Path,
    tmp_path: Path,
    source: str,
    expected: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every unit makes what it needs from the rounds before."""
    monkeypatch.setattr("daskfs.store.process_cache.Holdings.get", lambda _, *arguments: arguments[-1]())
    monkeypatch.setattr("daskfs.store.process_cache.Holdings.series", lambda _, *arguments: arguments[-1]())
    run_job(loaded(make_job(data, tmp_path, source)))
    assert_same(tmp_path / "run", request.getfixturevalue(expected))


@pytest.mark.long
@pytest.mark.parametrize("method", [METHODS[1], METHODS[4]], ids=["bound", "graph"])
def test_a_method_alone(data: Path, undisturbed: Path, tmp_path: Path, method: dict[str, Any]) -> None:
    """Others that share its loop change nothing of it, and neither does it end later."""
    run_job(loaded(make_job(data, tmp_path, methods=[method])))
    label = method["label"]
    found, expected = tables_of(tmp_path / "run", label), tables_of(undisturbed, label)
    assert found == expected


def tables_of(folder: Path, label: str) -> tuple[bytes, Any]:
    manifest = json.loads((folder / "run.json").read_text())
    return zarr.open_array(folder / "scores" / label)[...].tobytes(), manifest["eliminations"][label]


# ------------------------------------------------------------------------------------------- stopped and gone on with
def stopped(data: Path, folder: Path, source: str, stage: str, unit: int, **blocks: Any) -> tuple[Job, Path]:
    """Run a job until a unit is done; return the job and where its run lies."""
    job = loaded(make_job(data, folder, source, **blocks))
    with pytest.raises(RunStoppedError):
        run_job(job, Stop(stage, unit))
    return job, folder / "run"


def assert_goes_on(job: Job, folder: Path, expected: Path) -> None:
    before = records(folder)
    run_job(job)
    after = records(folder)
    assert {name: after[name] for name in before} == before, "a recorded unit ran again"
    assert len(after) == n_planned_units(folder)
    assert_same(folder, expected)
    assert not left_over(folder)


@pytest.mark.parametrize(
    ("stage", "unit"),
    [
        pytest.param("svm-rows-exact-zscore-labeled", 0, marks=pytest.mark.long),
        # of three methods and three problems: amid the third round
        pytest.param(JUDGE, 9 * 2 + 4, marks=pytest.mark.long),
        pytest.param(DROP, 3 * 3 + 1, marks=pytest.mark.long),
        pytest.param("svm-tables-exact", 1, marks=pytest.mark.long),
        (SUMS, 3 * 4 + 1),  # of three parts
        pytest.param(SOLVE, 2 * 2, marks=pytest.mark.long),
        pytest.param("svm-solve-raw", 2, marks=pytest.mark.long),
    ],
)
def test_stopped_run_goes_on(data: Path, undisturbed: Path, tmp_path: Path, stage: str, unit: int) -> None:
    job, folder = stopped(data, tmp_path, "both", stage, unit)
    assert_goes_on(job, folder, undisturbed)


@pytest.mark.parametrize(("stage", "unit"), [(JUDGE, 9 * 3 + 5), pytest.param(DROP, 3 * 2 + 1, marks=pytest.mark.long)])
def test_stopped_run_under_a_graph_goes_on(data: Path, laplacian: Path, tmp_path: Path, stage: str, unit: int) -> None:
    job, folder = stopped(data, tmp_path, "few", stage, unit)
    assert_goes_on(job, folder, laplacian)


@pytest.mark.long
@pytest.mark.parametrize("harm", ["lost", "altered"])
def test_state_of_the_last_round_that_is_harmed(data: Path, laplacian: Path, tmp_path: Path, harm: str) -> None:
    """That round is made again, from the state before it, for the method whose state it is."""
    job, folder = stopped(data, tmp_path, "few", DROP, 3 * 5 - 1)
    states = folder / "svm/svm-exact/states"
    assert sorted(path.name for path in states.iterdir()) == ["2", "3", "4"]
    state = states / "4" / "rebuilt.npz"
    if harm == "lost":
        state.unlink()
    else:
        content = bytearray(state.read_bytes())
        content[len(content) // 2] ^= 16
        state.write_bytes(content)
    before = recorded(folder, DROP)
    run_job(job)
    again = [unit for unit, found in recorded(folder, DROP).items() if before.get(unit, found) != found]
    assert again == [3 * 4]
    assert_same(folder, laplacian)


@pytest.mark.long
@pytest.mark.parametrize("lost", ["svm/svm-exact/kept", "svm/svm-exact/criteria", "svm/svm-exact/states", "svm"])
def test_loop_that_is_half_deleted(data: Path, undisturbed: Path, tmp_path: Path, lost: str) -> None:
    job, folder = stopped(data, tmp_path, "both", JUDGE, 9 * 3 + 4)
    shutil.rmtree(folder / lost)
    run_job(job)
    assert_same(folder, undisturbed)
    assert not left_over(folder)


@pytest.mark.parametrize("lost", ["scores/bound", pytest.param("scores/graph", marks=pytest.mark.long)])
def test_finished_loop_whose_table_is_lost_runs_again(undisturbed: Path, tmp_path: Path, lost: str) -> None:
    """But not those of other loops; nothing of a loop is left before."""
    shutil.copytree(undisturbed, tmp_path / "run")
    folder = tmp_path / "run"
    raw = yaml.safe_load((undisturbed.parent / "job.yaml").read_text())
    job = make_loaded({**raw, "output": {"path": str(folder)}})
    assert not left_over(folder)
    assert run_job(job)["recomputed"] == {}, "there is nothing to do"
    shutil.rmtree(folder / lost)
    recomputed = run_job(job)["recomputed"]
    mine, other = (DROP, SOLVE) if lost == "scores/bound" else (SOLVE, DROP)
    assert recomputed[mine] == rounds_of(folder, mine) * (3 if mine == DROP else 2)
    assert other not in recomputed
    assert_same(folder, undisturbed)
    assert run_job(job)["recomputed"] == {}


@pytest.mark.long
def test_workers_that_join_and_leave_between_rounds(data: Path, laplacian: Path, tmp_path: Path) -> None:
    """Units go to other workers then, which take the steps of all rounds before, and no bit changes."""

    class Rescale(Silent):
        def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
            del facts
            if (stage.name, unit) in changes:
                scale(client, changes[stage.name, unit])

    changes = {(DROP, 3 * 1): 2, (JUDGE, 9 * 4 + 1): 1}
    with local_client(1) as client:
        run_job(loaded(make_job(data, tmp_path, "few", cluster={"address": client.scheduler.address})), Rescale())
    processes = {record["process"] for record in recorded(tmp_path / "run", JUDGE).values()}
    assert len(processes) >= 2
    assert_same(tmp_path / "run", laplacian)


# ------------------------------------------------------------------------------------------------- what a run tells
def test_run_tells_of_rounds_and_routes(undisturbed: Path) -> None:
    manifest = json.loads((undisturbed / "run.json").read_text())
    stages = {stage["name"]: stage for stage in manifest["stages"]}
    assert (stages[JUDGE]["rounds"], stages[JUDGE]["units"]) == (7, 7 * 9)
    assert (stages[DROP]["rounds"], stages[DROP]["units"]) == (7, 7 * 3)
    for stage in (stages[name] for name in (JUDGE, DROP, SUMS, SOLVE, "svm-sums-raw", "svm-solve-raw")):
        assert stage["bytes_read"] <= stage["planned_bytes_read"]
        assert stage["bytes_written"] <= stage["planned_bytes_written"]
        assert stage["peak_bytes"] > 0  # of a process of many tests; test_memory.py holds it to the plan
    found = manifest["eliminations"]
    assert {label: facts["route"] for label, facts in found.items()} == {
        "SVMRFE": "exact",
        "bound": "exact",
        "raw": "exact",
        "landmarks": "landmarks",
        "graph": "landmarks",
        "raw landmarks": "landmarks",
    }
    assert {found[label]["n_rows"] for label in ("SVMRFE", "bound", "raw")} == {60}
    assert [found[label]["n_landmarks"] for label in ("landmarks", "graph", "raw landmarks")] == [20, 15, 20]
    assert [seen["n_left"] for seen in found["SVMRFE"]["rounds"]] == [10, 8, 6, 5, 4, 3, 2]
    assert [seen["n_left"] for seen in found["bound"]["rounds"]] == [10, 5, 3, 2]
    assert [seen["n_left"] for seen in found["raw landmarks"]["rounds"]] == [10, 8, 7, 6, 5, 4, 3, 2]
    assert but_trust(manifest["warnings"]) == []


def test_methods_that_finish_sooner(undisturbed: Path) -> None:
    """Their units of later rounds have nothing to do, and say so again; the loop ends with the last of them."""
    facts = facts_of(undisturbed, DROP)
    assert len(facts) == 3 * 7
    finished = {place: [facts[3 * number + place]["finished"] for number in range(7)] for place in range(3)}
    assert finished[0] == [False] * 6 + [True]
    assert finished[1] == [False] * 3 + [True] * 4
    assert finished[2] == [False] * 4 + [True] * 3
    written = {unit: record["bytes_written"] for unit, record in recorded(undisturbed, JUDGE).items()}
    assert [written[9 * 4 + place] > 0 for place in range(9)] == [True] * 3 + [False] * 3 + [True] * 3


def test_status_and_plan(data: Path, undisturbed: Path, tmp_path: Path) -> None:
    rows = {row["stage"]: row for row in run_status(str(undisturbed))["stages"]}
    assert (rows[DROP]["done"], rows[DROP]["units"], rows[DROP]["rounds"]) == (3, 3, 7)
    assert rows[SOLVE]["seconds_left"] == 0
    planned = plan_job(loaded(make_job(data, tmp_path)))
    loops = {loop["name"]: loop for loop in planned["loops"]}
    assert set(loops) == {"svm-exact", "svm-landmarks-zscore", "svm-landmarks-raw"}
    assert loops["svm-exact"]["stages"] == [JUDGE, DROP]
    # of eleven features, as nobody knows yet that one is constant
    assert loops["svm-exact"]["max_rounds"] == 8
