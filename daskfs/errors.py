"""Exceptions of daskfs, arranged by what the caller can do about them, and the exit code of each.

Every class survives pickling, because errors cross from worker to driver processes. Classes that describe a bad
value also inherit :class:`ValueError`, as scikit-learn users expect.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the ``daskfs`` command. SLURM scripts and Kubernetes pod failure policies act on them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    INPUT = 3
    CLUSTER = 4
    INTERRUPTED = 75


class DaskfsError(Exception):
    """Base class. ``exit_code`` is what the command line returns for it."""

    exit_code = ExitCode.FAILED


class InputError(DaskfsError, ValueError):
    """The data cannot be used as they are; the message names the column, row range or file."""

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
    """Something that daskfs wrote into a store is damaged or missing; what was damaged has been removed, so that it
    counts as not done.

    Attributes
    ----------
    paths
        Of what has to be made again; none in a store that is in memory.
    """

    def __init__(self, message: str, paths: Iterable[object] = ()) -> None:
        super().__init__(message)
        self.paths = tuple(map(str, paths))


class WriteError(DaskfsError):
    """Something cannot be written, and trying again would not help: the disk is full, or nobody may write there. What
    is finished is recorded; the same command goes on once there is room.
    """

    exit_code = ExitCode.FAILED


class ClusterError(DaskfsError):
    """The cluster cannot be reached, has no workers, or lost them for good."""

    exit_code = ExitCode.CLUSTER


class UnitError(DaskfsError):
    """One unit of a stage failed for a reason that is not the input's; the message names the unit."""

    exit_code = ExitCode.FAILED


class PassingError(UnitError):
    """One unit failed for a reason that may pass, such as a server of files that does not answer.

    Attributes
    ----------
    worker
        Address of the worker that ran it, where one did.
    """

    worker = ""


class RunStoppedError(DaskfsError):
    """The run was asked to stop. What is finished is recorded; the same command goes on from there."""

    exit_code = ExitCode.INTERRUPTED


def nearest(name: str, valid: list[str] | tuple[str, ...]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest of `valid` to `name`, or an empty string."""
    import difflib

    folded = {candidate.lower().replace("_", ""): candidate for candidate in valid}
    match = difflib.get_close_matches(name.lower().replace("_", ""), list(folded), n=1, cutoff=0.5)
    return f" Did you mean '{folded[match[0]]}'?" if match else ""
