"""Verification of a run or a tile store: every byte against its checksum, every file against the plan."""

from __future__ import annotations

import dataclasses
import json
import os
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from daskfs.errors import DamagedError, InputError, StoreError
from daskfs.execution.progress import Progress, Silent
from daskfs.execution.submission import inputs_of, pending_units, recorded_units
from daskfs.graph.precomputed_stage import GIVEN_STAGE
from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.scaling import row_norms
from daskfs.kernels.statistics.moments import tree_moments
from daskfs.runs.manifest import batch_runs, is_in_use, lock_directory, matches_manifest, read_manifest
from daskfs.sources.state import changed_file
from daskfs.stages.stage import Plan, Stage
from daskfs.stages.units import ArrayPlan, shared_arrays
from daskfs.storage import (
    ObjectPath,
    StoragePath,
    as_path,
    at_once,
    blocks_of,
    files_below,
    is_there,
    lies_in,
    name_below,
    remove_file,
)
from daskfs.storage.clients import with_retries
from daskfs.store import layout
from daskfs.store.arrays import CHECKSUM_BYTES, METADATA, open_zarr
from daskfs.store.context import Context, open_tiles
from daskfs.store.ledger import Ledger
from daskfs.store.seals import name_hash
from daskfs.store.store import Store
from daskfs.store.tiles import read_tile_info
from daskfs.store.write_errors import explain_write_errors
from daskfs.tiles.ingest import spec_from
from daskfs.tiles.plan import TilePlan

BLOCK_BYTES = 4 << 20
WAITING = 4
"""Maximum number of submitted units per thread."""
MAX_LEFT_OVER = 1000
"""Maximum number of left-over files that are listed; all are counted."""
SAME = 1e-9
"""Relative tolerance between norms and moments computed on two machines."""


@dataclass(frozen=True)
class Problem:
    """A file that differs from what was written; `stage` and `unit` are None for a file that no unit owns."""

    path: str
    problem: str
    stage: str | None = None
    unit: int | None = None


@dataclass
class _Unit:
    """Findings on a unit: `absent` lists missing outputs, `damaged` wrong outputs or records."""

    stage: str
    unit: int
    has_record: bool = True
    damaged: list[Problem] = field(default_factory=list)
    absent: list[Problem] = field(default_factory=list)
    names: list[int] = field(default_factory=list)
    n_chunks: int = 0
    n_objects: int = 0
    n_bytes: int = 0

    @property
    def is_done(self) -> bool:
        return self.has_record and not self.damaged and not self.absent

    def problem(self, path: StoragePath, text: str) -> Problem:
        return Problem(str(path), text, self.stage, self.unit)


class _Checked(Ledger):
    """A ledger that returns the given units as not done, without reading anything again."""

    def __init__(self, root: StoragePath | None, not_done: Mapping[str, set[int]]) -> None:
        super().__init__(root)
        self._bad = not_done

    def not_done(self, stage: str, units: Sequence[int], fingerprint: str, inputs: str | None = None) -> list[int]:
        del fingerprint, inputs
        return [unit for unit in units if unit in self._bad[stage]]


