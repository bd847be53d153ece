"""Benchmark of the sources: reading and converting a file beside plain reading by the library of its format.

    python -m tests.benchmarks.sources [--rows 100000] [--kinds csv svmlight ...] [--tables kinds hashes] [--folder DIR]

``kinds``: each file is written and read once, so that the page cache holds it; then, one run each and in one process,
it is read plainly (all of it, into an array or a sparse matrix), read as a source (what opening it takes, such as a
scan for rows, and bands of rows in order), and converted into tiles (reading, checks, moments and hashes of columns,
norms, compression, writing). Ratios are of the times to that of plain reading.

``hashes``: conversions with the hashes of columns, by which duplicates are found, and without.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import scipy.io
import scipy.sparse as sp
import zarr
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from daskfs.execution.cluster import ClusterSettings
from daskfs.job.job import make_data
from daskfs.runs.conversion import convert
from daskfs.sources import SourceSpec, open_source
from tests.benchmarks.main_job import show
from tests.optional import anndata, h5py, xarray

N_COLUMNS, N_SPARSE_COLUMNS, DENSITY = 64, 2000, 0.02
BAND_ROWS = 2**14


@dataclass(frozen=True)
class Kind:
    """One format.

    Parameters
    ----------
    write
        Writes a matrix to a path: a dense one, or a CSR matrix where `is_sparse`.
    name
        Of the file or the directory.
    plain
        Reads all of it with the library of the format.
    library
        Its name.
    is_sparse
        Whether rows are CSR.
    spec
        Fields of the spec beside the source.
    """

    write: Callable[[Path, Any], object]
    name: str
    plain: Callable[[Path], Any]
    library: str
    is_sparse: bool = False
    spec: tuple[tuple[str, Any], ...] = ()


def _table(X: np.ndarray) -> pa.Table:
    return pa.table({f"x{number}": column for number, column in enumerate(X.T)})


def _write_parts(path: Path, X: np.ndarray) -> None:
    path.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(X)), 8)):
        pa.parquet.write_table(_table(X[rows]), path / f"part-{number}.parquet")


def _as_array(table: pa.Table) -> np.ndarray:
    return np.column_stack([column.to_numpy() for column in table.columns])


def _write_mtx(path: Path, X: sp.csr_matrix) -> None:
    """Features x rows, sorted by rows, as 10x writes cells."""
    coo = X.tocoo()
    scipy.io.mmwrite(path, sp.coo_matrix((coo.data, (coo.col, coo.row)), shape=X.shape[::-1]))


def _read_csv(path: Path) -> np.ndarray:
    return _as_array(pa.csv.read_csv(path, read_options=pa.csv.ReadOptions(use_threads=False)))


def _read_csv_by_pandas(path: Path) -> np.ndarray:
    import pandas as pd

    return pd.read_csv(path).to_numpy()


def _write_csv(path: Path, X: np.ndarray) -> None:
    pa.csv.write_csv(_table(X), path)


# ------------------------------------------------------------------------------ HDF5, AnnData, 10x, Zarr, xarray
def _write_hdf5(path: Path, X: np.ndarray, **options: Any) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=X, **options)


def _read_hdf5(path: Path) -> np.ndarray:
    with h5py.File(path) as file:
        return file["X"][:]


def _write_anndata_zarr(path: Path, X: sp.csr_matrix) -> None:
    with anndata.settings.override(auto_shard_zarr_v3=False):
        anndata.io.write_elem(zarr.open_group(path, mode="w"), "/", anndata.AnnData(X))


def _write_tenx(path: Path, X: sp.csr_matrix) -> None:
    with h5py.File(path, "w") as file:
        for part in ("data", "indices", "indptr"):
            values = getattr(X, part).astype(np.int32 if part == "data" else np.int64)
            chunk = min(80_000, len(values))
            file.create_dataset(f"matrix/{part}", data=values, chunks=(chunk,), compression="gzip")
        file["matrix/shape"] = np.array(X.shape[::-1], dtype=np.int32)
        file["matrix/barcodes"] = np.array([f"{row}-1" for row in range(X.shape[0])], dtype="S")
        file["matrix/features/name"] = np.array([f"g{column}" for column in range(X.shape[1])], dtype="S")


def _read_tenx(path: Path) -> sp.csr_matrix:
    with h5py.File(path) as file:
        parts = tuple(file[f"matrix/{part}"][:] for part in ("data", "indices", "indptr"))
        return sp.csr_matrix(parts, shape=tuple(file["matrix/shape"][:][::-1]))


def _write_xarray(path: Path, X: np.ndarray) -> None:
    data = xarray.Dataset({"X": (("feature", "sample"), np.ascontiguousarray(X.T))})
    data.to_zarr(path, zarr_format=3, encoding={"X": {"chunks": (16, BAND_ROWS)}}, consolidated=False)


def _read_xarray(path: Path) -> np.ndarray:
    return xarray.open_zarr(path, consolidated=False, chunks=None)["X"].transpose("sample", "feature").values


def _write_netcdf(path: Path, X: np.ndarray) -> None:
    encoding = {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -1, "zlib": True, "complevel": 1}
    data = xarray.Dataset({"X": (("sample", "feature"), X)})
    data.to_netcdf(path, engine="h5netcdf", encoding={"X": encoding})


def _read_netcdf(path: Path) -> np.ndarray:
    with xarray.open_dataset(path, engine="h5netcdf") as data:
        return data["X"].values


def _h5ad(form: str, **options: Any) -> Kind:
    """Return the kind of files that anndata writes in one form."""

    def write(path: Path, X: Any) -> None:
        anndata.AnnData(X.tocsc() if form == "csc" else X).write_h5ad(path, **options)

    def read(path: Path) -> Any:
        X = anndata.read_h5ad(path).X
        return X.tocsr() if form == "csc" else X

    return Kind(write, "X.h5ad", read, "anndata", is_sparse=form != "dense")


KINDS = {
    "npy": Kind(lambda path, X: np.save(path, X), "X.npy", np.load, "numpy"),
    "csv": Kind(_write_csv, "X.csv", _read_csv, "pyarrow"),
    "csv (pandas)": Kind(_write_csv, "X.csv", _read_csv_by_pandas, "pandas"),
    "parquet": Kind(
        lambda path, X: pa.parquet.write_table(_table(X), path),
        "X.parquet",
        lambda path: _as_array(pa.parquet.read_table(path, use_threads=False)),
        "pyarrow",
    ),
    "parquet parts": Kind(
        _write_parts,
        "parts",
        lambda path: _as_array(pa.dataset.dataset(path).to_table(use_threads=False)),
        "pyarrow.dataset",
    ),
    "svmlight": Kind(
        lambda path, X: dump_svmlight_file(X, np.zeros(X.shape[0]), str(path)),
        "X.svm",
        lambda path: load_svmlight_file(str(path))[0],
        "scikit-learn",
        is_sparse=True,
    ),
    "mtx": Kind(
        _write_mtx,
        "X.mtx",
        lambda path: scipy.io.mmread(path).T.tocsr(),
        "scipy (fast_matrix_market)",
        is_sparse=True,
        spec=(("transpose", True),),
    ),
    "hdf5": Kind(_write_hdf5, "X.h5", _read_hdf5, "h5py"),
    "hdf5 gzip": Kind(
        lambda path, X: _write_hdf5(path, X, chunks=(1000, 16), compression="gzip", compression_opts=1),
        "X.h5",
        _read_hdf5,
        "h5py",
    ),
    "zarr": Kind(
        lambda path, X: zarr.create_array(path, data=X, chunks=(BAND_ROWS, X.shape[1])),
        "X.zarr",
        lambda path: zarr.open_array(path, mode="r")[:],
        "zarr",
    ),
    "xarray zarr": Kind(_write_xarray, "X.zarr", _read_xarray, "xarray", spec=(("dims", ("sample", "feature")),)),
    "netcdf scaled": Kind(_write_netcdf, "X.nc", _read_netcdf, "xarray (h5netcdf)"),
    "h5ad dense": _h5ad("dense"),
    "h5ad csr": _h5ad("csr"),
    "h5ad csr gzip": _h5ad("csr", compression="gzip"),
    "h5ad csc": _h5ad("csc"),
    "anndata zarr csr": Kind(
        _write_anndata_zarr, "X.zarr", lambda path: anndata.read_zarr(path).X, "anndata", is_sparse=True
    ),
    "10x": Kind(_write_tenx, "X.h5", _read_tenx, "h5py", is_sparse=True),
}


def dense(n_rows: int) -> np.ndarray:
    """Return numbers of four digits, as measurements have them, float64."""
    return np.random.default_rng(0).integers(0, 10_000, size=(n_rows, N_COLUMNS)) / 100


def sparse(n_rows: int) -> sp.csr_matrix:
    """Return counts, of which one in fifty is not 0."""
    rng = np.random.default_rng(0)
    X = sp.random_array((n_rows, N_SPARSE_COLUMNS), density=DENSITY, format="csr", rng=rng)
    return sp.csr_matrix((rng.poisson(3, X.nnz) + 1.0, X.indices, X.indptr), shape=X.shape)


def timed(action: Callable[..., Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return how long an action takes by a clock, in seconds."""
    begun = clock()
    action()
    return clock() - begun


