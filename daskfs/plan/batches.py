"""Plan of what follows the runs of batches: their rankings combined, and their ranks as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daskfs.plan.stages import MiB, Stage
from daskfs.store.tiles import Shape

ARROW_BYTES = 48 * MiB
"""What pyarrow adds to the process that writes the table."""
ROW_BYTES = 300
"""What a row of the table takes, as Arrow has it, and as CSV or Parquet."""


def plan_combination(
    shape: Shape, methods: Sequence[Mapping[str, Any]], batches: Sequence[Mapping[str, Any]], process: int
) -> list[Stage]:
    """Stages that combine the rankings of batches.

    Parameters
    ----------
    shape
        Of the data.
    methods
        The methods, as JSON.
    batches
        Number, name and methods of each batch; none where they are not known yet.
    process
        Bytes that a process takes before a unit starts.
    """
    n_ranks = max(len(batches), 2) * shape.n_features
    parameters = {"methods": list(methods), "batches": list(batches)}
    combining = process + 8 * 7 * n_ranks + 200 * shape.n_features
    tables = process + ARROW_BYTES + ROW_BYTES * n_ranks * len(methods) + 200 * shape.n_features
    size = 16 * n_ranks * len(methods)
    return [
        # called as what scores without batches, since what follows asks it for the methods
        Stage("score", "combine", len(methods), parameters, combining, size // 2, size),
        Stage("batch-tables", "batch-tables", 1, parameters, tables, size),
    ]
