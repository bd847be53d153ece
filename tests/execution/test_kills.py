"""Runs in which everything is killed that can be, in every stage, end with the same bytes and repeat only what was in
flight.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import psutil
import pytest
import zarr
from distributed import Client

from daskfs.execution.pool import Pool
from daskfs.stages.kind import all_kinds, name_of
from daskfs.store import layout
from daskfs.store.records import Record
from daskfs.store.store import Store, remove_unfinished
from tests.events import read_events
from tests.execution.damage import verified
from tests.execution.halting import EVERY, FOLDER_KEY, MOMENTS, n_executing, n_tasks
from tests.execution.measured import apart
from tests.execution.runs import command, records, run_here, wait_for_end, worker_processes, write_job

pytestmark = pytest.mark.cluster

N_SAMPLES, N_FEATURES = 3000, 16
RANKED: list[Any] = [
    "LaplacianScore",
    {"name": "LaplacianScore", "label": "components", "graph_scaling": "zscore+pca=6"},
    {"name": "LaplacianScore", "label": "tested", "significance": True},
    {"name": "SSelect", "label": "auto", "trade_off": "auto", "n_cut_features": 3},
    {"name": "RRPC", "n_candidates": 8},
    {"name": "RLSR", "gamma": 2000, "max_iter": 3},
    {"name": "SSUFS", "gamma": 2000, "max_iter": 2, "n_correlation_rows": 200},
    {"name": "SVMRFE", "label": "exact", "large_n": "exact", "step": 0.5, "n_singly": 2},
    {"name": "SVMRFE", "label": "landmarks", "large_n": "landmarks", "n_landmarks": 15, "step": 0.5, "n_singly": 2},
]
ONE_ROUND_MORE = ("rescaled-rows", "rescaled-solve", "svm-judge", "svm-drop", "svm-sums", "svm-solve")
"""Functions of loops, which are halted in the second round as well."""
IN_NO_JOB = {"given", "distance-maps", "entries"}
SECONDS = 240
"""How long anything may take; nothing waits that long where all goes well."""
N_WORKERS = 2


# ----------------------------------------------------------------------------------------------------------- the jobs
def make_data(folder: Path, seed: int = 0) -> None:
    """Write X in three bands and two columns of tiles, with labels of few rows and a target of few others."""
    rng = np.random.default_rng(seed)
    classes = np.arange(N_SAMPLES) % 3
    X = rng.normal(size=(N_SAMPLES, N_FEATURES)).astype(np.float32)
    X[:, :6] += 1.5 * rng.normal(size=(3, 6))[classes]
    X[:, 6] = X[:, 0] + 0.1 * X[:, 6]
    incomplete = np.where(rng.random(X.shape) < 0.02, np.nan, np.exp(X)).astype(X.dtype)
    for name, values in (("X.zarr", X), ("incomplete.zarr", incomplete)):
        zarr.create_array(folder / name, shape=X.shape, dtype=X.dtype, chunks=(N_SAMPLES // 3, 8))[...] = values
    np.save(folder / "rep.npy", X[:, :4] @ rng.normal(size=(4, 3)))
    np.save(folder / "batch.npy", np.arange(N_SAMPLES) % 2)
    np.save(folder / "classes.npy", np.where(rng.random(N_SAMPLES) < 0.1, classes, -1))
    np.save(folder / "target.npy", np.where(rng.random(N_SAMPLES) < 0.2, X[:, 0] + X[:, 1], np.nan))


def ranked_job(data: Path, folder: Path, **blocks: Any) -> Path:
    """A job of an approximate search, every kind of method, a filter, images, and an evaluation that ranks anew."""
    job = {
        "data": {
            "source": str(data / "X.zarr"),
            "labels": str(data / "classes.npy"),
            "task": "classification",
            "image_shape": [4, 4],
        },
        "methods": RANKED,
        "graph": {"engine": "cells"},
        "select": {"n_features": 4, "redundancy": {"measure": "distance_correlation", "n_candidates": 6}},
        "evaluate": {
            "setting": "both",
            "labels": [8],
            "n_draws": 1,
            "n_splits": 2,
            "n_selected": [3],
            "max_samples": 200,
        },
        "cluster": {"workers": N_WORKERS, "memory_limit": "2GiB"},
    }
    return write_job(folder, "replaced", **{**job, **blocks})


def target_job(data: Path, folder: Path, **blocks: Any) -> Path:
    """A job on a target, of values of which some are missing, transformed: an exact search by what both rows have,
    lists by target and mixed ones, features scored from the rows that have them, and an evaluation of the run's
    rankings.
    """
    job = {
        "data": {
            "source": str(data / "incomplete.zarr"),
            "labels": str(data / "target.npy"),
            "task": "regression",
            "missing": "pairwise",
        },
        "transform": {"graph": "total+log1p+zscore", "score": "log1p+unit"},
        "methods": ["SemiSupervisedLaplacianScore", "PearsonScore"],
        "select": {"n_features": 4},
        "evaluate": {"setting": "transductive", "n_selected": [3], "n_splits": 2, "max_samples": 200},
        "cluster": {"workers": N_WORKERS, "memory_limit": "2GiB"},
    }
    return write_job(folder, "replaced", **{**job, **blocks})


def batched_job(data: Path, folder: Path, **blocks: Any) -> Path:
    """A job on batches, each with a run of its own."""
    job = {
        "data": {
            "source": str(data / "X.zarr"),
            "labels": str(data / "classes.npy"),
            "task": "classification",
            "batch": str(data / "batch.npy"),
        },
        "methods": ["LaplacianScore", "FisherScore"],
        "select": {"n_features": 4},
        "evaluate": {"setting": "transductive", "n_selected": [3], "n_splits": 2, "max_samples": 200},
        "cluster": {"workers": N_WORKERS, "memory_limit": "2GiB"},
    }
    return write_job(folder, "replaced", **{**job, **blocks})


def compared_job(data: Path, folder: Path, **blocks: Any) -> Path:
    """A job whose graph is of another representation of the rows, a consensus of its methods, and folds that share one
    search.
    """
    job = {
        "data": {"source": str(data / "X.zarr"), "labels": str(data / "classes.npy"), "task": "classification"},
        "methods": [{"name": "LaplacianScore", "t": "median"}, "VarianceScore"],
        "consensus": True,
        "graph": {"use_rep": str(data / "rep.npy")},
        "select": {"n_features": 4},
        "evaluate": {"n_selected": [3], "n_splits": 3, "max_samples": 200},
        "cluster": {"workers": N_WORKERS, "memory_limit": "2GiB"},
    }
    return write_job(folder, "replaced", **{**job, **blocks})


JOBS: dict[str, Callable[..., Path]] = {
    "ranked": ranked_job,
    "target": target_job,
    "batched": batched_job,
    "compared": compared_job,
}


class Undisturbed:
    """Data, the run of each job that nobody disturbed, and the points where others are."""

    def __init__(self, folder: Path) -> None:
        self.data = folder
        make_data(folder)

    def run(self, name: str) -> Path:
        """Return the directory of the run of a job."""
        folder = self.data / name
        if not folder.exists():
            run_here(JOBS[name](self.data, folder))
        return folder / "run"

    def functions(self, name: str) -> list[str]:
        """Return the functions of all stages of a job, in the order in which they begin on one worker."""
        plans = [json.loads((self.run(name) / place / "plan.json").read_text()) for place in ("tiles", ".")]
        stages = [stage for plan in plans for stage in plan["stages"]]
        begun = [
            one
            for stage in stages
            if not stage["begins_with"]
            for one in (*(other for other in stages if other["begins_with"] == stage["name"]), stage)
        ]
        assert len(begun) == len(stages)
        return list(dict.fromkeys(name_of(stage["kind"]) for stage in begun))

    def points(self, name: str) -> list[str]:
        """Return the points of a job, in their order; of later jobs those that no earlier one has."""
        found = self.functions(name)
        if name != "ranked":
            earlier = {f for job in list(JOBS)[: list(JOBS).index(name)] for f in self.functions(job)}
            return [function for function in found if function not in earlier]
        points = [p for f in found for p in ((f, f"{f}.2") if f in ONE_ROUND_MORE else (f,))]
        return sorted(points, key=lambda point: _place(point, found))


def _place(point: str, functions: list[str]) -> tuple[int, int, int]:
    """Return where a point comes: second rounds after the first of all stages of their loop."""
    function, _, again = point.partition(".")
    place = functions.index(function)
    first = place - place_in_loop(function)
    return (first if function in ONE_ROUND_MORE else place), int(bool(again)), place


def place_in_loop(function: str) -> int:
    return ONE_ROUND_MORE.index(function) % 2 if function in ONE_ROUND_MORE else 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(tmp_path_factory.mktemp("kills"))


def outputs(folder: Path) -> dict[str, bytes]:
    """Return every table of a run."""
    found = {path.name: path.read_bytes() for path in folder.glob("*.csv")}
    assert {"ranking.csv", "selected_features.csv", "evaluation.csv"} <= found.keys()
    return found


def left_over(folder: Path) -> list[str]:
    """Return what should have gone: files that were never put in place, spills, and the states of loops."""
    hidden = [path for path in folder.rglob(".*") if path.name not in layout.OWNERSHIP]
    partial = list(folder.rglob("*.partial"))
    served = [
        p
        for name in ("spill", "rescaled", "svm", "comoments", "binned", "distances")
        for p in (folder / name).rglob("*")
    ] + list(folder.glob("pca/*/sums/*"))
    return [str(path.relative_to(folder)) for path in (*hidden, *partial, *served) if path.is_file()]


# ------------------------------------------------------------------------------------------------ halting and killing
class Halts:
    """Where the processes of a run halt: see :mod:`tests.execution.halting`."""

    def __init__(self, folder: Path, moment: str) -> None:
        folder.mkdir(parents=True)
        self.folder, self.moment = folder, moment
        self.want("")
        (folder / "starts").touch()

    @property
    def environment(self) -> dict[str, str]:
        path = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, FOLDER_KEY: str(self.folder), "PYTHONPATH": os.pathsep.join(filter(None, path))}

    def want(self, point: str) -> None:
        """Halt at another point from now on."""
        temporary = self.folder / "wanted.next"
        temporary.write_text(f"{point} {self.moment}")
        temporary.replace(self.folder / "wanted")

    def wait_for(self, point: str, process: Process) -> int:
        """Wait until somebody has halted at a point; return the process."""
        return int(wait_until(lambda: self.read(point), process, f"it came to {point}"))

    def read(self, point: str) -> str:
        try:
            return (self.folder / point).read_text()
        except FileNotFoundError:
            return ""

    def let_go(self, point: str) -> None:
        (self.folder / f"{point}.go").touch()

    def reached(self) -> set[str]:
        """Return the points where anybody has halted."""
        names = {path.name for path in self.folder.iterdir()}
        return {name for name in names if f"{name}.taken" in names}

    def starts(self) -> Counter[str]:
        """Return how often each unit began."""
        return Counter((self.folder / "starts").read_text().splitlines())


def wait_until(condition: Callable[..., Any], process: Process | None, what: str) -> Any:
    """Wait for something that processes do, and not longer than one of them lives."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if found := condition():
            return found
        if process is None:
            threading.Event().wait(0.02)
            continue
        try:
            process.wait(timeout=0.02)
        except subprocess.TimeoutExpired:
            continue
        if found := condition():
            return found
        msg = f"the run ended with {process.returncode} before {what}: {errors_of(process)}"
        raise AssertionError(msg)
    msg = f"{SECONDS} s went by before {what}"
    raise AssertionError(msg)


