"""Table 1 of Zhong, Chen and Nie (2019), "Semi-Supervised Uncorrelated Feature Selection", measured again.

    python workflows/papers/ssufs.py --data FOLDER [--sets segment colon ...] [--draws 5] [--workers 2]

In each draw 40 % of the rows of each class are labeled; the others are unlabeled, and tested. Six methods rank the
features by all of them. The paper does not say its classifier, its numbers of features and its repeats, so here they
are: a linear SVM (C = 1) of the labeled rows, on columns standardized by these; ten numbers of features, evenly from a
fifth of all, 20 at most, to all, 200 at most; and a mean and standard deviation of five draws, each of which counts
with its mean accuracy over numbers of features.

RLSR, DSSFS and SSUFS take that gamma of the paper's grid, from 0.1 to 100, with which the same SVM does best in three
folds over the labeled rows; tested rows have no say in it. (No job's evaluation chooses like that within a draw, so
the draws are tasks of their own.) SSUFS has its default eta. LSDF has 10 neighbors, as in the paper; sSelect, which is
for two classes in the paper, is taken for all classes at once; PRPC is RRPC.

FOLDER holds the data sets as .npz files (``X`` and ``y``); the ones that are missing are skipped.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster
from reporting import markdown, present
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from daskfs import DSSFS, LSDF, RLSR, RRPC, SSUFS, SSelect

LABELED = 0.4
N_FOLDS = 3
N_COUNTS = 10
N_NEIGHBORS = 10
SETS = ("binaryalphadigs", "colon", "segment", "Isolet")
PLAIN: dict[str, Callable[[], RRPC | LSDF | SSelect]] = {
    "sSelect": lambda: SSelect(n_neighbors=N_NEIGHBORS),
    "LSDF": lambda: LSDF(n_neighbors=N_NEIGHBORS),
    "PRPC": lambda: RRPC(task="classification"),
}
PENALIZED: dict[str, Callable[[float], RLSR]] = {
    "RLSR": lambda gamma: RLSR(gamma=gamma),
    "DSSFS": lambda gamma: DSSFS(gamma=gamma),
    "SSUFS": lambda gamma: SSUFS(gamma=gamma),
}
METHODS = (*PLAIN, *PENALIZED)
PRINTED = {
    "sSelect": ((0.290, 0.105), (0.579, 0.001), (0.670, 0.278), (0.498, 0.161)),
    "LSDF": ((0.451, 0.097), (0.676, 0.043), (0.869, 0.079), (0.806, 0.099)),
    "PRPC": ((0.377, 0.099), (0.634, 0.018), (0.854, 0.065), (0.767, 0.088)),
    "RLSR": ((0.520, 0.036), (0.705, 0.035), (0.928, 0.035), (0.914, 0.041)),
    "DSSFS": ((0.521, 0.039), (0.711, 0.019), (0.928, 0.035), (0.915, 0.041)),
    "SSUFS": ((0.607, 0.053), (0.815, 0.041), (0.922, 0.037), (0.923, 0.050)),
}
"""The paper's means and standard deviations, in the order of SETS."""


@dataclass(frozen=True)
class DataSet:
    """X and the classes of all rows, numbered from 0."""

    X: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Measured:
    """Mean accuracy over numbers of features in one draw, and the gamma that was chosen; NaN where there is none."""

    accuracy: float
    gamma: float = float("nan")


def load(path: Path) -> DataSet:
    """Read a data set."""
    with np.load(path) as file:
        return DataSet(file["X"].astype(np.float64), np.unique(file["y"], return_inverse=True)[1])


def numbers_of_features(n_features: int) -> list[int]:
    """Return the numbers of features that are tried."""
    first, last = min(20, round(n_features / 5)), min(200, n_features)
    return np.unique(np.linspace(first, last, N_COUNTS).round().astype(int)).tolist()


def labels_of(y: np.ndarray, draw: int) -> np.ndarray:
    """Return the classes of a share of the rows of each class, and -1 for the others."""
    generator = np.random.default_rng(draw)
    labels = np.full(y.size, -1)
    for code in np.unique(y):
        rows = generator.permutation(np.flatnonzero(y == code))
        labels[rows[: max(N_FOLDS, round(LABELED * rows.size))]] = code
    return labels


