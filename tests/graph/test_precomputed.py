"""Graphs from outside: what each form holds, what is refused, and that estimators take a path for what lies there."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from daskfs import KNNGraph, LaplacianScore, knn_graph
from daskfs.errors import InputError
from daskfs.graph import precomputed as given_module
from daskfs.graph import precomputed_stage
from daskfs.graph.precomputed import NeighborLists, WeightMatrix
from daskfs.graph.precomputed_files import open_graph
from daskfs.graph.precomputed_stage import store_graph
from daskfs.kernels.neighbors.metrics import Metric
from daskfs.kernels.scaling import Scaling
from daskfs.sources.zipped import NpzFile
from daskfs.store import layout
from daskfs.store.store import Store
from tests.cases import each
from tests.optional import h5py
from tests.rewriting import WAYS, read_before_and_after, twins
from tests.sources.objects import folder_as_bucket

FloatArray = NDArray[np.float64]
N = 60
X = np.abs(np.random.default_rng(0).normal(size=(N, 5)))
RUN_JSON = "run.json"


def one_sided(n: int = N, density: float = 0.15, seed: int = 1) -> sp.csr_matrix:
    """Weights of which most stand on one side of the diagonal only, and others differ between the sides."""
    rng = np.random.default_rng(seed)
    return sp.csr_matrix(np.where(rng.uniform(size=(n, n)) < density, rng.uniform(0.1, 1, size=(n, n)), 0.0))


# ------------------------------------------------------------------------ ways to write it
def npz(form: str) -> Callable[[Path, sp.csr_matrix], Path]:
    def write(folder: Path, matrix: sp.csr_matrix) -> Path:
        sp.save_npz(folder / "S.npz", matrix.asformat(form))
        return folder / "S.npz"

    return write


def npz_array(folder: Path, matrix: sp.csr_matrix) -> Path:
    sp.save_npz(folder / "S.npz", sp.coo_array(matrix), compressed=False)
    return folder / "S.npz"


def npz_parts(folder: Path, matrix: sp.csr_matrix) -> Path:
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": np.array(matrix.shape)}
    np.savez(folder / "parts.npz", **parts)
    return folder / "parts.npz"


def anndata(version: int, form: str = "csr", chunks: int = 50) -> Callable[[Path, sp.csr_matrix], Path]:
    """A group as AnnData writes it under obsp."""

    def write(folder: Path, matrix: sp.csr_matrix) -> Path:
        root = zarr.open_group(folder / "file.zarr", mode="w", zarr_format=version)  # type: ignore[arg-type]
        attributes = {"encoding-type": f"{form}_matrix", "encoding-version": "0.1.0", "shape": list(matrix.shape)}
        group = root.create_group("obsp/connectivities", attributes=attributes)
        stored = matrix.asformat(form)
        for name in ("data", "indices", "indptr"):
            group.create_array(name, data=getattr(stored, name), chunks=(chunks,))
        return folder / "file.zarr" / "obsp" / "connectivities"

    return write


def h5ad(form: str) -> Callable[[Path, sp.csr_matrix], Path]:
    """A group as AnnData writes it under obsp, in a file whose name stands before a colon."""

    def write(folder: Path, matrix: sp.csr_matrix) -> Path:
        stored = matrix.asformat(form)
        with h5py.File(folder / "file.h5ad", "w") as file:
            group = file.create_group("obsp/connectivities")
            group.attrs.update({"encoding-type": f"{form}_matrix", "shape": matrix.shape})
            for name in ("data", "indices", "indptr"):
                group.create_dataset(name, data=getattr(stored, name), chunks=(50,), compression="gzip")
        return folder / "file.h5ad:obsp" / "connectivities"

    return write


MATRICES: dict[str, Callable[[Path, sp.csr_matrix], Path]] = {
    "npz csr": npz("csr"),
    "npz csc": npz("csc"),
    "h5ad csr": h5ad("csr"),
    "h5ad csc": h5ad("csc"),
    "npz coo": npz("coo"),
    "npz array": npz_array,
    "npz parts": npz_parts,
    "zarr 3": anndata(3),
    "zarr 3 csc": anndata(3, "csc"),
    "zarr 2": anndata(2),
    "zarr 2 csc": anndata(2, "csc"),
    "one chunk": anndata(3, chunks=10**6),
}


def saved(folder: Path, k: int = 6, metric: Metric = "euclidean", scaling: Scaling | None = None) -> Path:
    knn_graph(X, k, metric=metric, graph_scaling=scaling).save(folder / "lists")
    return folder / "lists"


def changed(path: Path, name: str, change: Callable[[NDArray[Any]], Any]) -> None:
    """Write an array of a group again with other values."""
    array = zarr.open_array(path / name, mode="r+").with_config({"write_empty_chunks": True})
    values = np.asarray(array[...])
    result = change(values)
    array[...] = values if result is None else result


def edges_in(store: Store) -> FloatArray:
    """The stored edges as a symmetric matrix with its diagonal."""
    names = (layout.GIVEN_SOURCE, layout.GIVEN_TARGET, layout.GIVEN_WEIGHT)
    source, target, weight = (store.open(name)[...] for name in names)
    assert (source < target).all()
    pairs = list(zip(source.tolist(), target.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    diagonal = store.open(layout.GIVEN_DIAGONAL)[...]
    S = np.diag(diagonal)
    S[source, target] = S[target, source] = weight
    return S


def union(matrix: Any) -> FloatArray:
    dense: FloatArray = np.asarray(matrix.todense())
    return np.maximum(dense, dense.T)


# ------------------------------------------------------------------------------ matrices
class TestMatrices:
    @pytest.mark.parametrize("form", MATRICES)
    def test_scores_of_the_matrix_in_memory(self, tmp_path: Path, form: str) -> None:
        matrix = one_sided()
        path = MATRICES[form](tmp_path, matrix)
        expected = LaplacianScore(graph=matrix).fit(X).scores_
        np.testing.assert_array_equal(LaplacianScore(graph=path).fit(X).scores_, expected)
        np.testing.assert_array_equal(LaplacianScore(graph=str(path)).fit(X).scores_, expected)

    @pytest.mark.parametrize("form", MATRICES)
    def test_each_edge_once_with_the_larger_entry(self, tmp_path: Path, form: str) -> None:
        matrix = one_sided()
        store = Store(tmp_path / "run")
        facts = store_graph(store, open_graph(MATRICES[form](tmp_path, matrix)), N, 0)
        np.testing.assert_array_equal(edges_in(store), union(matrix))
        assert facts["n_edges"] == np.count_nonzero(np.triu(union(matrix), 1))

    @each("dtype", [np.float32, np.int8, np.uint16, np.bool_])
    @pytest.mark.parametrize("form", ["npz csr", "npz coo", "zarr 3", "zarr 2"])
    def test_types(self, tmp_path: Path, form: str, dtype: type[np.generic]) -> None:
        matrix = sp.csr_matrix((one_sided() * 9).astype(dtype))
        store = Store(None)
        store_graph(store, open_graph(MATRICES[form](tmp_path, matrix)), N, 0)
        np.testing.assert_array_equal(edges_in(store), union(matrix.astype(np.float64)))

    def test_entries_of_one_place_add_up(self, tmp_path: Path) -> None:
        """In any of the forms, also unsorted, and before the larger of both sides is taken."""
        row, column = np.array([0, 2, 0, 1, 1, 0]), np.array([1, 0, 1, 0, 2, 0])
        matrix = sp.coo_matrix((np.array([1.0, 2, 3, 3.5, 0, 7]), (row, column)), shape=(3, 3))
        sp.save_npz(tmp_path / "S.npz", matrix)
        by_row = sp.csr_matrix(
            (matrix.data[[0, 2, 5, 3, 4, 1]], column[[0, 2, 5, 3, 4, 1]], [0, 3, 5, 6]), shape=(3, 3)
        )
        expected = [[7, 4, 2], [4, 0, 0], [2, 0, 0]]
        for graph in (tmp_path / "S.npz", anndata(3)(tmp_path, by_row)):
            store = Store(None)
            store_graph(store, open_graph(graph), 3, 0)
            np.testing.assert_array_equal(edges_in(store), expected)

    @settings(max_examples=14)
    @given(on_disk=st.booleans(), seed=st.integers(0, 10**6), n=st.integers(2, 26), density=st.floats(0.02, 1))
    def test_sorted_in_parts(
        self, tmp_path_factory: pytest.TempPathFactory, on_disk: bool, seed: int, n: int, density: float
    ) -> None:
        """As where the entries do not fit in memory: many runs, stretches and chunks."""
        matrix = one_sided(n, density, seed)
        if not np.triu(union(matrix), 1).any():
            matrix = sp.csr_matrix(np.ones((n, n)))
        folder = tmp_path_factory.mktemp("parts")
        store = Store(folder / "run" if on_disk else None)
        small = {"SAMPLED_KEYS": 4, "RUN_CHUNK": 8, "GIVEN_BLOCK": 16}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in small.items():
                patch.setattr(precomputed_stage, name, value)
            patch.setattr(given_module, "RUN_ENTRIES", (32, 32))
            store_graph(store, open_graph(anndata(3)(folder, matrix)), n, 0)
        np.testing.assert_array_equal(edges_in(store), union(matrix))
        if on_disk:
            assert not (folder / "run" / "spill" / "given").exists()
        shutil.rmtree(folder)

    def test_only_some_entries_are_read_at_a_time(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(given_module, "RUN_ENTRIES", (32, 32))
        graph = open_graph(anndata(3)(tmp_path, one_sided()))
        assert isinstance(graph, WeightMatrix)
        lengths = [len(values) for _, _, values in graph.read()]
        assert max(lengths) <= 32
        assert sum(lengths) == graph.n_entries > 300

    def test_a_chunk_is_read_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(given_module, "RUN_ENTRIES", (32, 32))
        graph = open_graph(anndata(3, chunks=10**6)(tmp_path, one_sided()))
        assert isinstance(graph, WeightMatrix)
        assert graph.read_entries >= graph.n_entries
        assert max(len(values) for _, _, values in graph.read()) == 32

    @pytest.mark.parametrize("form", ["npz csr", "npz coo", "npz array", "npz parts"])
    def test_an_npz_file_is_read_in_parts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
        """Planning opens no member with values, and needs no more memory for more of them."""
        opened, open_member = set(), NpzFile.open
        monkeypatch.setattr(NpzFile, "open", lambda npz, name: (opened.add(name), open_member(npz, name))[1])
        monkeypatch.setattr(given_module, "RUN_ENTRIES", (32, 32))
        sparse, dense = (open_graph(MATRICES[form](tmp_path, one_sided(density=density))) for density in (0.1, 0.9))
        assert opened <= {"format", "shape"}
        assert sparse.held_bytes == dense.held_bytes
        assert isinstance(dense, WeightMatrix)
        lengths = [len(values) for _, _, values in dense.read()]
        assert max(lengths) <= 32
        assert sum(lengths) == dense.n_entries
        assert {"data"} < opened

    def test_diagonal_counts_as_self_loops(self, tmp_path: Path) -> None:
        matrix = sp.csr_matrix(one_sided() + sp.diags(np.arange(float(N))))
        expected = LaplacianScore(graph=union(matrix)).fit(X).scores_
        np.testing.assert_array_equal(LaplacianScore(graph=npz("coo")(tmp_path, matrix)).fit(X).scores_, expected)

    def test_on_data_that_are_not_in_memory(self, tmp_path: Path) -> None:
        np.save(tmp_path / "X.npy", X)
        path = anndata(2)(tmp_path, one_sided())
        expected = LaplacianScore(graph=one_sided()).fit(X).scores_
        found = LaplacianScore(graph=path).fit(tmp_path / "X.npy").scores_
        np.testing.assert_allclose(found, expected, rtol=1e-12)

    def test_the_home_of_the_user(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        npz("csr")(tmp_path, one_sided())
        assert open_graph("~/S.npz").where == str(tmp_path / "S.npz")


# --------------------------------------------------------------------------------- lists
class TestLists:
    @pytest.mark.parametrize("scaling", [None, "zscore", "unit"])
    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    def test_scores_of_the_graph_that_the_estimator_finds(
        self, tmp_path: Path, metric: Metric, scaling: Scaling | None
    ) -> None:
        """The metric and scaling are those of the lists, as with a :class:`KNNGraph`."""
        path = saved(tmp_path, 6, metric, scaling)
        for weights, k in product(("heat", "binary"), (2, 6)):
            found = LaplacianScore(n_neighbors=k, weights=weights, graph=path).fit(X).scores_  # type: ignore[arg-type]
            expected = LaplacianScore(n_neighbors=k, weights=weights, metric=metric, graph_scaling=scaling).fit(X)  # type: ignore[arg-type]
            np.testing.assert_array_equal(found, expected.scores_)

    def test_cosine_weights(self, tmp_path: Path) -> None:
        found = LaplacianScore(weights="cosine", metric="cosine", graph=saved(tmp_path, 6, "cosine")).fit(X).scores_
        expected = LaplacianScore(weights="cosine", metric="cosine").fit(X).scores_
        np.testing.assert_array_equal(found, expected)
        with pytest.raises(ValueError, match="weights 'cosine' need metric 'cosine'"):
            LaplacianScore(weights="cosine", graph=saved(tmp_path / "other")).fit(X)

    @pytest.mark.parametrize("name", ["euclidean", "cosine-unit", "euclidean-log1p"])
    def test_without_attributes_the_name_says_what_they_are(self, tmp_path: Path, name: str) -> None:
        path = saved(tmp_path).rename(tmp_path / name)
        (path / "zarr.json").unlink()
        graph = open_graph(path)
        assert isinstance(graph, NeighborLists)
        assert (graph.name, graph.metric, graph.scaling or "") == (name, *(*name.split("-"), "")[:2])

    def test_a_run_with_one_graph(self, tmp_path: Path) -> None:
        (tmp_path / "run" / "knn").mkdir(parents=True)
        (tmp_path / "run" / RUN_JSON).write_text("{}")
        (tmp_path / "run" / "knn" / "begun" / "cells").mkdir(parents=True)
        with pytest.raises(InputError, match="run is a run with no neighbor lists"):
            open_graph(tmp_path / "run")
        shutil.copytree(saved(tmp_path), tmp_path / "run" / "knn" / "euclidean")
        assert open_graph(tmp_path / "run").where == str(tmp_path / "run" / "knn" / "euclidean")
        shutil.copytree(tmp_path / "lists", tmp_path / "run" / "knn" / "cosine")
        with pytest.raises(InputError, match=r"several graphs, .* be named: .*knn/cosine, .*knn/euclidean"):
            open_graph(tmp_path / "run")

    def test_missing_neighbors(self, tmp_path: Path) -> None:
        indices = np.array([[1, 2], [0, -1], [-1, -1], [0, 1]])
        graph = KNNGraph(indices, np.where(indices < 0, np.inf, 0.5), "euclidean")
        graph.save(tmp_path / "lists")
        expected = LaplacianScore(n_neighbors=2, graph=graph).fit(X[:4]).scores_
        np.testing.assert_array_equal(
            LaplacianScore(n_neighbors=2, graph=tmp_path / "lists").fit(X[:4]).scores_, expected
        )

    def test_saved_lists_read_back(self, tmp_path: Path) -> None:
        graph = knn_graph(X, 6, metric="cosine", graph_scaling="unit")
        graph.save(str(tmp_path / "lists"))
        found = open_graph(tmp_path / "lists")
        assert isinstance(found, NeighborLists)
        assert (found.metric, found.scaling) == ("cosine", "unit")
        np.testing.assert_array_equal(found.indices[:], graph.indices)
        np.testing.assert_array_equal(found.distances[:], graph.distances)
        with pytest.raises(FileExistsError, match="lists exists"):
            graph.save(tmp_path / "lists")

    def test_more_rows_than_a_block(self, tmp_path: Path) -> None:
        n = 5000
        rows = np.arange(n)
        lists = KNNGraph(np.stack([(rows + 1) % n, (rows - 1) % n], axis=1), np.ones((n, 2)), "euclidean")
        lists.save(tmp_path / "lists")
        store = Store(None)
        store_graph(store, open_graph(tmp_path / "lists"), n, 1)
        np.testing.assert_array_equal(
            store.open(layout.KNN_INDICES.format("euclidean"))[...], lists.indices.min(axis=1, keepdims=True)
        )
        lists.indices[4500, 1] = n
        with pytest.raises(ValueError, match="graph: row 4500 lists a row that is none of the 5000"):
            LaplacianScore(n_neighbors=2, graph=lists).fit(np.random.default_rng(0).normal(size=(n, 2)))


# -------------------------------------------------------------------------------- identity
def test_identity_changes_with_the_files(tmp_path: Path) -> None:
    for folder, write in (
        ("a", saved),
        ("b", MATRICES["zarr 2"]),
        ("c", MATRICES["zarr 3"]),
        ("d", MATRICES["npz csc"]),
    ):
        (tmp_path / folder).mkdir()
        path = write(tmp_path / folder) if write is saved else write(tmp_path / folder, one_sided())
        before = open_graph(path).identity
        assert open_graph(path).identity == before
        assert json.loads(json.dumps(before)) == before
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        for file in [files[0], files[-1]]:
            os.utime(file, ns=(1, 1))
        assert open_graph(path).identity != before


def _swapped_weights() -> Iterator[sp.csr_matrix]:
    """Yield a matrix, and others with two of its weights swapped."""
    yield one_sided()
    for entry in range(1, 300):
        matrix = one_sided()
        matrix.data[[0, entry]] = matrix.data[[entry, 0]]
        yield matrix


def _swapped_rows() -> Iterator[KNNGraph]:
    """Yield lists, and others with those of two rows swapped."""
    rows = np.arange(N)
    indices = np.stack([(rows + 1) % N, (rows + 2) % N], axis=1)
    distances = np.sort(np.random.default_rng(0).uniform(size=(N, 2)), axis=1)
    for other in range(N):
        order = rows.copy()
        order[[0, other]] = order[[other, 0]]
        yield KNNGraph(indices, distances[order], "euclidean")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", [*MATRICES, "lists"])
def test_a_rewritten_graph_is_read_again(form: str, way: str, tmp_path: Path) -> None:
    def write(folder: Path, graph: Any) -> Path:
        if form != "lists":
            return MATRICES[form](folder, graph)
        graph.save(folder / "lists")
        return folder / "lists"

    def read(path: Path) -> list[Any]:
        graph = open_graph(path)
        parts = [graph.read(slice(0, N), 2)] if isinstance(graph, NeighborLists) else graph.read()
        return [values.tolist() for part in parts for values in part]

    graphs: Iterator[Any] = _swapped_rows() if form == "lists" else _swapped_weights()
    (old, _, path), (new, _, other) = twins(tmp_path, graphs, write)
    before, after = read_before_and_after(old, new, way, lambda: read(path))
    assert before != after == read(other)


# ----------------------------------------------------------------------------- what is none
def spoiled_chunk(name: str, keep: float) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        file = next(file for file in sorted((path / name).rglob("*")) if file.is_file() and file.name[0].isdigit())
        content = file.read_bytes()
        file.write_bytes(content[: int(len(content) * keep)])

    return spoil


def removed(*names: str) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        for name in names:
            shutil.rmtree(path / name) if (path / name).is_dir() else (path / name).unlink()

    return spoil


def setting(name: str, row: int, column: int, value: float) -> Callable[[Path], None]:
    def change(values: NDArray[Any]) -> None:
        values[row, column] = value

    return lambda path: changed(path, name, change)


def attributes(**values: Any) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        document = json.loads((path / "zarr.json").read_text())
        document["attributes"].update(
            {key.replace("_", "-") if "coding" in key else key: v for key, v in values.items()}
        )
        (path / "zarr.json").write_text(json.dumps(document))

    return spoil


def text(name: str, content: str) -> Callable[[Path], Any]:
    return lambda path: (path / name).write_text(content) and None


BAD_LISTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "index too large": (setting("indices", 7, 2, 60), r"lists: row 7 lists a row that is none of the 60 \(its list"),
    "index below -1": (setting("indices", 9, 2, -2), "row 9 lists a row that is none of the 60"),
    "NaN": (setting("distances", 4, 5, np.nan), "row 4 has a distance that is negative or NaN"),
    "negative": (setting("distances", 4, 0, -1.0), "row 4 has a distance that is negative or NaN"),
    "a row twice": (
        lambda path: changed(path, "indices", lambda v: v[:, [0, 0, 2, 3, 4, 5]]),
        "row 0 lists a row twice",
    ),
    "chunk is gone": (removed("indices/c/0/0"), "indices has 0 of its 1 chunks: is the run that writes it done"),
    "chunk is cut": (spoiled_chunk("distances", 0.5), "lists/distances is damaged within rows 0:60: .*checksum"),
    "metadata are cut": (text("indices/zarr.json", "{"), "lists/indices/zarr.json is truncated or not JSON"),
    "no distances": (removed("distances"), "lists is not a graph. A graph is a daskfs run"),
    "unknown metric": (attributes(metric="manhatten"), "it has 'manhatten' and None .*one of .*'manhattan'"),
    "unknown scaling": (attributes(graph_scaling="minmax"), "it has 'euclidean' and 'minmax' .*unknown step 'minmax'"),
    "no name": (
        removed("zarr.json"),
        "lists does not say what its distances are: .* such as euclidean-zscore",
    ),
    "group metadata are cut": (text("zarr.json", "{"), "lists/zarr.json is truncated or not JSON"),
}


@pytest.mark.parametrize("case", BAD_LISTS)
def test_bad_lists(tmp_path: Path, case: str) -> None:
    spoil, message = BAD_LISTS[case]
    path = saved(tmp_path)
    spoil(path)
    kept = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(InputError, match=message):
        LaplacianScore(n_neighbors=6, graph=path).fit(X)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == kept


def test_lists_of_another_shape_or_type(tmp_path: Path) -> None:
    def written(indices: Any, distances: Any) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}" / "euclidean"
        zarr.create_array(path / "indices", data=np.asarray(indices))
        zarr.create_array(path / "distances", data=np.asarray(distances))
        return path

    for path, message in (
        (written(np.ones((4, 2), int), np.ones((4, 3))), r"indices of shape \(4, 2\) and distances of shape \(4, 3\)"),
        (written(np.ones(4, int), np.ones(4)), r"two tables of one shape, \(n_samples, n_neighbors\)"),
        (written(np.ones((4, 2)), np.ones((4, 2))), "indices has dtype float64: a graph has whole numbers there"),
        (written(np.ones((4, 2), int), np.ones((4, 2), int)), "distances has dtype int64: a graph has real numbers"),
    ):
        with pytest.raises(InputError, match=message):
            open_graph(path)


def test_lists_of_other_rows_or_too_short(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with pytest.raises(ValueError, match=r"lists has 60 rows, and X has n_samples=59"):
        LaplacianScore(graph=path).fit(X[:-1])
    with pytest.raises(ValueError, match=r"n_neighbors is 7, and .*lists has 6 neighbors a row"):
        LaplacianScore(n_neighbors=7, graph=path).fit(X)


def entry(value: float, row: int = 5, column: int = 9) -> sp.csr_matrix:
    matrix = one_sided().tolil()
    matrix[row, column] = value
    return matrix.tocsr()


@pytest.mark.parametrize("form", [None, "npz csr", "npz csc", "npz coo", "zarr 3", "zarr 2 csc"])
@each(
    ("matrix", "message"),
    [
        (entry(np.nan), "contains NaN: row 5, column 9 holds nan"),
        (entry(np.inf), "contains infinity: row 5, column 9 holds inf"),
        (entry(-0.5), "has negative weights: row 5, column 9 holds -0.5"),
        (sp.csr_matrix((N, N)), "has no edges: no two rows have a weight above 0"),
        (sp.eye(N, format="csr"), "has no edges"),
        (one_sided(N - 1), r"has shape \(59, 59\), and X has n_samples=60: a weight for every pair of rows"),
        (one_sided()[:, :-1], r"has shape \(60, 59\), and X has n_samples=60"),
    ],
)
def test_bad_matrices_alike_in_memory_and_in_files(
    tmp_path: Path, form: str | None, matrix: sp.csr_matrix, message: str
) -> None:
    graph = matrix if form is None else MATRICES[form](tmp_path, matrix)
    with pytest.raises(ValueError, match=f"^{'graph' if form is None else graph} {message}"):
        LaplacianScore(graph=graph).fit(X)


BAD_GROUPS: dict[str, tuple[Callable[[Path], object], str]] = {
    "column too large": (lambda p: changed(p, "indices", lambda v: np.where(np.arange(v.size) < 99, v, v + 60)), ""),
    "starts decrease": (
        lambda p: changed(p, "indptr", lambda v: v[[*range(3), 4, 3, *range(5, v.size)]]),
        "is damaged: row 3",
    ),
    "starts end early": (
        lambda p: changed(p, "indptr", lambda v: np.minimum(v, 40)),
        "run from entry 0 to 40, and there are",
    ),
    "starts are too few": (
        lambda p: zarr.create_array(p / "indptr", data=np.arange(9), overwrite=True),
        "9 indptr, where",
    ),
    "values are too few": (lambda p: zarr.create_array(p / "data", data=np.ones(9), overwrite=True), "it has 9 values"),
    "values are times": (
        lambda p: zarr.create_array(p / "data", data=np.full(9, np.datetime64(1, "s")), overwrite=True),
        "real numbers",
    ),
    "values are complex": (lambda p: zarr.create_array(p / "data", data=np.ones(9) * 1j, overwrite=True), "complex128"),
    "columns are real": (lambda p: zarr.create_array(p / "indices", data=np.ones(9), overwrite=True), "whole numbers"),
    "values in two columns": (
        lambda p: zarr.create_array(p / "data", data=np.ones((9, 2)), overwrite=True),
        r"data of shape \(9, 2\).* is no sparse matrix",
    ),
    "no values": (removed("data"), "connectivities:data is no array; the parts of a sparse matrix are"),
    "no shape": (attributes(shape=None), "connectivities does not say .*attribute or a dataset 'shape'"),
    "three sides": (attributes(shape=[60, 60, 60]), r"its shape is \(60, 60, 60\): that is no sparse matrix"),
    "another encoding": (attributes(encoding_type="array"), "connectivities is not a graph. A graph is"),
    "chunk is cut": (spoiled_chunk("data", 0.5), "connectivities/data is damaged within rows 0:"),
    "metadata are cut": (text("zarr.json", "{"), "connectivities/zarr.json is truncated or not JSON"),
}


@pytest.mark.parametrize("case", BAD_GROUPS)
def test_bad_groups(tmp_path: Path, case: str) -> None:
    spoil, message = BAD_GROUPS[case]
    matrix = one_sided()
    path = anndata(3)(tmp_path, matrix)
    spoil(path)
    row = int(np.searchsorted(matrix.indptr, 99, side="right")) - 1
    with pytest.raises(
        InputError, match=message or f"connectivities has an entry outside its 60 rows: row {row}, column"
    ):
        LaplacianScore(graph=path).fit(X)


def in_file(change: Callable[[Any], object]) -> Callable[[Path], Path]:
    """A graph in an HDF5 file, changed."""

    def write(folder: Path) -> Path:
        path = h5ad("csr")(folder, one_sided())
        with h5py.File(folder / "file.h5ad", "r+") as file:
            change(file["obsp/connectivities"])
        return path

    return write


def replaced(name: str, values: object) -> Callable[[Any], object]:
    def change(group: Any) -> None:
        del group[name]
        group[name] = values

    return change


BAD_HDF5: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no member": (
        lambda p: h5ad("csr")(p, one_sided()).parents[1] / "file.h5ad",
        "Did you mean one of .*file.h5ad:obsp/c",
    ),
    "another member": (lambda p: h5ad("csr")(p, one_sided()).with_name("distances"), "Did you mean one of .*connectiv"),
    "another encoding": (in_file(lambda group: group.attrs.update({"encoding-type": "array"})), "is not a graph"),
    "no values": (in_file(lambda group: group.pop("data")), "h5ad:obsp/connectivities/data is no array"),
    "values are text": (in_file(replaced("data", ["a"] * 9)), "data has dtype object: a graph has real numbers"),
    "no shape": (in_file(lambda group: group.attrs.pop("shape")), "connectivities does not say .*attribute"),
    "a link elsewhere": (
        in_file(replaced("indices", h5py.ExternalLink("other.h5", "/x"))),
        "indices is a link into another file, other.h5, which is not followed",
    ),
    "no file": (lambda p: p / "gone.h5ad:obsp" / "connectivities", "does not exist. A graph is"),
}


def test_an_hdf5_file_among_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = one_sided()
    h5ad("csr")(tmp_path, matrix)
    path = folder_as_bucket(tmp_path, monkeypatch) / "file.h5ad:obsp/connectivities"
    stored = Store(None)
    store_graph(stored, open_graph(path), N, 0)
    np.testing.assert_array_equal(edges_in(stored), union(matrix))


@pytest.mark.parametrize("case", BAD_HDF5)
def test_bad_hdf5_files(tmp_path: Path, case: str) -> None:
    write, message = BAD_HDF5[case]
    with pytest.raises(InputError, match=message):
        open_graph(write(tmp_path))


@pytest.mark.parametrize("compressor", ["blosc", "zlib", "gzip", "zstd", "lz4"])
@pytest.mark.parametrize("keep", [0.0, 0.6])
def test_cut_chunks_of_version_2(tmp_path: Path, compressor: str, keep: float) -> None:
    import numcodecs

    path = anndata(2)(tmp_path, one_sided())
    codec = numcodecs.get_codec({"id": compressor})
    values = one_sided().indices
    zarr.create_array(path / "indices", data=values, chunks=(300,), zarr_format=2, compressors=codec, overwrite=True)
    open_graph(path)
    spoiled_chunk("indices", keep)(path)
    with pytest.raises(InputError, match="indices"):
        LaplacianScore(graph=path).fit(X)


def test_pickled_chunks_are_never_loaded(tmp_path: Path) -> None:
    path = anndata(3)(tmp_path, one_sided())
    document = json.loads((path / "data" / "zarr.json").read_text())
    document["codecs"].append({"name": "numcodecs.pickle", "configuration": {}})
    (path / "data" / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="data is encoded with pickle"):
        open_graph(path)
    path = anndata(2)(tmp_path, one_sided())
    document = json.loads((path / "data" / ".zarray").read_text())
    (path / "data" / ".zarray").write_text(json.dumps({**document, "filters": [{"id": "pickle", "protocol": 5}]}))
    with pytest.raises(InputError, match="data is encoded with pickle, which is never loaded"):
        open_graph(path)


def bad_npz(**members: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        np.savez(folder / "S.npz", **members)
        return folder / "S.npz"

    return write


def cut_npz(keep: float) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = npz("csr")(folder, one_sided())
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
        return path

    return write


def flipped_npz(folder: Path) -> Path:
    path = npz_parts(folder, one_sided())
    with zipfile.ZipFile(path) as archive:
        offset = archive.getinfo("data.npy").header_offset
    content = bytearray(path.read_bytes())
    content[offset + 500] ^= 0xFF
    path.write_bytes(content)
    return path


def bad_header(folder: Path) -> Path:
    path = npz_parts(folder, one_sided())
    content = path.read_bytes()
    path.write_bytes(content.replace(b"{'descr': '<f8'", b"{'descr': '<f8("))
    return path


def parts(**changes: Any) -> dict[str, Any]:
    matrix = one_sided()
    own = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": np.array(matrix.shape)}
    return {key: value for key, value in {**own, **changes}.items() if value is not None}


def in_format(form: str) -> Callable[[Path], Path]:
    return lambda folder: npz(form)(folder, one_sided())


BAD_FILES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda folder: folder / "gone", "gone does not exist. A graph is a daskfs run"),
    "missing npz": (lambda folder: folder / "gone.npz", "gone.npz does not exist"),
    "directory": (lambda folder: folder, "is not a graph. A graph is a daskfs run, or a group of neighbor lists"),
    "npy": (
        lambda folder: (np.save(folder / "S.npy", np.eye(N)), folder / "S.npy")[1],
        "S.npy is not a graph. A graph",
    ),
    "text": (lambda folder: ((folder / "S.npz").write_text("x"), folder / "S.npz")[1], "not an .npz file"),
    "cut": (cut_npz(0.5), "S.npz is truncated or not an .npz file"),
    "empty": (cut_npz(0.0), "S.npz is truncated or not an .npz file"),
    "flipped": (flipped_npz, "parts.npz:data is damaged: Bad CRC-32 for file 'data.npy'"),
    "header": (bad_header, "parts.npz:data is damaged: Bad CRC-32"),
    "other members": (bad_npz(X=np.eye(3)), "S.npz holds X, and no graph. A graph is"),
    "no members": (bad_npz(), "S.npz holds nothing, and no graph"),
    "format bsr": (in_format("bsr"), "a sparse matrix in bsr format: save it as CSR, CSC or COO"),
    "format dia": (lambda folder: npz("dia")(folder, sp.eye(N, format="csr")), "a sparse matrix in dia format"),
    "no starts": (bad_npz(**parts(indptr=None, format=b"csr")), "S.npz has no member 'indptr'; it has 'data'"),
    "objects": (bad_npz(**parts(data=np.array([None] * one_sided().nnz))), r"data holds Python objects \(dtype object"),
    "shape of text": (
        bad_npz(**parts(shape=np.array(["a", "b"]))),
        "shape has dtype <U1: a graph has whole numbers there",
    ),
    "column too large": (
        bad_npz(**parts(indices=one_sided().indices + 1)),
        "an entry outside its 60 rows: row [0-9]+, column 60",
    ),
    "column below 0": (bad_npz(**parts(indices=one_sided().indices - 1)), "outside its 60 rows: row [0-9]+, column -1"),
    "starts decrease": (bad_npz(**parts(indptr=one_sided().indptr[::-1].copy())), "is damaged: row 0 starts at entry"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files(tmp_path: Path, case: str) -> None:
    write, message = BAD_FILES[case]
    with pytest.raises(InputError, match=message) as caught:
        LaplacianScore(graph=write(tmp_path)).fit(X)
    assert "\n" not in str(caught.value)


def test_directories_that_hold_graphs_are_told_of_them(tmp_path: Path) -> None:
    path = anndata(3)(tmp_path, one_sided())
    with pytest.raises(InputError, match=r"Did you mean one of .*obsp/connectivities"):
        open_graph(path.parents[1])
    with pytest.raises(InputError, match=r"is not a graph\. A graph"):
        open_graph(path / "data")


def test_files_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(InputError, match=r"x cannot be read \(Permission denied\). A graph"):
        open_graph(tmp_path / "x")
