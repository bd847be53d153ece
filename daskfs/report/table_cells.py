"""What tables and lists of facts in the report are made of."""

from __future__ import annotations

from dataclasses import dataclass

Fact = tuple[str, str]


@dataclass(frozen=True)
class Cell:
    """A number in a table: short form, all digits for the tooltip, a second line, a bar in percent."""

    text: str
    full: str = ""
    below: str = ""
    bar: tuple[str, str] | None = None
    best: bool = False
    heat: str | None = None
