"""DataFrames of pandas, Polars and dask, and dask arrays: names in and out, and what stays lazy."""

from __future__ import annotations

import re
import tracemalloc
import warnings
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import dask
import dask.array as da
import numpy as np
import pytest

import daskfs.estimators.opening
from daskfs import (
    FisherScore,
    LaplacianScore,
    RedundancyFilter,
    VarianceScore,
    distance_correlation_matrix,
    evaluate_selectors,
    knn_graph,
)
from daskfs.errors import DaskfsWarning, InputError
from tests.optional import dask_dataframe as dd
from tests.optional import pandas as pd
from tests.optional import polars as pl

N, D = 90, 6
NAMES = [f"gene {number}" for number in range(D)]
X = np.round(8 * np.random.default_rng(0).normal(size=(N, D)) * np.arange(1, D + 1)) / 8
Y = np.arange(N) % 3
PANDAS = pd.DataFrame(X, columns=NAMES)


def in_parts(frame: pd.DataFrame) -> Any:
    """Return a dask DataFrame whose partitions have lengths that nobody knows, one of them 0."""
    parts = dd.from_pandas(frame, npartitions=4)
    return dd.concat([parts[parts[frame.columns[0]] > 1e9], parts[parts[frame.columns[0]] > -1e9]])


def refused(*_: Any, **__: Any) -> None:
    msg = "computed"
    raise AssertionError(msg)


CALLS: dict[str, Any] = {
    "fit": lambda X: FisherScore().fit(X, Y),
    "filter": lambda X: RedundancyFilter(VarianceScore()).fit(X),
    "evaluate": lambda X: evaluate_selectors([FisherScore()], X, Y),
    "knn_graph": knn_graph,
    "correlations": distance_correlation_matrix,
}

FRAMES = {
    "pandas": lambda: PANDAS,
    "pandas nullable": lambda: PANDAS.convert_dtypes(),
    "pandas of Arrow": lambda: PANDAS.convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda: pl.DataFrame(X, schema=NAMES),
    "polars query": lambda: pl.DataFrame(X, schema=NAMES).lazy().filter(pl.col(NAMES[0]) > -1e9),
    "dask": lambda: dd.from_pandas(PANDAS, npartitions=3),
    "dask nullable": lambda: dd.from_pandas(PANDAS.convert_dtypes(), npartitions=3),
    "dask of unknown lengths": lambda: in_parts(PANDAS),
}


class TestNames:
    @pytest.mark.parametrize("name", FRAMES)
    def test_in(self, name: str) -> None:
        fitted = FisherScore(2).fit(FRAMES[name](), Y)
        np.testing.assert_array_equal(fitted.scores_, FisherScore(2).fit(X, Y).scores_)
        assert fitted.feature_names_in_.tolist() == NAMES
        assert fitted.get_feature_names_out().tolist() == [NAMES[i] for i in fitted.get_support(indices=True)]

    @pytest.mark.parametrize("given", ["pandas", "polars"])
    @pytest.mark.parametrize("wanted", ["pandas", "polars"])
    def test_out(self, given: str, wanted: str) -> None:
        frame = FRAMES[given]()
        fitted = FisherScore(2).set_output(transform=wanted).fit(frame, Y)
        out = fitted.transform(frame)
        assert isinstance(out, pl.DataFrame if wanted == "polars" else pd.DataFrame)
        assert list(out.columns) == fitted.get_feature_names_out().tolist()
        np.testing.assert_array_equal(out.to_numpy(), X[:, fitted.get_support()])

    @pytest.mark.parametrize("columns", [range(D), ["a", "a", "b", "c", "d", "e"]])
    def test_that_are_no_text_or_equal(self, columns: Any) -> None:
        frame = pd.DataFrame(X, columns=list(columns))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "several features are named 'a'")
            fitted = VarianceScore(2).fit(dd.from_pandas(frame, npartitions=2))
        np.testing.assert_array_equal(fitted.scores_, VarianceScore(2).fit(X).scores_)
        assert hasattr(fitted, "feature_names_in_") == isinstance(columns, list)

    @pytest.mark.cluster
    def test_of_a_query_in_an_evaluation(self) -> None:
        found = evaluate_selectors([FisherScore()], FRAMES["polars query"](), Y, n_selected=[1])
        assert set(found.selection_frequency.column("name").to_pylist()) <= set(NAMES)


