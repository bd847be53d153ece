"""Execution of a job, from the job to its report, and conversion of sources to tile stores."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from daskfs.criteria.registry import check_labels
from daskfs.errors import DaskfsError, InputError, JobError, RunStoppedError, StoreError, WriteError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.connection import connect
from daskfs.execution.pool import Pool, granted_workers, pool_of
from daskfs.execution.progress import OfSeveral, Progress, Silent
from daskfs.execution.signals import check_stopped, stop_message, stoppable, undisturbed
from daskfs.execution.submission import Report, pending_units, run_stages
from daskfs.graph.partitioned_search import check_room, expected_misses
from daskfs.job.blocks import DataBlock
from daskfs.job.job import Job
from daskfs.job.storage import with_storage_access
from daskfs.logs import set_log_level
from daskfs.ranking.batches import RankedBatch
from daskfs.ranking.settings import settings_of
from daskfs.redaction import redact_credentials
from daskfs.runs.batches import batch_jobs, batch_url, find_batches
from daskfs.runs.journal import Journal
from daskfs.runs.manifest import (
    Lock,
    clear,
    file_checksum,
    load_or_create_manifest,
    lock_directory,
    matches_manifest,
    new_manifest,
    refuse_scored,
)
from daskfs.runs.plan import plan_run, planner_for_memory
from daskfs.runs.repair import (
    Tell,
    damage_warning,
    error_context,
    has_pending,
    remove_lost,
    rerun_on_damage,
    restore_metadata,
)
from daskfs.runs.selection import listed_names
from daskfs.runs.status import stored_stages
from daskfs.runs.tiles import n_labeled, plan_tiles
from daskfs.runs.workers import settled_cluster
from daskfs.sources.collection import is_gone
from daskfs.stages.cost import MIN_UNITS, Workers
from daskfs.stages.failures import described, name_failure
from daskfs.stages.limits import check_memory
from daskfs.stages.machine import job_scratch
from daskfs.stages.requirements import installed_versions
from daskfs.stages.stage import Plan, Stage
from daskfs.stages.units import create_arrays
from daskfs.storage import as_output_path, as_path, is_there, lies_in, remove
from daskfs.store import layout
from daskfs.store.context import Context, open_tiles, planned_tiles
from daskfs.store.lease import Owner
from daskfs.store.log import Log
from daskfs.store.store import Store
from daskfs.store.tiles import read_tile_info
from daskfs.tiles.plan import TileBase, TilePlan, base_of, is_of_same_data, parameters_of

if TYPE_CHECKING:
    from distributed import Client


MAX_DAMAGES = 50
"""Maximum number of damage warnings in the manifest of a run."""

# ------------------------------------------------------------------------- run a job
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
        run = _Run(store, job, manifest, journal, command, lock, superseded, adapt)
        settings = settled_cluster(job)
        return rerun_on_damage(lambda: run.execute(settings, connect), store, lock, run.tell)


class _Run:
    """State of one call of :func:`run_job`; `superseded` describes how the existing run differs that it supersedes."""

    def __init__(
        self,
        store: Store,
        job: Job,
        manifest: dict[str, Any],
        journal: Journal,
        command: str | None,
        lock: Lock,
        superseded: str,
        adapt: Callable[[Plan], Plan],
    ) -> None:
        self.store, self.job, self.manifest, self.journal, self.command = store, job, manifest, journal, command
        self.lock, self.superseded, self.appended, self.adapt = lock, superseded, "", adapt
        self.started = time.time()
        self.recomputed: dict[str, int] = {}
        self.damages: list[str] = []
        self.times: dict[str, Any] = {}
        self.log = Log(store.path(layout.EVENTS))
        if lock.warning:
            journal.message(f"{lock.warning}.", "warning")
            self._keep(lock.warning)

    def tell(self, message: str, damage: str) -> None:
        """Show a message about damage, and keep the warning `damage` for the manifest."""
        self.journal.message(message, "damage")
        self.damages.append(damage)
        self._keep(damage)

    def _warn_of_surroundings(self, pool: Pool, planned: Workers) -> None:
        workers, silent = pool.heard()
        warnings = [planned.warning]
        if (scratch := job_scratch()) is not None and lies_in(self.store.path(""), scratch):
            warnings += [f"output.path lies in {scratch}, which is deleted with this job: a requeue will not find it"]
        if silent:
            n_workers, named = len(workers) + len(silent), ", ".join(sorted(silent))
            warnings += [f"{len(silent)} of {n_workers} workers do not answer, and get no units until they do: {named}"]
        for warning in filter(None, warnings):
            self.journal.message(f"{warning}.", "warning")
            self._keep(warning)

    def _keep(self, warning: str) -> None:
        kept = dict.fromkeys([*self.manifest.get("damages", ()), warning])
        self.manifest["damages"] = list(kept)[-MAX_DAMAGES:]

    def _note_processor(self, kind: str) -> None:
        """Record the kind of processor that computed a unit, and warn from the second kind on."""
        known = self.manifest.setdefault("computed_by", [])
        if kind in known:
            return
        known.append(kind)
        if len(known) > 1:
            self._keep(
                f"units of this run were computed by different processors ({'; '.join(known)}): results may differ in "
                "their last bits, and neighbors and ranks with them, from those of one kind (cluster.cpu_target)"
            )
        self.store.write_json(layout.RUN_JSON, self.manifest)

    def execute(self, settings: ClusterSettings, connect: Connect) -> dict[str, Any]:
        self.store.forget()
        with ExitStack() as stack:
            # existing workers report their memory; new ones are only started for a job that passed all checks
            client = stack.enter_context(connect(settings)) if settings.is_joined else None
            workers = granted_workers(settings, client)
            self._warn_of_surroundings(pool_of(settings, client), workers)
            tiles = self._prepared(workers, is_joined=settings.is_joined)
            stack.enter_context(self._end_told())
            if (done := self._finished(tiles)) is not None:
                return done
            self.journal.open(self.log, self.lock.check)
            if not settings.is_joined:
                client = stack.enter_context(connect(settings))
            self.store.begin_epoch()
            self.journal.message(
                "",
                "run_started",
                command=self.command,
                epoch=self.store.epoch.name,
                by=str(Owner()),
                versions=dict(installed_versions()),
            )
            pool = pool_of(settings, client, self.journal.message)
            runner = Runner(pool, self.journal, self._report, self.recomputed, tell=self.tell)
            if tiles.stages:
                fill_tiles(tiles, runner)
            batches = self._run_batches(tiles, client, workers) if tiles.has_batch else []
            plan = self._plan(tiles, workers, batches)
            check_memory(plan.stages, workers, is_joined=settings.is_joined)
            context = Context(self.store)
            check_labels_of(plan, context)
            check_scalings_of(plan, context)
            create_arrays(context, plan.stages)
            runner.run(context, plan.stages, plan.identity)
            self.times = {"stages": runner.seconds, "threads": runner.pool.n_threads}
        with self._end_told():
            return self._finish(plan, tiles, batches)

    @contextmanager
    def _end_told(self) -> Iterator[None]:
        """Record in the manifest the status and error of a run that did not finish."""
        try:
            yield
        except Exception as error:
            status = "stopped" if stop_message() or isinstance(error, RunStoppedError) else "failed"
            if status == "failed" and self.lock.is_there:
                name_failure(self.store, error)
            text = redact_credentials(stop_message() or described(error))
            self.manifest.update(status=status, error=text)
            self.journal.message("", status, error=text, file=getattr(error, "failure", ""))
            if self.lock.is_there:
                with suppress(OSError, WriteError):  # a full or failed disk may have ended the run
                    self.log.flush()
                    self.store.write_json(layout.RUN_JSON, self.manifest)
            raise
        finally:
            self.log.close()

    def _prepared(self, workers: Workers, *, is_joined: bool) -> TilePlan:
        """Plan and check the run as far as possible without tiles, then write the manifest."""
        tiles, is_cut = self._tile_plan(workers)
        names = listed_names(self.job, tiles)
        early = plan_run(self.job, tiles, tiles.task, workers, names)
        planned_at = planner_for_memory(self.job, tiles, tiles.task, workers, names, is_cut=is_cut)
        stages = (*tiles.stages, *early.stages)
        check_memory(stages, workers, planned_at=planned_at, is_joined=is_joined)
        self._check_graph(early)
        if self.superseded or self.appended:
            self._take_over(keep_tiles=is_cut)
        if self.manifest.pop("error", None) is not None:
            self.manifest["status"] = "running"
        self.manifest["tiles"] = tiles.to_json()
        self.store.write_json(layout.RUN_JSON, self.manifest)
        return tiles

    def _tile_plan(self, workers: Workers) -> tuple[TilePlan, bool]:
        """Return the plan of the tiles, and whether it is that of tiles already begun, which keep their shape."""
        stored, url = self.manifest.get("tiles"), self.store.url + "/" + layout.TILES_DIR
        known = None if stored is None else TilePlan.from_json(stored)
        if known is not None and is_gone(self.job.data.source) and self._is_filled(known):
            return known, True
        current = plan_tiles(self.job.data, url, workers, self._base_of(known))
        if known is None:
            return current, False
        # the tiles of another job may have another URL: the run directory may be a copy
        is_same = known.fingerprint == current.fingerprint and is_of_same_data(known.stages, current.stages)
        if is_same and (not self.superseded or known.url == current.url):
            return known, True
        if current.base is not None:
            n_rows = current.shape.n_samples - current.base.parameters.shape.n_samples
            self.appended = (
                f"{n_rows:,} rows were appended to {self.job.data.source}: {current.n_kept} of "
                f"{current.shape.n_bands} bands of tiles are kept"
            )
        else:
            self._supersede(self.job.data.source)
        return current, current.n_kept > 0

    def _base_of(self, known: TilePlan | None) -> TileBase | None:
        """Return the earlier tiles from which those with appended rows are planned; None to keep nothing."""
        if known is None or not known.stages or not self.job.data.append:
            return None
        return base_of(known, is_finished=self._is_filled(known))

    def _is_filled(self, planned: TilePlan) -> bool:
        info = read_tile_info(Store(self.store.path(layout.TILES_DIR)))  # of a copy: its own
        return info is not None and info.fingerprint == planned.fingerprint

    def _check_graph(self, planned: Plan) -> None:
        stored = (self.store.read_json(layout.PLAN_JSON) or {}).get("facts", {}).get("given")
        if stored is not None and stored != planned.facts["given"]:
            self._supersede(self.job.graph.precomputed or self.job.graph.use_rep)

    def _supersede(self, path: str | None) -> None:
        """Supersede the existing run because the file `path` changed; :class:`StoreError` if it has scores."""
        if not self.superseded and not self.appended:
            change = f"{path} changed since the run in {self.store.url} began"
            remedy = "restore it, choose another output.path, or start over with --overwrite"
            if path == self.job.data.source and not self.job.data.append:
                remedy += "; if only rows were added at its end, set data.append"
            refuse_scored(self.store, self.manifest, f"{change}: {remedy}.")
            self.superseded = change

    def _take_over(self, *, keep_tiles: bool) -> None:
        """Delete the files of the superseded run.

        Its manifest stays until this run replaces it, so that the same call repeats the deletion after a kill.
        """
        self.lock.check()
        self.store.begin_epoch(fresh=True)
        if self.appended:
            self.store.write_json(layout.RUN_JSON, {**self.manifest, "status": "running"})
        clear(self.store, keep=(layout.RUN_JSON, *([layout.TILES_DIR] if keep_tiles else [])))
        if self.appended:  # the manifest of the run before describes its results
            of_tiles = {key: value for key, value in self.manifest.items() if key in ("computed_by", "damages")}
            self.manifest = new_manifest(self.job) | of_tiles
            self.journal.message(f"{self.appended}. The results in {self.store.url} are made again from all rows.")
        else:
            what = "takes over the directory" + (" and its tiles" if keep_tiles else "")
            self.journal.message(f"{self.superseded}. Nothing was scored in it: this run {what}.", "take_over")
        self.superseded = self.appended = ""

    def _finished(self, tiles: TilePlan) -> dict[str, Any] | None:
        """Return the manifest of a complete run after repairs; None if units are pending."""
        if self.manifest.get("status") != "done" or read_tile_info(Store(as_path(tiles.url))) is None:
            return None
        contexts: list[tuple[Context, Sequence[Stage]]] = []
        for store in (self.store, *(self._batch_stores() if tiles.has_batch else ())):
            if (found := finished_stages(store)) is None:
                return None
            contexts += found
        if any([has_pending(context, stage, stages, self.tell) for context, stages in contexts for stage in stages]):
            self.manifest["status"] = "running"
            self.store.write_json(layout.RUN_JSON, self.manifest)
            return None
        for context, stages in contexts:
            restore_metadata(context, stages, self.tell)
        if not matches_manifest(self.store, self.manifest, layout.REPORT_HTML):
            path = self.store.path(layout.REPORT_HTML)
            remove(path)
            self.tell(f"{path} is damaged or missing: it is written again.", damage_warning([str(path)]))
        if self.damages:
            self.manifest["warnings"] = list(dict.fromkeys([*self.manifest["warnings"], *self.damages]))
            self._write_report()
            self.store.write_json(layout.RUN_JSON, self.manifest)
        self.journal.message("nothing to do: every unit is recorded and its outputs are there")
        return {**self.manifest, "recomputed": {}}

    def _batch_stores(self) -> list[Store]:
        """Return the stores of the runs of the batches that any method ranked."""
        found = [batch for batch in self.manifest.get("batches", ()) if batch["methods"]]
        return [Store(as_path(batch_url(self.store.url, batch["number"]))) for batch in found]

    def _run_batches(self, tiles: TilePlan, client: Client | None, workers: Workers) -> list[dict[str, Any]]:
        """Run the job over each batch, after planning all, and return facts for the manifest."""
        batches = find_batches(self.job, tiles.url)
        jobs = batch_jobs(self.job, self.store.url, tiles.url, batches)
        for name, job in jobs.items():
            with error_context("batch", name):
                check_planned(job, workers)
        display = threading.Lock()

        def ranked(name: str) -> dict[str, Any]:
            with error_context("batch", name):
                own = OfSeveral(self.journal.display, f"batch {name}", display)
                found = _run(jobs[name], own, connect=lambda _: nullcontext(client))
            self.lock.check()
            return found

        done = run_at_once(ranked, jobs, 1 if client is None else workers.n_at_once // MIN_UNITS)
        for name, manifest in done.items():
            for stage, count in manifest.pop("recomputed").items():
                self.recomputed[f"batch {name}, {stage}"] = count
        keys = ("seconds", "peak_bytes", "planned_peak_bytes", "warnings", "report")
        return [
            {**batch.to_json(), **{key: done[batch.name][key] for key in keys if batch.name in done}}
            for batch in batches
        ]

    def _plan(self, tiles: TilePlan, workers: Workers, batches: Sequence[Mapping[str, Any]]) -> Plan:
        info = open_tiles(tiles.url).info
        tiles = dataclasses.replace(
            tiles,
            has_labels=info.task is not None,
            task=info.task,
            n_classes=len(info.classes) or None,
            n_labeled=n_labeled(tiles.url),
        )
        names = open_tiles(tiles.url).feature_names()
        known = [RankedBatch(batch["number"], batch["name"], tuple(batch["methods"])) for batch in batches]
        planned = plan_run(self.job, tiles, info.task, workers, names, known)
        raw = self.store.read_json(layout.PLAN_JSON)
        if raw is None:
            planned = self.adapt(planned)
            self.store.write_json(layout.PLAN_JSON, planned.to_json())
            return planned
        stored = Plan.from_json(raw, self.store.url)  # keep the slabs, whatever the memory limit is now
        if stored.facts.get("job") != planned.facts["job"]:
            msg = (
                f"{self.store.url} was begun by another state of daskfs, which computes other values. Choose another "
                "output.path, or start over with --overwrite."
            )
            raise StoreError(msg)
        return stored

    def _report(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        self._note_processor(str(facts.get("computed_by", "")))
        self.store.epoch.check()
        self.journal.unit_done(stage, unit, facts)

    def _finish(self, plan: Plan, tiles: TilePlan, batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        from daskfs.report.summary import run_facts

        self.lock.check()
        self.store.remove_unfinished()
        for name in layout.RESULTS:
            self.store.read_bytes(name)  # raises if a late writer has replaced the table
        facts = run_facts(self.store, plan, tiles, self.times, batches)
        planned_tiles(plan.to_json(), self.store.url)  # raises if the tiles have changed: the report is made from them
        seconds = round(float(self.manifest.get("seconds", 0.0)) + time.time() - self.started, 3)
        facts["warnings"] += self.manifest.get("damages", ())
        self.manifest.update(facts, status="done", seconds=seconds, command=self.command)
        self._write_report()
        self.journal.message("", "done", seconds=seconds)
        self.log.flush()
        self.store.write_json(layout.RUN_JSON, self.manifest)
        return {**self.manifest, "recomputed": self.recomputed}

    def _write_report(self) -> None:
        from daskfs.report.summary import write_report

        write_report(self.store, {**self.manifest, "recomputed": self.recomputed})
        self.manifest["files"] = {layout.REPORT_HTML: file_checksum(self.store, layout.REPORT_HTML)}


def run_at_once(run: Callable[[str], Result], names: Iterable[str], n: int) -> dict[str, Result]:
    """Return the result of `run` for each name; up to `n` run at a time, in threads if that is more than one.

    After an error, or a signal, no others begin, and those that run are waited for.
    """
    if n <= 1:
        return {name: run(name) for name in names}
    with ThreadPoolExecutor(n, thread_name_prefix="daskfs-batches") as threads:
        begun: dict[str, Future[Result]] = {}
        try:
            with undisturbed():  # a signal while a thread starts would leave it behind
                begun = {name: threads.submit(run, name) for name in names}
            return {name: future.result() for name, future in begun.items()}
        finally:
            for future in begun.values():
                future.cancel()


def check_planned(job: Job, workers: Workers) -> None:
    """Raise :class:`MemoryPlanError` if the job of a batch, which has not begun, does not fit a worker."""
    url = f"{as_path(job.output.path)}/{layout.TILES_DIR}"
    tiles = plan_tiles(job.data, url, workers)
    check_memory((*tiles.stages, *plan_run(job, tiles, None, workers).stages), workers)


def finished_stages(store: Store) -> list[tuple[Context, Sequence[Stage]]] | None:
    """Return the stages of a finished run with their contexts, those of its tiles first; None for an unfinished run."""
    manifest = store.read_json(layout.RUN_JSON) or {}
    if manifest.get("status") != "done" or store.read_json(layout.PLAN_JSON) is None:
        return None
    return [(Context(own), stages) for own, stages in stored_stages(store)]


@dataclass
class Runner:
    """Runner of pending units: `recomputed` is their number, `seconds` wall and summed unit times, by stage."""

    pool: Pool
    progress: Progress
    report: Report
    recomputed: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)
    tell: Tell | None = None
    _ticked: float = 0.0

    def run(self, context: Context, stages: Sequence[Stage], identity: str) -> None:
        """Run the units of the stages that are not recorded."""
        self._ticked = time.monotonic()

        def begin(stage: Stage, n_pending: int) -> None:
            remove_lost(context, stage, stages, self.tell or (lambda message, _: self.progress.message(message)))
            self.progress.start_stage(stage, n_pending)
            check_room(context, stage)
            if (warning := expected_misses(context, stage)) is not None:
                self.progress.message(f"warning: {warning}.")

        run_stages(context, stages, self.pool, identity, self._count, begin)

    def _count(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        self.recomputed[stage.name] = self.recomputed.get(stage.name, 0) + 1
        now = time.monotonic()
        wall, busy = self.seconds.get(stage.name, (0.0, 0.0))
        self.seconds[stage.name] = (wall + now - self._ticked, busy + float(facts.get("seconds", 0.0)))
        self._ticked = now
        self.report(stage, unit, facts)
        check_stopped()


def fill_tiles(tiles: TilePlan, runner: Runner) -> None:
    """Run the pending units of a tile store."""
    context = Context(Store(as_path(tiles.url)))
    context.store.begin_epoch()
    info = read_tile_info(context.store)
    if info is not None and info.fingerprint != tiles.fingerprint:  # bands are kept, but these tiles are not finished
        context.store.delete(layout.TILES_JSON)
    plan = Plan(tiles.url, tiles.stages, tiles.stages[-1].fingerprint)
    context.store.write_json(layout.PLAN_JSON, plan.to_json())
    create_arrays(context, tiles.stages)
    if tiles.note is not None and pending_units(context, plan.stage("ingest"), plan.stages):
        runner.progress.message(f"{tiles.note}.")
    runner.run(context, plan.stages, plan.identity)


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
    for key, path, folder in [(key, as_path(name), folder) for key, name, folder in named if name is not None]:
        if lies_in(path, store.path(folder)):
            msg = f"{key} {path} lies in output.path {store.url}: choose another output.path."
            raise JobError(msg)


# ------------------------------------------------------------------- convert to tiles
def convert(
    data: DataBlock,
    target: str,
    settings: ClusterSettings,
    progress: Progress | None = None,
    warnings: list[str] | None = None,
) -> dict[str, int]:
    """Convert a source to a tile store, or resume a conversion; return the number of units that ran, by stage.

    Warnings about repaired damage are appended to `warnings`.

    Raises
    ------
    daskfs.errors.DaskfsError
        Any subclass. Finished units stay recorded, and the same call resumes the conversion.
    """

    def planned(workers: Workers) -> TilePlan:
        tiles = plan_tiles(data, str(as_output_path(target)), workers)
        if not tiles.stages:
            msg = f"{data.source} already is a tile store."
            raise InputError(msg)
        return tiles

    return write_tiles(planned, target, settings, progress, warnings)


def write_tiles(
    planned: Callable[[Workers], TilePlan],
    target: str,
    settings: ClusterSettings,
    progress: Progress | None = None,
    warnings: list[str] | None = None,
) -> dict[str, int]:
    """Write the tiles that `planned` returns for some workers; otherwise as :func:`convert`."""
    journal = Journal(progress or Silent())
    store = Store(as_output_path(target))
    if store.path("").name == layout.TILES_DIR and is_there(store.path("").parent / layout.RUN_JSON):
        msg = f"{store.url} is a part of a run: 'daskfs run' makes what is missing of it; choose another target."
        raise StoreError(msg)

    def tell(message: str, damage: str) -> None:
        journal.message(message, "damage")
        if warnings is not None:
            warnings.append(damage)

    locking = lock_directory(store, layout.PLAN_JSON, "tile store", "target", journal.message)
    with closing(journal), stoppable(), locking as lock:
        if lock.warning:
            tell(f"{lock.warning}.", lock.warning)
        workers = granted_workers(settings, None)
        tiles = planned(workers)

        def planned_at(memory_limit: int) -> Sequence[Stage]:
            return planned(dataclasses.replace(workers, memory_limit=memory_limit)).stages

        check_memory(tiles.stages, workers, planned_at=planned_at)
        begun = store.read_json(layout.PLAN_JSON)
        if begun is not None:
            stages = Plan.from_json(begun, store.url).stages
            if not is_of_same_data(stages, tiles.stages):
                msg = f"{store.url} holds something else than tiles of these data: choose another target, or delete it."
                raise StoreError(msg)
            tiles = dataclasses.replace(  # keep the tile shape, whatever the memory limit is now
                tiles,
                shape=parameters_of(stages).shape,
                write_x=parameters_of(stages).write_x,
                stages=stages,
            )
        with connect(settings) as client:

            def report(stage: Stage, unit: int, facts: dict[str, Any]) -> None:
                journal.unit_done(stage, unit, facts)
                lock.check()

            runner = Runner(pool_of(settings, client, journal.message), journal, report, tell=tell)
            try:
                rerun_on_damage(lambda: fill_tiles(tiles, runner), store, lock, tell)
            except DaskfsError as error:
                name_failure(store, error)
                raise
        store.remove_unfinished()
    return runner.recomputed
