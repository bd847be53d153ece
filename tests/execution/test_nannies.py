"""Nannies of local workers that die while they start: what older versions of Dask hang on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from distributed import Status
from distributed.nanny import WorkerProcess

from daskfs.errors import ClusterError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.connection import connect
from daskfs.execution.pool import pool_of
from tests.execution.test_worker import SECONDS, wait_until

pytestmark = pytest.mark.cluster

SETTINGS = ClusterSettings(workers=1, memory_limit=2**30)


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A worker that starts takes an entry, if there is one, and is killed before it has connected."""
    connected: Any = WorkerProcess._wait_until_connected
    kills: list[str] = []

    async def wait_until_connected(process: WorkerProcess, *arguments: Any) -> Any:
        if kills:
            kills.pop()
            os.kill(process.pid, signal.SIGKILL)
        return await connected(process, *arguments)

    monkeypatch.setattr(WorkerProcess, "_wait_until_connected", wait_until_connected)
    monkeypatch.setattr(WorkerProcess, "_init_msg_interval", 1.0)  # a dead worker is replaced before it is asked again
    return kills


def test_a_first_worker_that_is_killed_while_it_starts(kills: list[str]) -> None:
    kills.append("the first")
    with pytest.raises(ClusterError, match="the workers of the local cluster cannot start"), connect(SETTINGS):
        pytest.fail("its worker was killed")


@pytest.mark.parametrize("n_killed", [1, 2])
def test_workers_that_are_killed_while_they_start_again(kills: list[str], n_killed: int) -> None:
    with connect(SETTINGS) as client:
        assert client is not None
        pool = pool_of(SETTINGS, client)
        ((_, nanny),) = client.cluster.workers.items()
        kills += ["another"] * n_killed
        os.kill(nanny.pid, signal.SIGKILL)
        wait_until(lambda: not kills)
        wait_until(lambda: (pool.complete(), pool.workers())[1])
        ((_, nanny),) = client.cluster.workers.items()
        assert client.submit(os.getpid).result() == nanny.pid


def test_a_nanny_that_fails_to_end_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    kill = WorkerProcess.kill

    async def kill_too_late(process: WorkerProcess, *arguments: Any, **options: Any) -> None:
        await kill(process, *arguments, **options)
        raise TimeoutError

    with connect(SETTINGS) as client:
        assert client is not None
        ((_, nanny),) = client.cluster.workers.items()
        with monkeypatch.context() as patch:
            patch.setattr(WorkerProcess, "kill", kill_too_late)
            with pytest.raises(TimeoutError):
                client.sync(nanny.close, callback_timeout=SECONDS)
        assert client.sync(nanny.close, callback_timeout=SECONDS) == "OK"
        assert nanny.status == Status.closed


def test_a_process_does_not_wait_for_workers_that_nothing_ended() -> None:
    """As when a signal came while the cluster began: what local workers make of SIGTERM does not hold the driver up."""
    code = (
        "from daskfs.execution.clusters.local import DRIVER_ENDS_THEM, LocalNanny, LocalWorkers;"
        "cluster = LocalWorkers(n_workers=1, worker_class=LocalNanny, preload='daskfs.execution.worker',"
        "env=DRIVER_ENDS_THEM, host='127.0.0.1', dashboard_address='127.0.0.1:0');"
        "cluster.wait_for_workers(1); cluster.shutdown_on_close = False; print('ends')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert done.stdout == "ends\n"
