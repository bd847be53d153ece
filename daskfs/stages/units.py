"""Execution of one unit, up to its record. The same call serves a Dask worker, the driver and tests."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from daskfs.errors import DaskfsError, PassingError, StoreError, UnitError
from daskfs.logs import set_log_level
from daskfs.redaction import redact_credentials
from daskfs.sources.collection import Layout, given_blocks
from daskfs.stages.cost import MiB
from daskfs.stages.failures import HANDLED, write_unit_failure
from daskfs.stages.kind import UnitFunction, kind_of
from daskfs.stages.memory import peak_bytes, release_freed, reset_peak
from daskfs.stages.processors import computed_by
from daskfs.stages.requirements import Versions, check_room, check_versions
from daskfs.stages.stage import Plan, Stage
from daskfs.storage import AccessRows, StoragePath, apply_access, as_path
from daskfs.store import layout as files
from daskfs.store.arrays import counted_bytes
from daskfs.store.context import Context
from daskfs.store.second_look import take_passed
from daskfs.store.store import Store, stored_chunks

logger = logging.getLogger(__name__)
LASTING = (PermissionError, NotADirectoryError, IsADirectoryError)
"""File errors that a retry does not fix."""
MEASURED = ("seconds", "peak_bytes", "bytes_read", "bytes_written", "process", "computed_by", "ended", "read_again")
"""Keys of a unit's record that describe the call, not the result."""


def create_arrays(context: Context, stages: Iterable[Stage]) -> None:
    """Create the arrays that several units of a stage write to; a unit creates all others."""
    for stage in stages:
        if (create := kind_of(stage.kind).arrays) is not None:
            create(context, stage.parameters)


ArrayPlan = tuple[tuple[int, ...], Any, tuple[int, ...]]
"""Shape, dtype and chunk shape of an array."""


class _Asked(Store):
    """Records requested arrays instead of creating them."""

    def __init__(self, root: StoragePath | None) -> None:
        super().__init__(root)
        self.arrays: dict[str, ArrayPlan] = {}

    def create(self, name: str, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...]) -> None:
        self.arrays[name] = (shape, dtype, stored_chunks(shape, dtype, chunks))


def shared_arrays(context: Context, stages: Iterable[Stage]) -> dict[str, ArrayPlan]:
    """Return by name the arrays that several units of a stage write to, including those that are cleared later."""
    recording = _Asked(context.store.root)
    create_arrays(context.with_store(recording), stages)
    return recording.arrays


@lru_cache(maxsize=4)
def _plan_of(url: str, identity: str, reached: AccessRows) -> Plan:
    del reached  # part of the cache key
    raw = Store(as_path(url)).read_json(files.PLAN_JSON)
    if raw is None:
        msg = (
            f"{url} holds no plan as seen from {socket.gethostname()}: the run's directory must be shared with "
            "the workers."
        )
        raise StoreError(msg)
    plan = Plan.from_json(raw, url)
    if plan.identity != identity:
        msg = f"{url} holds another plan than the one that is running: did another run start over in it?"
        raise StoreError(msg)
    return plan


@lru_cache(maxsize=4)
def _context_of(url: str, identity: str, epoch: str, reached: AccessRows) -> Context:
    del identity, reached
    return Context(Store(as_path(url), epoch))


_contexts: list[Context] = []
"""Context of the last unit; only its run may cache values in this process."""


def run_stored_unit(  # noqa: PLR0913 - workers of any version read plain values
    url: str,
    identity: str,
    epoch: str,
    stage_name: str,
    unit: int,
    inputs: str | None,
    reached: AccessRows = (),
    versions: Versions = (),
    layout: Layout | None = None,
    blocks: Sequence[Sequence[Any]] = (),
    *,
    is_joined: bool = False,
    log_level: str = "",
) -> None:
    """Run one unit of a stored plan, unless it is recorded.

    This function is submitted to the cluster, which may run it again if the worker that ran it dies.

    Parameters
    ----------
    url
        Run store, or the tile store that is filled.
    identity
        Identity of the plan there, so that workers do not use a stale cached plan.
    epoch
        Name of the epoch of the driver, see :class:`daskfs.store.epoch.Epoch`.
    stage_name, unit
        Name of the stage, and number of the unit.
    inputs
        Digest of the outputs of the previous stages, which the unit reads.
    reached
        Access settings of the driver for buckets; credentials are those of this process.
    versions
        Driver's versions of all libraries that affect results.
    layout, blocks
        Of a unit that reads a dask collection: its layout, and the rows of blocks that the unit needs, each behind its
        number.
    is_joined
        Whether the worker belongs to an existing cluster, which sets its memory limit.
    log_level
        Level of the log of daskfs in this process, on stderr; empty to leave it.

    Raises
    ------
    ClusterError
        If this worker has other versions, or less memory than units were planned for.
    StoreError
        If the store holds no plan, or another one.
    DaskfsError
        As :func:`run_unit` does.
    """
    set_log_level(log_level)
    check_versions(versions)
    apply_access(reached)
    context = _context_of(url, identity, epoch, reached)
    for other in _contexts:
        if other is not context:
            other.holdings.keep_only("")
    _contexts[:] = [context]
    context.store.epoch.check()
    stage = _plan_of(url, identity, reached).stage(stage_name)
    if is_joined:
        check_room(stage)
    if context.store.record_files.written(stage.name, unit, stage.fingerprint) is not None:
        return
    logger.debug("unit %d of stage %s begins", unit, stage_name)
    try:
        with given_blocks(layout, blocks):
            run_unit(context, stage, unit, inputs)
    except PassingError as error:
        from distributed import get_worker

        with suppress(ValueError):  # not on a worker
            error.worker = get_worker().address
        raise


