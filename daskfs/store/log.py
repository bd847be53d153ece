"""A log: lines that are only ever added."""

from __future__ import annotations

import os
import time
from pathlib import Path

from daskfs.storage import StoragePath, put
from daskfs.store.write_errors import explain_write_errors

GROWTH = 0.1
"""Share by which the log of a store grows before it is put again."""
PUT_SECONDS = 5.0
"""A line of it waits no longer than that for the next one, unless putting it takes much of the time."""
SHARE = 20
"""Times as long as the last put took that lie between two, at least."""


class Log:
    """A log at a path. On disk a line is added as it comes. Objects cannot grow: there all lines are kept in memory,
    and put again when they have become more by a tenth, or some seconds have passed; a process that is killed loses
    the lines since then.

    Parameters
    ----------
    path
        Where it lies; what is there stays.
    """

    def __init__(self, path: StoragePath) -> None:
        self._path = path
        self._held: bytearray | None = None
        self._n_put, self._put, self._took = 0, 0.0, 0.0

    def add(self, text: str) -> None:
        """Add a line; one before it that was cut off when its writer ended stays a line of its own."""
        line = text.encode() + b"\n"
        if isinstance(self._path, Path):
            with explain_write_errors(self._path), self._path.open("ab+") as file:
                end = file.seek(0, os.SEEK_END)
                if end:
                    file.seek(end - 1)
                is_cut = bool(end) and file.read(1) != b"\n"
                file.write((b"\n" if is_cut else b"") + line)
            return
        if self._held is None:
            self._held = bytearray(self._there())
            self._n_put = len(self._held)
        self._held += line
        waited = time.monotonic() - self._put
        has_grown = len(self._held) > (1 + GROWTH) * self._n_put
        if waited > SHARE * self._took and (has_grown or waited > PUT_SECONDS):
            self.flush()

    def _there(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""

    def flush(self) -> None:
        """Put what has been added."""
        if self._held is None or len(self._held) == self._n_put:
            return
        begun = time.monotonic()
        with explain_write_errors(self._path):
            put(self._path, bytes(self._held))
        self._n_put, self._put = len(self._held), time.monotonic()
        self._took = self._put - begun
