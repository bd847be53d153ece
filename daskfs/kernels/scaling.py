"""The ways in which a block of X is rescaled on the fly: chains of at most three steps in a fixed order.

The order is total, log1p, and then unit or zscore: counts are first made comparable between rows, then between small
and large values, and last between rows or columns. No other order of these is in use, so that a chain is known by its
steps, and written in one way: "total+log1p+zscore", "total=10000+log1p", "zscore". That text is what specs, names in a
store and estimators carry.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp

from daskfs.errors import nearest
from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.statistics.moments import row_blocks, rows_at_once

Scaling: TypeAlias = str
"""A chain of steps, as :func:`scaling_text` writes it."""
SCALINGS: tuple[Scaling, ...] = ("zscore", "unit", "log1p", "total")
"""Chains of one step."""
CHAIN = "'total' or 'total=NUMBER', 'log1p', and 'unit' or 'zscore', joined by +"
TARGETS = (1e-100, 1e100)
_PLUS = re.compile(r"\+(?=\s*[a-zA-Z])")


@dataclass(frozen=True)
class Steps:
    """The steps of a chain.

    Attributes
    ----------
    total
        What the values of each row are made to add up to: a number, or "median" for the median of the rows' sums that
        are not 0; None to leave them.
    log1p
        Whether log(1 + x) is taken.
    last
        "unit" divides rows by their norm, "zscore" subtracts from each column its mean and divides it by its population
        standard deviation; both of the values after the other steps.
    """

    total: float | Literal["median"] | None = None
    log1p: bool = False
    last: Literal["unit", "zscore"] | None = None

    @property
    def text(self) -> str:
        """The chain as it is written."""
        total = "total" if self.total == "median" else f"total={_number(self.total)}" if self.total else ""
        return "+".join(filter(None, (total, "log1p" if self.log1p else "", self.last or "")))

    @property
    def first(self) -> Scaling | None:
        """The chain without its step "unit" or "zscore"; None where nothing is left."""
        return Steps(self.total, self.log1p).text or None


def _number(value: Any) -> str:
    text = repr(float(value)).removesuffix(".0")
    return text.replace("e+", "e")


def scaling_text(value: str | Sequence[str]) -> Scaling:
    """Return a chain as it is written, from a text or a list of steps; :class:`ValueError` where it is none."""
    parts = _PLUS.split(value) if isinstance(value, str) else [str(part) for part in value]
    found: dict[str, Any] = {}
    names = []
    for part in (part.strip() for part in parts):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if name not in SCALINGS or (equals and name != "total"):
            msg = f"unknown step '{part}' of a scaling.{nearest(name, SCALINGS)} Steps, in this order: {CHAIN}"
            raise ValueError(msg)
        names.append(name)
        found[name] = _target(number) if equals else "median"
    order = [name for name in ("total", "log1p", "unit", "zscore") if name in found]
    if names != order or {"unit", "zscore"} <= found.keys():
        msg = f"a scaling has its steps in this order, each at most once: {CHAIN}"
        raise ValueError(msg)
    return Steps(found.get("total"), "log1p" in found, _last(found)).text


def _last(names: Container[str]) -> Literal["unit", "zscore"] | None:
    return "unit" if "unit" in names else "zscore" if "zscore" in names else None


def checked_scaling(value: Any, name: str) -> Scaling | None:
    """Return a scaling that a caller gave as an argument; :class:`ValueError` names the argument."""
    if value is not None and not isinstance(value, str | list | tuple):
        msg = f"{name} must be None, or a text of steps: {CHAIN}; got {value!r}."
        raise ValueError(msg)
    try:
        return scaling_text(value) if value else None
    except ValueError as error:
        msg = f"{name} {value!r}: {error}."
        raise ValueError(msg) from None


def _target(number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not TARGETS[0] <= value <= TARGETS[1]:
        msg = f"total={number}: the sum of a row should be a number between {TARGETS[0]:g} and {TARGETS[1]:g}"
        raise ValueError(msg)
    return value


@lru_cache(maxsize=64)
def steps_of(scaling: Scaling) -> Steps:
    """Return the steps of a chain that :func:`scaling_text` wrote."""
    found = dict(part.partition("=")[::2] for part in _PLUS.split(scaling))
    total: float | Literal["median"] | None = "median" if "total" in found else None
    if found.get("total"):
        total = float(found["total"])
    return Steps(total, "log1p" in found, _last(found))


def without_zscore(scaling: Scaling | None) -> Scaling | None:
    """Return what is left of a chain where z-scores of columns have no say, or are left to a center and a scale."""
    if scaling is None or steps_of(scaling).last != "zscore":
        return scaling
    return steps_of(scaling).first


def ends_with(scaling: Scaling | None, last: Literal["unit", "zscore"]) -> bool:
    """Return whether "unit" or "zscore" is the last step of a chain."""
    return scaling is not None and steps_of(scaling).last == last


def row_statistics(scaling: Scaling | None) -> int:
    """Return how many numbers of each row a chain is told, where only some of its columns are at hand."""
    if scaling is None:
        return 0
    steps = steps_of(scaling)
    return (steps.total is not None) + (steps.last == "unit")


@dataclass(frozen=True)
class ColumnScale:
    """Mean and population standard deviation of each column, shape (n_features,), float64."""

    mean: np.ndarray
    std: np.ndarray

    def part(self, columns: slice | np.ndarray) -> ColumnScale:
        """Return the scale of some columns."""
        return ColumnScale(self.mean[columns], self.std[columns])


@dataclass(frozen=True)
class RowScale:
    """What the steps of a chain are told of rows, shape (n_rows,) each, float64; None where no step asks.

    Attributes
    ----------
    factors
        What "total" multiplies rows by.
    norms
        What "unit" divides rows by.
    """

    factors: np.ndarray | None = None
    norms: np.ndarray | None = None

    def part(self, rows: slice | np.ndarray) -> RowScale:
        """Return the scale of some rows."""
        return RowScale(*(None if values is None else values[rows] for values in (self.factors, self.norms)))


def inverse_or_zero(values: np.ndarray) -> np.ndarray:
    """Return 1 / values, and 0 where a value is 0 (a constant column, an all-zero row)."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def row_norms(X: np.ndarray | sp.csr_matrix) -> np.ndarray:
    """Return the Euclidean norm of each row, of what is not NaN; shape (n_rows,), float64; scaled so that no square
    over- or underflows.
    """
    if is_sparse(X):
        values = _without_missing(X.astype(np.float64))
        largest = np.asarray(abs(values).max(axis=1).todense()).ravel() if values.nnz else np.zeros(X.shape[0])
        scaled = sp.diags_array(inverse_or_zero(largest)) @ values
        return largest * np.sqrt(np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel())
    norms = np.empty(X.shape[0])
    for rows in row_blocks(X.shape[0], rows_at_once(X.shape[1])):
        values = X[rows].astype(np.float64)
        largest = np.maximum(values.max(axis=1, initial=0.0), -values.min(axis=1, initial=0.0))
        if np.isnan(largest).any():
            np.copyto(values, 0.0, where=np.isnan(values))
            largest = np.maximum(values.max(axis=1, initial=0.0), -values.min(axis=1, initial=0.0))
        values *= inverse_or_zero(largest)[:, None]
        norms[rows] = largest * np.sqrt(np.einsum("ij,ij->i", values, values))
    return norms


