"""Variables of xarray and NetCDF: which dimension goes along rows, and values as xarray itself reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from daskfs.errors import InputError
from daskfs.sources import Source, SourceSpec, open_source
from tests.optional import xarray as xr

N_SAMPLES, N_FEATURES = 9, 4
VALUES = np.random.default_rng(0).integers(-20, 20, size=(N_FEATURES, N_SAMPLES)) / 4
FORMATS = ["zarr 2", "zarr 3", "netcdf"]


def dataset(values: np.ndarray = VALUES) -> Any:
    coordinates = {
        "band": np.array(["red", "green", "blue", "nir"], dtype=object),
        "time": np.arange("2020-01-01", "2020-01-10", dtype="M8[D]").astype("M8[ns]"),
        "wavelength": ("band", [650.0, 550.0, 450.0, 842.5]),
        "crop": ("time", np.array(["rye", "oat", "rye"] * 3, dtype=object)),
        "plot": ("time", np.arange(N_SAMPLES) % 2),
    }
    return xr.Dataset(
        {"reflectance": (("band", "time"), values), "cube": (("band", "time", "x"), values[..., None])}, coordinates
    )


def write(folder: Path, form: str, data: Any, **encoding: Any) -> Path:
    if form == "netcdf":
        data.to_netcdf(folder / "X.nc", engine="h5netcdf", encoding={"reflectance": encoding})
        return folder / "X.nc"
    version = int(form[-1])
    data.to_zarr(folder / "X.zarr", zarr_format=version, encoding={"reflectance": encoding}, consolidated=False)
    return folder / "X.zarr"


def read(path: Path) -> Any:
    """Return the variable as xarray reads it."""
    if path.suffix == ".nc":
        return xr.open_dataset(path, engine="h5netcdf")["reflectance"]
    return xr.open_zarr(path, consolidated=False)["reflectance"]


def opened(path: Path, **fields: Any) -> Source:
    return open_source(SourceSpec(str(path), **fields))


@pytest.mark.parametrize("form", FORMATS)
def test_dimensions_by_name(form: str, tmp_path: Path) -> None:
    path = write(tmp_path, form, dataset())
    source = opened(path, dims=("time", "band"), labels="crop", groups="plot", times="time")
    assert source.info.feature_names == ("red", "green", "blue", "nir")
    np.testing.assert_array_equal(source.read_rows(0, N_SAMPLES), VALUES.T)
    np.testing.assert_array_equal(source.read_rows(3, 5), VALUES.T[3:5])
    assert list(source.read_labels()) == ["rye", "oat", "rye"] * 3  # type: ignore[arg-type]
    np.testing.assert_array_equal(source.read_sample_column("groups"), np.arange(N_SAMPLES) % 2)
    times = source.read_sample_column("times")
    assert times is not None
    np.testing.assert_array_equal(times - times[0], np.arange(N_SAMPLES))
    source = opened(path, array="reflectance")
    assert (source.info.n_samples, source.info.n_features) == (N_FEATURES, N_SAMPLES)
    np.testing.assert_array_equal(source.read_rows(1, 4), VALUES[1:4])
    assert opened(path, dims=("band", "time")).info.n_samples == N_FEATURES


@pytest.mark.parametrize("form", FORMATS)
def test_numbers_along_a_dimension_are_names(form: str, tmp_path: Path) -> None:
    data = dataset().drop_vars("band").rename({"band": "wavelength_nm"})
    data = data.assign_coords(wavelength_nm=[650.0, 550.0, 450.0, 842.5])
    path = write(tmp_path, form, data)
    assert opened(path, dims=("time", "wavelength_nm")).info.feature_names is None
    named = opened(path, dims=("time", "wavelength_nm"), feature_names="wavelength_nm")
    assert named.info.feature_names == ("650.0", "550.0", "450.0", "842.5")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "encoding",
    [
        {"dtype": "int16", "scale_factor": 0.25, "_FillValue": -999},
        {"dtype": "int16", "scale_factor": 0.25, "add_offset": 1.0, "_FillValue": -999},
        {"dtype": "int32", "scale_factor": np.float32(0.25), "add_offset": np.float32(2), "_FillValue": -999},
        {"dtype": "int16", "scale_factor": np.float32(0.25), "add_offset": np.float32(2), "_FillValue": -999},
        {"dtype": "int8", "scale_factor": np.float32(0.25), "_FillValue": -99},
        {"dtype": "uint8", "scale_factor": 0.25, "add_offset": -8.0, "_FillValue": 255},
        {"dtype": "float32", "_FillValue": np.float32(-999.0)},
        {"dtype": "float64", "_FillValue": -999.0},
        {"dtype": "float32"},
    ],
    ids=lambda encoding: "-".join(f"{value}" for value in encoding.values()),
)
def test_values_are_decoded_as_xarray_does(form: str, encoding: dict[str, Any], tmp_path: Path) -> None:
    values = VALUES.copy()
    values[1, 2] = values[3, 8] = np.nan
    path = write(tmp_path, form, dataset(values), **encoding)
    expected = read(path)
    source = opened(path, array="reflectance")
    block = source.read_rows(0, N_FEATURES)
    assert source.info.dtype == block.dtype == expected.dtype
    np.testing.assert_array_equal(block, expected.values)
    np.testing.assert_array_equal(block, values)
    by_time = opened(path, dims=("time", "band")).read_rows(0, N_SAMPLES)
    np.testing.assert_array_equal(by_time, values.T)


def test_whole_numbers_with_missing_ones(tmp_path: Path) -> None:
    values = np.where(VALUES < 0, -1, VALUES.astype(int)).astype("int16")
    data = dataset(values)
    data["reflectance"].attrs["missing_value"] = np.int16(-1)
    path = write(tmp_path, "netcdf", data)
    expected = read(path)
    block = opened(path, array="reflectance").read_rows(0, N_FEATURES)
    assert block.dtype == expected.dtype == np.float32
    np.testing.assert_array_equal(block, expected.values)


def test_arrays_without_named_dimensions_are_as_they_are(tmp_path: Path) -> None:
    """The fill value of plain Zarr, 0, is what chunks that are not written hold."""
    group = zarr.open_group(tmp_path / "X.zarr", mode="w", zarr_format=2)
    group.create_array("X", data=np.zeros((4, 3), dtype=np.int16), fill_value=0)
    source = opened(tmp_path / "X.zarr")
    assert source.info.dtype == np.int16
    np.testing.assert_array_equal(source.read_rows(0, 4), np.zeros((4, 3)))


@pytest.mark.parametrize("form", FORMATS)
def test_refused(form: str, tmp_path: Path) -> None:
    path = write(tmp_path, form, dataset())
    cases: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"dims": ("time", "bands")}, ("data.dims is 'time', 'bands'", "'band', 'time'", "Did you mean 'band'?")),
        ({"array": "cube"}, ("cube", "shape (4, 9, 1)", "two dimensions")),
        ({"array": "cube", "dims": ("time", "band")}, ("data.dims", "'band', 'time', 'x'")),
        ({"labels": "crops"}, ("no member 'crops'", "Did you mean 'crop'?")),
    ]
    for fields, parts in cases:
        with pytest.raises(InputError) as caught:
            opened(path, **fields)
        assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def test_labels_along_the_other_dimension(tmp_path: Path) -> None:
    source = opened(write(tmp_path, "zarr 3", dataset()), array="reflectance", labels="crop")
    with pytest.raises(InputError, match="labels have 9 values, X has 4 rows"):
        source.read_labels()


@pytest.mark.parametrize("attributes", [{"_Unsigned": "true"}, {"scale_factor": "a"}, {"_FillValue": "b"}])
def test_attributes_that_are_not_decoded(attributes: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path, "zarr 3", dataset(VALUES.astype("int16")))
    zarr.open_array(path / "reflectance", mode="r+").attrs.update(attributes)
    with pytest.raises(InputError, match=f"reflectance has the.*{next(iter(attributes))}"):
        opened(path, array="reflectance")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_a_sparse_matrix_in_a_group(version: int, form: str, tmp_path: Path) -> None:
    matrix = sp.random(40, 7, density=0.3, format=form, random_state=0)
    root = zarr.open_group(tmp_path / "X.zarr", mode="w", zarr_format=version)  # type: ignore[arg-type]
    attributes = {"encoding-type": f"{form}_matrix", "shape": list(matrix.shape)}
    for name, group in (("X", root.create_group("X", attributes=attributes)), ("y", root)):
        if name == "y":
            group.create_array("y", data=np.arange(40) % 2)
            continue
        for part in ("data", "indices", "indptr"):
            group.create_array(part, data=getattr(matrix, part), chunks=(11,))
    source = opened(tmp_path / "X.zarr", labels="y")
    assert (source.read_rows(3, 33) != matrix.tocsr()[3:33]).nnz == 0
    assert source.reading_bytes > 0  # type: ignore[attr-defined]
