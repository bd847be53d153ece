"""Cache of values read from files, within a process, for as long as the files are the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial, update_wrapper
from os import stat_result
from threading import Lock
from time import monotonic_ns, time_ns
from typing import Any, Generic, TypeVar

from daskfs.storage import StoragePath
from daskfs.storage.objects import ObjectStatus

FileStatus = stat_result | ObjectStatus
Value = TypeVar("Value")

RACY_NS = 2 * 10**9
"""Age below which a file may be rewritten without a visible change, in nanoseconds.

Two writes may carry one timestamp within a tick of the kernel (up to 10 ms), and within two seconds on the coarsest
file systems. Clocks of file servers differ from ours by less than this if they are synchronized.
"""


class _Entry:
    """Value of a file in one state, if it is cached."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.first_seen = monotonic_ns()
        self.values: list[Any] = []


def file_state(status: FileStatus) -> tuple[int, ...]:
    """Return the size, times, inode and device of a file, of which one changes if it is rewritten or replaced.

    Programs can set the modification time, but not the change time. An object has a hash of its tag instead.
    """
    if isinstance(status, ObjectStatus):
        return status.st_size, status.st_mtime_ns
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev


def _is_racy(status: FileStatus, first_seen: int) -> bool:
    """Return whether another write could leave the same state of a file, which this process first saw at a given time.

    Git compares a file with its index, which the same clock dates if both are on one file system. Data may be where
    nothing may be written; if the clock of a file server is ahead of ours, the time since the state was first seen
    decides. Tags of objects have no such ambiguity.
    """
    if isinstance(status, ObjectStatus):
        return False
    age = time_ns() - max(status.st_mtime_ns, status.st_ctime_ns)
    return max(age, monotonic_ns() - first_seen) <= RACY_NS


class FileReader(Generic[Value]):
    """Function of a path and further arguments, cached by the state of the file.

    Values of the `n_cached` states used last are cached. Threads that need the same value wait for one of them to read
    it. As with Git's "racily clean" files, a value is not cached if the file changed so shortly before it was read that
    another write could leave the same state; it is read again at the next call.
    """

    def __init__(self, n_cached: int, read: Callable[..., Value]) -> None:
        self._read, self._lock = read, Lock()
        self._entries = lru_cache(n_cached)(lambda *_: _Entry())
        self.cache_clear = self._entries.cache_clear
        update_wrapper(self, read)

    def __call__(self, path: StoragePath, *arguments: Any, status: FileStatus | None = None) -> Value:
        """Return the value of the file with this status, by default that of now."""
        status = path.stat() if status is None else status
        state = file_state(status)
        with self._lock:  # lru_cache may call its function twice
            entry = self._entries(path, state, *arguments)
        with entry.lock:
            if entry.values:
                return entry.values[0]
            is_racy = _is_racy(status, entry.first_seen)
            value = self._read(path, *arguments)
            if not is_racy and file_state(path.stat()) == state:
                entry.values.append(value)
            return value


def cached_by_file(n_cached: int) -> Callable[[Callable[..., Value]], FileReader[Value]]:
    """Decorate a function of a path, and hashable arguments, to be a :class:`FileReader`."""
    return partial(FileReader, n_cached)
