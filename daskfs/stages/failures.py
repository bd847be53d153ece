"""Files about failures, ``failures/STAGE-UNIT-EPOCH-ATTEMPT.txt`` of a unit and ``failures/run.txt`` of the rest.

Whoever finds a failed run looks here for the line that failed: the message of an error names the unit only.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import socket
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from importlib.metadata import version
from typing import Any

from daskfs.errors import DamagedError, DaskfsError, InUseError, RunStoppedError
from daskfs.redaction import redact_credentials, strip_control_characters
from daskfs.stages.requirements import installed_versions
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.store import Store

HANDLED = (DamagedError, InUseError, RunStoppedError)
"""Errors that are no failures: damaged files are made again, and others take over or go on."""
MAX_FILES = 100
"""Maximum number of files of a run: units that all fail in one way fill no disk."""
MAX_FAILURE_BYTES = 2**16
"""Maximum size of a file; of a longer one the middle is left out."""
MAX_PARAMETERS = 2**13
"""Maximum number of characters of the parameters of a stage."""
BATCH_JOBS = ("SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID", "KUBERNETES_SERVICE_HOST", "PBS_JOBID", "LSB_JOBID")
"""Environment variables that say in which job of a batch system a process runs."""


def traceback_of(error: BaseException) -> str:
    """Return the full chained traceback, without credentials and control characters but line breaks."""
    return _safe("".join(traceback.format_exception(error)))


def write_unit_failure(
    store: Store, stage: Stage, unit: int, inputs: str | None, error: BaseException, more: Mapping[str, Any] = {}
) -> str:
    """Write a file about a failed attempt of a unit.

    `more` are facts about the worker, of a unit whose worker died. Return the path of the file; empty for a store in
    memory, if there are enough files, or if it cannot be written.
    """
    facts = {
        "stage": f"{stage.name}, of kind {stage.kind_name}",
        "unit": f"{unit} of {stage.n_units}, planned at {stage.peak_bytes} bytes",
        "inputs": inputs,
        "parameters": json.dumps(stage.parameters.to_json())[:MAX_PARAMETERS],
    }
    return _write(store, f"{stage.name}-{unit}-{store.epoch.name}-", {**facts, **more}, error)


def name_failure(store: Store, error: Exception) -> None:
    """Name in an error, by a note, the file about it; write ``failures/run.txt`` first if it is not of a unit."""
    path = getattr(error, "failure", "")
    if not path and not isinstance(error, HANDLED):
        path = _write(store, "run", {}, error)
    if path and f"({path})" not in getattr(error, "__notes__", ()):
        error.add_note(f"({path})")
    if isinstance(error, DaskfsError):
        error.failure = path


def described(error: BaseException) -> str:
    """Return the message of an error with its notes; of one that is not daskfs's, with its type.

    Where the address space of the process is limited, libraries fail in many ways: the limit is named, too.
    """
    text = str(error)
    if not isinstance(error, (DaskfsError, OSError)):
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        lacking = "" if limit == resource.RLIM_INFINITY else f" (ulimit -v: {limit / 2**30:.2g} GiB of address space)"
        text = f"{type(error).__name__}: {text}{lacking}"
    return " ".join([text, *getattr(error, "__notes__", ())])


def _write(store: Store, prefix: str, facts: Mapping[str, Any], error: BaseException) -> str:
    if store.root is None:
        return ""
    root = store.root
    if root.name == layout.TILES_DIR and (root.parent / layout.RUN_JSON).is_there():
        root = root.parent  # the tiles of a run
    folder = root.own_folder(layout.FAILURES_DIR)
    with suppress(OSError, DaskfsError):  # a full disk, or a directory that another run has taken over
        if not store.epoch.may_change():
            return ""
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        attempt = 1 + sum(name.startswith(prefix) for name in names)
        path = root / layout.FAILURE.format(prefix if prefix == "run" else f"{prefix}{attempt}")
        if len(names) >= MAX_FILES and path.name not in names:
            return ""
        path.put(_text(facts, error), synced=False)
        if len(list(folder.iterdir())) <= MAX_FILES:
            return str(path)
        path.unlink()  # other workers wrote meanwhile
    return ""


def _text(facts: Mapping[str, Any], error: BaseException) -> bytes:
    worker = sys.modules.get("distributed.worker")
    address = ""
    if worker is not None:
        with suppress(ValueError):  # not on a worker
            address = worker.get_worker().address
    versions = (("Python", platform.python_version()), ("dask", version("dask")), *installed_versions())
    lines = {
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "process": os.getpid(),
        "worker": address,
        "job": ", ".join(f"{name}={os.environ[name]}" for name in BATCH_JOBS if name in os.environ),
        "versions": ", ".join(map(" ".join, versions)),
        **facts,
    }
    head = _safe("".join(f"{key}: {value}\n" for key, value in lines.items() if value not in ("", None)))
    data = f"{head}\n{traceback_of(error)}".encode()
    if len(data) > MAX_FAILURE_BYTES:
        half = MAX_FAILURE_BYTES // 2 - 16
        data = data[:half] + b"\n[...]\n" + data[-half:]
    return data


def _safe(text: str) -> str:
    return "\n".join(strip_control_characters(redact_credentials(line)) for line in text.split("\n"))
