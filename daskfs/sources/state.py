"""Detection of sources that changed after the run was planned."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from daskfs.errors import InputError
from daskfs.sources.base import SAMPLE_COLUMNS, Source, SourceSpec
from daskfs.sources.checks import file_identity, split_reference
from daskfs.sources.multifile import KIND as PARTS
from daskfs.sources.multifile import find_parts
from daskfs.storage import as_path, is_url

ZARR = "zarr"
TILES = "tiles"
"""Kind of a source in a tile store, which reports its own state; its chunks have checksums."""


def source_state(spec: SourceSpec, source: Source) -> dict[str, Any]:
    """Return the JSON-able state of a source as it was opened, and of the separate files that `spec` names."""
    return _state(spec, source.info.identity)


def changed_file(spec: SourceSpec, planned: Mapping[str, Any], source: Source | None = None) -> str | None:
    """Return the path of a file that differs from `planned`, the result of :func:`source_state`, or None.

    A Zarr source is opened unless `source` is given. An object store that does not answer raises :class:`OSError`.
    """
    try:
        now = _state(spec, _identity_now(spec, planned["source"], source))
    except (OSError, InputError) as error:  # removed or changed
        if is_url(spec.source) and isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise  # the object store did not answer: the state is unknown
        return spec.source
    if now["source"] != planned["source"]:
        return _changed_part(source) or spec.source
    return next((name for name, state in planned["beside"].items() if now["beside"].get(name) != state), None)


@contextmanager
def as_planned(spec: SourceSpec, source: Source, planned: Mapping[str, Any]) -> Iterator[None]:
    """Check the state of a source before and after the block; :class:`InputError` names a file that changed.

    It replaces any error that the change caused within the block.
    """
    _check(spec, source, planned)
    try:
        yield
    finally:
        _check(spec, source, planned)


def _check(spec: SourceSpec, source: Source, planned: Mapping[str, Any]) -> None:
    changed = changed_file(spec, planned, source)
    if changed is not None:
        state = "changed" if as_path(changed).exists() or split_reference(changed) else "went away"
        msg = (
            f"{changed} {state} after its reading was planned: restore it, and let it be until it is read; or start "
            "over with what it is now."
        )
        raise InputError(msg)


def _state(spec: SourceSpec, identity: Mapping[str, Any]) -> dict[str, Any]:
    names = [getattr(spec, key) for key in ("labels", "feature_names", "row_names", *SAMPLE_COLUMNS)]
    found = {name: _file_state(name) for name in names if name is not None}
    state = {"source": dict(identity), "beside": {name: state for name, state in found.items() if state is not None}}
    return dict(json.loads(json.dumps(state)))


def _file_state(reference: str) -> list[int] | None:
    """Return size and modification time of a separate file, None for a column or member of the source."""
    found = split_reference(reference)
    if found is None:
        return None
    status = found[0].stat()
    return [status.st_size, status.st_mtime_ns]


def _changed_part(source: Source | None) -> str | None:
    """Return the first part of an opened source that was changed, added or removed; None if there is none."""
    from daskfs.sources.tables import TableSource

    parts = source.parts if isinstance(source, TableSource) else None
    return None if parts is None else parts.changed_part()


def _identity_now(spec: SourceSpec, planned: Mapping[str, Any], source: Source | None) -> Mapping[str, Any]:
    if planned["kind"] == TILES:
        return planned if source is None else source.identity_now()  # type: ignore[attr-defined]
    if planned["kind"] == ZARR:
        from daskfs.sources import open_source
        from daskfs.sources.group_source import MemberSource

        opened = source if source is not None else open_source(spec)
        assert isinstance(opened, MemberSource)
        return opened.identity_now()
    if planned["kind"] == PARTS:
        parts = find_parts(as_path(spec.source))
        return {**planned, **({"n_parts": 0} if parts is None else parts.identity())}
    if "mtime_ns" not in planned:  # not a file
        return planned
    return {**planned, **file_identity(str(planned["kind"]), as_path(spec.source))}
