"""What an evaluation leaves behind: its tables, what run.json says of it, images, and the report."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from matplotlib.image import imread
from scipy import stats

from daskfs.ranking.images import ON
from tests.cli.command import basic_job, but_trust, daskfs, refused, rows_of, write_job

pytestmark = pytest.mark.cluster

METHODS: list[Any] = [
    "LaplacianScore",
    "FisherScore",
    {"name": "SSelect", "n_neighbors": 3, "grid": {"trade_off": [0, 0.5]}},
]
LABELS = [method if isinstance(method, str) else "" for method in METHODS[:2]] + [
    "SSelect trade_off=0",
    "SSelect trade_off=0.5",
]
N_SELECTED, AMOUNTS, N_DRAWS, N_SPLITS = (2, 5), (2, 0.5), 2, 2
EVALUATE = {
    "setting": "both",
    "labels": list(AMOUNTS),
    "n_draws": N_DRAWS,
    "n_splits": N_SPLITS,
    "n_selected": list(N_SELECTED),
    "models": ["knn", "kmeans"],
    "baselines": False,
}
TABLES = ("evaluation", "evaluation_summary", "comparisons", "gap", "stability", "selection_frequency")
TYPES = {"bool": "bool", "int64": "int64", "double": "float64", "string": "string"}


def images() -> tuple[np.ndarray, np.ndarray]:
    """Return images of 4 x 3 pixels as rows, shape (48, 12), and their classes; the last pixel is constant."""
    generator = np.random.default_rng(2)
    y = np.arange(48) % 3
    X = generator.normal(size=(48, 12))
    X[:, [0, 4, 8]] += y[:, None] * np.array([1.0, 0.7, 0.4])
    X[:, 11] = 1.0
    return X, y


def image_job(folder: Path, **blocks: Any) -> dict[str, Any]:
    """Write the images, and return a job on them."""
    job = basic_job(folder, **blocks)
    X, y = images()
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    return job


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished run; nothing may change it."""
    folder = tmp_path_factory.mktemp("outputs")
    job = image_job(folder, methods=METHODS, evaluate=EVALUATE)
    job["data"]["image_shape"] = [4, 3]
    outcome = daskfs("run", write_job(folder, job), "-q")
    assert outcome.code == 0
    (warning,) = outcome.err.splitlines()
    assert "saw the labels of the rows that models are tested on" in warning
    return folder / "run"


def read(run: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run / f"{name}.parquet").to_pylist()
    return rows


# ------------------------------------------------------------------------------------------------------------- tables
@pytest.mark.parametrize("name", TABLES)
def test_csv_and_parquet_hold_the_same(run: Path, name: str) -> None:
    rows = [
        {k: "" if v is None else repr(v) if isinstance(v, float) else str(v) for k, v in row.items()}
        for row in read(run, name)
    ]
    assert rows == rows_of(run / f"{name}.csv")
    assert rows


def test_columns_that_are_empty_keep_their_type(run: Path) -> None:
    types = {field.name: str(field.type) for field in pq.read_schema(run / "evaluation.parquet")}
    expected = {name: "int64" for name in ("n_selected", "n_labeled", "repeat", "fold", "n_classes", "subset", "draw")}
    text = dict.fromkeys(("method", "metric", "model", "setting"), "string")
    assert types == {**expected, **text, "n_tested": "int64", "value": "double", "labels": "double"}
    assert {row["n_classes"] for row in read(run, "evaluation")} == {None}


def test_summary_is_of_the_values(run: Path) -> None:
    values = defaultdict(list)
    keys = ("method", "model", "metric", "setting", "n_classes", "labels")
    for row in read(run, "evaluation"):
        values[tuple(row[key] for key in keys), row["n_selected"]].append(row)
    summary = {(tuple(row[key] for key in keys), row["n_selected"]): row for row in read(run, "evaluation_summary")}
    assert len(summary) == len(LABELS) * 3 * 2 * len(AMOUNTS) * (len(N_SELECTED) + 1)
    checked = set()
    for (place, size), row in summary.items():
        if size is None:
            parts = [summary[place, n]["mean"] for n in N_SELECTED]
            assert row["mean"] == pytest.approx(np.mean(parts), rel=1e-12)
            continue
        own = values[place, size]
        assert row["mean"] == pytest.approx(np.mean([one["value"] for one in own]), rel=1e-12)
        draws = [[one["value"] for one in own if one["draw"] == draw] for draw in range(N_DRAWS)]
        if draws != [draws[0]] * N_DRAWS:
            half = stats.t.ppf(0.975, N_DRAWS - 1) * np.std(np.mean(draws, axis=1), ddof=1) / np.sqrt(N_DRAWS)
            assert row["high"] - row["low"] == pytest.approx(2 * half, abs=1e-12)
            assert row["n_values"] == len(own)
            checked.add(place[0])
    assert checked == set(LABELS) - {"LaplacianScore"}


