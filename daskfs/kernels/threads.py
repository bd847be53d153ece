"""Single-threaded BLAS: the sums of a matrix product depend on the number of threads."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401 - loads SciPy's BLAS before the controller looks for libraries
from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    # finding the libraries takes milliseconds, and loops enter the context thousands of times
    np.ones((2, 2)) @ np.ones((2, 2))
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """Return a context manager that limits NumPy's and SciPy's linear algebra to one thread."""
    context: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return context
