"""Stages "edges", "edges-summary" and "weights": a streamed symmetric weighted graph from neighbor lists.

An edge joins i and j if either lists the other (He, Cai and Niyogi 2005, section 2.2, step 1). Marks on list entries
select each edge once; weights are computed while streaming. A unit holds the lists of some rows, one block of others,
and a few numbers per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.graph.components import EDGES_AT_ONCE, Components
from daskfs.graph.partition import block_rows, index_dtype, largest_block, lists_cost
from daskfs.graph.spec import TARGET_NAMES, Weighting
from daskfs.graph.streaming_median import DIGIT_BITS, HELD_VALUES, streamed_median
from daskfs.kernels.neighbors.weights import edge_weights
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.stages.cost import Array, Cost
from daskfs.stages.kind import StageKind
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store

GIVEN = "given"
HISTOGRAM_BINS = 40
SCANNED_ENTRIES = 2**18
"""List entries that are scanned at a time."""
GIVEN_BLOCK = 2**20
"""Edges of a precomputed graph per read and per chunk."""
COMPARED_ENTRIES = 2**20
"""List entries that are compared with row numbers at a time, so that they stay in cache."""


def create_edges(context: Context, parameters: Mapping[str, Any]) -> None:
    """Create the array of marks, shape (n_samples, k), uint8."""
    name, k = str(parameters["name"]), int(parameters["n_neighbors"])
    n_samples = context.tiles.shape.n_samples
    context.store.create(layout.EDGE_ONCE.format(name, k), (n_samples, k), np.uint8, (block_rows(n_samples), k))


def mark_edges(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Mark one list entry per edge in the lists of the unit's rows.

    All entries are marked except padding and, of two rows that list each other, the entry of the higher row. So the
    lists of rows above the unit's own are not read.
    """
    store, name, k = context.store, str(parameters["name"]), int(parameters["n_neighbors"])
    indices = store.open(layout.KNN_INDICES.format(name))
    once = store.open(layout.EDGE_ONCE.format(name, k))
    n_samples = indices.shape[0]
    size = block_rows(n_samples)
    span = size * int(parameters["blocks_per_unit"])
    first, stop = unit * span, min((unit + 1) * span, n_samples)
    lists = np.empty((stop - first, k), index_dtype(n_samples))
    own = [slice(first + rows.start, first + rows.stop) for rows in row_blocks(stop - first, size)]
    for rows in own:
        lists[rows.start - first : rows.stop - first] = indices[rows, :k]
    marks = lists >= 0
    for rows in row_blocks(first, size):
        _unmark(marks, lists, first, indices[rows, :k], rows.start)
    for rows in own:
        _unmark(marks, lists, first, lists[rows.start - first : rows.stop - first], rows.start)
    for rows in own:
        once[rows] = marks[rows.start - first : rows.stop - first].view(np.uint8)
    return {"n_edges": int(np.count_nonzero(marks))}


