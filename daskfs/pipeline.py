"""A job from its file to its report: the order in which things happen. What a unit does, and what a plan holds, lies
elsewhere.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from daskfs.errors import InputError, RunStoppedError, StoreError
from daskfs.execution.cluster import ClusterSettings, connected, memory_per_worker, smallest_limit
from daskfs.execution.progress import Progress, Silent
from daskfs.execution.waves import pending_units, run_stage
from daskfs.graph.neighbors import create_graph_arrays
from daskfs.graph.partition import block_rows
from daskfs.job import DataBlock, Job
from daskfs.methods.registry import check_labels
from daskfs.plan import Plan, Stage, check_memory, digest
from daskfs.planning import TilePlan, plan_run, plan_tiles
from daskfs.scores.slab import create_score_arrays, methods_from
from daskfs.store import layout
from daskfs.store.context import Context, open_tiles
from daskfs.store.ingest import create_tile_arrays
from daskfs.store.store import Store
from daskfs.store.tiles import read_tile_info
from daskfs.version import __version__

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
    with _locked(store), _stoppable():
        manifest = _claim(store, job, overwrite)
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
        tiles = self._tile_plan(memory_per_worker(settings))
        check_memory(tiles.stages, memory_per_worker(settings))
        early = plan_run(self.job, tiles, tiles.task, memory_per_worker(settings))
        check_memory(early.stages, memory_per_worker(settings))
        if (done := self._finished(tiles)) is not None:
            return done
        with connected(settings) as client, ExitStack() as stack:
            stack.callback(self.progress.close)
            limit = memory_per_worker(settings) or (smallest_limit(client) if client else None)
            self._fill_tiles(tiles, client, limit)
            plan = self._plan(tiles, limit)
            context = Context(self.store)
            check_labels_of(plan, context)
            create_run_arrays(self.store, plan)
            for stage in plan.stages:
                self._run(context, stage, client, plan.identity)
        return self._finish(plan, tiles)

    def _tile_plan(self, limit: int | None) -> TilePlan:
        current = plan_tiles(self.job.data, self.store.url + "/" + layout.TILES_DIR, limit)
        stored = self.manifest.get("tiles")
        if stored is None:
            self.manifest["tiles"] = current.to_json()
            self.store.write_json(layout.RUN_JSON, self.manifest)
            return current
        known = TilePlan.from_json(stored)
        if known.fingerprint != current.fingerprint:
            msg = (
                f"{self.job.data.source} changed since the run in {self.store.url} began: restore it, "
                "choose another output.path, or "
                "start over with --overwrite."
            )
            raise StoreError(msg)
        return known

    def _finished(self, tiles: TilePlan) -> dict[str, Any] | None:
        """Return the manifest when there is nothing to do."""
        raw = self.store.read_json(layout.PLAN_JSON)
        if self.manifest.get("status") != "done" or raw is None or read_tile_info(Store(Path(tiles.url))) is None:
            return None
        plan = Plan.from_json(raw, self.store.url)
        contexts = [(Context(Store(Path(tiles.url))), tiles.stages), (Context(self.store), plan.stages)]
        if any(pending_units(context, stage) for context, stages in contexts for stage in stages):
            return None
        self.progress.message("nothing to do: every unit is recorded and its outputs are there")
        return {**self.manifest, "recomputed": {}}

    def _fill_tiles(self, tiles: TilePlan, client: Client | None, limit: int | None) -> None:
        if not tiles.stages:
            return
        fill_tiles(tiles, client, limit, self._report, self.progress, self.recomputed)

    def _plan(self, tiles: TilePlan, limit: int | None) -> Plan:
        info = read_tile_info(Store(Path(tiles.url)))
        assert info is not None
        planned = plan_run(self.job, dataclasses.replace(tiles, has_labels=info.task is not None), info.task, limit)
        raw = self.store.read_json(layout.PLAN_JSON)
        if raw is not None and raw.get("identity") == planned.identity:
            planned = Plan.from_json(raw, self.store.url)  # slabs stay as they were, whatever the memory is now
        else:
            self.store.write_json(layout.PLAN_JSON, planned.to_json())
        check_memory(planned.stages, limit)
        return planned

    def _run(self, context: Context, stage: Stage, client: Client | None, identity: str) -> None:
        run_pending(context, stage, client, identity, self._report, self.progress, self.recomputed)

    def _report(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        self.progress.unit_done(stage, unit, facts)
        event = {"time": round(time.time(), 3), "stage": stage.name, "unit": unit, **facts}
        with self.store.path(layout.EVENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def _finish(self, plan: Plan, tiles: TilePlan) -> dict[str, Any]:
        from daskfs.report.summary import run_facts, write_report

        facts = run_facts(self.store, plan, tiles)
        seconds = round(float(self.manifest.get("seconds", 0.0)) + time.time() - self.started, 3)
        self.manifest.update(facts, status="done", seconds=seconds, command=self.command)
        write_report(self.store, {**self.manifest, "recomputed": self.recomputed})
        self.store.write_json(layout.RUN_JSON, self.manifest)
        return {**self.manifest, "recomputed": self.recomputed}


def run_pending(
    context: Context,
    stage: Stage,
    client: Client | None,
    identity: str,
    report: Any,
    progress: Progress,
    recomputed: dict[str, int],
) -> None:
    """Run the units of a stage that are not recorded, counting them in `recomputed`."""
    units = pending_units(context, stage)
    if not units:
        return
    progress.start_stage(stage, len(units))

    def counted(done: Stage, unit: int, facts: dict[str, Any]) -> None:
        recomputed[done.name] = recomputed.get(done.name, 0) + 1
        report(done, unit, facts)

    run_stage(context, stage, units, client, identity, counted)


def fill_tiles(
    tiles: TilePlan,
    client: Client | None,
    limit: int | None,
    report: Any,
    progress: Progress,
    recomputed: dict[str, int],
) -> None:
    """Fill a tile store, or what is missing of it."""
    check_memory(tiles.stages, limit)
    context = Context(Store(Path(tiles.url)))
    create_tile_arrays(context.store, tiles.shape, tiles.write_x)
    plan = Plan(tiles.url, tiles.stages, digest(tiles.fingerprint, dataclasses.asdict(tiles.shape)))
    context.store.write_json(layout.PLAN_JSON, plan.to_json())
    for stage in tiles.stages:
        run_pending(context, stage, client, plan.identity, report, progress, recomputed)


def create_run_arrays(store: Store, plan: Plan) -> None:
    """Create the arrays that several units of a stage write into."""
    shape = plan.facts["shape"]
    n_samples, n_features = int(shape["n_samples"]), int(shape["n_features"])
    for stage in plan.stages:
        if stage.function == "neighbors":
            name = stage.name.removeprefix("neighbors-")
            create_graph_arrays(store, name, n_samples, int(stage.parameters["k"]), block_rows(n_samples))
        elif stage.function == "recall":
            import numpy as np

            k, name = int(stage.parameters["k"]), stage.name.removeprefix("recall-")
            n_queries = min(500, n_samples)
            store.create(layout.KNN_RECALL.at(name), (stage.n_units, n_queries, k), np.float64, (1, n_queries, k))
        elif stage.function == "score":
            create_score_arrays(
                store, methods_from(stage.parameters["methods"]), n_features, int(stage.parameters["slab_columns"])
            )


def check_labels_of(plan: Plan, context: Context) -> None:
    """Raise :class:`InputError` when the labels cannot serve the plan's methods."""
    methods = methods_from(plan.stage("score").parameters["methods"])
    if not any(method.criterion.needs_labels for method in methods):
        return
    labels = context.tiles.labels()
    for method in methods:
        check_labels(method.criterion, method.label, labels)