def test_draws_that_make_no_difference_count_once(run: Path) -> None:
    rows = [
        row for row in read(run, "evaluation_summary") if row["method"] == "LaplacianScore" and row["n_selected"] == 5
    ]
    by_model = {(row["model"], row["setting"]): row for row in rows}
    assert by_model["knn", "transductive"]["n_values"] == N_SPLITS
    assert by_model["kmeans", "transductive"]["n_values"] == 1
    assert by_model["kmeans", "transductive"]["low"] is None


def test_comparisons_are_of_pairs(run: Path) -> None:
    rows = read(run, "comparisons")
    assert {(row["method"], row["other"]) for row in rows} == set(combinations(LABELS, 2))
    values = {
        tuple(
            row[key] for key in ("setting", "model", "metric", "labels", "n_selected", "method", "draw", "fold")
        ): row["value"]
        for row in read(run, "evaluation")
    }
    one = next(row for row in rows if row["n_selected"] == 5 and row["model"] == "knn" and row["labels"] == 2)
    place = (one["setting"], "knn", "balanced_accuracy", one["labels"], 5)
    pairs = list(product(range(N_DRAWS), range(N_SPLITS)))
    apart = [values[*place, one["method"], *pair] - values[*place, one["other"], *pair] for pair in pairs]
    assert one["difference"] == pytest.approx(np.mean(apart), abs=1e-12)
    assert one["n_pairs"] == len(pairs)
    assert 0 <= one["p_value"] <= 1


def test_gap_is_inductive_minus_transductive(run: Path) -> None:
    summary = {
        tuple(row[key] for key in ("setting", "method", "model", "metric", "labels", "n_selected")): row["mean"]
        for row in read(run, "evaluation_summary")
    }
    rows = read(run, "gap")
    assert len(rows) == len(LABELS) * 3 * len(AMOUNTS) * (len(N_SELECTED) + 1)
    for row in rows:
        place = tuple(row[key] for key in ("method", "model", "metric", "labels", "n_selected"))
        assert row["inductive"] == pytest.approx(summary["inductive", *place], rel=1e-12)
        assert row["transductive"] == pytest.approx(summary["transductive", *place], rel=1e-12)
        assert row["gap"] == pytest.approx(row["inductive"] - row["transductive"], abs=1e-12)


def test_stability_and_frequencies_are_of_the_rankings(run: Path) -> None:
    stability = read(run, "stability")
    assert len(stability) == 2 * len(AMOUNTS) * len(LABELS) * len(N_SELECTED)
    frequencies = defaultdict(list)
    for row in read(run, "selection_frequency"):
        assert 0 < row["frequency"] <= 1
        assert row["name"] == f"x{row['feature']}"
        assert row["rank_low"] <= row["mean_rank"] <= row["rank_high"]
        place = (row["setting"], row["labels"], row["method"], row["n_selected"])
        frequencies[place].append(row["frequency"])
    for row in stability:
        shares = np.array(frequencies[row["setting"], row["labels"], row["method"], row["n_selected"]])
        m, k, d = row["n_rankings"], row["n_selected"], 12
        assert m == N_DRAWS * (N_SPLITS if row["setting"] == "inductive" else 1)
        assert shares.sum() == pytest.approx(k)
        shared = (shares * m * (shares * m - 1)).sum() / (m * (m - 1))
        assert row["kuncheva"] == pytest.approx((shared * d - k * k) / (k * (d - k)))
    unsupervised = [row for row in stability if row["method"] == "LaplacianScore" and row["setting"] == "transductive"]
    assert {(row["kuncheva"], row["jaccard"]) for row in unsupervised} == {(1.0, 1.0)}


