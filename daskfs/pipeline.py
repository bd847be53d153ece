"""A job from its file to its report: the order in which things happen. What a unit does, and what a plan holds, lies
elsewhere.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from daskfs.errors import InputError, JobError, RunStoppedError, StoreError
from daskfs.evaluation.design import check_rows, sample_rows
from daskfs.execution.cluster import ClusterSettings, connected, granted_memory
from daskfs.execution.progress import Progress, Silent
from daskfs.execution.units import create_arrays
from daskfs.execution.waves import Report, pending_units, run_stages
from daskfs.job import DataBlock, Job
from daskfs.methods.registry import check_labels
from daskfs.plan.stages import Plan, Stage, check_memory, digest, limit_per_unit
from daskfs.planning import TilePlan, listed_names, plan_run, plan_tiles, precomputed_path
from daskfs.rundir import claimed, locked
from daskfs.scores.slab import methods_from
from daskfs.store import layout
from daskfs.store.context import Context, open_tiles
from daskfs.store.ingest import create_tile_arrays
from daskfs.store.store import Store
from daskfs.store.tiles import Shape, read_tile_info

if TYPE_CHECKING:
    from distributed import Client


# ------------------------------------------------------------------------- one run
def run_job(
    job: Job, progress: Progress | None = None, *, overwrite: bool = False, command: str | None = None
) -> dict[str, Any]:
    """Run a job, or what is left of it.

    Parameters
    ----------
    job
        The job. Where its output already holds a part of the same job, only what is missing runs.
    progress
        Told how far the run is.
    overwrite
        Delete what another job left in the output directory first.
    command
        Shown in the report.

    Returns
    -------
    dict
        What ``run.json`` holds, and ``recomputed``: how many units ran this time, by stage.

    Raises
    ------
    daskfs.errors.DaskfsError
        Any of its kinds; what is finished stays recorded, and the same call goes on from there.
    """
    progress = progress or Silent()
    store = Store(Path(job.output.path).expanduser().absolute())
    check_apart(job, store)
    with locked(store, layout.RUN_JSON, "daskfs run", "output.path"), _stoppable():
        manifest = claimed(store, job, overwrite)
        settings = ClusterSettings(**job.cluster.model_dump())
        return _Run(store, job, manifest, progress, command).execute(settings)


class _Run:
    """State of one call of :func:`run_job`."""

    def __init__(
        self, store: Store, job: Job, manifest: dict[str, Any], progress: Progress, command: str | None
    ) -> None:
        self.store, self.job, self.manifest, self.progress, self.command = store, job, manifest, progress, command
        self.started = time.time()
        self.recomputed: dict[str, int] = {}

    def execute(self, settings: ClusterSettings) -> dict[str, Any]:
        with ExitStack() as stack:
            stack.callback(self.progress.close)
            # workers that exist say how much memory there is; ones that do not are only started for a job that can run
            client = stack.enter_context(connected(settings)) if settings.is_joined else None
            limit, threads = granted_memory(settings, client)
            tiles = self._prepared(limit, threads)
            if (done := self._finished(tiles)) is not None:
                return done
            if not settings.is_joined:
                client = stack.enter_context(connected(settings))
            runner = Runner(client, settings.threads, self.progress, self._report, self.recomputed)
            if tiles.stages:
                fill_tiles(tiles, runner)
            plan = self._plan(tiles, limit_per_unit(limit, threads))
            check_memory(plan.stages, limit, threads)
            context = Context(self.store)
            check_labels_of(plan, context)
            create_arrays(context, plan.stages)
            if client is not None:
                stack.enter_context(warm(client, context, plan))
            runner.run(context, plan.stages, plan.identity)
        return self._finish(plan, tiles)

    def _prepared(self, limit: int | None, threads: int) -> TilePlan:
        """Plan everything that can be planned before the tiles are there; only then claim the directory."""
        tiles = self._tile_plan(limit_per_unit(limit, threads))
        names = listed_names(self.job, tiles)
        early = plan_run(self.job, tiles, tiles.task, limit_per_unit(limit, threads), names)
        check_memory((*tiles.stages, *early.stages), limit, threads)
        self._check_graph(early)
        self.store.write_json(layout.RUN_JSON, self.manifest)
        return tiles

    def _tile_plan(self, limit: int | None) -> TilePlan:
        current = plan_tiles(self.job.data, self.store.url + "/" + layout.TILES_DIR, limit)
        stored = self.manifest.get("tiles")
        if stored is None:
            self.manifest["tiles"] = current.to_json()
            return current
        known = TilePlan.from_json(stored)
        if known.fingerprint != current.fingerprint:
            raise StoreError(self._changed(self.job.data.source))
        return known

    def _check_graph(self, planned: Plan) -> None:
        stored = (self.store.read_json(layout.PLAN_JSON) or {}).get("facts", {}).get("given")
        if stored is not None and stored != planned.facts["given"]:
            raise StoreError(self._changed(self.job.graph.precomputed))

    def _changed(self, path: str | None) -> str:
        return (
            f"{path} changed since the run in {self.store.url} began: restore it, choose another output.path, or start "
            "over with --overwrite."
        )

    def _finished(self, tiles: TilePlan) -> dict[str, Any] | None:
        """Return the manifest when there is nothing to do."""
        raw = self.store.read_json(layout.PLAN_JSON)
        if self.manifest.get("status") != "done" or raw is None or read_tile_info(Store(Path(tiles.url))) is None:
            return None
        plan = Plan.from_json(raw, self.store.url)
        contexts = [(Context(Store(Path(tiles.url))), tiles.stages), (Context(self.store), plan.stages)]
        if any(pending_units(context, stage, stages) for context, stages in contexts for stage in stages):
            self.manifest["status"] = "running"
            self.store.write_json(layout.RUN_JSON, self.manifest)
            return None
        if not self.store.path(layout.REPORT_HTML).exists():
            self._write_report()
        self.progress.message("nothing to do: every unit is recorded and its outputs are there")
        return {**self.manifest, "recomputed": {}}

    def _plan(self, tiles: TilePlan, limit: int | None) -> Plan:
        info = read_tile_info(Store(Path(tiles.url)))
        assert info is not None
        tiles = dataclasses.replace(tiles, has_labels=info.task is not None, n_classes=len(info.classes) or None)
        planned = plan_run(self.job, tiles, info.task, limit, open_tiles(tiles.url).feature_names())
        raw = self.store.read_json(layout.PLAN_JSON)
        if raw is not None and raw.get("facts", {}).get("job") == planned.facts["job"]:
            planned = Plan.from_json(raw, self.store.url)  # slabs stay as they were, whatever the memory is now
        else:
            self.store.write_json(layout.PLAN_JSON, planned.to_json())
        return planned

    def _report(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        self.progress.unit_done(stage, unit, facts)
        event = {"time": round(time.time(), 3), "stage": stage.name, "unit": unit, **facts}
        with self.store.path(layout.EVENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def _finish(self, plan: Plan, tiles: TilePlan) -> dict[str, Any]:
        from daskfs.report.summary import run_facts

        facts = run_facts(self.store, plan, tiles)
        seconds = round(float(self.manifest.get("seconds", 0.0)) + time.time() - self.started, 3)
        self.manifest.update(facts, status="done", seconds=seconds, command=self.command)
        self._write_report()
        self.store.write_json(layout.RUN_JSON, self.manifest)
        return {**self.manifest, "recomputed": self.recomputed}

    def _write_report(self) -> None:
        from daskfs.report.summary import write_report

        write_report(self.store, {**self.manifest, "recomputed": self.recomputed})


@dataclass
class Runner:
    """Runs what is left of stages, tells of it, and counts it in `recomputed`."""

    client: Client | None
    threads: int
    progress: Progress
    report: Report
    recomputed: dict[str, int] = field(default_factory=dict)

    def run(self, context: Context, stages: Sequence[Stage], identity: str) -> None:
        """Run the units of some stages that are not recorded."""
        begin = self.progress.start_stage
        run_stages(context, stages, self.client, identity, self._count, self.threads, begin)

    def _count(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        self.recomputed[stage.name] = self.recomputed.get(stage.name, 0) + 1
        self.report(stage, unit, facts)


@contextmanager
def warm(client: Client, context: Context, plan: Plan) -> Iterator[None]:
    """Let the workers compile NN-descent if they will need it, while the stages before it run.

    pynndescent's functions cannot be cached on disk, so each process spends some 25 s on them once; a search that
    begins meanwhile waits for the end of it.
    """
    descends = [
        stage
        for stage in plan.stages
        if stage.function == "build" and stage.parameters["graph"]["engine"] == "pynndescent"
    ]
    if not any(pending_units(context, stage, plan.stages) for stage in descends):
        yield
        return
    from daskfs.execution.worker import warmed

    projected = all(isinstance(stage.parameters["graph"]["projection"], int) for stage in descends)
    sparse = context.tiles.shape.is_sparse and not projected
    with warmed(client, "daskfs.graph.descent:compile_descent", sparse, "pynndescent"):
        yield


def fill_tiles(tiles: TilePlan, runner: Runner) -> None:
    """Fill a tile store, or what is missing of it."""
    context = Context(Store(Path(tiles.url)))
    plan = Plan(tiles.url, tiles.stages, digest(tiles.fingerprint, dataclasses.asdict(tiles.shape)))
    context.store.write_json(layout.PLAN_JSON, plan.to_json())
    create_tile_arrays(context.store, tiles.shape, tiles.write_x)
    runner.run(context, plan.stages, plan.identity)


def check_labels_of(plan: Plan, context: Context) -> None:
    """Raise :class:`InputError` when the labels cannot serve the plan's methods or its evaluation, before either
    begins.
    """
    methods = methods_from(plan.stage("score").parameters["methods"])
    designs = [stage.parameters for stage in plan.stages if stage.function == "design"]
    if not designs and not any(method.criterion.needs_labels for method in methods):
        return
    labels, weights = context.labels(), context.weights()
    for method in methods:
        check_labels(method.criterion, method.label, labels, weights)
    for design in designs:
        if labels is not None:
            check_rows(labels, sample_rows(labels, int(design["max_samples"]), int(design["random_state"])), design)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Turn SIGTERM, SIGINT and SIGUSR1 into :class:`RunStoppedError`, so that what is finished stays and the exit code
    is 75.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        msg = (
            f"stopped by {signal.Signals(number).name}; the same command goes on from the {layout.RUN_JSON} in "
            "the output directory."
        )
        raise RunStoppedError(msg)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def check_apart(job: Job, store: Store) -> None:
    """Raise :class:`JobError` when the job's graph lies in its output, where starting over would delete it."""
    path = precomputed_path(job)
    if path is not None and path.is_relative_to(store.path("")):
        msg = f"graph.precomputed {path} lies in output.path {store.url}: choose another output.path."
        raise JobError(msg)


