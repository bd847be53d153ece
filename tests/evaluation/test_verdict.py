"""The verdict: what is chosen, and that its value is corrected for the choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_iris, load_wine

from daskfs import FisherScore, PearsonScore, RandomOrder, VarianceScore, evaluate_selectors
from daskfs.evaluation.design import Design
from daskfs.evaluation.significance import mean_interval
from daskfs.evaluation.summaries import Cube
from daskfs.evaluation.verdict import verdict_of
from daskfs.report.terminal import best_lines, verdict_lines
from tests.cases import each
from tests.planning import evaluation_parameters

FloatArray = NDArray[np.float64]
N_FEATURES = 100


def design(methods: list[str], sizes: list[int], **changed: Any) -> Design:
    plain: dict[str, Any] = {"n_selected": tuple(sizes), "n_splits": 5, "setting": "inductive"}
    return Design(evaluation_parameters(methods, **{**plain, **changed}))


def judged(values: FloatArray, metric: str = "accuracy", n_repeats: int = 1, **changed: Any) -> dict[str, Any]:
    """Return the verdict on values of shape (n_methods, n_sizes, n_repeats * n_splits)."""
    methods = [f"m{place}" for place in range(values.shape[0])]
    sizes = [10 * 2**place for place in range(values.shape[1])]
    n_splits = values.shape[2] // n_repeats
    cells = tuple((None, None, repeat, fold) for repeat in range(n_repeats) for fold in range(n_splits))
    own = {"methods": tuple(methods), "sizes": tuple(sizes), "cells": cells, "values": values, **changed}
    cube = Cube("inductive", "knn", metric, None, None, **own, test_share=1 / n_splits)
    found = verdict_of([cube], design(methods, sizes), ())
    assert found is not None
    return found


def test_one_method_of_one_size_is_not_corrected_away() -> None:
    values = np.array([[[0.6, 0.8, 0.7, 0.9, 0.5]]])
    found = judged(values)
    interval = mean_interval(values[0, 0], np.zeros(5, np.int64), 0.2)
    assert (found["score"], found["uncorrected"], found["n_compared"]) == (interval.mean, values.mean(), 1)
    assert (found["low"], found["high"]) == pytest.approx((interval.low, min(interval.high, 1.0)))


def test_the_smallest_size_within_one_standard_error_is_chosen() -> None:
    folds = np.array([-0.02, 0.0, 0.02, -0.02, 0.02])
    means = np.array([[0.70, 0.79, 0.80], [0.60, 0.795, 0.79]])
    found = judged(means[:, :, None] + folds)
    assert (found["method"], found["n_selected"]) == ("m1", 20)
    assert judged(means[:, :, None] + folds / 20)["n_selected"] == 40


@pytest.mark.parametrize("n_repeats", [1, 2])
def test_each_fold_is_scored_by_the_choice_of_the_others(n_repeats: int) -> None:
    values = np.random.default_rng(3).uniform(size=(4, 3, 5 * n_repeats))
    scored = []
    for cell in range(values.shape[2]):
        repeat = cell // 5
        others = [5 * repeat + fold for fold in range(5) if fold != cell % 5]
        chosen = judged(values[:, :, others])
        scored.append(values[int(chosen["method"][1:]), [10, 20, 40].index(chosen["n_selected"]), cell])
    assert judged(values, n_repeats=n_repeats)["score"] == pytest.approx(np.mean(scored))


def test_chance_is_not_good_however_many_are_compared() -> None:
    """The best of 48 is .06 too good; 1,000 verdicts have a standard error of .002."""
    rng = np.random.default_rng(0)
    found = [judged(rng.normal(0.5, 0.1, (8, 6, 5))) for _ in range(1000)]
    assert np.mean([one["score"] for one in found]) == pytest.approx(0.5, abs=0.008)
    assert np.mean([one["uncorrected"] for one in found]) > 0.54
    covered = [one["low"] <= 0.5 <= one["high"] for one in found]
    assert np.mean(covered) > 0.93


def test_small_errors_are_good_and_intervals_stay_in_range() -> None:
    values = np.array([[[1.0, 1.2, 0.9, 1.1, 4.0]], [[2.0, 2.2, 1.9, 2.1, 5.0]]])
    found = judged(values, "rmse")
    assert (found["method"], found["low"], found["higher_is_better"]) == ("m0", 0.0, False)
    found = judged(np.array([[[1.0, 1.0, 1.0, 1.0, 0.5]]]), "r2")
    assert found["high"] == 1.0
    assert found["low"] is not None
    assert found["low"] > 0


def test_values_that_are_missing_choose_nothing() -> None:
    values = np.full((2, 2, 5), np.nan)
    values[1, 0] = [0.4, 0.5, 0.6, 0.5, 0.4]
    found = judged(values)
    assert (found["method"], found["n_selected"], found["n_compared"]) == ("m1", 10, 1)
    cube = Cube(
        "inductive", "knn", "accuracy", None, None, ("m0",), (10,), ((None, None, 0, 0),), values[:1, :1, :1], 0.2
    )
    assert verdict_of([cube], design(["m0"], [10]), ()) is None


# ----------------------------------------------------------------------------------- of real evaluations
def test_baselines_stand_beside_it() -> None:
    X, y = load_wine(return_X_y=True)
    noisy = np.hstack([X, np.random.default_rng(0).normal(size=(len(X), 30))])
    found = evaluate_selectors([FisherScore(), VarianceScore()], noisy, y, n_selected=[2, 5])
    assert found.verdict is not None
    means = {(row["method"], row["n_selected"]): row["mean"] for row in found.summary.to_pylist()}
    verdict = found.verdict
    assert verdict["method"] == "FisherScore"
    assert verdict["all_features"] == pytest.approx(means["AllFeatures", 43])
    assert verdict["random_order"] == pytest.approx(means["RandomOrder", verdict["n_selected"]])
    assert (verdict["no_feature"], verdict["no_feature_name"]) == (pytest.approx(1 / 3), "MajorityClass")
    assert verdict["n_compared"] == 4
    assert verdict["beaten"] == []
    assert 0 < verdict["agreement"] <= 1


def test_a_method_that_a_random_order_beats_is_named() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 40))
    y = X[:, 20:].sum(axis=1)
    X[:, :20] *= 100  # the largest variances tell nothing
    found = evaluate_selectors([VarianceScore(), PearsonScore(), RandomOrder()], X, y, n_selected=[5, 15])
    assert found.verdict is not None
    assert (found.verdict["method"], found.verdict["beaten"]) == ("PearsonScore", ["VarianceScore"])


def test_values_without_a_choice_to_correct_say_so() -> None:
    X, y = load_iris(return_X_y=True)
    found = evaluate_selectors(
        [FisherScore(), VarianceScore()], X, y, n_selected=[2], labels=5, n_draws=1, train_on="labeled",
        setting="transductive",
    )  # fmt: skip
    assert found.verdict is not None
    assert not found.verdict["is_corrected"]
    assert "too good by that choice" in verdict_lines(found.verdict, 4)[0]


# ----------------------------------------------------------------------------------- on the terminal
@each(("columns", "shown", "more"), [(200, 3, None), (30, 1, "and 2 more methods"), (60, 2, "and 1 more method ")])
def test_as_many_methods_as_the_terminal_is_wide(
    monkeypatch: pytest.MonkeyPatch, columns: int, shown: int, more: str | None
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    best = [{"method": f"method number {place}", "features": ["a", "b" * 50], "is_best": False} for place in range(3)]
    lines = best_lines(best)
    assert lines[0].count("method number") == shown
    assert max(map(len, lines[:3])) <= columns
    assert "…" in lines[2]
    assert (len(lines) == 3) if more is None else lines[3].startswith(more)