def squared_lengths(X: np.ndarray | sp.csr_matrix) -> np.ndarray:
    """Return the squared Euclidean norm of each row, shape (n_rows,), in the type of the rows."""
    if is_sparse(X):
        if not X.has_canonical_format:  # entries that are stored twice add up before they are squared
            X = X.copy()
            X.sum_duplicates()
        squares = sp.csr_matrix((np.square(X.data), X.indices, X.indptr), shape=X.shape)
        return np.asarray(squares.sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X)


def row_sums(X: np.ndarray | sp.csr_matrix) -> np.ndarray:
    """Return the sum of what is not NaN in each row, shape (n_rows,), float64."""
    if is_sparse(X):
        return np.asarray(_without_missing(X.astype(np.float64)).sum(axis=1)).ravel()
    sums = np.empty(X.shape[0])
    for rows in row_blocks(X.shape[0], rows_at_once(X.shape[1])):
        values = np.array(X[rows], np.float64, order="C")
        values.sum(axis=1, out=sums[rows])
        if np.isnan(sums[rows]).any():
            np.copyto(values, 0.0, where=np.isnan(values))
            values.sum(axis=1, out=sums[rows])
    return sums


def _without_missing(X: sp.csr_matrix) -> sp.csr_matrix:
    """Return a matrix that may be changed with 0 where it stores NaN."""
    np.copyto(X.data, 0.0, where=np.isnan(X.data))
    return X


