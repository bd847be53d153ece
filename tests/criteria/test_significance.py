"""p-values of single features: exact moments, uniform under chance, and false discoveries as announced."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris

import daskfs
from daskfs import (
    LSDF,
    FisherScore,
    InformationGainScore,
    KolmogorovSmirnovScore,
    LaplacianScore,
    PearsonScore,
    SupervisedLaplacianScore,
    knn_graph,
)
from daskfs.criteria import invariants
from daskfs.errors import InputError, JobError
from daskfs.export.collect import read_run
from daskfs.graph.halves import FeatureBlocks, split_graphs
from daskfs.kernels.panel.backend import PLAIN
from daskfs.kernels.statistics.moments import column_moments
from daskfs.kernels.statistics.permutation import (
    RatioInvariants,
    column_tails,
    ratio_moments,
    ratio_pvalues,
)
from daskfs.kernels.statistics.permuted import permuted_pvalues
from daskfs.kernels.statistics.ratios import LaplacianRatio, class_invariants, class_terms
from tests.cli.command import daskfs as daskfs_command
from tests.cli.command import rows_of

N = 7
TESTED: dict[str, tuple[Any, str]] = {
    "LaplacianScore": (LaplacianScore(significance=True), "none"),
    "of given components": (LaplacianScore(significance=True, graph_scaling="zscore+pca=5"), "none"),
    "of variance": (LaplacianScore(significance=True, denominator="variance"), "none"),
    "LSDF": (LSDF(significance=True), "half"),
    "LSDF of all labels": (LSDF(significance=True), "classes"),
    "by target": (SupervisedLaplacianScore(significance=True), "target"),
    "by class": (SupervisedLaplacianScore(task="classification", significance=True), "classes"),
    "FisherScore": (FisherScore(significance=True), "classes"),
    "PearsonScore": (PearsonScore(significance=True), "target"),
}


def laplacian(weights: np.ndarray) -> np.ndarray:
    W = weights.astype(np.float64)
    np.fill_diagonal(W, 0)
    return np.diag(W.sum(axis=1)) - W


def products_of(W: np.ndarray) -> Any:
    """Return products with powers of a matrix, as a stream of its edges gives them."""
    return lambda panels: {power: W**power @ panel for power, panel in panels.items()}


def graphs() -> dict[str, np.ndarray]:
    """Return weights of small graphs, with hubs, in parts, and with loops."""
    rng = np.random.default_rng(0)
    ring = np.roll(np.eye(N), 1, axis=1)
    ring = np.maximum(ring, ring.T)
    star = np.zeros((N, N))
    star[0, 1:] = star[1:, 0] = 1
    heat = ring * np.exp(-rng.random((N, N)))
    parts = np.zeros((N, N))
    parts[:3, :3] = parts[3:6, 3:6] = 1
    np.fill_diagonal(parts, 0)
    return {
        "binary": ring,
        "heat": np.maximum(heat, heat.T),
        "star": star,
        "parts": parts,
        "loops": ring + np.eye(N),
        "dense": np.ones((N, N)) - np.eye(N),
    }


def features() -> np.ndarray:
    """Return a normal, a skewed, a binary and a heavy-tailed feature, shape (7, 4)."""
    rng = np.random.default_rng(1)
    columns = [rng.normal(size=N), rng.lognormal(size=N), np.arange(N) < 2, rng.standard_cauchy(N)]
    return np.stack(columns, axis=1).astype(np.float64)


def ratios() -> Mapping[str, tuple[Any, np.ndarray, np.ndarray, np.ndarray]]:
    """Return ratios of graphs by name, with A, B and W."""
    found: dict[str, tuple[Any, np.ndarray, np.ndarray, np.ndarray]] = {}
    for name, whole in graphs().items():
        W, degrees = whole - np.diag(np.diag(whole)), whole.sum(axis=1)
        for of, d in ((name, degrees), (f"{name}, of variance", np.ones(N))):
            ratio: Any = LaplacianRatio(W.sum(axis=1), d, products_of(W))
            found[of] = ratio, laplacian(W), np.diag(d) - np.outer(d, d) / d.sum(), W
    return found


CLASSES = ([0, 0, 1, 1, 1, 1, -1], [0, 0, 1, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1, 2])
"""Classes of seven rows, some without labels."""


def of_classes(codes: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the labeled rows, and the matrices A and B of the pairs of one class among them."""
    of = np.array(codes)
    rows = np.flatnonzero(of >= 0)
    same = of[rows, None] == of[rows]
    return rows, laplacian(same), np.eye(rows.size) - 1 / rows.size