def errors_of(process: Process) -> str:
    assert process.stderr is not None
    return process.stderr.read()


@contextlib.contextmanager
def halting_run(job: Path, halts: Halts, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Start a job that halts, in a process group of its own; whatever is left of it afterwards is ended."""
    words = [sys.executable, "-m", "tests.execution.halting", "run", str(job), "-q", *map(str, arguments)]
    with subprocess.Popen(
        words,
        env=halts.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                kill_everything(process)


class Forked:
    """A process that another one has started for this one."""

    def __init__(self, pid: int, errors: Path, ended: Path) -> None:
        self.pid, self._errors, self._ended = pid, errors, ended
        self.returncode: int | None = None

    @property
    def stderr(self) -> IO[str]:
        """What it has written."""
        return self._errors.open()

    def poll(self) -> int | None:
        """Return how it ended, None while it lives."""
        if self.returncode is None and self._ended.exists():
            self.returncode = int(self._ended.read_text())
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end."""
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                msg = "fork"
                raise subprocess.TimeoutExpired(msg, timeout)
            threading.Event().wait(0.005)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL it."""
        self.send_signal(signal.SIGKILL)


class Forks:
    """Starts processes by forks of one that has imported everything: it spares a second and more for each."""

    def __init__(self, halts: Halts) -> None:
        self.folder = halts.folder
        self.started: list[Forked] = []
        words = [sys.executable, "-m", "tests.execution.halting", "serve"]
        environment = {**halts.environment, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.server = subprocess.Popen(
            words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Forks:
        return self

    def start(self, program: str, *arguments: object) -> Forked:
        """Start the main function of a module, with the arguments of a command line."""
        number = len(self.started)
        paths = {name: str(self.folder / f"{name}-{number}") for name in ("errors", "ended")}
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        request = {"program": program, "arguments": list(map(str, arguments)), **paths}
        self.server.stdin.write(json.dumps(request) + "\n")
        process = Forked(int(self.server.stdout.readline()), Path(paths["errors"]), Path(paths["ended"]))
        self.started.append(process)
        return process

    def __exit__(self, *problem: object) -> None:
        for process in self.started:
            process.kill()
            process.wait(SECONDS)
        self.server.communicate()


Process = subprocess.Popen[str] | Forked


def kill_everything(process: subprocess.Popen[str]) -> None:
    """SIGKILL a driver with all that it started."""
    everything = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for one in everything:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    _, alive = psutil.wait_procs(everything[:-1], timeout=SECONDS)
    assert not alive
    process.wait(timeout=SECONDS)


class Chain:
    """One output directory over which a job is started again and again."""

    def __init__(self, undisturbed: Undisturbed, name: str, folder: Path, moment: str, **blocks: Any) -> None:
        self.undisturbed, self.name, self.folder = undisturbed, name, folder / name
        self.halts = Halts(folder / f"halts-{name}", moment)
        self.job = JOBS[name](undisturbed.data, self.folder, **blocks)
        self.run = self.folder / "run"
        self.n_kills = 0
        self.forks: Forks | None = None

    @contextlib.contextmanager
    def started(self) -> Iterator[Process]:
        """Start the job."""
        if self.forks is not None:
            yield self.forks.start("daskfs.cli", "run", self.job, "-q")
            return
        with halting_run(self.job, self.halts) as process:
            yield process

    def kill_at(self, point: str, kill: Callable[[Any, str], None]) -> None:
        """Start the job, kill when it has come to a point, and see that nothing recorded before ran again."""
        before = records(self.run)
        self.halts.want(point)
        with self.started() as process:
            self.halts.wait_for(point, process)
            assert not (self.run / "report.html").exists() or point == "done"
            kill(process, point)
        self.n_kills += 1
        self.check_kept(before, point)

    def check_kept(self, before: dict[str, Record], where: str) -> None:
        after = records(self.run)
        again = [name for name, writing in before.items() if after.get(name) != writing]
        assert not again, f"recorded units ran again before {where}: {again}"

    def finish(self, n_in_flight: int) -> None:
        """Let the job run to its end, and check what it comes to."""
        before = records(self.run)
        self.halts.want("")
        with self.started() as process:
            assert process.wait(timeout=SECONDS) == 0, errors_of(process)
        self.check_kept(before, "the end")
        self.check_end(n_in_flight)

    def check_end(self, n_in_flight: int) -> None:
        assert outputs(self.run) == outputs(self.undisturbed.run(self.name))
        assert not left_over(self.run)
        assert json.loads((self.run / "run.json").read_text())["status"] == "done"
        n_again = sum(count - 1 for count in self.halts.starts().values())
        assert n_again <= n_in_flight * self.n_kills, self.halts.starts().most_common(20)


# -------------------------------------------------------------------------------------------------- the matrix of kills
@pytest.mark.long
def test_every_stage_is_in_a_job(undisturbed: Undisturbed) -> None:
    found = {function for name in JOBS for function in undisturbed.functions(name)}
    assert {kind.name for kind in all_kinds()} - found == IN_NO_JOB - found


def all_points(undisturbed: Undisturbed, name: str) -> list[str]:
    return [*undisturbed.points(name), *(("report", "done") if name == "ranked" else ("plan",))]


class Joined:
    """A scheduler and workers of one thread, which outlive the runs on them."""

    def __init__(self, folder: Path, forks: Forks, n_workers: int = N_WORKERS) -> None:
        self.forks, self.file = forks, folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--port", 0, "--dashboard-address", "127.0.0.1:0")
        wait_until(self.file.exists, self.scheduler, "the scheduler listened")
        self.workers = [self.start_worker() for _ in range(n_workers)]

    def _start(self, program: str, *arguments: object) -> Forked:
        own = ("--scheduler-file", self.file, "--host", "127.0.0.1", "--no-dashboard")
        return self.forks.start(f"distributed.cli.dask_{program}", *own, *arguments)

    def start_worker(self) -> Forked:
        preload = ("--preload", "daskfs.execution.worker")
        return self._start("worker", "--nthreads", 1, "--memory-limit", "2GiB", "--no-nanny", *preload)

    @property
    def block(self) -> dict[str, Any]:
        """The block of a job that joins it."""
        return {"scheduler_file": str(self.file), "memory_limit": "2GiB"}

    def connect(self) -> Client:
        return Client(scheduler_file=str(self.file), set_as_default=False)

    def kill(self) -> None:
        for process in (self.scheduler, *self.workers):
            process.kill()
        for process in (self.scheduler, *self.workers):
            process.wait(SECONDS)


def statuses(client: Client) -> list[str]:
    """Return the status of each worker, as the scheduler knows it."""
    return [worker["status"] for worker in Pool(client).identities().values()]


def is_idle(client: Client) -> bool:
    """Return whether the scheduler has heard of a driver's end, and the workers have ended their units."""
    return not client.run_on_scheduler(n_tasks) and not sum(client.run(n_executing).values())


@pytest.mark.long
@pytest.mark.parametrize("name", JOBS)
def test_everything_is_killed_in_every_stage(undisturbed: Undisturbed, tmp_path: Path, name: str) -> None:
    """Driver, scheduler and worker, when a unit's record is about to be put in place."""
    chain = Chain(undisturbed, name, tmp_path, "recorded")
    points = all_points(undisturbed, name)
    with Forks(chain.halts) as chain.forks:
        for point in (*points, ""):
            folder = tmp_path / f"at {point}"
            folder.mkdir()
            cluster = Joined(folder, chain.forks, n_workers=1)
            chain.job = JOBS[name](undisturbed.data, chain.folder, cluster=cluster.block)

            def kill(process: Forked, _: str, cluster: Joined = cluster) -> None:
                process.kill()
                cluster.kill()
                process.wait(SECONDS)

            if point:
                chain.kill_at(point, kill)
            else:
                chain.finish(1)
    assert chain.halts.reached() == set(points)


@pytest.mark.long
@pytest.mark.parametrize("name", JOBS)
def test_driver_is_killed_in_every_stage(undisturbed: Undisturbed, tmp_path: Path, name: str) -> None:
    """Its worker lives on, and ends the unit that it runs: nothing begins twice. SIGKILL and SIGTERM take turns, and
    the seed of the run says which of them is first.
    """
    chain = Chain(undisturbed, name, tmp_path, "written")
    points = all_points(undisturbed, name)
    numbers = random.sample([signal.SIGKILL, signal.SIGTERM], 2)
    with Forks(chain.halts) as chain.forks:
        cluster = Joined(tmp_path, chain.forks, n_workers=1)
        chain.job = JOBS[name](undisturbed.data, chain.folder, cluster=cluster.block)
        with cluster.connect() as client:
            for point, number in zip(points, itertools.cycle(numbers), strict=False):

                def kill(process: Forked, point: str, number: signal.Signals = number) -> None:
                    process.send_signal(number)
                    process.wait(SECONDS)
                    if number == signal.SIGTERM:
                        assert_stopped(process, "SIGTERM")
                        assert json.loads((chain.run / "run.json").read_text())["status"] == "stopped"
                    chain.halts.let_go(point)
                    wait_until(lambda: is_idle(client), None, "the workers were idle")

                chain.halts.moment = "written" if number == signal.SIGKILL else "begun"
                chain.kill_at(point, kill)
            chain.finish(0)
    assert chain.halts.reached() == set(points)


def assert_stopped(process: Process, name: str) -> None:
    """Check that a driver has said in one line that a signal stopped it."""
    errors = errors_of(process)
    assert process.returncode == 75, errors
    assert errors.startswith(f"daskfs: stopped by {name}"), errors
    assert errors.count("\n") == 1, errors


@pytest.mark.long
@pytest.mark.parametrize("name", JOBS)
def test_worker_is_killed_in_every_stage(undisturbed: Undisturbed, tmp_path: Path, name: str) -> None:
    """One in each stage of one run."""
    chain = Chain(undisturbed, name, tmp_path, "written")
    chain.halts.want(EVERY)
    seen: set[str] = set()
    with halting_run(chain.job, chain.halts) as process:
        while process.poll() is None:
            for point in sorted(chain.halts.reached() - seen):
                seen.add(point)
                os.kill(int(chain.halts.read(point)), signal.SIGKILL)
                chain.n_kills += 1
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.02)
        assert process.returncode == 0, errors_of(process)
    assert seen >= set(undisturbed.points(name))
    chain.check_end(1)
    told = Counter((event["stage"], event["unit"]) for event in read_events(chain.run))
    assert set(told.values()) == {1}


