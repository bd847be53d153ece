"""Single-threaded BLAS, since the sums of a matrix product depend on the number of threads, and imports by threads."""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager, redirect_stderr
from functools import cache
from importlib import import_module
from io import StringIO
from threading import RLock
from types import ModuleType
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401 - loads SciPy's BLAS before the controller looks for libraries
from joblib import cpu_count
from threadpoolctl import ThreadpoolController

IMPORTING = RLock()
"""Held while modules of scikit-learn are imported, see :func:`sklearn_module`."""


def sklearn_module(name: str) -> ModuleType:
    """Import a module of scikit-learn, such as "svm", for units that several threads run.

    If one thread imports the package and another one a module of it, each waits for the other, and Python lets one go
    on with half a module.
    """
    with IMPORTING:
        _count_cores()
        return import_module(f"sklearn.{name}")


@cache
def _count_cores() -> None:
    """Let joblib count physical cores, as scikit-learn will: where it cannot, it prints a traceback, the first time."""
    if not os.environ.get("OMP_NUM_THREADS"):  # then scikit-learn does not count
        with warnings.catch_warnings(action="ignore"), redirect_stderr(StringIO()):
            cpu_count(only_physical_cores=True)


@cache
def _controller() -> ThreadpoolController:
    # finding the libraries takes milliseconds, and loops enter the context thousands of times
    np.ones((2, 2)) @ np.ones((2, 2))
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """Return a context manager that limits NumPy's and SciPy's linear algebra to one thread."""
    context: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return context
