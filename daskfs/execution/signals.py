"""Signals that ask a run to stop: SIGTERM, SIGINT and SIGUSR1 become an error in the main thread, wherever it is.

A signal that comes before the run begins, while its modules are imported, ends the process as it would any other.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from daskfs.errors import RunStoppedError
from daskfs.store import layout

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class _Request:
    """What the signals of this process have asked for."""

    is_heard = False
    is_held = False
    message = ""
    ends_process = False


_request = _Request()


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn SIGTERM, SIGINT and SIGUSR1 into :class:`RunStoppedError`, so that what is finished stays and the exit code
    is 75. The first one counts; those that come while the run ends change nothing. A block within another is part of
    that; in another thread than the main one, which alone gets signals, there is nothing to turn.
    """
    if _request.is_heard or threading.current_thread() is not threading.main_thread():
        yield
        return
    _request.is_heard, _request.message = True, ""
    before = [(number, signal.signal(number, _stop)) for number in SIGNALS]
    try:
        yield
    except Exception as error:
        if _request.message and not isinstance(error, RunStoppedError):
            # the signal came while something else ended, or a library has made another error of it
            raise RunStoppedError(_request.message) from error
        raise
    finally:
        is_last = _request.ends_process and bool(_request.message)
        for number, handler in before:
            signal.signal(number, signal.SIG_IGN if is_last else handler)
        _request.is_heard, _request.message = False, ""


def end_process_when_stopped() -> None:
    """Ignore signals after the one that stopped a run, until this process, a command line, has ended: batch systems
    send several, and its exit code is to be that of the first.
    """
    _request.ends_process = True


def _stop(number: int, frame: FrameType | None) -> None:
    del frame
    if _request.message:
        return
    _request.message = (
        f"stopped by {signal.Signals(number).name}; the same command goes on from the {layout.RUN_JSON} in "
        "the output directory."
    )
    check_stopped()


def check_stopped() -> None:
    """Raise :class:`RunStoppedError` once a signal has asked for it: what the main thread was amid when the signal came
    may have taken the error for one of its own.
    """
    if _request.message and not _request.is_held and threading.current_thread() is threading.main_thread():
        raise RunStoppedError(_request.message)


@contextmanager
def undisturbed_end() -> Iterator[AbstractContextManager[None]]:
    """Yield a block from whose end on signals wait, until the end of this one: what lies between ends undisturbed."""

    @contextmanager
    def beginning() -> Iterator[None]:
        try:
            yield
        finally:
            _request.is_held = True

    try:
        yield beginning()
    finally:
        _request.is_held = False
    check_stopped()
