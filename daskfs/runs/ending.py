"""End of a run: its tables, manifest and report, and what is to be made again of a run that ended before."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from daskfs.execution.submission import inputs_of
from daskfs.run_warning import CHANGES, RunWarning, merge_warnings
from daskfs.runs.active_run import ActiveRun
from daskfs.runs.batches import batch_url
from daskfs.runs.manifest import damage_warning, file_checksum, matches_manifest, with_paths
from daskfs.runs.repair import has_pending, restore_metadata
from daskfs.runs.status import stored_stages
from daskfs.stages.stage import Plan, Stage
from daskfs.storage import as_path
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store, remove_unfinished
from daskfs.store.tiles import read_tile_info
from daskfs.tiles.plan import TilePlan


def finish_run(
    run: ActiveRun,
    plan: Plan,
    tiles: TilePlan,
    times: dict[str, Any],
    batches: Sequence[Mapping[str, Any]],
    command: str | None,
) -> dict[str, Any]:
    """Write the report and the manifest of a run whose units are done, and return the manifest."""
    from daskfs.report.summary import run_facts

    run.lock.check()
    remove_unfinished(run.store)
    for name in layout.RESULTS:
        run.store.read_bytes(name)  # raises if a late writer has replaced the table
    facts = run_facts(run.store, plan, tiles, times, batches, run.manifest.get("damages", ()))
    _ = Context(run.store).tiles  # raises if the tiles have changed: the report is made from them
    seconds = round(float(run.manifest.get("seconds", 0.0)) + time.monotonic() - run.started, 3)
    run.manifest.update(facts, status="done", seconds=seconds, command=command)
    _write_report(run)
    run.journal.message("", "done", seconds=seconds)
    run.save()
    return with_paths(run.store, {**run.manifest, "recomputed": run.recomputed})


def repair_finished(run: ActiveRun, tiles: TilePlan) -> dict[str, Any] | None:
    """Return the manifest of a complete run after repairs; None if units are pending."""
    manifest, store = run.manifest, run.store
    if manifest.get("status") != "done" or read_tile_info(Store(as_path(tiles.url)), is_expected=True) is None:
        return None
    ranked = [batch for batch in manifest.get("batches", ()) if batch["methods"]] if tiles.has_batch else []
    contexts: list[tuple[Context, Sequence[Stage]]] = []
    for own_store in (store, *(Store(as_path(batch_url(store.url, batch["number"]))) for batch in ranked)):
        ended = own_store.read_json(layout.RUN_JSON) or {}
        if ended.get("status") != "done" or own_store.read_json(layout.PLAN_JSON) is None:
            return None
        if own_store is not store and not matches_manifest(own_store, ended, layout.REPORT_HTML):
            return None
        contexts += [(Context(one), stages) for one, stages in stored_stages(own_store)]
    for context, stages in contexts:
        if stages and (damaged := context.store.seals.damaged()):
            inputs_of(context, None, 0, stages)
            context.store.seals.write()
            run.tell(f"{damaged[0]} is damaged or missing: it is written again.", damage_warning(damaged))
    if any([has_pending(context, stage, stages, run.tell) for context, stages in contexts for stage in stages]):
        manifest["status"] = "running"
        store.write_json(layout.RUN_JSON, manifest)
        return None
    for context, stages in contexts:
        restore_metadata(context, stages, run.tell)
    if not matches_manifest(store, manifest, layout.REPORT_HTML):
        path = store.path(layout.REPORT_HTML)
        path.remove()
        run.tell(f"{path} is damaged or missing: it is written again.", damage_warning([path]))
    if run.damages:
        earlier_warnings = map(RunWarning.from_json, manifest["warnings"])
        warnings = merge_warnings([*earlier_warnings, *(RunWarning("damage", CHANGES, text) for text in run.damages)])
        manifest["warnings"] = [warning.to_json() for warning in warnings]
        _write_report(run)
        store.write_json(layout.RUN_JSON, manifest)
    run.journal.message("nothing to do: every unit is recorded and its outputs are there")
    return with_paths(store, {**manifest, "recomputed": {}})


def _write_report(run: ActiveRun) -> None:
    from daskfs.report.summary import write_report

    write_report(run.store, {**run.manifest, "recomputed": run.recomputed})
    run.manifest["files"] = {layout.REPORT_HTML: file_checksum(run.store, layout.REPORT_HTML)}
