"""Planning of tiles: the source of a data block, and the stages that fill its tile store.

Most formats give shape, dtype, names and identity in their metadata; a text table is scanned to its end, and a bundled
data set is loaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Literal

import numpy as np

from daskfs.data_block import DataBlock, SourceKeys
from daskfs.errors import JobError, StoreError
from daskfs.kernels.labels import Task
from daskfs.runs.manifest import tiles_state
from daskfs.sources import Source, SourceSpec
from daskfs.sources.base import SAMPLE_COLUMNS
from daskfs.sources.checks import is_generated, unreadable
from daskfs.sources.state import may_be_rewritten, source_state, unchanged_rows
from daskfs.sources.zarr_array import ZarrMember
from daskfs.stages.cost import MIN_UNITS, Workers
from daskfs.stages.stage import Stage, digest
from daskfs.storage import as_path, is_url
from daskfs.store import layout
from daskfs.store.addresses import address_of
from daskfs.store.context import Context, open_tiles
from daskfs.store.shape import Shape
from daskfs.store.store import Store
from daskfs.store.subset import columns_to_text, open_part_or_source, part_spec
from daskfs.store.tiles import TileInfo, read_tile_info
from daskfs.tiles.ingest import INGEST_STAGE, KeptBands, TileParameters, is_unchanged
from daskfs.tiles.plan import TileBase, TilePlan, parameters_of, plan_ingest
from daskfs.tiles.shapes import plan_shape, serves_in_place
from daskfs.version import __version__

WORTH_TELLING = 1.5
"""Minimum number of reads of a file for which the plan gets a note."""
LABEL_SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".txt", ".gz")


def source_spec(data: DataBlock) -> SourceSpec:
    """Return the spec to open the source of a data block, with absolute paths for the workers; URLs are kept."""
    source = data.source
    if not is_generated(source) and "://" not in source:
        source = str(as_path(source))
    keys = data.model_dump(include={*SourceKeys.model_fields})
    keys |= {key: _absolute(keys[key]) for key in DataBlock.path_or_name_keys}
    return SourceSpec(**keys | {"source": source, "unlabeled": str(data.unlabeled)})


def _absolute(reference: str | None) -> str | None:
    """Make a reference to a file (``file`` or ``file:member``) absolute; keep names of columns and members."""
    if reference is None or is_url(reference):
        return reference
    path, colon, member = reference.rpartition(":")
    for file, rest in ((reference, ""), (path, colon + member)):
        # only known suffixes: a column may have the name of a file in the working directory
        if file and PurePath(file).suffix in LABEL_SUFFIXES and as_path(file).is_file():
            return str(as_path(file)) + rest
    return reference


def is_tile_store(spec: SourceSpec) -> bool:
    """Return whether a source is a tile store; :class:`DaskfsError` if it is not finished, or cannot be read."""
    if is_generated(spec.source):
        return False
    path = as_path(spec.source)
    try:
        if (path / layout.TILES_JSON).is_file():
            return True
        is_begun = (path / layout.EPOCH).is_file() and not (path / layout.RUN_JSON).is_file()
    except OSError as error:
        raise unreadable(path, error) from error
    if is_begun:
        msg = f"the tile store {path} is not finished ({tiles_state(Store(path))}): finish it first."
        raise StoreError(msg)
    return False


def plan_tiles(data: DataBlock, tiles_url: str, workers: Workers, base: TileBase | None = None) -> TilePlan:
    """Plan the tiles of a source: use a tile store, read X in place, or convert it into `tiles_url`.

    `workers` and `base` are those of :func:`plan_source`. Raise :class:`JobError` for keys that a tile store does not
    take, or `only_batch` for another source.
    """
    spec = source_spec(data)
    if is_tile_store(spec):
        tiles = _finished_tiles(data, spec)
        if data.only_batch is None and (data.max_samples or tiles.shape.n_samples) >= tiles.shape.n_samples:
            return tiles
        spec = _part_of_tiles(data, spec.source, tiles_url).with_keys(max_samples=data.max_samples)
        return plan_source(spec, tiles.task or "auto", tiles_url, workers)
    if data.only_batch is not None:
        msg = f"data.only_batch is for tiles, and {spec.source} is none: convert it with --batch first."
        raise JobError(msg)
    return plan_source(spec, data.task, tiles_url, workers, base)


def _part_of_tiles(data: DataBlock, url: str, tiles_url: str) -> SourceSpec:
    """Return the spec of a batch of a tile store, or of all its columns, for the tiles at `tiles_url`."""
    tiles, address = open_tiles(url), address_of(url, tiles_url)
    if data.only_batch is not None:
        return part_spec(tiles, address, only_batch=data.only_batch)
    n_features = tiles.shape.n_features
    return part_spec(tiles, address, columns=columns_to_text(np.arange(n_features), n_features))


def plan_source(
    spec: SourceSpec, task: Task | Literal["auto"], tiles_url: str, workers: Workers, base: TileBase | None = None
) -> TilePlan:
    """Plan the tiles of a source that is not a tile store, or that is a part of one.

    The task is that of the labels, or "auto"; the workers will fill the tile store and read it. `base` is what
    :func:`daskfs.tiles.plan.base_of` says of the tiles there, whose bands are kept where only rows at the end of the
    same source were added; :class:`InputError` if others changed. None to keep nothing.
    """
    source = open_part_or_source(spec, where=tiles_url)
    info = source.info
    nnz, limit = info.nnz if info.is_sparse else None, workers.unit_limit
    # units of a source that is not in the order of its rows each read all of it: many workers make it no faster
    n_units = workers.n_units if getattr(source, "times_read", None) is None else MIN_UNITS
    shape = plan_shape(info.n_samples, info.n_features, info.dtype.name, nnz, limit, info.row_multiple, n_units)
    array = _array_in_place(source, limit)
    x_path = None if array is None else str(array.path)
    if array is not None:
        rows, columns = min(array.chunks[0], info.n_samples), min(array.chunks[1], info.n_features)
        shape = dataclasses.replace(shape, tile_rows=rows, tile_columns=columns)
    state = source_state(spec, source)
    fingerprint = digest(state.contents(), spec.model_dump(), task, layout.FORMAT_VERSION, __version__)
    parameters = TileParameters(
        source=spec,
        state=state,
        fingerprint=fingerprint,
        part_sizes=getattr(source, "part_sizes", None),
        shape=shape,
        task=task,
        write_x=x_path is None,
        x_path=x_path,
        named=info.feature_names is not None,
        row_names=info.has_row_names,
    )
    flags: dict[str, Any] = {}
    if base is not None and _is_of_source(base.parameters, parameters):
        before = base.parameters.shape
        n_unchanged = unchanged_rows(spec, source, base.parameters.state, before.n_samples)
        kept_bands = _kept_bands(base.parameters, parameters, n_unchanged)
        flags = {"base": base, "n_kept": kept_bands}
        if kept_bands:
            shape = dataclasses.replace(shape, tile_rows=before.tile_rows, tile_columns=before.tile_columns)
            parameters = dataclasses.replace(parameters, shape=shape, kept=KeptBands(kept_bands, base.fingerprints))
    reading = getattr(source, "reading_bytes", 0)
    stages = plan_ingest(parameters, min(info.row_multiple, info.n_samples), reading)
    flags |= {f"has_{name}": name in info.sample_columns for name in SAMPLE_COLUMNS}
    flags |= {"note": _reading_note(source, spec.source, shape), "missing": spec.missing}
    return TilePlan(tiles_url, shape, fingerprint, info.has_labels, None, x_path is None, stages, **flags)


def has_read(begun: Sequence[Stage], now: Sequence[Stage], tiles_url: str) -> bool:
    """Return whether the bands that stages of tiles have ingested are those of the source as it is now."""
    parameters = parameters_of(begun)
    if not may_be_rewritten(parameters.state, parameters_of(now).state):
        return True
    context = Context(Store(tiles_url))
    ingested = sorted(context.store.records.units(INGEST_STAGE.name))
    return all(is_unchanged(context, parameters, unit) for unit in ingested)


def _is_of_source(before: TileParameters, now: TileParameters) -> bool:
    """Return whether parameters of tiles describe the same source in another state."""
    is_same = (before.source, before.task) == (now.source, now.task)
    return is_same and before.fingerprint != now.fingerprint


def _kept_bands(before: TileParameters, now: TileParameters, n_rows: int) -> int:
    """Return the number of bands of the earlier tiles that can be kept if the first `n_rows` rows are unchanged.

    It is 0 if X is stored otherwise now, or was a single band, whose height need not be one that bands have.
    """
    old, new = before.shape, now.shape
    is_same = (old.dtype, old.is_sparse, before.x_path) == (new.dtype, new.is_sparse, now.x_path)
    return n_rows // old.tile_rows if is_same and old.n_bands > 1 else 0


def _reading_note(source: Source, name: str, shape: Shape) -> str | None:
    """Return a note if bands of the source read more than their own rows, else None."""
    times_read = getattr(source, "times_read", None)
    times = 1.0 if times_read is None else times_read(shape.tile_rows)
    if times < WORTH_TELLING:
        return None
    return (
        f"{name}: entries are not sorted by the rows of X, so that its {shape.n_bands} bands read the file "
        f"{times:.0f} times; sort it, or give workers more memory, where that takes long"
    )


def _finished_tiles(data: DataBlock, spec: SourceSpec) -> TilePlan:
    fields, of_tiles = DataBlock.model_fields, {"source", "missing", "only_batch", "max_samples"}
    settled = [key for key in SourceKeys.model_fields if key not in of_tiles]
    extra = [key for key in (*settled, "append") if getattr(data, key) != fields[key].default]
    if extra:
        msg = f"data.{extra[0]} was settled when {spec.source} was converted: leave it out, or convert again with it."
        raise JobError(msg)
    info: TileInfo | None = read_tile_info(Store(as_path(spec.source)))
    assert info is not None
    policy = str((info.facts.get("missing") or {"policy": "refuse"})["policy"])
    if data.missing not in ("refuse", policy):
        msg = f"data.missing is {data.missing}, and {spec.source} was converted with {policy}: convert again with it."
        raise JobError(msg)
    if data.task not in ("auto", info.task):
        msg = f"data.task is {data.task}, and {spec.source} was converted with task {info.task}."
        raise JobError(msg)
    flags: dict[str, Any] = {f"has_{name}": info.facts.get(name) is not None for name in SAMPLE_COLUMNS}
    flags |= label_facts(spec.source, info)
    return TilePlan(spec.source, info.shape, info.fingerprint, **flags, missing=policy)


def label_facts(tiles_url: str, info: TileInfo) -> dict[str, Any]:
    """Return the fields of a :class:`TilePlan` on the labels of finished tiles."""
    counts = Store(as_path(tiles_url)).need_json(layout.LABELS_JSON)
    return {
        "has_labels": info.task is not None,
        "task": info.task,
        "n_classes": len(info.classes) or None,
        "n_labeled": None if counts["task"] is None else int(counts["n_labeled"]),
    }


def _array_in_place(source: Source, memory_limit: int | None) -> ZarrMember | None:
    info, array = source.info, getattr(source, "in_place", None)
    if array is None or array.dtype != info.dtype:
        return None
    serves = serves_in_place(info.n_samples, array.chunks, info.n_features, info.dtype.name, memory_limit)
    return array if serves else None
