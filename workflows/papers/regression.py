"""Doquire and Verleysen (2011), "Graph Laplacian for Semi-supervised Feature Selection in Regression Problems".

    python workflows/papers/regression.py [--n-sets 1000] [--data FOLDER] [--sets tecator ...] [--draws 5] [--workers 2]

Artificial problems (section 4.1) need no data: 1,000 rows of uniform features, the target made of the first of them.
Counted is how often a criterion ranks all of these before all others. The paper's correlation finds them less often
than Pearson's does here, for an unknown reason.

Real problems (section 4.2): the paper's spectra and census data are not free; here are others, in FOLDER, .npz files
with ``X`` and ``y``: fat of meat, moisture of corn, protein of wheat kernels by near-infrared spectra, and prices of
houses by 16 figures of their neighborhood. A criterion sees all rows and few labels, 5 draws of them; then 5 nearest
neighbors predict, trained with all labels of the training folds, on the first features of the ranking: the root of the
mean squared error, 5 folds, 10 times. Features are standardized for graphs and for predictions, targets for the
supervised graph. LS has 5 neighbors, and as its width the mean of their squared distances: exp(-d^2) of distances in
hundreds of standardized columns is 0. SLS has 5 neighbors, SSLS 30 and 5, both t = 1, as in the paper. A random order
is drawn anew with each draw of labels. The largest sets are thinned to LARGEST rows. Each set is a job under --output,
which goes on where it stopped; its report has the curves.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from reporting import markdown, present

from daskfs import LaplacianScore, PearsonScore, SupervisedLaplacianScore, make_job, run_job
from daskfs.errors import DaskfsError
from daskfs.evaluation.metrics import hit_rate
from daskfs.evaluation.tables import read_table
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.connection import connect
from daskfs.store.store import Store

# ------------------------------------------------------------------------------------------------ artificial problems
N_ROWS = 1000
SETS_PER_TASK = 25


@dataclass(frozen=True)
class Problem:
    """An artificial problem: its number of uniform features, how many of them make the target, and how."""

    formula: str
    n_features: int
    n_informative: int
    target: Callable[[np.ndarray], np.ndarray]


def _waves(X: np.ndarray) -> np.ndarray:
    return np.cos(2 * np.pi * X[:, 0] * X[:, 1]) * np.sin(2 * np.pi * X[:, 2] * X[:, 3])


def _quotient(X: np.ndarray) -> np.ndarray:
    return X[:, 0] ** 2 / X[:, 1] ** 2


PROBLEMS = (
    Problem("cos(2 pi x1 x2) sin(2 pi x3 x4)", 8, 4, _waves),
    Problem("x1^2 / x2^2", 4, 2, _quotient),
)
SUPERVISED: Mapping[str, tuple[Callable[[], Any], tuple[float | None, ...]]] = {
    "SLS": (SupervisedLaplacianScore, (0.93, 1.00)),
    "correlation": (PearsonScore, (0.25, 0.32)),
    "LS": (lambda: LaplacianScore(graph_scaling="zscore"), (None, None)),
}
"""Criteria, and the shares that the paper gives for the two problems."""


def hits(problem: int, seeds: Sequence[int]) -> dict[str, int]:
    """Return in how many data sets each criterion ranks the informative features first."""
    made, found = PROBLEMS[problem], dict.fromkeys(SUPERVISED, 0)
    for seed in seeds:
        X = np.random.default_rng([problem, seed]).random((N_ROWS, made.n_features))
        for name, (criterion, _) in SUPERVISED.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of a row whose quotient is far from all others
                order = np.argsort(criterion().fit(X, made.target(X)).ranking_)
            found[name] += hit_rate(order, range(made.n_informative), made.n_informative) == 1.0
    return found


def artificial_lines(n_sets: int, n_workers: int) -> list[str]:
    """Return the lines of section 4.1, of so many data sets for each problem, drawn and ranked on a cluster, or in this
    process where there are no workers.
    """
    starts = range(0, n_sets, SETS_PER_TASK)
    parts = [list(range(start, min(start + SETS_PER_TASK, n_sets))) for start in starts]
    with connect(ClusterSettings(workers=n_workers)) as client:
        if client is None:
            found = [[hits(number, part) for part in parts] for number in range(len(PROBLEMS))]
        else:
            found = client.gather([client.map(hits, [number] * len(parts), parts) for number in range(len(PROBLEMS))])
    rows = []
    for number, problem in enumerate(PROBLEMS):
        for name, (_, shares) in SUPERVISED.items():
            printed = "-" if shares[number] is None else f"{shares[number]:.2f}"
            share = sum(part[name] for part in found[number]) / n_sets
            rows.append([f"y = {problem.formula}, {name}", printed, f"{share:.2f}"])
    title = f"Share of {n_sets} sets of {N_ROWS} rows in which all informative features are on top"
    return [title, *markdown(["", "paper", "here"], *rows)[:-1]]


# ------------------------------------------------------------------------------------------------------ real problems
SETS = {"tecator": (7, 10), "corn_m5": (7, 10), "wheatkernels": (7, 10), "house_16H": (70, 100)}
"""Data sets, and how many labels a criterion sees: as in the paper, more in the large one."""
LARGEST = {"wheatkernels": 200, "house_16H": 2048}
"""Rows that a large set is thinned to; the paper took 2,048 of its census data, and spectra of at most 218 samples."""
N_SELECTED = (1, 2, 5, 10, 20, 30, 50, 75, 100)
N_SELECTED_FEW = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16)
METHODS: Mapping[str, Mapping[str, Any]] = {
    "LS": {"name": "LaplacianScore", "n_neighbors": 5, "t": "mean"},
    "SLS": {"name": "SupervisedLaplacianScore"},
    "SSLS": {"name": "SemiSupervisedLaplacianScore"},
    "correlation": {"name": "PearsonScore"},
    "random": {"name": "RandomOrder"},
}
CLAIMS = (
    ("LS is the worst of the four", lambda rmse: rmse["LS"] == max(v for m, v in rmse.items() if m != "random")),
    ("SSLS is no worse than correlation", lambda rmse: rmse["SSLS"] <= rmse["correlation"]),
    ("SSLS is better than SLS", lambda rmse: rmse["SSLS"] < rmse["SLS"]),
    ("every criterion beats a random order", lambda rmse: all(v <= rmse["random"] for v in rmse.values())),
)
"""What the paper reads from its curves, and what one would expect; of the means over numbers of features."""


def look(path: Path) -> tuple[int, int]:
    """Return how many rows and columns a file holds."""
    with np.load(path) as file:
        n_rows, n_features = file["X"].shape
        return n_rows, n_features


def job_of(path: Path, output: Path, n_draws: int, n_repeats: int, workers: int) -> dict[str, Any]:
    """Return the job of one data set."""
    n_rows, n_features = look(path)
    sizes = N_SELECTED if n_features > max(N_SELECTED_FEW) else N_SELECTED_FEW
    return {
        "data": {"source": str(path), "array": "X", "labels": "y", "task": "regression"},
        "transform": {"graph": "zscore"},
        "methods": [{"label": label, **method} for label, method in METHODS.items()],
        "evaluate": {
            "setting": "transductive",
            "baselines": False,
            "labels": list(SETS[path.stem]),
            "n_draws": n_draws,
            "n_splits": 5,
            "n_repeats": n_repeats,
            "n_selected": [size for size in sizes if size <= n_features],
            "models": [{"name": "knn", "n_neighbors": 5, "metrics": ["rmse"]}],
            "max_samples": LARGEST.get(path.stem, n_rows),
        },
        "cluster": {"workers": workers},
        "output": {"path": str(output), "title": f"Laplacian scores for regression on {path.stem}"},
    }


def table_lines(path: Path, run: Path) -> list[str]:
    """Return the errors of one data set, of its run: means, half of their 95 % intervals over draws, who is best, and
    which of the claims hold.
    """
    n_rows, n_features = look(path)
    summary, differences = (read_table(Store(run), table) for table in ("evaluation_summary", "comparisons"))
    sizes = sorted({row["n_selected"] for row in summary if row["n_selected"] is not None})
    cells = {(row["labels"], row["method"], row["n_selected"]): row for row in summary}
    digits = max(0, 2 - int(np.floor(np.log10(max(row["mean"] for row in summary)))))  # three that count
    used = min(LARGEST.get(path.stem, n_rows), n_rows)
    rows = f"{n_rows} rows" if used == n_rows else f"{used} of {n_rows} rows"
    lines = [f"{path.stem}: {rows}, {n_features} features; root mean squared error of 5 nearest neighbors by features"]
    for labels in sorted({row["labels"] for row in summary}):
        table = [[m, *(_shown(cells.get((labels, m, size)), digits) for size in (*sizes, None))] for m in METHODS]
        lines += markdown([f"{labels:.0f} labels", *sizes, "mean"], *table)
        means = {method: cells[labels, method, None]["mean"] for method in METHODS if (labels, method, None) in cells}
        pairs = [row for row in differences if row["labels"] == labels and row["n_selected"] is None]
        lines.append(f"- {best_line(means, pairs)}")
        if means.keys() == METHODS.keys():
            lines += [f"- {text}: {'yes' if holds(means) else 'no'}" for text, holds in CLAIMS]
    return lines


def _shown(cell: Mapping[str, Any] | None, digits: int) -> str:
    if cell is None:
        return "-"
    half = "" if cell["low"] is None else f" ± {(cell['high'] - cell['low']) / 2:.{digits}f}"
    return f"{cell['mean']:.{digits}f}{half}"


def best_line(means: Mapping[str, float], pairs: Iterable[Mapping[str, Any]]) -> str:
    """Return who is best, and from which others this tells apart: the 95 % interval of the paired differences of means
    over numbers of features leaves out 0.
    """
    best = min(means, key=lambda method: means[method])
    surely = [
        row["other"] if row["method"] == best else row["method"]
        for row in pairs
        if best in (row["method"], row["other"]) and row["low"] is not None and not row["low"] <= 0 <= row["high"]
    ]
    alike = [method for method in means if method not in (best, *surely)]
    told = [f"best on the whole: {best}"]
    told += [f"better than {', '.join(m for m in means if m in surely)}"] if surely else []
    told += [f"not told apart from {', '.join(alike)}"] if alike else []
    return "; ".join(told)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--n-sets", type=int, default=1000, help="Data sets of each artificial problem; 0 for none")
    parser.add_argument("--data", type=Path, help="Folder of .npz files; none leaves the artificial problems")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--draws", type=int, default=5, help="Of labels")
    parser.add_argument("--repeats", type=int, default=10, help="Of the 5 folds")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("runs/papers/regression"), help="Where the jobs' runs lie")
    options = parser.parse_args(arguments)
    if options.n_sets < 0:
        parser.error(f"--n-sets is {options.n_sets}: 0 at least.")
    if options.data is not None:
        options.sets = present(parser, options.data, options.sets)
    return options


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, run, and print the tables."""
    options = parsed(arguments)
    try:
        if options.n_sets:
            print("\n".join(artificial_lines(options.n_sets, options.workers)), flush=True)
        for name in options.sets if options.data is not None else ():
            path, run = options.data / f"{name}.npz", options.output / name
            done = run_job(make_job(job_of(path, run, options.draws, options.repeats, options.workers)))
            print("\n".join(["", *table_lines(path, run)]), flush=True)
            print(f"report: {done['report']}", file=sys.stderr)
    except DaskfsError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