@pytest.mark.long
def test_worker_that_is_told_to_leave_repeats_nothing(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """Amid single units, a round of a loop, and an evaluation; another one comes each time."""
    chain = Chain(undisturbed, "ranked", tmp_path, "written")
    points = ("build", "score", "rescaled-rows.2", "svm-judge.2", "select")
    with Forks(chain.halts) as chain.forks:
        cluster = Joined(tmp_path, chain.forks)
        chain.job = ranked_job(undisturbed.data, chain.folder, cluster=cluster.block)
        chain.halts.want(points[0])
        with cluster.connect() as client, chain.started() as process:
            for point, following in itertools.pairwise((*points, "")):
                leaving = chain.halts.wait_for(point, process)
                chain.halts.want(following)
                os.kill(leaving, signal.SIGTERM)
                wait_until(lambda: "closing_gracefully" in statuses(client), process, "the worker was leaving")
                cluster.workers.append(cluster.start_worker())
                wait_until(lambda: statuses(client).count("running") == N_WORKERS, process, "another one came")
                chain.halts.let_go(point)
                (worker,) = (one for one in cluster.workers if one.pid == leaving)
                assert worker.wait(SECONDS) == 0
            assert process.wait(SECONDS) == 0, errors_of(process)
    assert set(chain.halts.starts().values()) == {1}
    chain.check_end(0)


@pytest.mark.long
def test_driver_is_killed_again_and_again(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """With workers of its own, which end with it."""
    chain = Chain(undisturbed, "target", tmp_path, "written", cluster={"workers": 1, "memory_limit": "2GiB"})

    def kill(process: subprocess.Popen[str], point: str) -> None:
        workers = worker_processes(process)
        process.kill()
        process.wait(timeout=SECONDS)
        chain.halts.let_go(point)
        wait_for_end(workers)

    for point in ("ingest", "score", "report"):
        chain.kill_at(point, kill)
    chain.finish(1)


def test_what_was_never_put_in_place_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names that objects and chunks are written under."""
    store, replace, names = Store(tmp_path), Path.replace, []

    def noted(self: Path, target: Any) -> Path:
        names.append(self.relative_to(tmp_path))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", noted)
    store.put_array("array", np.arange(3))
    store.write_json("object.json", {})
    assert {name.suffix for name in names} == {".partial", ".tmp"}
    others = [tmp_path / name for name in (".lock", "mine.tmp", "mine.partial", ".mine")]
    for path in (*(tmp_path / name for name in names), *others):
        path.touch()
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    remove_unfinished(store)
    after = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert before - after == {tmp_path / name for name in names}


# ---------------------------------------------------------------------------------------------- writers that come late
@pytest.fixture(scope="module")
def other_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    make_data(folder, seed=1)
    return folder


EVERY_NTH = int(os.environ.get("DASKFS_EVERY_NTH", "15"))
"""Of the points where a worker freezes; 1 for all of them."""
N_ROUNDS = int(os.environ.get("DASKFS_ROUNDS", "5"))
"""Rounds in which workers freeze at random times."""


@pytest.mark.long
@pytest.mark.parametrize("name", apart(JOBS, "ranked"))
@pytest.mark.parametrize("moment", ["begun", "written", "recorded"])
def test_workers_wake_up_in_a_run_that_started_over(
    undisturbed: Undisturbed, other_data: Path, tmp_path: Path, name: str, moment: str
) -> None:
    """A worker stands still, its driver is killed, the run is started over on other data, and the worker goes on."""
    chain = Chain(undisturbed, name, tmp_path, moment)
    points = undisturbed.points(name)
    first = MOMENTS.index(moment) * EVERY_NTH // 3 % len(points)
    with Forks(chain.halts) as chain.forks:
        cluster = Joined(tmp_path, chain.forks)
        stale = JOBS[name](other_data, tmp_path / "stale", cluster=cluster.block, output={"path": str(chain.run)})
        with cluster.connect() as client:
            for point in points[first::EVERY_NTH]:
                chain.halts.want(point)
                driver = chain.forks.start("daskfs.cli", "run", stale, "-q", "--overwrite")
                chain.halts.wait_for(point, driver)
                chain.halts.want("")
                driver.kill()
                driver.wait(SECONDS)
                run_here(chain.job, "--overwrite")
                chain.halts.let_go(point)
                wait_until(lambda: is_idle(client), None, "the workers were idle")
                check_after_late_writers(chain, undisturbed)


def check_after_late_writers(chain: Chain, undisturbed: Undisturbed) -> None:
    """Check that results are those of an undisturbed run, and that another run mends what was overwritten."""
    expected = outputs(undisturbed.run(chain.name))
    assert outputs(chain.run) == expected
    run_here(chain.job)
    assert outputs(chain.run) == expected
    assert verified(chain.run)["problems"] == []


@pytest.mark.long
def test_workers_freeze_at_random_times(undisturbed: Undisturbed, other_data: Path, tmp_path: Path) -> None:
    """One or both of two; then their driver is killed, and another job, or the same one, has the directory while they
    wake up.
    """
    random_state = random.Random(SEED)
    chain = Chain(undisturbed, "target", tmp_path, "begun")
    with Forks(chain.halts) as chain.forks:
        for number in range(N_ROUNDS):
            folder = tmp_path / str(number)
            folder.mkdir()
            cluster = Joined(folder, chain.forks)
            is_same = random_state.random() < 0.3
            data = undisturbed.data if is_same else other_data
            stale = target_job(data, tmp_path / "stale", cluster=cluster.block, output={"path": str(chain.run)})
            driver = chain.forks.start("daskfs.cli", "run", stale, "-q", "--overwrite")
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(random_state.uniform(0.2, 4.0))
            frozen = random_state.sample(cluster.workers, random_state.choice((1, 2)))
            for worker in frozen:
                worker.send_signal(signal.SIGSTOP)
            driver.kill()
            driver.wait(SECONDS)
            waking = threading.Timer(random_state.uniform(0.0, 4.0), wake, [frozen])
            waking.start()
            run_here(chain.job, *(() if is_same and random_state.random() < 0.5 else ("--overwrite",)))
            waking.join()
            with cluster.connect() as client:
                wait_until(lambda client=client: is_idle(client), None, "the workers were idle")
            cluster.kill()
            check_after_late_writers(chain, undisturbed)


def wake(workers: list[Forked]) -> None:
    for worker in workers:
        worker.send_signal(signal.SIGCONT)


# --------------------------------------------------------------------------------------------- signals to the driver
@pytest.mark.long
@pytest.mark.parametrize("point", ["plan", "starts", "weights", "clear", "report", "done", "close"])
def test_signal_in_every_phase_of_the_driver(undisturbed: Undisturbed, tmp_path: Path, point: str) -> None:
    """Other signals that follow change nothing, and no process is left behind."""
    chain = Chain(undisturbed, "ranked" if point == "clear" else "target", tmp_path, "begun")
    chain.halts.want(point)
    with halting_run(chain.job, chain.halts) as process:
        if point == "starts":
            wait_until(lambda: worker_processes(process), process, "its first worker was there")
        else:
            chain.halts.wait_for(point, process)
        left = psutil.Process(process.pid).children(recursive=True)
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
            process.send_signal(number)
        chain.halts.let_go(point)
        process.wait(timeout=SECONDS)
        wait_for_end(left)
        assert_stopped(process, "SIG")
    chain.halts.want("")
    run_here(chain.job)
    assert outputs(chain.run) == outputs(undisturbed.run(chain.name))


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_driver_and_workers(undisturbed: Undisturbed, tmp_path: Path, number: signal.Signals) -> None:
    """As batch systems and terminals send it."""
    chain = Chain(undisturbed, "target", tmp_path, "begun")
    chain.halts.want("score")
    with halting_run(chain.job, chain.halts) as process:
        chain.halts.wait_for("score", process)
        left = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, number)
        chain.halts.let_go("score")
        process.wait(timeout=SECONDS)
        wait_for_end(left)
        assert_stopped(process, number.name)


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 3])
def test_signal_to_a_run_without_workers(undisturbed: Undisturbed, tmp_path: Path, threads: int) -> None:
    """It ends amid the unit, or when the units of its threads have ended."""
    cluster = {"workers": 0, "threads": threads, "memory_limit": "3GiB"}
    chain = Chain(undisturbed, "target", tmp_path, "begun", cluster=cluster)

    def stop(process: subprocess.Popen[str], point: str) -> None:
        process.send_signal(signal.SIGTERM)
        if threads > 1:
            chain.halts.let_go(point)
        process.wait(timeout=SECONDS)
        assert_stopped(process, "SIGTERM")

    for point in ("ingest", "score", "evaluate"):
        chain.kill_at(point, stop)
    chain.finish(threads)


# ---------------------------------------------------------------------------------------------------- at random times
SEED, N_EACH = 8, int(os.environ.get("DASKFS_KILLS", "3"))
KINDS = ("worker", "driver", "everything", "signal", "signal and worker")


@pytest.mark.long
@pytest.mark.release
def test_kills_at_random_times(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """Started again each time until it ends, then in another directory, until all kills are done."""
    random_state = random.Random(SEED)
    kinds = list(KINDS) * N_EACH
    random_state.shuffle(kinds)
    for number in itertools.count():
        folder = tmp_path / str(number)
        job = ranked_job(undisturbed.data, folder)
        while not random_run(job, random_state, kinds):
            pass
        assert outputs(folder / "run") == outputs(undisturbed.run("ranked")), f"seed {SEED}, left {kinds}"
        assert not left_over(folder / "run"), f"seed {SEED}, left {kinds}"
        if not kinds:
            break


def random_run(job: Path, random_state: random.Random, kinds: list[str]) -> bool:
    """Start a job and kill at random; return whether it came to its end."""
    with subprocess.Popen(
        command("run", job, "-q"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        while True:
            try:
                process.wait(timeout=random_state.uniform(0.5, 5.0) if kinds else SECONDS)
            except subprocess.TimeoutExpired:
                if disturb(process, kinds):
                    return False
                continue
            errors = errors_of(process)
            if process.returncode == 4 and "workers of the local cluster cannot start" in errors:
                return False  # one was killed before it was there
            assert process.returncode == 0, f"seed {SEED}, left {kinds}: {errors}"
            return True


def disturb(process: subprocess.Popen[str], kinds: list[str]) -> bool:
    """Kill what the last kind says, if it is there; return whether the driver has ended."""
    kind = kinds[-1]
    workers = worker_processes(process) if process.poll() is None else []
    if "worker" in kind and not workers:
        return False
    kinds.pop()
    if kind == "worker":
        with contextlib.suppress(psutil.NoSuchProcess):
            workers[0].kill()
        return False
    if kind == "everything":
        kill_everything(process)
        return True
    process.send_signal(signal.SIGKILL if kind == "driver" else signal.SIGTERM)
    if kind == "signal and worker":
        with contextlib.suppress(psutil.NoSuchProcess):
            workers[0].kill()
    process.wait(timeout=SECONDS)
    # one that has not begun ends as others do, and one that was about to end may have got there
    expected = (-signal.SIGKILL,) if kind == "driver" else (75, -signal.SIGTERM, 0)
    assert process.returncode in expected, f"seed {SEED}, left {kinds}: {errors_of(process)}"
    wait_for_end(workers)
    return True
