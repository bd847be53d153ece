"""The papers' programs as modules, and the tables that they print."""

from __future__ import annotations

import importlib.util
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

PAPERS = Path(__file__).parents[2] / "workflows/papers"


def load_paper(name: str, patch: pytest.MonkeyPatch) -> Any:
    """Return a program as a module, which tasks in this process can import."""
    spec = importlib.util.spec_from_file_location(f"papers_{name}", PAPERS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    patch.syspath_prepend(PAPERS)
    patch.setitem(sys.modules, f"papers_{name}", module)
    spec.loader.exec_module(module)
    return module


def tables(lines: list[str]) -> list[list[list[str]]]:
    """Return the cells of the Markdown tables among lines, by rows, without the lines under headers."""
    found = []
    for is_table, members in groupby(lines, key=lambda line: line.startswith("| ")):
        if is_table:
            header, below, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in members)
            assert all(set(cell) <= set("-:") for cell in below)
            assert {len(row) for row in rows} == {len(below)} == {len(header)}
            found.append([header, *rows])
    return found
