"""workflows/slurm without SLURM: tests/slurm runs them where it is."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import dask
import pytest

from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.clusters.worker_environment import worker_environment
from daskfs.job.job import load_job
from daskfs.runs.status import plan_job

FOLDER = Path(__file__).parents[2] / "workflows" / "slurm"
TOLD_BY_THE_DRIVER = ("ADMIN__TICK", "LOST_WORKER", "NO_WORKERS")
"""What only its own scheduler, or nobody, asks for."""


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.sbatch")), ids=lambda path: path.name)
def test_scripts_are_ones_and_say_what_they_need(script: Path) -> None:
    assert subprocess.run(["bash", "-n", script], capture_output=True, check=False).stderr == b""
    done = subprocess.run(["bash", script], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"usage: sbatch {script.name} JOB.yaml" in done.stderr


def test_both_scripts_react_alike() -> None:
    texts = [(FOLDER / name).read_text() for name in ("job.sbatch", "jobqueue.sbatch")]
    parts = [text[text.index("# ---- the same") : text.index("# ---- the same up to here")] for text in texts]
    assert parts[0] == parts[1]
    assert len(parts[0].splitlines()) > 80


@pytest.mark.parametrize("script", ["job.sbatch", "jobqueue.sbatch"])
def test_retries_are_counted_though_slurm_ends_what_the_job_runs(script: str, tmp_path: Path) -> None:
    text = (FOLDER / script).read_text()
    part = text[text.index("# ---- the same") : text.index("# ---- the same up to here")]
    (tmp_path / "commands").mkdir()
    # SLURM's TERM comes before its answer
    commands = {"scontrol": "kill -TERM $$; exit 0", "squeue": "echo RUNNING", "daskfs": "exit 2"}
    for command, body in commands.items():
        path = tmp_path / "commands" / command
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)
    run = f"set -euo pipefail\njob=job.yaml\n{part}\nbefore=none code=4\nrequeue\n"
    environment = {"PATH": f"{tmp_path / 'commands'}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    for starts in range(1, 4):
        done = subprocess.run(
            ["bash", "-c", run], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert (tmp_path / ".daskfs-7.retries").read_text() == "4\n" * starts
    done = subprocess.run(
        ["bash", "-c", run], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "exit code 4, and it was tried again 3 times (DASKFS_MAX_RETRIES)" in done.stderr
    assert not (tmp_path / ".daskfs-7.retries").exists()


@pytest.mark.parametrize("name", ["job", "jobqueue"])
def test_jobs_fit(name: str, tmp_path: Path) -> None:
    plan = plan_job(load_job(FOLDER / f"{name}.yaml", [f"output.path={tmp_path}"]))
    assert plan["memory_limit"] is None or plan["peak_bytes"] < plan["memory_limit"]


def test_an_allocation_has_the_settings_of_clusters_that_are_started() -> None:
    lines = [line for line in (FOLDER / "job.sbatch").read_text().splitlines() if line.startswith("export ")]
    exported = dict(word.split("=", 1) for line in lines for word in shlex.split(line)[1:])
    settings = ClusterSettings(workers=2, memory_limit=2**30)
    with dask.config.set(settings.told_to_dask):
        started = worker_environment(settings)
    for name in [name for name in started if any(part in name for part in TOLD_BY_THE_DRIVER)]:
        del started[name]
    assert exported == started
