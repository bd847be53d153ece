"""Waiting for the first worker of a cluster whose workers are started elsewhere, and seeing whether they serve."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from distributed import Client

from daskfs.errors import ClusterError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.requirements import cannot_serve, differences, installed, unlike

LOOK_SECONDS = 0.2
"""How often a cluster without workers is asked for some."""


def wait_for_workers(
    client: Client, settings: ClusterSettings, told: Callable[[], str], look: Callable[[], None] | None = None
) -> None:
    """Return when there is a worker; all that are there have daskfs then.

    Parameters
    ----------
    client
        Of the cluster.
    settings
        Say how long to wait.
    told
        What to say when none comes.
    look
        Called while there is none, to raise where none can come.

    Raises
    ------
    ClusterError
        When no worker comes in time, or those that came cannot serve.
    """
    deadline = time.monotonic() + settings.wait_seconds
    # an adaptive cluster has no worker until something waits for one
    asked_for = client.submit(bool, key=f"daskfs-first-worker-{uuid.uuid4().hex}")
    while not settings.pool(client).workers():  # what Dask has for this goes on when the scheduler is lost
        if time.monotonic() > deadline:
            raise ClusterError(told())
        if look is not None:
            look()
        time.sleep(LOOK_SECONDS)
    asked_for.release()
    _check_versions(client, settings.wait_seconds)


def _check_versions(client: Client, patience: float) -> None:
    try:
        # as client.run does, which would wait for a worker that hangs
        found = client.sync(client._run, differences, installed(), callback_timeout=patience)
    except TimeoutError as error:
        msg = f"not all workers answered within {patience:g} s: end those that hang, or raise cluster.wait_seconds."
        raise ClusterError(msg) from error
    except OSError as error:
        msg = f"a worker, or the scheduler, ended while the workers were asked for their versions: {error}."
        raise ClusterError(msg) from error
    except ImportError as error:
        raise ClusterError(cannot_serve(error)) from error
    for address, differing in found.items():
        if differing:
            raise unlike(address, differing)
