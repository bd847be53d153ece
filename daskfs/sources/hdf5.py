"""HDF5 files, local or in an object store.

External links, external storage and virtual datasets point to other files, so that the writer of a file could choose
which files its reader opens. Names are therefore followed link by link, and what leads out of the file is refused.
References and variable-length lists are refused as well, and nothing is unpickled.
"""

from __future__ import annotations

import io
import math
import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.digits import as_floats
from daskfs.sources.checks import file_identity
from daskfs.sources.values import decoded
from daskfs.storage import ObjectPath, StoragePath, first_line
from daskfs.storage.objects import ObjectFile

if TYPE_CHECKING:
    import h5py

ENDINGS = (".h5ad", ".h5", ".hdf5", ".nc", ".nc4")
# errors that h5py raises for invalid files, names and values
HDF5_ERRORS = (OSError, RuntimeError, ValueError, TypeError, KeyError, NotImplementedError, EOFError)
QUOTES = "'\" "
"""Signs around the messages of h5py."""
OBJECT_BUFFER_BYTES = 2**20
"""Minimum bytes per request to an object store; HDF5 reads metadata in smaller pieces."""
LINKS_FOLLOWED = 16
PLAIN_DIMENSION = "This is a netCDF dimension but not a netCDF variable"


@contextmanager
def open_file(path: StoragePath) -> Iterator[h5py.File]:
    """Open a file for reading, without locks.

    Each read opens the file, which takes 0.5 ms, because a process (such as a notebook) cannot rewrite a file that it
    holds open. Without locks, many processes can read it on any file system; size and modification time show changes.

    Raises
    ------
    InputError
        For invalid data or other failures within the block.
    OSError
        If the system or an object store does not return the file.
    """
    if find_spec("h5py") is None:
        msg = f"{path} is read by the package h5py: pip install 'daskfs[hdf5]'."
        raise InputError(msg)
    import h5py

    try:
        if isinstance(path, ObjectPath):
            source: Any = io.BufferedReader(_PatientFile(path), OBJECT_BUFFER_BYTES)
            with source, h5py.File(source, "r") as file:
                yield file
        else:
            with _open_unlocked(path) as file:
                yield file
    except InputError:
        raise
    except HDF5_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:  # the file was not returned
            if path.is_remote:
                raise
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        msg = f"{path} is truncated, damaged or not in HDF5 format: {first_line(error).strip(QUOTES)}"
        raise InputError(msg) from error


class _PatientFile(ObjectFile):
    """An object that is read by one request at a time, in the calling thread.

    Other readers of objects send requests from several threads. HDF5 holds its global lock while it reads; it would
    deadlock with a request thread whose garbage collector frees an unused dataset, which needs that lock.
    """

    def _fill(self, start: int, view: memoryview) -> None:
        self._path.fill_piece((start, view))


def _open_unlocked(path: StoragePath) -> h5py.File:
    import h5py

    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        if "locking flag" not in str(error):  # the same process holds the file open with locks
            raise
        return h5py.File(path, "r")


# ----------------------------------------------------------------------------------------- groups, datasets, attributes
def find(file: h5py.File, name: str, where: str) -> h5py.Group | h5py.Dataset | None:
    """Return the group or dataset at a path of a file, which is `where` in messages, or None if it does not exist.

    Raises
    ------
    InputError
        If the path leads out of the file or through more than 16 links, or a filter of the dataset is not installed.
    """
    import h5py

    node, followed, parts = file["/"], 0, deque(name.split("/"))
    while parts:
        part = parts.popleft()
        if part in ("", "."):
            continue
        link = _link(node, part, f"{where}:{name}") if isinstance(node, h5py.Group) else None
        if link is None:
            return None
        if isinstance(link, h5py.SoftLink):
            followed += 1
            if followed > LINKS_FOLLOWED:
                msg = f"{where}:{name} is a link that leads through more than {LINKS_FOLLOWED} others."
                raise InputError(msg)
            node = file["/"] if link.path.startswith("/") else node
            parts.extendleft(reversed(link.path.split("/")))
            continue
        node = node[part]
    if isinstance(node, h5py.Dataset):
        _check_dataset(node, f"{where}:{name}")
    return node if isinstance(node, h5py.Dataset | h5py.Group) else None


