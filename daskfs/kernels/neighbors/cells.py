"""Groups of rows, cells inside them, and the cells that each row probes for its neighbors.

Notes
-----
Space is split twice by k-means: into groups, whose rows fit one task, and each group into cells of a few hundred rows.
A row is at home in the nearest cell of its nearest group. It probes the cells whose centers are not much farther than
the nearest one, in its own group and in the groups whose centers are not much farther than its own. The limits are
calibrated on a sample, by the distances of pairs of neighbors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

from daskfs.kernels.blocks import Block
from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.kernels.neighbors.metrics import Metric
from daskfs.kernels.neighbors.rows import prepare_rows
from daskfs.kernels.statistics.moments import row_blocks

GROUP_ROUNDS = 40
CENTER_ROUNDS = 25
CELL_ROUNDS = 10
MAX_GROUPS = 6
"""Maximum number of groups that a row visits, its own included."""
MAX_COPIES = 3.0
"""Maximum mean number of groups that a row visits: each costs a copy of the row."""
MAX_PROBES = 32
"""Maximum number of cells of one group that a row probes."""
MAX_MEAN_PROBES = 20.0
"""Maximum mean number of cells that a row probes."""
LEAST_GROUP_SHARE = 0.1
"""Groups with less than this share of the mean size are dropped."""
LEAST_ROWS_MET = 4.0
"""Minimum number of rows that a row meets, per neighbor."""
TRAINED_PER_CELL, TRAINED_ROWS = 64, 4096
"""Most rows that k-means is trained on, per cell and for few cells in all: more hardly move the centers."""
CALIBRATION_ROWS = 500
HELD_OUT = 4
"""One in this many rows of a sample is held out from training."""
CALIBRATION_RANKS = 5
SAMPLE_PARTS = 4
DIMENSION_NEIGHBORS = 10
GROUP_SHARES = (0.7, 0.4, 0.2, 0.05)
"""Shares of the missed pairs that may be missed because their groups do not meet; each is tried."""
COPY_SECONDS = 1.6e-8
"""Seconds to write and read one more value of a copied row."""
LARGE_CELL = 4096
"""Cells with more rows at home are split again when they are searched."""
MAX_SPLITS = 4
SAMPLED_PER_PART = 32
PIECE_ROWS = 512
SLACK = 1 + 2.0**-10
"""Factor on squared limits that covers their rounding; distances are compared with the limits again."""
BLOCK_ROWS = 1024
"""Rows of one matrix product. Blocks begin at multiples of it, so that a row's cells do not depend on the caller."""


def cell_rows(n_neighbors: int) -> int:
    """Return the target number of rows of a cell."""
    return max(250, 25 * n_neighbors)


@dataclass(frozen=True)
class Cells:
    """A partition of space into groups and cells.

    Attributes
    ----------
    group_centers, group_offsets
        Shapes (n_groups, n_columns) and (n_groups,), float32. A row belongs to the group with the smallest squared
        distance plus offset. The offsets keep groups at about equal size; plain k-means may give half of the rows to
        one.
    group_reach
        A row visits groups whose root of squared distance plus offset is at most this many times its own group's.
    cell_centers
        Shape (n_cells, n_columns), float32, group by group.
    cell_sizes
        Rows at home in each cell, estimated from the sample, shape (n_cells,), float64.
    cell_starts
        First cell of each group, shape (n_groups + 1,), int64.
    cell_reach
        In the groups that it visits, a row probes the cells at most this many times as far as its home.
    least_rows
        In its own group a row probes the nearest cells until they hold this many rows, however far they are.
    trained_share
        Share of all rows that the centers were trained on; 0 if these rows need no correction.
    expected_recall
        Share of the sample's neighbor pairs that meet: less than requested if rows would have to probe too many cells,
        as they do if no row is much nearer than others.
    dimension
        Intrinsic dimension of the sample, from the distances of its neighbors.
    """

    group_centers: np.ndarray
    group_offsets: np.ndarray
    group_reach: float
    cell_centers: np.ndarray
    cell_sizes: np.ndarray
    cell_starts: np.ndarray
    cell_reach: float
    least_rows: float
    trained_share: float = 0.0
    expected_recall: float = 1.0
    dimension: float = 1.0

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.group_centers.shape[0])

    def centers_of(self, group: int) -> np.ndarray:
        """Return the centers of one group's cells, shape (n_group_cells, n_columns), float32."""
        return self.cell_centers[self.cell_starts[group] : self.cell_starts[group + 1]]


