"""Second look at what reads wrong: one bad answer of a store, a network or a disk is no damage.

What is damaged is deleted and made again, so damage is only what reads wrong twice, past caches.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from daskfs.storage import StoragePath

LOOK_PAUSE_SECONDS = {True: 1.0, False: 0.05}
"""Seconds before the second look, in an object store (True) and on a disk (False)."""
CONFIRMED = 20
"""Number of second looks that may find the same before the next ones do not wait."""
ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""Errors of reading a file that is not there."""
Value = TypeVar("Value")

_passed = deque[str](maxlen=50)
_n_confirmed = 0


def look_twice(
    path: StoragePath,
    look: Callable[[], Value],
    *wrong: type[BaseException],
    is_wrong: Callable[[Value], bool] = lambda _: False,
) -> Value:
    """Return `look()` of a path; if it raises an error of type `wrong`, or `is_wrong`, look once more after a pause."""
    global _n_confirmed
    try:
        value = look()
        if not is_wrong(value):
            return value
        is_late = False
    except wrong as error:
        is_late = not path.is_remote and isinstance(error, ABSENT)
    _n_confirmed += 1
    if is_late:  # a network file system may cache that a file is missing
        path.parent.refresh()
    else:
        pause(path)
    value = look()
    if not is_wrong(value):
        _n_confirmed -= 1
        if not is_late:
            _passed.append(str(path))
    return value


def pause(path: StoragePath) -> None:
    """Wait before a second look at a path, and drop what this machine has cached of it."""
    if _n_confirmed <= CONFIRMED:
        time.sleep(LOOK_PAUSE_SECONDS[path.is_remote])
    path.drop_cached()


def take_passed() -> list[str]:
    """Return the paths that read wrong once in this process, and right the second time, since the last call."""
    return [_passed.popleft() for _ in range(len(_passed))]
