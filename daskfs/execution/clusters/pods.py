"""Manifest of the ``DaskCluster`` for Dask's operator: a scheduler in one pod, each worker in another."""

from __future__ import annotations

from typing import Any

from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.clusters.blocks import KubernetesBlock
from daskfs.execution.clusters.worker_environment import variable, worker_environment

COMM_PORT, HTTP_PORT = 8786, 8787
DEATH_SECONDS = 120
"""Seconds that a worker waits for its scheduler."""
IDLE_SECONDS = 3600
"""Idle seconds after which the operator deletes the pods: their driver ended without deleting them."""
SCHEDULER_RESOURCES = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "4Gi"}}
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
"""Address of the pod, the only one on which a process listens."""
NO_ACCOUNT = {"automountServiceAccountToken": False}
HEALTH_ONLY = {variable("distributed.scheduler.http.routes"): "['distributed.http.health']"}
"""HTTP routes of a scheduler without a dashboard: the health check of Kubernetes."""


def cluster_manifest(settings: ClusterSettings, name: str) -> dict[str, Any]:
    """Return the manifest of a cluster; the driver's configuration must be that of the run.

    Command names are those of Dask since 2024, unlike the operator's defaults. Workers have no nanny, for the reasons
    in :mod:`daskfs.execution.clusters.slurm`; Kubernetes restarts those that end.
    """
    kubernetes = settings.kubernetes
    assert kubernetes is not None
    environment = {**worker_environment(settings), **kubernetes.env}
    served = {} if settings.dashboard else HEALTH_ONLY
    ports = [("tcp-comm", COMM_PORT), ("http-dashboard", HTTP_PORT)]
    probe = {"httpGet": {"port": "http-dashboard", "path": "/health"}}
    scheduler = {
        **_container("scheduler", _scheduler_command(settings), kubernetes, {**environment, **served}),
        "resources": SCHEDULER_RESOURCES,
        "ports": [{"name": port, "containerPort": number, "protocol": "TCP"} for port, number in ports],
        "readinessProbe": {**probe, "periodSeconds": 1, "timeoutSeconds": 30},
        "livenessProbe": {**probe, "initialDelaySeconds": 30, "periodSeconds": 20, "timeoutSeconds": 30},
    }
    memory = str(settings.memory_limit)
    worker = {
        **_container("worker", _worker_command(settings), kubernetes, environment),
        "resources": {"requests": {"cpu": str(settings.threads), "memory": memory}, "limits": {"memory": memory}},
    }
    placed = {"nodeSelector": dict(kubernetes.node_selector), "tolerations": list(map(dict, kubernetes.tolerations))}
    return {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "metadata": {"name": name},
        "spec": {
            "idleTimeout": IDLE_SECONDS,
            "worker": {
                "replicas": settings.n_workers,
                "spec": {**_pod(worker, kubernetes), **{key: value for key, value in placed.items() if value}},
            },
            "scheduler": {
                "spec": _pod(scheduler, kubernetes),
                "service": {
                    "type": "ClusterIP",
                    "selector": {"dask.org/cluster-name": name, "dask.org/component": "scheduler"},
                    "ports": [
                        {"name": port, "protocol": "TCP", "port": number, "targetPort": port} for port, number in ports
                    ],
                },
            },
        },
    }


def _scheduler_command(settings: ClusterSettings) -> list[str]:
    shown = "--dashboard" if settings.dashboard else "--no-dashboard"
    words = ["dask", "scheduler", "--host", "$(POD_IP)", "--port", str(COMM_PORT)]
    return [*words, shown, "--dashboard-address", f"$(POD_IP):{HTTP_PORT}"]


def _worker_command(settings: ClusterSettings) -> list[str]:
    words = ["dask", "worker", "--name", "$(DASK_WORKER_NAME)", "--host", "$(POD_IP)", "--no-nanny"]
    words += ["--preload", "daskfs.execution.worker", "--nthreads", str(settings.threads)]
    words += ["--memory-limit", str(settings.memory_limit)]
    words += ["--death-timeout", str(DEATH_SECONDS), "--dashboard" if settings.dashboard else "--no-dashboard"]
    return [*words, *(("--local-directory", settings.local_directory) if settings.local_directory else ())]


def _container(
    name: str, command: list[str], kubernetes: KubernetesBlock, environment: dict[str, str]
) -> dict[str, Any]:
    claims = [{"name": claim, "mountPath": path} for claim, path in kubernetes.volume_claims.items()]
    secrets = [{"secretRef": {"name": secret}} for secret in kubernetes.secrets]
    return {
        "name": name,
        "image": kubernetes.image,
        "args": command,
        "env": [POD_IP, *({"name": key, "value": value} for key, value in environment.items())],
        **({"envFrom": secrets} if secrets else {}),
        **({"volumeMounts": claims} if claims else {}),
    }


def _pod(container: dict[str, Any], kubernetes: KubernetesBlock) -> dict[str, Any]:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in kubernetes.volume_claims]
    return {
        "containers": [container],
        **({"volumes": volumes} if volumes else {}),
        **({"serviceAccountName": kubernetes.service_account} if kubernetes.service_account else NO_ACCOUNT),
    }
