"""Index of the records of one stage in memory."""

from __future__ import annotations

import itertools
import zlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from daskfs.store.records import lines_of, place_of

RECORDS_AT_ONCE = 4096
"""Number of lines held at once in a pass over many units."""
OPENED = 8
"""Merged files whose lines are held for lookups of single units."""
MAX_UNIT = 2**63
FAST = 1
"""Compression level: lines of one stage are alike."""


class Line(NamedTuple):
    """Record of a unit as a file holds it."""

    file: str
    line: bytes


class RecordIndex:
    """Line of each recorded unit of a stage, and the file that holds it.

    Lines of merged files are compressed, and 12 bytes of each unit say which of them holds it: 10^6 records of 1 kB
    would take a GB otherwise. Of several lines of a unit the last one added counts.
    """

    def __init__(self) -> None:
        self.alone: dict[int, Line] = {}
        self._merged: list[tuple[str, bytes]] = []
        self._units, self._numbers = array("q"), array("i")
        self._sorted: tuple[np.ndarray, np.ndarray] | None = None
        self._opened: dict[int, dict[int, bytes]] = {}

    def read(self, file: str, data: bytes) -> None:
        """Add the records of a file."""
        lines = {unit: line for unit, line in lines_of(file, data) if unit < MAX_UNIT}
        if place_of(file)[0]:
            self.alone.update({unit: Line(file, line) for unit, line in lines.items()})
        else:
            self.merge(file, lines)

    def merge(self, file: str, lines: Mapping[int, bytes]) -> None:
        """Add the records of a file of many."""
        self._units.extend(lines)
        self._numbers.extend(itertools.repeat(len(self._merged), len(lines)))
        self._merged.append((file, zlib.compress(b"\n".join(lines.values()), FAST)))
        self._sorted = None
        for unit in lines:
            self.alone.pop(unit, None)

    def units(self) -> set[int]:
        """Return the recorded units."""
        return {*self._units, *self.alone}

    @property
    def n_units(self) -> int:
        """One more than the last recorded unit."""
        merged = np.frombuffer(self._units, np.int64).max(initial=-1)
        return max(int(merged), max(self.alone, default=-1)) + 1

    def find(self, unit: int) -> Line | None:
        """Return the line of a unit and its file, None if it has none."""
        if unit in self.alone:
            return self.alone[unit]
        (number,) = self._numbers_of([unit])
        if number < 0:
            return None
        if number not in self._opened:
            for oldest in list(self._opened)[: len(self._opened) + 1 - OPENED]:
                self._opened.pop(oldest, None)
            self._opened[number] = self._lines(number)
        return Line(self._merged[number][0], self._opened[number][unit])

    def lines(self, units: Iterable[int]) -> Iterator[bytes | None]:
        """Yield the lines of some units, in order; None for units without one."""
        remaining = iter(units)
        while units_at_once := list(itertools.islice(remaining, RECORDS_AT_ONCE)):
            line_by_unit = {unit: self.alone[unit].line for unit in units_at_once if unit in self.alone}
            by_file: dict[int, list[int]] = {}
            for unit, number in zip(units_at_once, self._numbers_of(units_at_once), strict=True):
                if number >= 0 and unit not in line_by_unit:
                    by_file.setdefault(number, []).append(unit)
            for number, units_of_file in by_file.items():
                lines = self._lines(number)
                line_by_unit.update({unit: lines[unit] for unit in units_of_file})
            yield from map(line_by_unit.get, units_at_once)

    def lost(self, there: Collection[str]) -> dict[int, bytes]:
        """Return the lines of units whose file is not one of these."""
        gone = {number for number, (file, _) in enumerate(self._merged) if file not in there}
        lines = {unit: single.line for unit, single in self.alone.items() if single.file not in there}
        if gone:
            merged = [*self.units() - self.alone.keys()]
            lost = [unit for unit, number in zip(merged, self._numbers_of(merged), strict=True) if number in gone]
            lines.update({unit: line for unit, line in zip(lost, self.lines(lost), strict=True) if line is not None})
        return lines

    def _numbers_of(self, units: list[int]) -> list[int]:
        """Return the numbers of the merged files that hold some units, -1 for others."""
        if self._sorted is None:
            owners, numbers = np.array(self._units, np.int64), np.array(self._numbers, np.int32)
            order = np.argsort(owners, kind="stable")
            self._sorted = owners[order], numbers[order]
        owners, numbers = self._sorted
        if not owners.size:
            return [-1] * len(units)
        asked_units = np.array(units, np.int64)
        last = np.searchsorted(owners, asked_units, "right") - 1
        result: list[int] = np.where((last >= 0) & (owners[last] == asked_units), numbers[last], -1).tolist()
        return result

    def _lines(self, number: int) -> dict[int, bytes]:
        file, data = self._merged[number]
        return dict(lines_of(file, zlib.decompress(data)))
