"""Lease: a lock in an object store, which has none. Its owner rewrites an object periodically.

The object is created only if absent, and rewritten only if unchanged. A process that finds one polls it for the lease
period: a live owner has renewed it by then; from a killed one, exactly one of the waiting processes takes it over.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import dask

from daskfs.errors import InUseError, StoreError
from daskfs.storage.objects import NEW, ObjectPath, Tag
from daskfs.store.second_look import look_twice

LEASE_KEY = "daskfs.lease-seconds"
"""Key of Dask's configuration: seconds until a lock that is not renewed expires."""
LEASE_SECONDS = 45.0
RENEWALS = 3
MARGIN = 1 / 3
"""Share of the lease period that others wait beyond it: a request may be slow."""
CLOCKS_APART_SECONDS = 900.0
"""Difference of two clocks from which on stores refuse signed requests."""
LOOKS = 60
"""Minimum polls per lease period."""
MAX_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Owner:
    """Process that holds a lock, or held it; by default this one."""

    process: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"

    @classmethod
    def parse(cls, text: object) -> Owner | None:
        """Return the owner that a lock names, None if it names none."""
        match = re.fullmatch(r"process (\d{1,9}) on (\S+)", str(text))
        return None if match is None else cls(int(match[1]), match[2])


@dataclass(frozen=True)
class LockState:
    """Whether a process holds a lock, None if that is not known, for a `reason`; and the owner that the lock names."""

    is_held: bool | None
    owner: Owner | None = None
    reason: str = ""


def in_use(root: object, holder: object, key: str) -> InUseError:
    """Return the error for a directory that another process, if it has a name, has locked."""
    return InUseError(
        f"another daskfs process is running in {root}{f' ({holder})' if holder else ''}: wait for it, or choose "
        f"another {key}."
    )


def waiting(root: object, holder: object, seconds: float) -> str:
    """Return the message about a wait for the end of the process that has locked a directory."""
    return f"{root} is locked by {holder or 'another process'}: waiting up to {seconds:.0f} s for its end."


