"""Atomic publishing of exports.

An export is written under a temporary name next to the target, and moved there when complete. An export to an object
store is written to a local folder first.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daskfs.errors import JobError
from daskfs.storage import ObjectPath, StoragePath, as_output_path, files_below, is_there, lies_in, remove
from daskfs.store.write_errors import explain_write_errors

GROUP_METADATA = ("zarr.json", ".zgroup")
"""Files that make a folder a Zarr group; they are uploaded to an object store last."""
METADATA = (*GROUP_METADATA, ".zarray", ".zattrs", ".zmetadata")


def apart_from(out: str | Path, held: tuple[StoragePath, ...]) -> StoragePath:
    """Return the path of an export; :class:`JobError` if it contains, or is in, one of the paths `held`.

    These are the run and the data that it ranked.
    """
    target = as_output_path(out)
    for where in held:
        if lies_in(target, where) or lies_in(where, target):
            msg = f"{target} and {where}, which is read, lie in each other: choose another place."
            raise JobError(msg)
    return target


def target_of(out: str | Path, held: tuple[StoragePath, ...], *, overwrite: bool) -> StoragePath:
    """Return the path of an exported file or Zarr group, one that :func:`apart_from` allows.

    Raise :class:`JobError` if it exists, unless it is a file or a Zarr group and `overwrite` is true.
    """
    target = apart_from(out, held)
    if not is_there(target):
        return target
    if not overwrite:
        msg = f"{target} exists: choose another place, or replace it with --overwrite."
        raise JobError(msg)
    if target.is_dir() and not any((target / name).is_file() for name in GROUP_METADATA):
        msg = f"{target} is a directory and no Zarr group: it is not replaced; choose another place."
        raise JobError(msg)
    return target


@contextmanager
def publish_at(target: StoragePath) -> Iterator[Path]:
    """Yield a temporary path for a file or a folder, which replaces `target` when the block ends.

    It is deleted if the block fails.
    """
    if isinstance(target, ObjectPath):
        with tempfile.TemporaryDirectory(prefix="daskfs-export-") as folder:
            local = Path(folder, target.name)
            yield local
            put_tree(local, target)
        return
    with explain_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        remove(temporary)
        try:
            yield temporary
            fsync_tree(temporary)
            replace(temporary, target)
        finally:
            remove(temporary)


def put_tree(local: Path, target: ObjectPath) -> None:
    """Upload a file, or a Zarr group or array, to replace `target`.

    Metadata goes last, so that a partial upload is not a group or array.
    """
    if local.is_file():
        target.upload(local)
        return
    remove(target)
    files = [Path(str(path)) for path in files_below(local)]
    for path in sorted(files, key=lambda path: (path.parent == local and path.name in METADATA, path)):
        (target / path.relative_to(local).as_posix()).upload(path)


def fsync_tree(path: Path) -> None:
    """Sync a file, or all files of a folder, to disk."""
    for found in files_below(path):
        with found.open("rb") as file:
            os.fsync(file.fileno())


def replace(new: Path, old: Path) -> None:
    """Move a file or a folder to `old`, and delete what is there.

    While a folder is replaced, `old` is briefly missing, never partial.
    """
    if not old.is_dir() and not new.is_dir():
        new.replace(old)
        return
    aside = old.with_name(f".{old.name}.{os.getpid()}.old")
    remove(aside)
    if is_there(old):
        old.replace(aside)
    new.replace(old)
    remove(aside)