def test_the_runs_own_rankings_have_no_stability_and_no_gap(tmp_path: Path) -> None:
    evaluate = {"n_selected": 2, "n_splits": 2, "setting": "transductive", "baselines": False}
    job = image_job(tmp_path, evaluate=evaluate)
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    there = {name for name in TABLES if (tmp_path / "run" / f"{name}.csv").exists()}
    assert there == {"evaluation", "evaluation_summary", "comparisons"}
    page = (tmp_path / "run/report.html").read_text()
    assert "Differences from the best method" not in page
    assert "Model</dt><dd>5-nearest-neighbor classifier, on z-scores of the training fold" in page


def test_overwriting_leaves_no_table_of_the_run_before(tmp_path: Path) -> None:
    evaluate = {"n_selected": 2, "n_splits": 2, "labels": [3], "n_draws": 2}
    job = image_job(tmp_path, evaluate=evaluate)
    job["data"]["image_shape"] = [3, 4]
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    assert (tmp_path / "run/stability.csv").exists()
    job |= {"evaluate": None, "data": {**job["data"], "image_shape": None}}
    assert daskfs("run", write_job(tmp_path, job), "-q", "--overwrite").code == 0
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert not left & {
        "evaluation.csv",
        "stability.csv",
        "stability.parquet",
        "selection_frequency.csv",
        "score_images",
    }


# --------------------------------------------------------------------------------------------------- what goes wrong
def test_rankings_that_fail_are_warned_of(tmp_path: Path) -> None:
    X, _ = images()
    job = image_job(tmp_path, methods=["PearsonScore", "VarianceScore"])
    np.save(tmp_path / "y.npy", X[:, 0])
    job["evaluate"] = {"n_selected": 2, "n_splits": 2, "labels": [1, 6], "n_draws": 3, "setting": "inductive"}
    outcome = daskfs("run", write_job(tmp_path, job), "-q", "--json")
    assert outcome.code == 0
    (warning,) = but_trust(outcome.json["warnings"])
    assert warning.startswith("evaluation: PearsonScore with labels 1: 6 of 6 rankings failed: ")
    assert warning in outcome.err
    assert "PearsonScore with labels 1: 6 of 6 rankings failed" in (tmp_path / "run/report.html").read_text()
    job["methods"] = ["PearsonScore"]
    job["evaluate"]["labels"] = [1]
    outcome = daskfs("run", write_job(tmp_path, job), "-q", "--overwrite")
    refused(outcome, 3, "the evaluation could rank nothing", "PearsonScore with labels 1: 6 of 6 rankings failed")


# ----------------------------------------------------------------------------------------------------- run.json, report
def test_run_json_says_what_the_evaluation_took(run: Path) -> None:
    cost = json.loads((run / "run.json").read_text())["evaluation"]
    n_selections = len(LABELS) * len(AMOUNTS) * N_DRAWS * (1 + N_SPLITS)
    assert (cost["n_selections"], cost["n_tests"]) == (n_selections, n_selections)  # of few values: all sizes at once
    units = {stage["name"]: stage["units"] for stage in cost["stages"]}
    assert (units["select"], units["evaluate"], units["evaluation-tables"]) == (n_selections, cost["n_tests"], 1)
    assert cost["threads"] == 1
    assert 0 < cost["busy_seconds"] <= cost["wall_seconds"]
    assert cost["overhead"] == pytest.approx(1 - cost["busy_seconds"] / cost["wall_seconds"], abs=1e-3)


def test_report_keeps_the_settings_apart(run: Path) -> None:
    page = (run / "report.html").read_text()
    transductive, inductive = page.split('<article id="evaluation-setting-1">')[1].split(
        '<article id="evaluation-setting-2">'
    )
    inductive, gap = inductive.split('<article id="evaluation-gap">')
    assert "This evaluation is transductive." in transductive
    assert "This evaluation is inductive." in inductive
    for part in (transductive, inductive):
        for text in (
            "knn, balanced_accuracy, labels 2",
            "kmeans, nmi, labels 50 %",
            "SSelect: knn, balanced_accuracy by trade_off",
        ):
            assert text in part, text
        assert "Kuncheva index by number of selected features" in part
        assert "knn, balanced_accuracy by labels that the selection sees" in part
    assert "balanced_accuracy: inductive minus transductive" in gap
    for text in ("2, 50 % of each class, each drawn 3 times", "Waiting and scheduling", "Rows used"):
        assert text in page or text == "2, 50 % of each class, each drawn 3 times", text
    assert "<script" not in page


