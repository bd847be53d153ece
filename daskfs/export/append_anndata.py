"""Addition of rankings to a user's AnnData file or group: columns of ``var``, and ``uns["daskfs"]``.

An interrupted write can leave an HDF5 file unreadable, so a copy is changed and then replaces the file. A Zarr group
stays readable throughout: columns of an earlier export are removed from the list in ``var``, new ones are written
elsewhere, moved in, and listed last.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daskfs.errors import InputError, JobError
from daskfs.export.anndata_file import H5AD, quiet_zarr, storable
from daskfs.export.collect import KEY, RunContents, is_ours
from daskfs.storage import LocalPath, ObjectPath, StoragePath, as_path, first_line
from daskfs.storage.file_cache import file_state
from daskfs.store.write_errors import explain_write_errors

ORDER = "column-order"


def add_to_anndata(contents: RunContents, file: str | Path) -> StoragePath:
    """Add the table and the facts of a run to an AnnData file or group, and return its resolved path.

    :class:`InputError` if `file` is not AnnData, or its var names are not the names of the run's features, in the same
    order; :class:`JobError` for an HDF5 file in an object store.
    """
    target = as_path(file).resolve()
    if target.is_dir():
        _add_to_group(contents, target)
    elif target.suffix.lower() == H5AD:
        _add_to_file(contents, target)
    else:
        msg = f"{target} is no {H5AD} file, and no Zarr group, that is there."
        raise InputError(msg)
    return target


# ---------------------------------------------------------------------------------------------------------- HDF5
def _add_to_file(contents: RunContents, target: StoragePath) -> None:
    import h5py

    if isinstance(target, ObjectPath):
        msg = f"{target} lies in an object store, where no file can be changed: do it to a copy on a disk."
        raise JobError(msg)
    if not target.is_file():
        msg = f"{target} does not exist."
        raise InputError(msg)
    with _readable(target), h5py.File(target, "r") as root:
        _check_names(root, contents, target)
    before = file_state(target.stat())
    with explain_write_errors(target), target.replacement() as copy:
        shutil.copy(target, copy)
        with h5py.File(copy, "r+") as root:
            _write_columns(root["var"], contents)
            root["var"].attrs[ORDER] = _listed_columns(root, contents)
            _write_facts(root, contents)
        if file_state(target.stat()) != before:
            msg = f"{target} changed while the ranking was added to it: nothing was; try again."
            raise InputError(msg)


# ---------------------------------------------------------------------------------------------------------- Zarr
def _add_to_group(contents: RunContents, target: StoragePath) -> None:
    import zarr

    def opened() -> Any:
        return zarr.open_group(_synced_store(target), mode="r+", use_consolidated=False)

    with _readable(target):
        root = opened()
        _check_names(root, contents, target)
    listed = _listed_columns(root, contents)
    _list_columns(root, [name for name in listed if name not in contents.columns])
    where = None if target.is_remote else str(target.parent)  # for moves on its file system, or uploads
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=where) as temporary, quiet_zarr():
        folder = LocalPath(temporary)
        group = zarr.create_group(store=str(folder / "group.zarr"), zarr_format=root.metadata.zarr_format)
        _write_columns(group, contents)
        _write_facts(group, contents)
        for name in contents.columns:
            (target / "var" / name).put_tree(folder / "group.zarr" / name)
        facts = f"uns/{KEY}" if "uns" in root else "uns"
        (target / facts).put_tree(folder / "group.zarr" / facts)
    _list_columns(opened(), listed)


def _synced_store(target: StoragePath) -> Any:
    """Return the Zarr store of a group whose metadata a loss of power leaves as they were, or makes new."""
    from zarr.storage import LocalStore

    class Synced(LocalStore):
        async def set(self, key: str, value: Any) -> None:
            path = LocalPath(self.root / key)
            path.put(value.to_bytes())
            path.parent.sync()

    return Synced(str(target)) if isinstance(target, LocalPath) else target.zarr_store()


def _list_columns(root: Any, names: Sequence[str]) -> None:
    """Set the list of columns of var, also in the consolidated metadata of the group, if it has any."""
    import zarr
    from zarr.errors import ZarrUserWarning

    root["var"].attrs[ORDER] = list(names)
    if zarr.open_group(root.store_path, mode="r").metadata.consolidated_metadata is not None:
        with warnings.catch_warnings(category=ZarrUserWarning, action="ignore"):  # the user's group was consolidated
            zarr.consolidate_metadata(root.store_path, zarr_format=root.metadata.zarr_format)


# ---------------------------------------------------------------------------------------------------------- both
@contextmanager
def _readable(target: StoragePath) -> Iterator[None]:
    try:
        yield
    except (InputError, JobError):
        raise
    except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:  # of HDF5, Zarr and anndata
        msg = f"{target} cannot be read as AnnData: {first_line(error)}"
        raise InputError(msg) from error


def _check_names(root: Any, contents: RunContents, target: StoragePath) -> None:
    """Raise :class:`InputError` if the names of var are not those of the features."""
    from anndata.io import read_elem

    if "var" not in root or "_index" not in getattr(root["var"], "attrs", {}):
        msg = f"{target} has no var that this anndata reads: open it by its own, and write it again."
        raise InputError(msg)
    var_names = [str(name) for name in read_elem(root["var"][root["var"].attrs["_index"]])]
    names = contents.names
    if len(var_names) != len(names):
        msg = f"{target} has {len(var_names)} names in var, and the run ranked {len(names)} features."
        raise InputError(msg)
    if var_names != names:
        number = next(i for i, (a, b) in enumerate(zip(var_names, names, strict=True)) if a != b)
        msg = (
            f"name {number} in var of {target} is '{var_names[number]}', and feature {number} of the run is "
            f"'{names[number]}': they must be the same, in the same order."
        )
        raise InputError(msg)


def _listed_columns(root: Any, contents: RunContents) -> list[str]:
    """Return the columns of var with those of the run, without those of an earlier export."""
    from anndata.io import read_elem

    uns = root.get("uns", {})
    facts = read_elem(uns[KEY]) if KEY in uns else {}
    columns = map(str, root["var"].attrs[ORDER])
    other_columns = [name for name in columns if name not in contents.columns and not is_ours(name, facts)]
    return [*other_columns, *contents.columns]


def _write_columns(var: Any, contents: RunContents) -> None:
    from anndata.io import write_elem

    for name, values in contents.columns.items():
        write_elem(var, name, values)


def _write_facts(root: Any, contents: RunContents) -> None:
    from anndata.io import write_elem

    if "uns" not in root:
        write_elem(root, "uns", {})
    write_elem(root["uns"], KEY, storable(contents.facts))
