"""Failed writes, told by their path and what to do."""

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
    """Write at a path.

    Raises
    ------
    WriteError
        Naming the path, where the disk is full or nobody may write; what may pass stays an :class:`OSError`.
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
    """Return what to raise where the disk is full."""
    return WriteError(f"cannot write {path}: {error.strerror}. Make room there; the same command goes on.")


def try_to_remove(path: StoragePath) -> None:
    """Delete what is damaged; where that is not allowed it stays, and is damaged for all to see."""
    with suppress(OSError):
        remove(path)
