"""Append-only log of lines."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import IO

from daskfs.storage import LocalPath, StoragePath
from daskfs.store.write_errors import explain_write_errors

GROWTH = 0.1
"""Relative growth after which a log in an object store is written again."""
PUT_SECONDS = 5.0
"""Seconds after which the next line writes it again, unless writing takes much of the time."""
WRITE_INTERVAL = 20
"""Minimum interval between two writes, in multiples of the duration of the last one."""


class Log:
    """Log at a path or URL; existing lines stay.

    On disk each line is appended at once, to a file that stays open until :meth:`flush`. Objects cannot be appended
    to: all lines are kept in memory, and written again after growth by a tenth or after some seconds. A killed process
    loses the lines since the last write.
    """

    def __init__(self, path: StoragePath) -> None:
        self._path = path
        self._held: bytearray | None = None
        self._file: IO[bytes] | None = None
        self._n_put, self._put, self._took = 0, 0.0, 0.0

    def add(self, text: str) -> None:
        """Append a line. A partial last line, of a writer that was killed, stays a separate line."""
        line = text.encode() + b"\n"
        if isinstance(self._path, LocalPath):
            with explain_write_errors(self._path):
                if self._file is not None and not os.fstat(self._file.fileno()).st_nlink:  # it was deleted
                    self.close()
                self._file = self._file or _open_log(self._path)
                try:
                    self._file.write(line)
                    self._file.flush()
                except OSError:
                    self.close()
                    raise
            return
        if self._held is None:
            there = bytearray()
            with suppress(FileNotFoundError):
                there += self._path.read_own()
            self._held, self._n_put = there, len(there)
        self._held += line
        waited = time.monotonic() - self._put
        has_grown = len(self._held) > (1 + GROWTH) * self._n_put
        if waited > WRITE_INTERVAL * self._took and (has_grown or waited > PUT_SECONDS):
            self.flush()

    def close(self) -> None:
        """Close the file; lines that :meth:`flush` has not put into an object store are kept in memory."""
        if self._file is not None:
            with suppress(OSError):  # on a full disk the rest of a line, as after a kill
                self._file.close()
            self._file = None

    def flush(self) -> None:
        """Write pending lines to the object store, or close the file."""
        self.close()
        if self._held is None or len(self._held) == self._n_put:
            return
        begun = time.monotonic()
        with explain_write_errors(self._path):
            self._path.put(bytes(self._held))
        self._n_put, self._put = len(self._held), time.monotonic()
        self._took = self._put - begun


def _open_log(path: LocalPath) -> IO[bytes]:
    """Open a log to append lines, after the end of its last one."""
    file = os.fdopen(path.open_own(os.O_RDWR | os.O_CREAT | os.O_APPEND), "ab+")
    if file.seek(0, os.SEEK_END):
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")
    return file
