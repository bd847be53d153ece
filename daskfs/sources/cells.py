"""Meaning of a cell of text: missing, true or false, a number, or text.

White space around a cell does not count. A column is of true and false if all its cells are, and of numbers if all are:
a mixture is text. A comma or point that may separate thousands as well as decimals, as in 1,220, is a decimal sign only
if other cells of the table settle it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

TRUE_CELLS, FALSE_CELLS = ("true", "True", "TRUE"), ("false", "False", "FALSE")
MISSING_CELLS = ("", "NA", "N/A", "nan", "NaN", "NAN", "null", "NULL")
NUMBER = r"^[-+]?(?:(?:[0-9]+(?:{0}[0-9]*)?|{0}[0-9]+)(?:[eE][-+]?[0-9]+)?|(?i:inf|infinity|nan))$"
GROUPED = r"^[-+]?[1-9][0-9]{{0,2}}(?:{0}[0-9]{{3}})+$"
"""Regular expressions of numbers with a decimal sign, and of those in which that may separate thousands."""
DECIMAL_SIGNS = {".": r"\.", ",": ","}
SEPARATED = "^[-+]?[0-9]{1,3}(?:[., '\u00a0\u202f][0-9]{3})+(?:[.,][0-9]+)?$"
"""Regular expression of numbers with signs that may separate thousands."""
SPELLED = "|".join([*(NUMBER.format(sign) for sign in DECIMAL_SIGNS.values()), SEPARATED])


@dataclass(frozen=True)
class Numerals:
    """Notation of the numbers of a table; it `is_sure` if the user said so, or a cell can mean nothing else."""

    decimal: str = "."
    is_sure: bool = True

    @classmethod
    def of_table(cls, cells: list[str]) -> Numerals:
        """Return the numerals of a table, by the decimal sign of most unambiguous cells; a point if there are none."""
        counts = {}
        for sign, signs in DECIMAL_SIGNS.items():
            is_number, is_grouped = re.compile(NUMBER.format(signs)).match, re.compile(GROUPED.format(signs)).match
            counts[sign] = sum(1 for cell in cells if sign in cell and is_number(cell) and not is_grouped(cell))
        return cls("," if counts[","] > counts["."] else ".", any(counts.values()))


DECIMAL_POINT = Numerals()


@dataclass(frozen=True)
class NonNumeric:
    """Cells that are no numbers in a part of a column: their `count` of `n_present` cells, and the first.

    Attributes
    ----------
    is_rare
        Whether more than half of the cells spell numbers, some maybe with other signs, so that the column is not text.
    is_grouped
        Whether the first is a number with a sign that may separate thousands.
    """

    count: int
    n_present: int
    row: int
    text: str
    is_rare: bool
    is_grouped: bool


def trimmed(cells: Any, missing: Sequence[str] = MISSING_CELLS) -> Any:
    """Return cells of text, an Arrow array, without white space around them; `missing` ones are null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pc.utf8_trim_whitespace(cells)
    return pc.if_else(pc.is_in(cells, value_set=pa.array(missing, cells.type)), pa.scalar(None, cells.type), cells)


def booleans_of(cells: Any) -> Any | None:
    """Return trimmed cells as an Arrow array of booleans if all are true or false, else None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_boolean = pc.is_in(cells, value_set=pa.array([*TRUE_CELLS, *FALSE_CELLS], cells.type))
    if cells.null_count == len(cells) or not pc.all(pc.or_(is_boolean, cells.is_null())).as_py():
        return None
    return pc.if_else(cells.is_null(), None, pc.is_in(cells, value_set=pa.array(TRUE_CELLS, cells.type)))


def values_of(cells: Any, numerals: Numerals) -> Any:
    """Return trimmed cells as an Arrow array of booleans, else as :func:`numbers_of` does."""
    booleans = booleans_of(cells)
    return numbers_of(cells, numerals) if booleans is None else booleans


def numbers_of(cells: Any, numerals: Numerals) -> Any:
    """Return trimmed cells as an Arrow array of float64 if all are numbers, else an :class:`NonNumeric`."""
    import pyarrow.compute as pc

    sign = DECIMAL_SIGNS[numerals.decimal]
    is_number = pc.match_substring_regex(cells, NUMBER.format(sign))
    is_odd = pc.or_(pc.invert(is_number), _may_be_grouped(cells, numerals, is_number))
    places = np.flatnonzero(np.asarray(is_odd.fill_null(False)))  # noqa: FBT003
    if places.size:
        row, n_present = int(places[0]), len(cells) - cells.null_count
        text = cells[row].as_py()
        n_spelled = pc.sum(pc.match_substring_regex(cells, SPELLED)).as_py() or 0
        is_rare, is_grouped = 2 * n_spelled > n_present, bool(re.match(SEPARATED, text))
        return NonNumeric(places.size, n_present, row, text, is_rare, is_grouped)
    if numerals.decimal == ",":
        cells = pc.replace_substring(cells, ",", ".")
    return cells.cast("float64")


def _may_be_grouped(cells: Any, numerals: Numerals, is_number: Any) -> Any:
    """Return a mask of the numbers whose point may separate thousands, False if there are none.

    These are in columns in which all numbers without a point are below 1000, and all others have three digits after it.
    """
    import pyarrow.compute as pc

    if numerals.is_sure:
        return False
    has_sign = pc.and_(is_number, pc.match_substring(cells, numerals.decimal))
    is_grouped = pc.match_substring_regex(cells, GROUPED.format(DECIMAL_SIGNS[numerals.decimal]))
    plain = cells.filter(pc.and_not(is_number, has_sign))
    if not pc.any(has_sign).as_py() or not len(plain) or not pc.all(pc.or_(is_grouped, pc.invert(has_sign))).as_py():
        return False
    if pc.max(pc.abs(plain.cast("float64"))).as_py() >= 1000:
        return False
    return is_grouped
