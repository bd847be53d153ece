"""An HDF5 file as a folder of arrays with attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskfs.sources.checks import file_identity
from daskfs.sources.hdf5 import Hdf5Array, attributes_of, find, members_of, open_file, own_datasets
from daskfs.storage import StoragePath


class Hdf5Folder:
    """The arrays and groups of the HDF5 file at `path`, named by paths with slashes, empty for the file itself."""

    def __init__(self, path: StoragePath) -> None:
        self.path, self.where = path, str(path)
        self._opened: dict[str, Hdf5Array] = {}

    def members(self, name: str = "") -> tuple[str, ...]:
        """Return the sorted names of the direct members of a group, without links into other files."""
        with open_file(self.path) as file:
            return members_of(find(file, name, self.where))

    def arrays(self) -> dict[str, int]:
        """Return the number of dimensions of each dataset directly in the file, by sorted name."""
        with open_file(self.path) as file:
            return {name: node.ndim for name, node in own_datasets(file).items()}

    def is_group(self, name: str) -> bool:
        """Return whether `name` is a group."""
        with open_file(self.path) as file:
            import h5py  # after open_file has checked that it is installed

            return isinstance(find(file, name, self.where), h5py.Group)

    def array(self, name: str) -> Hdf5Array | None:
        """Return the dataset `name`, or None if there is none."""
        if name not in self._opened:
            with open_file(self.path) as file:
                import h5py

                found = find(file, name, self.where)
                if not isinstance(found, h5py.Dataset):
                    return None
                self._opened[name] = Hdf5Array(self.path, found, name)
        return self._opened[name]

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of a dataset or a group."""
        with open_file(self.path) as file:
            found = find(file, name, self.where)
            return {} if found is None else attributes_of(found)

    def identity(self, arrays: tuple[str, ...], selection: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of the file and the selection, JSON-able, for change detection."""
        del arrays  # all are in one file
        return file_identity("hdf5", self.path, **selection)
