"""Sizes at which few rows take the ways of many."""

from __future__ import annotations

import pytest

from daskfs.graph import partition
from daskfs.kernels.neighbors import cells


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spread a few thousand rows over several groups, and cut cells of a thousand rows again."""
    monkeypatch.setattr(partition, "GROUP_ROWS", 900)
    monkeypatch.setattr(cells, "LARGE_CELL", 800)


@pytest.fixture
def small_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let blocks have fewer rows than a band, so that several are merged."""
    monkeypatch.setattr(partition, "MIN_BLOCK_ROWS", 512)
