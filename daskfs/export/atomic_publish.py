"""Atomic publishing of exports.

An export is written under a temporary name next to the target, and moved there when complete. An export to an object
store is written to a local folder first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daskfs.errors import JobError
from daskfs.storage import LocalPath, StoragePath, as_output_path
from daskfs.store.write_errors import explain_write_errors

GROUP_METADATA = ("zarr.json", ".zgroup")
"""Files that make a folder a Zarr group."""


def apart_from(out: str | Path, run_paths: tuple[StoragePath, ...]) -> StoragePath:
    """Return the path of an export; :class:`JobError` if it contains, or is in, one of the paths `run_paths`.

    These are the run and the data that it ranked.
    """
    target = as_output_path(out)
    for where in run_paths:
        if target.lies_in(where) or where.lies_in(target):
            msg = f"{target} and {where}, which is read, lie in each other: choose another place."
            raise JobError(msg)
    return target


def target_of(out: str | Path, run_paths: tuple[StoragePath, ...], *, overwrite: bool) -> StoragePath:
    """Return the path of an exported file or Zarr group, one that :func:`apart_from` allows.

    Raise :class:`JobError` if it exists, unless it is a file or a Zarr group and `overwrite` is true.
    """
    target = apart_from(out, run_paths)
    if not target.is_there():
        return target
    if not overwrite:
        msg = f"{target} exists: choose another place, or replace it with --overwrite."
        raise JobError(msg)
    if target.is_dir() and not any((target / name).is_file() for name in GROUP_METADATA):
        msg = f"{target} is a directory and no Zarr group: it is not replaced; choose another place."
        raise JobError(msg)
    return target


@contextmanager
def publish_at(target: StoragePath) -> Iterator[LocalPath]:
    """Yield a temporary path for a file or a folder, which replaces `target` when the block ends.

    It is deleted if the block fails.
    """
    with explain_write_errors(target), target.replacement() as local:
        yield local
