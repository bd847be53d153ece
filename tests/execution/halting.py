"""The command line with halts: units stop where a test wants them to, so that it can kill what it likes amid them.

``python -m tests.execution.halting run JOB`` is ``daskfs run JOB``; workers of a local cluster import this module as
their main one; :func:`serve` starts programs that have it. In the folder that the environment names, "wanted" names
the point where the first that gets there halts, and leaves a file named after the point with its process id; "starts"
gets a line for every unit that begins. A point is the function of a stage, and ".2" for the second round of a loop; or
"plan", "report" or "done", where the driver is about to put one of these in place, "clear", before it clears what a
round has left, and "close", before it closes its cluster.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from distributed import Client

from daskfs.stages import units
from daskfs.stages.kind import UnitFunction, stage_modules
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.records import epoch_of
from daskfs.store.store import Store

FOLDER_KEY = "DASKFS_HALTING"
EVERY = "*"
MOMENTS = ("begun", "written", "recorded")
"""Before a unit has done anything, when what it writes is there, and when its record is about to be put in place."""
PRELOADED = (
    "daskfs.cli",
    "daskfs.execution.worker",
    "daskfs.runs.pipeline",
    "daskfs.report.summary",
    "distributed.cli.dask_scheduler",
    "distributed.cli.dask_worker",
    "zarr",
    *stage_modules(),
)
"""What the programs import that :func:`serve` starts."""
_HALT_SECONDS = 300.0
_LOOK_SECONDS = 0.01
_unit = threading.local()
_attempt = units._attempt
_replace = Path.replace
_link = Path.hardlink_to
_delete = Store.delete
_exit = Client.__exit__


def point_of(stage: Stage, unit: int) -> str:
    """Return the name of the point that a unit is."""
    number = unit // stage.n_units + 1 if stage.loop else 1
    return stage.kind_name if number == 1 else f"{stage.kind_name}.{number}"


def _folder() -> Path:
    return Path(os.environ[FOLDER_KEY])


def _is_wanted(point: str, moment: str) -> bool:
    wanted, _, when = (_folder() / "wanted").read_text().partition(" ")
    return wanted in (point, EVERY) and when == moment


def _halt(point: str) -> None:
    """Halt, the first time that anybody gets here, until a test lets go."""
    try:
        (_folder() / f"{point}.taken").touch(exist_ok=False)
    except FileExistsError:
        return
    (_folder() / f"{point}.next").write_text(str(os.getpid()))
    (_folder() / f"{point}.next").rename(_folder() / point)
    waiting, waited = threading.Event(), 0.0
    while not (_folder() / f"{point}.go").exists() and waited < _HALT_SECONDS:
        waiting.wait(_LOOK_SECONDS)
        waited += _LOOK_SECONDS


def _attempt_halting(
    context: Context, stage: Stage, unit: int, function: UnitFunction[Any], inputs: str | None
) -> dict[str, Any]:
    if context.store.root is None or getattr(_unit, "point", None):  # one within another ranks in memory
        return _attempt(context, stage, unit, function, inputs)
    point = point_of(stage, unit)
    _, _, batch = context.store.url.partition("/batches/")
    with (_folder() / "starts").open("a") as file:
        file.write(f"{stage.name} {unit}{f' of {batch}' if batch else ''}\n")

    def halting(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any] | None:
        if _is_wanted(point, "begun"):
            _halt(point)
        facts = function(context, parameters, unit)
        if _is_wanted(point, "written"):
            _halt(point)
        return facts

    _unit.point = point
    try:
        return _attempt(context, stage, unit, halting, inputs)
    finally:
        _unit.point = None


def _link_halting(self: Path, target: Any) -> None:
    """Records are put in place by a link, as the first of several stays."""
    is_record = epoch_of(self.name) is not None and "records" in self.parts
    if is_record and getattr(_unit, "point", None) and _is_wanted(_unit.point, "recorded"):
        _halt(_unit.point)
    _link(self, target)


def _replace_halting(self: Path, target: Any) -> Path:
    name = Path(target).name
    for point, made in (("plan", layout.PLAN_JSON), ("report", layout.REPORT_HTML), ("done", layout.RUN_JSON)):
        if name == made and (point != "done" or b'"status": "done"' in self.read_bytes()):
            _halt_driver(point)
    return _replace(self, target)


def _delete_halting(self: Store, name: str) -> None:
    if name.startswith(("rescaled/", "svm/")):
        _halt_driver("clear")
    _delete(self, name)


def _exit_halting(self: Client, *problem: Any) -> None:
    _halt_driver("close")
    _exit(self, *problem)


def _halt_driver(point: str) -> None:
    if (_folder() / "wanted").read_text().partition(" ")[0] == point:
        _halt(point)


def n_executing(dask_worker: Any) -> int:
    """Return how many units a worker runs, also for drivers that are gone."""
    return int(dask_worker.state.executing_count)


def n_tasks(dask_scheduler: Any) -> int:
    """Return how many units a scheduler knows of."""
    return len(dask_scheduler.tasks)


if FOLDER_KEY in os.environ and units._attempt.__module__ == units.__name__:  # once, under one name or another
    units._attempt = _attempt_halting
    Path.replace = _replace_halting  # type: ignore[method-assign, assignment]
    Path.hardlink_to = _link_halting  # type: ignore[method-assign]
    Store.delete = _delete_halting  # type: ignore[method-assign]
    Client.__exit__ = _exit_halting  # type: ignore[method-assign]


def serve() -> None:
    """Start a program for each line of stdin, and print its process id; they all have what this process has imported,
    which takes longer than what they do.
    """
    for name in PRELOADED:
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            _start(**json.loads(line))


def _start(program: str, arguments: list[str], errors: str, ended: str) -> None:
    """Run a program in a session of its own; this process waits for it, and says how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    process = os.fork()
    if process:
        os.write(sys.stdout.fileno(), f"{process}\n".encode())
        _, status = os.waitpid(process, 0)
        Path(f"{ended}.next").write_text(str(os.waitstatus_to_exitcode(status)))
        Path(f"{ended}.next").rename(ended)
        os._exit(0)
    os.setsid()
    for number, path in enumerate((os.devnull, os.devnull, errors)):
        handle = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(handle, number)
        os.close(handle)
    sys.argv = [program, *arguments]
    import_module(program).main()
    sys.exit(0)


if __name__ == "__main__":
    from daskfs.cli import main

    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        main()
