"""RLSR, DSSFS and SSUFS against their formulas: conditions of the minimum, slow references, traps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning

from daskfs import DSSFS, RLSR, SSUFS, distance_correlation_matrix
from daskfs.criteria.registry import make_method
from daskfs.criteria.rescaled_regression import solution
from daskfs.criteria.rescaled_regression.state import most_products, save_state
from daskfs.errors import InputError, JobError
from daskfs.kernels.regression.rescaled import NEWTON_ITERATIONS
from tests.cases import case
from tests.cli.command import daskfs as command
from tests.cli.command import refused, rows_of, write_job
from tests.reference import rescaled as reference
from tests.reference.distance import distance_correlations
from tests.reference.rescaled import Targets

FloatArray = NDArray[np.float64]
Maker = Callable[..., Any]
ALL: list[Maker] = [RLSR, DSSFS, SSUFS]
LOADERS: dict[str, Callable[..., Any]] = {
    "wine": load_wine,
    "breast cancer": load_breast_cancer,
    "digits": load_digits,
}
ROUND_OFF = 1e-12
TENS = [10.0**power for power in range(-3, 4)]


@cache
def loaded(name: str) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return a data set with 40 % of its rows labeled."""
    X, y = LOADERS[name](return_X_y=True)
    return X, np.where(np.random.default_rng(0).random(y.size) < 0.4, y, -1)


@cache
def targets_of(name: str, *, dragged: bool) -> Targets:
    X, y = loaded(name)
    return Targets(reference.scaled(X), y, np.ones(y.size), int(y.max()) + 1, dragged)


@cache
def solved(name: str, gamma: float, *, dragged: bool = False) -> FloatArray:
    return reference.rlsr(targets_of(name, dragged=dragged), gamma, tolerance=1e-6)


def shares(W: FloatArray) -> FloatArray:
    norms = reference.row_norms(W)
    return np.asarray(norms / norms.sum())


def scores(fitted: Any) -> FloatArray:
    return np.nan_to_num(fitted.scores_)


def never_rises(fitted: Any) -> bool:
    objective = np.array(fitted.objective_)
    return bool((np.diff(objective) <= ROUND_OFF * np.abs(objective[:-1])).all())


X, Y = loaded("wine")
N = len(Y)


@cache
def fitted_to(name: str, make: Maker, **parameters: Any) -> Any:
    """Return a selector fitted to a data set; nothing may change it."""
    return make(**parameters).fit(*loaded(name))


def plain(make: Maker, **parameters: Any) -> Any:
    return fitted_to("wine", make, **parameters)


def some(makers: list[Maker], often: list[Maker]) -> list[Any]:
    """Return parameters of a test, those that are not looked at often marked as long."""
    return [make if make in often else pytest.param(make, marks=pytest.mark.long) for make in makers]


# ------------------------------------------------------------------------------------------------------- references
@pytest.mark.parametrize(
    ("name", "gamma"),
    [
        pytest.param(
            name, gamma, marks=pytest.mark.long if name == "digits" or (name, gamma) == ("breast cancer", 0.1) else ()
        )
        for name in LOADERS
        for gamma in (0.1, 1.0, 10.0)
    ],
)
class TestMinimum:
    """Convex problems have one minimum, and its conditions are made here again from coef_ alone."""

    @pytest.mark.parametrize("make", [RLSR, DSSFS])
    def test_conditions(self, make: Maker, name: str, gamma: float) -> None:
        fitted = fitted_to(name, make, gamma=gamma)
        found = reference.kkt(targets_of(name, dragged=make is DSSFS), fitted.coef_, gamma)
        assert found.active <= 1e-6
        assert found.inactive <= 1.0
        assert fitted.converged_
        assert fitted.solution_["kkt_active"] <= 1e-7

    def test_as_coordinate_descent(self, name: str, gamma: float) -> None:
        fitted = fitted_to(name, RLSR, gamma=gamma)
        np.testing.assert_allclose(scores(fitted), shares(solved(name, gamma)), atol=1e-5)
        np.testing.assert_array_equal(scores(fitted) > 0, reference.row_norms(solved(name, gamma)) > 0)

    def test_objective(self, name: str, gamma: float) -> None:
        fitted, targets = fitted_to(name, RLSR, gamma=gamma), targets_of(name, dragged=False)
        targets_found, b = targets.best(fitted.coef_)
        value = reference.loss(targets, fitted.coef_, b, targets_found, gamma)
        assert fitted.objective_[-1] == pytest.approx(value, rel=1e-9)
        assert never_rises(fitted)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
