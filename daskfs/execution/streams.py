"""Standard streams: a message that cannot be written is dropped, as the disk of a log is full or its reader gone."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, TextIO, cast


class Messages:
    """A stream of messages; those that cannot be written are lost, and raise nothing."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream, self._reason = stream, ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, and show it at once."""
        if self._stream is not None:
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError) as error:  # ValueError: of a closed stream
                self._reason = str(error)
        return len(text)

    def flush(self) -> None:
        """Do nothing: :meth:`write` has."""

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream is not None and not self._stream.closed and self._stream.isatty()

    def tell_lost(self) -> None:
        """Write that messages were lost, if so and if that can be written now."""
        if self._reason:
            self.write(f"daskfs: messages could not be written here: {self._reason}.\n")


def guard_streams() -> Messages:
    """Make ``sys.stderr`` a stream of messages, which is returned, and closed standard streams null devices.

    Else the next file that is opened would be the standard stream.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # the lowest free number
        pass
    os.close(number)
    nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    sys.stdout = sys.stdout or nowhere
    messages = Messages(sys.stderr or nowhere)
    sys.stderr = cast("TextIO", messages)
    return messages
