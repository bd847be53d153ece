"""Fork server of local workers, which imports the modules of units once for all workers.

A process has one fork server, whose environment applies to all its workers, as numerical libraries read it when they
are imported. If the process already has a fork server with another environment, workers are spawned.
"""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import forkserver, get_context, resource_tracker, util
from multiprocessing.connection import Connection

METHOD_KEY = "distributed.worker.multiprocessing-method"
IMPORTS = "daskfs.execution.clusters.imports"
MODEL_IMPORTS = "daskfs.execution.clusters.model_imports"
"""Imports for models, which take about as long as all others."""
LONGEST_FOLDER, SHORT_FOLDER = 60, "/tmp"
"""Most bytes of TMPDIR below which sockets can be made, and the folder that is used instead of a longer one."""
QUIET_TRACKER = "ignore::UserWarning:multiprocessing.resource_tracker"
"""Filter of the resource tracker, which would print a warning for each killed worker."""


def import_shared(modules: Iterable[str]) -> None:
    """Import modules so that garbage collection does not copy the pages that forked workers share."""
    gc.disable()
    for module in sorted(modules):
        import_module(module)
    gc.freeze()
    gc.enable()


def begin(environment: dict[str, str], *, models: bool = True) -> None:
    """Start the resource tracker and the fork server of this process if it has none; imports run in the background.

    Without `models`, each worker imports those for its models itself, if it needs them. SIGTERM is blocked in both: a
    batch system signals every process, and the driver ends local workers.
    """
    _shorten_socket_paths()
    filters = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), QUIET_TRACKER)))
    with environment_set({"PYTHONWARNINGS": filters}):
        resource_tracker.ensure_running()
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with environment_set(environment):
            forkserver.set_forkserver_preload([IMPORTS, MODEL_IMPORTS] if models else [IMPORTS])
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


def _shorten_socket_paths() -> None:
    """Make the folder of this process's sockets below /tmp if that of TMPDIR is long: paths end at some 100 bytes."""
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) <= LONGEST_FOLDER:
        return
    tempfile.tempdir = SHORT_FOLDER
    try:
        util.get_temp_dir()  # of mode 0700; it is kept, and removed at the end of the process
    finally:
        tempfile.tempdir = folder


def start_method(environment: dict[str, str]) -> str:
    """Return the start method of workers with an environment: "forkserver" or "spawn".

    It is "spawn" if the fork server has another environment.
    """
    begin(environment)
    context = get_context("forkserver")
    answers, answer = context.Pipe(duplex=False)
    with answers, answer:
        process = context.Process(target=_tell_environment, args=(answer, sorted(environment)), daemon=True)
        try:
            process.start()
            answer.close()
            variables = answers.recv()
        except (EOFError, OSError):  # spawning reports why processes cannot start
            return "spawn"
        process.join()
    return "forkserver" if variables == environment else "spawn"


def _tell_environment(answer: Connection, names: list[str]) -> None:
    with suppress(BrokenPipeError):  # the driver may have been stopped
        answer.send({name: os.environ[name] for name in names if name in os.environ})


@contextmanager
def environment_set(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for processes that are started in this block, and restore those of this process."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