# ------------------------------------------------------------------- other verbs
def convert(
    data: DataBlock, target: str, settings: ClusterSettings, progress: Progress | None = None
) -> dict[str, int]:
    """Turn a source into a tile store, or finish one that was begun; return how many units ran, by stage.

    Raises
    ------
    daskfs.errors.DaskfsError
        Any of its kinds; what is finished stays recorded, and the same call goes on from there.
    """
    progress = progress or Silent()
    store = Store(Path(target).expanduser().absolute())
    with locked(store, layout.PLAN_JSON, "tile store", "target"), _stoppable(), ExitStack() as stack:
        stack.callback(progress.close)
        limit, threads = granted_memory(settings, None)
        tiles = plan_tiles(data, store.url, limit_per_unit(limit, threads))
        check_memory(tiles.stages, limit, threads)
        if not tiles.stages:
            msg = f"{data.source} already is a tile store."
            raise InputError(msg)
        begun = store.read_json(layout.PLAN_JSON)
        if begun is not None:
            stages = Plan.from_json(begun, store.url).stages
            if not stages or stages[0].parameters.get("fingerprint") != tiles.fingerprint:
                msg = f"{store.url} holds something else than tiles of these data: choose another target, or delete it."
                raise StoreError(msg)
            tiles = dataclasses.replace(  # tiles stay as they were cut, whatever the memory is now
                tiles,
                shape=Shape(**stages[0].parameters["shape"]),
                write_x=bool(stages[0].parameters["write_x"]),
                stages=stages,
            )
        with connected(settings) as client:
            runner = Runner(client, settings.threads, progress, progress.unit_done)
            fill_tiles(tiles, runner)
    return runner.recomputed
