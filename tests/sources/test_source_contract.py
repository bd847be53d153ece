"""What every source promises, checked on the same matrix in every format."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from daskfs.sources import (
    READERS,
    Source,
    SourceInfo,
    SourceSpec,
    columns,
    csv_table,
    mtx,
    open_source,
    stored_column,
    svmlight,
)
from daskfs.sources.labels import LabelEncoding
from daskfs.sources.some_rows import MAX_RANGES, SomeRows
from daskfs.storage import StoragePath, as_path, objects
from tests.sources.array_source import ArraySource

from .objects import folder_as_bucket
from .writers import COLUMNS, KINDS, N_FEATURES, N_SAMPLES, Kind, labels, matrix, open_memory

PARTITIONS = (
    [0, N_SAMPLES],
    [0, 1, 2, 9, N_SAMPLES],
    [0, 4, 8, 12, 16, 20, N_SAMPLES],
    [0, 7, 7, 14, 21, N_SAMPLES],
    list(range(N_SAMPLES + 1)),
)


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    # So that tables of a few hundred bytes come in many ranges and the scan in many blocks.
    monkeypatch.setattr(csv_table, "RANGE_BYTES", 150)
    monkeypatch.setattr(csv_table, "CSV_SCAN_BYTES", 37)
    monkeypatch.setattr(svmlight, "SCAN_BYTES", 37)
    monkeypatch.setattr(mtx, "SCAN_BYTES", 101)
    monkeypatch.setattr(objects, "RANGE_PIECE_BYTES", 53)
    for module in (csv_table, svmlight, mtx):
        module.scan.cache_clear()


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def written(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with the data in this kind and a list of names, and the name of the source there."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "names.txt").write_text("v\nw\nx y\nv\nz\n")
    return folder, kind.write(folder, matrix(), labels())


@pytest.fixture
def roots(written: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> list[StoragePath]:
    """Where it is opened: as files and as objects."""
    return [as_path(written[0]), folder_as_bucket(written[0], monkeypatch)]


def test_every_reader_is_here(tmp_path: Path) -> None:
    names = []
    for name, kind in KINDS.items():
        (folder := tmp_path / name).mkdir()
        names.append(kind.write(folder, matrix(), labels()))
    assert set(READERS.values()) <= {READERS.get(Path(name).suffix) for name in names}


def read_in_parts(source: Source, bounds: list[int]) -> np.ndarray:
    blocks = [source.read_rows(start, stop) for start, stop in itertools.pairwise(bounds)]
    for block, (start, stop) in zip(blocks, itertools.pairwise(bounds), strict=True):
        check_block(block, source.info, stop - start)
    return np.vstack([block.toarray() if sp.issparse(block) else block for block in blocks])


def check_block(block: Any, info: SourceInfo, n_rows: int) -> None:
    assert block.shape == (n_rows, info.n_features)
    assert block.dtype == info.dtype
    assert block.dtype.isnative
    if info.is_sparse:
        assert isinstance(block, sp.csr_matrix)
        assert block.has_canonical_format
        # The flag may be remembered wrongly; the indices themselves may not.
        again = sp.csr_matrix((block.data, block.indices, block.indptr), shape=block.shape)
        assert again.has_canonical_format
    else:
        assert isinstance(block, np.ndarray)
        assert block.flags.c_contiguous


def test_any_partition_gives_the_same_matrix(kind: Kind, written: tuple[Path, str], roots: list[StoragePath]) -> None:
    for root, partitions in zip(roots, (PARTITIONS, PARTITIONS[::-1]), strict=True):
        source = kind.open(root, written[1])
        for bounds in partitions:
            np.testing.assert_array_equal(read_in_parts(source, bounds), matrix(), f"{root}, {bounds}")


def test_info_labels_and_ranges(kind: Kind, written: tuple[Path, str], roots: list[StoragePath]) -> None:
    for root in roots:
        source = kind.open(root, written[1])
        info = source.info
        assert (info.n_samples, info.n_features) == (N_SAMPLES, N_FEATURES)
        assert info.dtype == np.dtype(kind.dtype)
        assert info.is_sparse == kind.is_sparse
        assert info.feature_names == kind.names
        assert info.has_labels
        assert info.row_multiple >= 1
        json.dumps(dict(info.identity))
        y = source.read_labels()
        assert y is not None
        assert y.dtype.kind == "i"
        assert y.shape == (N_SAMPLES,)
        np.testing.assert_array_equal(y, labels())
        for bounds in ((-1, 2), (3, 2), (0, N_SAMPLES + 1)):  # programming errors, and no problem of the data
            with pytest.raises(ValueError, match="not a range") as caught:
                source.read_rows(*bounds)
            assert type(caught.value) is ValueError


@pytest.mark.parametrize("n_samples", [1, 7, 13, N_SAMPLES - 1])
def test_some_rows(kind: Kind, written: tuple[Path, str], roots: list[StoragePath], n_samples: int) -> None:
    """Few stretches from the first row to the last, the same ones of values and labels."""
    rows = SomeRows(ArraySource(np.arange(float(N_SAMPLES))[:, None]), n_samples).read_rows(0, n_samples)[:, 0]
    rows = np.asarray(rows, dtype=int)
    assert rows.shape == (n_samples,)
    assert (rows[0], rows[-1]) == (0, N_SAMPLES - 1 if n_samples > 1 else 0)
    assert np.all(np.diff(rows) >= 1)
    assert np.count_nonzero(np.diff(rows) > 1) < MAX_RANGES
    for root in roots:
        source = SomeRows(kind.open(root, written[1]), n_samples)
        np.testing.assert_array_equal(read_in_parts(source, [0, n_samples // 2, n_samples]), matrix()[rows])
        np.testing.assert_array_equal(source.read_labels(), labels()[rows])


def test_labels_are_read_in_parts(
    kind: Kind, written: tuple[Path, str], roots: list[StoragePath], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, where they are more than are read at once."""
    for module in (columns, stored_column):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", 5)
    for root in roots:
        column = kind.open(root, written[1]).labels_column()
        parts = list(column.parts())
        assert all(part.dtype.kind == "i" for part in parts)
        np.testing.assert_array_equal(np.concatenate(parts), labels())
        again = LabelEncoding(column.parts, "classification", "none")
        classes = np.array(again.classes)[np.concatenate(list(again.parts()))]
        np.testing.assert_array_equal(classes, labels().astype(str))


