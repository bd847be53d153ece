"""Scores depend on how values lie to each other: not on where they lie, nor on their unit of measure."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import daskfs
from daskfs import FisherScore, LaplacianScore, PearsonScore, VarianceScore, knn_graph
from daskfs.criteria.registry import criteria
from daskfs.errors import InputError
from tests.cases import case

FloatArray = NDArray[np.float64]
RNG = np.random.default_rng(133)
CLASSES = np.arange(60) % 3
STEPS = np.column_stack([RNG.integers(0, 2, 60), RNG.integers(0, 8, (60, 3)) + np.outer(CLASSES, [1, 0, 2])]) * 1.0
TARGET = STEPS[:, 1] + RNG.integers(0, 5, 60)
PLACES = [(2.0**20, 1.0), (-(2.0**40), 1.0), (2.0**50, 1.0), (2.0**51, 2.0**400), (-(2.0**51), 2.0**-450)]
"""Offsets, in steps, and steps: at the last ones nothing lies between two neighboring values."""
FORMS: list[Callable[[FloatArray], Any]] = [np.asarray, sp.csr_matrix]


def makers() -> dict[str, tuple[Callable[[], Any], FloatArray]]:
    """Return selectors, each with labels: all methods, those with tests, and graphs of rows that are centered."""
    found: dict[str, tuple[Callable[[], Any], Any]] = {}
    for name, criterion in criteria().items():
        method, tested = getattr(daskfs, name), criterion.significance is not None
        for task, labels in (("classification", CLASSES), ("regression", TARGET)):
            if task in criterion.tasks:
                found[f"{name}, {task}"] = partial(method, **({"significance": True} if tested else {})), labels
    return found


MAKERS = makers()
CENTERED = {
    f"LaplacianScore, {scaling}": (partial(LaplacianScore, graph_scaling=scaling, metric=metric), CLASSES)
    for scaling, metric in (("zscore", "cosine"), ("pca=2", "euclidean"), ("zscore+pca=2", "cosine"))
}


def results(make: Callable[[], Any], X: Any, y: Any) -> tuple[FloatArray, FloatArray, list[int]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = make().fit(X, y)
    return fitted.scores_, getattr(fitted, "pvalues_", np.zeros(0)), fitted.ranking_.tolist()


@pytest.mark.parametrize("name", [*MAKERS, *CENTERED])
def test_where_values_lie_does_not_matter(name: str) -> None:
    make, y = (MAKERS | CENTERED)[name]
    for offset, step in PLACES[:3] if "pca" in name else PLACES:
        for form in FORMS if name in MAKERS else FORMS[:1]:
            with case(offset, step, form.__name__):
                expected = results(make, form(STEPS * step), y)
                found = results(make, form((STEPS + offset) * step), (y + offset) if y is TARGET else y)
                np.testing.assert_allclose(found[0], expected[0], rtol=1e-7)
                np.testing.assert_allclose(found[1], expected[1], rtol=1e-7)
                assert found[2] == expected[2]


def test_two_adjacent_numbers_are_two_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(133)
    x, other = np.where(rng.random(60) < 0.5, 0.1 + 0.2, 0.3), rng.normal(size=60) + 0.3 * CLASSES
    np.save(tmp_path / "X.npy", X := np.column_stack([x, other]))
    for make, right in ((FisherScore, 0.28115942), (PearsonScore, 0.45186892)):
        for given in (X, tmp_path / "X.npy"):
            assert make().fit(given, CLASSES).scores_[0] == pytest.approx(right, rel=1e-7)
        assert make().fit(X != 0.3, CLASSES).scores_[0] == pytest.approx(right, rel=1e-7)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("form", FORMS)
def test_the_unit_of_measure_does_not_matter_or_is_named(name: str, form: Callable[[FloatArray], Any]) -> None:
    make, y = MAKERS[name]
    order = results(make, form(STEPS), y)[2]
    for exponent in (-320, -170, -141, 141, 170):
        with case(exponent), pytest.raises(InputError, match=r"(under|over)flow. Rescale the data"):
            make().fit(form(STEPS * 10.0**exponent), y)
    if not name.startswith(("RLSR", "DSSFS", "SSUFS", "SVMRFE")):  # a penalty has a unit of measure
        for exponent in (-460, 450):
            with case(exponent):
                assert results(make, form(STEPS * 2.0**exponent), y)[2] == order


def test_a_column_of_small_values_is_named_wherever_it_is_read(tmp_path: Path) -> None:
    X = STEPS * [1.0, 1.0, 1e-170, 1.0]
    np.save(tmp_path / "X.npy", X)
    for given in (X, tmp_path / "X.npy"):
        for call in (VarianceScore().fit, knn_graph):
            with pytest.raises(InputError, match=r"column 2 .*differ by .*e-170 at most.*Rescale the data"):
                call(given)
    with pytest.raises(InputError, match="column 2 of use_rep"):
        LaplacianScore().fit(STEPS, use_rep=X)
    tiny = np.where(STEPS == 0, 1e-170, STEPS)
    np.testing.assert_array_equal(VarianceScore().fit(tiny).scores_, VarianceScore().fit(STEPS).scores_)


def test_principal_components_of_rows_that_float32_cannot_hold_are_named() -> None:
    for factor in (1e-60, 1e60):
        with pytest.raises(InputError, match="Rescale the data"):
            knn_graph(STEPS * factor, graph_scaling="pca=2")


@pytest.mark.parametrize("factor", [1e-320, 1e-170, 1e-143, 1e150])
def test_targets_and_weights_are_named(factor: float) -> None:
    for name, (make, y) in MAKERS.items():
        with case(name):
            if y is TARGET and criteria()[name.partition(",")[0]].needs_labels:
                with pytest.raises(InputError, match="rescale them"):
                    make().fit(STEPS, TARGET * factor)
            with pytest.raises(InputError, match=r"(multiply|divide) them all"):
                make().fit(STEPS, y, sample_weight=np.full(60, factor))
