"""Cache of values read from files, within a process, for as long as the files are the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from os import stat_result
from threading import Lock
from time import monotonic_ns, time_ns
from typing import Any, Protocol, TypeVar

from daskfs.storage import StoragePath
from daskfs.storage.objects import ObjectStatus

FileStatus = stat_result | ObjectStatus
Value = TypeVar("Value")
Value_co = TypeVar("Value_co", covariant=True)

RACY_NS = 2 * 10**9
"""Age below which a file may be rewritten without a visible change, in nanoseconds.

Two writes may carry one timestamp within a tick of the kernel (up to 10 ms), and within two seconds on the coarsest
file systems. Clocks of file servers differ from ours by less than this if they are synchronized.
"""


class CachedReader(Protocol[Value_co]):
    """Function of a file, see :func:`cached_by_file`."""

    def __call__(self, path: StoragePath, *arguments: Any, status: FileStatus | None = None) -> Value_co:
        """Return the value of the file with this status, by default that of now."""
        ...

    def cache_clear(self) -> None:
        """Drop all values."""
        ...


class _Entry:
    """Value of a file in one state, if it is cached."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.first_seen = monotonic_ns()
        self.values: list[Any] = []


def file_state(status: FileStatus) -> tuple[int, ...]:
    """Return what changes if a file is rewritten or replaced: size, times, inode and device.

    Programs can set the modification time, but not the change time. An object has a hash of its tag instead.
    """
    if isinstance(status, ObjectStatus):
        return status.st_size, status.st_mtime_ns
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev


def _is_racy(status: FileStatus, first_seen: int) -> bool:
    """Return whether a file could be written now without a change of its state, which this process knows for a while.

    Git compares times of files with that of its index, which has the clock of their file system. We write nothing next
    to data. The clock of a file server may be ahead of ours: then its files are old once their state was seen long ago.
    Tags of objects have no such ambiguity.
    """
    if isinstance(status, ObjectStatus):
        return False
    age = time_ns() - max(status.st_mtime_ns, status.st_ctime_ns)
    return max(age, monotonic_ns() - first_seen) <= RACY_NS


def cached_by_file(n_cached: int) -> Callable[[Callable[..., Value]], CachedReader[Value]]:
    """Cache a function of a path and further arguments by the state of the file.

    Values of the `n_cached` states used last are cached. Threads that need the same value wait for one of them to read
    it. As with Git's "racily clean" files, a value is not cached if the file changed so shortly before it was read that
    another write could leave the same state; it is read again at the next call.
    """

    def decorate(read: Callable[..., Value]) -> CachedReader[Value]:
        entries, lock = lru_cache(n_cached)(lambda *_: _Entry()), Lock()

        @wraps(read)
        def cached(path: StoragePath, *arguments: Any, status: FileStatus | None = None) -> Value:
            status = path.stat() if status is None else status
            state = file_state(status)
            with lock:  # lru_cache may call its function twice
                entry = entries(path, state, *arguments)
            with entry.lock:
                if not entry.values:
                    is_racy = _is_racy(status, entry.first_seen)
                    value = read(path, *arguments)
                    if is_racy or file_state(path.stat()) != state:
                        return value
                    entry.values.append(value)
                return entry.values[0]

        cached.cache_clear = entries.cache_clear  # type: ignore[attr-defined]
        return cached  # type: ignore[return-value]

    return decorate
