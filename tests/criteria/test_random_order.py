"""RandomOrder: its numbers, and that an evaluation's rankings have orders of their own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_wine

from daskfs import RandomOrder, evaluate_selectors
from daskfs.criteria.random_order import ChanceParameters, uniform_numbers
from daskfs.criteria.registry import make_method
from daskfs.evaluation.design import ClassSubset, Selection

X, Y = load_wine(return_X_y=True)


def test_known_numbers() -> None:
    """As NumPy's documentation prints them of ``default_rng(0)``: they stay the same in all versions."""
    known = [0.6369616873214543, 0.2697867137638703, 0.04097352393619469, 0.016527635528529094]
    assert uniform_numbers(np.arange(4), 0).tolist() == known


def test_scores_are_those_of_the_reference() -> None:
    data = X.copy()
    data[:, 4] = 7.0
    expected = np.where(np.arange(13) == 4, np.nan, np.random.default_rng(5).random(13))
    np.testing.assert_array_equal(RandomOrder(random_state=5).fit(data).scores_, expected)


def test_values_and_labels_have_no_say() -> None:
    expected = RandomOrder().fit(X).ranking_
    np.testing.assert_array_equal(
        RandomOrder().fit(np.random.default_rng(0).normal(size=(9, 13)), Y[:9]).ranking_, expected
    )
    assert (RandomOrder(random_state=1).fit(X).ranking_ != expected).any()


def test_weights_say_which_features_are_constant_and_nothing_else() -> None:
    data, weights = X.copy(), (np.arange(len(X)) % 3).astype(np.float64)
    data[:, 4] = np.where(weights > 0, 2.5, np.arange(len(X)))
    expected = np.where(np.arange(13) == 4, np.nan, RandomOrder().fit(X).scores_)
    np.testing.assert_array_equal(RandomOrder().fit(data, sample_weight=weights).scores_, expected)


def test_numbers_are_uniform_and_every_part_of_them_is_drawn_alone() -> None:
    whole = uniform_numbers(np.arange(100_000), 3)
    assert stats.kstest(whole, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(whole[:-1], whole[1:])[0, 1]) < 0.01
    np.testing.assert_array_equal(uniform_numbers(np.arange(70_000, 70_010), 3), whole[70_000:70_010])


def test_rankings_of_different_rows_are_by_different_seeds() -> None:
    class_subsets = [ClassSubset(0), ClassSubset(0, 2, 0), ClassSubset(1, 2, 1)]
    places = [(subset, draw, repeat) for subset in class_subsets for draw in (None, 0, 1) for repeat in (None, 0, 1)]
    selections = [Selection(0, "m", "inductive", c, None, d, r, r) for c, d, r in places]
    parameters = ChanceParameters(random_state=7)
    seeds = [parameters.redrawn(selection.place).random_state for selection in selections if selection.place]
    assert len(set(seeds)) == len(seeds) == 26
    assert selections[0].place == ()
    other = make_method("VarianceScore", {}).parameters
    assert other.redrawn((1, 2, 3)) is other


@pytest.mark.cluster
def test_draws_have_orders_of_their_own_whatever_the_amount_of_labels() -> None:
    found = evaluate_selectors(
        [RandomOrder()], X, Y, labels=[2, 5], n_draws=3, n_selected=3, models="ridge", setting="transductive"
    )
    rows = found.selection_frequency.to_pylist()
    ranks = {labels: [row["mean_rank"] for row in rows if row["labels"] == labels] for labels in (2.0, 5.0)}
    assert ranks[2.0] == ranks[5.0]
    stability = found.stability.to_pylist()
    assert [(row["labels"], row["n_rankings"]) for row in stability] == [(2.0, 3), (5.0, 3)]
    assert all(row["jaccard"] < 0.6 for row in stability)
