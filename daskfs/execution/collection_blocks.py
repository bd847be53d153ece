"""Blocks of a dask collection for the units that ingest it, each computed once, where the scheduler can keep it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from daskfs.errors import DaskfsError, InputError
from daskfs.sources.collection import Layout, collection_of
from daskfs.sources.some_rows import SomeRows
from daskfs.stages.stage import Stage
from daskfs.store.subset import open_part_or_source
from daskfs.tiles.ingest import INGEST_STAGE, LABELS_STAGE

if TYPE_CHECKING:
    from distributed import Client

SEVERAL = -1
"""Stands for more than one unit."""
Blocks = tuple[Any, list[list[Any]]]
"""Layout of the collection, and rows of blocks, each behind its number: values, or futures of these."""
NO_COLLECTION_BLOCKS: Blocks = (None, [])

TASK_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, RuntimeError)
"""Errors of the code of a user's tasks."""


class BlockFeed:
    """Blocks for the units of a stage, computed as the units are submitted.

    The tasks that several units need at first hand, such as the means of all columns, or a block that is cut between
    two units, are held until the last of these units is done. What lies below them is not: of ``X - X.mean(0)`` dask
    computes X for the means, and the blocks of X again for the units of later waves.

    Parameters
    ----------
    stage
        The stage, whose source is a collection.
    units
        The units that will run.
    client
        Client whose workers compute the blocks; None for threads.
    """

    def __init__(self, stage: Stage, units: Iterable[int], client: Client | None) -> None:
        parameters = stage.parameters_of(INGEST_STAGE, LABELS_STAGE)
        assert parameters is not None
        self._collection = collection = collection_of(parameters.source.source)
        self._client, self._layout = client, cast("Any", collection.layout)
        if client is not None:
            self._layout = client.submit(_same, collection.layout, pure=False)
        self._numbers: dict[int, Collection[int]] = {unit: () for unit in units}
        if stage.is_of(INGEST_STAGE):
            shape, source = parameters.shape, open_part_or_source(parameters.source)
            rows_of = source.rows_of if isinstance(source, SomeRows) else lambda band: [band]
            for unit in self._numbers:
                rows = rows_of(shape.band(unit))
                self._numbers[unit] = dict.fromkeys(n for part in rows for n in collection.layout.blocks_of(part))
        self._waiting, self._held = self._shared_tasks(), collection.computed
        self._ends: dict[int, list[Any]] = {}
        for key, waiting_units in self._waiting.items():
            for unit in waiting_units:
                self._ends.setdefault(unit, []).append(key)

    def _keys(self, unit: int) -> list[Any]:
        return [key for number in self._numbers[unit] for key in self._collection.keys[number]]

    def _shared_tasks(self) -> dict[Any, set[int]]:
        """Return by key the tasks that several units need at first hand, with these units."""
        needs, owner = self._collection.needs, dict[Any, int]()
        direct: dict[Any, set[int]] = {key: set() for key in self._collection.computed}
        for unit in self._numbers:
            for key in self._keys(unit):
                owner[key] = unit if owner.get(key, unit) == unit else SEVERAL
                direct.setdefault(key, set()).add(unit)
        for key in self._collection.needed(list(owner)):
            for below in needs[key]:
                owner[below] = owner[key] if owner.get(below, owner[key]) == owner[key] else SEVERAL
                if owner[key] != SEVERAL:
                    direct.setdefault(below, set()).add(owner[key])
        computed = self._collection.computed
        return {key: units for key, units in direct.items() if len(units) > 1 or (key in computed and units)}

    def take(self, units: Sequence[int]) -> list[Blocks]:
        """Compute the blocks of some units; return them for each unit."""
        keys = [key for unit in units for key in self._keys(unit)]
        shared = [key for key in self._collection.needed(keys, self._held) if key in self._waiting]
        with telling_of_blocks():
            values = self._collection.started([*keys, *shared], self._held, self._client)
        self._held.update((key, values[key]) for key in shared)
        rows = self._collection.keys
        return [(self._layout, [[n, *(values[key] for key in rows[n])] for n in self._numbers[unit]]) for unit in units]

    def done(self, unit: int) -> None:
        """Let go of what only units need that are done."""
        for key in self._ends.pop(unit, ()):
            self._waiting[key].discard(unit)
            if not self._waiting[key]:
                del self._waiting[key]
                self._held.pop(key, None)


def feed_of(stage: Stage, units: Iterable[int], client: Client | None) -> BlockFeed | None:
    """Return the feed of a stage whose units read a dask collection, None for other stages."""
    parameters = stage.parameters_of(INGEST_STAGE, LABELS_STAGE)
    return None if parameters is None or not parameters.is_collection else BlockFeed(stage, units, client)


@contextmanager
def telling_of_blocks() -> Iterator[None]:
    """Say of an error of the user's tasks that it is theirs: :class:`InputError`."""
    try:
        yield
    except DaskfsError:
        raise
    except TASK_ERRORS as error:
        msg = f"a block of X could not be computed: {type(error).__name__}: {error}"
        raise InputError(msg) from error


def _same(layout: Layout) -> Layout:
    return layout
