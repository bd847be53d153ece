"""On-the-fly rescaling of blocks of X by chains of up to three steps.

The order of steps is fixed: "total", "log1p", then "unit" or "zscore". So a chain is identified by its steps and has
one spelling, such as "total+log1p+zscore", "total=10000+log1p" or "zscore". Specs, names in a store and estimators
carry that text.

Notes
-----
For a graph, a last step "pca=N" takes the first N principal components of the rescaled rows. It is not done block by
block: :func:`chain_of` gives the steps before it, and :func:`components_of` its N.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp

from daskfs.errors import nearest
from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.statistics.moments import row_blocks, rows_at_once
from daskfs.kernels.statistics.streaming_median import streamed_median

Scaling: TypeAlias = str
"""A scaling chain, as :func:`scaling_text` spells it."""
SCALINGS: tuple[Scaling, ...] = ("zscore", "unit", "log1p", "total")
"""Chains of one step."""
CHAIN = "'total' or 'total=NUMBER', 'log1p', and 'unit' or 'zscore', joined by +"
GRAPH_CHAIN = "'total' or 'total=NUMBER', 'log1p', 'unit' or 'zscore', and 'pca=NUMBER', joined by +"
"""Steps of a scaling of rows for a graph."""
PCA, HALF = "pca", "half"
TARGETS = (1e-100, 1e100)
MOST_COMPONENTS = 1000
_PLUS = re.compile(r"\+(?=\s*[a-zA-Z])")


@dataclass(frozen=True)
class Steps:
    """The steps of a scaling chain.

    Attributes
    ----------
    total
        Target sum of each row: a number, or "median" for the median of the positive row sums; None for no such step.
    log1p
        Whether log(1 + x) is taken.
    last
        "unit" divides each row by its norm; "zscore" subtracts each column's mean and divides by its population
        standard deviation. Both use the values after the other steps. None for neither.
    half
        Half of the columns, 0 or 1, whose values count: the others are 0 from the start. None for all columns. No user
        writes this step; it is that of the graphs of :mod:`daskfs.graph.halves`.
    """

    total: float | Literal["median"] | None = None
    log1p: bool = False
    last: Literal["unit", "zscore"] | None = None
    half: int | None = None

    @property
    def text(self) -> str:
        """The spelling of the chain."""
        half = "" if self.half is None else f"{HALF}={self.half}"
        total = "total" if self.total else ""
        if self.total and self.total != "median":
            total += "=" + repr(float(self.total)).removesuffix(".0").replace("e+", "e")
        return "+".join(filter(None, (half, total, "log1p" if self.log1p else "", self.last or "")))

    @property
    def first(self) -> Scaling | None:
        """The chain without its step "unit" or "zscore"; None if no step remains."""
        return Steps(self.total, self.log1p, half=self.half).text or None


def scaling_text(value: str | Sequence[str], *, of_graph: bool = False) -> Scaling:
    """Return the spelling of a chain that is given as a text or a list of steps.

    `of_graph` allows a last step "pca=N". Raises :class:`ValueError` for unknown, repeated or misordered steps, and for
    a row sum or a number of components out of range.
    """
    steps = GRAPH_CHAIN if of_graph else CHAIN
    parts = _PLUS.split(value) if isinstance(value, str) else [str(part) for part in value]
    options: dict[str, Any] = {}
    names = []
    for part in (part.strip() for part in parts):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if name == PCA and not of_graph:
            msg = f"step '{part}' is for the graph only: features are scored in their own columns. Steps: {steps}"
            raise ValueError(msg)
        if name not in (*SCALINGS, PCA) or (equals and name not in ("total", PCA)):
            steps_known = (*SCALINGS, PCA) if of_graph else SCALINGS
            msg = f"unknown step '{part}' of a scaling.{nearest(name, steps_known)} Steps, in this order: {steps}"
            raise ValueError(msg)
        names.append(name)
        options[name] = _n_components(part, number) if name == PCA else _target(number) if equals else "median"
    order = [name for name in ("total", "log1p", "unit", "zscore", PCA) if name in options]
    if names != order or {"unit", "zscore"} <= options.keys():
        msg = f"a scaling has its steps in this order, each at most once: {steps}"
        raise ValueError(msg)
    chain = Steps(options.get("total"), "log1p" in options, _last(options)).text
    return "+".join(filter(None, (chain, f"{PCA}={options[PCA]}" if PCA in options else "")))


def _n_components(part: str, number: str) -> int:
    if not (number.isdecimal() and 1 <= int(number) <= MOST_COMPONENTS):
        msg = f"step '{part}' needs the number of principal components, 1 to {MOST_COMPONENTS}, such as pca=50"
        raise ValueError(msg)
    return int(number)


def components_of(scaling: Scaling | None) -> int | None:
    """Return the number of principal components that a chain ends with; None if it does not end so."""
    _, step, number = (scaling or "").rpartition(f"{PCA}=")
    return int(number) if step else None


def chain_of(scaling: Scaling | None) -> Scaling | None:
    """Return the chain without its step "pca=N"; None if no step remains."""
    return None if scaling is None else scaling.partition(f"{PCA}=")[0].removesuffix("+") or None


def _last(names: Container[str]) -> Literal["unit", "zscore"] | None:
    return "unit" if "unit" in names else "zscore" if "zscore" in names else None


def checked_scaling(value: Any, name: str, *, of_graph: bool = False) -> Scaling | None:
    """Validate the argument `name` of a caller, and return the spelling of the chain, or None for no scaling.

    `of_graph` is that of :func:`scaling_text`. Raises :class:`ValueError` that names the argument.
    """
    if value is not None and not isinstance(value, str | list | tuple):
        msg = f"{name} must be None, or a text of steps: {GRAPH_CHAIN if of_graph else CHAIN}; got {value!r}."
        raise ValueError(msg)
    try:
        return scaling_text(value, of_graph=of_graph) if value else None
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
def steps_of(scaling: Scaling | None) -> Steps:
    """Parse a chain that :func:`scaling_text` spelled; None is one without steps."""
    options = dict(part.partition("=")[::2] for part in _PLUS.split(scaling or ""))
    total: float | Literal["median"] | None = "median" if "total" in options else None
    if options.get("total"):
        total = float(options["total"])
    return Steps(total, "log1p" in options, _last(options), int(options[HALF]) if HALF in options else None)


def of_half(scaling: Scaling | None, half: int) -> Scaling:
    """Return the chain for one half of the columns."""
    return "+".join(filter(None, (f"{HALF}={half}", scaling)))


def half_of(scaling: Scaling | None) -> int | None:
    """Return the half of the columns, 0 or 1, that a chain is for; None for all of them."""
    return steps_of(scaling).half


def without_columns(X: Block, left_out: np.ndarray) -> Block:
    """Return a copy with zeros in the columns of a mask, shape (n_columns,), bool; entries of CSR rows are dropped."""
    if not is_sparse(X):
        return np.where(left_out, X.dtype.type(0), X)
    is_kept = ~left_out[X.indices]
    indptr = np.concatenate([[0], np.cumsum(is_kept)])[X.indptr]
    return sp.csr_matrix((X.data[is_kept], X.indices[is_kept], indptr), shape=X.shape)


def without_zscore(scaling: Scaling | None) -> Scaling | None:
    """Return the chain without "zscore"; None if no step remains.

    For callers that z-scores do not affect, or that center and scale columns themselves.
    """
    steps = steps_of(scaling)
    return steps.first if steps.last == "zscore" else scaling


def ends_with(scaling: Scaling | None, last: Literal["unit", "zscore"]) -> bool:
    """Return whether the last step of a chain is `last`."""
    return steps_of(scaling).last == last


def row_statistics(scaling: Scaling | None) -> int:
    """Return the number of per-row statistics that a chain needs when only some columns are loaded."""
    steps = steps_of(scaling)
    return (steps.total is not None) + (steps.last == "unit")


@dataclass(frozen=True)
class ColumnScale:
    """Mean, what its rounding leaves out, and population standard deviation of columns, (n_features,), float64."""

    mean: np.ndarray
    std: np.ndarray
    rest: np.ndarray

    def part(self, columns: slice | np.ndarray) -> ColumnScale:
        """Return the scale of some columns."""
        return ColumnScale(self.mean[columns], self.std[columns], self.rest[columns])


@dataclass(frozen=True)
class RowScale:
    """Per-row statistics of a chain, shape (n_rows,) each, float64; None where no step needs them.

    Attributes
    ----------
    factors
        Multipliers of rows for "total".
    norms
        Divisors of rows for "unit".
    """

    factors: np.ndarray | None = None
    norms: np.ndarray | None = None

    def part(self, rows: slice | np.ndarray) -> RowScale:
        """Return the statistics of some rows."""
        return RowScale(*(None if values is None else values[rows] for values in (self.factors, self.norms)))


def inverse_or_zero(values: np.ndarray) -> np.ndarray:
    """Return 1 / values, float64, and 0 where a value is 0 (a constant column, an all-zero row)."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def row_norms(X: Block) -> np.ndarray:
    """Return the Euclidean norm of each row of X, dense or CSR, ignoring NaN; shape (n_rows,), float64.

    Rows are divided by their largest value first, so that no square overflows or underflows.
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


def squared_lengths(X: Block) -> np.ndarray:
    """Return the squared Euclidean norm of each row of X, dense or CSR; shape (n_rows,), dtype of X."""
    if is_sparse(X):
        if not X.has_canonical_format:  # duplicate entries are summed before they are squared
            X = X.copy()
            X.sum_duplicates()
        squares = sp.csr_matrix((np.square(X.data), X.indices, X.indptr), shape=X.shape)
        return np.asarray(squares.sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X)


def row_sums(X: Block) -> np.ndarray:
    """Return the sum of each row of X, dense or CSR, ignoring NaN; shape (n_rows,), float64."""
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
    """Set stored NaN to 0 in place, and return the matrix."""
    np.copyto(X.data, 0.0, where=np.isnan(X.data))
    return X


def median_sum(blocks: Callable[[], Iterator[np.ndarray]]) -> float:
    """Return the median of the positive row sums, as in scanpy's normalize_total; 1 if none is positive.

    `blocks` starts a pass over the sums: arrays of shape (n_rows,), float64.
    """
    median = streamed_median(lambda: (sums[sums > 0] for sums in blocks()))
    return 1.0 if np.isnan(median) else median


def row_factors(sums: np.ndarray, target: float) -> np.ndarray:
    """Return the factors that make rows sum to `target`, shape and dtype of `sums`; 0 for a row that sums to 0."""
    return np.divide(target, sums, out=np.zeros_like(sums), where=sums > 0)


def scale_rows(X: Block, scaling: Scaling, columns: ColumnScale | None = None, rows: RowScale | None = None) -> Block:
    """Return a rescaled copy of a block, float64.

    Parameters
    ----------
    X
        Dense (n_rows, n_columns) array or CSR matrix; non-negative for "total", all values above -1 for "log1p".
    scaling
        Chain of steps. "total" multiplies each row by its factor (zero rows stay 0). "log1p" is log(1 + x). "unit"
        divides each row by its norm (zero rows stay 0). "zscore" subtracts the column mean and divides by the
        population standard deviation (constant columns become 0); a sparse block is only divided, which preserves every
        distance and every score difference.
    columns
        Required for "zscore": mean and standard deviation of the columns of this block, after the other steps.
    rows
        Required for "total". The norms for "unit" default to those of the block, which must then hold whole rows.
    """
    steps, rows = steps_of(scaling), rows or RowScale()
    if steps.total is None and not steps.log1p and steps.last is None:
        return X
    X = X.astype(np.float64)
    if steps.total is not None:
        assert rows.factors is not None
        _multiply_rows(X, rows.factors)
    if steps.log1p:
        values = X.data if is_sparse(X) else X
        np.log1p(values, out=values)
    if steps.last == "unit":
        _multiply_rows(X, inverse_or_zero(row_norms(X) if rows.norms is None else rows.norms))
    if steps.last == "zscore":
        assert columns is not None
        inverse = inverse_or_zero(columns.std)
        if is_sparse(X):
            X.data *= inverse[X.indices]
        else:
            X -= columns.mean
            X -= columns.rest
            X *= inverse
    return X


def _multiply_rows(X: Block, factors: np.ndarray) -> None:
    if is_sparse(X):  # a product with a diagonal matrix would drop the entries that meet a 0, NaN included
        X.data *= np.repeat(factors, np.diff(X.indptr))
    else:
        X *= factors[:, None]
