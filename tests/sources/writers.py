"""One small matrix written in every format that a source can read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
import zarr

from daskfs.api.run import ScratchDirectory
from daskfs.sources import Source, SourceSpec, open_source
from daskfs.storage import StoragePath
from tests.optional import h5py
from tests.sources.array_source import ArraySource

from . import textwriters

N_SAMPLES, N_FEATURES = 23, 5
COLUMNS = ("a", "b", "c d", "a", "e.f")
GENES = ("g0", "g1", "g 2", "g3", "g4")


def matrix(offset: float = 0.0) -> np.ndarray:
    """Return the matrix of the contract tests, with zeros, shape (23, 5), float64."""
    rng = np.random.default_rng(3)
    X = rng.integers(-40, 40, size=(N_SAMPLES, N_FEATURES)) / 8 + offset
    X[rng.random(X.shape) < 0.3] = 0
    return X


def labels() -> np.ndarray:
    """Return class numbers, shape (23,)."""
    return np.arange(N_SAMPLES) % 3


@dataclass(frozen=True)
class Kind:
    """How one kind of source is written and opened.

    `write` puts X and y below a directory and returns the name of what it wrote; `spec` holds the other
    fields of the spec; `names` are the feature names to expect.
    """

    write: Callable[[Path, np.ndarray, np.ndarray], str]
    spec: dict[str, Any]
    dtype: str = "float64"
    is_sparse: bool = False
    names: tuple[str, ...] | None = None
    is_table: bool = False

    def open(self, folder: StoragePath, name: str) -> Source:
        """Open what was written in `folder`."""
        return open_source(SourceSpec(source=str(folder / name), **self.fields(folder)))

    def fields(self, folder: StoragePath) -> dict[str, Any]:
        """Return the other fields of the spec of what was written in `folder`."""
        return {k: v.replace("@", str(folder)) if isinstance(v, str) else v for k, v in self.spec.items()}


def once(write: Callable[[Path, np.ndarray, np.ndarray], str]) -> Callable[[Path, np.ndarray, np.ndarray], str]:
    """Write the same data once, and copy what was written: for libraries that take a while."""
    written: dict[bytes, tuple[ScratchDirectory, str]] = {}

    def copy(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
        key = X.tobytes() + y.tobytes()
        if key not in written:
            scratch = ScratchDirectory()
            written[key] = scratch, write(scratch.path, X, y)
        shutil.copytree(written[key][0].path, folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
        return written[key][1]

    return copy


def write_npy(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    return "X.npy"


def write_npy_fortran(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    return write_npy(folder, np.asfortranarray(X), y)


def write_npy_big_endian(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    return write_npy(folder, X.astype(">f4"), y)


def write_npz(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    np.savez(folder / "X.npz", other=X[:3], X=X.astype(np.float32), y=y, names=np.array(COLUMNS))
    return "X.npz"


def write_npz_deflated(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    np.savez_compressed(folder / "X.npz", values=np.asfortranarray(X), y=y[:, None])
    return "X.npz"


def write_csr_parts(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    # Indices of each row in reverse, and every value split in two that have to be added up.
    csr = sp.csr_matrix(X)
    rows = zip(csr.indptr, csr.indptr[1:], strict=False)
    twice = np.concatenate([np.repeat(np.arange(first, last)[::-1], 2) for first, last in rows])
    np.savez_compressed(
        folder / "X.npz",
        data=csr.data[twice] / 2,
        indices=csr.indices[twice],
        indptr=csr.indptr * 2,
        shape=np.array(X.shape),
        y=y,
    )
    return "X.npz"


def write_csr_scipy(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    sp.save_npz(folder / "X.npz", sp.csr_array(X.astype(np.float32)))
    np.savez(folder / "y.npz", y=y, z=y + 1)
    return "X.npz"


def write_csc_scipy(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    sp.save_npz(folder / "X.npz", sp.csc_array(X))
    np.savez(folder / "y.npz", y=y)
    return "X.npz"


def _table(X: np.ndarray, y: np.ndarray, delimiter: str, newline: str) -> str:
    lines = [delimiter.join(["id", *(f'"{name}"' if " " in name else name for name in COLUMNS), "y"])]
    for number, (row, label) in enumerate(zip(X, y, strict=True)):
        # A quoted cell with a line break, a delimiter and a doubled quote in a column that is left out.
        note = f'"n{number}{newline}{delimiter}""x"""'
        lines.append(delimiter.join([note, *(repr(float(value)) for value in row), str(label)]))
    return newline.join(lines)


