"""Algorithm 2 of Zhao and Liu (2007), "Semi-supervised Feature Selection via Spectral Analysis": what few labels add.

    python workflows/papers/sselect.py --data FOLDER [--set PCMAC] [--draws 20] [--workers 2]

Each draw labels l/2 rows of each class. sSelect ranks by all rows and these labels, the Laplacian Score by the
unlabelled rows only, the Fisher score by the labelled rows only. A ranking is as good as the accuracy of 1-NN on its
first 5, 10, ..., 50 features, in five folds over all rows with all labels. FOLDER holds the data set as an .npz file
(``X``, or the parts of a CSR matrix, and ``y`` of two classes or more). The paper's Table 2 holds gains of sSelect
over both, averaged over numbers of features and draws.

The paper leaves the width of its kernel open: here it is the median squared length of the edges. Where Fisher's score
is infinite (one row in each class: every feature that differs), features follow by number.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from distributed import Client, LocalCluster
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from daskfs import FisherScore, KNNGraph, LaplacianScore, SSelect, knn_graph

N_SELECTED = tuple(range(5, 55, 5))
N_NEIGHBORS = 10
METHODS = ("sSelect", "Fisher", "Laplacian")


@dataclass(frozen=True)
class DataSet:
    """X, dense or CSR, class labels of all rows, and the neighbor graph of all rows."""

    X: np.ndarray | sp.csr_matrix
    y: np.ndarray
    graph: KNNGraph


def load(path: Path) -> DataSet:
    """Read a data set and find its graph."""
    with np.load(path) as file:
        if "X" in file.files:
            X = file["X"].astype(np.float64)
        else:
            parts = (file["data"].astype(np.float64), file["indices"], file["indptr"])
            X = sp.csr_matrix(parts, shape=tuple(file["shape"]))
        y = np.unique(file["y"], return_inverse=True)[1]
    return DataSet(X, y, knn_graph(X, N_NEIGHBORS))


def rankings(data: DataSet, n_labels: int, draw: int) -> dict[str, np.ndarray]:
    """Rank the features by the three methods; each returns feature numbers, best first."""
    generator = np.random.default_rng([n_labels, draw])
    classes = np.unique(data.y)
    per_class = n_labels // classes.size
    chosen = np.concatenate([generator.choice(np.flatnonzero(data.y == c), per_class, replace=False) for c in classes])
    known = np.zeros(data.y.size, dtype=bool)
    known[chosen] = True
    labels = np.where(known, data.y, -1)
    fitted = {
        "sSelect": SSelect(trade_off=0.1, n_neighbors=N_NEIGHBORS, t="median", graph=data.graph).fit(data.X, labels),
        "Fisher": FisherScore().fit(data.X[known], data.y[known]),
        "Laplacian": LaplacianScore(n_neighbors=N_NEIGHBORS, t="median").fit(data.X[~known]),
    }
    return {name: np.argsort(selector.ranking_) for name, selector in fitted.items()}


def accuracies(data: DataSet, n_labels: int, draw: int) -> dict[str, list[float]]:
    """Return the accuracy of 1-NN at each number of features, by method; folds are the same for all of them."""
    folds = StratifiedKFold(5, shuffle=True, random_state=draw)
    found: dict[str, list[float]] = {}
    for name, order in rankings(data, n_labels, draw).items():
        first = data.X[:, order[: max(N_SELECTED)]]
        values = first.toarray() if sp.issparse(first) else first
        model = KNeighborsClassifier(1)
        found[name] = [float(cross_val_score(model, values[:, :n], data.y, cv=folds).mean()) for n in N_SELECTED]
    return found


def experiment(data: DataSet, n_labels: list[int], n_draws: int, client: Client) -> dict[int, dict[str, np.ndarray]]:
    """Run all draws as tasks of a cluster; return accuracies, shape (n_draws, sizes), by labels and method."""
    remote = client.scatter(data, broadcast=True)
    tasks = {n: [client.submit(accuracies, remote, n, draw) for draw in range(n_draws)] for n in n_labels}
    result = {}
    for n, futures in tasks.items():
        found = client.gather(futures)
        result[n] = {name: np.array([one[name] for one in found]) for name in METHODS}
    return result


def table(result: dict[int, dict[str, np.ndarray]]) -> list[str]:
    """Return lines: mean accuracies and gains of sSelect for each number of labels, and their means."""
    lines = [f"{'labels':>8}{'sSelect':>10}{'Fisher':>10}{'Laplacian':>11}{'over Fisher':>13}{'over Laplacian':>16}"]
    rows = [[float(by_method[name].mean()) for name in METHODS] for by_method in result.values()]
    gains = [(own - fisher, own - laplacian) for own, fisher, laplacian in rows]
    for n, row, gain in zip(result, rows, gains, strict=True):
        lines.append(f"{n:>8}{row[0]:>10.4f}{row[1]:>10.4f}{row[2]:>11.4f}{gain[0]:>13.4f}{gain[1]:>16.4f}")
    mean = np.mean(gains, axis=0)
    return [*lines, f"{'mean':>8}{'':>31}{mean[0]:>13.4f}{mean[1]:>16.4f}"]


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="Folder of .npz files")
    parser.add_argument("--set", default="PCMAC", help="Name of the data set")
    parser.add_argument("--labels", type=int, nargs="+", default=[2, 6, 10])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    path = options.data / f"{options.set}.npz"
    if not path.is_file():
        parser.error(f"{path} is not there: --data names a folder that holds {options.set}.npz.")
    data = load(path)
    n_classes = np.unique(data.y).size
    if wrong := [n for n in options.labels if n < n_classes or n % n_classes]:
        parser.error(f"--labels {wrong[0]}: a multiple of the {n_classes} classes of {options.set} is needed.")
    with (
        LocalCluster(options.workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        result = experiment(data, options.labels, options.draws, client)
    print(f"{options.set}: accuracy of 1-NN, mean over {len(N_SELECTED)} numbers of features and {options.draws} draws")
    print("\n".join(table(result)))


if __name__ == "__main__":
    main()
