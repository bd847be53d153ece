"""Zarr arrays and groups, version 2 or 3, written by other programs: partial reads and change detection."""

from __future__ import annotations

import itertools
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.digits import as_floats
from daskfs.sources.checks import CHANGED, check_text, dated_state, file_state, read_error
from daskfs.sources.zarr_chunks import (
    ALL_METADATA,
    absent_chunks,
    check_codecs,
    ends_in_blosc,
    foreign_store,
    sampled_chunk_files,
)
from daskfs.storage import StoragePath, first_line, map_concurrent

if TYPE_CHECKING:
    import zarr

METADATA_FILES = ("zarr.json", ".zarray", ".zgroup")
# A directory keeps its modification time if files deeper down change, so the identity also samples chunk files.
SAMPLED_CHUNKS = 16
SAMPLED_OTHER_CHUNKS = 4
"""Sampled chunk files of each array other than the values of X."""
# Errors that Zarr and its codecs raise for invalid metadata or chunks.
ZARR_ERRORS = (
    ValueError,
    TypeError,
    KeyError,
    RuntimeError,
    OSError,
    EOFError,
    SystemError,
    ArithmeticError,
    zlib.error,
)


@dataclass(frozen=True)
class Metadata:
    """Metadata of a Zarr array or group: the file, and its JSON document."""

    file: StoragePath
    document: dict[str, Any]

    @property
    def is_array(self) -> bool:
        """True for an array, False for a group."""
        return self.file.name == ".zarray" or (
            self.file.name != ".zgroup" and self.document.get("node_type") == "array"
        )


def read_metadata(path: StoragePath) -> Metadata | None:
    """Read the metadata of the Zarr array or group at `path`; return ``None`` if there is none."""
    for name in METADATA_FILES:
        file = path / name
        document = _json(file)
        if isinstance(document, dict):
            return Metadata(file, document)
        if document is not None:
            msg = f"{file} is not Zarr metadata."
            raise InputError(msg)
    return None


def _json(file: StoragePath) -> Any:
    """Read a JSON file; return None if it does not exist."""
    file.regular()
    try:
        return json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except ValueError as error:
        msg = f"{file} is truncated or not JSON: {first_line(error)}"
        raise InputError(msg) from error


