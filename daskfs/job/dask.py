"""Keys of Dask's configuration in a job file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from daskfs.errors import nearest
from daskfs.redaction import CREDENTIALS_BELONG, has_credentials

CONFIGURATION_PARTS = (
    "array",
    "dataframe",
    "daskfs",
    "distributed",
    "jobqueue",
    "kubernetes",
    "optimization",
    "temporary-directory",
)
"""Parts of the configuration that a job may set; the scheduler follows from its cluster block."""
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def flatten_keys(raw: Any) -> dict[str, Any]:
    """Flatten nested keys, as in Dask's own files, to dotted keys.

    Raises
    ------
    ValueError
        For keys or values that are not Dask configuration, and for credentials.
    """
    if not isinstance(raw, Mapping):
        msg = "keys of Dask's configuration should stand here, such as distributed.worker.memory.target: false"
        raise ValueError(msg)
    flat = dict(_flat(raw, ()))
    for key, value in flat.items():
        _check(key, value)
    return flat


def _flat(raw: Mapping[Any, Any], within: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, value in raw.items():
        names = (*within, *str(key).split("."))
        if isinstance(value, Mapping):
            yield from _flat(value, names)
        else:
            yield ".".join(names), value


def _check(key: str, value: Any) -> None:
    names = key.split(".")
    if not all(map(_NAME.fullmatch, names)):
        msg = f"'{key}' is no key of Dask's configuration: names and dots, such as distributed.worker.memory.target"
        raise ValueError(msg)
    if names[0].replace("_", "-") not in CONFIGURATION_PARTS:
        msg = f"'{key}': there is no {names[0]} in Dask's configuration.{nearest(names[0], CONFIGURATION_PARTS)}"
        raise ValueError(msg)
    values = value if isinstance(value, list | tuple) else [value]
    if not all(one is None or isinstance(one, bool | int | float | str) for one in values):
        msg = f"'{key}' is a number, a text, true, false, null, or a list of these"
        raise ValueError(msg)
    if any(isinstance(one, str) and has_credentials(one) for one in values) or has_credentials(f"?{names[-1]}={value}"):
        msg = f"'{key}': {CREDENTIALS_BELONG}"
        raise ValueError(msg)


DaskKeys = Annotated[dict[str, Any], BeforeValidator(flatten_keys)]
"""Dotted keys and their values."""
