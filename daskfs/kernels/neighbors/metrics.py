"""Metrics between rows: Euclidean distances of rows or of a map of them, and pynndescent's functions.

A metric is a name of pynndescent's, with its arguments if it has any, such as "cosine" or "minkowski(p=3)".
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from daskfs.errors import InputError

Metric = str
LENGTHS: tuple[Metric, ...] = ("euclidean", "sqeuclidean")
"""Metrics of rows as they are, which a shift of all rows does not change."""
CENTERED: tuple[Metric, ...] = ("correlation", "spearmanr")
ANGLES: tuple[Metric, ...] = ("cosine", "dot", "direct_cosine", "true_angular", "hellinger", *CENTERED)
"""Metrics of unit rows: of the rows themselves, of square roots, and of centered rows or ranks."""
DISTRIBUTIONS = frozenset(
    ["hellinger", "kantorovich", "wasserstein_1d", "circular_kantorovich", "sinkhorn", "jensen_shannon", "symmetric_kl"]
)
"""Metrics of rows without negative values."""


def is_own(metric: Metric, *, is_sparse: bool) -> bool:
    """Return whether distances follow from Euclidean distances of rows; centering would make sparse rows dense."""
    return metric in LENGTHS or (metric in ANGLES and not (is_sparse and metric in CENTERED))


@lru_cache(maxsize=64)
def split_metric(metric: Metric) -> tuple[str, dict[str, Any]]:
    """Return the name of a metric, and its arguments: numbers and arrays, in pynndescent's order."""
    name, _, arguments = metric.partition("(")
    call = ast.parse(f"metric({arguments or ')'}", mode="eval").body
    assert isinstance(call, ast.Call)
    values = ((str(keyword.arg), ast.literal_eval(keyword.value)) for keyword in call.keywords)
    return name, {key: np.asarray(value, np.float64) if np.ndim(value) else value for key, value in values}


@lru_cache(maxsize=64)
def _parse_name(name: str) -> tuple[str, dict[str, Any]]:
    """Return the first name of a metric, without "-", and its arguments with their defaults; arrays have none."""
    from pynndescent.distances import named_distances

    if name.startswith("bit_") and name in named_distances:
        msg = f"metric {name!r} compares packed bits: give the bits as columns, and metric {name[4:]!r}"
        raise ValueError(msg)
    if name not in named_distances:
        names = sorted(name for name in named_distances if not name.startswith("bit_"))
        msg = f"metric must be one of {', '.join(map(repr, names))}; got {name!r}"
        raise ValueError(msg)
    function = named_distances[name]
    _, _, *arguments = inspect.signature(function.py_func).parameters.values()
    defaults = {a.name: None if isinstance(a.default, np.ndarray) else a.default for a in arguments}
    return next(other for other, same in named_distances.items() if same is function and "-" not in other), defaults


def checked_metric(metric: Any, metric_kwds: Mapping[str, Any] | None = None) -> Metric:
    """Return a metric as one text, with all of its arguments.

    Raises
    ------
    ValueError
        For an unknown name, an unknown or missing argument, and metrics of packed bits.
    """
    if metric in (*LENGTHS, *ANGLES) and not metric_kwds:
        return str(metric)
    try:
        name, arguments = split_metric(str(metric))
    except (SyntaxError, ValueError):
        msg = f"metric {metric!r} has no arguments that can be read, as minkowski(p=3) has"
        raise ValueError(msg) from None
    name, defaults = _parse_name(name)
    arguments = {**arguments, **(metric_kwds or {})}
    if unknown := sorted(arguments.keys() - defaults.keys()):
        msg = (
            f"metric_kwds: metric {name!r} has no {', '.join(unknown)}; its arguments: {', '.join(defaults) or 'none'}"
        )
        raise ValueError(msg)
    values = {**defaults, **arguments}
    if missing := [key for key, value in values.items() if value is None]:
        msg = f"metric {name!r} needs metric_kwds with {', '.join(missing)}"
        raise ValueError(msg)
    return f"{name}({', '.join(f'{key}={_plain(value)}' for key, value in values.items())})" if values else name


def _plain(value: Any) -> str:
    number = np.asarray(value, dtype=np.float64)
    if not np.isfinite(number).all():
        msg = f"metric_kwds holds {value!r}: arguments of a metric are finite numbers"
        raise ValueError(msg)
    return repr(int(number) if number.ndim == 0 and number == np.rint(number) else number.tolist())


def check_columns(metric: Metric, n_columns: int, *, is_sparse: bool) -> None:
    """Raise :class:`InputError` if a metric does not serve rows of so many columns, or sparse ones."""
    if is_own(metric, is_sparse=is_sparse):
        return
    name, arguments = split_metric(metric)
    if is_sparse:
        from pynndescent.sparse import sparse_named_distances

        function = sparse_named_distances.get(name)
        if function is None or not arguments.keys() <= inspect.signature(function.py_func).parameters.keys():
            msg = f"metric '{name}' needs dense X: it has no form for sparse rows."
            raise InputError(msg)
    if name == "haversine" and n_columns != 2:
        msg = f"metric 'haversine' compares latitude and longitude, in radians, and X has {n_columns} columns."
        raise InputError(msg)
    for key, value in arguments.items():
        shape = (n_columns,) * np.ndim(value)
        if np.shape(value) != shape:
            msg = f"metric '{name}' has '{key}' of shape {np.shape(value)}, and X of {n_columns} columns needs {shape}."
            raise InputError(msg)


@lru_cache(maxsize=16)
def pair_lengths(metric: Metric, n_columns: int, *, is_sparse: bool) -> Callable[..., None]:
    """Compile a loop that computes the distances of pairs of rows by pynndescent's function.

    It is called with both sets of rows and of row numbers, and an array that it fills. Sparse rows are tuples of
    indptr, indices and data. Compilation takes one to three seconds.
    """
    from numba import njit
    from pynndescent import distances, sparse

    name, arguments = split_metric(metric)
    values = tuple(arguments.values())
    if is_sparse:
        function = sparse.sparse_named_distances[name]
        values += (n_columns,) if name in sparse.sparse_need_n_features else ()

        @njit(nogil=True)
        def between(a: Any, i: int, b: Any, j: int) -> float:
            tail, head = slice(a[0][i], a[0][i + 1]), slice(b[0][j], b[0][j + 1])
            return function(a[1][tail], a[2][tail], b[1][head], b[2][head], *values)
    else:
        function = distances.named_distances[name]

        @njit(nogil=True)
        def between(a: Any, i: int, b: Any, j: int) -> float:
            return function(a[i], b[j], *values)

    @njit(nogil=True)
    def measure(a: Any, a_index: np.ndarray, b: Any, b_index: np.ndarray, lengths: np.ndarray) -> None:
        for pair in range(a_index.size):
            lengths[pair] = between(a, a_index[pair], b, b_index[pair])

    return measure
