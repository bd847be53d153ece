"""The process that local workers are forked from: it imports what units need once, for all of them.

A process has one fork server, whose environment holds for all that it starts, as numerical libraries read theirs when
they are imported. A program that has one already, or had a cluster of another environment, is left with it, and spawns
workers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection

METHOD_KEY = "distributed.worker.multiprocessing-method"
IMPORTS = "daskfs.execution.clusters.imports"


def begin(environment: dict[str, str]) -> None:
    """Start the fork server of this process where it has none; it imports while this process does other things."""
    with _environment(environment):
        forkserver.set_forkserver_preload([IMPORTS])
        forkserver.ensure_running()


def start_method(environment: dict[str, str]) -> str:
    """Return how workers are to start that need an environment: "forkserver", or "spawn" where the fork server has
    another one.
    """
    begin(environment)
    context = get_context("forkserver")
    answers, answer = context.Pipe(duplex=False)
    with answers, answer:
        asked = context.Process(target=_tell_environment, args=(answer, sorted(environment)), daemon=True)
        try:
            asked.start()
            answer.close()
            found = answers.recv()
        except (EOFError, OSError):  # spawning tells what keeps processes from starting
            return "spawn"
        asked.join()
    return "forkserver" if found == environment else "spawn"


def _tell_environment(answer: Connection, names: list[str]) -> None:
    with suppress(BrokenPipeError):  # the driver may have been told to stop
        answer.send({name: os.environ[name] for name in names if name in os.environ})


@contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    """Let a process that starts in this block have an environment; it is deaf to SIGTERM, as a batch system signals
    every process and local workers leave their end to the driver.
    """
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
