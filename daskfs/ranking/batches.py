"""Stages "combine" and "batch-tables": one ranking combined from rankings within batches.

Each batch has its own run below the run's directory, over only its rows. :func:`daskfs.kernels.aggregate.combine_ranks`
combines their ranks. A feature that differs only between batches, such as a plate's background or a donor's sex,
cannot lead: it carries no information within a batch.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.errors import InputError
from daskfs.kernels.aggregate import combine_ranks
from daskfs.ranking.tables import DEFUSED, FORMULA, PARQUET, method_scores, write_parquet
from daskfs.stages.cost import Array, Cost, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store


def within_batch(method: Method) -> Method:
    """Return the variant of a method that ranks within a batch."""
    return dataclasses.replace(method, combined=False)


def combined_method(method: Method) -> Method:
    """Return the variant of a method whose rankings within batches are combined; a consensus is of these."""
    return method if method.criterion.combines else dataclasses.replace(method, combined=True)


def check_batch_size(n_rows: int) -> None:
    """Raise :class:`InputError` for a batch of one row."""
    if n_rows < 2:
        msg = "it has one row, which tells no feature from another."
        raise InputError(msg)


@dataclass(frozen=True)
class RankedBatch:
    """A batch of rows: its number and name, and the labels of the methods that rank it."""

    number: int
    name: str
    methods: tuple[str, ...]


class BatchesParameters(StageParameters):
    """Parameters of the stages here."""

    methods: tuple[Method, ...]
    batches: tuple[RankedBatch, ...]

    def served(self, method: Method) -> list[int]:
        """Return the places of the batches that a method ranks."""
        return [place for place, batch in enumerate(self.batches) if method.label in batch.methods]


def combine_batches(context: Context, parameters: BatchesParameters, unit: int) -> dict[str, Any]:
    """Write the combined table of one method, and its ranks and scores within batches."""
    method = parameters.methods[unit]
    batches, n_features = parameters.batches, context.tiles.shape.n_features
    ranks, scores = (np.full((len(batches), n_features), np.nan) for _ in range(2))
    served = parameters.served(method)
    for number in served:
        store = Store(context.store.path(layout.BATCH_RUN.format(batches[number].number)))
        plain = within_batch(method)
        table = method_scores(store, plain)
        ranks[number], scores[number] = plain.ranks(table), table[0]
    context.store.put_array(layout.BATCH_RANKS.format(method.label), np.stack([ranks, scores]))
    context.store.put_array(layout.SCORES.format(method.label), combine_ranks(ranks[served]))
    return {"n_batches": len(served)}


def batch_ranks(store: Store, method: Method) -> np.ndarray:
    """Return ranks and scores of a method within batches, shape (2, n_batches, n_features), float64; NaN for none."""
    return store.open(layout.BATCH_RANKS.format(method.label))[...]


def write_batch_tables(context: Context, parameters: BatchesParameters, unit: int) -> None:
    """Write ``batches.csv`` and ``batches.parquet``: one row for each method, batch that it ranks, and feature."""
    del unit
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv

    table = pa.concat_tables(_tables(context, parameters))
    defused = [
        pc.replace_substring_regex(column, FORMULA, DEFUSED) if column.type == pa.string() else column
        for column in table.columns
    ]
    sink = io.BytesIO()
    options = pa.csv.WriteOptions(quoting_style="needed")
    pa.csv.write_csv(pa.table(defused, table.column_names), sink, options)
    context.store.write_bytes(layout.BATCHES_CSV, sink.getbuffer())
    write_parquet(context.store, layout.BATCHES_PARQUET, table)


def _tables(context: Context, parameters: BatchesParameters) -> Iterator[Any]:
    """Yield one Arrow table for each method and batch."""
    import pyarrow as pa

    names = pa.array(context.tiles.feature_names(), pa.string())
    numbers = pa.array(np.arange(len(names)))
    for method in parameters.methods:
        ranks, scores = batch_ranks(context.store, method)
        for number in parameters.served(method):
            columns = {
                "method": pa.repeat(method.label, len(names)),
                "feature": numbers,
                "name": names,
                "batch": pa.repeat(parameters.batches[number].name, len(names)),
                "rank": pa.array(ranks[number], from_pandas=True),  # NaN becomes null
                "score": pa.array(scores[number], from_pandas=True),
            }
            yield pa.table(columns)


BATCH_FEATURE_BYTES = 200
"""Bytes of a feature in the table of a batch, in its order there, and in the table of all batches."""
NAME_ARROW_BYTES = 200
"""Bytes of a feature name, as a Python string and in Arrow."""
BATCH_ROW_BYTES = 300
"""Bytes of a row of the table, in Arrow and as CSV or Parquet."""


def combine_cost(n_batches: int, n_features: int, process: Cost) -> Cost:
    """Return the memory of combining the rankings of one method."""
    return (
        *process,
        Array("ranks and scores within batches, apart and in one array", (2, 2, n_batches, n_features)),
        Array("ranks of the batches that have some, these sorted, and as chunks", (3, n_batches, n_features)),
        Objects("features in tables", n_features, BATCH_FEATURE_BYTES),
    )


def batch_tables_cost(n_ranks: int, n_features: int, process: Cost) -> Cost:
    """Return the memory of writing a table of `n_ranks` rows."""
    return (
        *process,
        PARQUET,
        Objects("rows of the table", n_ranks, BATCH_ROW_BYTES),
        Objects("names of features", n_features, NAME_ARROW_BYTES),
    )


COMBINE_STAGE = StageKind("combine", __name__, combine_batches, combine_cost)
BATCH_TABLES_STAGE = StageKind("batch-tables", __name__, write_batch_tables, batch_tables_cost)
