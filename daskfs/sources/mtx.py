"""X as a Matrix Market file, coordinate or array.

If the entries of a file are sorted by the rows of X, each band reads only its own range of bytes. Otherwise every band
reads each range that may hold its rows; for unsorted entries, that is the whole file.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import Block
from daskfs.sources.base import SourceInfo, SourceSpec
from daskfs.sources.checks import check_range, check_shape, file_identity, refuse_options
from daskfs.sources.csr import canonical
from daskfs.sources.labeled import LabeledSource
from daskfs.sources.lines import read_range
from daskfs.sources.mtx_scan import parse, scan
from daskfs.sources.resolve import resolve_feature_names
from daskfs.storage import StoragePath


class MtxSource(LabeledSource):
    """A matrix in Matrix Market format, float64: CSR rows for a coordinate file, dense ones for an array file.

    With ``spec.transpose`` the columns of the file are the rows of X, as for the features x cells of single-cell
    programs. Duplicate entries are added. Labels and names can only come from other files.
    """

    def __init__(self, spec: SourceSpec, path: StoragePath) -> None:
        refuse_options(spec, transpose=True)
        self._path, self._transposed = path, spec.transpose
        status = path.stat()
        self._layout = layout = scan(path, status.st_size, status.st_mtime_ns)
        header = layout.header
        super().__init__(spec)
        self._bounds = layout.columns if spec.transpose else layout.rows
        shape = (header.n_columns, header.n_rows) if spec.transpose else (header.n_rows, header.n_columns)
        n_samples, n_features = check_shape(shape, str(path))
        is_sparse = header.format == "coordinate"
        self.info = SourceInfo(
            n_samples=n_samples,
            n_features=n_features,
            dtype=np.dtype(np.float64),
            is_sparse=is_sparse,
            feature_names=resolve_feature_names(spec, n_features),
            identity=file_identity("mtx", path, transpose=spec.transpose),
            nnz=header.n_entries if is_sparse else None,
            **self.named,
        )

    def times_read(self, band_rows: int) -> float:
        """Return the mean number of times that bands of `band_rows` rows read a byte of the file; 1 if it is sorted."""
        if np.all(self._bounds[1:, 0] >= self._bounds[:-1, 1]):
            return 1.0
        weights = np.diff(self._layout.starts)
        bands = self._bounds // band_rows
        return float(np.sum(weights * (bands[:, 1] - bands[:, 0] + 1)) / max(int(weights.sum()), 1))

    def read_rows(self, start: int, stop: int) -> Block:
        """Return rows ``start:stop`` as an array or CSR matrix, shape (stop - start, n_features), float64."""
        check_range(start, stop, self.info.n_samples)
        shape = (stop - start, self.info.n_features)
        if not self.info.is_sparse:
            out = np.zeros(shape)
            for rows, columns, values in self._entries(start, stop):
                out[rows, columns] = values
            return out
        found = list(self._entries(start, stop))
        if not found:
            return sp.csr_matrix(shape, dtype=np.float64)
        rows, columns, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return canonical(sp.coo_matrix((values, (rows, columns)), shape=shape).tocsr(), str(self._path))

    def _entries(self, start: int, stop: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield (row - start, column, value) of the entries in rows ``start:stop``, in the order of the file."""
        layout = self._layout
        for index in np.flatnonzero((self._bounds[:, 0] < stop) & (self._bounds[:, 1] >= start)):
            data = read_range(self._path, int(layout.starts[index]), int(layout.starts[index + 1]))
            rows, columns, values = parse(self._path, layout.header, data.tobytes(), int(layout.entries[index]))
            if self._transposed:
                rows, columns = columns, rows
            wanted = (rows >= start) & (rows < stop)
            # int32 suffices for the rows of a band, and for the features, whose number in tiles is an int32
            yield (rows[wanted] - start).astype(np.int32), columns[wanted].astype(np.int32), values[wanted]
