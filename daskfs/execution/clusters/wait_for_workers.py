"""Waiting for the first worker of a cluster whose workers are started elsewhere, and checking their versions."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any

from distributed import Client

from daskfs.errors import ClusterError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.pool import Pool, pool_of
from daskfs.stages.requirements import cannot_serve, differences, installed_versions, unlike

LOOK_SECONDS = 0.2
"""Seconds between checks of a cluster without workers."""


def wait_for_workers(
    client: Client, settings: ClusterSettings, told: Callable[[], str], look: Callable[[], None] | None = None
) -> None:
    """Wait for a worker, and check that all workers that answer have this version of daskfs.

    Parameters
    ----------
    client
        Client of the cluster.
    settings
        Settings with the time to wait.
    told
        Returns the message of the error if no worker comes.
    look
        Called while there is no worker, to raise if none can come.

    Raises
    ------
    ClusterError
        If no worker comes in time, or the workers cannot run units.
    """
    pool = pool_of(settings, client)
    deadline = time.monotonic() + settings.wait_seconds
    # an adaptive cluster has no worker until something waits for one
    asked_for = client.submit(bool, key=f"daskfs-first-worker-{uuid.uuid4().hex}")
    while not pool.workers():  # Dask's own wait continues when the scheduler is lost
        if time.monotonic() > deadline:
            raise ClusterError(told())
        if look is not None:
            look()
        time.sleep(LOOK_SECONDS)
    asked_for.release()
    _check_versions(client, pool)


def _check_versions(client: Client, pool: Pool) -> None:
    """Raise :class:`ClusterError` unless workers answer, and all that do have this version.

    Workers that do not answer in time are skipped: their processes may be frozen.
    """
    workers, silent = pool.heard()

    async def ask() -> list[tuple[str, Any]]:
        asked = [
            asyncio.ensure_future(client.run(differences, installed_versions(), workers=[worker], on_error="return"))
            for worker in (*workers, *silent)
        ]
        done, late = await asyncio.wait(asked, timeout=pool.answer_seconds)
        if not done:
            left = max(0.0, pool.patience - pool.answer_seconds)
            done, late = await asyncio.wait(late, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for one in late:
            one.cancel()
        return [answer for one in done for answer in one.result().items()]

    try:
        answers = client.sync(ask)
    except OSError as error:
        msg = f"the scheduler ended while the workers were asked for their versions: {error}."
        raise ClusterError(msg) from error
    for address, found in answers:
        if isinstance(found, ImportError):
            raise ClusterError(cannot_serve(found)) from found
        if isinstance(found, Exception) and not isinstance(found, OSError):  # that worker has ended
            raise found
        if found and not isinstance(found, Exception):
            raise unlike(address, found)
    if all(isinstance(found, Exception) for _, found in answers):
        msg = f"no worker answered within {pool.patience:g} s: end those that hang, or raise cluster.wait_seconds."
        raise ClusterError(msg)
