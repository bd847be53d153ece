"""Mistakes are answered by daskfs, and not by the library that comes upon them first."""

from __future__ import annotations

from typing import Any

import pytest

import daskfs
from daskfs.estimators.base import ScoreSelector
from tests.cases import each

SELECTORS = [
    one for name in daskfs.__all__ if isinstance(one := getattr(daskfs, name), type) and issubclass(one, ScoreSelector)
]


@each("kind", SELECTORS)
def test_a_parameter_that_no_selector_has(kind: Any) -> None:
    """Some classes have the ``__init__`` of a base class, whose name nobody wrote."""
    known = list(kind._get_param_names())
    for name in known:
        with pytest.raises(TypeError, match=rf"^{kind.__name__}\(\) has no parameter '{name}z'\..*'{name}'\?$"):
            kind(**{f"{name}z": 3})
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\(\) takes .* positional argument"):
        kind(*range(9))
