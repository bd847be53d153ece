"""Description of a source before it is used as X: its columns, and the members of a file or group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.sources import hdf5
from daskfs.sources.anndata_layout import OBS, Frame, is_anndata
from daskfs.sources.base import SourceSpec
from daskfs.sources.cf import decoding_of
from daskfs.sources.checks import is_generated
from daskfs.sources.column_profile import NUMBERS, ColumnProfile, as_cells
from daskfs.sources.hdf5 import Hdf5Folder
from daskfs.sources.matrices import Folder, is_sparse_group, sparse_matrix
from daskfs.sources.multifile import TABLE_ENDINGS, find_parts, is_pattern, table_ending
from daskfs.sources.tables import files_of, open_table
from daskfs.sources.zarr_array import ZarrFolder, read_metadata
from daskfs.sources.zipped import NpzFile
from daskfs.storage import StoragePath, as_path, first_line

MOST_DISTINCT = 10_000
"""Distinct values of a column that are counted."""
MOST_VALUES = 2_000_000
"""Distinct values that are kept over all columns."""
FEWEST_DISTINCT = 60
"""Distinct values of a column that are counted however many columns there are."""
MATRICES = ("layers", "obsm", "varm", "obsp")
"""Groups of matrices in AnnData's layout."""


@dataclass
class Description:
    """Columns as :meth:`daskfs.sources.column_profile.ColumnProfile.to_json` describes them, and members.

    Members are arrays and sparse matrices, each with name, shape and dtype.
    """

    columns: list[dict[str, Any]] = field(default_factory=list)
    members: list[dict[str, Any]] = field(default_factory=list)

    @property
    def non_numeric(self) -> list[str]:
        """Names of the columns that hold no numbers."""
        return [column["name"] for column in self.columns if column["type"] not in NUMBERS]


def describe_source(spec: SourceSpec) -> Description:
    """Describe a table, an archive, or an HDF5 file or Zarr group; other sources have neither columns nor members.

    Raises
    ------
    InputError
        For a file that cannot be read.
    """
    if is_generated(spec.source):
        return Description()
    path = as_path(spec.source)
    if files := table_files(path):
        return _describe_table(files, spec)
    ending = path.suffix.lower() if path.is_file() else ""
    if ending == ".npz":
        npz = NpzFile(path)
        members = [_member(name, *npz.header(name)) for name in npz.members]
        return Description(_profiles(members, lambda name: npz.open_checked(name).read_all()), members)
    folder: Folder | None = None
    if ending in hdf5.ENDINGS:
        folder = Hdf5Folder(path)
    elif path.is_dir() and read_metadata(path) is not None:
        folder = ZarrFolder(path)
    if folder is None or folder.array("") is not None:
        return Description()
    return _describe_anndata(folder) if is_anndata(folder) else _describe_folder(folder)


def table_files(path: StoragePath) -> list[StoragePath]:
    """Return the files of the table at `path`; none if it is none."""
    if path.is_file():
        return [path] if table_ending(path) in TABLE_ENDINGS else []
    is_group = path.is_dir() and read_metadata(path) is not None
    parts = find_parts(path) if not is_group and (path.is_dir() or is_pattern(path)) else None
    return [] if parts is None else files_of(parts)


def _most_distinct(n_columns: int) -> int:
    return max(FEWEST_DISTINCT, min(MOST_DISTINCT, MOST_VALUES // max(n_columns, 1)))


def _describe_table(files: Sequence[StoragePath], spec: SourceSpec) -> Description:
    import pyarrow as pa

    profiles: list[ColumnProfile] = []
    for file in files:
        table = open_table(file, spec)
        most = _most_distinct(len(table.columns))
        index = table.index_columns
        profiles = profiles or [ColumnProfile(name, most, table.numerals, name in index) for name in table.columns]
        for part in table.parts():
            for profile, cells in zip(profiles, part, strict=False):
                try:
                    profile.add(cells)
                except (pa.ArrowInvalid, UnicodeDecodeError) as error:  # Parquet is read without a look at its text
                    msg = f"{file}: column {profile.name!r} holds text that is not valid Unicode: {first_line(error)}."
                    raise InputError(msg) from error
    return Description([profile.to_json() for profile in profiles])


def _describe_folder(folder: Folder) -> Description:
    names = dict.fromkeys([*folder.arrays(), *folder.members()])
    members = list(_matrices(folder, names))
    return Description(_profiles(members, lambda name: _array(folder, name)), members)


def _describe_anndata(folder: Folder) -> Description:
    obs = Frame(folder, OBS)
    names = ["X", "raw/X", *(f"{group}/{name}" for group in MATRICES for name in folder.members(group))]
    columns = [_profile(name, obs.read, _most_distinct(len(obs.columns))) for name in obs.columns]
    for column in columns:
        if column["name"] == obs.index:
            column["looks_like"] = "row name"
    return Description(columns, list(_matrices(folder, names)))


def _matrices(folder: Folder, names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the arrays and sparse matrices among some members."""
    for name in names:
        if (array := folder.array(name)) is not None:
            yield _member(name, array.shape, array.dtype)
        elif is_sparse_group(folder, name):
            matrix = sparse_matrix(folder, name)
            yield {**_member(name, matrix.shape, matrix.dtype), "nnz": matrix.nnz}


def _member(name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> dict[str, Any]:
    return {"name": name, "shape": [int(size) for size in shape], "dtype": str(dtype)}


def _profiles(members: Sequence[dict[str, Any]], read: Callable[[str], np.ndarray]) -> list[dict[str, Any]]:
    """Return the profiles of the vectors that have a value for each row of a matrix."""
    rows = {member["shape"][0] for member in members if len(member["shape"]) == 2}
    rows |= {rows_of for member in members if member["name"] == "shape" for rows_of in read("shape")[:1].tolist()}
    vectors = [member["name"] for member in members if len(member["shape"]) == 1 and member["shape"][0] in rows]
    return [_profile(name, read, _most_distinct(len(vectors))) for name in vectors]


def _profile(name: str, read: Callable[[str], np.ndarray], most: int) -> dict[str, Any]:
    profile = ColumnProfile(name, most)
    try:
        profile.add(as_cells(read(name)))
    except InputError as error:
        return {"name": name, "type": "unreadable", "n_missing": None, "n_distinct": None, "looks_like": str(error)}
    return profile.to_json()


def _array(folder: Folder, name: str) -> np.ndarray:
    array = folder.array(name)
    assert array is not None
    values, decode = array[...], decoding_of(array)
    return values if decode is None else decode.of_column(values)
