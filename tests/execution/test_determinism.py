"""Workers, threads, the order of units, tiles and slabs change no bit of any method's scores, ranking or evaluation."""

from __future__ import annotations

import csv
import dataclasses
import os
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import yaml
import zarr

from daskfs import make_job, run_job
from daskfs.criteria.registry import criteria
from daskfs.execution import submission
from daskfs.kernels.labels import Task
from daskfs.kernels.statistics.moments import cell_rows
from daskfs.plan import chain
from daskfs.runs import tiles as planned_tiles
from daskfs.store.shape import Shape
from daskfs.tiles.shapes import plan_shape
from tests.events import read_events
from tests.execution.runs import local_client, write_job

pytestmark = pytest.mark.cluster

N_SAMPLES, N_FEATURES = 1500, 72
TASKS: tuple[Task, ...] = ("classification", "regression")
FORMS = ("dense", "sparse", "incomplete", "weighted")
"""Values are missing in incomplete data, and features are scored from the rows that have them; rows of weighted data
have weights.
"""
JOBS = [(form, task) for form in FORMS for task in TASKS]
QUICK = ("dense", "regression")
Tile = tuple[int, int]
ONE_TILE = (N_SAMPLES, N_FEATURES)
ODD = (333, 40)
"""Chunks of rows that are no power of two, which serve where they lie."""
LABELED = 0.06
EVALUATE = {"setting": "transductive", "n_splits": 2, "n_selected": [3, 9], "models": ["knn"]}
ROUNDS: dict[str, Any] = {"max_iter": 4, "gamma": 20}
ELIMINATED: dict[str, Any] = {"step": 0.5, "n_singly": 2}
SETTINGS: dict[str, dict[str, Any]] = {
    "RLSR": ROUNDS,
    "DSSFS": ROUNDS,
    "SSUFS": {**ROUNDS, "n_correlation_rows": 200},
    "SVMRFE": ELIMINATED,
    "RRPC": {"n_candidates": 30},
}
MARKS: dict[str, Any] = {**ELIMINATED, "name": "SVMRFE", "large_n": "landmarks", "n_landmarks": 30}
MORE: dict[Task, list[dict[str, Any]]] = {
    "classification": [
        {"name": "LaplacianScore", "label": "unit rows", "score_scaling": "unit"},
        {"name": "LaplacianScore", "label": "components", "graph_scaling": "zscore+pca=5"},
        {"name": "LaplacianScore", "label": "tested", "graph_scaling": "zscore", "significance": True},
        {"name": "LSDF", "label": "tested pairs", "significance": True},
        {"name": "FisherScore", "label": "zscore", "score_scaling": "zscore"},
        {"name": "SSelect", "label": "auto", "trade_off": "auto", "n_cut_features": 20},
        {**ROUNDS, "name": "RLSR", "label": "woodbury", "solver": "woodbury"},
        {"name": "RLSR", "label": "cg", "solver": "cg", "max_iter": 1, "gamma": 2000},
        {**ROUNDS, "name": "SSUFS", "label": "products", "correlation": "matrix_free", "n_correlation_rows": 200},
        {**MARKS, "label": "landmarks"},
        {**MARKS, "label": "graph", "laplacian": True},
        {**ELIMINATED, "name": "SVMRFE", "label": "bound", "criterion": "rmb", "retrain": True},
    ],
    "regression": [
        {"name": "RRPC", "label": "scaled", "score_scaling": "unit", "n_candidates": 30},
        {"name": "SupervisedLaplacianScore", "label": "tested", "significance": True},
        {"name": "PearsonScore", "label": "tested pairs", "significance": True},
    ],
}
"""Other routes of a criterion, which its parameters choose."""


def methods(task: Task, form: str) -> list[dict[str, Any]]:
    """Return every method of the registry that serves a task and data, and what else some of them may do."""
    every = [{"name": name, **SETTINGS.get(name, {})} for name, row in criteria().items() if task in row.tasks]
    every += [m for m in MORE[task] if form not in ("incomplete", "weighted") or "significance" not in m]
    if form != "incomplete":
        return every
    return [m for m in every if not criteria()[m["name"]].is_joint and "pca" not in m.get("graph_scaling", "")]