def test_sample_columns_may_lie_where_labels_lie(
    kind: Kind, written: tuple[Path, str], roots: list[StoragePath]
) -> None:
    dtypes = {"weights": np.float64, "groups": np.int64, "times": np.float64}
    files, bucket = roots
    for root, key in ((files, "weights"), (files, "groups"), (bucket, "times")):
        values = kind.fields(root)
        values[key] = values.pop("labels")
        source = open_source(SourceSpec(source=str(root / written[1]), **values))
        assert source.info.sample_columns == (key,)
        found = source.read_sample_column(key)
        assert found is not None
        assert found.dtype == dtypes[key]
        expected = np.unique(labels(), return_inverse=True)[1] if key == "groups" else labels()
        np.testing.assert_array_equal(found, expected)
        assert source.info.n_features == N_FEATURES
        for other in dtypes.keys() - {key}:
            assert source.read_sample_column(other) is None


def test_no_labels_unless_asked_for(kind: Kind, written: tuple[Path, str], roots: list[StoragePath]) -> None:
    name = written[1]
    is_table = kind.is_table or Path(name).suffix in (".csv", ".tsv", ".txt", ".parquet", ".pq")
    fields = {key: kind.spec[key] for key in ("array", "dims", "transpose") if key in kind.spec}
    exclude = (*kind.spec.get("exclude", ()), "y") if is_table else ()
    for root in roots:
        source = open_source(SourceSpec(source=str(root / name), exclude=exclude, **fields))
        assert not source.info.has_labels
        assert source.read_labels() is None
        assert source.info.n_features == N_FEATURES


