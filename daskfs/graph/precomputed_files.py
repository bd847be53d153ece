"""Files of precomputed graphs: neighbor lists of a run, sparse matrices in ``.npz``, Zarr and HDF5.

Opening a file reads metadata only. Values are read later, in parts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.graph.precomputed import (
    DISTANCES,
    INDICES,
    METRIC_ATTRIBUTE,
    SCALING_ATTRIBUTE,
    EntryRows,
    Graph,
    NeighborLists,
    WeightMatrix,
    check_kind,
)
from daskfs.kernels.neighbors.metrics import Metric, checked_metric
from daskfs.kernels.scaling import HALF, Scaling, scaling_text
from daskfs.redaction import redact_credentials
from daskfs.sources.checks import file_state
from daskfs.sources.csr import CSR_PARTS
from daskfs.sources.hdf5 import ENDINGS, Hdf5Folder, text_of
from daskfs.sources.matrices import matrix_part, parts_of, stated_shape
from daskfs.sources.npy_file import NPY_BUFFER_BYTES, NpyFile
from daskfs.sources.zarr_array import SAMPLED_CHUNKS, ZarrFolder, ZarrMember
from daskfs.sources.zarr_chunks import sampled_chunk_files
from daskfs.sources.zipped import NpzFile
from daskfs.storage import PathName, StoragePath, as_path, map_concurrent
from daskfs.store import layout
from daskfs.store.arrays import Readable

EXPECTED = (
    "A graph is a daskfs run, or a group of neighbor lists in one (RUN/knn/NAME); a sparse matrix of weights in an "
    ".npz file (scipy.sparse.save_npz, or data, indices, indptr and shape); or one in AnnData's layout, in a Zarr "
    "group (FILE.zarr/obsp/NAME) or an HDF5 file (FILE.h5ad:obsp/NAME)."
)
TRIPLES = ("data", "row", "col")
KINDS = {"csr_matrix": "csr", "csc_matrix": "csc"}
"""Kinds of matrices by AnnData's encoding."""
OBSP = "obsp"
"""Group of the graphs in AnnData."""
GRAPH_METADATA = ("zarr.json", ".zgroup", ".zarray", ".zattrs")


def open_graph(path: PathName) -> Graph:
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
        if (member := _in_hdf5(file)) is not None:
            return _matrix_in(Hdf5Folder(member[0]), member[1])
        if _holds_lists(file):
            return _lists(file)
        if (file / layout.RUN_JSON).is_file():
            return _lists_of_run(file)
        if file.is_dir():
            return _matrix_in(ZarrFolder(file), "")
        problem = "is not a graph" if file.exists() else "does not exist"
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
    msg = f"{redact_credentials(str(path))} {problem}. {EXPECTED}"
    raise InputError(msg)


def _in_hdf5(path: StoragePath) -> tuple[StoragePath, str] | None:
    """Split ``file.h5ad:member`` into path and member, which may be empty; None for other files."""
    above = path
    while above.parent != above:  # slashes in the member look like directories
        name, _, member = above.name.partition(":")
        if name.lower().endswith(ENDINGS) and (file := above.with_name(name)).is_file():
            below = "" if above == path else path.name_below(above)
            return file, "/".join(part for part in (member, below) if part)
        above = above.parent
    return None


# ------------------------------------------------------------------------------- lists
def _holds_lists(path: StoragePath) -> bool:
    return (path / INDICES).is_dir() and (path / DISTANCES).is_dir()


def _lists_of_run(path: StoragePath) -> NeighborLists:
    folder = path / PurePath(layout.KNN_INDICES).parts[0]
    groups = folder.iterdir() if folder.is_dir() else ()
    candidates = sorted(group for group in groups if _is_over_x(group.name) and _holds_lists(group))
    if len(candidates) != 1:
        names = ", ".join(str(group) for group in candidates)
        problem = f"several graphs, of which one has to be named: {names}" if candidates else "no neighbor lists"
        msg = f"{path} is a run with {problem}."
        raise InputError(msg)
    return _lists(candidates[0])


def _lists(path: StoragePath) -> NeighborLists:
    folder = ZarrFolder(path)
    indices, distances = (folder.need(name) for name in (INDICES, DISTANCES))
    for part in (indices, distances):
        _check_whole(part)
    metric, scaling = _metric_of(path, folder.attributes(""))
    identity = {"path": str(path), "files": _states_of(folder, (INDICES, DISTANCES))}
    return NeighborLists(str(path), indices, distances, metric, scaling, identity)


def _metric_of(path: StoragePath, attributes: Mapping[str, Any]) -> tuple[Metric, Scaling | None]:
    metric, scaling = attributes.get(METRIC_ATTRIBUTE), attributes.get(SCALING_ATTRIBUTE)
    if METRIC_ATTRIBUTE not in attributes:
        metric, scaling = _parse_name(path.name)
    try:
        return checked_metric(metric), scaling_text(scaling, of_graph=True) if scaling else None
    except ValueError as error:
        msg = (
            f"{path} does not say what its distances are: the name of the group should be a metric, or a metric and a "
            f"scaling, such as euclidean-zscore, or it should have the attributes '{METRIC_ATTRIBUTE}' and "
            f"'{SCALING_ATTRIBUTE}'; it has {metric!r} and {scaling!r} ({error})."
        )
        raise InputError(msg) from error


def _parse_name(name: str) -> tuple[str, str | None]:
    """Return the metric and the scaling that the name of a group of lists consists of."""
    named = re.fullmatch(r"(\w+(?:\(.*\))?)(?:-(.+))?", name)
    return (named[1], named[2]) if named else (name, None)


