"""Workers in SLURM jobs, submitted by the driver through dask-jobqueue: one job, one process, one worker."""
# dask-jobqueue keeps the number of workers (``adapt``) by submitting a job for each missing one. It does not notice
# failed submissions, nor jobs that ended before their worker came: the driver, which checks the cluster while units
# run, asks SLURM for the jobs and drops the others.
#
# A worker has no nanny, as SLURM signals both at once and the nanny would end its worker within seconds. The worker is
# the job's first process, so that a signal to the job reaches it, and leaves gracefully (daskfs.execution.worker). The
# environment replaces the settings of nannies (worker_environment). MARGIN_SECONDS before the end of its wall time a
# worker finishes its unit and leaves, and another job replaces it. Dask's own ``--lifetime`` would rerun that unit.

from __future__ import annotations

import logging
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
from dask_jobqueue.slurm import SLURMCluster, SLURMJob
from distributed import Client, Status
from distributed.utils import get_ip

from daskfs.errors import ClusterError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.clusters.blocks import SlurmBlock
from daskfs.execution.clusters.certificates import made_for_the_run
from daskfs.execution.clusters.wait_for_workers import wait_for_workers
from daskfs.execution.clusters.walltime import walltime_seconds
from daskfs.execution.clusters.worker_environment import variable, worker_environment
from daskfs.execution.dask_configuration import configured_by
from daskfs.execution.worker import LIFETIME_KEY

logger = logging.getLogger(__name__)
MiB = 2**20
JOB_NAME = "daskfs-worker"
DEATH_SECONDS = 120
"""Seconds that a worker waits for its scheduler."""
MARGIN_SECONDS = 300
"""Seconds of the wall time reserved for the shutdown of a worker."""
SHORTEST_LIFETIME = 600
"""Seconds; shorter jobs are ended by their wall time."""
ASK_SECONDS, SOON_SECONDS = 30.0, 3.0
"""Seconds between queries for jobs while workers are missing, and shorter ones for `ASK_SECONDS` after a loss: SLURM's
controller is shared.
"""
ANSWER_SECONDS = 20.0
"""Timeout in seconds of SLURM's controller."""
LOG_BYTES = 2000
"""Bytes at the end of the log of a lost worker that the file about a failure quotes."""
ADDED = ("job_extra_directives", "job_directives_skip", "job_script_prologue")
OF_SITE = ("queue", "account", "interface", "local_directory", "log_directory", "shared_temp_directory", *ADDED)
"""Options that a site's jobqueue.yaml may set; the job's are used instead, or, of some, after them."""
ENDED = ("COMPLETING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY")
"""States of jobs that will not start a worker any more."""


class WorkerJob(SLURMJob):
    """One job; the class keeps the error of the last submission."""

    refused = ""

    def __init__(self, *arguments: Any, security: Any = None, **options: Any) -> None:
        super().__init__(*arguments, security=security, **options)
        # dask-jobqueue quotes nothing in what the shell of the job and SLURM read
        for path in filter(None, (security.get_tls_config_for_role("worker") if security else {}).values()):
            self._command_template = self._command_template.replace(f" {path}", f" {shlex.quote(path)}")
        form = re.compile(r"^(#SBATCH -[eo] )(.*[^\w./%\n-].*)$", re.MULTILINE)
        self.job_header = form.sub(r'\1"\2"', self.job_header or "")

    async def _submit_job(self, script_filename: str) -> str:
        try:
            out = str(await super()._submit_job(script_filename))
        except (OSError, RuntimeError) as error:
            type(self).refused = told_by(error)
            raise
        type(self).refused = ""
        return out

    async def close(self) -> None:
        """Cancel the job, if there is one."""
        await super().close()
        self.status = Status.closed  # the cluster checks this when it closes


def told_by(error: BaseException) -> str:
    """Return the error lines of a SLURM command from the error of dask-jobqueue, else its last line."""
    lines = [line.strip() for line in str(error).splitlines()]
    return "; ".join([line for line in lines if "error:" in line] or lines[-1:])


