"""Text made safe to show: credentials are masked, control characters removed."""

from __future__ import annotations

import re

_USER = re.compile(r"(:/+)(?:[^/?#\s@:]*:\S*|[^/?#\s@]+)@")
"""User and password of a URL. Passwords may hold any character but spaces, including ``/`` and ``@``. One slash is
enough, since handling a URL as a path collapses ``//`` to ``/``.
"""
_PARAMETER = re.compile(
    r"([?&;#](?:[\w.-]*(?:signature|token|secret|passw(?:or)?d|credential|(?:access|account|api|private)[_-]?key)[\w.-]*"
    r"|sig|pwd|auth)=)[^&;#\s'\"]+",
    re.IGNORECASE,
)
"""A parameter of a URL, or of a connection string, that grants access."""

CREDENTIALS_BELONG = (
    "this holds a user, a password, a token or a signature; credentials belong in the environment, or in the "
    "configuration of what asks for them, never in a job, its command line or its report"
)


def has_credentials(text: str) -> bool:
    """Return whether text holds a URL with a user or password, or a parameter that grants access."""
    return redact_credentials(text) != text


def redact_credentials(text: str) -> str:
    """Return text with each credential replaced by three asterisks."""
    return _PARAMETER.sub(r"\1***", _USER.sub(r"\1***@", text))


def strip_control_characters(text: str) -> str:
    """Replace unprintable characters by spaces: names from data may hold line breaks and terminal escape sequences."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
