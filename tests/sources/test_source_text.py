"""Files in svmlight format and Matrix Market files: what they may look like, and what is said of those that cannot be
used.
"""

from __future__ import annotations

import io
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

from daskfs.errors import InputError
from daskfs.sources import Source, SourceSpec, lines, mtx, open_source, svmlight
from daskfs.sources.lines import read_range
from daskfs.sources.mtx import MtxSource
from daskfs.storage import as_path

from .broken import Make, text


def opened(folder: Path, name: str, content: str, **fields: object) -> Source:
    return open_source(text(name, content, **fields)(folder))


def values(source: Source) -> np.ndarray:
    block = source.read_rows(0, source.info.n_samples)
    return block.toarray() if sp.issparse(block) else block


@pytest.fixture(params=[7, 60, 1 << 20])
def ranges(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of a line or a few, and of all."""
    for module in (svmlight, mtx):
        monkeypatch.setattr(module, "SCAN_BYTES", request.param)
        module.scan.cache_clear()


# ------------------------------------------------------------------------------------------------------------ svmlight
@pytest.mark.usefixtures("ranges")
@pytest.mark.parametrize(
    "content",
    [
        "1 1:2 3:4.5\n2 2:-1e-3\n",
        "1 1:2 3:4.5\n2 0:-1e-3\n",
        "1 5:1\n\n# 9:1\n2\n3 qid:7 1:2 # 8:2\n",
        "  1 1:2\n\t\n 2\t3:4  \r\n",
        "1 1:0 2:nan 3:-inf\n2 4:+7\n3 4:1",
    ],
)
def test_svmlight_is_read_as_scikit_learn_does(content: str, tmp_path: Path) -> None:
    source = opened(tmp_path, "X.svm", content, labels="target")
    X, y = load_svmlight_file(io.BytesIO(content.encode()))
    np.testing.assert_array_equal(values(source), X.toarray())
    np.testing.assert_array_equal(source.read_labels(), y)
    rows = [source.read_rows(row, row + 1).toarray() for row in range(source.info.n_samples)]
    np.testing.assert_array_equal(np.vstack(rows), X.toarray())
    assert source.info.nnz == X.nnz


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ("-1 +1 -1", np.array([-1, 1, -1])),
        ("-1 1 nan", np.array([-1, 1, None], dtype=object)),
        ("-1 2 3", np.array([-1, 2, 3])),
        ("0 1 nan", np.array([0, 1, None], dtype=object)),
        ("0.5 1 nan", np.array([0.5, 1, np.nan])),
    ],
)
def test_targets(targets: str, expected: np.ndarray, tmp_path: Path) -> None:
    lines = [f"{target} 1:1" for target in targets.split()]
    y = opened(tmp_path, "X.libsvm", "\n".join(lines), labels="target").read_labels()
    assert y is not None
    assert y.dtype == expected.dtype
    np.testing.assert_array_equal(y, expected)


def test_targets_of_which_0_may_be_unlabeled(tmp_path: Path) -> None:
    y = opened(tmp_path, "X.libsvm", "-1 1:1\n0 1:1\n1 1:1\n", labels="target", unlabeled="0").read_labels()
    np.testing.assert_array_equal(y, [-1, 0, 1])


def test_query_identifiers_are_groups(tmp_path: Path) -> None:
    content = "1 qid:9 1:1\n2 qid:3 1:1 # qid:4\n3 qid:9 1:1\n"
    source = opened(tmp_path, "X.svmlight", content, groups="qid", weights="target")
    assert source.read_sample_column("groups").tolist() == [1, 0, 1]
    assert source.read_sample_column("weights").tolist() == [1, 2, 3]


SVM_OPENED: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "shape (0, 0)"),
    "comments only": ("# 1:2\n", "shape (0, 0)"),
    "no values": ("1\n2\n", "shape (2, 0)"),
    "far feature": ("1 1:1\n2 3000000000:1\n", "a feature above 2147483647"),
    "farther feature": ("1 1:1\n2 1844674407370955161600:1\n", "a feature above 2147483647"),
    "two colons": ("1 qid:1 1:1\n2 qid:50:1.5\n", "two colons in one word"),
    "gzipped": (b"\x1f\x8b\x08", "compressed"),
}
SVM_READ = {
    "descending": ("1 1:1\n2 3:1 2:1\n", ("row 1 ", "sorted and unique", "ascending features")),
    "twice": ("1 1:1 1:2\n", ("row 0 ", "sorted and unique")),
    "no number": ("1 1:1\n2 2:x\n", ("row 1 ", "'x'")),
    "no feature": ("1 1:1\n2 a:1\n", ("row 1 ", "'a'")),
    "no colon": ("1 1:1\n2 3\n", ("row 1 ", "target feature:value")),
    "negative": ("1 1:1\n2 -1:3\n", ("row 1 ", "-1")),
    "NUL": ("1 1:1\n2\x00 2:1\n", ("X.svm",)),
}


@pytest.mark.parametrize("case", SVM_OPENED)
def test_svmlight_refused_when_opened(case: str, tmp_path: Path) -> None:
    content, message = SVM_OPENED[case]
    with pytest.raises(InputError) as caught:
        open_source(text("X.svm", content)(tmp_path))
    assert message in str(caught.value)
    assert "X.svm" in str(caught.value)


@pytest.mark.parametrize("case", SVM_READ)
def test_svmlight_refused_when_read(case: str, tmp_path: Path) -> None:
    content, parts = SVM_READ[case]
    source = opened(tmp_path, "X.svm", content)
    with pytest.raises(InputError) as caught:
        source.read_rows(0, source.info.n_samples)
    assert [part for part in ("X.svm", *parts) if part not in str(caught.value)] == [], str(caught.value)


@pytest.mark.parametrize(
    ("content", "field", "message"),
    [
        ("-1 1:1\n0 1:1\n1 1:1\n", "labels", "targets -1, 0 and 1"),
        ("1,2 1:1\n", "labels", "several targets"),
        ("x 1:1\n", "labels", "row 0 has the target 'x'"),
        ("1 qid:1 1:1\n1 1:1\n", "groups", "no group in row 1"),
        ("1 qid:1.5 1:1\n", "groups", "qid is a whole number"),
    ],
)
def test_labels_and_sample_columns_of_svmlight_refused(content: str, field: str, message: str, tmp_path: Path) -> None:
    source = opened(tmp_path, "X.svm", content, **{field: "qid" if field == "groups" else "target"})
    with pytest.raises(InputError, match=message):
        source.read_labels() if field == "labels" else source.read_sample_column(field)


# ------------------------------------------------------------------------------------------------------- Matrix Market
BANNER = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.usefixtures("ranges")
@pytest.mark.parametrize(
    "content",
    [
        BANNER + "% made\n\n3 4 3\n1 1 2.5\n2 4 -1e-3\n3 2 7\n",
        BANNER + "3 4 4\n3 2 7\n1 1 2.5\n\n1 1 0.5\n  2\t4   -1e-3\n",
        BANNER.replace("real", "integer") + "3 4 2\r\n3 2 7\r\n1 1 -2\r\n",
        BANNER.replace("real general", "Pattern GENERAL") + "2 2 2\n2 1\n1 2",
        BANNER + "2 2 2\n2 1 nan\n1 2 inf\n",
        BANNER + "2 2 0\n",
        "%%MatrixMarket matrix array real general\n2 3\n1\n2\n3e2\n-4\n\n5\n6\n",
    ],
)
@pytest.mark.parametrize("transpose", [False, True])
def test_matrix_market_is_read_as_scipy_does(content: str, transpose: bool, tmp_path: Path) -> None:
    expected = scipy.io.mmread(io.BytesIO(content.encode()), spmatrix=False)
    expected = expected.toarray() if sp.issparse(expected) else expected
    expected = expected.T if transpose else expected
    source = opened(tmp_path, "X.mtx", content, transpose=transpose)
    np.testing.assert_array_equal(values(source), expected)
    for row in range(len(expected)):
        block = source.read_rows(row, row + 1)
        np.testing.assert_array_equal(block.toarray() if sp.issparse(block) else block, expected[row : row + 1])


def test_sorted_entries_are_read_by_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mtx, "SCAN_BYTES", 200)
    X = sp.random(400, 30, 0.1, format="coo", random_state=0)
    shuffled = np.random.default_rng(1).permutation(X.nnz)
    for name, order in (("sorted", np.argsort(X.row, kind="stable")), ("shuffled", shuffled)):
        entries = sp.coo_array((X.data[order], (X.row[order], X.col[order])), shape=X.shape)
        scipy.io.mmwrite(tmp_path / f"{name}.mtx", entries)
        source = open_source(SourceSpec(source=str(tmp_path / f"{name}.mtx")))
        assert isinstance(source, MtxSource)
        with mock.patch.object(lines, "read_range", side_effect=read_range) as reads:
            block = source.read_rows(100, 120)
        np.testing.assert_array_equal(block.toarray(), X.toarray()[100:120])
        times = source.times_read(20)
        n_ranges = len(mtx.scan(as_path(tmp_path / f"{name}.mtx"))[1].starts)
        assert (
            (reads.call_count <= 12, times < 1.5) if name == "sorted" else (reads.call_count > n_ranges / 2, times > 10)
        )


@pytest.mark.parametrize(
    ("name", "head", "row"), [("X.svmlight", "", "1 1:2\n"), ("X.mtx", BANNER + "3 4 3\n", "1 1 2\n")]
)
def test_long_comments_are_in_no_range(
    name: str, head: str, row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (mtx, svmlight):
        monkeypatch.setattr(module, "SCAN_BYTES", 100)
    blank = ("#" if name == "X.svmlight" else " ") * 9 + "\n"
    source = opened(tmp_path, name, head + (row + 100 * blank) * 3)
    with mock.patch.object(lines, "read_range", side_effect=read_range) as reads:
        source.read_rows(0, source.info.n_samples)
    assert sum(end - begin for _, begin, end in (call.args for call in reads.call_args_list)) < 3 * 250


@pytest.mark.parametrize(
    ("name", "reference", "expected"),
    [
        ("features.tsv", "@/features.tsv", ["n1", "n 2"]),
        ("features.tsv", "@/features.tsv:1", ["i1", "i2"]),
        ("genes.tsv", "@/genes.tsv", ["n1", "n 2"]),
        ("names.tsv", "@/names.tsv", ["i1", "i2"]),
        ("names.tsv", "@/names.tsv:3", ["t", "t"]),
    ],
)
def test_names_between_tabs(name: str, reference: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_text("i1\tn1\tt\r\ni2\tn 2\tt\r\n", newline="")
    source = opened(tmp_path, "X.mtx", BANNER + "1 2 0\n", feature_names=reference.replace("@", str(tmp_path)))
    assert list(source.info.feature_names or ()) == expected


@pytest.mark.parametrize("column", ["0", "4", "name"])
def test_columns_of_names_that_are_not_there(column: str, tmp_path: Path) -> None:
    (tmp_path / "names.tsv").write_text("i1\tn1\tt\ni2\tn2\tt\n")
    with pytest.raises(InputError, match=f"names.tsv has 3 columns between tabs, and none of the number '{column}'"):
        opened(tmp_path, "X.mtx", BANNER + "1 2 0\n", feature_names=f"{tmp_path}/names.tsv:{column}")


def changed(*replacements: tuple[str, str]) -> Make:
    content = BANNER + "3 4 2\n1 1 2.5\n3 2 7\n"
    for old, new in replacements:
        assert old in content
        content = content.replace(old, new)
    return text("X.mtx", content)


MTX_REFUSED: dict[str, tuple[Make, tuple[str, ...]]] = {
    "empty": (text("X.mtx", ""), ("no Matrix Market file",)),
    "text": (text("X.mtx", "hello\n"), ("no Matrix Market file", "%%MatrixMarket")),
    "vector": (changed(("matrix", "vector")), ("vector",)),
    "complex": (changed(("real", "complex")), ("complex", "real numbers")),
    "symmetric": (changed(("general", "symmetric")), ("symmetric", "general matrix")),
    "pattern array": (text("X.mtx", "%%MatrixMarket matrix array pattern general\n2 2\n"), ("pattern",)),
    "no shape": (text("X.mtx", BANNER + "% only\n"), ("no line with the shape",)),
    "wrong shape": (changed(("3 4 2", "3 4")), ("'3 4'", "not the shape")),
    "shape of text": (changed(("3 4 2", "3 x 2")), ("'3 x 2'", "not the shape")),
    "no columns": (text("X.mtx", BANNER + "3 0 0\n"), ("shape (3, 0)",)),
    "too few": (changed(("3 4 2", "3 4 5")), ("damaged", "2 entries", "says that it has 5")),
    "too many": (changed(("3 4 2", "3 4 1")), ("damaged", "2 entries", "says that it has 1")),
    "cut": (changed(("3 2 7\n", "3 ")), ("cannot be read from entry 1", "Expected 3 columns, got 1")),
    "row 0": (changed(("1 1 2.5", "0 1 2.5")), ("entry 0 ", "row 0 and column 1", "3 rows and 4 columns")),
    "column 5": (changed(("3 2 7", "3 5 7")), ("entry 1 ", "row 3 and column 5")),
    "no whole number": (changed(("3 2 7", "3 2.5 7")), ("cannot be read", "'2.5'")),
    "too many values": (changed(("2.5", "2.5 2.5")), ("cannot be read", "Expected 3 columns, got 4")),
    "not even text": (changed(("1 1 2.5", "1\x00 1 2.5")), ("X.mtx cannot be read",)),
    "array cut": (text("X.mtx", "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n"), ("3 entries", "it has 4")),
    "gzipped": (text("X.mtx", b"\x1f\x8b\x08"), ("compressed",)),
    "with array": (text("X.mtx", BANNER + "1 1 0\n", array="X"), ("data.array",)),
    "transposed table": (text("X.csv", "a,b\n1,2\n", transpose=True), ("data.transpose", "X.csv is none")),
}


@pytest.mark.parametrize(("value", "message"), [("seven", "'seven'"), ("1.5D3", "'1.5D3'"), ("7_0", "'7_0'")])
def test_values_refused_when_read(value: str, message: str, tmp_path: Path) -> None:
    source = open_source(changed(("7", value))(tmp_path))
    with pytest.raises(InputError, match=rf"X\.mtx cannot be read from entry 0 .* on: .*{message}"):
        source.read_rows(0, 3)


@pytest.mark.parametrize("case", MTX_REFUSED)
def test_matrix_market_refused(case: str, tmp_path: Path) -> None:
    make, parts = MTX_REFUSED[case]
    with pytest.raises(InputError) as caught:
        open_source(make(tmp_path))
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)
