"""Lines of records in memory: the last one of each unit counts, and compressed ones are the same."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from daskfs.store import record_index
from daskfs.store.record_index import Line, RecordIndex
from daskfs.store.records import encode
from tests.store.test_record_files import record_of

EPOCH = "0123456789ab"


@pytest.mark.parametrize("seed", range(20))
def test_index_law(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a dict of unit to file and line, whatever comes in which order."""
    monkeypatch.setattr(record_index, "RECORDS_AT_ONCE", 7)
    monkeypatch.setattr(record_index, "OPENED", 2)
    draw, found, known = random.Random(seed), RecordIndex(), dict[int, Line]()
    for step in range(40):
        units = draw.sample(range(30), draw.randint(1, 8))
        lines = {unit: encode(record_of(unit, facts={"step": step})).strip() for unit in units}
        if draw.random() < 0.5:
            file = f"{step:06d}.{EPOCH}.jsonl"
            found.read(file, b"".join(line + b"\n" for line in lines.values()))
            known.update({unit: Line(file, line) for unit, line in lines.items()})
        else:
            file = f"{units[0]:06d}.{EPOCH}.json"
            found.read(file, lines[units[0]] + b"\n")
            known[units[0]] = Line(file, lines[units[0]])
        asked = draw.sample(range(32), 32)
        assert [found.find(unit) for unit in asked[:9]] == [known.get(unit) for unit in asked[:9]]
        assert [*found.lines(asked)] == [known[unit].line if unit in known else None for unit in asked]
        assert found.units() == known.keys()
        assert found.n_units == max(known) + 1
        there = set(draw.sample(sorted({line.file for line in known.values()}), 1))
        assert found.lost(there) == {unit: held.line for unit, held in known.items() if held.file not in there}


def test_a_unit_number_that_no_stage_has_is_left_out() -> None:
    found = RecordIndex()
    found.read(f"000000.{EPOCH}.jsonl", b"00000000 99999999999999999999 {}\n00000000 3 {}\n")
    assert found.units() == {3}


def test_records_take_a_fraction_of_their_lines_in_memory() -> None:
    """Of a stage with many units, a driver holds much less than the records on disk."""
    n_units, together, n_bytes = 20_000, 256, 0
    tracemalloc.start()
    try:
        found = RecordIndex()
        for start in range(0, n_units, together):
            lines = {
                unit: encode(record_of(unit, objects={f"scores/{unit}": [512, unit * 7919 % 2**32]}, seconds=unit / 7))
                for unit in range(start, start + together)
            }
            n_bytes += sum(map(len, lines.values()))
            found.merge(f"{start:06d}.{EPOCH}.jsonl", lines)
            lines.clear()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < n_bytes / 2
    assert held < 100 * n_units
