"""What worker processes set up: a preload of local workers, and the warm-up of pynndescent."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from distributed import Client, WorkerPlugin


def dask_setup(worker: Any) -> None:
    """Leave Ctrl-C to the driver: a terminal sends it to the whole process group, and the driver ends its workers
    itself.
    """
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class WarmUp(WorkerPlugin):
    """Calls a function in a thread of its own when a worker starts."""

    name = "daskfs-warm-up"

    def __init__(self, function: str, argument: object, package: str) -> None:
        self.function, self.argument, self.package = function, argument, package

    async def setup(self, worker: Any) -> None:
        """Import the package, and start the call.

        No unit runs before that. One that imported scikit-learn while another thread does, as part of pynndescent, can
        find it half made.
        """
        del worker
        await asyncio.to_thread(import_module, self.package)
        threading.Thread(target=self._run, name=self.name, daemon=True).start()

    def _run(self) -> None:
        module, _, function = self.function.partition(":")
        getattr(import_module(module), function)(self.argument)


@contextmanager
def warmed(client: Client, function: str, argument: object, package: str) -> Iterator[None]:
    """Call a function, ``module:name``, in every worker and in those that come later, beside their work; the package
    that it needs is imported before they have any.

    A scheduler that others share is left as it was.
    """
    client.register_plugin(WarmUp(function, argument, package))
    try:
        yield
    finally:
        client.unregister_worker_plugin(WarmUp.name)
