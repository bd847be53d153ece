"""Checks of manifests: against the schemas of Kubernetes and of the Dask operator, and for what these let through."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

import pytest
import yaml
from yaml import CSafeLoader

jsonschema: Any = pytest.importorskip("jsonschema")
kubernetes_validate: Any = pytest.importorskip("kubernetes_validate")
pytest.importorskip("dask_kubernetes")

Object = dict[str, Any]
KUBERNETES = "1.33"
"""The version whose schemas core kinds are held against."""
QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
SUFFIXES = {suffix: Decimal(1000) ** power for power, suffix in enumerate("num", start=-3)}
SUFFIXES |= {suffix: Decimal(1000) ** power for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))}
SUFFIXES |= {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)}
CRON_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 6))
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
CRON_NAMES = {name: str(i) for i, name in enumerate(MONTHS, start=1)}
CRON_NAMES |= {name: str(i) for i, name in enumerate(DAYS)}
OLD_COMMANDS = ("dask-scheduler", "dask-worker", "dask-ssh", "dask-mpi")
"""What distributed installs no more."""


def kubectl() -> str:
    """Return the program, or skip what needs it."""
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("kubectl is not installed")
    return found


def rendered(folder: Path) -> list[Object]:
    """Return the objects that a kustomization makes."""
    done = subprocess.run([kubectl(), "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def quantity(text: object) -> Decimal:
    """Return the number that a quantity stands for; ``ValueError`` where it is none.

    >>> quantity("2Gi"), quantity("500m")
    (Decimal('2147483648'), Decimal('0.500'))
    """
    match = QUANTITY.fullmatch(str(text))
    if match is None:
        msg = f"{text!r} is no quantity"
        raise ValueError(msg)
    number, suffix = match.groups(default="")
    return Decimal(number) * SUFFIXES[suffix] if suffix in SUFFIXES else Decimal(number + suffix)


def check_cron(schedule: str) -> None:
    """Raise ``ValueError`` where a CronJob's schedule is none."""
    if schedule in ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"):
        return
    fields = schedule.split()
    if len(fields) != len(CRON_FIELDS):
        msg = f"{schedule!r} has {len(fields)} fields, not five"
        raise ValueError(msg)
    for text, (name, low, high) in zip(fields, CRON_FIELDS, strict=True):
        for part in text.split(","):
            match = re.fullmatch(r"(?:[*?]|(\w+)(?:-(\w+))?)(?:/([1-9]\d*))?", part)
            ends = [CRON_NAMES.get(end.lower(), end) for end in (match.groups()[:2] if match else ()) if end]
            if match is None or not all(end.isdecimal() and low <= int(end) <= high for end in ends):
                msg = f"{part!r} is no {name}, which is from {low} to {high}"
                raise ValueError(msg)
            if len(ends) == 2 and int(ends[0]) > int(ends[1]):
                msg = f"{part!r} ends before it begins"
                raise ValueError(msg)