def test_dragged_as_coordinate_descent(gamma: float) -> None:
    fitted = plain(DSSFS, gamma=gamma)
    W = solved("wine", gamma, dragged=True)
    np.testing.assert_allclose(scores(fitted), shares(W), atol=1e-5)
    targets = targets_of("wine", dragged=True)
    targets_found, b = targets.best(fitted.coef_)
    value = reference.loss(targets, fitted.coef_, b, targets_found, gamma)
    assert fitted.objective_[-1] == pytest.approx(value, rel=1e-9)
    assert never_rises(fitted)
    assert fitted.objective_[-1] < plain(RLSR, gamma=gamma).objective_[-1], "it has more freedom"


class TestUncorrelated:
    @pytest.mark.parametrize(
        ("name", "gamma"),
        [
            ("wine", 10.0),
            pytest.param("wine", 0.1, marks=pytest.mark.long),
            pytest.param("breast cancer", 1.0, marks=pytest.mark.long),
        ],
    )
    def test_as_systems_in_turn(self, name: str, gamma: float) -> None:
        data, y = loaded(name)
        fitted = SSUFS(gamma=gamma, correlation="exact").fit(data, y)
        assert fitted.halvings_ == 0
        targets, M = targets_of(name, dragged=False), distance_correlations(data)
        eta = fitted.eta_used_
        W, values = reference.ssufs(targets, solved(name, gamma), gamma, eta, M, 1000)
        np.testing.assert_allclose(scores(fitted), shares(W), atol=1e-5)
        assert np.abs(scores(fitted) - shares(solved(name, gamma))).max() > 1e-4, "the reward does something"
        targets_found, b = targets.best(fitted.coef_)
        value = reference.uncorrelated_loss(targets, fitted.coef_, b, targets_found, gamma, eta, M)
        assert fitted.objective_[-1] == pytest.approx(value, rel=1e-8)
        assert fitted.objective_[0] == pytest.approx(values[0], rel=1e-6)
        assert fitted.objective_[-1] == pytest.approx(values[-1], rel=1e-8)

    @pytest.mark.parametrize("name", ["wine", "breast cancer", pytest.param("digits", marks=pytest.mark.long)])
    def test_conditions_of_a_stationary_point(self, name: str) -> None:
        data, y = loaded(name)
        fitted = SSUFS(gamma=10.0).fit(data, y)
        M = distance_correlation_matrix(data)
        V = reference.row_norms(fitted.coef_) ** 2
        pull = fitted.eta_used_ * (M.sum(axis=1) * V - M @ V)
        found = reference.kkt(targets_of(name, dragged=False), fitted.coef_, 10.0, pull)
        assert found.active <= 1e-5
        assert found.inactive <= 1.0
        assert reference.kkt(targets_of(name, dragged=False), fitted.coef_, 10.0).active > 1e-4

    def test_relative_and_paper_eta_are_one_scale(self) -> None:
        relative = SSUFS(gamma=2.0, eta_relative=0.08).fit(X, Y)
        given = SSUFS(gamma=2.0, eta=relative.eta_used_, eta_relative=5.0).fit(X, Y)
        np.testing.assert_allclose(given.scores_, relative.scores_, rtol=1e-10)
        assert relative.eta_used_ == pytest.approx(2 * 0.08 * relative.solution_["eta_reference"], rel=1e-12)

    def test_reference_eta(self) -> None:
        fitted = SSUFS(gamma=2.0).fit(X, Y)
        norms, M = reference.row_norms(plain(RLSR, gamma=2.0).coef_), distance_correlation_matrix(X)
        rise = M.sum(axis=1) * norms**2 - M @ norms**2
        expected = 2.0 / (2 * (norms / norms.sum() * rise).max())
        assert fitted.solution_["eta_reference"] == pytest.approx(expected, rel=1e-4)

    def test_tiny_eta_is_rlsr(self) -> None:
        np.testing.assert_allclose(SSUFS(eta=1e-12).fit(X, Y).scores_, plain(RLSR).scores_, atol=1e-9)


def check_cell(name: str, gamma: float, eta: float) -> int:
    data, y = loaded(name)
    fitted = SSUFS(gamma=gamma, eta=eta, max_iter=60, tol=1e-6).fit(data[:600], y[:600])
    assert never_rises(fitted)
    assert fitted.objective_[-1] >= 0
    assert np.isfinite(fitted.coef_).all()
    halvings: int = fitted.halvings_
    assert fitted.eta_used_ == pytest.approx(eta / 2**halvings, rel=1e-12)
    assert fitted.solution_["eta"] == pytest.approx(eta, rel=1e-12)
    return halvings


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
class TestGuard:
    """Every gamma and eta of the paper's grid."""

    def test_corners_and_middle(self) -> None:
        found = {(gamma, eta): check_cell("wine", gamma, eta) for gamma in (1e-3, 1.0, 1e3) for eta in (1e-3, 1.0, 1e3)}
        assert found[1e-3, 1e3] > found[1.0, 1e3] > 0, "the guard acts where eta is large beside gamma"
        assert found[1e3, 1e-3] == found[1.0, 1e-3] == 0

    @pytest.mark.long
    @pytest.mark.parametrize("name", LOADERS)
    @pytest.mark.parametrize("gamma", TENS)
    def test_grid(self, name: str, gamma: float) -> None:
        found = [check_cell(name, gamma, eta) for eta in TENS]
        assert found == sorted(found)


