"""Ownership of an output directory: the lock, the manifest ``run.json``, and deletion of a run's files."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import psutil

from daskfs.errors import DamagedError, StoreError, WriteError, first_few
from daskfs.execution.submission import rebuild_seals
from daskfs.job.job import Job
from daskfs.runs.journal import last_unit
from daskfs.sources.checks import COLLECTION
from daskfs.sources.collection import OTHER_TOKENS
from daskfs.stages.stage import digest
from daskfs.storage import LocalPath, ObjectPath, PathName, as_path
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.lease import (
    LOOKS,
    MAX_POLL_SECONDS,
    Lease,
    LockState,
    Owner,
    hold_lease,
    in_use,
    lease_state,
    waiting,
)
from daskfs.store.second_look import look_twice
from daskfs.store.store import UNFINISHED_WRITE, Store
from daskfs.store.write_errors import NO_ROOM, explain_write_errors, no_room
from daskfs.version import __version__

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Error codes of flock on a file system without locks."""
MAX_KEYS = 5
"""Maximum number of differing keys that a message names."""
MAX_VALUE = 80
"""Maximum number of characters of a value in a message."""
UNSET = "unset"
"""Shown as the value of a key that only the other job has."""
ENDS = {"killed": "is gone", "unfinished": "has left it"}
"""What happened to the process of a run or tile store, by a status that its lock tells."""


@dataclass(frozen=True)
class FileLock:
    """A locked directory; `warning` is not empty if the file system has no locks and the directory is not locked."""

    root: Path
    handle: int
    warning: str = ""

    @property
    def is_there(self) -> bool:
        """Whether the path still is the directory that was locked."""
        try:
            return os.path.samestat(os.fstat(self.handle), (self.root / layout.LOCK).stat())
        except OSError:
            return False

    def check(self) -> None:
        """Raise :class:`StoreError` if the directory was deleted or moved away."""
        if not self.is_there:
            msg = f"{self.root} was deleted or moved away while this process ran in it."
            raise StoreError(msg)


Lock = FileLock | Lease


@contextmanager
def lock_directory(
    store: Store, marker: str, what: str, key: str, tell: Callable[[str], None], wait_seconds: float = 0.0
) -> Iterator[Lock]:
    """Lock a directory, or the prefix of a URL, for this process.

    Parameters
    ----------
    store
        Store that is not in memory; its directory is created if needed.
    marker
        File that every directory of this kind holds. A directory that is not empty and lacks it is refused unchanged.
    what, key
        Name of this kind of directory, and the setting that gives its path; for messages.
    tell
        Called with a message before a wait: in an object store, only a wait shows whether the owner of a lock is alive.
    wait_seconds
        How long to wait for another process to end.

    Raises
    ------
    StoreError
        If the directory was not written by daskfs, or cannot be written.
    InUseError
        If another process has it still after `wait_seconds`.
    WriteError
        If its disk is full, or its store does not answer.
    """
    root = store.path("")
    with ExitStack() as stack:
        try:
            refuse_foreign(store, marker, what, key)
            if isinstance(root, ObjectPath):
                lock: Lock = stack.enter_context(hold_lease(root / layout.LOCK, key, tell, wait_seconds))
            else:
                lock = stack.enter_context(_file_lock(root, key, tell, wait_seconds))
        except OSError as error:
            if error.errno in NO_ROOM:
                raise no_room(root, error) from error
            path = root if error.filename is None else error.filename
            msg = f"cannot write to {key} {path}: {error.strerror}."
            raise (WriteError if error.errno == errno.EIO else StoreError)(msg) from error
        yield lock


@contextmanager
def _file_lock(root: LocalPath, key: str, tell: Callable[[str], None], wait_seconds: float) -> Iterator[FileLock]:
    root.mkdir(parents=True, exist_ok=True)
    # others of a group may go on with a run; umask says whether
    handle = (root / layout.LOCK).open_own(os.O_RDWR | os.O_CREAT)
    try:
        yield FileLock(root, handle, _take(handle, root, key, tell, wait_seconds))
    finally:
        os.close(handle)


