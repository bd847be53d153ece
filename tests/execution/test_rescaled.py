"""Jobs of RLSR, SSUFS and DSSFS: killed, damaged, planned, measured and reported."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from daskfs import make_job as make_loaded
from daskfs import run_job
from daskfs.errors import RunStoppedError
from daskfs.execution.progress import Silent
from daskfs.job.job import Job
from daskfs.runs.status import plan_job, run_status
from daskfs.stages.stage import Stage
from tests.cli.command import daskfs, texts
from tests.events import read_events
from tests.execution.runs import (
    Stop,
    command,
    local_client,
    lose_record,
    n_planned_units,
    recorded,
    records,
    run,
    scale,
    started,
    wait_for_units,
    write_job,
)

pytestmark = pytest.mark.cluster

N_SAMPLES = 33_000
"""More than one part of the rows, which are summed in parts of 32,768."""
METHODS: list[Any] = [
    {"name": "RLSR", "gamma": 2000, "max_iter": 8},
    {"name": "SSUFS", "label": "spread out", "gamma": 2000, "max_iter": 4, "n_correlation_rows": 500},
    {"name": "RLSR", "label": "first", "gamma": 50, "max_iter": 2, "greedy_filter": True, "n_correlation_rows": 500},
    {"name": "DSSFS", "gamma": 2000, "max_iter": 3},
    {"name": "RLSR", "label": "products", "gamma": 2000, "solver": "cg", "max_iter": 1},
]
LOOPS = ("rescaled-zscore-cholesky", "rescaled-zscore-cholesky-dragged", "rescaled-zscore-cg")
FEW: dict[str, Any] = {"methods": METHODS[:3]}
OUTPUTS = ("ranking.csv", "selected_features.csv")


def make_data(folder: Path, n_samples: int = N_SAMPLES) -> Path:
    """Write X.npy, whose columns hang on the class of a row, and y.npy, with one row in 20 labeled."""
    rng = np.random.default_rng(0)
    classes = np.arange(n_samples) % 3
    X = rng.normal(size=(n_samples, 12)).astype(np.float32)
    X[:, :4] += rng.normal(size=(3, 4))[classes]
    X[:, 4] = X[:, 0] + 0.1 * X[:, 4]
    X[:, -1] = 1
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", np.where(rng.random(n_samples) < 0.05, classes, -1))
    return folder


def make_job(data: Path, folder: Path, **blocks: Any) -> Path:
    """Write a job on them; labels are no strings, so that -1 is no label."""
    job = {
        "data": {"source": str(data / "X.npy"), "labels": str(data / "y.npy"), "task": "classification"},
        "methods": METHODS,
        "evaluate": None,
        "select": {"n_features": 3, "redundancy": {"threshold": 0.9, "n_candidates": 8}},
        "cluster": {"workers": 2, "memory_limit": "1GiB"},
    }
    return write_job(folder, "replaced", **{**job, **blocks})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("rescaled-data"))


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("rescaled")
    run_job(loaded(make_job(data, folder, cluster={"workers": 0})))
    return folder / "run"


@pytest.fixture(scope="module")
def few(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for those methods alone that share one loop."""
    folder = tmp_path_factory.mktemp("few")
    run_job(loaded(make_job(data, folder, cluster={"workers": 0}, **FEW)))
    return folder / "run"


def assert_same_outputs(folder: Path, expected: Path) -> None:
    found = [str(path.relative_to(expected)) for path in expected.glob("solutions/*/found.json")]
    assert len(found) >= 3
    for name in (*found, *OUTPUTS):
        assert (folder / name).read_bytes() == (expected / name).read_bytes(), name


def events(folder: Path) -> list[tuple[str, int]]:
    return [(event["stage"], event["unit"]) for event in read_events(folder)]


