"""Stages "fill" and "facts": column means that replace missing values, then the statistics of X.

Tiles keep NaN; readers replace it by the column means. These are known only after all bands are read, so moments, norms
and hashes of filled values, to the bit those of data filled beforehand, need a second pass over the tiles. Under the
policy "pairwise" they are those of the observed values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from daskfs.kernels.missing import Observed, merge_observed
from daskfs.kernels.statistics.column_hash import column_hashes
from daskfs.kernels.statistics.moments import merge_tree
from daskfs.stages.cost import PROCESS, Array, Cost
from daskfs.stages.kind import StageKind
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape
from daskfs.store.tiles import TileInfo, Tiles
from daskfs.tiles.ingest import TileParameters, take_facts
from daskfs.tiles.shapes import band_cost, moments_cost, tile_cost

WAITING_SUMS = 29
"""Most tables held while 2**28 bands are merged along a tree: one per level, and that of the next band."""


def close_observed(context: Context, parameters: TileParameters, unit: int) -> dict[str, Any]:
    """Merge the bands' statistics of observed values, and write fill values and counts of missing values."""
    del unit
    store, shape = context.store, parameters.shape
    bands = store.open(layout.OBSERVED)
    observed = merge_tree((Observed(*bands[index]) for index in range(shape.n_bands)), merge_observed)
    store.put_array(layout.FILL, np.stack([observed.values(shape.n_samples, np.dtype(shape.dtype)), observed.missing]))
    return {"n_missing": int(observed.missing.sum())}


def take_facts_of_filled(context: Context, parameters: TileParameters, unit: int) -> None:
    """Compute moments, hashes and norms of one band, filled unless the policy is "pairwise"."""
    shape = parameters.shape
    facts = {"missing": {"policy": parameters.source.missing, "total": context.store.open(layout.FILL)[1].sum()}}
    info = TileInfo(shape, parameters.fingerprint, parameters.source.source, parameters.x_path, facts=facts)
    band = shape.band(unit)
    block = Tiles(context.store, info).as_counted().read_rows(band)
    take_facts(context.store, shape, unit, block, column_hashes(block, band.start))


def fill_cost(n_features: int) -> Cost:
    """Return the memory cost of a "fill" unit, which merges the bands."""
    return (
        PROCESS,
        Array("what bands say of columns", (WAITING_SUMS, len(layout.OBSERVED_ROWS), n_features)),
        Array("counts and means of columns, and what is written of them", (9, n_features)),
    )


def facts_cost(shape: Shape) -> Cost:
    """Return the memory cost of a "facts" unit; sparse columns are converted to rows."""
    copies = 6 if shape.is_sparse else 3
    return (PROCESS, *band_cost(shape, copies), *tile_cost(shape, 4), *moments_cost(shape, shape.tile_rows))


FILL_STAGE = StageKind("fill", __name__, close_observed, fill_cost)
FACTS_STAGE = StageKind("facts", __name__, take_facts_of_filled, facts_cost)
