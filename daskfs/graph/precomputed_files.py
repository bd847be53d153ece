"""Files of precomputed graphs: neighbor lists of a run, sparse matrices in ``.npz``, Zarr and HDF5.

Opening a file reads metadata only. Values are read later, in parts if the format has parts.
"""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any

import numpy as np

from daskfs.errors import InputError, StoreError
from daskfs.graph.precomputed import (
    DISTANCES,
    INDICES,
    METRIC_ATTRIBUTE,
    SCALING_ATTRIBUTE,
    EntryRows,
    Graph,
    NeighborLists,
    Readable,
    WeightMatrix,
)
from daskfs.graph.spec import GraphSpec
from daskfs.kernels.neighbors.rows import METRICS, Metric
from daskfs.kernels.scaling import CHAIN, Scaling, scaling_text
from daskfs.redaction import redact_credentials
from daskfs.sources.hdf5 import ENDINGS, Hdf5Array, attributes_of, find, members_of, open_file, text_of
from daskfs.storage import StoragePath, as_path, errors_of, map_concurrent, name_below, zarr_store, zip_archive
from daskfs.storage.npy_header import read_header
from daskfs.store import layout
from daskfs.store.arrays import ChunkedArray, open_foreign

EXPECTED = (
    "A graph is a daskfs run, or a group of neighbor lists in one (RUN/knn/NAME); a sparse matrix of weights in an "
    ".npz file (scipy.sparse.save_npz, or data, indices, indptr and shape); or one in AnnData's layout, in a Zarr "
    "group (FILE.zarr/obsp/NAME) or an HDF5 file (FILE.h5ad:obsp/NAME)."
)
COMPRESSED_ROWS = ("data", "indices", "indptr")
TRIPLES = ("data", "row", "col")
SAMPLED_CHUNKS = 16
OBSP = "obsp"
"""Group of the graphs in AnnData."""
METADATA = ("zarr.json", ".zgroup", ".zarray", ".zattrs")
# raised by zipfile and NumPy for damaged files; NotImplementedError for flags of other zip versions
NPZ_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
    TypeError,
    SyntaxError,
    tokenize.TokenError,
)


def open_graph(path: str | StoragePath) -> Graph:
    """Open a precomputed graph.

    Parameters
    ----------
    path
        Path or URL of a run with one set of neighbor lists over X, or of the directory of the lists; of an ``.npz``
        file or Zarr group with a sparse matrix; or ``file.h5ad:obsp/connectivities``, such a group in an HDF5 file.

    Raises
    ------
    InputError
        If there is no graph, or it cannot be read; the message lists the accepted formats.
    """
    file = as_path(path)
    try:
        if file.is_file() and file.suffix.lower() == ".npz":
            return _npz_matrix(file)
        if (found := _in_hdf5(file)) is not None:
            return _hdf5_matrix(*found)
        if file.is_dir():
            return _in_directory(file)
        problem = "is not a graph" if file.exists() else "does not exist"
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
    msg = f"{redact_credentials(str(path))} {problem}. {EXPECTED}"
    raise InputError(msg)


def _in_directory(path: StoragePath) -> Graph:
    if _holds_lists(path):
        return _lists(path)
    if (path / layout.RUN_JSON).is_file():
        return _lists_of_run(path)
    encoding = str(_attributes(path).get("encoding-type", ""))
    if encoding in ("csr_matrix", "csc_matrix"):
        return _zarr_matrix(path, by_rows=encoding == "csr_matrix")
    held = sorted(str(entry) for entry in (path / OBSP).iterdir()) if (path / OBSP).is_dir() else []
    hint = f" Did you mean one of {', '.join(held)}?" if held else ""
    msg = f"{path} is not a graph.{hint} {EXPECTED}"
    raise InputError(msg)


def _in_hdf5(path: StoragePath) -> tuple[StoragePath, str] | None:
    """Split ``file.h5ad:member`` into path and member, which may be empty; None for other files."""
    for above in (path, *_above(path)):  # slashes in the member look like directories
        name, _, member = above.name.partition(":")
        if name.lower().endswith(ENDINGS) and (file := above.with_name(name)).is_file():
            below = "" if above == path else name_below(path, above)
            return file, "/".join(part for part in (member, below) if part)
    return None


