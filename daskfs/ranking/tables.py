"""Stage "rank": the global ranking of every method, as CSV and Parquet."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from daskfs.criteria.invariants import are_crossed, is_too_large, tests_of
from daskfs.criteria.registry import Method
from daskfs.errors import DamagedError
from daskfs.ranking.dropped import dropped_features, selected_features
from daskfs.ranking.settings import RunSettings
from daskfs.stages.cost import Cost, Fixed, MiB, Objects
from daskfs.stages.kind import StageKind
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store
from daskfs.store.write_errors import MADE_AGAIN

RANKING_COLUMNS = ("method", "rank", "feature", "name", "score", "note")
TEST_COLUMNS = ("pvalue", "qvalue")
"""Columns before the last one if p-values are asked for."""
FORMULA = r"^('*[=+\-@\t\r\n])"
"""Start of a text that a spreadsheet would run as a formula, or that :data:`DEFUSED` has quoted: removing the first
quote always restores the text.
"""
DEFUSED = r"'\1"
_SPECIAL = re.compile(rf'{FORMULA}|[,"\r\n]')  # without these a text is its cell


def method_scores(store: Store, method: Method) -> np.ndarray:
    """Return a method's fields over all features, shape (n_fields, n_features), float64; row 0 is the score."""
    return store.open(layout.SCORES.format(method.label))[...]


def rank_features(context: Context, parameters: RunSettings, unit: int) -> dict[str, Any]:
    """Write the tables of the rankings.

    These are ``ranking.csv``, ``ranking.parquet``, ``selected_features.csv`` and, if the job has ``select.redundancy``,
    ``dropped_features.csv``.
    """
    import pyarrow as pa

    del unit
    methods, filtered = parameters.methods, parameters.filtered
    is_tested = parameters.significance or any(method.test is not None for method in methods)
    tested = TEST_COLUMNS if is_tested else ()
    columns = (*RANKING_COLUMNS[:-1], *tested)
    store, names = context.store, context.tiles.feature_names()
    constant = context.tiles.constant_notes()
    rows: list[tuple[Any, ...]] = []
    selected: list[tuple[Any, ...]] = []
    dropped: list[tuple[Any, ...]] = []
    for method in methods:
        table = method_scores(store, method)
        method.check_ranks_any(table, context.tiles.shape.n_samples)
        order, notes = method.order(table), method.notes(table, constant)
        values = np.full((1 + len(tested), table.shape[1]), np.nan)
        values[0] = table[0]
        if (pvalues := method.pvalues(table)) is not None:
            values[1:] = pvalues, method.qvalues(pvalues)
            notes[(notes == "") & np.isnan(pvalues)] = f"no p-value: {why_untested(store, method)}"
        elif is_tested:
            notes[notes == ""] = f"no p-value: {method.untested}"
        ranked: list[tuple[Any, ...]] = []
        for rank, feature in enumerate(map(int, order), start=1):
            numbers = (None if np.isnan(value) else float(value) for value in values[:, feature])
            ranked.append((method.label, rank, feature, names[feature], *numbers, notes[feature]))
        rows += ranked
        place = np.argsort(order)
        selected += [ranked[place[feature]] for feature in selected_features(store, method, table, parameters)]
        for feature, reason in dropped_features(store, method, table, names) if filtered else ():
            dropped.append((*ranked[place[feature]][:-1], reason))
    types = [None] * 4 + [pa.float64()] * (1 + len(tested)) + [None]
    store.write_bytes(layout.RANKING_CSV, csv_bytes((*columns, RANKING_COLUMNS[-1]), rows))
    write_parquet(store, layout.RANKING_PARQUET, arrow_table((*columns, RANKING_COLUMNS[-1]), rows, types))
    store.write_bytes(layout.SELECTED_CSV, csv_bytes(columns, (row[:-1] for row in selected)))
    if filtered:
        store.write_bytes(layout.DROPPED_CSV, csv_bytes((*columns, "reason"), dropped))
    return {"n_features": len(names)}


def why_untested(store: Store, method: Method) -> str:
    """Return why features of a method that tests have no p-value."""
    if any(is_too_large(store, need) for need in tests_of([method])):
        return "few rows carry it, on a graph too large to permute"
    return one_block(store, method) or "too few rows are tested, or all of them have one value"


def one_block(store: Store, method: Method) -> str:
    """Return that a method tests no feature as all are in one block; empty if they are not."""
    is_one = are_crossed([method]) and (store.open(layout.HALVES)[2] == 2).all()
    return "all features are one block, so none is left to make a graph that tests another" if is_one else ""


def csv_bytes(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """Return rows as CSV.

    Floats are in their shortest exact form, None is an empty cell, and text that a spreadsheet would run as a formula
    follows a single quote.
    """
    lines = (",".join(_cell(value) for value in row) + "\n" for row in itertools.chain([columns], rows))
    return "".join(lines).encode()


def _cell(value: Any) -> str:
    # The csv module of Python 3.11 does not quote a lone carriage return, which breaks the row for readers. pyarrow.csv
    # writes 1.0 as 1, True as true and quotes all names of columns: tables would differ from those of earlier versions.
    if value is None:
        return ""
    text = repr(value) if isinstance(value, float) else str(value)
    if isinstance(value, float) or _SPECIAL.search(text) is None:
        return text
    if isinstance(value, str):
        text = re.sub(FORMULA, DEFUSED, text)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\r\n') else text


def arrow_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], types: Sequence[Any]) -> Any:
    """Return rows as a :class:`pyarrow.Table`, with columns of the given Arrow types, or for None of their values."""
    import pyarrow as pa

    values = zip(*rows, strict=True) if rows else [()] * len(columns)
    return pa.table([pa.array(list(column), kind) for column, kind in zip(values, types, strict=True)], list(columns))


def write_parquet(store: Store, name: str, table: Any) -> None:
    """Write a :class:`pyarrow.Table` as a Parquet file of a store."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink)
    store.write_bytes(name, sink.getbuffer())


def read_parquet(store: Store, name: str, columns: list[str] | None = None) -> Any:
    """Return a Parquet file of a store, or some columns of it, as a :class:`pyarrow.Table`; None if there is none.

    :class:`DamagedError` if there was one.
    """
    data = store.read_bytes(name)
    if data is None:
        if store.seals.stated(name) is not None:
            msg = f"{store.url}/{name} is missing: {MADE_AGAIN}"
            raise DamagedError(msg, [store.path(name)])
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.read_table(pa.BufferReader(data), columns=columns)


PARQUET = Fixed("pyarrow, which writes the tables", 48 * MiB)
ROW_BYTES = 600
"""Bytes of a row of a table, as Python objects, in Arrow and as CSV."""


def rank_cost(n_features: int, n_methods: int, process: Cost) -> Cost:
    """Return the memory of the unit."""
    return (*process, PARQUET, Objects("rows of the tables", n_features * n_methods, ROW_BYTES))


RANK_STAGE = StageKind("rank", __name__, rank_features, rank_cost)