class SlurmWorkers(SLURMCluster):
    """Jobs of SLURM, one for each worker."""

    _asked = _lost = -ASK_SECONDS
    _n_last = 0
    logs = "."
    """Folder of the logs of the jobs."""

    def complete(self, n_workers: int) -> None:
        """Begin to replace lost workers: drop ended jobs, so that others are submitted."""
        del n_workers  # `adapt` has the number
        assert self.scheduler is not None
        registered, now = {str(worker.name) for worker in list(self.scheduler.workers.values())}, time.monotonic()
        if len(registered) < self._n_last:
            self._lost = now
        self._n_last = len(registered)
        if not self.is_time(now) or (states := self.queue("%i %T")) is None:
            return
        gone = [
            name
            for name, job in list(self.workers.items())
            if str(name) not in registered and states.get(str(job.job_id), ENDED[0]) in ENDED
        ]
        # failed submissions are retried at the next check
        with suppress(OSError, RuntimeError):
            if gone:
                self.sync(self.scale_down, gone, callback_timeout=ANSWER_SECONDS)

    def last_words(self, worker: str, name: object) -> str:
        """Return the state of a worker's job, and the last lines of its log."""
        del worker
        job = next((str(job.job_id) for key, job in list(self.workers.items()) if str(key) == str(name)), "")
        state = (self.queue("%i %T (%r)") or {}).get(job, "") if job else ""
        ends = [f"{path}: {_end_of(path)}" for path in sorted(Path(self.logs).glob(f"*-{job}.*"))] if job else []
        return "\n".join(filter(None, [f"job {job} {state}" if job else "", *ends]))

    def have_ended(self, n_workers: int) -> bool:
        """Return whether `n_workers` jobs have been submitted, and all have ended."""
        if not self.is_time(time.monotonic(), SOON_SECONDS):
            return False
        jobs, states = [str(job.job_id) for job in list(self.workers.values()) if job.job_id], self.queue("%i %T")
        return states is not None and len(jobs) >= n_workers and all(states.get(job, ENDED[0]) in ENDED for job in jobs)

    def is_time(self, now: float, often: float = ASK_SECONDS) -> bool:
        """Return whether SLURM is due for a query, and note it if so."""
        often = SOON_SECONDS if now < self._lost + ASK_SECONDS else often
        if now < self._asked + often:
            return False
        self._asked = now
        return True

    def queue(self, form: str) -> dict[str, str] | None:
        """Return the output of squeue for each job known to SLURM, by its id; None if it does not answer."""
        ids = [str(job.job_id) for job in list(self.workers.values()) if job.job_id]
        words = ["squeue", "--noheader", "--states=all", f"--format={form}", f"--jobs={','.join(ids)}"]
        if not ids:
            return {}
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode != 0:  # all of several jobs ended long ago, or the controller is away
            return {} if "Invalid job id" in done.stderr else None
        pairs = (line.strip().partition(" ") for line in done.stdout.splitlines())
        return {job: text for job, _, text in pairs}


def _end_of(path: Path) -> str:
    """Return the end of a log, empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""


def on_node(path: str) -> str:
    """Quote a path for the shell of a node, which expands variables such as $TMPDIR in it."""
    return path if path == shlex.quote(path) else '"' + re.sub(r'(["`\\])', r"\\\1", path) + '"'


def of_site(settings: ClusterSettings) -> dict[str, Any]:
    """Return the options of dask-jobqueue that the site's configuration of Dask sets, and the job leaves out."""
    job = {"local_directory": settings.local_directory, **(settings.slurm.model_dump() if settings.slurm else {})}
    site = {key: dask.config.get(f"jobqueue.slurm.{key}", None) for key in OF_SITE if not job[key] or key in ADDED}
    return {key: value for key, value in site.items() if value}


