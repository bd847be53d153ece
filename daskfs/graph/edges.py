"""Stages "entries", "edges", "edges-summary", "median" and "weights": a symmetric weighted graph from neighbor lists.

An edge joins i and j if either lists the other (He, Cai and Niyogi 2005, section 2.2, step 1). It is stored once: with
the row that lists it, or with the lower one of two rows that list each other. A unit of "edges" and of "weights" takes
a stretch of rows. It has the edges stored with these rows, and the incoming edges, stored with rows of other stretches:
together all edges of its rows, so degrees are complete within a unit. If there are several stretches, "entries" sorts
the list entries by the stretch of their targets first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.graph.components import COMPILED_EDGES, HELD_EDGE_BYTES, NODES_AT_ONCE, Components
from daskfs.graph.partition import block_rows, largest_block, lists_cost, open_lists
from daskfs.graph.spec import TARGET_NAMES, Weighting
from daskfs.kernels.blocks import index_dtype
from daskfs.kernels.neighbors.weights import edge_weights
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.kernels.statistics.streaming_median import DIGIT_BITS, HELD_VALUES, streamed_median
from daskfs.stages.cost import COMPILED, WORD, Array, Cost, Objects, grown
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import LABEL_CHUNK_ROWS, Context
from daskfs.store.shards import Piece, ShardWriter, read_pieces, stored_pieces
from daskfs.store.store import Store

GIVEN = "given"
HISTOGRAM_BINS = 40
SENT_CHUNK = 2**14
"""Least entries per chunk of those sorted by stretch."""
GIVEN_BLOCK = 2**20
"""Edges of a precomputed graph per read and per chunk."""
COMPARED_ENTRIES = 2**20
"""List entries that are compared with row numbers at a time, so that they stay in cache."""
BEFORE, OWN, AFTER = range(3)
"""Segments of a stretch's edges: incoming from rows before it, those of its own rows, incoming from rows after it."""