# ---------------------------------------------------------------------------------------------- killed and damaged
@pytest.mark.long
def test_terminated_driver_says_75_and_status_the_round(data: Path, undisturbed: Path, tmp_path: Path) -> None:
    job, folder = make_job(data, tmp_path), tmp_path / "run"
    with started(job) as process:
        wait_for_units(process, "rescaled-solve-zscore-cholesky", 6)  # of three methods: two rounds
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 75, errors
    shown = subprocess.run(command("status", folder), capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("rescaled-solve-zscore-cholesky ")]
    (row,) = [r for r in run_status(str(folder))["stages"] if r["stage"] == "rescaled-solve-zscore-cholesky"]
    assert row["rounds"] >= 2
    assert (row["units"], row["seconds_left"]) == (3, None)
    assert line.endswith(f"{row['done']} of 3, round {row['rounds'] + 1}")
    result = run(job)
    assert (
        result["recomputed"]["rescaled-solve-zscore-cholesky"] == 3 * (rounds_of(folder) - row["rounds"]) - row["done"]
    )
    assert_same_outputs(folder, undisturbed)


def rounds_of(folder: Path, stage: str = "rescaled-solve-zscore-cholesky") -> int:
    manifest = json.loads((folder / "run.json").read_text())
    return int(next(s for s in manifest["stages"] if s["name"] == stage)["rounds"])


# ------------------------------------------------------------------------------------- stopped, harmed and gone on with
ROWS, SOLVE = (f"rescaled-{name}-zscore-cholesky" for name in ("rows", "solve"))
LABELS = ("RLSR", "spread out", "first")
STATES = "rescaled/zscore-cholesky/states"


def loaded(path: Path) -> Job:
    return make_loaded(yaml.safe_load(path.read_text()))


def stopped(data: Path, folder: Path, stage: str, unit: int, **blocks: Any) -> tuple[Job, Path]:
    """Run a job until a unit is done; return the job and where its run lies."""
    job = loaded(make_job(data, folder, cluster={"workers": 0}, **blocks))
    with pytest.raises(RunStoppedError):
        run_job(job, Stop(stage, unit))
    return job, folder / "run"


Halted = Callable[[str, int], tuple[Job, Path]]


@pytest.fixture(scope="module")
def halts(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], tuple[Job, Path]]:
    """Returns a stopped run of few methods, made once for all tests that stop one there."""
    return cache(lambda stage, unit: stopped(data, tmp_path_factory.mktemp("halted"), stage, unit, **FEW))


@pytest.fixture
def halted(data: Path, halts: Halted, tmp_path: Path) -> Halted:
    """Returns a job of few methods and a copy of its run that was stopped when a unit was done."""

    def copied(stage: str, unit: int) -> tuple[Job, Path]:
        shutil.copytree(halts(stage, unit)[1], tmp_path / "run")
        return loaded(make_job(data, tmp_path, cluster={"workers": 0}, **FEW)), tmp_path / "run"

    return copied


def assert_goes_on(job: Job, folder: Path, expected: Path) -> None:
    before, told = records(folder), events(folder)
    run_job(job)
    reported = events(folder)
    assert len(before) + sum(name not in before for name in records(folder)) == n_planned_units(folder)
    assert reported[: len(told)] == told
    assert len(set(reported)) == len(reported), "a recorded unit ran again"
    assert_same_outputs(folder, expected)


@pytest.mark.parametrize(
    ("stage", "unit"),
    [
        pytest.param(ROWS, 0, marks=pytest.mark.long),  # the first part of the first pass
        (ROWS, 2 * 4),  # of two parts: half of the fifth pass
        (SOLVE, 3 * 4 + 1),  # of three methods
        pytest.param(SOLVE, 3 * 4 + 2, marks=pytest.mark.long),
    ],
)
def test_stopped_run_goes_on(halted: Halted, few: Path, stage: str, unit: int) -> None:
    assert_goes_on(*halted(stage, unit), few)


