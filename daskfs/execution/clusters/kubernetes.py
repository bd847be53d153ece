"""Workers in Kubernetes pods, started by Dask's operator through dask-kubernetes; the operator replaces lost ones."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import kr8s
from dask_kubernetes.exceptions import SchedulerStartupError, ValidationError
from dask_kubernetes.operator import KubeCluster
from dask_kubernetes.operator._objects import DaskCluster
from distributed import Client

from daskfs.errors import ClusterError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.clusters.pods import cluster_manifest
from daskfs.execution.clusters.wait_for_workers import wait_for_workers

ANSWER_SECONDS = 20.0
"""Timeout in seconds of requests for the state of pods."""
CREATION_LOOK_SECONDS = 0.25
"""Seconds between checks whether the operator has created the cluster."""
CREATED = ("Pending", "Running")
"""Phases of a DaskCluster whose scheduler and workers have been created."""
CLOSE_SECONDS = 60.0
"""Seconds that the driver waits at the end for the deletion of pods."""
REFUSED = (
    OSError,
    RuntimeError,
    ValueError,
    httpx.HTTPError,
    kr8s.APITimeoutError,
    kr8s.ConnectionClosedError,
    kr8s.NotFoundError,
    kr8s.ServerError,
    SchedulerStartupError,
    ValidationError,
)
"""Errors of failed requests to Kubernetes."""

logger = logging.getLogger(__name__)


class Pods(KubeCluster):
    """Cluster of pods, which are deleted if they do not start in time."""

    def __init__(self, manifest: dict[str, Any], namespace: str | None, patience: float) -> None:
        self.patience = patience
        super().__init__(
            custom_cluster_spec=manifest,
            namespace=namespace,
            resource_timeout=max(1, int(patience)),
            shutdown_on_close=True,
            quiet=True,
        )

    async def _start(self) -> None:
        try:
            # without a timeout it waits forever for a scheduler whose image cannot be pulled
            async with asyncio.timeout(self.patience):
                await super()._start()
        except REFUSED as error:
            said = await self.said()
            with suppress(*REFUSED):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._close()
            self.shutdown_on_close = False  # closing would be retried at the end of the process
            problem = said or str(error) or f"no scheduler within {self.patience:g} s"
            msg = f"Kubernetes did not start cluster.kubernetes: {' '.join(problem.split()).rstrip('.')}."
            raise ClusterError(msg) from error

    async def _wait_for_controller(self) -> None:
        """Wait until the operator has created the scheduler and the workers.

        KubeCluster itself waits for the phase "Running", which the operator may overwrite with "Pending" for good
        (https://github.com/dask/dask-kubernetes/issues/968). Either phase means that everything has been created;
        KubeCluster then waits for the scheduler's pod, and ``_start`` limits the total time.
        """
        cluster = await DaskCluster.get(self.name, namespace=self.namespace)
        while cluster.raw.get("status", {}).get("phase") not in CREATED:
            await asyncio.sleep(CREATION_LOOK_SECONDS)
            await cluster.refresh()

    async def said(self) -> str:
        """Return Kubernetes' reasons why pods do not run, empty text if it gives none."""
        reasons: dict[str, None] = {}
        with suppress(*REFUSED):
            async with asyncio.timeout(ANSWER_SECONDS):
                async for pod in kr8s.asyncio.get(
                    "pods", namespace=self.namespace, label_selector=f"dask.org/cluster-name={self.name}"
                ):
                    reasons.update(dict.fromkeys(waiting_for(pod.raw.get("status", {}))))
        return "; ".join(reasons)


def waiting_for(status: dict[str, Any]) -> list[str]:
    """Return the reasons in a pod's status why it does not run."""
    states = [container.get("state", {}) for container in status.get("containerStatuses", ())]
    reasons = [state[kind] for state in states for kind in ("waiting", "terminated") if state.get(kind)]
    unmet = [c for c in status.get("conditions", ()) if c.get("type") == "PodScheduled" and c.get("status") == "False"]
    texts = [": ".join(filter(None, (each.get("reason"), each.get("message")))) for each in (*reasons, *unmet)]
    return [text for text in texts if text]


@contextmanager
def start_cluster(settings: ClusterSettings) -> Iterator[Client]:
    """Yield a client of a cluster of pods, which are created here and deleted at the end."""
    kubernetes = settings.kubernetes
    assert kubernetes is not None
    logger.warning(
        "the pods of cluster.kubernetes speak without TLS, as Dask's operator does: whoever reaches them can run code "
        "as you; keep others out by a NetworkPolicy."
    )
    manifest = cluster_manifest(settings, f"daskfs-{uuid.uuid4().hex[:10]}")
    cluster = Pods(manifest, kubernetes.namespace, settings.wait_seconds)

    def told() -> str:
        said = " ".join(cluster.sync(cluster.said).split()).rstrip(".")
        return (
            f"no worker came within {settings.wait_seconds:g} s: "
            f"{f'Kubernetes says of the pods: {said}' if said else 'Kubernetes says nothing of the pods'}; wait longer "
            "(cluster.wait_seconds), or ask for less (cluster.memory_limit, .threads)."
        )

    try:
        with Client(cluster, timeout=settings.wait_seconds) as client:
            wait_for_workers(client, settings, told)
            yield client
    finally:
        try:
            cluster.close(timeout=CLOSE_SECONDS)
        except REFUSED as error:  # results are not affected
            logger.warning("DaskCluster %s may still be there: %s", cluster.name, error)