def median_sum(sums: np.ndarray) -> float:
    """Return the median of the sums of rows that are above 0, as scanpy's normalize_total takes it; 1 where none is."""
    positive = sums[sums > 0]
    return float(np.median(positive, overwrite_input=True)) if positive.size else 1.0


def row_factors(sums: np.ndarray, target: float) -> np.ndarray:
    """Return what rows are multiplied by so that they add up to `target`; 0 for a row that adds up to 0."""
    return np.divide(target, sums, out=np.zeros_like(sums), where=sums > 0)


def scale_rows(
    X: np.ndarray | sp.csr_matrix, scaling: Scaling, columns: ColumnScale | None = None, rows: RowScale | None = None
) -> np.ndarray | sp.csr_matrix:
    """Return a rescaled copy of a block, float64.

    Parameters
    ----------
    X
        Dense (n_rows, n_columns) array or CSR matrix; with "total" without negative values, and with "log1p" with none
        of -1 or less.
    scaling
        "total" multiplies each row by its factor (zero rows stay 0). "log1p" is log(1 + x). "unit" divides rows by
        their norm (zero rows stay 0). "zscore" subtracts the column mean and divides by the population standard
        deviation (constant columns become 0); a sparse block is only divided, which leaves every distance and every
        score difference the same. Or a chain of these.
    columns
        Needed for "zscore": of the columns of this block, and the values before this step.
    rows
        Needed for "total". Norms for "unit" are taken of the block, which then holds whole rows, where none are given.
    """
    steps, rows, fresh = steps_of(scaling), rows or RowScale(), False
    if steps.total is not None:
        assert rows.factors is not None
        X, fresh = _times_rows(X, rows.factors), True
    if steps.log1p:
        X, fresh = _log1p(X, fresh), True
    if steps.last == "unit":
        inverse = inverse_or_zero(row_norms(X) if rows.norms is None else rows.norms)
        return _times_rows(X, inverse, in_place=fresh)
    if steps.last == "zscore":
        assert columns is not None
        return _standardized(X, columns, in_place=fresh)
    return X


def _times_rows(
    X: np.ndarray | sp.csr_matrix, factors: np.ndarray, *, in_place: bool = False
) -> np.ndarray | sp.csr_matrix:
    if is_sparse(X):
        return _with_data(X, X.data * np.repeat(factors, np.diff(X.indptr)))
    if not in_place:
        return X * factors[:, None]
    X *= factors[:, None]
    return X


def _with_data(X: sp.csr_matrix, data: np.ndarray) -> sp.csr_matrix:
    """Return a matrix with other entries in the same places. A product with a diagonal matrix would leave out those
    that meet a 0, of which one may be NaN.
    """
    return sp.csr_matrix((data, X.indices.copy(), X.indptr.copy()), shape=X.shape)


def _log1p(X: np.ndarray | sp.csr_matrix, in_place: bool) -> np.ndarray | sp.csr_matrix:
    values = X if in_place else X.astype(np.float64)
    if is_sparse(values):
        np.log1p(values.data, out=values.data)
    else:
        np.log1p(values, out=values)
    return values


def _standardized(X: np.ndarray | sp.csr_matrix, columns: ColumnScale, *, in_place: bool) -> np.ndarray | sp.csr_matrix:
    inverse = inverse_or_zero(columns.std)
    if is_sparse(X):
        return _with_data(X, X.data * inverse[X.indices])
    if not in_place:
        return (X.astype(np.float64) - columns.mean) * inverse
    X -= columns.mean
    X *= inverse
    return X