def matrix(form: str) -> np.ndarray:
    """Return columns of which the first hang on the row's class, one is constant and one far from the origin, of which
    sums round in every order differently; for CSR most values are 0.
    """
    rng = np.random.default_rng(0)
    classes, strength = np.arange(N_SAMPLES)[:, None] % 3, np.linspace(0.1, 2, 20)
    if form != "sparse":
        X = rng.normal(size=ONE_TILE) + 0.5 * rng.normal(size=(N_SAMPLES, 1))
        X[:, 21] += 1000
        X[:, 22:30] = np.round(X[:, 22:30])
    else:
        X = rng.gamma(2.0, size=ONE_TILE) * (rng.random(ONE_TILE) < 0.3)
    X[:, :20] += classes * strength * (X[:, :20] != 0)
    X[:, 20] = 3
    if form == "incomplete":
        X[:, ::2][rng.random((N_SAMPLES, N_FEATURES // 2)) < 0.1] = np.nan
        X[300:900, 30:40] = np.nan  # as from a device that did not measure these for a while
    return X.astype(np.float32)


def target(task: Task) -> np.ndarray:
    known = np.random.default_rng(1).random(N_SAMPLES) < LABELED
    if task == "classification":
        return np.where(known, np.arange(N_SAMPLES) % 3, -1)
    X = matrix("dense")
    return np.where(known, X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.1 * X[:, 2], np.nan)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with X as files and as odd chunks, and labels."""
    folder = tmp_path_factory.mktemp("data")
    for form in ("dense", "incomplete", "weighted"):
        np.save(folder / f"{form}.npy", matrix(form))
    np.save(folder / "weights.npy", np.random.default_rng(2).uniform(size=N_SAMPLES) * (np.arange(N_SAMPLES) % 9 > 0))
    sp.save_npz(folder / "sparse.npz", sp.csr_matrix(matrix("sparse")))
    zarr.create_array(folder / "odd.zarr", shape=ONE_TILE, dtype="f4", chunks=ODD)[...] = matrix("dense")
    for task in TASKS:
        np.save(folder / f"{task}.npy", target(task))
    return folder


# -------------------------------------------------------------------------------------------------- ways to run a job
def forwards(units: Iterable[int]) -> list[int]:
    return list(units)


def backwards(units: Iterable[int]) -> list[int]:
    return list(units)[::-1]


def shuffled(units: Iterable[int]) -> list[int]:
    found = list(units)
    random.Random(7).shuffle(found)
    return found


SOURCES = {"dense": "dense.npy", "sparse": "sparse.npz", "incomplete": "incomplete.npy", "weighted": "weighted.npy"}


@dataclasses.dataclass(frozen=True)
class Way:
    """How a job runs: how X is cut, the columns of a slab, the order of the units of each stage, and on what."""

    tile: Tile = ONE_TILE
    slab_columns: int = N_FEATURES
    order: Callable[[Iterable[int]], list[int]] = forwards
    threads: int = 1


COLUMNS = Way((N_SAMPLES, 17), 17, backwards)
BANDS = Way((1024, N_FEATURES), 24, forwards, threads=3)
BOTH = Way((1024, 32), 64, shuffled)
WAYS = {"columns, backwards": COLUMNS, "bands, three threads": BANDS}
"""Bands as plans cut them: their rows are a power of two, and of 72 dense columns no fewer than 1024."""


@contextmanager
def cut_and_ordered(way: Way) -> Iterator[set[str]]:
    """Let jobs be planned and run that way within the block, in which the stages of several units are noted."""
    several: set[str] = set()
    run_stage = submission.run_stage

    def ordered(context: Any, stage: Any, units: Iterable[int], *others: Any) -> None:
        found = way.order(units)
        if len(found) > 1:
            several.add(stage.name)
        run_stage(context, stage, found, *others)

    def cut(*arguments: Any) -> Shape:
        return dataclasses.replace(plan_shape(*arguments), tile_rows=way.tile[0], tile_columns=way.tile[1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submission, "run_stage", ordered)
        patch.setattr(planned_tiles, "plan_shape", cut)
        for name in ("slab_columns", "scored_columns"):
            patch.setattr(chain, name, lambda *_, **__: way.slab_columns)
        yield several


def ran(folder: Path, data: Path, source: str, task: Task, way: Way, **cluster: Any) -> Path:
    """Run the job of all methods in a folder and return where the run lies."""
    form, select = Path(source).stem, dict[str, Any]({"n_features": 5})
    if form != "incomplete":
        select["redundancy"] = {"threshold": 0.9, "n_candidates": 12}
    path = write_job(
        folder,
        "replaced",
        data={
            "source": str(data / source),
            "labels": str(data / f"{task}.npy"),
            "task": task,
            "missing": "pairwise" if form == "incomplete" else "refuse",
            "weights": str(data / "weights.npy") if form == "weighted" else None,
        },
        transform={"graph": "zscore"},
        graph={"n_neighbors": 6},
        methods=methods(task, form),
        evaluate=EVALUATE,
        select=select,
        cluster=cluster or {"workers": 0, "threads": way.threads},
    )
    with cut_and_ordered(way) as several:
        run_job(make_job(yaml.safe_load(path.read_text())))
    if way.slab_columns < N_FEATURES:
        joint = {"svm-judge"} if task == "regression" else set()
        assert {"score", "svm-judge", "evaluate", "filter"} - several <= (
            {"svm-judge", "filter"} if form == "incomplete" else joint
        )
    return folder / "run"


FOUND = ("*.csv", "solutions/*/*.json", "trade_offs/*.json")
"""Tables, and what some methods tell beside their scores."""


def scores(run: Path) -> dict[str, np.ndarray]:
    """Return the whole table of every method."""
    found: dict[str, Any] = {path.name: zarr.open_array(path)[...] for path in (run / "scores").iterdir()}
    assert len(found) >= len(criteria()) // 3
    return found


def assert_same_bits(run: Path, expected: Path) -> None:
    found, wanted = scores(run), scores(expected)
    assert found.keys() == wanted.keys()
    assert [label for label, table in wanted.items() if found[label].tobytes() != table.tobytes()] == []
    names = [str(path.relative_to(expected)) for pattern in FOUND for path in expected.glob(pattern)]
    dropped = {"dropped_features.csv"} if "RRPC" in wanted else set()
    assert {"ranking.csv", "selected_features.csv", "evaluation.csv"} | dropped < set(names)
    assert [name for name in names if (run / name).read_bytes() != (expected / name).read_bytes()] == []


Plain = Callable[[str, Task], Path]


@pytest.fixture(scope="module")
def plain(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """Return the run of one tile, one slab, one process and one thread."""
    found: dict[tuple[str, Task], Path] = {}

    def run(form: str, task: Task) -> Path:
        if (form, task) not in found:
            found[form, task] = ran(tmp_path_factory.mktemp(f"{form}-{task}"), data, SOURCES[form], task, Way())
        return found[form, task]

    return run


# ------------------------------------------------------------------------------------------------- the same to the bit
CUT = [
    *((*job, way) for job in (QUICK, ("dense", "classification")) for way in WAYS),
    *((form, task, way) for form in FORMS[1:] for task, way in zip(TASKS, WAYS, strict=True)),
]
"""Each form of data and each task in both ways; workers run every job cut both ways at once."""


LONG = (pytest.mark.long,)
RARE = (pytest.mark.long, pytest.mark.release)
MARKS_OF: dict[Any, Any] = {QUICK: (), ("dense", "classification"): RARE, ("weighted", "classification"): RARE}


@pytest.mark.parametrize(
    ("form", "task", "way"), [pytest.param(*job, marks=MARKS_OF.get(job[:2], LONG)) for job in CUT]
)
def test_tiles_slabs_threads_and_orders(
    data: Path, plain: Plain, tmp_path: Path, form: str, task: Task, way: str
) -> None:
    assert cell_rows(N_FEATURES, sparse=False) == 1024, "bands here are not what a plan may cut"
    run = ran(tmp_path, data, SOURCES[form], task, WAYS[way])
    assert_same_bits(run, plain(form, task))


def processes(run: Path) -> set[int]:
    """Return which processes ran units, but this one."""
    return {event["process"] for event in read_events(run)} - {os.getpid()}


@pytest.mark.long
@pytest.mark.parametrize(("form", "task"), JOBS)
def test_two_workers(data: Path, plain: Plain, tmp_path: Path, form: str, task: Task, two_workers: str) -> None:
    run = ran(tmp_path, data, SOURCES[form], task, BOTH, address=two_workers)
    assert len(processes(run)) == 2
    assert_same_bits(run, plain(form, task))


@pytest.mark.long
def test_four_workers(data: Path, plain: Plain, tmp_path: Path) -> None:
    with local_client(4) as client:
        for task in TASKS:
            address = client.scheduler.address
            run = ran(tmp_path / task, data, SOURCES["dense"], task, BOTH, address=address)
            assert len(processes(run)) == 4
            assert_same_bits(run, plain("dense", task))


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_one_worker_that_the_run_starts(data: Path, plain: Plain, tmp_path: Path, task: Task) -> None:
    """With two threads, which share a process and what it holds."""
    cluster = {"workers": 1, "threads": 2, "memory_limit": "2GiB"}
    run = ran(tmp_path, data, SOURCES["dense"], task, BOTH, **cluster)
    assert len(processes(run)) == 1
    assert_same_bits(run, plain("dense", task))


# -------------------------------------------------------------------------------------------------- nearly the same
def ranks(run: Path) -> dict[str, list[str]]:
    """Return the features of every method in order."""
    found: dict[str, list[str]] = {}
    with (run / "ranking.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["method"], []).append(row["feature"])
    return found


AMPLIFIED = ("RLSR", "DSSFS", "SSUFS", "SVMRFE")
"""Methods that iterate: what they return hangs on the last bits of X's scale by more than a rounding."""


@pytest.mark.parametrize("task", [pytest.param("classification", marks=pytest.mark.long), "regression"])
def test_chunks_of_other_heights_rank_the_same(data: Path, plain: Plain, tmp_path: Path, task: Task) -> None:
    """Where chunks serve in place whose rows are no power of two, or too few, the standard deviations of columns, by
    which z-scores divide, round differently: methods of scores without them give the same bits, others the same order.
    """
    expected = plain("dense", task)
    run = ran(tmp_path, data, "odd.zarr", task, Way(slab_columns=24))
    assert ranks(run) == ranks(expected)
    found, wanted = scores(run), scores(expected)
    names = {method.get("label", method["name"]): method for method in methods(task, "dense")}
    for label, table in wanted.items():
        method = names[label]
        tolerance = 1e-2 if method["name"] in AMPLIFIED else 1e-13
        np.testing.assert_allclose(found[label], table, rtol=tolerance, atol=tolerance, err_msg=label)
        if not criteria()[method["name"]].uses_graph and "score_scaling" not in method and tolerance < 1e-6:
            assert found[label].tobytes() == table.tobytes(), label


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_dense_and_sparse_rows(data: Path, plain: Plain, tmp_path: Path, task: Task) -> None:
    np.save(tmp_path / "sparse.npy", matrix("sparse"))
    (tmp_path / f"{task}.npy").symlink_to(data / f"{task}.npy")
    dense, sparse = scores(ran(tmp_path / "dense", tmp_path, "sparse.npy", task, Way())), scores(plain("sparse", task))
    for label, table in sparse.items():
        # conjugate gradients that stop early amplify rounding up to what they leave, and so do machines over landmarks
        # that are nearly copies: a change of X in the last bit does as much; Cholesky factors keep to 1e-10
        tolerance = 1e-4 if label in ("cg", "landmarks", "graph") else 1e-10
        np.testing.assert_allclose(table, dense[label], rtol=tolerance, atol=tolerance, err_msg=label)
