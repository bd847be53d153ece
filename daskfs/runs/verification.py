"""Verification of a run or a tile store: every byte against its checksum, every file against the plan."""

from __future__ import annotations

import dataclasses
import json
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from daskfs.errors import DamagedError, InputError, StoreError
from daskfs.execution.progress import Progress, Silent
from daskfs.execution.submission import inputs_of, pending_units, rebuild_seals, recorded_units
from daskfs.graph.precomputed_files import open_graph
from daskfs.graph.precomputed_stage import GIVEN_STAGE, check_identity
from daskfs.graph.representation import REPRESENTATION_STAGE
from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.scaling import row_norms
from daskfs.kernels.statistics.moments import tree_moments
from daskfs.runs.manifest import batch_runs, lock_directory, matches_manifest, read_manifest, read_state, tiles_state
from daskfs.sources.state import changed_file
from daskfs.stages.machine import machine_cores
from daskfs.stages.stage import Plan, Stage, first_parameters
from daskfs.stages.units import shared_arrays
from daskfs.storage import (
    StoragePath,
    as_path,
    at_once,
)
from daskfs.storage.clients import with_retries
from daskfs.store import layout
from daskfs.store.arrays import METADATA, open_zarr
from daskfs.store.completeness import read_checksums
from daskfs.store.context import Context, open_tiles
from daskfs.store.epoch import Epoch
from daskfs.store.record_files import RecordFiles
from daskfs.store.records import Record
from daskfs.store.seals import name_hash
from daskfs.store.second_look import look_twice
from daskfs.store.store import Store
from daskfs.store.tiles import read_tile_info
from daskfs.store.write_errors import MADE_AGAIN, explain_write_errors
from daskfs.tiles.ingest import INGEST_STAGE
from daskfs.tiles.plan import TilePlan, parameters_of

WAITING = 4
"""Maximum number of submitted units per thread."""
MAX_LEFT_OVER = 1000
"""Maximum number of left-over files that are listed; all are counted."""
SAME = 1e-9
"""Relative tolerance between norms and moments computed on two machines."""
IS_MISSING = "is missing"


class _CheckedRecords(RecordFiles):
    """Records of which those of all but the given units match, without outputs that would be compared again."""

    def __init__(self, root: StoragePath, bad: Mapping[str, Mapping[int, _Unit]]) -> None:
        super().__init__(root, Epoch(root))
        self._bad = bad

    def matching(
        self, stage: str, units: Iterable[int], fingerprint: str, inputs: str | None = None
    ) -> Iterator[tuple[int, Record]]:
        del fingerprint, inputs
        yield from (
            (unit, {"unit": unit, "chunks": {}, "objects": {}}) for unit in units if unit not in self._bad[stage]
        )


