"""Errors of failed writes, with the path and the remedy."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from daskfs.errors import WriteError
from daskfs.storage import StoragePath, remove

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
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
    """Return the error for a full disk."""
    return WriteError(f"cannot write {path}: {error.strerror}. Make room there; the same command goes on.")


def try_to_remove(path: StoragePath) -> None:
    """Delete a damaged path. If that fails, it stays, and readers find the damage again."""
    with suppress(OSError):
        remove(path)
