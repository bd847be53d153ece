"""Waiting for the first worker of a cluster whose workers are started elsewhere, and checking their versions."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any

from distributed import Client, Future

from daskfs.errors import ClusterError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.pool import Pool, pool_of
from daskfs.stages.requirements import cannot_serve, differences, installed_versions, unlike

ARRIVAL_LOOK_SECONDS = 0.2
"""Seconds between checks of a cluster without workers."""


def wait_for_workers(
    client: Client, settings: ClusterSettings, reason: Callable[[], str], look: Callable[[], None] | None = None
) -> None:
    """Wait for a worker, and check that all workers that answer have this version of daskfs.

    Raise :class:`ClusterError` if no worker comes in time, or the workers cannot run units. `reason` returns the
    message if none comes; `look` is called while there is none, to raise if none can come.
    """
    pool = pool_of(settings, client)
    deadline = time.monotonic() + settings.wait_seconds
    asked_for: list[Future[Any]] = []
    while not pool.workers():  # Dask's own wait continues when the scheduler is lost
        # an adaptive cluster has no worker until something waits for one
        if not asked_for or asked_for[0].status == "cancelled":
            asked_for = pool.submit(bool, [0], key=f"daskfs-first-worker-{uuid.uuid4().hex}")
        if time.monotonic() > deadline:
            raise ClusterError(reason())
        if look is not None:
            look()
        time.sleep(ARRIVAL_LOOK_SECONDS)
    for future in asked_for:
        future.release()
    _check_versions(client, pool)


def _check_versions(client: Client, pool: Pool) -> None:
    """Raise :class:`ClusterError` unless workers answer, and all that do have this version.

    Workers that do not answer in time are skipped: their processes may be frozen. Those whose connection broke are
    asked again while the scheduler has them.
    """
    workers, silent = pool.heard()
    addresses, answers = {*workers, *silent}, dict[str, Any]()

    async def ask() -> dict[str, Any]:
        questions = [
            asyncio.ensure_future(client.run(differences, installed_versions(), workers=[worker], on_error="return"))
            for worker in addresses
        ]
        done, late = await asyncio.wait(questions, timeout=pool.answer_seconds)
        for question in late:
            question.cancel()
        return {address: answer for question in done for address, answer in question.result().items()}

    deadline = time.monotonic() + pool.patience
    while addresses and time.monotonic() < deadline:
        answers.update(pool.ask(ask, 2 * pool.answer_seconds))
        if answers:
            broken = {address for address, answer in answers.items() if isinstance(answer, OSError)}
            addresses = broken & pool.workers().keys()
        if addresses:
            time.sleep(ARRIVAL_LOOK_SECONDS)
    for address, reply in answers.items():
        if isinstance(reply, ImportError):
            raise ClusterError(cannot_serve(reply)) from reply
        if isinstance(reply, Exception) and not isinstance(reply, OSError):  # that worker has ended
            raise reply
        if reply and not isinstance(reply, Exception):
            raise unlike(address, reply)
    if all(isinstance(reply, Exception) for reply in answers.values()):
        msg = f"no worker answered within {pool.patience:g} s: end those that hang, or raise cluster.wait_seconds."
        raise ClusterError(msg)