def run_unit(context: Context, stage: Stage, unit: int, inputs: str | None = None) -> dict[str, Any]:
    """Run one unit, write its record last, and return its measurements: seconds, bytes, peak memory.

    `inputs` is the digest of the outputs of the previous stages, None in a store without digests.

    Raises
    ------
    DaskfsError
        As the unit raised it, with a note that names the unit.
    PassingError
        For a failed read or write that a retry may fix.
    UnitError
        For any other error, naming stage and unit. The attribute ``failure`` of all names the file that is written
        about the outermost unit.
    """
    context.enter(inputs)
    is_nested = is_within_unit()
    try:
        return _attempt(context, stage, unit, kind_of(stage.kind).run, inputs)
    except Exception as error:
        failure = _failure_of(stage, unit, error)
        if not is_nested and not isinstance(error, HANDLED):
            failure.failure = write_unit_failure(context.store, stage, unit, inputs, error)
            logger.info("%s", failure)
        if failure is error:
            raise
        raise failure from error


def _failure_of(stage: Stage, unit: int, error: Exception) -> DaskfsError:
    """Return the error that ends a unit: one of daskfs itself, with a note, else one that names the unit."""
    if isinstance(error, DaskfsError):
        error.add_note(f"(in unit {unit} of stage {stage.name})")
        return error
    message = failure_message(stage, unit, error)
    if isinstance(error, OSError) and not isinstance(error, LASTING):
        return PassingError(message)
    memory = f" It was planned at {stage.peak_bytes // MiB} MiB." if isinstance(error, MemoryError) else ""
    return UnitError(message + memory)


def is_within_unit() -> bool:
    """Return whether this thread is running a unit."""
    return getattr(_inside, "unit", False)


def failure_message(stage: Stage, unit: int, error: BaseException) -> str:
    """Return the error message for a failed unit."""
    message = f"unit {unit} of stage {stage.name} failed: {type(error).__name__}: {error}"
    return redact_credentials(message)  # Dask logs it


def _attempt(
    context: Context, stage: Stage, unit: int, function: UnitFunction[Any], inputs: str | None
) -> dict[str, Any]:
    context.holdings.keep_only(stage.loop or stage.holds, unit // stage.n_units)
    with _outermost() as is_outermost, context.store.outputs.collect() as outputs, counted_bytes() as counted:
        if is_outermost:
            release_freed()
            reset_peak()
        started = time.perf_counter()
        try:
            facts = function(context, stage.parameters, unit) or {}
        finally:  # results from replaced tiles are neither recorded nor treated as damage
            context.check_tiles()
        measured: dict[str, Any] = {
            "seconds": round(time.perf_counter() - started, 4),
            "peak_bytes": peak_bytes() if is_outermost else 0,
            "bytes_read": counted.read,
            "bytes_written": counted.written,
            "process": os.getpid(),
            "computed_by": computed_by(),
            "ended": round(time.time(), 3),
        }
    if read_again := take_passed():
        measured["read_again"] = read_again
    whose = {"stage": stage.name, "unit": unit, "fingerprint": stage.fingerprint, "inputs": inputs}
    context.store.records.write({**whose, **outputs.to_json(), "facts": facts, **measured})
    return measured


_inside = threading.local()


@contextmanager
def _outermost() -> Iterator[bool]:
    """Yield whether the unit is not nested in another one, which ranks in memory; both share one peak."""
    is_outermost = not is_within_unit()
    _inside.unit = True
    try:
        yield is_outermost
    finally:
        _inside.unit = not is_outermost
