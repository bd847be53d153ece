"""The matrix of the contract tests in text formats, and as parts of tables."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file


def write_svmlight(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    """Numbered from 1, with comments, blank lines, and colons where there is no value."""
    dump_svmlight_file(X, y, str(folder / "X.svm"), zero_based=False, comment="made: by hand")
    lines = (folder / "X.svm").read_text().splitlines()
    lines[5:5] = ["", "# 7:8", "   "]
    lines[-1] += " # 99:1"
    (folder / "X.svm").write_text("\n".join(lines))
    return "X.svm"


def write_libsvm(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    """Numbered from 0, with query identifiers and line ends of Windows."""
    dump_svmlight_file(X, y, str(folder / "X.libsvm"), zero_based=True, query_id=np.arange(len(y)) // 4)
    text = (folder / "X.libsvm").read_text()
    (folder / "X.libsvm").write_text(text.replace("\n", "\r\n"), newline="")
    return "X.libsvm"


def _entries(folder: Path, X: sp.coo_matrix, y: np.ndarray) -> str:
    np.save(folder / "y.npy", y)
    stream = io.BytesIO()
    scipy.io.mmwrite(stream, X, comment="made\nby hand")
    (folder / "X.mtx").write_bytes(stream.getvalue())
    return "X.mtx"


def write_mtx(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    """Sorted by rows."""
    return _entries(folder, sp.coo_matrix(X), y)


def write_mtx_shuffled(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    """In no order, every value in two that have to be added up."""
    coo = sp.coo_matrix(X)
    order = np.random.default_rng(0).permutation(2 * coo.nnz) % coo.nnz
    parts = (coo.data[order] / 2, (coo.row[order], coo.col[order]))
    name = _entries(folder, sp.coo_matrix(parts, shape=X.shape), y)
    (folder / name).write_text((folder / name).read_text().replace(" ", " \t") + "\n\n")
    return name


def write_mtx_transposed(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    """Features x cells, sorted by cells as 10x does."""
    names = ("a", "b", "c d", "a", "e.f")
    rows = [f"ENS{number}\t{name}\tGene Expression" for number, name in enumerate(names)]
    (folder / "features.tsv").write_text("\n".join(rows) + "\n")
    coo = sp.coo_matrix(X)
    return _entries(folder, sp.coo_matrix((coo.data, (coo.col, coo.row)), shape=X.T.shape), y)


def write_mtx_array(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    np.save(folder / "y.npy", y)
    scipy.io.mmwrite(folder / "X.mtx", X)
    return "X.mtx"


def write_mtx_array_transposed(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    return write_mtx_array(folder, X.T, y)


BOUNDS = (0, 3, 3, 4, 20, 23)


def _parts(X: np.ndarray, y: np.ndarray) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return names of parts, among them part-10 after part-9 and one without rows, and their rows."""
    numbers = (1, 2, 9, 10, 11)
    bounds = [min(bound, len(y)) for bound in BOUNDS[:-1]] + [len(y)]
    return [
        (f"part-{number}", X[start:stop], y[start:stop])
        for number, start, stop in zip(numbers, bounds, bounds[1:], strict=False)
    ]


def write_parquet_parts(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    (folder / "parts").mkdir(exist_ok=True)
    for name, rows, classes in _parts(X, y):
        columns = [pa.array(column) for column in rows.T]
        table = pa.Table.from_arrays([*columns, pa.array(classes)], names=["a", "b", "c d", "a", "e.f", "y"])
        pq.write_table(table, folder / "parts" / f"{name}.parquet", row_group_size=6)
    for name in ("_SUCCESS", "_metadata", ".part-1.parquet.crc"):
        (folder / "parts" / name).write_text("")
    return "parts"


def write_csv_parts(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    """Which a pattern names, beside a table of another format."""
    (folder / "parts").mkdir(exist_ok=True)
    for name, rows, classes in _parts(X, y):
        lines = ["a,b,c d,a,e.f,y"]
        lines += [
            ",".join([*(repr(float(value)) for value in row), str(c)]) for row, c in zip(rows, classes, strict=True)
        ]
        (folder / "parts" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (folder / "parts" / "part-12.csv").write_text("")
    (folder / "parts" / "notes.txt").write_text("made by hand\n")
    return "parts/part-*.csv"
