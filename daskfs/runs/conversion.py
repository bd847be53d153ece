"""Conversion of sources to tile stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from daskfs.data_block import DataBlock
from daskfs.errors import DamagedError, DaskfsError, InputError, StoreError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.connection import connect
from daskfs.execution.pool import granted_workers, pool_of
from daskfs.execution.progress import Progress, Silent
from daskfs.execution.signals import stoppable
from daskfs.runs.journal import Journal
from daskfs.runs.manifest import damage_warning, lock_directory
from daskfs.runs.repair import Tell, rerun_on_damage
from daskfs.runs.runner import Runner, fill_tiles
from daskfs.runs.tiles import has_read, plan_tiles
from daskfs.stages.cost import Workers
from daskfs.stages.failures import name_failure
from daskfs.stages.limits import check_memory
from daskfs.stages.stage import Plan, Stage
from daskfs.storage import as_output_path
from daskfs.store import layout
from daskfs.store.store import Store, remove_unfinished
from daskfs.store.tiles import read_tile_info
from daskfs.tiles.plan import TilePlan, is_of_same_data, parameters_of


def convert(
    data: DataBlock,
    target: str,
    settings: ClusterSettings,
    progress: Progress | None = None,
    warnings: list[str] | None = None,
) -> dict[str, int]:
    """Convert a source to a tile store, or resume a conversion; return the number of units that ran, by stage.

    Warnings about repaired damage are appended to `warnings`. After any error finished units stay recorded, and the
    same call resumes the conversion.
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
    if store.path("").name == layout.TILES_DIR and (store.path("").parent / layout.RUN_JSON).is_there():
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
        if stages := _begun_stages(store, tiles, tell):
            if not is_of_same_data(stages, tiles.stages):
                msg = f"{store.url} holds something else than tiles of these data: choose another target, or delete it."
                raise StoreError(msg)
            if read_tile_info(store) is None and not has_read(stages, tiles.stages, store.url):
                msg = f"the source of {store.url} changed since its conversion began: restore it, or delete the tiles."
                raise StoreError(msg)
            begun = parameters_of(stages)  # keep the tile shape, whatever the memory limit is now
            tiles = dataclasses.replace(tiles, shape=begun.shape, write_x=begun.write_x, stages=stages)
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
        remove_unfinished(store)
    return runner.recomputed


def _begun_stages(store: Store, tiles: TilePlan, tell: Tell) -> tuple[Stage, ...]:
    """Return the stages of a conversion that has begun, or none.

    A damaged plan is made again if the tiles are not finished, or are those of `tiles`.
    """
    try:
        begun = store.read_json(layout.PLAN_JSON)
        return () if begun is None else Plan.from_json(begun, store.url).stages
    except DamagedError as error:
        info = read_tile_info(store)
        if info is not None and info.fingerprint != tiles.fingerprint:
            raise
        tell(f"{error} This conversion does so now.", damage_warning(error.paths))
        return ()
