"""The manifests are what Kubernetes and the Dask operator take, and the checks find what is planted into them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from dask.config import collect_env, get

from daskfs.execution.cluster import DASK_SETTINGS, ONE_THREAD
from daskfs.job.job import load_job
from daskfs.runs.status import plan_job
from tests.kubernetes.manifests import Object, check_cron, pods_of, problems, quantity, rendered

pytestmark = pytest.mark.platforms

FOLDER = Path(__file__).parents[2] / "workflows/kubernetes"
OVERLAYS = sorted(path.parent for path in FOLDER.rglob("kustomization.yaml"))


@pytest.fixture(scope="module")
def base() -> list[Object]:
    return rendered(FOLDER / "base")


def only(objects: list[Object], kind: str) -> Object:
    """Return the one object of a kind."""
    (found,) = (one for one in objects if one["kind"] == kind)
    return found


def environment_of(objects: list[Object]) -> dict[str, str]:
    (found,) = (one["data"] for one in objects if one["metadata"]["name"] == "daskfs-environment")
    return dict(found)


@pytest.mark.parametrize("folder", OVERLAYS, ids=lambda path: path.name)
def test_objects_have_no_problem(folder: Path) -> None:
    objects = rendered(folder)
    assert problems(objects) == []
    assert {"DaskJob", "CronJob", "ConfigMap", "Role", "RoleBinding", "ServiceAccount"} <= {
        one["kind"] for one in objects
    }


def planted(where: str, value: Any) -> Callable[[list[Object]], None]:
    """Return what sets a value in objects: ``Kind/key/key/0/key``."""

    def plant(objects: list[Object]) -> None:
        kind, *keys = where.split("/")
        place: Any = only(objects, kind)
        *path, last = [int(key) if key.isdecimal() else key for key in keys]
        for key in path:
            place = place[key]
        place[last] = value

    return plant


JOB = "CronJob/spec/jobTemplate/spec"
RUNNER, SCHEDULER, WORKER = (
    "DaskJob/spec/job/spec",
    *(f"DaskJob/spec/cluster/spec/{one}" for one in ("scheduler", "worker")),
)


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (f"{JOB}/backoffLimt", 3, "'backoffLimt' was unexpected"),
        (f"{JOB}/backoffLimit", "3", "'3' is not of type"),
        (f"{WORKER}/spec/containers/0/volumMounts", [], "'volumMounts' was unexpected"),
        (f"{SCHEDULER}/servce", {}, "'servce' was unexpected"),
        (f"{WORKER}/replicas", "two", "'two' is not of type 'integer'"),
        (f"{JOB}/template/spec/containers/0/resources/limits/memory", "2GiB", "memory: '2GiB' is no quantity"),
        (f"{WORKER}/spec/containers/0/resources/limits/memory", "2GiB", "memory: '2GiB' is no quantity"),
        (f"{WORKER}/spec/volumes/1/emptyDir/sizeLimit", "4 GB", "sizeLimit: '4 GB' is no quantity"),
        ("CronJob/spec/schedule", "61 99 * * *", "'61' is no minute"),
        ("CronJob/spec/schedule", "0 2 * *", "has 4 fields, not five"),
        ("CronJob/spec/timeZone", "Europe/Nowhere", "there is no Europe/Nowhere"),
        (f"{JOB}/template/spec/restartPolicy", "Always", "restartPolicy Always in a Job"),
        (f"{JOB}/template/spec/restartPolicy", "OnFailure", "it is Never then"),
        (f"{JOB}/podFailurePolicy/rules/1/onExitCodes/containerName", "run", "a container run, which the pod does not"),
        (f"{JOB}/podFailurePolicy/rules/0/onPodConditions", [{"type": "DisruptionTarget"}], "'status' is a required"),
        (f"{RUNNER}/restartPolicy", "Always", "without restartPolicy Never"),
        (f"{SCHEDULER}/service/selector/dask.org~cluster-name", "other", "selects another cluster's pods"),
        (f"{SCHEDULER}/service/ports/0/targetPort", "comm", "a port comm, which no container has"),
        (f"{WORKER}/spec/containers/0/args/0", "dask-worker", "calls dask-worker, which is not installed"),
        (f"{WORKER}/spec/containers/0/volumeMounts/0/name", "data", "mounts data, which is no volume"),
        (f"{RUNNER}/volumes/0/configMap/name", "daskfs-jobs", "a ConfigMap that is not there"),
        (f"{RUNNER}/volumes/1/persistentVolumeClaim/claimName", "runs", "a claim that is not there"),
        (f"{JOB}/template/spec/serviceAccountName", "launch", "the service account launch is not there"),
        ("RoleBinding/roleRef/name", "launch", "binds what is not there"),
        (f"{WORKER}/spec/securityContext", {}, "the restricted security standard"),
        (f"{WORKER}/spec/containers/0/resources", {}, "worker has no limit of memory"),
    ],
)  # fmt: skip
def test_planted_mistakes_are_found(base: list[Object], where: str, value: Any, message: str) -> None:
    objects = copy.deepcopy(base)
    if "~" in where:  # a key with a slash
        only(objects, "DaskJob")["spec"]["cluster"]["spec"]["scheduler"]["service"]["selector"] |= {
            where.rpartition("/")[2].replace("~", "/"): value
        }
    else:
        planted(where, value)(objects)
    found = problems(objects)
    assert len(found) == 1, found
    assert message in found[0]


@pytest.mark.parametrize("text", ["1", "0.5", "500m", "2Gi", "1e3", "100k", ".5"])
def test_quantities(text: str) -> None:
    assert quantity(text) > 0


@pytest.mark.parametrize("text", ["2GiB", "2gi", "2 Gi", "", "Gi", "1K"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        quantity(text)


@pytest.mark.parametrize("text", ["15 2 * * *", "*/5 * * * *", "0 0 1,15 * mon-fri", "@daily", "0-30/10 8 * jan *"])
def test_schedules(text: str) -> None:
    check_cron(text)


@pytest.mark.parametrize("text", ["61 99 * * *", "* * * *", "* * 0 * *", "*/0 * * * *", "30-10 * * * *", "a * * * *"])
def test_what_is_no_schedule(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no (minute|hour|day of month)|has \d fields|ends before"):
        check_cron(text)


def test_job_file_is_one_that_runs(tmp_path: Path) -> None:
    plan = plan_job(
        load_job(FOLDER / "base/job.yaml", [f"output.path={tmp_path / 'run'}", "cluster.memory_limit=2GiB"])
    )
    assert plan["peak_bytes"] < 2 * 2**30


def test_workers_leave_within_their_pods_grace(base: list[Object]) -> None:
    pods = pods_of(only(base, "DaskJob"))
    grace = float(environment_of(base)["DASK_DASKFS__GRACE_SECONDS"])
    assert grace + 5 <= pods["worker"]["terminationGracePeriodSeconds"] <= pods["run"]["terminationGracePeriodSeconds"]


def test_exit_codes_are_acted_on(base: list[Object]) -> None:
    rules = only(base, "CronJob")["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    by_code = {
        code: rule["action"] for rule in rules if "onExitCodes" in rule for code in rule["onExitCodes"]["values"]
    }
    assert by_code == {75: "Ignore", 2: "FailJob", 3: "FailJob"}


def test_spot_moves_workers_alone() -> None:
    pods = pods_of(only(rendered(FOLDER / "overlays/spot"), "DaskJob"))
    assert pods["run"]["nodeSelector"] == pods["scheduler"]["nodeSelector"] != pods["worker"]["nodeSelector"]
    assert [name for name, pod in pods.items() if "tolerations" in pod] == ["worker"]


def test_development_is_small_and_has_no_schedule() -> None:
    objects = rendered(FOLDER / "overlays/development")
    pods = pods_of(only(objects, "DaskJob"))
    limits = [quantity(pod["containers"][0]["resources"]["limits"]["memory"]) for pod in pods.values()]
    assert sum(limits) <= 4 * 2**30
    assert only(objects, "CronJob")["spec"]["suspend"] is True
    images = {pod["containers"][0]["image"] for one in objects for pod in pods_of(one).values()}
    assert images == {"daskfs:development"}


def test_settings_are_those_of_clusters_that_daskfs_starts(base: list[Object]) -> None:
    """What a driver sets for workers of its own, pods have from their environment."""
    environment = environment_of(base)
    assert {key: environment.get(key) for key in ONE_THREAD} == ONE_THREAD
    found, nanny = collect_env(environment), "distributed.nanny.pre-spawn-environ."
    for key, value in DASK_SETTINGS.items():
        if key.startswith(nanny):
            assert environment[key.removeprefix(nanny)] == str(value)
        elif not key.startswith("distributed.deploy."):  # of clusters that a driver starts
            assert get(key, config=found) == value


def test_every_file_is_used() -> None:
    used = yaml.safe_load((FOLDER / "base/kustomization.yaml").read_text())
    generated = [name for one in used["configMapGenerator"] for key in ("files", "envs") for name in one.get(key, [])]
    named = {*used["resources"], *generated, "kustomization.yaml"}
    assert {path.name for path in (FOLDER / "base").iterdir() if path.is_file()} == named