# ------------------------------------------------------------------- the output's owner
def _claim(store: Store, job: Job, overwrite: bool) -> dict[str, Any]:
    """Return the manifest of the run in the output directory, or begin one; :class:`StoreError` when it belongs to
    another job.
    """
    identity = job.identity()
    manifest = _readable_manifest(store, overwrite)
    if manifest is not None and not overwrite:
        if manifest.get("daskfs_version") != __version__:
            msg = (
                f"{store.url} was begun by daskfs {manifest.get('daskfs_version')}, this is {__version__}: "
                "choose another output.path, or "
                "start over with --overwrite."
            )
            raise StoreError(msg)
        if manifest["job"] != identity:
            differing = ", ".join(_differences(manifest["job"], identity)[:5])
            msg = (
                f"{store.url} holds a run of another job; these keys differ: {differing}. Choose another "
                "output.path, or start over "
                "with --overwrite."
            )
            raise StoreError(msg)
        return manifest
    if overwrite:
        _clear(store)
    begun = {
        "format_version": layout.FORMAT_VERSION,
        "daskfs_version": __version__,
        "status": "running",
        "job": identity,
        "title": job.output.title,
    }
    store.write_json(layout.RUN_JSON, begun)
    return begun


def _readable_manifest(store: Store, overwrite: bool) -> dict[str, Any] | None:
    root = store.path("")
    manifest: dict[str, Any] | None = store.read_json(layout.RUN_JSON)
    if manifest is None:
        foreign = sorted(p.name for p in root.iterdir() if p.name != layout.LOCK)
        if foreign:
            msg = (
                f"{store.url} exists and is not a daskfs run (it holds {', '.join(foreign[:3])}): choose "
                "another output.path."
            )
            raise StoreError(msg)
        return None
    if manifest.get("format_version") != layout.FORMAT_VERSION and not overwrite:
        msg = (
            f"{store.url} holds a run in format version {manifest.get('format_version')!r}, this daskfs "
            f"writes {layout.FORMAT_VERSION}: "
            "choose another output.path, or start over with --overwrite."
        )
        raise StoreError(msg)
    return manifest


