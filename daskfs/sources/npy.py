"""X as one ``.npy`` file."""

from __future__ import annotations

from daskfs.kernels.blocks import Block
from daskfs.sources.base import SourceSpec
from daskfs.sources.checks import block_dtype, check_shape, file_identity, refuse_options
from daskfs.sources.labeled import LabeledSource
from daskfs.sources.npy_file import NpyFile, whole_file
from daskfs.sources.resolve import resolve_feature_names
from daskfs.storage import StoragePath


class NpySource(LabeledSource):
    """A dense matrix in an ``.npy`` file. Labels and feature names can only come from other files."""

    def __init__(self, spec: SourceSpec, path: StoragePath) -> None:
        refuse_options(spec)
        self._array = NpyFile(whole_file(path), str(path))
        shape, dtype = check_shape(self._array.shape, str(path)), block_dtype(self._array.dtype, str(path))
        super().__init__(spec)
        names, identity = resolve_feature_names(spec, shape[1]), file_identity("npy", path)
        self.info = self.describe(shape, dtype, names, identity, row_multiple=self._array.row_multiple)

    def _read_rows(self, start: int, stop: int) -> Block:
        return self._array.read(start, stop, self.info.dtype)
