"""Context of a unit function: its run store, tiles, labels and per-sample columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from daskfs.errors import StoreError
from daskfs.kernels.labels import Labels
from daskfs.sources.sample_columns import COLUMNS, as_stored
from daskfs.storage import as_path, lies_in
from daskfs.store import layout
from daskfs.store.process_cache import Holdings
from daskfs.store.store import Store
from daskfs.store.tiles import Tiles, read_tile_info

LABEL_CHUNK_ROWS = 2**20


class Context:
    """Run store of a unit, tiles of its run, and the cache of its process."""

    def __init__(self, store: Store, tiles: Tiles | None = None) -> None:
        self.store = store
        self.holdings = Holdings()
        self._tiles = None if tiles is None else tiles.read_by(store)
        self._plan: Mapping[str, Any] | None = None

    def with_store(self, store: Store) -> Context:
        """Return a context of another store over the same tiles."""
        return Context(store, self._tiles)

    def enter(self, inputs: str | None) -> None:
        """Begin a unit of some inputs: its reads are compared with the outputs of earlier stages."""
        if self.store.ledger.enter(inputs) and self._tiles is not None:
            self._tiles.store.ledger.forget()

    def tiles_seal(self) -> str:
        """Return the digest of all seals of the tiles; empty in a tile store, whose units write the tiles."""
        if self._tiles is not None:
            return self._tiles.store.ledger.after
        url = (self.store.read_json(layout.PLAN_JSON) or {}).get("tiles_url", self.store.url)
        return "" if url == self.store.url else Store(as_path(url)).ledger.after

    @property
    def tiles(self) -> Tiles:
        """X and its statistics, opened at first use; :class:`StoreError` if the run was planned for other tiles."""
        if self._tiles is None:
            self._plan = self.store.read_json(layout.PLAN_JSON)
            self._tiles = planned_tiles(self._plan, self.store.url).read_by(self.store)
        return self._tiles

    def check_tiles(self) -> None:
        """Raise :class:`StoreError` if the opened tiles have been replaced since.

        Tiles below the run directory are covered by its lock and not checked again.
        """
        root = self.store.root
        if self._plan is not None and root is not None and not lies_in(as_path(self._plan["tiles_url"]), root):
            planned_tiles(self._plan, self.store.url)

    def labels(self) -> Labels | None:
        """Return the labels of all rows: those given for this run, else those of the tiles; None if there are none."""
        return stored_labels(self.store) or self.tiles.labels()

    def weights(self, rows: slice = slice(None)) -> np.ndarray | None:
        """Return the weights of some rows, shape (n_rows,), float64; None if every row counts for one.

        These are the weights given for this run, else those of the tiles.
        """
        return self.sample_column("weights", rows)

    def groups(self) -> np.ndarray | None:
        """Return the group number of each row, shape (n_samples,), int64; None if rows have no groups."""
        return self.sample_column("groups")

    def times(self) -> np.ndarray | None:
        """Return the time of each row, shape (n_samples,), float64; None if rows have no times.

        Numbers are as given, dates in seconds since 1970-01-01 UTC.
        """
        return self.sample_column("times")

    def batches(self) -> np.ndarray | None:
        """Return the batch number of each row, shape (n_samples,), int64; None if all rows are one batch."""
        return self.sample_column("batch")

    def sample_column(self, name: str, rows: slice = slice(None)) -> np.ndarray | None:
        """Return some rows of a column in :data:`daskfs.sources.base.SAMPLE_COLUMNS`, shape (n_rows,), or None."""
        given = stored_sample_column(self.store, name, rows)
        return given if given is not None else sample_column_of(self.tiles, name, rows)

    def counted_labels(self) -> Labels | None:
        """Return the labels of all rows; a row of weight 0 is unlabeled here."""
        labels = self.labels()
        return None if labels is None else labels.counted(self.weights())

    def classes(self) -> tuple[str, ...]:
        """Return the class names, empty if labels are not classes, without reading labels."""
        given = self.store.read_json(layout.LABELS_JSON)
        return self.tiles.info.classes if given is None or given["task"] is None else tuple(given["classes"])

    def counted_rows(self, rows: slice) -> tuple[Labels, np.ndarray | None]:
        """Return the labels and weights of some rows; a row of weight 0 is unlabeled.

        Weights have shape (n_rows,), float64, or are None if every row counts for one. The data must have labels.
        """
        given = self.store.read_json(layout.LABELS_JSON)
        if given is not None and given["task"] is not None:
            labels = Labels(given["task"], self.store.open(layout.LABELS)[rows], tuple(given["classes"]))
        else:
            info = self.tiles.info
            assert info.task is not None
            labels = Labels(info.task, self.tiles.store.open(layout.LABELS)[rows], info.classes)
        weights = self.weights(rows)
        return labels.counted(weights), weights


def put_labels(store: Store, labels: Labels | None) -> None:
    """Store labels and their summary for all processes."""
    if labels is not None:
        store.put_array(layout.LABELS, labels.values, (LABEL_CHUNK_ROWS,))
    found = {"task": labels.task if labels else None, "classes": list(labels.classes) if labels else []}
    n_labeled = int(labels.is_labeled.sum()) if labels else 0
    store.write_json(layout.LABELS_JSON, {**found, "n_labeled": n_labeled})


def stored_labels(store: Store) -> Labels | None:
    """Return the labels that :func:`put_labels` stored, None if there are none."""
    found = store.read_json(layout.LABELS_JSON)
    if found is None or found["task"] is None:
        return None
    return Labels(found["task"], store.open(layout.LABELS)[...], tuple(found["classes"]))


def put_sample_column(store: Store, name: str, values: np.ndarray | None) -> None:
    """Store a checked per-sample column, shape (n_samples,), and its summary; do nothing for None."""
    if values is not None:
        store.put_array(layout.SAMPLE_COLUMN.format(name), as_stored(values), (LABEL_CHUNK_ROWS,))
        store.write_json(layout.SAMPLE_COLUMN_JSON.format(name), COLUMNS[name].describe(values))


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


UnitFunction = Callable[[Context, Mapping[str, Any], int], dict[str, Any] | None]
"""``function(context, parameters, unit)`` writes whole chunks that the unit alone owns and returns facts for its
record.
"""


def open_tiles(url: str) -> Tiles:
    """Open a finished tile store; raise :class:`StoreError` if it is missing, unfinished or of another version."""
    store = Store(as_path(url))
    info = read_tile_info(store)
    if info is None:
        msg = f"{store.url} is not a finished tile store: it has no {layout.TILES_JSON}."
        raise StoreError(msg)
    return Tiles(store, info)


def planned_tiles(plan: Mapping[str, Any], where: str) -> Tiles:
    """Open the tiles of the run in `where`; raise :class:`StoreError` if it was planned for other tiles."""
    store, planned = Store(as_path(plan["tiles_url"])), plan.get("tiles_fingerprint")
    info = read_tile_info(store)
    if planned and (info is None or info.fingerprint != planned):
        msg = (
            f"{store.url} changed since the run in {where} began: restore it, choose another output.path, or start "
            "over with --overwrite."
        )
        raise StoreError(msg)
    return open_tiles(store.url) if info is None else Tiles(store, info)
