"""Every method on small data at random: what its formula says, or one error that says what is wrong.

Values are multiples of 1/8, moved by an offset and scaled by a power of two, which costs them nothing: so the formulas
are worked out on the values as they were, and no digit that is lost is theirs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import daskfs
from daskfs.criteria.registry import Method, criteria
from daskfs.errors import DaskfsWarning
from tests.cli.command import daskfs as command
from tests.cli.command import rows_of, write_job
from tests.reference import distributions, greedy, rankdata, rescaled, scores, svm
from tests.reference.distance import distance_correlations
from tests.reference.graph import binary, heat, heat_t, knn_lists, union_adjacency
from tests.reference.labeled import lsdf, semi_supervised_laplacian_score, supervised_laplacian_score
from tests.reference.sselect import sselect

NAMES = list(criteria())
FloatArray = np.ndarray


# ---------------------------------------------------------------------------------------------------------------- data
@dataclass(frozen=True)
class Example:
    """Plain values, shape (n, d), float64; X as given, ``(plain + offset) * scale`` in some type and form; classes with
    -1, and a target with NaN, for rows without a label.
    """

    plain: FloatArray
    X: Any
    scale: float
    codes: np.ndarray
    target: FloatArray
    n_neighbors: int

    @property
    def rounding(self) -> float:
        """What an offset costs: a mean near 1e8 is a number of eight decimals."""
        values = self.X.data if sp.issparse(self.X) else np.asarray(self.X)
        return 1e-6 if np.abs(values, dtype=np.float64).max(initial=0.0) > 1e6 * self.scale else 1e-9


@st.composite
def matrices(draw: st.DrawFn, n: int, d: int) -> FloatArray:
    """Draw multiples of 1/8 with ties, equal rows and columns, constant ones and zeros."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    largest = draw(st.sampled_from([1, 2, 32]))
    values = rng.integers(-largest, largest + 1, (n, d)) / 8
    values[rng.random((n, d)) < draw(st.sampled_from([0.0, 0.0, 0.6]))] = 0.0
    if draw(st.booleans()):
        values = values[rng.integers(0, n, n)]
    if draw(st.booleans()):
        values = values[:, rng.integers(0, d, d)]
    for column in draw(st.lists(st.integers(0, d - 1), max_size=2)):
        values[:, column] = draw(st.sampled_from([0.0, 0.125, -3.0]))
    return np.asarray(values)