def _link(group: h5py.Group, name: str, where: str) -> Any:
    import h5py

    try:
        link = group.get(name, getlink=True)
    except TypeError as error:  # a user-defined link, which needs a plugin
        msg = f"{where} is a link of a kind that is not followed."
        raise InputError(msg) from error
    if isinstance(link, h5py.ExternalLink):
        msg = (
            f"{where} is a link into another file, {link.filename}, which is not followed: copy what it names into "
            "this file, or name that file."
        )
        raise InputError(msg)
    return link


def members_of(node: h5py.Group | h5py.Dataset | None) -> tuple[str, ...]:
    """Return the sorted names of the direct members of a group; none if `node` is not a group.

    Links into other files and NetCDF dimensions without a variable are left out.
    """
    import h5py

    if not isinstance(node, h5py.Group):
        return ()
    return tuple(sorted(name for name in node if _lies_within(node, name)))


def _lies_within(group: h5py.Group, name: str) -> bool:
    import h5py

    try:
        kind = group.get(name, getclass=True, getlink=True)
    except TypeError:
        return False
    if kind is not h5py.HardLink:
        return kind is h5py.SoftLink
    node = group[name]
    return not (isinstance(node, h5py.Dataset) and text_of(node.attrs.get("NAME", "")).startswith(PLAIN_DIMENSION))


def _check_dataset(dataset: h5py.Dataset, where: str) -> None:
    import h5py

    if dataset.is_virtual or dataset.external:
        msg = f"{where} lies in other files, which are not read: write its values into this one."
        raise InputError(msg)
    filters = dataset.id.get_create_plist()
    for index in range(filters.get_nfilters()):
        code, _, _, label = filters.get_filter(index)
        if not h5py.h5z.filter_avail(code) and find_spec("hdf5plugin") is not None:
            import hdf5plugin  # noqa: F401  # registers them
        if not h5py.h5z.filter_avail(code):
            name = label.decode("ascii", "replace") or "unnamed"
            msg = (
                f"{where} is compressed by filter {code} ({name}), which is not installed: pip install hdf5plugin, or "
                "write it with gzip."
            )
            raise InputError(msg)


def text_of(value: Any) -> str:
    """Return the text of an attribute that is stored as text, bytes or an array of one of these."""
    value = value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
    return str(decoded(value))


def attributes_of(node: h5py.Group | h5py.Dataset) -> dict[str, Any]:
    """Return the attributes of a group or dataset, without compound types, references and lists."""
    import h5py

    attributes = {}
    for name in node.attrs:
        dtype = node.attrs.get_id(name).dtype
        if dtype.kind == "V" or (dtype.kind == "O" and h5py.check_string_dtype(dtype) is None):
            continue
        attributes[name] = node.attrs[name]
    return attributes


def dimension_names(dataset: h5py.Dataset) -> tuple[str | None, ...]:
    """Return the name of each dimension from HDF5's dimension scales, as in NetCDF; None for an unnamed one."""
    if dataset.is_scale and dataset.ndim == 1 and not len(dataset.dims[0]):  # a coordinate is its own dimension
        return (PurePosixPath(dataset.name).name,)
    return tuple(PurePosixPath(dim[0].name).name if len(dim) else dim.label or None for dim in dataset.dims)


