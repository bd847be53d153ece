"""A stand-in for what runs pods: Deployments and Jobs become pods, pods become processes of this machine.

- A pod has one container, and that is one process, of this environment's programs; images are not looked at, but those
  of "nowhere/" cannot be pulled. It has an address of its own on the loopback interface. A Service's name, in what a
  container is told, becomes the address of the pod that it selects.
- Config maps, claims and scratch volumes are folders, and mount paths in arguments and variables become theirs.
- A Deployment's container is started again when it ends. A Job's pod is followed by others, as its backoffLimit and its
  podFailurePolicy (exit codes only) have it.
- A pod that is deleted gets SIGTERM, and SIGKILL when its grace period is over; its object goes after that.

Not here: schedules of CronJobs, limits of memory, probes, scheduling, storage, networks.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import traceback
import uuid
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.apiserver import TOKEN, Object, Objects, now
from tests.kubernetes.manifests import quantity

RESTART_SECONDS = 1.0
ENDED = ("Succeeded", "Failed")
READY = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
"""What probes would find of a pod that runs."""
SERVICE_NAME = re.compile(r"([\w-]+)\.([\w-]+)\.svc\.cluster\.local")


class Node:
    """Runs the pods of a cluster.

    Parameters
    ----------
    objects
        Of the cluster.
    folder
        Where logs and volumes lie: ``pods/NAME/log`` and ``pods/NAME/pid``.
    server
        URL of the API server, for pods that have a token.
    """

    def __init__(self, objects: Objects, folder: Path, server: str) -> None:
        self.objects, self.folder, self.server = objects, folder, server
        self._n_pods = 0
        self._network = f"127.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self._tasks: set[asyncio.Task[None]] = set()
        self._judged: set[str] = set()
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        objects.listeners.append(self._listen)

    async def close(self) -> None:
        """End all processes."""
        for task in self._tasks:
            task.cancel()
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()

    def _listen(self, event: str, plural: str, one: Object) -> None:
        if event == "ADDED" and plural == "deployments":
            self._create_pod(one, "Deployment", one["spec"]["template"])
        elif event == "ADDED" and plural == "jobs":
            self._create_pod_of_job(one)
        elif event == "ADDED" and plural == "pods":
            self._start(self._run(one))
        elif event == "MODIFIED" and plural == "pods" and one["status"]["phase"] in ENDED:
            self._later(self._pod_of_job_ended, one)
        elif event == "MODIFIED" and plural == "pods" and "deletionTimestamp" in one["metadata"]:
            process = self._processes.get(one["metadata"]["uid"])
            if process is None or process.returncode is not None:
                self._later(self.objects.set_status, "pods", one, phase="Failed")  # between two starts of its container
            else:
                self._start(_ended(process, one["spec"].get("terminationGracePeriodSeconds", 30)))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            traceback.print_exception(error)

    @staticmethod
    def _later(function: Any, *arguments: Any, **named: Any) -> None:
        asyncio.get_running_loop().call_soon(lambda: function(*arguments, **named))

    # ------------------------------------------------------------------------------------------------- who creates pods
    def _create_pod(self, owner: Object, kind: str, template: Object, **labels: str) -> None:
        metadata = template.get("metadata", {})
        name = f"{owner['metadata']['name']}-{uuid.uuid4().hex[:5]}"
        reference = {"apiVersion": owner["apiVersion"], "kind": kind, "controller": True}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        pod = {
            "metadata": {
                "name": name,
                "labels": {**metadata.get("labels", {}), **labels},
                "ownerReferences": [reference],
            },
            "spec": template["spec"],
        }
        self._later(self.objects.create, "pods", owner["metadata"]["namespace"], pod)

    def _create_pod_of_job(self, job: Object) -> None:
        labels = {
            "batch.kubernetes.io/job-name": job["metadata"]["name"],
            "batch.kubernetes.io/controller-uid": job["metadata"]["uid"],
        }
        self._create_pod(job, "Job", job["spec"]["template"], **labels)

    def _pod_of_job_ended(self, pod: Object) -> None:
        """Act on the end of a Job's pod as the Job's rules have it."""
        if pod["metadata"]["uid"] in self._judged:
            return
        self._judged.add(pod["metadata"]["uid"])
        uids = [owner["uid"] for owner in pod["metadata"].get("ownerReferences", []) if owner["kind"] == "Job"]
        jobs = [job for job in self.objects.all("jobs") if job["metadata"]["uid"] in uids]
        if not jobs or "completionTime" in (status := jobs[0].get("status", {})):
            return
        job = jobs[0]
        if pod["status"]["phase"] == "Succeeded":
            self._end_job(job, "Complete", "CompletionsReached")
            return
        action = _failure_action(job, pod["status"]["containerStatuses"][0])
        failed = status.get("failed", 0) + (action == "Count")
        self.objects.set_status("jobs", job, failed=failed)
        if action == "FailJob":
            self._end_job(job, "Failed", "PodFailurePolicy")
        elif failed > job["spec"]["backoffLimit"]:
            self._end_job(job, "Failed", "BackoffLimitExceeded")
        else:
            self._create_pod_of_job(job)

    def _end_job(self, job: Object, kind: str, reason: str) -> None:
        condition = {"type": kind, "status": "True", "reason": reason}
        self.objects.set_status("jobs", job, conditions=[condition], completionTime=now())

    # ------------------------------------------------------------------------------------------------ what runs in them
    async def _run(self, pod: Object) -> None:
        """Run a pod's container, again and again where the pod is a Deployment's."""
        self._n_pods += 1
        address = f"{self._network}.{self._n_pods}"
        self.objects.set_status("pods", pod, podIP=address)
        place, container = self.folder / "pods" / pod["metadata"]["name"], pod["spec"]["containers"][0]
        if container["image"].startswith("nowhere/"):
            self._refuse_image(pod, container)
            return
        mounts = self._mounted(pod, container, place)
        is_always = pod["spec"].get("restartPolicy", "Always") == "Always"
        uid, restarts = pod["metadata"]["uid"], 0
        while self._is_wanted(pod):
            environment = await self._environment(pod, container, address, mounts)
            command = [*container.get("command", []), *container["args"]]
            command = [_in_folders(_expanded(word, environment), mounts) for word in command]
            with (place / "log").open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *command, env=environment, cwd=place, stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL
                )
            self._processes[uid] = process
            (place / "pid").write_text(str(process.pid))
            state = {"name": container["name"], "ready": True, "restartCount": restarts, "state": {"running": {}}}
            self.objects.set_status("pods", pod, phase="Running", containerStatuses=[state], conditions=READY)
            if not self._is_wanted(pod):  # deleted while it started
                self._start(_ended(process, pod["spec"].get("terminationGracePeriodSeconds", 30)))
            code = await process.wait()
            restarts += 1
            terminated = {"exitCode": code if code >= 0 else 128 - code}
            state = {**state, "ready": False, "state": {"terminated": terminated}}
            if not is_always or not self._is_wanted(pod):
                phase = "Failed" if code else "Succeeded"
                self.objects.set_status("pods", pod, phase=phase, containerStatuses=[state])
                return
            self.objects.set_status("pods", pod, containerStatuses=[state])
            await asyncio.sleep(RESTART_SECONDS)

    def _refuse_image(self, pod: Object, container: Object) -> None:
        waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{container["image"]}"'}
        self.objects.set_status(
            "pods", pod, containerStatuses=[{"name": container["name"], "state": {"waiting": waiting}}]
        )
        about = {"kind": "Pod", "name": pod["metadata"]["name"]}
        event = {"type": "Warning", "reason": "Failed", "message": "not found", "involvedObject": about}
        self.objects.create("events", pod["metadata"]["namespace"], {"metadata": {"generateName": "pull-"}, **event})

    def _is_wanted(self, pod: Object) -> bool:
        uid = pod["metadata"]["uid"]
        current = [one for one in self.objects.all("pods") if one["metadata"]["uid"] == uid]
        return bool(current) and "deletionTimestamp" not in current[0]["metadata"]

    def _mounted(self, pod: Object, container: Object, place: Path) -> dict[str, str]:
        """Make the folders of a pod's volumes and return them by the paths at which its container has them."""
        found, namespace = {}, pod["metadata"]["namespace"]
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        place.mkdir(parents=True)
        for mount in container.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            folder = place / mount["name"]
            if "persistentVolumeClaim" in volume:
                claim = self.objects.get(
                    "persistentvolumeclaims", namespace, volume["persistentVolumeClaim"]["claimName"]
                )
                folder = self.folder / "claims" / claim["metadata"]["name"]
            folder.mkdir(parents=True, exist_ok=True)
            if "configMap" in volume:
                config = self.objects.get("configmaps", namespace, volume["configMap"]["name"])
                for name, text in config["data"].items():
                    (folder / name).write_text(text)
            found[mount["mountPath"]] = str(folder)
        return found

    async def _environment(
        self, pod: Object, container: Object, address: str, mounts: dict[str, str]
    ) -> dict[str, str]:
        """Return the variables of a container, with what stands for others' addresses and volumes."""
        result = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        if pod["spec"].get("automountServiceAccountToken", True):
            result["KUBECONFIG"] = str(self._kubeconfig(pod))
        for source in container.get("envFrom", []):
            result |= self._from_object(pod["metadata"]["namespace"], source)
        for variable in container.get("env", []):
            if (reference := variable.get("valueFrom", {}).get("configMapKeyRef")) is not None:
                found = self._from_object(pod["metadata"]["namespace"], {"configMapRef": reference})
                if reference["key"] in found:
                    result[variable["name"]] = found[reference["key"]]
                continue
            result[variable["name"]] = _expanded(_value(variable, pod, container, address), result)
        return {key: _in_folders(await self._resolved(value), mounts) for key, value in result.items()}

    def _from_object(self, namespace: str, source: Object) -> dict[str, str]:
        plural, reference = (
            ("configmaps", source["configMapRef"]) if "configMapRef" in source else ("secrets", source["secretRef"])
        )
        names = [one["metadata"]["name"] for one in self.objects.all(plural, namespace)]
        if reference["name"] not in names and reference.get("optional"):
            return {}
        return dict(self.objects.get(plural, namespace, reference["name"])["data"])

    async def _resolved(self, text: str) -> str:
        """Put pods' addresses in the place of services' names, and wait for those that are not there yet."""
        for match in SERVICE_NAME.finditer(text):
            while (address := self._address(match[1], match[2])) is None:
                await self.objects.news.wait()
            text = text.replace(match[0], address)
        return text

    def _address(self, service: str, namespace: str) -> str | None:
        for one in self.objects.all("services", namespace):
            if one["metadata"]["name"] == service:
                selector = one["spec"]["selector"].items()
                for pod in self.objects.all("pods", namespace):
                    if selector <= pod["metadata"]["labels"].items() and "podIP" in pod["status"]:
                        return str(pod["status"]["podIP"])
        return None

    def _kubeconfig(self, pod: Object) -> Path:
        namespace, account = pod["metadata"]["namespace"], pod["spec"].get("serviceAccountName", "default")
        path = self.folder / "pods" / pod["metadata"]["name"] / "kubeconfig"
        write_kubeconfig(path, self.server, namespace, TOKEN.format(namespace=namespace, name=account))
        return path


