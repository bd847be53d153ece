"""Benchmark of p-values: false discoveries and power, features of real data that are more than chance, and the cost.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.significance [--tables NAME ...] [--seeds 30] [--data FOLDER]

Tables: ``fdr`` (50 informative of 1,000 features at growing effects, beside scikit-learn's ``SelectFdr``), ``blocks``
(the same among noise that is correlated in blocks), ``uniform`` (p-values of noise), ``labels`` (LSDF on four kinds of
noise, at labels by chance), ``structure`` (LaplacianScore among correlated noise, with blocks or a gap and without),
``real`` (files of ``--data``: how many features pass, and what a model makes of them) and ``cost`` (scoring with
p-values against scoring without).
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import kstest, skew
from sklearn.datasets import load_wine
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_selection import SelectFdr, f_classif
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, kneighbors_graph
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from daskfs import (
    LSDF,
    FisherScore,
    InformationGainScore,
    KolmogorovSmirnovScore,
    LaplacianScore,
    PearsonScore,
    SupervisedLaplacianScore,
    run,
)
from daskfs.kernels.panel.backend import PLAIN
from daskfs.kernels.statistics.moments import column_moments
from daskfs.kernels.statistics.permutation import column_tails, ratio_moments, ratio_pvalues
from daskfs.kernels.statistics.permuted import permuted_pvalues
from daskfs.kernels.statistics.ratios import LaplacianRatio
from tests.benchmarks.main_job import show

FDR, N_INFORMATIVE = 0.1, 50
Labels = dict[str, np.ndarray | None]


def selectors() -> Iterator[tuple[str, Any, str]]:
    """Yield the name of each selector that tests, the selector, and the labels it takes."""
    yield "LaplacianScore", LaplacianScore(significance=True), "none"
    yield "LSDF, half labeled", LSDF(significance=True), "half"
    yield "LSDF, all labeled", LSDF(significance=True), "classes"
    yield "SLS, target", SupervisedLaplacianScore(significance=True), "target"
    yield "SLS, classes", SupervisedLaplacianScore(task="classification", significance=True), "classes"
    yield "FisherScore", FisherScore(significance=True), "classes"
    yield "PearsonScore, target", PearsonScore(significance=True), "target"
    yield "PearsonScore, classes", PearsonScore(significance=True), "classes"
    yield "KolmogorovSmirnovScore", KolmogorovSmirnovScore(significance=True), "classes"
    yield "InformationGainScore", InformationGainScore(significance=True), "classes"


def labels_of(rng: np.random.Generator, n_samples: int) -> Labels:
    """Return five classes, half of them, and a target."""
    y = rng.integers(0, 5, n_samples)
    half = np.where(rng.random(n_samples) < 0.5, y, -1)
    return {"none": None, "classes": y, "half": half, "target": rng.normal(size=n_samples)}


def informative(seed: int, effect: float, *, n_samples: int = 1000, n_features: int = 1000, block: int = 1) -> Any:
    """Return X, whose first 50 features follow the classes and the target, and the labels.

    Others are normal noise, in blocks of features with a correlation of .5.
    """
    rng = np.random.default_rng(seed)
    labels = labels_of(rng, n_samples)
    X = rng.normal(size=(n_samples, n_features))
    if block > 1:
        shared = np.repeat(rng.normal(size=(n_samples, n_features // block)), block, axis=1)
        X = np.sqrt(0.5) * (X + shared)
        X[:, :N_INFORMATIVE] = rng.normal(size=(n_samples, N_INFORMATIVE))
    y, target = labels["classes"], labels["target"]
    assert y is not None
    assert target is not None
    centers = rng.normal(size=(5, N_INFORMATIVE))
    X[:, :N_INFORMATIVE] += effect * (centers[y] + target[:, None])
    return X, labels


def discoveries(selected: np.ndarray) -> tuple[float, float]:
    """Return the share of false features among the selected ones, 0 for none, and of informative ones that are."""
    true = int(np.count_nonzero(selected[:N_INFORMATIVE]))
    return float(1 - true / max(selected.sum(), 1)) if selected.any() else 0.0, true / N_INFORMATIVE


def fdr_table(n_seeds: int, effects: tuple[float, ...], block: int) -> Iterator[dict[str, Any]]:
    """Yield the observed false discovery rate and power of each method at each effect."""
    for effect in effects:
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for seed in range(n_seeds):
            X, labels = informative(seed, effect, block=block)
            for name, selector, kind in selectors():
                found[name].append(discoveries(selector.fit(X, labels[kind]).qvalues_ <= FDR))
            known = SelectFdr(f_classif, alpha=FDR).fit(X, labels["classes"])
            found["SelectFdr(f_classif)"].append(discoveries(known.get_support()))
        for name, rates in found.items():
            rate, power = np.mean(rates, axis=0)
            yield {"effect": effect, "block": block, "method": name, "false": float(rate), "power": float(power)}


def uniform_table(n_seeds: int) -> Iterator[dict[str, Any]]:
    """Yield the Kolmogorov-Smirnov p-value of the p-values of noise, cross-fitted and on the graph of other data."""
    for n_features in (100, 1000, 5000):
        found: dict[str, list[np.ndarray]] = defaultdict(list)
        for seed in range(n_seeds):
            rng = np.random.default_rng(seed)
            X, labels = rng.normal(size=(500, n_features)), labels_of(rng, 500)
            for name, selector, kind in selectors():
                found[name].append(selector.fit(X, labels[kind]).pvalues_)
            other = rng.normal(size=(500, 10))
            found["LaplacianScore, use_rep"].append(LaplacianScore(significance=True).fit(X, use_rep=other).pvalues_)
        for name, values in found.items():
            p = np.concatenate(values)
            shares = {f"p < {limit}": float(np.mean(p < limit)) for limit in (0.05, 0.01, 0.001)}
            yield {"n_features": n_features, "method": name, "uniform": float(kstest(p, "uniform").pvalue), **shares}


def correlated(rng: np.random.Generator, kind: str, n_samples: int, n_features: int) -> np.ndarray:
    """Return noise of one kind, shape (n_samples, n_features)."""
    noise = rng.normal(size=(n_samples, n_features))
    if kind == "counts":
        return rng.negative_binomial(0.2, 0.1, size=noise.shape).astype(np.float64)
    if kind == "equicorrelated":
        return np.sqrt(0.5) * (noise + rng.normal(size=(n_samples, 1)))
    if kind == "blocks":
        return np.sqrt(0.5) * (noise + np.repeat(rng.normal(size=(n_samples, n_features // 10)), 10, axis=1))
    if kind == "AR(1)":
        for column in range(1, n_features):
            noise[:, column] = 0.8 * noise[:, column - 1] + 0.6 * noise[:, column]
    return noise


def labels_table(n_seeds: int) -> Iterator[dict[str, Any]]:
    """Yield shares of p-values of LSDF and seeds with a discovery, at labels by chance of 60 of 300 rows."""
    for kind in ("normal", "counts", "equicorrelated", "AR(1)"):
        found = []
        for seed in range(n_seeds):
            rng = np.random.default_rng(seed)
            X = correlated(rng, kind, 300, 200)
            y = np.where(np.arange(300) < 60, rng.integers(0, 3, 300), -1)
            by_weight = [LSDF(same_class_weight=w, significance=True).fit(X, y) for w in (1.0, 10.0, 100.0)]
            assert all(np.array_equal(one.pvalues_, by_weight[0].pvalues_) for one in by_weight)
            found.append(by_weight[0])
        row: dict[str, Any] = {"noise": kind}
        for limit in (0.05, 0.01, 0.001):
            shares = np.array([np.mean(one.pvalues_ < limit) for one in found])
            row |= {f"p < {limit}": float(shares.mean()), f"error {limit}": float(shares.std(ddof=1) / n_seeds**0.5)}
        yield {**row, "seeds with q < .05": sum(bool((one.qvalues_ < 0.05).any()) for one in found)}


def structure_table(n_seeds: int, effects: tuple[float, ...]) -> Iterator[dict[str, Any]]:
    """Yield the rate of false discoveries at .05, and power, of every twentieth feature that follows five classes."""
    ways: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("blocks", "none", {}),
        ("blocks", "blocks", {"significance_blocks": np.arange(1000) // 10}),
        ("AR(1)", "none", {}),
        ("AR(1)", "gap 7", {"significance_gap": 7.0}),
        ("AR(1)", "gap 14", {"significance_gap": 14.0}),
    )
    places = np.arange(0, 1000, 20)
    rest = np.setdiff1d(np.arange(1000), places)
    for (kind, name, keys), effect in itertools.product(ways, effects):
        rates, n_false = [], 0
        for seed in range(n_seeds):
            rng = np.random.default_rng(seed)
            X = correlated(rng, kind, 1000, 1000)
            if effect:
                X[:, places] = rng.normal(size=(1000, 50)) + effect * rng.normal(size=(5, 50))[rng.integers(0, 5, 1000)]
            passing = LaplacianScore(significance=True, **keys).fit(X).qvalues_ <= 0.05
            false = int(passing[rest].sum()) + (0 if effect else int(passing[places].sum()))
            rates.append((false / max(passing.sum(), 1), passing[places].mean()))
            n_false += false > 0
        rate, power = np.mean(rates, axis=0)
        known = {"noise": kind, "known": name, "effect": effect, "false": float(rate), "seeds with one": n_false}
        yield {**known, "power": float(power) if effect else float("nan")}


def real_table(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield how many features pass at 5 % in each of five training folds, and balanced accuracy on the held-out rows.

    Beside the passing features: as many at random, and all.
    """
    for name, scaling in (("sc_mECS", "zscore+pca=20"), ("PCMAC", "log1p+unit+pca=20")):
        raw = np.load(folder / f"{name}.npz")
        X = raw["X"] if "X" in raw else sp.csr_matrix((raw["data"], raw["indices"], raw["indptr"]), shape=raw["shape"])
        y, n_features = raw["y"], X.shape[1]
        few = np.where(np.arange(y.size) % 10, -1, y)
        methods: tuple[tuple[str, Any, Any], ...] = (
            ("LaplacianScore", LaplacianScore(significance=True, graph_scaling=scaling), None),
            ("LSDF, 10 % labeled", LSDF(significance=True, graph_scaling=scaling), few),
            ("FisherScore", FisherScore(significance=True), y),
            ("InformationGainScore", InformationGainScore(significance=True), y),
        )
        for label, selector, known in methods:
            counts, scores = list[int](), defaultdict[str, list[float]](list)
            start = time.perf_counter()
            for number, (train, test) in enumerate(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y)):
                found = selector.fit(X[train], None if known is None else known[train])
                passing = np.flatnonzero(found.qvalues_ <= 0.05)
                random = np.random.default_rng(number).choice(n_features, passing.size, replace=False)
                counts.append(passing.size)
                for kind, features in (("passing", passing), ("random", random), ("all", np.arange(n_features))):
                    scores[kind].append(_accuracy(X[:, features], y, train, test))
            yield {
                "data": name,
                "method": label,
                "features": f"{int(np.median(counts))} of {n_features}",
                **{kind: float(np.mean(values)) for kind, values in scores.items()},
                "seconds": time.perf_counter() - start,
            }