@dataclass
class _Findings:
    """Findings of one verification."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    n_left_over: int = 0
    n_not_done: int = 0
    counts: dict[str, int] = field(
        default_factory=lambda: {"records": 0, "chunks": 0, "objects": 0, "bytes": 0, "arrays": 0}
    )

    def leave(self, path: StoragePath) -> None:
        self.n_left_over += 1
        if len(self.left_over) < MAX_LEFT_OVER:
            self.left_over.append(str(path))


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
        number of pending units of an unfinished run; ``removed``, the number of deleted files; ``status``; and ``run``,
        the path.

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
    is_run = is_there(store.path(layout.RUN_JSON))
    marker = layout.RUN_JSON if is_run else layout.PLAN_JSON
    if not is_run and not any(is_there(store.path(name)) for name in (layout.TILES_JSON, layout.PLAN_JSON)):
        msg = f"{store.url} is neither a daskfs run nor a tile store: it has no {layout.RUN_JSON}."
        raise StoreError(msg)
    check = _Check(store, threads or max(os.cpu_count() or 1, at_once(store.root)), progress or Silent())
    if not remove:
        if is_in_use(store):
            check.found.notes.append(
                f"a process is running in {store.url}: what it writes meanwhile may be told wrongly"
            )
        status = check.run() if is_run else check.tile_store(store)
        return check.result(status, 0)
    with lock_directory(store, marker, "daskfs run" if is_run else "tile store", "directory", check.progress.message):
        status = check.run() if is_run else check.tile_store(store)
        return check.result(status, _removed(store, check.found.problems))


def _removed(store: Store, problems: Sequence[Problem]) -> int:
    """Delete damaged files, except the manifest, files outside the store and ``.jsonl`` files."""
    damaged = [as_path(problem.path) for problem in problems]
    kept = store.path(layout.RUN_JSON)
    mine = [path for path in damaged if lies_in(path, store.path("")) and path != kept and is_there(path)]
    mine = [path for path in mine if path.suffix != ".jsonl"]  # its other records are intact
    for path in mine:
        with explain_write_errors(path):
            remove_file(path, store.path(""))
    return len(mine)


class _Check:
    """One call of :func:`verify_run`."""

    def __init__(self, store: Store, threads: int, progress: Progress) -> None:
        self.store, self.threads, self.progress = store, threads, progress
        self.found = _Findings()

    def result(self, status: str, n_removed: int) -> dict[str, Any]:
        found = self.found
        return {
            "run": self.store.url,
            "status": status,
            "problems": [dataclasses.asdict(problem) for problem in found.problems],
            "notes": found.notes,
            "left_over": found.left_over,
            "n_left_over": found.n_left_over,
            "not_done": found.n_not_done,
            "checked": found.counts,
            "removed": n_removed,
        }

    def _fail(self, path: StoragePath, text: str) -> None:
        self.found.problems.append(Problem(str(path), text))

    # ------------------------------------------------------------------ runs and tile stores
    def run(self) -> str:
        """Check a run and the tiles that it reads; return its status."""
        try:
            manifest = read_manifest(self.store)
        except StoreError as error:
            self._fail(self.store.path(layout.RUN_JSON), str(error))
            return "unknown"
        is_finished = manifest["status"] == "done"
        if not manifest.get("tiles"):
            return str(manifest["status"])
        tiles = TilePlan.from_json(manifest["tiles"])
        if tiles.stages:
            self._source(tiles.stages[0], self._fail)
            self._stages(Store(as_path(tiles.url)), tiles.stages, is_finished=is_finished)
        else:
            self._tiles_elsewhere(tiles)
        plan = self._plan(self.store, is_finished=is_finished)
        if plan is not None:
            self._given(plan)
            self._stages(self.store, plan.stages, is_finished=is_finished)
        if is_finished and not matches_manifest(self.store, manifest, layout.REPORT_HTML):
            self._fail(self.store.path(layout.REPORT_HTML), "it is missing, or not as the run wrote it")
        self._events()
        self._batches(manifest, is_finished=is_finished)
        return str(manifest["status"])

    def _batches(self, manifest: Mapping[str, Any], *, is_finished: bool) -> None:
        """Check the runs of the batches, in subdirectories of this run."""
        stores = dict(batch_runs(self.store))
        for store in stores.values():
            check = _Check(store, self.threads, self.progress)
            check.found = self.found
            check.run()
        for batch in manifest.get("batches", ()) if is_finished else ():
            if batch["methods"] and batch["name"] not in stores:
                path = self.store.path(layout.BATCH_RUN.format(batch["number"]))
                self._fail(path, f"the run of batch {batch['name']} is missing")

    def tile_store(self, store: Store) -> str:
        """Check a tile store; return "done" or "running"."""
        is_finished = is_there(store.path(layout.TILES_JSON))
        plan = self._plan(store, is_finished=is_finished)
        if plan is not None and plan.stages:
            self._source(plan.stages[0], lambda path, text: self.found.notes.append(f"{path}: {text}"))
            self._stages(store, plan.stages, is_finished=is_finished)
        return "done" if is_finished else "running"

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
            raw = store.read_json(layout.PLAN_JSON)
            if raw is not None:
                return Plan.from_json(raw, store.url)
        except (StoreError, TypeError, KeyError, AttributeError) as error:
            self._fail(path, f"it cannot be read, and nothing that it plans is checked: {error}")
            return None
        if is_finished or store.path(layout.records_of("")).is_dir():
            self._fail(path, "it is missing, and nothing that it plans is checked")
        return None

    def _source(self, stage: Stage, tell: Callable[[StoragePath, str], None]) -> None:
        changed = changed_file(spec_from(stage.parameters["source"]), stage.parameters["state"])
        if changed is not None:
            text = "changed since it was read" if as_path(changed).exists() else "is gone"
            tell(as_path(changed), f"the source {text}; a run that is not finished, or damaged, cannot go on with it")

    def _given(self, plan: Plan) -> None:
        from daskfs.graph.precomputed_files import open_graph

        for stage in (stage for stage in plan.stages if stage.is_of(GIVEN_STAGE)):
            path = as_path(stage.parameters["path"])
            try:
                is_same = json.loads(json.dumps(dict(open_graph(path).identity))) == stage.parameters["identity"]
            except (InputError, StoreError):
                is_same = False
            if not is_same:
                self._fail(path, "graph.precomputed changed, or went away, since it was read; 'daskfs run' refuses it")

    def _events(self) -> None:
        path = self.store.path(layout.EVENTS)
        if not path.is_file():
            return
        with path.open("rb") as lines:
            cut = sum(not _is_json(line) for line in lines)
        if cut:
            self.found.notes.append(f"{path}: {cut} lines were cut off; nothing depends on them")

    # ------------------------------------------------------------------ the stages of one store
    def _stages(self, store: Store, stages: Sequence[Stage], *, is_finished: bool) -> None:
        context = Context(store)
        bad: dict[str, list[_Unit]] = {}
        not_done: dict[str, set[int]] = {stage.name: set() for stage in stages}
        known = array("Q")
        for stage in stages:
            units = recorded_units(context, stage)
            self.progress.start_stage(dataclasses.replace(stage, name=f"verify {stage.name}", loop=""), len(units))
            for unit in self._units(context, stage, units, stages):
                known.extend(unit.names)
                self._count(unit)
                self.progress.unit_done(stage, unit.unit, {"bytes_read": unit.n_bytes})
                if not unit.is_done:
                    bad.setdefault(stage.name, []).append(unit)
                    not_done[stage.name].add(unit.unit)
        checked = Context(Store(store.root))
        checked.store.ledger = _Checked(store.root, not_done)
        for stage in stages:
            pending = set(pending_units(checked, stage, stages))
            for unit in bad.get(stage.name, ()):
                self._judge(store, stage, unit, is_finished=is_finished, is_needed=unit.unit in pending)
            self.found.n_not_done += 0 if is_finished else len(pending)
        arrays = self._arrays(context, stages, is_finished=is_finished)
        if store.root is not None:
            self._left_over(store, stages, np.unique(np.frombuffer(known, np.uint64)), arrays)
        self._in_place(store)

    def _units(self, context: Context, stage: Stage, units: range, stages: Sequence[Stage]) -> Iterator[_Unit]:
        """Yield the findings on units in order, with bounded memory."""
        with ThreadPoolExecutor(self.threads) as pool:
            waiting: list[Future[_Unit]] = []
            inputs = None
            for unit in units:
                if unit % stage.n_units == 0:
                    inputs = inputs_of(context, stage, unit // stage.n_units, stages)
                waiting.append(pool.submit(_checked_unit, context.store, stage, unit, inputs))
                if len(waiting) > WAITING * self.threads:
                    yield waiting.pop(0).result()
            for future in waiting:
                yield future.result()

    def _count(self, unit: _Unit) -> None:
        counts = self.found.counts
        counts["records"] += unit.has_record
        counts["chunks"] += unit.n_chunks
        counts["objects"] += unit.n_objects
        counts["bytes"] += unit.n_bytes

    def _judge(self, store: Store, stage: Stage, unit: _Unit, *, is_finished: bool, is_needed: bool) -> None:
        """Report the problems of a unit that is not done."""
        if not is_needed:  # later stages have used its outputs: they may be deleted
            self.found.notes += [f"{p.path}: {p.problem}; it has served, and nothing needs it" for p in unit.damaged]
            return
        if not unit.has_record:
            if is_finished and not stage.loop:
                path = store.ledger.file(stage.name, unit.unit)
                self.found.problems.append(unit.problem(path, "the record of the unit is missing"))
            return
        self.found.problems += unit.damaged
        if not (stage.needed_until or stage.loop):
            self.found.problems += unit.absent

    def _arrays(self, context: Context, stages: Sequence[Stage], *, is_finished: bool) -> set[str]:
        """Check the metadata of arrays that several units share; return their names."""
        try:
            arrays = shared_arrays(context, stages)
        except StoreError as error:  # the tile metadata are damaged, which is reported already
            self.found.notes.append(f"metadata of arrays are not checked: {error}")
            return set()
        cleared = tuple(f"{stage.clears}/" for stage in stages if stage.clears)
        for name, planned in arrays.items():
            path = context.store.path(name) / METADATA
            self.found.counts["arrays"] += 1
            if is_there(path):
                if (text := _metadata_problem(path.parent, planned)) is not None:
                    self._fail(path, text)
            elif is_finished and not name.startswith(cleared):
                self._fail(path, "it is missing, and without it the chunks of the array cannot be read")
        return set(arrays)

    def _left_over(self, store: Store, stages: Sequence[Stage], known: np.ndarray, arrays: set[str]) -> None:
        root = store.path("")
        names = {stage.name for stage in stages}
        records = {name for name in store.ledger.counted_files() if name.split("/")[1] in names}
        is_run = root == self.store.path("") and is_there(root / layout.RUN_JSON)
        everything = sorted(path.name for path in root.iterdir())
        apart = (layout.TILES_DIR, layout.BATCHES_DIR)  # separate stores
        tops = [name for name in layout.RUN_NAMES if name not in apart] if is_run else everything
        own = {layout.RUN_JSON, layout.PLAN_JSON, layout.EVENTS, layout.REPORT_HTML, *layout.OWNERSHIP}
        for path in (path for top in tops for path in files_below(root / top)):
            name = name_below(path, root)
            if name in own or _is_known(name, known):
                continue
            if name.endswith(f"/{METADATA}") and name.removesuffix(f"/{METADATA}") in arrays:
                continue
            if name not in records and not layout.is_seal(name):
                self.found.leave(path)

    def _in_place(self, store: Store) -> None:
        """Compare an X that is read in place with the row norms and column moments recorded of it."""
        try:
            info = read_tile_info(store)
        except StoreError:
            return
        if info is None or info.x_path is None:
            return
        tiles, shape = open_tiles(store.url).as_counted(), info.shape
        self.found.notes.append(
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
            self.found.counts["bytes"] += 0 if is_sparse(block) else block.nbytes
            if not (np.allclose(row_norms(block), norms, SAME, 0) and np.allclose(taken, partials[1:5], SAME, SAME)):
                text = f"rows {rows.start}:{rows.stop} are not those that were read when the run began"
                self._fail(as_path(info.x_path), text)


# --------------------------------------------------------------------------------------------------------- single files
def _checked_unit(store: Store, stage: Stage, unit: int, inputs: str | None) -> _Unit:
    """Check the record of a unit and every output that it names."""
    found = _Unit(stage.name, unit)
    path = store.ledger.file(stage.name, unit)
    try:
        record = store.ledger.read(stage.name, unit)
    except StoreError as error:
        found.damaged.append(found.problem(path, f"the record is damaged: {error}"))
        return found
    if record is None:
        found.has_record = False
        return found
    if record.get("fingerprint") != stage.fingerprint:
        found.damaged.append(found.problem(path, "the record is of another plan"))
        return found
    if inputs is not None and record.get("inputs") not in (None, inputs):
        found.damaged.append(found.problem(path, "the unit was made from other inputs than are there"))
        return found
    for kind in ("chunks", "objects"):
        for name, (size, checksum) in record[kind].items():
            _check_output(store.path(name), size, checksum, found, is_chunk=kind == "chunks")
            found.names.append(name_hash(name))
    return found


def _check_output(path: StoragePath, size: int, checksum: int, found: _Unit, *, is_chunk: bool) -> None:
    what = "the chunk" if is_chunk else "the file"
    try:
        if isinstance(path, Path) and path.is_dir():
            found.damaged.append(found.problem(path, f"{what} is a directory"))
            return
        if isinstance(path, ObjectPath):
            n_bytes, read, carried = with_retries(path, lambda: _checksums(path, is_chunk=is_chunk))
        else:
            n_bytes, read, carried = _checksums(path, is_chunk=is_chunk)
    except (FileNotFoundError, NotADirectoryError):
        found.absent.append(found.problem(path, f"{what} is missing"))
        return
    except OSError as error:
        if isinstance(path, ObjectPath):  # a store that does not answer is no evidence of damage
            raise
        found.damaged.append(found.problem(path, f"{what} cannot be read: {error.strerror}"))
        return
    if n_bytes != size:
        found.damaged.append(found.problem(path, f"{what} has {n_bytes} bytes, not {size}"))
        return
    found.n_bytes += size
    found.n_chunks += is_chunk
    found.n_objects += not is_chunk
    if read != (carried if is_chunk else checksum):
        found.damaged.append(found.problem(path, f"{what} is damaged: its checksum is not that of its bytes"))
    elif is_chunk and carried != checksum:
        found.damaged.append(found.problem(path, f"{what} is whole, and not the one that the unit wrote"))


def _checksums(path: StoragePath, *, is_chunk: bool) -> tuple[int, int, int]:
    """Return the size of a file, the checksum of its bytes, and the checksum stored in it.

    For a chunk these are the CRC-32C of all but its last bytes, and these bytes; for any other file the CRC-32, twice.
    """
    from google_crc32c import extend

    with blocks_of(path, BLOCK_BYTES) as (size, blocks):
        value, left, tail = 0, size - CHECKSUM_BYTES, b""
        for block in map(bytes, blocks):
            value = extend(value, block[: max(left, 0)]) if is_chunk else zlib.crc32(block, value)
            tail = (tail + block)[-CHECKSUM_BYTES:]
            left -= len(block)
    return size, value, int.from_bytes(tail, "little") if is_chunk else value


def _metadata_problem(path: StoragePath, planned: ArrayPlan) -> str | None:
    shape, dtype, chunks = planned
    try:
        found = open_zarr(path)
    except StoreError as error:
        return f"it is damaged: {error}"
    clipped = tuple(max(1, min(c, s)) for c, s in zip(chunks, shape, strict=True))
    if (found.shape, found.dtype, found.chunks) != (shape, np.dtype(dtype), clipped):
        return f"it describes an array of shape {found.shape}, type {found.dtype} and chunks {found.chunks}"
    return None


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _is_known(name: str, known: np.ndarray) -> bool:
    value = np.uint64(name_hash(name))
    index = int(np.searchsorted(known, value))
    return index < known.size and known[index] == value
