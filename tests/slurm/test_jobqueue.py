"""Workers that are jobs of their own: cluster.slurm of a job file, and workflows/slurm/jobqueue.sbatch."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from distributed import Client

from tests.cli.command import basic_job, write_job
from tests.execution.runs import command, run_here
from tests.execution.test_worker import statuses
from tests.slurm.conftest import ROOT, Halts, environment
from tests.slurm.site import Site

pytestmark = pytest.mark.platforms

SCRIPTS = ROOT / "workflows" / "slurm"
WORKERS = "daskfs-worker"
CLUSTER = 4
PATIENCE, MARGIN = 5.0, 60.0
"""cluster.wait_seconds, and what starting and ending may take besides on a machine that does other things."""


@pytest.fixture(scope="module")
def ranking(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The ranking of a run without SLURM."""
    folder = tmp_path_factory.mktemp("here")
    run_here(SCRIPTS / "jobqueue.yaml", "--set", "cluster.slurm=null", "--set", f"output.path={folder / 'run'}")
    return (folder / "run" / "ranking.csv").read_bytes()


def submit(site: Site, folder: Path, halts: Halts, *options: str, **more: str) -> str:
    """Submit the driver of a run on two workers."""
    settings = {
        "cluster.workers": 2,
        "cluster.memory_limit": "1GiB",
        "cluster.slurm.interface": "lo",
        "cluster.slurm.log_directory": folder / "logs",
        "cluster.tls": "false",  # tests ask the scheduler
        "output.path": folder / "run",
    }
    overrides = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words = (SCRIPTS / "jobqueue.sbatch", SCRIPTS / "jobqueue.yaml", *overrides, *options)
    return site.submit("--mem-per-cpu=1500M", *words, **{**environment(), **halts.environment, **more})


def finished(site: Site, job: str, folder: Path, ranking: bytes) -> None:
    log = site.folder / f"daskfs-{job}.log"
    assert site.end_of(job)["ExitCode"] == "0:0", log.read_text()
    assert (folder / "run" / "ranking.csv").read_bytes() == ranking
    site.wait(lambda: not site.jobs(WORKERS))


def test_a_job_that_is_canceled_is_replaced(site: Site, tmp_path: Path, halts: Halts, ranking: bytes) -> None:
    """Its unit does not end in time, and runs again."""
    halts.want("score")
    driver = submit(site, tmp_path, halts, DASK_DASKFS__GRACE_SECONDS="1")
    lost = halts.job_at("score")
    halts.want("rank")
    before = set(site.wait(lambda: len(found := site.running(WORKERS)) == 2 and found))
    assert site.run("scancel", lost).returncode == 0
    assert halts.job_at("rank") in before - {lost}
    site.wait(lambda: len(set(site.running(WORKERS)) - before) == 1)
    halts.go_on("rank")
    finished(site, driver, tmp_path, ranking)
    assert [start for start, n in Counter(halts.starts()).items() if n > 1] == ["score 0"]


def test_a_job_that_ends_at_its_wall_time_leaves_its_last_words(site: Site, tmp_path: Path, halts: Halts) -> None:
    """A unit fails that no second worker may run, and the file about it has what SLURM says of the job."""
    halts.want("score")
    words = "{distributed.scheduler.allowed-failures: 0}"
    grace = {"DASK_DASKFS__GRACE_SECONDS": "600", "DASKFS_MAX_RETRIES": "0"}
    driver = submit(site, tmp_path, halts, "--set", f"dask={words}", **grace)
    lost = halts.job_at("score")
    assert site.run("scontrol", "update", f"JobId={lost}", "TimeLimit=1").returncode == 0
    assert site.end_of(driver)["ExitCode"] == "1:0"
    (path,) = (tmp_path / "run" / "failures").iterdir()
    assert f"its end: job {lost} " in path.read_text()
    assert re.search("TIMEOUT|COMPLETING|TimeLimit", path.read_text()), path.read_text()
    assert f"({path})" in (site.folder / f"daskfs-{driver}.log").read_text()


def test_a_job_that_is_told_to_leave_ends_its_unit(site: Site, tmp_path: Path, halts: Halts, ranking: bytes) -> None:
    """As one that is preempted is: no unit runs twice, and another job takes its place."""
    halts.want("score")
    driver = submit(site, tmp_path, halts)
    leaving = halts.job_at("score")
    halts.want("rank")
    before = set(site.wait(lambda: len(found := site.running(WORKERS)) == 2 and found))
    with Client(halts.scheduler_of("score"), set_as_default=False) as client:
        assert site.run("scancel", "--full", "--signal=TERM", leaving).returncode == 0
        site.wait(lambda: "closing_gracefully" in statuses(client))
    halts.go_on("score")
    assert site.end_of(leaving)["ExitCode"] == "0:0"
    assert halts.job_at("rank") in before - {leaving}
    site.wait(lambda: len(set(site.running(WORKERS)) - before) == 1)
    halts.go_on("rank")
    finished(site, driver, tmp_path, ranking)
    assert max(Counter(halts.starts()).values()) == 1