def forms(matrices: Sequence[np.ndarray], F: np.ndarray) -> list[np.ndarray]:
    return [np.einsum("ij,ik,kj->j", F, M, F) for M in matrices]


@pytest.mark.parametrize("name", ratios())
@pytest.mark.parametrize("column", range(4))
def test_moments_are_those_of_all_permutations(name: str, column: int) -> None:
    (ratio, *matrices, _), F = ratios()[name], features()[:, [column]]
    F = F - F.mean(axis=0)
    numerator, denominator = forms(matrices, F)
    c = np.divide(numerator, denominator, out=np.full(1, 50.0), where=denominator > 1e-12)
    every = F[np.array(list(itertools.permutations(range(N)))), 0].T
    numerator, denominator = forms(matrices, every)
    T = numerator - c * denominator
    tails = column_tails(F, column_moments(F), PLAIN)
    found = [moment[0] for moment in ratio_moments(c, ratio.invariants(), tails)]
    scale = np.abs(F).max() ** 2  # the features are scaled to deviations of 1 at most
    expected = [T.mean() / scale, T.var() / scale**2]
    np.testing.assert_allclose(found[:2], expected, rtol=1e-9, atol=1e-9)
    if T.var() > 1e-9:
        np.testing.assert_allclose(found[2], scipy.stats.skew(T), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("codes", CLASSES)
@pytest.mark.parametrize("column", range(4))
def test_class_moments_are_those_of_all_orders_of_the_labels(codes: Sequence[int], column: int) -> None:
    rows, A, B = of_classes(codes)
    F = features()[rows][:, [column]]
    F = F - F.mean(axis=0)
    expected, of_sizes = class_invariants(np.bincount(np.array(codes)[rows]).astype(float))
    every = F[np.array(list(itertools.permutations(range(rows.size)))), 0].T
    a, b = forms([A, B], every)
    tails = column_tails(F, column_moments(F), PLAIN)
    found = [moment[0] for moment in ratio_moments(np.zeros(1), of_sizes, tails)]
    scale, T = np.abs(F).max() ** 2, a - expected * b
    np.testing.assert_allclose(found[:2], [T.mean() / scale, T.var() / scale**2], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found[2], scipy.stats.skew(T), rtol=1e-7, atol=1e-7)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(6, 40), loops=st.booleans(), by_degree=st.booleans(), seed=st.integers(0, 2**16))