@dataclass(frozen=True)
class Members:
    """Assignment of rows to groups, and the cells that they probe there.

    Sorted by group, then row. `row` (n_members,) int64, `group` (n_members,) int32, `is_home` (n_members,) bool; the
    cells of member i, nearest first and counted within the group, are ``cell[starts[i]:starts[i + 1]]``, int32.
    """

    row: np.ndarray
    group: np.ndarray
    is_home: np.ndarray
    starts: np.ndarray
    cell: np.ndarray


@dataclass(frozen=True)
class Sample:
    """A sample of the rows, which cells are trained on.

    Attributes
    ----------
    rows
        Shape (n_rows, n_columns), float32, finite.
    n_samples
        Number of rows that the sample represents.
    measured
        The rows for measuring distances by `metric`, shape (n_rows, n_columns), if these differ from the Euclidean
        distances of `rows`, in which missing values are imputed.
    """

    rows: np.ndarray
    n_samples: int
    measured: Block | None = None
    metric: Metric = "euclidean"


def one_cell(sample: Sample) -> Cells:
    """Return a single cell, at the mean of the sample."""
    center = sample.rows.mean(axis=0, dtype=np.float64).astype(np.float32)[None]
    size, ends = np.array([float(sample.n_samples)]), np.array([0, 1])
    return Cells(center, np.zeros(1, np.float32), 1.0, center, size, ends, 1.0, 0.0)