@pytest.mark.parametrize(
    ("stage", "unit"), [("rescaled-solve-zscore-cg", 9), ("rescaled-rows-zscore-cholesky-dragged", 3)]
)
def test_stopped_run_of_other_loops_goes_on(
    data: Path, undisturbed: Path, tmp_path: Path, stage: str, unit: int
) -> None:
    assert_goes_on(*stopped(data, tmp_path, stage, unit), undisturbed)


def harmed(path: Path, harm: str) -> None:
    if harm == "lost":
        path.unlink()
        return
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content[:-9] if harm == "truncated" else content)


@pytest.mark.parametrize("harm", ["lost", pytest.param("truncated", marks=pytest.mark.long), "altered"])
def test_state_of_the_last_round_that_is_harmed(halted: Halted, few: Path, harm: str) -> None:
    """That round is made again, from the state before it, for the method whose state it is."""
    job, folder = halted(SOLVE, 3 * 5 - 1)
    assert sorted(path.name for path in (folder / STATES).iterdir()) == ["2", "3", "4"]
    harmed(folder / STATES / "4" / "spread out.npz", harm)
    before = recorded(folder, SOLVE)
    result = run_job(job)
    again = [unit for unit, found in recorded(folder, SOLVE).items() if before.get(unit, found) != found]
    assert again == [3 * 4 + 1]
    assert result["recomputed"][ROWS] == 2 * (rounds_of(folder) - 5)
    assert_same_outputs(folder, few)


def test_state_of_a_round_before_whose_sums_are_gone(halted: Halted, few: Path) -> None:
    """Both parts of the pass are made again, and one solution."""
    job, folder = halted(ROWS, 2 * 5)
    harmed(folder / STATES / "4" / "RLSR.npz", "lost")
    result = run_job(job)
    assert result["recomputed"][ROWS] == 2 + 2 * (rounds_of(folder) - 5) - 1
    assert result["recomputed"][SOLVE] == 1 + 3 * (rounds_of(folder) - 5)
    assert_same_outputs(folder, few)


LOST = {
    "sums": (["sums"], {ROWS: 8, SOLVE: 12}),
    "last states": (["states/3"], {ROWS: 2 + 7, SOLVE: 3 + 12}),
    "all states": (["states/2", "states/3"], {ROWS: 8 + 7, SOLVE: 24}),
    "gram": (
        ["gram"],
        {"rescaled-comoments-zscore-cholesky": 1, "rescaled-scale-zscore-cholesky": 1, ROWS: 7, SOLVE: 12},
    ),
    "scale and sums": (["scale/c/0/0", "sums"], {"rescaled-scale-zscore-cholesky": 1, ROWS: 8, SOLVE: 12}),
    "everything": (
        [""],
        {"rescaled-comoments-zscore-cholesky": 1, "rescaled-scale-zscore-cholesky": 1, ROWS: 16, SOLVE: 24},
    ),
}
QUICK = ("last states", "gram")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] * (n not in QUICK)) for n in LOST])
def test_loop_that_is_half_deleted(halted: Halted, few: Path, name: str) -> None:
    """Half into the fifth of eight passes."""
    lost, recomputed = LOST[name]
    job, folder = halted(ROWS, 2 * 4)
    for part in lost:
        path = folder / "rescaled/zscore-cholesky" / part
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    result = run_job(job)
    assert rounds_of(folder) == 8
    assert {stage: result["recomputed"].get(stage) for stage in recomputed} == recomputed
    assert_same_outputs(folder, few)


@pytest.mark.parametrize(
    "lost", ["scores/RLSR", "solutions/spread out/found.json", pytest.param("solutions/first", marks=pytest.mark.long)]
)
def test_finished_loop_whose_results_are_lost_runs_again(undisturbed: Path, tmp_path: Path, lost: str) -> None:
    """But not those of other methods, which share no pass with it; nothing of a loop is left before."""
    shutil.copytree(undisturbed, tmp_path / "run")
    folder = tmp_path / "run"
    raw = yaml.safe_load((undisturbed.parent / "job.yaml").read_text())
    job = make_loaded({**raw, "output": {"path": str(folder)}})
    assert not [path for path in (folder / "rescaled").rglob("*") if path.is_file()]
    assert run_job(job)["recomputed"] == {}
    shutil.rmtree(folder / lost) if (folder / lost).is_dir() else (folder / lost).unlink()
    recomputed = run_job(job)["recomputed"]
    assert recomputed[SOLVE] == 3 * rounds_of(folder)
    assert not [name for name in recomputed if name.endswith(("dragged", "cg"))]
    assert_same_outputs(folder, undisturbed)
    assert run_job(job)["recomputed"] == {}


