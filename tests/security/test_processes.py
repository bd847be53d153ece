"""What the processes of a run listen on and tell: nobody else's machine reaches them, and they show no secrets."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from distributed import Client, LocalCluster
from distributed.security import Security

from daskfs.errors import JobError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.connection import connect
from daskfs.execution.pool import Pool
from daskfs.job.job import make_cluster
from tests.cli.command import basic_job, daskfs, refused, write_job
from tests.execution.runs import command, run_here, wait_for_end, wait_for_units, worker_processes
from tests.execution.runs import write_job as write_run

pytestmark = pytest.mark.cluster

USAGE, CLUSTER = 2, 4
SOURCE = "synthetic:mixture?n_samples=2000&n_features=32&n_classes=3&n_informative=8&seed=2"
METHODS = ["VarianceScore", "FisherScore"]
GiB = 2**30
N_LISTENING = 8
"""Sockets of a scheduler and its HTTP server, two nannies, and two workers and their HTTP servers."""
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "s3cr3t-of-aws",
    "AZURE_STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=https;AccountKey=s3cr3t-of-azure",
    "DATABASE_URL": "postgres://me:s3cr3t-of-database@host/x",
    "DASK_DASKFS__NOTE": "s3cr3t-of-dask",
}


@dataclass(frozen=True)
class Seen:
    """What was seen of a process and those that it started."""

    listening: tuple[tuple[str, int], ...]
    command_lines: tuple[str, ...]


def with_children(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def open_sockets(processes: list[psutil.Process]) -> list[Any]:
    """Return the sockets on which any of some processes can be told something."""
    pids = {process.pid for process in processes}
    sockets = [found for found in psutil.net_connections(kind="inet") if found.pid in pids]
    return [s for s in sockets if s.status == psutil.CONN_LISTEN or s.type == socket.SOCK_DGRAM]


def look_at(pid: int) -> Seen:
    processes = with_children(pid)
    command_lines = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # such as the ``uname -p`` of Python's platform
            command_lines.append(" ".join(process.cmdline()))
    open_ones = open_sockets(processes)
    assert {s.pid for s in open_ones} >= {pid}
    return Seen(tuple((s.laddr.ip, s.laddr.port) for s in open_ones), tuple(command_lines))


@dataclass(frozen=True)
class Run:
    """A run on the default cluster, which has TLS and a fork server, and what was seen of it."""

    folder: Path
    seen: Seen
    driver: int
    server_parent: int
    server_threads: frozenset[str]
    server_and_workers: list[psutil.Process]
    told: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("tls")
    path = write_run(folder, SOURCE, methods=METHODS, evaluate=None)
    with subprocess.Popen(
        command("run", path, "-v"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | SECRETS
    ) as process:
        wait_for_units(process, "ingest", 1)
        process.send_signal(signal.SIGSTOP)  # the run does not end while its workers are looked for
        # one worker may run units, and all of them, before the other is there
        busy = [worker for worker in worker_processes(process) if open_sockets([worker])]
        for worker in busy:
            worker.suspend()
        process.send_signal(signal.SIGCONT)
        seen = look_at(process.pid)
        while len(seen.listening) < N_LISTENING and process.poll() is None:
            seen = look_at(process.pid)
        workers = worker_processes(process)
        (number,) = {worker.ppid() for worker in workers}
        server = psutil.Process(number)
        parent = server.ppid()
        threads = frozenset(path.read_text().strip() for path in Path(f"/proc/{number}/task").glob("*/comm"))
        server.send_signal(signal.SIGTERM)
        server.send_signal(signal.SIGINT)
        for worker in busy:
            worker.resume()
        told = "".join(process.communicate(timeout=200))
    assert process.returncode == 0, told
    return Run(folder, seen, process.pid, parent, threads, [server, *workers], told)


@pytest.mark.long
def test_all_sockets_are_on_the_loopback(run: Run) -> None:
    assert len(run.seen.listening) == N_LISTENING
    assert {address for address, _ in run.seen.listening} == {"127.0.0.1"}


def test_a_run_over_tls_ranks_as_any_other(run: Run, tmp_path: Path) -> None:
    run_here(write_run(tmp_path, SOURCE, methods=METHODS, evaluate=None))
    assert (run.folder / "run" / "ranking.csv").read_bytes() == (tmp_path / "run" / "ranking.csv").read_bytes()


def test_workers_come_from_one_process_that_ends_with_the_driver(run: Run) -> None:
    """The process has no threads of Python or of numerical libraries, whose locks forks would find held, and leaves
    SIGTERM to the driver, as workers do.
    """
    assert len(run.server_and_workers) == 3
    assert run.server_parent == run.driver
    assert len(run.server_threads - {"jemalloc_bg_thd"}) == 1  # PyArrow's allocator takes care of forks
    wait_for_end(run.server_and_workers)


def test_secrets_of_the_environment_stay_there(run: Run) -> None:
    files = [path for path in run.folder.rglob("*") if path.is_file()]
    assert {"run.json", "plan.json", "events.jsonl", "report.html"} <= {path.name for path in files}
    assert [path for path in files if b"s3cr3t" in path.read_bytes()] == []
    assert len(run.seen.command_lines) >= 3
    assert "s3cr3t" not in "".join(run.seen.command_lines)
    assert "s3cr3t" not in run.told
    assert "BEGIN" not in "".join(run.seen.command_lines)  # of a key


def served(client: Client, others: set[int]) -> set[str]:
    """Return what those sockets answer over HTTP on which no process of the cluster talks to others; `others` are ports
    of what has nothing to do with it.
    """
    workers = Pool(client).identities()
    talking = [client.scheduler.address, *workers, *(worker["nanny"] for worker in workers.values())]
    ports = {port for _, port in look_at(os.getpid()).listening} - others
    ports -= {int(address.rsplit(":", 1)[1]) for address in talking}
    assert len(ports) == 2  # of the scheduler, and of a worker
    return {answered(port, path) for port in ports for path in ("/health", "/metrics", "/info/main/workers.html")}


def answered(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.code)


def test_a_dashboard_only_when_asked() -> None:
    # servers that tests beside this one have started
    others = {found.laddr.port for found in open_sockets(with_children(os.getpid()))}
    for dashboard in (False, True):
        with connect(ClusterSettings(workers=1, memory_limit=GiB, dashboard=dashboard)) as client:
            assert client is not None
            assert client.scheduler.address.startswith("tls://127.0.0.1:")
            assert {address for address, _ in look_at(os.getpid()).listening} == {"127.0.0.1"}
            answers = served(client, others)
        assert ("ok" in answers) == dashboard
        assert (answers == {"404"}) == (not dashboard)


STRANGER = """
import asyncio, sys
from distributed.core import rpc
from distributed.security import Security

