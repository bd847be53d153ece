"""Stages "distance-maps", "distance-values" and "correlate": distance correlations between all features.

At most :attr:`CorrelationSpec.n_rows` rows are used, drawn evenly. A slab holds all of them for its features, so bin
edges come from the rows and no quantile sketch is merged. Each slab writes, for each feature, its bins and their maps
("feature_map") or its values ("exact", "matrix_free"). Then one unit for each pair of blocks of 256 features writes one
block of the matrix, on or above the diagonal. Under "matrix_free" there are no such units, and
:class:`FeatureCorrelations` reads the values for every product.

Blocks of features and of rows have fixed sizes, so tiles, slabs and workers do not change a bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from daskfs.criteria.rrpc.correlations import (
    binned_columns,
    cutting_cost,
    distance_weights,
    drawing_cost,
    sampled_columns,
    sampled_cost,
)
from daskfs.criteria.slab import slab_range
from daskfs.errors import InputError
from daskfs.kernels.distance_correlation.exact import (
    DISTANCES_AT_ONCE,
    FEW_VALUES,
    DistanceSum,
    bias_corrected,
    distance_columns,
    exact_correlations,
    exact_deviations,
    shares_of,
)
from daskfs.kernels.distance_correlation.feature_map import (
    MAP_PRODUCT_ROWS,
    PRODUCT_WIDTH,
    CodeGram,
    FeatureMap,
    feature_map,
    most_components,
    squares_by_column,
    with_lost_traces,
)
from daskfs.kernels.distance_correlation.histograms import BINS
from daskfs.kernels.distance_correlation.spec import CorrelationSpec
from daskfs.kernels.scaling import row_statistics
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.kernels.threads import one_thread
from daskfs.stages.cost import WORD, Array, Cost, Objects, total
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape

BLOCK_FEATURES = 256
BLOCK_COMPONENTS = 4096
CODE_ROWS = 2**17
"""Rows of a chunk of codes."""
CODE_COLUMNS = 16
CHUNKS_AT_ONCE = 10
"""Chunks of one array that Zarr writes at a time."""
DOUBLE_ROUNDING = 1e-12
SINGLE_PRECISION = 2e-6
"""Rounding error of a correlation of 1: `DOUBLE_ROUNDING` in double precision, this in single."""
PRODUCT_BYTES = 2**20
"""Bytes of feature values that a matrix-free product reads together."""
HELD_BYTES = 2**28
"""Maximum bytes of a matrix, in blocks, held in memory; a larger one is read again for every product."""
HANDLE_BYTES = 8192
"""Bytes of an open array, and of the page that the allocator adds to each held block."""
N_FACTS = 8
"""Facts of a feature.

