"""Parameters of a generated data set, as written after the question mark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from daskfs.errors import InputError, nearest
from daskfs.sources.checks import shorten_names


@dataclass(frozen=True)
class Parameter:
    """One parameter: its default, whose type is that of the value, and its bounds."""

    default: int | float
    least: float
    most: float = float("inf")


def parse_parameters(text: str, known: Mapping[str, Parameter], where: str) -> dict[str, int | float]:
    """Return every parameter of `known` with its value in `text` (``"seed=1&noise=0"``) or its default."""
    values: dict[str, int | float] = {name: parameter.default for name, parameter in known.items()}
    seen: set[str] = set()
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text))
    except ValueError as error:
        msg = f"{where}: write parameters as 'n_samples=1000&seed=0', not {text!r}."
        raise InputError(msg) from error
    for name, value in pairs:
        if name not in known:
            msg = (
                f"{where} has no parameter {name!r}; it has {shorten_names(tuple(known))}.{nearest(name, tuple(known))}"
            )
            raise InputError(msg)
        if name in seen:
            msg = f"{where} gives {name} twice."
            raise InputError(msg)
        seen.add(name)
        values[name] = _parse(name, value, known[name], where)
    return values


def _parse(name: str, text: str, parameter: Parameter, where: str) -> int | float:
    whole = isinstance(parameter.default, int)
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        kind = "a whole number" if whole else "a number"
        msg = f"{where}: {name} is {text!r}, but must be {kind}."
        raise InputError(msg) from None
    check_bounds(name, value, parameter.least, parameter.most, where)
    return value


def check_bounds(name: str, value: float, least: float, most: float, where: str) -> None:
    """Raise :class:`InputError` unless ``least <= value <= most`` and `value` is finite."""
    if not least <= value <= most or value == float("inf"):
        above = f" and at most {most:g}" if most < float("inf") else ""
        msg = f"{where}: {name} is {value}, but must be at least {least:g}{above}."
        raise InputError(msg)