async def answered(address, **arguments):
    try:
        async with rpc(address, timeout=5, **arguments) as server:
            await asyncio.wait_for(server.identity(), 5)
    except OSError:
        return "refused"
    return "answered"

own = {"connection_args": Security.temporary().get_connection_args("client")}
for address in sys.argv[1:]:
    print(asyncio.run(answered(address.replace("tls://", "tcp://"))), end=" ")
    print(asyncio.run(answered(address, **own)) if address.startswith("tls://") else "no TLS", end=" ")
"""
"""What another process is told that has no certificate, and one of its own."""


def test_the_default_cluster_refuses_other_processes() -> None:
    with connect(ClusterSettings(workers=1, memory_limit=GiB)) as client:
        assert client is not None
        ((worker, found),) = Pool(client).identities().items()
        addresses = [client.scheduler.address, worker, found["nanny"]]
        told = subprocess.run([sys.executable, "-c", STRANGER, *addresses], capture_output=True, text=True, check=True)
        assert told.stdout.split() == ["refused"] * 6
        assert client.submit(sum, [1, 2]).result() == 3


def test_a_cluster_without_tls_warns_of_it(caplog: pytest.LogCaptureFixture) -> None:
    with connect(ClusterSettings(workers=1, memory_limit=GiB, tls=False)) as client:
        assert client is not None
        assert client.scheduler.address.startswith("tcp://")
    assert "cluster.tls is false" in caplog.text
    assert "any user of this machine can run code as you" in caplog.text


# ------------------------------------------------------------------------------ clusters that run
def write_certificate(folder: Path) -> None:
    made = Security.temporary()
    (folder / "cert.pem").write_text(made.tls_scheduler_cert)
    (folder / "key.pem").write_text(made.tls_scheduler_key)


def named(folder: Path) -> dict[str, str]:
    """Return what Dask's configuration says of a certificate there."""
    files = {"ca-file": "cert.pem"}
    for role in ("client", "scheduler", "worker"):
        files |= {f"{role}.cert": "cert.pem", f"{role}.key": "key.pem"}
    return {f"distributed.comm.tls.{key}": str(folder / file) for key, file in files.items()}


