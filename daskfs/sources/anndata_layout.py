"""X, labels and names in AnnData's layout, in an HDF5 file (``.h5ad``) or a Zarr group.

The layout is AnnData's on-disk format, encodings 0.1.0 and 0.2.0. Only matrices and single columns of ``obs`` and
``var`` are read, by readers that follow no links out of a file and unpickle nothing. The package anndata would cost
each process more than a second and restrict the version of pandas.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.base import SourceSpec
from daskfs.sources.checks import shorten_names, unknown_name
from daskfs.sources.group_source import Columns, GroupContents
from daskfs.sources.hdf5 import text_of
from daskfs.sources.matrices import DenseMatrix, Folder, Matrix, is_sparse_group, parts_of, sparse_matrix
from daskfs.sources.values import decoded

OBS, VAR, RAW_VAR = "obs", "var", "raw/var"
ENCODING = "encoding-type"
CATEGORIES = "__categories"
"""Group in which anndata before 0.8 stores the names of categories."""
MASKED = ("nullable-integer", "nullable-boolean", "nullable-string-array")


def is_anndata(folder: Folder) -> bool:
    """Return whether a group's encoding attribute is that of AnnData."""
    return text_of(folder.attributes("").get(ENCODING, "")) == "anndata"


def anndata_contents(spec: SourceSpec, folder: Folder) -> GroupContents:
    """Find X, its labels, per-sample columns and names.

    X is ``X``, or what ``data.array`` names: ``layers/NAME``, ``raw/X`` or ``obsm/NAME``. Labels and per-sample columns
    are columns of ``obs``, in which a missing label is an unlabeled row; its index holds the row names. Feature names
    are the index of ``var`` (or ``raw/var``), or its column that ``data.feature_names`` names; ``obsm`` has none.
    """
    name = "X" if spec.array is None else spec.array
    matrix, arrays = _matrix(folder, name)
    obs = Frame(folder, OBS)
    if obs.n_rows is not None and obs.n_rows != matrix.shape[0]:
        msg = f"{folder.where}: obs has {obs.n_rows} rows, {name} has {matrix.shape[0]}."
        raise InputError(msg)
    rows = Columns(obs.columns, obs.read, "column of obs", obs.arrays_of)
    called = obs.index if obs.index in obs.columns else None
    if name not in ("X", "raw/X") and not name.startswith("layers/"):
        return GroupContents(folder, matrix, arrays, rows, Columns((), obs.read), row_names=called)
    var = Frame(folder, RAW_VAR if name == "raw/X" else VAR)
    names = var.index_values()
    if len(names) != matrix.shape[1]:
        msg = f"{folder.where}: {var.name} has {len(names)} rows, {name} has {matrix.shape[1]} columns."
        raise InputError(msg)
    columns = Columns(var.columns, var.read_names, f"column of {var.name}", var.arrays_of)
    return GroupContents(folder, matrix, arrays, rows, columns, names, var.arrays_of(var.index), called)


def _matrix(folder: Folder, name: str) -> tuple[Matrix, tuple[str, ...]]:
    if (array := folder.array(name)) is not None:
        return DenseMatrix(array), (name,)
    if is_sparse_group(folder, name):
        return sparse_matrix(folder, name), parts_of(name)
    layers, obsm = ([f"{group}/{member}" for member in folder.members(group)] for group in ("layers", "obsm"))
    there = [candidate for candidate in ("X", *layers, "raw/X", *obsm) if _is_matrix(folder, candidate)]
    raise unknown_name(name, "matrix", there, folder.where)


def _is_matrix(folder: Folder, name: str) -> bool:
    array = folder.array(name)
    return len(array.shape) == 2 if array is not None else is_sparse_group(folder, name)


