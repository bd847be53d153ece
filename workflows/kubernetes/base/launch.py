"""Start a run on Kubernetes, wait for it, and exit as it did: what the CronJob's pod does.

    python launch.py PATTERN

PATTERN is a DaskJob of this namespace. A copy of it is created, named after this pod and owned by the pod's Job, with
which it goes; then the exit code of its runner becomes that of this program, for the Job's rules to act on. What else
there is:

- A run of the same instance that has not ended is waited for first: two runs never write to one output. Clusters of the
  instance that are left then, whose runners were evicted before the operator knew, are removed.
- Told to stop (SIGTERM), the run is deleted, which stops its runner in order, and the exit code is 75.
- A runner that vanishes without an exit code was evicted: 75 as well. One that never comes, for want of an operator: 4.
- Why pods do not run (an image, a claim, a quota, no room) is printed when it changes. A run whose runner is not up
  after DASKFS_START_SECONDS, 1,200 by default, so that an autoscaler has its time, is deleted: 4.
- While the API server cannot be reached, or asks to wait, the run goes on, and so does the waiting. What it forbids is
  named: 2.

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

FAILED, USAGE, CLUSTER, RESUMABLE = 1, 2, 4, 75
INSTANCE = "app.kubernetes.io/instance"
LOOK_SECONDS = 2.0
OPERATOR_SECONDS = 600.0
"""How long an operator may take to begin with a DaskJob."""
START_SECONDS = float(os.environ.get("DASKFS_START_SECONDS") or 1200)
"""How long a runner may take to start."""
TOO_MANY, ONCE_MORE = 429, (401, 409)
"""Answers after which to wait, and those that a second try may mend: a token, or another's change, was just renewed."""
ENDED = ("Succeeded", "Failed")
UNREACHABLE = (httpx.TransportError, kr8s.APITimeoutError, kr8s.ConnectionClosedError)

DaskCluster: Any = new_class("DaskCluster", "kubernetes.dask.org/v1", asyncio=False)
DaskJob: Any = new_class("DaskJob", "kubernetes.dask.org/v1", asyncio=False)


class StoppedError(Exception):
    """Somebody wants this program to end."""


class EndError(Exception):
    """There is nothing to wait for: a message and an exit code."""


def stop(number: int, frame: FrameType | None) -> None:
    """Raise :class:`StoppedError`, once."""
    del frame
    signal.signal(number, signal.SIG_IGN)
    raise StoppedError


def say(text: str) -> None:
    """Write a line to the log."""
    print(f"launch: {text}", flush=True)


def patiently(ask: Callable[[], Any]) -> Any:
    """Return what the API server answers, however long it is away or busy."""
    is_told, tried = False, set[int]()
    while True:
        seconds = LOOK_SECONDS
        try:
            return ask()
        except UNREACHABLE as error:
            reason = f"{type(error).__name__}: {error}"
        except kr8s.ServerError as error:
            code = 0 if error.response is None else error.response.status_code
            if code == TOO_MANY:
                seconds = max(seconds, retry_after(error.response))
            elif code in ONCE_MORE and code not in tried:
                tried.add(code)
            elif code == 403:
                msg = f"the API server forbids: {error}; rbac.yaml grants what is needed"
                raise EndError(msg, USAGE) from error
            elif code < 500:
                raise
            reason = str(error)
        if not is_told:
            say(f"the API server does not answer ({reason}); the run goes on meanwhile")
            is_told = True
        time.sleep(seconds)


def retry_after(response: httpx.Response | None) -> float:
    """Return the seconds that an answer asks to wait, 0 if it names none."""
    text = "" if response is None else response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0


def create(job: Any) -> None:
    """Create a DaskJob; one of this name that this pod's Job owns is the same, of a request whose answer was lost."""
    try:
        patiently(job.create)
    except kr8s.ServerError as error:
        if error.response is None or error.response.status_code != 409:
            raise
        found = patiently(lambda: DaskJob.get(job.name, namespace=job.namespace))
        owners = [owner.get("uid") for owner in found.raw["metadata"].get("ownerReferences", ())]
        if os.environ["JOB_UID"] not in owners:
            msg = f"there is another DaskJob {job.name}, and no other name to take: delete it"
            raise EndError(msg, FAILED) from error


class Start:
    """The wait for pods that do not run yet: prints why when that changes, and ends after `START_SECONDS`."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._since, self._told = time.monotonic(), set[str]()

    def look(self, names: list[str], runners: list[Pod], others: list[Pod]) -> None:
        """Print new reasons of pods, and warnings about objects whose names begin so, until a runner is up.

        Raises
        ------
        EndError
            If none was up for `START_SECONDS`.
        """
        reasons = [f"{pod.name}: {text}" for pod in (*runners, *others) for text in waiting_for(pod.status)]
        if any(pod.status.get("phase") == "Running" for pod in runners):
            self._since = time.monotonic()
        else:
            reasons += self._warnings(names)
        for text in reasons:
            if text not in self._told:
                self._told.add(text)
                say(text)
        if time.monotonic() - self._since > START_SECONDS:
            why = "; ".join(reasons) or "Kubernetes gives no reason"
            msg = f"no runner was up in {START_SECONDS:g} s (DASKFS_START_SECONDS): {why}"
            raise EndError(msg, CLUSTER)

    def _warnings(self, names: list[str]) -> list[str]:
        """Return the last warning of each reason on objects whose names begin with one of these, such as of a quota."""
        events = patiently(lambda: list(kr8s.get("events", namespace=self.namespace, field_selector="type=Warning")))
        found = {
            (about, event.raw.get("reason", "")): event.raw.get("message", "")
            for event in events
            if (about := event.raw.get("involvedObject", {}).get("name", "")).startswith(tuple(names))
        }
        return [f"{about}: {reason}: {' '.join(message.split())}" for (about, reason), message in found.items()]


def waiting_for(status: Any) -> list[str]:
    """Return the reasons in a pod's status why it does not run."""
    states = [container.get("state", {}) for container in status.get("containerStatuses", ())]
    waits = [state["waiting"] for state in states if state.get("waiting")]
    waits += [c for c in status.get("conditions", ()) if c.get("type") == "PodScheduled" and c.get("status") == "False"]
    texts = [": ".join(filter(None, (each.get("reason"), each.get("message")))) for each in waits]
    return [" ".join(text.split()) for text in texts if text and text not in ("ContainerCreating", "PodInitializing")]


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
    is_told, start = False, Start(pattern.namespace)
    while True:
        pods = patiently(lambda: list(kr8s.get("pods", namespace=pattern.namespace, label_selector=selector)))
        left = [pod for pod in pods if pod.status.get("phase") not in ENDED]
        if not left:
            return
        if not is_told:
            say(f"waiting for {', '.join(pod.name for pod in left)}, which writes to the same output")
            is_told = True
        start.look([pod.name for pod in left], left, [])
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
    deadline, is_seen, start = time.monotonic() + OPERATOR_SECONDS, False, Start(job.namespace)
    of_cluster = {"dask.org/cluster-name": job.name}
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
        found = patiently(lambda: list(kr8s.get("pods", namespace=job.namespace, label_selector=of_cluster)))
        runner = f"{job.name}-runner"
        start.look([job.name], [] if pod is None else [pod], [other for other in found if other.name != runner])
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
        create(job)
        say(f"created {job.name}")
        code = outcome(job)
    except EndError as error:
        message, code = error.args
        say(message)
        if job is not None:
            remove(job)
    except StoppedError:
        code = RESUMABLE
        if job is not None:
            say(f"told to stop: deleting {job.name}")
            remove(job)
    say(f"exit code {code}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
