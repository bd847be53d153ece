"""Layouts of HDF5 files and Zarr groups: AnnData, 10x Genomics, or arrays by name."""

from __future__ import annotations

from daskfs.errors import InputError
from daskfs.sources.anndata_layout import anndata_contents, is_anndata
from daskfs.sources.base import SourceSpec
from daskfs.sources.checks import refuse_options
from daskfs.sources.group_source import MemberSource
from daskfs.sources.hdf5 import Hdf5Folder
from daskfs.sources.tenx import find_tenx, tenx_contents
from daskfs.sources.variables import variable_contents
from daskfs.sources.zarr_array import ZarrFolder
from daskfs.storage import StoragePath


def open_hdf5(spec: SourceSpec, path: StoragePath) -> MemberSource:
    """Open an HDF5 file.

    Raises
    ------
    InputError
        If it is in another format (such as NetCDF 3), is damaged, or lacks a member that `spec` names.
    """
    suffix = path.suffix.lower()
    if suffix in (".nc", ".nc4"):
        with path.open("rb", buffering=0) as file:
            if file.read(3) == b"CDF":
                msg = f"{path} is in NetCDF 3 format: turn it into version 4, by nccopy -k nc4."
                raise InputError(msg)
    folder = Hdf5Folder(path)
    if suffix == ".h5ad" or is_anndata(folder):
        refuse_options(spec, "array")
        return MemberSource(spec, anndata_contents(spec, folder))
    group = find_tenx(spec, folder)
    refuse_options(spec, "array", *(["dims"] if group is None else []))
    return MemberSource(spec, variable_contents(spec, folder) if group is None else tenx_contents(folder, group))


def open_zarr(spec: SourceSpec, path: StoragePath) -> MemberSource:
    """Open a Zarr array or group.

    Raises
    ------
    InputError
        If it is damaged, or lacks a member that `spec` names.
    """
    folder = ZarrFolder(path)
    if is_anndata(folder):
        refuse_options(spec, "array")
        return MemberSource(spec, anndata_contents(spec, folder))
    refuse_options(spec, "array", "dims")
    return MemberSource(spec, variable_contents(spec, folder))
