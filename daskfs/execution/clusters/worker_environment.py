"""Environment of remote workers, which the driver's nannies do not start.

It is the only way to pass them Dask's configuration: the driver's settings apply to its own process.
"""

from __future__ import annotations

from typing import Any

import dask

from daskfs.execution.cluster import ONE_THREAD, ClusterSettings

NANNY_KEY = "distributed.nanny"
SPAWN_KEY = f"{NANNY_KEY}.pre-spawn-environ"
"""Environment that nannies set for their workers; workers without a nanny get it here."""


def worker_environment(settings: ClusterSettings) -> dict[str, str]:
    """Return the environment of remote workers.

    It holds Dask's configuration, threads of numerical libraries, and settings of the memory allocator. The driver's
    configuration must be that of the run.
    """
    spawned = {name: str(value) for name, value in dask.config.get(SPAWN_KEY).items() if value is not None}
    dask_config = {key: value for key, value in settings.told_to_dask.items() if not key.startswith(NANNY_KEY)}
    return {**ONE_THREAD, **spawned, **{variable(key): _text(value) for key, value in dask_config.items()}}


def variable(key: str) -> str:
    """Return the environment variable that sets a key of Dask's configuration.

    >>> variable("distributed.comm.timeouts.connect")
    'DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT'
    """
    return f"DASK_{key.upper().replace('.', '__').replace('-', '_')}"


def _text(value: Any) -> str:
    """Return text that Dask parses to the value: it evaluates text that is a Python literal."""
    is_read_as_it_is = isinstance(value, str) and dask.config.interpret_value(value) == value
    return value if is_read_as_it_is else repr(value)
