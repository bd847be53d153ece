"""Measured memory of a process."""

from __future__ import annotations

import ctypes
import resource
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@cache
def _trim() -> Callable[[int], object] | None:
    """Return the C library's function, which takes longer to look up than to call where little has been freed."""
    found: Callable[[int], object] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found


def release_freed() -> None:
    """Give freed memory back to the system where the C library keeps it, so that a unit starts from what is in use."""
    if sys.platform == "linux" and (trim := _trim()) is not None:
        trim(0)


def reset_peak() -> bool:
    """Forget the peak so far; False where the system cannot (then the peak is that of the process's life)."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def peak_bytes() -> int:
    """Return the peak resident memory of this process since :func:`reset_peak`, in bytes."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