def job_options(settings: ClusterSettings, slurm: SlurmBlock) -> dict[str, Any]:
    """Return the options of dask-jobqueue for each job; the driver's configuration must be that of the run."""
    assert settings.memory_limit is not None
    lifetime = walltime_seconds(slurm.walltime) - MARGIN_SECONDS
    environment = worker_environment(settings)
    if lifetime >= SHORTEST_LIFETIME:
        environment[variable(LIFETIME_KEY)] = str(lifetime)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    site = of_site(settings)
    local_directory = settings.local_directory or site.get("local_directory")
    added = {key: [*site.get(key, ()), *getattr(slurm, key)] for key in ADDED}
    return {
        **{key: getattr(slurm, key) or site.get(key) for key in ("queue", "account", "interface", "log_directory")},
        "walltime": slurm.walltime,
        "cores": settings.threads,
        "processes": 1,
        "memory": f"{settings.memory_limit}B",
        "job_mem": f"{-(-settings.memory_limit // MiB)}M",
        "nanny": False,
        "local_directory": None if local_directory is None else on_node(local_directory),
        "death_timeout": DEATH_SECONDS,
        # a parent shell would end at the first signal, and its children with it
        "python": f"exec {shlex.quote(slurm.python or sys.executable)}",
        "worker_extra_args": [
            "--preload daskfs.execution.worker",
            *(() if settings.dashboard else ("--no-dashboard", "--dashboard-address 127.0.0.1:0")),
        ],
        "job_script_prologue": [*exports, *added["job_script_prologue"]],
        # a job that SLURM requeued would run in addition to its replacement
        "job_extra_directives": ["--no-requeue", *added["job_extra_directives"]],
        "job_directives_skip": added["job_directives_skip"],
        "job_name": JOB_NAME,
    }


@contextmanager
def start_cluster(settings: ClusterSettings) -> Iterator[Client]:
    """Yield a client of workers in SLURM jobs, which are submitted here and canceled at the end."""
    slurm = settings.slurm
    assert slurm is not None
    if shutil.which(WorkerJob.submit_command) is None:
        msg = "cluster.slurm submits jobs by sbatch, which is not there: start daskfs where SLURM takes jobs from."
        raise ClusterError(msg)
    options, site = job_options(settings, slurm), of_site(settings)
    for key, value in site.items():
        logger.warning("cluster.slurm takes %s: %s from jobqueue.slurm of the site (%s)", key, value, configured_by())
    WorkerJob.refused = ""
    # without an interface dask-jobqueue would make the scheduler listen on all of them
    where = {"interface": options["interface"]} if options["interface"] else {"host": get_ip()}
    try:
        cluster = SlurmWorkers(
            job_cls=WorkerJob,  # type: ignore[arg-type]  # annotated as an object of the class
            security=made_for_the_run(settings),
            shared_temp_directory=slurm.shared_temp_directory or site.get("shared_temp_directory") or str(Path.cwd()),
            silence_logs=logging.CRITICAL,  # a failed unit is reported once, by the driver
            scheduler_options={**where, "dashboard": settings.dashboard, "dashboard_address": "127.0.0.1:0"},
            **options,
        )
    except (OSError, RuntimeError, ValueError) as error:
        last_line = (str(error).strip().splitlines() or [type(error).__name__])[-1].rstrip(".")
        msg = f"the scheduler for cluster.slurm cannot start: {last_line}."
        raise ClusterError(msg) from error
    cluster.logs = options["log_directory"] or "."
    with cluster, Client(cluster, timeout=settings.wait_seconds) as client:
        cluster.adapt(minimum=settings.n_workers, maximum=settings.n_workers)

        def look() -> None:
            if WorkerJob.refused:
                keys = ", ".join(["cluster.slurm in the job", *(f"jobqueue.slurm.{key} of the site" for key in site)])
                msg = f"SLURM takes no jobs for workers: {WorkerJob.refused.rstrip('.')}. See {keys}."
                raise ClusterError(msg)
            if cluster.have_ended(settings.n_workers):  # further jobs would fail as well
                logs = options["log_directory"]
                where = "slurm-*.out here, or name a cluster.slurm.log_directory"
                where = f"{logs}/{JOB_NAME}-*.err" if logs else where
                msg = f"SLURM began {settings.n_workers} jobs, and all of them ended before a worker came: see {where}."
                raise ClusterError(msg)

        def told() -> str:
            texts = (cluster.queue("%i %T (%r)") or {}).values()
            reasons = ", ".join(dict.fromkeys(text for text in texts if not text.startswith("RUNNING")))
            return (
                f"no worker came within {settings.wait_seconds:g} s: "
                f"{f'SLURM says of the jobs: {reasons}' if reasons else 'SLURM says nothing of the jobs'}; wait longer "
                "(cluster.wait_seconds), or ask for less (cluster.memory_limit, .threads, cluster.slurm)."
            )

        wait_for_workers(client, settings, told, look)
        yield client
