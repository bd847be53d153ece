"""Warnings about what limits the trust in a ranking, from the command line."""

from __future__ import annotations

import json
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from daskfs import VarianceScore, evaluate_selectors
from tests.cases import each
from tests.cli.command import daskfs, refused, write_job

FloatArray = NDArray[np.float64]
N = 120


def warnings_of(folder: Path, X: FloatArray, y: NDArray[Any], methods: list[str], **blocks: Any) -> list[str]:
    """Run a job on values and labels, and return its warnings."""
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    job = {
        "data": {"source": str(folder / "X.npy"), "labels": str(folder / "y.npy")},
        "methods": methods,
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(folder / "run")},
        **blocks,
    }
    outcome = daskfs("run", write_job(folder, job), "-q", "--json")
    assert outcome.code == 0, outcome.err
    page = (folder / "run" / "report.html").read_text()
    found = [one["text"] for one in outcome.json["warnings"]]
    assert all(text.split("'")[0] in page for text in found)
    return found


def noise(n_features: int = 12) -> FloatArray:
    return np.random.default_rng(0).normal(size=(N, n_features))


def classes(n_classes: int = 3) -> NDArray[np.int64]:
    return np.arange(N) % n_classes


def test_honest_data_give_no_warning(tmp_path: Path) -> None:
    X = noise()
    X[:, 0] += classes()
    assert warnings_of(tmp_path, X, classes(), ["FisherScore", "VarianceScore"]) == []


@pytest.mark.parametrize("is_filtered", [False, True])
def test_copies_among_the_first_features(tmp_path: Path, is_filtered: bool) -> None:
    X = noise()
    X[:, :5] = X[:, :1] * [1, -2, 3, 4, 5] + 0.01 * X[:, :5] + [0, 0, 9, 9, 9]
    select = {"select": {"redundancy": {"threshold": 0.95}}} if is_filtered else {}
    found = warnings_of(tmp_path, X, classes(), ["VarianceScore", "FisherScore"], **select)
    run, page = json.loads((tmp_path / "run" / "run.json").read_text()), (tmp_path / "run" / "report.html").read_text()
    table = page[page.index("First features of each method") :]
    rows = re.findall(r"<tr>.*?</tr>", table[: table.index("</table>")], re.DOTALL)
    shown = [re.findall(r'title="(x\d+)"', row) for row in rows[1:]]  # below the header
    # of what may be selected, as on the terminal; a filter leaves methods lists of several lengths
    assert shown == [
        [name for name in names if name] for names in zip_longest(*(one["features"] for one in run["best"]))
    ]
    copies = [text for text in found if "copies of better ones" in text]
    if is_filtered:
        assert not copies
    else:
        assert "4 of 10 of VarianceScore" in copies[0]
        assert "select: {redundancy: {threshold: 0.95}}" in copies[0]


@each("n_classes", [2, 3])
def test_a_feature_that_tells_the_classes(tmp_path_factory: pytest.TempPathFactory, n_classes: int) -> None:
    X, y = noise(), classes(n_classes)
    X[:, 3] = 10 - 2 * y + 0.1 * X[:, 3]
    (found,) = warnings_of(tmp_path_factory.mktemp("leak"), X, y, ["FisherScore"])
    assert found.startswith("feature x3: it alone separates the classes; leave it out (data.exclude)")


def test_a_feature_that_repeats_the_target(tmp_path: Path) -> None:
    X = noise()
    (found,) = warnings_of(tmp_path, X, 3 - 2 * X[:, 5], ["PearsonScore"])
    assert found.startswith("feature x5: it alone repeats the target")


def test_few_rows_separate_by_accident(tmp_path: Path) -> None:
    """Of 20 rows and many features one does; nothing is said of it."""
    X = np.random.default_rng(0).normal(size=(20, 3000))
    X[:, 7] = np.arange(20) % 2 + 0.1 * X[:, 7]
    assert warnings_of(tmp_path, X, np.arange(20) % 2, ["FisherScore"]) == []


