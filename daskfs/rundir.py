"""Who owns an output directory: the lock, the manifest ``run.json``, and what may be deleted."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from daskfs.errors import StoreError
from daskfs.job import Job
from daskfs.store import layout
from daskfs.store.store import Store
from daskfs.version import __version__


@contextmanager
def locked(store: Store, marker: str, what: str, key: str) -> Iterator[None]:
    """Hold a directory for this process.

    Parameters
    ----------
    store
        Store on disk; its directory is made if there is none.
    marker
        Name that a directory of ours holds: one that exists, holds anything and lacks it, is refused and not touched.
    what, key
        What ours is called, and the setting that names the directory; for messages.

    Raises
    ------
    StoreError
        When the directory is somebody else's, cannot be written, or another process runs in it.
    """
    root = store.path("")
    try:
        refuse_foreign(store, marker, what, key)
        root.mkdir(parents=True, exist_ok=True)
        handle = os.open(root / layout.LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        msg = f"cannot write to {key} {root}: {error.strerror}."
        raise StoreError(msg) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"another daskfs process is running in {root}: wait for it, or choose another {key}."
            raise StoreError(msg) from error
        yield
    finally:
        os.close(handle)


def refuse_foreign(store: Store, marker: str, what: str, key: str) -> None:
    """Raise :class:`StoreError` for a file, and for a directory that holds anything but no `marker`."""
    root = store.path("")
    if not root.exists():
        return
    if not root.is_dir():
        msg = f"{root} exists and is a file: choose another {key}."
        raise StoreError(msg)
    found = sorted(path.name for path in root.iterdir() if path.name != layout.LOCK)
    if found and marker not in found:
        msg = f"{root} exists and is not a {what} (it holds {', '.join(found[:3])}): choose another {key}."
        raise StoreError(msg)


def read_manifest(store: Store) -> dict[str, Any]:
    """Return ``run.json``; :class:`StoreError` when there is none, or it is damaged or of another version."""
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


def claimed(store: Store, job: Job, overwrite: bool) -> dict[str, Any]:
    """Return the manifest of this job's run, or the beginning of one, which is not written yet.

    Raises
    ------
    StoreError
        When the directory holds a run of another job, source, daskfs or format, and `overwrite` is false.
    """
    identity = job.identity()
    if overwrite:
        clear(store)
    elif store.read_bytes(layout.RUN_JSON) is not None:
        manifest = read_manifest(store)
        if manifest["daskfs_version"] != __version__:
            raise StoreError(
                _another(store, f"was begun by daskfs {manifest['daskfs_version']}, this is {__version__}")
            )
        if manifest["job"] != identity:
            differing = ", ".join(_differences(manifest["job"], identity)[:5])
            raise StoreError(_another(store, f"holds a run of another job; these keys differ: {differing}"))
        return manifest
    return {
        "format_version": layout.FORMAT_VERSION,
        "daskfs_version": __version__,
        "status": "running",
        "job": identity,
        "title": job.output.title,
    }


def _another(store: Store, why: str) -> str:
    return f"{store.url} {why}. Choose another output.path, or start over with --overwrite."


def _differences(a: Any, b: Any, prefix: str = "") -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        keys = sorted(set(a) | set(b))
        return [d for key in keys for d in _differences(a.get(key), b.get(key), f"{prefix}.{key}" if prefix else key)]
    return [] if a == b else [prefix]


def clear(store: Store) -> None:
    """Delete what a run wrote, and nothing else; :class:`StoreError` when ``run.json`` is not one of ours."""
    manifest = store.read_json(layout.RUN_JSON)
    if manifest is None:
        return
    if not isinstance(manifest, dict) or "daskfs_version" not in manifest:
        msg = f"{store.url}/{layout.RUN_JSON} was not written by daskfs: choose another output.path."
        raise StoreError(msg)
    for name in layout.RUN_NAMES:
        path = store.path(name)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