def _above(path: StoragePath) -> Iterator[StoragePath]:
    while path.parent != path:
        path = path.parent
        yield path


# ------------------------------------------------------------------------------- lists
def _holds_lists(path: StoragePath) -> bool:
    return (path / INDICES).is_dir() and (path / DISTANCES).is_dir()


def _lists_of_run(path: StoragePath) -> NeighborLists:
    folder = path / PurePath(layout.KNN_INDICES).parts[0]
    groups = folder.iterdir() if folder.is_dir() else ()  # excludes lists by target
    found = sorted(group for group in groups if _named(group.name) and _holds_lists(group))
    if len(found) != 1:
        names = ", ".join(str(group) for group in found)
        problem = f"several graphs, of which one has to be named: {names}" if found else "no neighbor lists"
        msg = f"{path} is a run with {problem}."
        raise InputError(msg)
    return _lists(found[0])


def _lists(path: StoragePath) -> NeighborLists:
    indices, distances = _ZarrPart(path / INDICES), _ZarrPart(path / DISTANCES)
    if len(indices.shape) != 2 or indices.shape != distances.shape or 0 in indices.shape:
        msg = (
            f"{path} has {INDICES} of shape {indices.shape} and {DISTANCES} of shape {distances.shape}: neighbor lists "
            "are two tables of one shape, (n_samples, n_neighbors)."
        )
        raise InputError(msg)
    _check_kind(indices, "iu", path / INDICES)
    _check_kind(distances, "f", path / DISTANCES)
    for part in (indices, distances):
        part.check_whole()
    metric, scaling = _metric_of(path)
    identity = {"path": str(path), "files": [*_states(path), *indices.states(), *distances.states()]}
    return NeighborLists(str(path), indices, distances, metric, scaling, identity)


def _metric_of(path: StoragePath) -> tuple[Metric, Scaling | None]:
    attributes = _attributes(path)
    if METRIC_ATTRIBUTE not in attributes:
        if (named := _named(path.name)) is not None:
            return named
        msg = (
            f"{path} does not say what its distances are: the name of the group should be one of {', '.join(METRICS)}, "
            "or one of these with a scaling, such as euclidean-zscore, or it should have the attributes "
            f"'{METRIC_ATTRIBUTE}' and '{SCALING_ATTRIBUTE}'."
        )
        raise InputError(msg)
    metric, scaling = attributes[METRIC_ATTRIBUTE], attributes.get(SCALING_ATTRIBUTE)
    if _named(f"{metric}-{scaling}" if scaling else str(metric)) is None:
        msg = (
            f"{path} has the attributes '{METRIC_ATTRIBUTE}' {metric!r} and '{SCALING_ATTRIBUTE}' {scaling!r}: the "
            f"first is one of {', '.join(METRICS)}, the second null or a chain of {CHAIN}."
        )
        raise InputError(msg)
    return metric, scaling


def _named(name: str) -> tuple[Metric, Scaling | None] | None:
    """Parse the name of a group of lists into metric and scaling; None for other names."""
    metric, dash, scaling = name.partition("-")
    if metric not in METRICS:
        return None
    try:
        found = scaling_text(scaling) if dash else None
    except ValueError:
        return None
    return (metric, found) if GraphSpec(metric, found).name == name else None


# ------------------------------------------------------------------------------ matrix
def _npz_matrix(path: StoragePath) -> WeightMatrix:
    with _readable(path) as archive:
        members = {name.removesuffix(".npy") for name in archive.namelist()}
    kind = "csr"
    if "format" in members:
        kind = _text(_NpzPart(path, "format")[...])
    elif not {*COMPRESSED_ROWS, "shape"} <= members:
        msg = f"{path} holds {', '.join(sorted(members)) or 'nothing'}, and no graph. {EXPECTED}"
        raise InputError(msg)
    if kind not in ("csr", "csc", "coo"):
        msg = f"{path} holds a sparse matrix in {kind} format: save it as CSR, CSC or COO."
        raise InputError(msg)
    names = (*(TRIPLES if kind == "coo" else COMPRESSED_ROWS), "shape")
    if lacking := [name for name in names if name not in members]:
        msg = f"{path} is damaged: a matrix in {kind} format without {' and '.join(lacking)}."
        raise InputError(msg)
    *parts, sides = (_NpzPart(path, name) for name in names)
    _check_kind(sides, "iu", f"{path}:shape")
    shape = tuple(int(size) for size in sides[...].ravel())
    status = path.stat()
    identity = {"path": str(path), "files": [[path.name, status.st_size, status.st_mtime_ns]]}
    return _matrix(path, kind, shape, parts, identity)


