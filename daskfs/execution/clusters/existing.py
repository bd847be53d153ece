"""Existing cluster, joined by the address of its scheduler or by its scheduler file."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from distributed import Client, rpc
from distributed.comm.addressing import get_address_host_port
from distributed.comm.core import CommClosedError, FatalCommClosedError
from distributed.security import Security

from daskfs.errors import ClusterError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.clusters.certificates import configured_certificates
from daskfs.execution.clusters.wait_for_workers import ARRIVAL_LOOK_SECONDS, wait_for_workers
from daskfs.storage import LocalPath


@contextmanager
def start_cluster(settings: ClusterSettings) -> Iterator[Client]:
    """Yield a client of a running scheduler; raise :class:`ClusterError` if it cannot be reached."""
    if settings.scheduler_file and not Path(settings.scheduler_file).exists():
        msg = f"cluster.scheduler_file {settings.scheduler_file} does not exist: is the scheduler running?"
        raise ClusterError(msg)
    where = settings.address or _written_address(LocalPath(str(settings.scheduler_file)))
    if settings.tls and not where.startswith("tls://"):
        msg = f"cluster.tls is on, and the scheduler at {where} has no TLS: start it with --protocol tls."
        raise ClusterError(msg)
    security = configured_certificates(where)
    deadline = time.monotonic() + settings.wait_seconds
    problem, client, is_final = "", None, False
    while client is None:
        try:
            _greet(where, security, max(ARRIVAL_LOOK_SECONDS, deadline - time.monotonic()))
            client = Client(where, timeout=settings.wait_seconds, security=security)
        except (OSError, ValueError) as error:
            problem = str(error)
            # a certificate does not get better, and a connection that broke while it was made may
            is_final = isinstance(error, (ValueError, ssl.SSLError, FatalCommClosedError))
        if client is None:
            # The failed client closes when it is collected. During the start of the next client both would wait for
            # the same lock, so collect it now that no traceback refers to it.
            gc.collect()
            if is_final or time.monotonic() + ARRIVAL_LOOK_SECONDS >= deadline:
                reason = (not is_final and _refusal(where)) or problem or "a process listens there and does not answer"
                msg = f"cannot reach the Dask scheduler at {where} within {settings.wait_seconds:g} s: {reason}."
                raise ClusterError(msg)
            time.sleep(ARRIVAL_LOOK_SECONDS)
    named = f"--scheduler-file {settings.scheduler_file}" if settings.scheduler_file else where

    def told() -> str:
        return (
            f"the scheduler at {where} had no worker within {settings.wait_seconds:g} s: start some (dask worker "
            f"{named}), or raise cluster.wait_seconds."
        )

    with client:
        wait_for_workers(client, settings, told)
        yield client


def _refusal(address: str) -> str:
    """Return why no connection to an address comes about, "" if one does, or none of sockets can."""
    try:
        socket.create_connection(get_address_host_port(address), ARRIVAL_LOOK_SECONDS).close()
    except socket.gaierror as error:
        return f"no such host ({error.strerror})"
    except ConnectionRefusedError:
        return "connection refused: nothing listens there"
    except OSError as error:
        return f"its machine cannot be reached ({error.strerror or error}): is it on, and behind no firewall"
    except ValueError:
        return ""
    return ""


def _greet(address: str, security: Security | None, patience: float) -> None:
    """Raise ``TimeoutError`` if the address accepts connections and sends nothing: a client would wait forever."""
    arguments = security.get_connection_args("client") if security is not None else {}

    async def greet() -> None:
        # the timeouts of Client and rpc are for the connection, not for the answer
        async with asyncio.timeout(patience), rpc(address, timeout=patience, connection_args=arguments) as scheduler:
            await scheduler.identity()

    outcome: Future[None] = Future()

    def run() -> None:
        try:
            outcome.set_result(asyncio.run(greet()))
        except CommClosedError as error:  # rpc says that the call failed, and its cause why
            outcome.set_exception(error.__cause__ or error)
        except (OSError, ValueError) as error:
            outcome.set_exception(error)

    # in a thread, as a notebook runs an event loop here; not in a pool, whose end would delay a signal
    threading.Thread(target=run, name="daskfs-greet", daemon=True).start()
    outcome.result(timeout=patience + ARRIVAL_LOOK_SECONDS)


def _written_address(path: LocalPath) -> str:
    try:
        content = json.loads(path.regular().read_text())
    except (OSError, ValueError) as error:
        msg = f"cluster.scheduler_file {path} is not what a Dask scheduler writes: {error}"
        raise ClusterError(msg) from error
    if not isinstance(content, dict) or not isinstance(content.get("address"), str):
        msg = f"cluster.scheduler_file {path} is not what a Dask scheduler writes: it has no address."
        raise ClusterError(msg)
    return str(content["address"])
