"""Benchmark of the distance correlations of all features: how far the feature map is from the definition, and its time.

    python -m tests.benchmarks.correlations [--rows 2000] [--seeds 3] [--large 100000] [--features 500] [--wide 2000]

Three tables. ``errors``: entries of the feature map, with 8 components and with 4, less those from the distances of
all pairs of rows, by marginal distribution; ``bound`` is what the facts of the matrix promise. ``times``: the matrix of
many rows, in one process and one thread, and what share of it the products take. ``products``: one product with a
matrix that is not formed, of 1,000 rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from daskfs import distance_correlation_matrix
from daskfs.kernels.distance_correlation.spec import MATRIX_FREE_ROWS, CorrelationSpec
from daskfs.plan.inline import find_correlations, memory_context
from tests.benchmarks.main_job import show

Marginal = Callable[[np.ndarray, np.random.Generator], np.ndarray]
MARGINALS: dict[str, Marginal] = {
    "uniform": lambda z, _: norm.cdf(z),
    "normal": lambda z, _: z,
    "t(2)": lambda z, _: student.ppf(norm.cdf(z), 2),
    "binary": lambda z, _: (z > 0.5).astype(float),
    "zero-inflated": lambda z, rng: np.where(rng.random(z.size) < 0.5, 0, rng.poisson(np.exp(z / 2))),
    "t(1.5)": lambda z, _: student.ppf(norm.cdf(z), 1.5),
    "lognormal": lambda z, _: np.exp(1.5 * z),
    "Cauchy": lambda z, _: student.ppf(norm.cdf(z), 1),
}
MIXED = ("uniform", "normal", "t(2)", "binary", "zero-inflated")


def columns(names: Sequence[str], n_rows: int, n_columns: int, seed: int) -> np.ndarray:
    """Return columns that hang on two common components, not at all to closely, of marginals in turn."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n_rows, 2))
    made = []
    for k in range(n_columns):
        z = common[:, k % 2] * (k // len(names) % 4) / 2 + rng.normal(size=n_rows)
        made.append(MARGINALS[names[k % len(names)]](z / z.std(), rng))
    return np.column_stack(made)


def errors(n_rows: int, seeds: int) -> list[dict[str, Any]]:
    """Return the largest and the mean error over all entries and seeds."""
    rows = []
    for what, names in (("the five", MIXED), *((name, (name,)) for name in MARGINALS)):
        row: dict[str, Any] = {"marginals": what}
        for n_components in (8, 4):
            found, bound = [], 0.0
            for seed in range(seeds):
                X = columns(names, n_rows, 50 if names == MIXED else 20, seed)
                truth = distance_correlation_matrix(X, correlation="exact")
                mapped, facts = distance_correlation_matrix(
                    X, correlation="feature_map", n_components=n_components, return_facts=True
                )
                found.append(np.abs(mapped - truth))
                bound = max(bound, facts["error_bound"])
            row[f"max_{n_components}"], row[f"mean_{n_components}"] = float(np.max(found)), float(np.mean(found))
            row[f"bound_{n_components}"] = bound
        rows.append(row)
    return rows


def times(n_rows: int, n_features: int) -> list[dict[str, Any]]:
    """Return seconds of the matrix of many rows."""
    rows = []
    for names in (("normal",), ("t(2)",), ("binary",)):
        X = columns(names, n_rows, n_features, 0)
        for n_components in (8, 4):
            started = time.perf_counter()
            _, facts = distance_correlation_matrix(
                X, correlation="feature_map", n_components=n_components, return_facts=True
            )
            taken = time.perf_counter() - started
            row = {"rows": n_rows, "features": n_features, "marginal": names[0], "n_components": n_components}
            rows.append({**row, "most": facts["n_components"], "seconds": taken})
    return rows


def products(n_features: int) -> list[dict[str, Any]]:
    """Return seconds of one product with the matrix of so many features that is not formed, and of what is before."""
    rows = []
    for name in ("normal", "binary"):
        X = columns((name,), MATRIX_FREE_ROWS, n_features, 0)
        started = time.perf_counter()
        found = find_correlations(memory_context(X, None), CorrelationSpec("matrix_free"))
        before = time.perf_counter() - started
        v = np.ones(n_features)
        for share in (1.0, 0.1):
            v[int(share * n_features) :] = 0.0
            started = time.perf_counter()
            found.product(v)
            taken = time.perf_counter() - started
            row = {"features": n_features, "marginal": name, "in_use": share, "stage_seconds": before}
            rows.append({**row, "product_seconds": taken, "ms_a_feature": 1000 * taken / n_features})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 2000), ("seeds", 3), ("large", 100_000), ("features", 500), ("wide", 2000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args(arguments)
    show("errors", errors(given.rows, given.seeds))
    show("times", times(given.large, given.features))
    show("products", products(given.wide))


if __name__ == "__main__":
    main()
