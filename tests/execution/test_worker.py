"""What worker processes set up, and how they leave."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client, Worker
from distributed.core import Status

from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.clusters.worker_environment import variable
from daskfs.execution.connection import connect
from daskfs.execution.pool import Pool, granted_workers, pool_of
from daskfs.execution.worker import GRACE_KEY, LIFETIME_KEY
from tests.cli.command import daskfs
from tests.execution.runs import write_job


@pytest.mark.cluster
def test_settings_of_a_cluster_end_with_it_and_no_others() -> None:
    """Where Dask's distributed part is imported for the first time then: a second cluster needs its defaults."""
    code = (
        "import dask\n"
        "from daskfs.errors import ClusterError\n"
        "from daskfs.execution.cluster import ClusterSettings\nfrom daskfs.execution.connection import connect\n"
        "settings = ClusterSettings(address='tcp://127.0.0.1:9', wait_seconds=0.1)\n"
        "try:\n"
        "    with connect(settings):\n"
        "        raise SystemExit('nobody listens there')\n"
        "except ClusterError:\n"
        "    dask.config.get('distributed.comm.require-encryption')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------------------------------- workers that leave
SECONDS = 120
N_UNITS = 12


class Cluster:
    """A scheduler and workers of one thread, as batch systems start them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Cluster:
        self.start("dask_scheduler", "--port", 0, "--dashboard-address", "127.0.0.1:0", "--no-dashboard")
        wait_until(self.file.exists)
        self.client = self._stack.enter_context(Client(scheduler_file=str(self.file), set_as_default=False))
        return self

    def start(self, program: str, *arguments: object, **environment: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", f"distributed.cli.{program}", "--scheduler-file", str(self.file)]
        process = subprocess.Popen(
            [*words, "--host", "127.0.0.1", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
            stderr=(self.folder / f"{len(self.processes)}.log").open("w"),
        )
        self.processes.append(process)
        return process

    def begin_worker(self, *arguments: object, **environment: str) -> subprocess.Popen[bytes]:
        """Begin to start a worker."""
        preload = ("--preload", "daskfs.execution.worker")
        return self.start("dask_worker", "--nthreads", 1, "--no-dashboard", *preload, *arguments, **environment)

    def start_worker(self, *arguments: object, **environment: str) -> tuple[subprocess.Popen[bytes], int]:
        """Start a worker; return its process, or its nanny's, and the id of its own."""
        before = set(self.client.run(os.getpid).values())
        process = self.begin_worker(*arguments, **environment)
        (own,) = wait_until(lambda: set(self.client.run(os.getpid).values()) - before)
        return process, own

    def __exit__(self, *problem: object) -> None:
        self._stack.close()
        for process in reversed(self.processes):
            if process.poll() is None:
                for one in [*psutil.Process(process.pid).children(recursive=True), process]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one.kill()
            process.wait(timeout=SECONDS)


def wait_until(condition: Callable[..., Any]) -> Any:
    """Wait for something that other processes do."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if found := condition():
            return found
        threading.Event().wait(0.02)
    msg = "it did not happen in time"
    raise AssertionError(msg)


def work(unit: int, folder: str) -> int:
    """Say who begins, and wait for leave to end."""
    (Path(folder) / f"{unit}-{os.getpid()}.begun").touch()
    wait_until((Path(folder) / "go").exists)
    return unit


def begun(folder: Path) -> list[tuple[int, int]]:
    """Return who began what: units and processes."""
    names = (path.stem.split("-") for path in folder.glob("*.begun"))
    return [(int(unit), int(process)) for unit, process in names]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as cluster:
        yield cluster


NANNY = ("--nanny",)
BOTH = ("--nanny", "--preload-nanny", "daskfs.execution.worker")


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--no-nanny",), "worker"),
        pytest.param(NANNY, "worker", marks=pytest.mark.long),
        pytest.param(BOTH, "nanny", marks=pytest.mark.long),
        pytest.param(BOTH, "both", marks=pytest.mark.long),
    ],
)
def test_worker_that_leaves_ends_its_unit_and_gives_back_the_others(
    cluster: Cluster, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    """Also those that are meant for it, as the units of loops are; none begins twice, and no other process comes."""
    process, own = cluster.start_worker(*arguments)
    _, other = cluster.start_worker("--no-nanny")
    addresses = sorted(cluster.client.run(os.getpid))
    client, keys = cluster.client, [f"unit-{i}" for i in range(N_UNITS)]
    futures = [
        client.submit(
            work, i, str(tmp_path), key=key, workers=[addresses[i % 2]] if i < 6 else None, allow_other_workers=i < 6
        )
        for i, key in enumerate(keys)
    ]
    wait_until(lambda: {who for _, who in begun(tmp_path)} == {own, other})
    assert len(next(iter(client.processing(own_address(client, own)).values()))) > 1, "some wait at the worker"
    for pid in {"worker": [own], "nanny": [process.pid], "both": [own, process.pid]}[told]:
        os.kill(pid, signal.SIGTERM)
    # what waited there goes elsewhere while its unit still runs
    wait_until(lambda: len(next(iter(client.processing(own_address(client, own)).values()))) == 1)
    assert process.poll() is None
    (tmp_path / "go").touch()
    assert client.gather(futures) == list(range(N_UNITS))
    assert process.wait(timeout=SECONDS) == 0
    units = Counter(unit for unit, _ in begun(tmp_path))
    assert units == Counter(range(N_UNITS))
    assert [who for _, who in begun(tmp_path)].count(own) == 1
    assert set(client.run(os.getpid).values()) == {other}


@pytest.mark.cluster
def test_worker_at_the_end_of_its_lifetime_ends_its_unit(cluster: Cluster, tmp_path: Path) -> None:
    """With other workers there, the unit runs once."""
    cluster.start_worker("--no-nanny", "--memory-limit", 0)  # with one, its memory decides whether it is paused
    cluster.client.run(become, "paused")
    wait_until(lambda: statuses(cluster.client) == ["paused"])  # otherwise the scheduler may give the unit to it
    future = cluster.client.submit(work, 0, str(tmp_path), key="long")
    for seconds in (2, 4, 8, 16, 32, 64):  # on a busy machine one may end before the unit begins
        process = cluster.begin_worker("--no-nanny", **{variable(LIFETIME_KEY): str(seconds)})
        wait_until(lambda process=process: begun(tmp_path) or process.poll() is not None)
        if begun(tmp_path):
            break
    else:
        pytest.fail("no lifetime was long enough for the unit to begin")
    cluster.client.run(become, "running")
    wait_until(lambda: "closing_gracefully" in statuses(cluster.client))
    (tmp_path / "go").touch()
    assert future.result(timeout=SECONDS) == 0
    assert process.wait(timeout=SECONDS) == 0
    assert begun(tmp_path) == [(0, process.pid)]


@pytest.mark.cluster
def test_worker_whose_lifetime_passes_while_it_starts(cluster: Cluster) -> None:
    """It ends when it has started."""
    assert cluster.begin_worker("--no-nanny", **{variable(LIFETIME_KEY): "1e-9"}).wait(timeout=SECONDS) == 0


def become(status: str, dask_worker: Worker) -> None:
    """Set the status of a worker, but of one that leaves."""
    if dask_worker.status.name != "closing_gracefully":
        dask_worker.status = Status[status]


def own_address(client: Client, process: int) -> list[str]:
    """Return the address of the worker of a process."""
    return [address for address, own in client.run(os.getpid).items() if own == process]


@pytest.mark.long
@pytest.mark.cluster
def test_units_that_outlast_the_grace_and_a_second_signal(cluster: Cluster, tmp_path: Path) -> None:
    """They begin again elsewhere."""
    process, own = cluster.start_worker("--no-nanny", **{variable(GRACE_KEY): "0.3"})
    future = cluster.client.submit(work, 0, str(tmp_path), key="long")
    wait_until(lambda: begun(tmp_path))
    os.kill(own, signal.SIGTERM)
    assert process.wait(timeout=SECONDS) == 0
    process, patient = cluster.start_worker("--no-nanny")
    wait_until(lambda: (0, patient) in begun(tmp_path))
    os.kill(patient, signal.SIGTERM)
    wait_until(lambda: "closing_gracefully" in statuses(cluster.client))
    os.kill(patient, signal.SIGTERM)
    assert process.wait(timeout=SECONDS) == -signal.SIGTERM
    _, last = cluster.start_worker("--no-nanny")
    (tmp_path / "go").touch()
    assert future.result(timeout=SECONDS) == 0
    assert Counter(begun(tmp_path)) == Counter({(0, own): 1, (0, patient): 1, (0, last): 1})


def statuses(client: Client) -> list[str]:
    """Return the status of each worker, as the scheduler knows it."""
    return [worker["status"] for worker in Pool(client).identities().values()]


@pytest.mark.cluster
@pytest.mark.long
def test_units_are_planned_for_the_smallest_of_workers_that_differ(cluster: Cluster, tmp_path: Path) -> None:
    for limit in ("700MiB", "1GiB"):
        cluster.start_worker("--no-nanny", "--memory-limit", limit)
    job = write_job(tmp_path / "job", "sklearn:iris", cluster={"scheduler_file": str(cluster.file)}, evaluate=None)
    outcome = daskfs("run", job, "--json")
    assert outcome.code == 0, outcome.err
    assert "workers have 700 to 1024 MiB: units are planned for the smallest" in outcome.err
    settings = ClusterSettings(scheduler_file=str(cluster.file))
    assert granted_workers(settings, cluster.client).memory_limit == 700 * 2**20


@pytest.mark.cluster
@pytest.mark.parametrize(("limit", "code"), [(2**40, 0), (2**20, -signal.SIGTERM)])
def test_local_worker_stays_unless_its_nanny_ends_it_for_its_memory(limit: int, code: int) -> None:
    """Whoever else signals it signals the driver too, which ends it."""
    script = (
        "import os, signal\n"
        "from types import SimpleNamespace\n"
        "from daskfs.execution.worker import dask_setup\n"
        f"memory = SimpleNamespace(memory_limit={limit})\n"
        "dask_setup(SimpleNamespace(nanny='tcp://127.0.0.1:1', memory_manager=memory))\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    environment = {**os.environ, "DASK_DASKFS__LOCAL_WORKERS": "true"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.cluster
def test_local_workers_come_back(tmp_path: Path) -> None:
    """One that dies by its nanny, one whose nanny has ended when the driver sees that it is not there."""
    settings = ClusterSettings(workers=1, memory_limit=2**30, local_directory=str(tmp_path))
    with connect(settings) as client:
        assert client is not None
        pool = pool_of(settings, client)
        ((name, nanny),) = client.cluster.workers.items()
        died = [nanny.pid]
        os.kill(nanny.pid, signal.SIGKILL)
        died.append(wait_until(lambda: nanny.pid not in (None, *died) and nanny.pid))
        os.kill(died[-1], signal.SIGKILL)  # while it starts, which some nannies survive
        wait_until(lambda: (pool.complete(), pool.workers())[1])
        assert client.submit(os.getpid).result() not in died
        nanny = wait_until(lambda: client.cluster.workers.get(name))
        client.cluster.sync(nanny.close)
        wait_until(lambda: not pool.workers())
        pool.complete()
        assert wait_until(lambda: pool.workers() and client.cluster.workers.get(name)) is not nanny
