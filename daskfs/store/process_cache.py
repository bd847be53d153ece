"""Cache of values that the units of a loop keep in process memory from one round to the next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Value = TypeVar("Value")


class Holdings:
    """Cache of the values of one owner at a time, up to a number of bytes.

    Values that do not fit are made again at each use. There is no eviction within a round: access is cyclic, so LRU
    would evict the next value needed. Values unused for a whole round are dropped, as their units run elsewhere.
    """

    def __init__(self) -> None:
        self._owner = ""
        self._values: dict[Any, tuple[Any, int]] = {}
        self._bytes = 0
        self._round = 0
        self._used: set[Any] = set()
        self._lock = threading.Lock()

    def keep_only(self, owner: str, number: int = 0) -> None:
        """Drop the values of another owner.

        At the first unit of a later round, drop the values that the last round in this process did not use.
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
        """Return the value of a key from the cache, or make it: a :meth:`series` of one value."""
        (value,) = self.series(key, limit, size, lambda: [make()])
        return value

    def series(
        self, key: Any, limit: int, size: Callable[[Value], int], make: Callable[[], Iterable[Value]]
    ) -> Iterator[Value]:
        """Yield the values of a series from the cache, or one by one as they are made.

        The series is cached if all values together stay within `limit` bytes, also while it is being made.
        """
        with self._lock:
            self._used.add(key)
            owner, cached = self._owner, self._values.get(key)
        if cached is not None:
            yield from cached[0]
            return
        values: list[Value] = []
        taken, is_held = 0, False
        try:
            fits = True
            for value in make():
                n_bytes = size(value)
                fits = fits and self._take(owner, n_bytes, limit)
                if fits:
                    values.append(value)
                    taken += n_bytes
                elif values:
                    values = []
                yield value
            is_held = fits
        finally:  # release the bytes however the generator ends
            with self._lock:
                if owner == self._owner:
                    if is_held and key not in self._values:
                        self._values[key] = (values, taken)
                    else:
                        self._bytes -= taken

    def _take(self, owner: str, n_bytes: int, limit: int) -> bool:
        with self._lock:
            fits = owner == self._owner and self._bytes + n_bytes <= limit
            self._bytes += n_bytes if fits else 0
            return fits
