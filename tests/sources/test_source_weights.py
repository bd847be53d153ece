"""Weights of rows: from columns, members and files, and what is refused, by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskfs.errors import InputError
from daskfs.sources import SourceSpec, open_source
from daskfs.sources.sample_columns import check_weights
from tests.sources.array_source import ArraySource

NAN = np.nan


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (np.array([1, 0, 3]), [1, 0, 3]),
        (np.array([True, False]), [1, 0]),
        (np.array([1, 2], dtype=np.uint8), [1, 2]),
        (np.array([0.5, 0.25], dtype=np.float32), [0.5, 0.25]),
        (np.array([[2.0], [1.0]]), [2, 1]),
        (np.array(["1.5", " 2 "]), [1.5, 2]),
        (np.array([b"1", b"2.5"]), [1, 2.5]),
        (np.array([1, "2", 0.5], dtype=object), [1, 2, 0.5]),
        ([1, 2, 3], [1, 2, 3]),
    ],
)
def test_numbers(raw: Any, expected: list[float]) -> None:
    weights = check_weights(raw, len(expected), "w")
    assert weights.dtype == np.float64
    np.testing.assert_array_equal(weights, expected)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (np.array([1.0, -2.0, 3.0]), r"^w has the weight -2 in row 1: weights of rows are finite numbers from 0 up"),
        (np.array([1.0, NAN, NAN]), "^w has no weight in row 1, and 1 more rows have none that serves: weights"),
        (np.array([1.0, 2.0, np.inf]), "^w has the weight inf in row 2: "),
        (np.array(["1", "2", "much"]), "^w has 'much' in row 2: weights of rows are numbers"),
        (np.array(["1", "", "2"]), "^w has no weight in row 1: "),
        (np.array([1, None, 2], dtype=object), "^w has no weight in row 1: "),
        (np.array([1, {}, 2], dtype=object), r"^w has '\{\}' in row 1: weights of rows are numbers"),
        (np.zeros(3), "^w gives every row a weight of zero"),
        (np.full(3, 1e160), "^w has weights up to 1e.160, whose products overflow"),
        (np.ones(2), r"^weights have 2 values, X has 3 rows \(weights from w\)"),
        (np.ones((3, 2)), r"^w has shape \(3, 2\); weights need one value for each row"),
        (np.zeros(3, dtype="M8[s]"), "^w has dtype datetime64.*; weights must be numbers or text"),
        (np.ones(3, dtype=complex), "^w has dtype complex128; weights must be"),
    ],
)
def test_refused(raw: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_weights(raw, 3, "w")


def test_an_array_in_memory() -> None:
    source = ArraySource(np.eye(3), weights=[1, 2, 0])
    assert source.info.sample_columns == ("weights",)
    np.testing.assert_array_equal(source.read_sample_column("weights"), [1.0, 2.0, 0.0])
    assert ArraySource(np.eye(3)).info.sample_columns == ()
    assert ArraySource(np.eye(3)).read_sample_column("weights") is None


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "X.csv"
    path.write_text("a,w,class,v,v\n1,2,x,0,1\n2,,y,0,1\n3,1,x,0,1\n")
    return path


class TestColumns:
    def test_a_column_of_weights_is_no_feature(self, table: Path) -> None:
        source = open_source(SourceSpec(source=str(table), labels="class", weights="a", exclude=("w",)))
        assert source.info.feature_names == ("v", "v")
        np.testing.assert_array_equal(source.read_rows(0, 3), [[0, 1]] * 3)
        np.testing.assert_array_equal(source.read_sample_column("weights"), [1.0, 2.0, 3.0])

    def test_missing_cell(self, table: Path) -> None:
        source = open_source(SourceSpec(source=str(table), labels="class", weights="w"))
        assert source.info.feature_names == ("a", "v", "v")
        with pytest.raises(InputError, match=r"X\.csv:w has no weight in row 1"):
            source.read_sample_column("weights")

    def test_text(self, table: Path) -> None:
        source = open_source(SourceSpec(source=str(table), weights="class", exclude=("w",)))
        with pytest.raises(InputError, match=r"X\.csv:class has 'x' in row 0"):
            source.read_sample_column("weights")

    def test_two_columns_of_that_name(self, table: Path) -> None:
        with pytest.raises(InputError, match="more than one column 'v'; weights need a name of their own"):
            open_source(SourceSpec(source=str(table), weights="v", exclude=("class",)))

    def test_none_unless_asked_for(self, table: Path) -> None:
        source = open_source(SourceSpec(source=str(table), labels="class"))
        assert source.info.sample_columns == ()
        assert source.read_sample_column("weights") is None
        assert source.info.n_features == 4


class TestFiles:
    @pytest.mark.parametrize("name", ["sklearn:iris", "synthetic:mixture?n_samples=150&n_features=20&n_classes=2"])
    def test_weights_of_data_without_columns(self, name: str, tmp_path: Path) -> None:
        weights = np.linspace(0, 1, 150)
        np.save(tmp_path / "w.npy", weights)
        source = open_source(SourceSpec(source=name, weights=str(tmp_path / "w.npy")))
        assert source.info.sample_columns == ("weights",)
        np.testing.assert_array_equal(source.read_sample_column("weights"), weights)

    def test_no_such_file(self) -> None:
        with pytest.raises(
            InputError, match=r"data\.weights is 'w\.npy': there is no such file, and sklearn:iris has no"
        ):
            open_source(SourceSpec(source="sklearn:iris", weights="w.npy"))

    def test_blank_lines(self, tmp_path: Path) -> None:
        np.save(tmp_path / "X.npy", np.eye(3))
        (tmp_path / "w.txt").write_text("1\n\n2\n")
        source = open_source(SourceSpec(source=str(tmp_path / "X.npy"), weights=str(tmp_path / "w.txt")))
        with pytest.raises(InputError, match=r"w\.txt has no weight in row 1"):
            source.read_sample_column("weights")

    def test_an_ending_that_is_not_read(self, tmp_path: Path) -> None:
        np.save(tmp_path / "X.npy", np.eye(3))
        (tmp_path / "w.json").write_text("[1, 2, 3]")
        source = open_source(SourceSpec(source=str(tmp_path / "X.npy"), weights=str(tmp_path / "w.json")))
        with pytest.raises(InputError, match=r"w\.json cannot be read as weights; use \.npy"):
            source.read_sample_column("weights")