def order_of(selector: RLSR | RRPC | LSDF | SSelect, X: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return feature numbers, best first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.argsort(selector.fit(X, labels).ranking_)


def tested(data: DataSet, labels: np.ndarray, order: np.ndarray) -> float:
    """Return the mean accuracy on unlabeled rows over numbers of features."""
    known, found = labels >= 0, []
    for count in numbers_of_features(order.size):
        X = data.X[:, order[:count]]
        model = make_pipeline(StandardScaler(), SVC(kernel="linear")).fit(X[known], labels[known])
        found.append(model.score(X[~known], data.y[~known]))
    return float(np.mean(found))


def promised(data: DataSet, labels: np.ndarray, order: np.ndarray) -> float:
    """Return the mean accuracy in folds over the labeled rows, for every other number of features."""
    known, found = labels >= 0, []
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
    for count in numbers_of_features(order.size)[::2]:
        model = make_pipeline(StandardScaler(), SVC(kernel="linear"))
        X = data.X[known][:, order[:count]]
        found.append(float(cross_val_score(model, X, labels[known], cv=folds).mean()))
    return float(np.mean(found))


def measured(data: DataSet, method: str, draw: int, gammas: list[float]) -> Measured:
    """Rank the features by one method, with the best gamma where it has one, and test the ranking."""
    labels = labels_of(data.y, draw)
    if method in PLAIN:
        return Measured(tested(data, labels, order_of(PLAIN[method](), data.X, labels)))
    orders = {gamma: order_of(PENALIZED[method](gamma), data.X, labels) for gamma in gammas}
    if len(gammas) == 1:
        best = gammas[0]
    else:
        promises = {gamma: promised(data, labels, order) for gamma, order in orders.items()}
        best = max(gammas, key=lambda gamma: (promises[gamma], gamma))
    return Measured(tested(data, labels, orders[best]), best)


def experiment(sets: dict[str, DataSet], n_draws: int, gammas: list[float], client: Client) -> dict[str, list[str]]:
    """Run all draws of all methods as tasks of a cluster; return the lines of a table for each data set."""
    remote = {name: client.scatter(data, broadcast=True) for name, data in sets.items()}
    tasks = {
        (name, method): [client.submit(measured, data, method, draw, gammas) for draw in range(n_draws)]
        for name, data in remote.items()
        for method in reversed(METHODS)  # the long ones first
    }
    return {name: lines(name, {m: client.gather(tasks[name, m]) for m in METHODS}) for name in sets}


def lines(name: str, found: dict[str, list[Measured]]) -> list[str]:
    """Return the lines of one data set: a method, the paper's figures, the measured ones, and the gammas chosen."""
    table = [["", "paper", "measured", "gamma"]]
    for method, draws in found.items():
        accuracies = [draw.accuracy for draw in draws]
        printed = PRINTED[method][SETS.index(name)]
        chosen = sorted({draw.gamma for draw in draws if not np.isnan(draw.gamma)})
        own = _shown(float(np.mean(accuracies)), float(np.std(accuracies)))
        table.append([method, _shown(*printed), own, ", ".join(f"{gamma:g}" for gamma in chosen)])
    return markdown(*table)


def _shown(mean: float, deviation: float) -> str:
    return f"{mean:.3f} ± {deviation:.3f}"


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, run, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="Folder of .npz files")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--gammas", type=float, nargs="+", default=[0.1, 1.0, 10.0, 100.0])
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    sets = {name: load(options.data / f"{name}.npz") for name in present(parser, options.data, options.sets)}
    with (
        LocalCluster(options.workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        tables = experiment(sets, options.draws, options.gammas, client)
    for name, table in tables.items():
        counts = numbers_of_features(sets[name].X.shape[1])
        print(
            f"{name}: accuracy of a linear SVM, mean over {counts} features, and deviation over {options.draws} draws"
        )
        print("\n".join(table))


if __name__ == "__main__":
    main()
