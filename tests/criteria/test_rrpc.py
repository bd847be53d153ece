"""RRPC against its definition, from the selector: classes, targets, signs, screening, ties, inputs of all kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_diabetes, load_wine

from daskfs import RRPC, PearsonScore
from daskfs.criteria.plan import plan_finish
from daskfs.criteria.registry import make_method
from daskfs.criteria.rrpc.correlations import MAX_CANDIDATES
from daskfs.errors import MemoryPlanError
from daskfs.kernels.statistics.comoments import stretch_rows
from daskfs.stages.cost import PROCESS, Workers
from daskfs.stages.limits import check_memory
from daskfs.tiles.shapes import plan_shape
from tests.cases import case
from tests.reference import greedy as reference
from tests.reference import scores

GiB = 2**30
WINE, CLASSES = load_wine(return_X_y=True)
DIABETES, TARGET = load_diabetes(return_X_y=True)


def picks_of(fitted: RRPC) -> list[int]:
    return np.argsort(fitted.ranking_).tolist()


@pytest.mark.parametrize("n_labeled", [30, 178])
def test_classes_as_defined(n_labeled: int) -> None:
    y = CLASSES.copy()
    y[np.random.default_rng(1).permutation(178)[n_labeled:]] = -1
    fitted = RRPC().fit(WINE, y)
    picks, values = reference.rrpc(WINE, scores.pearson_one_vs_rest(WINE, y))
    assert picks_of(fitted) == picks
    np.testing.assert_allclose(fitted.scores_[picks], values, atol=1e-12)


@pytest.mark.parametrize("absolute", [True, False])
def test_target_as_defined(absolute: bool) -> None:
    y = TARGET.copy()
    y[::3] = np.nan
    known = ~np.isnan(y)
    relevance = [reference.correlation(f[known], y[known], absolute=absolute) for f in DIABETES.T]
    fitted = RRPC(absolute=absolute).fit(DIABETES, y)
    picks, values = reference.rrpc(DIABETES, relevance, absolute=absolute)
    assert picks_of(fitted) == picks
    np.testing.assert_allclose(fitted.scores_[picks], values, atol=1e-12)
    np.testing.assert_allclose(fitted.score_fields_["relevance"], relevance, atol=1e-12)


def test_signed_relevance_of_several_classes_is_that_of_the_pearson_score() -> None:
    pearson = PearsonScore().fit(WINE, CLASSES).score_fields_
    fitted = RRPC(absolute=False).fit(WINE, CLASSES)
    np.testing.assert_array_equal(fitted.score_fields_["relevance"], pearson["correlation"])
    picks, _ = reference.rrpc(WINE, pearson["correlation"], absolute=False)
    assert picks_of(fitted) == picks


def test_redundancy_is_over_all_rows() -> None:
    """Two copies on the labeled rows that part elsewhere are not redundant."""
    rng = np.random.default_rng(2)
    a, other = rng.normal(size=(2, 400))
    b = rng.normal(size=400)
    b[:20] = a[:20]
    y = np.full(400, np.nan)
    y[:20] = a[:20] + 0.1 * other[:20]
    fitted = RRPC().fit(np.column_stack([a, b, other]), y)
    assert picks_of(fitted)[:2] == [0, 1]
    assert fitted.score_fields_["redundancy"][1] < 0.3


class TestFields:
    fitted = RRPC().fit(WINE, CLASSES)

    def test_score_is_relevance_less_redundancy(self) -> None:
        fields = self.fitted.score_fields_
        assert list(fields) == ["score", "relevance", "redundancy", "step"]
        np.testing.assert_allclose(fields["score"], fields["relevance"] - fields["redundancy"], atol=1e-15)
        assert sorted(fields["step"]) == list(range(1, 14))
        np.testing.assert_array_equal(fields["step"], self.fitted.ranking_)

    def test_first_pick_is_the_most_relevant(self) -> None:
        first = picks_of(self.fitted)[0]
        assert first == int(np.argmax(PearsonScore().fit(WINE, CLASSES).scores_))
        assert self.fitted.score_fields_["redundancy"][first] == 0


class TestScreening:
    def test_others_follow_by_relevance_without_a_score(self) -> None:
        fitted = RRPC(10, n_candidates=5).fit(WINE, CLASSES)
        relevance = PearsonScore().fit(WINE, CLASSES).scores_
        best = np.argsort(-relevance, kind="stable")
        candidates = np.sort(best[:5])
        expected, _ = reference.rrpc(WINE[:, candidates], relevance[candidates])
        assert picks_of(fitted) == [*candidates[expected].tolist(), *best[5:].tolist()]
        assert np.flatnonzero(np.isnan(fitted.scores_)).tolist() == sorted(best[5:].tolist())
        assert fitted.get_support().sum() == 10, "features without a score are ranked, and selected"

    @pytest.mark.parametrize("n_candidates", [13, 500, None])
    def test_all_are_candidates(self, n_candidates: int | None) -> None:
        np.testing.assert_array_equal(
            RRPC(n_candidates=n_candidates).fit(WINE, CLASSES).scores_, RRPC().fit(WINE, CLASSES).scores_
        )

    def test_one_candidate(self) -> None:
        fitted = RRPC(n_candidates=1).fit(WINE, CLASSES)
        np.testing.assert_array_equal(fitted.ranking_, PearsonScore().fit(WINE, CLASSES).ranking_)


class TestOddFeatures:
    def test_constant_ones_are_excluded(self) -> None:
        X = np.column_stack([np.full(178, 0.1), WINE[:, :3], np.arange(178) > 170])
        y = CLASSES.copy()
        y[150:] = -1
        fitted = RRPC(1.0).fit(X, y)
        assert np.isnan(fitted.scores_).tolist() == [True, False, False, False, True]
        assert fitted.ranking_[[0, 4]].tolist() == [4, 5]
        assert not fitted.get_support()[[0, 4]].any()

    def test_copies_go_by_number(self) -> None:
        X = np.column_stack([WINE[:, 12], WINE[:, 0], WINE[:, 12], WINE[:, 12] * 2 + 5])
        fitted = RRPC().fit(X, CLASSES)
        assert fitted.ranking_[0] == 1
        assert fitted.ranking_[2] < fitted.ranking_[3]

    def test_offset_changes_nothing(self) -> None:
        X = np.random.default_rng(0).integers(-512, 512, size=(500, 8)) / 64
        X[:, 5] += X[:, 0]
        y = X[:, 0] + X[:, 3] + 1e-3 * np.arange(500)
        plain, moved = RRPC().fit(X, y), RRPC().fit(X + 1e8, y)
        np.testing.assert_array_equal(moved.ranking_, plain.ranking_)
        np.testing.assert_allclose(moved.scores_, plain.scores_, atol=1e-7)


def to_zarr(X: np.ndarray, folder: Path) -> Any:
    import zarr

    path = folder / "X.zarr"
    zarr.create_array(store=str(path), shape=X.shape, dtype=X.dtype, chunks=(37, 5))[...] = X
    return str(path)


FORMS: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "csr": lambda X, _: sp.csr_matrix(X),
    "csc": lambda X, _: sp.csc_matrix(X),
    "dask": lambda X, _: da.from_array(X, chunks=(50, 4)),
    "zarr": to_zarr,
    "fortran": lambda X, _: np.asfortranarray(X),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_input(form: str, tmp_path: Path) -> None:
    X = np.where(np.median(WINE, axis=0) < WINE, WINE, 0.0)
    given = FORMS[form](X, tmp_path)
    for scaling in (None, "zscore", "unit", "log1p"):
        with case(scaling):
            expected = RRPC(score_scaling=scaling, n_candidates=9).fit(X, CLASSES)
            found = RRPC(score_scaling=scaling, n_candidates=9).fit(given, CLASSES)
            np.testing.assert_array_equal(found.ranking_, expected.ranking_)
            np.testing.assert_allclose(found.scores_, expected.scores_, atol=1e-10)


def test_scaling_is_felt_by_the_redundancy() -> None:
    X = np.exp(np.random.default_rng(4).normal(size=(300, 5)) * 2)
    X[:, 1] = X[:, 0] ** 1.5
    y = np.log1p(X[:, 0]) + X[:, 2] / 50
    scaled, before = RRPC(score_scaling="log1p").fit(X, y), RRPC().fit(np.log1p(X), y)
    np.testing.assert_allclose(scaled.scores_, before.scores_, atol=1e-13)


def test_weights_count_rows() -> None:
    weights = np.random.default_rng(3).integers(0, 3, 178)
    weighted = RRPC().fit(WINE, CLASSES, sample_weight=weights)
    repeated = RRPC().fit(np.repeat(WINE, weights, axis=0), np.repeat(CLASSES, weights))
    np.testing.assert_array_equal(weighted.ranking_, repeated.ranking_)
    np.testing.assert_allclose(weighted.scores_, repeated.scores_, atol=1e-12)


class TestPlans:
    def planned(self, n: int, m: int, n_candidates: int | None = 2000) -> Any:
        shape = plan_shape(n, m, "float32", None, 16 * GiB)
        method = make_method("RRPC", {"n_candidates": n_candidates})
        return shape, plan_finish(shape, method, "greedy", 100, (PROCESS,))

    @pytest.mark.parametrize(("n", "m"), [(10**8, 1000), (10**4, 10**5), (10**6, 20_000)])
    def test_large_data_fit_and_are_read_once(self, n: int, m: int) -> None:
        shape, stages = self.planned(n, m)
        check_memory(stages, Workers(16 * GiB))
        assert [stage.kind_name for stage in stages] == ["screen", "comoments", "greedy"]
        products = stages[1]
        assert shape.x_bytes <= products.bytes_read < 1.3 * shape.x_bytes
        assert products.bytes_written < 64 * 2001**2 * 8
        assert products.n_units <= -(-n // stretch_rows(n)) <= 64
        assert products.needed_until == stages[2].name

    def test_all_of_many_features_are_refused(self) -> None:
        with pytest.raises(
            MemoryPlanError, match=rf"method RRPC would compare 100000 .* set n_candidates to {MAX_CANDIDATES}"
        ):
            self.planned(10**4, 10**5, None)

    def test_many_candidates_need_memory(self) -> None:
        with pytest.raises(MemoryPlanError, match=r"stage greedy-RRPC needs .* Fewer n_candidates need less\."):
            check_memory(self.planned(10**4, 10**5, 20_000)[1], Workers(2 * GiB))
