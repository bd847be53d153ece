"""Variables of xarray and NetCDF: which dimension goes along rows, and values as xarray itself reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from daskfs import FisherScore
from daskfs.data_block import DataBlock
from daskfs.errors import InputError
from daskfs.kernels.digits import as_floats, loses_digits
from daskfs.runs.inspection import inspect_data
from daskfs.sources import Source, SourceSpec, open_source
from tests.optional import h5py
from tests.optional import xarray as xr

N_SAMPLES, N_FEATURES = 9, 4
VALUES = np.random.default_rng(0).integers(-20, 20, size=(N_FEATURES, N_SAMPLES)) / 4
NETCDF_DEFAULTS = {
    "i1": -127,
    "u1": 255,
    "i2": -32767,
    "u2": 65535,
    "i4": -2147483647,
    "u4": 4294967295,
    "i8": -9223372036854775806,
    "u8": 18446744073709551614,
    "f4": 9.969209968386869e36,
    "f8": 9.969209968386869e36,
}
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
    return open_source(SourceSpec(source=str(path), **fields))


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


MISSING: dict[str, tuple[dict[str, Any], list[int]]] = {
    "valid_range": ({"valid_range": [-90, 90]}, [-91, 91, 120]),
    "valid_min": ({"valid_min": -90}, [-91]),
    "valid_max": ({"valid_max": 90}, [91, 120]),
    "valid_min and valid_range": ({"valid_min": 0, "valid_range": [-90, 90]}, [-91, -90, -1, 91, 120]),
    "bounds beyond the type": ({"valid_range": [-(10**12), 10**12]}, []),
    "infinite bound": ({"valid_range": [float("-inf"), 90.0]}, [91, 120]),
    "missing_value": ({"missing_value": 7}, [7]),
    "vector of missing values": ({"missing_value": [7, 91]}, [7, 91]),
    "both fills": ({"missing_value": [7], "_FillValue": 1}, [1, 7]),
    "fill that no value can be": ({"missing_value": 10**9}, []),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", ["int8", "int16", ">i4", "int64", "float32", "float64"])
def test_values_that_attributes_call_missing(form: str, dtype: str, tmp_path: Path) -> None:
    """The attributes apply to stored values, packed or not, of X as of the columns beside it."""
    stored = np.array([[-91, -90, -1, 0, 1, 7, 90, 91, 120]] * 2).T.astype(dtype)
    data = xr.Dataset()
    for place, (attributes, _) in enumerate(MISSING.values()):
        for name, values in {"X": stored, "packed": stored, "y": stored[:, 0], "column": stored[:, 1]}.items():
            packed = {"scale_factor": 0.5, "add_offset": 2.0} if name in ("packed", "column") else {}
            given = {**attributes, **packed}
            fill = given.pop("_FillValue", None)
            data[f"{name}{place}"] = ("row", "feature")[: values.ndim], values, given
            data[f"{name}{place}"].encoding["_FillValue"] = fill and np.dtype(dtype).type(fill)
    path = tmp_path / ("X.nc" if form == "netcdf" else "X.zarr")
    if form == "netcdf":
        data.to_netcdf(path, engine="h5netcdf")
    else:
        data.to_zarr(path, zarr_format=int(form[-1]), consolidated=False)
    for place, (case, (_, invalid)) in enumerate(MISSING.items()):
        expected = np.where(np.isin(stored, invalid), np.nan, stored)
        source = opened(path, array=f"X{place}", labels=f"y{place}", weights=f"column{place}")
        np.testing.assert_array_equal(source.read_rows(0, 9), expected, case)
        packed_rows = opened(path, array=f"packed{place}").read_rows(0, 9)
        np.testing.assert_array_equal(packed_rows, expected * 0.5 + 2, case)
        labels, weights = source.labels_column().whole, source.sample_column("weights").whole
        np.testing.assert_array_equal(labels.astype(float), expected[:, 0], case)
        np.testing.assert_array_equal(weights, expected[:, 0] * 0.5 + 2, case)
        assert labels.dtype.kind == ("f" if dtype.startswith("f") else "O" if invalid else "i"), case


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", ">u4", "i8", "u8", "f4", ">f8"])
@pytest.mark.parametrize("own", [None, 5])
def test_default_fill_values_of_the_netcdf_library(dtype: str, own: int | None, tmp_path: Path) -> None:
    """They mark missing values where the library filled what was not written: not in bytes, nor beside _FillValue."""
    from h5netcdf import legacyapi as legacy

    default = NETCDF_DEFAULTS[dtype[-2:]]
    values = np.array([[1, 2], [3, default], [5, 6]], dtype)
    with legacy.Dataset(tmp_path / "X.nc", "w") as file:
        file.createDimension("row", 3)
        file.createDimension("feature", 2)
        file.createVariable("X", dtype, ("row", "feature"), fill_value=own)[:] = values
    with h5py.File(tmp_path / "plain.nc", "w") as plain, h5py.File(tmp_path / "X.nc") as file:
        plain["X"] = file["X"][()]
        plain["X"].dims[0].label = "row"
    marked = own if own is not None else None if dtype[-1] == "1" else values[1, 1]
    for name, expected in (("X", np.where(values == marked, np.nan, as_floats(values))), ("plain", as_floats(values))):
        found = opened(tmp_path / f"{name}.nc").read_rows(0, 3)
        np.testing.assert_array_equal(found, expected)
        assert loses_digits(found).any() == loses_digits(expected).any()  # no missing value, but one to be refused


def test_whole_numbers_beside_missing_ones_are_classes(tmp_path: Path) -> None:
    data = xr.Dataset({"X": (("row", "feature"), np.random.default_rng(0).normal(size=(9, 2)))})
    data["y"] = ("row", np.array([0, 1, 2] * 3, "int32"), {"valid_max": 1})
    path = write(tmp_path, "zarr 3", data.rename(X="reflectance"))
    described = inspect_data(DataBlock(source=str(path), labels="y"))
    assert (described["task"], described["classes"]) == ("classification", {"0": 3, "1": 3})
    assert next(column for column in described["columns"] if column["name"] == "y")["n_missing"] == 3


def test_invalid_values_are_refused_by_row_and_column(tmp_path: Path) -> None:
    values = np.arange(24, dtype="int16").reshape(12, 2)
    values[3] = 32000
    data = xr.Dataset({"X": (("row", "feature"), values, {"valid_range": np.array([-9000, 9000], "int16")})})
    data.to_netcdf(tmp_path / "X.nc", engine="h5netcdf")
    with pytest.raises(InputError, match="has NaN in row 3"):
        FisherScore(1).fit(tmp_path / "X.nc", np.arange(12) % 2)


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


REFUSED: list[dict[str, Any]] = [
    {"valid_range": [0]},
    {"valid_range": "0, 9"},
    {"valid_min": [0, 1]},
    {"valid_max": 0.5},
    {"missing_value": -99.9},
    {"missing_value": []},
]


@pytest.mark.parametrize("attributes", [{"_Unsigned": "true"}, {"scale_factor": "a"}, {"_FillValue": "b"}, *REFUSED])
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
