"""All values of the tests, and tables with typed columns as CSV and Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from daskfs.evaluation.design import Design, EvaluationParameters, Selection
from daskfs.ranking.tables import arrow_table, csv_bytes, read_parquet, write_parquet
from daskfs.store import layout
from daskfs.store.store import Store

ColumnType = Literal["string", "int64", "float64", "bool"]

_NAMES: Mapping[ColumnType, str] = {
    "string": "method other best model metric setting name data_set",
    "int64": "n_selected n_labeled n_classes n_tested n_values n_pairs n_rankings n_data_sets repeat fold subset draw "
    "feature",
    "float64": "labels value mean std low high p_value difference transductive inductive gap kuncheva jaccard "
    "frequency rank mean_rank average_rank rank_low rank_high",
    "bool": "higher_is_better",
}
_TYPES = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def typed(names: str) -> dict[str, ColumnType]:
    """Return columns with their types; a name, separated by a space, has one type in all tables."""
    return {name: _TYPES[name] for name in names.split()}


AMOUNTS = typed("n_classes labels n_selected")
"""Columns of the amounts of data and features that a value belongs to."""
TESTED = typed("low high p_value n_pairs higher_is_better")
"""Columns of a paired difference, after its value."""
EVALUATION_COLUMNS = typed(
    "method n_selected n_labeled repeat fold metric value model setting n_classes subset labels draw n_tested"
)


# ------------------------------------------------------------------------------------------------------------- tables
@dataclass(frozen=True)
class Table:
    """A table: its columns with their types, and its rows; None is an empty cell."""

    name: str
    columns: Mapping[str, ColumnType]
    rows: Sequence[tuple[Any, ...]]

    def arrow(self) -> Any:
        """Return the rows as a :class:`pyarrow.Table`; columns of empty cells keep their types."""
        return arrow_table(list(self.columns), self.rows, list(self.columns.values()))


def reversed_pair(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a paired difference with its two methods exchanged."""
    difference, low, high = (None if row[key] is None else -row[key] for key in ("difference", "high", "low"))
    swapped = {"method": row["other"], "other": row["method"]}
    return {**row, **swapped, "difference": difference, "low": low, "high": high}


def write_table(store: Store, table: Table) -> None:
    """Write a table as CSV and as Parquet."""
    store.write_bytes(layout.TABLE_CSV.format(table.name), csv_bytes(list(table.columns), table.rows))
    write_parquet(store, layout.TABLE_PARQUET.format(table.name), table.arrow())


def read_table(store: Store, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table that :func:`write_table` wrote; empty if there is no such table."""
    table = read_parquet(store, layout.TABLE_PARQUET.format(name))
    return [] if table is None else table.to_pylist()


# ------------------------------------------------------------------------------------------------------------- values
@dataclass(frozen=True)
class Result:
    """One value (None if the metric is undefined) and its selection.

    `n_labeled` is None for a baseline, which selects without labels.
    """

    selection: Selection
    n_labeled: int | None
    n_selected: int
    model: str
    metric: str
    repeat: int | None
    fold: int | None
    n_tested: int | None
    value: float | None


def results(store: Store, parameters: EvaluationParameters) -> list[Result]:
    """Return all values by selection, then number of features; `parameters` are those of the stage "evaluate"."""
    design = Design(parameters)
    labeled = {
        number: int(store.read_arrays(layout.EVALUATION_ORDER.format(number))[1]["n_labeled"])
        for number in range(design.n_selections)
    }
    all_results = []
    records = enumerate(store.records.need("evaluate", range(design.n_tests)))
    values = ((design.trial(unit).selection, record["facts"]["values"]) for unit, record in records)
    for selection, parts in groupby(values, key=lambda one: one[0]):
        rows = sorted((row for _, part in parts for row in part), key=lambda row: row[0])
        all_results += [Result(selection, labeled.get(selection.number), *row) for row in rows]
    return all_results


def values_table(values: Sequence[Result]) -> Table:
    """Return the table of all values, one per row."""
    rows = [
        (
            one.selection.method,
            one.n_selected,
            one.n_labeled,
            one.repeat,
            one.fold,
            one.metric,
            one.value,
            one.model or None,
            one.selection.setting,
            one.selection.class_subset.n_classes,
            one.selection.class_subset.draw,
            None if one.selection.labels is None else float(one.selection.labels),
            one.selection.draw,
            one.n_tested,
        )
        for one in values
    ]
    return Table("evaluation", EVALUATION_COLUMNS, rows)
