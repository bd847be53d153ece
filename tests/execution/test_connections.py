"""Connections of the driver to the scheduler that break: runs go on over new ones, and end with the same bytes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

import daskfs
from daskfs.job.job import load_job
from tests.execution.runs import local_cluster, records, run, run_here, write_job
from tests.execution.test_kills import JOBS, Undisturbed, outputs
from tests.security.test_processes import named, tls_cluster

pytestmark = pytest.mark.cluster

SOURCE = "synthetic:mixture?n_samples=3000&n_features=32&n_classes=3&n_informative=8&seed=2"


class CuttingProxy:
    """Relay between a driver and its scheduler that resets each connection after some of its data.

    Parameters
    ----------
    target
        Address of the scheduler.
    n_chunks
        Fewest and most chunks of data that a connection relays.
    """

    def __init__(self, target: str, n_chunks: tuple[int, int]) -> None:
        self._scheme, _, where = target.partition("://")
        self._host, _, self._port = where.rpartition(":")
        self._n_chunks, self._random = n_chunks, random.Random(0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.n_cut = 0

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        serving = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result()
        self.address = f"{self._scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *problem: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # asyncio tells of handlers that are canceled at the end
            await self._connect(reader, writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_scheduler = await asyncio.open_connection(self._host, int(self._port))
        except OSError:
            writer.transport.abort()
            return
        left = [self._random.randint(*self._n_chunks)]
        transports = (writer.transport, to_scheduler[1].transport)

        def cut() -> None:
            if not any(transport.is_closing() for transport in transports):
                self.n_cut += 1
            for transport in transports:
                transport.abort()

        with contextlib.suppress(OSError):
            await asyncio.gather(
                self._relay(reader, to_scheduler[1], left, cut), self._relay(to_scheduler[0], writer, left, cut)
            )
        for transport in transports:
            transport.abort()

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int], cut: Callable[[], None]
    ) -> None:
        while data := await reader.read(2**16):
            left[0] -= 1
            if left[0] == 0:
                cut()
                return
            writer.write(data)
            await writer.drain()
        writer.transport.close()


def small_job(folder: Path, **blocks: Any) -> Path:
    evaluate = {"n_selected": [4], "n_splits": 2, "max_samples": 300}
    return write_job(folder, SOURCE, methods=["LaplacianScore", "RLSR"], **{"evaluate": evaluate, **blocks})


def test_a_run_over_connections_that_break(two_workers: str, tmp_path: Path) -> None:
    run_here(small_job(tmp_path / "whole"))
    with CuttingProxy(two_workers, n_chunks=(2, 40)) as proxy:
        run(small_job(tmp_path / "cut", cluster={"address": proxy.address}))
        n_cut = proxy.n_cut
        # a client of the user's own connects again, too
        with Client(proxy.address, set_as_default=False) as client:
            daskfs.run(load_job(small_job(tmp_path / "given")), client=client)
    assert 0 < n_cut < proxy.n_cut
    tables = [outputs(tmp_path / name / "run") for name in ("whole", "cut", "given")]
    assert tables[0] == tables[1] == tables[2]
    assert len({frozenset(records(tmp_path / name / "run")) for name in ("whole", "cut", "given")}) == 1


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(tmp_path_factory.mktemp("connections"))


@contextlib.contextmanager
def scheduler(folder: Path, *, is_tls: bool) -> Iterator[str]:
    """Yield the address of a cluster of two workers, which the driver's configuration allows to join."""
    cluster: contextlib.AbstractContextManager[str | LocalCluster]
    cluster = tls_cluster(folder, n_workers=2, memory_limit="2GiB") if is_tls else local_cluster(2, "2GiB")
    with cluster as started, dask.config.set(named(folder) if is_tls else {}):
        yield started if isinstance(started, str) else started.scheduler_address


@pytest.mark.long
@pytest.mark.parametrize("is_tls", [False, True], ids=["tcp", "tls"])
def test_every_stage_over_connections_that_break(undisturbed: Undisturbed, tmp_path: Path, *, is_tls: bool) -> None:
    """Jobs that end within seconds: each connection breaks after some of its data, however fast they are."""
    with scheduler(tmp_path, is_tls=is_tls) as address, CuttingProxy(address, n_chunks=(2, 200)) as proxy:
        for name, make_job in JOBS.items():
            run(make_job(undisturbed.data, tmp_path / name, cluster={"address": proxy.address}))
            assert outputs(tmp_path / name / "run") == outputs(undisturbed.run(name)), name
        assert proxy.n_cut > 0
