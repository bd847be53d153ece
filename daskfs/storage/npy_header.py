"""Headers of arrays in ``.npy`` format."""

from __future__ import annotations

import threading
from typing import IO, Any

import numpy as np

_PARSING = threading.Lock()
"""NumPy parses headers with ``ast``, which fails in several threads at a time (python/cpython#106905)."""


def read_header(file: IO[bytes]) -> tuple[tuple[int, int], tuple[int, ...], bool, np.dtype[Any]]:
    """Return version, shape, Fortran order and dtype of an array in ``file``.

    Later versions than 2.0, which only structured arrays need, give the version alone, with an empty shape and a void
    dtype.
    """
    version = np.lib.format.read_magic(file)
    if version not in {(1, 0), (2, 0)}:
        return version, (), False, np.dtype("V")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with _PARSING:
        shape, fortran_order, dtype = read(file)
    return version, tuple(int(size) for size in shape), bool(fortran_order), dtype
