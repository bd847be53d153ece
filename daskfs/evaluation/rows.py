"""Stage "sample-rows", and the rows and labels that a selection sees.

The rows in use are read once, stored part by part, and cached by each process from unit to unit. A selection reads
rows and labels only through :func:`seen_by`; no other row or label reaches it, as the inductive setting requires.
"""

from __future__ import annotations

import dataclasses
from hashlib import blake2b
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.evaluation.design import (
    Design,
    EvaluationParameters,
    RowsInUse,
    Selection,
    class_subset_cost,
    draw_labels,
    read_rows_in_use,
    rows_in_use_cost,
)
from daskfs.kernels.blocks import Block, is_sparse, stack_blocks
from daskfs.kernels.labels import Labels
from daskfs.run_warning import VOIDS, RunWarning
from daskfs.stages.cost import Array, Cost, Objects
from daskfs.stages.kind import StageKind
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape
from daskfs.store.store import Store
from daskfs.tiles.shapes import tile_bytes

LEAST_REPEATED = 0.01
"""Share of the tested rows from which on copies are warned of."""


# -------------------------------------------------------------------------------------------------------- rows in use
def sample_rows_of_part(context: Context, parameters: EvaluationParameters, unit: int) -> dict[str, Any]:
    """Store the rows in use that are in the bands of one unit."""
    rows = context.store.open(layout.EVALUATION_ROWS)[...]
    shape, bands = context.tiles.shape, parameters.new_rankings.bands_per_unit
    part = slice(unit * bands * shape.tile_rows, min((unit + 1) * bands * shape.tile_rows, shape.n_samples))
    chosen = np.zeros(part.stop - part.start, dtype=bool)
    low, high = np.searchsorted(rows, [part.start, part.stop])
    chosen[rows[low:high] - part.start] = True
    arrays, hashes = dict[str, np.ndarray](), np.empty(0, dtype=np.uint64)
    if chosen.any():
        chosen_blocks = context.tiles.unfilled().aligned_rows(part, shape.tile_rows, None, chosen)
        block = stack_blocks([block for _, block in chosen_blocks if block.shape[0]])
        if is_sparse(block):
            arrays = {"data": block.data, "indices": block.indices, "indptr": block.indptr}
        else:
            arrays = {"values": block}
        hashes = row_hashes(block)
    context.store.write_arrays(layout.EVALUATION_HASHES.format(unit), {"hashes": hashes})
    context.store.write_arrays(layout.EVALUATION_PART.format(unit), arrays)
    return {"n_rows": int(high - low)}


def row_hashes(X: Block) -> np.ndarray:
    """Return a hash of each row, shape (n_rows,), uint64: the same for rows of the same values."""
    hashes = np.empty(X.shape[0], dtype=np.uint64)
    for row in range(hashes.size):
        digest = blake2b(digest_size=hashes.itemsize)
        if is_sparse(X):
            entries = slice(X.indptr[row], X.indptr[row + 1])
            # a part of very many values has int64
            digest.update(X.indices[entries].astype(np.int32, copy=False).tobytes())
            digest.update(X.data[entries].tobytes())
        else:
            digest.update(X[row].tobytes())
        hashes[row] = int.from_bytes(digest.digest(), "little")
    return hashes


def repeated_rows_warnings(store: Store, parameters: EvaluationParameters) -> list[RunWarning]:
    """Warn of rows whose copies are among the rows that models were trained on when they were tested.

    Rows are compared where they are ranked anew.
    """
    design = Design(parameters)
    if parameters.anew is None or not design.has_folds:
        return []
    parts = map(layout.EVALUATION_HASHES.format, range(parameters.anew.n_parts))
    hashes = np.concatenate([store.read_arrays(part)[0]["hashes"] for part in parts])
    arrays, _ = store.read_arrays(layout.EVALUATION_CLASS_SUBSET.format(0))
    count, n_tested = 0, 0
    for fold in range(design.n_splits):
        train, test = (hashes[arrays[f"{name}-0-{fold}"]] for name in ("train", "test"))
        count, n_tested = count + int(np.isin(test, train).sum()), n_tested + test.size
    if count < LEAST_REPEATED * n_tested:
        return []
    text = (
        f"copies of rows: {count:,} of {n_tested:,} tested rows have one among the rows that models were trained on, "
        "which makes held-out values too good: leave copies out, or keep them in one fold by data.groups"
    )
    return [RunWarning("copies of rows", VOIDS, text)]


def sample_cost(name: str, used: Shape, copies: int = 1) -> Cost:
    """Return the memory of `copies` copies of X of the rows in use, of shape `used`."""
    if not used.is_sparse:
        return (Array(name, (copies, used.n_samples, used.n_features), used.dtype),)
    nnz = used.nnz or 0
    return (
        Array(f"{name}: values", (copies, nnz), used.dtype),
        Array(f"{name}: their places", (copies, nnz), "int32"),
        Array(f"{name}: where columns begin", (copies, used.n_bands, used.n_features + 1), "int64"),
    )