def _zarr_matrix(path: StoragePath, *, by_rows: bool) -> WeightMatrix:
    parts = [_ZarrPart(path / name) for name in COMPRESSED_ROWS]
    shape = _sides(_attributes(path).get("shape"), path)
    files = [state for part in parts for state in part.states()]
    identity = {"path": str(path), "files": [*_states(path), *files]}
    return _matrix(path, "csr" if by_rows else "csc", shape, parts, identity)


def _sides(shape: Any, where: object) -> tuple[int, ...]:
    if not isinstance(shape, list | tuple) or not all(isinstance(size, int) for size in shape):
        msg = f"{where} lacks the attribute 'shape', two whole numbers; it has {shape!r}."
        raise InputError(msg)
    return tuple(shape)


def _hdf5_matrix(path: StoragePath, member: str) -> WeightMatrix:
    where = f"{path}:{member}" if member else str(path)
    with open_file(path) as file:
        group = find(file, member, str(path))
        held = {} if group is None else attributes_of(group)
        kind = {"csr_matrix": "csr", "csc_matrix": "csc"}.get(text_of(held.get("encoding-type", "")))
        datasets = [find(file, f"{member}/{name}", str(path)) for name in COMPRESSED_ROWS]
        if kind is None or None in datasets:
            others = [f"{path}:{OBSP}/{name}" for name in members_of(find(file, OBSP, str(path)))]
            hint = f" Did you mean one of {', '.join(others)}?" if others else ""
            msg = f"{where} is not a graph.{hint} {EXPECTED}"
            raise InputError(msg)
        named = zip(COMPRESSED_ROWS, datasets, strict=True)
        parts = [Hdf5Array(path, dataset, f"{member}/{name}") for name, dataset in named]
    stated = held.get("shape")
    shape = _sides(stated.tolist() if isinstance(stated, np.ndarray) else stated, where)
    status = path.stat()
    identity = {"path": where, "files": [[path.name, status.st_size, status.st_mtime_ns]]}
    return _matrix(where, kind, shape, parts, identity)


def _matrix(
    path: StoragePath | str, kind: str, shape: tuple[int, ...], parts: list[Any], identity: dict[str, Any]
) -> WeightMatrix:
    values, one, other = parts
    names = TRIPLES if kind == "coo" else COMPRESSED_ROWS
    if len(shape) != 2 or any(len(part.shape) != 1 for part in parts):
        shapes = ", ".join(f"{name} of shape {part.shape}" for name, part in zip(names, parts, strict=True))
        msg = f"{path} holds {shapes}, and its shape is {shape}: that is no sparse matrix."
        raise InputError(msg)
    _check_kind(values, "biuf", f"{path}:{names[0]}")
    _check_kind(one, "iu", f"{path}:{names[1]}")
    _check_kind(other, "iu", f"{path}:{names[2]}")
    n_entries = values.shape[0]
    lengths = (n_entries, n_entries if kind == "coo" else shape[0 if kind == "csr" else 1] + 1)
    if (one.shape[0], other.shape[0]) != lengths:
        msg = (
            f"{path} is damaged: it has {n_entries} values, {one.shape[0]} {names[1]} and {other.shape[0]} {names[2]}, "
            f"where a {kind} matrix of shape {shape} has {lengths[0]} and {lengths[1]}."
        )
        raise InputError(msg)
    if kind == "coo":
        return WeightMatrix(str(path), shape, one, other, values, identity)
    major = EntryRows(other, n_entries, str(path))
    rows, columns = (major, one) if kind == "csr" else (one, major)
    return WeightMatrix(str(path), shape, rows, columns, values, identity)


def _text(value: np.ndarray) -> str:
    item = value.item() if value.size == 1 else value
    return item.decode("ascii", "replace") if isinstance(item, bytes) else str(item)


