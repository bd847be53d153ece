"""Packages that only some installations have: ``from tests.optional import pandas as pd``.

Where one is missing, a test that uses it is skipped by its name, and so is a file that uses it while it is read.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest

NAMES = frozenset(
    {"anndata", "dask_jobqueue", "dcor", "flask", "flask_cors", "h5netcdf", "h5py", "hdf5plugin", "moto", "obstore"}
    | {"ipykernel", "nbclient", "nbformat", "pandas", "polars", "sparse", "xarray"}
)
MODULES = {"dask_dataframe": "dask.dataframe"}
"""Parts of other packages that need one of them."""


NAMED = re.compile(r"([\w-]+)(?: and \w+)?: pip install 'daskfs\[")
"""How messages of daskfs name one."""


class Missing(ModuleType):
    """Stands for a package that is missing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        pytest.skip(reason(self.__name__), allow_module_level=True)


def reason(package: str) -> str:
    """Return why a test is skipped."""
    return f"needs the package {package}"


def missing(error: BaseException) -> str | None:
    """Return the package for want of which a test failed, as Python or daskfs says it."""
    found = {error.name} if isinstance(error, ModuleNotFoundError) else _named(str(error))
    return next((name for name in sorted(NAMES & found) if find_spec(name) is None), None)


def _named(message: str) -> set[str | None]:
    return {name.replace("-", "_") for name in NAMED.findall(message)}


def __getattr__(name: str) -> Any:
    if name not in NAMES | set(MODULES):
        raise AttributeError(name)
    try:
        return import_module(MODULES.get(name, name))
    except ModuleNotFoundError as error:
        if error.name not in NAMES:
            raise
        return Missing(error.name)