class Lease:
    """Lock held by this process; `warning` says why it is not, if the store has no conditional writes."""

    def __init__(self, path: ObjectPath, key: str) -> None:
        self.root, self.warning = path.parent, ""
        self.seconds = float(dask.config.get(LEASE_KEY, LEASE_SECONDS))
        self._path, self._key, self._token = path, key, uuid.uuid4().hex
        self._tag: Tag = NEW
        self._n_written, self._renewed = 0, time.time()
        self._lost: StoreError | None = None
        self._writing, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._keep, name="daskfs-lease", daemon=True)

    @property
    def is_there(self) -> bool:
        """Whether this process still holds the lock."""
        try:
            self.check()
        except (StoreError, OSError):
            return False
        return True

    def check(self) -> None:
        """Raise :class:`InUseError` if another process took the lock over, :class:`StoreError` if it was deleted.

        An overdue lock, as after the machine slept, is renewed first.
        """
        if not 0 <= time.time() - self._renewed <= self.seconds:
            self._renew()
        if self._lost is not None:
            raise type(self._lost)(str(self._lost))  # anew for each thread that asks

    def take(self, tell: Callable[[str], None], wait_seconds: float) -> None:
        """Acquire the lock; `tell` is called once before a wait.

        To see whether another process that holds it lives takes up to 4/3 of its lease.

        Raises
        ------
        InUseError
            If a live process holds it after `wait_seconds`.
        """
        is_told, give_up = False, time.monotonic() + wait_seconds
        while not self._is_written(NEW):
            try:
                lock, tag = self._read_lock()
            except FileNotFoundError:  # released meanwhile
                continue
            seconds = float(lock.get("seconds", self.seconds))
            if not is_told:
                is_told = True
                tell(waiting(self.root, lock.get("owner"), max(wait_seconds, seconds * (1 + MARGIN))))
            try:
                is_renewed = _is_renewed(self._path, tag, seconds, seconds * (1 + MARGIN))
            except FileNotFoundError:  # released
                is_renewed = False
            if not is_renewed:
                if self._is_written(tag):
                    break
            elif time.monotonic() >= give_up:
                raise in_use(self.root, lock.get("owner"), self._key)
        if not self.warning:
            self._thread.start()

    def _is_written(self, tag: Tag) -> bool:
        """Write the lock if it still has a tag; return whether it was written."""
        self._n_written += 1  # identical bytes would have the same tag
        content = {"owner": str(Owner()), "token": self._token, "seconds": self.seconds, "written": self._n_written}
        begun = time.time()
        try:
            # an earlier write, whose answer was lost, may have ended only now
            self._tag = self._path.put_if(json.dumps(content).encode(), tag, lambda data: self._token.encode() in data)
        except (FileExistsError, FileNotFoundError):
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self.warning = (
                f"the store of {self.root} cannot write on a condition, and has no locks: see to it that no second "
                "daskfs process runs in it meanwhile"
            )
        self._renewed = begun
        return True

    def _read_lock(self) -> tuple[dict[str, Any], Tag]:
        def look() -> tuple[dict[str, Any], Tag]:
            data, tag = self._path.read_tagged()
            try:
                content = json.loads(data)
            except ValueError:
                content = None
            return content if isinstance(content, dict) else {}, tag

        return look_twice(self._path, look, FileNotFoundError, is_wrong=lambda answer: not answer[0])

    def _keep(self) -> None:
        while not self._ended.wait(self.seconds / RENEWALS):
            with suppress(OSError):  # :meth:`check` retries before the next write
                self._renew()

    def _renew(self) -> None:
        with self._writing:
            if self._lost is not None or self.warning or self._is_written(self._tag):
                return
            try:
                lock, _ = self._read_lock()
                self._lost = InUseError(
                    f"{lock.get('owner')} has taken over {self.root}, whose lock this process had not renewed for "
                    "long: it stops here, and that one goes on."
                )
            except FileNotFoundError:
                self._lost = StoreError(f"{self.root} was deleted or moved away while this process ran in it.")

    def give_back(self) -> None:
        """Release the lock at once."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(OSError):  # it expires anyway
            if self._lost is None and not self.warning and self._read_lock()[0].get("token") == self._token:
                self._path.unlink()


@contextmanager
def hold_lease(path: ObjectPath, key: str, tell: Callable[[str], None], wait_seconds: float = 0.0) -> Iterator[Lease]:
    """Hold the lock at a path, acquired as by :meth:`Lease.take`; messages name the setting `key` of the directory."""
    lease = Lease(path, key)
    lease.take(tell, wait_seconds)
    try:
        yield lease
    finally:
        lease.give_back()


def lease_state(path: ObjectPath) -> LockState:
    """Return whether a process holds a lock: whether it is renewed, for which this waits.

    The clock of the store, or of this host, may be wrong. A wait is cut short if the lock is so old that requests of a
    host with such a clock would be refused. That of a missing lock is not known: it was released, or the store cannot
    write on a condition.
    """
    try:
        data, tag = path.read_tagged()
        content, age = json.loads(data), time.time() - path.stat().st_mtime
        seconds, owner = float(content["seconds"]), Owner.parse(content["owner"])
        expired = seconds * (1 + MARGIN)
        if age > expired + CLOCKS_APART_SECONDS:
            return LockState(is_held=False, owner=owner)
        return LockState(_is_renewed(path, tag, seconds, expired / RENEWALS if age > expired else expired), owner)
    except (OSError, ValueError, TypeError, KeyError) as error:
        return LockState(None, reason=f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is damaged'}")


def _is_renewed(path: ObjectPath, tag: Tag, seconds: float, wait_seconds: float) -> bool:
    """Poll a lock with a lease of `seconds` until it has another tag; return False if it has none within some time."""
    deadline, waiting = time.monotonic() + wait_seconds, threading.Event()
    while time.monotonic() < deadline:
        waiting.wait(min(seconds / LOOKS, MAX_POLL_SECONDS))
        if path.read_tagged()[1] != tag:
            return True
    return False
