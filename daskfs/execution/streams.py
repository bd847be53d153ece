"""Standard streams: a message that cannot be written is dropped, as the disk of a log is full or its reader gone."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any, TextIO, cast


class Messages:
    """A stream of messages whose failures do not reach those who write.

    Attributes
    ----------
    n_lost
        Number of writes that failed.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream, self.n_lost, self._reason = stream, 0, ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, and show it at once."""
        if self._stream is not None:
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError) as error:  # ValueError: of a closed stream
                self.n_lost += 1
                self._reason = getattr(error, "strerror", None) or str(error)
        return len(text)

    def flush(self) -> None:
        """Do nothing: :meth:`write` has."""

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream is not None and not self._stream.closed and self._stream.isatty()

    def tell_lost(self) -> None:
        """Write that messages were lost, if so and if that can be written now."""
        if self.n_lost:
            self.write(f"daskfs: messages could not be written here ({self._reason}).\n")


def guard_streams() -> Messages:
    """Make ``sys.stderr`` a stream of messages, and closed standard streams null devices; return the former.

    Else the next file that is opened would be the standard stream.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
    nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    if sys.stdout is None:
        sys.stdout = nowhere
    messages = Messages(nowhere if sys.stderr is None else sys.stderr)
    sys.stderr = cast("TextIO", messages)
    return messages


def print_result(text: str) -> None:
    """Write the result of a command to stdout; raise :class:`OSError` if it cannot be written."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError:
        if sys.stdout is sys.__stdout__:  # what is left in its buffer would fail again at the end of the process
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise
