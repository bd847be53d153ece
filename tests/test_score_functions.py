"""Score functions: scikit-learn's selectors choose with them what the selectors of daskfs choose."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.feature_selection import SelectKBest

import daskfs
from daskfs import score_functions
from daskfs.estimators.base import ScoreSelector

FUNCTIONS = [
    name
    for name, made in vars(score_functions).items()
    if getattr(made, "__qualname__", "") == name and name.islower() and not name.startswith("_")
]
X, y = load_wine(return_X_y=True)
CLASSES = X / X.std(axis=0) * np.linspace(1, 1.3, 13), y
TARGET = load_diabetes(return_X_y=True)


def selector_of(name: str) -> type[ScoreSelector]:
    found = {one.lower(): one for one in dir(daskfs)}
    made: type[ScoreSelector] = getattr(daskfs, found[name.replace("_", "")])
    return made


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_features_are_selected(name: str) -> None:
    selector = selector_of(name)
    X, y = TARGET if name in {"pearson_score", "semisupervised_laplacian_score"} else CLASSES
    ours = selector(4).fit(X, y)
    theirs = SelectKBest(getattr(score_functions, name), k=4).fit(X, y)
    np.testing.assert_array_equal(np.abs(theirs.scores_), np.abs(ours.scores_))
    np.testing.assert_array_equal(theirs.get_support(), ours.get_support())


def test_parameters_and_no_labels() -> None:
    X = CLASSES[0]
    wanted: Any = partial(score_functions.laplacian_score, n_neighbors=3, graph_scaling="zscore")
    found = SelectKBest(wanted, k=3).fit(X)
    ours = daskfs.LaplacianScore(3, n_neighbors=3, graph_scaling="zscore").fit(X)
    np.testing.assert_array_equal(found.get_support(), ours.get_support())