def _differences(a: Any, b: Any, prefix: str = "") -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        keys = sorted(set(a) | set(b))
        return [d for key in keys for d in _differences(a.get(key), b.get(key), f"{prefix}.{key}" if prefix else key)]
    return [] if a == b else [prefix]


def _clear(store: Store) -> None:
    for path in store.path("").iterdir():
        if path.name != layout.LOCK:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def _locked(store: Store) -> Iterator[None]:
    """Hold the output directory for this process; :class:`StoreError` when another run has it."""
    root = store.path("")
    try:
        root.mkdir(parents=True, exist_ok=True)
        handle = os.open(root / layout.LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        msg = f"cannot write to output.path {root}: {error.strerror}."
        raise StoreError(msg) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"another daskfs process is running in {root}: wait for it, or choose another output.path."
            raise StoreError(msg) from error
        yield
    finally:
        os.close(handle)


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


# ------------------------------------------------------------------- other verbs
def convert(
    data: DataBlock, target: str, settings: ClusterSettings, progress: Progress | None = None
) -> dict[str, Any]:
    """Turn a source into a tile store, or finish one that was begun.

    Returns
    -------
    dict
        What was found: shape, tiles, labels, constant features.
    """
    progress = progress or Silent()
    store = Store(Path(target).expanduser().absolute())
    with _locked(store), _stoppable(), ExitStack() as stack:
        stack.callback(progress.close)
        limit = memory_per_worker(settings)
        tiles = plan_tiles(data, store.url, limit)
        if not tiles.stages:
            msg = f"{data.source} already is a tile store."
            raise InputError(msg)
        begun = store.read_json(layout.PLAN_JSON)
        foreign = [p.name for p in store.path("").iterdir() if p.name != layout.LOCK]
        if begun is None and foreign:
            msg = f"{store.url} exists and is not a tile store (it holds {foreign[0]}): choose another target."
            raise StoreError(msg)
        if begun is not None and begun["stages"][0]["parameters"]["fingerprint"] != tiles.fingerprint:
            msg = f"{store.url} holds tiles of other data: choose another target, or delete it."
            raise StoreError(msg)
        recomputed: dict[str, int] = {}
        with connected(settings) as client:
            fill_tiles(tiles, client, limit, progress.unit_done, progress, recomputed)
    return {**describe_tiles(store.url), "recomputed": recomputed}


def describe_tiles(url: str) -> dict[str, Any]:
    """Return shape, tiles, labels and constant features of a finished tile store."""
    tiles = open_tiles(url)
    moments = tiles.column_moments()
    names = tiles.feature_names()
    constant = [i for i in range(len(names)) if moments["minimum"][i] == moments["maximum"][i]]
    labels = tiles.labels()
    counts: dict[str, Any] = {"n_labelled": int(labels.is_labelled.sum()) if labels else 0}
    if labels is not None and labels.task == "classification":
        counts["classes"] = {name: int((labels.values == code).sum()) for code, name in enumerate(labels.classes)}
    shape = dataclasses.asdict(tiles.shape)
    return {
        "store": url,
        "source": tiles.info.source,
        **shape,
        "x_in_place": tiles.info.x_path,
        "task": tiles.info.task,
        **counts,
        "n_constant": len(constant),
        "constant": [names[i] for i in constant[:20]],
    }


def plan_job(job: Job) -> dict[str, Any]:
    """Return what a run would do: stages, units, bytes, memory, and what is recorded already. Starts nothing and writes
    nothing.
    """
    settings = ClusterSettings(**job.cluster.model_dump())
    limit = memory_per_worker(settings)
    store = Store(Path(job.output.path).expanduser().absolute())
    manifest = store.read_json(layout.RUN_JSON)
    mine = manifest is not None and manifest.get("job") == job.identity()
    tiles = plan_tiles(job.data, f"{store.url}/{layout.TILES_DIR}", limit)
    if mine and manifest is not None and manifest.get("tiles"):
        tiles = TilePlan.from_json(manifest["tiles"])
    stored = store.read_json(layout.PLAN_JSON) if mine else None
    task = tiles.task or (job.data.task if job.data.task != "auto" else None)
    plan = Plan.from_json(stored, store.url) if stored else plan_run(job, tiles, task, limit)
    check_memory((*tiles.stages, *plan.stages), limit)
    rows = [_plan_row(Context(Store(Path(tiles.url))), stage) for stage in tiles.stages]
    rows += [_plan_row(Context(store), stage) for stage in plan.stages]
    return {
        "output": store.url,
        "shape": dataclasses.asdict(tiles.shape),
        "memory_limit": limit,
        "peak_bytes": max(row["peak_bytes"] for row in rows),
        "bytes_read": sum(row["bytes_read"] for row in rows),
        "bytes_written": sum(row["bytes_written"] for row in rows),
        "stages": rows,
    }


def _plan_row(context: Context, stage: Stage) -> dict[str, Any]:
    return {
        "stage": stage.name,
        "units": stage.n_units,
        "done": done_units(context, stage),
        "bytes_read": stage.bytes_read,
        "bytes_written": stage.bytes_written,
        "peak_bytes": stage.peak_bytes,
    }


def done_units(context: Context, stage: Stage) -> int:
    """Return how many units of a stage are recorded."""
    records = context.store.path(layout.records_of(stage.name))
    if not records.is_dir():
        return 0
    return stage.n_units - len(pending_units(context, stage))


def rewrite_report(url: str) -> dict[str, Any]:
    """Write the report of a finished run again; :class:`StoreError` when there is no finished run."""
    from daskfs.report.summary import write_report

    store = Store(Path(url).expanduser().absolute())
    manifest = read_manifest(store)
    if manifest["status"] != "done":
        msg = f"the run in {store.url} is not finished: 'daskfs status {url}' shows how far it is."
        raise StoreError(msg)
    return {"report": str(write_report(store, manifest))}


def read_manifest(store: Store) -> dict[str, Any]:
    """Return ``run.json``; :class:`StoreError` when there is none or it is of another version."""
    manifest: dict[str, Any] | None = store.read_json(layout.RUN_JSON)
    if manifest is None:
        msg = f"{store.url} is not a daskfs run: it has no {layout.RUN_JSON}."
        raise StoreError(msg)
    if manifest.get("format_version") != layout.FORMAT_VERSION:
        msg = (
            f"{store.url} holds a run in format version {manifest.get('format_version')!r}, this daskfs reads "
            f"{layout.FORMAT_VERSION}."
        )
        raise StoreError(msg)
    return manifest


def run_status(url: str) -> dict[str, Any]:
    """Return how far a run is: stages, units done, and the time left in the stages that have begun."""
    store = Store(Path(url).expanduser().absolute())
    manifest = read_manifest(store)
    rows: list[dict[str, Any]] = []
    if manifest.get("tiles"):
        tiles = TilePlan.from_json(manifest["tiles"])
        rows += [_status_row(Context(Store(Path(tiles.url))), stage) for stage in tiles.stages]
    raw = store.read_json(layout.PLAN_JSON)
    if raw is not None:
        rows += [_status_row(Context(store), stage) for stage in Plan.from_json(raw, store.url).stages]
    return {"run": store.url, "status": manifest["status"], "stages": rows}


def _status_row(context: Context, stage: Stage) -> dict[str, Any]:
    done = done_units(context, stage)
    seconds = (
        [
            float((context.store.read_record(stage.name, unit) or {}).get("seconds", 0.0))
            for unit in range(stage.n_units)
        ]
        if done
        else []
    )
    mean = sum(seconds) / done if done else None
    left = mean * (stage.n_units - done) if mean is not None else None
    return {
        "stage": stage.name,
        "units": stage.n_units,
        "done": done,
        "seconds": round(sum(seconds), 3),
        "seconds_left": left,
    }
