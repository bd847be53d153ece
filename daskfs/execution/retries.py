"""When units come again that failed for a reason that may pass, or whose workers died."""

from __future__ import annotations

from collections import Counter

import dask

from daskfs.errors import PassingError, UnitError

PAUSES = (1.0, 5.0, 30.0, 120.0)
"""Seconds before a unit is tried again that failed for a reason that may pass, as a server of files may be away."""
NAMED = 20
"""Units that an error names by number."""


class Retries:
    """Units of one stage that failed: when they are tried again, and which ones are not any more.

    Times are those of any clock, in seconds.
    """

    def __init__(self) -> None:
        self._n_failed: Counter[int] = Counter()
        self._n_deaths: Counter[int] = Counter()
        self._due: dict[int, float] = {}
        self._lost: dict[int, PassingError] = {}

    @property
    def next_due(self) -> float | None:
        """When the next unit is due that has been set aside, None where there is none."""
        return min(self._due.values(), default=None)

    def set_aside(self, unit: int, error: PassingError, now: float) -> str:
        """Set a unit aside that has failed; return what to say of it."""
        attempt = self._n_failed[unit]
        self._n_failed[unit] += 1
        if attempt < len(PAUSES):
            self._due[unit] = now + PAUSES[attempt]
            return f"{error}; it is tried again in {PAUSES[attempt]:g} s"
        self._lost[unit] = error
        return f"{error}; it was tried {attempt + 1} times, and other units go on"

    def take_due(self, now: float) -> list[int]:
        """Return the units whose time has come, which are set aside no longer."""
        units = [unit for unit, due in self._due.items() if due <= now]
        for unit in units:
            del self._due[unit]
        return units

    def survives(self, unit: int, n_deaths: int) -> bool:
        """Count deaths of workers that had a unit; return whether it may come again.

        The limit is that of the driver's configuration; a scheduler that daskfs has joined may have given up earlier.
        """
        self._n_deaths[unit] += n_deaths
        return self._n_deaths[unit] <= int(dask.config.get("distributed.scheduler.allowed-failures"))

    def forget(self) -> None:
        """Try nothing again."""
        self._due.clear()

    def check(self) -> None:
        """Raise :class:`UnitError` where units were tried in vain; it names them."""
        if not self._lost:
            return
        (_, error), *others = sorted(self._lost.items())
        if not others:
            raise UnitError(str(error)) from error
        named = ", ".join(str(unit) for unit, _ in others[:NAMED])
        more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        raise UnitError(f"{error}; so did, in the same stage, unit{'s' * (len(others) > 1)} {named}{more}.") from error
