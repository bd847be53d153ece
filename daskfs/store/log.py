"""Append-only log of lines."""

from __future__ import annotations

import os
import time
from pathlib import Path

from daskfs.storage import StoragePath, put
from daskfs.store.write_errors import explain_write_errors

GROWTH = 0.1
"""Relative growth after which a log in an object store is written again."""
PUT_SECONDS = 5.0
"""Seconds after which the next line writes it again, unless writing takes much of the time."""
SHARE = 20
"""Minimum interval between two writes, in multiples of the duration of the last one."""


class Log:
    """Log at a path.

    On disk each line is appended at once. Objects cannot be appended to: all lines are kept in memory, and written
    again after growth by a tenth or after some seconds. A killed process loses the lines since the last write.

    Parameters
    ----------
    path
        Path or URL of the log; existing lines stay.
    """

    def __init__(self, path: StoragePath) -> None:
        self._path = path
        self._held: bytearray | None = None
        self._n_put, self._put, self._took = 0, 0.0, 0.0

    def add(self, text: str) -> None:
        """Append a line. A partial last line, of a writer that was killed, stays a separate line."""
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
        """Write pending lines to the object store."""
        if self._held is None or len(self._held) == self._n_put:
            return
        begun = time.monotonic()
        with explain_write_errors(self._path):
            put(self._path, bytes(self._held))
        self._n_put, self._put = len(self._held), time.monotonic()
        self._took = self._put - begun
