"""Start a run on Kubernetes, wait for it, and exit as it did: what the CronJob's pod does.

    python launch.py PATTERN

PATTERN is a DaskJob of this namespace. A copy of it is created, named after this pod and owned by the pod's Job, with
which it goes; then the exit code of its runner becomes that of this program, for the Job's rules to act on. What else
there is:

- A run of the same instance that has not ended is waited for first: two runs never write to one output. Clusters of the
  instance that are left then, whose runners were evicted before the operator knew, are removed.
- Told to stop (SIGTERM), the run is deleted, which stops its runner in order, and the exit code is 75.
- A runner that vanishes without an exit code was evicted: 75 as well. One that never comes, for want of an operator: 4.
- While the API server cannot be reached, the run goes on, and so does the waiting.

Needs kr8s, which comes with daskfs[kubernetes]. Tried by tests/kubernetes, with the real operator on a stand-in for the
API server.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import httpx
import kr8s
from kr8s.objects import Pod, new_class

CLUSTER, RESUMABLE = 4, 75
INSTANCE = "app.kubernetes.io/instance"
LOOK_SECONDS = 2.0
OPERATOR_SECONDS = 600.0
"""How long an operator may take to begin with a DaskJob."""
UNREACHABLE = (httpx.TransportError, kr8s.APITimeoutError, kr8s.ConnectionClosedError)

DaskCluster: Any = new_class("DaskCluster", "kubernetes.dask.org/v1", asyncio=False)
DaskJob: Any = new_class("DaskJob", "kubernetes.dask.org/v1", asyncio=False)


class StoppedError(Exception):
    """Somebody wants this program to end."""


def stop(number: int, frame: FrameType | None) -> None:
    """Raise :class:`StoppedError`, once."""
    del frame
    signal.signal(number, signal.SIG_IGN)
    raise StoppedError


def say(text: str) -> None:
    """Write a line to the log."""
    print(f"launch: {text}", flush=True)


def patiently(ask: Callable[[], Any]) -> Any:
    """Return what the API server answers, however long it is away."""
    is_told = False
    while True:
        try:
            return ask()
        except UNREACHABLE as error:
            reason = f"{type(error).__name__}: {error}"
        except kr8s.ServerError as error:
            if error.response is None or error.response.status_code < 500:
                raise
            reason = str(error)
        if not is_told:
            say(f"the API server does not answer ({reason}); the run goes on meanwhile")
            is_told = True
        time.sleep(LOOK_SECONDS)


def copy_of(pattern: Any) -> Any:
    """Return a DaskJob like the pattern, which this pod's Job owns."""
    name = os.environ["POD_NAME"][-53:].lstrip("-")  # no cluster's name may be longer
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": os.environ["JOB_NAME"], "uid": os.environ["JOB_UID"]}
    spec = pattern.raw["spec"].to_dict()
    spec["cluster"]["spec"]["scheduler"]["service"]["selector"]["dask.org/cluster-name"] = name
    metadata = {
        "name": name,
        "namespace": pattern.namespace,
        "labels": dict(pattern.labels),
        "ownerReferences": [owner],
    }
    return DaskJob({"metadata": metadata, "spec": spec}, namespace=pattern.namespace)


def remove(one: Any) -> None:
    """Delete an object, which may be gone by now."""
    with suppress(kr8s.NotFoundError):
        one.delete()


def wait_for_others(pattern: Any) -> None:
    """Return when no runner of the pattern's instance is left that has not ended."""
    selector = {"dask.org/component": "job-runner", INSTANCE: pattern.labels[INSTANCE]}
    is_told = False
    while True:
        pods = patiently(lambda: list(kr8s.get("pods", namespace=pattern.namespace, label_selector=selector)))
        running = [pod.name for pod in pods if pod.status.phase not in ("Succeeded", "Failed")]
        if not running:
            return
        if not is_told:
            say(f"waiting for {', '.join(running)}, which writes to the same output")
            is_told = True
        time.sleep(LOOK_SECONDS)


def remove_abandoned(pattern: Any) -> None:
    """Remove the clusters of the pattern's instance: no runner uses them any more."""
    selector = {INSTANCE: pattern.labels[INSTANCE]}
    for cluster in patiently(lambda: list(DaskCluster.list(namespace=pattern.namespace, label_selector=selector))):
        say(f"removing the cluster {cluster.name}, which no runner uses any more")
        remove(cluster)


def runner_of(job: Any) -> Pod | None:
    """Return the pod of a DaskJob's runner, None where there is none."""
    found = list(kr8s.get("pods", f"{job.name}-runner", namespace=job.namespace))
    return found[0] if found else None


def exit_code(pod: Pod) -> int | None:
    """Return the exit code of the runner's container, None before it has one."""
    for status in pod.status.get("containerStatuses", []):
        if "terminated" in status.get("state", {}):
            return int(status["state"]["terminated"]["exitCode"])
    return RESUMABLE if pod.status.get("phase") == "Failed" else None  # one that failed without a word was evicted


def outcome(job: Any) -> int:
    """Wait for the end of a DaskJob and return its runner's exit code."""
    deadline, is_seen = time.monotonic() + OPERATOR_SECONDS, False
    while True:
        pod = patiently(lambda: runner_of(job))
        code = None if pod is None else exit_code(pod)
        if code is not None:
            return code
        if pod is None and is_seen:
            say(f"the runner of {job.name} is gone without an exit code")
            remove(job)
            return RESUMABLE
        if pod is None and time.monotonic() > deadline:
            say(f"nobody began with {job.name} in {OPERATOR_SECONDS:g} s: does a Dask operator watch this namespace?")
            remove(job)
            return CLUSTER
        is_seen = pod is not None
        time.sleep(LOOK_SECONDS)


def main(pattern_name: str) -> int:
    """Run a copy of a DaskJob to its end and return its exit code."""
    signal.signal(signal.SIGTERM, stop)
    job = None
    try:
        pattern = patiently(lambda: DaskJob.get(pattern_name))
        wait_for_others(pattern)
        remove_abandoned(pattern)
        job = copy_of(pattern)
        patiently(job.create)
        say(f"created {job.name}")
        code = outcome(job)
    except StoppedError:
        code = RESUMABLE
        if job is not None:
            say(f"told to stop: deleting {job.name}")
            remove(job)
    say(f"exit code {code}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
