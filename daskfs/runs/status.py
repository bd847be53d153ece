"""Descriptions of plans, runs and tiles, without running anything."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskfs.criteria.svmrfe.elimination import SVM_TABLES_STAGE, svm_parameters
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.pool import granted_workers
from daskfs.execution.submission import ended_rounds, pending_units, rounds_done
from daskfs.graph.mixed import MIXED_STAGE, MixedParameters
from daskfs.graph.neighbors import ListsParameters, SearchParameters
from daskfs.job.job import Job
from daskfs.job.storage import with_storage_access
from daskfs.kernels.statistics.column_hash import describe_equal
from daskfs.runs.batches import batch_jobs, find_batches
from daskfs.runs.journal import read_activity
from daskfs.runs.manifest import (
    batch_runs,
    file_checksum,
    lock_directory,
    open_finished,
    read_manifest,
    read_state,
    refuse_foreign,
)
from daskfs.runs.plan import plan_run, planner_for_memory
from daskfs.runs.selection import listed_names
from daskfs.runs.tiles import plan_tiles
from daskfs.runs.workers import settled_cluster
from daskfs.sources.base import SAMPLE_COLUMNS
from daskfs.sources.labels import classes_note
from daskfs.stages.cost import Workers
from daskfs.stages.kind import kind_of
from daskfs.stages.limits import check_memory
from daskfs.stages.stage import Plan, Stage, most_written
from daskfs.storage import as_path
from daskfs.store import layout
from daskfs.store.context import Context, label_counts_of, open_tiles, planned_tiles
from daskfs.store.store import Store
from daskfs.store.tiles import read_tile_info
from daskfs.tiles.plan import TilePlan

RETRIES_LISTED = 20


def describe_counts(what: str, names: Sequence[str], counts: np.ndarray) -> dict[str, Any]:
    """Return the total of `counts` and, by name, those of the 20 columns with the most.

    `counts` is an integer array of shape (n_features,); `what` is the key of the result, as in "missing".
    """
    most = np.argsort(-counts, kind="stable")[:RETRIES_LISTED]
    return {f"n_{what}": int(counts.sum()), what: {names[i]: int(counts[i]) for i in most[counts[most] > 0]}}


def describe_tiles(url: str) -> dict[str, Any]:
    """Describe a finished tile store.

    The description has shape, tiles, labels, per-sample columns, row names, missing values, and constant and duplicate
    features.
    """
    tiles = open_tiles(url)
    names = tiles.feature_names()
    constant = np.flatnonzero(tiles.constant_columns())
    labels = label_counts_of(tiles)[0]
    counts: dict[str, Any] = {"n_labeled": labels.n_labeled if labels else 0}
    if labels is not None and labels.task == "classification":
        counts["note"] = classes_note(tiles.info.classes, tiles.info.facts.get("unlabeled"))
        counts["classes"] = dict(zip(labels.classes, labels.by_class, strict=True))
    return {
        "store": url,
        "source": tiles.info.source,
        **dataclasses.asdict(tiles.shape),
        "x_in_place": tiles.info.x_path,
        "task": tiles.info.task,
        **counts,
        **{name: tiles.info.facts.get(name) for name in SAMPLE_COLUMNS},
        "row_names": tiles.info.facts.get("row_names"),
        "missing_policy": tiles.missing_policy,
        "warnings": [one["text"] for one in tiles.store.read_json(layout.SOURCE_WARNINGS, list) or ()],
        **describe_counts("missing", names, tiles.n_missing()),
        "n_constant": constant.size,
        "constant": [names[i] for i in constant[:RETRIES_LISTED]],
        **describe_equal(tiles.first_equal(), names),
    }


@dataclass(frozen=True)
class PlannedRun:
    """The plan of a job for some workers, with that of its tiles; `is_stored`: of a run that has begun."""

    settings: ClusterSettings
    store: Store
    tiles: TilePlan
    plan: Plan
    workers: Workers
    is_stored: bool

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages, those of the tiles first."""
        return (*self.tiles.stages, *self.plan.stages)


def planned_run(job: Job) -> PlannedRun:
    """Plan a run without running or writing anything; :class:`MemoryPlanError` if a unit does not fit a worker."""
    settings = settled_cluster(job)
    workers = granted_workers(settings, None)
    store = Store(as_path(job.output.path))
    refuse_foreign(store, layout.RUN_JSON, "daskfs run", "output.path")
    manifest = {} if store.read_bytes(layout.RUN_JSON) is None else read_manifest(store)
    is_begun = manifest.get("job") == job.identity()
    is_cut = is_begun and bool(manifest.get("tiles"))
    tiles = plan_tiles(job.data, f"{store.url}/{layout.TILES_DIR}", workers)
    if is_cut:
        tiles = TilePlan.from_json(manifest["tiles"], store.url)
    stored = store.read_json(layout.PLAN_JSON) if is_begun else None
    task = tiles.task or (job.data.task if job.data.task != "auto" else None)
    names = None if stored else listed_names(job, tiles)
    plan = Plan.from_json(stored, store.url) if stored else plan_run(job, tiles, task, workers, names)
    planned_at = None if stored else planner_for_memory(job, tiles, task, workers, names, is_cut=is_cut)
    check_memory((*tiles.stages, *plan.stages), workers, planned_at=planned_at, is_joined=settings.is_joined)
    return PlannedRun(settings, store, tiles, plan, workers, stored is not None)


