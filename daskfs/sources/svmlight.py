"""X as a file in svmlight (LIBSVM) format: ``target qid:group feature:value ... # comment``.

As in scikit-learn's ``load_svmlight_file`` by default, features are numbered from 1 if no value in the file has number
0, and from 0 otherwise.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block
from daskfs.sources.base import SourceInfo, SourceSpec
from daskfs.sources.checks import check_range, check_shape, file_identity, first_line, refuse_options
from daskfs.sources.labeled import LabeledSource
from daskfs.sources.labels import AUTO
from daskfs.sources.lines import read_range
from daskfs.sources.resolve import resolve_feature_names
from daskfs.sources.svmlight_scan import scan
from daskfs.storage import StoragePath

TARGET, GROUPS = "target", "qid"


class SvmlightSource(LabeledSource):
    """The features of a file in svmlight format as CSR rows, float64, with per-sample columns ``target`` and ``qid``.

    The targets are labels only if ``spec.labels`` is ``target``.
    """

    def __init__(self, spec: SourceSpec, path: StoragePath) -> None:
        refuse_options(spec)
        self._path, self._unlabeled = path, spec.unlabeled
        status = path.stat()
        self._layout = layout = scan(path, status.st_size, status.st_mtime_ns)
        own = (TARGET, GROUPS) if layout.has_groups else (TARGET,)
        super().__init__(spec, "column", labels=own, columns=own)
        n_samples, n_features = check_shape((int(layout.rows[-1]), layout.n_features), str(path))
        self.info = SourceInfo(
            n_samples=n_samples,
            n_features=n_features,
            dtype=np.dtype(np.float64),
            is_sparse=True,
            feature_names=resolve_feature_names(spec, n_features),
            identity=file_identity("svmlight", path),
            nnz=layout.nnz,
            row_multiple=int(np.diff(layout.rows).max(initial=1)),
            **self.named,
        )

    def read_rows(self, start: int, stop: int) -> Block:
        """Return rows ``start:stop`` as a CSR matrix, shape (stop - start, n_features), float64."""
        check_range(start, stop, self.info.n_samples)
        parts = [
            self._parse(data, first, n_rows)[max(start - first, 0) : stop - first]
            for first, n_rows, data in self._ranges(start, stop)
        ]
        if not parts:
            return sp.csr_matrix((0, self.info.n_features), dtype=np.float64)
        return parts[0] if len(parts) == 1 else sp.csr_matrix(sp.vstack(parts, format="csr"))

    # ---------------------------------------------------------------------------------------------- per-sample columns
    def _read_labels(self, name: str) -> np.ndarray:
        values = self._read_column(name)
        if name == TARGET and self._unlabeled == AUTO and {*values.tolist()} - {None} == {-1, 0, 1}:
            msg = (
                f"{self._path} has the targets -1, 0 and 1: elsewhere -1 is an unlabeled row, and in this format 0 is "
                "one beside classes -1 and 1. Set data.unlabeled to 0, to -1, or to none."
            )
            raise InputError(msg)
        return values

    def _read_column(self, name: str) -> np.ndarray:
        """Return targets or groups as integers if all are whole numbers, with None for missing ones, else as floats."""
        read = self._target_of if name == TARGET else self._group_of
        values = np.empty(self.info.n_samples)
        for first, _, data in self._ranges(0, self.info.n_samples):
            for row, words in enumerate(_rows_of(data), first):
                values[row] = read(words, row)
        is_known = ~np.isnan(values)
        known = values[is_known]
        if not np.all((known == np.floor(known)) & (np.abs(known) < 2**53)):
            return values
        if is_known.all():
            return values.astype(np.int64)
        return np.array([int(value) if value == value else None for value in values.tolist()], dtype=object)

    def _target_of(self, words: list[bytes], row: int) -> float:
        try:
            return float(words[0])
        except ValueError:
            several = " (several targets of one row are not read)" if b"," in words[0] else ""
            msg = f"{self._path}: row {row} has the target {_shown(words[0])}{several}."
            raise InputError(msg) from None

    def _group_of(self, words: list[bytes], row: int) -> float:
        if len(words) < 2 or not words[1].startswith(b"qid:"):
            return np.nan
        try:
            return int(words[1][4:])
        except ValueError:
            msg = f"{self._path}: row {row} has {_shown(words[1])}; qid is a whole number."
            raise InputError(msg) from None

    # ------------------------------------------------------------------------------------------------------------ rows
    def _ranges(self, start: int, stop: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield (first row, number of rows, bytes) of the ranges of lines that overlap rows ``start:stop``."""
        starts, rows = self._layout.starts, self._layout.rows
        for index in np.flatnonzero((rows[:-1] < stop) & (rows[1:] > start) & (rows[1:] > rows[:-1])):
            data = read_range(self._path, int(starts[index]), int(starts[index + 1]))
            yield int(rows[index]), int(rows[index + 1] - rows[index]), data.tobytes()

    def _parse(self, data: bytes, first: int, n_rows: int) -> sp.csr_matrix:
        try:
            X = self._parsed(data)
            if X.shape[0] != n_rows:
                msg = f"{self._path} cannot be read from row {first} on: a row there holds a NUL byte."
                raise InputError(msg)
            return X
        except InputError:
            raise
        except (ValueError, OverflowError) as error:
            whole = error
        for row, line in enumerate((line for line in data.split(b"\n") if _words(line)), first):
            try:
                self._parsed(line)
            except (ValueError, OverflowError) as error:
                msg = f"{self._path}: row {row} (the first is 0): {_told(error)}"
                raise InputError(msg) from error
        msg = f"{self._path} cannot be read from row {first} on: {_told(whole)}"
        raise InputError(msg) from whole

    def _parsed(self, data: bytes) -> sp.csr_matrix:
        from sklearn.datasets import load_svmlight_file

        X = load_svmlight_file(
            io.BytesIO(data), n_features=self.info.n_features, zero_based=not self._layout.is_one_based
        )[0]
        return sp.csr_matrix(X)


def _rows_of(data: bytes) -> Iterator[list[bytes]]:
    """Yield the first words of each row."""
    return (words for line in data.split(b"\n") if (words := _words(line)))


def _words(line: bytes) -> list[bytes]:
    return line.partition(b"#")[0].split(None, 2)


def _shown(word: bytes) -> str:
    return repr(word[:40].decode("utf-8", "replace"))


def _told(error: Exception) -> str:
    text = first_line(error).rstrip(".")
    return f"{text}; a row is 'target feature:value feature:value', with ascending features."
