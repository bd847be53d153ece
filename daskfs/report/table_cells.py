"""Types of the entries of tables and fact lists in the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from daskfs.report.values import format_number, full_number, plottable

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


def number_cell(value: object, **more: Any) -> Cell:
    """Return the cell of a number; `more` are other fields of it."""
    return Cell(format_number(value), full_number(value), **more)


def heat_cell(value: object) -> Cell:
    """Return the cell of a coefficient, colored by it if it is in [0, 1]."""
    number = plottable(value)
    if number != number:
        return Cell(format_number(value))
    return Cell(f"{number:.2f}", heat=f"{min(max(number, 0.0), 1.0):.3f}")