def test_feature_names_from_a_file(kind: Kind, written: tuple[Path, str], roots: list[StoragePath]) -> None:
    renamed = Kind(kind.write, {**kind.spec, "feature_names": "@/names.txt"})
    for root in roots:
        assert renamed.open(root, written[1]).info.feature_names == ("v", "w", "x y", "v", "z")


def test_identity_is_that_of_the_data(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = kind.write(tmp_path, matrix(), labels())
    roots: list[StoragePath] = [as_path(tmp_path), folder_as_bucket(tmp_path, monkeypatch)]
    identities = [kind.open(root, name).info.identity for root in roots]
    assert [kind.open(root, name).info.identity for root in roots] == identities
    path = (tmp_path / name).parent if "*" in name else tmp_path / name
    before = max(file.stat().st_mtime_ns for file in (path, *path.rglob("*")))
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    kind.write(tmp_path, matrix(offset=1.0), labels())
    for file in [path] if path.is_file() else path.rglob("*"):
        # Clocks of file systems may be too coarse to tell two writes in a row apart.
        os.utime(file, ns=(before, before + 1_000_000))
    for root, identity in zip(roots, identities, strict=True):
        source = kind.open(root, name)
        assert source.info.identity != identity
        np.testing.assert_array_equal(read_in_parts(source, [0, 11, N_SAMPLES]), matrix(offset=1.0))


@pytest.mark.parametrize("sparse", [False, True])
def test_memory_source(sparse: bool) -> None:
    source = open_memory(matrix(), labels(), sparse)
    assert source.info.is_sparse == sparse
    assert source.info.feature_names == COLUMNS
    for bounds in PARTITIONS:
        np.testing.assert_array_equal(read_in_parts(source, bounds), matrix())
    np.testing.assert_array_equal(source.read_labels(), labels())
    assert open_memory(matrix(), labels(), sparse).info.identity == source.info.identity
    assert open_memory(matrix(1.0), labels(), sparse).info.identity != source.info.identity


@pytest.mark.parametrize(
    ("name", "shape", "task"),
    [
        ("iris", (150, 4), "i"),
        ("wine", (178, 13), "i"),
        ("breast_cancer", (569, 30), "i"),
        ("digits", (1797, 64), "i"),
        ("diabetes", (442, 10), "f"),
    ],
)
def test_bundled_source(name: str, shape: tuple[int, int], task: str) -> None:
    source = open_source(SourceSpec(source=f"sklearn:{name}"))
    assert (source.info.n_samples, source.info.n_features) == shape
    assert source.info.feature_names is not None
    assert len(source.info.feature_names) == shape[1]
    whole = source.read_rows(0, shape[0])
    np.testing.assert_array_equal(read_in_parts(source, [0, 50, 51, shape[0]]), whole)
    y = open_source(SourceSpec(source=f"sklearn:{name}", labels="target")).read_labels()
    assert y is not None
    assert y.dtype.kind == task
    np.testing.assert_array_equal(y, source.read_labels())


@pytest.mark.parametrize(
    ("stored", "handed_on"),
    [
        ("int8", "int8"),
        ("uint16", "uint16"),
        ("int32", "float64"),
        ("int64", "float64"),
        ("bool", "uint8"),
        ("float16", "float32"),
        ("longdouble", "float64"),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_are_converted_in_pieces(
    stored: str, handed_on: str, order: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daskfs.sources.npy_file.NPY_BUFFER_BYTES", 64)
    X = np.arange(60).reshape(12, 5).astype(stored)
    np.save(tmp_path / "X.npy", np.asarray(X, order=order))
    source = open_source(SourceSpec(source=str(tmp_path / "X.npy")))
    assert source.info.dtype == np.dtype(handed_on)
    np.testing.assert_array_equal(read_in_parts(source, [0, 5, 12]), X.astype(handed_on))
