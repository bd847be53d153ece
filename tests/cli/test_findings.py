"""What ``convert``, ``inspect`` and runs say of data: constant and duplicate features, and parts and text formats from
the file to the ranking.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp

from daskfs.errors import ExitCode
from daskfs.sources import mtx

from .command import basic_job, daskfs, labels, matrix, refused, rows_of, write_job

pytestmark = pytest.mark.cluster

N_ROWS = 9000
NAMES = [f"g{number}" for number in range(40)]


def doubled() -> np.ndarray:
    """Return X, shape (9000, 40), with zeros: 7 and 30 repeat 2, 11 repeats 3 up to the sign of zeros, 5 and 6 are the
    same constant, and 12 differs from 3 in one row.
    """
    rng = np.random.default_rng(0)
    X = rng.integers(-3, 4, size=(N_ROWS, 40)) / 4
    X[:, [7, 30]] = X[:, [2]]
    X[:, 11] = np.where(X[:, 3] == 0, -0.0, X[:, 3])
    X[:, 12] = X[:, 3]
    X[N_ROWS - 1, 12] += 1
    X[:, [5, 6]] = 1.5
    return X


FOUND = {
    "n_constant": 2,
    "constant": ["g5", "g6"],
    "n_duplicate": 3,
    "n_duplicate_groups": 2,
    "duplicate": [["g2", "g7", "g30"], ["g3", "g11"]],
}


def written(folder: Path, form: str) -> dict[str, Any]:
    """Write the data, and return the options that name them."""
    (folder / "names.txt").write_text("\n".join(NAMES))
    if form == "sparse":
        sp.save_npz(folder / "X.npz", sp.csr_matrix(doubled()))
    elif form == "float32":
        np.save(folder / "X.npy", doubled().astype(np.float32))
    else:
        np.save(folder / "X.npy", doubled())
    return {"source": folder / ("X.npz" if form == "sparse" else "X.npy"), "feature_names": folder / "names.txt"}


@pytest.mark.parametrize("form", ["dense", "float32", "sparse"])
def test_duplicates(form: str, tmp_path: Path) -> None:
    """The same is found while converting, in the tiles, and by inspecting the source; in several bands."""
    data = written(tmp_path, form)
    names = ("--feature-names", data["feature_names"])
    converted = daskfs("convert", data["source"], tmp_path / "t.zarr", *names, "--workers", 0, "--json", "-q").json
    assert converted["recomputed"]["ingest"] > 1 or form == "float32"
    for found in (
        converted,
        daskfs("inspect", tmp_path / "t.zarr", "--json").json,
        daskfs("inspect", data["source"], *names, "--json").json,
    ):
        assert {key: found[key] for key in FOUND} == FOUND
    lines = daskfs("inspect", tmp_path / "t.zarr").out.splitlines()
    assert "duplicate: g2 = g7 = g30, g3 = g11" in lines
    assert "constant: g5, g6" in lines


def test_a_conversion_that_goes_on_finds_the_same(tmp_path: Path) -> None:
    data = written(tmp_path, "dense")
    arguments = ("convert", data["source"], tmp_path / "t.zarr", "--workers", 0, "--json", "-q")
    first = daskfs(*arguments).json
    hashes = sorted((tmp_path / "t.zarr" / "hashes").rglob("c/*/0/0"))
    assert len(hashes) == first["recomputed"]["ingest"]
    hashes[-1].unlink()
    again = daskfs(*arguments).json
    assert again["recomputed"] == {"ingest": 1}
    assert {**first, "recomputed": None} == {**again, "recomputed": None}


def test_no_duplicates_are_not_told(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", matrix())
    found = daskfs("inspect", tmp_path / "X.npy")
    assert "n_duplicate: 0" in found.out.splitlines()
    assert "duplicate:" not in [line.split(" ")[0] for line in found.out.splitlines()]


def test_a_run_says_how_many_there_are(tmp_path: Path) -> None:
    job = basic_job(tmp_path)
    X = matrix()
    X[:, 2] = X[:, 0]
    np.save(tmp_path / "X.npy", X)
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (facts["data"]["n_constant"], facts["data"]["n_duplicate"]) == (1, 1)
    assert "Duplicate features" in (tmp_path / "run" / "report.html").read_text()


# ----------------------------------------------------------------------------------------------- parts and text formats
def ranking(folder: Path, **data: Any) -> list[dict[str, str]]:
    job = {
        "data": data,
        "methods": ["VarianceScore", "FisherScore"],
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(folder / "run")},
    }
    outcome = daskfs("run", write_job(folder, job), "-q", "--overwrite")
    assert outcome.code == 0, outcome.err
    return rows_of(folder / "run" / "ranking.csv")


def test_a_directory_of_parquet_files(tmp_path: Path) -> None:
    """Ranked as one array is; a part that changes, comes or goes is named, and the same run does not go on."""
    expected = [(row["method"], row["rank"], row["feature"], row["score"]) for row in plain(tmp_path)]
    (tmp_path / "parts").mkdir()
    X, y = matrix(), labels()
    for number, rows in enumerate(np.array_split(np.arange(len(X)), 12)):
        columns = {f"x{column}": values for column, values in enumerate(X[rows].T)}
        pq.write_table(pa.table({**columns, "y": y[rows]}), tmp_path / "parts" / f"part-{number}.parquet")
    (tmp_path / "parts" / "_SUCCESS").write_text("")
    for source in ("parts", "parts/part-*.parquet"):
        found = ranking(tmp_path, source=str(tmp_path / source), labels="y")
        assert [(row["method"], row["rank"], row["feature"], row["score"]) for row in found] == expected
        assert {row["name"] for row in found} == {"x0", "x1", "x2", "x3"}
    (tmp_path / "parts" / "part-3.parquet").unlink()
    refused(daskfs("run", tmp_path / "job.yaml", "-q"), ExitCode.INPUT, "parts/part-*.parquet", "changed")


def plain(folder: Path) -> list[dict[str, str]]:
    basic_job(folder)
    return ranking(folder, source=str(folder / "X.npy"), labels=str(folder / "y.npy"))


@pytest.mark.parametrize("form", ["sorted", "shuffled"])
def test_features_by_cells_of_matrix_market(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mtx, "SCAN_BYTES", 2**14)
    mtx.scan.cache_clear()
    X = sp.random(1500, 30, 0.2, format="coo", random_state=0)
    cells = np.argsort(X.row, kind="stable") if form == "sorted" else np.random.default_rng(1).permutation(X.nnz)
    scipy.io.mmwrite(
        tmp_path / "matrix.mtx", sp.coo_array((X.data[cells], (X.col[cells], X.row[cells])), X.shape[::-1])
    )
    (tmp_path / "features.tsv").write_text("".join(f"E{n}\tgene {n}\tGene Expression\n" for n in range(30)))
    np.save(tmp_path / "y.npy", np.arange(1500) % 3)
    sp.save_npz(tmp_path / "X.npz", X.tocsr())
    files = {"labels": str(tmp_path / "y.npy"), "feature_names": str(tmp_path / "features.tsv")}
    expected = ranking(tmp_path, source=str(tmp_path / "X.npz"), **files)
    monkeypatch.setattr("daskfs.tiles.shapes.MIN_TILE_BYTES", 2**14)
    found = ranking(tmp_path, source=str(tmp_path / "matrix.mtx"), transpose=True, **files)
    assert found == expected
    assert found[0]["name"].startswith("gene ")
    options = ("--transpose", "--feature-names", tmp_path / "features.tsv", "--workers", 0)
    outcome = daskfs("convert", tmp_path / "matrix.mtx", tmp_path / "t.zarr", *options)
    assert outcome.code == 0
    assert ("entries are not sorted by the rows of X" in outcome.err) == (form == "shuffled")
    planned = daskfs("plan", tmp_path / "job.yaml", "--set", f"output.path={tmp_path / 'other'}").out
    assert ("note: " in planned) == (form == "shuffled")
    again = daskfs("convert", tmp_path / "matrix.mtx", tmp_path / "t.zarr", *options)
    assert "not sorted" not in again.err


def test_what_was_transposed_is_settled(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", matrix())
    refused(daskfs("convert", tmp_path / "X.npy", tmp_path / "t", "--transpose"), ExitCode.INPUT, "data.transpose")
    daskfs("convert", tmp_path / "X.npy", tmp_path / "t", "--workers", 0)
    job = basic_job(tmp_path)
    job["data"] = {"source": str(tmp_path / "t"), "transpose": True}
    refused(daskfs("run", write_job(tmp_path, job), "-q"), ExitCode.USAGE, "data.transpose was settled")


def test_targets_of_svmlight(tmp_path: Path) -> None:
    """Of two classes -1 and 1, none is unlabeled."""
    X, y = matrix(), labels() % 2
    lines = [f"{2 * c - 1:+d} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(r)) for r, c in zip(X, y, strict=True)]
    (tmp_path / "X.svm").write_text("\n".join(lines))
    found = daskfs("inspect", tmp_path / "X.svm", "--labels", "target", "--json").json
    assert (found["classes"], found["n_labeled"]) == ({"-1": 20, "1": 10}, 30)
    np.savez(tmp_path / "X.npz", X=X, y=y)
    rows = ranking(tmp_path, source=str(tmp_path / "X.svm"), labels="target")
    expected = ranking(tmp_path, source=str(tmp_path / "X.npz"), labels="y")
    assert [row["feature"] for row in rows] == [row["feature"] for row in expected]