# ----------------------------------------------------------------------------------------------------- redundancy
def mean_redundancy(M: FloatArray, features: NDArray[np.intp]) -> float:
    part = M[np.ix_(features, features)]
    return float(part[np.triu_indices(len(features), 1)].mean())


def copied(noise: float, seed: int) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return z-scores of breast cancer, three of each feature with noise, and labels."""
    data, y = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(seed)
    Z = np.tile((data - data.mean(axis=0)) / data.std(axis=0), 3)
    return Z + noise * rng.normal(size=Z.shape), np.where(rng.random(y.size) < 0.4, y, -1)


class TestRedundancy:
    @pytest.mark.parametrize("seeds", [[0], pytest.param([0, 1, 2], marks=pytest.mark.long)])
    def test_near_copies(self, seeds: list[int]) -> None:
        found: dict[str, list[float]] = {"RLSR": [], "SSUFS": []}
        for seed in seeds:
            data, y = copied(0.05, seed)
            M = distance_correlation_matrix(data, correlation="feature_map")
            for make in (RLSR, SSUFS):
                fitted = make(10, gamma=10.0).fit(data, y)
                found[make.__name__].append(mean_redundancy(M, fitted.get_support(indices=True)))
        assert np.mean(found["SSUFS"]) < np.mean(found["RLSR"])

    @pytest.mark.parametrize("make", some(ALL, [RLSR]))
    def test_exact_copies_are_left_to_the_filter(self, make: Maker) -> None:
        data, y = copied(0.0, 0)
        unfiltered = make(10, gamma=10.0).fit(data, y)
        assert len(set(unfiltered.get_support(indices=True) % 30)) < 10
        fitted = make(10, gamma=10.0, greedy_filter=True).fit(data, y)
        chosen = np.argsort(fitted.ranking_)
        n_different = len(set(np.flatnonzero(unfiltered.scores_ > 0) % 30))
        assert n_different >= 7
        assert len(set(chosen[:n_different] % 30)) == n_different, "one of each"
        np.testing.assert_allclose(fitted.scores_, unfiltered.scores_, rtol=1e-12)

    def test_filter_as_defined(self) -> None:
        unfiltered, fitted = plain(RLSR, gamma=5.0), plain(RLSR, gamma=5.0, greedy_filter=True, correlation="exact")
        M, theta = distance_correlations(X), unfiltered.scores_
        picks: list[int] = []
        left = list(np.flatnonzero(theta > 0))
        while left:
            value = [theta[j] * (1 - max((M[j, i] for i in picks), default=0.0)) for j in left]
            picks.append(int(left.pop(int(np.argmax(value)))))
        order = np.argsort(fitted.ranking_).tolist()
        assert order[: len(picks)] == picks
        assert order[len(picks) :] == np.argsort(unfiltered.ranking_)[len(picks) :].tolist()
        assert order != np.argsort(unfiltered.ranking_).tolist()

    @pytest.mark.parametrize("make", [RLSR, DSSFS])
    def test_copies_share_what_one_of_them_has(self, make: Maker) -> None:
        """The minimum is not one point; features that are equal are treated alike."""
        one, three = plain(make, gamma=1.0), make(gamma=1.0).fit(np.tile(X, 3), Y)
        np.testing.assert_allclose(three.scores_.reshape(3, -1).sum(axis=0), one.scores_, atol=1e-5)
        np.testing.assert_allclose(three.scores_.reshape(3, -1), np.tile(three.scores_[:13], (3, 1)), atol=1e-9)
        assert three.objective_[-1] == pytest.approx(one.objective_[-1], rel=1e-8)

    def test_mirrored_and_scaled_copies(self) -> None:
        other = RLSR().fit(np.hstack([X, -X, 2 * X + 1]), Y).scores_
        np.testing.assert_allclose(other, RLSR().fit(np.tile(X, 3), Y).scores_, atol=1e-6)


# ---------------------------------------------------------------------------------------------- one answer for all
class TestSolvers:
    @pytest.mark.parametrize(
        ("make", "shape"),
        [
            (DSSFS, (14, 18)),
            (SSUFS, (30, 6)),
            pytest.param(RLSR, (30, 6), marks=pytest.mark.long),
            pytest.param(RLSR, (14, 18), marks=pytest.mark.long),
            pytest.param(DSSFS, (30, 6), marks=pytest.mark.long),
            pytest.param(SSUFS, (14, 18), marks=pytest.mark.long),
        ],
    )
    def test_same_scores(self, make: Maker, shape: tuple[int, int]) -> None:
        rng = np.random.default_rng(2)
        y = np.where(rng.random(shape[0]) < 0.5, np.arange(shape[0]) % 3, -1)
        data = rng.normal(size=shape) + np.where(y[:, None] > 0, rng.normal(size=shape[1]), 0.0)
        found = [make(solver=solver, gamma=4.0).fit(data, y) for solver in ("cholesky", "woodbury", "cg")]
        assert [fitted.solution_["solver"] for fitted in found] == ["cholesky", "woodbury", "cg"]
        assert found[0].solution_["n_active"] > 1
        for fitted in found[1:]:
            np.testing.assert_allclose(fitted.scores_, found[0].scores_, atol=1e-6)
            np.testing.assert_array_equal(fitted.ranking_, found[0].ranking_)
            np.testing.assert_allclose(fitted.objective_[-1], found[0].objective_[-1], rtol=1e-8)

    @pytest.mark.parametrize("make", ALL)
    def test_choice_by_shape(self, make: Maker) -> None:
        parameters = make_method(make.__name__, {}).parameters
        solved_by = parameters.solved_by  # type: ignore[attr-defined]
        assert solved_by(100, 100) == solved_by(10**8, 20_000) == "cholesky"
        assert solved_by(99, 100) == solved_by(2000, 100_000) == "woodbury"
        assert solved_by(10**6, 20_001) == solved_by(10**5, 200_000) == "cg"
        assert solved_by(50_000, 2**20) == "cg"

    @pytest.mark.parametrize("make", [RLSR, SSUFS])
    def test_states_hold_as_many_products_as_are_planned(self, make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
        held: list[int] = []

        def save(*where: Any) -> None:
            held.append(len(where[-1].products))
            save_state(*where)

        monkeypatch.setattr(solution, "save_state", save)
        with pytest.warns(ConvergenceWarning):
            make(solver="cg", gamma=0.01, max_iter=2).fit(*loaded("breast cancer"))
        most = most_products(make_method(make.__name__, {}), "cg")
        assert NEWTON_ITERATIONS < max(held) <= most
        assert most_products(make_method(make.__name__, {}), "woodbury") == 0


FORMS: dict[str, Callable[[FloatArray, Path], Any]] = {
    "csr": lambda X, _: sp.csr_matrix(X),
    "csc": lambda X, _: sp.csc_matrix(X),
    "float32": lambda X, _: X.astype(np.float32),
    "dask": lambda X, _: da.from_array(X, chunks=(50, 4)),
    "path": lambda X, folder: saved(X, folder),
    "zarr": lambda X, folder: stored(X, folder),
}


def saved(X: FloatArray, folder: Path) -> Path:
    np.save(folder / "X.npy", X)
    return folder / "X.npy"


def stored(X: FloatArray, folder: Path) -> Any:
    array = zarr.create_array(store=str(folder / "X.zarr"), shape=X.shape, chunks=(60, 7), dtype="f8")
    array[...] = X
    return array


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("make", "form", "solver"),
    [
        pytest.param(make, form, solver, marks=() if form in often else pytest.mark.long)
        for make, solver, often in [
            (RLSR, "cholesky", ("csr", "csc", "float32", "dask", "zarr")),
            (RLSR, "woodbury", ()),
            (DSSFS, "cholesky", ("csr",)),
            (DSSFS, "woodbury", ()),
            (SSUFS, "cholesky", ("csr",)),
            (SSUFS, "woodbury", ("zarr",)),
        ]
        for form in (FORMS if solver == "cholesky" else ("csr", "zarr"))
    ],
)
def test_one_answer_for_every_form(make: Maker, form: str, solver: str, tmp_path: Path) -> None:
    data = np.round(8 * X / X.std(axis=0)) / 8
    data[np.random.default_rng(0).random(data.shape) < 0.3] = 0.0
    expected = make(solver=solver, max_iter=6).fit(data, Y)
    found = make(solver=solver, max_iter=6).fit(FORMS[form](data, tmp_path), Y)
    np.testing.assert_allclose(found.scores_, expected.scores_, atol=1e-7)
    np.testing.assert_array_equal(found.ranking_, expected.ranking_)
    np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-7)


@pytest.mark.parametrize("make", some(ALL, [SSUFS]))
class TestForms:
    @pytest.mark.parametrize("scaling", ["zscore", None])
    def test_an_offset_changes_nothing(self, make: Maker, scaling: Any) -> None:
        exact = np.round(64 * X) / 64
        # where rounds end depends on the last bits, by which processors differ: let no further round change the scores
        expected = make(score_scaling=scaling, tol=1e-12).fit(exact, Y).scores_
        for form in (np.asarray, sp.csr_matrix):
            found = make(score_scaling=scaling, tol=1e-12).fit(form(exact + 1e8), Y).scores_
            np.testing.assert_allclose(found, expected, atol=1e-6)

    def test_small_integers(self, make: Maker) -> None:
        data = np.clip(np.round(40 * X / X.max(axis=0)), 0, 127).astype(np.uint8)
        expected = make().fit(data.astype(np.float64), Y).scores_
        for form in (np.asarray, sp.csr_matrix):
            np.testing.assert_allclose(make().fit(form(data), Y).scores_, expected, atol=1e-7)

    def test_order_of_rows_and_of_columns(self, make: Maker) -> None:
        rng = np.random.default_rng(1)
        rows, columns = rng.permutation(N), rng.permutation(13)
        expected = plain(make)
        found = make().fit(X[np.ix_(rows, columns)], Y[rows])
        np.testing.assert_allclose(found.scores_, expected.scores_[columns], atol=1e-8)

    def test_names_of_classes(self, make: Maker) -> None:
        expected = plain(make).scores_
        names = np.array(["b", "c", "a"], dtype=object)[Y]
        names[Y < 0] = None
        permuted = np.where(Y < 0, -1, (Y + 1) % 3)
        np.testing.assert_allclose(make().fit(X, permuted).scores_, expected, atol=1e-8)
        floats = np.where(Y < 0, np.nan, Y)
        np.testing.assert_array_equal(make().fit(X, floats).scores_, expected)

    def test_scaling(self, make: Maker) -> None:
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        expected = plain(make).scores_
        np.testing.assert_allclose(make(score_scaling=None).fit(Z, Y).scores_, expected, atol=1e-8)
        unit = make(score_scaling="unit").fit(X, Y).scores_
        length = np.linalg.norm(X, axis=1, keepdims=True)
        np.testing.assert_allclose(unit, make(score_scaling=None).fit(X / length, Y).scores_, atol=1e-7)


@pytest.mark.parametrize("make", some(ALL, [RLSR, SSUFS]))
class TestWeights:
    """Weights of rows; z-scores are made without them, so nothing is scaled."""

    WEIGHTS = np.random.default_rng(3).integers(0, 4, size=N).astype(np.float64)
    ROWS = np.repeat(np.arange(N), WEIGHTS.astype(int))
    Z = (X - X.mean(axis=0)) / X.std(axis=0)

    @pytest.mark.parametrize("solver", ["cholesky", "woodbury"])
    def test_whole_weights_are_repeated_rows(self, make: Maker, solver: str) -> None:
        selector = make(score_scaling=None, solver=solver)
        found = selector.fit(self.Z, Y, sample_weight=self.WEIGHTS).scores_
        np.testing.assert_allclose(found, selector.fit(self.Z[self.ROWS], Y[self.ROWS]).scores_, atol=1e-8)
        assert np.abs(found - plain(make).scores_).max() > 1e-3

    def test_weight_zero_leaves_out(self, make: Maker) -> None:
        weights = (np.arange(N) % 4 > 0).astype(np.float64)
        kept = weights > 0
        selector = make(score_scaling=None)
        found = selector.fit(np.where(kept[:, None], self.Z, 1e3), Y, sample_weight=weights)
        np.testing.assert_allclose(found.scores_, selector.fit(self.Z[kept], Y[kept]).scores_, atol=1e-8)

    @pytest.mark.parametrize("factor", [1e-6, 1e6])
    def test_their_scale_is_that_of_gamma(self, make: Maker, factor: float) -> None:
        expected = make(gamma=2.0).fit(X, Y, sample_weight=self.WEIGHTS).scores_
        found = make(gamma=2.0 * factor).fit(X, Y, sample_weight=factor * self.WEIGHTS).scores_
        np.testing.assert_allclose(found, expected, atol=1e-8)

    def test_conditions(self, make: Maker) -> None:
        if make is SSUFS:
            return
        fitted = make(score_scaling=None).fit(self.Z, Y, sample_weight=self.WEIGHTS)
        Z = reference.scaled(self.Z, self.WEIGHTS, zscore=False)
        targets = Targets(Z, Y, self.WEIGHTS, 3, make is DSSFS)
        assert reference.kkt(targets, fitted.coef_, 1.0).active <= 1e-6


@pytest.mark.parametrize("make", some(ALL, [RLSR]))
def test_weights_by_products_over_the_rows(make: Maker) -> None:
    weights, rows, Z = TestWeights.WEIGHTS, TestWeights.ROWS, TestWeights.Z[:, :6]
    by_products, exact = (make(score_scaling=None, solver=s, gamma=50.0) for s in ("cg", "cholesky"))
    found = by_products.fit(Z, Y, sample_weight=weights).scores_
    np.testing.assert_allclose(found, exact.fit(Z[rows], Y[rows]).scores_, atol=1e-6)


# ---------------------------------------------------------------------------------------------------------- labels
@pytest.mark.parametrize("make", some(ALL, [RLSR, DSSFS]))
class TestLabels:
    def test_unlabeled_rows_take_part(self, make: Maker) -> None:
        known = Y >= 0
        with_them = plain(make).scores_
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        without = make(score_scaling=None).fit(Z[known], Y[known]).scores_
        assert np.abs(with_them - without).max() > 1e-3

    def test_all_rows_labeled(self, make: Maker) -> None:
        data, y = load_wine(return_X_y=True)
        fitted = make(gamma=3.0).fit(data, y)
        assert fitted.converged_
        if make is RLSR:
            assert fitted.n_iter_ <= 5, "nothing but W is unknown"
            targets = Targets(reference.scaled(data), y, np.ones(N), 3)
            np.testing.assert_allclose(fitted.scores_, shares(reference.rlsr(targets, 3.0, 1e-7)), atol=1e-6)

    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_one_row_of_each_class(self, make: Maker) -> None:
        y = np.full(N, -1)
        y[[0, 70, 150]] = [0, 1, 2]
        fitted = make(max_iter=100).fit(X, y)
        assert np.isfinite(fitted.scores_).all()
        assert never_rises(fitted)
        assert scores(fitted).sum() == pytest.approx(1.0)

    def test_two_classes_have_opposite_weights(self, make: Maker) -> None:
        fitted = make().fit(X, np.where(Y == 2, 1, Y))
        np.testing.assert_allclose(fitted.coef_.sum(axis=1), 0.0, atol=1e-9)
        assert fitted.coef_.shape == (13, 2)

    def test_36_classes(self, make: Maker) -> None:
        rng = np.random.default_rng(6)
        y = np.arange(360) % 36
        data = np.hstack([np.eye(36)[y][:, :18] + 0.1 * rng.normal(size=(360, 18)), rng.normal(size=(360, 18))])
        fitted = make(gamma=1.0).fit(data, np.where(np.arange(360) < 180, y, -1))
        assert fitted.coef_.shape == (36, 36)
        assert fitted.ranking_[:18].max() == 18

    def test_a_class_that_only_hidden_rows_have(self, make: Maker) -> None:
        y = np.where(Y == 2, -1, Y)
        assert make().fit(X, y).coef_.shape == (13, 2)

    def test_one_class(self, make: Maker) -> None:
        with pytest.raises(ValueError, match="hold -1 and one class"):
            make().fit(X, np.where(Y == 0, 0, -1))
        with pytest.raises(ValueError, match="labeled rows have one class"):
            make().fit(X, np.where(Y == 0, 0.0, np.nan))

    def test_a_continuous_target(self, make: Maker) -> None:
        with pytest.raises(ValueError, match="Unknown label type: continuous"):
            make().fit(X, X[:, 0] * 1.1)

    def test_labels_that_nothing_has_to_do_with(self, make: Maker) -> None:
        """Each row is there in both classes: P is 0 but for rounding, and so are all weights."""
        data = np.repeat(np.random.default_rng(0).normal(size=(40, 5)) * 1e3 + 7, 2, axis=0)
        data = np.vstack([data, np.random.default_rng(1).normal(size=(30, 5))])
        y = np.append(np.tile([0, 1], 40), np.full(30, -1))
        fitted = make().fit(data, y)
        assert not fitted.coef_.any()
        np.testing.assert_array_equal(fitted.scores_, 0.0)
        assert fitted.ranking_.tolist() == [1, 2, 3, 4, 5]
        assert fitted.converged_


# ----------------------------------------------------------------------------------------------------------- traps
@pytest.mark.parametrize("make", some(ALL, [RLSR, DSSFS]))
class TestTraps:
    def test_constant_features(self, make: Maker) -> None:
        data = np.column_stack([np.full(N, 0.1), X[:, :3], np.full(N, 1e8 + 0.1)])
        for solver in ("cholesky", "woodbury"):
            fitted = make(solver=solver).fit(data, Y)
            assert np.flatnonzero(np.isnan(fitted.scores_)).tolist() == [0, 4]
            assert fitted.ranking_[[0, 4]].tolist() == [4, 5]
            np.testing.assert_allclose(fitted.scores_[1:4], make().fit(X[:, :3], Y).scores_, atol=1e-6)
            assert not fitted.coef_[[0, 4]].any()

    def test_all_features_constant(self, make: Maker) -> None:
        with pytest.raises(InputError, match="can rank none of the 3 features: every one is excluded"):
            make().fit(np.full((20, 3), 0.1), np.arange(20) % 2)

    @pytest.mark.parametrize("gamma", [1e6, 1e12])
    def test_huge_gamma_ranks_by_what_brings_features_in(self, make: Maker, gamma: float) -> None:
        fitted = plain(make, gamma=gamma)
        assert np.count_nonzero(fitted.scores_) <= 2
        assert scores(fitted).sum() == pytest.approx(1.0)
        bound = fitted.score_fields_["bound"]
        assert ((bound > 0) & (bound <= 1)).all()
        order = np.argsort(fitted.ranking_)
        assert (np.diff(bound[order]) <= 0).all()
        np.testing.assert_array_equal(fitted.score_fields_["position"], fitted.ranking_)
        assert len(np.unique(bound[fitted.scores_ == 0])) == np.count_nonzero(fitted.scores_ == 0)

    @pytest.mark.parametrize("gamma", [1e-6, 1e-12])
    def test_tiny_gamma_is_least_squares(self, make: Maker, gamma: float) -> None:
        fitted = plain(make, gamma=gamma)
        targets = targets_of("wine", dragged=make is DSSFS)
        predictions, _ = targets.best(fitted.coef_)
        expected = np.linalg.lstsq(targets.Z, predictions - predictions.mean(axis=0), rcond=None)[0]
        np.testing.assert_allclose(fitted.coef_, expected, atol=1e-4)

    def test_one_feature(self, make: Maker) -> None:
        fitted = make().fit(X[:, :1], Y)
        assert fitted.scores_.tolist() == [1.0]
        assert fitted.converged_

    def test_few_rows(self, make: Maker) -> None:
        fitted = make().fit(np.array([[0.0, 1.0], [1.0, 3.0]]), [0, 1])
        np.testing.assert_allclose(fitted.scores_, [0.5, 0.5])
        assert make().fit(np.array([[0.0, 1.0], [1.0, 3.0], [0.5, 0.1]]), [0, 1, -1]).converged_

    def test_fewer_rows_than_features(self, make: Maker) -> None:
        rng = np.random.default_rng(8)
        y = np.where(np.arange(40) < 36, np.arange(40) % 2, -1)
        data = rng.normal(size=(40, 300))
        data[:, 7] += 3 * (np.arange(40) % 2)
        fitted = make(gamma=5.0).fit(data, y)
        assert fitted.solution_["solver"] == "woodbury"
        assert fitted.ranking_[7] == 1
        assert fitted.solution_["n_active"] < 40
        assert fitted.converged_

    @pytest.mark.parametrize("power", [-6, 6])
    def test_columns_of_very_different_size(self, make: Maker, power: int) -> None:
        """Without scaling, a feature in other units is penalized otherwise; z-scores do not see units."""
        scale = 10.0 ** np.linspace(-power, power, 13)
        np.testing.assert_allclose(make().fit(X * scale, Y).scores_, plain(make).scores_, atol=1e-8)
        fitted = make(score_scaling=None, gamma=1e-3).fit(X * scale, Y)
        assert fitted.converged_
        assert np.isfinite(fitted.scores_).all()
        if make is RLSR:
            targets = Targets(reference.scaled(X * scale, zscore=False), Y, np.ones(N), 3)
            assert reference.kkt(targets, fitted.coef_, 1e-3).active <= 1e-6

    def test_stopped_early(self, make: Maker) -> None:
        with pytest.warns(ConvergenceWarning, match=f"{make.__name__} stopped after max_iter=1 rounds"):
            fitted = make(max_iter=1).fit(X, Y)
        assert not fitted.converged_
        assert fitted.n_iter_ == 1
        assert np.isfinite(fitted.scores_).all()

    def test_looser_tolerance_takes_fewer_rounds(self, make: Maker) -> None:
        fitted, exact = make(tol=1e-2).fit(X, Y), make(tol=0.0).fit(X, Y)
        assert fitted.n_iter_ <= exact.n_iter_
        assert exact.converged_


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"solver": "qr"}, "parameter 'solver'"),
    ({"gamma": 0.0}, "parameter 'gamma'"),
    ({"gamma": -1.0}, "parameter 'gamma'"),
    ({"gamma": np.nan}, "gamma"),
    ({"gamma": np.inf}, "gamma"),
    ({"max_iter": 0}, "parameter 'max_iter'"),
    ({"tol": -1e-9}, "parameter 'tol'"),
    ({"correlation": "pearson"}, "parameter 'correlation'"),
    ({"score_scaling": "minmax"}, "parameter 'score_scaling': unknown step 'minmax'"),
    ({"greedy_filter": "yes"}, "parameter 'greedy_filter'"),
]


def test_parameters_are_named() -> None:
    for make in ALL:
        for parameters, message in WRONG:
            with case(make, parameters), pytest.raises(ValueError, match=message):
                make(**parameters).fit(X, Y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"eta": 0.0}, "'eta'"), ({"eta": -1.0}, "'eta'"), ({"eta_relative": 0.0}, "'eta_relative'")],
    ids=str,
)
def test_parameters_of_the_reward(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SSUFS(**parameters).fit(X, Y)
    with pytest.raises(JobError, match=message):
        make_method("SSUFS", parameters)


def test_no_reward_has_no_place_elsewhere() -> None:
    with pytest.raises(JobError, match="RLSR has no parameter 'eta'"):
        make_method("RLSR", {"eta": 1.0})


# ------------------------------------------------------------------------------------------------ the command line
METHODS: list[Any] = [
    "RLSR",
    "DSSFS",
    {"name": "SSUFS", "gamma": 10.0},
    {"name": "SSUFS", "label": "held back", "gamma": 0.001, "eta": 1000.0, "max_iter": 60, "tol": 1e-6},
    {"name": "RLSR", "label": "apart", "gamma": 10.0, "greedy_filter": True},
    {"name": "RLSR", "label": "products", "gamma": 1000.0, "solver": "cg", "max_iter": 4},
]


def job_on(folder: Path, y: Any = Y, methods: Any = METHODS) -> dict[str, Any]:
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    return {
        "data": {"source": str(folder / "X.npy"), "labels": str(folder / "y.npy"), "task": "classification"},
        "methods": methods,
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(folder / "run")},
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rescaled")
    outcome = command("run", write_job(folder, job_on(folder)), "-q")
    assert outcome.code == 0
    assert re.findall("warning: method (.*?):", outcome.err) == ["products"], "it is stopped early"
    return folder / "run"


@pytest.mark.cluster
class TestCommand:
    def found(self, run: Path, label: str, column: str) -> FloatArray:
        rows = [row for row in rows_of(run / "ranking.csv") if row["method"] == label]
        values = np.empty(len(rows))
        values[[int(row["feature"]) for row in rows]] = [float(row[column]) for row in rows]
        return values

    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_scores_are_those_of_the_selectors(self, run: Path) -> None:
        selectors = {
            "RLSR": RLSR(),
            "DSSFS": DSSFS(),
            "SSUFS": SSUFS(gamma=10.0),
            "held back": SSUFS(gamma=0.001, eta=1000.0, max_iter=60, tol=1e-6),
            "apart": RLSR(gamma=10.0, greedy_filter=True),
            "products": RLSR(gamma=1000.0, solver="cg", max_iter=4),
        }
        for label, selector in selectors.items():
            fitted = selector.fit(X, Y)
            assert self.found(run, label, "score").tobytes() == fitted.scores_.tobytes(), label
            assert self.found(run, label, "rank").tolist() == fitted.ranking_.tolist(), label
        assert selectors["held back"].halvings_ > 0

    def test_a_target_is_refused(self, tmp_path: Path) -> None:
        job = job_on(tmp_path, np.linspace(0, 1, N))
        job["data"]["task"] = "regression"
        refused(command("run", write_job(tmp_path, job), "-q"), 3, "RLSR is for classification", "data.task")

    def test_a_wrong_solver(self, tmp_path: Path) -> None:
        job = job_on(tmp_path, methods=[{"name": "RLSR", "solver": "qr"}])
        refused(command("run", write_job(tmp_path, job), "-q"), 2, "solver", "'cholesky'")

    def test_missing_values(self, tmp_path: Path) -> None:
        job = job_on(tmp_path)
        bad = X.copy()
        bad[5, 3] = np.nan
        np.save(tmp_path / "X.npy", bad)
        refused(command("run", write_job(tmp_path, job), "-q"), 3, "column 3", "row 5")

    def test_what_is_known_of_the_solutions_is_kept(self, run: Path) -> None:
        kept = json.loads((run / "run.json").read_text())["solutions"]
        assert set(kept) == {"RLSR", "DSSFS", "SSUFS", "held back", "apart", "products"}
        assert kept["RLSR"]["kkt_active"] <= 1e-7
        assert kept["held back"]["halvings"] > 0
        assert kept["held back"]["eta"] == 1000.0 > kept["held back"]["eta_used"]
