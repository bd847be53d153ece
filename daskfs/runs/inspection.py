"""Inspection of data without a run: shape, missing values, constant features, labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from daskfs.data_block import DataBlock
from daskfs.errors import InputError
from daskfs.kernels.blocks import column_extremes, is_sparse
from daskfs.kernels.digits import loses_digits
from daskfs.kernels.labels import LabelCounter, LabelCounts
from daskfs.kernels.statistics.column_hash import N_HASHES, column_hashes, describe_equal, first_equal
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.runs.status import RETRIES_LISTED, describe_counts, describe_tiles
from daskfs.runs.tiles import is_tile_store, source_spec
from daskfs.sources import Source, SourceSpec, open_source
from daskfs.sources.base import SAMPLE_COLUMNS
from daskfs.sources.column_profile import FEW_LABEL_VALUES
from daskfs.sources.description import describe_source
from daskfs.sources.labels import LabelEncoding, classes_note
from daskfs.sources.sample_columns import SAMPLE_COLUMN_KINDS
from daskfs.store.row_names import describe_row_names
from daskfs.store.shape import Shape
from daskfs.tiles.shapes import MAX_TILE_BYTES, plan_shape


def inspect_data(data: DataBlock) -> dict[str, Any]:
    """Describe a tile store from its metadata, or any other source in two streaming passes.

    Columns of a table that hold no numbers are left out of X.

    Returns
    -------
    dict
        Shape, dtype, tiles, labels, per-sample columns, row names, `missing` and, for a source, `infinite` and
        `beyond_2_53`, of integers that float64 does not hold (column name to count, the 20 columns with the most),
        constant and duplicate features; `columns` and `members` of
        :class:`daskfs.sources.description.Description`. If there is no X, and `data` names nothing in the source, the
        reason is in `problem` instead.

    Raises
    ------
    InputError
        For a source that cannot be read, or does not hold what `data` names.
    """
    spec = source_spec(data)
    if is_tile_store(spec):
        return describe_tiles(spec.source)
    description = describe_source(spec)
    named = {getattr(spec, key) for key in ("labels", "row_names", *SAMPLE_COLUMNS)}
    other = [name for name in description.non_numeric if name not in (*named, *spec.exclude)]
    is_table = bool(description.columns) and not description.members
    try:
        described = _describe_rows(data, spec.with_keys(exclude=(*spec.exclude, *other)) if is_table else spec)
    except InputError as error:
        if data != DataBlock(source=data.source) or not (description.columns or description.members):
            raise
        described = {"source": data.source, "problem": str(error)}
    return {**described, "members": description.members, "columns": description.columns}


def needed_keys(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of ``data`` that a run of the described source needs: labels, missing and exclude.

    Labels are named if exactly one column looks like them.
    """
    if "infinite" not in description:  # tiles, which have them
        return {}
    columns, keys = description["columns"], dict[str, Any]()
    labels = [one["name"] for one in columns if one["looks_like"] == "label" and _serves(one)]
    if len(labels) == 1 and description["task"] is None:
        keys["labels"] = labels[0]
    if {*description["missing"]} - {*labels}:
        keys["missing"] = "mean"
    if beyond := [name for name in description["beyond_2_53"] if name not in labels]:
        is_table = columns and not description["members"]
        keys |= {"exclude": beyond} if is_table else {}
    return keys


def _serves(column: Mapping[str, Any]) -> bool:
    """Return whether a column can be labels with ``task: auto``."""
    return column["type"] == "number" or (
        column["n_distinct"] is not None and 1 < column["n_distinct"] <= FEW_LABEL_VALUES
    )


def _describe_rows(data: DataBlock, spec: SourceSpec) -> dict[str, Any]:
    """Describe X, the labels and the per-sample columns."""
    source = open_source(spec)
    info = source.info
    nnz = info.nnz if info.is_sparse else None
    shape = plan_shape(info.n_samples, info.n_features, info.dtype.name, nnz, None, info.row_multiple)
    names = list(info.feature_names or [f"x{i}" for i in range(info.n_features)])
    counts, constant, first = _scan(source, shape)
    labels = _count_labels(source, data.task, spec.unlabeled)
    result: dict[str, Any] = {
        "source": data.source,
        **asdict(shape),
        "task": labels.task if labels else None,
        "n_labeled": labels.n_labeled if labels else 0,
        **{name: _describe_column(source, name) for name in SAMPLE_COLUMNS},
        "row_names": describe_row_names(source),
        "warnings": list(map(str, source.verify())),
        **{key: value for name in counts for key, value in describe_counts(name, names, counts[name]).items()},
        "n_constant": int(constant.sum()),
        "constant": [names[i] for i in np.flatnonzero(constant)[:RETRIES_LISTED]],
        **describe_equal(np.where(constant, np.arange(first.size), first), names),
    }
    if labels is not None and labels.task == "classification":
        result["note"] = classes_note(labels.classes, spec.unlabeled)
        result["classes"] = dict(zip(labels.classes, labels.by_class, strict=True))
    return result


def _count_labels(source: Source, task: str, unlabeled: str) -> LabelCounts | None:
    if (column := source.labels_column()) is None:
        return None
    encoding = LabelEncoding(column.parts, task, unlabeled)
    counter = LabelCounter(encoding.task, encoding.classes)
    for values in encoding.parts():
        counter.add(values, None)
    return counter.counts()


def _describe_column(source: Source, name: str) -> dict[str, Any] | None:
    if (column := source.sample_column(name)) is None:
        return None
    column_values = SAMPLE_COLUMN_KINDS[name](column.parts, column.origin)
    for _ in column_values.stored():
        pass
    return column_values.described()


def _scan(source: Source, shape: Shape) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    counts = {name: np.zeros(shape.n_features, dtype=np.int64) for name in ("missing", "infinite", "beyond_2_53")}
    low, high = np.full(shape.n_features, np.inf), np.full(shape.n_features, -np.inf)
    hashes = np.zeros((N_HASHES, shape.n_features), dtype=np.uint64)
    # rows that the source reads at once, where they are not much more than a tile may be
    together = min(source.info.row_multiple, 4 * MAX_TILE_BYTES // (shape.n_features * source.info.dtype.itemsize))
    for band in row_blocks(shape.n_samples, max(shape.tile_rows, together)):
        block = source.read_rows(band.start, band.stop)
        hashes += column_hashes(block, band.start)
        values = block.data if is_sparse(block) else block
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            is_lost = np.broadcast_to(loses_digits(values), values.shape)
            masks = {"missing": np.isnan(values) & ~is_lost, "infinite": np.isinf(values), "beyond_2_53": is_lost}
            for name, mask in masks.items():
                at_column = block.indices[mask] if is_sparse(block) else np.nonzero(mask)[1]
                counts[name] += np.bincount(at_column, minlength=shape.n_features)
        lowest, highest = column_extremes(block)
        low, high = np.fmin(low, lowest), np.fmax(high, highest)
    is_whole = counts["missing"] + counts["beyond_2_53"] == 0
    return counts, (low == high) & is_whole, first_equal(hashes)
