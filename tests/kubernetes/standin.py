"""Starts the stand-ins for an API server and a node.

    python -m tests.kubernetes.standin FOLDER [pending]

FOLDER/kubeconfig says how to reach them, as soon as they answer; FOLDER/troubles.json may hold answers that are errors.
SIGTERM ends them and what runs in their pods. With "pending" each DaskCluster's phase "Running" is overwritten, as the
operator may do by itself (https://github.com/dask/dask-kubernetes/issues/968).
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from aiohttp import web

from tests.kubernetes.apiserver import ApiServer, Object, Objects
from tests.kubernetes.node import Node, write_kubeconfig

NAMESPACE = "default"


def keep_pending(objects: Objects) -> None:
    """Overwrite the phase "Running" of each DaskCluster with "Pending"."""

    def overwrite(event: str, plural: str, one: Object) -> None:
        if plural == "daskclusters" and event == "MODIFIED" and one.get("status", {}).get("phase") == "Running":
            asyncio.get_running_loop().call_soon(lambda: objects.set_status(plural, one, phase="Pending"))

    objects.listeners.append(overwrite)


async def serve(folder: Path, *, is_pending: bool) -> None:
    """Serve until SIGTERM."""
    objects = Objects()
    if is_pending:
        keep_pending(objects)
    objects.create("namespaces", None, {"metadata": {"name": NAMESPACE}})
    runner = web.AppRunner(ApiServer(objects, folder / "troubles.json").app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    node = Node(objects, folder, server)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    write_kubeconfig(folder / "kubeconfig.next", server, NAMESPACE)
    (folder / "kubeconfig.next").rename(folder / "kubeconfig")
    await ended.wait()
    await node.close()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), is_pending="pending" in sys.argv[2:]))
