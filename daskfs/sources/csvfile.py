"""X as the number columns of a text table."""

from __future__ import annotations

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block
from daskfs.places import Place
from daskfs.sources.base import SourceInfo, SourceSpec
from daskfs.sources.beside import Beside
from daskfs.sources.checks import check_range, file_identity, refuse_options
from daskfs.sources.csvtable import CsvTable
from daskfs.sources.resolve import resolve_columns, resolve_feature_names, resolve_labels

# A .txt table says by its header whether it is separated by tabs or commas.
DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": None}


class CsvSource:
    """The feature columns of a ``.csv``, ``.tsv`` or ``.txt`` table as float64, missing cells as NaN."""

    def __init__(self, spec: SourceSpec, path: Place) -> None:
        refuse_options(spec, exclude=True)
        self._table = CsvTable(path, DELIMITERS[path.suffix.lower()])
        layout = self._table.layout
        if layout.n_rows == 0:
            raise InputError(f"{path} has a header but no rows.")
        self._labels = resolve_labels(spec, layout.columns, "column")
        self._beside = Beside(spec, layout.columns, "column")
        self._features = resolve_columns(spec, layout.columns, self._labels, *self._beside.refs)
        names = [layout.columns[index] for index in self._features]
        if "" in names:
            raise InputError(
                f"{path}: column {self._features[names.index('')]} has no name, as when a table is "
                "written with its row index; give it a name, or put '' in data.exclude."
            )
        self.info = SourceInfo(
            n_samples=layout.n_rows,
            n_features=len(self._features),
            dtype=np.dtype(np.float64),
            is_sparse=False,
            feature_names=resolve_feature_names(spec, len(names), own=names),
            identity=file_identity("csv", path, columns=self._features),
            row_multiple=min(layout.stride, layout.n_rows),
            has_labels=self._labels is not None,
            beside=self._beside.names,
        )

    def read_rows(self, start: int, stop: int) -> Block:
        """Return rows ``start:stop``, shape (stop - start, n_features)."""
        check_range(start, stop, self.info.n_samples)
        out = np.empty((stop - start, self.info.n_features))
        self._table.fill(self._features, start, out)
        return out

    def read_labels(self) -> np.ndarray | None:
        """Return the labels, shape (n_samples,), from the column or file that ``spec.labels`` names."""
        return None if self._labels is None else self._labels.read(self.info.n_samples, self._read_column)

    def read_beside(self, name: str) -> np.ndarray | None:
        """Return one of the columns beside X, shape (n_samples,), as the spec names it; None when it names none."""
        return self._beside.read(name, self.info.n_samples, self._read_column)

    def _read_column(self, name: str) -> np.ndarray:
        return self._table.read_text_labels(self._table.layout.columns.index(name))