def lock_state(store: Store) -> LockState:
    """Return whether a process holds the lock of :func:`lock_directory`, without waiting or changing anything.

    Some file systems keep locks to each host: one that names another host, and could be taken, may be held there.
    """
    path, holder, here = store.path(layout.LOCK), None, Owner().host
    if isinstance(path, ObjectPath):
        return lease_state(path)
    try:
        with path.open_whole() as file:
            holder = Owner.parse(_holder(file.fileno()))
            if not _is_locked(file.fileno(), fcntl.LOCK_SH):
                return LockState(is_held=True, owner=holder)
        is_ended, reason = holder is not None and holder.host == here, "only its own host may see its lock"
    except OSError as error:
        is_ended = holder is not None and holder.host == here and not psutil.pid_exists(holder.process)
        reason = f"{path} cannot be locked: {error.strerror}"
    return LockState(False if is_ended else None, holder, reason)


def _take(handle: int, root: Path, key: str, tell: Callable[[str], None], wait_seconds: float) -> str:
    """Lock a file and write its owner into it; return a warning if the file system has no locks, else ""."""
    warning = ""
    try:
        if not _is_owned(handle):
            holder = _holder(handle)
            if wait_seconds:
                tell(waiting(root, holder, wait_seconds))
            give_up, pause = time.monotonic() + wait_seconds, threading.Event()
            while not _is_owned(handle):
                if time.monotonic() >= give_up:
                    raise in_use(root, holder, key)
                pause.wait(min(MAX_POLL_SECONDS, wait_seconds / LOOKS))
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        warning = (
            f"the file system of {root} has no locks ({error.strerror}): see to it that no second daskfs process "
            "runs in it meanwhile"
        )
    with suppress(OSError):  # the owner is only named, here and by :func:`lock_state`
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(Owner()).encode(), 0)
    return warning


def _holder(handle: int) -> str:
    return os.pread(handle, 200, 0).decode("utf-8", "replace")


def _is_owned(handle: int) -> bool:
    """Try to lock a file for this process alone; return whether it is."""
    while not _is_locked(handle, fcntl.LOCK_EX):
        if not _is_locked(handle, fcntl.LOCK_SH):
            return False
        fcntl.flock(handle, fcntl.LOCK_UN)  # no process owns it: :func:`lock_state` shares it for a moment
    return True


