"""What a unit function gets to work with."""

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
    """The run store of a unit, the tiles its run reads, and what its process keeps from unit to unit."""

    def __init__(self, store: Store, tiles: Tiles | None = None) -> None:
        self.store = store
        self.holdings = Holdings()
        self._tiles = None if tiles is None else tiles.read_by(store)
        self._plan: Mapping[str, Any] | None = None

    def with_store(self, store: Store) -> Context:
        """Return a context of another store over the same tiles."""
        return Context(store, self._tiles)

    def enter(self, inputs: str | None) -> None:
        """Begin a unit of some inputs: what it reads is compared with what the stages before it have written."""
        if self.store.ledger.enter(inputs) and self._tiles is not None:
            self._tiles.store.ledger.forget()

    def tiles_seal(self) -> str:
        """Return the digest of everything that was made of the tiles; empty in a tile store, where units make them."""
        if self._tiles is not None:
            return self._tiles.store.ledger.after
        url = (self.store.read_json(layout.PLAN_JSON) or {}).get("tiles_url", self.store.url)
        return "" if url == self.store.url else Store(as_path(url)).ledger.after

    @property
    def tiles(self) -> Tiles:
        """X and what is known of it, opened at the first use; :class:`StoreError` where the run was planned for other
        tiles.
        """
        if self._tiles is None:
            self._plan = self.store.read_json(layout.PLAN_JSON)
            self._tiles = planned_tiles(self._plan, self.store.url).read_by(self.store)
        return self._tiles

    def check_tiles(self) -> None:
        """Raise :class:`StoreError` where the tiles that were opened here have been replaced since. Tiles below the run
        are locked with it, and not looked at again.
        """
        root = self.store.root
        if self._plan is not None and root is not None and not lies_in(as_path(self._plan["tiles_url"]), root):
            planned_tiles(self._plan, self.store.url)

    def labels(self) -> Labels | None:
        """Return the labels of all rows: those given for this run, else those of the tiles; None when there are
        none.
        """
        return stored_labels(self.store) or self.tiles.labels()

    def weights(self, rows: slice = slice(None)) -> np.ndarray | None:
        """Return how many rows each of some rows counts for, shape (n_rows,), float64: as given for this run, else as
        of the tiles; None where every row counts for one.
        """
        return self.beside("weights", rows)

    def groups(self) -> np.ndarray | None:
        """Return the number of each row's group, shape (n_samples,), int64; None where rows have no groups."""
        return self.beside("groups")

    def times(self) -> np.ndarray | None:
        """Return the time of each row, shape (n_samples,), float64: numbers as given, dates in seconds since 1970-01-01
        UTC; None where rows have no times.
        """
        return self.beside("times")

    def batches(self) -> np.ndarray | None:
        """Return the number of each row's batch, shape (n_samples,), int64; None where all rows are of one."""
        return self.beside("batch")

    def beside(self, name: str, rows: slice = slice(None)) -> np.ndarray | None:
        """Return some rows of one of :data:`daskfs.sources.base.BESIDE`, None where there is none."""
        given = stored_beside(self.store, name, rows)
        return given if given is not None else beside_of(self.tiles, name, rows)

    def counted_labels(self) -> Labels | None:
        """Return the labels of the rows that count: a row of weight 0 is unlabelled here."""
        labels = self.labels()
        return None if labels is None else labels.counted(self.weights())

    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes, none where labels are no classes, without reading labels."""
        given = self.store.read_json(layout.LABELS_JSON)
        return self.tiles.info.classes if given is None or given["task"] is None else tuple(given["classes"])

    def counted_rows(self, rows: slice) -> tuple[Labels, np.ndarray | None]:
        """Return the labels of some rows, where one of weight 0 is unlabelled, and their weights, None where every row
        counts for one; of data that have labels.
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
    """Store labels, and what they are, where every process finds them."""
    if labels is not None:
        store.put_array(layout.LABELS, labels.values, (LABEL_CHUNK_ROWS,))
    found = {"task": labels.task if labels else None, "classes": list(labels.classes) if labels else []}
    n_labelled = int(labels.is_labelled.sum()) if labels else 0
    store.write_json(layout.LABELS_JSON, {**found, "n_labelled": n_labelled})


def stored_labels(store: Store) -> Labels | None:
    """Return the labels that :func:`put_labels` stored, None when there are none."""
    found = store.read_json(layout.LABELS_JSON)
    if found is None or found["task"] is None:
        return None
    return Labels(found["task"], store.open(layout.LABELS)[...], tuple(found["classes"]))


def put_beside(store: Store, name: str, values: np.ndarray | None) -> None:
    """Store a column beside X, checked, and what a summary says of it; nothing for None."""
    if values is not None:
        store.put_array(layout.BESIDE.format(name), as_stored(values), (LABEL_CHUNK_ROWS,))
        store.write_json(layout.BESIDE_JSON.format(name), COLUMNS[name].describe(values))


def stored_beside(store: Store, name: str, rows: slice = slice(None)) -> np.ndarray | None:
    """Return some rows of a column that :func:`put_beside` stored, None when it is not there."""
    if store.read_json(layout.BESIDE_JSON.format(name)) is None:
        return None
    return store.open(layout.BESIDE.format(name))[rows]


def beside_of(tiles: Tiles, name: str, rows: slice = slice(None)) -> np.ndarray | None:
    """Return some rows of a column beside X of tiles, None where they have none."""
    if tiles.info.facts.get(name) is not None:
        tiles.store.need_json(layout.BESIDE_JSON.format(name))
    return stored_beside(tiles.store, name, rows)


UnitFunction = Callable[[Context, Mapping[str, Any], int], dict[str, Any] | None]
"""``function(context, parameters, unit)`` writes whole chunks that the unit alone owns and returns facts for its
record.
"""


def open_tiles(url: str) -> Tiles:
    """Open a finished tile store; :class:`StoreError` when it is not there, unfinished or of another version."""
    store = Store(as_path(url))
    info = read_tile_info(store)
    if info is None:
        msg = f"{store.url} is not a finished tile store: it has no {layout.TILES_JSON}."
        raise StoreError(msg)
    return Tiles(store, info)


def planned_tiles(plan: Mapping[str, Any], where: str) -> Tiles:
    """Open the tiles of the run in `where`; :class:`StoreError` where they are not those that it was planned for."""
    store, planned = Store(as_path(plan["tiles_url"])), plan.get("tiles_fingerprint")
    info = read_tile_info(store)
    if planned and (info is None or info.fingerprint != planned):
        msg = (
            f"{store.url} changed since the run in {where} began: restore it, choose another output.path, or start "
            "over with --overwrite."
        )
        raise StoreError(msg)
    return open_tiles(store.url) if info is None else Tiles(store, info)