def test_a_run_has_tls(site: Site, tmp_path: Path) -> None:
    """In a folder with blanks, with scratch of the node."""
    folder = tmp_path / "my run é ü"
    folder.mkdir()
    own = {"interface": "lo", "log_directory": str(folder / "the logs")}
    cluster = {"workers": 1, "memory_limit": "1GiB", "slurm": own, "local_directory": "$TMPDIR/of $SLURM_JOB_ID"}
    path = write_job(folder, basic_job(folder, cluster=cluster))
    done = run_at(site, path)
    assert (done.returncode, done.stderr) == (0, "")
    logs = "".join(log.read_text() for log in (folder / "the logs").iterdir())
    assert "tls://127.0.0.1:" in logs
    assert "tcp://" not in logs
    assert re.search(r"Local Directory: +.*/of \d+/dask-scratch-space", logs)
    assert list(folder.glob(".dask-jobqueue*")) == []  # its certificate


FAULTY = """import sys
if {"worker", "distributed.cli.dask_worker"} & {*sys.orig_argv}:
    from daskfs.stages import units
    def fail_on_purpose(*_):
        raise KeyError("s3://me:hunter2@bucket/key")
    units._attempt = fail_on_purpose
"""


def test_a_unit_that_fails_is_located(site: Site, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAULTY)
    own = {"interface": "lo", "log_directory": str(tmp_path / "logs")}
    path = write_job(tmp_path, basic_job(tmp_path, cluster={"workers": 1, "memory_limit": "1GiB", "slurm": own}))
    done = run_at(site, path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    failures = list((tmp_path / "run" / "failures").iterdir())  # of stages that ran at once
    (failure,) = (path for path in failures if f"({path})" in done.stderr)
    assert "in fail_on_purpose" in failure.read_text()
    every = [done.stderr, *(file.read_text() for file in (*failures, *(tmp_path / "logs").iterdir()))]
    assert "hunter2" not in "".join(every)


def run_at(site: Site, job: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a job on a machine that submits to SLURM."""
    own = {**site.environment, "PYTHONPATH": str(ROOT), "TMPDIR": str(job.parent), **more}
    return subprocess.run(
        command("run", job, "-q"), capture_output=True, text=True, check=False, env=own, cwd=job.parent
    )


# ------------------------------------------------------------------------------------------------ what SLURM says no to
def refusal(site: Site, folder: Path, **slurm: object) -> tuple[str, float]:
    """Run a job in vain; return the one line that it says, and the seconds that it took."""
    own = {"interface": "lo", "log_directory": str(folder / "logs"), **slurm}
    cluster = {"workers": 2, "memory_limit": "1GiB", "wait_seconds": PATIENCE, "slurm": own}
    path = write_job(folder, basic_job(folder, cluster=cluster))
    began = time.monotonic()
    done = run_at(site, path)
    seconds = time.monotonic() - began
    assert (done.returncode, done.stdout) == (CLUSTER, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert site.jobs(WORKERS) == []
    return done.stderr, seconds


def test_a_partition_that_does_not_exist(site: Site, tmp_path: Path) -> None:
    line, seconds = refusal(site, tmp_path, queue="nowhere")
    assert line.startswith(
        "daskfs: SLURM takes no jobs for workers: sbatch: error: invalid partition specified: nowhere"
    )
    assert seconds < MARGIN


def test_a_partition_that_runs_nothing(site: Site, tmp_path: Path) -> None:
    line, seconds = refusal(site, tmp_path, queue="closed")
    assert "no worker came within 5 s: SLURM says of the jobs: PENDING (PartitionDown)" in line
    assert "cluster.wait_seconds" in line
    assert PATIENCE < seconds < PATIENCE + MARGIN


def test_jobs_that_end_at_once(site: Site, tmp_path: Path) -> None:
    line, seconds = refusal(site, tmp_path, python="/nonexistent/python")
    assert (
        f"SLURM began 2 jobs, and all of them ended before a worker came: see {tmp_path}/logs/{WORKERS}-*.err" in line
    )
    assert seconds < PATIENCE + MARGIN
    assert "/nonexistent/python" in "".join(path.read_text() for path in (tmp_path / "logs").glob("*.err"))
