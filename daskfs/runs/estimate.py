"""Seconds of a job before it runs: parts of its own rows are ranked, and the times of their stages scaled.

The parts are planned like the whole: the same engine, groups of rows and slabs of features. A stage takes a time for
each unit and one for its work, both found from two parts of different size. Work is bytes read and written, as planned;
pairs of rows for an exact search; rows for slabs of features, of which the part has as many as the whole; bands for
the statistics of columns, which are merged from those of bands; and the same for labels, which are read whole in any
part. No unit is estimated to move bytes faster than workers decode them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from daskfs.criteria.slab import SCORE_STAGE, ScoreParameters
from daskfs.errors import JobError
from daskfs.evaluation.design import DESIGN_STAGE
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.clusters.blocks import ClusterBlock
from daskfs.execution.connection import connect
from daskfs.execution.progress import Progress, Silent
from daskfs.graph.edges import EdgesSummaryParameters
from daskfs.graph.neighbors import NEIGHBORS_STAGE, SearchParameters
from daskfs.graph.partition import LARGEST_GROUP
from daskfs.graph.partitioned_search import BUILD_STAGE, CellsParameters
from daskfs.job.blocks import OutputBlock
from daskfs.job.job import Job
from daskfs.job.storage import with_storage_access
from daskfs.runs.pipeline import run_job
from daskfs.runs.repair import error_context
from daskfs.runs.status import PlannedRun, describe_plan, planned_run
from daskfs.stages.machine import machine_cores
from daskfs.stages.stage import Plan, Stage, first_parameters, with_fingerprints
from daskfs.tiles.ingest import COLUMNS_STAGE, LABELS_STAGE
from daskfs.tiles.plan import TilePlan

if TYPE_CHECKING:
    from distributed import Client

SAMPLE_ROWS, SAMPLE_BYTES = 50_000, 2**28
"""Most rows of the larger part, and bytes of their values."""
LARGER_PART_ROWS = 5000
"""Rows of the larger part, however wide they are; data with fewer are ranked whole."""
SMALLER = 4
"""The smaller part has the rows of the larger one divided by this."""
FIRST_ROWS = 2000
"""Rows of a first run, whose time is what any run takes: start, compiled passes, planning and report."""
PART_GROUP_ROWS = 2000
"""Fewest rows per group in a part, in which groups are smaller than in the whole."""
UNLIKE = 0.2
"""Least share of the units of the smaller part in excess of its work, from which the time of a unit is found."""
DECODED_BYTES = 2**31
"""Bytes that a thread reads and decodes, or encodes and writes, in a second, at most."""
DRIVER_SECONDS = 0.002
"""Seconds of the driver for each unit (tests/benchmarks/scale.py)."""


@dataclass(frozen=True)
class Measured:
    """A stage of a part: its number of units and its work in a round, its rounds, and seconds of all units."""

    n_units: int
    work: float
    rounds: int
    seconds: float


@with_storage_access
def estimate_job(job: Job, bandwidth: int | None = None, progress: Progress | None = None) -> dict[str, Any]:
    """Plan a job and estimate its time, from runs over parts of its rows on workers of this machine.

    Parameters
    ----------
    job
        The job. ``cluster.workers`` and ``cluster.threads`` are those that the estimate is for.
    bandwidth
        Bytes per second that the storage reads and writes for all workers together; None if it is no limit.
    progress
        Receives messages: which part is ranked, and the warnings of its run.

    Returns
    -------
    dict
        The plan, as ``daskfs plan --json`` prints it. Each stage also has ``seconds`` from its beginning to its end,
        ``busy_seconds`` of all its units, both of all rounds, and ``unit_seconds``; and ``bound``, which says what its
        time depends on. ``estimate`` holds ``seconds`` in all, ``start_seconds`` for what any run takes, ``rows`` of
        the larger part, ``workers``, ``threads`` and ``bandwidth``.

    Raises
    ------
    JobError
        For data with batches, a precomputed graph, or a representation.
    daskfs.errors.DaskfsError
        If the plan is refused, or a run over a part fails.

    Examples
    --------
    >>> from daskfs import estimate_job, make_job
    >>> job = make_job({
    ...     "data": {"source": "sklearn:iris"},
    ...     "methods": ["VarianceScore"],
    ...     "evaluate": None,
    ...     "cluster": {"workers": 0},
    ...     "output": {"path": "runs/iris"},
    ... })
    >>> planned = estimate_job(job)
    >>> [stage["stage"] for stage in planned["stages"]]
    ['ingest', 'labels', 'columns', 'score', 'rank']
    >>> planned["estimate"]["rows"], planned["estimate"]["seconds"] > 0
    (150, True)
    """
    key = next((key for key in ("precomputed", "use_rep") if getattr(job.graph, key) is not None), None)
    if key is not None:
        msg = f"plan --estimate ranks a part of the rows, and graph.{key} is of all of them: leave it out."
        raise JobError(msg)
    run = planned_run(job)
    settings = run.settings
    if run.tiles.has_batch:
        msg = "plan --estimate is not for data with batches: estimate one of them, by data.only_batch."
        raise JobError(msg)
    n_samples, n_rows = run.tiles.shape.n_samples, _rows_of_part(run)
    is_whole = n_rows == n_samples
    slots = max(settings.n_workers, 1) * settings.threads
    began = perf_counter()
    # on this machine, as many workers as it has cores for
    n_workers = min(settings.n_workers, max(1, machine_cores() // settings.threads))
    kept_keys = {"threads", "memory_limit", "dask"}
    here = ClusterSettings(workers=n_workers, **settings.model_dump(include=kept_keys))
    with connect(here) as client:
        tell = Silent()
        if progress is not None:  # of its displays, messages alone, and no end
            tell.message = progress.message  # type: ignore[method-assign]
        first = {} if is_whole else _run_part(job, run, FIRST_ROWS, client, tell)
        # few rows may take another route: what its stages take alone is no part of what any run takes
        names = {stage.name for stage in run.stages}
        start = perf_counter() - began - sum(stage.seconds for name, stage in first.items() if name not in names)
        sizes = [n_rows] if is_whole else [n_rows // SMALLER, n_rows]
        parts = [_run_part(job, run, size, client, tell) for size in sizes]
    took, planned = perf_counter() - began, describe_plan(job, run)
    for row, stage in zip(planned["stages"], run.stages, strict=True):
        measured = [part[name] for part in parts if (name := _named_alike(stage, run.stages, part)) is not None]
        row |= _stage_seconds(stage, _scale_seconds(stage, n_samples, measured), slots, bandwidth)
    seconds = _in_turn(run.stages, [row["seconds"] for row in planned["stages"]])
    if is_whole:
        start = max(0.0, took - seconds)
    planned["estimate"] = {
        "seconds": start + seconds,
        "start_seconds": start,
        "rows": n_rows,
        "workers": settings.n_workers,
        "threads": settings.threads,
        "bandwidth": bandwidth,
    }
    return planned


def _rows_of_part(run: PlannedRun) -> int:
    """Return the rows of the larger part: at least as many as an evaluation uses, if there are so many."""
    shape = run.tiles.shape
    fitting = SAMPLE_BYTES * shape.n_samples // max(shape.x_bytes, 1)
    evaluated = first_parameters(run.stages, DESIGN_STAGE)
    least = 1 if evaluated is None else evaluated.max_samples
    return min(max(min(max(fitting, LARGER_PART_ROWS), SAMPLE_ROWS), least), shape.n_samples)


def _run_part(job: Job, run: PlannedRun, n_rows: int, client: Client | None, tell: Progress) -> dict[str, Measured]:
    """Rank a part of the rows, and return its stages by name."""
    tell.message(f"estimate: ranking {n_rows:,} of {run.tiles.shape.n_samples:,} rows")
    whole = {stage.name: stage for stage in run.stages}
    plans: list[Plan] = []

    def adapt(plan: Plan) -> Plan:
        stages = [
            _in_form_of(whole[stage.name], stage, n_rows) if stage.name in whole else stage for stage in plan.stages
        ]
        plans.append(dataclasses.replace(plan, stages=with_fingerprints(stages, plan.identity), start=plan.identity))
        return plans[-1]

    # the larger part alone is evaluated, in as many rows as the whole
    design, evaluate = first_parameters(run.stages, DESIGN_STAGE), None
    if job.evaluate is not None and design is not None and n_rows >= _rows_of_part(run):
        evaluate = job.evaluate.model_copy(update={"max_samples": design.max_samples, "setting": design.keys.setting})
    engine = job.graph.engine
    if engine == "auto":
        engine = "exact" if any(stage.is_of(NEIGHBORS_STAGE) for stage in run.stages) else "cells"
    with TemporaryDirectory() as folder:
        n_workers = 0 if client is None else 1
        part = job.model_copy(
            update={
                "data": job.data.model_copy(update={"max_samples": n_rows}),
                "graph": job.graph.model_copy(update={"engine": engine}),
                "evaluate": evaluate,
                "cluster": ClusterBlock(workers=n_workers, memory_limit=run.workers.memory_limit),
                "output": OutputBlock(path=folder),
            }
        )
        with error_context("rows of the sample:", f"{n_rows:,}"):
            done = run_job(part, tell, connect=lambda _: nullcontext(client), adapt=adapt)
    stages = (*TilePlan.from_json(done["tiles"], folder).stages, *plans[0].stages)
    facts = {stage["name"]: stage for stage in done["stages"]}
    measures = {}
    for stage in stages:
        rounds, seconds = facts[stage.name]["rounds"] or 1, facts[stage.name]["seconds"]
        measures[stage.name] = Measured(stage.n_units, _work(stage, n_rows), rounds, seconds)
    return measures


def _in_form_of(whole: Stage, stage: Stage, n_rows: int) -> Stage:
    """Return a stage with as many groups of rows and slabs of features as that of the whole data has."""
    p, of_whole, n_units = stage.parameters, whole.parameters, stage.n_units
    if isinstance(p, SearchParameters) and isinstance(of_whole, SearchParameters):
        cut = p.partitioning
        n_groups = max(cut.n_groups, min(of_whole.partitioning.n_groups, n_rows // PART_GROUP_ROWS))
        members, n_cells = max(16 * p.k, int(LARGEST_GROUP * n_rows / n_groups)), max(n_groups, cut.n_cells)
        cut = dataclasses.replace(cut, n_groups=n_groups, n_cells=n_cells, max_members=members)
        p, n_units = dataclasses.replace(p, partitioning=cut), n_groups if stage.is_of(BUILD_STAGE) else n_units
    if isinstance(p, CellsParameters) and isinstance(of_whole, CellsParameters):
        p = dataclasses.replace(p, others=of_whole.others)
    if isinstance(p, EdgesSummaryParameters) and isinstance(of_whole, EdgesSummaryParameters):
        p = dataclasses.replace(p, holds_edges=of_whole.holds_edges)
    if isinstance(p, ScoreParameters) and isinstance(of_whole, ScoreParameters):
        p, n_units = dataclasses.replace(p, slab_columns=of_whole.slab_columns), whole.n_units
    return dataclasses.replace(stage, parameters=p, n_units=n_units)


def _work(stage: Stage, n_rows: int) -> float:
    """Return the work of a round of a stage, in a unit of its kind."""
    if stage.is_of(LABELS_STAGE):
        return 1.0  # labels of all rows are read to find those of a part
    if stage.is_of(NEIGHBORS_STAGE):
        return float(n_rows) ** 2
    if (tiles := stage.parameters_of(COLUMNS_STAGE)) is not None:
        return tiles.shape.n_bands
    return n_rows if stage.is_of(SCORE_STAGE) else stage.bytes_read + stage.bytes_written


def _named_alike(stage: Stage, stages: Sequence[Stage], part: Mapping[str, Measured]) -> str | None:
    """Return the stage of a part that is like one of the whole: of its name, else the next that the part has.

    A graph of many rows is made in one more stage, which does a share of the work of the next.
    """
    following = stages[stages.index(stage) :]
    return next((one.name for one in following if one.name in part), None)


def _scale_seconds(stage: Stage, n_samples: int, parts: Sequence[Measured]) -> Measured:
    """Return the seconds of a stage of the whole from those of the same stage of one or two parts; 0 without any.

    Seconds are ``a * n_units + b * work``. The time of a unit, a, is what the smaller part takes in excess of its share
    of the work; 0 if the number of units grows with the work, where both cannot be told apart.
    """
    work = _work(stage, n_samples)
    if not parts:
        return Measured(stage.n_units, work, 1, 0.0)
    last = parts[-1]
    each, seconds = 0.0, last.seconds / last.rounds
    if len(parts) > 1 and last.work:
        share = parts[0].work / last.work
        n_own = parts[0].n_units - share * last.n_units
        if n_own > UNLIKE * parts[0].n_units:
            excess = parts[0].seconds / parts[0].rounds - share * seconds
            each = min(max(0.0, excess / n_own), seconds / last.n_units)
    of_work = (seconds - each * last.n_units) * (work / last.work if last.work else stage.n_units / last.n_units)
    return Measured(stage.n_units, work, last.rounds, last.rounds * (each * stage.n_units + of_work))


def _stage_seconds(stage: Stage, measured: Measured, slots: int, bandwidth: int | None) -> dict[str, Any]:
    """Return the seconds of a stage on some workers, those of one unit, and what they depend on."""
    moved = stage.bytes_read + stage.bytes_written
    each = max(measured.seconds / measured.rounds, moved / DECODED_BYTES) / stage.n_units
    waves = -(-stage.n_units // slots)
    candidates = {
        "one unit" if stage.n_units == 1 else "few units" if stage.n_units < slots else "computing": waves * each,
        "storage": moved / bandwidth if bandwidth else 0.0,
        "driver": stage.n_units * DRIVER_SECONDS,
    }
    bound = max(candidates, key=candidates.__getitem__)
    seconds = measured.rounds * candidates[bound]
    busy = measured.rounds * stage.n_units * each
    return {"seconds": seconds, "unit_seconds": each, "busy_seconds": busy, "bound": bound}


def _in_turn(stages: Sequence[Stage], seconds: Sequence[float]) -> float:
    """Return the seconds of stages that run one after the other, but for those that begin with an earlier one."""
    begins: dict[str, float] = {}
    begin = end = 0.0
    for stage, stage_seconds in zip(stages, seconds, strict=True):
        if stage.begins_with in begins:
            begins[stage.name], end = begins[stage.begins_with], max(end, begins[stage.begins_with] + stage_seconds)
            continue
        begin = begins[stage.name] = end
        end = begin + stage_seconds
    return end