def sample_rows_cost(shape: Shape, used: Shape, n_parts: int, process: Cost) -> Cost:
    """Return the memory of a unit, whose bands may contain all rows in use."""
    return (
        *process,
        Objects("tiles of X", 3, tile_bytes(shape)),
        *sample_cost("rows in use as found, put together and written", used, 3),
        Array("which rows of the part, and of its bands, are in use", (2 * shape.n_samples // n_parts,), "bool"),
        Array("rows in use, their places in the part, and where sparse ones begin", (5, used.n_samples), "int64"),
    )


SAMPLE_ROWS_STAGE = StageKind("sample-rows", __name__, sample_rows_of_part, sample_rows_cost)


def rows_of_sample(context: Context, parameters: EvaluationParameters) -> Block:
    """Return X of the rows in use, shape (n_rows, n_features), in the stored dtype; the process caches it."""
    return context.holdings.get("sample", parameters.held_bytes, _bytes_of, lambda: _read_sample(context, parameters))


def class_subset_rows(
    context: Context, parameters: EvaluationParameters, selection: Selection
) -> dict[str, np.ndarray]:
    """Return the rows and folds of a selection's class subset by name, int64 indices into the rows in use; cached."""
    name = layout.EVALUATION_CLASS_SUBSET.format(selection.class_subset.number)
    return context.holdings.get(
        name,
        parameters.held_bytes,
        lambda arrays: sum(values.nbytes for values in arrays.values()),
        lambda: context.store.read_arrays(name)[0],
    )


def _bytes_of(X: Block) -> int:
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if is_sparse(X) else X.nbytes)


def _read_sample(context: Context, parameters: EvaluationParameters) -> Block:
    n_features, blocks = context.tiles.shape.n_features, list[Block]()
    for part in range(parameters.new_rankings.n_parts):
        arrays, _ = context.store.read_arrays(layout.EVALUATION_PART.format(part))
        if "values" in arrays:
            blocks.append(arrays["values"])
        elif arrays:
            shape = (arrays["indptr"].size - 1, n_features)
            blocks.append(sp.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape))
    return stack_blocks(blocks)


# ------------------------------------------------------------------------------------------- rows that a selection sees
@dataclasses.dataclass(frozen=True)
class VisibleRows:
    """Rows that one selection sees.

    Their indices into the rows in use, their labels without those hidden from the selection, their weights, and the
    numbers of their batches.
    """

    places: np.ndarray
    labels: Labels
    weights: np.ndarray | None
    batches: np.ndarray | None


def seen_by(context: Context, parameters: EvaluationParameters, selection: Selection) -> VisibleRows:
    """Return the rows and labels that a selection sees.

    In the transductive setting these are all rows of its class subset. In the inductive setting they are the rows of
    its training fold, and the unlabeled rows, except those of a tested group and those not earlier than the first
    tested row. Labels are those of its draw, if it has one, among rows of nonzero weight.
    """
    in_use = read_rows_in_use(context.store)
    labels = in_use.labels
    subset_rows = class_subset_rows(context, parameters, selection)
    places = subset_rows["places"]
    if selection.fold is not None:
        name = f"{selection.repeat}-{selection.fold}"
        unlabeled = places[~labels.is_labeled[places]]
        unlabeled = unlabeled[_apart(in_use, unlabeled, subset_rows[f"test-{name}"])]
        places = np.sort(np.concatenate([subset_rows[f"train-{name}"], unlabeled]))
    visible = dataclasses.replace(labels, values=labels.values[places])
    weights = None if in_use.weights is None else in_use.weights[places]
    if selection.labels is not None:
        assert selection.draw is not None
        is_seen = draw_labels(visible.counted(weights), selection.labels, selection.draw, parameters.keys.random_state)
        visible = visible.counted(is_seen)  # a row whose label is hidden counts as unlabeled
    batches = None if in_use.batches is None else in_use.batches[places]
    return VisibleRows(places, visible.of_rows(np.arange(visible.values.size)), weights, batches)


def _apart(in_use: RowsInUse, places: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Return the mask of the rows `places` that may be seen while `test` is tested: other groups, and earlier times."""
    apart = np.ones(places.size, dtype=bool)
    if in_use.groups is not None:
        apart &= ~np.isin(in_use.groups[places], in_use.groups[test])
    if in_use.times is not None:
        apart &= in_use.times[places] < in_use.times[test].min()
    return apart


def seen_cost(n_rows: int, design: Design) -> Cost:
    """Return the memory of a unit's class subset and of the rows that its selection sees, without X."""
    return (
        *rows_in_use_cost(n_rows),
        Array("rows that a selection sees", (n_rows,), "int64"),
        Array("their labels", (n_rows,)),
        Array("which rows are labeled, apart from the tested ones, drawn, and of a batch", (4, n_rows), "bool"),
        *class_subset_cost(n_rows, design, 2),
    )
