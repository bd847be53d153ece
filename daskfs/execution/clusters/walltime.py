"""Wall times in SLURM's formats."""

from __future__ import annotations

import re

_FORMS = (
    re.compile(r"(?P<minutes>\d+)(?::(?P<seconds>\d\d))?"),
    re.compile(r"(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d)"),
    re.compile(r"(?P<days>\d+)-(?P<hours>\d\d?)(?::(?P<minutes>\d\d)(?::(?P<seconds>\d\d))?)?"),
)
_SECONDS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


def walltime_seconds(text: str) -> int:
    """Return the seconds of a wall time; raise ``ValueError`` for other text.

    >>> [walltime_seconds(text) for text in ("90", "90:30", "12:00:00", "2-12", "1-00:30:00")]
    [5400, 5430, 43200, 216000, 88200]
    """
    for form in _FORMS:
        if match := form.fullmatch(text):
            seconds = sum(int(number or 0) * _SECONDS[unit] for unit, number in match.groupdict().items())
            if seconds:
                return seconds
    msg = f"'{text}' is no wall time: write hours, minutes and seconds in quotes, '12:00:00', or '2-00' for two days"
    raise ValueError(msg)