class Hdf5Array:
    """A dataset of a file that is read in parts.

    Parameters
    ----------
    name
        Path of the dataset in the file.

    Attributes
    ----------
    shape, dtype
        As stored; text has dtype object.
    chunks
        Chunk shape; None for a contiguous array.
    held_bytes
        Memory of a read in bytes in addition to the values: one chunk, stored and decoded.
    attributes
        Attributes that hold numbers or text.
    dimensions
        Names of the dimensions; None for an unnamed one.
    fill_value
        What the writer set unwritten values to; None for none, which reads as 0.
    """

    def __init__(self, path: StoragePath, dataset: h5py.Dataset, name: str) -> None:
        import h5py

        self._path, self._name = path, name
        self.where = f"{path}:{name}"
        self.shape: tuple[int, ...] = tuple(dataset.shape or ())
        self._text = h5py.check_string_dtype(dataset.dtype) is not None
        self.dtype = np.dtype(object) if self._text else np.dtype(dataset.dtype)
        self.chunks: tuple[int, ...] | None = dataset.chunks
        self.held_bytes = 2 * math.prod(dataset.chunks) * dataset.dtype.itemsize if dataset.chunks else 0
        self.attributes: Mapping[str, Any] = attributes_of(dataset)
        self.dimensions = dimension_names(dataset)
        is_set = dataset.id.get_create_plist().fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
        self.fill_value: Any = dataset.fillvalue if is_set and self.dtype.kind in "iuf" else None

    def __getitem__(self, selection: Any) -> np.ndarray:
        with self._reading(selection) as dataset:
            if self._text:
                return np.asarray(dataset.asstr()[selection], dtype=object)
            return np.asarray(dataset[selection])

    def read(self, start: int, stop: int, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        """Return ``array[start:stop]`` in C order, converted to `dtype` (by default the file's, native)."""
        out = np.empty((stop - start, *self.shape[1:]), dtype or self.dtype.newbyteorder("="))
        self.fill(out, start)
        return out

    def fill(self, out: np.ndarray, start: int) -> None:
        """Read the rows from `start` on into `out`, shape (n_rows, ...), converted to its dtype."""
        rows = slice(start, start + len(out))
        if out.dtype != self.dtype or not out.flags.c_contiguous or not out.size:
            out[...] = as_floats(self[rows], out.dtype)
            return
        with self._reading(rows) as dataset:
            dataset.read_direct(out, np.s_[rows])

    def absence(self, *, of_column: bool = False) -> None:
        """Raise :class:`InputError` for chunks whose size is 0 in the index of a damaged file.

        In their place HDF5 returns memory that holds anything. Chunks that the writer left out read as the fill value.
        """
        del of_column  # as of an array of Zarr, where others are told
        if self.chunks is None:
            return
        lost = list[tuple[int, ...]]()
        with self._reading(()) as dataset:
            dataset.id.chunk_iter(lambda chunk: None if chunk.size else lost.append(chunk.chunk_offset))
        if lost:
            msg = f"{self.where} is damaged: its index has no place for {len(lost)} chunks: restore the file."
            raise InputError(msg)

    @contextmanager
    def _reading(self, selection: Any) -> Iterator[h5py.Dataset]:
        import h5py

        if self.dtype.hasobject and not self._text:
            msg = f"{self.where} holds references or lists, which are not read; save numbers or text."
            raise InputError(msg)
        rows = selection[0] if isinstance(selection, tuple) and selection else selection
        within = f" within rows {rows.start}:{rows.stop}" if isinstance(rows, slice) and rows.stop is not None else ""
        with open_file(self._path) as file:
            dataset = find(file, self._name, str(self._path))
            if not isinstance(dataset, h5py.Dataset):
                msg = f"{self.where} went away while it was being read."
                raise InputError(msg)
            try:
                yield dataset
            except HDF5_ERRORS as error:
                if isinstance(error, InputError) or (isinstance(error, OSError) and error.errno is not None):
                    raise
                msg = f"{self.where} is damaged{within}: {first_line(error).strip(QUOTES)}"
                raise InputError(msg) from error


class Hdf5Folder:
    """The arrays and groups of the HDF5 file at `path`, named by paths with slashes, empty for the file itself."""

    def __init__(self, path: StoragePath) -> None:
        self.path, self.where = path, str(path)
        self._opened: dict[str, Hdf5Array] = {}

    def members(self, name: str = "") -> tuple[str, ...]:
        """Return the sorted names of the direct members of a group, without links into other files."""
        with open_file(self.path) as file:
            return members_of(find(file, name, self.where))

    def arrays(self) -> dict[str, int]:
        """Return the number of dimensions of each dataset directly in the file, by sorted name."""
        with open_file(self.path) as file:
            import h5py

            # soft links may lead to an array that has a name of its own
            names = [name for name in members_of(file) if file.get(name, getclass=True, getlink=True) is h5py.HardLink]
            return {name: node.ndim for name in names if isinstance(node := file[name], h5py.Dataset)}

    def is_group(self, name: str) -> bool:
        """Return whether `name` is a group."""
        with open_file(self.path) as file:
            import h5py  # after open_file has checked that it is installed

            return isinstance(find(file, name, self.where), h5py.Group)

    def array(self, name: str) -> Hdf5Array | None:
        """Return the dataset `name`, or None if there is none."""
        if name not in self._opened:
            with open_file(self.path) as file:
                import h5py

                node = find(file, name, self.where)
                if not isinstance(node, h5py.Dataset):
                    return None
                self._opened[name] = Hdf5Array(self.path, node, name)
        return self._opened[name]

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of a dataset or a group."""
        with open_file(self.path) as file:
            node = find(file, name, self.where)
            return {} if node is None else attributes_of(node)

    def identity(self, arrays: tuple[str, ...], selection: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of the file and the selection, JSON-able, for change detection."""
        del arrays  # all are in one file
        return file_identity("hdf5", self.path, **selection)
