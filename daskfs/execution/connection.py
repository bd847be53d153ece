"""Connection to a cluster: local, existing, SLURM jobs or Kubernetes pods; or none, to run units in this process.

Each kind of cluster is a module of :mod:`daskfs.execution.clusters`, imported on demand.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from daskfs.errors import ClusterError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.signals import undisturbed

if TYPE_CHECKING:
    from distributed import Client


def prepare(settings: ClusterSettings, *, models: bool) -> None:
    """Begin to start a local cluster in the background; `models` is whether units fit any."""
    if settings.is_local:
        import dask

        from daskfs.execution.clusters import local

        with dask.config.set(settings.told_to_dask):
            local.prepare(models=models)


@contextmanager
def connect(settings: ClusterSettings) -> Iterator[Client | None]:
    """Yield a client with at least one worker; None means that units run in this process.

    Raise :class:`ClusterError` if the scheduler cannot be reached, workers cannot be started, or no worker comes within
    ``wait_seconds``.
    """
    if settings.workers == 0 and not settings.is_joined:
        yield None
        return
    import dask
    import distributed  # noqa: F401 - imported inside the block, its defaults would be dropped with the settings

    start_cluster = _find_starter(settings)
    # set the scheduler here, so that the end of this block resets it even if a client fails to connect
    with (
        undisturbed(at_once=False) as hold_signals,
        _quiet(),
        dask.config.set({**settings.told_to_dask, "scheduler": dask.config.get("scheduler", None)}),
        start_cluster(settings) as client,
    ):
        try:
            yield client
        finally:  # so that a signal does not stop the end of the cluster
            hold_signals()


def _find_starter(settings: ClusterSettings) -> Callable[[ClusterSettings], AbstractContextManager[Client]]:
    """Return the context manager that starts or joins the kind of cluster of a job."""
    if settings.is_joined:
        kind = "existing"
    elif settings.slurm is not None:
        kind = "slurm"
    else:
        kind = "local" if settings.is_local else "kubernetes"
    package = {"slurm": "dask_jobqueue", "kubernetes": "dask_kubernetes"}.get(kind)
    if package is not None and find_spec(package) is None:
        msg = f"cluster.{kind} needs the package {package.replace('_', '-')}: pip install 'daskfs[{kind}]'."
        raise ClusterError(msg)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        module = import_module(f"daskfs.execution.clusters.{kind}")
    finally:
        # dask-jobqueue installs a handler for Ctrl-C when it is imported
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)
    return module.start_cluster


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Dask's loggers, which print a traceback for every closed connection: the driver reports problems."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "tornado.application")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


class SharedCluster(ExitStack):
    """One cluster for several runs, started or joined at its first use and closed with the block."""

    def __init__(self) -> None:
        super().__init__()
        self._clients: list[tuple[ClusterSettings, Client | None]] = []

    @contextmanager
    def connected(self, settings: ClusterSettings) -> Iterator[Client | None]:
        """Yield the client, as :func:`connect` does."""
        clients = [client for of_client, client in self._clients if of_client == settings]
        if not clients:
            clients = [self.enter_context(connect(settings))]
            self._clients.append((settings, clients[0]))
        yield clients[0]
