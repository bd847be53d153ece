"""What the environment of workers elsewhere says, as no nanny of the driver's starts them.

Dask's configuration has no other way there: what the driver sets holds in its own process.
"""

from __future__ import annotations

from typing import Any

import dask

from daskfs.execution.cluster import ONE_THREAD, ClusterSettings

NANNY_KEY = "distributed.nanny"
SPAWN_KEY = f"{NANNY_KEY}.pre-spawn-environ"
"""What nannies put into the environment of their workers; workers without one get it here."""


def worker_environment(settings: ClusterSettings) -> dict[str, str]:
    """Return the environment of workers that a run starts elsewhere: what Dask's configuration is to say there, threads
    of numerical libraries, and how memory is allocated.

    It is called while the driver's configuration says the same.
    """
    spawned = {name: str(value) for name, value in dask.config.get(SPAWN_KEY).items() if value is not None}
    told = {key: value for key, value in settings.told_to_dask.items() if not key.startswith(NANNY_KEY)}
    return {**ONE_THREAD, **spawned, **{variable(key): _text(value) for key, value in told.items()}}


def variable(key: str) -> str:
    """Return the environment variable that sets a key of Dask's configuration.

    >>> variable("distributed.comm.timeouts.connect")
    'DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT'
    """
    return f"DASK_{key.upper().replace('.', '__').replace('-', '_')}"


def _text(value: Any) -> str:
    """Return what Dask reads as the value: it takes text for a literal of Python where that is one."""
    is_read_as_it_is = isinstance(value, str) and dask.config.interpret_value(value) == value
    return value if is_read_as_it_is else repr(value)