def test_rows_that_are_there_twice_across_folds(tmp_path: Path) -> None:
    """Not if a group keeps them together."""
    X, y = noise(), np.arange(N) % 3
    X[60:64], y[60:64] = X[:4], y[:4]
    evaluate = {"n_selected": [3], "n_splits": 60 // 3}
    found = warnings_of(tmp_path, X, y, ["VarianceScore"], evaluate=evaluate)
    (twice,) = (text for text in found if "copies of rows" in text)
    assert twice.startswith("copies of rows: 8 of 120 tested rows have one among the rows that models")
    selected = evaluate_selectors([VarianceScore()], sp.csr_matrix(X), y, n_selected=3, n_splits=20)
    assert twice in map(str, selected.warnings)
    together = np.where((np.arange(N) >= 60) & (np.arange(N) < 64), np.arange(N) - 60, np.arange(N))
    assert not evaluate_selectors([VarianceScore()], X, y, groups=together, n_selected=3, n_splits=5).warnings


def test_numbers_of_features_that_are_more_than_there_are(tmp_path: Path) -> None:
    evaluate = {"n_selected": [3, 12, 13, 50], "n_splits": 3}
    found = warnings_of(tmp_path, noise() + classes()[:, None], classes(), ["VarianceScore"], evaluate=evaluate)
    note = "evaluation: n_selected 13, 50 left out, as the data have 12 features"
    assert note in found
    X, y = noise(), classes()
    selected = evaluate_selectors([VarianceScore()], X, y, n_selected=[3, 13, 50], n_splits=3)
    assert note in map(str, selected.warnings)
    assert not evaluate_selectors([VarianceScore()], X, y, n_splits=3).warnings


def test_features_of_one_name(tmp_path: Path) -> None:
    names = [f"g{min(place, 10)}" for place in range(12)]
    (tmp_path / "names.txt").write_text("\n".join(names))
    data = {
        "source": str(tmp_path / "X.npy"),
        "labels": str(tmp_path / "y.npy"),
        "feature_names": str(tmp_path / "names.txt"),
    }
    (found,) = warnings_of(tmp_path, noise(), classes(), ["VarianceScore"], data=data)
    assert found.startswith("several features are named 'g10': tables tell them apart by number")


def test_classes_that_look_like_a_target(tmp_path: Path) -> None:
    ages = np.random.default_rng(1).integers(18, 60, size=N)
    (found,) = warnings_of(tmp_path, noise(), ages, ["FisherScore"])
    assert "whole numbers, some in fewer than 3 rows" in found
    assert "data.task: regression" in found
    assert "PearsonScore" in found


def test_a_criterion_of_another_task_names_those_that_would_do(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", noise())
    np.save(tmp_path / "y.npy", noise()[:, 0])
    job = {
        "data": {"source": str(tmp_path / "X.npy"), "labels": str(tmp_path / "y.npy")},
        "methods": ["FisherScore"],
        "output": {"path": str(tmp_path / "run")},
    }
    words = ("FisherScore is for classification", "set data.task", "SupervisedLaplacianScore", "PearsonScore")
    refused(daskfs("run", write_job(tmp_path, job), "-q"), 3, *words)


def test_classes_of_few_rows(tmp_path: Path) -> None:
    y = np.where(np.arange(N) < 4, "rare", np.where(np.arange(N) % 2, "a", "b"))
    (found,) = warnings_of(tmp_path, noise(), y, ["VarianceScore"])
    assert "('rare' 4)" in found


def test_methods_no_better_than_chance(tmp_path: Path) -> None:
    """The columns of the largest variances tell nothing; with all features every order is as good."""
    X = noise(20)
    y = (X[:, 10:].sum(axis=1) > 0).astype(int)
    X[:, :10] *= 100
    evaluate = {"n_selected": [5, 20], "n_splits": 3}
    (found,) = warnings_of(tmp_path, X, y, ["VarianceScore", "FisherScore"], evaluate=evaluate)
    assert found.startswith("verdict: a random order of the features does as well as VarianceScore on these data")
