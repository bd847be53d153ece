"""Published experiments that need no data from outside.

    python -m tests.benchmarks.papers [--sets 300]

Doquire and Verleysen (2011), section 4.1: how often a criterion ranks all informative features of a data set first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from daskfs import LaplacianScore, PearsonScore, SupervisedLaplacianScore
from tests.benchmarks.main_job import show

Problem = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray, int]]


def first_problem(rng: np.random.Generator, n_samples: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Eight features, of which four make cos(2 pi x1 x2) sin(2 pi x3 x4)."""
    X = rng.random((n_samples, 8))
    return X, np.cos(2 * np.pi * X[:, 0] * X[:, 1]) * np.sin(2 * np.pi * X[:, 2] * X[:, 3]), 4


def second_problem(rng: np.random.Generator, n_samples: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Four features, of which two make x1**2 / x2**2."""
    X = rng.random((n_samples, 4))
    return X, X[:, 0] ** 2 / X[:, 1] ** 2, 2


PROBLEMS: dict[str, Problem] = {"cos * sin": first_problem, "quotient": second_problem}
CRITERIA: dict[str, Callable[[], Any]] = {
    **{f"SLS, k = {k}": lambda k=k: SupervisedLaplacianScore(n_neighbors=k) for k in (3, 4, 5)},
    "correlation": PearsonScore,
    "LaplacianScore": lambda: LaplacianScore(graph_scaling="zscore"),
}


def hit_rates(n_sets: int, n_samples: int = 1000) -> list[dict[str, Any]]:
    """Return, for each criterion and problem, the share of the data sets whose informative features come first."""
    table = []
    for name, make in CRITERIA.items():
        row: dict[str, Any] = {"criterion": name}
        for problem, generate in PROBLEMS.items():
            hits = 0
            for seed in range(n_sets):
                X, y, n_informative = generate(np.random.default_rng(seed), n_samples)
                ranking = make().fit(X, y).ranking_
                hits += set(np.flatnonzero(ranking <= n_informative)) == set(range(n_informative))
            row[problem] = hits / n_sets
        table.append(row)
    return table


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sets", type=int, default=300, help="Random data sets of each problem")
    options = parser.parse_args(arguments)
    show(f"share of {options.sets} data sets with all informative features first", hit_rates(options.sets))


if __name__ == "__main__":
    main()