# --------------------------------------------------------------------------------------------------------------- images
def pixels(path: Path, shape: tuple[int, int]) -> np.ndarray:
    """Return the colors of each pixel of an image, shape (rows, columns, 4), uint8."""
    found = np.rint(imread(io.BytesIO(path.read_bytes()), format="png") * 255).astype(int)
    rows, columns = found.shape[0] // shape[0], found.shape[1] // shape[1]
    blocks = found.reshape(shape[0], rows, shape[1], columns, 4)
    assert (blocks == blocks[:, :1, :, :1]).all()
    result: np.ndarray = blocks[:, 0, :, 0]
    return result


def test_score_images_are_bright_where_features_are_relevant(run: Path) -> None:
    for label, sign in (("FisherScore", 1), ("LaplacianScore", -1)):
        rows = [row for row in rows_of(run / "ranking.csv") if row["method"] == label]
        scores = np.array([float(row["score"] or "nan") for row in sorted(rows, key=lambda row: int(row["feature"]))])
        scores *= sign
        image = pixels(run / "score_images" / f"{label}.png", (4, 3)).reshape(12, 4)
        assert image[11].tolist() == [213, 94, 0, 255]
        share = (scores - np.nanmin(scores)) / (np.nanmax(scores) - np.nanmin(scores))
        np.testing.assert_array_equal(image[:11], np.c_[np.rint(share * 255)[:11].repeat(3).reshape(11, 3), [255] * 11])


def test_selected_features_are_shown_at_the_first_numbers(run: Path) -> None:
    rows = [row for row in rows_of(run / "ranking.csv") if row["method"] == "FisherScore"]
    image = pixels(run / "score_images" / "FisherScore-selected.png", (4, 7))
    assert (image[:, 3] == 0).all()
    for size, part in zip(N_SELECTED, (image[:, :3, 0], image[:, 4:, 0]), strict=True):
        first = {int(row["feature"]) for row in rows[:size]}
        assert set(np.flatnonzero(part.ravel() == ON).tolist()) == first
        assert (np.delete(part.ravel(), list(first)) < 100).all()


def test_digits_as_images_in_the_report(tmp_path: Path) -> None:
    job = basic_job(tmp_path, methods=["VarianceScore"])
    job["data"] = {"source": "sklearn:digits", "image_shape": [8, 8]}
    job["select"] = {"n_features": 10}
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    page = (tmp_path / "run/report.html").read_text()
    assert 'aria-label="Scores of VarianceScore as an image of 8 \N{MULTIPLICATION SIGN} 8"' in page
    assert 'aria-label="First 10 features of VarianceScore as images"' in page
    assert "Colored pixels are excluded." in page
    first = pixels(tmp_path / "run/score_images/VarianceScore-selected.png", (8, 8))[..., 0]
    assert (first == ON).sum() == 10
    column_major = {**job, "data": {**job["data"], "image_order": "F"}, "output": {"path": str(tmp_path / "F")}}
    assert daskfs("run", write_job(tmp_path, column_major), "-q").code == 0
    turned = pixels(tmp_path / "F/score_images/VarianceScore-selected.png", (8, 8))[..., 0]
    np.testing.assert_array_equal(turned, first.T)


@pytest.mark.parametrize("converted", [False, True])
def test_shapes_that_do_not_fit_are_refused(tmp_path: Path, converted: bool) -> None:
    job = basic_job(tmp_path, methods=["VarianceScore"])
    job["data"] = {"source": "sklearn:digits", "image_shape": [8, 9]}
    if converted:
        assert daskfs("convert", "sklearn:digits", tmp_path / "digits.zarr", "--workers", 0, "-q").code == 0
        job["data"]["source"] = str(tmp_path / "digits.zarr")
    outcome = daskfs("run", write_job(tmp_path, job), "-q")
    refused(outcome, 2, "data.image_shape [8, 9] stands for 72 features, and X has 64")


def test_two_images_of_one_name_are_refused(tmp_path: Path) -> None:
    methods = ["VarianceScore", {"name": "FisherScore", "label": "VarianceScore-selected"}]
    job = basic_job(tmp_path, methods=methods)
    job["data"]["image_shape"] = [2, 2]
    refused(daskfs("run", write_job(tmp_path, job), "-q"), 2, "would have one image")
