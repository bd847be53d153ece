"""What a unit function gets to work with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from daskfs.errors import StoreError
from daskfs.store import layout
from daskfs.store.store import Store
from daskfs.store.tiles import Tiles, read_tile_info


class Context:
    """The run store of a unit, and the tiles its run reads."""

    def __init__(self, store: Store, tiles: Tiles | None = None) -> None:
        self.store = store
        self._tiles = tiles

    @property
    def tiles(self) -> Tiles:
        """X and what is known of it, opened at the first use."""
        if self._tiles is None:
            plan = self.store.read_json(layout.PLAN_JSON)
            self._tiles = open_tiles(plan["tiles_url"])
        return self._tiles


UnitFunction = Callable[[Context, Mapping[str, Any], int], dict[str, Any] | None]
"""``function(context, parameters, unit)`` writes whole chunks that the unit alone owns and returns facts for its
record.
"""


def open_tiles(url: str) -> Tiles:
    """Open a finished tile store; :class:`StoreError` when it is not there, unfinished or of another version."""
    store = Store(Path(url))
    info = read_tile_info(store)
    if info is None:
        msg = f"{url} is not a finished tile store: it has no {layout.TILES_JSON}."
        raise StoreError(msg)
    return Tiles(store, info)
