"""Stages "comoments" and "bins": inputs of correlations and distance correlations of candidate features.

Co-moments are taken over stretches of rows whose height depends on n_samples alone. A unit writes those of one or more
stretches, and the next stage merges them in order, so tiles and workers do not change a bit. Distance correlations use
at most 100,000 rows, drawn evenly over all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np

from daskfs.criteria.slab import slab_range
from daskfs.errors import MemoryPlanError
from daskfs.kernels.distance_correlation.histograms import BINS, DISTANCE_ROWS, BinnedColumn, bin_column
from daskfs.kernels.scaling import Scaling, row_statistics, scale_rows, without_zscore
from daskfs.kernels.statistics.comoments import (
    PRODUCT_COLUMNS,
    PRODUCT_ROWS,
    Comoments,
    ComomentSum,
    correlations,
    merge_comoments,
    stretch_rows,
)
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.kernels.threads import one_thread
from daskfs.stages.cost import WORD, Array, Cost, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.readers import GATHERED
from daskfs.store.shape import Shape, spread_rows
from daskfs.tiles.shapes import band_bytes, tile_bytes

MAX_CANDIDATES = 20_000
"""Maximum number of features compared with each other; their correlations take 3.2 GB."""


class CandidatesParameters(StageParameters):
    """Lists of candidates, by the purpose for which they are compared and the labels of their methods.

    `all_features` are the candidates of each list if set; values are rescaled by `scaling`.
    """

    purpose: str
    labels: tuple[str, ...]
    scaling: Scaling | None
    all_features: bool


class ComomentsParameters(CandidatesParameters):
    """Parameters of "comoments"."""

    stretches_per_unit: int


class BinsParameters(CandidatesParameters):
    """Parameters of "bins"."""

    slab_columns: int


def candidate_lists(context: Context, parameters: CandidatesParameters) -> dict[str, np.ndarray]:
    """Return the candidates of each method that has some, by label, int64; or all features if requested."""
    if parameters.all_features:
        return {label: np.arange(context.tiles.shape.n_features) for label in parameters.labels}
    names = {label: layout.CANDIDATES.format(parameters.purpose, label) for label in parameters.labels}
    lists = {label: context.store.open(name)[...] for label, name in names.items()}
    return {label: features for label, features in lists.items() if features.size}


def sum_comoments(context: Context, parameters: ComomentsParameters, unit: int) -> None:
    """Write the co-moments of some stretches, for each list of candidates.

    One read of X serves all lists. The result of a list does not depend on other lists.
    """
    store, tiles = context.store, context.tiles
    lists = candidate_lists(context, parameters)
    if not lists:
        return
    columns = np.unique(np.concatenate(list(lists.values())))
    places = {label: np.searchsorted(columns, features) for label, features in lists.items()}
    weights = context.weights()
    n_samples, per_unit = tiles.shape.n_samples, parameters.stretches_per_unit
    height = stretch_rows(n_samples)
    of_unit = slice(unit * per_unit * height, min((unit + 1) * per_unit * height, n_samples))
    sums: dict[str, ComomentSum] = {}
    with one_thread():
        for part, block in tiles.column_blocks(columns, of_unit, without_zscore(parameters.scaling)):
            stretch, passed = divmod(part.start, height)
            if passed == 0:
                left = min(height, n_samples - part.start)
                sums = {label: ComomentSum(features.size, left) for label, features in lists.items()}
            for label, total in sums.items():
                total.add(block[:, places[label]], None if weights is None else weights[part])
            if part.stop % height and part.stop != of_unit.stop:
                continue
            for label in list(sums):
                comoments = sums.pop(label).result()
                name = (parameters.purpose, label, stretch)
                chunks = comoment_rows(len(comoments.matrix)), len(comoments.matrix)
                store.put_array(layout.COMOMENTS.format(*name), comoments.matrix, chunks)
                store.put_array(layout.COMOMENT_MEANS.format(*name), np.append(comoments.mean, comoments.total))


def comoment_rows(width: int) -> int:
    """Return the number of rows in a chunk of a matrix of co-moments."""
    return max(1, 2**22 // max(width, 1))


def stored_correlations(context: Context, purpose: str, label: str) -> np.ndarray:
    """Return the correlations of a method's candidates, shape (n_candidates, n_candidates), float64."""
    return correlations(stored_comoments(context, purpose, label))


