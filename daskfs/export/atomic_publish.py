"""Putting what is exported in its place, whole: it is written beside that place, under another name, and moved there
when it is done; what goes to an object store is written on this machine first.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daskfs.errors import JobError
from daskfs.storage import ObjectPath, StoragePath, as_output_path, files_below, is_there, lies_in, remove
from daskfs.store.write_errors import explain_write_errors

GROUP_METADATA = ("zarr.json", ".zgroup")
"""What makes a folder a Zarr group; of these, in an object store, the last that is put."""
METADATA = (*GROUP_METADATA, ".zarray", ".zattrs", ".zmetadata")


def apart_from(out: str | Path, held: tuple[StoragePath, ...]) -> StoragePath:
    """Return where something is exported to; :class:`JobError` where that touches what must not be: the run, and the
    data that it ranked.
    """
    target = as_output_path(out)
    for where in held:
        if lies_in(target, where) or lies_in(where, target):
            msg = f"{target} and {where}, which is read, lie in each other: choose another place."
            raise JobError(msg)
    return target


def target_of(out: str | Path, held: tuple[StoragePath, ...], *, overwrite: bool) -> StoragePath:
    """Return where a file or a Zarr group is exported to.

    Parameters
    ----------
    out
        As the user named it.
    held
        As :func:`apart_from` takes them.
    overwrite
        Whether a file, or a Zarr group, that is there may be replaced.

    Raises
    ------
    JobError
        Where something is there that is not to be replaced.
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
    """Yield the path to write a file or a folder at, which takes the place of `target` when the block ends, and goes
    when it fails.
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
    """Put a file, or a Zarr group or array, into an object store in place of what is there; its metadata last, without
    which it is none.
    """
    if local.is_file():
        target.upload(local)
        return
    remove(target)
    files = [Path(str(path)) for path in files_below(local)]
    for path in sorted(files, key=lambda path: (path.parent == local and path.name in METADATA, path)):
        (target / path.relative_to(local).as_posix()).upload(path)


def fsync_tree(path: Path) -> None:
    """Bring a file, or all files of a folder, onto the disk."""
    for found in files_below(path):
        descriptor = os.open(str(found), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def replace(new: Path, old: Path) -> None:
    """Move a file or a folder to where another one may be, which goes. Of a folder that is replaced, nothing is at its
    place for a moment: never a part.
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


def copy_file(source: Path, target: Path) -> None:
    """Copy a file with its mode."""
    shutil.copyfile(source, target)
    shutil.copymode(source, target)
