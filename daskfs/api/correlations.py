"""Distance correlations of all pairs of features, from Python."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from daskfs.errors import InputError, MemoryPlanError
from daskfs.kernels.distance_correlation.spec import CORRELATIONS, MATRIX_FREE_FEATURES, CorrelationSpec
from daskfs.kernels.scaling import Scaling, checked_scaling

if TYPE_CHECKING:
    from distributed import Client

Way = Literal["auto", "exact", "feature_map"]


@overload
def distance_correlation_matrix(
    X: Any,
    *,
    correlation: Way = ...,
    n_components: int = ...,
    n_rows: int | None = ...,
    bias_corrected: bool = ...,
    squared: bool = ...,
    score_scaling: Scaling | None = ...,
    sample_weight: Any = ...,
    return_facts: Literal[False] = ...,
    client: Client | None = ...,
) -> np.ndarray: ...
@overload
def distance_correlation_matrix(
    X: Any,
    *,
    correlation: Way = ...,
    n_components: int = ...,
    n_rows: int | None = ...,
    bias_corrected: bool = ...,
    squared: bool = ...,
    score_scaling: Scaling | None = ...,
    sample_weight: Any = ...,
    return_facts: Literal[True],
    client: Client | None = ...,
) -> tuple[np.ndarray, dict[str, Any]]: ...
def distance_correlation_matrix(
    X: Any,
    *,
    correlation: Way = "auto",
    n_components: int = 8,
    n_rows: int | None = 100_000,
    bias_corrected: bool = False,
    squared: bool = True,
    score_scaling: Scaling | None = None,
    sample_weight: Any = None,
    return_facts: bool = False,
    client: Client | None = None,
) -> np.ndarray | tuple[np.ndarray, dict[str, Any]]:
    """Return the distance correlations of all pairs of features.

    Unlike Pearson correlation, distance correlation is 0 only for independent features; nonlinear dependence counts.

    Parameters
    ----------
    X
        Array, CSR matrix, DataFrame, dask array, Zarr array, AnnData or path, shape (n_samples, n_features), finite;
        at least 2 rows, at most 20,000 features.
    correlation
        "exact" uses the distances of all pairs of rows, n_samples² n_features² / 2 multiplications. "feature_map" uses
        the leading components of each feature's distance kernel, after binning to 128 bins. On 2,000 rows its error was
        at most 0.002 for uniform to lognormal columns and 0.01 for Cauchy columns; mean errors were 0.0001 and 0.0004.
        "auto" is "exact" up to 256 rows or 2e10 multiplications (200 features of 1,000 rows), else "feature_map".
    n_components
        Components of a feature under "feature_map", from 1 to 64; up to twice as many for heavy tails. 4 components
        take a half to a third of the time of 8, with errors of at most 0.005 (Cauchy columns: 0.02). A feature with at
        most ``2 * n_components + 1`` distinct values keeps all components: between such features the result is exact.
    n_rows
        Number of rows used, drawn evenly over all rows; None for all. With 100,000 rows, correlations are within about
        0.005 of those of all rows.
    bias_corrected
        Whether to use ratios of U-statistics, negative ones set to 0, instead of V-statistics. V-statistics of few rows
        are large even for independent features: 0.15 on average for 20 rows, 0.02 for 200.
    squared
        Whether to return squared distance correlations, as SSUFS uses them; else their square roots.
    score_scaling
        Scaling of X on the fly: None, "zscore" (which changes nothing), "unit" (rows), "log1p", "total", or a chain
        such as "total+log1p".
    sample_weight
        Row weights, shape (n_samples,), finite and not negative; a row of weight 2 counts as two rows. None for 1.
    return_facts
        Whether to return, in addition to the matrix, a dictionary of the method used and its error bounds.
    client
        Client whose workers run the units if X is not in memory, as of a dask collection; by
        default the current one. Without any, and for X in memory, this process does.

    Returns
    -------
    matrix
        Shape (n_features, n_features), float64, symmetric, in [0, 1]; 1 on the diagonal. The row and the column of a
        constant feature are 0, including the diagonal.
    facts
        With `return_facts`: `correlation`, the method used; `n_rows`, the number of rows used; `n_components`, the
        largest number of components of a feature, None for "exact"; `bias_corrected`; `error_bound`, the largest
        possible error of a squared entry (of V-statistics) on the rows used, which most entries stay far below; and
        `sampling_error`, the approximate largest difference from the result on all rows, 0 if all are used.

    Raises
    ------
    ValueError
        For NaN or infinite values (naming column and row), an unknown option, fewer than 2 rows (4 with
        `bias_corrected`), invalid weights, or "matrix_free", which never forms the matrix (SSUFS uses it above 20,000
        features).
    MemoryPlanError
        For more than 20,000 features.

    References
    ----------
    Székely, Rizzo and Bakirov (2007), "Measuring and testing dependence by correlation of distances", Annals of
    Statistics 35(6), 2769-2794, Definition 4. Székely and Rizzo (2014), "Partial distance correlation with methods for
    dissimilarities", Annals of Statistics 42(6), 2382-2412, for the U-statistic.

    Examples
    --------
    >>> import numpy as np
    >>> from daskfs import distance_correlation_matrix
    >>> x = np.linspace(-1, 1, 101)
    >>> distance_correlation_matrix(np.column_stack([x, x**2, -3 * x])).round(2).tolist()
    [[1.0, 0.24, 1.0], [0.24, 1.0, 0.24], [1.0, 0.24, 1.0]]
    """
    from sklearn.utils import check_array

    from daskfs.estimators.opening import is_stored, matrix_at_hand, open_input
    from daskfs.plan.inline import find_correlations

    count, rows = _whole("n_components", n_components), None if n_rows is None else _whole("n_rows", n_rows)
    scaling = checked_scaling(score_scaling, "score_scaling")
    spec = CorrelationSpec(correlation, count, rows, bool(bias_corrected), scaling)
    _check_options(spec)
    X = matrix_at_hand(X)
    if not is_stored(X):
        X = check_array(X, accept_sparse="csr", dtype="numeric", order="C", ensure_all_finite=False)
    with open_input(X, None, sample_weight, client=client) as (context, _, pool):
        weights = None if sample_weight is None else context.weights()
        _check_size(spec, context.tiles.shape.n_samples, context.tiles.shape.n_features, weights)
        correlations = find_correlations(context, spec, pool)
        matrix, facts = correlations.matrix(), dict(correlations.facts)
    if not squared:
        np.sqrt(matrix, out=matrix)
    return (matrix, facts) if return_facts else matrix


def _check_options(spec: CorrelationSpec) -> None:
    if spec.correlation == "matrix_free":
        msg = (
            "correlation 'matrix_free' never forms the matrix that distance_correlation_matrix returns: it is for "
            "SSUFS with many features."
        )
        raise InputError(msg)
    ways = [way for way in CORRELATIONS if way != "matrix_free"]
    if spec.correlation not in ways:
        msg = f"correlation must be one of {', '.join(map(repr, ways))}; got {spec.correlation!r}."
        raise InputError(msg)
    if not 1 <= spec.n_components <= 64:
        msg = f"n_components must be from 1 to 64; got {spec.n_components}."
        raise InputError(msg)
    if spec.n_rows is not None and spec.n_rows < 2:
        msg = f"n_rows must be None or at least 2; got {spec.n_rows}."
        raise InputError(msg)


def _whole(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        msg = f"{key} must be a whole number; got {value!r}."
        raise InputError(msg)
    return int(value)


def _check_size(spec: CorrelationSpec, n_samples: int, n_features: int, weights: np.ndarray | None) -> None:
    if n_features > MATRIX_FREE_FEATURES:
        msg = (
            f"the distance correlations of {n_features} features take {8 * n_features**2 / 2**30:.1f} GiB: give at "
            f"most {MATRIX_FREE_FEATURES} features."
        )
        raise MemoryPlanError(msg)
    least = 4 if spec.bias_corrected else 2
    n_rows = n_samples if weights is None else int(np.count_nonzero(weights))
    if n_rows < (least if weights is None else 2):
        what = "bias_corrected distance correlations need" if spec.bias_corrected else "distance correlations need"
        msg = f"{what} at least {least} rows that count, and X has n_samples={n_samples}, {n_rows} of weight above 0."
        raise InputError(msg)
