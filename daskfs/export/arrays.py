"""Exports as a plain Zarr group, a Parquet table, and an ``.npz`` file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.export.collect import KEY, RunContents, reduced_table
from daskfs.export.selected_data import Reduced, unused_name
from daskfs.kernels.blocks import index_dtype, is_sparse
from daskfs.sources.row_names import NAMES_AT_ONCE

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
    _put(group, NAME_KEY, np.array(names, dtype=object))
    for name, values in columns.items():
        _put(group, name, values)
    if reduced is None:
        return
    for name, values in reduced.row_arrays().items():
        _put(group, name, values)
    if reduced.name_width:
        fill(text_array(group, ROW_NAMES, reduced.info.n_samples, as_zarr=True), reduced.row_names())
    if reduced.info.is_sparse:
        put_csr(group, reduced)
    else:
        info = reduced.info
        chunks = (min(info.n_samples, max(1, EXPORT_CHUNK_VALUES // info.n_features)), info.n_features)
        array = group.create_array(X, shape=(info.n_samples, info.n_features), dtype=info.dtype, chunks=chunks)
        fill(array, reduced.blocks())


def _put(group: Any, name: str, values: np.ndarray) -> None:
    is_text = values.dtype.kind in "UO"
    chunks = (min(max(values.size, 1), EXPORT_CHUNK_VALUES),)
    array = group.create_array(name, shape=values.shape, dtype=str if is_text else values.dtype, chunks=chunks)
    if values.size:
        array[...] = values.astype(object) if is_text else values


def text_array(group: Any, name: str, size: int, *, as_zarr: bool) -> Any:
    """Create an array of strings, shape (size,), in a group of Zarr or HDF5."""
    chunks = (min(size, NAMES_AT_ONCE),)
    if as_zarr:
        return group.create_array(name, shape=(size,), dtype=str, chunks=chunks)
    import h5py

    return group.create_dataset(name, shape=(size,), dtype=h5py.string_dtype(), chunks=chunks)


def fill(array: Any, parts: Iterable[Any]) -> None:
    """Write an array of Zarr or HDF5 from dense parts, each with the values of the rows that follow, in order."""
    start = 0
    for part in parts:
        array[start : start + part.shape[0]] = part
        start += part.shape[0]


def put_csr(group: Any, reduced: Reduced) -> None:
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
    for block in _csr_blocks(reduced):
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

    metadata = {KEY: contents.facts_text()}
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
    called = unused_name(ROW_NAMES, names) if reduced.name_width else None
    schema = pa.schema(
        [(name, pa.from_numpy_dtype(reduced.info.dtype)) for name in names]
        + [(name, pa.array(values[:1]).type) for name, values in row_columns.items()]
        + ([] if called is None else [(called, pa.string())]),
        metadata=metadata,
    )
    row_bytes = reduced.info.n_features * reduced.info.dtype.itemsize
    row_bytes += reduced.name_width + TEXT_BYTES if reduced.name_width else 0
    height = max(1, ROW_GROUP_BYTES // row_bytes)
    with pq.ParquetWriter(path, schema) as writer:
        start = 0
        for block in reduced.blocks():
            for rows in _dense_parts(block, height):
                part = {name: values[start : start + rows.shape[0]] for name, values in row_columns.items()}
                part = dict(zip(names, np.ascontiguousarray(rows.T), strict=True)) | part
                if called is not None:
                    part[called] = reduced.names_of(slice(start, start + rows.shape[0]))
                writer.write_table(pa.table(part, schema=schema))
                start += rows.shape[0]


def _dense_parts(block: np.ndarray | sp.csr_matrix, height: int) -> Iterator[np.ndarray]:
    for start in range(0, block.shape[0], height):
        part = block[start : start + height]
        yield part.toarray() if is_sparse(part) else part


# ------------------------------------------------------------------------------------------------------------ npz
def write_npz(path: Path, contents: RunContents, reduced: Reduced | None) -> None:
    """Write one array for each column of the table, the facts as JSON text, and the rows.

    The rows are ``X``, or the members of SciPy's CSR format. They are written block by block, CSR rows in one pass per
    member.
    """
    names, columns = reduced_table(contents, None if reduced is None else reduced.features)
    small = {NAME_KEY: np.array(names), **columns, KEY: np.array(contents.facts_text())}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        if reduced is not None:
            small |= reduced.row_arrays()
            if reduced.name_width:
                # a character is at least one byte, so the width in bytes is enough
                kind = np.dtype(f"U{reduced.name_width}")
                with _member(archive, ROW_NAMES, (reduced.info.n_samples,), kind) as file:
                    _write_values(file, (part.astype(kind) for part in reduced.row_names()))
            if reduced.info.is_sparse:
                _write_csr(archive, reduced)
            else:
                with _member(archive, X, (reduced.info.n_samples, reduced.info.n_features), reduced.info.dtype) as file:
                    _write_values(file, reduced.blocks())
        for name, values in small.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, values, allow_pickle=False)
            archive.writestr(f"{name}.npy", buffer.getbuffer())


def _write_csr(archive: zipfile.ZipFile, reduced: Reduced) -> None:
    info = reduced.info
    indptr = np.zeros(info.n_samples + 1, dtype=np.int64)
    row = 1
    for block in _csr_blocks(reduced):
        indptr[row : row + block.shape[0]] = np.diff(block.indptr)
        row += block.shape[0]
    np.cumsum(indptr, out=indptr)
    nnz = int(indptr[-1])
    kind = index_dtype(max(nnz, info.n_features))  # SciPy needs one dtype for both
    with _member(archive, "indices", (nnz,), kind) as file:
        _write_values(file, (block.indices.astype(kind, copy=False) for block in _csr_blocks(reduced)))
    with _member(archive, "data", (nnz,), info.dtype) as file:
        _write_values(file, (block.data for block in _csr_blocks(reduced)))
    shape = np.array([info.n_samples, info.n_features], dtype=np.int64)
    for name, values in {"indptr": indptr.astype(kind), "shape": shape, "format": np.array(b"csr")}.items():
        with _member(archive, name, values.shape, values.dtype) as file:
            _write_values(file, [values])


def _csr_blocks(reduced: Reduced) -> Iterator[sp.csr_matrix]:
    for block in reduced.blocks():
        assert is_sparse(block)
        yield block


@contextmanager
def _member(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[IO[bytes]]:
    """Open an ``.npy`` member, write the header of an array in C order, and yield the file for its values."""
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array_header_1_0(file, header)
        yield file


def _write_values(file: IO[bytes], blocks: Iterable[np.ndarray]) -> None:
    for block in blocks:
        if block.size:
            file.write(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)
