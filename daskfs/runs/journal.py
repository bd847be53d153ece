"""Journal of a run: what is shown of it is also logged, and kept in ``events.jsonl``."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from typing import Any

from daskfs.errors import StoreError, WriteError
from daskfs.execution.progress import Progress
from daskfs.redaction import redact_credentials
from daskfs.stages.stage import Stage
from daskfs.storage import StoragePath
from daskfs.store.log import Log

logger = logging.getLogger(__name__)
UNIT_MARK = b'"event": "unit",'
"""Part of the lines of finished units, which are most."""
MAX_EARLY = 100
"""Maximum number of events that are kept in memory before a log is opened."""


class Journal(Progress):
    """Progress of a run that is shown on a display and kept in a log.

    Each line of the log is a JSON object with ``time`` (seconds since 1970) and ``event``; ``unit`` is the event of a
    finished unit. Events from before :meth:`open` are added when the log is opened.
    """

    def __init__(self, display: Progress) -> None:
        self.display = display
        self._log: Log | None = None
        self._check: Callable[[], None] = lambda: None
        self._early: deque[str] = deque(maxlen=MAX_EARLY)

    def open(self, log: Log, check: Callable[[], None]) -> None:
        """Keep events in a log, after `check`, which raises if the directory is no longer that of this run."""
        self._log, self._check = log, check
        while self._early:
            self._add(self._early.popleft())

    def message(self, text: str, event: str = "message", **facts: Any) -> None:
        """Show a line, unless it is empty, and keep the event with its facts."""
        logger.info("%s", text or f"{event} {facts}", extra={"is_shown": bool(text)})
        with suppress(OSError, StoreError, WriteError):  # the disk may be full, or gone, which the message tells
            self._keep(event, text=text, **facts)
        if text:
            self.display.message(text)

    def start_stage(self, stage: Stage, n_pending: int) -> None:
        """Begin a stage with `n_pending` units left, or a loop with its first stage."""
        self.display.start_stage(stage, n_pending)
        self.message("", "stage_started", stage=stage.name, units=n_pending)

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        """Count a finished unit; raise :class:`WriteError` if it cannot be kept."""
        self.display.unit_done(stage, unit, facts)
        logger.debug("unit %d of stage %s is done: %s", unit, stage.name, facts)
        self._keep("unit", stage=stage.name, unit=unit, **facts)

    def close(self) -> None:
        """End the display."""
        self.display.close()

    def _keep(self, event: str, **facts: Any) -> None:
        printable = {
            key: redact_credentials(v) if isinstance(v, str) else v for key, v in facts.items() if v not in ("", None)
        }
        line = json.dumps({"time": round(time.time(), 3), "event": event, **printable}, default=str)
        if self._log is None:
            self._early.append(line)
        else:
            self._add(line)

    def _add(self, line: str) -> None:
        assert self._log is not None
        self._check()
        self._log.add(line)


def read_activity(path: StoragePath, recorded: Mapping[str, Set[int]]) -> dict[str, Any]:
    """Return the units at work and the failures in the last driver's log.

    `recorded` are the units of each stage that are done. The keys are those of :func:`daskfs.runs.status.run_status`.
    """
    begun: dict[tuple[str, int], str] = {}
    slow, retries, failures = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for event in _events(path):
        kind, unit = event["event"], (str(event.get("stage")), int(event.get("unit", -1)))
        if kind == "run_started":
            begun, slow, retries, failures = {}, [], [], []
        elif kind in ("done", "failed", "stopped"):
            begun, slow = {}, []
            failures += [event] if kind == "failed" else []
        elif kind == "retry":
            begun.pop(unit, None)
            retries.append(event)
        elif unit[1] in recorded.get(unit[0], ()):
            continue
        elif kind == "unit_started":
            begun[unit] = event.get("worker", "this process")
        elif kind == "slow":
            slow.append({key: event[key] for key in ("stage", "unit", "worker", "since")})
    workers: dict[str, list[dict[str, Any]]] = {}
    for (stage, number), worker in begun.items():
        if number not in recorded.get(stage, ()):
            workers.setdefault(worker, []).append({"stage": stage, "unit": number})
    return {"workers": workers, "slow": slow, "retries": retries, "failures": failures}


def last_unit(path: StoragePath) -> float | None:
    """Return the time of the last unit in a log, in seconds since 1970; None if there is none."""
    for line in reversed(path.read_own().splitlines()):
        with suppress(ValueError):  # the last line of a killed writer
            if UNIT_MARK in line:
                return float(json.loads(line)["time"])
    return None


def _events(path: StoragePath) -> Iterator[dict[str, Any]]:
    """Yield the events of a log, but those of finished units, which are most."""
    try:
        lines = path.read_own().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        with suppress(ValueError):  # the last line of a killed writer
            if UNIT_MARK not in line and isinstance(event := json.loads(line), dict) and "event" in event:
                yield event