# ------------------------------------------------------------------------------- training
def training_rows(n_sampled: int, n_samples: int, n_cells: int) -> np.ndarray:
    """Return a mask of the sampled rows that cells are trained on, shape (n_sampled,), bool.

    Centers fit their training rows. So if the sample is less than half of all rows, or more than `n_cells` cells need,
    reaches are calibrated on held-out rows.
    """
    trained = np.ones(n_sampled, dtype=bool)
    if 2 * n_sampled < n_samples:
        trained[HELD_OUT - 1 :: HELD_OUT] = False
    n_trained, enough = np.count_nonzero(trained), max(TRAINED_PER_CELL * n_cells, TRAINED_ROWS)
    if n_trained > enough:
        trained[trained] = np.diff(np.arange(n_trained + 1) * enough // n_trained) > 0
    return trained


def train_cells(
    sample: Sample,
    n_groups: int,
    n_cells: int,
    n_neighbors: int,
    recall: float,
    seed: int,
    max_probes: float = MAX_MEAN_PROBES,
) -> Cells:
    """Split space into groups and cells of about equal numbers of rows.

    Parameters
    ----------
    sample
        Rows to train on, and to calibrate the reaches.
    n_groups, n_cells
        Numbers wanted; there are fewer if the sample has fewer distinct rows.
    n_neighbors
        Number of neighbors of each row.
    recall
        Share of the neighbors that a search should find, as estimated on the sample.
    seed
        Seed.
    max_probes
        Maximum mean number of cells that a row probes.
    """
    generator = np.random.default_rng([seed, n_groups, n_cells])
    trained = training_rows(len(sample.rows), sample.n_samples, n_cells)
    rows = sample.rows[trained]
    group_centers, offsets = _balanced_kmeans(rows, n_groups, generator)
    home, _ = _nearest(rows, group_centers, offsets)
    sizes = np.bincount(home, minlength=len(group_centers))
    is_large_enough = sizes * len(sizes) >= LEAST_GROUP_SHARE * len(rows)
    if not is_large_enough.all():  # a few outliers are too little work for a task, and find too few neighbors alone
        group_centers, offsets = group_centers[is_large_enough], offsets[is_large_enough]
        offsets -= offsets.min()
        home, _ = _nearest(rows, group_centers, offsets)
    parts = [np.flatnonzero(home == group) for group in range(len(group_centers))]
    of_groups = [cells_of(rows[part], n_cells * part.size / len(rows), generator) for part in parts]
    centers, cell_sizes = map(np.concatenate, zip(*of_groups, strict=True))
    cell_sizes *= sample.n_samples / len(rows)
    starts = np.concatenate([[0], np.cumsum([len(group) for group, _ in of_groups])])
    share = 0.0 if trained.all() else len(rows) / sample.n_samples
    cells = Cells(group_centers, offsets, 1.0, centers, cell_sizes, starts, 1.0, LEAST_ROWS_MET * n_neighbors, share)
    return _calibrate_reach(sample, trained, cells, n_neighbors, recall, max_probes, generator)


def _balanced_kmeans(rows: np.ndarray, n_groups: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return centers and offsets of a k-means that penalizes size."""
    centers = _first_centers(rows, n_groups, generator)
    n_groups = len(centers)
    offsets = np.zeros(n_groups, np.float32)
    if n_groups == 1:
        return rows.mean(axis=0, dtype=np.float64).astype(np.float32)[None], offsets
    for step in range(GROUP_ROUNDS):
        home, squares = _nearest(rows, centers, offsets)
        sizes = np.bincount(home, minlength=n_groups)
        if step < CENTER_ROUNDS and (step < CELL_ROUNDS or step % 5 == 0):
            centers = _means(rows, home, sizes, centers)
        if step >= CELL_ROUNDS:
            unit = float(np.median(squares - offsets[home]))
            excess = np.clip(sizes * n_groups / len(rows) - 1, -1, 1)
            offsets = (offsets + 0.15 * 0.97**step * unit * excess).astype(np.float32)
    return centers, offsets - offsets.min()


def cells_of(rows: np.ndarray, n_cells: float, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Run a plain k-means of rows, shape (n_rows, n_columns), float32, into about `n_cells` cells.

    Returns the centers, shape (n_cells, n_columns), float32, and sizes, shape (n_cells,), float64.
    """
    centers = _first_centers(rows, max(1, round(n_cells)), generator)
    nothing = np.zeros(len(centers), np.float32)
    for _ in range(CELL_ROUNDS):
        home, _ = _nearest(rows, centers, nothing)
        centers = _means(rows, home, np.bincount(home, minlength=len(centers)), centers)
    home, _ = _nearest(rows, centers, nothing)
    return centers, np.bincount(home, minlength=len(centers)).astype(np.float64)


def _first_centers(rows: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    chosen = generator.choice(len(rows), size=min(count, len(rows)), replace=False)
    return np.unique(rows[chosen], axis=0)


def _means(rows: np.ndarray, home: np.ndarray, sizes: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Return the mean of the rows at home in each cell; an empty cell keeps its center."""
    order = np.argsort(home, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    members = sp.csr_array((np.ones(len(rows), np.float32), order, starts), shape=(len(sizes), len(rows)))
    sums = members @ rows
    return np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None].astype(np.float32), centers)


def _calibrate_reach(
    sample: Sample,
    trained: np.ndarray,
    cells: Cells,
    n_neighbors: int,
    recall: float,
    most: float,
    generator: np.random.Generator,
) -> Cells:
    """Return the cells with the reaches at which enough pairs of neighbors in the sample meet, at the lowest cost.

    A larger group reach costs copies of rows, a larger cell reach costs comparisons. Some divisions of the misses
    between the two are tried.
    """
    sampled = sample.rows
    if len(sampled) < 3:
        return cells
    judges = np.arange(len(sampled)) if trained.all() else np.flatnonzero(~trained)
    queries = np.sort(generator.choice(judges, size=min(CALIBRATION_ROWS, judges.size), replace=False))
    pairs, neighbors, dimension = _neighbor_pairs(sample, queries, n_neighbors)
    cells = replace(cells, dimension=dimension)
    if len(cells.cell_centers) == 1:
        return cells
    rows = np.concatenate([sampled[queries], pairs.reshape(-1, sampled.shape[1])])
    a = np.repeat(np.arange(queries.size), pairs.shape[1])
    b = queries.size + np.arange(a.size)
    shown = np.concatenate([trained[queries], trained[neighbors.ravel()]])
    ratios, home = _group_ratios(rows, cells)
    between = np.minimum(ratios[a, home[b]], ratios[b, home[a]])
    to_cell = _cell_ratios(rows, cells, home, shown, a, b)
    mean_cell = sample.n_samples / len(cells.cell_centers)
    # plus one standard error, with all pairs of a row counted as one
    recall = min(recall + float(np.sqrt(recall * (1 - recall) / queries.size)), (1 + recall) / 2)
    trials = []
    for share in GROUP_SHARES:
        group_reach = _quantile(between, 1 - (1 - recall) * share)
        group_reach = min(group_reach, _quantile(ratios.ravel(), MAX_COPIES / cells.n_groups))
        needed = np.full(a.size, np.inf)
        for i, j, ratio in ((a, b, to_cell[0]), (b, a, to_cell[1])):
            needed = np.minimum(needed, np.where(ratios[i, home[j]] <= group_reach, ratio, np.inf))
        cell_reach = _quantile(needed, recall)
        if not np.isfinite(cell_reach):  # groups alone separate too many pairs: take the best possible
            cell_reach = _quantile(needed[np.isfinite(needed)], 1 - (1 - recall) / 2)
        trial = replace(cells, group_reach=group_reach, cell_reach=max(1.0, cell_reach))
        trial = _bounded_probes(sampled[queries], trial, most)
        members = assign_rows(sampled[queries], trial)
        pair = 1.6e-11 * sampled.shape[1] + 1.5e-9
        cost = members.cell.size * mean_cell * pair + members.row.size * sampled.shape[1] * COPY_SECONDS
        met = float(np.mean(needed <= trial.cell_reach))
        trials.append((met < recall, cost, replace(trial, expected_recall=met)))
    return min(trials, key=lambda trial: trial[:2])[2]


def _neighbor_pairs(sample: Sample, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return proxies of some of the k nearest rows among all rows, evenly spaced by rank, and their sample rows.

    The shapes are (n_asked, n_ranks, n_columns) and (n_asked, n_ranks). The third result is the intrinsic dimension.

    Notes
    -----
    The r-th nearest of all rows is nearer than the next one after the (r share)-th of the sample, which is therefore
    moved towards the asked row: in d dimensions the mean distance of the r-th nearest of n rows is proportional to
    ``gamma(r + 1 / d) / gamma(r) / n ** (1 / d)``. The dimension is estimated from the distances in the sample (Levina
    and Bickel 2005, Eq. 8); noise makes it large, and then rows move little. With `measured` nothing is moved: rows
    nearer in its space are not nearer in this one.
    """
    rows, measured = sample.rows, sample.measured
    share = len(rows) / sample.n_samples
    width = min(max(DIMENSION_NEIGHBORS, int(k * share) + 1), len(rows) - 1)
    neighbors, distances = _nearest_of_sample(rows if measured is None else measured, queries, width, sample.metric)
    neighbors = np.where(neighbors < 0, queries[:, None], neighbors)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.log(distances[:, -1:] / distances[:, :-1]).mean(axis=1)
    spread = spread[np.isfinite(spread) & (spread > 0)]
    dimension = max(1.0, float(1 / spread.mean())) if spread.size else 1.0
    ranks = np.unique(np.rint(np.linspace(1, k, min(k, CALIBRATION_RANKS))))
    rank = np.clip(np.floor(share * ranks) + 1, 1, width).astype(np.int64)
    far = gammaln(np.stack([ranks, rank]) + 1 / dimension) - gammaln(np.stack([ranks, rank]))
    moved = np.minimum(1.0, share ** (1 / dimension) * np.exp(far[0] - far[1])).astype(np.float32)
    if measured is not None:
        moved[:] = 1
    neighbors = neighbors[:, rank - 1]
    origin = rows[queries][:, None]
    pairs = rows[neighbors]  # may be as large as the sample: changed in place
    pairs -= origin
    pairs *= moved[:, None]
    pairs += origin
    return pairs, neighbors, dimension


def _nearest_of_sample(
    sample: Block, query_rows: np.ndarray, width: int, metric: Metric
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest rows of a sample, preparing one part of it at a time."""
    lists = []
    n_rows = int(sample.shape[0])
    for part in row_blocks(n_rows, max(width + 1, -(-n_rows // SAMPLE_PARTS))):
        base = prepare_rows(sample[part], metric)
        queries = prepare_rows(sample[query_rows], metric, like=base)
        lists.append(exact_neighbors(queries, query_rows, base, part.start, width))
    neighbors, distances = (np.concatenate(parts, axis=1) for parts in zip(*lists, strict=True))
    order = np.argsort(distances, axis=1, kind="stable")[:, :width]
    return np.take_along_axis(neighbors, order, axis=1), np.take_along_axis(distances, order, axis=1)


_TINY = float(np.finfo(np.float32).tiny)


def _quantile(values: np.ndarray, share: float) -> float:
    """Return the smallest value that `share` of the values do not exceed."""
    ordered = np.sort(values)
    return float(ordered[min(max(int(np.ceil(share * ordered.size)) - 1, 0), ordered.size - 1)])


def _group_ratios(rows: np.ndarray, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's roots for all groups over that for its own, shape (n_rows, n_groups), and its own group."""
    squares = _squares(rows, cells.group_centers, cells.group_offsets)
    roots = np.sqrt(np.maximum(squares, 0), dtype=np.float64)  # a ratio to a tiny root overflows float32
    home = roots.argmin(axis=1)
    return roots / np.maximum(roots.min(axis=1), _TINY)[:, None], home


def _cell_ratios(
    rows: np.ndarray, cells: Cells, home: np.ndarray, trained: np.ndarray, a: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distance to the other row's home cell over that to the nearest cell, for pairs of rows both ways."""
    nearest, home_cells = np.empty(len(rows)), np.empty(len(rows), np.int64)
    for group in range(cells.n_groups):
        here = np.flatnonzero(home == group)
        for block in row_blocks(here.size, BLOCK_ROWS):
            block_rows = here[block]
            squares = _cell_squares(rows[block_rows], cells, group, trained[block_rows])
            nearest[block_rows] = np.sqrt(squares.min(axis=1))
            home_cells[block_rows] = squares.argmin(axis=1) + cells.cell_starts[group]
    ways = []
    for i, j in ((a, b), (b, a)):
        difference = rows[i]
        difference -= cells.cell_centers[home_cells[j]]
        ways.append(np.sqrt(np.einsum("ij,ij->i", difference, difference)) / np.maximum(nearest[i], _TINY))
    return ways[0], ways[1]


def _bounded_probes(rows: np.ndarray, cells: Cells, most: float) -> Cells:
    """Lower the cell reach until rows probe at most `most` cells on average."""
    trial, low, high = cells, 1.0, cells.cell_reach
    for _ in range(12):
        if assign_rows(rows, trial).cell.size > most * len(rows):
            high = trial.cell_reach
        elif trial is cells:
            return cells
        else:
            low = trial.cell_reach
        trial = replace(cells, cell_reach=(low + high) / 2)
    return replace(cells, cell_reach=low)


# ----------------------------------------------------------------------------- assignment
def _squares(rows: np.ndarray, centers: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return squared distances plus offsets, shape (n_rows, n_centers), float32."""
    products = rows @ (centers * np.float32(-2)).T
    products += np.einsum("ij,ij->i", centers, centers) + offsets
    products += np.einsum("ij,ij->i", rows, rows)[:, None]
    return products


def _nearest(rows: np.ndarray, centers: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest center of each row, shape (n_rows,), int32, and the squared distance plus offset, float32."""
    index, values = np.empty(len(rows), np.int32), np.empty(len(rows), np.float32)
    for block in row_blocks(len(rows), BLOCK_ROWS):
        squares = _squares(rows[block], centers, offsets)
        index[block] = squares.argmin(axis=1)
        values[block] = squares[np.arange(len(squares)), index[block]]
    return index, values


def _nearest_within(
    squares: np.ndarray, limits: np.ndarray, count: int, sizes: np.ndarray | None = None, least: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return at most `count` nearest centers of each row, and their squared distances.

    Arguments and results are those of :func:`~daskfs.kernels.neighbors.nearest_lists.nearest_centers`.
    """
    # numba takes half a second to load, which exact searches do without
    from daskfs.kernels.neighbors.nearest_lists import nearest_centers

    sizes = np.zeros(squares.shape[1]) if sizes is None else sizes
    with np.errstate(over="ignore"):
        limits = limits.astype(np.float32)
    indices, values = nearest_centers(squares, limits, sizes, least, count)
    return indices, values


def _cell_squares(rows: np.ndarray, cells: Cells, group: int, trained: np.ndarray) -> np.ndarray:
    """Return squared distances to the cells of a group, leave-one-out for training rows.

    The shape is (n_rows, n_cells), float32.

    Notes
    -----
    Without one of its s rows, a center is ``s / (s - 1)`` times as far from that row. In many dimensions and cells of
    few sampled rows, this is most of the difference between a row's own cell and others. Uncorrected, such rows would
    probe their own cell only, and never meet each other.
    """
    centers = cells.centers_of(group)
    squares = _squares(rows, centers, np.zeros(len(centers), np.float32))
    if cells.trained_share > 0 and len(centers) > 1:
        training_rows = np.flatnonzero(trained)
        home = squares[training_rows].argmin(axis=1)
        sampled = np.rint(cells.cell_sizes[cells.cell_starts[group] + home] * cells.trained_share)
        factor = sampled / np.maximum(sampled - 1, 1)
        squares[training_rows, home] = np.where(sampled > 1, squares[training_rows, home] * factor**2, np.inf)
    return np.maximum(squares, 0, out=squares)


def assign_rows(rows: np.ndarray, cells: Cells, trained: np.ndarray | None = None) -> Members:
    """Return the groups that rows visit, and the cells that they probe there.

    `rows`, shape (n_rows, n_columns), float32, are in the space of the cells; `trained`, shape (n_rows,), bool, marks
    those that the centers were trained on, by default none.
    """
    shown = np.zeros(len(rows), dtype=bool) if trained is None else trained
    return joined_members(
        [_assign_block(rows[block], block.start, cells, shown[block]) for block in row_blocks(len(rows), BLOCK_ROWS)]
    )


def joined_members(parts: Sequence[Members]) -> Members:
    """Concatenate the members of consecutive blocks of rows."""
    row, group, is_home, cell = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "group", "is_home", "cell")
    )
    count = np.concatenate([np.diff(part.starts) for part in parts])
    order = np.argsort(group, kind="stable")
    begins = np.cumsum(count) - count
    starts = np.concatenate([[0], np.cumsum(count[order])])
    position = np.arange(starts[-1]) - np.repeat(starts[:-1], count[order]) + np.repeat(begins[order], count[order])
    return Members(row[order], group[order], is_home[order], starts, cell[position])


def _assign_block(rows: np.ndarray, first: int, cells: Cells, trained: np.ndarray) -> Members:
    squares = np.maximum(_squares(rows, cells.group_centers, cells.group_offsets), 0)
    limits = squares.min(axis=1) * (SLACK * max(1.0, cells.group_reach) ** 2)
    near, squares = _nearest_within(squares, limits, MAX_GROUPS)
    roots = np.sqrt(squares)
    visits = roots <= roots[:, :1] * np.float32(cells.group_reach)
    visits[:, 0] = True
    row, place = np.nonzero(visits)
    group, is_own = near[row, place], place == 0
    nearest = np.empty(len(rows), np.float32)
    index = np.full((row.size, MAX_PROBES), -1, np.int32)
    distance = np.full((row.size, MAX_PROBES), np.inf, np.float32)
    before = np.zeros((row.size, MAX_PROBES))
    for is_first, g in itertools.product((True, False), np.unique(group)):
        here = np.flatnonzero((group == g) & (is_own == is_first))
        if not here.size:
            continue
        squares = _cell_squares(rows[row[here]], cells, int(g), trained[row[here]] & is_first)
        if is_first:
            nearest[row[here]] = np.sqrt(squares.min(axis=1, initial=np.inf))
        limits = (nearest[row[here]].astype(np.float64) * cells.cell_reach) ** 2 * SLACK
        sizes = cells.cell_sizes[cells.cell_starts[g] : cells.cell_starts[g + 1]]
        nearest_cells, values = _nearest_within(squares, limits, MAX_PROBES, sizes, cells.least_rows * is_first)
        index[here, : nearest_cells.shape[1]], distance[here, : nearest_cells.shape[1]] = nearest_cells, np.sqrt(values)
        before[here, 1 : nearest_cells.shape[1]] = np.cumsum(sizes[nearest_cells[:, :-1]], axis=1)
    is_probed = distance <= nearest[row][:, None] * np.float32(cells.cell_reach)
    is_probed |= is_own[:, None] & (before < cells.least_rows)
    is_probed &= index >= 0
    count = is_probed.sum(axis=1)
    has_members = count > 0
    starts = np.concatenate([[0], np.cumsum(count[has_members])])
    return Members(row[has_members] + first, group[has_members], is_own[has_members], starts, index[is_probed])


# ----------------------------------------------------------------------------- large cells
def split_large(
    rows_of: Callable[[np.ndarray], np.ndarray],
    is_home: np.ndarray,
    starts: np.ndarray,
    cell: np.ndarray,
    n_neighbors: int,
    recall: float,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Split cells with very many rows, and return the starts and cells that members of a group then probe.

    Parameters
    ----------
    rows_of
        Returns the rows of some members in the space of the cells, shape (n_members, n_columns), float32.
    is_home, starts, cell
        As in :func:`~daskfs.kernels.neighbors.cell_search.cell_neighbors`.
    n_neighbors, recall, seed
        As in :func:`train_cells`.

    Notes
    -----
    A sample has few of the rows of a dense region, and centers go to isolated rows before they divide a dense region.
    When its rows are loaded, a cell is split again, repeatedly, with a reach of its own. A cell of equal rows is split
    by row order.
    """
    for depth in range(MAX_SPLITS):
        by_order = depth == MAX_SPLITS - 1
        sizes = np.bincount(cell[starts[:-1]][is_home], minlength=int(cell.max(initial=0)) + 1)
        large = np.flatnonzero(sizes > LARGE_CELL)
        if not large.size:
            break
        member = np.repeat(np.arange(is_home.size), np.diff(starts))
        rank = np.arange(cell.size) - np.repeat(starts[:-1], np.diff(starts))
        is_in_small = ~np.isin(cell, large)
        parts = [(member[is_in_small], cell[is_in_small], rank[is_in_small].astype(np.float64))]
        n_cells = sizes.size
        for number in large:
            pairs = np.flatnonzero(cell == number)
            rows = rows_of(member[pairs])
            home_members = np.flatnonzero(is_home[member[pairs]] & (rank[pairs] == 0))
            n_home = home_members.size
            n_parts = n_home * 4 // LARGE_CELL
            count = n_home if n_home <= 2 * LARGE_CELL else max(LARGE_CELL, SAMPLED_PER_PART * n_parts)
            shown = np.sort(np.random.default_rng([seed, int(number)]).choice(home_members, size=count, replace=False))
            # parts are larger than cells: rows probe fewer of them
            most = MAX_MEAN_PROBES * min(1.0, cell_rows(n_neighbors) * n_parts / n_home)
            cells = train_cells(Sample(rows[shown], n_home), 1, n_parts, n_neighbors, (1 + recall) / 2, seed, most)
            trained = np.zeros(len(rows), dtype=bool)
            trained[shown[training_rows(shown.size, n_home, n_parts)]] = True
            row_places, new, order = _parts(assign_rows(rows, cells, trained), home_members, by_order=by_order)
            parts.append((member[pairs][row_places], new + n_cells, rank[pairs][row_places] + order / (MAX_PROBES + 1)))
            n_cells += int(new.max()) + 1
        member, cell, rank = (np.concatenate(values) for values in zip(*parts, strict=True))
        cell = cell[np.lexsort((rank, member))].astype(np.int32)
        starts = np.concatenate([[0], np.cumsum(np.bincount(member, minlength=is_home.size))])
    return starts, cell


def _parts(members: Members, home_members: np.ndarray, *, by_order: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, the parts of a cell that they probe, and the rank of each part for its row, nearest first.

    A cell of a single part, and with `by_order` every large part, is split by row order.
    """
    nearest = members.cell[members.starts[:-1]]
    n_rows = np.bincount(nearest[home_members], minlength=int(members.cell.max()) + 1)
    pieces = np.where((n_rows > LARGE_CELL) & (by_order or np.count_nonzero(n_rows) == 1), -(-n_rows // PIECE_ROWS), 1)
    begins = np.cumsum(pieces) - pieces
    turn = np.arange(nearest.size)
    for crowded in np.flatnonzero(pieces > 1):  # rows at home fill one piece after the other, evenly
        here = home_members[nearest[home_members] == crowded]
        turn[here] = np.arange(here.size) * pieces[crowded] // here.size
    counts = np.diff(members.starts)
    row = np.repeat(np.arange(nearest.size), counts)
    choice = np.arange(row.size) - np.repeat(members.starts[:-1], counts)
    part = members.cell
    return row, (begins[part] + turn[row] % pieces[part]).astype(np.int64), choice