@dataclass(frozen=True)
class Stretches:
    """Stretches of consecutive rows, each of some blocks; the rows of an "entries" unit are part of one stretch.

    A stretch has `blocks` blocks (:func:`~daskfs.graph.partition.block_rows`), an "entries" unit `blocks_sent`, a
    divisor of them.
    """

    n_samples: int
    blocks: int
    blocks_sent: int

    @property
    def rows_each(self) -> int:
        """Rows of a stretch; the last one may have fewer."""
        return self.blocks * block_rows(self.n_samples)

    def __len__(self) -> int:
        return -(-self.n_samples // self.rows_each)

    def rows(self, stretch: int) -> slice:
        """Return the rows of a stretch."""
        return slice(stretch * self.rows_each, min((stretch + 1) * self.rows_each, self.n_samples))

    @property
    def n_sending(self) -> int:
        """Number of "entries" units; 0 for one stretch, which has all entries of its rows."""
        return -(-self.n_samples // self.rows_sent) if len(self) > 1 else 0

    def sent_rows(self, unit: int) -> slice:
        """Return the rows of an "entries" unit."""
        return slice(unit * self.rows_sent, min((unit + 1) * self.rows_sent, self.n_samples))

    @property
    def rows_sent(self) -> int:
        """Rows of an "entries" unit; the last one may have fewer."""
        return self.blocks_sent * block_rows(self.n_samples)


class OneGraph(StageParameters):
    """A graph by its name, of the first `n_neighbors` entries of each list."""

    name: str
    n_neighbors: int


class EdgesParameters(OneGraph):
    """Parameters of "entries" and "edges"."""

    stretches: Stretches


class EdgesSummaryParameters(OneGraph):
    """Parameters of "edges-summary"; `holds_edges` is that of :func:`holds_edges`."""

    holds_edges: bool


class WeightsParameters(StageParameters):
    """Parameters of "weights"."""

    weighting: Weighting
    stretches: Stretches


def send_entries(context: Context, parameters: EdgesParameters, unit: int) -> None:
    """Sort the list entries of some rows by the stretch of their targets, without those of their own stretch."""
    store, name, k, stretches = context.store, parameters.name, parameters.n_neighbors, parameters.stretches
    rows = stretches.sent_rows(unit)
    targets = store.open(layout.KNN_INDICES.format(name))[rows, :k]
    stretch = targets // stretches.rows_each
    sent = (targets >= 0) & (stretch != rows.start // stretches.rows_each)
    source = _sources(rows, targets)[sent]
    stretch = stretch[sent]
    order = np.argsort(stretch.astype(np.min_scalar_type(len(stretches))), kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(stretch, minlength=len(stretches)))])
    chunk = max(SENT_CHUNK, -(-source.size // len(stretches)))
    ends = np.stack([source[order], targets[sent][order]])
    store.put_array(layout.SENT_ENDS.format(name, k, unit), ends, (2, chunk))
    del source, targets, ends
    lengths = store.open(layout.KNN_DISTANCES.format(name))[rows, :k][sent]
    store.put_array(layout.SENT_LENGTHS.format(name, k, unit), lengths[order], (chunk,))
    store.put_array(layout.SENT_OFFSETS.format(name, k, unit), offsets)


def create_edges(context: Context, parameters: EdgesParameters) -> None:
    """Create a row of facts for each block of rows."""
    name = layout.EDGE_PARTS.format(parameters.name, parameters.n_neighbors)
    _create_facts(context.store, name, parameters.stretches, len(layout.EDGE_FACTS))


def _create_facts(store: Store, name: str, stretches: Stretches, n_facts: int) -> None:
    n_blocks = -(-stretches.n_samples // block_rows(stretches.n_samples))
    store.create(name, (n_blocks, n_facts), np.float64, (stretches.blocks, n_facts))


def store_edges(context: Context, parameters: EdgesParameters, unit: int) -> dict[str, Any]:
    """Store the edges of a stretch, and facts of its blocks."""
    store, name, k, stretches = context.store, parameters.name, parameters.n_neighbors, parameters.stretches
    unit_rows, size = stretches.rows(unit), block_rows(stretches.n_samples)
    indices, distances = open_lists(store, name)
    lists = np.empty((unit_rows.stop - unit_rows.start, k), index_dtype(stretches.n_samples))
    for rows in row_blocks(unit_rows.stop, size, unit_rows.start):
        lists[rows.start - unit_rows.start : rows.stop - unit_rows.start] = indices[rows, :k]
    marks = lists >= 0  # of the entries that are edges of their rows
    facts = []

    def incoming(segment: int, units: range) -> Iterator[Piece]:
        for source, target, length in _sent_entries(store, name, k, unit, units):
            is_new = _unmark(marks, lists, unit_rows.start, source, target)
            yield segment, "rows", target[is_new]
            yield segment, "others", source[is_new]
            yield segment, "lengths", length[is_new]

    def pieces() -> Iterator[Piece]:
        yield from incoming(BEFORE, range(-(-unit_rows.start // stretches.rows_sent)))
        for rows in row_blocks(unit_rows.stop, size, unit_rows.start):
            targets = lists[rows.start - unit_rows.start : rows.stop - unit_rows.start]
            inside = (targets >= unit_rows.start) & (targets < unit_rows.stop)
            _unmark(marks, lists, unit_rows.start, _sources(rows, targets)[inside], targets[inside])
        yield from incoming(AFTER, range(-(-unit_rows.stop // stretches.rows_sent), stretches.n_sending))
        for rows in row_blocks(unit_rows.stop, size, unit_rows.start):
            part = slice(rows.start - unit_rows.start, rows.stop - unit_rows.start)
            length = distances[rows, :k][marks[part]]
            extremes = length.min(initial=np.inf), length.max(initial=-np.inf)
            facts.append((length.size, float((length**2).sum()), *extremes, unit))
            yield OWN, "targets", lists[part][marks[part]]
            yield OWN, "lengths", length
            yield OWN, "counts", np.count_nonzero(marks[part], axis=1).astype(np.min_scalar_type(k))

    shards = ShardWriter(store, layout.EDGES.format(name, k, unit))
    shards.write(pieces())
    shards.close()
    first = unit_rows.start // size
    store.open(layout.EDGE_PARTS.format(name, k))[first : first + len(facts)] = np.array(facts)
    return {"n_edges": int(np.count_nonzero(marks))}


Edges = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Two ends, integers, and lengths or weights, float64, of some edges; each of shape (n_edges,)."""


def _sent_entries(store: Store, name: str, k: int, stretch: int, units: range) -> Iterator[Edges]:
    for unit in units:
        start, stop = map(int, store.open(layout.SENT_OFFSETS.format(name, k, unit))[stretch : stretch + 2])
        ends, lengths = (store.open(one.format(name, k, unit)) for one in (layout.SENT_ENDS, layout.SENT_LENGTHS))
        for part in row_blocks(stop, COMPARED_ENTRIES, start):
            source, target = ends[:, part]
            yield source, target, lengths[part]


def _sources(rows: slice, targets: np.ndarray) -> np.ndarray:
    """Return the row of each list entry, of the shape and dtype of `targets`."""
    return np.broadcast_to(np.arange(rows.start, rows.stop, dtype=targets.dtype)[:, None], targets.shape)


def _unmark(marks: np.ndarray, lists: np.ndarray, first: int, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Unmark the entries of edges that a lower row lists, too.

    `marks` and `lists` are of the rows from `first`, shape (n_rows, k); entries of the lists of `source` name these
    rows, `target`. Return a mask of the entries that are marked themselves, shape (n_entries,), bool.
    """
    k = lists.shape[1]
    flat_marks, is_new = marks.reshape(-1), np.ones(source.size, bool)
    row = target.astype(np.int64) - first
    for block in row_blocks(source.size, max(1, COMPARED_ENTRIES // k)):
        positions = np.flatnonzero(lists.take(row[block], axis=0) == source[block, None])
        pair = positions // k
        lower, higher = source[block][pair], target[block][pair]
        entry = row[block][pair] * k + (positions - pair * k)
        flat_marks[entry[lower < higher]] = False
        is_new[block.start + pair[lower > higher]] = False
    return is_new


def describe_graph(context: Context, parameters: EdgesSummaryParameters, unit: int) -> dict[str, Any]:
    """Summarize components, degrees and edge lengths. For lists by target only labeled rows are nodes."""
    del unit
    store, name, k = context.store, parameters.name, parameters.n_neighbors
    n_samples = n_nodes = context.tiles.shape.n_samples
    if name in TARGET_NAMES:
        labels = context.label_counts()
        assert labels is not None
        n_nodes = labels.n_counted
    lengths = _Histogram(*_lengths(store, name, k))
    graph = Components(n_samples, holds=parameters.holds_edges)
    for source, target, length in edge_blocks(context, name, k):
        graph.add(source, target)
        lengths.add(length)
    n_rows, n_components, largest = graph.found()
    n_rows[0] -= n_samples - n_nodes  # of degree 0
    degree = np.flatnonzero(n_rows)
    degrees = _Histogram(n_nodes, float(degree.min()), float(degree.max()))
    degrees.add(degree.astype(np.float64), n_rows[degree])
    summary = {
        "n_nodes": n_nodes,
        "n_edges": lengths.size,
        "n_components": n_components - (n_samples - n_nodes),
        "largest_component": largest,
        "n_isolated": int(n_rows[0]),
        "max_degree": int(degree.max()),
        "mean_degree": 2 * lengths.size / n_nodes,
        "length_histogram": lengths.result(),
        "degree_histogram": degrees.result(),
    }
    store.write_json(layout.GRAPH_SUMMARY.format(name, k), summary)
    return summary


def _lengths(store: Store, name: str, k: int) -> tuple[int, float, float]:
    """Return the number of edges, and the lengths of the shortest and the longest one."""
    if name == GIVEN:
        blocks = list((lengths.size, lengths.min(), lengths.max()) for lengths in edge_lengths(store, name, k))
        facts = np.array(blocks, np.float64).reshape(-1, 3)
    else:
        facts = store.open(layout.EDGE_PARTS.format(name, k))[...][:, [0, 2, 3]]
    n_edges, shortest, longest = facts.T
    return int(n_edges.sum()), float(shortest.min(initial=np.inf)), float(longest.max(initial=-np.inf))


class _Histogram:
    """Histogram of `size` values from `low` to `high` with bins of equal width."""

    def __init__(self, size: int, low: float, high: float) -> None:
        self.size, self._range = size, (low, high)
        # values equal up to round-off are too near for bins
        self._is_narrow = size == 0 or high - low <= 1e-9 * max(abs(low), abs(high))
        self._counts = np.zeros(HISTOGRAM_BINS, dtype=np.int64)

    def add(self, values: np.ndarray, counts: np.ndarray | None = None) -> None:
        if not self._is_narrow:
            self._counts += np.histogram(values, bins=HISTOGRAM_BINS, range=self._range, weights=counts)[0]

    def result(self) -> dict[str, list[float]]:
        """Return edges of bins and counts."""
        if self._is_narrow:
            return {"edges": [*self._range] if self.size else [0.0, 1.0], "counts": [self.size]}
        edges = np.histogram_bin_edges([], bins=HISTOGRAM_BINS, range=self._range)
        return {"edges": edges.tolist(), "counts": self._counts.tolist()}


def edge_blocks(context: Context, name: str, k: int, stretch: int | None = None) -> Iterator[Edges]:
    """Yield (source, target, length) of each edge once, in blocks that depend on the graph alone.

    Arrays have shape (n_edges,), int64 and float64. For a precomputed matrix the third one is the weight. `stretch`
    limits the edges to those stored with the rows of a stretch; a precomputed matrix has one stretch.
    """
    store = context.store
    if name == GIVEN:
        yield from given_blocks(store)
        return
    stretch_of = _stretch_of_blocks(store, name, k)
    size = block_rows(context.tiles.shape.n_samples)
    for one in range(stretch_of[-1] + 1) if stretch is None else [stretch]:
        start = int(np.searchsorted(stretch_of, one)) * size
        for targets, lengths, counts in _read_segment(store, name, k, one, OWN, ("targets", "lengths", "counts")):
            yield np.repeat(np.arange(start, start + counts.size), counts), targets.astype(np.int64), lengths
            start += counts.size


def edge_lengths(store: Store, name: str, k: int) -> Iterator[np.ndarray]:
    """Yield the lengths of all edges, arrays of shape (n_edges,), float64."""
    if name == GIVEN:
        weights = store.open(layout.GIVEN_WEIGHT)
        yield from (weights[entries] for entries in row_blocks(weights.shape[0], GIVEN_BLOCK))
        return
    for stretch in range(_stretch_of_blocks(store, name, k)[-1] + 1):
        for (lengths,) in _read_segment(store, name, k, stretch, OWN, ("lengths",)):
            yield lengths


def _stretch_of_blocks(store: Store, name: str, k: int) -> np.ndarray:
    facts: np.ndarray = store.open(layout.EDGE_PARTS.format(name, k))[...]
    return facts[:, -1].astype(np.int64)


def _read_segment(
    store: Store, name: str, k: int, stretch: int, segment: int, columns: Sequence[str]
) -> Iterator[list[np.ndarray]]:
    """Yield the columns of a segment, block by block; the last column, too small to be cut, ends a block."""
    all_pieces = stored_pieces(store, [layout.EDGES.format(name, k, stretch)], segment)
    pieces = [piece for piece in all_pieces if piece.column in columns]
    dtypes = {piece.column: piece.dtype for piece in pieces}
    parts: dict[str, list[np.ndarray]] = {column: [] for column in columns}
    for piece, values in zip(pieces, read_pieces(store, pieces), strict=True):
        parts[piece.column].append(values)
        if piece.column == columns[-1]:
            yield [_join_pieces(parts[column], dtypes.get(column, "f8")) for column in columns]
            parts = {column: [] for column in columns}


def _join_pieces(parts: Sequence[np.ndarray], dtype: str) -> np.ndarray:
    """Return the pieces of one column; a large one is stored in several, one without values in none."""
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype), *parts])


def find_median(context: Context, parameters: OneGraph, unit: int) -> dict[str, Any]:
    """Store the median of the squared edge lengths."""
    del unit
    store, name, k = context.store, parameters.name, parameters.n_neighbors
    facts = {"median": streamed_median(lambda: (length**2 for length in edge_lengths(store, name, k)))}
    store.write_json(layout.EDGE_MEDIAN.format(name, k), facts)
    return facts


def create_degrees(context: Context, parameters: WeightsParameters) -> None:
    """Create the degrees, shape (n_samples,), float64, and a row of facts for each block of rows."""
    key, n_samples = parameters.weighting.key, parameters.stretches.n_samples
    context.store.create(layout.DEGREES.format(key), (n_samples,), np.float64, (block_rows(n_samples),))
    _create_facts(context.store, layout.WEIGHT_PARTS.format(key), parameters.stretches, len(layout.WEIGHT_FACTS))


def weight_edges(context: Context, parameters: WeightsParameters, unit: int) -> None:
    """Sum the degrees of a stretch, and count zero weights and isolated rows (of those meant to be connected)."""
    store = context.store
    weighting = parameters.weighting
    graph, k, n_samples = weighting.graph, weighting.n_neighbors, parameters.stretches.n_samples
    unit_rows = parameters.stretches.rows(unit)
    t = _kernel_width(store, weighting)
    degrees = np.zeros(unit_rows.stop - unit_rows.start)
    weigh = EdgeWeights(context, [weighting])
    n_edges = n_underflow = 0

    def add_incoming(segment: int) -> None:
        if graph == GIVEN:
            return
        for row, other, length in _read_segment(store, graph, k, unit, segment, ("rows", "others", "lengths")):
            row, other = row.astype(np.int64), other.astype(np.int64)
            np.add.at(degrees, row - unit_rows.start, weigh(row, other, length, weighting, t))

    # in the order of the rows that list the edges, so that degrees do not depend on the stretches, to the bit
    add_incoming(BEFORE)
    for source, target, value in edge_blocks(context, graph, k, unit):
        weight = weigh(source, target, value, weighting, t)
        np.add.at(degrees, source - unit_rows.start, weight)
        inside = (target >= unit_rows.start) & (target < unit_rows.stop)
        np.add.at(degrees, target[inside] - unit_rows.start, weight[inside])
        n_edges += weight.size
        n_underflow += int(np.count_nonzero(weigh.counted(source, target, weight == 0, weighting)))
    add_incoming(AFTER)
    rows = None if weigh.rows is None else weigh.rows[unit_rows]
    loops = loop_weights(store, weighting, rows, unit_rows)
    if loops is not None:
        degrees += loops
    isolated = degrees == 0 if rows is None else (degrees == 0) & (rows > 0)
    n_meant = degrees.size
    if weighting.connects != "all":
        meant = context.counted_rows(unit_rows)[0].is_labeled == (weighting.connects == "labeled")
        n_meant, isolated = int(np.count_nonzero(meant)), isolated & meant
    store.open(layout.DEGREES.format(weighting.key))[unit_rows] = degrees
    volumes = [float(degrees[block].sum()) for block in row_blocks(degrees.size, block_rows(n_samples))]
    facts = np.zeros((len(volumes), len(layout.WEIGHT_FACTS)))
    facts[:, 0], facts[:, -1] = t, volumes
    facts[0, 1:-1] = n_edges, n_underflow, np.count_nonzero(isolated), n_meant
    first = unit_rows.start // block_rows(n_samples)
    store.open(layout.WEIGHT_PARTS.format(weighting.key))[first : first + len(facts)] = facts


def weight_summary(store: Store, weighting: Weighting) -> dict[str, Any]:
    """Return kernel width, numbers of edges and rows, and volume (the sum of all degrees) of a weighted graph.

    :class:`InputError` if all weights are 0 or there are no edges.
    """
    facts = store.open(layout.WEIGHT_PARTS.format(weighting.key))[...]
    t, counts, volume = float(facts[0, 0]), [int(count) for count in facts[:, 1:-1].sum(axis=0)], facts[:, -1].sum()
    summary = dict(zip(layout.WEIGHT_FACTS, (t, *counts, float(volume)), strict=True))
    if weighting.labeled_factor != 0:
        n_edges, n_underflow, *_ = counts
        if n_edges == n_underflow:
            raise InputError(_all_zero(weighting, t, n_edges))
        if volume == 0:
            msg = "no edge between rows of sample weight above 0 has a weight above 0."
            raise InputError(msg)
    return summary


def loop_weights(
    store: Store, weighting: Weighting, rows: np.ndarray | None, some_rows: slice = slice(None)
) -> float | np.ndarray | None:
    """Return the weights of self-loops of the rows `some_rows`, which are not in :func:`edge_blocks`.

    They are a scalar, or (n_rows,) float64; None for no self-loops. `rows` are the sample weights, None for 1 each.
    """
    if weighting.self_loops:
        return 1.0 if rows is None else rows**2
    if weighting.graph == GIVEN:
        diagonal: np.ndarray = store.open(layout.GIVEN_DIAGONAL)[some_rows]
        return diagonal if rows is None else rows**2 * diagonal
    return None


def _all_zero(weighting: Weighting, t: float, n_edges: int) -> str:
    if n_edges == 0:
        alone = "" if weighting.graph in TARGET_NAMES or weighting.graph == GIVEN else ": no two rows share a feature"
        return f"the graph has no edges{alone}."
    if weighting.weights != "heat":
        return f"all {n_edges} edge weights are 0."
    remedy = "use t = 'mean' or 'median', or scale the data (transform.graph)."
    if weighting.connects == "labeled":
        remedy = "or standardize the target (standardize_y)."
    return (
        f"all {n_edges} heat weights exp(-d**2 / t) are 0 with t = {t:g}: the edges are too long for it. Raise t, "
        f"{remedy}"
    )


def _kernel_width(store: Store, weighting: Weighting) -> float:
    if weighting.weights != "heat" or weighting.graph == GIVEN:
        return 1.0
    if not isinstance(weighting.t, str):
        return float(weighting.t)
    place = weighting.graph, weighting.n_neighbors
    if weighting.t == "median":
        width = float(store.need_json(layout.EDGE_MEDIAN.format(*place))["median"])
    else:
        n_edges, squares = store.open(layout.EDGE_PARTS.format(*place))[...][:, :2].sum(axis=0)
        width = float(squares) / max(float(n_edges), 1.0)
    return width if width > 0 else 1.0


def weighted_blocks(context: Context, graph: str, k: int, weightings: list[Weighting]) -> Iterator[Edges]:
    """Yield (source, target, weights) of the edges: (n_edges,) int64 twice, and (n_weightings, n_edges) float64."""
    widths = [float(weight_summary(context.store, w)["t"]) for w in weightings]
    weigh = EdgeWeights(context, weightings)
    for source, target, value in edge_blocks(context, graph, k):
        rows = [weigh(source, target, value, w, t) for w, t in zip(weightings, widths, strict=True)]
        yield source, target, np.stack(rows)


class EdgeWeights:
    """Edge weights under some weightings, with the labels and sample weights that these need.

    The weight of an edge is multiplied by the sample weights of both rows, as if these were repetitions of the rows.
    """

    def __init__(self, context: Context, weightings: Sequence[Weighting]) -> None:
        self.rows = context.weights()
        self._is_labeled = context.labeled_rows() if any(w.labeled_factor != 1 for w in weightings) else None

    def __call__(
        self, source: np.ndarray, target: np.ndarray, value: np.ndarray, weighting: Weighting, t: float
    ) -> np.ndarray:
        """Return the weight of each edge, shape (n_edges,), float64, for kernel width `t`.

        `source` and `target` are its rows, int64, and `value` its length, or its precomputed weight, of the same shape.
        """
        weights = value if weighting.graph == GIVEN else edge_weights(value, weighting.weights, t)
        if weighting.labeled_factor != 1:
            assert self._is_labeled is not None
            both = self._is_labeled[source] & self._is_labeled[target]
            weights = np.where(both, weighting.labeled_factor * weights, weights)
        return weights if self.rows is None else weights * (self.rows[source] * self.rows[target])

    def counted(self, source: np.ndarray, target: np.ndarray, marked: np.ndarray, weighting: Weighting) -> np.ndarray:
        """Clear the marks, (n_edges,) bool, of edges that do not count.

        These are edges with a row of sample weight 0, and those between two labeled rows if the factor is 0.
        """
        if weighting.labeled_factor == 0:
            assert self._is_labeled is not None
            marked = marked & ~(self._is_labeled[source] & self._is_labeled[target])
        return marked if self.rows is None else marked & (self.rows[source] > 0) & (self.rows[target] > 0)


def given_blocks(store: Store) -> Iterator[Edges]:
    """Yield (source, target, weight) of each edge of a precomputed matrix once."""
    arrays = [store.open(name) for name in (layout.GIVEN_SOURCE, layout.GIVEN_TARGET, layout.GIVEN_WEIGHT)]
    for entries in row_blocks(arrays[0].shape[0], GIVEN_BLOCK):
        yield arrays[0][entries], arrays[1][entries], arrays[2][entries]


def own_lists(n_samples: int, n_rows: int, k: int) -> Cost:
    """Return the memory cost of the lists of a unit's rows and their marks."""
    return (
        Array("lists of the unit's rows", (n_rows, k), _index(n_samples)),
        Array("their marks", (n_rows, k), "bool"),
    )


def entries_cost(n_samples: int, n_rows: int, k: int, width: int, process: Cost) -> Cost:
    """Return the memory cost of an "entries" unit of `n_rows` rows with lists of length `width`."""
    return (
        *process,
        *lists_cost("lists of a block, as stored and read", 2, largest_block(n_samples), width, n_samples),
        Array("sources, targets and stretches of entries, as listed and in order", (8, n_rows, k), _index(n_samples)),
        Array("their order, and distances", (2, n_rows, k)),
        Array("marks of entries", (2, n_rows, k), "bool"),
    )


def edges_cost(n_samples: int, n_rows: int, k: int, width: int, process: Cost) -> Cost:
    """Return the memory cost of an "edges" unit of `n_rows` rows with lists of length `width`."""
    size = largest_block(n_samples)
    n_entries = max(size * k, min(COMPARED_ENTRIES, n_samples * k))
    return (
        *process,
        *own_lists(n_samples, n_rows, k),
        *lists_cost("lists of a block, as stored and read", 2, size, width, n_samples),
        Array("ends of entries, and of those before", (8, n_entries), _index(n_samples)),
        Array("lengths and rows of these", (5, n_entries)),
        Array("lists that are compared, and where they agree", (5, COMPARED_ENTRIES), "int64"),
    )


def incoming_edges(n_samples: int, k: int) -> Cost:
    """Return the memory cost of streaming incoming edges of lists of length k."""
    n_edges = min(COMPARED_ENTRIES, n_samples * k)
    return (
        Array("ends of incoming edges, as stored and read", (2, 2, n_edges), _index(n_samples)),
        Array("ends, lengths and weights of these, and of those before", (2, 5, n_edges)),
    )


def _index(n_samples: int) -> str:
    return index_dtype(n_samples).name


def stored_edges(n_samples: int, k: int) -> Cost:
    """Return the memory cost of streaming edges of lists of length k."""
    n_edges = largest_block(n_samples) * k
    return (
        Array("ends of the edges of a block and of the one before it", (2, 2, n_edges), "int64"),
        Array("lengths and weights of these", (2, 2, n_edges)),
        Array("weights of a block by length alone", (n_edges,)),
        Array("ends of a block, as stored and read", (2, n_edges), _index(n_samples)),
        Array("lengths of a block, as stored", (n_edges,)),
    )


def edge_bytes(n_samples: int, k: int) -> int:
    """Return the bytes of the edges of lists of length k, with their number in each row, and facts of blocks."""
    entry = index_dtype(n_samples).itemsize + WORD
    facts = WORD * len(layout.EDGE_FACTS) * -(-n_samples // block_rows(n_samples))
    return n_samples * (k * entry + np.min_scalar_type(k).itemsize) + 2 * facts


def given_edges(n_entries: int) -> Cost:
    """Return the memory cost of streaming the edges of a precomputed matrix with `n_entries` entries."""
    block = min(n_entries, GIVEN_BLOCK)
    return (
        Array("ends of the edges of a block, as stored and read, and of the one before it", (3, 2, block), "int64"),
        Array("their ends as other types need them", (2, 2, block), "int64"),
        Array("their weights, as stored, read and weighed", (5, block)),
    )


def summary_cost(n_samples: int, streamed: Cost, n_edges: int, process: Cost) -> Cost:
    """Return the memory cost of an "edges-summary" unit with up to `n_edges` edges, whose blocks cost `streamed`."""
    if holds_edges(n_edges):
        degrees = Array("degrees, and components", (2, n_samples), "int64")
        return (*process, degrees, Objects("edges", n_edges, HELD_EDGE_BYTES), *streamed)
    return (
        *grown(process, COMPILED),
        Array("degrees, and nodes of the same components", (2, n_samples), _index(n_samples)),
        Array("degrees of some rows", (2, min(NODES_AT_ONCE, n_samples))),
        *streamed,
    )


def holds_edges(n_edges: int) -> bool:
    """Return whether the components of up to `n_edges` edges are found from all of them at once."""
    return n_edges < COMPILED_EDGES


def marks_cost(n_samples: int) -> Cost:
    """Return the memory cost of marks of the labeled rows, and of what finds them."""
    return (
        Array("marks of the labeled rows", (n_samples,), "bool"),
        Array("labels of some rows, their weights, and those that count", (4, min(LABEL_CHUNK_ROWS, n_samples))),
    )


def goes_by_labels(weighting: Weighting) -> bool:
    """Return whether the weights, or their summary, depend on which rows are labeled."""
    return weighting.connects != "all" or weighting.labeled_factor != 1


def weights_cost(n_samples: int, n_rows: int, weighting: Weighting, streamed: Cost, process: Cost) -> Cost:
    """Return the memory cost of a "weights" unit of `n_rows` rows, with blocks of edges that cost `streamed`."""
    label_copies = Array("labels of the unit's rows, and of those that count", (3, n_rows))
    return (
        *process,
        Array("degrees, sums of a block, and weights of self-loops", (3, n_rows)),
        *streamed,
        *((*marks_cost(n_samples), label_copies) if goes_by_labels(weighting) else ()),
    )


def median_cost(n_samples: int, k: int, process: Cost) -> Cost:
    """Return the memory cost of a "median" unit on lists of length k."""
    return (
        *process,
        *stored_edges(n_samples, k),
        Array("counts of digits, of all blocks and of one, and their sums", (3, 2**DIGIT_BITS), "int64"),
        Array("values around the median, apart, as one and in order", (3, min(HELD_VALUES, n_samples * k))),
    )


ENTRIES_STAGE = StageKind("entries", __name__, send_entries, entries_cost)
EDGES_STAGE = StageKind("edges", __name__, store_edges, edges_cost, arrays=create_edges)
EDGES_SUMMARY_STAGE = StageKind("edges-summary", __name__, describe_graph, summary_cost, reads_weights=True)
MEDIAN_STAGE = StageKind("median", __name__, find_median, median_cost)
WEIGHTS_STAGE = StageKind("weights", __name__, weight_edges, weights_cost, arrays=create_degrees, reads_weights=True)
