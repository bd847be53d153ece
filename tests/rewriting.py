"""Files that are written again, with the size and the modification time that they had."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from daskfs.storage import file_cache

Content = TypeVar("Content")
Result = TypeVar("Result")

HOUR_NS = 3600 * 10**9
WAYS = ("replaced", "rewritten", "rewritten within a tick")
"""By other files, or in place; in a tick, the change time shows nothing either."""


def swaps(X: np.ndarray) -> Iterator[np.ndarray]:
    """Yield a matrix, and others of about as many bytes in any format: multiples, and with two values swapped."""
    yield X
    yield from (X * factor for factor in (2, 4, 0.5))
    for row, first, second in np.ndindex(len(X), X.shape[1], X.shape[1]):
        if X[row, first] != X[row, second]:
            swapped = X.copy()
            swapped[row, [first, second]] = X[row, [second, first]]
            yield swapped


def twins(
    folder: Path, contents: Iterable[Content], write: Callable[[Path, Content], Result]
) -> tuple[tuple[Path, Content, Result], tuple[Path, Content, Result]]:
    """Write the first of some contents, and the next one whose files have the same sizes, to folders of their own.

    Return both, each with its folder and what the writer returns.
    """
    written = []
    for number, content in enumerate(contents):
        (place := folder / f"twin-{number}").mkdir()
        written.append((place, content, write(place, content)))
        if number and _sizes(place) == _sizes(written[0][0]):
            return written[0], written[-1]
    pytest.fail("no two contents are files of the same sizes")


def _sizes(folder: Path) -> dict[str, int]:
    return {str(file.relative_to(folder)): file.stat().st_size for file in folder.rglob("*") if file.is_file()}


def read_before_and_after(old: Path, new: Path, way: str, read: Callable[[], Result]) -> tuple[Result, Result]:
    """Read, write the files of a folder over those of another one in one of :data:`WAYS`, and read again."""
    times = [path.stat().st_ctime_ns for path in old.rglob("*")]
    with pytest.MonkeyPatch.context() as patched:
        if way == "rewritten within a tick":
            patched.setattr(file_cache, "file_state", lambda status: (status.st_size, status.st_mtime_ns))
            patched.setattr(file_cache, "time_ns", lambda: min(times) + file_cache.RACY_NS)
            patched.setattr(file_cache, "monotonic_ns", lambda: 0)
        else:
            patched.setattr(file_cache, "time_ns", lambda: max(times) + HOUR_NS)
        before = read()
        _rewrite(old, new, is_replaced=way == "replaced")
        return before, read()


def _rewrite(old: Path, new: Path, *, is_replaced: bool) -> None:
    before = {path: path.stat() for path in (old, *old.rglob("*"))}
    for file in (path for path in new.rglob("*") if path.is_file()):
        target = old / file.relative_to(new)
        if is_replaced:
            shutil.copyfile(file, copy := target.with_suffix(".copy"))
            copy.replace(target)
        else:
            target.write_bytes(file.read_bytes())
    for path, status in before.items():
        restore_times(path, status)


def restore_times(path: Path, status: os.stat_result) -> None:
    """Give a changed file or folder the modification time that it had; a file must have the size of then."""
    now = status
    while now.st_ctime_ns == status.st_ctime_ns:  # until the clock of the file system moves on
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        now = path.stat()
    assert path.is_dir() or now.st_size == status.st_size
    assert now.st_mtime_ns == status.st_mtime_ns
