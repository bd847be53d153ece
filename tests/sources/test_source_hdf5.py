"""HDF5 files that cannot be used, lead elsewhere, or are compressed by what has to be installed; and how they are read
beside others.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.sources import SourceSpec, hdf5, open_source
from daskfs.sources.layouts import open_hdf5
from daskfs.storage import objects
from tests.cli.command import daskfs, refused
from tests.optional import h5py, hdf5plugin

from .broken import Make, cut, damage, spec, text
from .objects import folder_as_bucket

X = np.arange(24.0).reshape(6, 4)
y = np.array([0, 1, 0, 1, 0, 1])
UNKNOWN_FILTER = 305


def hdf5_file(write: Callable[[Any], object], name: str = "X.h5", **fields: Any) -> Make:
    def make(folder: Path) -> SourceSpec:
        with h5py.File(folder / name, "w") as file:
            write(file)
        return spec(folder / name, **fields)

    return make


def members(**values: Any) -> Callable[[Any], None]:
    def write(file: Any) -> None:
        for name, value in values.items():
            file[name] = value

    return write


def sparse(**changes: Any) -> Callable[[Any], None]:
    csr = sp.csr_matrix(X)
    parts = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr, "shape": X.shape, **changes}
    return members(**{f"X/{name}": part for name, part in parts.items() if part is not None})


def encoded(encoding: str) -> Callable[[Any], None]:
    def write(file: Any) -> None:
        sparse()(file)
        file["X"].attrs["encoding-type"] = encoding

    return write


def tenx(**changes: Any) -> Callable[[Any], None]:
    csr = sp.csr_matrix(X)
    parts = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr, "shape": X.shape[::-1]}
    parts |= {"barcodes": np.array([b"a"] * 6), "features/name": np.array([b"g"] * 4), **changes}
    return members(**{f"matrix/{name}": part for name, part in parts.items() if part is not None})


def two_genomes(file: Any) -> None:
    for name in "ab":
        tenx()(file.create_group(name))
        file.move(f"{name}/matrix", name + "1")


def virtual(file: Any) -> None:
    with h5py.File(Path(file.filename).parent / "other.h5", "w") as other:
        other["X"] = X
    layout = h5py.VirtualLayout(X.shape, X.dtype)
    layout[:] = h5py.VirtualSource("other.h5", "X", X.shape)
    file.create_virtual_dataset("X", layout)


def compressed(file: Any) -> None:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((6, 4))
    plist.set_filter(UNKNOWN_FILTER, h5py.h5z.FLAG_OPTIONAL)
    h5py.h5d.create(file.id, b"X", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((6, 4)), plist)


def chunked(file: Any) -> None:
    file.create_dataset("X", data=np.random.default_rng(0).normal(size=(999, 4)), chunks=(100, 4), compression="gzip")


def links_in_a_ring(file: Any) -> None:
    file["X"] = h5py.SoftLink("/Y")
    file["Y"] = h5py.SoftLink("X")


WHEN_OPENED: dict[str, tuple[Make, tuple[str, ...]]] = {
    "text": (text("X.h5", "hello"), ("X.h5", "not in HDF5 format", "signature")),
    "empty": (text("X.hdf5", ""), ("X.hdf5", "not in HDF5 format")),
    "cut": (cut(hdf5_file(chunked), 0.5), ("X.h5", "truncated")),
    "NetCDF 3": (text("X.nc", b"CDF\x01"), ("X.nc", "NetCDF 3", "nccopy -k nc4")),
    "nothing in it": (hdf5_file(members()), ("X.h5", "holds 0", "has none", "data.array")),
    "two matrices": (hdf5_file(members(A=X, B=X)), ("holds 2", "'A', 'B'", "data.array")),
    "unknown array": (hdf5_file(members(value=X), array="values"), ("no array 'values'", "Did you mean 'value'?")),
    "unknown labels": (hdf5_file(members(X=X, label=y), labels="labels"), ("no member 'labels'", "mean 'label'?")),
    "1-D": (hdf5_file(members(X=y)), ("X.h5:X", "shape (6,)")),
    "no rows": (hdf5_file(members(X=X[:0])), ("X.h5:X", "nothing in it")),
    "scalar": (hdf5_file(members(X=1.0)), ("X.h5:X", "shape ()")),
    "text in it": (hdf5_file(members(X=[["a", "b"]])), ("X.h5:X", "text or objects", "real numbers")),
    "complex": (hdf5_file(members(X=X * 1j)), ("X.h5:X", "complex128")),
    "records": (hdf5_file(members(X=np.zeros((2, 2), dtype="i4,f4"))), ("X.h5:X", "real numbers")),
    "names of another number": (
        hdf5_file(members(X=X, names=["a", "b"]), feature_names="names"),
        ("names has 2 names", "X has 4 columns"),
    ),
    "sparse without shape": (hdf5_file(sparse(shape=None)), ("X.h5:X", "'shape'", "two whole numbers")),
    "sparse of three sides": (hdf5_file(sparse(shape=(6, 4, 1))), ("X.h5:X", "(6, 4, 1)")),
    "sparse of another shape": (hdf5_file(sparse(shape=(7, 4))), ("X.h5:X", "7 values, but 7 rows need 8")),
    "sparse with real indices": (hdf5_file(sparse(indices=np.ones(23))), ("X.h5:X/indices", "float64")),
    "another encoding": (hdf5_file(encoded("coo_matrix")), ("X.h5:X", "'coo_matrix'")),
    "csc of another length": (hdf5_file(encoded("csc_matrix")), ("X.h5:X", "indptr has 7 values", "4 columns")),
    "dims of a sparse matrix": (hdf5_file(sparse(), dims=("a", "b")), ("data.dims", "sparse")),
    "dims of an array without names": (hdf5_file(members(X=X), dims=("a", "b")), ("X.h5:X", "have no names")),
    "10x without names": (
        hdf5_file(tenx(**{"features/name": np.array([b"g"])})),
        ("matrix", "names of its 4 features"),
    ),
    "10x of two genomes": (
        hdf5_file(two_genomes),
        ("'a1', 'b1'", "data.array"),
    ),
    "10x with dims": (hdf5_file(tenx(), dims=("a", "b")), ("data.dims", "leave it out")),
    "10x with labels inside": (hdf5_file(tenx(), labels="y"), ("no such file", "barcodes")),
    "link into another file": (
        hdf5_file(members(X=h5py.ExternalLink("secret.h5", "/X"))),
        ("X.h5:X", "link into another file, secret.h5", "not followed"),
    ),
    "link by way of another link": (
        hdf5_file(members(X=h5py.SoftLink("/away/X"), away=h5py.ExternalLink("secret.h5", "/"))),
        ("link into another file, secret.h5",),
    ),
    "labels in another file": (
        hdf5_file(members(X=X, y=h5py.ExternalLink("secret.h5", "/y")), labels="y"),
        ("X.h5:y", "link into another file"),
    ),
    "links in a ring": (hdf5_file(links_in_a_ring), ("X.h5:X", "leads through more than 16")),
    "link to nowhere": (hdf5_file(members(X=h5py.SoftLink("/nowhere"))), ("holds 0",)),
    "values in another file": (
        hdf5_file(lambda file: file.create_dataset("X", (6, 4), "f8", external=[("/etc/hostname", 0, 192)])),
        ("X.h5:X", "lies in other files"),
    ),
    "virtual": (hdf5_file(virtual), ("X.h5:X", "lies in other files", "write its values into this one")),
    "unknown filter": (hdf5_file(compressed), ("X.h5:X", "filter 305", "not installed", "hdf5plugin")),
    "with exclude": (hdf5_file(members(X=X), exclude=("a",)), ("data.exclude", "not a table")),
    "text called h5ad": (text("X.h5ad", "hello"), ("X.h5ad", "not in HDF5 format")),
    "plain file called h5ad": (hdf5_file(members(X=X), "X.h5ad"), ("X.h5ad:obs", "not a table in AnnData's layout")),
}

WHEN_READ: dict[str, tuple[Make, tuple[str, ...]]] = {
    "damaged chunk": (damage(hdf5_file(chunked), 0.7), ("X.h5:X", "damaged within rows")),
    "indices out of range": (hdf5_file(sparse(indices=np.full(23, 4))), ("X.h5:X", "row 0", "column 4")),
    "indptr falls": (hdf5_file(sparse(indptr=[0, 3, 2, 11, 15, 19, 23])), ("X.h5:X", "indptr", "rows 0:6")),
}


@pytest.mark.parametrize("case", WHEN_OPENED)
def test_refused_when_opened(case: str, tmp_path: Path) -> None:
    make, parts = WHEN_OPENED[case]
    with pytest.raises(InputError) as caught:
        open_source(make(tmp_path))
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", WHEN_READ)
def test_refused_when_read(case: str, tmp_path: Path) -> None:
    make, parts = WHEN_READ[case]
    source = open_source(make(tmp_path))
    with pytest.raises(InputError) as caught:
        source.read_rows(0, source.info.n_samples)
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


@pytest.mark.parametrize("write", [members(X=np.where(X == 5, np.nan, X)), sparse(data=np.full(23, np.nan))])
def test_what_is_missing_is_handed_on(write: Callable[[Any], None], tmp_path: Path) -> None:
    block = open_source(hdf5_file(write)(tmp_path)).read_rows(0, 6)
    values = block.data if sp.issparse(block) else block
    assert np.isnan(values).sum() == (23 if sp.issparse(block) else 1)


def test_references_are_no_labels(tmp_path: Path) -> None:
    def write(file: Any) -> None:
        file["X"] = X
        file.create_dataset("y", data=[file["X"].ref] * 6, dtype=h5py.ref_dtype)

    with pytest.raises(InputError, match=r"X.h5:y holds references or lists"):
        open_source(hdf5_file(write, labels="y")(tmp_path)).read_labels()


def test_text_that_is_none(tmp_path: Path) -> None:
    source = open_source(hdf5_file(members(X=X, y=np.array([b"\xff"] * 6)), labels="y")(tmp_path))
    with pytest.raises(InputError, match=r"X.h5:y is damaged.*decode"):
        source.read_labels()


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["Blosc", "Zstd", "LZ4", "BZip2"])
def test_filters_of_hdf5plugin(name: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "X.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(2, 4), compression=getattr(hdf5plugin, name)())
    code = (
        "import sys; from daskfs.sources import SourceSpec, open_source\n"
        "print(open_source(SourceSpec(source=sys.argv[1])).read_rows(0, 6).sum())"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "X.h5"], capture_output=True, text=True, check=True)
    assert float(done.stdout) == X.sum()


@pytest.mark.parametrize("ending", hdf5.ENDINGS)
def test_a_missing_extra_is_named(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(hdf5_file(members(X=X))(tmp_path).source).rename(tmp_path / f"X{ending}")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InputError, match=rf"X{ending} is read by the package h5py: pip install 'daskfs\[hdf5\]'"):
        open_source(SourceSpec(source=str(path)))


def test_the_file_may_be_open_elsewhere_in_the_process(tmp_path: Path) -> None:
    found = hdf5_file(members(X=X))(tmp_path)
    with h5py.File(found.source, "r"):
        np.testing.assert_array_equal(open_source(found).read_rows(0, 6), X)


def test_the_file_may_be_written_anew_after_reading(tmp_path: Path) -> None:
    found = hdf5_file(members(X=X))(tmp_path)
    source = open_source(found)
    source.read_rows(0, 3)
    hdf5_file(members(X=X + 1))(tmp_path)
    np.testing.assert_array_equal(source.read_rows(0, 6), X + 1)


def test_threads_read_at_a_time(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(999, 4))
    source = open_source(hdf5_file(lambda file: file.create_dataset("X", data=values, chunks=(10, 4)))(tmp_path))
    found: dict[int, Any] = {}

    def read(start: int) -> None:
        found[start] = source.read_rows(start, start + 111)

    threads = [threading.Thread(target=read, args=(start,)) for start in range(0, 999, 111)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(np.vstack([found[start] for start in sorted(found)]), values)


def test_an_object_that_is_not_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hdf5_file(members(X=X))(tmp_path)
    path = folder_as_bucket(tmp_path, monkeypatch) / "X.h5"
    source = open_hdf5(SourceSpec(source=str(path)), path)

    def refuse(*_: object) -> Any:
        raise OSError(5, "nobody answers", str(path))

    monkeypatch.setattr(objects.ObjectPath, "read_range", refuse)
    with pytest.raises(OSError, match="nobody answers"):
        source.read_rows(0, 6)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "bool", "float16", "longdouble"])
@pytest.mark.parametrize("chunks", [None, (5, 2)])
def test_types_are_those_of_blocks(dtype: str, chunks: tuple[int, int] | None, tmp_path: Path) -> None:
    values = X.astype(dtype)
    source = open_source(hdf5_file(lambda file: file.create_dataset("X", data=values, chunks=chunks))(tmp_path))
    block = source.read_rows(1, 6)
    expected = {"int32": "float64", "int64": "float64", "bool": "uint8", "float16": "float32", "longdouble": "float64"}
    assert block.dtype == source.info.dtype == expected.get(dtype, dtype)
    np.testing.assert_array_equal(block, values[1:].astype(block.dtype))


def test_a_csc_matrix_in_many_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskfs.sources.csc.BUCKET_BYTES", 100)
    monkeypatch.setattr("daskfs.sources.csc.ENTRIES_AT_ONCE", 17)
    monkeypatch.setattr("daskfs.sources.csc.WAITING_BYTES", 300)
    matrix = sp.random(200, 31, density=0.1, format="csc", random_state=0)
    parts = {name: getattr(matrix, name) for name in ("data", "indices", "indptr")}
    found = hdf5_file(sparse(**parts, shape=matrix.shape))(tmp_path)
    source = open_source(found)
    assert source.info.row_multiple < 20
    for start, stop in ((0, 200), (3, 4), (50, 50), (60, 133)):
        block = source.read_rows(start, stop)
        assert block.has_canonical_format
        assert (block != matrix.tocsr()[start:stop]).nnz == 0


def test_a_csc_matrix_with_a_wrong_row(tmp_path: Path) -> None:
    csc = sp.csc_matrix(X)
    wrong = np.where(csc.indices == 5, 6, csc.indices)
    found = hdf5_file(sparse(data=csc.data, indices=wrong, indptr=csc.indptr))(tmp_path)
    with pytest.raises(InputError, match=r"X.h5:X: a value lies in row 6, but the matrix has 6 rows"):
        open_source(found).read_rows(0, 2)


def test_old_files_of_10x(tmp_path: Path) -> None:
    names, ids = np.array([b"A", b"B", b"B", b"C"]), np.array([b"E1", b"E2", b"E3", b"E4"])

    def write(file: Any) -> None:
        tenx(**{"features/name": None, "gene_names": names, "genes": ids})(file)
        file.move("matrix", "GRCh38")

    source = open_source(hdf5_file(write)(tmp_path))
    assert source.info.feature_names == ("A", "B", "B", "C")
    np.testing.assert_array_equal(source.read_rows(0, 6).toarray(), X)
    source = open_source(hdf5_file(write, array="GRCh38", feature_names="genes")(tmp_path))
    assert source.info.feature_names == ("E1", "E2", "E3", "E4")


def test_chunks_that_the_index_has_lost_are_refused(tmp_path: Path) -> None:
    """Of an entry with size 0, as in a block of zeros, HDF5 returns memory that holds anything."""
    path = tmp_path / "X.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("X", data=np.arange(60.0).reshape(20, 3), chunks=(5, 3))
        file["y"] = np.arange(20) % 2
    spec = SourceSpec(source=str(path), labels="y")
    assert open_source(spec).verify() == []
    content = bytearray(path.read_bytes())
    node = next(place for place in range(len(content)) if content.startswith(b"TREE\x01", place))  # of chunks
    content[node + 24 : node + 28] = bytes(4)  # the size in its first entry
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"X\.h5:X is damaged: its index has no place for 1 chunks"):
        open_source(spec).verify()
    refused(daskfs("inspect", path, "--labels", "y"), 3, "X.h5:X is damaged")
