"""Preload of local workers: what every worker process sets up before its first unit."""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Leave Ctrl-C to the driver: a terminal sends it to the whole process group, and the driver ends its workers
    itself.
    """
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
