"""Exports as a plain Zarr group, a Parquet table, and an ``.npz`` file."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.export.collect import KEY, RunContents, reduced_table
from daskfs.export.selected_data import Reduced, unused_name
from daskfs.kernels.blocks import index_dtype, is_sparse
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.sources.row_names import NAMES_AT_ONCE
from daskfs.store.row_names import decode_names, row_names_of

EXPORT_CHUNK_VALUES = 2**20
ROW_GROUP_BYTES = 2**26
TEXT_BYTES = 128
"""Overhead of a string in bytes, in addition to its characters, while it is written."""
X = "X"
NAME_KEY = "name"
ROW_NAMES = "row_names"


# ----------------------------------------------------------------------------------------------------------- Zarr
def write_zarr(path: Path, contents: RunContents, reduced: Reduced | None) -> None:
    """Write a group of Zarr v3.

    It has an array for each column of the table, ``X``, labels and per-sample columns, and the facts as attributes. CSR
    data become a group of ``data``, ``indices`` and ``indptr`` in AnnData's layout.
    """
    import zarr

    names, columns = reduced_table(contents, None if reduced is None else reduced.features)
    group = zarr.create_group(store=str(path), zarr_format=3, attributes={KEY: contents.facts})
    arrays = {NAME_KEY: np.array(names, dtype=object), **columns, **({} if reduced is None else reduced.row_arrays())}
    for name, values in arrays.items():
        _put(group, name, values)
    if reduced is None:
        return
    if reduced.name_width:
        put_row_names(group, ROW_NAMES, reduced)
    if reduced.info.is_sparse:
        _put_csr(group, reduced)
    else:
        put_dense(group, reduced)


def _put(group: Any, name: str, values: np.ndarray) -> None:
    is_text = values.dtype.kind in "UO"
    chunks = (min(max(values.size, 1), EXPORT_CHUNK_VALUES),)
    array = group.create_array(name, shape=values.shape, dtype=str if is_text else values.dtype, chunks=chunks)
    if values.size:
        array[...] = values.astype(object) if is_text else values


def put_row_names(group: Any, name: str, reduced: Reduced) -> Any:
    """Write the names of the rows into a new array of a group of Zarr or HDF5, which is returned."""
    size = reduced.info.n_samples
    return _put_parts(group, name, (size,), str, (min(size, NAMES_AT_ONCE),), reduced.row_names())


def put_dense(group: Any, reduced: Reduced) -> Any:
    """Write dense rows, block by block, into a new array of a group of Zarr or HDF5, which is returned."""
    shape = (reduced.info.n_samples, reduced.info.n_features)
    chunks = (min(shape[0], max(1, EXPORT_CHUNK_VALUES // shape[1])), shape[1])
    return _put_parts(group, X, shape, reduced.info.dtype, chunks, reduced.blocks())


def _put_parts(
    group: Any, name: str, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...], parts: Iterable[Any]
) -> Any:
    """Write dense parts, each of the rows that follow, into a new array; `str` is the dtype of strings."""
    if hasattr(group, "create_array"):  # of Zarr
        array = group.create_array(name, shape=shape, dtype=dtype, chunks=chunks)
    else:
        import h5py

        dtype = h5py.string_dtype() if dtype is str else dtype
        array = group.create_dataset(name, shape=shape, dtype=dtype, chunks=chunks)
    start = 0
    for part in parts:
        array[start : start + part.shape[0]] = part
        start += part.shape[0]
    return array


def _put_csr(group: Any, reduced: Reduced) -> None:
    """Write CSR rows into a group of Zarr in AnnData's layout, block by block."""
    info = reduced.info
    attributes = {
        "encoding-type": "csr_matrix",
        "encoding-version": "0.1.0",
        "shape": [info.n_samples, info.n_features],
    }
    parts = group.create_group(X, attributes=attributes)
    indptr = np.zeros(info.n_samples + 1, dtype=np.int64)
    data, indices = (
        parts.create_array(name, shape=(0,), dtype=dtype, chunks=(EXPORT_CHUNK_VALUES,))
        for name, dtype in (("data", info.dtype), ("indices", np.int32))
    )
    row = 0
    for block in reduced.blocks():
        data.append(block.data)
        indices.append(block.indices.astype(np.int32, copy=False))
        indptr[row + 1 : row + 1 + block.shape[0]] = indptr[row] + block.indptr[1:]
        row += block.shape[0]
    _put(parts, "indptr", indptr)


