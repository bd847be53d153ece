"""Laws of Hypothesis are searched by one command."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests import conftest


def test_examples_of_every_law_are_multiplied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "EXAMPLES_FACTOR", 3)
    law = settings(max_examples=7)
    assert law.max_examples == 3 * 7
    assert settings(parent=law, deadline=None).max_examples == 3 * 7
    assert settings(law, max_examples=5).max_examples == 3 * 5