def verify_run(
    path: str | Path, *, remove: bool = False, threads: int | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Check all files of a run or a tile store against its records, checksums and plan.

    Parameters
    ----------
    path
        Directory of a run, or of a tile store.
    remove
        Delete damaged files, so that the next ``daskfs run`` or ``daskfs convert`` writes them again. If false, nothing
        is changed.
    threads
        Number of files read at a time; None for the number of cores, in an object store at least 16.
    progress
        Receives the progress of the verification.

    Returns
    -------
    dict
        ``problems``, a list of path, problem, stage and unit; ``left_over``, files below the store's folders that no
        record names, which are never deleted, and ``n_left_over``, their number; ``notes``, remarks such as parts that
        could not be checked; ``checked``, numbers of records, chunks, objects, arrays and bytes; ``not_done``, the
        number of pending units of an unfinished run; ``removed``, the number of deleted files; ``status``, that of
        ``daskfs status``, or of a tile store "done", "running", "unfinished" or "unknown"; and ``run``, the path.

    Raises
    ------
    StoreError
        If the directory holds neither a run nor a tile store, or `remove` is set while another process runs in it.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from daskfs import make_job, run_job, verify_run
    >>> with TemporaryDirectory() as folder:
    ...     job = make_job({
    ...         "data": {"source": "sklearn:iris"},
    ...         "methods": ["VarianceScore"],
    ...         "cluster": {"workers": 0},
    ...         "output": {"path": folder},
    ...     })
    ...     _ = run_job(job)
    ...     found = verify_run(folder)
    >>> found["status"], found["problems"]
    ('done', [])
    """
    store = Store(as_path(path))
    is_run = store.path(layout.RUN_JSON).is_there()
    marker = layout.RUN_JSON if is_run else layout.PLAN_JSON
    if not is_run and not any(store.path(name).is_there() for name in (layout.TILES_JSON, layout.PLAN_JSON)):
        msg = f"{store.url} is neither a daskfs run nor a tile store: it has no {layout.RUN_JSON}."
        raise StoreError(msg)
    check = _Check(threads or max(machine_cores(), at_once(store.root)), progress or Silent())
    check_all, status = check.run if is_run else check.tile_store, "unknown"
    with suppress(StoreError):  # the check reports it; later, the lock may be that of this process
        state = read_state(store)[1] if is_run else tiles_state(store)
        status = state.status
        if state.lock.is_held and not remove:
            check.notes.append(f"a process is running in {store.url}: what it writes meanwhile may be told wrongly")
        elif status not in ("done", "running"):
            check.notes.append(f"{store.url} is not finished: {state}")
    what = "daskfs run" if is_run else "tile store"
    with lock_directory(store, marker, what, "directory", check.progress.message) if remove else nullcontext():
        check_all(store)
        n_removed = _delete_damaged(store, check.problems) if remove else 0
    return {
        "run": store.url,
        "status": status,
        "problems": check.problems,
        "notes": check.notes,
        "left_over": check.left_over,
        "n_left_over": check.n_left_over,
        "not_done": check.n_not_done,
        "checked": dict(check.checked),
        "removed": n_removed,
    }


def _delete_damaged(store: Store, problems: Sequence[Mapping[str, Any]]) -> int:
    """Delete damaged files, except the manifest, files outside the store and ``.jsonl`` files."""
    damaged = [as_path(problem["path"]) for problem in problems]
    manifest_path = store.path(layout.RUN_JSON)
    mine = [path for path in damaged if path.lies_in(store.path("")) and path != manifest_path and path.is_there()]
    mine = [path for path in mine if path.suffix != ".jsonl"]  # its other records are intact
    for path in mine:
        with explain_write_errors(path), suppress(StoreError):  # a link leads there
            store.path(path.name_below(store.path(""))).remove_below(store.path(""))
    return len(mine)


def _problem(path: StoragePath, text: str, stage: str | None = None, unit: int | None = None) -> dict[str, Any]:
    """Return a finding: a file that differs from what was written, and the unit that owns it, if any."""
    return {"path": str(path), "problem": text, "stage": stage, "unit": unit}


class _Check:
    """One call of :func:`verify_run`: its settings and findings."""

    def __init__(self, threads: int, progress: Progress) -> None:
        self.threads, self.progress = threads, progress
        self.problems: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.left_over: list[str] = []
        self.n_left_over = self.n_not_done = 0
        self.checked = Counter(dict.fromkeys(("records", "chunks", "objects", "bytes", "arrays"), 0))

    def _fail(self, path: StoragePath, text: str) -> None:
        self.problems.append(_problem(path, text))

    # ------------------------------------------------------------------ runs and tile stores
    def run(self, store: Store) -> None:
        """Check a run, those of its batches and the tiles that it reads."""
        try:
            manifest = read_manifest(store)
            tiles = TilePlan.from_json(manifest["tiles"], store.url) if manifest.get("tiles") else None
        except StoreError as error:
            self._fail(store.path(layout.RUN_JSON), str(error))
            return
        if tiles is None:
            return
        is_finished = manifest["status"] == "done"
        if tiles.stages:
            if problem := _source_problem(tiles.stages):
                self.problems.append(problem)
            self._stages(Store(as_path(tiles.url)), tiles.stages, is_finished=is_finished)
        else:
            self._tiles_elsewhere(tiles)
        if plan := self._plan(store, is_finished=is_finished):
            self._check_inputs(plan)
            self._stages(store, plan.stages, is_finished=is_finished)
        if is_finished and not matches_manifest(store, manifest, layout.REPORT_HTML):
            self._fail(store.path(layout.REPORT_HTML), "it is missing, or not as the run wrote it")
        self._events(store.path(layout.EVENTS))
        stores = dict(batch_runs(store))
        for batch in stores.values():
            self.run(batch)
        for batch in manifest.get("batches", ()) if is_finished else ():
            if batch["methods"] and batch["name"] not in stores:
                path = store.path(layout.BATCH_RUN.format(batch["number"]))
                self._fail(path, f"the run of batch {batch['name']} is missing")

    def tile_store(self, store: Store) -> None:
        """Check a tile store."""
        is_finished = store.path(layout.TILES_JSON).is_there()
        plan = self._plan(store, is_finished=is_finished)
        if plan is not None and plan.stages:
            if first_parameters(plan.stages, INGEST_STAGE) is None:
                self._fail(store.path(layout.RUN_JSON), f"it is missing: {MADE_AGAIN}")
            elif problem := _source_problem(plan.stages):
                self.notes.append(f"{problem['path']}: {problem['problem']}")
            self._stages(store, plan.stages, is_finished=is_finished)

    def _tiles_elsewhere(self, tiles: TilePlan) -> None:
        store = Store(as_path(tiles.url))
        self.tile_store(store)
        try:
            info = read_tile_info(store)
        except StoreError:  # reported already
            return
        if info is None or info.fingerprint != tiles.fingerprint:
            state = "is gone" if info is None else "holds other data"
            self._fail(store.path(""), f"the source of the run {state} since the run began; 'daskfs run' refuses it")

    def _plan(self, store: Store, *, is_finished: bool) -> Plan | None:
        path = store.path(layout.PLAN_JSON)
        try:
            if (raw := store.read_json(layout.PLAN_JSON)) is not None:
                return Plan.from_json(raw, store.url)
        except (StoreError, TypeError, KeyError, AttributeError) as error:
            self._fail(path, f"it cannot be read, and nothing that it plans is checked: {error}")
            return None
        if is_finished or store.path(layout.records_of("")).is_dir():
            self._fail(path, "it is missing, and nothing that it plans is checked")
        return None

    def _check_inputs(self, plan: Plan) -> None:
        copied = plan.parameters_of(REPRESENTATION_STAGE)
        if copied is not None and (path := changed_file(copied.source, copied.state)) is not None:
            self._fail(as_path(path), "graph.use_rep is not what was read: it changed")
        if (graph := plan.parameters_of(GIVEN_STAGE)) is not None:
            try:
                check_identity(open_graph(graph.path), graph.identity)
            except (InputError, StoreError) as error:
                self._fail(as_path(graph.path), f"graph.precomputed is not what was read: {error}")

    def _events(self, path: StoragePath) -> None:
        if not path.is_file():
            return
        n_cut = 0
        with path.open("rb") as lines:
            for line in lines:
                try:
                    json.loads(line)
                except ValueError:
                    n_cut += 1
        if n_cut:
            self.notes.append(f"{path}: {n_cut} lines were cut off; nothing depends on them")

    # ------------------------------------------------------------------ the stages of one store
    def _stages(self, store: Store, stages: Sequence[Stage], *, is_finished: bool) -> None:
        context = Context(store)
        for path in store.seals.damaged():
            if is_finished or path.is_there():  # without one, no stage has ended yet
                self._fail(path, "it is lost or damaged, and made from the records: 'daskfs run' writes it")
        rebuild_seals(context)
        bad: dict[str, dict[int, _Unit]] = {stage.name: {} for stage in stages}
        name_hashes = array("Q")  # names would take ten times the memory
        for stage in stages:
            units = recorded_units(context, stage)
            shown = dataclasses.replace(stage, name=f"verify {stage.name}", loop="")
            self.progress.start_stage(shown, len(units))
            for unit in self._units(context, stage, units, stages):
                name_hashes.extend(unit.names)
                self.checked.update(unit.checked)
                self.progress.unit_done(shown, unit.unit, {"bytes_read": unit.checked["bytes"]})
                unit.names.clear()
                if unit.damaged or unit.absent or not unit.checked["records"]:
                    bad[stage.name][unit.unit] = unit
        hashes = np.unique(np.frombuffer(name_hashes, np.uint64))
        checked = Context(Store(store.root))
        checked.store.records = _CheckedRecords(store.path(""), bad)
        for stage in stages:
            pending = set(pending_units(checked, stage, stages))
            self.n_not_done += 0 if is_finished else len(pending)
            for unit in bad[stage.name].values():
                if unit.unit not in pending:  # later stages have used its outputs: they may be deleted
                    text = "{path}: {problem}; it has served, and nothing needs it"
                    self.notes += [text.format_map(problem) for problem in unit.damaged]
                elif unit.checked["records"]:
                    self.problems += unit.damaged + ([] if stage.needed_until or stage.loop else unit.absent)
                elif is_finished and not stage.loop:
                    path = store.record_files.file(stage.name, unit.unit)
                    self.problems.append(_problem(path, "the record of the unit is missing", stage.name, unit.unit))
        self._left_over(store, stages, hashes, self._arrays(context, stages, is_finished=is_finished))
        self._in_place(store)

    def _units(self, context: Context, stage: Stage, units: range, stages: Sequence[Stage]) -> Iterator[_Unit]:
        """Yield the findings on units in order, with bounded memory."""
        with ThreadPoolExecutor(self.threads) as pool:
            waiting: deque[Future[_Unit]] = deque()
            inputs = None
            for unit in units:
                if unit % stage.n_units == 0:
                    inputs = inputs_of(context, stage, unit // stage.n_units, stages)
                waiting.append(pool.submit(_Unit, context.store, stage, unit, inputs))
                if len(waiting) > WAITING * self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _arrays(self, context: Context, stages: Sequence[Stage], *, is_finished: bool) -> set[str]:
        """Check the metadata of arrays that several units share; return their names."""
        try:
            arrays = shared_arrays(context, stages)
        except StoreError as error:  # the tile metadata are damaged, which is reported already
            self.notes.append(f"metadata of arrays are not checked: {error}")
            return set()
        cleared = tuple(f"{stage.clears}/" for stage in stages if stage.clears)
        self.checked["arrays"] += len(arrays)
        for name, (shape, dtype, chunks) in arrays.items():
            path = context.store.path(name) / METADATA
            if not path.is_there():
                if is_finished and not name.startswith(cleared):
                    self._fail(path, "it is missing, and without it the chunks of the array cannot be read")
                continue
            try:
                array = open_zarr(path.parent)
            except StoreError as error:
                self._fail(path, f"it is damaged: {error}")
                continue
            described = (array.shape, array.dtype, array.chunks)
            if described != (shape, np.dtype(dtype), chunks):
                text = "it describes an array of shape {}, type {} and chunks {}"
                self._fail(path, text.format(*described))
        return set(arrays)

    def _left_over(self, store: Store, stages: Sequence[Stage], name_hashes: np.ndarray, arrays: set[str]) -> None:
        root = store.path("")
        names = {stage.name for stage in stages}
        expected = {name for name in store.record_files.names() if name.split("/")[1] in names}
        expected |= {f"{name}/{METADATA}" for name in arrays}
        expected |= {layout.RUN_JSON, layout.PLAN_JSON, layout.EVENTS, layout.REPORT_HTML, *layout.OWNERSHIP}
        is_run = (root / layout.RUN_JSON).is_there()
        stores = (layout.TILES_DIR, layout.BATCHES_DIR) if is_run else ()  # which are checked apart
        tops = layout.RUN_NAMES if is_run else sorted(path.name for path in root.iterdir())
        tops = [top for top in tops if top not in (*stores, layout.FAILURES_DIR)]
        for path in (path for top in tops for path in (root / top).files_below()):
            name = path.name_below(root)
            if name in expected or layout.is_seal(name) or _contains(name_hashes, name_hash(name)):
                continue
            self.n_left_over += 1
            if len(self.left_over) < MAX_LEFT_OVER:
                self.left_over.append(str(path))

    def _in_place(self, store: Store) -> None:
        """Compare an X that is read in place with the row norms and column moments recorded of it."""
        try:
            info = read_tile_info(store)
        except StoreError:
            return
        if info is None or info.x_path is None:
            return
        tiles, shape = open_tiles(store.url).as_counted(), info.shape
        self.notes.append(
            f"{info.x_path} is used where it lies, and was written by another program: it is compared with the norms "
            "of its rows and the moments of its columns; chunks that are not there are read as its fill value, by the "
            "rules of Zarr"
        )
        for band in range(shape.n_bands):
            rows = shape.band(band)
            try:
                norms = store.open(layout.ROW_NORMS)[rows]
                partials = store.open(layout.PARTIALS)[band : band + 1][0]
            except DamagedError:  # reported already
                continue
            try:
                block = tiles.read_rows(rows)
            except (StoreError, InputError) as error:
                self._fail(as_path(info.x_path), str(error))
                continue
            moments = tree_moments(block)
            taken = np.stack([moments.mean, moments.m2, moments.minimum, moments.maximum])
            self.checked["bytes"] += 0 if is_sparse(block) else block.nbytes
            if not (np.allclose(row_norms(block), norms, SAME, 0) and np.allclose(taken, partials[1:5], SAME, SAME)):
                text = f"rows {rows.start}:{rows.stop} are not those that were read when the run began"
                self._fail(as_path(info.x_path), text)


class _Unit:
    """Findings on a unit: its record, and every output that the record names.

    `damaged` and `absent` are wrong outputs or records, and missing outputs; `names` are the hashes of the names of all
    outputs, and `checked` counts records, outputs and bytes.
    """

    def __init__(self, store: Store, stage: Stage, unit: int, inputs: str | None) -> None:
        self.unit = unit
        self.damaged: list[dict[str, Any]] = []
        self.absent: list[dict[str, Any]] = []
        self.names: list[int] = []
        self.checked = Counter(records=1)
        try:
            record = store.record_files.read(stage.name, unit)
        except StoreError as error:
            record, text = {}, f"the record is damaged: {error}"
        else:
            if record is None:
                self.checked.clear()
                return
            text = ""
            if record.get("fingerprint") != stage.fingerprint:
                text = "the record is of another plan"
            elif inputs is not None and record.get("inputs") not in (None, inputs):
                text = "the unit was made from other inputs than are there"
        if text:
            self.damaged.append(_problem(store.record_files.file(stage.name, unit), text, stage.name, unit))
            return
        for kind, what in (("chunks", "the chunk"), ("objects", "the file")):
            for name, (size, checksum) in record[kind].items():
                self.names.append(name_hash(name))
                path = as_path(f"{store.url}/{name}")
                try:
                    check = partial(_checked_output, store.path(name), size, checksum, is_chunk=kind == "chunks")
                    text, n_bytes = look_twice(path, check, is_wrong=lambda answer: bool(answer[0]))
                except StoreError as error:  # a link leads there
                    text, n_bytes = f"is not read: {error}", None
                self.checked.update({kind: n_bytes is not None, "bytes": n_bytes or 0})
                if text:
                    problem = _problem(path, f"{what} {text}", stage.name, unit)
                    (self.absent if text == IS_MISSING else self.damaged).append(problem)


# --------------------------------------------------------------------------------------------------------- single files
def _checked_output(path: StoragePath, size: int, checksum: int, *, is_chunk: bool) -> tuple[str, int | None]:
    """Return the difference of an output from its record, empty if none, and its size, None for another one."""
    try:
        look = partial(read_checksums, path, is_chunk=is_chunk)
        n_bytes, read, carried = with_retries(path, look) if path.is_remote else look()
    except (FileNotFoundError, NotADirectoryError):
        return IS_MISSING, None
    except IsADirectoryError:
        return "is a directory", None
    except OSError as error:
        if path.is_remote:  # a store that does not answer is no evidence of damage
            raise
        return f"cannot be read: {error.strerror}", None
    if n_bytes != size:
        return f"has {n_bytes} bytes, not {size}", None
    if read != (carried if is_chunk else checksum):
        return "is damaged: its checksum is not that of its bytes", size
    return "is whole, and not the one that the unit wrote" if carried != checksum else "", size


def _source_problem(tiles: Sequence[Stage]) -> dict[str, Any] | None:
    planned = parameters_of(tiles)
    changed = changed_file(planned.source, planned.state)
    if changed is None:
        return None
    path = as_path(changed)
    state = "changed since it was read" if path.exists() else "is gone"
    return _problem(path, f"the source {state}; a run that is not finished, or damaged, cannot go on with it")


def _contains(hashes: np.ndarray, value: int) -> bool:
    index = int(np.searchsorted(hashes, np.uint64(value)))
    return index < hashes.size and bool(hashes[index] == value)
