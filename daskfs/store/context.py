"""Context of a unit function: its run store, tiles, labels and per-sample columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from daskfs.errors import StoreError
from daskfs.kernels.labels import LabelCounter, LabelCounts, Labels, Task
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.sources.columns import in_blocks
from daskfs.sources.sample_columns import SAMPLE_COLUMN_KINDS
from daskfs.sources.stored_column import Source, StoredColumn
from daskfs.storage import as_path
from daskfs.store import layout
from daskfs.store.addresses import url_of
from daskfs.store.epoch import ReadEpoch
from daskfs.store.process_cache import Holdings
from daskfs.store.shape import rows_within
from daskfs.store.store import Store
from daskfs.store.tiles import Tiles, read_tile_info

LABEL_CHUNK_ROWS = 2**20
LABEL_DTYPES = {"classification": np.int32, "regression": np.float64}


class Context:
    """Run store of a unit, tiles of its run, and the cache of its process."""

    def __init__(self, store: Store, tiles: Tiles | None = None) -> None:
        self.store = store
        self.holdings = Holdings()
        self.sources: dict[str, Source] = {}
        """Sources of stages, by fingerprint; another run opens them again, since their data may have changed."""
        self._tiles = None if tiles is None else tiles.read_by(store)
        self._tiles_url = ""

    def with_store(self, store: Store) -> Context:
        """Return a context of another store over the same tiles."""
        return Context(store, self._tiles)

    def enter(self, inputs: str | None) -> None:
        """Begin a unit of some inputs: its reads are compared with the outputs of earlier stages."""
        if self.store.seals.enter(inputs):
            self.store.record_files.refresh()
            if self._tiles is not None:
                self._tiles.store.forget()

    def tiles_seal(self) -> str:
        """Return the digest of all seals of the tiles; empty in a tile store, whose units write the tiles."""
        return "" if self.tiles_store is self.store else self.tiles_store.seals.after

    @cached_property
    def tiles_store(self) -> Store:
        """Store of the tiles that the units read; their own for units that write them."""
        if self._tiles is not None:
            return self._tiles.store
        plan = self.store.read_json(layout.PLAN_JSON)
        url = self.store.url if plan is None else url_of(plan["tiles_url"], self.store.url)
        return self.store if url == self.store.url else Store(url)

    @property
    def tiles(self) -> Tiles:
        """X and its statistics, opened at first use; :class:`StoreError` if the run was planned for other tiles."""
        if self._tiles is None:
            self._tiles = self._planned_tiles().read_by(self.store)
        return self._tiles

    def check_tiles(self) -> None:
        """Raise :class:`StoreError` if the opened tiles have been replaced since.

        Tiles below the run directory are covered by its lock and not checked again.
        """
        if self._tiles_url and not as_path(self._tiles_url).lies_in(self.store.path("")):
            self._planned_tiles()

    def _planned_tiles(self) -> Tiles:
        plan = self.store.need_json(layout.PLAN_JSON)
        self._tiles_url = url_of(plan["tiles_url"], self.store.url)
        return planned_tiles(self._tiles_url, plan["tiles_fingerprint"], self.store.url)

    def labels(self, rows: slice = slice(None)) -> Labels | None:
        """Return the labels of some rows: those given for this run, else those of the tiles; None if there are none."""
        return stored_labels(self.store, rows) or self.tiles.labels(rows)

    def label_blocks(self) -> Iterator[Labels]:
        """Yield the labels of all rows, a chunk at a time. The data must have labels."""
        for rows in row_blocks(self.tiles.shape.n_samples, LABEL_CHUNK_ROWS):
            labels = self.labels(rows)
            assert labels is not None
            yield labels

    def labels_of(self, rows: np.ndarray) -> Labels | None:
        """Return the labels of rows, shape (n_rows,), ascending, with all class names; None if there are none."""
        empty = self.labels(slice(0, 0))
        return empty and replace(empty, values=self._read_rows(lambda part: self.labels(part).values, rows))  # type: ignore[union-attr]

    def sample_column_of(self, name: str, rows: np.ndarray) -> np.ndarray | None:
        """Return a per-sample column of rows, shape (n_rows,), ascending; None if there is none."""
        if self.sample_column(name, slice(0, 0)) is None:
            return None
        return self._read_rows(lambda part: self.sample_column(name, part), rows)

    def _read_rows(self, read: Callable[[slice], Any], rows: np.ndarray) -> np.ndarray:
        """Return the values of some rows, read a chunk at a time."""
        parts = [read(slice(0, 0))]
        for part in row_blocks(self.tiles.shape.n_samples, LABEL_CHUNK_ROWS):
            part_rows = rows_within(rows, part)
            if part_rows.size:
                parts.append(read(part)[part_rows - part.start])
        return np.concatenate(parts)

    def label_counts(self) -> LabelCounts | None:
        """Return facts about the labels and weights of all rows; None if there are no labels."""
        names = (layout.LABELS_JSON, layout.SAMPLE_COLUMN_JSON.format("weights"))
        if all(self.store.read_json(name) is None for name in names):
            return label_counts_of(self.tiles)[0]
        return _count_labels(self.tiles.shape.n_samples, self.labels, self.weights)[0]

    def weights(self, rows: slice = slice(None)) -> np.ndarray | None:
        """Return the weights of some rows, shape (n_rows,), float64; None if every row counts for one.

        These are the weights given for this run, else those of the tiles.
        """
        return self.sample_column("weights", rows)

    def sample_column(self, name: str, rows: slice = slice(None)) -> np.ndarray | None:
        """Return some rows of a column in :data:`daskfs.sources.base.SAMPLE_COLUMNS`, shape (n_rows,), or None."""
        column = stored_sample_column(self.store, name, rows)
        return column if column is not None else sample_column_of(self.tiles, name, rows)

    def counted_labels(self) -> Labels | None:
        """Return the labels of all rows; a row of weight 0 is unlabeled here."""
        labels = self.labels()
        return None if labels is None else labels.counted(self.weights())

    def labeled_rows(self) -> np.ndarray:
        """Return a mask of the labeled rows, shape (n_samples,); a row of weight 0 is unlabeled here."""
        marks = np.empty(self.tiles.shape.n_samples, bool)
        for rows in row_blocks(marks.size, LABEL_CHUNK_ROWS):
            marks[rows] = self.counted_rows(rows)[0].is_labeled
        return marks

    def classes(self) -> tuple[str, ...]:
        """Return the class names, empty if labels are not classes, without reading labels."""
        facts = self.store.read_json(layout.LABELS_JSON)
        return self.tiles.info.classes if facts is None or facts["task"] is None else tuple(facts["classes"])

    def counted_rows(self, rows: slice) -> tuple[Labels, np.ndarray | None]:
        """Return the labels and weights of some rows; a row of weight 0 is unlabeled.

        Weights have shape (n_rows,), float64, or are None if every row counts for one. The data must have labels.
        """
        labels, weights = self.labels(rows), self.weights(rows)
        assert labels is not None
        return labels.counted(weights), weights


def put_labels(store: Store, labels: Labels | None) -> None:
    """Store labels and their summary for all processes."""
    if labels is None:
        store.write_json(layout.LABELS_JSON, {"task": None, "classes": [], "n_labeled": 0})
    else:
        put_label_parts(store, labels.task, labels.classes, [labels.values], labels.values.size)


def put_label_parts(
    store: Store, task: Task, classes: Sequence[str], parts: Iterable[np.ndarray], n_samples: int
) -> None:
    """Store labels, of which `parts` yields the values of some rows at a time, and their summary."""
    n_labeled = 0
    for block in _put_blocks(store, layout.LABELS, parts, n_samples, LABEL_DTYPES[task]):
        n_labeled += int(np.count_nonzero(Labels(task, block).is_labeled))
    store.write_json(layout.LABELS_JSON, {"task": task, "classes": list(classes), "n_labeled": n_labeled})


def _put_blocks(store: Store, name: str, parts: Iterable[np.ndarray], n_rows: int, dtype: Any) -> Iterator[np.ndarray]:
    """Store an array of shape (n_rows,) that one unit owns, from parts in order; yield it chunk by chunk."""
    store.create(name, (n_rows,), dtype, (LABEL_CHUNK_ROWS,))
    array, start = store.open(name), 0
    for block in in_blocks(parts, LABEL_CHUNK_ROWS):
        array[start : start + block.size] = block
        start += block.size
        yield block


def put_label_counts(store: Store, n_samples: int) -> None:
    """Store the counts of labels that were put, by weights and batches that were put; without labels there are none."""
    described = store.read_json(layout.SAMPLE_COLUMN_JSON.format("batch"))
    counts = _count_labels(
        n_samples,
        partial(stored_labels, store),
        partial(stored_sample_column, store, "weights"),
        partial(stored_sample_column, store, "batch"),
        0 if described is None else len(described["names"]),
    )
    store.write_json(layout.LABEL_COUNTS, {"counts": [one and asdict(one) for one in counts]})


def label_counts_of(tiles: Tiles) -> list[LabelCounts | None]:
    """Return the counts of the labels of all rows of tiles, then those of each batch; [None] without labels."""
    stored = tiles.store.read_json(layout.LABEL_COUNTS)
    if stored is not None:
        return [one and LabelCounts.from_json(one) for one in stored["counts"]]
    # tiles in memory
    weights, batch = (partial(sample_column_of, tiles, name) for name in ("weights", "batch"))
    n_batches = len((tiles.info.facts.get("batch") or {"names": ()})["names"])
    return _count_labels(tiles.shape.n_samples, tiles.labels, weights, batch, n_batches)


def _count_labels(
    n_samples: int,
    read_labels: Callable[[slice], Labels | None],
    read_weights: Callable[[slice], np.ndarray | None],
    read_batch: Callable[[slice], np.ndarray | None] = lambda _: None,
    n_batches: int = 0,
) -> list[LabelCounts | None]:
    """Count the labels of all rows and of each batch, a chunk at a time."""
    empty = read_labels(slice(0, 0))
    if empty is None:
        return [None]
    counters = [LabelCounter(empty.task, empty.classes) for _ in range(1 + n_batches)]
    for rows in row_blocks(n_samples, LABEL_CHUNK_ROWS):
        labels, weights, batch = read_labels(rows), read_weights(rows), read_batch(rows)
        assert labels is not None
        counters[0].add(labels.values, weights)
        if batch is not None:
            order = np.argsort(batch, kind="stable")
            ends = np.searchsorted(batch[order], np.arange(n_batches + 1))
            for counter, start, stop in zip(counters[1:], ends[:-1], ends[1:], strict=True):
                batch_rows = order[start:stop]
                counter.add(labels.values[batch_rows], None if weights is None else weights[batch_rows])
    return [counter.counts() for counter in counters]


def stored_labels(store: Store, rows: slice = slice(None)) -> Labels | None:
    """Return some of the labels that :func:`put_labels` stored, None if there are none."""
    facts = store.read_json(layout.LABELS_JSON)
    if facts is None or facts["task"] is None:
        return None
    return Labels(facts["task"], store.open(layout.LABELS)[rows], tuple(facts["classes"]))


def put_sample_column(store: Store, column: StoredColumn | None) -> None:
    """Check and store a per-sample column and its summary; do nothing for None."""
    if column is not None:
        checked = SAMPLE_COLUMN_KINDS[column.what](column.parts, column.origin)
        name = layout.SAMPLE_COLUMN.format(column.what)
        for _ in _put_blocks(store, name, checked.stored(), column.n_samples, checked.dtype):
            pass
        store.write_json(layout.SAMPLE_COLUMN_JSON.format(column.what), checked.described())


def put_weights(store: Store, weights: np.ndarray | None) -> None:
    """Store checked weights, shape (n_samples,), float64, of which all may be 0; do nothing for None."""
    if weights is not None:
        store.put_array(layout.SAMPLE_COLUMN.format("weights"), weights, (LABEL_CHUNK_ROWS,))
        store.write_json(layout.SAMPLE_COLUMN_JSON.format("weights"), {})


def stored_sample_column(store: Store, name: str, rows: slice = slice(None)) -> np.ndarray | None:
    """Return some rows of a column that :func:`put_sample_column` stored, shape (n_rows,); None if there is none."""
    if store.read_json(layout.SAMPLE_COLUMN_JSON.format(name)) is None:
        return None
    return store.open(layout.SAMPLE_COLUMN.format(name))[rows]


def sample_column_of(tiles: Tiles, name: str, rows: slice = slice(None)) -> np.ndarray | None:
    """Return some rows of a per-sample column of tiles, shape (n_rows,); None if there is none."""
    if tiles.info.facts.get(name) is not None:
        tiles.store.need_json(layout.SAMPLE_COLUMN_JSON.format(name))
    return stored_sample_column(tiles.store, name, rows)


def open_tiles(url: str, *, is_own: bool = False) -> Tiles:
    """Open a finished tile store; raise :class:`StoreError` if it is missing, unfinished or of another version.

    Damaged files are deleted, to be made again, in the tiles of an own run alone.
    """
    store = Store(as_path(url))
    if not is_own:
        store.epoch = ReadEpoch(store.root, "'daskfs verify --remove', then 'daskfs convert' make it again.")
    info = read_tile_info(store, is_expected=True)
    if info is None:
        msg = f"{store.url} is not a finished tile store: it has no {layout.TILES_JSON}."
        raise StoreError(msg)
    return Tiles(store, info)


def planned_tiles(url: str, fingerprint: str, where: str) -> Tiles:
    """Open the tiles of the run in `where`; raise :class:`StoreError` if it was planned for other ones."""
    info = read_tile_info(Store(url), is_expected=True)
    if fingerprint and (info is None or info.fingerprint != fingerprint):
        msg = (
            f"{url} changed since the run in {where} began: restore it, choose another output.path, or start over with "
            "--overwrite."
        )
        raise StoreError(msg)
    return open_tiles(url, is_own=as_path(url).lies_in(as_path(where)))
