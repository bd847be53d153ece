"""Plan of the tiles of a run, and what becomes of the run that its directory holds already."""

from __future__ import annotations

from daskfs.job.job import Job
from daskfs.runs.active_run import ActiveRun
from daskfs.runs.manifest import clear, new_manifest, refuse_scored
from daskfs.runs.plan import plan_run, planner_for_memory
from daskfs.runs.selection import listed_names
from daskfs.runs.tiles import has_read, plan_tiles
from daskfs.sources.collection import is_gone
from daskfs.stages.cost import Workers
from daskfs.stages.limits import check_memory
from daskfs.store import layout
from daskfs.store.store import Store
from daskfs.store.tiles import read_tile_info
from daskfs.tiles.plan import TilePlan, base_of, is_of_same_data


class Preparation:
    """Preparation of a run before any unit runs; `superseded` describes how the existing run differs, if it does."""

    def __init__(self, run: ActiveRun, job: Job, superseded: str) -> None:
        self._run, self._job, self._store = run, job, run.store
        self._superseded, self._appended = superseded, ""

    def prepare(self, workers: Workers, *, is_joined: bool) -> TilePlan:
        """Plan and check the run as far as possible without tiles, then write the manifest."""
        tiles, is_cut = self._tile_plan(workers)
        names = listed_names(self._job, tiles)
        early = plan_run(self._job, tiles, tiles.task, workers, names)
        planned_at = planner_for_memory(self._job, tiles, tiles.task, workers, names, is_cut=is_cut)
        check_memory((*tiles.stages, *early.stages), workers, planned_at=planned_at, is_joined=is_joined)
        stored = (self._store.read_json(layout.PLAN_JSON) or {}).get("facts", {}).get("given")
        if stored is not None and stored != early.facts["given"]:
            self._supersede_run(self._job.graph.precomputed or self._job.graph.use_rep)
        if self._superseded or self._appended:
            self._take_over(keep_tiles=is_cut)
        if self._run.manifest.pop("error", None) is not None:
            self._run.manifest["status"] = "running"
        self._run.manifest["tiles"] = tiles.to_json()
        self._store.write_json(layout.RUN_JSON, self._run.manifest)
        return tiles

    def _tile_plan(self, workers: Workers) -> tuple[TilePlan, bool]:
        """Return the plan of the tiles, and whether it is that of tiles already begun, which keep their shape."""
        data, stored, url = self._job.data, self._run.manifest.get("tiles"), f"{self._store.url}/{layout.TILES_DIR}"
        begun = None if stored is None else TilePlan.from_json(stored, self._store.url)
        if begun is not None and is_gone(data.source) and self._is_filled(begun):
            return begun, True
        base = None  # earlier tiles from which those with appended rows are planned
        if begun is not None and begun.stages and data.append:
            base = base_of(begun, is_finished=self._is_filled(begun))
        current = plan_tiles(data, url, workers, base)
        if begun is None:
            return current, False
        if begun.fingerprint == current.fingerprint and is_of_same_data(begun.stages, current.stages):
            if not begun.stages:
                return current, True
            if self._is_filled(begun) or has_read(begun.stages, current.stages, begun.url):
                return begun, True
        if current.base is not None:
            n_rows = current.shape.n_samples - current.base.parameters.shape.n_samples
            self._appended = (
                f"{n_rows:,} rows were appended to {data.source}: {current.n_kept} of {current.shape.n_bands} bands "
                "of tiles are kept"
            )
        else:
            self._supersede_run(data.source)
        return current, current.n_kept > 0

    def _is_filled(self, planned: TilePlan) -> bool:
        info = read_tile_info(Store(self._store.path(layout.TILES_DIR)))  # of a copy: its own
        return info is not None and info.fingerprint == planned.fingerprint

    def _supersede_run(self, path: str | None) -> None:
        """Supersede the existing run because the file `path` changed; :class:`StoreError` if it has scores."""
        if not self._superseded and not self._appended:
            change = f"{path} changed since the run in {self._store.url} began"
            remedy = "restore it, choose another output.path, or start over with --overwrite"
            if path == self._job.data.source and not self._job.data.append:
                remedy += "; if only rows were added at its end, set data.append"
            refuse_scored(self._store, self._run.manifest, f"{change}: {remedy}.")
            self._superseded = change

    def _take_over(self, *, keep_tiles: bool) -> None:
        """Delete the files of the superseded run.

        Its manifest stays until this run replaces it, so that the same call repeats the deletion after a kill.
        """
        run, store = self._run, self._store
        run.lock.check()
        store.begin_epoch(fresh=True)
        if self._appended:
            store.write_json(layout.RUN_JSON, {**run.manifest, "status": "running"})
        clear(store, keep=(layout.RUN_JSON, *([layout.TILES_DIR] if keep_tiles else [])))
        if self._appended:  # the manifest of the run before describes its results
            of_tiles = {key: value for key, value in run.manifest.items() if key in ("computed_by", "damages")}
            run.manifest = new_manifest(self._job) | of_tiles
            run.journal.message(f"{self._appended}. The results in {store.url} are made again from all rows.")
        else:
            what = "takes over the directory" + (" and its tiles" if keep_tiles else "")
            run.journal.message(f"{self._superseded}. Nothing was scored in it: this run {what}.", "take_over")
        self._superseded = self._appended = ""
