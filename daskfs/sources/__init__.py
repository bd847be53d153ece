"""Sources of data: files, generated data and arrays in memory, all read by ranges of rows."""

from __future__ import annotations

from pathlib import Path

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block
from daskfs.sources.base import Source, SourceInfo, SourceSpec
from daskfs.sources.checks import check_spec

__all__ = ["Block", "Source", "SourceInfo", "SourceSpec", "open_source"]

SUPPORTED = (
    "sklearn:NAME, synthetic:KIND?PARAMETERS, .npy, .npz, .csv, .tsv, .txt, .parquet, .pq, or the "
    "directory of a Zarr array or group"
)
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


def open_source(spec: SourceSpec) -> Source:
    """Open the data that `spec` names.

    Parameters
    ----------
    spec
        How the user named the data: ``sklearn:``, ``synthetic:`` or a path, whose ending tells the format.

    Raises
    ------
    InputError
        If there is no such data, or they cannot be read as what they claim to be.
    """
    check_spec(spec)
    scheme, colon, _ = spec.source.partition(":")
    if colon and scheme == "sklearn":
        from daskfs.sources.bundled import BundledSource

        return BundledSource(spec)
    if colon and scheme == "synthetic":
        from daskfs.sources.synthetic import SyntheticSource

        return SyntheticSource(spec)
    if "://" in spec.source:
        raise InputError(f"{spec.source} is not a local path; mount or copy the data. Supported: {SUPPORTED}.")
    path = Path(spec.source).expanduser()
    try:
        return _open_path(spec, path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error


def _open_path(spec: SourceSpec, path: Path) -> Source:
    if not path.exists():
        raise InputError(f"{path} does not exist.")
    if path.is_dir():
        return _open_directory(spec, path)
    if not path.is_file():
        raise InputError(f"{path} is neither a file nor a directory; a pipe or a device is read once, data many times.")
    suffix = path.suffix.lower()
    if suffix in COMPRESSED:
        raise InputError(f"{path} is compressed; decompress it first, because rows in it cannot be reached.")
    if suffix == ".npy":
        from daskfs.sources.npy import NpySource

        return NpySource(spec, path)
    if suffix == ".npz":
        from daskfs.sources.npz import NpzSource

        return NpzSource(spec, path)
    if suffix in (".csv", ".tsv", ".txt"):
        from daskfs.sources.csvfile import CsvSource

        return CsvSource(spec, path)
    if suffix in (".parquet", ".pq"):
        from daskfs.sources.parquet import ParquetSource

        return ParquetSource(spec, path)
    raise InputError(f"{path} has the unknown ending {suffix!r}. Supported: {SUPPORTED}.")


def _open_directory(spec: SourceSpec, path: Path) -> Source:
    from daskfs.sources.zarrarray import ZarrSource, zarr_metadata

    if zarr_metadata(path) is None:
        raise InputError(
            f"{path} is a directory without zarr.json, .zarray or .zgroup, so no Zarr array. Supported: {SUPPORTED}."
        )
    return ZarrSource(spec, path)
