"""The Dask operator itself runs the manifests, on stand-ins for an API server and a node: pods are processes here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml
from sklearn.datasets import load_digits

from tests.execution.halting import FOLDER_KEY
from tests.execution.runs import records, run_here
from tests.kubernetes.manifests import Object, kubectl

for module in ("aiohttp", "jsonpatch", "kopf"):
    pytest.importorskip(module)
pytestmark = [pytest.mark.cluster, pytest.mark.platforms]

ROOT = Path(__file__).parents[2]
BASE = ROOT / "workflows/kubernetes/base"
OPERATED = ("daskjobs", "daskclusters", "daskworkergroups", "deployments", "services", "pods", "jobs")
PATIENCE = 240.0


class Cluster:
    """The stand-ins, the operator, and what kubectl says of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig")}

    def kubectl(self, *arguments: object) -> str:
        command = [kubectl(), *map(str, arguments)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def start_scheduled(self, name: str) -> None:
        """Do what ``kubectl create job --from=cronjob/daskfs NAME`` does; its last step alone it would take in a format
        that the stand-in does not know.
        """
        job = self.kubectl("create", "job", "--from=cronjob/daskfs", name, "--dry-run=client", "-o", "json")
        path = self.folder / f"{name}.json"
        path.write_text(job)
        self.kubectl("create", "--validate=false", "-f", path)

    def all(self, *kinds: str) -> list[Object]:
        found: list[Object] = json.loads(self.kubectl("get", ",".join(kinds), "-o", "json"))["items"]
        return found

    def status(self, kind: str, name: str) -> Object:
        found = [one for one in self.all(kind) if one["metadata"]["name"] == name]
        return dict(found[0].get("status", {})) if found else {}

    def log(self, pod: str) -> str:
        return "".join(path.read_text() for path in self.folder.glob(f"pods/{pod}/log"))

    def wait(self, what: str, condition: Callable[[], Any]) -> Any:
        """Return what a condition returns as soon as that is true."""
        deadline = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < deadline, f"waited {PATIENCE:g} s for {what}:\n{self.told()}"
            time.sleep(0.2)
        return found

    def told(self) -> str:
        """Return the ends of all logs, for who looks into a failure."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("pods/*/log")]
        return "\n".join(f"== {path}\n{path.read_text()[-3000:]}" for path in logs)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def started(folder: Path, *options: str, has_operator: bool = True) -> Iterator[Cluster]:
    """Start the stand-ins, with their options, and the operator; whatever they have started ends with them."""
    kubectl()
    found = Cluster(folder)
    found.folder.mkdir()
    programs = {"standin": [sys.executable, "-m", "tests.kubernetes.standin", str(found.folder), *options]}
    if has_operator:
        programs["operator"] = [
            *(sys.executable, "-m", "kopf", "run", "--standalone", "--namespace", "default"),
            *("-m", "dask_kubernetes.operator.controller"),
        ]
    running = []
    try:
        for name, command in programs.items():
            with (found.folder / f"{name}.log").open("wb") as log:
                running.append(subprocess.Popen(command, env=found.environment, cwd=ROOT, stdout=log, stderr=log))
            if name == "standin":
                found.wait("the stand-in", (found.folder / "kubeconfig").exists)
        yield found
    finally:
        for process in reversed(running):
            end(process)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with started(tmp_path / "cluster") as found:
        yield found


class Setup:
    """A job on the cluster: the base, with a job file of the test's and units that halt where it wants them to."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder, self.run = cluster, folder, folder / "run"
        digits = load_digits()
        np.savez(folder / "digits.npz", X=digits.data, y=digits.target)
        (folder / "halting").mkdir()
        self.want("nothing")
        self.write_job({"source": str(folder / "digits.npz"), "labels": "y"})
        shutil.copytree(BASE, folder / "base")
        environment = {FOLDER_KEY: folder / "halting", "PYTHONPATH": ROOT}
        preload = [{"op": "add", "path": "/spec/cluster/spec/worker/spec/containers/0/args/-", "value": word}
                   for word in ("--preload", "tests.execution.halting")]  # fmt: skip
        overlay = {
            "resources": ["base"],
            "generatorOptions": {"disableNameSuffixHash": True},
            "configMapGenerator": [
                {"name": "daskfs-job", "behavior": "replace", "files": ["job.yaml"]},
                {
                    "name": "daskfs-environment",
                    "behavior": "merge",
                    "literals": [f"{key}={value}" for key, value in environment.items()],
                },
            ],
            "patches": [{"target": {"kind": "DaskJob"}, "patch": yaml.safe_dump(preload)}],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))

    def write_job(self, data: Object) -> None:
        job = yaml.safe_load((BASE / "job.yaml").read_text())
        job |= {"data": data, "output": {"path": str(self.run)}}
        (self.folder / "job.yaml").write_text(yaml.safe_dump(job))

    def patch(self, kind: str, path: str, value: Any) -> None:
        """Change a value in an object of the base."""
        file = self.folder / "kustomization.yaml"
        overlay = yaml.safe_load(file.read_text())
        change = [{"op": "replace", "path": path, "value": value}]
        overlay["patches"].append({"target": {"kind": kind}, "patch": yaml.safe_dump(change)})
        file.write_text(yaml.safe_dump(overlay))

    def want(self, point: str) -> None:
        """Name the point where a unit is to halt; the next unit to get there does, once."""
        (self.folder / "halting/wanted.next").write_text(f"{point} begun")
        (self.folder / "halting/wanted.next").rename(self.folder / "halting/wanted")

    def halted(self, point: str) -> int:
        """Return the process that runs the halted unit, once there is one."""
        path = self.folder / "halting" / point
        return int(self.cluster.wait(f"a unit at {point}", lambda: path.exists() and path.read_text()))

    def let_go(self, point: str) -> None:
        (self.folder / f"halting/{point}.go").touch()

    def copies(self) -> list[str]:
        """Return the names of the DaskJobs that were made from the one of the base."""
        names = [one["metadata"]["name"] for one in self.cluster.all("daskjobs")]
        return [name for name in names if name != "daskfs"]

    def wait_for_success(self, name: str) -> None:
        def is_over() -> bool:
            return self.cluster.status("daskjobs", name).get("jobStatus") in ("Successful", "Failed")

        self.cluster.wait("the run", is_over)
        assert self.cluster.status("daskjobs", name)["jobStatus"] == "Successful", self.cluster.told()

    def apply(self) -> None:
        self.cluster.kubectl("apply", "--validate=false", "-k", self.folder)

    def delete(self) -> None:
        self.cluster.kubectl("delete", "--wait=false", "-k", self.folder)

    def check_ranking(self) -> None:
        """Compare the run's ranking with that of a run on this machine."""
        local = self.folder / "local"
        job = yaml.safe_load((self.folder / "job.yaml").read_text())
        (self.folder / "local.yaml").write_text(yaml.safe_dump(job | {"output": {"path": str(local)}}))
        run_here(self.folder / "local.yaml")
        assert (self.run / "ranking.csv").read_bytes() == (local / "ranking.csv").read_bytes()

    def check_nothing_is_left(self) -> None:
        cluster = self.cluster
        cluster.wait("the objects to go", lambda: not cluster.all(*OPERATED))
        pids = [int(path.read_text()) for path in cluster.folder.glob("pods/*/pid")]
        cluster.wait("the processes to end", lambda: not any(map(psutil.pid_exists, pids)))