def write_csv(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    (folder / "X.csv").write_bytes((_table(X, y, ",", "\n") + "\n\n\n").encode())
    return "X.csv"


def write_tsv(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    # A byte order mark at the start and no newline at the end.
    (folder / "X.tsv").write_bytes(_table(X, y, "\t", "\r\n").encode("utf-8-sig"))
    return "X.tsv"


def write_txt(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    (folder / "X.txt").write_bytes(_table(X, y, "\t", "\n").encode())
    return "X.txt"


def write_parquet(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    arrays = [pa.array(column) for column in X.T]
    table = pa.Table.from_arrays([*arrays, pa.array(y), pa.array(["t"] * len(y))], names=[*COLUMNS, "y", "e"])
    pq.write_table(table, folder / "X.parquet", row_group_size=7)
    return "X.parquet"


def write_parquet_float32(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    names = [f"f{index}" for index in range(X.shape[1])]
    columns = dict(zip(names, (pa.array(column.astype(np.float32)) for column in X.T), strict=True))
    pq.write_table(pa.table({"y": y, **columns}), folder / "X.pq", row_group_size=50)
    return "X.pq"


def _write_zarr(folder: Path, X: np.ndarray, y: np.ndarray, version: int, **options: Any) -> str:
    group = zarr.open_group(folder / "X.zarr", mode="w", zarr_format=version)  # type: ignore[arg-type]
    group.create_array("X", data=X, chunks=(4, 2), **options)
    group.create_array("small", data=X[:2])
    group.create_array("y", data=y)
    return "X.zarr"


def write_zarr2(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    return _write_zarr(folder, X.astype(np.float32), y, 2, order="F")


def write_zarr3(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    return _write_zarr(folder, X, y, 3)


def write_zarr3_shards(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    return _write_zarr(folder, X, y, 3, shards=(8, 4))


def write_zarr_array(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    zarr.create_array(folder / "X.zarr", data=X, chunks=(10, 5))
    (folder / "y.csv").write_text("class\n" + "\n".join(str(label) for label in y))
    return "X.zarr"


def write_hdf5(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    with h5py.File(folder / "X.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(4, 2), compression="gzip", shuffle=True)
        file["other"] = X[:3]
        file["beside/y"] = y[:, None]
        file["names"] = np.array(COLUMNS, dtype=h5py.string_dtype())
    return "X.h5"


def write_hdf5_big_endian(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    with h5py.File(folder / "X.hdf5", "w") as file:
        file["values"] = X.astype(">f4")
        file["y"] = y
        file["X"] = h5py.SoftLink("/values")
    return "X.hdf5"


def write_hdf5_csr(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    csr = sp.csr_matrix(X)
    with h5py.File(folder / "X.h5", "w") as file:
        for part in ("data", "indices", "indptr"):
            file.create_dataset(f"group/{part}", data=getattr(csr, part), chunks=(5,))
        file["group/shape"] = X.shape
        file["y"] = y
    return "X.h5"


def write_tenx(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    csr = sp.csr_matrix(X)
    np.save(folder / "y.npy", y)
    with h5py.File(folder / "X.h5", "w") as file:
        for part in ("data", "indices", "indptr"):
            file[f"matrix/{part}"] = getattr(csr, part)
        file["matrix/shape"] = X.shape[::-1]
        file["matrix/barcodes"] = np.array([f"AAC-{row}" for row in range(len(y))], dtype="S8")
        file["matrix/features/name"] = np.array(COLUMNS, dtype="S5")
        file["matrix/features/id"] = np.array([f"ENS{index}" for index in range(X.shape[1])], dtype="S5")
    return "X.h5"


def _annotated(X: Any, y: np.ndarray, **layers: Any) -> Any:
    import anndata
    import pandas as pd

    obs = pd.DataFrame({"y": y}, index=[f"cell{row}" for row in range(len(y))])
    var = pd.DataFrame({"symbol": list(COLUMNS)}, index=list(GENES))
    return anndata.AnnData(X, obs, var, layers=layers)


@once
def write_h5ad_csr(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    _annotated(sp.csr_matrix(X), y).write_h5ad(folder / "X.h5ad", compression="gzip")
    return "X.h5ad"


@once
def write_h5ad_layers(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    _annotated(None, y, dense=X.astype(np.float32), csc=sp.csc_matrix(X)).write_h5ad(folder / "X.h5ad")
    return "X.h5ad"


def write_anndata_zarr(X: Any, y: np.ndarray, folder: Path, version: int) -> str:
    import anndata

    group = zarr.open_group(folder / "X.zarr", mode="w", zarr_format=version)  # type: ignore[arg-type]
    with anndata.settings.override(auto_shard_zarr_v3=False):
        anndata.io.write_elem(group, "/", _annotated(X, y))
    return "X.zarr"


@once
def write_anndata_zarr2(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    return write_anndata_zarr(sp.csr_matrix(X), y, folder, 2)


@once
def write_anndata_zarr3(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    return write_anndata_zarr(X.astype(np.float32), y, folder, 3)


def _dataset(X: np.ndarray, y: np.ndarray) -> Any:
    import xarray as xr

    coordinates = {"feature": np.array(GENES, dtype=object), "sample": np.arange(len(y)) * 10}
    return xr.Dataset({"X": (("feature", "sample"), X.T.copy()), "y": ("sample", y)}, coordinates)


@once
def write_xarray_zarr2(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    encoding = {"X": {"chunks": (2, 4)}}
    _dataset(X, y).to_zarr(folder / "X.zarr", mode="w", zarr_format=2, encoding=encoding, consolidated=False)
    return "X.zarr"


@once
def write_xarray_zarr3(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    dataset = _dataset(X, y).transpose("sample", "feature")
    # eighths from -5 to 5, kept as whole numbers
    encoding = {"X": {"dtype": "int16", "scale_factor": 0.125, "add_offset": -1.0, "_FillValue": -999}}
    dataset.to_zarr(folder / "X.zarr", mode="w", zarr_format=3, encoding=encoding, consolidated=False)
    return "X.zarr"


@once
def write_netcdf(folder: Path, X: np.ndarray, y: np.ndarray) -> str:
    _dataset(X, y).to_netcdf(folder / "X.nc", engine="h5netcdf")
    return "X.nc"


KINDS = {
    "npy": Kind(write_npy, {"labels": "@/y.npy"}),
    "npy-fortran": Kind(write_npy_fortran, {"labels": "@/y.npy"}),
    "npy-big-endian": Kind(write_npy_big_endian, {"labels": "@/y.npy"}, "float32"),
    "npz": Kind(write_npz, {"labels": "y", "feature_names": "names"}, "float32", names=COLUMNS),
    "npz-deflated": Kind(write_npz_deflated, {"labels": "y", "array": "values"}),
    "csr-parts": Kind(write_csr_parts, {"labels": "y"}, is_sparse=True),
    "csr-scipy": Kind(write_csr_scipy, {"labels": "@/y.npz:y"}, "float32", is_sparse=True),
    "csc-scipy": Kind(write_csc_scipy, {"labels": "@/y.npz:y"}, is_sparse=True),
    "csv": Kind(write_csv, {"labels": "y", "exclude": ("id",)}, names=COLUMNS),
    "tsv": Kind(write_tsv, {"labels": "y", "exclude": ("id",)}, names=COLUMNS),
    "txt": Kind(write_txt, {"labels": "y", "exclude": ("id",)}, names=COLUMNS),
    "parquet": Kind(write_parquet, {"labels": "y", "exclude": ("e",)}, names=COLUMNS),
    "parquet-float32": Kind(write_parquet_float32, {"labels": "y"}, "float32", names=("f0", "f1", "f2", "f3", "f4")),
    "zarr2": Kind(write_zarr2, {"labels": "y"}, "float32"),
    "zarr3": Kind(write_zarr3, {"labels": "y"}),
    "zarr3-shards": Kind(write_zarr3_shards, {"labels": "y", "array": "X"}),
    "hdf5": Kind(write_hdf5, {"labels": "beside/y", "feature_names": "names"}, names=COLUMNS),
    "hdf5-big-endian": Kind(write_hdf5_big_endian, {"labels": "y"}, "float32"),
    "hdf5-csr": Kind(write_hdf5_csr, {"labels": "y"}, is_sparse=True),
    "tenx": Kind(write_tenx, {"labels": "@/y.npy"}, is_sparse=True, names=COLUMNS),
    "h5ad-csr": Kind(write_h5ad_csr, {"labels": "y"}, is_sparse=True, names=GENES),
    "h5ad-dense": Kind(write_h5ad_layers, {"labels": "y", "array": "layers/dense"}, "float32", names=GENES),
    "h5ad-csc": Kind(
        write_h5ad_layers,
        {"labels": "y", "array": "layers/csc", "feature_names": "symbol"},
        is_sparse=True,
        names=COLUMNS,
    ),
    "anndata-zarr2": Kind(write_anndata_zarr2, {"labels": "y"}, is_sparse=True, names=GENES),
    "anndata-zarr3": Kind(write_anndata_zarr3, {"labels": "y"}, "float32", names=GENES),
    "xarray-zarr2": Kind(write_xarray_zarr2, {"labels": "y", "dims": ("sample", "feature")}, names=GENES),
    "xarray-zarr3": Kind(write_xarray_zarr3, {"labels": "y"}, names=GENES),
    "netcdf": Kind(write_netcdf, {"labels": "y", "dims": ("sample", "feature")}, names=GENES),
    "zarr-array": Kind(write_zarr_array, {"labels": "@/y.csv"}),
    "svmlight": Kind(textwriters.write_svmlight, {"labels": "target"}, is_sparse=True),
    "libsvm": Kind(textwriters.write_libsvm, {"labels": "target"}, is_sparse=True),
    "mtx": Kind(textwriters.write_mtx, {"labels": "@/y.npy"}, is_sparse=True),
    "mtx-shuffled": Kind(textwriters.write_mtx_shuffled, {"labels": "@/y.npy"}, is_sparse=True),
    "mtx-transposed": Kind(
        textwriters.write_mtx_transposed,
        {"labels": "@/y.npy", "transpose": True, "feature_names": "@/features.tsv"},
        is_sparse=True,
        names=COLUMNS,
    ),
    "mtx-array": Kind(textwriters.write_mtx_array, {"labels": "@/y.npy"}),
    "mtx-array-transposed": Kind(textwriters.write_mtx_array_transposed, {"labels": "@/y.npy", "transpose": True}),
    "parquet-parts": Kind(textwriters.write_parquet_parts, {"labels": "y"}, names=COLUMNS, is_table=True),
    "csv-parts": Kind(textwriters.write_csv_parts, {"labels": "y"}, names=COLUMNS, is_table=True),
}


def open_memory(X: np.ndarray, y: np.ndarray, sparse: bool) -> ArraySource:
    """Return the matrix as a source in memory."""
    return ArraySource(sp.csr_matrix(X) if sparse else np.asfortranarray(X), y, COLUMNS)