# -------------------------------------------------------------------------------------------------------- Parquet
def write_parquet(path: Path, contents: RunContents, reduced: Reduced | None) -> None:
    """Write the table, or the rows, dense, with labels and per-sample columns.

    The facts are JSON under the key "daskfs" of the schema's metadata. :class:`InputError` if two selected features
    have the same name.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = {KEY: json.dumps(contents.facts, sort_keys=True)}
    if reduced is None:
        table = pa.table({NAME_KEY: contents.names, **contents.columns}).replace_schema_metadata(metadata)
        pq.write_table(table, path)
        return
    names = [contents.names[feature] for feature in reduced.features]
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        msg = f"two selected features are called '{twice}', and a table has one column of a name: use zarr."
        raise InputError(msg)
    row_columns = {unused_name(name, names): values for name, values in reduced.row_arrays().items()}
    names_column = unused_name(ROW_NAMES, names)
    fields = [(name, pa.from_numpy_dtype(reduced.info.dtype)) for name in names]
    fields += [(name, pa.array(values[:1]).type) for name, values in row_columns.items()]
    row_bytes = reduced.info.n_features * reduced.info.dtype.itemsize
    if reduced.name_width:
        fields.append((names_column, pa.string()))
        row_bytes += reduced.name_width + TEXT_BYTES
    schema, start = pa.schema(fields, metadata=metadata), 0
    with pq.ParquetWriter(path, schema) as writer:
        for block in reduced.blocks():
            for span in row_blocks(block.shape[0], max(1, ROW_GROUP_BYTES // row_bytes)):
                part = block[span].toarray() if is_sparse(block) else block[span]
                rows = slice(start, start + part.shape[0])
                columns = dict(zip(names, np.ascontiguousarray(part.T), strict=True))
                columns |= {name: values[rows] for name, values in row_columns.items()}
                if reduced.name_width:
                    columns[names_column] = decode_names(row_names_of(contents.tiles, rows))
                writer.write_table(pa.table(columns, schema=schema))
                start = rows.stop


# ------------------------------------------------------------------------------------------------------------ npz
def write_npz(path: Path, contents: RunContents, reduced: Reduced | None) -> None:
    """Write one array for each column of the table, the facts as JSON text, and the rows.

    The rows are ``X``, or the members of SciPy's CSR format. They are written block by block, CSR rows in one pass per
    member.
    """
    names, columns = reduced_table(contents, None if reduced is None else reduced.features)
    small = {NAME_KEY: np.array(names), **columns, KEY: np.array(json.dumps(contents.facts, sort_keys=True))}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        if reduced is not None:
            small |= reduced.row_arrays()
            if reduced.name_width:
                # a character is at least one byte, so the width in bytes is enough
                kind = np.dtype(f"U{reduced.name_width}")
                parts = (part.astype(kind) for part in reduced.row_names())
                _write_member(archive, ROW_NAMES, (reduced.info.n_samples,), kind, parts)
            if reduced.info.is_sparse:
                _write_csr(archive, reduced)
            else:
                shape = (reduced.info.n_samples, reduced.info.n_features)
                _write_member(archive, X, shape, reduced.info.dtype, reduced.blocks())
        for name, values in small.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, values, allow_pickle=False)
            archive.writestr(f"{name}.npy", buffer.getbuffer())


def _write_csr(archive: zipfile.ZipFile, reduced: Reduced) -> None:
    info = reduced.info
    indptr = np.zeros(info.n_samples + 1, dtype=np.int64)
    row = 1
    for block in reduced.blocks():
        indptr[row : row + block.shape[0]] = np.diff(block.indptr)
        row += block.shape[0]
    np.cumsum(indptr, out=indptr)
    nnz = int(indptr[-1])
    kind = index_dtype(max(nnz, info.n_features))  # SciPy needs one dtype for both
    indices = (block.indices.astype(kind, copy=False) for block in reduced.blocks())
    _write_member(archive, "indices", (nnz,), kind, indices)
    _write_member(archive, "data", (nnz,), info.dtype, (block.data for block in reduced.blocks()))
    shape = np.array([info.n_samples, info.n_features], dtype=np.int64)
    for name, values in {"indptr": indptr.astype(kind), "shape": shape, "format": np.array(b"csr")}.items():
        _write_member(archive, name, values.shape, values.dtype, [values])


def _write_member(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], blocks: Iterable[Any]
) -> None:
    """Write an ``.npy`` member in C order from dense blocks of the rows that follow."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            if block.size:
                file.write(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)
