"""One thread for products of matrices, whose sums otherwise depend on how many there are."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401 - the library behind it must be loaded when the controller looks for libraries
from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    # to look for libraries takes milliseconds, and loops enter the block below thousands of times
    np.ones((2, 2)) @ np.ones((2, 2))
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """Return a context in which NumPy's and SciPy's linear algebra runs in one thread."""
    context: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return context