class TestLazy:
    def test_array(self) -> None:
        fitted = FisherScore(2).fit(PANDAS.to_numpy(), Y)
        blocks = da.from_array(X, chunks=(20, 4)).map_blocks(lambda block: block)
        with dask.config.set(scheduler=refused):
            out = fitted.transform(blocks)
        assert isinstance(out, da.Array)
        np.testing.assert_array_equal(out.compute(), X[:, fitted.get_support()])

    def test_frame(self) -> None:
        fitted = FisherScore(2).fit(PANDAS, Y)
        frame = in_parts(PANDAS)
        with dask.config.set(scheduler=refused):
            out = fitted.transform(frame)
        assert isinstance(out, dd.DataFrame)
        assert list(out.columns) == fitted.get_feature_names_out().tolist()
        np.testing.assert_array_equal(out.compute().to_numpy(), X[:, fitted.get_support()])

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: da.from_array(X[:, :4]), "X has 4 features, but VarianceScore is expecting 6 features"),
            (lambda: dd.from_pandas(PANDAS[NAMES[1:]], npartitions=2), "X has 5 features"),
            (lambda: dd.from_pandas(PANDAS[NAMES[::-1]], npartitions=2), "'gene 5' is not 'gene 0'"),
        ],
    )
    def test_other_columns_are_refused_before(self, make: Any, message: str) -> None:
        fitted = VarianceScore(2).fit(PANDAS)
        with dask.config.set(scheduler=refused), pytest.raises(ValueError, match=message):
            fitted.transform(make())


class TestLarge:
    def test_text_names_the_column(self) -> None:
        frame = dd.from_pandas(PANDAS.assign(city="Ulm"), npartitions=2)
        with pytest.raises(ValueError, match="hold no numbers: 'city' "):
            VarianceScore().fit(frame)

    def test_a_missing_value_names_the_column(self) -> None:
        frame = PANDAS.convert_dtypes()
        frame.iloc[70, 4] = pd.NA
        with pytest.raises(ValueError, match=r"\('gene 4'\).* NaN in row 70"):
            VarianceScore().fit(dd.from_pandas(frame, npartitions=2))

    @pytest.mark.long
    def test_more_than_fits(self, tmp_path: Path) -> None:
        """Partitions of 2 MB, of which nobody knows the lengths and 32 MB are all, are never there at once."""
        scale = np.arange(1, 129)

        def part(number: int) -> pd.DataFrame:
            return pd.DataFrame(np.sin(np.arange(2000 + number))[:, None] * scale).add_prefix("x")

        frame = dd.from_map(part, range(16))
        with dask.config.set({"scheduler": "synchronous", "temporary-directory": str(tmp_path)}):
            tracemalloc.start()
            try:
                fitted = VarianceScore(3).fit(frame)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
        assert fitted.ranking_.tolist() == list(range(128, 0, -1))
        assert peak < 20 * 2**20


