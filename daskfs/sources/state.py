"""Detection of sources that changed after the run was planned.

Size and modification time decide. The real path does not: login and compute nodes, automounters and renamed mounts show
one file under several. Only a link that was turned to another file of the same device counts as a change. Where a file
has only another change time or inode, as after a copy, ``chmod``, or a rewrite that restores the modification time, the
rows that were read already decide: :func:`daskfs.tiles.ingest.is_unchanged`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from daskfs.errors import InputError
from daskfs.sources import open_source
from daskfs.sources.base import SAMPLE_COLUMNS, SourceSpec
from daskfs.sources.checks import CHANGED, file_identity, file_state, is_generated, split_reference
from daskfs.sources.group_source import MemberSource
from daskfs.sources.marked import unmarked
from daskfs.sources.multifile import KIND as PARTS
from daskfs.sources.multifile import find_parts
from daskfs.sources.some_rows import SomeRows
from daskfs.sources.stored_column import Source
from daskfs.sources.tables import TableSource
from daskfs.sources.zarr_chunks import ALL_METADATA
from daskfs.storage import ObjectPath, as_path, is_url

ZARR = "zarr"
TILES = "tiles"
"""Kind of a source in a tile store, which reports its own state; its chunks have checksums."""


@dataclass(frozen=True)
class SourceState:
    """State of a source.

    Attributes
    ----------
    source
        Its identity.
    beside
        States of the separate files that its spec names.
    places
        Real path, device, inode and change time (ns) of the files and directories by their names in the spec.
    """

    source: Mapping[str, JsonValue]
    beside: Mapping[str, JsonValue]
    places: Mapping[str, tuple[str, int, int, int]]

    def contents(self) -> dict[str, Any]:
        """Return all but the places, as JSON-able values."""
        return {"source": self.source, "beside": self.beside}


def source_state(spec: SourceSpec, source: Source) -> SourceState:
    """Return the state of a source as it was opened."""
    return _state(spec, source.info.identity)


def turned_link(planned: SourceState, now: SourceState) -> str | None:
    """Return the name of a link that leads to another file of the same device in a later state; None without one."""
    for name, place in planned.places.items():
        (path, device, inode, _), (path_now, device_now, inode_now, _) = place, now.places.get(name, place)
        if path_now != path and device_now == device and inode_now != inode:
            return name
    return None


def may_be_rewritten(planned: SourceState, now: SourceState) -> bool:
    """Return whether a file may hold other values in a later state of the same sizes and modification times."""
    return any(now.places.get(name, place)[2:] != place[2:] for name, place in planned.places.items())


def changed_file(
    spec: SourceSpec, planned: SourceState, source: Source | None = None, rows: slice | None = None
) -> str | None:
    """Return the path of a file that differs from its planned state, or None.

    A Zarr source is opened unless `source` is given. With `rows`, other parts of a directory are not looked at, since
    there may be thousands. An object store that does not answer raises :class:`OSError`.
    """
    try:
        if rows is not None and (table := _table_in_parts(source)) is not None:
            if (changed := table.changed_file(rows)) is not None:
                return changed
            now = _state(spec, table.info.identity)
        else:
            now = _state(spec, _identity_now(spec, planned.source, source))
    except (OSError, InputError) as error:  # removed or changed
        if is_url(spec.source) and isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise  # the object store did not answer: the state is unknown
        return spec.source
    if now.source != planned.source:
        table = _table_in_parts(source)
        return (table and table.parts and table.parts.changed_part()) or spec.source
    changed = next((name for name, state in planned.beside.items() if now.beside.get(name) != state), None)
    return changed or turned_link(planned, now)


def unchanged_rows(spec: SourceSpec, source: Source, planned: SourceState, n_rows: int) -> int:
    """Return the number of rows, of the first `n_rows`, that are known to be those of a planned state.

    :class:`InputError` if its changes are more than rows at its end, or if that cannot be told.
    """
    identity = source.info.identity
    if identity["kind"] not in (PARTS, ZARR) or identity["kind"] != planned.source["kind"]:
        msg = (
            f"{spec.source} changed, and whether its first {n_rows:,} rows are the same can only be told of "
            "directories, patterns and Zarr: put new rows into files of their own in a directory, or start over with "
            "--overwrite."
        )
        raise InputError(msg)
    try:
        n_unchanged: int = unmarked(source).unchanged_rows(planned.source, n_rows)  # type: ignore[union-attr]
    except InputError as error:
        msg = f"{error} data.append only takes rows at the end: restore the others, or start over with --overwrite."
        raise InputError(msg) from error
    return n_unchanged


@contextmanager
def as_planned(spec: SourceSpec, source: Source, planned: SourceState, rows: slice | None = None) -> Iterator[None]:
    """Check the state of a source before and after the block; :class:`InputError` names a file that changed.

    It replaces any error that the change caused within the block. `rows` are those that the block reads; None for all.
    """
    if isinstance(source, SomeRows):  # whose rows have other numbers there
        source, rows = source.whole, None
    _check(spec, source, planned, rows)
    try:
        yield
    finally:
        _check(spec, source, planned, rows)


def _check(spec: SourceSpec, source: Source, planned: SourceState, rows: slice | None) -> None:
    if (changed := changed_file(spec, planned, source, rows)) is not None:
        state = "changed" if as_path(changed).exists() or split_reference(changed) else "went away"
        msg = (
            f"{changed} {state} after its reading was planned: restore it, and let it be until it is read; or start "
            "over with what it is now."
        )
        raise InputError(msg)


def _state(spec: SourceSpec, identity: Mapping[str, Any]) -> SourceState:
    if spec.is_part:
        return SourceState(json.loads(json.dumps(dict(identity))), {}, {})
    names = [getattr(spec, key) for key in ("labels", "feature_names", "row_names", *SAMPLE_COLUMNS)]
    files = {name: parsed[0] for name in names if name is not None and (parsed := split_reference(name)) is not None}
    places = {name: place for name in (spec.source, *files) if (place := _place(name)) is not None}
    if CHANGED in identity:  # of the arrays, which lie in many files
        places = {name: (*place[:3], max(place[3], identity[CHANGED])) for name, place in places.items()}
    states = {name: file_state(file) for name, file in files.items()}
    source_identity = {key: value for key, value in identity.items() if key != CHANGED}
    source, beside = json.loads(json.dumps([source_identity, states]))  # as plans have them
    return SourceState(source, beside, places)


def _place(reference: str) -> tuple[str, int, int, int] | None:
    """Return real path, device, inode and change time of a file or directory; None for a URL.

    They are those of its folder for a pattern. The change time of a directory of tables is the last one of its files.
    """
    file_and_member = split_reference(reference)
    path = as_path(reference) if file_and_member is None else file_and_member[0]
    if isinstance(path, ObjectPath) or is_generated(reference):
        return None
    path = next(part for part in (path, *path.parents) if part.exists())
    status = path.stat()
    changed = status.st_ctime_ns
    if path.is_dir() and not any((path / name).is_file() for name in ALL_METADATA):
        changed = max((one.st_ctime_ns for _, one in path.files_matching(["*"])), default=changed)
    return str(path.resolve()), status.st_dev, status.st_ino, changed


def _table_in_parts(source: Source | None) -> TableSource | None:
    source = unmarked(source)
    return source if isinstance(source, TableSource) and source.parts is not None else None


def _identity_now(spec: SourceSpec, planned: Mapping[str, Any], source: Source | None) -> Mapping[str, Any]:
    if planned["kind"] == TILES:
        return planned if source is None else source.identity_now()  # type: ignore[attr-defined]
    if planned["kind"] == ZARR:
        opened = unmarked(source) or open_source(spec.with_keys(missing_values=()))
        assert isinstance(opened, MemberSource)
        return opened.identity_now()
    if planned["kind"] == PARTS:
        parts = find_parts(as_path(spec.source))
        return {**planned, **({"n_parts": 0} if parts is None else parts.identity())}
    if "mtime_ns" not in planned:  # not a file
        return planned
    return {**planned, **file_identity(str(planned["kind"]), as_path(spec.source))}