def test_lost_record_of_an_old_round_is_no_matter(halted: Halted, few: Path) -> None:
    job, folder = halted(SOLVE, 3 * 5 - 1)
    lose_record(folder, ROWS, 2)
    lose_record(folder, SOLVE, 4)
    run_job(job)
    assert len(recorded(folder, SOLVE)) == 24 - 1
    assert_same_outputs(folder, few)
    assert run_job(job)["recomputed"] == {}


def test_another_job_in_the_same_place(halted: Halted, few: Path, tmp_path: Path) -> None:
    """A longer loop left more records: none of them counts."""
    job, folder = halted(SOLVE, 3 * 7 - 1)
    raw = yaml.safe_load((tmp_path / "job.yaml").read_text())
    other = make_loaded({**raw, "methods": [{"name": "RLSR", "gamma": 2000, "max_iter": 3}]})
    result = run_job(other, overwrite=True)
    assert rounds_of(folder) == result["solutions"]["RLSR"]["n_rounds"] == 3
    run_job(job, overwrite=True)
    assert_same_outputs(folder, few)


# ------------------------------------------------------------------------------------------------- what a run tells
def test_run_tells_of_rounds_and_solutions(undisturbed: Path) -> None:
    manifest = json.loads((undisturbed / "run.json").read_text())
    stages = {stage["name"]: stage for stage in manifest["stages"]}
    assert (stages[ROWS]["rounds"], stages[ROWS]["units"]) == (8, 16)
    assert (stages[SOLVE]["rounds"], stages[SOLVE]["units"]) == (8, 24)
    assert stages["score"]["rounds"] is None
    read = [record["bytes_read"] for record in recorded(undisturbed, ROWS).values()]
    assert stages[ROWS]["bytes_read"] == sum(read)
    for loop in LOOPS:
        for stage in (
            stage for name, stage in stages.items() if name.startswith(loop.replace("rescaled", "rescaled-rows"))
        ):
            assert stage["bytes_read"] <= stage["planned_bytes_read"]
            assert stage["bytes_written"] <= stage["planned_bytes_written"]
            assert stage["peak_bytes"] > 0  # of a process of many tests; test_memory_of_loops.py holds it to the plan
    found = manifest["solutions"]
    assert set(found) == {*LABELS, "DSSFS", "products"}
    assert [found[label]["n_iter"] for label in ("RLSR", "first", "products")] == [8, 2, 1]
    assert found["products"]["solver"] == "cg"
    assert found["products"]["n_rounds"] == stages["rescaled-solve-zscore-cg"]["rounds"] > 10
    assert found["spread out"]["correlation"]["n_rows"] == 500
    assert found["first"]["correlation"]["correlation"] == "exact"
    for label, facts in found.items():
        assert len(facts["objective"]) == facts["n_iter"] + (label == "spread out")
        assert np.all(np.diff(facts["objective"]) <= 0)
        assert not facts["converged"]
        (warning,) = [text for text in texts(manifest) if text.startswith(f"method {label}: ")]
        assert "had not settled" in warning


def test_report_tells_of_solutions(undisturbed: Path) -> None:
    page = (undisturbed / "report.html").read_text(encoding="utf-8")
    for text in ("Updates of targets", "conjugate gradients", "Dashed: the objective of RLSR", "in 8 rounds"):
        assert text in page
    assert page.count("Objective by round of") == 2 * len(METHODS)  # for eyes and for ears