def write_kubeconfig(path: Path, server: str, namespace: str, token: str | None = None) -> None:
    """Write how a client reaches the API server."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "stand-in",
        "clusters": [{"name": "stand-in", "cluster": {"server": server}}],
        "users": [{"name": "stand-in", "user": {"token": token} if token else {}}],
        "contexts": [
            {"name": "stand-in", "context": {"cluster": "stand-in", "user": "stand-in", "namespace": namespace}}
        ],
    }
    path.write_text(yaml.safe_dump(content))


async def _ended(process: asyncio.subprocess.Process, grace_seconds: float) -> None:
    """End a process as a pod's deletion does."""
    process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), grace_seconds)
    except TimeoutError:
        process.kill()


def _failure_action(job: Object, status: Object) -> str:
    """Return what the first rule that fits says of a pod that failed."""
    code = status["state"]["terminated"]["exitCode"]
    for rule in job["spec"].get("podFailurePolicy", {}).get("rules", []):
        if (wanted := rule.get("onExitCodes")) is None or wanted.get("containerName", status["name"]) != status["name"]:
            continue
        if (code in wanted["values"]) == (wanted["operator"] == "In"):
            return str(rule["action"])
    return "Count"


def _value(variable: Object, pod: Object, container: Object, address: str) -> str:
    """Return what a variable is set to."""
    if "value" in variable:
        return str(variable["value"])
    source = variable["valueFrom"]
    if "resourceFieldRef" in source:
        kind, _, name = source["resourceFieldRef"]["resource"].partition(".")
        return str(int(quantity(container["resources"][kind][name])))
    path = source["fieldRef"]["fieldPath"]
    if match := re.fullmatch(r"metadata\.labels\['(.*)'\]", path):
        return str(pod["metadata"]["labels"][match[1]])
    return {"status.podIP": address, "metadata.name": str(pod["metadata"]["name"])}[path]


def _expanded(text: str, environment: dict[str, str]) -> str:
    """Return text with variables in the place of ``$(NAME)``, as Kubernetes does it: unknown ones stay."""
    return re.sub(r"\$\((\w+)\)", lambda match: environment.get(match[1], match[0]), text)


def _in_folders(text: str, mounts: dict[str, str]) -> str:
    for path, folder in mounts.items():
        text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?=/|$)", folder, text)
    return text
