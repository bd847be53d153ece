"""Durations of the units of a stage, and detection of stragglers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import median

FEWEST, RECENT = 3, 500
"""Minimum number of ended units for an estimate, and number of most recent ones that it uses."""
COPIED_TIMES, COPIED_SECONDS = 3.0, 5.0
"""A unit is duplicated, if nothing else is left to run, after this multiple of the median and at least these seconds.
"""
TOLD_TIMES, TOLD_SECONDS = 10.0, 60.0
"""A unit is reported after this multiple of the median and at least these seconds."""


class Pace:
    """Durations of ended units, and latest possible starts of running ones.

    A unit may have waited at its worker until another one there ended, so its clock restarts then. Times are in
    seconds, of any clock.
    """

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=RECENT)
        self._usual: float | None = math.inf
        self._since: dict[str, tuple[str, float]] = {}
        self._at: dict[str, set[str]] = {}

    def add(self, seconds: float) -> None:
        """Add the duration of an ended unit."""
        self._seconds.append(seconds)
        self._usual = None

    def see(self, workers: Mapping[str, str], now: float) -> None:
        """Update the worker of each running unit, by key."""
        before = self._since
        self._since = {
            key: before[key] if before.get(key, ("",))[0] == worker else (worker, now)
            for key, worker in workers.items()
        }
        self._at = {}
        for key, worker in workers.items():
            self._at.setdefault(worker, set()).add(key)

    def end(self, key: str, now: float) -> None:
        """Note the end of a unit: others at its worker may have waited until now."""
        worker, _ = self._since.pop(key, ("", now))
        others = self._at.get(worker, set())
        others.discard(key)
        self._since.update(dict.fromkeys(others, (worker, now)))

    def seconds(self, key: str, now: float) -> float:
        """Return the minimum seconds that a unit has been running."""
        return now - self._since[key][1] if key in self._since else 0.0

    @property
    def usual(self) -> float:
        """Median seconds of a unit, infinite if too few have ended."""
        if self._usual is None:
            self._usual = median(self._seconds) if len(self._seconds) >= FEWEST else math.inf
        return self._usual

    def is_copied_after(self, seconds: float) -> bool:
        """Return whether a unit that has been running for `seconds` is to be duplicated on another worker."""
        return seconds > max(COPIED_TIMES * self.usual, COPIED_SECONDS)

    def is_told_after(self, seconds: float) -> bool:
        """Return whether a unit that has been running for `seconds` is to be reported."""
        return seconds > max(TOLD_TIMES * self.usual, TOLD_SECONDS)
