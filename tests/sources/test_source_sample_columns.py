"""Groups and times of rows: from columns, members and files, and what is refused, by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskfs.errors import InputError
from daskfs.sources import SourceSpec, open_source
from daskfs.sources.sample_columns import SAMPLE_COLUMN_KINDS, whole

NAN = np.nan


class TestGroups:
    @pytest.mark.parametrize(
        ("raw", "expected"),
        [
            (np.array([7, -1, 7, 3]), [2, 0, 2, 1]),
            (np.array([0.5, 0.25, 0.5]), [1, 0, 1]),
            (np.array([True, False]), [1, 0]),
            (np.array([[2], [1]], dtype=np.uint8), [1, 0]),
            (np.array([" b", "a", "b "]), [1, 0, 1]),
            (np.array([b"b", b"a"]), [1, 0]),
            (np.array(["10", 9, "9"], dtype=object), [0, 1, 1]),
            (np.array(["2024-03-02", "2024-03-01"], dtype="M8[D]"), [1, 0]),
            (["x"], [0]),
        ],
        ids=["numbers", "floats", "booleans", "column", "text", "bytes", "objects", "dates", "one"],
    )
    def test_numbered_in_the_order_of_their_values(self, raw: Any, expected: list[int]) -> None:
        groups = whole(SAMPLE_COLUMN_KINDS["groups"], raw, len(expected), "g", "groups")
        assert groups.dtype == np.int64
        np.testing.assert_array_equal(groups, expected)

    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            (np.array([1.0, NAN, NAN]), "^g has no group in row 1, and 1 more rows have none: give every row one"),
            (np.array(["a", "b", " "]), "^g has no group in row 2: "),
            (np.array(["a", None, NAN], dtype=object), "^g has no group in row 1, and 1 more"),
            (np.array(["2024-03-01", "NaT", "2024-03-01"], dtype="M8[D]"), "^g has no group in row 1: "),
            (np.ones(2), r"^groups have 2 values, X has 3 rows \(groups from g\)"),
            (np.ones((3, 2)), r"^g has shape \(3, 2\); groups need one value for each row"),
            (np.ones(3, dtype=complex), "^g has dtype complex128; groups must be numbers, text or dates"),
        ],
    )
    def test_refused(self, raw: np.ndarray, message: str) -> None:
        with pytest.raises(InputError, match=message):
            whole(SAMPLE_COLUMN_KINDS["groups"], raw, 3, "g", "groups")

    def test_what_a_summary_says(self) -> None:
        assert described("groups", np.array([0, 1, 1, 2, 1])) == {"n_groups": 3, "smallest": 1, "largest": 3}


def stored(name: str, *parts: Any) -> np.ndarray:
    return np.concatenate(list(SAMPLE_COLUMN_KINDS[name](lambda: iter(parts), name).stored()))


COLUMN_VALUES = {
    "weights": st.sampled_from([0.0, 1.0, 2.5, -1.0, NAN]),
    "groups": st.sampled_from([3, 1, 10, 2]) | st.sampled_from(["b", " a", "a", "10", ""]),
    "times": st.sampled_from([0.5, -1.0, 3.0, np.inf, NAN]) | st.sampled_from(["2024-01-01", "2023-01-01T12", "2"]),
    "batch": st.sampled_from([3.0, 1.0, 0.5, NAN]) | st.sampled_from(["b", " a", "10", "2"]),
}


@given(
    st.sampled_from(list(COLUMN_VALUES)).flatmap(
        lambda name: st.tuples(st.just(name), st.lists(COLUMN_VALUES[name], min_size=1, max_size=30))
    ),
    st.lists(st.integers(0, 30), max_size=3).map(sorted),
)
def test_a_column_in_parts_is_stored_as_all_of_it(column: tuple[str, list[Any]], cuts: list[int]) -> None:
    """With the same summary, or refused for the same reason, except that one of two reasons may come first."""
    name, values = column
    raw = np.array(values, dtype=object) if len({type(value) for value in values}) > 1 else np.array(values)

    def found(*parts: np.ndarray) -> Any:
        try:
            return stored(name, *parts).tobytes(), described(name, *parts)
        except InputError as error:
            return str(error)

    assert found(*(part for part in np.split(raw, cuts) if part.size)) == found(raw)


def described(name: str, *parts: Any) -> dict[str, Any]:
    column = SAMPLE_COLUMN_KINDS[name](lambda: iter(parts), name)
    assert len(list(column.stored())) == len(parts)
    return column.described()


class TestTimes:
    @pytest.mark.parametrize(
        ("raw", "expected"),
        [
            (np.array([3, -1]), [3, -1]),
            (np.array([0.5, 0.25], dtype=np.float32), [0.5, 0.25]),
            (np.array(["1e3", " 2 "]), [1000, 2]),
            (np.array([b"1", 2.5], dtype=object), [1, 2.5]),
            (np.array(["1970-01-02", "1969-12-31"], dtype="M8[D]"), [86400, -86400]),
            (np.array([1_500_000_000], dtype="M8[ns]"), [1.5]),
            (np.array(["1970-01-02", " 1970-01-01T00:00:01.5 "]), [86400, 1.5]),
            (np.array(["1970-01-01 01:00"]), [3600]),
            (np.array(["1970-01-01T01:00Z", "1970-01-01T01:00+01:00"]), [3600, 0]),
        ],
    )
    def test_numbers_and_seconds(self, raw: np.ndarray, expected: list[float]) -> None:
        times = stored("times", raw)
        assert times.dtype == np.float64
        np.testing.assert_array_equal(times, expected)

    def test_microseconds_of_this_century_stay_apart(self) -> None:
        raw = np.datetime64("2099-12-31T23:59:59.000000", "us") + np.arange(1000)
        assert (np.diff(stored("times", raw)) > 0).all()

    @pytest.mark.parametrize(
        ("raw", "message"),
        [
            (np.array([1.0, NAN, NAN]), "^t has no time in row 1, and 1 more rows have none: times are all finite"),
            (np.array([1.0, 2.0, -np.inf]), "^t has the time -inf in row 2: times are all finite"),
            (np.array(["1", "2", "inf"]), "^t has the time inf in row 2: "),
            (np.array(["1", "", "2"]), "^t has no time in row 1: "),
            (np.array(["soon", "1", "2"]), "^t has 'soon' in row 0: times are all finite numbers, or all ISO dates"),
            (np.array(["1", "2024-01-01", "2"]), "^t has '2024-01-01' in row 1, after '1' in row 0: "),
            (np.array(["2024-01-01", "2024-13-01", "2"]), "^t has '2024-13-01' in row 1, after '2024-01-01' in row 0"),
            (
                np.array(["2024-01-01T10:00", "2024-01-01T10:00Z", ""])[:2].repeat([2, 1]),
                "^t has '.*Z' in row 2, after",
            ),
            (np.array(["2024-03-01", "NaT", "2024-03-01"], dtype="M8[D]"), "^t has no time in row 1: "),
            (np.ones(2), r"^times have 2 values, X has 3 rows \(times from t\)"),
            (np.ones(3, dtype="m8[s]"), "^t has dtype timedelta64.*; times must be numbers, text or dates"),
        ],
    )
    def test_refused(self, raw: np.ndarray, message: str) -> None:
        with pytest.raises(InputError, match=message):
            whole(SAMPLE_COLUMN_KINDS["times"], raw, 3, "t", "times")

    def test_what_a_summary_says(self) -> None:
        assert described("times", np.array([2.0, 0.5, 2.0])) == {"n_distinct": 2, "first": 0.5, "last": 2.0}
        days = np.array(["2024-03-01", "2024-02-29T12:30"])
        shown = {"n_distinct": 2, "first": "2024-02-29T12:30:00", "last": "2024-03-01T00:00:00"}
        assert described("times", days) == shown


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "X.csv"
    path.write_text("a,who,day,class,b\n1,ann,2024-01-02,x,0\n2,bob,2024-01-01,y,1\n3,ann,,x,0\n")
    return path


class TestColumns:
    def test_are_no_features(self, table: Path) -> None:
        source = open_source(SourceSpec(source=str(table), labels="class", groups="who", exclude=("day",)))
        assert source.info.feature_names == ("a", "b")
        assert source.info.sample_columns == ("groups",)
        np.testing.assert_array_equal(source.read_sample_column("groups"), [0, 1, 0])
        assert source.read_sample_column("times") is None
        assert source.read_sample_column("weights") is None

    def test_missing_cell(self, table: Path) -> None:
        source = open_source(SourceSpec(source=str(table), labels="class", times="day", exclude=("who",)))
        with pytest.raises(InputError, match=r"X\.csv:day has no time in row 2"):
            source.read_sample_column("times")

    def test_all_of_them(self, table: Path) -> None:
        source = open_source(SourceSpec(source=str(table), labels="class", weights="b", groups="who", times="day"))
        assert source.info.sample_columns == ("weights", "groups", "times")
        assert source.info.feature_names == ("a",)

    @pytest.mark.parametrize("first", ["labels", "weights", "groups"])
    def test_one_column_for_two_purposes(self, table: Path, first: str) -> None:
        with pytest.raises(InputError, match=rf"^data\.{first} and data\.times both name 'a'"):
            open_source(SourceSpec(source=str(table), times="a", **dict[str, Any]({first: "a"})))

    def test_dates_of_parquet(self, tmp_path: Path) -> None:
        days = np.array(["2024-03-01", "2024-02-29"], dtype="M8[D]")
        noon = (
            pa.array(["2024-03-01T12:00", "2024-03-01T11:00"]).cast(pa.timestamp("ms")).cast(pa.timestamp("ms", "UTC"))
        )
        columns = {
            "day": pa.array(days),
            "when": noon.cast(pa.timestamp("ms", "Europe/Berlin")),
            "x": pa.array([1.0, 2.0]),
        }
        pq.write_table(pa.table(columns), tmp_path / "X.parquet")
        path = str(tmp_path / "X.parquet")
        by_day = open_source(SourceSpec(source=path, times="day", exclude=("when",))).read_sample_column("times")
        np.testing.assert_array_equal(by_day, days)
        source = open_source(SourceSpec(source=path, times="when", groups="day"))
        np.testing.assert_array_equal(
            source.read_sample_column("times"), np.array(["2024-03-01T12", "2024-03-01T11"], "M8[us]")
        )
        np.testing.assert_array_equal(source.read_sample_column("groups"), [1, 0])
        assert source.info.feature_names == ("x",)
        with pytest.raises(
            InputError, match=r"X\.parquet:day has dtype datetime64\[D\]; labels must be numbers or text"
        ):
            open_source(SourceSpec(source=path, labels="day", exclude=("when",))).read_labels()

    def test_missing_dates_of_parquet(self, tmp_path: Path) -> None:
        table = pa.table({"when": pa.array([None, 1], pa.timestamp("us")), "x": [1.0, 2.0]})
        pq.write_table(table, tmp_path / "X.parquet")
        with pytest.raises(InputError, match=r"X\.parquet:when has no time in row 0"):
            open_source(SourceSpec(source=str(tmp_path / "X.parquet"), times="when")).read_sample_column("times")

    def test_dates_of_npz(self, tmp_path: Path) -> None:
        when = np.array(["2024-03-01T12", "2024-03-01T11"], dtype="M8[h]")
        np.savez(tmp_path / "X.npz", X=np.eye(2), when=when)
        source = open_source(SourceSpec(source=str(tmp_path / "X.npz"), times="when"))
        np.testing.assert_array_equal(source.read_sample_column("times"), when)

    @pytest.mark.parametrize("name", ["sklearn:iris", "synthetic:mixture?n_samples=150&n_features=20&n_classes=2"])
    def test_separate_files_for_data_without_columns(self, name: str, tmp_path: Path) -> None:
        (tmp_path / "g.txt").write_text("\n".join(f"p{i % 7}" for i in range(150)) + "\n")
        source = open_source(SourceSpec(source=name, groups=str(tmp_path / "g.txt")))
        np.testing.assert_array_equal(source.read_sample_column("groups"), np.arange(150) % 7)
        with pytest.raises(InputError, match=r"data\.times is 't': there is no such file, and .* has no columns"):
            open_source(SourceSpec(source=name, times="t"))
