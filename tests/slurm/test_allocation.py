"""A whole run in one allocation: workflows/slurm/job.sbatch on a real SLURM."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.events import read_events
from tests.execution.runs import run_here
from tests.slurm.conftest import ROOT, Halts, environment
from tests.slurm.site import Site

pytestmark = pytest.mark.platforms

SCRIPTS = ROOT / "workflows" / "slurm"
SMALL = ("--ntasks=2", "--mem-per-cpu=1500M")
"""Of the virtual nodes."""
STOPPED = 75


@pytest.fixture(scope="module")
def ranking(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The ranking of a run without SLURM."""
    folder = tmp_path_factory.mktemp("here")
    run_here(SCRIPTS / "job.yaml", "--set", f"output.path={folder / 'run'}")
    return (folder / "run" / "ranking.csv").read_bytes()


def log(site: Site, job: str) -> str:
    return (site.folder / f"daskfs-{job}.log").read_text()


def test_a_run_to_its_report(site: Site, tmp_path: Path, ranking: bytes) -> None:
    output = f"output.path={tmp_path / 'run'}"
    job = site.submit(*SMALL, SCRIPTS / "job.sbatch", SCRIPTS / "job.yaml", "--set", output, **environment())
    assert site.end_of(job)["ExitCode"] == "0:0", log(site, job)
    assert (tmp_path / "run" / "ranking.csv").read_bytes() == ranking
    assert (tmp_path / "run" / "report.html").stat().st_size > 50_000
    assert len({event["process"] for event in read_events(tmp_path / "run")}) == 2
    assert list(site.folder.glob(".daskfs-*")) == []  # the scheduler's file


def test_the_wall_time_stops_a_run_that_the_next_start_finishes(
    site: Site, tmp_path: Path, halts: Halts, ranking: bytes
) -> None:
    halts.want("score")
    short = ("--time=00:01:00", "--signal=B:USR1@5")  # SLURM signals up to a minute before
    words = (*SMALL, *short, SCRIPTS / "job.sbatch", SCRIPTS / "job.yaml", "--set", f"output.path={tmp_path / 'run'}")
    job = site.submit(*words, **{**environment(), **halts.environment})
    assert halts.job_at("score") == job
    manifest = tmp_path / "run" / "run.json"
    site.wait(lambda: json.loads(manifest.read_text())["status"] == "stopped")
    assert "stopped by SIGTERM" in json.loads(manifest.read_text())["error"]
    halts.go_on("score")
    site.wait(lambda: site.show(job).get("Restarts") == "1")
    assert site.run("scontrol", "update", f"JobId={job}", "TimeLimit=20").returncode == 0
    assert site.end_of(job)["ExitCode"] == "0:0", log(site, job)
    assert site.show(job)["Restarts"] == "1"
    assert (tmp_path / "run" / "ranking.csv").read_bytes() == ranking
    # what ran when the driver stopped may have been recorded all the same
    assert {start for start, n in Counter(halts.starts()).items() if n > 1} <= {"score 0"}


def test_a_preempted_job_goes_on(site: Site, tmp_path: Path, halts: Halts, ranking: bytes) -> None:
    """SLURM tells the workers' step of it, and not the script; then it would kill the job."""
    halts.want("score")
    words = (*SMALL, "--partition=low", SCRIPTS / "job.sbatch", SCRIPTS / "job.yaml")
    job = site.submit(*words, "--set", f"output.path={tmp_path / 'run'}", **{**environment(), **halts.environment})
    assert halts.job_at("score") == job
    urgent = site.submit("--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=sleep 600")
    site.wait(lambda: f"STEP {job}.0 ON n1 CANCELLED" in log(site, job))
    halts.go_on("score")
    site.wait(lambda: site.show(job).get("Restarts") == "1")
    assert "stopped by SIGTERM" in log(site, job)
    assert site.run("scancel", urgent).returncode == 0
    assert site.end_of(job)["ExitCode"] == "0:0", log(site, job)
    assert site.show(job)["Restarts"] == "1"
    assert (tmp_path / "run" / "ranking.csv").read_bytes() == ranking


def test_a_wall_time_in_which_no_unit_is_recorded(site: Site, tmp_path: Path, halts: Halts) -> None:
    halts.want("*")
    short = ("--time=00:01:00", "--signal=B:USR1@60")  # at once
    words = (*SMALL, *short, SCRIPTS / "job.sbatch", SCRIPTS / "job.yaml", "--set", f"output.path={tmp_path / 'run'}")
    job = site.submit(*words, **{**environment(), **halts.environment})
    assert halts.job_at("ingest") == job
    assert site.end_of(job)["ExitCode"] == f"{STOPPED}:0", log(site, job)
    assert re.search("no unit was recorded in this start: stage (labels|ingest) needs a longer wall", log(site, job))
    assert site.show(job)["Restarts"] == "0"


