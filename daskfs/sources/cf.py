"""Decoding of variables by the CF conventions, as in xarray: missing values, scale and offset.

The package xarray decodes to the same bits at the same speed, and is not used: its import costs each process 0.5 s and
76 MB and brings pandas, and it reads values through a link of an HDF5 file into another file.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.checks import shorten_names
from daskfs.sources.matrices import Array
from daskfs.sources.zarr_array import ZarrMember

NOT_DECODED = ("_Unsigned",)
FILLS = ("_FillValue", "missing_value")


@dataclass(frozen=True)
class Decoding:
    """Decoding of a variable's stored values.

    Parameters
    ----------
    fills
        Stored values that mark missing ones.
    scale, offset
        A decoded value is the stored value times `scale`, plus `offset`.
    dtype
        Dtype of the decoded values.
    """

    fills: tuple[Any, ...]
    scale: float | None
    offset: float | None
    dtype: np.dtype[Any]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Decode an array of any shape to `dtype`; missing values become NaN."""
        out = values.astype(self.dtype)
        if self.scale is not None:
            out *= self.scale
        if self.offset is not None:
            out += self.offset
        for fill in self.fills:
            out[values == fill] = np.nan
        return out


def decoding_of(array: Array) -> Decoding | None:
    """Return the decoding of a variable, None if its stored values need none.

    Only arrays with named dimensions are variables. In Zarr version 2, the array's fill value also marks missing
    values, because xarray stores them so. An attribute that cannot be decoded raises :class:`InputError`.
    """
    attributes = array.attributes
    if array.dtype.kind not in "iuf" or not any(array.dimensions):
        return None
    unknown = [name for name in NOT_DECODED if name in attributes]
    if unknown:
        msg = f"{array.where} has the attribute {shorten_names(unknown)}, which is not decoded: save it anew."
        raise InputError(msg)
    fills = [attributes[name] for name in FILLS if name in attributes]
    if isinstance(array, ZarrMember) and array.version == 2 and array.fill_value is not None:
        fills.append(array.fill_value)
    known = {fill for value in fills if (fill := _number(value, array)) == fill}  # NaN needs no decoding
    scale, offset = (_scalar(attributes, name, array.where) for name in ("scale_factor", "add_offset"))
    if not known and scale is None and offset is None:
        return None
    return Decoding(
        tuple(known),
        None if scale is None else float(scale),
        None if offset is None else float(offset),
        _decoded_dtype(array.dtype, scale, offset),
    )


def _number(value: Any, array: Array) -> Any:
    """Return a fill value as a number of the array's dtype; that of a float array may be in base64."""
    if isinstance(value, str | bytes) and array.dtype.kind == "f":
        try:
            return array.dtype.type(struct.unpack("<d", base64.standard_b64decode(value))[0])
        except (struct.error, binascii.Error, ValueError) as error:
            msg = f"{array.where} has the _FillValue {value!r}, which is no number."
            raise InputError(msg) from error
    try:
        return np.asarray(value).astype(array.dtype).ravel()[0]
    except (ValueError, TypeError, IndexError) as error:
        msg = f"{array.where} has the _FillValue {value!r}, which is no number."
        raise InputError(msg) from error


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