def _closed(schema: Any) -> Any:
    """Return a schema that lets no property pass that it does not name."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: _closed(value) for key, value in schema.items()}
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and "type" in schema and not is_open:
        result["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
    return result


@cache
def dask_validator(kind: str) -> Any:
    """Return what holds objects against the schema of one of the operator's kinds, and lets no other property pass."""
    charts = files("dask_kubernetes") / "operator/deployment/helm/dask-kubernetes-operator/crds"
    definition = yaml.load((charts / f"{kind.lower()}.yaml").read_text(), Loader=CSafeLoader)
    schema = _closed(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    schema["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    return jsonschema.Draft202012Validator({**schema, "additionalProperties": False})


@cache
def _schema_problem(text: str) -> str | None:
    """Return what the schema of its kind says against an object, which is given as JSON: reading schemas takes long."""
    one = json.loads(text)
    try:
        if one["apiVersion"].startswith("kubernetes.dask.org/"):
            dask_validator(one["kind"]).validate(one)
        else:
            kubernetes_validate.validate(one, KUBERNETES, strict=True)
    except jsonschema.ValidationError as error:
        return f"{error.json_path}: {error.message[:200]}"
    return None


def pods_of(one: Object) -> dict[str, Object]:
    """Return the specifications of all pods that come of an object, by the names of their containers."""
    if one["kind"] == "DaskJob":
        cluster = one["spec"]["cluster"]["spec"]
        found = [one["spec"]["job"]["spec"], cluster["scheduler"]["spec"], cluster["worker"]["spec"]]
    elif one["kind"] == "CronJob":
        found = [one["spec"]["jobTemplate"]["spec"]["template"]["spec"]]
    else:
        found = []
    return {spec["containers"][0]["name"]: spec for spec in found}


def _quantities(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for one in value:
            yield from _quantities(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if key in ("requests", "limits") or name == "sizeLimit":
                yield name, one
            else:
                yield from _quantities(one, name)


def _job_problems(spec: Object) -> Iterator[str]:
    """Find what is wrong with a Job, past its schema."""
    pod = spec["template"]["spec"]
    policy = pod.get("restartPolicy")
    if policy not in ("Never", "OnFailure"):
        yield f"restartPolicy {policy} in a Job: it is Never or OnFailure"
    elif "podFailurePolicy" in spec and policy != "Never":
        yield f"restartPolicy {policy} with a podFailurePolicy: it is Never then"
    if "podFailurePolicy" in spec:
        names = [container["name"] for container in pod["containers"]]
        for rule in spec["podFailurePolicy"]["rules"]:
            if (codes := rule.get("onExitCodes")) is None:
                continue
            if codes.get("containerName", names[0]) not in names:
                yield f"podFailurePolicy is about a container {codes['containerName']}, which the pod does not have"
            if codes["operator"] == "In" and 0 in codes["values"]:
                yield "podFailurePolicy acts on exit code 0, which is none of a failure"


def _pod_problems(pod: Object, known: dict[str, set[str]]) -> Iterator[str]:
    """Find what is wrong with a pod, past its schema; `known` holds the names of other objects by their kinds."""
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    for volume in volumes.values():
        if "configMap" in volume and volume["configMap"]["name"] not in known["ConfigMap"]:
            yield f"volume {volume['name']} is of a ConfigMap that is not there"
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim is not None and claim not in known["PersistentVolumeClaim"]:
            yield f"volume {volume['name']} is of a claim that is not there"
    account = pod.get("serviceAccountName")
    if account is not None and account not in known["ServiceAccount"]:
        yield f"the service account {account} is not there"
    if not (pod.get("securityContext", {}).get("runAsNonRoot") and "seccompProfile" in pod["securityContext"]):
        yield "the pod does not hold to the restricted security standard"
    for container in pod["containers"]:
        yield from _container_problems(container, volumes, known)


def _container_problems(container: Object, volumes: Object, known: dict[str, set[str]]) -> Iterator[str]:
    for mount in container.get("volumeMounts", []):
        if mount["name"] not in volumes:
            yield f"{container['name']} mounts {mount['name']}, which is no volume of its pod"
    for source in container.get("envFrom", []):
        reference = source.get("configMapRef", {"optional": True})
        if not reference.get("optional") and reference["name"] not in known["ConfigMap"]:
            yield f"{container['name']} takes variables from a ConfigMap that is not there"
    words = [*container.get("command", []), *container.get("args", [])]
    yield from (f"{container['name']} calls {word}, which is not installed" for word in words if word in OLD_COMMANDS)
    security = container.get("securityContext", {})
    if security.get("allowPrivilegeEscalation") is not False or security.get("capabilities") != {"drop": ["ALL"]}:
        yield f"{container['name']} does not hold to the restricted security standard"
    if "memory" not in container.get("resources", {}).get("limits", {}):
        yield f"{container['name']} has no limit of memory"


def _dask_job_problems(one: Object) -> Iterator[str]:
    if one["spec"]["job"]["spec"].get("restartPolicy") != "Never":
        yield "the runner of a DaskJob is started again and again without restartPolicy Never"
    scheduler = one["spec"]["cluster"]["spec"]["scheduler"]
    if scheduler["service"]["selector"].get("dask.org/cluster-name") != one["metadata"]["name"]:
        yield "the scheduler's service selects another cluster's pods"
    ports = {port["name"] for port in scheduler["spec"]["containers"][0]["ports"]}
    for port in scheduler["service"]["ports"]:
        if port["targetPort"] not in ports:
            yield f"the scheduler's service leads to a port {port['targetPort']}, which no container has"


def problems(objects: list[Object]) -> list[str]:
    """Return what is wrong with objects that are applied together."""
    known: dict[str, set[str]] = {
        kind: set() for kind in ("ConfigMap", "PersistentVolumeClaim", "ServiceAccount", "Role")
    }
    for one in objects:
        known.setdefault(one["kind"], set()).add(one["metadata"]["name"])
    found = []
    for one in objects:
        # what is missing or misspelt would make the other checks stumble
        unlike = _schema_problem(json.dumps(one))
        wrong = [unlike] if unlike else list(_own_problems(one, known))
        found += [f"{one['kind']} {one['metadata']['name']}: {text}" for text in wrong]
    return found


def _own_problems(one: Object, known: dict[str, set[str]]) -> Iterator[str]:
    for name, value in _quantities(one.get("spec", {})):
        try:
            quantity(value)
        except ValueError as error:
            yield f"{name}: {error}"
    if one["kind"] == "CronJob":
        try:
            check_cron(one["spec"]["schedule"])
        except ValueError as error:
            yield f"schedule: {error}"
        if one["spec"].get("timeZone", "Etc/UTC") not in available_timezones():
            yield f"timeZone: there is no {one['spec']['timeZone']}"
        yield from _job_problems(one["spec"]["jobTemplate"]["spec"])
    if one["kind"] == "DaskJob":
        yield from _dask_job_problems(one)
    if one["kind"] == "RoleBinding":
        names = [subject["name"] for subject in one["subjects"]]
        if one["roleRef"]["name"] not in known["Role"] or not known["ServiceAccount"].issuperset(names):
            yield "binds what is not there"
    for pod in pods_of(one).values():
        yield from _pod_problems(pod, known)
