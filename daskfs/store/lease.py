"""A lock in an object store, which has none: an object that its owner writes again and again.

The object is made on the condition that there is none, and written again on the condition that nobody else has. Who
finds one watches it for as long as its owner may take: an owner that lives has written it by then, and of one that was
killed it is taken over, by one of those who wait.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import dask

from daskfs.errors import StoreError
from daskfs.storage import ObjectPath, Tag

LEASE_KEY = "daskfs.lease-seconds"
"""Of Dask's configuration: how long a lock that is not renewed holds."""
LEASE_SECONDS = 45.0
RENEWALS = 3
"""How often a lock is renewed in that time."""
MARGIN = 1 / 3
"""Share of the time that others wait beyond it: a request may take long."""
LOOKS = 60
"""How often who waits looks in that time, at least,"""
LOOK_SECONDS = 1.0
"""and how long it waits between two looks, at most."""


def owner() -> str:
    """Return what this process is called in a lock."""
    return f"process {os.getpid()} on {socket.gethostname()}"


class Lease:
    """A lock that this process holds; `warning` says why it does not, where a store cannot write on a condition."""

    def __init__(self, path: ObjectPath, key: str) -> None:
        self.root, self.warning = path.parent, ""
        self.seconds = float(dask.config.get(LEASE_KEY, LEASE_SECONDS))
        self._path, self._key, self._token = path, key, uuid.uuid4().hex
        self._tag: Tag = (None, None)
        self._n_written, self._renewed, self._lost = 0, time.time(), ""
        self._writing, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._keep, name="daskfs-lease", daemon=True)

    @property
    def is_there(self) -> bool:
        """Whether this process still holds it."""
        try:
            self.check()
        except (StoreError, OSError):
            return False
        return True

    def check(self) -> None:
        """Raise :class:`StoreError` when others have taken the lock over, or deleted it. Where it was not renewed in
        time, as after a sleep of the machine, it is renewed first.
        """
        if not 0 <= time.time() - self._renewed <= self.seconds:
            self._renew()
        if self._lost:
            raise StoreError(self._lost)

    # ------------------------------------------------------------------------------------------------- to come by it
    def take(self, tell: Callable[[str], None]) -> None:
        """Take the lock; `tell` is called once where that takes a while.

        Raises
        ------
        StoreError
            When another process holds it, and lives.
        """
        told = False
        while not self._is_written((None, None)):
            try:
                held, tag = self._read()
            except FileNotFoundError:  # given back meanwhile
                continue
            seconds = float(held.get("seconds", self.seconds))
            if not told:
                told = True
                tell(
                    f"{self.root} is locked by {held.get('owner')}: waiting up to {seconds * (1 + MARGIN):.0f} s to "
                    "see whether that still runs."
                )
            if self._has_ended(tag, seconds, held) and self._is_written(tag):
                break
        if not self.warning:
            self._thread.start()

    def _has_ended(self, tag: Tag, seconds: float, held: dict[str, Any]) -> bool:
        """Watch another one's lock; return whether nobody renewed it, False where it was given back."""
        deadline = time.monotonic() + seconds * (1 + MARGIN)
        while time.monotonic() < deadline:
            self._ended.wait(min(seconds / LOOKS, LOOK_SECONDS))
            try:
                if self._read()[1] != tag:
                    raise StoreError(self._refusal(held))
            except FileNotFoundError:
                return False
        return True

    def _refusal(self, held: dict[str, Any]) -> str:
        return (
            f"another daskfs process is running in {self.root} ({held.get('owner')}): wait for it, or choose another "
            f"{self._key}."
        )

    def _is_written(self, tag: Tag) -> bool:
        """Write the lock on the condition that it still has a tag; return whether that was so."""
        self._n_written += 1  # bytes that stay the same would have the same tag
        found = {"owner": owner(), "token": self._token, "seconds": self.seconds, "written": self._n_written}
        begun = time.time()
        try:
            self._tag = self._path.put_if(json.dumps(found).encode(), tag)
        except (FileExistsError, FileNotFoundError):
            # a request whose answer was lost is made again, and then it is this process that was there before
            try:
                held, self._tag = self._read()
            except FileNotFoundError:
                return False
            if held.get("token") != self._token:
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

    def _read(self) -> tuple[dict[str, Any], Tag]:
        data, tag = self._path.read_tagged()
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {}, tag

    # ------------------------------------------------------------------------------------------- to keep and give back
    def _keep(self) -> None:
        while not self._ended.wait(self.seconds / RENEWALS):
            with suppress(OSError):  # :meth:`check` tries again before anything more is written
                self._renew()

    def _renew(self) -> None:
        with self._writing:
            if self._lost or self.warning or self._is_written(self._tag):
                return
            try:
                held, _ = self._read()
                self._lost = (
                    f"{held.get('owner')} has taken over {self.root}, which this process had not told of itself for "
                    "long: it stops here, and that one goes on."
                )
            except FileNotFoundError:
                self._lost = f"{self.root} was deleted or moved away while this process ran in it."

    def give_back(self) -> None:
        """Let others have it at once."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(OSError):  # it ends by itself
            if not self._lost and not self.warning and self._read()[0].get("token") == self._token:
                self._path.unlink()


@contextmanager
def hold_lease(path: ObjectPath, key: str, tell: Callable[[str], None]) -> Iterator[Lease]:
    """Hold a lock.

    Parameters
    ----------
    path
        Of the object that is the lock.
    key
        The setting that names what is locked, for messages.
    tell
        Called once where others hold it, before it is waited for.
    """
    lease = Lease(path, key)
    lease.take(tell)
    try:
        yield lease
    finally:
        lease.give_back()


def lease_holder(path: ObjectPath) -> str | None:
    """Return who holds a lock, to judge by when it was written; None where nobody does."""
    try:
        data, _ = path.read_tagged()
        age = time.time() - path.stat().st_mtime
        found = json.loads(data)
        return str(found["owner"]) if age < float(found["seconds"]) * (1 + MARGIN) else None
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
