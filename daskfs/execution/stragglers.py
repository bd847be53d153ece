"""How long the units of a stage take, and which of those that run take much longer."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import median

FEWEST, RECENT = 3, 500
"""Ended units that say how long one takes, at least, and at most: the last ones."""
COPIED_TIMES, COPIED_SECONDS = 3.0, 5.0
"""A unit runs a second time, when nothing else is left to run, after so many times as long as others, and no sooner."""
TOLD_TIMES, TOLD_SECONDS = 10.0, 60.0
"""It is told of after so many times as long as others took, and no sooner."""


class Pace:
    """Seconds that ended units took, and since when each of the others may have been running.

    A unit may have waited at its worker until the last one there ended: its clock begins anew then. Times are those of
    any clock, in seconds.
    """

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=RECENT)
        self._since: dict[str, tuple[str, float]] = {}

    def add(self, seconds: float) -> None:
        """Take up how long a unit took."""
        self._seconds.append(seconds)

    def see(self, workers: Mapping[str, str], now: float) -> None:
        """Take up which worker has which unit now, by its key."""
        before = self._since
        self._since = {
            key: before[key] if before.get(key, ("",))[0] == worker else (worker, now)
            for key, worker in workers.items()
        }

    def end(self, key: str, now: float) -> None:
        """Take up that a unit ended: others at its worker may have waited until now."""
        ended = self._since.pop(key, ("", now))[0]
        for other, (worker, _) in self._since.items():
            if worker == ended:
                self._since[other] = (worker, now)

    def seconds(self, key: str, now: float) -> float:
        """Return how long a unit may have been running, at least."""
        return now - self._since[key][1] if key in self._since else 0.0

    @property
    def usual(self) -> float:
        """How long a unit takes, infinite where too few have ended."""
        return median(self._seconds) if len(self._seconds) >= FEWEST else math.inf

    def is_copied_after(self, seconds: float) -> bool:
        """Return whether a unit that has been running so long is to run a second time, elsewhere."""
        return seconds > max(COPIED_TIMES * self.usual, COPIED_SECONDS)

    def is_told_after(self, seconds: float) -> bool:
        """Return whether a unit that has been running so long is to be told of."""
        return seconds > max(TOLD_TIMES * self.usual, TOLD_SECONDS)
