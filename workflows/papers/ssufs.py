"""Table 1 of Zhong, Chen and Nie (2019), "Semi-Supervised Uncorrelated Feature Selection", measured again.

    python workflows/papers/ssufs.py --data FOLDER [--sets segment colon ...] [--draws 20] [--workers 2]

In each draw 40 % of the rows of each class are labeled; the others are unlabeled, and tested. Six methods rank the
features by all of them. The paper does not say its classifier, its numbers of features and its repeats, so here they
are: a linear SVM (C = 1) of the labeled rows, on columns standardized by these; ten numbers of features, evenly from a
fifth of all, 20 at most, to all, 200 at most; and a mean and standard deviation of 20 draws, each of which counts with
its mean accuracy over numbers of features.

RLSR and DSSFS take that gamma of the paper's grid with which the same SVM does best in three folds over the labeled
rows; tested rows have no say in it. SSUFS takes RLSR's gamma, as it is RLSR where eta is 0, and then that eta of the
grid which does best likewise; a line below each table has the mean difference of the two over draws. (No job's
evaluation chooses like that within a draw, so the draws are tasks of their own.) LSDF has 10 neighbors, as in the
paper; sSelect, which is for two classes in the paper, is taken for all classes at once; PRPC is RRPC.

FOLDER holds the data sets as .npz files (``X`` and ``y``); the ones that are missing are skipped. The paper's "Breast"
is taken to be wdbc. Each table is printed once its set is measured. On colon, small values of gamma take minutes each.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
GRID = tuple(10.0**power for power in range(-3, 4))
"""The paper's values of gamma and eta."""
SETS = ("binaryalphadigs", "colon", "segment", "Isolet", "wdbc")
PLAIN: dict[str, Callable[[], RRPC | LSDF | SSelect]] = {  # each worker has a draw already: no more threads
    "sSelect": lambda: SSelect(n_neighbors=N_NEIGHBORS, n_jobs=1),
    "LSDF": lambda: LSDF(n_neighbors=N_NEIGHBORS, n_jobs=1),
    "PRPC": lambda: RRPC(task="classification"),
}
PRINTED = {
    "sSelect": ((0.290, 0.105), (0.579, 0.001), (0.670, 0.278), (0.498, 0.161), (0.575, 0.001)),
    "LSDF": ((0.451, 0.097), (0.676, 0.043), (0.869, 0.079), (0.806, 0.099), (0.679, 0.049)),
    "PRPC": ((0.377, 0.099), (0.634, 0.018), (0.854, 0.065), (0.767, 0.088), (0.621, 0.041)),
    "RLSR": ((0.520, 0.036), (0.705, 0.035), (0.928, 0.035), (0.914, 0.041), (0.581, 0.05)),
    "DSSFS": ((0.521, 0.039), (0.711, 0.019), (0.928, 0.035), (0.915, 0.041), (0.636, 0.063)),
    "SSUFS": ((0.607, 0.053), (0.815, 0.041), (0.922, 0.037), (0.923, 0.050), (0.681, 0.054)),
}
"""The paper's means and standard deviations, in the order of SETS."""


@dataclass(frozen=True)
class DataSet:
    """X and the classes of all rows, numbered from 0."""

    X: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Measured:
    """Mean accuracy over numbers of features in one draw, and the gamma and eta that were chosen, by name; "eta used"
    is what SSUFS left of eta.
    """

    accuracy: float
    chosen: Mapping[str, float] = field(default_factory=dict)


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
    """Fit a selector, and return feature numbers, best first."""
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


def measured_best(data: DataSet, labels: np.ndarray, selectors: Sequence[RLSR]) -> Measured:
    """Rank the features by each selector, and test the ranking that promises most, the last of equal ones."""
    orders = [order_of(selector, data.X, labels) for selector in selectors]
    promises = [promised(data, labels, order) for order in orders] if len(orders) > 1 else [0.0]
    best = max(range(len(orders)), key=lambda number: (promises[number], number))
    selector, chosen = selectors[best], {"gamma": selectors[best].gamma}
    if isinstance(selector, SSUFS) and selector.eta is not None:
        chosen |= {"eta": selector.eta, "eta used": selector.eta_used_}
    return Measured(tested(data, labels, orders[best]), chosen)


def measured(data: DataSet, draw: int, gammas: Sequence[float], etas: Sequence[float]) -> dict[str, Measured]:
    """Rank the features by all methods, with the best gamma and eta where they have any, and test the rankings."""
    labels = labels_of(data.y, draw)
    results = {name: Measured(tested(data, labels, order_of(make(), data.X, labels))) for name, make in PLAIN.items()}
    results["RLSR"] = measured_best(data, labels, [RLSR(gamma=gamma) for gamma in gammas])
    results["DSSFS"] = measured_best(data, labels, [DSSFS(gamma=gamma) for gamma in gammas])
    gamma = results["RLSR"].chosen["gamma"]
    results["SSUFS"] = measured_best(data, labels, [SSUFS(gamma=gamma, eta=eta) for eta in etas])
    return results


def lines(name: str, draws: Sequence[Mapping[str, Measured]]) -> list[str]:
    """Return the lines of one data set: a method, the paper's figures, the measured ones, and the gammas and etas
    chosen; and how far SSUFS is from RLSR in the same draws.
    """
    table, accuracy = [["", "paper", "measured", "gamma", "eta", "eta used"]], {}
    for method, of_sets in PRINTED.items():
        accuracy[method] = np.array([draw[method].accuracy for draw in draws])
        own = _shown(float(accuracy[method].mean()), float(accuracy[method].std()))
        chosen = {
            key: sorted({draw[method].chosen[key] for draw in draws if key in draw[method].chosen})
            for key in ("gamma", "eta", "eta used")
        }
        used = chosen.pop("eta used")
        lists = [", ".join(f"{value:g}" for value in values) for values in chosen.values()]
        span = f"{used[0]:.2g} to {used[-1]:.2g}" if used else ""
        table.append([method, _shown(*of_sets[SETS.index(name)]), own, *lists, span])
    gain = accuracy["SSUFS"] - accuracy["RLSR"]
    off = f"{gain.std(ddof=1) / gain.size**0.5:.3f}" if gain.size > 1 else "-"
    printed = PRINTED["SSUFS"][SETS.index(name)][0] - PRINTED["RLSR"][SETS.index(name)][0]
    told = f"- SSUFS less RLSR: {gain.mean():+.3f}, standard error {off}; in the paper {printed:+.3f}"
    return [*markdown(*table), told, ""]


def _shown(mean: float, deviation: float) -> str:
    return f"{mean:.3f} ± {deviation:.3f}"


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, run, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="Folder of .npz files")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--gammas", type=float, nargs="+", default=list(GRID))
    parser.add_argument("--etas", type=float, nargs="+", default=list(GRID), help="Of SSUFS")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    gammas, etas = sorted(options.gammas), sorted(options.etas)
    sets = {name: load(options.data / f"{name}.npz") for name in present(parser, options.data, options.sets)}
    with (
        LocalCluster(options.workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        for name, data in sets.items():
            remote = client.scatter(data, broadcast=True)
            tasks = [client.submit(measured, remote, draw, gammas, etas) for draw in range(options.draws)]
            table = lines(name, client.gather(tasks))
            counts = numbers_of_features(data.X.shape[1])
            title = f"mean over {counts} features, and deviation over {options.draws} draws"
            print(f"{name}: accuracy of a linear SVM, {title}", *table, sep="\n", flush=True)


if __name__ == "__main__":
    main()