def _is_locked(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def refuse_foreign(store: Store, marker: str, what: str, key: str) -> None:
    """Raise :class:`StoreError` for a file, and for a directory with content but no `marker`.

    Lock files, files about failures and unfinished writes of a killed driver do not count as content. A run whose
    ``run.json`` was lost has an epoch and a plan.
    """
    root = store.path("")
    if not root.exists():
        return
    if not root.is_dir():
        msg = f"{root} exists and is a file: choose another {key}."
        raise StoreError(msg)
    names = [path.name for path in root.iterdir() if not UNFINISHED_WRITE.fullmatch(path.name)]
    foreign_names = sorted(name for name in names if name not in (*layout.OWNERSHIP, layout.FAILURES_DIR))
    is_run_without = marker == layout.RUN_JSON and {layout.PLAN_JSON, layout.EPOCH} <= set(names)
    if foreign_names and marker not in foreign_names and not is_run_without:
        msg = f"{root} exists and is not a {what} (it holds {', '.join(foreign_names[:3])}): choose another {key}."
        raise StoreError(msg)


def read_manifest(store: Store) -> dict[str, Any]:
    """Return ``run.json``; :class:`StoreError` if it is missing, damaged or of another format version."""
    manifest = store.read_json(layout.RUN_JSON)
    if manifest is None:
        msg = f"{store.url} is not a daskfs run: it has no {layout.RUN_JSON}."
        raise StoreError(msg)
    if not isinstance(manifest, dict) or "format_version" not in manifest:
        msg = f"{store.url}/{layout.RUN_JSON} was not written by daskfs, or is damaged."
        raise StoreError(msg)
    if manifest["format_version"] != layout.FORMAT_VERSION:
        msg = (
            f"{store.url} holds a run in format version {manifest['format_version']!r}, this daskfs reads and writes "
            f"{layout.FORMAT_VERSION}: choose another output.path, or start over with --overwrite."
        )
        raise StoreError(msg)
    if not {"daskfs_version", "status", "job"} <= set(manifest):
        msg = f"{store.url}/{layout.RUN_JSON} is damaged: it lacks keys that daskfs writes."
        raise StoreError(msg)
    return manifest


def open_finished(path: PathName) -> tuple[Store, dict[str, Any]]:
    """Open a run and its ``run.json``; :class:`StoreError` if there is none, or it is not finished.

    Seals that are lost or damaged are made in memory from the records, for the comparison of what is read.
    """
    store = Store(as_path(path))
    manifest, state = read_state(store)
    if state.status != "done":
        msg = f"the run in {store.url} is not finished ({state}): 'daskfs status {store.url}' shows how far it is."
        raise StoreError(msg)
    rebuild_seals(Context(store))
    return store, manifest


def with_paths(store: Store, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of a finished run with the paths or URLs of its ranking and report, where it lies now."""
    return {**manifest, **{key: str(store.path(manifest[key])) for key in ("ranking", "report")}}


@dataclass(frozen=True)
class RunState:
    """Status of a run or tile store, and of its lock."""

    store: Store
    status: str
    lock: LockState

    def __str__(self) -> str:
        last = "" if self.last_unit is None else f", last unit done at {self.last_unit}"
        process = self.lock.owner or "its process is not named"
        if self.status == "unknown":
            return f"{self.status}: {process}{last}; {self.lock.reason}"
        if self.status in ENDS:
            return f"{self.status}: {process} {ENDS[self.status]}{last}; the same command goes on"
        return f"{self.status}{last}"

    @cached_property
    def last_unit(self) -> str | None:
        """Time when a unit of the run, or of the run of a batch, was last done; None if there is none."""
        times = list[float]()
        for store in (self.store, *(batch_store for _, batch_store in batch_runs(self.store))):
            with suppress(FileNotFoundError):
                times += filter(None, [last_unit(store.path(layout.EVENTS))])
        return datetime.fromtimestamp(max(times)).astimezone().isoformat(timespec="seconds") if times else None


def read_state(store: Store) -> tuple[dict[str, Any], RunState]:
    """Return ``run.json`` and the status of a run: "running" in it means "killed" or "unknown" if no lock is held."""
    manifest, lock = read_manifest(store), lock_state(store)
    if manifest["status"] == "running" and not lock.is_held:
        manifest = read_manifest(store)  # the run may have ended in between
    return manifest, _state(store, str(manifest["status"]), lock, "killed")


def tiles_state(store: Store) -> RunState:
    """Return the status of a tile store; none of its files says how its conversion ended."""
    root = store.path("")
    is_part = root.name == layout.TILES_DIR and (root.parent / layout.RUN_JSON).is_there()
    locked = Store(root.parent) if is_part else store  # a run has one lock
    lock = lock_state(locked)  # before the look at files: the conversion may end in between
    return _state(locked, "done" if (root / layout.TILES_JSON).is_there() else "running", lock, "unfinished")


def _state(store: Store, status: str, lock: LockState, ended: str) -> RunState:
    if status == "running" and not lock.is_held:
        status = "unknown" if lock.is_held is None else ended
    return RunState(store, status, lock)


def batch_runs(store: Store) -> Iterator[tuple[str, Store]]:
    """Yield the name and store of the run of each batch that has begun, in the order of the batches."""
    folder = store.path(layout.BATCHES_DIR)
    paths = [path for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
    for path in sorted(paths, key=lambda path: int(path.name)):
        batch_store = Store(path)
        if (manifest := batch_store.read_json(layout.RUN_JSON)) is not None:
            yield str(manifest.get("job", {}).get("data", {}).get("only_batch", path.name)), batch_store


def load_or_create_manifest(store: Store, job: Job, *, overwrite: bool) -> tuple[dict[str, Any], str]:
    """Return the manifest of this job's run, or a new one, which is not written yet; and how a superseded run differs.

    That is empty if there is none. A new manifest holds the plan of the tiles of the run that it supersedes, if both
    have the same daskfs version.

    Raises
    ------
    StoreError
        If the directory holds a run of another job or daskfs version that has scores, or of another format version, and
        `overwrite` is false.
    DamagedError
        If ``run.json`` is damaged, and neither is the plan one of this job, nor is there nothing but tiles.
    """
    begun = new_manifest(job)
    if overwrite:
        store.begin_epoch(fresh=True, keeps_documents=False)
        clear(store)
    try:
        if store.read_bytes(layout.RUN_JSON) is None and store.read_bytes(layout.PLAN_JSON) is None:
            return begun, ""
        if store.read_json(layout.RUN_JSON, is_expected=True) is None:
            msg = f"{store.url}/{layout.RUN_JSON} is missing."
            raise DamagedError(msg, [store.path(layout.RUN_JSON)])
        manifest = read_manifest(store)
    except DamagedError as error:
        return begun, _check_damaged(store, begun, error)
    if not (difference := describe_difference(manifest, begun["job"])):
        return manifest, ""
    difference = f"{store.url} {difference}"
    is_older = manifest["daskfs_version"] != __version__
    first = f"Let daskfs {manifest['daskfs_version']} finish it, choose" if is_older else "Choose"
    refuse_scored(store, manifest, f"{difference}. {first} another output.path, or start over with --overwrite.")
    if not is_older:
        begun["tiles"] = manifest.get("tiles")
    return begun, difference


def damage_warning(paths: Iterable[object]) -> str:
    """Return the warning about damaged or missing files."""
    return f"{first_few(list(map(str, paths)), 1)}: damaged or missing, and made again"


def _check_damaged(store: Store, begun: dict[str, Any], error: DamagedError) -> str:
    """Check that a run whose ``run.json`` is damaged is one of this job, and keep that as damage in its new manifest.

    Return how the run differs if its job is unknown and it has nothing but tiles; empty if it is of this job. Raise
    :class:`DamagedError` if the plan is one of another job, or is missing while there are results.
    """
    begun["damages"] = [damage_warning(error.paths)]
    try:
        plan = store.read_json(layout.PLAN_JSON)
    except DamagedError:
        plan = {}
    if plan is None and store.epoch.read_current() is not None and not _has_scores(store):
        return f"{error.paths[0]} is damaged"
    if (plan or {}).get("facts", {}).get("job_identity") != digest(begun["job"]):
        msg = (
            f"{error.paths[0]} is damaged or missing, and {layout.PLAN_JSON} is not the plan of this job: run the job "
            "that began it, choose another output.path, or start over with --overwrite."
        )
        raise DamagedError(msg, error.paths) from error
    return ""


def new_manifest(job: Job) -> dict[str, Any]:
    """Return the manifest of a run that begins."""
    return {
        "format_version": layout.FORMAT_VERSION,
        "daskfs_version": __version__,
        "status": "running",
        "job": job.identity(),
        "title": job.output.title,
        "feature_axis": job.data.feature_axis,
    }


def refuse_scored(store: Store, manifest: Mapping[str, Any], message: str) -> None:
    """Raise :class:`StoreError` with `message` for a run that must not be superseded.

    A run may be superseded if it is not done, and no unit after its tiles has a record, in it or in the run of a batch.
    Graph units count too, since a graph takes as long as scores. It does not matter how the run ended.
    """
    if manifest["status"] == "done" or _has_scores(store):
        raise StoreError(message)


def _has_scores(store: Store) -> bool:
    runs = [store, *(any_store for _, any_store in batch_runs(store))]
    has_results = any(store.path(name).is_there() for name in layout.RESULTS)
    return has_results or any(True for any_store in runs for _ in any_store.record_files.names())


def describe_difference(manifest: Mapping[str, Any], identity: Mapping[str, Any]) -> str:
    """Describe how a stored run differs from a job: by daskfs version, else by keys with their stored and new values.

    Empty for a run of this job.
    """
    if (begun_by := manifest["daskfs_version"]) != __version__:
        return f"was begun by daskfs {begun_by}, this is {__version__}"
    keys = _differences(manifest["job"], identity)
    more = f"; and {len(keys) - MAX_KEYS} more" if len(keys) > MAX_KEYS else ""
    why = f". {OTHER_TOKENS[:-1]}" if any(COLLECTION in one for one in keys) else ""
    return f"holds a run of another job; these keys differ: {'; '.join(keys[:MAX_KEYS])}{more}{why}" if keys else ""


def _differences(old: Any, new: Any, key: str = "") -> list[str]:
    """Return "key: old -> new" for every value that differs, with keys as in ``--set``."""
    if isinstance(old, dict) and isinstance(new, dict):
        both = {name: (old.get(name, UNSET), new.get(name, UNSET)) for name in sorted(old.keys() | new.keys())}
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        both = {str(i): values for i, values in enumerate(zip(old, new, strict=True))}
    else:
        return [] if old == new else [f"{key}: {_in_short(old)} -> {_in_short(new)}"]
    differences = []
    for name, values in both.items():
        parts = (key, "" if name == "parameters" else name)  # in a job file they are keys of the method itself
        differences += _differences(*values, ".".join(filter(None, parts)))
    return differences


def _in_short(value: Any) -> str:
    """Format a value of a job on one short line, methods and models by name."""
    if isinstance(value, list):
        shown = [one["name"] if isinstance(one, dict) and "name" in one else json.dumps(one) for one in value]
        text = f"[{', '.join(shown)}]"
    else:
        text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE // 2]}...{text[-MAX_VALUE // 2 :]}"


def clear(store: Store, keep: Collection[str] = ()) -> None:
    """Delete the files of a run, except those in `keep`; :class:`StoreError` if daskfs did not write ``run.json``.

    If ``run.json`` cannot be read, files are deleted only if the directory holds no other names than those of a run.
    """
    try:
        data = store.read_bytes(layout.RUN_JSON)
        if data is None and not store.path(layout.PLAN_JSON).is_there():
            return
        manifest = json.loads(data or b"")  # also of an epoch that has ended
        is_ours = isinstance(manifest, dict) and "daskfs_version" in manifest
    except (StoreError, ValueError, RecursionError):
        is_ours = {path.name for path in store.path("").iterdir()} <= {*layout.RUN_NAMES, *layout.OWNERSHIP}
    if not is_ours:
        msg = f"{store.url}/{layout.RUN_JSON} was not written by daskfs: choose another output.path."
        raise StoreError(msg)
    for name in layout.RUN_NAMES:
        if name not in keep:
            with explain_write_errors(store.path(name)):
                store.path(name).remove()


def matches_manifest(store: Store, manifest: Mapping[str, Any], name: str) -> bool:
    """Return whether size and CRC-32 of a file match its manifest entry, or both are missing.

    False if the file cannot be read.
    """
    expected = manifest.get("files", {}).get(name)
    path, read = store.path(name), partial(file_checksum, store, name)
    try:
        return look_twice(path, read, is_wrong=lambda checksum: checksum != expected) == expected
    except StoreError:
        return False


def file_checksum(store: Store, name: str) -> list[int] | None:
    """Return size and CRC-32 of a file of a run, or None if it does not exist."""
    data = store.read_bytes(name)
    return None if data is None else [len(data), zlib.crc32(data)]
