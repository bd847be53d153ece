"""Formatting of numbers, which may be NaN, infinite or ``None``, sizes, times and texts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
TIMES_SIGN = "\N{MULTIPLICATION SIGN}"

# Control characters are not allowed in HTML, lone surrogates cannot be encoded as UTF-8, and text direction overrides
# would reorder the text next to a name.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_LARGEST_PLOTTED = 1e100
_BYTE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def clean(text: object) -> str:
    """Replace every character that HTML or UTF-8 does not allow, or that reverses text, by U+FFFD."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(text))


def plain(value: object) -> Any:
    """Copy nested data into JSON types, with clean strings and keys.

    NumPy scalars and arrays of any shape and dtype become Python numbers and lists; other objects become their ``str``.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):  # subclasses (enum members, NumPy floats) have their own string forms
        return float(value) if isinstance(value, float) else int(value)
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    convert = getattr(value, "tolist", None)
    return plain(convert()) if callable(convert) else clean(value)


def as_float(value: object) -> float | None:
    """Convert a value to float, ``None`` if it is not a number. ``"NaN"`` and ``"inf"`` are numbers."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf if isinstance(value, int) and value > 0 else -math.inf
    except (TypeError, ValueError):
        return None


def as_number(value: object) -> int | float | None:
    """Return an integer as it is, another number as a float, and anything else as None; NumPy scalars are numbers."""
    return value if type(value) is int else as_float(value)


def plottable(value: object) -> float:
    """Convert a value to a float that an axis can show: 0 if tiny, NaN if huge or not a finite number."""
    number = as_float(value)
    if number is None or not abs(number) < _LARGEST_PLOTTED:
        return math.nan
    return number if abs(number) > 1 / _LARGEST_PLOTTED else 0.0


def positive(value: object) -> bool:
    """Return whether the value is a finite number above zero."""
    number = as_float(value)
    return number is not None and math.isfinite(number) and number > 0


def format_number(value: object) -> str:
    """Format a float with four significant digits, an integer with all digits, other values as a word or sign."""
    number = as_float(value)
    if number is None:
        return DASH
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else f"{MINUS}∞"
    if isinstance(value, int):
        return _sign(f"{value:,}")
    size = abs(number)
    if size == 0:
        return "0"
    if not 1e-4 <= size < 1e7:
        return _sign(f"{number:.3e}")
    digits = max(0, 3 - math.floor(math.log10(size)))
    return _sign(f"{number:,.{digits}f}")


def _sign(text: str) -> str:
    return text.replace("-", MINUS)


def full_number(value: object) -> str:
    """Format a float with all digits, for a tooltip; empty if the short form already shows them."""
    number = as_float(value)
    if number is None or isinstance(value, int) or not math.isfinite(number):
        return ""
    text = repr(number)
    return "" if float(f"{number:.4g}") == number else text


def format_count(value: object) -> str:
    """Format a whole number with thousands separators; floats are rounded."""
    number = as_float(value)
    if number is not None and math.isfinite(number):
        return _sign(f"{int(value) if isinstance(value, int) else round(number):,}")
    return format_number(value)


def format_percent(value: object) -> str:
    """Format a fraction as a percentage."""
    number = as_float(value)
    if number is None or not math.isfinite(number):
        return format_number(value)
    percent = 100 * number
    if 0 < percent < 0.01:
        return "< 0.01 %"
    # Do not round up to 100 %.
    if 99.95 <= percent < 100:
        return "> 99.9 %"
    return f"{_sign(f'{percent:.3g}')} %"


def format_spread(center: object, spread: object) -> str:
    """Format a standard deviation with as many decimals as :func:`format_number` gives the mean."""
    mean, std = format_number(center), as_float(spread)
    if std is None or not math.isfinite(std) or "e" in mean:
        return format_number(spread)
    text = f"{std:,.{len(mean.partition('.')[2])}f}"
    return text if std == 0 or float(text.replace(",", "")) else _sign(f"{std:.2g}")


def format_bytes(value: object) -> str:
    """Format a size in bytes in the binary unit that leaves one to four digits before the point."""
    number = as_float(value)
    if number is None or not math.isfinite(number):
        return format_number(value)
    if abs(number) < 1024:
        return f"{_sign(f'{number:.0f}')} B"
    power = min(int(math.log2(abs(number)) / 10), len(_BYTE_UNITS))
    number /= 1024**power
    decimals = 2 if abs(number) < 10 else 1 if abs(number) < 100 else 0
    return f"{_sign(f'{number:,.{decimals}f}')} {_BYTE_UNITS[power - 1]}"


def format_seconds(value: object) -> str:
    """Format a duration in seconds as milliseconds, seconds, minutes or hours."""
    number = as_float(value)
    if number is None or not math.isfinite(number):
        return format_number(value)
    if number <= 0:
        return "0 s"
    if number < 1:
        return f"{number * 1000:.3g} ms" if number >= 0.001 else "< 1 ms"
    if number < 100:
        return f"{number:.3g} s"
    minutes, seconds = divmod(round(number), 60)
    if minutes < 100:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02d} min"


def format_time(value: object) -> str:
    """Format an ISO 8601 time without its ``T`` and fractions of a second; other text is returned unchanged."""
    if not isinstance(value, str):
        return DASH if value is None else str(value)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return value
    zone = moment.strftime("%z")
    suffix = "" if not zone else " UTC" if zone == "+0000" else f" UTC{zone[:3]}:{zone[3:5]}"
    return f"{moment:%Y-%m-%d %H:%M:%S}{suffix}"


def format_text(value: object) -> str:
    """Format any value for a sentence or a table: booleans as yes and no, numbers, joined lists."""
    if value is None or value == "":
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return format_number(value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {format_text(item)}" for key, item in value.items()) or DASH
    if isinstance(value, list):
        return ", ".join(format_text(item) for item in value) or DASH
    return str(value)


def shorten(text: str, length: int) -> str:
    """Cut a text longer than ``length`` characters, with an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 1]}…"