def _is_over_x(name: str) -> bool:
    """Return whether a group of a run holds lists over all columns of X, not by target or over half of the columns."""
    metric, scaling = _parse_name(name)
    return metric not in ("target", "mixed") and not str(scaling).startswith(HALF)


def _check_whole(array: ZarrMember) -> None:
    """Raise :class:`InputError` unless every chunk exists: the readers of sources take a missing one as zeros."""
    with array.path.errors():
        there, n_chunks = array.array.nchunks_initialized, array.array.nchunks
    if there != n_chunks:
        msg = f"{array.where} has {there} of its {n_chunks} chunks: is the run that writes it done, or was it damaged?"
        raise InputError(msg)


# ------------------------------------------------------------------------------ matrix
def _npz_matrix(path: StoragePath) -> WeightMatrix:
    npz, kind = NpzFile(path), "csr"
    if "format" in npz.members:
        kind = text_of(npz.open_checked("format").read_all())
    elif not {*CSR_PARTS} <= {*npz.members}:
        msg = f"{path} holds {', '.join(sorted(npz.members)) or 'nothing'}, and no graph. {EXPECTED}"
        raise InputError(msg)
    if kind not in ("csr", "csc", "coo"):
        msg = f"{path} holds a sparse matrix in {kind} format: save it as CSR, CSC or COO."
        raise InputError(msg)
    parts = [_NpzPart(npz, name) for name in (TRIPLES if kind == "coo" else CSR_PARTS[:3])]
    sides = npz.open_checked("shape")
    check_kind(sides.dtype, "iu", sides.where)
    return _matrix(str(path), kind, tuple(sides.read_all().ravel().tolist()), parts, _file_states(path))


def _matrix_in(folder: Hdf5Folder | ZarrFolder, name: str) -> WeightMatrix:
    """Open a sparse matrix in AnnData's layout."""
    where = f"{folder.where}:{name}" if name else folder.where
    attributes = folder.attributes(name)
    kind = KINDS.get(text_of(attributes.get("encoding-type", "")))
    if kind is None:
        between = ":" if isinstance(folder, Hdf5Folder) else "/"
        others = [f"{folder.where}{between}{OBSP}/{member}" for member in folder.members(OBSP)]
        hint = f" Did you mean one of {', '.join(others)}?" if others else ""
        msg = f"{where} is not a graph.{hint} {EXPECTED}"
        raise InputError(msg)
    parts = [matrix_part(folder, path) for path in parts_of(name)]
    shape = stated_shape(folder, name, attributes, where)
    states = _file_states(folder.path) if isinstance(folder, Hdf5Folder) else _states_of(folder, parts_of(name))
    return _matrix(where, kind, shape, parts, states)


def _matrix(
    path: str, kind: str, shape: tuple[int, ...], parts: Sequence[Readable], states: list[list[Any]]
) -> WeightMatrix:
    values, one, other = parts
    identity = {"path": path, "files": states}
    names = TRIPLES if kind == "coo" else CSR_PARTS[:3]
    if len(shape) != 2 or any(len(part.shape) != 1 for part in parts):
        shapes = ", ".join(f"{name} of shape {part.shape}" for name, part in zip(names, parts, strict=True))
        msg = f"{path} holds {shapes}, and its shape is {shape}: that is no sparse matrix."
        raise InputError(msg)
    for part, kinds, name in zip(parts, ("biuf", "iu", "iu"), names, strict=True):
        check_kind(part.dtype, kinds, f"{path}:{name}")
    n_entries = values.shape[0]
    lengths = (n_entries, n_entries if kind == "coo" else shape[0 if kind == "csr" else 1] + 1)
    if (one.shape[0], other.shape[0]) != lengths:
        msg = (
            f"{path} is damaged: it has {n_entries} values, {one.shape[0]} {names[1]} and {other.shape[0]} {names[2]}, "
            f"where a {kind} matrix of shape {shape} has {lengths[0]} and {lengths[1]}."
        )
        raise InputError(msg)
    if kind == "coo":
        return WeightMatrix(path, shape, one, other, values, identity)
    major = EntryRows(other, n_entries, path)
    rows, columns = (major, one) if kind == "csr" else (one, major)
    return WeightMatrix(path, shape, rows, columns, values, identity)


# ------------------------------------------------------------------------------ reading
class _NpzPart:
    """Member of an ``.npz`` file that is opened on first access: a source would unpack it when a run is planned."""

    held_bytes = NPY_BUFFER_BYTES

    def __init__(self, npz: NpzFile, name: str) -> None:
        self._npz, self._name = npz, name
        self.shape, self.dtype = npz.header(name)

    @cached_property
    def _file(self) -> NpyFile:
        return self._npz.open_checked(self._name)

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        return self._file.read(start, stop)


def _file_states(path: StoragePath) -> list[list[Any]]:
    status = path.stat()
    return [[path.name, status.st_size, status.st_mtime_ns]]


def _states_of(folder: ZarrFolder, arrays: tuple[str, ...]) -> list[list[Any]]:
    """Return name, size and time of the metadata files and of some chunks of a group and its arrays.

    The identity of a source does not have the metadata of the group, which name the metric and the encoding.
    """
    files = [(folder.path, folder.path / name) for name in GRAPH_METADATA]
    for array in (folder.need(name) for name in arrays):
        files += [(array.path, array.path / name) for name in GRAPH_METADATA]
        files += [(array.path, file) for file in sampled_chunk_files(array.array, array.path, SAMPLED_CHUNKS).values()]
    names = (f"{root.name}/{file.name_below(root)}" for root, file in files)
    states = map_concurrent(folder.path, file_state, [file for _, file in files])
    return [[name, *state] for name, state in zip(names, states, strict=True) if state is not None]