@with_storage_access
def plan_job(job: Job) -> dict[str, Any]:
    """Plan a run without running or writing anything: stages, units, recorded units, bytes and memory.

    Units and bytes of a stage in a loop are those of one round. `bytes_at_once` are the most that outputs take on disk
    at a time, uncompressed, as intermediate ones are deleted. `memory` is what local workers share, and what limits
    it; None if the job sets their limit. `cost` lists the memory of a unit at its peak.
    """
    return describe_plan(job, planned_run(job))


def describe_plan(job: Job, run: PlannedRun) -> dict[str, Any]:
    """Describe the plan of a job as :func:`plan_job` does."""
    store, tiles, plan = run.store, run.tiles, run.plan
    batches = _planned_batches(job, store, tiles)
    rows = [_plan_row(Context(Store(as_path(tiles.url))), stage, tiles.stages) for stage in tiles.stages]
    rows += [_plan_row(Context(store), stage, plan.stages) for stage in plan.stages]
    return {
        "output": store.url,
        "shape": dataclasses.asdict(tiles.shape),
        "memory_limit": run.workers.memory_limit,
        "memory": None if run.workers.machine is None else str(run.workers.machine),
        "peak_bytes": max(plan_row["peak_bytes"] for plan_row in [*rows, *(batches or {}).values()]),
        "bytes_read": sum(row["bytes_read"] for row in rows),
        "bytes_written": sum(row["bytes_written"] for row in rows),
        "bytes_at_once": most_written(run.stages),
        "graphs": _planned_graphs(plan),
        "loops": _planned_loops(plan),
        "eliminations": _planned_eliminations(plan),
        "note": tiles.note,
        "notes": [*(one["text"] for one in plan.facts["warnings"]), *filter(None, [run.workers.warning])],
        "labels_counted": run.is_stored or tiles.n_labeled is not None or not tiles.has_labels,
        "stages": rows,
        "batches": batches,
    }


def _planned_batches(job: Job, store: Store, tiles: TilePlan) -> dict[str, Any] | None:
    """Return the plans of the batches by name: empty before the tiles exist, None for data without batches."""
    if not tiles.has_batch:
        return None
    if read_tile_info(Store(as_path(tiles.url))) is None:
        return {}
    finished = planned_tiles(tiles.url, tiles.fingerprint, store.url)
    jobs = batch_jobs(job, store.url, finished, find_batches(job, finished))
    return {name: plan_job(batch_job) for name, batch_job in jobs.items()}


def _planned_graphs(plan: Plan) -> list[dict[str, Any]]:
    """Return the engine and partitioning of every neighbor search."""
    graphs = []
    for stage in plan.stages:
        if kind_of(stage.kind).finds_lists:
            name = stage.name if stage.is_of(MIXED_STAGE) else stage.name.partition("-")[2]
            graph = {"name": name, "engine": _engine(stage), "n_groups": 1, "n_cells": None}
            if isinstance(stage.parameters, SearchParameters):
                cut = stage.parameters.partitioning
                graph |= {"n_groups": cut.n_groups, "n_cells": cut.n_cells}
            graphs.append(graph)
    return graphs


def _planned_loops(plan: Plan) -> list[dict[str, Any]]:
    """Return the stages of each loop, the maximum number of rounds (None if unknown) and the bytes of one round."""
    loops = [list(group) for name, group in itertools.groupby(plan.stages, lambda stage: stage.loop) if name]
    return [
        {
            "name": loop[0].loop,
            "stages": [stage.name for stage in loop],
            "max_rounds": loop[0].max_rounds,
            "bytes_read": sum(stage.bytes_read for stage in loop),
            "bytes_written": sum(stage.bytes_written for stage in loop),
        }
        for loop in loops
    ]


def _planned_eliminations(plan: Plan) -> list[dict[str, Any]]:
    """Return the route, rows or landmarks, and maximum number of rounds of every elimination method."""
    n_features = int(plan.facts["shape"]["n_features"])
    return [
        {
            "method": method.label,
            "route": planned.route,
            planned.counted: size,
            "max_rounds": svm_parameters(method).n_rounds(n_features),
            "loop": planned.loop,
        }
        for stage in plan.stages
        if (planned := stage.parameters_of(SVM_TABLES_STAGE)) is not None
        for method, size in zip(planned.methods, planned.sizes, strict=True)
    ]


def _engine(stage: Stage) -> str:
    if isinstance(stage.parameters, MixedParameters):
        return f"{stage.parameters.n_candidates} candidates of each row, and a sort"
    return stage.parameters.graph.engine if isinstance(stage.parameters, ListsParameters) else "sort"


