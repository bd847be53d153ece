"""What users read when their data cannot be used: the class of the error and what the message names."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from daskfs.errors import InputError
from daskfs.sources import SourceSpec, open_source
from tests.sources.array_source import ArraySource

from .broken import (
    Make,
    X,
    array_bytes,
    bzipped,
    csr,
    cut,
    damage,
    deflated,
    edited_metadata,
    npy,
    npz,
    parquet,
    spec,
    text,
    with_file,
    y,
    zarr_group,
    zipped_array,
)

CSV = "a,b,y\n1,2,u\n3,4,v\n5,6,u\n"

WHEN_OPENED: dict[str, tuple[Make, tuple[str, ...]]] = {
    "missing file": (lambda folder: spec(folder / "gone.npy"), ("gone.npy", "does not exist")),
    "unknown ending": (text("X.mat", "x"), ("X.mat", "'.mat'", ".parquet", "sklearn:NAME", "Zarr")),
    "no ending": (text("X", "x"), ("unknown ending ''", ".npz")),
    "compressed csv": (text("X.csv.xz", b"\xfd7zXZ"), ("X.csv.xz", "compressed", "decompress it first")),
    "gzipped but called csv": (text("X.csv", b"\x1f\x8b\x08\x00"), ("X.csv", "compressed")),
    "address": (lambda _: SourceSpec(source="https://host/X.npy"), ("https://host/X.npy", "s3://, gs://, az://")),
    "plain directory": (lambda folder: spec(folder), ("zarr.json", ".zarray")),
    "unreadable": (lambda folder: spec(folder / ("n" * 300 + ".npy")), ("nnn", "cannot be read")),
    "npy cut in data": (cut(npy(X), 0.9), ("X.npy", "truncated", "(6, 4)", "192 bytes")),
    "npy cut in header": (cut(npy(X), 0.1), ("X.npy", "truncated")),
    "npy empty": (cut(npy(X), 0), ("X.npy", "truncated")),
    "npy is text": (text("X.npy", "hello, this is no array"), ("X.npy", "not in .npy format")),
    "npy 1-D": (npy(X[0]), ("X.npy", "shape (4,)", "two dimensions")),
    "npy 3-D": (npy(X.reshape(2, 3, 4)), ("shape (2, 3, 4)",)),
    "npy without rows": (npy(X[:0]), ("shape (0, 4)", "nothing in it")),
    "npy objects": (npy(np.array([[1, "a"]], dtype=object)), ("X.npy", "dtype object", "never unpickled")),
    "npy complex": (npy(X * 1j), ("X.npy", "complex128", "real numbers")),
    "npy text": (npy(X.astype(str)), ("X.npy", "<U", "real numbers")),
    "npy structured": (npy(np.zeros(3, dtype=[("ä", "f4")])), ("X.npy",)),
    "npy with array": (npy(X, array="X"), ("data.array", "single matrix")),
    "npy with dims": (npy(X, dims=("a", "b")), ("data.dims", "'a', 'b'", "leave it out")),
    "npy with exclude": (npy(X, exclude=("a",)), ("data.exclude", "'a'", "not a table")),
    "npy with unknown labels": (npy(X, labels="y"), ("data.labels", "'y'", "no such file")),
    "npy with unknown names": (
        npy(X, feature_names="n.txt"),
        ("data.feature_names", "'n.txt'", "no such file"),
    ),
    "npz cut": (cut(npz(X=X), 0.9), ("X.npz", "truncated or not an .npz")),
    "npz without its beginning": (
        text("X.npz", zipped_array()[40:]),
        ("X.npz:X", "cannot be found", "damaged"),
    ),
    "npz of a strange version": (
        text("X.npz", zipped_array().replace(b"PK\x01\x02\x14\x03\x14", b"PK\x01\x02\x14\x03\xe5")),
        ("X.npz", "truncated or not an .npz"),
    ),
    "npy with a broken header": (
        text("X.npy", array_bytes().replace(b"(6, 4)", b"(6, 4 ")),
        ("X.npy", "truncated or not in .npy format"),
    ),
    "npz is text": (text("X.npz", "hello"), ("X.npz", "truncated or not an .npz")),
    "npz damaged": (damage(deflated, 0.5), ("X.npz:X", "damaged")),
    "npz by bzip2": (bzipped, ("X.npz:X", "method 12", "savez_compressed")),
    "npz without X": (npz(Z=X, y=y), ("'X'", "CSR parts", "'Z', 'y'", "data.array")),
    "npz unknown array": (
        npz({"array": "values"}, value=X),
        ("no member 'values'", "'value'", "Did you mean"),
    ),
    "npz 1-D": (npz(X=X[0]), ("X.npz:X", "shape (4,)")),
    "npz objects": (npz(X=np.array([[None]])), ("X.npz:X", "never unpickled")),
    "npz unknown labels": (
        npz({"labels": "label"}, X=X, labels=y),
        ("'label'", "'X', 'labels'", "'labels'?"),
    ),
    "npz names too few": (
        npz({"feature_names": "n"}, X=X, n=np.array(["a", "b", "c"])),
        ("n has 3 names", "X has 4 columns"),
    ),
    "npz names not text": (
        npz({"feature_names": "n"}, X=X, n=np.arange(4)),
        ("X.npz:n", "int64", "list of text"),
    ),
    "names file too short": (
        with_file(npy(X, feature_names="@/n.txt"), "n.txt", "a\nb\nc\n"),
        ("n.txt has 3 names", "X has 4 columns"),
    ),
    "bsr": (npz(format=b"bsr", data=X[0], indices=y, indptr=y, shape=(6, 4)), ("bsr", "X.tocsr()")),
    "csc": (npz(format=b"csc", data=X[0], indices=y, indptr=y, shape=(6, 4)), ("indptr has 6 values", "4 columns")),
    "csr indptr length": (csr(shape=(7, 4)), ("indptr has 7 values", "7 rows need 8")),
    "csr indptr end": (csr(data=np.ones(5)), ("indptr runs from 0 to 23", "5 values")),
    "csr without columns": (csr(shape=(6, 0)), ("X.npz:shape", "(6, 0)")),
    "csr float indices": (csr(indices=np.ones(23)), ("X.npz:indices", "float64", "integers")),
    "csr data 2-D": (csr(data=X), ("X.npz:data", "(6, 4)", "one dimension")),
    "csv empty": (text("X.csv", ""), ("X.csv", "is empty")),
    "csv header only": (text("X.csv", "a,b\n\n"), ("X.csv", "no rows")),
    "csv header of numbers": (text("X.csv", "1,2.5\n3,4\n"), ("X.csv", "header line with column names")),
    "csv starts blank": (text("X.csv", "\na,b\n3,4\n"), ("X.csv", "starts with a blank line")),
    "csv unnamed column": (text("X.csv", "a,\n0,4\n"), ("X.csv", "column 1 has no name", "row index")),
    "csv utf-16": (text("X.csv", CSV.encode("utf-16")), ("X.csv", "UTF-16")),
    "csv header not utf-8": (text("X.csv", "ä,b\n1,2\n".encode("latin-1")), ("X.csv", "UTF-8")),
    "csv open quote": (text("X.csv", 'a,b\n1,"2\n3,4\n'), ("X.csv", "odd number of double quotes")),
    "csv blank line": (text("X.csv", "a,b\n1,2\n\n3,4\n"), ("X.csv", "row 1", "blank line")),
    "csv blank line crlf": (text("X.csv", "a,b\r\n1,2\r\n\r\n3,4"), ("X.csv", "row 1", "blank line")),
    "csv unknown label": (
        text("X.csv", CSV, labels="Y1"),
        ("no column 'Y1'", "'a', 'b', 'y'", "Did you mean 'y'?"),
    ),
    "csv label twice": (text("X.csv", "a,y,y\n1,2,3\n", labels="y"), ("more than one column 'y'",)),
    "csv label excluded": (
        text("X.csv", CSV, labels="y", exclude=("y",)),
        ("'y'", "data.labels", "data.exclude"),
    ),
    "csv unknown exclude": (
        text("X.csv", CSV, exclude=("bb",)),
        ("data.exclude", "'bb'", "Did you mean 'b'?"),
    ),
    "csv nothing left": (
        text("X.csv", "y,a\n1,2\n", labels="y", exclude=("a",)),
        ("no feature column left",),
    ),
    "csv with array": (text("X.csv", CSV, array="X"), ("data.array", "single matrix")),
    "parquet cut": (cut(parquet(a=X[0]), 0.8), ("X.parquet", "truncated or not a Parquet file")),
    "parquet empty": (text("X.parquet", ""), ("X.parquet", "truncated or not a Parquet file")),
    "parquet text": (parquet(a=[1.0], city=["Ulm"]), ("X.parquet", "'city'", "text", "data.exclude")),
    "parquet list": (parquet(a=[1.0], many=[[1]]), ("'many'", "list<", "data.exclude")),
    "parquet unknown label": (parquet(a=[1.0], spec_labels="b"), ("no column 'b'", "'a'")),
    "parquet without rows": (parquet(a=pa.array([], pa.float64())), ("X.parquet", "(0, 1)")),
    "zarr3 cut": (cut(zarr_group(3, X=X), 0.5, "X/zarr.json"), ("X/zarr.json", "truncated")),
    "zarr2 cut": (cut(zarr_group(2, X=X), 0.5, "X/.zarray"), ("X/.zarray", "truncated")),
    "zarr group cut": (cut(zarr_group(3, X=X), 0.5, "zarr.json"), ("zarr.json", "truncated")),
    "zarr3 unknown type": (
        edited_metadata(3, lambda document: document.update(data_type="float99")),
        ("X.zarr/X", "Zarr cannot read", "float99"),
    ),
    "zarr2 without shape": (
        edited_metadata(2, lambda document: document.pop("shape")),
        ("Zarr cannot read", "shape"),
    ),
    "zarr2 pickle": (
        edited_metadata(2, lambda document: document.update(filters=[{"id": "pickle", "protocol": 5}])),
        ("X.zarr/X", "pickle", "never loaded"),
    ),
    "zarr 1-D": (zarr_group(3, X=X[0]), ("X.zarr/X", "shape (4,)")),
    "zarr two matrices": (zarr_group(3, A=X, B=X, y=y), ("2 two-dimensional", "'A', 'B', 'y'", "data.array")),
    "zarr no matrix": (zarr_group(2, y=y), ("0 two-dimensional", "'y'")),
    "zarr unknown array": (zarr_group(3, {"array": "XX"}, X=X), ("no array 'XX'", "'X'")),
    "zarr unknown labels": (
        zarr_group(3, {"labels": "labls"}, X=X, labels=y),
        ("'labls'", "Did you mean 'labels'?"),
    ),
    "sklearn unknown": (
        lambda _: SourceSpec(source="sklearn:digit"),
        ("'digit'", "'iris'", "Did you mean 'digits'?"),
    ),
    "sklearn needing a download": (lambda _: SourceSpec(source="sklearn:linnerud"), ("'linnerud'", "'wine'")),
    "sklearn unknown labels": (lambda _: SourceSpec(source="sklearn:iris", labels="y"), ("'y'", "'target'")),
    "sklearn with array": (lambda _: SourceSpec(source="sklearn:iris", array="X"), ("data.array",)),
}

WHEN_READ: dict[str, tuple[Make, tuple[str, ...]]] = {
    "csv text": (text("X.csv", CSV), ("X.csv", "'y'", "rows 0:3", "'u' in row 0", "data.exclude")),
    "csv one text cell": (text("X.csv", "a,b\n1,2\n3,4\n5,six\n"), ("'b'", "rows 0:3", "'six' in row 2")),
    "csv text among truths": (text("X.csv", "a,b\n1,true\n3,maybe\n"), ("'b'", "2 of 2 cells", "'true' in row 0")),
    "csv truths among numbers": (text("X.csv", "a,b\n1,0.5\ntrue,2\n"), ("'a'", "'true' in row 1")),
    "csv digits apart": (text("X.csv", "a\n1\n1_000\n"), ("'a'", "'1_000' in row 1")),
    "csv cell missing": (text("X.csv", "a,b\n1,2\n3\n"), ("X.csv", "row 1", "has 1 cells", "header has 2")),
    "csv cell too many": (text("X.csv", "a,b\n1,2,3\n3,4\n"), ("X.csv", "row 0", "has 3 cells")),
    "csv stray quotes": (text("X.csv", 'a,b\n1,2"\n3,4"\n5,6\n'), ("X.csv", "stray double quotes")),
    "csv carriage returns": (text("X.csv", "a,b\n1,2\r3,4\n5,6\n"), ("X.csv", "carriage returns")),
    "csr column too high": (csr(indices=np.full(23, 4)), ("X.npz", "row 0", "column 4", "4 columns")),
    "csr column negative": (csr(indices=np.array([0] * 20 + [-1] * 3)), ("X.npz", "row 5", "column -1")),
    "csr indptr falls": (csr(indptr=np.array([0, 3, 2, 11, 15, 19, 23])), ("X.npz", "indptr", "rows 0:6")),
    "csr sums overflow": (
        csr(data=np.full(23, 100, dtype=np.int8), indices=np.zeros(23, dtype=int)),
        ("duplicate entries", "int8"),
    ),
    "parquet damaged": (damage(parquet(a=np.arange(999.0)), 0.001), ("X.parquet", "damaged")),
    "zarr3 chunk cut": (cut(zarr_group(3, X=X), 0.5, "X/c/0/0"), ("X.zarr/X", "rows 0:6")),
    "zarr2 chunk cut": (cut(zarr_group(2, X=X), 0.5, "X/0.0"), ("X/0.0", "truncated", "has 39 bytes")),
    "zarr2 chunk cut by a byte": (cut(zarr_group(2, X=X), 0.99, "X/0.0"), ("X/0.0", "truncated")),
    "zarr2 chunk empty": (cut(zarr_group(2, X=X), 0, "X/0.0"), ("X/0.0", "truncated")),
}

OF_LABELS: dict[str, tuple[Make, tuple[str, ...]]] = {
    "npz one short": (
        npz({"labels": "y"}, X=X, y=y[:5]),
        ("labels have 5 values", "X has 6 rows", "X.npz:y"),
    ),
    "npz matrix": (npz({"labels": "X"}, X=X), ("X.npz:X", "(6, 4)", "one value for each row")),
    "npz objects": (npz({"labels": "y"}, X=X, y=np.array([None] * 6)), ("X.npz:y", "never unpickled")),
    "npz complex": (npz({"labels": "y"}, X=X, y=y * 1j), ("X.npz:y", "complex128", "numbers or text")),
    "zarr one short": (zarr_group(3, {"labels": "y"}, X=X, y=y[:5]), ("labels have 5 values", "6 rows")),
    "txt one short": (
        with_file(npy(X, labels="@/y.txt"), "y.txt", "0\n1\n0\n1\n0\n"),
        ("labels have 5 values, X has 6 rows", "y.txt"),
    ),
    "csv of two columns": (
        with_file(npy(X, labels="@/y.csv"), "y.csv", "u,v\n1,2\n"),
        ("'u', 'v'", "y.csv:column"),
    ),
    "csv without the column": (
        with_file(npy(X, labels="@/y.csv:w"), "y.csv", "u,v\n1,2\n"),
        ("y.csv", "no column 'w'", "'u', 'v'"),
    ),
    "member of a text file": (with_file(npy(X, labels="@/y.txt:w"), "y.txt", "1\n"), ("y.txt", "no members")),
    "unknown ending": (with_file(npy(X, labels="@/y.json"), "y.json", "1\n"), ("y.json", ".npz", ".txt")),
    "parquet of lists": (
        parquet(a=[1.0], y=[[1]], spec_labels="y"),
        ("X.parquet:y", "list<", "numbers or text"),
    ),
}


@pytest.mark.parametrize("case", WHEN_OPENED)
def test_refused_when_opened(case: str, tmp_path: Path) -> None:
    make, parts = WHEN_OPENED[case]
    with pytest.raises(InputError) as caught:
        open_source(make(tmp_path))
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


@pytest.mark.parametrize("case", WHEN_READ)
def test_refused_when_read(case: str, tmp_path: Path) -> None:
    make, parts = WHEN_READ[case]
    source = open_source(make(tmp_path))
    with pytest.raises(InputError) as caught:
        source.read_rows(0, source.info.n_samples)
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


@pytest.mark.parametrize("case", OF_LABELS)
def test_labels_refused(case: str, tmp_path: Path) -> None:
    make, parts = OF_LABELS[case]
    source = open_source(make(tmp_path))
    with pytest.raises(InputError) as caught:
        source.read_labels()
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def test_file_that_shrinks_while_in_use(tmp_path: Path) -> None:
    source = open_source(npy(X)(tmp_path))
    cut(lambda folder: spec(folder / "X.npy"), 0.8)(tmp_path)
    with pytest.raises(InputError, match="ended while it was being read"):
        source.read_rows(0, 6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X[0],), r"X has shape \(4,\)"),
        ((X.astype(object),), "dtype object"),
        ((X, y[:5]), "labels have 5 values, X has 6 rows"),
        ((X, None, ["a"]), "feature_names has 1 names, X has 4 columns"),
    ],
)
def test_memory_source_refuses(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ArraySource(*arguments)


@pytest.mark.parametrize(
    ("make", "instead"),
    [
        (text("X.csv.gz", gzip.compress(b"a,b\n1,2\n")), "decompress it first"),
        (deflated, "write the file with numpy.savez"),
        (
            csr(format="csc", indptr=[0, 6, 12, 18, 24], indices=[*range(6)] * 4, data=X.T.ravel()),
            "save the matrix as CSR",
        ),
    ],
)
def test_a_full_disk_of_temporary_files_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make, instead: str
) -> None:
    data = make(tmp_path)
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: full)
        with pytest.raises(
            InputError, match=rf"No space left on device. Point TMPDIR to a larger disk, or {instead}\."
        ):
            open_source(data).read_rows(0, 1)


def test_npz_never_unpickles(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "exploded",))

    np.savez(tmp_path / "X.npz", X=X, y=np.array([Bomb()], dtype=object), allow_pickle=True)
    source = open_source(spec(tmp_path / "X.npz", labels="y"))
    with pytest.raises(InputError, match="never unpickled"):
        source.read_labels()
    assert not (tmp_path / "exploded").exists()
