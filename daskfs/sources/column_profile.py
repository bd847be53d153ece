"""Profile of a column: its type, missing and distinct values, and what it looks like."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskfs.sources.cells import DECIMAL_POINT, NonNumeric, Numerals, booleans_of, numbers_of, trimmed
from daskfs.sources.columns import plain
from daskfs.sources.values import decoded

LABEL_WORDS = {"class", "diagnosis", "label", "labels", "outcome", "phenotype", "species", "target", "type", "y"}
GROUPS = {"batch", "donor", "group", "patient", "plate", "sample", "site", "subject"}
TIME_WORDS = {"date", "time", "timestamp"}
"""Words in the names of columns that say what they hold."""
FEW_LABEL_VALUES = 50
"""Distinct values up to which a column of text looks like a label."""
NUMBERS = ("integer", "number", "boolean")


def is_named_like(name: str, words: Set[str]) -> bool:
    """Return whether one of some words is in the name of a column."""
    return not words.isdisjoint(re.findall("[a-z]+", name.lower()))


@dataclass
class ColumnProfile:
    """Profile of a column, part by part.

    Parameters
    ----------
    most
        Number of distinct values up to which they are counted.
    numerals
        How text spells numbers.
    is_index
        Whether the column is known to be an index.
    """

    name: str
    most: int
    numerals: Numerals = DECIMAL_POINT
    is_index: bool = False
    odd: str = ""
    n_odd: int = 0
    n_text: int = 0
    n_rows: int = 0
    n_missing: int = 0
    is_many: bool = False
    is_distinct: bool = False
    kinds: set[str] = field(default_factory=set)
    values: set[Any] = field(default_factory=set)

    def add(self, cells: Any) -> None:
        """Add a part of the column, a (chunked) Arrow array."""
        import pyarrow as pa
        import pyarrow.compute as pc

        cells = plain(cells) if not pa.types.is_nested(cells.type) else cells
        kind = cells.type
        if pa.types.is_floating(kind) and np.isnan(cells.to_numpy(zero_copy_only=False)).any():
            cells = pc.if_else(pc.is_nan(cells), None, cells)
        if cells.null_count < len(cells):
            self.kinds.add(_kind(cells))
            odd = numbers_of(trimmed(cells), self.numerals) if pa.types.is_string(kind) else None
            if isinstance(odd, NonNumeric):
                self.n_odd += odd.count
                self.n_text += 0 if odd.is_rare else odd.n_present
                self.odd = self.odd or f"{odd.text[:40]!r} in row {self.n_rows + odd.row}"
        self.n_rows += len(cells)
        self.n_missing += cells.null_count
        if not self.is_many and not pa.types.is_nested(kind):
            distinct = pc.unique(cells.drop_null() if cells.null_count else cells)
            if self.values or len(distinct) <= self.most:  # else their number says all
                self.values.update(distinct.to_pylist())
            n_distinct = len(self.values) or len(distinct)
            self.is_many = n_distinct > self.most
            if self.is_many:
                self.is_distinct = n_distinct == self.n_rows - self.n_missing
                self.values.clear()

    @property
    def kind(self) -> str:
        """Type of the values: the narrowest that holds those of all parts; "mixed" if more than half are numbers."""
        if not self.kinds:
            return "empty"
        if self.odd and 2 * self.n_text < self.n_rows - self.n_missing:
            return "mixed"
        if len(self.kinds) == 1:
            return next(iter(self.kinds))
        return "number" if self.kinds <= {"integer", "number"} else "text"

    def to_json(self) -> dict[str, Any]:
        """Return name, type, missing and distinct values (None for more than are counted), and what it looks like."""
        return {
            "name": self.name,
            "type": self.kind,
            "n_missing": self.n_missing,
            "n_distinct": None if self.is_many else len(self.values),
            "looks_like": self.looks_like(),
        }

    def looks_like(self) -> str:
        """Return a guess: feature, constant, label, group, time, row name, text or empty, or the cells that are odd."""
        n_distinct, kind = len(self.values), self.kind
        is_distinct = self.n_rows > 1 and (self.is_distinct if self.is_many else n_distinct == self.n_rows)
        is_few = not self.is_many and n_distinct <= FEW_LABEL_VALUES
        is_repeated = not is_distinct and n_distinct != 1
        is_integer = kind == "integer" and n_distinct > 0
        is_without_gap = is_integer and max(self.values) - min(self.values) == n_distinct - 1
        guesses = {
            "empty": kind == "empty",
            f"feature but for {self.n_odd} cells, such as {self.odd}": kind == "mixed",
            "row name": self.is_index or (is_distinct and (kind == "text" or is_without_gap)),
            "constant": not self.is_many and n_distinct == 1 and not self.n_missing,
            "time": kind == "date" or (is_named_like(self.name, TIME_WORDS) and kind in NUMBERS),
            "label": is_named_like(self.name, LABEL_WORDS) and (kind in NUMBERS or is_few),
            "group": is_named_like(self.name, GROUPS) and is_repeated and kind != "number",
            "label or group": kind not in NUMBERS and is_few,
            "text": kind not in NUMBERS,
        }
        return next((name for name, holds in guesses.items() if holds), "feature")


def _kind(cells: Any) -> str:
    """Return the type of a part that has a value."""
    import pyarrow as pa

    kind = cells.type
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind):
        values = cells.drop_null().to_numpy()
        return "integer" if np.array_equal(values, np.floor(values)) else "number"
    if pa.types.is_temporal(kind):
        return "date"
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return str(kind)
    cells = trimmed(cells)
    if booleans_of(cells) is not None:
        return "boolean"
    try:
        cells.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return "text"
    return "date"


def as_cells(values: np.ndarray) -> Any:
    """Return a vector of a file, shape (n,), as an Arrow array; a missing value is null."""
    import pyarrow as pa

    if values.dtype.kind in "OSUT":
        cells = list(map(decoded, values.tolist()))
        if len({type(cell) for cell in cells if cell is not None}) > 1:
            cells = [None if cell is None else str(cell) for cell in cells]
        return pa.array(cells, from_pandas=True)
    return pa.array(values, from_pandas=True)