def test_invariants_are_those_of_the_matrices(n: int, loops: bool, by_degree: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    W = np.triu((rng.random((n, n)) < 0.3) * rng.random((n, n)), 1)
    W[0, 1] = 1
    W = W + W.T
    d = W.sum(axis=1) + rng.random(n) * loops if by_degree else np.ones(n)
    sizes = rng.integers(1, 9, rng.integers(2, 5)).astype(float)
    codes = np.repeat(np.arange(sizes.size), sizes.astype(int))
    expected, of_sizes = class_invariants(sizes)
    _, same, centering = of_classes(codes.tolist())
    ratio = LaplacianRatio(W.sum(axis=1), d, products_of(W))
    of_graph, A, B = ratio.invariants(), laplacian(W), np.diag(d) - np.outer(d, d) / d.sum()
    cases: list[tuple[RatioInvariants, np.ndarray, float]] = [(of_sizes, same - expected * centering, 0.0)]
    for sums_over, M, c in [*cases, *((of_graph, A - c * B, c) for c in (-1.0, 0.3, 2.0))]:
        m = np.diag(M)
        sums = {
            "trace": m.sum(),
            "diagonal_squares": (m**2).sum(),
            "squares": (M**2).sum(),
            "diagonal_cubes": (m**3).sum(),
            "diagonal_rows": m @ np.diag(M @ M),
            "diagonal_form": m @ M @ m,
            "cubes": (M**3).sum(),
            "trace_cubed": np.trace(M @ M @ M),
        }
        found = {name: values[0] for name, values in sums_over.at(np.array([c])).items()}
        size = np.abs(M).sum() ** 3
        assert found == pytest.approx(sums, rel=1e-9, abs=1e-12 * size)


@pytest.mark.parametrize("name", ratios())
def test_permutations_settle_where_moments_do_not(name: str) -> None:
    (ratio, *matrices, W), F = ratios()[name], features()
    found = permuted_pvalues(F, ratio.terms(sp.csr_matrix(W)), np.arange(N))
    assert_shares_of_orders(found, F, matrices)


@pytest.mark.parametrize("codes", CLASSES)
def test_orders_of_the_labels_settle_where_moments_do_not(codes: Sequence[int]) -> None:
    rows, *matrices = of_classes(codes)
    found = permuted_pvalues(features(), class_terms(np.array(codes), 3), rows)
    assert_shares_of_orders(found, features()[rows], matrices)


def assert_shares_of_orders(found: np.ndarray, F: np.ndarray, matrices: Sequence[np.ndarray]) -> None:
    """Check p-values, shape (width,), against the share of all orders of the rows whose ratio is as small."""
    every = np.array(list(itertools.permutations(range(len(F)))))
    numerator, denominator = forms(matrices, F)
    for column, found_here in enumerate(found):
        c = numerator[column] / denominator[column]
        a, b = forms(matrices, F[every, column].T)
        exact = np.mean(a - c * b <= 1e-9 * (np.abs(a) + np.abs(c * b)))
        assert abs(found_here - exact) < max(4 * np.sqrt(exact * (1 - exact) / 200), 0.02)


def noise(seed: int, n_features: int = 60) -> tuple[np.ndarray, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(150, n_features))
    y = rng.integers(0, 3, 150)
    half = np.where(rng.random(150) < 0.5, y, -1)
    return X, {"none": None, "classes": y, "half": half, "target": rng.normal(size=150)}


@pytest.mark.parametrize("name", TESTED)
def test_pvalues_of_noise_are_uniform(name: str) -> None:
    selector, kind = TESTED[name]
    found = []
    for seed in range(8):
        X, labels = noise(seed)
        found.append(selector.fit(X, labels[kind]).pvalues_)
    assert scipy.stats.kstest(np.concatenate(found), "uniform").pvalue > 1e-3


def test_lsdf_tests_the_labels_whatever_its_graph_and_weight() -> None:
    """Correlated columns are smooth on the graph of each other, with the labels or without."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 200)) + rng.normal(size=(300, 1))
    y = np.where(np.arange(300) < 60, rng.integers(0, 3, 300), -1)
    found = LSDF(significance=True).fit(X, y)
    assert found.qvalues_.min() > 0.05
    for same_class_weight, n_neighbors, rep in ((1.0, 10, None), (10.0, 3, None), (100.0, 5, X[:, :1])):
        other = LSDF(same_class_weight=same_class_weight, n_neighbors=n_neighbors, significance=True)
        np.testing.assert_array_equal(other.fit(X, y, use_rep=rep).pvalues_, found.pvalues_)
    given = LSDF(graph=sp.random(300, 300, 0.02, random_state=0, format="csr"), significance=True)
    np.testing.assert_array_equal(given.fit(X, y).pvalues_, found.pvalues_)


@pytest.mark.parametrize("name", ["LSDF", "by target"])
def test_labels_are_tested_on_labeled_rows_alone(name: str) -> None:
    selector, kind = TESTED[name]
    X, labels = noise(0)
    y = labels[kind].copy()
    y[100:] = -1 if name == "LSDF" else np.nan
    labeled = np.flatnonzero(y >= 0) if name == "LSDF" else np.flatnonzero(~np.isnan(y))
    np.testing.assert_allclose(
        selector.fit(X, y).pvalues_, selector.fit(X[labeled], y[labeled]).pvalues_, rtol=1e-9, atol=1e-300
    )


def test_too_few_labeled_rows_are_the_reason_for_no_pvalue() -> None:
    X = np.random.default_rng(0).normal(size=(30, 4))
    y = np.where(np.arange(30) < 5, np.arange(30) % 2, -1)
    found = LSDF(significance=True).fit(X, y)
    assert np.isnan(found.pvalues_).all()
    assert set(found.reasons_) == {"no p-value: too few rows are tested, or all of them have one value"}


def test_pvalues_of_lsdf_are_those_of_f_for_classes_of_one_size() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2, -1], 200)
    X = rng.normal(size=(800, 40)) + rng.random(40) * 0.4 * y[:, None]
    by_f = FisherScore(significance=True).fit(X, y).pvalues_
    found = LSDF(significance=True).fit(X, y).pvalues_
    assert by_f.min() < 1e-6
    np.testing.assert_allclose(found, by_f, rtol=0.1, atol=1e-4)


def test_the_denominator_of_variance_makes_gearys_c() -> None:
    X = np.random.default_rng(0).lognormal(size=(120, 6))
    graph = knn_graph(X, 4)
    found = LaplacianScore(graph=graph, weights="binary", n_neighbors=4, denominator="variance").fit(X)
    lists = np.zeros((120, 120))
    lists[np.arange(120)[:, None], graph.indices] = 1
    W = np.maximum(lists, lists.T)
    squares = (W[:, :, None] * (X[:, None] - X[None]) ** 2).sum(axis=(0, 1))
    geary = 119 * squares / (2 * W.sum() * ((X - X.mean(axis=0)) ** 2).sum(axis=0))
    np.testing.assert_allclose(found.scores_ * 119 / W.sum(), geary, rtol=1e-12)
    np.testing.assert_allclose(found.score_fields_["denominator"], 120 * X.var(axis=0), rtol=1e-12)


@pytest.mark.parametrize("kind", ["heavy", "rare"])
def test_pvalues_of_features_that_few_rows_carry_are_not_too_small(kind: str) -> None:
    """Three moments alone call a hundredth of them significant at a thousandth."""
    found = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.standard_t(2, (200, 50)) if kind == "heavy" else (rng.random((200, 50)) < 0.03).astype(np.float64)
        found.append(LaplacianScore(significance=True).fit(X, use_rep=rng.normal(size=(200, 5))).pvalues_)
    p = np.concatenate(found)
    assert np.mean(p <= 0.05) < 0.09
    assert np.mean(p <= 0.002) < 0.02


def test_a_graph_of_the_tested_features_makes_noise_significant() -> None:
    """Which is why features are tested on a graph that others make."""
    X, _ = noise(0)
    own = LaplacianScore(significance=True, graph=knn_graph(X, 5)).fit(X)
    crossed = LaplacianScore(significance=True).fit(X)
    assert np.mean(own.pvalues_ < 0.05) > 0.5
    assert np.mean(crossed.pvalues_ < 0.05) < 0.2
    plain = LaplacianScore().fit(X)
    np.testing.assert_array_equal(crossed.scores_, plain.scores_)
    np.testing.assert_array_equal(crossed.ranking_, plain.ranking_)
    assert not hasattr(plain, "pvalues_")


@pytest.mark.parametrize("name", TESTED)
def test_informative_features_are_found_and_few_others(name: str) -> None:
    selector, kind = TESTED[name]
    rates = []
    for seed in range(3):
        X, labels = noise(seed, 200)
        effect = labels["target"][:, None] if kind == "target" else 2.0 * (labels["classes"][:, None] - 1)
        X[:, :20] += effect
        passing = np.flatnonzero(selector.fit(X, labels[kind]).qvalues_ <= 0.1)
        assert set(range(20)) <= set(passing)
        rates.append(np.mean(passing >= 20))
    assert np.mean(rates) <= 0.2


def test_filters_have_the_pvalues_of_textbooks() -> None:
    X, y = load_iris(return_X_y=True)
    X = X + np.random.default_rng(0).normal(size=X.shape) * 3
    by_class = [X[y == code] for code in range(3)]
    np.testing.assert_allclose(
        FisherScore(significance=True).fit(X, y).pvalues_, scipy.stats.f_oneway(*by_class).pvalue, rtol=1e-9
    )
    target = X[:, 0] + y
    expected = [scipy.stats.pearsonr(column, target).pvalue for column in X.T]
    found = PearsonScore(significance=True).fit(X, target.astype(np.float64)).pvalues_
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-300)
    two = y < 2
    expected = [
        scipy.stats.ks_2samp(a, b, method="asymp").pvalue for a, b in zip(by_class[0].T, by_class[1].T, strict=True)
    ]
    found = KolmogorovSmirnovScore(significance=True).fit(X[two], y[two]).pvalues_
    np.testing.assert_allclose(found, expected, rtol=0.15)
    scored = InformationGainScore(n_bins=5, significance=True).fit(X, y)
    bins = [
        np.searchsorted(edges[~np.isnan(edges)], column, side="right")
        for edges, column in zip(scored.bin_edges_, X.T, strict=True)
    ]
    for column, p in zip(bins, scored.pvalues_, strict=True):
        table = np.array([[np.sum((column == b) & (y == code)) for b in range(5)] for code in range(3)])
        found_g = scipy.stats.chi2_contingency(table, lambda_="log-likelihood")
        correction = 1 + (25 - 1) * (9 - 1) / (6 * 150 * 4 * 2)
        assert p == pytest.approx(scipy.stats.chi2.sf(found_g.statistic / correction, found_g.dof), rel=1e-6)


def test_features_that_are_all_equal_have_no_test() -> None:
    X = np.tile(np.random.default_rng(0).normal(size=(30, 1)), 3)
    found = LaplacianScore(significance=True, metric="cosine").fit(X)
    assert np.isnan(found.pvalues_).all()
    assert all(
        found.reasons_ == "no p-value: all features are one block, so none is left to make a graph that tests another"
    )


@pytest.mark.parametrize("gap", [None, 3.0])
@pytest.mark.parametrize("named", [False, True])
def test_no_feature_is_tested_on_a_graph_of_its_equals_its_block_or_near_ones(named: bool, gap: float | None) -> None:
    first, block = np.arange(400), np.arange(400) // 10
    first[399] = 7  # equal features of two blocks
    places = np.cumsum(np.random.default_rng(0).random(400) + 0.1)
    names = {str(feature): f"b{number}" for feature, number in enumerate(block)} if named else {}
    blocks = FeatureBlocks(names, gap, () if gap is None else tuple(places))
    for seed in range(5):
        graphs = split_graphs(first, blocks, seed)
        for half in (0, 1):
            inside, tested = np.flatnonzero(graphs[half]), np.flatnonzero(graphs[2] == half)
            assert inside.size > 50
            assert 100 < tested.size < 300
            assert not {*first[inside]} & {*first[tested]}
            if named:
                assert not {*block[inside]} & {*block[tested]}
            if gap is not None:
                assert np.abs(places[inside][:, None] - places[tested]).min() >= gap
        assert (graphs[2] < 2).all()
    for one in (FeatureBlocks(dict.fromkeys(names, "all")), FeatureBlocks(names, 300.0, tuple(places))):
        if one.blocks or one.gap:
            np.testing.assert_array_equal(split_graphs(first, one, 0), np.repeat([[1], [1], [2]], 400, axis=1))


def blocks_of_noise(seed: int) -> np.ndarray:
    """Return 200 columns in blocks of ten that are correlated by one half."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(200, 200)) + np.repeat(rng.normal(size=(200, 20)), 10, axis=1)


def test_blocks_that_are_known_are_no_structure() -> None:
    block = np.arange(200) // 10
    plain = LaplacianScore(significance=True).fit(blocks_of_noise(0))
    assert np.count_nonzero(plain.qvalues_ < 0.05) > 100
    known = [
        LaplacianScore(significance=True, significance_blocks=block).fit(blocks_of_noise(seed)) for seed in range(5)
    ]
    assert sum(np.count_nonzero(found.qvalues_ < 0.05) for found in known) <= 5
    assert 0.02 < np.mean([found.pvalues_ < 0.05 for found in known]) < 0.1
    one = LaplacianScore(significance=True, significance_gap=500).fit(blocks_of_noise(0))
    assert np.isnan(one.pvalues_).all()
    np.testing.assert_array_equal(one.scores_, plain.scores_)
    for wrong in ({"significance_blocks": [1, 2]}, {"significance_gap": -1.0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            LaplacianScore(significance=True, **wrong).fit(blocks_of_noise(0))


@pytest.mark.parametrize("way", ["names", "file", "gap"])
def test_blocks_of_a_job_are_those_of_a_selector(tmp_path: Path, way: str) -> None:
    X, block = blocks_of_noise(1), np.arange(200) // 10
    names = [f"{number}.5" for number in range(200)]
    pd.DataFrame(X, columns=names).to_parquet(tmp_path / "data.parquet")
    rules: dict[str, dict[str, Any]] = {
        "names": {"blocks": {f"{tens}\\d\\.5" if tens else r"\d\.5": str(tens) for tens in range(20)}},
        "file": {"blocks": str(tmp_path / "blocks.csv"), "fdr_method": "by"},
        "gap": {"gap": 11.0},
    }
    pd.DataFrame({"feature": names, "group": block}).to_csv(tmp_path / "blocks.csv", index=False)
    result = daskfs.run(
        {
            "data": {"source": str(tmp_path / "data.parquet")},
            "methods": ["LaplacianScore"],
            "significance": rules[way],
            "evaluate": None,
            "output": {"path": str(tmp_path / "run")},
        }
    )
    keys = {"significance_gap": 11.0} if way == "gap" else {"significance_blocks": block}
    own = LaplacianScore(significance=True, fdr_method=rules[way].get("fdr_method", "bh"), **keys)
    own.fit(pd.DataFrame(X, columns=names))
    table = result.ranking.sort_values("feature")
    np.testing.assert_array_equal(table["pvalue"], own.pvalues_)
    np.testing.assert_array_equal(table["qvalue"], own.qvalues_)
    assert "share structure with other features" in repr(result)
    none = daskfs.run({**job(tmp_path), "significance": {"gap": 1e9}, "output": {"path": str(tmp_path / "none")}})
    assert [one for one in none.warnings if "LaplacianScore: no p-values: all features are one block" in str(one)]


def test_qvalues_of_benjamini_and_yekutieli() -> None:
    X, labels = noise(0)
    X[:, :9] += labels["classes"][:, None] * 0.4
    found = FisherScore(significance=True, fdr_method="by").fit(X, labels["classes"])
    expected = scipy.stats.false_discovery_control(found.pvalues_, method="by")
    np.testing.assert_allclose(found.qvalues_, expected)
    plain = FisherScore(significance=True).fit(X, labels["classes"])
    assert (plain.qvalues_ <= found.qvalues_).all()
    unknown: Any = "bonferroni"
    with pytest.raises(InputError, match="fdr_method"):
        FisherScore(significance=True, fdr_method=unknown).fit(X, labels["classes"])


def test_degenerate_features_and_few_rows_have_none_or_one() -> None:
    X, labels = noise(0)
    X[:, 0] = 1.0
    for selector, kind in TESTED.values():
        found = selector.fit(X, labels[kind])
        assert np.isnan(found.pvalues_[0])
        assert np.isnan(found.qvalues_[0])
        assert np.isfinite(found.pvalues_[1:]).all()
    perfect = np.where(np.arange(150) % 3 == 0, 1.0, 0.0)
    X[:, 1] = perfect
    perfect_pvalues = LSDF(significance=True).fit(X, (np.arange(150) % 3 == 0).astype(int)).pvalues_
    assert perfect_pvalues[1] == pytest.approx(1 / 5000)  # no permutation of a feature that few rows carry is as good
    few = ratio_pvalues(
        np.array([0.5]),
        ratios()["binary"][0].invariants(),
        column_tails(X[:5, [2]], column_moments(X[:5, [2]]), PLAIN),
    )
    assert np.isnan(few[0][0])


def job(folder: Path, **blocks: Any) -> dict[str, Any]:
    X, labels = noise(1)
    X[:, :5] += 3.0 * (labels["classes"][:, None] - 1)
    np.savez(folder / "data.npz", X=X, y=labels["half"], weights=np.ones(150))
    return {
        "data": {"source": str(folder / "data.npz"), "labels": "y"},
        "methods": ["LaplacianScore", "LSDF", "FisherScore", "VarianceScore"],
        "evaluate": None,
        "output": {"path": str(folder / "run")},
        **blocks,
    }


def test_a_job_ranks_as_selectors_do_and_says_what_has_no_pvalue(tmp_path: Path) -> None:
    result = daskfs.run(job(tmp_path, significance=True, consensus=True))
    raw = np.load(tmp_path / "data.npz")
    for selector in (LaplacianScore, LSDF, FisherScore):
        own = selector(significance=True).fit(raw["X"], raw["y"])
        table = result.ranking.query(f"method == '{selector.__name__}'").sort_values("feature")
        np.testing.assert_array_equal(table["pvalue"], own.pvalues_)
        np.testing.assert_array_equal(table["qvalue"], own.qvalues_)
        np.testing.assert_allclose(own.qvalues_, scipy.stats.false_discovery_control(own.pvalues_))
        assert list(own.scores_frame().columns) == ["rank", "feature", "name", "score", "pvalue", "qvalue", "note"]
    for name, reason in (("VarianceScore", "the distribution of its score"), ("Consensus", "are combined")):
        table = result.ranking.query(f"method == '{name}'")
        assert table["pvalue"].isna().all()
        assert table["note"].str.contains(f"no p-value: .*{reason}").all()
    assert {one["method"] for one in result["significance"]["methods"]} == {"LaplacianScore", "LSDF", "FisherScore"}
    assert "more than chance, at a false discovery rate of 5 %: LaplacianScore" in repr(result)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "p-value" in page
    assert "Dashed: as many features are more than chance" in page
    without = daskfs.run(job(tmp_path, output={"path": str(tmp_path / "plain")}))
    assert "pvalue" not in without.ranking
    assert without["significance"] is None


def test_features_up_to_a_false_discovery_rate_are_selected(tmp_path: Path) -> None:
    result = daskfs.run(job(tmp_path, select={"fdr": 0.05}))
    table = result.ranking
    for label in ("LaplacianScore", "LSDF", "FisherScore"):
        passing = table.query(f"method == '{label}' and qvalue <= 0.05")["name"]
        assert result.selected(label) == list(passing)
        assert {f"x{i}" for i in range(5)} <= {*passing}
        assert len(passing) < 15
    assert result.selected("VarianceScore") == []
    assert [one for one in result.warnings if "VarianceScore: select.fdr selects none" in str(one)]
    assert {row["method"] for row in rows_of(tmp_path / "run" / "selected_features.csv")} == {
        "LaplacianScore",
        "LSDF",
        "FisherScore",
    }
    columns = read_run(result.url).columns
    np.testing.assert_array_equal(columns["qvalue_LSDF"] <= 0.05, columns["selected_LSDF"])
    assert "pvalue_VarianceScore" not in columns
    with pytest.raises(JobError, match=r"method VarianceScore of .* selects no feature"):
        daskfs.export_run(result.url, tmp_path / "none.zarr", data="VarianceScore")
    with pytest.raises(JobError, match="n_features and fdr both say"):
        daskfs.make_job(job(tmp_path, select={"fdr": 0.05, "n_features": 3}))


def test_features_in_doubt_have_no_pvalue_on_a_graph_too_large_to_permute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invariants, "HELD_EDGES", 10)
    blocks = job(tmp_path, methods=["LaplacianScore"], significance=True, cluster={"workers": 0})
    raw = dict(np.load(tmp_path / "data.npz"))
    raw["X"][:, 7] = np.arange(150) < 2
    np.savez(tmp_path / "data.npz", **raw)
    table = daskfs.run(blocks).ranking.set_index("feature")
    assert table["pvalue"].isna().loc[7]
    assert table.loc[7, "note"] == "no p-value: few rows carry it, on a graph too large to permute"
    assert table["pvalue"].drop([*range(5), 7]).notna().all()  # the first five have a mode for each class


def test_given_graphs_are_not_split(tmp_path: Path) -> None:
    np.save(tmp_path / "rep.npy", np.random.default_rng(0).normal(size=(150, 4)))
    methods = ["LaplacianScore", "LSDF"]
    result = daskfs.run(job(tmp_path, methods=methods, significance=True, graph={"use_rep": str(tmp_path / "rep.npy")}))
    raw, rep = np.load(tmp_path / "data.npz"), np.load(tmp_path / "rep.npy")
    assert not [graph for graph in result["graphs"] if "half" in graph["name"]]
    for selector in (LaplacianScore, LSDF):
        own = selector(significance=True).fit(raw["X"], raw["y"], use_rep=rep)
        table = result.ranking.query(f"method == '{selector.__name__}'").sort_values("feature")
        np.testing.assert_array_equal(table["pvalue"], own.pvalues_)
    weights = sp.random(150, 150, 0.05, random_state=0, format="csr")
    weights = weights + weights.T
    X, labels = noise(3)
    by_matrix = LaplacianScore(significance=True, graph=weights).fit(X)
    assert scipy.stats.kstest(by_matrix.pvalues_, "uniform").pvalue > 1e-3
    assert labels["none"] is None


def test_what_has_no_pvalues_is_refused_by_name(tmp_path: Path) -> None:
    data = {"source": str(tmp_path / "data.npz"), "labels": "y", "weights": "weights"}
    weighted = job(tmp_path, significance=True, data=data)
    with pytest.raises(JobError, match="method LaplacianScore has no p-values where rows have weights"):
        daskfs.run(weighted)
    X, labels = noise(0)
    with pytest.raises(ValueError, match="FisherScore has no p-values where rows have weights"):
        FisherScore(significance=True).fit(X, labels["classes"], sample_weight=np.ones(150))
    blocks = job(tmp_path)
    X[3, 2] = np.nan
    np.savez(tmp_path / "data.npz", X=X, y=labels["half"])
    blocks["data"]["missing"] = "pairwise"
    with pytest.raises(JobError, match=r"LaplacianScore has no p-values where data\.missing is pairwise"):
        daskfs.run({**blocks, "significance": True, "output": {"path": str(tmp_path / "other")}})
    with pytest.raises(JobError, match="has no parameter 'significance'"):
        daskfs.make_job({**blocks, "methods": [{"name": "VarianceScore", "significance": True}]})


@pytest.mark.cluster
def test_from_the_command_line(tmp_path: Path) -> None:
    job(tmp_path)
    source, output = str(tmp_path / "data.npz"), str(tmp_path / "ranked")
    outcome = daskfs_command(
        "rank", source, "--labels", "y", "--methods", "FisherScore,LSDF", "--fdr", "0.01", "--output", output
    )
    assert outcome.code == 0, outcome.err
    assert "more than chance, at a false discovery rate of 1 %: FisherScore 5 of 60, LSDF" in outcome.out
    assert "follow the labels" in outcome.out
    selected = rows_of(tmp_path / "ranked" / "selected_features.csv")
    assert {row["method"] for row in selected} == {"FisherScore", "LSDF"}
    assert all(float(row["qvalue"]) <= 0.01 for row in selected)
