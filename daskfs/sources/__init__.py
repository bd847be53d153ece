"""Data sources: files, generated data and dask collections, all read by ranges of rows."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from daskfs.errors import InputError
from daskfs.sources import hdf5
from daskfs.sources.base import SourceInfo, SourceSpec
from daskfs.sources.checks import COLLECTION, check_spec, is_generated, unreadable
from daskfs.sources.marked import Marked
from daskfs.sources.multifile import COMPRESSED, TABLE_ENDINGS, PartSizes, find_parts, is_pattern, table_ending
from daskfs.sources.stored_column import Source
from daskfs.sources.zarr_array import read_metadata
from daskfs.storage import StoragePath, as_path

__all__ = ["Source", "SourceInfo", "SourceSpec", "is_data", "open_source"]

READERS = {
    ".npy": "npy:NpySource",
    ".npz": "npz:NpzSource",
    **dict.fromkeys(TABLE_ENDINGS, "tables:TableSource"),
    **dict.fromkeys((".svm", ".svmlight", ".libsvm"), "svmlight:SvmlightSource"),
    ".mtx": "mtx:MtxSource",
    **dict.fromkeys(hdf5.ENDINGS, "layouts:open_hdf5"),
}
"""Module and name of the reader for each ending of a file; a reader is imported when it is first used."""
GENERATED = {
    "sklearn:": "bundled:BundledSource",
    "synthetic:": "synthetic:SyntheticSource",
    COLLECTION: "collection:open_collection",
}
"""The same for each beginning of a name that is none of a file."""

JOB_ENDINGS = (".yaml", ".yml")
SUPPORTED = (
    f"sklearn:NAME, synthetic:KIND?PARAMETERS, {', '.join(READERS)}, a directory or a pattern (data/*.parquet) of "
    "parts of a table, or the directory of tiles or of a Zarr array or group; on this machine, or at an s3://, gs:// "
    "or az:// URL"
)


def open_source(spec: SourceSpec, part_sizes: PartSizes | None = None) -> Source:
    """Open the data that `spec` names.

    Parameters
    ----------
    spec
        ``spec.source`` begins with ``sklearn:`` or ``synthetic:``, or is a path or URL whose ending gives the format.
    part_sizes
        Sizes of the parts of a directory or pattern, in this state; None to open all of them.

    Raises
    ------
    InputError
        If the data do not exist, or cannot be read in their format.
    """
    check_spec(spec)
    source = _open_spec(spec, part_sizes)
    return Marked(source, spec.missing_values) if spec.missing_values else source


def is_data(name: str) -> bool:
    """Return whether a name is that of generated data, or has an ending that only data have."""
    return is_generated(name) or name.lower().endswith(tuple({*READERS, ".zarr"} - {".txt"}))


def _open_spec(spec: SourceSpec, part_sizes: PartSizes | None) -> Source:
    for scheme, reader in GENERATED.items():
        if spec.source.startswith(scheme):
            return _import_reader(reader)(spec)
    path = as_path(spec.source)
    try:
        return _open_path(spec, path, part_sizes)
    except OSError as error:
        raise unreadable(path, error) from error


def _open_path(spec: SourceSpec, path: StoragePath, part_sizes: PartSizes | None) -> Source:
    if path.is_file():
        return _open_file(spec, path)
    is_folder = path.is_dir()
    if is_folder and read_metadata(path) is not None:
        from daskfs.sources.layouts import open_zarr

        return open_zarr(spec, path)
    is_absent = not is_folder and not path.exists()
    if (is_folder or (is_absent and is_pattern(path))) and (parts := find_parts(path)) is not None:
        from daskfs.sources.tables import TableSource

        return TableSource(spec, path, parts, part_sizes)
    tables = ", ".join(TABLE_ENDINGS)
    if is_folder:
        msg = (
            f"{path} is a directory without zarr.json, .zarray or .zgroup, so no Zarr array, and has no {tables} "
            f"files. Supported: {SUPPORTED}."
        )
    elif is_absent:
        msg = f"{path} does not exist" + (f", and as a pattern fits no {tables} file." if is_pattern(path) else ".")
    else:
        msg = f"{path} is neither a file nor a directory; a pipe or a device is read once, data many times."
    raise InputError(msg)


def _open_file(spec: SourceSpec, path: StoragePath) -> Source:
    suffix = table_ending(path)
    if suffix in COMPRESSED:
        msg = f"{path} is compressed; decompress it first, because rows in it cannot be reached."
        raise InputError(msg)
    if suffix in JOB_ENDINGS:
        msg = f"{path} is a job file, and no data: 'daskfs run {path}' runs it."
        raise InputError(msg)
    if suffix not in READERS:
        msg = f"{path} has the unknown ending {suffix!r}. Supported: {SUPPORTED}."
        raise InputError(msg)
    return _import_reader(READERS[suffix])(spec, path)


def _import_reader(reference: str) -> Callable[..., Source]:
    module, _, name = reference.partition(":")
    return getattr(import_module(f"daskfs.sources.{module}"), name)