def _check_kind(part: Readable, kinds: str, where: object) -> None:
    if part.dtype.kind not in kinds:
        needed = "real numbers" if "f" in kinds else "whole numbers"
        msg = f"{where} has dtype {part.dtype}: a graph has {needed} there."
        raise InputError(msg)


# ------------------------------------------------------------------------------ reading
@contextmanager
def _readable(path: StoragePath) -> Iterator[zipfile.ZipFile]:
    try:
        with zip_archive(path) as archive:
            yield archive
    except NPZ_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the file could not be read, so it is not known to be damaged
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        msg = f"{path} is truncated, damaged or no .npz file: {reason}"
        raise InputError(msg) from error


class _NpzPart:
    """Member of an ``.npz`` file; all values are read on first access."""

    def __init__(self, path: StoragePath, name: str) -> None:
        self._path, self._name = path, f"{name}.npy"
        self._values: np.ndarray | None = None
        with _readable(path) as archive, archive.open(self._name) as member:
            _, self.shape, _, self.dtype = read_header(member)
        self.held_bytes = math.prod(self.shape) * self.dtype.itemsize

    def __getitem__(self, selection: Any) -> np.ndarray:
        if self._values is None:
            with _readable(self._path) as archive, archive.open(self._name) as member:
                self._values = np.lib.format.read_array(member, allow_pickle=False)
        return self._values[selection]


class _ZarrPart:
    """Zarr array of a precomputed graph, version 2 or 3."""

    def __init__(self, path: StoragePath) -> None:
        self._path = path
        try:
            self._zarr = open_foreign(path)
        except StoreError as error:
            msg = f"{error}. {EXPECTED}"
            raise InputError(msg) from error
        self._array = ChunkedArray(path, self._zarr, foreign=True)
        self.shape, self.dtype = self._array.shape, self._array.dtype
        self.chunk_rows = self._array.chunks[0] if self._array.chunks else 1
        self.held_bytes = 2 * math.prod(self._array.chunks) * self.dtype.itemsize  # encoded and decoded

    def __getitem__(self, selection: Any) -> np.ndarray:
        try:
            return self._array[selection]
        except StoreError as error:
            raise InputError(str(error)) from error

    def check_whole(self) -> None:
        """Raise :class:`InputError` unless every chunk exists: a missing one would read as zeros."""
        with errors_of(self._path):
            there, wanted = self._zarr.nchunks_initialized, self._zarr.nchunks
        if there != wanted:
            msg = f"{self._path} has {there} of its {wanted} chunks: is the run that writes it done, or was it damaged?"
            raise InputError(msg)

    def states(self) -> list[list[Any]]:
        """Return name, size and time of the metadata files and of some chunks, to detect a change."""
        counts = [-(-size // chunk) for size, chunk in zip(self.shape, self._array.chunks, strict=True)]
        n_chunks = math.prod(counts)
        places = np.unique(np.linspace(0, max(n_chunks - 1, 0), SAMPLED_CHUNKS).astype(np.int64))[:n_chunks]
        encode = self._zarr.metadata.encode_chunk_key
        keys = [encode(tuple(int(i) for i in np.unravel_index(chunk, counts))) for chunk in places]
        return [*_states(self._path), *_states(self._path, keys)]


def _states(folder: StoragePath, names: Any = METADATA) -> list[list[Any]]:
    """Return name, size and time of the given files in a directory, if they exist."""

    def state(name: str) -> list[Any] | None:
        try:
            status = (folder / name).stat()
        except FileNotFoundError:
            return None
        return [f"{folder.name}/{name}", status.st_size, status.st_mtime_ns]

    return [found for found in map_concurrent(folder, state, names) if found is not None]


def _attributes(path: StoragePath) -> dict[str, Any]:
    """Return the attributes of a Zarr group; empty for any other directory."""
    if not any((path / name).is_file() for name in ("zarr.json", ".zgroup")):
        return {}
    import zarr
    from zarr.errors import ContainsArrayError

    try:
        with errors_of(path):
            return dict(zarr.open_group(store=zarr_store(path), mode="r").attrs.asdict())
    except ContainsArrayError:
        return {}
    except (ValueError, TypeError, KeyError) as error:
        msg = f"{path} has Zarr metadata that cannot be read: {error}. {EXPECTED}"
        raise InputError(msg) from error
