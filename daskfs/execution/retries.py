"""Retries of units that failed transiently, or whose workers died."""

from __future__ import annotations

from collections import Counter

import dask

from daskfs.errors import PassingError, UnitError, first_few

PAUSES = (1.0, 5.0, 30.0, 120.0)
"""Seconds before each retry of a unit that failed transiently, as when a file server is unavailable."""
UNITS_NAMED = 20
"""Maximum number of units that an error names."""


class Retries:
    """Failed units of one stage: when they are retried, and which ones have no attempts left.

    Times are in seconds, of any clock.
    """

    def __init__(self) -> None:
        self._n_failed: Counter[int] = Counter()
        self._n_deaths: Counter[int] = Counter()
        self._due: dict[int, float] = {}
        self._lost: dict[int, PassingError] = {}

    @property
    def next_due(self) -> float | None:
        """Time of the next retry, None if there is none."""
        return min(self._due.values(), default=None)

    def set_aside(self, unit: int, error: PassingError, now: float) -> str:
        """Schedule the retry of a failed unit, if attempts are left; return a message."""
        attempt = self._n_failed[unit]
        self._n_failed[unit] += 1
        if attempt < len(PAUSES):
            self._due[unit] = now + PAUSES[attempt]
            return f"{error}; it is tried again in {PAUSES[attempt]:g} s"
        self._lost[unit] = error
        return f"{error}; it was tried {attempt + 1} times, and other units go on"

    def take_due(self, now: float) -> list[int]:
        """Remove the units whose retry is due, and return them."""
        units = [unit for unit, due in self._due.items() if due <= now]
        for unit in units:
            del self._due[unit]
        return units

    def survives(self, unit: int, n_deaths: int) -> bool:
        """Count deaths of workers that had a unit; return whether it may be resubmitted.

        The limit is that of the driver's configuration; the scheduler of an existing cluster may have a lower one.
        """
        self._n_deaths[unit] += n_deaths
        return self._n_deaths[unit] <= int(dask.config.get("distributed.scheduler.allowed-failures"))

    def forget(self) -> None:
        """Cancel all retries."""
        self._due.clear()

    def check(self) -> None:
        """Raise :class:`UnitError`, naming the units, if any failed in all attempts."""
        if not self._lost:
            return
        (_, error), *others = sorted(self._lost.items())
        named = first_few([str(unit) for unit, _ in others], UNITS_NAMED)
        more = f"; so did, in the same stage, unit{'s' * (len(others) > 1)} {named}." if others else ""
        lasting = UnitError(f"{error}{more}")
        lasting.failure = error.failure
        raise lasting from error
