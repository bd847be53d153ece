"""Compilation of loops by numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile at the first call, and cache the machine code for other processes if a cache directory is writable.

    `options` are those of :func:`numba.njit`.
    """
    try:
        return njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # neither the package's directory nor the user's can be written to
        return njit(nogil=True, **options)(function)