def test_an_output_that_another_run_uses_is_tried_again_a_few_times(site: Site, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    overrides = ("--set", f"output.path={tmp_path / 'run'}", "--set", "cluster.wait_seconds=1")
    with (tmp_path / "run" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        words = (*SMALL, SCRIPTS / "job.sbatch", SCRIPTS / "job.yaml", *overrides)
        job = site.submit(*words, **environment(), DASKFS_MAX_RETRIES="1")
        assert site.end_of(job)["ExitCode"] == "4:0", log(site, job)
    assert site.show(job)["Restarts"] == "1"
    assert log(site, job).count("another daskfs process is running in") == 2
    assert "exit code 4, and it was tried again 1 times" in log(site, job)
    assert list(site.folder.glob(".daskfs-*")) == []


def test_memory_of_nodes_where_a_site_refuses_that_of_cores(site: Site, tmp_path: Path, ranking: bytes) -> None:
    lines = (SCRIPTS / "job.sbatch").read_text().splitlines(keepends=True)
    (tmp_path / "job.sbatch").write_text("".join(line for line in lines if "SBATCH --mem-per-cpu" not in line))
    words = ("--ntasks=2", "--nodes=1", "--mem=3G", tmp_path / "job.sbatch", SCRIPTS / "job.yaml")
    job = site.submit(*words, "--set", f"output.path={tmp_path / 'run'}", **environment())
    assert site.end_of(job)["ExitCode"] == "0:0", log(site, job)
    assert (tmp_path / "run" / "ranking.csv").read_bytes() == ranking
    workers = {event["process"] for event in read_events(tmp_path / "run")}
    assert len(workers) == 2


def test_a_job_of_one_node_uses_what_it_has(site: Site, tmp_path: Path, ranking: bytes) -> None:
    """Of its memory the driver takes a part, and each worker an equal share of the rest."""
    output = ("--set", f"output.path={tmp_path / 'run'}", "--set", "cluster.workers=2")
    words = ("--mem=3G", "--cpus-per-task=2", SCRIPTS / "one_node.sbatch", SCRIPTS / "job.yaml", *output)
    job = site.submit(*words, **environment())
    assert site.end_of(job)["ExitCode"] == "0:0", log(site, job)
    assert (tmp_path / "run" / "ranking.csv").read_bytes() == ranking
    plan = f"daskfs plan {SCRIPTS / 'job.yaml'} --set output.path={tmp_path / 'new'} --json"
    small, told = ("--mem=1G", "--cpus-per-task=1", f"--output={tmp_path / 'plan'}"), tmp_path / "plan"
    job = site.submit(*small, f"--wrap={plan}", **environment())
    assert site.end_of(job)["ExitCode"] == "0:0"
    planned = json.loads(told.read_text())
    assert (planned["memory_limit"], planned["memory"]) == (2**30, "1024 MiB (SLURM_MEM_PER_NODE)")
    job = site.submit(*small, f"--wrap={plan} --set cluster.workers=2", **environment())
    assert site.end_of(job)["ExitCode"] == "2:0"
    assert "cluster.memory_limit is 256 MiB" in told.read_text()
    assert "there are 1024 MiB (SLURM_MEM_PER_NODE)." in told.read_text()


def test_a_run_that_cannot_begin_ends_the_job_with_its_exit_code(site: Site, tmp_path: Path) -> None:
    overrides = ("--set", f"output.path={tmp_path / 'run'}", "--set", "data.source=nowhere.npy")
    job = site.submit(*SMALL, SCRIPTS / "job.sbatch", SCRIPTS / "job.yaml", *overrides, **environment())
    assert site.end_of(job)["ExitCode"] == "3:0", log(site, job)
    assert re.search("^daskfs: .*nowhere.npy", log(site, job), re.MULTILINE)
    assert site.show(job)["Restarts"] == "0"


LATE = """#!{python}
import json, os, re, socket, sys, time
if "worker" in sys.argv and os.environ["SLURM_PROCID"] == "1":
    file = sys.argv[sys.argv.index("--scheduler-file") + 1]
    while not os.path.exists(file):
        time.sleep(0.05)
    host, port = re.fullmatch("tcp://(.+):(.+)", json.load(open(file))["address"]).groups()
    while socket.socket().connect_ex((host, int(port))) == 0:
        time.sleep(0.05)
os.execv({dask!r}, [{dask!r}, *sys.argv[1:]])
"""
"""A ``dask`` that starts the second worker when the scheduler has gone."""


def test_a_worker_that_comes_too_late_holds_no_allocation(site: Site, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "dask"
    shim.write_text(LATE.format(python=sys.executable, dask=str(Path(sys.executable).with_name("dask"))))
    shim.chmod(0o755)
    overrides = ("--set", f"output.path={tmp_path / 'run'}", "--set", "data.source=nowhere.npy")
    words = (*SMALL, SCRIPTS / "job.sbatch", SCRIPTS / "job.yaml", *overrides)
    path = f"{tmp_path / 'bin'}{os.pathsep}{environment()['PATH']}"
    job = site.submit(*words, **{**environment(), "PATH": path})
    assert site.end_of(job)["ExitCode"] == "3:0", log(site, job)


def test_the_line_for_scrontab_and_the_end_of_a_canceled_run(site: Site, tmp_path: Path, halts: Halts) -> None:
    """What the line runs, as SLURM's scrontab is not to be had; a run that is canceled is stopped, not killed."""
    *comments, line = (SCRIPTS / "scrontab").read_text().splitlines()
    assert all(comment.startswith("#") for comment in comments)
    options = [comment.removeprefix("#SCRON ") for comment in comments if comment.startswith("#SCRON ")]
    *times, command = line.split(maxsplit=5)
    assert times == ["0", "3", "*", "*", "1"]
    home = tmp_path / "home"
    (home / "daskfs").mkdir(parents=True)
    for name in ("job.sbatch", "job.yaml"):
        shutil.copy(SCRIPTS / name, home / "daskfs")
    halts.want("score")
    own = {**environment(), **halts.environment, "HOME": str(home)}
    job = site.submit(*options, "--output=/dev/null", f"--wrap={command}", **own)
    assert site.end_of(job)["ExitCode"] == "0:0"
    submitted = halts.job_at("score")
    assert site.show(submitted)["JobName"] == "daskfs"
    (manifest,) = (home / "daskfs" / "runs").glob("*/run.json")
    assert site.run("scancel", submitted).returncode == 0
    site.wait(lambda: json.loads(manifest.read_text())["status"] == "stopped")
    halts.go_on("score")
    assert site.end_of(submitted)["JobState"] == "CANCELLED"
    assert site.show(submitted)["Restarts"] == "0"
