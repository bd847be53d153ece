"""What the units of a loop keep in the memory of their process from one round to the next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Value = TypeVar("Value")


class Holdings:
    """Values of one owner at a time, up to a number of bytes.

    What does not fit is made again each time. Nothing gives way within a round: of values that come round in turn, the
    one unused for longest is the next to be needed. What a whole round has not used goes, as its units run elsewhere.
    """

    def __init__(self) -> None:
        self._owner = ""
        self._values: dict[Any, tuple[Any, int]] = {}
        self._bytes = 0
        self._round = 0
        self._used: set[Any] = set()
        self._lock = threading.Lock()

    def keep_only(self, owner: str, number: int = 0) -> None:
        """Let go of what another owner holds, and, when its first unit of a later round comes, of what the units of the
        last round that came here have not used.
        """
        with self._lock:
            if owner != self._owner:
                self._owner, self._values, self._bytes = owner, {}, 0
            elif number <= self._round:
                return
            for key in self._values.keys() - self._used:
                self._bytes -= self._values.pop(key)[1]
            self._round, self._used = number, set()

    def get(self, key: Any, limit: int, size: Callable[[Value], int], make: Callable[[], Value]) -> Value:
        """Return the value of a key: as it is held, or made, and held from then on if all values together stay within
        `limit` bytes.
        """
        with self._lock:
            self._used.add(key)
            if key in self._values:
                held: Value = self._values[key][0]
                return held
        value = make()
        n_bytes = size(value)
        with self._lock:
            if key not in self._values and self._bytes + n_bytes <= limit:
                self._values[key] = (value, n_bytes)
                self._bytes += n_bytes
        return value

    def series(
        self, key: Any, limit: int, size: Callable[[Value], int], make: Callable[[], Iterable[Value]]
    ) -> Iterator[Value]:
        """Yield the values of a series: as they are held, or one by one as they are made, and held from then on if all
        values together stay within `limit` bytes, also while it is made.
        """
        with self._lock:
            self._used.add(key)
            owner, found = self._owner, self._values.get(key)
        if found is not None:
            yield from found[0]
            return
        kept: list[Value] = []
        taken, is_held = 0, False
        try:
            fits = True
            for value in make():
                n_bytes = size(value)
                fits = fits and self._take(owner, n_bytes, limit)
                if fits:
                    kept.append(value)
                    taken += n_bytes
                elif kept:
                    kept = []
                yield value
            is_held = fits
        finally:  # the bytes must not stay taken, whatever ends it
            with self._lock:
                if owner == self._owner:
                    if is_held and key not in self._values:
                        self._values[key] = (kept, taken)
                    else:
                        self._bytes -= taken

    def _take(self, owner: str, n_bytes: int, limit: int) -> bool:
        with self._lock:
            fits = owner == self._owner and self._bytes + n_bytes <= limit
            self._bytes += n_bytes if fits else 0
            return fits