def _unmark(marks: np.ndarray, lists: np.ndarray, first: int, block: np.ndarray, start: int) -> None:
    """Unmark the entries of edges that a lower row lists, too.

    `marks` and `lists` are of the rows from `first`, shape (n_rows, k), `block` holds lists of the rows from `start`.
    """
    n_rows, k = lists.shape
    flat_marks = marks.reshape(-1)
    for rows in row_blocks(len(block), max(1, SCANNED_ENTRIES // k)):
        entries = block[rows]
        number = np.arange(start + rows.start, start + rows.stop)
        above = np.maximum(number + 1, first).astype(entries.dtype)
        listed = np.flatnonzero((entries >= above[:, None]) & (entries < first + n_rows))
        row, by = entries.ravel()[listed] - first, number[listed // k].astype(lists.dtype)
        for some in row_blocks(listed.size, max(1, COMPARED_ENTRIES // k)):
            found = np.flatnonzero(lists.take(row[some], axis=0) == by[some, None])
            pair = found // k
            flat_marks[row[some][pair].astype(np.int64) * k + (found - pair * k)] = False


def describe_graph(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Summarize components, degrees and edge lengths. For lists by target only labeled rows are nodes."""
    del unit
    store, name, k = context.store, str(parameters["name"]), int(parameters["n_neighbors"])
    n_samples = context.tiles.shape.n_samples
    degree = np.zeros(n_samples, dtype=np.int64)
    components = Components(n_samples)
    n_edges, shortest, longest = 0, np.inf, -np.inf
    for source, target, length in edge_blocks(store, name, k):
        np.add.at(degree, source, 1)
        np.add.at(degree, target, 1)
        components.add(source, target)
        n_edges += length.size
        shortest = min(shortest, float(length.min(initial=np.inf)))
        longest = max(longest, float(length.max(initial=-np.inf)))
    sizes = components.sizes()
    n_components, largest = int(np.count_nonzero(sizes)), int(sizes.max())
    n_nodes = n_samples
    if name in TARGET_NAMES:
        degree = degree[_counted_labeled(context)]
        n_nodes, n_components = degree.size, n_components - (n_samples - degree.size)
    degrees = (degree[rows].astype(np.float64) for rows in row_blocks(n_nodes, block_rows(n_samples)))
    summary = {
        "n_nodes": n_nodes,
        "n_edges": n_edges,
        "n_components": n_components,
        "largest_component": largest,
        "n_isolated": n_nodes - int(np.count_nonzero(degree)),
        "max_degree": int(degree.max()),
        "mean_degree": float(degree.mean()),
        "length_histogram": _histogram(edge_lengths(store, name, k), n_edges, shortest, longest),
        "degree_histogram": _histogram(degrees, n_nodes, float(degree.min()), float(degree.max())),
    }
    store.write_json(layout.GRAPH_SUMMARY.format(name, k), summary)
    return summary


def _counted_labeled(context: Context) -> np.ndarray:
    labels = context.counted_labels()
    assert labels is not None
    return labels.is_labeled


def _histogram(blocks: Iterable[np.ndarray], size: int, low: float, high: float) -> dict[str, list[float]]:
    """Return a histogram of `size` values from `low` to `high` with bins of equal width."""
    if size == 0:
        return {"edges": [0.0, 1.0], "counts": [0]}
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # equal up to round-off: too narrow for bins
        return {"edges": [low, high], "counts": [size]}
    counts = np.zeros(HISTOGRAM_BINS, dtype=np.int64)
    for values in blocks:
        counts += np.histogram(values, bins=HISTOGRAM_BINS, range=(low, high))[0]
    edges = np.histogram_bin_edges([], bins=HISTOGRAM_BINS, range=(low, high))
    return {"edges": [float(e) for e in edges], "counts": [int(c) for c in counts]}


def edge_blocks(store: Store, name: str, k: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (source, target, length) of each edge once, in blocks that depend on the graph alone.

    Arrays have shape (n_edges,), int64 and float64. For a precomputed matrix the third one is the weight.
    """
    if name == GIVEN:
        yield from _given_blocks(store)
        return
    indices = store.open(layout.KNN_INDICES.format(name))
    distances = store.open(layout.KNN_DISTANCES.format(name))
    once = store.open(layout.EDGE_ONCE.format(name, k))
    for rows in row_blocks(indices.shape[0], block_rows(indices.shape[0])):
        marked = once[rows].astype(bool)
        source = np.broadcast_to(np.arange(rows.start, rows.stop)[:, None], marked.shape)[marked]
        yield source, indices[rows, :k][marked].astype(np.int64, copy=False), distances[rows, :k][marked]


def edge_lengths(store: Store, name: str, k: int) -> Iterator[np.ndarray]:
    """Yield the lengths of the edges, (n_edges,) float64, in the blocks of :func:`edge_blocks`, without their ends."""
    if name == GIVEN:
        weights = store.open(layout.GIVEN_WEIGHT)
        yield from (weights[entries] for entries in row_blocks(weights.shape[0], GIVEN_BLOCK))
        return
    distances = store.open(layout.KNN_DISTANCES.format(name))
    once = store.open(layout.EDGE_ONCE.format(name, k))
    for rows in row_blocks(distances.shape[0], block_rows(distances.shape[0])):
        yield distances[rows, :k][once[rows].astype(bool)]


def weight_edges(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Choose the kernel width, sum the degrees, and count zero weights and isolated rows (those meant to be connected).

    Raises
    ------
    InputError
        If all weights are 0 or there are no edges.
    """
    del unit
    store = context.store
    weighting = Weighting(**parameters["weighting"])
    n_samples = context.tiles.shape.n_samples
    t = _kernel_width(store, weighting)
    degrees = np.zeros(n_samples)
    weigh = EdgeWeights(context, [weighting])
    n_edges = n_underflow = 0
    for source, target, value in edge_blocks(store, weighting.graph, weighting.n_neighbors):
        weight = weigh(source, target, value, weighting, t)
        np.add.at(degrees, source, weight)
        np.add.at(degrees, target, weight)
        n_edges += weight.size
        n_underflow += int(np.count_nonzero(weigh.counted(source, target, weight == 0, weighting)))
    rows = weigh.rows
    loops = loop_weights(store, weighting, rows)
    if loops is not None:
        degrees += loops
    if n_edges == n_underflow and weighting.labeled_factor != 0:
        raise InputError(_all_zero(weighting, t, n_edges))
    if rows is not None and weighting.labeled_factor != 0 and not degrees.any():
        msg = "no edge between rows of sample weight above 0 has a weight above 0."
        raise InputError(msg)
    isolated = degrees == 0 if rows is None else (degrees == 0) & (rows > 0)
    n_meant = n_samples
    if weighting.connects != "all":
        meant = _counted_labeled(context) == (weighting.connects == "labeled")
        n_meant, isolated = int(np.count_nonzero(meant)), isolated & meant
    store.put_array(layout.DEGREES.format(weighting.key), degrees, (block_rows(n_samples),))
    summary = {"t": t, "n_underflow": n_underflow, "n_edges": n_edges}
    summary |= {"n_isolated": int(np.count_nonzero(isolated)), "n_meant": n_meant}
    summary["volume"] = float(degrees.sum())
    store.write_json(layout.WEIGHT_SUMMARY.format(weighting.key), summary)
    return summary


def loop_weights(store: Store, weighting: Weighting, rows: np.ndarray | None) -> float | np.ndarray | None:
    """Return the weights of self-loops, which are not in :func:`edge_blocks`.

    They are a scalar, or (n_samples,) float64; None for no self-loops. `rows` are the sample weights, None for 1 each.
    """
    if weighting.self_loops:
        return 1.0 if rows is None else rows**2
    if weighting.graph == GIVEN:
        diagonal: np.ndarray = store.open(layout.GIVEN_DIAGONAL)[...]
        return diagonal if rows is None else rows**2 * diagonal
    return None


def _all_zero(weighting: Weighting, t: float, n_edges: int) -> str:
    if n_edges == 0:
        alone = "" if weighting.graph in TARGET_NAMES or weighting.graph == GIVEN else ": no two rows share a feature"
        return f"the graph has no edges{alone}."
    if weighting.weights == "heat":
        return (
            f"all {n_edges} heat weights exp(-d**2 / t) are 0 with t = {t:g}: the edges are too long for it. "
            "Raise t, "
            + (
                "or standardize the target (standardize_y)."
                if weighting.connects == "labeled"
                else "use t = 'mean' or 'median', or scale the data (transform.graph)."
            )
        )
    return f"all {n_edges} edge weights are 0."


def _kernel_width(store: Store, weighting: Weighting) -> float:
    if weighting.weights != "heat" or weighting.graph == GIVEN:
        return 1.0
    if not isinstance(weighting.t, str):
        return float(weighting.t)
    squares = partial(_squared_lengths, store, weighting.graph, weighting.n_neighbors)
    if weighting.t == "median":
        width = streamed_median(squares)
    else:
        sums = [(float(block.sum()), block.size) for block in squares()]
        width = sum(total for total, _ in sums) / max(sum(size for _, size in sums), 1)
    return width if width > 0 else 1.0


def _squared_lengths(store: Store, name: str, k: int) -> Iterator[np.ndarray]:
    return (length**2 for length in edge_lengths(store, name, k))


def weighted_blocks(
    context: Context, graph: str, k: int, weightings: list[Weighting]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (source, target, weights) of the edges: (n_edges,) int64 twice, and (n_weightings, n_edges) float64."""
    store = context.store
    widths = [float(store.need_json(layout.WEIGHT_SUMMARY.format(w.key))["t"]) for w in weightings]
    weigh = EdgeWeights(context, weightings)
    for source, target, value in edge_blocks(store, graph, k):
        rows = [weigh(source, target, value, w, t) for w, t in zip(weightings, widths, strict=True)]
        yield source, target, np.stack(rows)


class EdgeWeights:
    """Edge weights under some weightings, with the labels and sample weights that these need.

    The weight of an edge is multiplied by the sample weights of both rows, as if these were repetitions of the rows.
    """

    def __init__(self, context: Context, weightings: Sequence[Weighting]) -> None:
        self.rows = context.weights()
        self._is_labeled: np.ndarray | None = None
        if any(w.labeled_factor != 1 for w in weightings):
            labels = context.labels()
            assert labels is not None
            self._is_labeled = labels.is_labeled

    def __call__(
        self, source: np.ndarray, target: np.ndarray, value: np.ndarray, weighting: Weighting, t: float
    ) -> np.ndarray:
        """Return the weight of each edge, shape (n_edges,), float64.

        Parameters
        ----------
        source, target
            Rows of the edges, shape (n_edges,), int64.
        value
            Length of each edge, or its precomputed weight, shape (n_edges,), float64.
        weighting, t
            Weighting and its kernel width.
        """
        weights = self._of_one(source, target, value, weighting, t)
        return weights if self.rows is None else weights * (self.rows[source] * self.rows[target])

    def counted(self, source: np.ndarray, target: np.ndarray, marked: np.ndarray, weighting: Weighting) -> np.ndarray:
        """Clear the marks, (n_edges,) bool, of edges that do not count.

        These are edges with a row of sample weight 0, and those between two labeled rows if the factor is 0.
        """
        if weighting.labeled_factor == 0:
            assert self._is_labeled is not None
            marked = marked & ~(self._is_labeled[source] & self._is_labeled[target])
        return marked if self.rows is None else marked & (self.rows[source] > 0) & (self.rows[target] > 0)

    def _of_one(
        self, source: np.ndarray, target: np.ndarray, value: np.ndarray, weighting: Weighting, t: float
    ) -> np.ndarray:
        """Return the weights for sample weights of 1."""
        weights = value if weighting.graph == GIVEN else edge_weights(value, weighting.weights, t)
        if weighting.labeled_factor == 1:
            return weights
        assert self._is_labeled is not None
        both = self._is_labeled[source] & self._is_labeled[target]
        return np.where(both, weighting.labeled_factor * weights, weights)


def _given_blocks(store: Store) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    arrays = [store.open(name) for name in (layout.GIVEN_SOURCE, layout.GIVEN_TARGET, layout.GIVEN_WEIGHT)]
    for entries in row_blocks(arrays[0].shape[0], GIVEN_BLOCK):
        yield arrays[0][entries], arrays[1][entries], arrays[2][entries]


def own_lists(n_samples: int, n_rows: int, k: int) -> Cost:
    """Return the memory cost of the lists of a unit's rows and their marks."""
    return (
        Array("lists of the unit's rows", (n_rows, k), str(index_dtype(n_samples))),
        Array("their marks", (n_rows, k), "bool"),
    )


def edges_cost(n_samples: int, n_rows: int, k: int, width: int, process: Cost) -> Cost:
    """Return the memory cost of an "edges" unit of `n_rows` rows with lists of length `width`."""
    block = (3, largest_block(n_samples), width)
    return (
        *process,
        *own_lists(n_samples, n_rows, k),
        Array("lists of a block, as stored and read", block, str(index_dtype(n_samples))),
        Array("entries that are looked through, and where they are", (5, SCANNED_ENTRIES), "int64"),
        Array("lists that are compared, and where they agree", (2, COMPARED_ENTRIES), "int64"),
    )


def listed_edges(n_samples: int, k: int, width: int) -> Cost:
    """Return the memory cost of streaming edges from lists of length `width`, of which k entries make the graph."""
    size = largest_block(n_samples)
    return (
        Array("ends of the edges of a block and of the one before it", (2, 2, size, k), "int64"),
        Array("lengths and weights of these", (2, size, k)),
        Array("weights of a block by length alone", (size, k)),
        Array("marks of a block, as stored and read", (4, size, k), "bool"),
        *lists_cost("lists of a block, as stored, read and marked", 3, size, width, n_samples),
    )


def given_edges(n_entries: int) -> Cost:
    """Return the memory cost of streaming the edges of a precomputed matrix with `n_entries` entries."""
    block = min(n_entries, GIVEN_BLOCK)
    return (
        Array("ends of the edges of a block, as stored and read, and of the one before it", (3, 2, block), "int64"),
        Array("their ends as other types need them", (2, 2, block), "int64"),
        Array("their weights, as stored, read and weighed", (5, block)),
    )


def summary_cost(n_samples: int, streamed: Cost, n_edges: int, process: Cost, *, by_label: bool = False) -> Cost:
    """Return the memory cost of an "edges-summary" unit with blocks of `n_edges` edges that cost `streamed`.

    `by_label` means that only labeled rows are nodes.
    """
    index = str(index_dtype(n_samples))
    return (
        *process,
        Array("degrees, and those of labeled rows", (2, n_samples), "int64"),
        Array("lower nodes of the same components, and sizes", (2, n_samples), index),
        *streamed,
        Array("nodes that are joined, their roots, and the graph of these", (16, min(EDGES_AT_ONCE, n_edges)), "int64"),
        *(_labels(n_samples) if by_label else ()),
    )


def _labels(n_samples: int) -> Cost:
    return (
        Array("labels, and their copy where some rows do not count", (2, n_samples)),
        Array("which of them are known, and wanted", (4, n_samples), "bool"),
    )


def goes_by_labels(weighting: Weighting) -> bool:
    """Return whether the weights, or their summary, depend on which rows are labeled."""
    return weighting.connects != "all" or weighting.labeled_factor != 1


def weights_cost(n_samples: int, weighting: Weighting, width: int, process: Cost) -> Cost:
    """Return the memory cost of a "weights" unit on lists of length `width`."""
    return (
        *process,
        Array("degrees, the diagonal, and degrees as they are written", (3, n_samples)),
        *listed_edges(n_samples, weighting.n_neighbors, width),
        *(_labels(n_samples) if goes_by_labels(weighting) else ()),
        *(_median(n_samples * weighting.n_neighbors) if weighting.t == "median" else ()),
    )


def _median(n_values: int) -> Cost:
    return (
        Array("counts of digits, of all blocks and of one, and their sums", (3, 2**DIGIT_BITS), "int64"),
        Array("values around the median, apart, as one and in order", (3, min(HELD_VALUES, n_values))),
    )


EDGES_STAGE = StageKind("edges", __name__, mark_edges, edges_cost, arrays=create_edges)
EDGES_SUMMARY_STAGE = StageKind("edges-summary", __name__, describe_graph, summary_cost, reads_weights=True)
WEIGHTS_STAGE = StageKind("weights", __name__, weight_edges, weights_cost, reads_weights=True)
