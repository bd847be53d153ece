"""Errors of failed writes, with the path and the remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from daskfs.errors import WriteError
from daskfs.storage import StoragePath

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
GiB = 2**30
FREE_BYTES = 4 * GiB
"""Free bytes from which a disk is not called full: more than any single write."""
MADE_AGAIN = "'daskfs run' makes it again, 'daskfs convert' what belongs to a converted store."
NOT_ALLOWED = (errno.EROFS, errno.EACCES, errno.EPERM)


@contextmanager
def explain_write_errors(path: StoragePath) -> Iterator[None]:
    """Translate the errors of a write at a path.

    Raises
    ------
    WriteError
        If the disk is full or the path is not writable; other errors may be transient and stay :class:`OSError`.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise no_room(path, error) from error
        if error.errno in NOT_ALLOWED:
            msg = f"cannot write {path}: {error.strerror}. Make it writable; the same command goes on."
            raise WriteError(msg) from error
        raise


def no_room(path: StoragePath, error: OSError) -> WriteError:
    """Return the error for a full disk, or a full quota."""
    return WriteError(f"cannot write {path}: {error.strerror}. {_remedy(path)}; the same command goes on.")


def _remedy(path: StoragePath) -> str:
    """Return the remedy for a disk that takes no more, by its free bytes and inodes."""
    if isinstance(path, Path):
        state = os.statvfs(next(folder for folder in path.parents if folder.exists()))
        free = state.f_bavail * state.f_frsize
        if state.f_files and not state.f_favail:
            return "It has no room for more files (inodes), however small: delete some"
        if free > FREE_BYTES:
            return f"{free / GiB:.0f} GiB are free, so a quota of bytes or files is reached: make room within it"
    return "Make room there"


def try_to_remove(path: StoragePath) -> None:
    """Delete a damaged path. If that fails, it stays, and readers find the damage again."""
    with suppress(OSError):
        path.remove()
