"""Signals that stop a run, those of people and of batch systems: they raise an error in the main thread.

Before the run begins, while its modules are imported, these signals have their default effect.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from daskfs.errors import RunStoppedError
from daskfs.store import layout

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
UNLESS_HANDLED = (signal.SIGUSR2, signal.SIGXCPU, signal.SIGHUP)
"""Signals of Grid Engine and submitit, of limits of CPU time, and of a terminal that closes. Whoever handles or ignores
them, as ``nohup`` does the last one, goes on doing so."""


class _Request:
    """State of the signals of this process."""

    is_heard = False
    is_held = False
    message = ""
    ends_process = False


_request = _Request()


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn :data:`SIGNALS`, and :data:`UNLESS_HANDLED`, into :class:`RunStoppedError`.

    Finished units stay and the exit code is 75. Further signals while the run ends are ignored. A nested block, or one
    outside the main thread, which alone gets signals, has no effect.
    """
    if _request.is_heard or threading.current_thread() is not threading.main_thread():
        yield
        return
    _request.is_heard, _request.message = True, ""
    heard = [*SIGNALS, *(number for number in UNLESS_HANDLED if signal.getsignal(number) == signal.SIG_DFL)]
    before = [(number, signal.signal(number, _stop)) for number in heard]
    try:
        yield
    except Exception as error:
        is_own = isinstance(error, RunStoppedError) and str(error) == _request.message
        if _request.message and not is_own:
            # the signal came while another error was handled, or a library or a codec converted its error
            raise RunStoppedError(_request.message) from error
        raise
    finally:
        is_last = _request.ends_process and bool(_request.message)
        for number, handler in before:
            signal.signal(number, signal.SIG_IGN if is_last else handler)
        _request.is_heard, _request.message = False, ""


def end_process_when_stopped() -> None:
    """Ignore signals after the one that stopped a run, until this command-line process ends.

    Batch systems send several, and the first one determines the exit code.
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


def stop_message() -> str:
    """Return the message of the signal that stops this run, "" without one.

    What is raised may say it otherwise: Python's codecs raise an error of the same class with more text.
    """
    return _request.message


def check_stopped() -> None:
    """Raise :class:`RunStoppedError` after a signal.

    The code that it interrupted may have caught the first error, and runs of batches go on in threads of their own.
    """
    if _request.message and not _request.is_held:
        raise RunStoppedError(_request.message)


def _hold_request() -> None:
    _request.is_held = True


@contextmanager
def undisturbed(*, at_once: bool = True) -> Iterator[Callable[[], None]]:
    """Hold signals within a block, `at_once` or from a call on, and stop the run at its end if one came."""
    if at_once:
        _hold_request()
    try:
        yield _hold_request
    finally:
        _request.is_held = False
    check_stopped()
