"""Kinds of clusters in a job file, without any of them: what is refused, what is asked for, what workers are told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import dask
import pytest
import yaml

from daskfs.errors import ClusterError, JobError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.clusters.blocks import SlurmBlock
from daskfs.execution.clusters.pods import cluster_manifest
from daskfs.execution.clusters.walltime import walltime_seconds
from daskfs.execution.clusters.worker_environment import worker_environment
from daskfs.execution.connection import connect
from daskfs.job.job import Job, make_job
from daskfs.runs.benchmark import candidate, make_study
from daskfs.runs.status import plan_job
from tests.cli.command import basic_job, daskfs, refused, write_job

USAGE, CLUSTER = 2, 4
GiB = 2**30
SLURM: dict[str, Any] = {"slurm": {"queue": "batch"}, "memory_limit": "2GiB", "workers": 3}
KUBERNETES: dict[str, Any] = {"kubernetes": {"image": "daskfs:1"}, "memory_limit": "2GiB", "workers": 3}


def job_of(cluster: dict[str, Any], **blocks: Any) -> Job:
    raw = {"data": {"source": "X.npy"}, "methods": ["VarianceScore"], "output": {"path": "run"}}
    return make_job({**raw, "cluster": cluster, **blocks})


def settings_of(cluster: dict[str, Any], **blocks: Any) -> ClusterSettings:
    return job_of(cluster, **blocks).settings


# ------------------------------------------------------------------------------------------------------- the job file
def test_a_job_has_one_cluster(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path, cluster={"address": "tcp://h:1", "scheduler_file": "s.json"}))
    refused(daskfs("run", job), USAGE, "cluster.address and cluster.scheduler_file are two clusters", "leave one out")
    both = {**SLURM, "kubernetes": {"image": "daskfs:1"}}
    refused(
        daskfs("run", write_job(tmp_path, basic_job(tmp_path, cluster=both))),
        USAGE,
        "cluster.slurm and cluster.kubernetes are two clusters",
    )
    assert settings_of({**SLURM, "address": None}).slurm == SlurmBlock(queue="batch")


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ({"slurm": {}}, "set cluster.memory_limit, for example 4GiB"),
        ({**SLURM, "workers": 0}, "cluster.workers is 0, and cluster.slurm starts workers"),
        ({**KUBERNETES, "tls": True}, "cluster.tls is not for cluster.kubernetes"),
        ({**SLURM, "slurm": {"partition": "x"}}, "unknown key 'cluster.slurm.partition'"),
        ({**SLURM, "slurm": {"walltime": 43200}}, "a wall time stands in quotes, '12:00:00'"),
        ({**SLURM, "slurm": {"walltime": "2 hours"}}, "'2 hours' is no wall time"),
        ({**SLURM, "slurm": {"job_script_prologue": ["export AWS_SECRET_ACCESS_KEY=abc"]}}, "credentials belong in"),
        ({**KUBERNETES, "kubernetes": {"image": "i", "env": {"AWS_SECRET_ACCESS_KEY": "abc"}}}, "name that in secrets"),
        ({**KUBERNETES, "kubernetes": {}}, "key 'cluster.kubernetes.image' is missing"),
    ],
)
def test_what_a_kind_does_not_take(cluster: dict[str, Any], told: str) -> None:
    with pytest.raises(JobError) as caught:
        job_of(cluster)
    assert told in str(caught.value)


def test_wall_times_as_yaml_and_slurm_have_them() -> None:
    assert yaml.safe_load("12:00:00") == 43200  # which is why they stand in quotes
    assert [walltime_seconds(text) for text in ("90", "90:30", "12:00:00", "2-12", "1-00:30", "1-00:30:05")] == [
        5400,
        5430,
        43200,
        216000,
        88200,
        88205,
    ]
    for wrong in ("", "0", "1:2:3", "-1", "12h", "UNLIMITED"):
        with pytest.raises(ValueError, match="is no wall time"):
            walltime_seconds(wrong)


def test_what_the_shell_looks_up_is_no_credential() -> None:
    lines = ["module load python", 'export TOKEN="$(cat ~/.token)"', "export API_KEY=$KEY"]
    assert job_of({**SLURM, "slurm": {"job_script_prologue": lines}}).cluster.slurm is not None


@pytest.mark.cluster
def test_a_plan_goes_by_the_memory_of_a_worker_and_starts_nothing(tmp_path: Path) -> None:
    jobs = [make_job(basic_job(tmp_path, cluster=cluster)) for cluster in (SLURM, KUBERNETES)]
    for job, cluster in zip(jobs, (SLURM, KUBERNETES), strict=True):
        assert plan_job(job)["memory_limit"] == 2 * GiB
        small = make_job(basic_job(tmp_path, cluster={**cluster, "memory_limit": "100MiB"}))
        assert "Set cluster.memory_limit to" in daskfs("plan", write_job(tmp_path, small.model_dump(mode="json"))).err
    assert {"daskfs.execution.clusters.slurm", "daskfs.execution.clusters.kubernetes"}.isdisjoint(fresh_modules(jobs))


def fresh_modules(jobs: list[Job]) -> set[str]:
    """Return the modules of a process that has planned jobs and done nothing else."""
    code = (
        "import json, sys\n"
        "from daskfs.job.job import make_job\n"
        "from daskfs.runs.status import plan_job\n"
        "for text in sys.argv[1:]:\n"
        "    plan_job(make_job(json.loads(text)))\n"
        "print(' '.join(sys.modules))\n"
    )
    argv = [sys.executable, "-c", code, *(job.model_dump_json() for job in jobs)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


# ----------------------------------------------------------------------------------------------------- Dask's own keys
def test_keys_of_dask_with_dots_and_within_each_other() -> None:
    nested = {"distributed": {"worker": {"memory": {"target": False}}}, "distributed.comm.retry.count": 7}
    assert job_of({}, dask=nested).dask == {
        "distributed.worker.memory.target": False,
        "distributed.comm.retry.count": 7,
    }


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"distribted.worker": 1}, "Did you mean 'distributed'?"),
        ({"scheduler": "threads"}, "there is no scheduler in Dask's configuration"),
        ({"distributed.a b": 1}, "is no key of Dask's configuration"),
        ({"distributed.x": [{"a": 1}]}, "or a list of these"),
        ({"distributed.x": "s3://key:secret@bucket"}, "credentials belong in the environment"),
        ({"distributed.api-token": "abc"}, "credentials belong in the environment"),
        ([1], "keys of Dask's configuration should stand here"),
    ],
)
def test_keys_that_dask_does_not_have(keys: Any, told: str) -> None:
    with pytest.raises(JobError) as caught:
        job_of({}, dask=keys)
    assert told in str(caught.value)


@pytest.mark.cluster
def test_keys_of_dask_are_set_on_the_command_line_and_change_no_result(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    assert daskfs("run", job, "-q").code == 0
    again = daskfs("run", job, "--json", "-q", "--set", "dask.distributed.comm.retry.count=1")
    assert (again.code, again.json["recomputed"]) == (0, {})


def test_a_study_hands_them_to_its_runs() -> None:
    raw = {"datasets": {"a": "a.npz"}, "output": {"path": "s"}, "dask": {"distributed.comm.retry.count": 1}}
    assert candidate(make_study(raw), "a").dask == raw["dask"]


KEYS = {
    "distributed.worker.memory.target": False,
    "distributed.scheduler.allowed-failures": 2,
    "distributed.comm.timeouts.connect": "7s",
    "distributed.worker.preload": ["a", "b"],
    "distributed.nanny.pre-spawn-environ.OMP_NUM_THREADS": 3,
}


@pytest.mark.cluster
def test_keys_of_dask_hold_on_the_driver_and_in_local_workers() -> None:
    def seen() -> list[Any]:
        return [dask.config.get(key) for key in list(KEYS)[:3]]

    keys = {key: value for key, value in KEYS.items() if "preload" not in key}
    settings = ClusterSettings(workers=1, memory_limit=GiB, dask=keys)
    with connect(settings) as client:
        assert client is not None
        assert seen() == [False, 2, "7s"]
        assert list(client.run(seen).values()) == [[False, 2, "7s"]]
        assert client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.allowed_failures) == 2
    assert dask.config.get("distributed.comm.timeouts.connect") != "7s"


def test_workers_elsewhere_read_the_same_from_their_environment() -> None:
    settings = settings_of(SLURM, dask={**KEYS, "daskfs.grace-seconds": "5"})
    with dask.config.set(settings.told_to_dask):
        environment = worker_environment(settings)
    assert (environment["OMP_NUM_THREADS"], environment["NUMBA_NUM_THREADS"]) == ("3", "1")
    assert environment["MALLOC_TRIM_THRESHOLD_"] == str(2**26)
    read = dask.config.collect_env(environment)
    for key, value in settings.told_to_dask.items():
        if "nanny" not in key:
            assert dask.config.get(key, config=read) == value, key
    assert dask.config.get("distributed.worker.http.routes", config=read) == []


# --------------------------------------------------------------------------------------------------------------- SLURM
def script_of(settings: ClusterSettings) -> list[str]:
    from daskfs.execution.clusters.slurm import WorkerJob, job_options

    assert settings.slurm is not None
    with dask.config.set(settings.told_to_dask):
        options = job_options(settings, settings.slurm)
        return WorkerJob("tcp://10.0.0.1:5", name="w-1", **options).job_script().splitlines()


def test_the_script_of_a_worker(tmp_path: Path) -> None:
    slurm = {
        "queue": "batch",
        "account": "mine",
        "walltime": "02:00:00",
        "interface": "ib0",
        "python": "/opt/my python",
        "log_directory": str(tmp_path / "logs"),
        "job_script_prologue": ["module load python"],
        "job_extra_directives": ["--constraint=avx512"],
    }
    cluster = {"slurm": slurm, "memory_limit": "1500MB", "threads": 2, "local_directory": "/scratch"}
    script = script_of(settings_of(cluster))
    assert [line for line in script if line.startswith("#SBATCH")] == [
        "#SBATCH -J daskfs-worker",
        f"#SBATCH -e {tmp_path}/logs/daskfs-worker-%J.err",
        f"#SBATCH -o {tmp_path}/logs/daskfs-worker-%J.out",
        "#SBATCH -p batch",
        "#SBATCH -A mine",
        "#SBATCH -n 1",
        "#SBATCH --cpus-per-task=2",
        "#SBATCH --mem=1431M",
        "#SBATCH -t 02:00:00",
        "#SBATCH --no-requeue",
        "#SBATCH --constraint=avx512",
    ]
    assert script[-2:] == [
        "module load python",
        "exec '/opt/my python' -m distributed.cli.dask_worker tcp://10.0.0.1:5 --name w-1 --nthreads 2 --memory-limit "
        "1.40GiB --no-nanny --death-timeout 120 --local-directory /scratch --preload daskfs.execution.worker "
        "--no-dashboard --dashboard-address 127.0.0.1:0 --interface ib0",
    ]
    exported = [line for line in script if line.startswith("export ")]
    assert "export OMP_NUM_THREADS=1" in exported
    assert "export MALLOC_MMAP_THRESHOLD_=8388608" in exported
    assert "export DASK_DISTRIBUTED__WORKER__HTTP__ROUTES='[]'" in exported
    assert "export DASK_DASKFS__LIFETIME_SECONDS=6900" in exported


def test_a_short_job_ends_by_its_wall_time_and_directives_can_be_left_out() -> None:
    slurm = {"walltime": "14:59", "job_directives_skip": ["--mem"]}
    script = script_of(settings_of({**SLURM, "slurm": slurm}))
    assert not [line for line in script if "--mem=" in line or "LIFETIME" in line]


@pytest.mark.cluster
def test_ctrl_c_stays_that_of_the_driver() -> None:
    """dask-jobqueue takes it when it is imported."""
    code = (
        "import signal, sys\n"
        "from daskfs.execution.cluster import ClusterSettings\n"
        "from daskfs.execution.clusters.blocks import SlurmBlock\n"
        "from daskfs.execution.connection import connect\n"
        "from daskfs.errors import ClusterError\n"
        "before = signal.getsignal(signal.SIGINT)\n"
        "try:\n"
        "    with connect(ClusterSettings(workers=2, memory_limit=2**30, slurm=SlurmBlock())):\n"
        "        pass\n"
        "except ClusterError as error:\n"
        "    print(error)\n"
        "assert 'dask_jobqueue' in sys.modules\n"
        "assert signal.getsignal(signal.SIGINT) is before\n"
    )
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"PATH": "/nonexistent"})
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "submits jobs by sbatch, which is not there" in done.stdout


@pytest.mark.parametrize(
    ("kind", "cluster", "package"), [("slurm", SLURM, "dask_jobqueue"), ("kubernetes", KUBERNETES, "dask_kubernetes")]
)
def test_an_extra_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, kind: str, cluster: dict[str, Any], package: str
) -> None:
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"daskfs.execution.clusters.{kind}", raising=False)
    told = rf"cluster\.{kind} needs the package {package.replace('_', '-')}: pip install 'daskfs\[{kind}\]'"
    with pytest.raises(ClusterError, match=told), connect(settings_of(cluster)):
        pass


# ---------------------------------------------------------------------------------------------------------- Kubernetes
def manifest_of(**cluster: Any) -> dict[str, Any]:
    settings = settings_of({**KUBERNETES, **cluster})
    with dask.config.set(settings.told_to_dask):
        return cluster_manifest(settings, "daskfs-1")


def test_the_pods_that_are_asked_for() -> None:
    kubernetes = {
        "image": "daskfs:1",
        "service_account": "ranker",
        "env": {"AWS_REGION": "eu-north-1"},
        "secrets": ["s3"],
        "volume_claims": {"runs": "/runs"},
        "node_selector": {"pool": "spot"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    }
    spec = manifest_of(kubernetes=kubernetes, threads=2)["spec"]
    worker, scheduler = spec["worker"]["spec"], spec["scheduler"]["spec"]
    (container,), (other,) = worker["containers"], scheduler["containers"]
    assert spec["worker"]["replicas"] == 3
    assert container["args"][:2] == ["dask", "worker"]
    assert {"--no-nanny", "daskfs.execution.worker", "--no-dashboard"} <= set(container["args"])
    assert other["args"][:2] == ["dask", "scheduler"]
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": str(2 * GiB)},
        "limits": {"memory": str(2 * GiB)},
    }
    assert (worker["nodeSelector"], worker["tolerations"]) == (
        {"pool": "spot"},
        [{"key": "spot", "operator": "Exists"}],
    )
    assert not {"nodeSelector", "tolerations"} & set(scheduler)  # its loss would be that of the run
    for pod, own in ((worker, container), (scheduler, other)):
        assert pod["serviceAccountName"] == "ranker"
        assert own["envFrom"] == [{"secretRef": {"name": "s3"}}]
        assert own["volumeMounts"] == [{"name": "runs", "mountPath": "/runs"}]
        named = {entry["name"]: entry.get("value") for entry in own["env"]}
        assert (named["AWS_REGION"], named["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"]) == ("eu-north-1", "10")
    # Kubernetes asks the scheduler whether it lives; nothing else is served
    assert named["DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES"] == "['distributed.http.health']"