def test_status_of_a_finished_run(undisturbed: Path) -> None:
    rows = {row["stage"]: row for row in run_status(str(undisturbed))["stages"]}
    assert (rows[SOLVE]["done"], rows[SOLVE]["units"], rows[SOLVE]["rounds"]) == (3, 3, 8)
    assert rows[SOLVE]["seconds_left"] == 0
    assert rows[SOLVE]["seconds"] > 0
    assert "rounds" not in rows["score"]


def test_plan_says_what_is_repeated(data: Path, tmp_path: Path) -> None:
    job = make_job(data, tmp_path, cluster={"workers": 0})
    planned = plan_job(loaded(job))
    assert [loop["name"] for loop in planned["loops"]] == list(LOOPS)
    # RLSR's updates of the targets, and as many of SSUFS, and after each of 100 halvings and without any pull
    assert [loop["max_rounds"] for loop in planned["loops"]] == [4 + 102 * 3, 3, None]
    assert planned["loops"][0]["stages"] == [ROWS, SOLVE]
    text = daskfs("plan", job).out
    assert f"loop {LOOPS[1]}: its 2 stages run in turn until every method has settled, in 3 rounds at most" in text
    assert f"loop {LOOPS[2]}: its 2 stages run in turn until every method has settled, in as many rounds as" in text


@pytest.mark.parametrize("gamma", [1.0, 3000.0])
def test_rounds_stay_below_the_bound(tmp_path: Path, gamma: float) -> None:
    """Where eta is halved many times."""
    data = make_data(tmp_path, 500)
    methods = [{"name": "SSUFS", "gamma": gamma, "eta": 1e12, "max_iter": 4, "tol": 0}]
    result = run_job(loaded(make_job(data, tmp_path, methods=methods, cluster={"workers": 0}, evaluate=None)))
    found = result["solutions"]["SSUFS"]
    assert found["halvings"] > 3
    assert found["eta_used"] == found["eta"] / 2 ** found["halvings"]
    assert 4 <= found["n_rounds"] <= 4 + 3 * (found["halvings"] + 1)
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert f"eta was halved {found['halvings']} times" in page


def test_methods_that_settle_end_sooner(tmp_path: Path) -> None:
    """What they wrote does not change when others go on."""
    data = make_data(tmp_path, 2000)
    raw = {"cluster": {"workers": 0}, "evaluate": None, "select": {"n_features": 3}}
    methods = [
        {"name": "RLSR", "gamma": 100, "max_iter": 2},
        {"name": "RLSR", "label": "long", "gamma": 100, "max_iter": 9, "tol": 0},
    ]
    alone = run_job(loaded(make_job(data, tmp_path / "alone", methods=methods[:1], **raw)))
    both = run_job(loaded(make_job(data, tmp_path / "both", methods=methods, **raw)))
    assert (alone["solutions"]["RLSR"]["n_rounds"], both["solutions"]["RLSR"]["n_rounds"]) == (2, 9)
    assert both["solutions"]["RLSR"] | {"n_rounds": 0} == alone["solutions"]["RLSR"] | {"n_rounds": 0}


@pytest.mark.long
def test_workers_that_join_and_leave_between_rounds(data: Path, few: Path, tmp_path: Path) -> None:
    """Rows go to other workers then, and no bit changes."""

    class Rescale(Silent):
        def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
            del facts
            if (stage.name, unit) in changes:
                scale(client, changes[stage.name, unit])

    changes = {(SOLVE, 3 * 1): 2, (ROWS, 2 * 3): 3, (ROWS, 2 * 5): 1}
    with local_client(1) as client:
        job = loaded(make_job(data, tmp_path, cluster={"address": client.scheduler.address}, **FEW))
        run_job(job, Rescale())
    processes = {record["process"] for record in recorded(tmp_path / "run", ROWS).values()}
    assert len(processes) >= 2
    assert_same_outputs(tmp_path / "run", few)
