"""Evaluations that rank anew: killed, damaged, on other tiles and workers, planned and measured."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import yaml
import zarr

from daskfs import make_job, run_job
from daskfs.errors import RunStoppedError
from daskfs.job.job import Job
from tests.execution.measured import Case, Row, measured
from tests.execution.runs import Stop, lose_record, n_planned_units, records, run, run_here, write_job

pytestmark = pytest.mark.cluster

N_SAMPLES, N_FEATURES = 900, 40
METHODS: list[Any] = [
    "LaplacianScore",
    "FisherScore",
    {"name": "RLSR", "max_iter": 2},
]
EVALUATE = {
    "setting": "both",
    "labels": [4],
    "n_draws": 2,
    "n_splits": 2,
    "n_selected": [3, 6],
    "max_samples": 300,
    "baselines": False,
}
N_SELECTIONS = 3 * 2 * (1 + 2)
TILES = {"one tile": (N_SAMPLES, N_FEATURES), "both ways": (256, 16)}


def matrix() -> np.ndarray:
    """Return counts, mostly 0, whose first columns hang on the row's class."""
    rng = np.random.default_rng(0)
    X = rng.poisson(0.4, (N_SAMPLES, N_FEATURES)).astype(np.float32)
    X[:, :12] += (np.arange(N_SAMPLES) % 3)[:, None] * rng.poisson(0.7, (N_SAMPLES, 12))
    return X


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with X in several tile shapes and as CSR, and labels of half the rows."""
    folder, X = tmp_path_factory.mktemp("evaluation-data"), matrix()
    y = np.where(np.random.default_rng(1).random(N_SAMPLES) < 0.5, np.arange(N_SAMPLES) % 3, -1)
    np.save(folder / "y.npy", y)
    for name, chunks in TILES.items():
        zarr.create_array(folder / f"{name}.zarr", shape=X.shape, dtype=X.dtype, chunks=chunks)[...] = X
    sparse = sp.csr_matrix(X)
    parts = {"data": sparse.data, "indices": sparse.indices, "indptr": sparse.indptr, "shape": sparse.shape}
    np.savez(folder / "sparse.npz", **parts)
    return folder


def job_of(data: Path, folder: Path, source: str = "both ways.zarr", **blocks: Any) -> Path:
    job: dict[str, Any] = {
        "data": {"source": str(data / source), "labels": str(data / "y.npy"), "task": "classification"},
        "methods": METHODS,
        "evaluate": EVALUATE,
        "cluster": {"workers": 2, "memory_limit": "1GiB"},
    }
    return write_job(folder, "replaced", **{**job, **blocks})


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("evaluation")
    run_here(job_of(data, folder))
    return folder / "run"


def outputs(folder: Path) -> dict[str, bytes]:
    """Return what an evaluation found: orders, lists, and the tables."""
    paths = [*folder.glob("evaluation/orders/*"), *folder.glob("evaluation/lists/*"), *folder.glob("evaluation*.csv")]
    found = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    assert len([name for name in found if "/orders/" in name]) == N_SELECTIONS
    assert len([name for name in found if "/lists/" in name]) == 1 + 2
    assert "evaluation.csv" in found
    return found


def assert_same_outputs(folder: Path, expected: Path) -> None:
    first, second = outputs(folder), outputs(expected)
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


# --------------------------------------------------------------------------------------------------- killed and resumed
def loaded(path: Path) -> Job:
    raw = yaml.safe_load(path.read_text())
    return make_job({**raw, "cluster": {**raw["cluster"], "workers": 0}})


@pytest.mark.parametrize(
    ("stage", "unit"), [pytest.param("evaluation-lists", 1, marks=pytest.mark.long), ("select", 11), ("evaluate", 9)]
)
def test_stopped_run_goes_on(data: Path, undisturbed: Path, tmp_path: Path, stage: str, unit: int) -> None:
    job, folder = loaded(job_of(data, tmp_path)), tmp_path / "run"
    with pytest.raises(RunStoppedError):
        run_job(job, Stop(stage, unit))
    assert_goes_on(job, folder, undisturbed)


def assert_goes_on(job: Job, folder: Path, expected: Path) -> None:
    before = records(folder)
    result = run_job(job)
    after = records(folder)
    assert {name: after[name] for name in before} == before, "a recorded unit ran again"
    assert sum(result["recomputed"].values()) == n_planned_units(folder) - len(before)
    assert_same_outputs(folder, expected)
    assert run_job(job)["recomputed"] == {}


def test_what_is_lost_is_made_again(data: Path, undisturbed: Path, tmp_path: Path) -> None:
    """And nothing else: what it is made from, and what was made of it, is there."""
    folder = shutil.copytree(undisturbed, tmp_path / "run")
    job = loaded(job_of(data, tmp_path))
    lost = {
        "evaluation/orders/7.npz": "select",
        "evaluation/lists/0-0-1.npz": "evaluation-lists",
        "evaluation/sample/1.npz": "evaluation-sample",
        "evaluation/worlds/0.npz": "design",
        "evaluation.csv": "evaluation-tables",
    }
    for name in lost:
        (folder / name).unlink()
    lose_record(folder, "evaluate", 11)
    assert run_job(job)["recomputed"] == dict.fromkeys(["evaluate", *lost.values()], 1)
    assert_same_outputs(folder, undisturbed)


# --------------------------------------------------------------------------------------- the same bytes everywhere
@pytest.mark.parametrize("tiles", ["one tile"])
def test_same_bytes_for_any_tiles(data: Path, undisturbed: Path, tmp_path: Path, tiles: str) -> None:
    run_here(job_of(data, tmp_path, f"{tiles}.zarr"))
    assert_same_outputs(tmp_path / "run", undisturbed)


@pytest.mark.long
@pytest.mark.parametrize(
    ("workers", "threads"),
    [(2, 1), (1, 3)],
)
def test_same_bytes_for_any_number_of_workers(
    data: Path, undisturbed: Path, tmp_path: Path, workers: int, threads: int
) -> None:
    """And no stage takes, reads or writes more than it was planned to."""
    result = run(job_of(data, tmp_path, cluster={"workers": workers, "threads": threads, "memory_limit": "2GiB"}))
    assert_same_outputs(tmp_path / "run", undisturbed)
    if threads == 1:
        assert_as_planned(result["stages"], 6)


# ------------------------------------------------------------------------------------------------- planned and measured
ANEW = {"setting": "inductive", "n_splits": 2, "n_draws": 1, "n_selected": [10]}
PLANNED: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "tall": (
        "synthetic:mixture?n_samples=40000&n_features=48&n_classes=4&n_informative=8&seed=1",
        ["LaplacianScore", "KolmogorovSmirnovScore", {"name": "RLSR", "max_iter": 2}],
        {**ANEW, "labels": [0.2], "max_samples": 8000},
    ),
    "sparse": (
        "synthetic:sparse?n_samples=20000&n_features=4000&density=0.005&n_classes=4&n_informative=50&seed=1",
        ["LaplacianScore", "FisherScore", "SSelect"],
        {**ANEW, "n_splits": 3, "labels": [50], "max_samples": 10000},
    ),
    "wide": (
        "synthetic:mixture?n_samples=512&n_features=20000&n_classes=4&n_informative=50&seed=1",
        ["LaplacianScore", "FisherScore", "LSDF"],
        {**ANEW, "n_splits": 3, "setting": "both", "labels": [20], "n_selected": [10, 200]},
    ),
    "all rows": (
        "synthetic:mixture?n_samples=65536&n_features=64&n_classes=4&n_informative=8&seed=1",
        ["FisherScore", "VarianceScore"],
        {
            "setting": "transductive",
            "n_splits": 3,
            "n_selected": [60],
            "max_samples": 30000,
            "models": ["knn", "kmeans"],
        },
    ),
}
STAGES = (
    "design",
    "orders",
    "gather",
    "evaluation-sample",
    "evaluation-candidates",
    "evaluation-lists",
    "select",
    "evaluate",
    "evaluation-tables",
)
EVALUATIONS = {
    name: Case(source, methods, {"evaluate": evaluate}, of=STAGES)
    for name, (source, methods, evaluate) in PLANNED.items()
}


def assert_as_planned(stages: list[Row], n_stages: int) -> None:
    own = [stage for stage in stages if stage["name"] in STAGES]
    assert len(own) == n_stages
    for stage in own:
        assert 0 < stage["peak_bytes"] <= stage["planned_peak_bytes"], stage
        # files of a few rows are little but headers, and chunks of few rows are filled up
        assert stage["bytes_read"] <= 1.2 * stage["planned_bytes_read"] + 2**18, stage
        assert stage["bytes_written"] <= 1.1 * stage["planned_bytes_written"] + 2**18, stage


@pytest.mark.long
@pytest.mark.parametrize("shape", PLANNED)
def test_measured_peak_and_bytes(tmp_path: Path, shape: str) -> None:
    n_stages = {"all rows": 5, "tall": 6}.get(shape, 7)  # of more than two folds, candidates are found, too
    assert_as_planned(measured(tmp_path, EVALUATIONS[shape]), n_stages)


@pytest.mark.long
def test_rows_in_use_are_read_once_by_a_process(tmp_path: Path) -> None:
    """Not once in each of many units."""
    source, methods, _ = PLANNED["wide"]
    evaluate = {**ANEW, "setting": "both", "labels": [20], "baselines": False}
    settings = {"methods": methods[1:2], "cluster": {"workers": 1, "memory_limit": "4GiB"}}
    stages = {s["name"]: s for s in run(write_job(tmp_path, source, evaluate=evaluate, **settings))["stages"]}
    read = stages["select"]["bytes_read"] + stages["evaluate"]["bytes_read"]
    assert stages["select"]["units"] + stages["evaluate"]["units"] == 6
    assert read <= 1.2 * 512 * 20000 * 4