def stored_comoments(context: Context, purpose: str, label: str) -> Comoments:
    """Return the co-moments of a list of candidates over all rows, merged from :func:`sum_comoments`."""
    store, n_samples = context.store, context.tiles.shape.n_samples
    merged: Comoments | None = None
    for stretch in range(-(-n_samples // stretch_rows(n_samples))):
        means = store.open(layout.COMOMENT_MEANS.format(purpose, label, stretch))[...]
        matrix = store.open(layout.COMOMENTS.format(purpose, label, stretch))[...]
        comoments = Comoments(float(means[-1]), means[:-1].reshape(2, -1), matrix)
        # copied, as it is added to and may belong to the store
        merged = replace(comoments, matrix=matrix.copy()) if merged is None else merge_comoments(merged, comoments)
    assert merged is not None
    return merged


def distance_rows(context: Context, n_rows: int = DISTANCE_ROWS) -> np.ndarray:
    """Return the rows used for distance correlations, at most `n_rows`, ascending, int64; none of weight 0."""
    n_samples = context.tiles.shape.n_samples
    rows = spread_rows(n_samples, min(n_samples, n_rows))
    weights = context.weights()
    return rows if weights is None else rows[weights[rows] > 0]


def distance_weights(context: Context, n_rows: int = DISTANCE_ROWS) -> np.ndarray | None:
    """Return the weights of :func:`distance_rows`, shape (n_rows,), float64; None for one each."""
    weights = context.weights()
    return None if weights is None else weights[distance_rows(context, n_rows)]


def sampled_columns(
    context: Context, columns: np.ndarray, slab: slice, n_rows: int, scaling: Scaling | None
) -> np.ndarray:
    """Return columns of a slab in :func:`distance_rows`, shape (n_rows, n_columns), as stored or rescaled."""
    rows = distance_rows(context, n_rows)
    values = context.tiles.read_columns(columns, rows, slab.start, slab.stop)
    if (scaling := without_zscore(scaling)) is None:
        return values
    of_all = context.tiles.scales.of_rows(scaling, slice(0, context.tiles.shape.n_samples))
    return np.asarray(scale_rows(values, scaling, None, of_all.part(rows)))


def binned_columns(
    context: Context, columns: np.ndarray, slab: slice, n_rows: int, scaling: Scaling | None
) -> Iterator[BinnedColumn]:
    """Yield the columns of :func:`sampled_columns`, each in bins."""
    values, weights = sampled_columns(context, columns, slab, n_rows, scaling), distance_weights(context, n_rows)
    for place in range(columns.size):
        yield bin_column(values[:, place], BINS, weights)


def bin_candidates(context: Context, parameters: BinsParameters, unit: int) -> None:
    """Write the bins of the candidates in one slab."""
    slab = slab_range(unit, parameters.slab_columns, context.tiles.shape.n_features)
    columns = _features_of_slab(candidate_lists(context, parameters), slab)
    if columns.size == 0:
        return
    n_rows = distance_rows(context).size
    codes = np.empty((columns.size, n_rows), dtype=np.uint8)
    table = np.zeros((columns.size, 2 * BINS))
    for place, column in enumerate(binned_columns(context, columns, slab, DISTANCE_ROWS, parameters.scaling)):
        codes[place], steps = column.codes, column.steps.size
        table[place, :2] = steps, column.variance
        table[place, 2 : 2 + steps], table[place, 1 + BINS : 1 + BINS + steps] = column.steps, column.below
    context.store.put_array(layout.BINNED_CODES.format(unit), codes, (1, n_rows))
    context.store.put_array(layout.BINNED_TABLE.format(unit), table)


def _features_of_slab(lists: Mapping[str, np.ndarray], slab: slice) -> np.ndarray:
    columns = np.unique(np.concatenate(list(lists.values()))) if lists else np.empty(0, dtype=np.int64)
    return columns[(columns >= slab.start) & (columns < slab.stop)]


def stored_bins(context: Context, parameters: BinsParameters, features: np.ndarray) -> list[BinnedColumn]:
    """Return candidates by feature number, int64, in bins, from the output of :func:`bin_candidates`."""
    lists, columns = candidate_lists(context, parameters), parameters.slab_columns
    column_by_feature: dict[int, BinnedColumn] = {}
    for slab in np.unique(features // columns):
        slab_features = _features_of_slab(lists, slab_range(int(slab), columns, context.tiles.shape.n_features))
        codes = context.store.open(layout.BINNED_CODES.format(int(slab)))
        table = context.store.open(layout.BINNED_TABLE.format(int(slab)))[...]
        for feature in features[features // columns == slab]:
            place = int(np.searchsorted(slab_features, feature))
            steps, row = int(table[place, 0]), table[place]
            column_by_feature[int(feature)] = BinnedColumn(
                codes[place : place + 1][0], row[2 : 2 + steps], row[1 + BINS : 1 + BINS + steps], float(row[1])
            )
    return [column_by_feature[int(feature)] for feature in features]


def fewer_candidates(parameters: StageParameters) -> str:
    """Return advice to lower memory, as a sentence to add."""
    del parameters
    return " Fewer n_candidates need less."


def comoments_cost(shape: Shape, counts: Collection[int], scaling: Scaling | None, process: Cost) -> Cost:
    """List the memory of summing products, for lists of `counts` candidates."""
    rows, union, widest = min(GATHERED, shape.n_samples), min(sum(counts), shape.n_features), max(counts)
    band: Cost = (
        Array("all candidates in a band", (min(shape.tile_rows, shape.n_samples), union), shape.dtype),
        Objects("tiles of X", 3, tile_bytes(shape)),
    )
    if shape.is_sparse:
        band = (Objects("bands of X: as read, of some columns, and by rows", 5, band_bytes(shape)),)
    return (
        *process,
        *band,
        Array("rows of all candidates", (rows, union), shape.dtype),
        *_rescaled_cost(rows, union, scaling),
        Array("rows of the candidates of one list", (rows, widest), shape.dtype),
        *(item for count in counts for item in _sums_cost(count, shape.n_samples)),
        Array("what the means take off a panel of co-moments", (PRODUCT_COLUMNS, widest)),
        Array("sums, factors and norms of rows", (3, shape.n_samples)),
    )


def _sums_cost(width: int, n_samples: int) -> Cost:
    """List the memory of a :class:`ComomentSum`."""
    n_waiting = min(PRODUCT_ROWS, n_samples + 64)  # a multiple of 64
    panels = -(-width // PRODUCT_COLUMNS) * PRODUCT_COLUMNS
    return (
        Array("co-moments", (width, width)),
        Array("rows that wait for a product, and these times their weights", (2, n_waiting, panels)),
        Array("products of two panels, and these mirrored", (4, PRODUCT_COLUMNS, PRODUCT_COLUMNS)),
    )


def _rescaled_cost(n_rows: int, n_columns: int, scaling: Scaling | None) -> Cost:
    return (Array("rescaled values, before and after a step", (2, n_rows, n_columns)),) if scaling else ()


def stored_comoments_cost(count: int) -> Cost:
    """List the memory of :func:`stored_comoments` for `count` candidates."""
    return (Array("co-moments: merged, those of a stretch, and as these are decoded", (3, count, count)),)


def bins_cost(shape: Shape, n_columns: int, slab_columns: int, scaling: Scaling | None, process: Cost) -> Cost:
    """List the memory of binning `n_columns` candidates of a slab."""
    rows = min(shape.n_samples, DISTANCE_ROWS)
    return (
        *process,
        *sampled_cost(shape, n_columns, slab_columns, rows, scaling),
        *cutting_cost(rows),
        *binned_cost(n_columns, rows),
        Array("steps and shares of the bins, as they are written", (n_columns, 2 * BINS)),
    )


def sampled_cost(shape: Shape, n_columns: int, slab_columns: int, n_rows: int, scaling: Scaling | None) -> Cost:
    """List the memory of :func:`sampled_columns` for `n_columns` of a slab."""
    band = (shape.tile_rows, slab_columns)
    return (
        Array("a slab in a band: as read, dense, and of some rows", (3, *band), shape.dtype),
        Objects("tiles of X", 3, tile_bytes(shape)),
        Array("values of the rows in use", (n_rows, n_columns), shape.dtype),
        *_rescaled_cost(n_rows, n_columns, scaling),
        Array("sums, factors and norms of rows", (3, shape.n_samples)),
    )


def cutting_cost(n_rows: int) -> Cost:
    """List the memory of binning one column whose values all differ."""
    return (
        Array("values, levels, shares and masses of a column, and as these are sorted", (8, n_rows)),
        Array("order of a column, and its levels and bins by number", (4, n_rows), "int64"),
        Array("marks of levels and bins where these begin", (4, n_rows), "bool"),
    )


def binned_cost(n_columns: int, n_rows: int) -> Cost:
    """List the stored form of columns in bins."""
    return (
        Array("bins of the rows in use", (n_columns, n_rows), "uint8"),
        Array("steps and shares of the bins", (n_columns, 2 * BINS)),
    )


def stored_bins_cost(n_columns: int, n_rows: int) -> Cost:
    """List the memory of :func:`stored_bins`; a slab's tables also hold candidates of other methods."""
    return (
        *binned_cost(n_columns, n_rows),
        Array("steps and shares of the bins of other candidates", (n_columns, 2 * BINS)),
    )


def drawing_cost(n_rows: int) -> Cost:
    """List the memory of :func:`distance_rows`."""
    return (
        Array("where the stretches begin that rows are drawn from", (n_rows,), "int64"),
        Array("places of the rows in their stretches", (n_rows,)),
        Array("rows in use", (n_rows,), "int64"),
    )


COMOMENTS_STAGE = StageKind(
    "comoments", __name__, sum_comoments, comoments_cost, reads_weights=True, advice=fewer_candidates
)
BINS_STAGE = StageKind("bins", __name__, bin_candidates, bins_cost, reads_weights=True, advice=fewer_candidates)


def check_candidates(count: int, where: str, setting: str) -> None:
    """Raise :class:`MemoryPlanError` if `count` features are too many to compare with each other."""
    if count > MAX_CANDIDATES:
        msg = (
            f"{where} would compare {count} features with each other, which takes {WORD * count**2 / 2**30:.0f} GiB: "
            f"set {setting} to {MAX_CANDIDATES} or less."
        )
        raise MemoryPlanError(msg)


def plan_comoments(
    shape: Shape,
    name: str,
    candidates: tuple[str, Mapping[str, int]],
    scaling: str | None,
    process: Cost,
    *,
    all_features: bool = False,
) -> Stage:
    """Plan the stage that sums products of candidates, given their purpose and their number for each method.

    `all_features` are the candidates without a stage that lists them.
    """
    purpose, counts = candidates
    height = stretch_rows(shape.n_samples)
    n_stretches = -(-shape.n_samples // height)
    per_unit = max(1, -(-shape.tile_rows // height))  # a unit reads whole bands
    n_units = -(-n_stretches // per_unit)
    parameters = ComomentsParameters(purpose, tuple(counts), scaling, all_features, per_unit)
    return Stage.of(
        COMOMENTS_STAGE,
        name,
        n_units,
        parameters,
        COMOMENTS_STAGE.cost(shape, counts.values(), scaling, process),
        bytes_read=_bands_bytes(shape, per_unit * height, scaling) + n_units * WORD * sum(counts.values()),
        bytes_written=n_stretches * WORD * sum(stored_values(count) + count + 1 for count in counts.values()),
    )


def _bands_bytes(shape: Shape, height: int, scaling: str | None) -> int:
    """Return the bytes of X, in whole bands, and of row scalings that units of `height` rows read."""
    rows = min(shape.tile_rows, shape.n_samples)
    n_bands = sum(-(-part.stop // rows) - part.start // rows for part in row_blocks(shape.n_samples, height))
    of_band = -(-shape.x_bytes // shape.n_bands) if shape.is_sparse else rows * shape.n_features * shape.itemsize
    return n_bands * (of_band + WORD * rows * row_statistics(scaling))


def stored_values(count: int) -> int:
    """Return the number of values in whole chunks of a matrix of co-moments."""
    rows = min(comoment_rows(count), count)
    return -(-count // rows) * rows * count