class Frame:
    """A table of AnnData, the group `name`, with one member per column.

    Attributes
    ----------
    index
        Name of the column of row names.
    columns
        Names of all columns, the index last.
    n_rows
        Length of the index; None if it is not a plain array.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder, self.name = folder, name
        self._where = f"{folder.where}:{name}"
        if not folder.is_group(name):
            old = ", written by a version of anndata before 0.7: open it with anndata and write it again"
            msg = f"{self._where} is not a table in AnnData's layout{old if folder.array(name) else ''}."
            raise InputError(msg)
        attributes = folder.attributes(name)
        self.index = text_of(attributes.get("_index", "_index"))
        order = [text_of(column) for column in np.asarray(attributes.get("column-order", ())).ravel()]
        there = set(folder.members(name)) - {CATEGORIES}
        self.columns = tuple(column for column in (*order, self.index) if column in there)
        index = folder.array(f"{name}/{self.index}")
        self.n_rows = index.shape[0] if index is not None and index.shape else None

    def arrays_of(self, column: str) -> tuple[str, ...]:
        """Return the names of the arrays that hold a column."""
        path = f"{self.name}/{column}"
        if self._folder.array(path) is not None:
            categories = f"{self.name}/{CATEGORIES}/{column}"
            return (path, *([categories] if self._folder.array(categories) is not None else ()))
        return tuple(f"{path}/{part}" for part in self._folder.members(path))

    def index_values(self) -> tuple[str, ...]:
        """Return the row names; raise :class:`InputError` if there is no index."""
        if self.n_rows is None and not self._folder.is_group(f"{self.name}/{self.index}"):
            msg = f"{self._where} has no index {self.index!r}."
            raise InputError(msg)
        return tuple(str(name) for name in self.read(self.index))

    def read_names(self, column: str, rows: slice = slice(None)) -> np.ndarray:
        """Return a column of names, shape (n_rows,), or some of its rows; a missing one raises :class:`InputError`."""
        values = self.read(column, rows)
        missing = [row for row, value in enumerate(values) if value is None] if values.dtype.kind == "O" else []
        if missing:
            more = f" and {len(missing) - 1} more rows" if len(missing) > 1 else ""
            msg = f"{self._where}/{column} has no name in row {missing[0]}{more}: name another column."
            raise InputError(msg)
        return values

    def read(self, column: str, rows: slice = slice(None)) -> np.ndarray:
        """Return a column, shape (n_rows,), or some of its rows.

        Plain numbers keep their dtype. Text, categories and columns with missing values are objects, None if missing.
        Categories other than integers and booleans become text, so that they remain classes. An unknown encoding raises
        :class:`InputError`.
        """
        path = f"{self.name}/{column}"
        if (array := self._folder.array(path)) is not None:
            categories = self._folder.array(f"{self.name}/{CATEGORIES}/{column}")
            return array[rows] if categories is None else _categorical(array[rows], categories[:], array.where)
        encoding = text_of(self._folder.attributes(path).get(ENCODING, "none"))
        if encoding == "categorical":
            codes, names = self._part(path, "codes", rows), self._part(path, "categories")
            return _categorical(codes, names, f"{self._where}/{column}")
        if encoding in MASKED:
            values, mask = self._part(path, "values", rows), self._part(path, "mask", rows)
            return _mask_values(values, mask, f"{self._where}/{column}")
        encodings = shorten_names(("array", "string-array", "categorical", *MASKED))
        msg = f"{self._where}/{column} is encoded as {encoding!r}; read are columns encoded as {encodings}."
        raise InputError(msg)

    def _part(self, path: str, name: str, rows: slice = slice(None)) -> np.ndarray:
        if (array := self._folder.array(f"{path}/{name}")) is not None:
            return array[rows]
        if self._folder.is_group(f"{path}/{name}"):  # text that may be missing
            return self.read(f"{path.removeprefix(self.name + '/')}/{name}", rows)
        msg = f"{self._folder.where}:{path} is damaged: it has no {name!r}."
        raise InputError(msg)


def _categorical(codes: np.ndarray, categories: np.ndarray, where: str) -> np.ndarray:
    if codes.dtype.kind not in "iu" or codes.ndim != 1 or categories.ndim != 1:
        msg = f"{where} is damaged: its codes have dtype {codes.dtype} and shape {codes.shape}."
        raise InputError(msg)
    if codes.size and (codes.min() < -1 or codes.max() >= len(categories)):
        wrong = int(np.flatnonzero((codes < -1) | (codes >= len(categories)))[0])
        msg = f"{where} is damaged: row {wrong} has category {codes[wrong]} of {len(categories)}."
        raise InputError(msg)
    # a category is a class, but a fractional number would count as a regression target
    named: list[Any] = categories.tolist()
    if categories.dtype.kind not in "iub":
        named = [None if one is None or one != one else str(decoded(one)) for one in categories]
    return np.asarray(np.array([*named, None], dtype=object)[codes])


def _mask_values(values: np.ndarray, mask: np.ndarray, where: str) -> np.ndarray:
    if mask.dtype.kind not in "bu" or mask.shape != values.shape:
        msg = f"{where} is damaged: it has values of shape {values.shape} and a mask of {mask.shape}."
        raise InputError(msg)
    missing = mask.astype(bool)
    if missing.any():
        values = values.astype(object)
        values[missing] = None
    return values