class TestColumnsOfOneName:
    """They are told apart by position, with a warning, as those of a CSV file are."""

    NAMES = ("a", "b", "a", "a", "c", "b")
    FORMS: ClassVar = {
        "pandas": lambda frame, _: frame,
        "nullable": lambda frame, _: frame.convert_dtypes(),
        "dask": lambda frame, _: dd.from_pandas(frame, npartitions=3),
        "csv": lambda frame, folder: frame.to_csv(folder / "t.csv", index=False) or folder / "t.csv",
    }

    @pytest.mark.parametrize("form", FORMS)
    def test_fit_and_transform(self, form: str, tmp_path: Path) -> None:
        given = self.FORMS[form](pd.DataFrame(X, columns=self.NAMES), tmp_path)
        with pytest.warns(DaskfsWarning, match="several features are named 'a', 'b': tables tell them apart by number"):
            fitted = FisherScore(3).fit(given, Y)
        np.testing.assert_array_equal(fitted.scores_, FisherScore(3).fit(X, Y).scores_)
        assert fitted.get_feature_names_out().tolist() == [self.NAMES[i] for i in fitted.get_support(indices=True)]
        if form != "csv":
            np.testing.assert_array_equal(np.asarray(fitted.transform(given)), X[:, fitted.get_support()])
            with pytest.raises(InputError, match="'b' is not 'a'"):
                fitted.transform(pd.DataFrame(X, columns=[*self.NAMES[1:], "a"]))

    @pytest.mark.cluster
    @pytest.mark.parametrize("form", FORMS)
    def test_other_calls(self, form: str, tmp_path: Path) -> None:
        frame = pd.DataFrame(X, columns=self.NAMES)
        given = self.FORMS[form](frame.assign(kind=Y), tmp_path)
        result = daskfs.rank(given, "kind", methods="FisherScore", settings={"evaluate": None})
        assert result.ranking.sort_values("feature")["name"].tolist() == [*self.NAMES]
        scores = result.ranking.sort_values("feature")["score"]
        np.testing.assert_allclose(scores, FisherScore().fit(X, Y).scores_)
        assert any("several features are named" in str(one) for one in result.warnings)
        given = self.FORMS[form](frame, tmp_path)
        found = evaluate_selectors(FisherScore(), given, Y, n_selected=1)
        assert any("several features are named" in str(one) for one in found.warnings)
        np.testing.assert_array_equal(knn_graph(given, 3).indices, knn_graph(X, 3).indices)
        np.testing.assert_allclose(distance_correlation_matrix(given), distance_correlation_matrix(X))


def test_graph_criteria_take_frames() -> None:
    expected = LaplacianScore(n_neighbors=5).fit(X).scores_
    for name in ("polars", "dask of unknown lengths"):
        np.testing.assert_array_equal(LaplacianScore(n_neighbors=5).fit(FRAMES[name]()).scores_, expected)


# ------------------------------------------------------------------------------------------------- no numbers
BAD: dict[str, Any] = {
    "city": np.array(["Rome", "Oslo", "Bonn"])[Y],
    "kind": pd.Categorical(np.array(["u", "v", "w"])[Y]),
    "day": pd.date_range("2020-01-01", periods=N),
    "lag": pd.to_timedelta(np.arange(N), unit="s"),
    "any": np.array(["a", 1, 2.5] * (N // 3), dtype=object),
    "week": pd.period_range("2020-01-01", periods=N),
}
GOOD: dict[str, Any] = {
    "flag": Y == 1,
    "code": pd.Categorical(Y),
    "mixed": np.array([1.5, 2, True] * (N // 3), dtype=object),
    "nullable": pd.array(Y, dtype="Int64"),
    "arrow": pd.array(Y == 1, dtype="bool[pyarrow]"),
}


class TestColumnsThatHoldNoNumbers:
    @pytest.mark.parametrize("name", BAD)
    @pytest.mark.parametrize("call", CALLS)
    def test_are_named(self, call: str, name: str) -> None:
        frame = PANDAS.assign(**{name: BAD[name]})
        told = re.escape(f"columns of X hold no numbers: '{name}' ({frame.dtypes[name]}). Drop them, or encode")
        with pytest.raises(InputError, match=told):
            CALLS[call](frame)

    @pytest.mark.parametrize("make", [pl.DataFrame, pl.LazyFrame, partial(dd.from_pandas, npartitions=2)])
    def test_of_polars_and_dask(self, make: Any) -> None:
        columns = {"a": X[:, 0], **{name: np.asarray(BAD[name]) for name in ("city", "day", "lag")}}
        frame = make(pd.DataFrame(columns) if isinstance(make, partial) else columns)
        with pytest.raises(InputError, match=r"columns of X hold no numbers: 'city' .*, 'day' .*, 'lag' .*\. Drop"):
            VarianceScore().fit(frame)

    def test_no_more_than_a_handful(self) -> None:
        frame = pd.DataFrame({number: BAD["city"] for number in range(9)}).assign(a=X[:, 0])
        with pytest.raises(InputError, match=r"numbers: 0 \(.*, 4 \([a-z]+\) and 4 more\. Drop"):
            VarianceScore().fit(frame)

    @pytest.mark.parametrize("name", GOOD)
    def test_numbers_of_other_types_serve(self, name: str) -> None:
        fitted = VarianceScore().fit(PANDAS.assign(**{name: GOOD[name]}))
        np.testing.assert_allclose(fitted.scores_[-1], np.var(np.asarray(GOOD[name], dtype=float)))
