"""Numbers, sizes and times as text."""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np
import pytest

from daskfs.report import values
from daskfs.report.view import bars

NAN, INF = math.nan, math.inf
MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.5, "0.5000"),
        (0.123456, "0.1235"),
        (12.3456, "12.35"),
        (-1234.56, f"{MINUS}1,235"),
        (1234567.8, "1,234,568"),
        (1.2345e-5, f"1.234e{MINUS}05"),
        (1e20, "1.000e+20"),
        (12345678, "12,345,678"),
        (-3, f"{MINUS}3"),
        (NAN, "NaN"),
        (INF, "∞"),
        (-INF, f"{MINUS}∞"),
        (None, values.DASH),
        ("words", values.DASH),
        ("NaN", "NaN"),
        (10**400, "∞"),
    ],
)
def test_format_number(value: object, text: str) -> None:
    assert values.format_number(value) == text


def test_full_number_only_when_digits_are_lost() -> None:
    assert values.full_number(0.123456) == "0.123456"
    for value in (0.5, 3, None, NAN, INF, "x"):
        assert values.full_number(value) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (50 * 2**20, "50.0 MiB"),
        (1_146_880_000, "1.07 GiB"),
        (2**60, "1,024 PiB"),
        (None, values.DASH),
        (NAN, "NaN"),
    ],
)
def test_format_bytes(value: object, text: str) -> None:
    assert values.format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (-1, "0 s"),
        (0.0002, "< 1 ms"),
        (0.0123, "12.3 ms"),
        (3.14159, "3.14 s"),
        (289, "4 min 49 s"),
        (7325, "2 h 02 min"),
        (360_000, "100 h 00 min"),
        (None, values.DASH),
        (INF, "∞"),
    ],
)
def test_format_seconds(value: object, text: str) -> None:
    assert values.format_seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 %"), (1, "100 %"), (0.19123, "19.1 %"), (0.99997, "> 99.9 %"), (1e-6, "< 0.01 %"), (NAN, "NaN")],
)
def test_format_percent(value: object, text: str) -> None:
    assert values.format_percent(value) == text


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        (0.912, 0.0123, "0.0123"),
        (0.912, 0.0, "0.0000"),
        (0.912, 1e-7, f"1e{MINUS}07"),
        (1234.5, 30.2, "30"),
        (1e9, 2.5, "2.500"),
        (None, NAN, "NaN"),
        (0.5, None, values.DASH),
    ],
)
def test_format_spread(mean: object, std: object, text: str) -> None:
    assert values.format_spread(mean, std) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("2026-02-03T14:05:09.123456+00:00", "2026-02-03 14:05:09 UTC"),
        ("2026-02-03T14:05:09Z", "2026-02-03 14:05:09 UTC"),
        ("2026-02-03T14:05:09-03:30", "2026-02-03 14:05:09 UTC-03:30"),
        ("2026-02-03T14:05:09", "2026-02-03 14:05:09"),
        ("yesterday", "yesterday"),
        (None, values.DASH),
        (7, "7"),
    ],
)
def test_format_time(value: object, text: str) -> None:
    assert values.format_time(value) == text


def test_format_text() -> None:
    given: dict[str, Any] = {"a": True, "b": [1, 0.25], "c": None, "d": {}}
    assert values.format_text(given) == f"a: yes, b: 1, 0.2500, c: {values.DASH}, d: {values.DASH}"


def test_format_count() -> None:
    assert values.format_count(1234) == "1,234"
    assert values.format_count(1234.0) == "1,234"
    assert values.format_count(NAN) == "NaN"
    assert values.format_count(None) == values.DASH


class Kind(enum.StrEnum):
    HEAT = "heat"


class Level(enum.IntEnum):
    ONE = 1


def test_plain() -> None:
    given = {
        1: np.float32(0.5),
        "array": np.arange(2),
        "kind": Kind.HEAT,
        "level": Level.ONE,
        "tuple": (np.int64(3), np.bool_(True), np.str_("x")),
        "other": 1j,
        "double": np.float64(2.5),
    }
    found = values.plain(given)
    assert found == {
        "1": 0.5,
        "array": [0, 1],
        "kind": "heat",
        "level": 1,
        "tuple": [3, True, "x"],
        "other": "1j",
        "double": 2.5,
    }
    assert [type(found[key]) for key in ("1", "kind", "level", "double")] == [float, str, int, float]
    assert [type(item) for item in found["tuple"]] == [int, bool, str]


def test_bars() -> None:
    assert bars([2.0, 1.0, NAN, None, INF, 0.0]) == [
        ("0.00", "100.00"),
        ("0.00", "50.00"),
        None,
        None,
        None,
        ("0.00", "0.00"),
    ]
    assert bars([-1.0, 3.0]) == [("0.00", "25.00"), ("25.00", "75.00")]
    assert bars([0.0, 0.0]) == [None, None]
    assert bars([NAN]) == [None]
    assert bars([]) == []
