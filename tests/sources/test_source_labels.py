"""Labels from files, and as class codes or targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daskfs.errors import InputError, JobError
from daskfs.sources import columns, csv_table, label_files, stored_column
from daskfs.sources.label_files import parts_of_file
from daskfs.sources.labels import LabelEncoding, encode_labels
from daskfs.sources.stored_column import StoredColumn

NAN = np.nan


def read_labels_file(ref: str, n_samples: int) -> np.ndarray:
    return StoredColumn(n_samples, ref, "labels", parts_of_file(ref, n_samples)).whole


def objects(*values: object) -> np.ndarray:
    return np.array(values, dtype=object)


@pytest.mark.parametrize(
    ("raw", "task", "codes", "classes"),
    [
        (np.array([10, 9, 10, 2]), "auto", [2, 1, 2, 0], ("2", "9", "10")),
        (np.array([3, -1, 4], dtype=np.int8), "auto", [0, -1, 1], ("3", "4")),
        (np.array([3, 255], dtype=np.uint8), "auto", [0, 1], ("3", "255")),
        (np.array([True, False]), "auto", [1, 0], ("False", "True")),
        (np.array([2.0, NAN, 1.0, -1.0]), "classification", [1, -1, 0, -1], ("1", "2")),
        (np.array([0.5, 1.0, -1.0]), "classification", [1, 2, 0], ("-1.0", "0.5", "1.0")),
        (np.array(["b", "a", "", "b"]), "auto", [1, 0, -1, 1], ("a", "b")),
        (np.array([b"b", b"a", b""]), "auto", [1, 0, -1], ("a", "b")),
        (np.array(["10", "9", "-2"]), "auto", [2, 1, 0], ("-2", "9", "10")),
        (np.array(["b", "a"], dtype=np.dtypes.StringDType()), "auto", [1, 0], ("a", "b")),
        (objects("b", None, "a", NAN), "auto", [1, -1, 0, -1], ("a", "b")),
        (objects(10, None, 9, -1), "auto", [1, -1, 0, -1], ("9", "10")),
        (objects(1.5, None, 2.0), "classification", [0, -1, 1], ("1.5", "2")),
        (np.array([[1], [0]]), "auto", [1, 0], ("0", "1")),
    ],
)
def test_classes(raw: np.ndarray, task: str, codes: list[int], classes: tuple[str, ...]) -> None:
    labels = encode_labels(raw, len(codes), task)
    assert labels.task == "classification"
    assert labels.classes == classes
    assert labels.values.dtype == np.int32
    np.testing.assert_array_equal(labels.values, codes)


@pytest.mark.parametrize(
    ("raw", "task", "targets"),
    [
        (np.array([1.0, NAN, -1.0]), "auto", [1, NAN, -1]),
        (np.array([1, 2, -1]), "regression", [1, 2, -1]),
        (np.array([1, 2], dtype=np.float32), "auto", [1, 2]),
        (np.array(["1.5", "", "2"]), "regression", [1.5, NAN, 2]),
        (objects(1, None, 2.5), "auto", [1, NAN, 2.5]),
        (objects(1, None, 2), "regression", [1, NAN, 2]),
    ],
)
def test_targets(raw: np.ndarray, task: str, targets: list[float]) -> None:
    labels = encode_labels(raw, len(targets), task)
    assert labels.task == "regression"
    assert labels.classes == ()
    assert labels.values.dtype == np.float64
    np.testing.assert_array_equal(labels.values, targets)


@pytest.mark.parametrize(
    ("raw", "unlabeled", "codes", "classes"),
    [
        (np.array([1, -1, -1]), "auto", [1, 0, 0], ("-1", "1")),
        (np.array([1.0, NAN, -1.0]), "auto", [1, -1, 0], ("-1", "1")),
        (objects(1, None, -1), "auto", [1, -1, 0], ("-1", "1")),
        (np.array([1, -1, 0]), "auto", [1, -1, 0], ("0", "1")),
        (objects("b", "a", -1), "auto", [1, 0, -1], ("a", "b")),
        (np.array(["1", "-1", "0"]), "auto", [2, 0, 1], ("-1", "0", "1")),
        (np.array([1, -1, 0]), "none", [2, 0, 1], ("-1", "0", "1")),
        (np.array([0, -1, -1]), "none", [1, 0, 0], ("-1", "0")),
        (objects(0, None, -1), "none", [1, -1, 0], ("-1", "0")),
        (np.array([1, -1, 1]), "-1", [0, -1, 0], ("1",)),
        (np.array([1, -1, 1]), "-1.0", [0, -1, 0], ("1",)),
        (np.array([0.5, -1.0, 1.0]), "-1", [0, -1, 1], ("0.5", "1.0")),
        (np.array([1, -1, 0]), "0", [1, 0, -1], ("-1", "1")),
        (np.array(["10", "?", "9"]), "?", [1, -1, 0], ("9", "10")),
        (np.array([1, 2, 1]), "?", [0, 1, 0], ("1", "2")),
    ],
)
def test_what_means_an_unlabeled_row(
    raw: np.ndarray, unlabeled: str, codes: list[int], classes: tuple[str, ...]
) -> None:
    labels = encode_labels(raw, 3, "classification", unlabeled)
    assert labels.classes == classes
    np.testing.assert_array_equal(labels.values, codes)


@pytest.mark.parametrize("raw", [np.array([1.5, -9, 2]), np.array(["1.5", "-9", "2"]), objects(1.5, -9, 2)])
def test_targets_that_mean_an_unlabeled_row(raw: np.ndarray) -> None:
    np.testing.assert_array_equal(encode_labels(raw, 3, "regression", "-9").values, [1.5, NAN, 2])


@pytest.mark.parametrize(
    ("raw", "n_samples", "task", "parts"),
    [
        (np.zeros(149, dtype=int), 150, "auto", ["labels have 149 values, X has 150 rows"]),
        (np.zeros(151, dtype=int), 150, "auto", ["labels have 151 values, X has 150 rows"]),
        (np.zeros((3, 2)), 3, "auto", ["(3, 2)", "one value for each row"]),
        (np.array([1.0, 2, np.inf]), 3, "auto", ["inf in row 2"]),
        (np.array([1.0, -np.inf, 2]), 3, "classification", ["-inf in row 1"]),
        (np.array(["1", "many"]), 2, "regression", ["'many' in row 1", "regression needs numbers"]),
        (objects(1.0, {}), 2, "classification", ["type dict"]),
        (np.array([-1, -1]), 2, "auto", ["no row has a class"]),
        (np.array([NAN, NAN]), 2, "auto", ["no row has a target"]),
        (np.array([-1, 0, 0]), 3, "auto", ["-1 and one class, '0'", "unlabeled", "data.unlabeled to none"]),
        (np.arange(100), 100, "auto", ["100 different values in 100 rows", "data.task"]),
        (np.arange(408) % 51, 408, "auto", []),
        (np.arange(204) % 51, 204, "auto", ["51 different values", "data.task"]),
        (np.arange(50), 50, "auto", []),
        (np.arange(100), 100, "classification", []),
        (np.zeros(3, dtype="M8[s]"), 3, "auto", ["datetime64", "numbers or text"]),
    ],
)
def test_refused(raw: np.ndarray, n_samples: int, task: str, parts: list[str]) -> None:
    if not parts:
        assert encode_labels(raw, n_samples, task).task == "classification"
        return
    with pytest.raises(InputError) as caught:
        encode_labels(raw, n_samples, task)
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def test_unknown_task() -> None:
    with pytest.raises(JobError, match=r"data\.task is 'classify'.*Did you mean 'classification'"):
        encode_labels(np.arange(3), 3, "classify")


@pytest.mark.parametrize(
    ("name", "content", "n_samples", "expected"),
    [
        ("y.txt", "3\n1\n2\n", 3, np.array([3, 1, 2])),
        ("y.txt", "3\n1\n2", 3, np.array([3, 1, 2])),
        ("y.txt", "3\n1\n2\n\n\n", 3, np.array([3, 1, 2])),
        ("y.txt", "3\n\n2\n\n", 4, objects(3, None, 2, None)),
        ("y.txt", "3.5\n\n2\n\n\n", 4, np.array([3.5, NAN, 2, NAN])),
        ("y.txt", "big cat\r\n\r\ndog\r\n", 3, objects("big cat", None, "dog")),
        ("y.csv", "class\n3\n1\n2\n\n", 3, np.array([3, 1, 2])),
        ("y.csv", "class\n3\n\n2\n\n", 4, objects(3, None, 2, None)),
        ("y.csv", "class\n\n\n\n1\n", 4, objects(None, None, None, 1)),
        ("y.csv:v", "u,v\n3,a\n1,b\n", 2, objects("a", "b")),
        ("y.tsv:v", "u\tv\n3\t7\n1\t8\n", 2, np.array([7, 8])),
    ],
)
def test_text_files(name: str, content: str, n_samples: int, expected: np.ndarray, tmp_path: Path) -> None:
    (tmp_path / name.partition(":")[0]).write_bytes(content.encode())
    values = read_labels_file(str(tmp_path / name), n_samples)
    assert values.dtype == expected.dtype
    np.testing.assert_array_equal(values, expected)


def test_array_files(tmp_path: Path) -> None:
    y = np.array(["u", "v", "ä"])
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "one.npz", anything=y)
    np.savez_compressed(tmp_path / "many.npz", x=np.zeros(7), y=y, z=y[::-1])
    for ref, expected in [("y.npy", y), ("one.npz", y), ("many.npz", y), ("many.npz:z", y[::-1])]:
        np.testing.assert_array_equal(read_labels_file(str(tmp_path / ref), 3), expected)


@pytest.mark.parametrize(
    ("ref", "n_samples", "parts"),
    [
        ("gone.npy", 3, ["gone.npy", "no such file"]),
        ("many.npz", 3, ["'x', 'z'", "many.npz:member"]),
        ("many.npz:yy", 3, ["no member 'yy'", "'x', 'z'"]),
        ("many.npz:x", 4, ["labels have 3 values, X has 4 rows", "many.npz:x"]),
        ("short.txt", 4, ["labels have 2 values, X has 4 rows"]),
        ("latin.txt", 1, ["latin.txt", "UTF-8"]),
    ],
)
def test_files_refused(ref: str, n_samples: int, parts: list[str], tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", x=np.zeros(3), z=np.zeros(3))
    (tmp_path / "short.txt").write_text("1\n2\n")
    (tmp_path / "latin.txt").write_bytes(b"\xe4\n")
    with pytest.raises(InputError) as caught:
        read_labels_file(str(tmp_path / ref), n_samples)
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


VALUES = {
    "integers": st.integers(-2, 3).map(np.int64),
    "floats": st.sampled_from([0.0, 1.0, -1.0, 2.5, NAN, np.inf]).map(np.float64),
    "whole": st.sampled_from([0.0, 1.0, -1.0, 2.0, NAN]).map(np.float64),
    "text": st.sampled_from(["a", " a", "b", "-1", "1", "", "01"]),
    "missing": st.sampled_from([1, -1, 2, None, 2.0]),
    "mixed": st.sampled_from([1, "1", " 1", True, None, NAN, 0.5, b"b"]),
}


@given(
    st.sampled_from(list(VALUES)).flatmap(lambda kind: st.lists(VALUES[kind], min_size=1, max_size=30)),
    st.lists(st.integers(0, 30), max_size=3).map(sorted),
    st.sampled_from(["auto", "classification", "regression"]),
    st.sampled_from(["auto", "none", "1", "a"]),
)
@example([-1, 2, None], [2], "auto", "auto")  # -1 and one class, in a part of numbers and one of objects
def test_labels_in_parts_are_encoded_as_all_of_them(
    values: list[Any], cuts: list[int], task: str, unlabeled: str
) -> None:
    """Also if only some parts have missing values, and other dtypes for it; or are refused for the same reason. Whole
    numbers are encoded alike as numbers and as objects.
    """
    raw = np.array(values) if isinstance(values[0], np.generic) else objects(*values)
    parts = [part for part in np.split(raw, cuts) if part.size]
    if {type(value) for value in values} <= {int, type(None)}:
        parts = [part if None in part else part.astype(np.int64) for part in parts]

    def found(*pieces: np.ndarray) -> Any:
        try:
            encoding = LabelEncoding(lambda: iter(pieces), task, unlabeled)
            encoded = np.concatenate(list(encoding.parts()))
        except InputError as error:
            return str(error)
        return encoding.task, encoding.classes, encoded.dtype, encoded.tobytes()

    assert found(*parts) == found(raw)
    if raw.dtype.kind == "i":
        assert found(raw.astype(object)) == found(raw)


@pytest.mark.parametrize("text", ["1,2,3,,5", "1,2,3.5,,5", "01,2,x,,5", ",,,,1", ",,,,"])
@pytest.mark.parametrize("ending", ["csv", "txt"])
def test_cells_have_one_type_in_all_parts(
    text: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of all cells of the file, whichever is found last."""
    cells = text.split(",")
    (tmp_path / f"y.{ending}").write_text("\n".join(["y", *cells] if ending == "csv" else cells) + "\n")
    whole = read_labels_file(str(tmp_path / f"y.{ending}"), 5)
    monkeypatch.setattr(label_files, "LINES_AT_ONCE", 2)
    monkeypatch.setattr(csv_table, "RANGE_BYTES", 1)
    csv_table.scan.cache_clear()
    for module in (columns, stored_column):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", 2)
    ref = str(tmp_path / f"y.{ending}")
    parts = list(StoredColumn(5, ref, "labels", parts_of_file(ref, 5)).parts())
    assert len(parts) > 1 or text.startswith(",,")
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    csv_table.scan.cache_clear()


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1,5", "unknown", "2,25", " NA "], [1.5, np.nan, 2.25, np.nan]),
        (["1.5", " 2e1 ", ""], [1.5, 20, np.nan]),
        ([1.5, "2,5", None], [1.5, 2.5, np.nan]),
        (["1.5", "much"], "labels hold 'much' in row 1; regression needs numbers"),
        (["1,220", "900"], "labels hold '1,220' in row 0"),
        (["1_000", "2"], "labels hold '1_000' in row 0"),
    ],
)
def test_targets_of_text_are_read_as_features_are(cells: list[Any], expected: Any) -> None:
    raw = np.array(cells, dtype=object)
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            encode_labels(raw, len(raw), "regression")
    else:
        np.testing.assert_array_equal(encode_labels(raw, len(raw), "regression", "unknown").values, expected)
