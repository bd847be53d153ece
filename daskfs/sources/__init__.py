"""Sources of data: files, generated data and arrays in memory, all read by ranges of rows."""

from __future__ import annotations

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block
from daskfs.places import Place, place
from daskfs.sources.base import Source, SourceInfo, SourceSpec
from daskfs.sources.checks import check_spec, unreadable

__all__ = ["Block", "Source", "SourceInfo", "SourceSpec", "open_source"]

SUPPORTED = (
    "sklearn:NAME, synthetic:KIND?PARAMETERS, .npy, .npz, .csv, .tsv, .txt, .parquet, .pq, or the "
    "directory of a Zarr array or group; on this machine, or at an s3://, gs:// or az:// URL"
)
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


def open_source(spec: SourceSpec) -> Source:
    """Open the data that `spec` names.

    Parameters
    ----------
    spec
        How the user named the data: ``sklearn:``, ``synthetic:``, or a path or URL, whose ending tells the format.

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
    path = place(spec.source)
    try:
        return _open_path(spec, path)
    except OSError as error:
        raise unreadable(path, error) from error


def _open_path(spec: SourceSpec, path: Place) -> Source:
    is_file = path.is_file()
    if not is_file and path.is_dir():
        return _open_directory(spec, path)
    if not is_file and not path.exists():
        raise InputError(f"{path} does not exist.")
    if not is_file:
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


def _open_directory(spec: SourceSpec, path: Place) -> Source:
    from daskfs.sources.zarrarray import ZarrSource, read_metadata

    if read_metadata(path) is None:
        raise InputError(
            f"{path} is a directory without zarr.json, .zarray or .zgroup, so no Zarr array. Supported: {SUPPORTED}."
        )
    return ZarrSource(spec, path)
