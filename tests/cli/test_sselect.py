"""sSelect from the command line: fixed trade-offs, the chosen one with its curve, and what a second call does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskfs import LaplacianScore, SSelect

from .command import Outcome, daskfs, refused, rows_of, told, write_job

pytestmark = pytest.mark.cluster

METHODS: list[Any] = [
    {"name": "SSelect", "label": "auto", "trade_off": "auto", "n_cut_features": 3},
    "SSelect",
    {"name": "SSelect", "label": "graph", "trade_off": 1},
    {"name": "LaplacianScore", "n_neighbors": 10},
]


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    classes = np.arange(90) % 3
    X = rng.integers(-16, 17, (90, 8)) / 8 + classes[:, None] * [2, 0, 1, 0, 0, 3, 0, 0]
    return X, np.where(np.arange(90) < 24, classes, -1)


def save_data(folder: Path) -> None:
    X, y = data()
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)


def job_on(folder: Path, **blocks: Any) -> dict[str, Any]:
    job = {
        "data": {"source": str(folder / "X.npy"), "labels": str(folder / "y.npy"), "task": "classification"},
        "methods": METHODS,
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(folder / "run")},
    }
    return {**job, **blocks}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a job and its finished run; nothing may change it."""
    folder = tmp_path_factory.mktemp("sselect")
    save_data(folder)
    outcome = daskfs("run", write_job(folder, job_on(folder)), "-q")
    assert (outcome.code, told(outcome)) == (0, "")
    return folder


def scores_of(run: Path, label: str) -> np.ndarray:
    rows = [row for row in rows_of(run / "ranking.csv") if row["method"] == label]
    found = np.empty(len(rows))
    found[[int(row["feature"]) for row in rows]] = [float(row["score"]) for row in rows]
    return found


def test_scores_are_those_of_the_selectors(here: Path) -> None:
    X, y = data()
    found = scores_of(here / "run", "SSelect")
    assert found.tobytes() == SSelect().fit(X, y).scores_.tobytes()
    expected = LaplacianScore(n_neighbors=10).fit(X).scores_
    assert scores_of(here / "run", "graph").tobytes() == expected.tobytes()
    assert scores_of(here / "run", "LaplacianScore").tobytes() == expected.tobytes()


def test_the_curve_is_in_the_manifest(here: Path) -> None:
    X, y = data()
    fitted = SSelect(trade_off="auto", n_cut_features=3).fit(X, y)
    manifest = json.loads((here / "run" / "run.json").read_text())
    assert list(manifest["trade_offs"]) == ["auto"]
    curve = manifest["trade_offs"]["auto"]
    assert curve["chosen"] == fitted.trade_off_
    assert (curve["n_rows"], curve["n_features"], curve["n_neighbors"]) == (90, 3, 10)
    assert fitted.trade_off_curve_ is not None
    assert set(curve) - {"chosen", "n_rows", "n_features", "n_neighbors"} == set(fitted.trade_off_curve_)
    for key, values in fitted.trade_off_curve_.items():
        np.testing.assert_array_equal(curve[key], values)
    assert scores_of(here / "run", "auto").tobytes() == fitted.scores_.tobytes()


def test_the_report_shows_it(here: Path) -> None:
    curve = json.loads((here / "run" / "run.json").read_text())["trade_offs"]["auto"]
    report = (here / "run" / "report.html").read_text()
    assert report.count("Trade-offs of ") == 1
    assert f"Trade-off {curve['chosen']:g} was chosen: on its first 3 features, a sample of 90 rows" in report


def again(folder: Path, tmp_path: Path, *lost: str) -> tuple[Path, Outcome]:
    """Run a copy of the job anew that has lost some of its files."""
    shutil.copytree(folder / "run", tmp_path / "run")
    for name in lost:
        (path,) = (tmp_path / "run").glob(name)
        assert path.exists()
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    job = job_on(folder, output={"path": str(tmp_path / "run")})
    return tmp_path / "run", daskfs("run", write_job(tmp_path, job), "--json", "-q")


@pytest.mark.parametrize("lost", ["trade_offs/auto.json", "records/trade-off-auto/000000.*json", "scores/auto"])
def test_what_is_lost_is_made_again_to_the_bit(here: Path, tmp_path: Path, lost: str) -> None:
    run, outcome = again(here, tmp_path, lost)
    assert outcome.json["recomputed"]["trade-off-auto"] == 1
    assert "score" not in outcome.json["recomputed"]
    assert (run / "trade_offs/auto.json").read_bytes() == (here / "run" / "trade_offs/auto.json").read_bytes()
    assert (run / "ranking.csv").read_bytes() == (here / "run" / "ranking.csv").read_bytes()


def test_nothing_to_do(here: Path, tmp_path: Path) -> None:
    _, outcome = again(here, tmp_path)
    assert outcome.json["recomputed"] == {}


def test_one_class_is_a_warning(tmp_path: Path) -> None:
    job = job_on(tmp_path, methods=["SSelect"])
    save_data(tmp_path)
    np.save(tmp_path / "y.npy", np.where(data()[1] == 2, 2.0, np.nan))
    outcome = daskfs("run", write_job(tmp_path, job), "-q")
    assert outcome.code == 0
    assert "warning: method SSelect: all 8 labeled rows have one class" in outcome.err
    assert "all 8 labeled rows have one class" in (tmp_path / "run" / "report.html").read_text()


def test_no_labels(tmp_path: Path) -> None:
    save_data(tmp_path)
    job = job_on(tmp_path)
    del job["data"]["labels"]
    del job["data"]["task"]
    refused(daskfs("run", write_job(tmp_path, job), "-q"), 3, "method auto needs labels", "data.labels")


@pytest.mark.parametrize(
    ("parameters", "parts"),
    [
        ({"trade_off": 1.5}, ("parameter 'trade_off'", "1.5")),
        ({"trade_off": "automatic"}, ("parameter 'trade_off'", "'auto'")),
        ({"n_cut_features": 0}, ("parameter 'n_cut_features'", "greater than 0")),
        ({"tradeoff": 0.5}, ("Did you mean 'trade_off'?",)),
    ],
    ids=str,
)
def test_wrong_parameters(tmp_path: Path, parameters: dict[str, Any], parts: tuple[str, ...]) -> None:
    save_data(tmp_path)
    job = job_on(tmp_path, methods=[{"name": "SSelect", **parameters}])
    refused(daskfs("plan", write_job(tmp_path, job)), 2, "SSelect", *parts)
