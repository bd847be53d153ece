"""Groups, cells and who goes where: sound for any rows, balanced, and wide enough for the neighbors asked for."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from daskfs.kernels.neighbors import cells as kernel
from daskfs.kernels.neighbors.cells import (
    BLOCK_ROWS,
    MAX_COPIES,
    MAX_GROUPS,
    MAX_MEAN_PROBES,
    MAX_PROBES,
    Cells,
    Members,
    Sample,
    assign_rows,
    cells_of,
    joined_members,
    split_large,
    train_cells,
    training_rows,
)
from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.kernels.neighbors.rows import prepare_rows
from tests.cases import each

FloatArray = NDArray[np.float64]
FloatRows = NDArray[np.float32]

SKEWED = (0.6, 0.2, 0.1, 0.05, 0.03, 0.02)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def normal(n: int, d: int, seed: int = 0) -> FloatRows:
    return generator(seed).normal(size=(n, d)).astype(np.float32)


def mixture(n: int, d: int, shares: tuple[float, ...], seed: int = 0) -> FloatRows:
    centers = generator(seed).normal(size=(len(shares), d)) * 8 / np.sqrt(d)
    component = generator(seed + 1).choice(len(shares), size=n, p=shares)
    return (centers[component] + generator(seed + 2).normal(size=(n, d))).astype(np.float32)


def low_rank(n: int, m: int, rank: int, seed: int = 0) -> FloatRows:
    parts = generator(seed).normal(size=(n, rank)), generator(seed + 1).normal(size=(rank, m))
    return (parts[0] @ parts[1] + 0.1 * generator(seed + 2).normal(size=(n, m))).astype(np.float32)


def digits() -> FloatRows:
    return np.asarray(load_digits().data, dtype=np.float32)


def trained(rows: FloatRows, n_groups: int, n_cells: int, k: int = 10, recall: float = 0.98, share: int = 2) -> Cells:
    """Cells trained on every `share`-th row."""
    return train_cells(Sample(np.ascontiguousarray(rows[::share]), len(rows)), n_groups, n_cells, k, recall, 0)


def assert_sound(members: Members, cells: Cells, n_rows: int) -> None:
    """Every row at home once; sorted by group, then row, none twice; cells of the group, none twice."""
    np.testing.assert_array_equal(np.sort(members.row[members.is_home]), np.arange(n_rows))
    pairs = np.stack([members.group, members.row], axis=1)
    np.testing.assert_array_equal(pairs, np.unique(pairs, axis=0))
    assert members.starts[0] == 0
    assert members.starts[-1] == members.cell.size
    counts = np.diff(members.starts)
    assert (counts > 0).all()
    assert counts.max() <= MAX_PROBES
    per_group = np.diff(cells.cell_starts)
    member = np.repeat(np.arange(counts.size), counts)
    assert (members.cell >= 0).all()
    assert (members.cell < per_group[members.group[member]]).all()
    assert np.unique(np.stack([member, members.cell]), axis=1).shape[1] == members.cell.size


def looks(members: Members, n_rows: int) -> list[dict[int, list[int]]]:
    """The cells of every row, by group."""
    found: list[dict[int, list[int]]] = [{} for _ in range(n_rows)]
    bounds = members.starts.tolist()
    for row, group, first, last in zip(members.row, members.group, bounds[:-1], bounds[1:], strict=True):
        found[row][int(group)] = members.cell[first:last].tolist()
    return found


def wanted_looks(row: FloatRows, cells: Cells) -> tuple[dict[int, list[int]], bool]:
    """The cells of one row in float64 as :class:`Cells` has it, and whether round-off could decide otherwise."""
    x = row.astype(np.float64)
    squares = ((cells.group_centers - x) ** 2).sum(axis=1) + cells.group_offsets
    groups = np.argsort(squares, kind="stable")[:MAX_GROUPS]
    ratios = np.sqrt(squares[groups] / squares[groups[0]])
    close = bool((np.abs(ratios[1:] - [cells.group_reach]) < 1e-4).any()) or ratios[1] < 1 + 1e-4
    found: dict[int, list[int]] = {}
    nearest_home = 0.0
    for place, (group, ratio) in enumerate(zip(groups.tolist(), ratios, strict=True)):
        if place and ratio > cells.group_reach:
            continue
        lengths = np.sqrt(((cells.centers_of(group) - x) ** 2).sum(axis=1))
        order = np.argsort(lengths, kind="stable")[:MAX_PROBES]
        nearest_home = lengths[order[0]] if place == 0 else nearest_home
        close |= bool((np.abs(lengths / nearest_home - cells.cell_reach) < 1e-4).any())
        close |= bool((np.diff(lengths[order]) < 1e-4 * lengths[order[1:]]).any())
        sizes = cells.cell_sizes[cells.cell_starts[group] + order]
        before = np.cumsum(sizes) - sizes
        taken = lengths[order] <= nearest_home * cells.cell_reach
        if place == 0:
            taken |= before < cells.least_rows
        if taken.any():
            found[group] = order[taken].tolist()
    return found, close


def share_that_meets(
    rows: FloatRows,
    cells: Cells,
    k: int,
    n_asked: int = 1000,
    trained: NDArray[np.bool_] | None = None,
    among: NDArray[np.int64] | None = None,
) -> float:
    """Share of the pairs of true neighbors, of some rows, of which one row looks into the home of the other."""
    members = assign_rows(rows, cells, trained)
    found = looks(members, len(rows))
    home = np.empty((len(rows), 2), dtype=np.int64)
    at_home = members.is_home
    home[members.row[at_home], 0] = members.group[at_home]
    home[members.row[at_home], 1] = members.cell[members.starts[:-1][at_home]]
    asked = np.sort(generator(5).choice(len(rows) if among is None else among, n_asked, replace=False))
    base = prepare_rows(rows, "euclidean")
    neighbors, _ = exact_neighbors(base.part(asked), asked, base, 0, k)
    met = [
        home[b, 1] in found[a].get(int(home[b, 0]), ()) or home[a, 1] in found[b].get(int(home[a, 0]), ())
        for a, listed in zip(asked.tolist(), neighbors, strict=True)
        for b in listed.tolist()
    ]
    return float(np.mean(met))


AWKWARD: dict[str, FloatRows] = {
    "normal": normal(3000, 6),
    "skewed": mixture(3000, 6, SKEWED),
    "all identical": np.full((2000, 4), 0.1, dtype=np.float32),
    "few distinct": generator(3).integers(0, 3, size=(2000, 2)).astype(np.float32),
    "one column": normal(2000, 1),
    "one column of few values": generator(4).integers(0, 5, size=(2000, 1)).astype(np.float32),
    "each row fifty times": np.repeat(normal(40, 6), 50, axis=0),
    "half identical": np.vstack([np.zeros((1000, 4), np.float32), normal(1000, 4)]),
    "an outlier": np.vstack([normal(1999, 5), np.full((1, 5), 1e4, np.float32)]),
    "many outliers": np.vstack([normal(1990, 5), 1e3 * normal(10, 5, seed=1)]),
    "far clusters": (normal(2000, 3) * 1e-3 + 1e3 * (np.arange(2000) % 7)[:, None]).astype(np.float32),
    "two rows": normal(2, 3),
    "one row": normal(1, 3),
}


class TestAnyRows:
    @each("n_groups", [1, 5])
    @each("name", AWKWARD)
    def test_sound(self, name: str, n_groups: int) -> None:
        rows = AWKWARD[name]
        cells = trained(rows, n_groups, 16)
        assert_sound(assign_rows(rows, cells), cells, len(rows))
        assert 1 <= cells.n_groups <= n_groups
        assert len(cells.cell_centers) == len(cells.cell_sizes) == cells.cell_starts[-1] <= 16 + cells.n_groups
        assert (np.diff(cells.cell_starts) > 0).all()
        assert cells.group_centers.dtype == cells.cell_centers.dtype == np.float32
        for values in (cells.group_centers, cells.group_offsets, cells.cell_centers, cells.cell_sizes):
            assert np.isfinite(values).all()
        assert np.isfinite([cells.group_reach, cells.cell_reach, cells.least_rows]).all()
        np.testing.assert_allclose(cells.cell_sizes.sum(), len(rows), rtol=1e-12)

    @each("name", [name for name in AWKWARD if len(AWKWARD[name]) > 100])
    def test_every_row_meets_enough(self, name: str) -> None:
        """The cells that a row looks into in its own group hold k others, however far away it is."""
        rows = AWKWARD[name]
        k = 10
        cells = trained(rows, 5, 16, k)
        members = assign_rows(rows, cells)
        at_home = members.is_home
        home = cells.cell_starts[members.group[at_home]] + members.cell[members.starts[:-1][at_home]]
        held = np.bincount(home, minlength=len(cells.cell_centers))
        met = np.zeros(len(rows), dtype=np.int64)
        member = np.repeat(np.arange(members.row.size), np.diff(members.starts))
        np.add.at(met, members.row[member], held[cells.cell_starts[members.group[member]] + members.cell])
        assert met.min() >= k + 1, "the row itself counts"

    def test_no_more_cells_than_distinct_rows(self) -> None:
        rows = AWKWARD["few distinct"]
        cells = trained(rows, 5, 200)
        distinct = np.unique(rows, axis=0)
        assert cells.n_groups <= len(cells.cell_centers) <= len(distinct)
        np.testing.assert_array_equal(np.unique(cells.cell_centers, axis=0), distinct)

    def test_identical_rows_are_one_cell(self) -> None:
        cells = trained(AWKWARD["all identical"], 5, 16)
        assert (cells.n_groups, len(cells.cell_centers)) == (1, 1)
        assert cells.cell_sizes.tolist() == [2000.0]

    def test_a_few_rows_apart_are_no_group(self) -> None:
        rows = AWKWARD["many outliers"]
        cells = trained(rows, 5, 16)
        home = assign_rows(rows, cells)
        sizes = np.bincount(home.group[home.is_home], minlength=cells.n_groups)
        assert sizes.min() > 0.1 * sizes.mean()

    def test_same_seed_same_cells(self) -> None:
        rows = AWKWARD["skewed"]
        first, again = trained(rows, 5, 16), trained(rows, 5, 16)
        other = train_cells(Sample(rows[::2], len(rows)), 5, 16, 10, 0.98, 1)
        np.testing.assert_array_equal(first.cell_centers, again.cell_centers)
        assert (first.group_reach, first.cell_reach) == (again.group_reach, again.cell_reach)
        assert not np.array_equal(first.group_centers, other.group_centers)


class TestAssignment:
    rows = normal(4 * BLOCK_ROWS + 300, 6)
    cells = replace(trained(rows, 7, 60), group_reach=1.2, cell_reach=1.25, least_rows=150.0)

    def test_reference(self) -> None:
        found = looks(assign_rows(self.rows, self.cells), len(self.rows))
        n_close = n_several = 0
        for row in range(0, len(self.rows), 10):
            wanted, close = wanted_looks(self.rows[row], self.cells)
            n_close += close
            n_several += len(wanted) > 1
            if not close:
                assert found[row] == wanted
        assert n_close < 100
        assert n_several > 100

    def test_no_more_groups_than_the_limit(self) -> None:
        """All but rows that are a cell of their own reach any group; their distance from its center is 0."""
        members = assign_rows(self.rows, replace(self.cells, group_reach=1e9, cell_reach=1e9))
        counts = np.bincount(members.row)
        assert counts.max() == MAX_GROUPS < self.cells.n_groups
        assert (counts == MAX_GROUPS).mean() > 0.99
        assert np.diff(members.starts).max() == np.diff(self.cells.cell_starts).max()

    def test_only_home_at_the_least_reach(self) -> None:
        members = assign_rows(self.rows, replace(self.cells, group_reach=0.5, cell_reach=0.5, least_rows=0.5))
        np.testing.assert_array_equal(members.row[np.argsort(members.row)], np.arange(len(self.rows)))
        assert members.is_home.all()
        np.testing.assert_array_equal(np.diff(members.starts), 1)

    @each("n_columns", [6, 1])
    def test_a_row_does_not_depend_on_those_beside_it(self, n_columns: int) -> None:
        """Whole blocks of rows, as bands of any size hold them, give what all rows together do, bit by bit."""
        rows = np.ascontiguousarray(self.rows[:, :n_columns])
        cells = trained(rows, 7, 60)
        whole = assign_rows(rows, cells)
        for n_blocks in (1, 2, 4):
            size = n_blocks * BLOCK_ROWS
            parts = []
            for start in range(0, len(rows), size):
                part = assign_rows(rows[start : start + size], cells)
                parts.append(replace(part, row=part.row + start))
            joined = joined_members(parts)
            for name in ("row", "group", "is_home", "starts", "cell"):
                np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))


class TestBalance:
    def sizes(self, rows: FloatRows, cells: Cells) -> NDArray[np.int64]:
        members = assign_rows(rows, cells)
        return np.bincount(members.group[members.is_home], minlength=cells.n_groups)

    @each("seed", range(3))
    def test_groups_of_a_skewed_mixture(self, seed: int) -> None:
        """Plain k-means gives far more rows to one group than to the others."""
        rows = mixture(12000, 10, SKEWED, seed)
        cells = trained(rows, 8, 60)
        sizes = self.sizes(rows, cells)
        _, plain = cells_of(rows[::2], 8, generator(seed))
        assert cells.n_groups == 8
        assert sizes.max() <= 1.75 * sizes.mean()
        assert sizes.max() / sizes.mean() < plain.max() / plain.mean()

    def test_cells_hold_about_as_many_in_every_group(self) -> None:
        rows = mixture(12000, 10, SKEWED)
        cells = trained(rows, 8, 96)
        per_cell = self.sizes(rows, cells) / np.diff(cells.cell_starts)
        assert per_cell.max() < 2 * per_cell.min()


CALIBRATED: dict[str, FloatRows] = {
    "mixture": mixture(8000, 12, (0.125,) * 8),
    "skewed mixture": mixture(8000, 12, SKEWED),
    "low rank": low_rank(8000, 40, 6),
    "digits": digits(),
}


class TestCalibration:
    @each("recall", [0.9, 0.98])
    @each("n_groups", [1, 6])
    @each("name", CALIBRATED)
    def test_true_neighbors_meet(self, name: str, n_groups: int, recall: float) -> None:
        rows = CALIBRATED[name]
        cells = trained(rows, n_groups, max(n_groups, len(rows) // 250), 10, recall)
        assert share_that_meets(rows, cells, 10) >= recall - 0.02

    def test_a_higher_recall_reaches_farther(self) -> None:
        rows = CALIBRATED["low rank"]
        counts = []
        for recall in (0.7, 0.9, 0.98):
            members = assign_rows(rows, trained(rows, 6, 32, 10, recall))
            counts.append(members.cell.size)
        assert counts[0] < counts[1] < counts[2]

    def test_the_smaller_the_sample_the_same_the_recall(self) -> None:
        """The r-th neighbor in the sample stands for a farther one of all: rows look no farther than they must."""
        rows = CALIBRATED["low rank"]
        for share in (1, 8):
            assert 0.93 <= share_that_meets(rows, trained(rows, 4, 32, 32, 0.95, share=share), 32) <= 0.98

    def test_rows_that_the_centers_come_from_meet_no_fewer(self) -> None:
        """In many dimensions they lie much nearer to their own cell's center than any other row does, unless it is
        taken without them.
        """
        rows = mixture(6000, 300, (0.25,) * 4)
        cells = trained(rows, 2, 24, 10, 0.95, share=3)
        sampled = np.arange(0, 6000, 3)
        shown = np.zeros(6000, dtype=bool)
        shown[sampled[training_rows(sampled.size, 6000, 24)]] = True
        of_shown = share_that_meets(rows, cells, 10, trained=shown, among=np.flatnonzero(shown))
        assert of_shown >= 0.93
        assert abs(of_shown - share_that_meets(rows, cells, 10, trained=shown, among=np.flatnonzero(~shown))) < 0.02
        assert of_shown > 0.05 + share_that_meets(rows, cells, 10, among=np.flatnonzero(shown))

    def test_bounds_of_what_a_row_may_cost(self) -> None:
        """Without structure no reach of bounded cost finds all: copies and cells are bounded instead. Rows that the
        centers are not the means of lie farther from them and look into a few more.
        """
        rows = normal(8000, 60)
        cells = trained(rows, 8, 80, 10, 0.98)
        members = assign_rows(rows, cells)
        assert members.row.size <= 1.2 * MAX_COPIES * len(rows)
        assert members.cell.size <= 1.5 * MAX_MEAN_PROBES * len(rows)
        assert share_that_meets(rows, cells, 10) > 0.5


LARGE, PIECE = 1024, 128


@pytest.fixture
def smaller_cells_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "LARGE_CELL", LARGE)
    monkeypatch.setattr(kernel, "PIECE_ROWS", PIECE)


@pytest.mark.usefixtures("smaller_cells_are_large")
class TestLargeCells:
    """A group whose rows were not expected: two cells of very many rows, and a small one between them."""

    def group(self, rows: FloatRows, n_large: int) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int32]]:
        """Rows by turns at home in cell 0 and looking into cell 1, the other way round, and visitors of cell 0; the
        last ones live in cell 2.
        """
        choices = [[0, 1], [1, 0], [0]] * -(-n_large // 3)
        chosen = choices[:n_large] + [[2, 0]] * (len(rows) - n_large)
        is_home = np.arange(len(rows)) % 3 != 2
        is_home[n_large:] = True
        starts = np.concatenate([[0], np.cumsum([len(cells) for cells in chosen])])
        return is_home, starts, np.concatenate([np.array(cells, np.int32) for cells in chosen])

    def split(self, rows: FloatRows, n_large: int) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int32]]:
        is_home, starts, cell = self.group(rows, n_large)
        found = split_large(lambda members: rows[members], is_home, starts, cell, 10, 0.95, 0)
        return is_home, *found

    def home_sizes(self, is_home: NDArray[np.bool_], starts: NDArray[np.int64], cell: NDArray[np.int32]) -> list[int]:
        sizes: list[int] = np.bincount(cell[starts[:-1]][is_home]).tolist()
        return sizes

    def test_small_cells_stay_as_they_are(self) -> None:
        rows = normal(1000, 3)
        is_home, starts, cell = self.group(rows, 950)
        found = split_large(lambda members: rows[members], is_home, starts, cell, 10, 0.95, 0)
        np.testing.assert_array_equal(found[0], starts)
        np.testing.assert_array_equal(found[1], cell)

    @each("identical", [False, True])
    def test_sound(self, identical: bool) -> None:
        n = 6 * LARGE
        rows = np.full((n, 3), 0.1, np.float32) if identical else normal(n, 3)
        is_home, starts, cell = self.split(rows, n - 50)
        before = self.group(rows, n - 50)
        counts = np.diff(starts)
        assert counts.min() >= 1
        assert starts[-1] == cell.size
        member = np.repeat(np.arange(n), counts)
        assert np.unique(np.stack([member, cell]), axis=1).shape[1] == cell.size, "no cell twice"
        sizes = self.home_sizes(is_home, starts, cell)
        assert sum(sizes) == is_home.sum()
        assert max(sizes) <= LARGE
        # cell 2 stays, and it is the home of the same rows
        np.testing.assert_array_equal(cell[starts[:-1]] == 2, before[2][before[1][:-1]] == 2)
        # nobody looks into a part of a cell that they did not look into: cells 0 and 1 have no part in common
        parts_of_0, parts_of_1 = (set(cell[starts[:-1]][turn : n - 50 : 3].tolist()) for turn in (0, 1))
        assert not parts_of_0 & parts_of_1
        assert not parts_of_1 & set(cell[np.isin(member, np.arange(2, n - 50, 3))].tolist())

    def test_identical_rows_are_cut_into_pieces_alike(self) -> None:
        """A last piece of three rows would find no neighbors."""
        n = 12 * PIECE + 3
        starts = np.arange(n + 1)
        rows, is_home, cell = np.zeros((n, 2), np.float32), np.ones(n, bool), np.zeros(n, np.int32)
        found = split_large(lambda members: rows[members], is_home, starts, cell, 10, 0.95, 0)
        sizes = self.home_sizes(is_home, *found)
        assert max(sizes[1:]) <= PIECE
        assert min(sizes[1:]) > PIECE // 2

    @each("seed", range(2))
    def test_small_parts_look_beyond_themselves(self, seed: int) -> None:
        """Twenty rows in each of forty directions, beside a crowd: a direction that is a part has too few."""
        n_crowd = LARGE + 300
        rows = np.vstack(
            [np.zeros((n_crowd, 40), np.float32), np.repeat(100 * np.eye(40, dtype=np.float32), 20, axis=0)]
        )
        is_home, starts, cell = np.ones(len(rows), bool), np.arange(len(rows) + 1), np.zeros(len(rows), np.int32)
        starts, cell = split_large(lambda members: rows[members], is_home, starts, cell, 10, 0.95, seed)
        sizes = np.array(self.home_sizes(is_home, starts, cell))
        assert min(sizes[cell[first:last]].sum() for first, last in itertools.pairwise(starts)) > 40

    def test_neighbors_still_meet(self) -> None:
        rows = normal(6 * LARGE, 3)
        is_home, starts, cell = self.split(rows, len(rows))
        asked = np.arange(0, len(rows), 3)[:300]
        base = prepare_rows(rows[::3], "euclidean")
        neighbors = 3 * exact_neighbors(base.part(asked // 3), asked // 3, base, 0, 10)[0]
        assert self.share_that_meets(starts, cell, asked, neighbors) > 0.95
        assert max(self.home_sizes(is_home, starts, cell)) < LARGE

    @each("n_columns", [5, 30])
    def test_a_crowd_beside_far_rows(self, n_columns: int) -> None:
        """Centers go to the far rows first: the crowd is cut again, with a reach for as many neighbors as wanted."""
        n = 2 * LARGE
        far = [100 * normal(1, n_columns, 10 + i) + normal(30, n_columns, 40 + i) for i in range(30)]
        rows = np.vstack([normal(n, n_columns), *far])
        is_home, starts, cell = np.ones(len(rows), bool), np.arange(len(rows) + 1), np.zeros(len(rows), np.int32)
        starts, cell = split_large(lambda members: rows[members], is_home, starts, cell, 64, 0.95, 0)
        asked = np.arange(0, n, 30)
        base = prepare_rows(rows, "euclidean")
        neighbors = exact_neighbors(base.part(asked), asked, base, 0, 64)[0]
        assert self.share_that_meets(starts, cell, asked, neighbors) > 0.93
        assert max(self.home_sizes(is_home, starts, cell)) < LARGE

    def share_that_meets(
        self,
        starts: NDArray[np.int64],
        cell: NDArray[np.int32],
        asked: NDArray[np.int64],
        neighbors: NDArray[np.int64],
    ) -> float:
        home = cell[starts[:-1]]
        looked = [set(cell[first:last].tolist()) for first, last in itertools.pairwise(starts)]
        met = [
            home[b] in looked[a] or home[a] in looked[b]
            for a, listed in zip(asked.tolist(), neighbors.tolist(), strict=True)
            for b in listed
        ]
        return float(np.mean(met))