def given_as(draw: st.DrawFn, plain: FloatArray) -> tuple[Any, float]:
    """Draw the type, the form, the offset and the scale of X; return it with its scale."""
    kind = draw(st.sampled_from(["f8", "f8", "f8", "f4", "f2", "i8", "i1", "u2", "bool", "csr", "fortran"]))
    if kind == "bool":
        return plain > 0, 1.0
    if kind in ("i8", "i1", "u2"):
        offset = {"i8": draw(st.sampled_from([0, 10**8])), "i1": 0, "u2": 40}[kind]
        return (plain * 8 + offset).astype(kind), 8.0
    if kind in ("f4", "f2"):
        return (plain + (1024.0 if kind == "f4" and draw(st.booleans()) else 0.0)).astype(kind), 1.0
    scale = 2.0 ** draw(st.sampled_from([0, 0, 0, -450, -20, 20, 430]))
    if kind == "csr":
        X = sp.csr_matrix(plain * scale)
        if X.nnz and draw(st.booleans()):  # zeros that are stored, too
            X.data[draw(st.integers(0, X.nnz - 1))] = 0.0
        return X, scale
    X = (plain + draw(st.sampled_from([0.0, 0.0, 1e8, -1e8]))) * scale
    X = np.where(X == 0, draw(st.sampled_from([0.0, -0.0])), X)
    return (np.asfortranarray(X) if kind == "fortran" else X), scale


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """Draw a data set with labels of both kinds, which may not serve."""
    n, d = draw(st.integers(1, 30)), draw(st.integers(1, 12))
    plain = draw(matrices(n, d))
    X, scale = given_as(draw, plain)
    if sp.issparse(X):
        plain = X.toarray() / scale
    elif X.dtype.kind == "b":
        plain = X.astype(np.float64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    unlabeled = rng.random(n) < draw(st.sampled_from([0.0, 0.0, 0.4, 0.9, 1.0]))
    codes = np.where(unlabeled, -1, rng.integers(0, draw(st.sampled_from([1, 2, 2, 3, 5])), n))
    if {*codes} == {-1, 1}:  # which would be two classes
        codes[codes == 1] = 2
    target = np.where(unlabeled, np.nan, rng.integers(-8, 9, n) / 4)
    return Example(plain, X, scale, codes, target, draw(st.integers(1, max(1, n - 1))))


_ONE_LINE = np.array([[0, 1, 1, 1, -1, 0, 1, -1, 0, 1, -1], *[[0, 0, 0, -1, 1, 0, 0, 1, 0, 1, 1]] * 3]) / 8
ONE_LINE = Example(_ONE_LINE, _ONE_LINE, 1.0, np.array([0, 1, 1, 1]), np.array([0.0, 0.5, 2.0, 1.0]), 1)
"""Columns of one direction, all of which have the same weight but for rounding."""
_NEARLY_ZERO = np.zeros((13, 4))
_NEARLY_ZERO[[3, 3, 7], [2, 3, 0]] = -0.125
_CODES = np.array([3, 2, 1, -1, -1, 2, 4, -1, 4, 0, -1, 4, -1])
NEARLY_ZERO = Example(_NEARLY_ZERO, _NEARLY_ZERO, 1.0, _CODES, np.where(_CODES < 0, np.nan, _CODES / 4), 1)
"""Weights that vanish, and steps whose squares underflow."""


# ------------------------------------------------------------------------------------------------------------ formulas
def heat_graph(e: Example) -> FloatArray:
    lists = knn_lists(e.plain, e.n_neighbors)
    t = heat_t(*lists, "mean")
    return union_adjacency(*lists, heat(t) if t > 0 else binary())


def check_greedy(e: Example, fitted: Any, relevance: FloatArray) -> None:
    """Each feature that was picked is as good as any that was left, and has the value of the formula."""
    left = [j for j in range(e.plain.shape[1]) if not np.isnan(relevance[j])]
    picks = [j for j in np.argsort(fitted.ranking_) if j in left]
    for step, pick in enumerate(picks):
        values = {
            j: relevance[j] - (np.mean([correlation(e, j, i) for i in picks[:step]]) if step else 0.0) for j in left
        }
        assert values[pick] >= max(values.values()) - e.rounding
        np.testing.assert_allclose(fitted.scores_[pick], values[pick], atol=e.rounding)
        left.remove(pick)


def correlation(e: Example, i: int, j: int) -> float:
    return greedy.correlation(e.plain[:, i], e.plain[:, j])


def check_rescaled(e: Example, fitted: Any) -> None:
    """The conditions of a minimum, of RLSR, DSSFS and SSUFS (of which there may be several, and each meets them)."""
    W = fitted.coef_
    codes = np.unique(e.codes[e.codes >= 0], return_inverse=True)[1]
    own = np.full(e.codes.size, -1)
    own[e.codes >= 0] = codes
    Z = rescaled.scaled(e.plain)
    targets = rescaled.Targets(Z, own, np.ones(own.size), W.shape[1], isinstance(fitted, daskfs.DSSFS))
    np.testing.assert_array_equal(np.isnan(fitted.scores_), np.ptp(e.plain, axis=0) == 0)
    norms = rescaled.row_norms(W)
    if not norms.any():
        return
    np.testing.assert_allclose(np.nan_to_num(fitted.scores_), norms / norms.sum(), atol=1e-12)
    if not fitted.converged_:
        return
    pull = None
    if isinstance(fitted, daskfs.SSUFS):
        M = distance_correlations(e.plain)
        np.fill_diagonal(M, 0.0)
        pull = fitted.eta_used_ * (M.sum(axis=1) * norms**2 - M @ norms**2)
    found = rescaled.kkt(targets, W, fitted.gamma, pull)
    assert found.active <= 1e-5
    assert found.inactive <= 1.0 + 1e-6


def check_svm(e: Example, fitted: Any) -> None:
    """The criteria of the first round, in which all leave but one."""
    varying = np.flatnonzero(np.ptp(e.plain, axis=0) > 0)
    np.testing.assert_array_equal(np.isnan(fitted.scores_), np.ptp(e.plain, axis=0) == 0)
    if varying.size < 2:
        return
    Z = svm.zscored(e.plain[:, varying])
    expected = svm.judged(Z, e.codes, svm.Setting(C=1.0, gamma=0.25))
    np.testing.assert_allclose(fitted.scores_[varying], expected, rtol=1e-5, atol=1e-6 * max(1.0, expected.max()))


def same(expected: Callable[[Example], FloatArray]) -> Any:
    """Return a check of all scores against those of a formula, of which NaN is a part."""

    def check(e: Example, fitted: Any) -> None:
        np.testing.assert_allclose(fitted.scores_, expected(e), rtol=e.rounding, atol=e.rounding / 10)

    return check


def check_variance(e: Example, fitted: Any) -> None:
    expected = np.where(np.ptp(e.plain, axis=0) == 0, np.nan, scores.variance(e.plain))
    np.testing.assert_allclose(fitted.scores_ / e.scale / e.scale, expected, rtol=1e-12)


def random_numbers(e: Example) -> FloatArray:
    return np.where(np.ptp(e.plain, axis=0) == 0, np.nan, np.random.default_rng(5).random(e.plain.shape[1]))


def lsdf_scores(e: Example) -> FloatArray:
    known = e.codes >= 0
    S = np.zeros((known.size,) * 2) if known.all() else union_adjacency(*knn_lists(e.plain, e.n_neighbors), binary())
    return lsdf(e.plain, S, e.codes)


def semi_supervised(e: Example) -> FloatArray:
    return semi_supervised_laplacian_score(e.plain, e.target, e.n_neighbors, 3)


def greedy_by_classes(e: Example, fitted: Any) -> None:
    relevance = scores.pearson_one_vs_rest(e.plain, e.codes)
    check_greedy(e, fitted, relevance)


ONE_ROUND = {"step": 11, "n_singly": 1, "candidates": "exact", "C": 1.0, "gamma": 0.25}
CHECKS: dict[str, tuple[Callable[[Example], dict[str, Any]], str, Callable[[Example, Any], None]]] = {
    "VarianceScore": (lambda _: {}, "codes", check_variance),
    "LaplacianScore": (
        lambda e: {"n_neighbors": e.n_neighbors},
        "codes",
        same(lambda e: scores.laplacian_score(e.plain, heat_graph(e))),
    ),
    "FisherScore": (lambda _: {}, "codes", same(lambda e: scores.fisher(e.plain, e.codes))),
    "PearsonScore": (
        lambda _: {"task": "classification"},
        "codes",
        same(lambda e: scores.pearson_one_vs_rest(e.plain, e.codes)),
    ),
    "KolmogorovSmirnovScore": (
        lambda _: {},
        "codes",
        same(lambda e: distributions.kolmogorov_smirnov(e.plain, e.codes)),
    ),
    "InformationGainScore": (lambda _: {}, "codes", same(lambda e: distributions.information_gain(e.plain, e.codes))),
    "SupervisedLaplacianScore": (
        lambda _: {"n_neighbors": 3},
        "target",
        same(lambda e: supervised_laplacian_score(e.plain, e.target, 3)),
    ),
    "SemiSupervisedLaplacianScore": (
        lambda _: {"n_neighbors": 29, "n_label_neighbors": 3},
        "target",
        same(lambda e: semi_supervised_laplacian_score(e.plain, e.target, 29, 3)),
    ),
    "LSDF": (lambda e: {"n_neighbors": e.n_neighbors}, "codes", same(lsdf_scores)),
    "SSelect": (
        lambda e: {"n_neighbors": e.n_neighbors},
        "codes",
        same(lambda e: sselect(e.plain, heat_graph(e), e.codes, 0.1)),
    ),
    "RRPC": (lambda _: {"task": "classification"}, "codes", greedy_by_classes),
    "RLSR": (lambda _: {}, "codes", check_rescaled),
    "DSSFS": (lambda _: {}, "codes", check_rescaled),
    "SSUFS": (lambda _: {"correlation": "exact"}, "codes", check_rescaled),
    "SVMRFE": (lambda _: ONE_ROUND, "codes", check_svm),
    "RandomOrder": (lambda _: {"random_state": 5}, "codes", same(random_numbers)),
}


def test_every_method_is_here() -> None:
    assert set(CHECKS) == set(NAMES)


# -------------------------------------------------------------------------------------------------------------- checks
def fitted_or_refused(name: str, e: Example) -> Any:
    """Return the fitted selector; None where the data were refused, for other reasons than that every feature is
    excluded. What is warned of is daskfs's own.
    """
    parameters, which, _ = CHECKS[name]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        selector, y = getattr(daskfs, name)(**parameters(e)), getattr(e, which)
        try:
            fitted = selector.fit(e.X, y)
        except ValueError as error:
            message = str(error)
            if f"{name} can rank none of the {e.plain.shape[1]} features" in message:
                with mock.patch.object(Method, "check_ranks_any"):  # its fields are checked all the same
                    fitted = selector.fit(e.X, y)
                assert fitted._is_excluded.all()
                return fitted
            if not must_be_refused(name, e) or len(message) < 20 or "\n" in message:
                raise
            return None
    assert all(issubclass(entry.category, DaskfsWarning) for entry in told), list(map(str, told))
    return fitted


def must_be_refused(name: str, e: Example) -> bool:
    """Whether no answer is the right one: too few rows for neighbors, or labels that tell nothing apart."""
    row = criteria()[name]
    n = e.plain.shape[0]
    values = e.target[~np.isnan(e.target)] if CHECKS[name][1] == "target" else e.codes[e.codes >= 0]
    if row.needs_labels and np.unique(values).size < (1 if row.one_class_serves else 2):
        return True
    if name == "SSelect" and -1 in e.codes and len(set(e.codes)) == 2:  # who writes -1 and 0 may mean two classes
        return True
    needs_neighbors = row.uses_graph or name in ("SSelect", "SemiSupervisedLaplacianScore", "LSDF")
    return n == 1 and needs_neighbors and name != "SVMRFE"


def check_ranking(name: str, e: Example, fitted: Any) -> None:
    """Ranks are a permutation; ties go by number, what is excluded comes last; no score of what is ranked is NaN."""
    row, d = criteria()[name], e.plain.shape[1]
    assert sorted(fitted.ranking_) == list(range(1, d + 1))
    excluded = fitted._is_excluded
    order = np.argsort(fitted.ranking_).tolist()
    assert order[d - excluded.sum() :] == np.flatnonzero(excluded).tolist()
    if not row.ranked_by:
        assert order == rankdata.order(fitted.scores_, row.direction)
        np.testing.assert_array_equal(np.isnan(fitted.scores_), excluded)
    else:
        by = fitted.score_fields_[row.ranked_by]
        np.testing.assert_array_equal(by[~excluded], fitted.ranking_[~excluded])
    assert not fitted.set_params(n_features_to_select=d).get_support()[excluded].any()


def check(name: str, e: Example) -> None:
    fitted = fitted_or_refused(name, e)
    if fitted is None:
        return
    check_ranking(name, e, fitted)
    CHECKS[name][2](e, fitted)


QUICK = settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
AS_FOUND = (Phase.explicit, Phase.reuse, Phase.generate)
"""To make smaller what has been found costs minutes where every example is a run."""
LONG = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("name", NAMES)
@QUICK
@example(e=ONE_LINE)
@example(e=NEARLY_ZERO)
@given(e=examples())
def test_small_data(name: str, e: Example) -> None:
    check(name, e)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@LONG
@given(e=examples())
def test_much_small_data(name: str, e: Example) -> None:
    check(name, e)


# -------------------------------------------------------------------------------------------------------- command line
def write_data(e: Example, folder: Path, form: str) -> dict[str, str]:
    """Write X and the classes, and return the block of a job that names them."""
    X = e.X.toarray() if sp.issparse(e.X) and form != "npz" else e.X
    if form == "csv":
        columns = [f"f{number}" for number in range(X.shape[1])]
        cells = [
            ",".join([*(repr(value.item()) for value in row), f"c{code}"]) for row, code in zip(X, e.codes, strict=True)
        ]
        text = "\n".join([",".join([*columns, "class"]), *cells]).replace("c-1", "") + "\n"
        (folder / "X.csv").write_text(text, encoding="utf-8")
        return {"source": str(folder / "X.csv"), "labels": "class"}
    np.save(folder / "y.npy", e.codes)
    if sp.issparse(X):
        sp.save_npz(folder / "X.npz", X)
    elif form == "npz":
        np.savez(folder / "X.npz", X=X)
    else:
        np.save(folder / "X.npy", X)
    return {"source": str(folder / ("X.npz" if form == "npz" else "X.npy")), "labels": str(folder / "y.npy")}


def check_command_line(e: Example, form: str, folder: Path) -> None:
    """Files give what the estimators give, to the bit; what one refuses, the other does too."""
    fitted = {name: fitted_or_refused(name, e) for name in NAMES if CHECKS[name][1] == "codes"}
    serving = {name: one for name, one in fitted.items() if one is not None and not one._is_excluded.all()}
    if sp.issparse(e.X):
        form = "npz"  # sums over dense columns take other terms
    if not any(criteria()[name].needs_labels for name in serving) and form == "csv":
        form = "npy"  # whose labels may be left out
    for name in [name for name in fitted if name not in serving][:1]:
        assert command("run", job_of(e, folder, form, [name]), "-q", "--overwrite").code in (2, 3)
    if not serving:
        return
    outcome = command("run", job_of(e, folder, form, list(serving)), "-q", "--overwrite")
    assert outcome.code == 0, outcome.err
    for row in rows_of(folder / "run" / "ranking.csv"):
        one, feature = serving[row["method"]], int(row["feature"])
        assert int(row["rank"]) == one.ranking_[feature]
        assert (row["note"] != "") == one._is_excluded[feature] or row["score"] == ""
        np.testing.assert_equal(float(row["score"] or "nan"), one.scores_[feature])


def job_of(e: Example, folder: Path, form: str, names: list[str]) -> Path:
    job: dict[str, Any] = {
        "data": write_data(e, folder, form),
        "methods": [{"name": name, **CHECKS[name][0](e)} for name in names],
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(folder / "run")},
    }
    if form != "csv" and not any(criteria()[name].needs_labels for name in names):
        del job["data"]["labels"]  # others take no notice of labels that cannot serve
    for method in job["methods"]:
        method.pop("task", None)  # follows from the labels
    return write_job(folder, job)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.mark.cluster
@settings(parent=QUICK, max_examples=4, phases=AS_FOUND)
@given(e=examples(), form=st.sampled_from(["npy", "npz", "csv"]))
def test_command_line(folder: Path, e: Example, form: str) -> None:
    with mock.patch("daskfs.report.render.render_report", return_value=""):
        check_command_line(e, form, folder)


@pytest.mark.cluster
@pytest.mark.long
@settings(parent=LONG, max_examples=15, phases=AS_FOUND)
@given(e=examples(), form=st.sampled_from(["npy", "npz", "csv"]))
def test_command_line_often(folder: Path, e: Example, form: str) -> None:
    with mock.patch("daskfs.report.render.render_report", return_value=""):
        check_command_line(e, form, folder)
