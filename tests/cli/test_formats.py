"""The same small data in every format, through the command line: one ranking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

from tests.optional import anndata, h5py
from tests.optional import pandas as pd
from tests.optional import xarray as xr

from .command import N_FEATURES, N_SAMPLES, basic_job, daskfs, labels, matrix, rows_of, told, write_job

pytestmark = pytest.mark.cluster

NAMES = ["a", "b c", "d,e", "f"]
METHODS = ["LaplacianScore", "FisherScore", "PearsonScore", "VarianceScore"]
Data = dict[str, Any]


def from_files(folder: Path) -> Data:
    (folder / "names.txt").write_text("\n".join(NAMES), encoding="utf-8")
    return {
        "source": str(folder / "X.npy"),
        "labels": str(folder / "y.npy"),
        "feature_names": str(folder / "names.txt"),
    }


def labels_file(name: str, text: str) -> Callable[[Path], Data]:
    def write(folder: Path) -> Data:
        lines = "\n".join(str(y) for y in labels())
        (folder / name).write_text(text + lines + "\n", encoding="utf-8")
        return {**from_files(folder), "labels": str(folder / name)}

    return write


def from_npz(folder: Path) -> Data:
    np.savez_compressed(folder / "X.npz", X=matrix(), y=labels(), n=np.array(NAMES))
    return {"source": str(folder / "X.npz"), "labels": "y", "feature_names": "n"}


def from_csr(folder: Path) -> Data:
    X = sp.csr_matrix(matrix())
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    np.savez(folder / "X.npz", y=labels(), n=np.array(NAMES), **parts)
    return {"source": str(folder / "X.npz"), "labels": "y", "feature_names": "n"}


def from_csv(folder: Path) -> Data:
    lines = ['id,a,b c,"d,e",class,f']
    lines += [f"r{i},{x[0]},{x[1]},{x[2]},{y},{x[3]}" for i, (x, y) in enumerate(zip(matrix(), labels(), strict=True))]
    (folder / "X.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"source": str(folder / "X.csv"), "labels": "class", "exclude": ["id"]}


def from_parquet(folder: Path) -> Data:
    columns = [pa.array(column) for column in matrix().T]
    table = pa.Table.from_arrays([pa.array(labels()), *columns], names=["class", *NAMES])
    pq.write_table(table, folder / "X.parquet", row_group_size=7)
    return {"source": str(folder / "X.parquet"), "labels": "class"}


def from_zarr(version: int, **options: Any) -> Callable[[Path], Data]:
    def write(folder: Path) -> Data:
        group = zarr.open_group(folder / "X.zarr", mode="w", zarr_format=version)  # type: ignore[arg-type]
        group.create_array("X", data=matrix(), **{"chunks": (8, 3), **options})
        group.create_array("y", data=labels())
        return {"source": str(folder / "X.zarr"), "labels": "y", "feature_names": from_files(folder)["feature_names"]}

    return write


def from_h5ad(folder: Path) -> Data:
    obs = pd.DataFrame({"class": pd.Categorical(labels())}, index=[f"cell{row}" for row in range(N_SAMPLES)])
    anndata.AnnData(matrix(), obs, pd.DataFrame(index=NAMES)).write_h5ad(folder / "X.h5ad", compression="gzip")
    return {"source": str(folder / "X.h5ad"), "labels": "class"}


def from_hdf5(folder: Path) -> Data:
    with h5py.File(folder / "X.h5", "w") as file:
        file.create_dataset("X", data=matrix(), chunks=(8, 3))
        file["beside/y"], file["names"] = labels(), NAMES
    return {"source": str(folder / "X.h5"), "labels": "beside/y", "feature_names": "names"}


def from_xarray(folder: Path) -> Data:
    data = xr.Dataset({"X": (("feature", "sample"), matrix().T), "y": ("sample", labels())})
    data.assign_coords(feature=np.array(NAMES, dtype=object)).to_netcdf(folder / "X.nc", engine="h5netcdf")
    return {"source": str(folder / "X.nc"), "labels": "y", "dims": ["sample", "feature"]}


FORMATS: dict[str, Callable[[Path], Data]] = {
    "npy": from_files,
    "npy with text labels": labels_file("y.txt", ""),
    "npy with csv labels": labels_file("y.csv", "class\n"),
    "npz": from_npz,
    "csr": from_csr,
    "csv": from_csv,
    "parquet": from_parquet,
    "h5ad": from_h5ad,
    "hdf5": from_hdf5,
    "xarray": from_xarray,
    "zarr 2": from_zarr(2),
    "zarr 2, Fortran order": from_zarr(2, order="F"),
    "zarr 3": from_zarr(3),
    "zarr 3, shards": from_zarr(3, shards=(16, 6)),
}


@pytest.fixture(autouse=True, scope="module")
def no_report() -> Iterator[None]:
    """Leave out the plots, which take most of the time of so small a run."""
    with mock.patch("daskfs.report.render.render_report", return_value=""):
        yield


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """Return ranking.csv and evaluation.csv of the .npy file."""
    folder = tmp_path_factory.mktemp("npy")
    run = rank(folder, from_files)
    rows = rows_of(run / "ranking.csv")
    assert {row["name"] for row in rows} == set(NAMES)
    assert len({row["score"] for row in rows}) == 1 + 3 * len(METHODS)
    return (run / "ranking.csv").read_bytes(), (run / "evaluation.csv").read_bytes()


def rank(folder: Path, write: Callable[[Path], Data]) -> Path:
    evaluate = {"n_selected": 2, "n_splits": 3, "n_neighbors": 3}
    job = basic_job(folder, methods=METHODS, evaluate=evaluate)
    job["data"] = write(folder)
    outcome = daskfs("run", write_job(folder, job), "-q")
    assert (outcome.code, told(outcome)) == (0, "")
    return folder / "run"


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_tables(tmp_path: Path, expected: tuple[bytes, bytes], name: str) -> None:
    run = rank(tmp_path, FORMATS[name])
    assert ((run / "ranking.csv").read_bytes(), (run / "evaluation.csv").read_bytes()) == expected
    assert (run / "tiles" / "X").exists() == (name.startswith(("npy", "npz", "csv", "parquet", "h", "xarray")))


@pytest.mark.parametrize("name", ["csr", "csv", "h5ad", "xarray", "zarr 3"])
def test_every_format_converts_to_the_same_ranking(tmp_path: Path, expected: tuple[bytes, bytes], name: str) -> None:
    job = basic_job(tmp_path)
    data = FORMATS[name](tmp_path)
    options = ["--labels", data["labels"]]
    options += ["--dims", *data["dims"]] if "dims" in data else []
    for key, option in (("feature_names", "--feature-names"), ("exclude", "--exclude")):
        for value in [data[key]] if isinstance(data.get(key), str) else data.get(key, []):
            options += [option, value]
    outcome = daskfs("convert", data["source"], tmp_path / "t.zarr", *options, "--workers", 0, "-q", "--json")
    assert (outcome.code, outcome.json["n_labeled"]) == (0, N_SAMPLES)
    job.update(methods=METHODS, data={"source": str(tmp_path / "t.zarr")})
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    assert (tmp_path / "run" / "ranking.csv").read_bytes() == expected[0]


def test_zarr_that_serves_is_used_in_place_and_left_alone(tmp_path: Path) -> None:
    data = from_zarr(3)(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "X.zarr").rglob("*")}
    run = rank(tmp_path, lambda _: data)
    assert not (run / "tiles" / "X").exists()
    facts = daskfs("run", tmp_path / "job.yaml", "-q", "--json").json["data"]
    assert facts["in_place"] == str(tmp_path / "X.zarr" / "X")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "X.zarr").rglob("*")} == before


def test_zarr_in_chunks_too_small_is_converted(tmp_path: Path) -> None:
    # a hundred chunks of a few hundred bytes: opening them would take longer than reading
    X = np.tile(matrix(), (20, 1))
    zarr.create_array(tmp_path / "X.zarr", data=X, chunks=(6, 4))
    np.save(tmp_path / "tall.npy", X)
    tables = []
    for source in ("X.zarr", "tall.npy"):
        job = basic_job(tmp_path, methods=["VarianceScore"], data={"source": str(tmp_path / source)})
        job["output"] = {"path": str(tmp_path / f"run of {source}")}
        assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
        assert (tmp_path / f"run of {source}" / "tiles" / "X").is_dir()
        tables.append((tmp_path / f"run of {source}" / "ranking.csv").read_bytes())
    assert tables[0] == tables[1]


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_of_wide_integers_is_converted(tmp_path: Path, version: int) -> None:
    X = (matrix() * 8).astype(np.int64)
    zarr.create_array(tmp_path / "X.zarr", data=X, chunks=(8, 3), zarr_format=version)  # type: ignore[arg-type]
    job = basic_job(tmp_path, methods=["VarianceScore"], data={"source": str(tmp_path / "X.zarr")})
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    assert (tmp_path / "run" / "tiles" / "X").is_dir()
    best = rows_of(tmp_path / "run" / "ranking.csv")[0]
    assert float(best["score"]) == pytest.approx(X.var(axis=0).max(), rel=1e-12)


@pytest.mark.parametrize("version", [2, 3])
def test_chunks_of_zeros_that_zarr_left_out_are_zeros(tmp_path: Path, version: int) -> None:
    X = matrix()
    X[:16] = 0
    zarr.create_array(tmp_path / "X.zarr", data=X, chunks=(8, 4), zarr_format=version)  # type: ignore[arg-type]
    np.save(tmp_path / "dense.npy", X)
    tables = []
    for source in ("X.zarr", "dense.npy"):
        job = basic_job(tmp_path)
        job["data"]["source"] = str(tmp_path / source)
        job["output"] = {"path": str(tmp_path / f"run of {source}")}
        assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
        tables.append((tmp_path / f"run of {source}" / "ranking.csv").read_bytes())
    assert tables[0] == tables[1]


@pytest.mark.parametrize("name", ["iris", "wine", "diabetes"])
def test_bundled_data_sets_bring_names_and_labels(tmp_path: Path, name: str) -> None:
    methods = ["PearsonScore", "VarianceScore"]
    job = basic_job(tmp_path, data={"source": f"sklearn:{name}"}, methods=methods)
    outcome = daskfs("run", write_job(tmp_path, job), "-q", "--json")
    assert outcome.code == 0
    facts = outcome.json["data"]
    assert facts["task"] == ("regression" if name == "diabetes" else "classification")
    assert facts["n_labeled"] == facts["n_samples"]
    names = {row["name"] for row in rows_of(tmp_path / "run" / "ranking.csv")}
    assert names & {"petal width (cm)", "proline", "bmi"}
    assert len(names) == facts["n_features"]


def test_rows_that_are_all_alike(tmp_path: Path) -> None:
    # rows that are all alike have distance 0, so a whole chunk of distances is zeros
    job = basic_job(tmp_path, methods=["LaplacianScore"])
    np.save(tmp_path / "X.npy", np.repeat([[1.0, 2.0], [1.5, 0.0]], 10, axis=0))
    np.save(tmp_path / "y.npy", np.repeat([0, 1], 10))
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    assert len(rows_of(tmp_path / "run" / "ranking.csv")) == 2


def test_shape_of_the_small_data() -> None:
    assert matrix().shape == (N_SAMPLES, N_FEATURES)
    assert (matrix() == 0).any()
