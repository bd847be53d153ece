"""``cluster.kubernetes`` of a job file: the driver asks the real operator for pods, on the stand-ins."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.clusters import pods
from daskfs.execution.clusters.blocks import KubernetesBlock
from tests.cli.command import basic_job, daskfs, refused, write_job
from tests.execution.runs import run_here
from tests.kubernetes.manifests import dask_validator
from tests.kubernetes.test_operator import OPERATED, ROOT, Cluster, end, started

pytestmark = [pytest.mark.cluster, pytest.mark.platforms]

CLUSTER = 4
PATIENCE, MARGIN = 4.0, 60.0
PORTS = {"tcp-comm": pods.COMM_PORT, "http-dashboard": pods.HTTP_PORT}


async def address_of(service: str, namespace: str, port_name: str = "tcp-comm", **others: Any) -> str:
    """Return what the name of a scheduler's service stands for, as the stand-ins have no names for others than pods."""
    import kr8s

    del others
    labels = f"dask.org/component=scheduler,dask.org/cluster-name={service.removesuffix('-scheduler')}"
    async for pod in kr8s.asyncio.get("pods", namespace=namespace, label_selector=labels):
        return f"tcp://{pod.raw['status']['podIP']}:{PORTS[port_name]}"
    msg = f"{service} has no pod"
    raise AssertionError(msg)


def job_on(folder: Path, **own: Any) -> dict[str, Any]:
    where = {"image": "daskfs", "namespace": "default", "env": {"PYTHONPATH": str(ROOT)}, **own}
    cluster = {"workers": 2, "memory_limit": "1GiB", "wait_seconds": 60, "kubernetes": where}
    return basic_job(folder, cluster=cluster, data={"source": "sklearn:digits"})


@pytest.fixture(params=[(), ("pending",)], ids=["running", "pending"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with started(tmp_path / "cluster", *request.param) as found:
        yield found


def test_pods_rank_as_this_process_does_and_go(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.folder / "kubeconfig"))
    monkeypatch.setattr("dask_kubernetes.operator.kubecluster.kubecluster.get_scheduler_address", address_of)
    monkeypatch.setattr(pods, "IDLE_SECONDS", 0)  # outside a cluster the operator asks by port forwarding, not here
    job = write_job(tmp_path, job_on(tmp_path))
    outcome = daskfs("run", job, "-q")
    assert outcome.code == 0, f"{outcome.err}\n{cluster.told()}"
    ranking = (tmp_path / "run" / "ranking.csv").read_bytes()
    logs = list(cluster.folder.glob("pods/*-worker-*/log"))
    assert len(logs) == 2
    cluster.wait("the objects to go", lambda: not cluster.all(*OPERATED))
    run_here(job, "--overwrite", "--set", "cluster.kubernetes=null", "--set", f"output.path={tmp_path / 'here'}")
    assert (tmp_path / "here" / "ranking.csv").read_bytes() == ranking


@pytest.fixture
def unattended(tmp_path: Path) -> Iterator[Path]:
    """Folder of stand-ins without an operator."""
    folder = tmp_path / "unattended"
    folder.mkdir()
    argv = [sys.executable, "-m", "tests.kubernetes.standin", str(folder)]
    process = subprocess.Popen(argv, cwd=ROOT)
    try:
        deadline = time.monotonic() + MARGIN
        while not (folder / "kubeconfig").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield folder
    finally:
        end(process)


def test_nobody_who_starts_pods(unattended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(unattended / "kubeconfig"))
    job = write_job(tmp_path, job_on(tmp_path))
    began = time.monotonic()
    outcome = daskfs("run", job, "-q", "--set", f"cluster.wait_seconds={PATIENCE}")
    refused(outcome, CLUSTER, "Kubernetes did not start cluster.kubernetes: ")
    assert time.monotonic() - began < PATIENCE + MARGIN


def test_no_kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    refused(daskfs("run", write_job(tmp_path, job_on(tmp_path)), "-q"), CLUSTER, "Kubernetes did not start")


def test_the_object_fits_the_operators_schema() -> None:
    own = KubernetesBlock(
        image="i",
        service_account="a",
        env={"A": "b"},
        secrets=("s",),
        volume_claims={"c": "/c"},
        node_selector={"n": "m"},
        tolerations=({"key": "k", "operator": "Exists"},),
    )
    for settings in (KubernetesBlock(image="i"), own):
        found = pods.cluster_manifest(ClusterSettings(workers=2, memory_limit=2**30, kubernetes=settings), "daskfs-1")
        assert [error.message for error in dask_validator("DaskCluster").iter_errors(found)] == []


def test_what_pods_wait_for() -> None:
    from daskfs.execution.clusters import kubernetes

    pulling = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    assert kubernetes.waiting_for({"containerStatuses": [pulling], "conditions": [unplaced]}) == [
        "ImagePullBackOff: no such image",
        "Unschedulable: 0/3 nodes",
    ]
    assert kubernetes.waiting_for({"containerStatuses": [{"state": {"running": {}}}]}) == []
