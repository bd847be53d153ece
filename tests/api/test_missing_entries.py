"""What is missing or masked, in whatever way and container, is missing; what lies below a mask is never read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any, Literal

import dask.array as da
import numpy as np
import pyarrow as pa
import pytest
from dask.delayed import delayed

import daskfs
from daskfs import FisherScore, LaplacianScore, PearsonScore, evaluate_selectors, knn_graph
from daskfs.errors import InputError
from tests.cases import case
from tests.optional import anndata
from tests.optional import pandas as pd
from tests.optional import polars as pl

N = 40
X = np.random.default_rng(0).normal(size=(N, 3))
CODES = np.arange(N) % 2
GONE = np.arange(N) % 5 == 1
ONCE: dict[str, Any] = {"evaluate": None}

TYPES: dict[str, list[Any]] = {
    "int": CODES.tolist(),
    "bool": (CODES == 1).tolist(),
    "float": CODES.astype(float).tolist(),
    "text": np.where(CODES, "b", "a").tolist(),
    "digits": CODES.astype(str).tolist(),
}


def without(values: list[Any], *marks: Any) -> list[Any]:
    """Return values, of which those of some rows are missing as marks say, one after the other."""
    mark = cycle(marks)
    return [next(mark) if gone else value for value, gone in zip(values, GONE, strict=True)]


def objects(values: list[Any], *marks: Any) -> np.ndarray:
    found = np.empty(N, dtype=object)
    found[:] = without(values, *marks)
    return found


def masked(values: list[Any]) -> Any:
    return np.ma.array(values, mask=GONE)


CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "None in a list": lambda v: without(v, None),
    "NaN in a list": lambda v: without(v, np.nan),
    "masked in a list": lambda v: without(v, np.ma.masked),
    "None among objects": lambda v: objects(v, None),
    "NaN among objects": lambda v: objects(v, np.nan),
    "all marks among objects": lambda v: objects(v, None, np.nan, pd.NA, pd.NaT, np.ma.masked),
    "masked array": masked,
    "masked objects": lambda v: np.ma.array(np.array(v, dtype=object), mask=GONE),
    "dask of masked blocks": lambda v: da.from_array(masked(v), chunks=7),
    "dask of masked blocks that nobody declared": lambda v: da.from_delayed(
        delayed(masked)(v), (N,), np.array(v).dtype
    ),
    "series of objects": lambda v: pd.Series(objects(v, None, pd.NA)),
    "nullable": lambda v: pd.Series(objects(v, None)).convert_dtypes(),
    "nullable array": lambda v: pd.Series(objects(v, None)).convert_dtypes().array,
    "nullable index": lambda v: pd.Index(pd.Series(objects(v, None)).convert_dtypes()),
    "of Arrow in pandas": lambda v: pd.Series(objects(v, None)).convert_dtypes(dtype_backend="pyarrow"),
    "categories": lambda v: pd.Series(objects(v, None)).astype("category"),
    "categorical": lambda v: pd.Categorical(objects(v, None)),
    "polars": lambda v: pl.Series(without(v, None)),
    "polars frame": lambda v: pl.DataFrame({"y": without(v, None)}),
    "arrow": lambda v: pa.chunked_array([pa.array(without(v, None))]),
}
LABELED = FisherScore().fit(X[~GONE], CODES[~GONE]).scores_
BY_LABELS: dict[str, Callable[[Any], Any]] = {
    "fit": lambda y: FisherScore().fit(X, y).scores_,
    "function": lambda y: daskfs.score_functions.fisher_score(X, y),
    "rank": lambda y: (
        daskfs.rank(X, y, methods="FisherScore", task="classification", settings=ONCE)
        .ranking.sort_values("feature")["score"]
        .to_numpy()
    ),
}


@pytest.mark.filterwarnings("ignore:A column-vector y")
@pytest.mark.parametrize("container", CONTAINERS)
def test_a_missing_label_is_an_unlabeled_row(container: str) -> None:
    for kind, values in TYPES.items():
        for call in ("fit", "function"):
            with case(kind, call):
                found = BY_LABELS[call](CONTAINERS[container](values))
                np.testing.assert_allclose(found, LABELED, rtol=1e-12)


@pytest.mark.cluster
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    "container",
    [
        "all marks among objects",
        "masked array",
        "polars",
        *(pytest.param(name, marks=pytest.mark.long) for name in CONTAINERS),
    ],
)
def test_ranks_and_evaluations_take_the_same_labels(container: str, kind: str) -> None:
    given = CONTAINERS[container](TYPES[kind])
    np.testing.assert_allclose(BY_LABELS["rank"](given), LABELED, rtol=1e-12)
    found, expected = (
        evaluate_selectors(FisherScore(), X, y, task="classification", n_selected=1, n_splits=2, baselines=False).values
        for y in (given, np.where(GONE, -1, CODES))
    )
    assert found.equals(expected)


def test_floats_are_a_target_in_every_container() -> None:
    target = (X @ [1.0, 2.0, 3.0]).tolist()
    expected = PearsonScore().fit(X[~GONE], np.array(target)[~GONE]).scores_
    for name, container in CONTAINERS.items():
        if name not in ("categories", "categorical", "polars frame"):
            with case(name):
                np.testing.assert_allclose(PearsonScore().fit(X, container(target)).scores_, expected, rtol=1e-12)


UNFIT: dict[str, Any] = {
    "complex": CODES * 1j,
    "dates": pd.date_range("2020-01-01", periods=N),
    "dates with an offset": pd.date_range("2020-01-01", periods=N, tz="UTC"),
    "durations": pd.Series(pd.to_timedelta(CODES, unit="s")),
    "periods": pd.period_range("2020-01-01", periods=N),
    "pairs": [(1, 2)] * N,
    "lists of several lengths": [[1], [1, 2]] * (N // 2),
    "dictionaries": [{1: 2}] * N,
    "records": np.ma.zeros(N, dtype=[("a", int)]),
    "one masked value": np.ma.masked,
    "a word": "label",
    "nothing": np.ma.masked_all(N),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_what_is_no_label_is_refused(kind: str) -> None:
    calls: dict[str, Callable[[Any], Any]] = {
        "target": lambda y: PearsonScore(task="regression").fit(X, y),
        "evaluate": lambda y: evaluate_selectors(FisherScore(), X, y),
        **BY_LABELS,
    }
    for call, function in calls.items():
        told = "labels|y has shape|X has no column" if kind not in ("complex", "dates", "durations") else "convert"
        with case(call), pytest.raises(InputError, match=told) as refused:
            function(UNFIT[kind])
        assert "/" not in str(refused.value).replace("sources/", "")


# ------------------------------------------------------------------------------------------------- X
HIDDEN = np.zeros(X.shape, dtype=bool)
HIDDEN[[3, 9], 1] = True
BELOW = np.ma.array(np.where(HIDDEN, 1e20, X), mask=HIDDEN)
WHOLE = np.ma.array(np.where(HIDDEN, 99, np.round(9 * X)).astype(np.int64), mask=HIDDEN)
MATRICES: dict[str, Callable[[Any], Any]] = {
    "array": lambda M: M,
    "float32": lambda M: M.astype(np.float32),
    "list of rows": list,
    "objects": lambda M: np.array([[v if not m else np.ma.masked for v, m in zip(*row, strict=True)] for row in
                                   zip(M.data, M.mask, strict=True)], dtype=object),
    "dask": lambda M: da.from_array(M, chunks=(13, 2), asarray=False),
    "AnnData": lambda M: anndata.AnnData(M.astype(np.float64)),
}  # fmt: skip
BY_VALUES: dict[str, Callable[[Any], Any]] = {
    "fit": lambda M: FisherScore().fit(M, CODES),
    "fit without labels": lambda M: LaplacianScore().fit(M),
    "function": lambda M: daskfs.score_functions.variance_score(M),
    "knn_graph": knn_graph,
    "correlations": daskfs.distance_correlation_matrix,
    "evaluate": lambda M: evaluate_selectors(FisherScore(), M, CODES),
    "rank": lambda M: daskfs.rank(M, CODES, methods="FisherScore", settings=ONCE),
    "use_rep": lambda M: LaplacianScore().fit(X, use_rep=M),
}


@pytest.mark.parametrize("form", MATRICES)
def test_a_masked_value_is_refused_as_missing(form: str) -> None:
    for values in (BELOW, WHOLE):
        for call, function in BY_VALUES.items():
            if (form, call) != ("AnnData", "use_rep"):
                with case(values.dtype, call), pytest.raises(ValueError, match=r"column 1 .*NaN in row 3"):
                    function(MATRICES[form](values))


@pytest.mark.parametrize("form", ["array", "list of rows", "dask"])
def test_a_masked_value_is_filled_as_missing(form: str) -> None:
    for values in (BELOW, WHOLE):
        expected = np.where(HIDDEN, np.nan, values.data)
        ways: tuple[Literal["mean", "pairwise"], ...] = ("mean", "pairwise")
        for missing in ways:
            found = knn_graph(MATRICES[form](values), 3, missing=missing)
            np.testing.assert_array_equal(found.indices, knn_graph(expected, 3, missing=missing).indices)
        if form == "dask":
            fitted = FisherScore(3).fit(X, CODES)
            np.testing.assert_array_equal(fitted.transform(MATRICES[form](values)).compute(), expected)
    with pytest.raises(ValueError, match="NaN"):
        FisherScore().fit(X, CODES).transform(BELOW)


@pytest.mark.parametrize(("dtype", "words"), [(np.int64, "column 1 .*NaN in row 3"), (np.int8, r"pass X\.astype")])
def test_blocks_of_whole_numbers_that_are_masked_unannounced(dtype: Any, words: str) -> None:
    blocks = da.from_delayed(delayed(lambda: WHOLE.astype(dtype))(), X.shape, dtype)
    for call in ("fit", "rank", "knn_graph"):
        with case(call), pytest.raises(InputError, match=words):
            BY_VALUES[call](blocks)


def test_arrays_without_a_masked_entry_are_as_they_were() -> None:
    for mask in (np.ma.nomask, np.zeros(X.shape, dtype=bool)):
        whole = np.ma.array(np.round(9 * X).astype(np.int64), mask=mask)
        fitted = FisherScore(2).fit(whole, np.ma.array(CODES))
        np.testing.assert_array_equal(fitted.scores_, FisherScore().fit(whole.data, CODES).scores_)
        assert fitted.transform(whole).dtype == np.int64


# ------------------------------------------------------------------------------------------------- values of rows
ROWS: dict[str, Any] = {
    "weights": np.ones(N),
    "groups": np.arange(N) % 4,
    "batch": (np.arange(N) // 2) % 2,
    "times": np.arange(N),
}
BY_ROWS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "fit": (lambda w: FisherScore().fit(X, CODES, sample_weight=w), "weights"),
    "correlations": (lambda w: daskfs.distance_correlation_matrix(X, sample_weight=w), "weights"),
    "evaluate weights": (lambda w: evaluate_selectors(FisherScore(), X, CODES, sample_weight=w), "weights"),
    "evaluate groups": (lambda v: evaluate_selectors(FisherScore(), X, CODES, groups=v), "groups"),
    "evaluate times": (lambda v: evaluate_selectors(FisherScore(), X, CODES, times=v), "times"),
    "rank weights": (lambda v: daskfs.rank(X, CODES, weights=v), "weights"),
    "rank groups": (lambda v: daskfs.rank(X, CODES, groups=v), "groups"),
    "rank batch": (lambda v: daskfs.rank(X, CODES, batch=v), "batch"),
    "rank times": (lambda v: daskfs.rank(X, CODES, times=v), "times"),
}


@pytest.mark.parametrize("call", BY_ROWS)
def test_a_missing_value_of_a_row_is_refused_by_name_and_row(call: str) -> None:
    function, key = BY_ROWS[call]
    argument = "sample_weight" if key == "weights" and "rank" not in call else key
    for name, container in CONTAINERS.items():
        with case(name), pytest.raises(InputError, match=rf"^{argument} has no {key.rstrip('s')}\w* in row 1\b"):
            function(container(ROWS[key].tolist()))
