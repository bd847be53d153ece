"""What the papers' programs share: tables in Markdown, and the data sets of a folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path


def markdown(*rows: Iterable[object]) -> list[str]:
    """Return the lines of a Markdown table with a blank line on either side; the first row is its header."""
    cells = [[str(cell) for cell in row] for row in rows]
    first, *others = (max(map(len, column)) for column in zip(*cells, strict=True))
    cells.insert(1, ["-" * first, *("-" * (width - 1) + ":" for width in others)])
    padded = [[row[0].ljust(first), *map(str.rjust, row[1:], others)] for row in cells]
    return ["", *(f"| {' | '.join(row)} |" for row in padded), ""]


def present(parser: argparse.ArgumentParser, folder: Path, names: Iterable[str]) -> list[str]:
    """Return the names of the data sets that a folder holds, naming those it lacks on stderr; exit if it has none."""
    there = [name for name in names if (folder / f"{name}.npz").is_file()]
    if not there:
        parser.error(f"--data {folder} holds none of {', '.join(f'{name}.npz' for name in names)}.")
    for name in names:
        if name not in there:
            print(f"skipped {name}: {folder}/{name}.npz is not there", file=sys.stderr)
    return there
