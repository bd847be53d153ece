"""Many cases in one test: a case of a few milliseconds is not worth a test of its own."""

from __future__ import annotations

import ast
import gc
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from reprlib import repr as short
from typing import Any

Test = Callable[..., None]


@contextmanager
def case(*what: object) -> Iterator[None]:
    """Name the case in the report of its failure."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"case: {', '.join(map(str, what))}")
        raise


def each(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with one value after the other, given as to ``pytest.mark.parametrize``; the case that fails is noted
    with its error.
    """
    cases = [dict(zip(names, value, strict=True)) if isinstance(names, tuple) else {names: value} for value in values]

    def decorate(test: Test) -> Test:
        @wraps(test)
        def looping(*arguments: Any, **named: Any) -> None:
            for one in cases:
                with case(*(f"{name} = {short(value)}" for name, value in one.items())):
                    test(*arguments, **named, **one)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in cases[0]]
        looping.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return looping

    return decorate


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file.

    Python 3.11 parses source to mark places in a traceback. Where garbage is collected while a tree is made, and an
    object logs an error as it goes, it does so within :func:`ast.parse`, which then fails.
    """
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()
