"""X as a dense Zarr array, version 2 or 3, on its own or inside a group."""

from __future__ import annotations

import json
import stat
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block
from daskfs.places import ObjectPath, Place, each
from daskfs.sources.base import SourceInfo, SourceSpec
from daskfs.sources.beside import Beside
from daskfs.sources.checks import (
    block_dtype,
    check_range,
    check_shape,
    first_line,
    listed,
    refuse_options,
    unknown_name,
)
from daskfs.sources.resolve import resolve_feature_names, resolve_labels
from daskfs.sources.zarrchunks import METADATA, ends_in_blosc, foreign_store, sampled_chunk_files
from daskfs.sources.zarrcodecs import check_codecs

if TYPE_CHECKING:
    import zarr

METADATA_FILES = ("zarr.json", ".zarray", ".zgroup")
# A directory keeps its time when files deeper down change, so the identity looks at some of these too.
SAMPLED_CHUNKS = 16
# What Zarr and its codecs are known to raise for metadata or chunks that make no sense.
ZARR_ERRORS = (ValueError, TypeError, KeyError, RuntimeError, OSError, EOFError, SystemError, zlib.error)


@dataclass(frozen=True)
class Metadata:
    """What describes a Zarr array or group.

    Parameters
    ----------
    file
        Where it was read.
    document
        What it holds.
    """

    file: Place
    document: dict[str, Any]

    @property
    def is_array(self) -> bool:
        """Whether it is that of an array."""
        return self.file.name == ".zarray" or (
            self.file.name != ".zgroup" and self.document.get("node_type") == "array"
        )

    @property
    def n_dimensions(self) -> int:
        """How many dimensions the array has; 0 where that is not said."""
        shape = self.document.get("shape")
        return len(shape) if isinstance(shape, list) else 0


def read_metadata(path: Place) -> Metadata | None:
    """Return what describes the Zarr array or group at `path`, or ``None`` if there is none."""
    for name in METADATA_FILES:
        file = path / name
        try:
            document = json.loads(file.read_bytes())
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except ValueError as error:
            raise InputError(f"{file} is truncated or not JSON: {first_line(error)}") from error
        if not isinstance(document, dict):
            raise InputError(f"{file} is not Zarr metadata.")
        return Metadata(file, document)
    return None


