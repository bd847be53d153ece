"""Kolmogorov-Smirnov and information gain, reached through the estimators and through a job."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ks_2samp
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import mutual_info_score

from daskfs import InformationGainScore, KolmogorovSmirnovScore
from daskfs.criteria import statistics
from daskfs.kernels.statistics.distributions import distributions
from daskfs.store import layout
from daskfs.store.store import Store
from tests.cli.command import basic_job, daskfs, rows_of, write_job
from tests.cli.command import labels as command_labels
from tests.cli.command import matrix as command_matrix
from tests.reference.distributions import bins_of, information_gain, kolmogorov_smirnov

FloatArray = NDArray[np.float64]


def partly(y: NDArray[np.int64], share: float = 0.4) -> NDArray[np.int64]:
    return np.where(np.random.default_rng(0).uniform(size=len(y)) < share, y, -1)


class TestKolmogorovSmirnov:
    def test_scipy_on_two_classes(self) -> None:
        X, y = load_breast_cancer(return_X_y=True)
        expected = [ks_2samp(f[y == 0], f[y == 1], method="asymp") for f in X.T]
        fitted = KolmogorovSmirnovScore().fit(X, y)
        np.testing.assert_allclose(fitted.scores_, [e.statistic for e in expected], rtol=1e-13)
        np.testing.assert_array_equal(fitted.score_fields_["threshold"], [e.statistic_location for e in expected])

    @pytest.mark.parametrize("load", [load_iris, load_wine])
    def test_reference_on_partly_labeled_rows(self, load: object) -> None:
        X, y = load(return_X_y=True)  # type: ignore[operator]
        known = partly(y)
        np.testing.assert_allclose(
            KolmogorovSmirnovScore().fit(X, known).scores_, kolmogorov_smirnov(X, known), rtol=1e-13
        )

    def test_iris(self) -> None:
        X, y = load_iris(return_X_y=True)
        np.testing.assert_allclose(KolmogorovSmirnovScore().fit(X, y).scores_, [0.92, 0.68, 1.0, 1.0], rtol=1e-14)

    def test_only_the_order_of_values_counts(self) -> None:
        X, y = load_wine(return_X_y=True)
        expected = KolmogorovSmirnovScore().fit(X, y).scores_
        for scaled in (X * 2 + 64, X**3, -X):
            np.testing.assert_allclose(KolmogorovSmirnovScore().fit(scaled, y).scores_, expected, rtol=1e-13)

    def test_one_row_of_each_class(self) -> None:
        fitted = KolmogorovSmirnovScore().fit(np.array([[1.0, 2.0, 5.0], [3.0, 2.0, 4.0], [9.0, 9.0, 9.0]]), [0, 1, -1])
        np.testing.assert_array_equal(fitted.scores_, [1.0, np.nan, 1.0])
        assert fitted.ranking_.tolist() == [1, 3, 2]


class TestInformationGain:
    @pytest.mark.parametrize("n_bins", [2, 5, 10])
    @pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
    def test_reference(self, load: object, n_bins: int) -> None:
        X, y = load(return_X_y=True)  # type: ignore[operator]
        for known in (y, partly(y)):
            found = InformationGainScore(n_bins=n_bins).fit(X, known).scores_
            np.testing.assert_allclose(found, information_gain(X, known, n_bins), rtol=1e-12, atol=1e-14)

    def test_presence_of_words(self) -> None:
        X, y = load_digits(return_X_y=True)
        present = (X > 7).astype(np.uint8)
        for n_bins in (2, 10):
            fitted = InformationGainScore(n_bins=n_bins).fit(present, y)
            for f, score, edges in zip(present.T, fitted.scores_, fitted.bin_edges_, strict=True):
                if f.min() == f.max():
                    assert np.isnan(score)
                    continue
                assert score == pytest.approx(mutual_info_score(y, f) / np.log(2), rel=1e-9, abs=1e-14)
                np.testing.assert_array_equal(edges, [1.0] + [np.nan] * (n_bins - 2))

    def test_edges(self) -> None:
        X, y = load_wine(return_X_y=True)
        fitted = InformationGainScore(n_bins=6).fit(X, y)
        assert fitted.bin_edges_.shape == (13, 5)
        for f, edges, in_use in zip(X.T, fitted.bin_edges_, fitted.score_fields_["bins_in_use"], strict=True):
            bins = np.searchsorted(edges[~np.isnan(edges)], f, side="right")
            assert np.unique(bins).size == in_use
            np.testing.assert_array_equal(np.unique(bins_of(f, 6), return_inverse=True)[1], bins)

    def test_limits(self) -> None:
        y = np.repeat([0, 1, 2, 3], 25)
        X = np.column_stack([y, -y, y // 2, np.tile(np.arange(25), 4), np.zeros(100)]).astype(np.float64)
        fitted = InformationGainScore(n_bins=4).fit(X, y)
        np.testing.assert_allclose(fitted.scores_, [2.0, 2.0, 1.0, 0.0, np.nan], rtol=1e-14)
        assert fitted.scores_[3] == 0.0
        assert fitted.ranking_.tolist() == [1, 2, 3, 4, 5]

    @pytest.mark.parametrize("n_bins", [1, 0, 2.5, 1001, "many"])
    def test_number_of_bins(self, n_bins: object) -> None:
        X, y = load_iris(return_X_y=True)
        with pytest.raises(ValueError, match="InformationGainScore, parameter 'n_bins': "):
            InformationGainScore(n_bins=n_bins).fit(X, y)  # type: ignore[arg-type]


METHODS = [
    "KolmogorovSmirnovScore",
    "InformationGainScore",
    {"name": "InformationGainScore", "label": "three bins", "n_bins": 3},
]


@pytest.mark.cluster
class TestJob:
    def test_scores_and_edges(self, tmp_path: Path) -> None:
        job = basic_job(tmp_path, methods=METHODS)
        assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
        X, y = command_matrix(), command_labels()
        by_label = {
            "KolmogorovSmirnovScore": KolmogorovSmirnovScore().fit(X, y),
            "InformationGainScore": InformationGainScore().fit(X, y),
            "three bins": InformationGainScore(n_bins=3).fit(X, y),
        }
        for row in rows_of(tmp_path / "run" / "ranking.csv"):
            fitted = by_label[row["method"]]
            feature = int(row["feature"])
            if feature == 3:
                assert (row["score"], row["note"]) == ("", "constant feature")
                continue
            assert float(row["score"]) == fitted.scores_[feature]
            assert int(row["rank"]) == fitted.ranking_[feature]
        for label, fitted in by_label.items():
            table = Store(tmp_path / "run").open(layout.SCORES.format(label))[...]
            np.testing.assert_array_equal(table, list(fitted.score_fields_.values()))

    def test_one_sort_serves_all(self, tmp_path: Path) -> None:
        job = write_job(tmp_path, basic_job(tmp_path, methods=METHODS))
        with mock.patch.object(statistics, "distributions", side_effect=distributions) as sorts:
            assert daskfs("run", job, "-q").code == 0
        assert [call.args[2] for call in sorts.call_args_list] == [[10, 3]]

    def test_a_target_has_no_classes(self, tmp_path: Path) -> None:
        job = basic_job(tmp_path, methods=METHODS[:1])
        job["data"]["task"] = "regression"
        outcome = daskfs("run", write_job(tmp_path, job), "-q")
        assert outcome.code == 3
        assert "KolmogorovSmirnovScore is for classification, and data.task is regression" in outcome.err