class ZarrMember:
    """The Zarr array, version 2 or 3, in the directory `path`, that is read in parts.

    Attributes
    ----------
    where, shape, dtype, chunks, held_bytes, attributes, dimensions
        As of :class:`daskfs.sources.hdf5.Hdf5Array`.
    """

    def __init__(self, path: StoragePath) -> None:
        self.path, self.where = path, str(path)
        self.array = open_array(path)
        self.shape: tuple[int, ...] = tuple(self.array.shape)
        self.dtype = np.dtype(self.array.dtype)
        self.chunks: tuple[int, ...] = tuple(self.array.chunks)
        self.held_bytes = 2 * math.prod(self.chunks) * self.dtype.itemsize
        self.attributes = _checked_attributes(self.array.metadata.attributes, path)
        self.version: int = self.array.metadata.zarr_format
        self.fill_value: Any = self.array.fill_value
        stated = getattr(self.array.metadata, "dimension_names", None) or self.attributes.get("_ARRAY_DIMENSIONS")
        has_names = isinstance(stated, list | tuple) and len(stated) == len(self.shape)
        names: Any = stated if has_names else [None] * len(self.shape)
        self.dimensions = tuple(name if isinstance(name, str) and name else None for name in names)

    def __getitem__(self, selection: Any) -> np.ndarray:
        rows = selection[0] if isinstance(selection, tuple) and selection else selection
        start = rows.start or 0 if isinstance(rows, slice) else 0
        stop = rows.stop if isinstance(rows, slice) and rows.stop is not None else next(iter(self.shape), 0)
        try:
            values = np.asarray(self.array[selection])
        except InputError:
            raise
        except ZARR_ERRORS as error:
            raise read_error(self.path, error, f"is damaged within rows {start}:{stop}") from error
        check_text(values, self.where, start)
        # Callers expect Python text, not NumPy's variable-length strings.
        return values.astype(object) if values.dtype.kind == "T" else values

    def read(self, start: int, stop: int, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        """Return ``array[start:stop]``, converted to `dtype` (by default the array's, native)."""
        return as_floats(self[start:stop], dtype or self.dtype.newbyteorder("="))

    def fill(self, out: np.ndarray, start: int) -> None:
        """Read the rows from `start` on into `out`, shape (n_rows, ...), converted to its dtype."""
        out[...] = self.read(start, start + len(out), out.dtype)

    def states(self, n_chunks: int) -> list[StoragePath]:
        """Return the files whose state is that of the array: its metadata and directory, and some chunks."""
        metadata = read_metadata(self.path)
        described = [] if metadata is None else [metadata.file]
        if not self.path.is_remote:  # folders in object stores have no modification time
            described.append(self.path)
        return [*described, *sampled_chunk_files(self.array, self.path, n_chunks).values()]

    def unchanged(self, planned: Mapping[str, Any], n_chunks: int, axis: int = 0) -> int:
        """Return the length along an axis up to which chunks are unchanged, of which `n_chunks` are compared.

        `planned` is its entry in :meth:`ZarrFolder.identity`. A chunk that entries were added to counts as changed.
        :class:`InputError` if the array is not a longer one than it was.
        """
        shape, step = planned["shape"], (self.array.shards or self.chunks)[axis]
        before = (np.delete(shape, axis).tolist(), np.dtype(planned["dtype"]), planned.get("format"))
        if before != (np.delete(self.shape, axis).tolist(), self.dtype, self.stored_as()):
            msg = (
                f"{self.where} had shape {tuple(shape)} and dtype {planned['dtype']}, and has {self.shape} and "
                f"{self.dtype}, or other chunks, codecs or attributes: only its length may change."
            )
            raise InputError(msg)
        if self.shape[axis] < shape[axis]:
            msg = f"{self.where} has {self.shape[axis]:,} entries, and had {shape[axis]:,}: entries were removed."
            raise InputError(msg)
        n_whole = shape[axis] // step if self.shape[axis] > shape[axis] else -(-shape[axis] // step)
        files = sampled_chunk_files(self.array, self.path, n_chunks, shape)
        states = planned["files"][len(planned["files"]) - len(files) :]
        compared = [(file, old) for (key, file), old in zip(files.items(), states, strict=True) if key[axis] < n_whole]
        now = map_concurrent(self.path, file_state, [file for file, _ in compared])
        changed = next((file for (file, old), new in zip(compared, now, strict=True) if old != (new or [])), None)
        if changed is not None:
            msg = f"chunk {changed} changed, and holds entries that were there before."
            raise InputError(msg)
        return min(n_whole * step, int(shape[axis]))

    def absence(self, *, of_column: bool = False) -> str | None:
        """Return a warning, without a full stop, if chunks are absent, which Zarr reads as the fill value; else None.

        Programs leave out chunks of fill values, and a copy may have lost others. If some of a column are absent, whose
        rows would pass for ones of a class or weight, :class:`InputError` is raised.
        """
        n_absent, n_chunks, first = absent_chunks(self.array, self.path)
        if not n_absent:
            return None
        unit = "chunks" if self.array.shards is None else "shards"
        fill = str(0 if self.fill_value is None else self.fill_value).removesuffix(".0") or "empty text"
        sentence = f"{n_absent:,} of {n_chunks:,} {unit} of {self.where} are absent and read as {fill}"
        if of_column and n_absent < n_chunks:
            msg = (
                f"{sentence}, the first of which is {first}: restore them; or, if they were left out because they hold "
                "nothing else, write the array with write_empty_chunks."
            )
            raise InputError(msg)
        return f"{sentence}: restore them if the copy is incomplete"

    def stored_as(self) -> str:
        """Return a digest of all metadata but the length: dtype, chunks, codecs and attributes."""
        metadata = read_metadata(self.path)
        document = {} if metadata is None else {**metadata.document, "shape": None}
        text = json.dumps([document, self.attributes], sort_keys=True, default=str)
        return blake2b(text.encode(), digest_size=16).hexdigest()


class ZarrFolder:
    """The arrays and groups in the Zarr group at `path`, named by paths with slashes, empty for the group itself."""

    def __init__(self, path: StoragePath) -> None:
        self.path, self.where = path, str(path)
        self._opened: dict[str, ZarrMember] = {}

    def members(self, name: str = "") -> tuple[str, ...]:
        """Return the names of the arrays and groups directly in a group, sorted."""
        return tuple(self._found_in(self._below(name)))

    def arrays(self) -> dict[str, int]:
        """Return the number of dimensions of each array directly in the group, by sorted name."""
        shapes = {name: one.document.get("shape") for name, one in self._found_in(self.path).items() if one.is_array}
        return {name: len(shape) if isinstance(shape, list) else 0 for name, shape in shapes.items()}

    @staticmethod
    def _found_in(group: StoragePath) -> dict[str, Metadata]:
        if not group.is_dir():
            return {}
        entries: list[StoragePath] = sorted(entry for entry in group.iterdir() if entry.name not in ALL_METADATA)
        members = zip(entries, map_concurrent(group, read_metadata, entries), strict=True)
        return {entry.name: metadata for entry, metadata in members if metadata is not None}

    def is_group(self, name: str) -> bool:
        """Return whether `name` is a group."""
        metadata = read_metadata(self._below(name))
        return metadata is not None and not metadata.is_array

    def array(self, name: str) -> ZarrMember | None:
        """Return the array `name`, or None if there is none."""
        if name not in self._opened:
            path = self._below(name)
            if (metadata := read_metadata(path)) is None or not metadata.is_array:
                return None
            self._opened[name] = ZarrMember(path)
        return self._opened[name]

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of an array or a group, empty if there are none."""
        path = self._below(name)
        if (metadata := read_metadata(path)) is None:
            return {}
        stored = metadata.document.get("attributes") if metadata.file.name == "zarr.json" else _json(path / ".zattrs")
        return _checked_attributes(stored or {}, path)

    def _below(self, name: str) -> StoragePath:
        return self.path / name if name else self.path

    def identity(self, arrays: tuple[str, ...], selection: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of `arrays` and the selection, JSON-able, for change detection.

        Its :data:`daskfs.sources.checks.CHANGED` is the last change time of the files.
        """
        members = {name: self.need(name) for name in arrays}
        files = [member.states(_n_sampled(place)) for place, member in enumerate(members.values())]
        dated = list(map_concurrent(self.path, dated_state, [file for part in files for file in part]))
        states = ((state or [])[:2] for state in dated)  # a chunk with only the fill value need not be stored
        return {
            "kind": "zarr",
            CHANGED: max((state[2] for state in dated if state), default=0),
            **selection,
            "arrays": {
                name: {
                    "shape": [int(size) for size in member.shape],
                    "dtype": str(member.dtype),
                    "format": member.stored_as(),
                    "files": list(itertools.islice(states, len(part))),
                }
                for (name, member), part in zip(members.items(), files, strict=True)
            },
        }

    def unchanged(self, arrays: tuple[str, ...], planned: Mapping[str, Any], axis: int = 0) -> list[int]:
        """Return for each array of X how far, along an axis, its chunks are those of an :meth:`identity`."""
        states = planned["arrays"]
        if absent := [name for name in arrays if name not in states]:
            msg = f"{self._below(absent[0])} did not hold X, and does now."
            raise InputError(msg)
        return [self.need(name).unchanged(states[name], _n_sampled(i), axis) for i, name in enumerate(arrays)]

    def need(self, name: str) -> ZarrMember:
        """Return the array `name`; raise :class:`InputError` if there is none."""
        if (array := self.array(name)) is None:
            msg = f"{self._below(name)} is not a Zarr array."
            raise InputError(msg)
        return array


def _checked_attributes(attributes: object, path: StoragePath) -> Mapping[str, Any]:
    if not isinstance(attributes, Mapping):
        msg = f"{path} has attributes that are no JSON object: restore its metadata."
        raise InputError(msg)
    return dict(attributes)


def _n_sampled(place: int) -> int:
    """Return the number of sampled chunks of an array: the first holds X, or the values of a sparse X."""
    return SAMPLED_OTHER_CHUNKS if place else SAMPLED_CHUNKS


def open_array(path: StoragePath) -> zarr.Array[Any]:
    """Open a Zarr array, version 2 or 3, for reading; raise :class:`InputError` if it is missing or cannot be read."""
    import zarr

    if (metadata := read_metadata(path)) is None or not metadata.is_array:
        msg = f"{path} is not a Zarr array."
        raise InputError(msg)
    check_codecs(metadata.document, path)
    version = 3 if metadata.file.name == "zarr.json" else 2
    store = foreign_store(path, has_blosc=ends_in_blosc(metadata.document))
    try:
        return zarr.open_array(store, mode="r", zarr_format=version)  # type: ignore[arg-type]
    except ZARR_ERRORS as error:
        raise read_error(path, error, "has metadata that Zarr cannot read") from error