class ZarrSource:
    """A dense matrix in a Zarr array, read one row of chunks at a time.

    Attributes
    ----------
    array_path
        Directory of the array.
    chunks
        Chunk shape.
    shards
        Shard shape, or ``None`` for an array without shards.
    """

    def __init__(self, spec: SourceSpec, path: Place) -> None:
        refuse_options(spec, array=True)
        self._root = path
        is_array = _array_metadata(path) is not None
        self._dimensions = {} if is_array else _array_members(path)
        self._members = tuple(self._dimensions)
        self.array_path = path if is_array else self._find_array(spec)
        self._array = open_array(self.array_path)
        n_samples, n_features = check_shape(self._array.shape, str(self.array_path))
        self.chunks: tuple[int, ...] = tuple(self._array.chunks)
        self.shards: tuple[int, ...] | None = tuple(self._array.shards) if self._array.shards else None
        self.stored_dtype = np.dtype(self._array.dtype)
        self._labels = resolve_labels(spec, self._members, "member")
        self._beside = Beside(spec, self._members, "member")
        self.info = SourceInfo(
            n_samples=n_samples,
            n_features=n_features,
            dtype=block_dtype(np.dtype(self._array.dtype), str(self.array_path)),
            is_sparse=False,
            feature_names=resolve_feature_names(spec, n_features, members=self._members, read_member=self._read_member),
            identity=self.identity_now(),
            row_multiple=max(1, self.chunks[0]),
            has_labels=self._labels is not None,
            beside=self._beside.names,
        )

    def read_rows(self, start: int, stop: int) -> Block:
        """Return rows ``start:stop``, shape (stop - start, n_features)."""
        check_range(start, stop, self.info.n_samples)
        out = np.empty((stop - start, self.info.n_features), dtype=self.info.dtype)
        height = self.info.row_multiple
        for band in range(start - start % height, stop, height):
            begin, end = max(start, band), min(stop, band + height)
            out[begin - start : end - start] = _read(self._array, begin, end, self.array_path)
        return out

    def read_labels(self) -> np.ndarray | None:
        """Return the labels, shape (n_samples,), from the member or file that ``spec.labels`` names."""
        return None if self._labels is None else self._labels.read(self.info.n_samples, self._read_member)

    def read_beside(self, name: str) -> np.ndarray | None:
        """Return one of the columns beside X, shape (n_samples,), as the spec names it; None when it names none."""
        return self._beside.read(name, self.info.n_samples, self._read_member)

    def _read_member(self, name: str) -> np.ndarray:
        path = self._root / name
        array = open_array(path)
        values = _read(array, 0, array.shape[0] if array.shape else 0, path)
        # NumPy's variable-length text becomes plain Python text, which every caller can handle.
        return values.astype(object) if values.dtype.kind == "T" else values

    def _find_array(self, spec: SourceSpec) -> Place:
        if spec.array is not None:
            path = self._root / spec.array
            if _array_metadata(path) is None:
                raise unknown_name(spec.array, "array", self._members, str(self._root))
            return path
        if "X" in self._members:
            return self._root / "X"
        matrices = [name for name, number in self._dimensions.items() if number == 2]
        if len(matrices) == 1:
            return self._root / matrices[0]
        raise InputError(
            f"{self._root} is a Zarr group with {len(matrices)} two-dimensional arrays, none called 'X'; it "
            f"has {listed(self._members)}. Name the matrix by data.array."
        )

    def identity_now(self) -> dict[str, Any]:
        """Return what ``info.identity`` would be, were the source opened now."""
        metadata = read_metadata(self.array_path)
        described = [*([] if metadata is None else [metadata.file]), self.array_path]
        if isinstance(self.array_path, ObjectPath):
            described.pop()  # folders of objects have no time of their own
        chunks = sampled_chunk_files(self._array, self.array_path, SAMPLED_CHUNKS)
        states = list(each(self.array_path, _state, [*described, *chunks]))
        return {
            "kind": "zarr",
            "path": str(self.array_path.resolve()),
            "shape": [int(size) for size in self._array.shape],
            "dtype": str(self._array.dtype),
            "metadata": states[: len(described)],
            "chunks": states[len(described) :],
        }


def _state(path: Place) -> list[int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        # A chunk that holds nothing but the fill value need not be there.
        return []
    return [0 if stat.S_ISDIR(status.st_mode) else status.st_size, status.st_mtime_ns]


def _array_metadata(path: Place) -> Metadata | None:
    """Return what describes the array at `path`, or ``None`` if there is none."""
    metadata = read_metadata(path)
    return metadata if metadata is not None and metadata.is_array else None


def _array_members(group: Place) -> dict[str, int]:
    """Return the arrays in a group, each with its number of dimensions."""
    entries: list[Place] = sorted(entry for entry in group.iterdir() if entry.name not in METADATA)
    found = zip(entries, each(group, _array_metadata, entries), strict=True)
    return {entry.name: metadata.n_dimensions for entry, metadata in found if metadata is not None}


def open_array(path: Place) -> zarr.Array[Any]:
    """Open a Zarr array, version 2 or 3, for reading; :class:`InputError` where there is none that can be read."""
    import zarr

    check_codecs(path)
    metadata = _array_metadata(path)
    if metadata is None:
        raise InputError(f"{path} is not a Zarr array.")
    version = 3 if metadata.file.name == "zarr.json" else 2
    store = foreign_store(path, has_blosc=ends_in_blosc(metadata.document))
    try:
        return zarr.open_array(store, mode="r", zarr_format=version)  # type: ignore[arg-type]
    except ZARR_ERRORS as error:
        raise _refused(path, error, "has metadata that Zarr cannot read") from error


def _read(array: zarr.Array[Any], start: int, stop: int, path: Place) -> np.ndarray:
    try:
        return np.asarray(array[start:stop])
    except InputError:
        raise
    except ZARR_ERRORS as error:
        raise _refused(path, error, f"is damaged within rows {start}:{stop}") from error


def _refused(path: Place, error: Exception, what: str) -> Exception:
    """Return what an error in reading means: an object that was not handed out is not damaged."""
    if isinstance(error, OSError) and isinstance(path, ObjectPath):
        return error
    return InputError(f"{path} {what}: {first_line(error)}")
