"""What surrounds a run: limits of its process, the clock, and sources that change while it is interrupted."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from tests.cli.test_moved_runs import KINDS
from tests.torture.tracing import daskfs_command
from tests.torture.trials import STOPPED, Run, StuckError, Trial

LIMITS = {
    "open files": (resource.RLIMIT_NOFILE, 20, 120),
    "size of a file": (resource.RLIMIT_FSIZE, 1, 60_000),
    "address space": (resource.RLIMIT_AS, 35 * 10**7, 4 * 10**9),
}
"""Limits of a process, each with the range from which its number is drawn.

Below them Python does not start, or the import of SciPy's OpenBLAS waits for memory for ever. With little address space
other libraries end the process (pyarrow, jemalloc), or Python itself fails while it reports an error.
"""
DAYS = 500
"""The clock of a resume is ahead or behind by up to so many days."""


def _daskfs(
    run: Run, before: Callable[[], None] | None = None, prefix: tuple[str, ...] = (), *, may_abort: bool = False
) -> str:
    """Run the job in a process of its own, and return how it ended."""
    command = [*prefix, *daskfs_command("run", run.job, "-q")]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, preexec_fn=before, timeout=60, check=False)
    except subprocess.TimeoutExpired as error:
        raise StuckError(str(error.stderr)) from error
    if not may_abort and ("Traceback" in ended.stderr or ended.returncode < 0):
        msg = f"{command} ended with {ended.returncode}: {ended.stderr}"
        raise AssertionError(msg)
    return f"{' '.join(prefix)} code {ended.returncode}: {ended.stderr}"


def limited_trials(folder: Path, number: int, seed: int) -> Iterator[Trial]:
    """Yield as many trials of jobs that go on within limits of the process, and then without."""
    draw = random.Random(seed)
    for place, run in enumerate(_runs(folder, number)):
        how = list(LIMITS)[place % len(LIMITS)]
        limit, low, high = LIMITS[how]
        bound = round(low * (high / low) ** draw.random())

        def act(run: Run = run, how: str = how, limit: int = limit, bound: int = bound) -> str:
            try:
                set_limit = partial(resource.setrlimit, limit, (bound, bound))
                return f"{bound}: {_daskfs(run, set_limit, may_abort=how == 'address space')}"
            except StuckError as error:
                msg = f"{bound}: {error}"
                raise StuckError(msg) from error

        yield run.attempt("limits", how, act)


def clock_trials(folder: Path, number: int, seed: int) -> Iterator[Trial]:
    """Yield as many trials of jobs that go on with a clock that is ahead or behind."""
    draw = random.Random(seed)
    for run in _runs(folder, number):
        days = draw.uniform(-DAYS, DAYS)
        prefix = ("faketime", "-f", f"{days:+.3f}d")
        how = "ahead" if days > 0 else "behind"
        yield run.attempt("clock", how, partial(_daskfs, run, prefix=prefix))


# ------------------------------------------------------------------------------------------------------------- sources
def _value(path: Path) -> None:
    """Write other values of the same size."""
    with np.load(path) as members:
        found = dict(members)
    found["X"][[0, -1]] += 1
    np.savez(path, **found)


def _value_at_once(path: Path) -> None:
    """Write other values, and set the time back."""
    times = path.stat()
    _value(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _copy(path: Path) -> None:
    """Put a copy in its place, with its times."""
    shutil.copy2(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)


def _rows(path: Path) -> None:
    """Write fewer rows."""
    with np.load(path) as members:
        np.savez(path, **{name: values[:-1] for name, values in members.items()})


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGES: dict[str, Callable[[Path], None]] = {
    "other values": _value,
    "other values at the same time": _value_at_once,
    "a copy": _copy,
    "fewer rows": _rows,
    "touched": os.utime,
    "other permissions": lambda path: path.chmod(0o400),
    "cut": _cut,
    "deleted": Path.unlink,
    "a pipe": _pipe,
}


def source_trials(folder: Path, number: int, seed: int) -> Iterator[Trial]:
    """Yield as many trials of jobs that go on after their sources changed."""
    draw = random.Random(seed)
    for place, run in enumerate(_runs(folder, number)):
        how = list(CHANGES)[place % len(CHANGES)]

        def act(run: Run = run, how: str = how) -> str:
            path = run.work / "a.npz"
            if draw.random() < 0.5:  # beside data that stay as they are
                path = run.work / "a.txt"
            if path.suffix == ".txt" and CHANGES[how] in (_value, _value_at_once, _rows):
                path = run.work / "a.npz"
            CHANGES[how](path)
            return f"{path.name} {how}"

        yield run.attempt("source", how, act)


def _runs(folder: Path, number: int) -> Iterator[Run]:
    """Yield runs of all kinds and states, whole, in turn."""
    pairs = [(kind, state) for kind in KINDS for state in STOPPED]
    runs: dict[int, Run] = {}
    for place in range(number):
        one = (place * 7) % len(pairs)
        if one not in runs:
            runs[one] = Run(folder / str(one), *pairs[one])
        yield runs[one]