def _plan_row(context: Context, stage: Stage, stages: Sequence[Stage]) -> dict[str, Any]:
    return {
        "stage": stage.name,
        "units": stage.n_units,
        "done": stage.n_units - len(pending_units(context, stage, stages)),
        **({"rounds": rounds_done(context, stage, stages)} if stage.loop else {}),
        "bytes_read": stage.bytes_read,
        "bytes_written": stage.bytes_written,
        "peak_bytes": stage.peak_bytes,
        "cost": [{"held": str(item), "bytes": item.nbytes} for item in stage.cost],
    }


def rewrite_report(url: str) -> dict[str, Any]:
    """Rewrite the report of a finished run, under its lock; :class:`StoreError` if there is no finished run."""
    from daskfs.report.summary import write_report

    store, manifest = open_finished(url)
    with lock_directory(store, layout.RUN_JSON, "daskfs run", "directory", lambda _: None):
        path = write_report(store, manifest)
        manifest["files"] = {layout.REPORT_HTML: file_checksum(store, layout.REPORT_HTML)}
        store.write_json(layout.RUN_JSON, manifest)
    return {"report": str(path)}


def run_status(url: str) -> dict[str, Any]:
    """Return the progress of a run and of the runs of its batches, which run between its tiles and its other stages.

    Returns
    -------
    dict
        ``status`` is "running", "done", "stopped" or "failed"; the last two come with the ``error`` that ended the run.
        "killed" means that the process of the run is gone, "unknown" that this host does not see whether it is.
        ``owner`` is the ``process`` and ``host`` that the lock names, None if it names none; ``state`` is the status in
        words. ``last_unit`` is the time when a unit last finished. ``stages`` holds units done, seconds, and the
        seconds left of stages that have begun; in an unfinished loop, units are those of the current round, and the
        seconds left are None. ``slowest`` is the unit that took longest. ``workers`` says by address which units a
        worker has, ``slow`` which of these run much longer than others, with their start; ``retries`` and ``failures``
        list what failed so far, with its file. ``batches`` holds the status of each batch by name.
    """
    store = Store(as_path(url))
    manifest, state = read_state(store)
    rows: list[dict[str, Any]] = []
    recorded: dict[str, Set[int]] = {}
    for some_store, stages in stored_stages(store):
        rows += [_status_row(Context(some_store), stage, stages) for stage in stages]
        recorded |= {stage.name: some_store.records.units(stage.name) for stage in stages}
    slowest = [(*slowest_unit, row["stage"]) for row in rows if (slowest_unit := row.pop("slowest")) is not None]
    activity = read_activity(store.path(layout.EVENTS), recorded)
    if state.status not in ("running", "unknown"):
        activity |= {"workers": {}, "slow": []}
    return {
        "run": store.url,
        "status": state.status,
        "state": str(state),
        "owner": None if state.lock.owner is None else dataclasses.asdict(state.lock.owner),
        "error": manifest.get("error"),
        "last_unit": state.last_unit,
        "slowest": None if not slowest else dict(zip(("seconds", "unit", "stage"), max(slowest), strict=True)),
        "stages": rows,
        **activity,
        "batches": {name: run_status(some_store.url) for name, some_store in batch_runs(store)},
    }


def _status_row(context: Context, stage: Stage, stages: Sequence[Stage]) -> dict[str, Any]:
    """Summarize the records of a stage, without checking each output as 'daskfs verify' does."""
    records, units = context.store.records, range(stage.n_units)
    recorded = sorted(records.units(stage.name))
    number, is_finished = ended_rounds(context, stage.loop, stages) if stage.loop else (0, True)
    if stage.loop and not is_finished:
        units = range(number * stage.n_units, (number + 1) * stage.n_units)
    done = stage.n_units if stage.loop and is_finished else sum(unit in units for unit in recorded)
    pairs = zip(recorded, records.each(stage.name, recorded), strict=True)
    seconds = {unit: float(record.get("seconds", 0.0)) for unit, record in pairs if record is not None}
    left = sum(seconds.values()) / len(seconds) * (stage.n_units - done) if seconds and is_finished else None
    return {
        "stage": stage.name,
        "units": stage.n_units,
        "done": done,
        **({"rounds": number} if stage.loop else {}),
        "seconds": round(sum(seconds.values()), 3),
        "slowest": max(((s, unit) for unit, s in seconds.items()), default=None),
        "seconds_left": left,
    }


def stored_stages(store: Store) -> Iterator[tuple[Store, tuple[Stage, ...]]]:
    """Yield the stores of a run with their stages: its tiles, if it makes any, and itself; or only a tile store."""
    if (manifest := store.read_json(layout.RUN_JSON)) is not None and manifest.get("tiles"):
        tiles = TilePlan.from_json(manifest["tiles"], store.url)
        yield Store(as_path(tiles.url)), tiles.stages
    if (raw := store.read_json(layout.PLAN_JSON)) is not None:
        yield store, Plan.from_json(raw, store.url).stages