@pytest.fixture
def setup(cluster: Cluster, tmp_path: Path) -> Setup:
    return Setup(cluster, tmp_path)


def test_daskjob_outlives_a_worker_and_leaves_nothing(setup: Setup) -> None:
    cluster = setup.cluster
    setup.want("score")
    setup.apply()
    os.kill(setup.halted("score"), signal.SIGKILL)
    setup.wait_for_success("daskfs")
    setup.check_ranking()
    started = [path.read_text().count("Registered to") for path in cluster.folder.glob("pods/*-worker-*/log")]
    assert sorted(started) == [1, 2]
    cluster.wait(
        "the cluster to go", lambda: not cluster.all("daskclusters", "daskworkergroups", "deployments", "services")
    )
    setup.delete()
    setup.check_nothing_is_left()


def test_scheduled_job_goes_on_after_interruptions(setup: Setup) -> None:
    cluster = setup.cluster
    setup.want("score")
    setup.apply()
    setup.halted("score")
    before = records(setup.run)
    asked = {"method": "GET", "plural": "pods"}
    lost = {"method": "POST", "plural": "daskjobs", "code": 503, "is_done": True}
    busy = {**asked, "code": 429, "headers": {"Retry-After": "3"}}
    stale = [{**asked, "code": 401}] * 4  # kr8s itself tries again three times
    (cluster.folder / "troubles.json").write_text(json.dumps([busy, *stale, lost]))
    cluster.start_scheduled("daskfs-now")
    cluster.wait("the launching pod to wait", lambda: "waiting for daskfs-runner" in cluster.log("daskfs-now-*"))
    setup.want("evaluate")
    cluster.kubectl("delete", "--wait=false", "pod", "daskfs-runner")
    setup.let_go("score")

    setup.halted("evaluate")
    (first,) = setup.copies()
    assert "removing the cluster daskfs," in cluster.log(first)
    assert json.loads((cluster.folder / "troubles.json").read_text()) == []
    assert cluster.log(first).count("the API server does not answer") >= 2
    assert [one["metadata"]["name"] for one in cluster.all("daskclusters")] == [first]
    os.kill(int((cluster.folder / f"pods/{first}-runner/pid").read_text()), signal.SIGTERM)
    setup.let_go("evaluate")
    cluster.wait("the job", lambda: "completionTime" in cluster.status("jobs", "daskfs-now"))
    assert "exit code 75" in cluster.log(first)
    assert len(setup.copies()) == 2
    status = cluster.status("jobs", "daskfs-now")
    assert status["conditions"][0]["type"] == "Complete", cluster.told()
    assert status.get("failed", 0) == 0
    setup.check_ranking()
    after = records(setup.run)
    assert before
    assert before.items() <= after.items()

    # what no second try can mend has none
    setup.write_job({"source": str(setup.folder / "nothing.npz"), "labels": "y"})
    setup.apply()
    cluster.start_scheduled("daskfs-bad")
    cluster.wait("the job", lambda: "completionTime" in cluster.status("jobs", "daskfs-bad"))
    condition = cluster.status("jobs", "daskfs-bad")["conditions"][0]
    assert (condition["type"], condition["reason"]) == ("Failed", "PodFailurePolicy")
    assert "exit code 3" in cluster.log("daskfs-bad-?????")

    # nor has what the API server forbids
    role = {"rules": [{"apiGroups": ["kubernetes.dask.org"], "resources": ["daskjobs"], "verbs": ["get", "list"]}]}
    cluster.kubectl("patch", "role", "daskfs-launch", "--type=merge", "-p", json.dumps(role))
    cluster.start_scheduled("daskfs-no")
    cluster.wait("the job", lambda: "completionTime" in cluster.status("jobs", "daskfs-no"))
    assert 'the API server forbids: service account "daskfs-launch" cannot list pods' in cluster.log("daskfs-no-?????")
    assert "exit code 2" in cluster.log("daskfs-no-?????")

    # a runner that does not start is not waited for all day
    setup.patch("DaskJob", "/spec/job/spec/containers/0/image", "nowhere/daskfs:1")
    setup.apply()
    environment = {"data": {"DASKFS_START_SECONDS": "1"}}
    cluster.kubectl("patch", "configmap", "daskfs-environment", "--type=merge", "-p", json.dumps(environment))
    cluster.kubectl(
        "patch", "cronjob", "daskfs", "--type=merge", "-p", '{"spec":{"jobTemplate":{"spec":{"backoffLimit":0}}}}'
    )
    cluster.start_scheduled("daskfs-image")
    cluster.wait("the job", lambda: "completionTime" in cluster.status("jobs", "daskfs-image"))
    told = cluster.log("daskfs-image-?????")
    assert '-runner: ImagePullBackOff: Back-off pulling image "nowhere/daskfs:1"' in told
    assert "no runner was up in 1 s (DASKFS_START_SECONDS): " in told
    assert told.count("ImagePullBackOff") == 2, "once when it is seen, and once at the end"
    assert "exit code 4" in told
    setup.patch("DaskJob", "/spec/job/spec/containers/0/image", "daskfs")
    setup.apply()

    # a job that is deleted takes its run with it
    cluster.start_scheduled("daskfs-gone")
    (pod,) = cluster.wait("the launching pod", lambda: list(cluster.folder.glob("pods/daskfs-gone-?????")))
    # before it has workers, the operator may lose sight of a group of them whose cluster goes
    cluster.wait("its workers", lambda: len(list(cluster.folder.glob(f"pods/{pod.name}-default-worker-*/pid"))) == 2)
    cluster.kubectl("delete", "--wait=false", "job", "daskfs-gone")
    cluster.wait("the run to go", lambda: pod.name not in setup.copies())
    assert f"told to stop: deleting {pod.name}" in cluster.log(pod.name)

    cluster.kubectl("delete", "--wait=false", "jobs", "--all")
    setup.delete()
    setup.check_nothing_is_left()


def test_without_an_operator_nobody_waits_for_ever(tmp_path: Path) -> None:
    with started(tmp_path / "cluster", has_operator=False) as cluster:
        setup = Setup(cluster, tmp_path)
        shorter = (
            "sed s/^OPERATOR_SECONDS.*/OPERATOR_SECONDS=1/ /launch/launch.py > launch.py; exec python launch.py daskfs"
        )
        setup.patch("CronJob", "/spec/jobTemplate/spec/template/spec/containers/0/args", ["sh", "-c", shorter])
        setup.patch("CronJob", "/spec/jobTemplate/spec/backoffLimit", 0)
        setup.apply()
        cluster.start_scheduled("daskfs-now")
        cluster.wait("the job", lambda: "completionTime" in cluster.status("jobs", "daskfs-now"))
        assert cluster.status("jobs", "daskfs-now")["conditions"][0]["reason"] == "BackoffLimitExceeded"
        told = cluster.log("daskfs-now-?????")
        assert "does a Dask operator watch this namespace?" in told
        assert "exit code 4" in told
        assert setup.copies() == []
