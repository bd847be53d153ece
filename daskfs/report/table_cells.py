"""Types of the entries of tables and fact lists in the report."""

from __future__ import annotations

from dataclasses import dataclass

Fact = tuple[str, str]


@dataclass(frozen=True)
class Cell:
    """A table cell: short number, all digits for the tooltip, second line, start and length of a bar in percent."""

    text: str
    full: str = ""
    below: str = ""
    bar: tuple[str, str] | None = None
    best: bool = False
    heat: str | None = None
