"""Exceptions and warnings of daskfs, grouped by what the caller can do about them, with exit codes.

Every class can be pickled, because workers send errors to the driver. Classes that describe a bad value also inherit
:class:`ValueError`, as scikit-learn users expect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the ``daskfs`` command. SLURM scripts and Kubernetes pod failure policies act on them.

    `CLUSTER` is for what passes: a cluster without workers, an output that another process uses.
    """

    DONE = 0
    FAILED = 1
    USAGE = 2
    INPUT = 3
    CLUSTER = 4
    INTERRUPTED = 75


class DaskfsError(Exception):
    """Base class; ``exit_code`` is the exit code of the command line.

    Attributes
    ----------
    failure
        Path of the file of a run that holds the traceback; empty if there is none.
    """

    exit_code = ExitCode.FAILED
    failure = ""


class InputError(DaskfsError, ValueError):
    """The data are invalid; the message names the column, row range or file."""

    exit_code = ExitCode.INPUT


class JobError(DaskfsError, ValueError):
    """The job file, an override or an argument is wrong; the message names the key."""

    exit_code = ExitCode.USAGE


class MemoryPlanError(DaskfsError, ValueError):
    """A stage cannot fit in a worker's memory; the message gives both sizes and the setting to change."""

    exit_code = ExitCode.USAGE


class StoreError(DaskfsError):
    """A run or tile store is damaged, of another version, or belongs to another job."""

    exit_code = ExitCode.INPUT


class DamagedError(StoreError):
    """Outputs in a store are damaged or missing; damaged ones have been deleted, so that their units count as not done.

    Attributes
    ----------
    paths
        Files that have to be written again; empty for a store in memory.
    """

    def __init__(self, message: str, paths: Iterable[object] = ()) -> None:
        super().__init__(message)
        self.paths = tuple(map(str, paths))


class InUseError(StoreError):
    """Another process of daskfs has, or has taken over, the directory; the same command succeeds when that has ended.

    Batch systems start a second driver while the first one still ends, so the exit code is one that they try again.
    """

    exit_code = ExitCode.CLUSTER


class WriteError(DaskfsError):
    """A write failed and a retry would not help: the disk is full or not writable.

    Finished units are recorded; once the cause is removed, the same command resumes.
    """


class ClusterError(DaskfsError):
    """The cluster cannot be reached, has no workers, or lost them for good."""

    exit_code = ExitCode.CLUSTER


class UnitError(DaskfsError):
    """One unit of a stage failed, and the input is not the cause; the message names the unit."""


class PassingError(UnitError):
    """One unit failed for a reason that may be transient, such as a file server that does not answer.

    Attributes
    ----------
    worker
        Address of the worker that ran the unit; empty without one.
    """

    worker = ""


class RunStoppedError(DaskfsError):
    """The run was asked to stop. Finished units are recorded; the same command resumes."""

    exit_code = ExitCode.INTERRUPTED


class DaskfsWarning(UserWarning):
    """Base class of all warnings of daskfs, for filters; the message says what limits a result, and what to do."""


class DaskfsFutureWarning(DaskfsWarning, FutureWarning):
    """A key, parameter or value has another name now; the message gives it."""


def first_few(names: Sequence[str], limit: int) -> str:
    """Return at most `limit` names for a message, and how many more there are."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def nearest(name: str, valid: list[str] | tuple[str, ...]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest of `valid` to `name`, or an empty string."""
    import difflib

    folded = {candidate.lower().replace("_", ""): candidate for candidate in valid}
    match = difflib.get_close_matches(name.lower().replace("_", ""), list(folded), n=1, cutoff=0.5)
    return f" Did you mean '{folded[match[0]]}'?" if match else ""
