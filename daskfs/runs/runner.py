"""Execution of the pending units of tiles and runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from daskfs.execution.pool import Pool
from daskfs.execution.progress import Progress
from daskfs.execution.signals import check_stopped
from daskfs.execution.submission import Report, pending_units, run_stages
from daskfs.graph.partitioned_search import check_room, expected_misses
from daskfs.runs.repair import Tell, remove_lost
from daskfs.stages.stage import Plan, Stage
from daskfs.stages.units import create_arrays
from daskfs.storage import as_path
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store
from daskfs.store.tiles import read_tile_info
from daskfs.tiles.plan import TilePlan, parameters_of


@dataclass
class Runner:
    """Runner of pending units: `recomputed` is their number, `seconds` wall and summed unit times, by stage.

    `begun` is called before the first unit of each stage with pending units.
    """

    pool: Pool
    progress: Progress
    report: Report
    recomputed: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)
    tell: Tell | None = None
    begun: Callable[[Stage], None] = lambda _: None
    _ticked: float = 0.0

    def run(self, context: Context, stages: Sequence[Stage], identity: str) -> None:
        """Run the units of the stages that are not recorded."""
        self._ticked = time.monotonic()

        def begin(stage: Stage, n_pending: int) -> None:
            self.begun(stage)
            remove_lost(context, stage, stages, self.tell or (lambda message, _: self.progress.message(message)))
            self.progress.start_stage(stage, n_pending)
            check_room(context, stage)
            if (warning := expected_misses(context, stage)) is not None:
                self.progress.message(f"warning: {warning}.")

        run_stages(context, stages, self.pool, identity, self._count_unit, begin)

    def _count_unit(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
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
    if info is not None and (info.fingerprint, info.shape) != (tiles.fingerprint, tiles.shape):
        # bands are kept, but these tiles are not finished
        context.store.delete(layout.TILES_JSON)
    plan = Plan(tiles.url, tiles.stages, tiles.stages[-1].fingerprint, parameters_of(tiles.stages).fingerprint)
    context.store.write_json(layout.PLAN_JSON, plan.to_json(context.store.url))
    create_arrays(context, tiles.stages)
    if tiles.note is not None and pending_units(context, plan.stage("ingest"), plan.stages):
        runner.progress.message(f"{tiles.note}.")
    runner.run(context, plan.stages, plan.identity)
