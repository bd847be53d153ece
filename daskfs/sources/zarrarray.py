"""X as a dense Zarr array, version 2 or 3, on its own or inside a group."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block
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
from daskfs.sources.zarrchunks import check_blosc, chunk_files, ends_in_blosc, sampled_chunk_files
from daskfs.sources.zarrcodecs import check_codecs

if TYPE_CHECKING:
    import zarr

METADATA_FILES = ("zarr.json", ".zarray", ".zgroup")
# A directory keeps its time when files deeper down change, so the identity looks at some of these too.
SAMPLED_CHUNKS = 16
# What Zarr and its codecs are known to raise for metadata or chunks that make no sense.
ZARR_ERRORS = (ValueError, TypeError, KeyError, RuntimeError, OSError, EOFError, SystemError, zlib.error)


def zarr_metadata(path: Path) -> Path | None:
    """Return the metadata file of the Zarr array or group at `path`, or ``None`` if there is none."""
    return next((path / name for name in METADATA_FILES if (path / name).is_file()), None)


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

    def __init__(self, spec: SourceSpec, path: Path) -> None:
        refuse_options(spec, array=True)
        self._root = path
        self._members = () if _is_array(path) else _array_members(path)
        self.array_path = path if _is_array(path) else self._find_array(spec)
        self._array = _open_array(self.array_path)
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
        array = _open_array(path)
        values = _read(array, 0, array.shape[0] if array.shape else 0, path)
        # NumPy's variable-length text becomes plain Python text, which every caller can handle.
        return values.astype(object) if values.dtype.kind == "T" else values

    def _find_array(self, spec: SourceSpec) -> Path:
        if spec.array is not None:
            path = self._root / spec.array
            if not path.is_dir() or not _is_array(path):
                raise unknown_name(spec.array, "array", self._members, str(self._root))
            return path
        if "X" in self._members:
            return self._root / "X"
        matrices = [name for name in self._members if len(_shape(self._root / name)) == 2]
        if len(matrices) == 1:
            return self._root / matrices[0]
        raise InputError(
            f"{self._root} is a Zarr group with {len(matrices)} two-dimensional arrays, none called 'X'; it "
            f"has {listed(self._members)}. Name the matrix by data.array."
        )

    def identity_now(self) -> dict[str, Any]:
        """Return what ``info.identity`` would be, were the source opened now."""
        metadata = zarr_metadata(self.array_path)
        states = [_state(path) for path in (metadata, self.array_path) if path is not None]
        return {
            "kind": "zarr",
            "path": str(self.array_path.resolve()),
            "shape": [int(size) for size in self._array.shape],
            "dtype": str(self._array.dtype),
            "metadata": states,
            "chunks": [_state(file) for file in sampled_chunk_files(self._array, self.array_path, SAMPLED_CHUNKS)],
        }


def _state(path: Path) -> list[int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        # A chunk that holds nothing but the fill value need not be there.
        return []
    return [0 if path.is_dir() else status.st_size, status.st_mtime_ns]


def _document(path: Path) -> dict[str, Any]:
    file = zarr_metadata(path)
    if file is None:
        raise InputError(f"{path} is not a Zarr array or group.")
    try:
        document = json.loads(file.read_bytes())
    except ValueError as error:
        raise InputError(f"{file} is truncated or not JSON: {first_line(error)}") from error
    if not isinstance(document, dict):
        raise InputError(f"{file} is not Zarr metadata.")
    return document


def _is_array(path: Path) -> bool:
    file = zarr_metadata(path)
    if file is None or file.name == ".zgroup":
        return False
    document = _document(path)
    return file.name == ".zarray" or document.get("node_type") == "array"


def _shape(path: Path) -> tuple[int, ...]:
    shape = _document(path).get("shape")
    return tuple(shape) if isinstance(shape, list) else ()


def _array_members(group: Path) -> tuple[str, ...]:
    folders = sorted(entry for entry in group.iterdir() if entry.is_dir())
    return tuple(folder.name for folder in folders if _is_array(folder))


def _open_array(path: Path) -> zarr.Array[Any]:
    import zarr

    check_codecs(path)
    version = 3 if (path / "zarr.json").is_file() else 2
    try:
        return zarr.open_array(path, mode="r", zarr_format=version)  # type: ignore[arg-type]
    except ZARR_ERRORS as error:
        raise InputError(f"{path} has metadata that Zarr cannot read: {first_line(error)}") from error


def _read(array: zarr.Array[Any], start: int, stop: int, path: Path) -> np.ndarray:
    if ends_in_blosc(_document(path)):
        for file in chunk_files(array, path, start, stop):
            check_blosc(file)
    try:
        return np.asarray(array[start:stop])
    except ZARR_ERRORS as error:
        raise InputError(f"{path} is damaged within rows {start}:{stop}: {first_line(error)}") from error
