"""Execution of a job, from the job to its report."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from daskfs.criteria.registry import check_labels
from daskfs.errors import JobError, StoreError
from daskfs.evaluation.design import DESIGN_STAGE, EvaluationParameters
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.connection import connect
from daskfs.execution.pool import Pool, granted_workers, pool_of
from daskfs.execution.progress import OfSeveral, Progress, Silent
from daskfs.execution.signals import stoppable, undisturbed
from daskfs.job.job import Job
from daskfs.job.storage import with_storage_access
from daskfs.logs import set_log_level
from daskfs.ranking.batches import RankedBatch
from daskfs.ranking.settings import settings_of
from daskfs.runs.active_run import ActiveRun
from daskfs.runs.batches import batch_jobs, find_batches
from daskfs.runs.ending import finish_run, repair_finished
from daskfs.runs.journal import Journal
from daskfs.runs.manifest import (
    load_or_create_manifest,
    lock_directory,
)
from daskfs.runs.plan import plan_run
from daskfs.runs.preparation import Preparation
from daskfs.runs.repair import (
    error_context,
    rerun_on_damage,
)
from daskfs.runs.runner import Runner, fill_tiles
from daskfs.runs.tiles import label_facts, plan_tiles
from daskfs.runs.workers import settled_cluster
from daskfs.stages.cost import MIN_UNITS, Workers
from daskfs.stages.limits import check_memory
from daskfs.stages.machine import job_scratch
from daskfs.stages.requirements import installed_versions
from daskfs.stages.stage import Plan, Stage
from daskfs.stages.units import create_arrays
from daskfs.storage import as_path
from daskfs.store import layout
from daskfs.store.context import Context, planned_tiles
from daskfs.store.lease import Owner
from daskfs.store.store import Store
from daskfs.tiles.plan import TilePlan

if TYPE_CHECKING:
    from distributed import Client


Result = TypeVar("Result")
Connect = Callable[[ClusterSettings], AbstractContextManager["Client | None"]]


@with_storage_access
def run_job(
    job: Job,
    progress: Progress | None = None,
    *,
    overwrite: bool = False,
    command: str | None = None,
    connect: Connect = connect,
    adapt: Callable[[Plan], Plan] = lambda plan: plan,
) -> dict[str, Any]:
    """Run or resume a job.

    Parameters
    ----------
    job
        The job. If its output directory holds a run of the same job, only missing units run. A run of another job in
        which nothing was scored is superseded; tiles of the same data are kept.
    progress
        Receives the progress of the run.
    overwrite
        First delete the run of another job in the output directory.
    command
        Command line to show in the report.
    connect
        Context manager of the Dask client that runs the units. A new cluster is only started if units are pending.
    adapt
        Changes the plan of a new run before it begins.

    Returns
    -------
    dict
        Content of ``run.json``, and ``recomputed``: the number of units that this call ran, by stage.

    Raises
    ------
    daskfs.errors.DaskfsError
        Any subclass. Finished units stay recorded, and the same call resumes the run.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from daskfs import make_job, run_job
    >>> with TemporaryDirectory() as folder:
    ...     job = make_job({
    ...         "data": {"source": "sklearn:iris"},
    ...         "methods": ["VarianceScore"],
    ...         "cluster": {"workers": 0},
    ...         "output": {"path": folder},
    ...     })
    ...     first = run_job(job)
    ...     again = run_job(job)
    >>> first["data"]["n_samples"], sum(again["recomputed"].values())
    (150, 0)
    """
    return _run(job, progress or Silent(), overwrite=overwrite, command=command, connect=connect, adapt=adapt)


def _run(
    job: Job,
    progress: Progress,
    *,
    overwrite: bool = False,
    command: str | None = None,
    connect: Connect,
    adapt: Callable[[Plan], Plan] = lambda plan: plan,
) -> dict[str, Any]:
    """Run or resume a job whose buckets can be reached; otherwise as :func:`run_job`."""
    store = Store(as_path(job.output.path))
    check_apart(job, store)
    wait_seconds, journal = job.settings.wait_seconds, Journal(progress)
    set_log_level(job.settings.log_level or "")
    locking = lock_directory(store, layout.RUN_JSON, "daskfs run", "output.path", journal.message, wait_seconds)
    with closing(journal), stoppable(), locking as lock:
        manifest, superseded = load_or_create_manifest(store, job, overwrite=overwrite)
        run, settings = ActiveRun(store, lock, journal, manifest), settled_cluster(job)
        execution = _Execution(job, run, superseded, command, adapt)
        return rerun_on_damage(lambda: execution.execute(settings, connect), store, lock, run.tell)


class _Execution:
    def __init__(
        self, job: Job, run: ActiveRun, superseded: str, command: str | None, adapt: Callable[[Plan], Plan]
    ) -> None:
        self.job, self.run, self.store, self.journal = job, run, run.store, run.journal
        self.preparation, self.command, self.adapt = Preparation(run, job, superseded), command, adapt

    def execute(self, settings: ClusterSettings, connect: Connect) -> dict[str, Any]:
        self.store.forget()
        with ExitStack() as stack:
            # existing workers report their memory; new ones are only started for a job that passed all checks
            client = stack.enter_context(connect(settings)) if settings.is_joined else None
            workers = granted_workers(settings, client)
            for warning in _warnings_of_surroundings(self.store, pool_of(settings, client), workers):
                self.run.warn(warning)
            tiles = self.preparation.prepare(workers, is_joined=settings.is_joined)
            stack.enter_context(self.run.recording_failure())
            if (done := repair_finished(self.run, tiles)) is not None:
                return done
            self.run.open_log()
            if not settings.is_joined:
                client = stack.enter_context(connect(settings))
            self.run.lock.check()
            self.store.begin_epoch()
            self.run.save()  # before any output: what another driver has ended here since is no longer what is there
            self.journal.message(
                "",
                "run_started",
                command=self.command,
                epoch=self.store.epoch.name,
                by=str(Owner()),
                versions=dict(installed_versions()),
            )
            pool = pool_of(settings, client, self.journal.message)
            runner = Runner(pool, self.journal, self.run.unit_done, self.run.recomputed, tell=self.run.tell)
            if tiles.stages:
                fill_tiles(tiles, runner)
            batches = self._run_batches(tiles, client, workers) if tiles.has_batch else []
            plan = self._plan(tiles, workers, batches)
            check_memory(plan.stages, workers, is_joined=settings.is_joined)
            context = Context(self.store)
            check_labels_of(plan, context)
            check_scalings_of(plan, context)
            create_arrays(context, plan.stages)
            runner.begun = lambda stage: self._show_ranking(stage, plan)
            runner.run(context, plan.stages, plan.identity)
            times = {"stages": runner.seconds, "threads": runner.pool.n_threads}
        with self.run.recording_failure():
            return finish_run(self.run, plan, tiles, times, batches, self.command)

    def _show_ranking(self, stage: Stage, plan: Plan) -> None:
        """Show the ranking before the first stage of the evaluation that follows it."""
        tests = [one.name for one in plan.stages if isinstance(one.parameters, EvaluationParameters)]
        if stage.name in [name for name in tests if name != DESIGN_STAGE.name][:1]:
            from daskfs.report.summary import ranking_lines

            for line in ranking_lines(self.store, plan):
                self.journal.message(line)

    def _run_batches(self, tiles: TilePlan, client: Client | None, workers: Workers) -> list[dict[str, Any]]:
        """Run the job over each batch, after planning all, and return facts for the manifest."""
        finished = planned_tiles(tiles.url, tiles.fingerprint, self.store.url)
        batches = find_batches(self.job, finished)
        jobs = batch_jobs(self.job, self.store.url, finished, batches)
        for name, job in jobs.items():
            with error_context("batch", name):
                batch_tiles = plan_tiles(job.data, f"{as_path(job.output.path)}/{layout.TILES_DIR}", workers)
                check_memory((*batch_tiles.stages, *plan_run(job, batch_tiles, None, workers).stages), workers)
        display = threading.Lock()

        def ranked(name: str) -> dict[str, Any]:
            with error_context("batch", name):
                batch_display = OfSeveral(self.journal.display, f"batch {name}", display)
                facts = _run(jobs[name], batch_display, connect=lambda _: nullcontext(client))
            self.run.lock.check()
            return facts

        done = run_at_once(ranked, jobs, 1 if client is None else workers.n_at_once // MIN_UNITS)
        for name, manifest in done.items():
            for stage, count in manifest.pop("recomputed").items():
                self.run.recomputed[f"batch {name}, {stage}"] = count
            manifest["report"] = as_path(manifest["report"]).name_below(self.store.path(""))
        keys = ("seconds", "peak_bytes", "planned_peak_bytes", "warnings", "report")
        return [
            {**dataclasses.asdict(batch), **{key: done[batch.name][key] for key in keys if batch.name in done}}
            for batch in batches
        ]

    def _plan(self, tiles: TilePlan, workers: Workers, batches: Sequence[Mapping[str, Any]]) -> Plan:
        finished = planned_tiles(tiles.url, tiles.fingerprint, self.store.url)
        names = finished.feature_names()
        tiles = dataclasses.replace(tiles, **label_facts(tiles.url, finished.info))
        ranked_batches = [RankedBatch(batch["number"], batch["name"], tuple(batch["methods"])) for batch in batches]
        planned = plan_run(self.job, tiles, tiles.task, workers, names, ranked_batches)
        raw = self.store.read_json(layout.PLAN_JSON)
        if raw is None:
            planned = self.adapt(planned)
            self.store.write_json(layout.PLAN_JSON, planned.to_json(self.store.url))
            return planned
        stored = Plan.from_json(raw, self.store.url)  # keep the slabs, whatever the memory limit is now
        if stored.facts.get("job") != planned.facts["job"]:
            msg = (
                f"{self.store.url} was begun by another state of daskfs, which computes other values. Choose another "
                "output.path, or start over with --overwrite."
            )
            raise StoreError(msg)
        return stored


def run_at_once(run: Callable[[str], Result], names: Iterable[str], n: int) -> dict[str, Result]:
    """Return the result of `run` for each name; up to `n` run at a time, in threads if that is more than one.

    After an error, or a signal, no others begin, and those that run are waited for.
    """
    if n <= 1:
        return {name: run(name) for name in names}
    with ThreadPoolExecutor(n, thread_name_prefix="daskfs-batches") as threads:
        try:
            with undisturbed():  # a signal while a thread starts would leave it behind
                begun = {name: threads.submit(run, name) for name in names}
            return {name: future.result() for name, future in begun.items()}
        finally:
            threads.shutdown(cancel_futures=True)


def _warnings_of_surroundings(store: Store, pool: Pool, planned: Workers) -> Iterator[str]:
    workers, silent = pool.heard()
    if planned.warning:
        yield planned.warning
    if (scratch := job_scratch()) is not None and store.path("").lies_in(as_path(scratch)):
        yield f"output.path lies in {scratch}, which is deleted with this job: a requeue will not find it"
    if silent:
        n_workers, named = len(workers) + len(silent), ", ".join(sorted(silent))
        yield f"{len(silent)} of {n_workers} workers do not answer, and get no units until they do: {named}"


def check_labels_of(plan: Plan, context: Context) -> None:
    """Raise :class:`InputError` if the labels do not support the plan's methods."""
    methods = settings_of(plan).methods
    if not any(method.criterion.needs_labels for method in methods):
        return
    counts = context.label_counts()
    for method in methods:
        check_labels(method.criterion, method.label, counts)


def check_scalings_of(plan: Plan, context: Context) -> None:
    """Raise :class:`InputError` if X cannot be rescaled as the plan's methods require."""
    for method in settings_of(plan).methods:
        for key in ("graph_scaling", "score_scaling"):
            scaling = getattr(method.parameters, key, None)
            if scaling is not None and key not in method.parameters.idle():
                context.tiles.scales.check(scaling)


def check_apart(job: Job, store: Store) -> None:
    """Raise :class:`JobError` if the job's graph is in its output, or its data in the tiles there.

    A restart would delete them.
    """
    named = (
        ("graph.precomputed", job.graph.precomputed, ""),
        ("graph.use_rep", job.graph.use_rep, ""),
        ("data.source", job.data.source, layout.TILES_DIR),
    )
    for key, name, folder in named:
        if name is not None and (path := as_path(name)).lies_in(store.path(folder)):
            msg = f"{key} {path} lies in output.path {store.url}: choose another output.path."
            raise JobError(msg)
