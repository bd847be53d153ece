"""Measured memory of a process."""

from __future__ import annotations

import ctypes
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


_trim: Callable[[int], object] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""``malloc_trim`` of the C library, found once, since a lookup may take longer than a call; None without it."""


def release_freed() -> None:
    """Return freed memory that the C library keeps to the system, so that a unit starts from the memory in use."""
    if _trim is not None:
        _trim(0)


def reset_peak() -> bool:
    """Reset the peak memory; False if the system cannot, and the peak is that of the whole process lifetime."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def peak_bytes() -> int:
    """Return the peak resident memory of this process since :func:`reset_peak`, in bytes."""
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
