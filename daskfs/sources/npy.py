"""X as one ``.npy`` file."""

from __future__ import annotations

from daskfs.kernels.blocks import Block
from daskfs.sources.base import SourceInfo, SourceSpec
from daskfs.sources.checks import block_dtype, check_range, check_shape, file_identity, refuse_options
from daskfs.sources.labeled import LabeledSource
from daskfs.sources.npy_file import NpyFile, whole_file
from daskfs.sources.resolve import resolve_feature_names
from daskfs.storage import StoragePath


class NpySource(LabeledSource):
    """A dense matrix in an ``.npy`` file. Labels and feature names can only come from other files."""

    def __init__(self, spec: SourceSpec, path: StoragePath) -> None:
        refuse_options(spec)
        self._array = NpyFile(whole_file(path), str(path))
        n_samples, n_features = check_shape(self._array.shape, str(path))
        super().__init__(spec)
        self.info = SourceInfo(
            n_samples=n_samples,
            n_features=n_features,
            dtype=block_dtype(self._array.dtype, str(path)),
            is_sparse=False,
            feature_names=resolve_feature_names(spec, n_features),
            identity=file_identity("npy", path),
            row_multiple=self._array.row_multiple,
            **self.named,
        )

    def read_rows(self, start: int, stop: int) -> Block:
        """Return rows ``start:stop``, shape (stop - start, n_features), dtype ``info.dtype``."""
        check_range(start, stop, self.info.n_samples)
        return self._array.read(start, stop, self.info.dtype)