Number of components, mean distance, trace, variance of mean distances, error, 1 if constant; number of rows in use, and
the sum of their weights.
"""
N_COMPONENTS, MEAN, TRACE, VARIANCE, ERROR, IS_CONSTANT, N_ROWS, TOTAL = range(N_FACTS)


class CorrelateParameters(StageParameters):
    """Parameters of "correlate"."""

    correlation: CorrelationSpec


class SlabsParameters(CorrelateParameters):
    """Parameters of "distance-maps" and "distance-values"."""

    slab_columns: int


def map_features(context: Context, parameters: SlabsParameters, unit: int) -> None:
    """Write the bins, their maps and the facts of the features of one slab."""
    spec, slab = parameters.correlation, slab_range(unit, parameters.slab_columns, context.tiles.shape.n_features)
    columns = np.arange(slab.start, slab.stop)
    store, width = context.store, most_components(spec.n_components)
    codes: np.ndarray | None = None
    table = np.zeros((columns.size, width + 1, BINS))
    facts = np.zeros((columns.size, N_FACTS))
    binned = binned_columns(context, columns, slab, spec.rows_used(context.tiles.shape.n_samples), spec.felt)
    with one_thread():
        for place, column in enumerate(binned):
            if codes is None:
                codes = np.empty((columns.size, column.codes.size), dtype=np.uint8)
            codes[place] = column.codes
            feature = feature_map(column, spec.n_components)
            count, n_bins = feature.table.shape
            table[place, :count, :n_bins] = feature.table
            table[place, width, :n_bins] = feature.deviation
            constant = not feature.table.any()
            facts[place, :N_ROWS] = count, feature.mean, feature.trace, feature.variance, feature.error, constant
    assert codes is not None
    weights = distance_weights(context, spec.rows_used(context.tiles.shape.n_samples))
    facts[:, N_ROWS:] = codes.shape[1], codes.shape[1] if weights is None else weights.sum()
    store.put_array(layout.DISTANCE_CODES.format(spec.name, unit), codes, (CODE_COLUMNS, CODE_ROWS))
    store.put_array(layout.DISTANCE_TABLE.format(spec.name, unit), table, (CODE_COLUMNS, *table.shape[1:]))
    store.put_array(layout.DISTANCE_FACTS.format(spec.name, unit), facts)


def store_values(context: Context, parameters: SlabsParameters, unit: int) -> None:
    """Write the features of one slab in the rows in use, divided by the norms of their distances."""
    spec, slab = parameters.correlation, slab_range(unit, parameters.slab_columns, context.tiles.shape.n_features)
    columns = np.arange(slab.start, slab.stop)
    n_rows = spec.rows_used(context.tiles.shape.n_samples)
    values = sampled_columns(context, columns, slab, n_rows, spec.felt)
    scaled_values = np.empty((columns.size, values.shape[0]))
    facts = np.zeros((columns.size, N_FACTS))
    shares = shares_of(distance_weights(context, n_rows), values.shape[0])
    with one_thread():
        for part in row_blocks(columns.size, CODE_COLUMNS):
            distances = distance_columns(values[:, part].T, shares)
            scaled_values[part] = distances.values
            facts[part, IS_CONSTANT] = distances.mean <= 0
    facts[:, N_ROWS] = values.shape[0]
    context.store.put_array(layout.DISTANCE_VALUES.format(spec.name, unit), scaled_values, (CODE_COLUMNS, CODE_ROWS))
    context.store.put_array(layout.DISTANCE_FACTS.format(spec.name, unit), facts)


def _read_features(context: Context, name: str, spec: CorrelationSpec, features: slice, *rest: slice) -> np.ndarray:
    """Return the stored array of some features from their slabs; `rest` selects on the other axes."""
    columns, parts = context.store.open(layout.DISTANCE_FACTS.format(spec.name, 0)).shape[0], []
    for unit in range(features.start // columns, -(-features.stop // columns)):
        slab = slab_range(unit, columns, features.stop)
        slab_columns = slice(max(features.start - slab.start, 0), slab.stop - slab.start)
        parts.append(context.store.open(name.format(spec.name, unit))[(slab_columns, *rest)])
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def feature_blocks(spec: CorrelationSpec, n_features: int) -> list[slice]:
    """Return the blocks of features: of 256, or fewer if they have many components."""
    width = BLOCK_FEATURES
    if spec.correlation == "feature_map":
        width = min(width, max(1, BLOCK_COMPONENTS // most_components(spec.n_components)))
    return list(row_blocks(n_features, width))


def block_pairs(spec: CorrelationSpec, n_features: int) -> list[tuple[int, int]]:
    """Return the pairs of blocks, in the order of the units."""
    return list(itertools.combinations_with_replacement(range(len(feature_blocks(spec, n_features))), 2))


def correlate_block(context: Context, parameters: CorrelateParameters, unit: int) -> None:
    """Write one block of the matrix; for a block on the diagonal also the facts of its features."""
    spec, n_features = parameters.correlation, context.tiles.shape.n_features
    first, second = block_pairs(spec, n_features)[unit]
    blocks = feature_blocks(spec, n_features)
    parts = [blocks[number] for number in sorted({first, second})]
    weights = distance_weights(context, spec.rows_used(context.tiles.shape.n_samples))
    with one_thread():
        block_of = _exact_block if spec.correlation == "exact" else _mapped_block
        matrix = block_of(context, spec, parts, weights)
    np.clip(matrix, 0.0, 1.0, out=matrix)
    matrix[matrix > 1.0 - DOUBLE_ROUNDING] = 1.0  # copies of a feature
    if first == second:
        facts = _read_features(context, layout.DISTANCE_FACTS, spec, blocks[first])
        matrix = np.triu(matrix, 1)
        matrix += matrix.T
        np.fill_diagonal(matrix, 1.0 - facts[:, IS_CONSTANT])
        context.store.put_array(layout.FEATURE_FACTS.format(spec.name, first), facts)
    context.store.put_array(layout.FEATURE_CORRELATIONS.format(spec.name, first, second), matrix)


def _exact_block(
    context: Context, spec: CorrelationSpec, parts: Sequence[slice], weights: np.ndarray | None
) -> np.ndarray:
    """Return the entries of two blocks of features, or of one with itself."""
    values = [_read_features(context, layout.DISTANCE_VALUES, spec, part) for part in parts]
    shares = shares_of(weights, values[0].shape[1])
    columns = [distance_columns(part, shares) for part in values]
    left, right = columns[0], columns[-1]
    squared = exact_correlations(left, None if len(parts) == 1 else right, shares)
    if not spec.bias_corrected:
        return squared
    n_counted = _check_total(float(shares.size) if weights is None else float(weights.sum()))
    return bias_corrected(squared, exact_deviations(left, right, shares), (left.mean, right.mean), n_counted)


def _check_total(total: float) -> float:
    if total <= 3:
        msg = (
            f"bias_corrected divides by the number of rows less 3, and there are {total:g}: set bias_corrected to "
            "false, or give more rows."
        )
        raise InputError(msg)
    return total


def _mapped_block(
    context: Context, spec: CorrelationSpec, parts: Sequence[slice], weights: np.ndarray | None
) -> np.ndarray:
    maps, orders, n_precise = [], [], []
    for part in parts:
        maps_of_part = _maps(context, spec, part)
        is_whole = np.array([one.error == 0 for one in maps_of_part])
        orders.append(np.argsort(~is_whole, kind="stable"))  # maps without error first
        maps.append([maps_of_part[k] for k in orders[-1]])
        n_precise.append(int(is_whole.sum()))
    tables = [[one.table for one in maps_of_part] for maps_of_part in maps]
    deviations = [[one.deviation[None] for one in maps_of_part] for maps_of_part in maps]
    is_square = len(parts) == 1
    gram = CodeGram(tables[0], None if is_square else tables[1], (n_precise[0], n_precise[-1]))
    means = CodeGram(deviations[0], None if is_square else deviations[1]) if spec.bias_corrected else None
    n_rows = context.store.open(layout.DISTANCE_CODES.format(spec.name, 0)).shape[1]
    total = float(n_rows) if weights is None else float(weights.sum())
    counts = None if weights is None else weights * (n_rows / total)
    for rows in row_blocks(n_rows, CODE_ROWS):
        part_codes = [_read_features(context, layout.DISTANCE_CODES, spec, part, rows) for part in parts]
        codes = [[codes_of_part[k] for k in order] for codes_of_part, order in zip(part_codes, orders, strict=True)]
        for one in (gram, means):
            if one is not None:
                one.add(codes, None if counts is None else counts[rows])
    matrix = gram.result()
    matrix /= n_rows
    squared = with_lost_traces(squares_by_column(matrix, tables[0], tables[-1]), maps[0], maps[-1], total)
    if means is not None:
        moments = [np.array([(one.variance, one.mean) for one in maps_of_part]).T for maps_of_part in maps]
        covariances = (means.result() / n_rows, moments[0][0], moments[-1][0])
        squared = bias_corrected(squared, covariances, (moments[0][1], moments[-1][1]), _check_total(total))
    squared[n_precise[0] :][squared[n_precise[0] :] > 1.0 - SINGLE_PRECISION] = 1.0
    places = [np.argsort(order) for order in orders]
    return squared[places[0][:, None], places[-1]]


def _maps(context: Context, spec: CorrelationSpec, features: slice) -> list[FeatureMap]:
    """Return the maps of some features, as :func:`map_features` wrote them."""
    tables = _read_features(context, layout.DISTANCE_TABLE, spec, features)
    facts = _read_features(context, layout.DISTANCE_FACTS, spec, features)
    return [
        FeatureMap(table[: int(row[N_COMPONENTS])], row[MEAN], row[TRACE], table[-1], row[VARIANCE], row[ERROR])
        for table, row in zip(tables, facts, strict=True)
    ]


class FeatureCorrelations:
    """Matrix M of squared distance correlations of all features, which multiplies vectors.

    Entries are in [0, 1], and 1 on the diagonal; rows and columns of constant features are 0. Facts are `correlation`,
    the method used; `n_rows`, the rows in use; `n_components`, the largest number of components of a feature, None if
    there are none; `bias_corrected`; `error_bound`, the largest difference of an entry to the definition on the rows in
    use; `sampling_error`, the largest difference of an entry to that of all rows, as measured for so many, 0 if all are
    in use.
    """

    def __init__(self, facts: Mapping[str, Any], n_features: int, rows: _Formed | _MatrixFree) -> None:
        self.facts = facts
        self.n_features = n_features
        self._rows = rows

    def product(self, v: np.ndarray, features: np.ndarray | None = None) -> np.ndarray:
        """Return M v, shape (n_features,), float64, as v.

        Under "matrix_free" a feature costs half if it is 0 in v. `features`, shape (n_features,), bool, marks the
        entries that are wanted; others are 0, and save the other half. None for all.
        """
        mask = np.ones(self.n_features, dtype=bool) if features is None else np.asarray(features, dtype=bool)
        with one_thread():
            return self._rows.product(np.asarray(v, dtype=np.float64), mask)

    def degrees(self) -> np.ndarray:
        """Return the row sums of M, shape (n_features,), float64."""
        return self.product(np.ones(self.n_features))

    def columns(self, feature: int) -> np.ndarray:
        """Return one column of M, equal to its row, shape (n_features,), float64."""
        if isinstance(self._rows, _Formed):
            return self._rows.column(feature)
        unit = np.zeros(self.n_features)
        unit[feature] = 1.0
        return self.product(unit)

    def matrix(self) -> np.ndarray:
        """Return M, shape (n_features, n_features), float64; not available under "matrix_free"."""
        assert isinstance(self._rows, _Formed)
        matrix = np.empty((self.n_features, self.n_features))
        for (rows, columns), block in self._rows.blocks():
            matrix[rows, columns] = block
            matrix[columns, rows] = block.T
        return matrix


class _Formed:
    """A matrix in blocks: held if small, else read again for every product."""

    def __init__(self, context: Context, spec: CorrelationSpec) -> None:
        n_features = context.tiles.shape.n_features
        self._features = feature_blocks(spec, n_features)
        names = {pair: layout.FEATURE_CORRELATIONS.format(spec.name, *pair) for pair in block_pairs(spec, n_features)}
        arrays = {pair: context.store.open(name) for pair, name in names.items()}
        fits_in_memory = formed_matrix(spec, n_features).nbytes <= HELD_BYTES
        self._arrays = {pair: array[...] if fits_in_memory else array for pair, array in arrays.items()}

    def blocks(self) -> Iterator[tuple[tuple[slice, slice], np.ndarray]]:
        for (first, second), array in self._arrays.items():
            yield (self._features[first], self._features[second]), array[...]

    def product(self, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
        result = np.zeros(v.size)
        for (rows, columns), block in self.blocks():
            result[rows] += block @ v[columns]
            if rows != columns:
                result[columns] += v[rows] @ block
        return np.where(mask, result, 0.0)

    def column(self, feature: int) -> np.ndarray:
        here = next(number for number, block in enumerate(self._features) if feature < block.stop)
        place = feature - self._features[here].start
        parts = [self._arrays[other, here][:, place : place + 1][:, 0] for other in range(here)]
        parts += [self._arrays[here, other][place : place + 1][0] for other in range(here, len(self._features))]
        return np.concatenate(parts)


class _MatrixFree:
    """Products from the values of the rows in use: held if small, else read again for every product."""

    def __init__(self, context: Context, spec: CorrelationSpec) -> None:
        self._context, self._spec = context, spec
        weights = distance_weights(context, spec.rows_used(context.tiles.shape.n_samples))
        first = context.store.open(layout.DISTANCE_VALUES.format(spec.name, 0))
        self._shares = shares_of(weights, first.shape[1])
        self._features = max(1, PRODUCT_BYTES // (WORD * CODE_COLUMNS * first.shape[1])) * CODE_COLUMNS
        self._holds = values_in_use(context.tiles.shape.n_features, first.shape[1]).nbytes <= HELD_BYTES
        self._held: dict[int, np.ndarray] = {}

    def product(self, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
        total, result = DistanceSum(self._shares), np.zeros(v.size)
        parts = list(row_blocks(v.size, self._features))
        for part in parts:
            if v[part].any():
                total.add(self._values(part), v[part])
        total.close()
        for part in parts:
            if mask[part].any():
                result[part][mask[part]] = total.products(self._values(part)[mask[part]])
        return result

    def _values(self, features: slice) -> np.ndarray:
        values = self._held.get(features.start)
        if values is None:
            values = _read_features(self._context, layout.DISTANCE_VALUES, self._spec, features)
            if self._holds:
                self._held[features.start] = values
        return values


def stored_feature_correlations(context: Context, spec: CorrelationSpec) -> FeatureCorrelations:
    """Return the correlations that :func:`plan_correlation` planned.

    "auto" is resolved in the same way.
    """
    shape = context.tiles.shape
    spec = spec.resolved(shape)
    if spec.correlation == "matrix_free":
        facts = context.store.open(layout.DISTANCE_FACTS.format(spec.name, 0))[...]
        return FeatureCorrelations(_facts(spec, shape, facts), shape.n_features, _MatrixFree(context, spec))
    numbers = range(len(feature_blocks(spec, shape.n_features)))
    facts = np.concatenate([context.store.open(layout.FEATURE_FACTS.format(spec.name, i))[...] for i in numbers])
    return FeatureCorrelations(_facts(spec, shape, facts), shape.n_features, _Formed(context, spec))


def _facts(spec: CorrelationSpec, shape: Shape, facts: np.ndarray) -> dict[str, Any]:
    n_rows = int(facts[0, N_ROWS])
    is_sampled = spec.rows_used(shape.n_samples) < shape.n_samples
    # sum of the two largest angles, then the share of omitted components
    error = float(np.sort(facts[:, ERROR])[-2:].sum())
    if spec.correlation == "feature_map":
        lost = float((facts[:, MEAN] - facts[:, TRACE]).max())
        error += lost * float(facts[:, MEAN].max() + facts[:, TRACE].max()) / float(facts[0, TOTAL])
    return {
        "correlation": spec.correlation,
        "n_rows": n_rows,
        "n_components": int(facts[:, N_COMPONENTS].max()) or None,
        "bias_corrected": spec.bias_corrected,
        "error_bound": min(1.0, error),
        "sampling_error": SAMPLING_ERROR / n_rows**0.5 if is_sampled else 0.0,
    }


SAMPLING_ERROR = 1.6
"""Measured largest difference of an entry of some rows to that of all, times the root of their number."""


def maps_cost(shape: Shape, spec: CorrelationSpec, n_columns: int, process: Cost) -> Cost:
    """List the memory of mapping the features of a slab."""
    rows = spec.rows_used(shape.n_samples)
    return (
        *process,
        *sampled_cost(shape, n_columns, n_columns, rows, spec.felt),
        *stored_cost(spec, n_columns, rows),
        _chunks_written(rows, "uint8"),
        *cutting_cost(rows),
        Array("distances of bins, their kernel, and what finds its eigenvectors", (20, BINS, BINS)),
    )


def values_cost(shape: Shape, spec: CorrelationSpec, n_columns: int, process: Cost) -> Cost:
    """List the memory of storing the values of the features of a slab."""
    rows = spec.rows_used(shape.n_samples)
    return (
        *process,
        *sampled_cost(shape, n_columns, n_columns, rows, spec.felt),
        *stored_cost(spec, n_columns, rows),
        _chunks_written(rows, "float64"),
        Array("some columns: values, order, mean distances, and what finds these", (6, CODE_COLUMNS, rows)),
        Array("rows in use, their weights and shares, and sums", (5, max(rows, DISTANCES_AT_ONCE))),
    )


def _chunks_written(rows: int, dtype: str) -> Array:
    name = "chunks that are written at once, as they are and encoded"
    return Array(name, (2, CHUNKS_AT_ONCE, CODE_COLUMNS, min(rows, CODE_ROWS)), dtype)


def stored_cost(spec: CorrelationSpec, n_columns: int, rows: int) -> Cost:
    """List the stored arrays of some features, in whole chunks of rows."""
    rows = rows if rows <= CODE_ROWS else -(-rows // CODE_ROWS) * CODE_ROWS
    facts = Array("facts of features", (n_columns, N_FACTS))
    if spec.correlation != "feature_map":
        return (Array("values of features over the norms of their distances", (n_columns, rows)), facts)
    return (
        Array("bins of features", (n_columns, rows), "uint8"),
        Array("maps of bins", (n_columns, most_components(spec.n_components) + 1, BINS)),
        facts,
    )


def correlate_cost(shape: Shape, spec: CorrelationSpec, process: Cost) -> Cost:
    """List the memory of correlating two blocks of features."""
    width, rows = feature_blocks(spec, shape.n_features)[0].stop, spec.rows_used(shape.n_samples)
    is_exact = spec.correlation == "exact"
    return (
        *process,
        *drawing_cost(shape.n_samples),
        Array("blocks of the matrix: squared, corrected, and as written", (6, width, width)),
        *(_exact_block_cost(width, rows) if is_exact else _mapped_block_cost(spec, width, rows)),
    )


def _exact_block_cost(width: int, rows: int) -> Cost:
    pairs = max(rows, DISTANCES_AT_ONCE)
    return (
        Array("values of two blocks, their mean distances, and what finds these", (6, 2, width, rows)),
        Array("distances of some pairs of rows, centered, and what centers them", (3, 2, width, pairs)),
        Array("roots of the shares of these pairs", (2, pairs)),
    )


def _mapped_block_cost(spec: CorrelationSpec, width: int, rows: int) -> Cost:
    count, n_read, looked_up = most_components(spec.n_components), min(rows, CODE_ROWS), min(rows, MAP_PRODUCT_ROWS)
    functions = width * count
    return (
        Array("maps of two blocks: of slabs, together, and in order", (3, 2, width, count + 1, BINS)),
        Array("bins of two blocks: of slabs, and together", (2, 2, width, n_read), "uint8"),
        Array("chunks of bins while they are decoded", (3, CODE_COLUMNS, n_read), "uint8"),
        Array("functions of some rows", (2, functions, looked_up)),
        Array("those of the second block, by weight", (functions, looked_up)),
        Array("all in single precision, and as a product takes them", (2, 2, functions, looked_up), "float32"),
        Array("sums of products of functions", (functions, functions)),
        Array("their squares, summed by row and by column; products of mean distances", (count + 2, width, width)),
        Array("products of two panels, and these mirrored", (4, PRODUCT_WIDTH, PRODUCT_WIDTH)),
    )


def feature_correlations_cost(shape: Shape, spec: CorrelationSpec) -> Cost:
    """List the memory of :class:`FeatureCorrelations` in the process of a unit."""
    spec, n_features = spec.resolved(shape), shape.n_features
    if spec.correlation == "matrix_free":
        n_rows = spec.rows_used(shape.n_samples)
        values, together = values_in_use(n_features, n_rows), max(PRODUCT_BYTES // WORD, CODE_COLUMNS * n_rows)
        return (
            *((values,) if values.nbytes <= HELD_BYTES else ()),
            Array("distances of all pairs of rows: sum, and what adds to it", (3, n_rows, n_rows)),
            Array("rows above the steps of features read together, and products", (6, FEW_VALUES - 1, together)),
            *drawing_cost(shape.n_samples),
            Array("vectors and products", (4, n_features)),
        )
    matrix = formed_matrix(spec, n_features)
    return (
        *((matrix,) if matrix.nbytes <= HELD_BYTES else ()),
        Objects("open arrays of blocks", len(block_pairs(spec, n_features)), HANDLE_BYTES),
        Array("blocks while they are read", (4, BLOCK_FEATURES, BLOCK_FEATURES)),
        Array("facts of features", (n_features, N_FACTS)),
        Array("vectors and products", (4, n_features)),
        Array("marks of what is wanted", (4, n_features), "bool"),
    )


def formed_matrix(spec: CorrelationSpec, n_features: int) -> Array:
    """Return the entries of the blocks of a matrix, as one array."""
    widths = [block.stop - block.start for block in feature_blocks(spec, n_features)]
    return Array("blocks of the matrix", (sum(widths[i] * widths[j] for i, j in block_pairs(spec, n_features)),))


def values_in_use(n_features: int, n_rows: int) -> Array:
    """Return the values from which matrix-free products are computed."""
    return Array("values of the rows in use", (n_features, n_rows))


DISTANCE_MAPS_STAGE = StageKind("distance-maps", __name__, map_features, maps_cost, reads_weights=True)
DISTANCE_VALUES_STAGE = StageKind("distance-values", __name__, store_values, values_cost, reads_weights=True)
CORRELATE_STAGE = StageKind("correlate", __name__, correlate_block, correlate_cost, reads_weights=True)


def plan_correlation(shape: Shape, spec: CorrelationSpec, slab_columns: int, process: Cost) -> list[Stage]:
    """Plan the stages of the distance correlations between all features; "auto" is resolved here.

    One unit bins or scales `slab_columns` features. Raises what :meth:`CorrelationSpec.resolved` raises.
    """
    spec, n_features, n_units = spec.resolved(shape), shape.n_features, -(-shape.n_features // slab_columns)
    rows, name = spec.rows_used(shape.n_samples), f"correlations-{spec.name}"
    is_formed = spec.correlation != "matrix_free"
    kind = DISTANCE_MAPS_STAGE if spec.correlation == "feature_map" else DISTANCE_VALUES_STAGE
    n_stored = _n_features_read(slice(0, n_features), slab_columns, n_features)
    slabs = Stage.of(
        kind,
        f"distances-{spec.name}",
        n_units,
        SlabsParameters(spec, slab_columns),
        kind.cost(shape, spec, min(slab_columns, n_features), process),
        bytes_read=shape.x_bytes + WORD * shape.n_samples * n_units * row_statistics(spec.felt),
        bytes_written=total(stored_cost(spec, n_stored, rows)),
        needed_until=name if is_formed else "",
    )
    if not is_formed:
        return [slabs]
    pairs = block_pairs(spec, n_features)
    slabs_touched = [_n_features_read(block, slab_columns, n_features) for block in feature_blocks(spec, n_features)]
    n_read = sum(slabs_touched[i] + (slabs_touched[j] if i != j else 0) for i, j in pairs)
    facts = 2 * WORD * N_FACTS * slab_columns * len(pairs)
    blocks = Stage.of(
        CORRELATE_STAGE,
        name,
        len(pairs),
        CorrelateParameters(spec),
        CORRELATE_STAGE.cost(shape, spec, process),
        bytes_read=total(stored_cost(spec, n_read, rows)) + facts,
        bytes_written=formed_matrix(spec, n_features).nbytes + WORD * N_FACTS * n_features,
        clears=layout.DISTANCES_OF.format(spec.name),
    )
    return [slabs, blocks]


def _n_features_read(features: slice, slab_columns: int, n_features: int) -> int:
    """Return the number of features in all chunks that hold some of `features`."""
    count = 0
    for start in range(features.start // slab_columns * slab_columns, features.stop, slab_columns):
        slab = min(start + slab_columns, n_features) - start
        first, last = max(features.start - start, 0), min(features.stop - start, slab)
        chunk = min(CODE_COLUMNS, slab)
        count += (-(-last // chunk) - first // chunk) * chunk
    return count


def read_bytes(shape: Shape, spec: CorrelationSpec) -> int:
    """Return the bytes of one read of all correlations."""
    spec = spec.resolved(shape)
    if spec.correlation == "matrix_free":
        return values_in_use(shape.n_features, spec.rows_used(shape.n_samples)).nbytes
    return formed_matrix(spec, shape.n_features).nbytes