def _accuracy(X: Any, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    if not X.shape[1]:
        return float("nan")
    width = min(20, X.shape[1] - 1)
    steps = [TruncatedSVD(width, random_state=0)] if width > 1 else []
    model = make_pipeline(StandardScaler(with_mean=False), *steps, KNeighborsClassifier()).fit(X[train], y[train])
    return float(balanced_accuracy_score(y[test], model.predict(X[test])))


def moments_table(n_permutations: int = 100_000) -> Iterator[dict[str, Any]]:
    """Yield the error of the mean in standard errors, the ratio of variances, and p-values, for graphs and features."""
    X = StandardScaler().fit_transform(load_wine().data)
    n, rng = len(X), np.random.default_rng(0)
    lists = kneighbors_graph(X, 5).toarray()
    binary = np.maximum(lists, lists.T)
    squares = ((X[:, None] - X) ** 2).sum(axis=2)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    near = kneighbors_graph(unit, 5).toarray()
    hubs = np.zeros((n, n))
    hubs[:3] = hubs[:, :3] = 1
    np.fill_diagonal(hubs, 0)
    apart = binary * (np.arange(n)[:, None] // 60 == np.arange(n) // 60)
    heat = binary * np.exp(-squares / squares[binary > 0].mean())
    graphs = {
        "binary": binary,
        "heat": heat,
        "cosine": np.maximum(near, near.T) * np.abs(unit @ unit.T),
        "hubs": hubs,
        "parts": apart,
        "loops": heat + np.eye(n),
    }
    features = {
        "normal": rng.normal(size=n),
        "skewed": rng.lognormal(size=n),
        "binary": (rng.random(n) < 0.1).astype(np.float64),
        "heavy tails": rng.standard_t(2, n),
        "alcohol": X[:, 0],
    }
    orders = np.argsort(rng.random((n_permutations, n), dtype=np.float32), axis=1)
    for name, whole in graphs.items():
        W, d = whole - np.diag(np.diag(whole)), whole.sum(axis=1)
        ratio = LaplacianRatio(W.sum(axis=1), d, partial(_powers, W))
        A, B = np.diag(W.sum(axis=1)) - W, np.diag(d) - np.outer(d, d) / d.sum()
        for kind, feature in features.items():
            f = (feature - feature.mean())[:, None]
            f = f / np.abs(f).max()
            c = ((f.T @ A @ f) / (f.T @ B @ f))[0]
            T = np.concatenate([_forms(A - c * B, f[part, 0]) for part in np.array_split(orders, 50)])
            tails = column_tails(f, column_moments(f), PLAIN)
            mean, variance, skewness = (value[0] for value in ratio_moments(c, ratio.invariants(), tails))
            p, in_doubt = ratio_pvalues(c, ratio.invariants(), tails)
            if in_doubt[0]:
                p = permuted_pvalues(f, ratio.terms(sp.csr_matrix(W)), np.arange(n))
            yield {
                "graph": name,
                "feature": kind,
                "mean_error": float((mean - T.mean()) / (T.std() / np.sqrt(n_permutations))),
                "variance": float(variance / T.var()),
                "skewness": float(skewness),
                "permuted": float(skew(T)),
                "p": float(p[0]),
                "by": "permutations" if in_doubt[0] else "type III",
                "of 100,000": float(np.mean(T <= 1e-9)),
            }


def _powers(W: np.ndarray, panels: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    return {power: W**power @ panel for power, panel in panels.items()}


def _forms(M: np.ndarray, F: np.ndarray) -> np.ndarray:
    return np.einsum("ri,ri->r", F @ M, F)


def cost_table() -> Iterator[dict[str, Any]]:
    """Yield the seconds of the scoring pass with p-values and without, on a graph that is there already."""
    with TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200_000, 512)).astype(np.float32)
        np.savez(f"{folder}/data.npz", X=X, y=np.where(np.arange(len(X)) % 2, rng.integers(0, 5, len(X)), -1))
        np.save(f"{folder}/rep.npy", X[:, :16])
        for name in ("LaplacianScore", "LSDF", "FisherScore", "KolmogorovSmirnovScore", "InformationGainScore"):
            seconds: dict[bool, list[float]] = {True: [], False: []}
            for number in range(5):
                for on in (False, True):
                    job = {
                        "data": {"source": f"{folder}/data.npz", "labels": "y"},
                        "methods": [name],
                        "graph": {"use_rep": f"{folder}/rep.npy"},
                        "significance": on,
                        "evaluate": None,
                        "cluster": {"workers": 0},
                        "output": {"path": f"{folder}/{name}-{number}-{on}"},
                    }
                    stages = run(job, progress=False)["stages"]
                    seconds[on].append(sum(stage["seconds"] for stage in stages if stage["name"] == "score"))
            off, with_tests = float(np.median(seconds[False])), float(np.median(seconds[True]))
            yield {"method": name, "without": off, "with": with_tests, "ratio": with_tests / off}


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=["fdr", "blocks", "uniform", "cost"])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--data", type=Path, default=Path())
    options = parser.parse_args(arguments)
    effects = (0.1, 0.2, 0.4, 0.8)
    tables: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "fdr": lambda: fdr_table(options.seeds, effects, 1),
        "blocks": lambda: fdr_table(options.seeds, effects[1:], 10),
        "uniform": lambda: uniform_table(min(options.seeds, 20)),
        "labels": lambda: labels_table(2 * options.seeds),
        "structure": lambda: structure_table(options.seeds, (0.0, 0.4, 0.8)),
        "real": lambda: real_table(options.data),
        "moments": moments_table,
        "cost": cost_table,
    }
    for name in options.tables:
        show(name, list(tables[name]()))


if __name__ == "__main__":
    main()