def read_in_bands(spec: SourceSpec) -> None:
    """Read all rows of a source in order."""
    source = open_source(spec)
    for start in range(0, source.info.n_samples, BAND_ROWS):
        source.read_rows(start, min(start + BAND_ROWS, source.info.n_samples))


def converted(spec: dict[str, Any], target: Path) -> None:
    """Convert a source in this process."""
    convert(make_data(spec), str(target), ClusterSettings(workers=0))


def kinds(n_rows: int, names: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """Return the figures of some kinds."""
    rows = []
    for name in names:
        kind = KINDS[name]
        with TemporaryDirectory(dir=folder) as scratch:
            path = Path(scratch) / kind.name
            # a tenth of the rows of sparse data hold about as many values as the dense ones
            kind.write(path, sparse(n_rows) if kind.is_sparse else dense(n_rows))
            kind.plain(path)
            files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
            size = sum(file.stat().st_size for file in files)
            fields = dict(kind.spec)
            plain = timed(lambda kind=kind, path=path: kind.plain(path))
            read = timed(lambda path=path, fields=fields: read_in_bands(SourceSpec(source=str(path), **fields)))
            spec = {"source": str(path), **fields}
            tiles = timed(lambda spec=spec, scratch=scratch: converted(spec, Path(scratch) / "tiles"))
        rows.append(
            {
                "kind": name,
                "library": kind.library,
                "file_mb": size / 1e6,
                "plain_mb_per_s": size / 1e6 / plain,
                "read_mb_per_s": size / 1e6 / read,
                "convert_mb_per_s": size / 1e6 / tiles,
                "read_ratio": read / plain,
                "convert_ratio": tiles / plain,
            }
        )
    return rows


def hashes(n_rows: int, folder: Path, repeats: int = 3) -> list[dict[str, Any]]:
    """Return the processor time of conversions with and without hashes of columns, the shortest of some."""
    rows = []
    for name in ("npy", "parquet", "csr"):
        X = sparse(n_rows) if name == "csr" else dense(n_rows)
        found: dict[bool, list[float]] = {True: [], False: []}
        with TemporaryDirectory(dir=folder) as scratch:
            path = Path(scratch) / ("X.npz" if name == "csr" else KINDS[name].name)
            if name == "csr":
                sp.save_npz(path, X, compressed=False)
            else:
                KINDS[name].write(path, X)
            nothing = mock.patch("daskfs.tiles.ingest.column_hashes", lambda X, _: np.zeros((2, X.shape[1]), np.uint64))
            for number in range(2 * repeats):
                with_them = number % 2 == 0
                target = Path(scratch) / f"tiles{number}"
                action = partial(converted, {"source": str(path)}, target)
                if with_them:
                    taken = timed(action, time.process_time)
                else:
                    with nothing:
                        taken = timed(action, time.process_time)
                found[with_them].append(taken)
        best = {with_them: min(taken) for with_them, taken in found.items()}
        rows.append(
            {
                "data": name,
                "with_cpu_seconds": best[True],
                "without": best[False],
                "ratio": best[True] / best[False],
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=tuple(KINDS))
    parser.add_argument("--tables", nargs="+", choices=("kinds", "hashes"), default=("kinds", "hashes"))
    parser.add_argument("--folder", type=Path, default=None, help="Where files are written; the default is TMPDIR.")
    options = parser.parse_args(arguments)
    if "kinds" in options.tables:
        show("kinds", kinds(options.rows, options.kinds, options.folder))
    if "hashes" in options.tables:
        show("hashes", hashes(options.rows, options.folder))


if __name__ == "__main__":
    main()