@contextlib.contextmanager
def tls_cluster(folder: Path, n_workers: int = 1, memory_limit: str = "1GiB") -> Iterator[str]:
    """Write a certificate and its key; yield the address of a cluster that uses them."""
    write_certificate(folder)
    with dask.config.set(named(folder)):
        security = Security(require_encryption=True)
    with LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        host="127.0.0.1",
        memory_limit=memory_limit,
        security=security,
        dashboard_address=None,
        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    ) as cluster:
        yield cluster.scheduler_address


@pytest.mark.long
def test_a_cluster_that_is_joined_over_tls(tmp_path: Path) -> None:
    with tls_cluster(tmp_path) as address, dask.config.set(named(tmp_path)):
        assert address.startswith("tls://")
        where = {"address": address, "tls": True, "wait_seconds": 20}
        job = write_job(tmp_path, basic_job(tmp_path, cluster=where))
        outcome = daskfs("run", job, "-q")
        assert (outcome.code, outcome.err) == (0, "")
    ranking = (tmp_path / "run" / "ranking.csv").read_bytes()
    assert daskfs("run", write_job(tmp_path, basic_job(tmp_path)), "-q", "--overwrite").code == 0
    assert (tmp_path / "run" / "ranking.csv").read_bytes() == ranking


def test_a_scheduler_with_another_certificate(tmp_path: Path) -> None:
    (own := tmp_path / "own").mkdir()
    write_certificate(own)
    with tls_cluster(tmp_path, n_workers=0) as address, dask.config.set(named(own)):
        job = write_job(tmp_path, basic_job(tmp_path, cluster={"address": address, "wait_seconds": 20}))
        refused(daskfs("run", job, "-q"), CLUSTER, f"cannot reach the Dask scheduler at {address}", "TLS certificate")


@pytest.mark.parametrize("name", ["ca-file", "client.cert", "client.key"])
def test_certificates_that_are_not_there(tmp_path: Path, name: str) -> None:
    write_certificate(tmp_path)
    job = write_job(tmp_path, basic_job(tmp_path, cluster={"address": "tls://127.0.0.1:1", "wait_seconds": 2}))
    for path, told in ((tmp_path / "gone.pem", "cannot be used"), (job, "cannot be used"), (None, "does not name")):
        with dask.config.set({**named(tmp_path), f"distributed.comm.tls.{name}": path and str(path)}):
            # a key may stand in the file of the certificate
            told = "cannot be used" if name == "client.key" else told
            refused(daskfs("run", job, "-q"), CLUSTER, told, "distributed.comm.tls", name)


def test_an_address_without_tls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"cluster\.address tcp://h:1 is none of a scheduler with TLS"):
        make_cluster({"address": "tcp://h:1", "tls": True})
    (tmp_path / "scheduler.json").write_text('{"address": "tcp://127.0.0.1:1"}')
    job = write_job(tmp_path, basic_job(tmp_path, cluster={"scheduler_file": str(tmp_path / "scheduler.json")}))
    refused(daskfs("run", job, "--set", "cluster.tls=true"), CLUSTER, "cluster.tls is on", "--protocol tls")
