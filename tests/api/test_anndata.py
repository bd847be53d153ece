"""Selectors of the features of an AnnData, in memory and backed by a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import daskfs
from daskfs.errors import InputError
from tests.api.test_rank import CLASSES, NAMES, cells, values
from tests.optional import anndata
from tests.optional import pandas as pd


@contextmanager
def backed(folder: Path) -> Iterator[Any]:
    """Yield an AnnData that is backed by a file."""
    cells().write_h5ad(folder / "cells.h5ad")
    made = anndata.read_h5ad(folder / "cells.h5ad", backed="r")
    try:
        yield made
    finally:
        made.file.close()


def in_memory(kind: Callable[[np.ndarray], Any]) -> Any:
    made = cells()
    made.X = kind(values())
    return made


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csc_matrix], ids=["dense", "csr", "csc"])
def test_fit_and_transform(kind: Callable[[np.ndarray], Any]) -> None:
    made = in_memory(kind)
    for selector, y in (
        (daskfs.FisherScore(2), CLASSES),
        (daskfs.LaplacianScore(2), None),
        (daskfs.SVMRFE(2), CLASSES),
    ):
        expected = selector.fit(kind(values()), y).scores_
        fitted = selector.fit(made, None if y is None else "kind")
        np.testing.assert_array_equal(fitted.scores_, expected)
        assert fitted.feature_names_in_.tolist() == NAMES
        assert fitted.transform(made).var_names.tolist() == fitted.get_feature_names_out().tolist()
        assert fitted.transform(made).shape == (made.n_obs, 2)
    view = made[10:, 1:]
    scores = daskfs.FisherScore().fit(view, "kind").scores_
    np.testing.assert_array_equal(scores, daskfs.FisherScore().fit(kind(values())[10:, 1:], CLASSES[10:]).scores_)


def test_a_file_behind_it(tmp_path: Path) -> None:
    selector = daskfs.LaplacianScore(n_neighbors=4)
    in_obsm = daskfs.LaplacianScore(n_neighbors=4).fit(values(), use_rep=values()[:, :2])
    with backed(tmp_path) as made:
        np.testing.assert_array_equal(
            selector.fit(made).scores_, daskfs.LaplacianScore(n_neighbors=4).fit(values()).scores_
        )
        assert selector.feature_names_in_.tolist() == NAMES
        np.testing.assert_array_equal(selector.fit(made, use_rep="X_pca").scores_, in_obsm.scores_)
        for call in (selector.fit, daskfs.rank):
            with pytest.raises(InputError, match="a view of one that is backed by a file"):
                call(made[:30])


def test_labels_that_are_missing_and_in_no_file(tmp_path: Path) -> None:
    """Columns of obs are those in memory, also where X lies in a file."""
    partly = np.where(CLASSES, "T", "B").astype(object)
    partly[::3] = None
    expected = daskfs.FisherScore().fit(values(), partly)
    with backed(tmp_path) as made:
        for one in (made, cells()):
            one.obs["partly"] = pd.Categorical(partly)
            np.testing.assert_array_equal(daskfs.FisherScore().fit(one, "partly").scores_, expected.scores_)
            result = daskfs.rank(one, "partly", methods=["FisherScore"])
            assert result["data"]["n_labeled"] == sum(label is not None for label in partly)
            assert result.ranking["score"].tolist() == sorted(expected.scores_, reverse=True)


@pytest.mark.cluster
def test_an_x_that_is_missing() -> None:
    made, selector = cells(), daskfs.FisherScore()
    del made.X
    told = r"^adata has no matrix 'X'; it has 'layers/half', 'obsm/X_pca'\. .*layer='half'"
    calls: list[Callable[[Any], Any]] = [
        lambda one: selector.fit(one, "kind"),
        lambda one: daskfs.evaluate_selectors(selector, one, "kind"),
        lambda one: daskfs.rank(one, "kind"),
        daskfs.knn_graph,
        daskfs.distance_correlation_matrix,
        daskfs.score_functions.variance_score,
    ]
    for call in calls:
        with pytest.raises(InputError, match=told):
            call(made)
    found = daskfs.rank(made, "kind", layer="half", methods="FisherScore", settings={"evaluate": None})
    expected = selector.fit(values(), CLASSES)
    np.testing.assert_allclose(found.ranking.sort_values("feature")["score"], expected.scores_)


def test_graph_and_correlations() -> None:
    np.testing.assert_array_equal(daskfs.knn_graph(cells(), 3).indices, daskfs.knn_graph(values(), 3).indices)
    correlations = daskfs.distance_correlation_matrix(values())
    np.testing.assert_array_equal(daskfs.distance_correlation_matrix(cells()), correlations)


def test_consensus_redundancy_and_evaluation() -> None:
    made, combined = cells(), [daskfs.FisherScore(), daskfs.LaplacianScore()]
    for selector in (daskfs.Consensus(combined), daskfs.RedundancyFilter(daskfs.FisherScore())):
        ranking = selector.fit(values(), CLASSES).ranking_.tolist()
        assert selector.fit(made, "kind").ranking_.tolist() == ranking
        assert selector.feature_names_in_.tolist() == NAMES
    given: dict[str, Any] = {"n_selected": [2], "n_splits": 2, "baselines": False}
    found = daskfs.evaluate_selectors(combined, made, "kind", use_rep="X_pca", **given)
    expected = daskfs.evaluate_selectors(combined, values(), CLASSES, use_rep=values()[:, :2], **given)
    assert found.values.equals(expected.values)
    assert set(found.selection_frequency.column("name").to_pylist()) <= {*NAMES}


def test_unknown_names_and_other_features_are_named() -> None:
    made, selector = cells(), daskfs.LaplacianScore(2)
    with pytest.raises(InputError, match=r"adata\.obs has no 'kid'\. Did you mean 'kind'"):
        daskfs.FisherScore().fit(made, "kid")
    with pytest.raises(InputError, match=r"adata\.obsm has no 'X_umap'.* It has X_pca"):
        selector.fit(made, use_rep="X_umap")
    fitted = selector.fit(made)
    with pytest.raises(InputError, match="'g1' is not 'g0'"):
        fitted.transform(made[:, [1, 0, 2, 3, 4, 5]])
    with pytest.raises(InputError, match="X has 5 features, but LaplacianScore is expecting 6"):
        fitted.transform(made[:, :5])
