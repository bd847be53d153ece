"""The log of daskfs: loggers below ``daskfs`` of the standard library, silent unless a level is set."""

from __future__ import annotations

import logging
from functools import lru_cache

LOG_LEVELS = ("debug", "info", "warning", "error")


@lru_cache(maxsize=1)
def _handler() -> logging.Handler:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(name)s %(levelname)s: %(message)s"))
    handler.addFilter(lambda record: not getattr(record, "is_shown", False))  # by the display of the run
    return handler


def set_log_level(level: str) -> None:
    """Write the log of this process to stderr, from a level of :data:`LOG_LEVELS` on; leave it for an empty one."""
    if level:
        logger = logging.getLogger("daskfs")
        logger.setLevel(level.upper())
        logger.addHandler(_handler())
