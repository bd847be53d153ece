"""Counts of single cells written by 10x Genomics' Cell Ranger.

The matrix is features x cells in CSC format, so that cells, the rows of X, can be read in ranges.
"""

from __future__ import annotations

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.base import SourceSpec
from daskfs.sources.checks import check_shape, shorten_names, unknown_name
from daskfs.sources.csr import CSR_PARTS, CsrParts
from daskfs.sources.group_source import Columns, GroupContents
from daskfs.sources.matrices import Folder, SourceArray, parts_of

BARCODES = "barcodes"
ID_BY_NAME = {"features/name": "features/id", "gene_names": "genes"}
"""Arrays of feature names, and of their identifiers: since Cell Ranger 3, and before."""
PARTS = (*CSR_PARTS, BARCODES)


def find_tenx(spec: SourceSpec, folder: Folder) -> str | None:
    """Return the group of counts in a Cell Ranger file: ``matrix``, or the genome before version 3.

    None if the file is not one, or ``data.array`` names another array. Several groups raise :class:`InputError` unless
    ``data.array`` names one.
    """
    groups = [name for name in folder.members() if _is_tenx(folder, name)]
    if spec.array is not None:
        return spec.array if spec.array in groups else None
    if len(groups) > 1:
        msg = f"{folder.where} holds counts for {shorten_names(groups)}: name one by data.array."
        raise InputError(msg)
    return groups[0] if groups else None


def _is_tenx(folder: Folder, name: str) -> bool:
    members = set(folder.members(name))
    return set(PARTS) <= members and ("features" in members or "gene_names" in members)


def tenx_contents(folder: Folder, name: str) -> GroupContents:
    """Find X, its names and columns in the group `name`.

    Feature names are the file's, which may repeat, or the column that ``data.feature_names`` names, such as
    ``features/id``. Labels come from a separate file. ``barcodes`` is a column and holds the row names.
    """
    shape = _need_array(folder, f"{name}/shape")
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        msg = f"{shape.where} has shape {shape.shape} and dtype {shape.dtype}; it is (features, cells)."
        raise InputError(msg)
    n_features, n_samples = check_shape(shape[:].tolist(), shape.where)
    parts = [_need_array(folder, path) for path in parts_of(name)]
    matrix = CsrParts(f"{folder.where}:{name}", (n_samples, n_features), *parts)
    called = next(path for path in ID_BY_NAME if folder.array(f"{name}/{path}") is not None or path == "gene_names")

    def read(column: str, rows: slice = slice(None)) -> np.ndarray:
        return _need_array(folder, f"{name}/{column}")[rows]

    def arrays_of(column: str) -> tuple[str, ...]:
        return (f"{name}/{column}",)

    columns = Columns(_feature_columns(folder, name, n_features), read, "feature column", arrays_of)
    if called not in columns.names:
        msg = f"{folder.where}:{name} has no names of its {n_features} features under {called!r}."
        raise InputError(msg)
    rows = Columns((BARCODES,), read, arrays_of=arrays_of)
    names = tuple(str(value) for value in read(called))
    return GroupContents(folder, matrix, parts_of(name), rows, columns, names, arrays_of(called), BARCODES)


def _feature_columns(folder: Folder, name: str, n_features: int) -> tuple[str, ...]:
    inside = [f"features/{member}" for member in folder.members(f"{name}/features")]
    arrays = {path: folder.array(f"{name}/{path}") for path in (*inside, *ID_BY_NAME, *ID_BY_NAME.values())}
    return tuple(path for path, array in arrays.items() if array is not None and array.shape == (n_features,))


def _need_array(folder: Folder, name: str) -> SourceArray:
    if (array := folder.array(name)) is None:
        raise unknown_name(name, "array", folder.members(name.rpartition("/")[0]), folder.where)
    return array
