"""Decoding of variables by the CF conventions: missing and invalid values, scale and offset.

Scale, offset and fill values are decoded as by xarray, which does not apply valid ranges and default fill values. By CF
(2.5.1) these mark missing values, and netCDF4-python masks them: they are applied here, too.

The package xarray decodes to the same bits at the same speed, and is not used: its import costs each process 0.5 s and
76 MB and brings pandas, and it reads values through a link of an HDF5 file into another file.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.digits import as_floats
from daskfs.sources.hdf5 import Hdf5Array
from daskfs.sources.matrices import SourceArray

DEFAULT_FILLS = {
    "i2": -32767,
    "i4": -2147483647,
    "i8": -9223372036854775806,
    "u2": 65535,
    "u4": 4294967295,
    "u8": 18446744073709551614,
    "f4": 9.969209968386869e36,
    "f8": 9.969209968386869e36,
}
"""Values of the NetCDF library (NC_FILL_*) where nothing was written; bytes have none, as all their values serve."""


@dataclass(frozen=True)
class Decoding:
    """Decoding of a variable's stored values.

    Parameters
    ----------
    fills
        Stored values that mark missing ones.
    low, high
        Bounds of valid stored values; None for no bound.
    scale, offset
        A decoded value is the stored value times `scale`, plus `offset`.
    """

    fills: tuple[Any, ...]
    low: Any
    high: Any
    scale: float | None
    offset: float | None
    dtype: np.dtype[Any]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Decode an array of any shape to `dtype`; missing values become NaN."""
        out = np.array(as_floats(values, self.dtype))
        if self.scale is not None:
            out *= self.scale
        if self.offset is not None:
            out += self.offset
        out[self._is_missing(values)] = np.nan
        return out

    def of_column(self, values: np.ndarray) -> np.ndarray:
        """Decode labels or a per-sample column: whole numbers stay such, unless scaled, beside None for missing ones.

        As floats, classes would be taken for amounts.
        """
        if values.dtype.kind == "f" or self.scale is not None or self.offset is not None:
            return self(values)
        is_missing = self._is_missing(values)
        return np.where(is_missing, None, values) if is_missing.any() else values  # type: ignore[call-overload]

    def _is_missing(self, values: np.ndarray) -> np.ndarray:
        is_missing = np.zeros(values.shape, dtype=bool)
        for fill in self.fills:
            is_missing |= values == fill
        for bound, is_beyond in ((self.low, np.less), (self.high, np.greater)):
            if bound is not None:
                is_missing |= is_beyond(values, bound)
        return is_missing


def decoding_of(array: SourceArray) -> Decoding | None:
    """Return the decoding of a variable, None if its stored values need none.

    Only arrays with named dimensions are variables. In Zarr version 2, the array's fill value also marks missing
    values, because xarray stores them so. An attribute that cannot be decoded raises :class:`InputError`.
    """
    attributes = array.attributes
    if array.dtype.kind not in "iuf" or not any(array.dimensions):
        return None
    if "_Unsigned" in attributes:
        msg = f"{array.where} has the attribute '_Unsigned', which is not decoded: save it anew."
        raise InputError(msg)
    fills = [*_numbers("_FillValue", array), *_numbers("missing_value", array)]
    if isinstance(array, Hdf5Array):
        # The NetCDF library also sets the fill value of HDF5 to its default; in files of other programs, and in
        # variables that it was told not to fill, such a value was written as data, and netCDF4-python keeps it.
        default = DEFAULT_FILLS.get(array.dtype.str[1:])
        if "_FillValue" not in attributes and default is not None and array.fill_value == default:
            fills.append(default)
    elif array.version == 2 and array.fill_value is not None:
        fills.append(array.fill_value)
    fill_values = tuple({fill for fill in fills if fill == fill})  # NaN needs no decoding
    lows, highs = _numbers("valid_min", array, 1), _numbers("valid_max", array, 1)
    if bounds := _numbers("valid_range", array, 2):
        lows, highs = [*lows, bounds[0]], [*highs, bounds[1]]
    scale, offset = (_scalar(attributes, name, array.where) for name in ("scale_factor", "add_offset"))
    if not fill_values and not lows and not highs and scale is None and offset is None:
        return None
    return Decoding(
        fill_values,
        max(lows, default=None),
        min(highs, default=None),
        None if scale is None else float(scale),
        None if offset is None else float(offset),
        _decoded_dtype(array.dtype, scale, offset),
    )


def _numbers(name: str, array: SourceArray, count: int | None = None) -> list[Any]:
    """Return the `count` numbers of an attribute that is compared with stored values; none without the attribute.

    That of a float array may be in base64.
    """
    if name not in array.attributes:
        return []
    value, is_float = array.attributes[name], array.dtype.kind == "f"
    if isinstance(value, str | bytes) and is_float:
        with suppress(struct.error, binascii.Error, ValueError):
            value = struct.unpack("<d", base64.standard_b64decode(value))[0]
    attribute_values = np.asarray(value).ravel()
    if attribute_values.dtype.kind not in "iuf" or attribute_values.size != (count or attribute_values.size or 1):
        numbers = "no number" if count in (None, 1) else f"not {count} numbers"
        msg = f"{array.where} has the attribute {name} {value!r}, which is {numbers}."
        raise InputError(msg)
    if is_float:
        with np.errstate(over="ignore"):
            return list(attribute_values.astype(array.dtype.newbyteorder("=")))
    if np.any(np.isfinite(attribute_values) & (attribute_values != np.trunc(attribute_values))):
        msg = (
            f"{array.where} has the attribute {name} {value!r}, and stores whole numbers: it must be one of these, "
            "before scale_factor and add_offset."
        )
        raise InputError(msg)
    info = np.iinfo(array.dtype)
    # NumPy 2.5 crashes where it compares strided integers with a Python integer that is beyond their dtype
    return [int(n) if np.isfinite(n) and info.min <= int(n) <= info.max else n for n in attribute_values]


def _scalar(attributes: Mapping[str, Any], name: str, where: str) -> np.floating[Any] | None:
    if name not in attributes:
        return None
    value = np.asarray(attributes[name])
    if value.size != 1 or value.dtype.kind not in "iuf":
        msg = f"{where} has the attribute {name} {attributes[name]!r}, which is no number."
        raise InputError(msg)
    return np.dtype(value.dtype if value.dtype.kind == "f" else np.float64).type(value.item())


def _decoded_dtype(stored: np.dtype[Any], scale: Any, offset: Any) -> np.dtype[Any]:
    """Return the dtype that xarray decodes to: that of scale and offset, if it can hold the stored values."""
    if offset is not None:
        same = scale is not None and scale.dtype == offset.dtype and scale.dtype in (np.float32, np.float64)
        wide = stored.kind in "iu" and stored.itemsize == 4
        return np.dtype(scale.dtype if same and not wide else np.float64)
    if scale is not None:
        return np.dtype(scale.dtype)
    small = stored.itemsize <= (4 if stored.kind == "f" else 2)
    return np.dtype(np.float32 if small else np.float64)
