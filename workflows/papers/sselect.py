"""Algorithms 2 and 3 of Zhao and Liu (2007), "Semi-supervised Feature Selection via Spectral Analysis".

    python workflows/papers/sselect.py --data FOLDER [--sets PCMAC BASEHOCK] [--draws 20] [--workers 2]

Algorithm 2, what few labels add: each draw labels l/2 rows of each class. sSelect ranks by all rows and these labels,
the Laplacian Score by the unlabeled rows only, the Fisher score by the labeled rows only. A ranking is as good as the
accuracy of 1-NN on its first 5, 10, ..., 50 features, in five folds over all rows with all labels. FOLDER holds the
data sets as .npz files (``X``, or the parts of a CSR matrix, and ``y`` of two classes or more); BASEHOCK is the paper's
HOCKEYBASE. The paper's Table 2 holds gains of sSelect over both, averaged over numbers of features and draws. A job
gives all its methods the same rows, so this part has tasks of its own.

Algorithm 3, which trade-off between graph and labels to take: a job, whose run lies under --output. Of the rankings by
each trade-off from 0 (labels alone) to 1 (the graph alone), in a fourth of the draws, it tells the accuracy of 1-NN,
and the cut value of the rows on the selected features, which needs no label: the paper finds both best at the same
trade-offs, from 0.1 to 0.3 with 10 features, and with 200 features the best accuracy at 0.8, 0.4 and 0.2 by 2, 6 and 10
labels. The cut value is that of :mod:`daskfs.kernels.statistics.normalized_cut`, which says why it is not the one that
is printed.

The paper leaves the width of its kernel open: here it is the median squared length of the edges. Where Fisher's score
is infinite (one row in each class: every feature that differs), features follow by number.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from distributed import Client
from reporting import markdown, present
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from daskfs import FisherScore, KNNGraph, LaplacianScore, SSelect, knn_graph, make_job, run_job
from daskfs.errors import DaskfsError
from daskfs.evaluation.tables import read_table
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.connection import connect
from daskfs.store.store import Store

N_SELECTED = tuple(range(5, 55, 5))
N_NEIGHBORS = 10
METHODS = ("sSelect", "Fisher", "Laplacian")
PRINTED_GAINS: Mapping[str, Mapping[int, tuple[float, float]]] = {
    "PCMAC": {2: (0.0610, 0.1254), 6: (0.0431, 0.1447), 10: (0.0873, 0.1753)},
    "BASEHOCK": {2: (0.0560, 0.1389), 6: (0.0836, 0.1775), 10: (0.1150, 0.1997)},
}
"""Gains of sSelect over Fisher and Laplacian in the paper's Table 2, by labels."""
TRADE_OFFS = tuple(step / 10 for step in range(11))
SWEPT = (10, 200)
"""Numbers of features of Figures 4 and 7."""
PRINTED = {(10, 2): "0.1 to 0.3", (10, 6): "0.1 to 0.3", (10, 10): "0.1 to 0.3"}
PRINTED |= {(200, 2): "0.8", (200, 6): "0.4", (200, 10): "0.2"}
"""The paper's best trade-offs, by numbers of features and labels; with 200 features of a set that it does not name."""


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
    alike: dict[str, Any] = {"n_neighbors": N_NEIGHBORS, "t": "median", "n_jobs": 1}  # each worker has a draw already
    fitted = {
        "sSelect": SSelect(trade_off=0.1, graph=data.graph, **alike).fit(data.X, labels),
        "Fisher": FisherScore().fit(data.X[known], data.y[known]),
        "Laplacian": LaplacianScore(**alike).fit(data.X[~known]),
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


def experiment(
    data: DataSet, n_labels: list[int], n_draws: int, client: Client | None
) -> dict[int, dict[str, np.ndarray]]:
    """Run all draws as tasks of a cluster, or in this process where there is none; return accuracies, shape (n_draws,
    sizes), by labels and method.
    """
    if client is None:
        tasks = {n: [accuracies(data, n, draw) for draw in range(n_draws)] for n in n_labels}
    else:
        remote = client.scatter(data, broadcast=True)
        tasks = {n: [client.submit(accuracies, remote, n, draw) for draw in range(n_draws)] for n in n_labels}
        tasks = client.gather(tasks)
    return {n: {name: np.array([one[name] for one in found]) for name in METHODS} for n, found in tasks.items()}


def table(name: str, result: dict[int, dict[str, np.ndarray]]) -> list[str]:
    """Return lines: mean accuracies and gains of sSelect for each number of labels, their means, and the paper's."""
    rows: list[list[str]] = []
    gains = []
    for n, by_method in result.items():
        own, *others = (float(by_method[method].mean()) for method in METHODS)
        gains.append([own - other for other in others])
        printed = PRINTED_GAINS.get(name, {}).get(n)
        shown = [f"{gain:.4f}" for gain in printed] if printed else ["-", "-"]
        rows.append([str(n), *(f"{value:.4f}" for value in (own, *others, *gains[-1])), *shown])
    rows.append(["mean", "", "", "", *(f"{gain:.4f}" for gain in np.mean(gains, axis=0)), "", ""])
    names = ("over Fisher", "over Laplacian")
    return markdown(["labels", *METHODS, *names, *(f"paper, {gain}" for gain in names)], *rows)


# ------------------------------------------------------------------------------------------------------- Algorithm 3
def sweep_job(path: Path, output: Path, per_class: Sequence[int], n_draws: int, workers: int) -> dict[str, Any]:
    """Return the job that ranks by every trade-off, with so many labeled rows of each class."""
    sselect = {"name": "SSelect", "n_neighbors": N_NEIGHBORS, "t": "median", "grid": {"trade_off": list(TRADE_OFFS)}}
    with np.load(path) as file:
        n_rows = file["y"].size
        n_features = file["X"].shape[1] if "X" in file.files else int(file["shape"][1])
    return {
        "data": {"source": str(path), "labels": "y", "task": "classification"},
        "methods": [sselect],
        "evaluate": {
            "setting": "transductive",
            "baselines": False,
            "labels": list(per_class),
            "n_draws": n_draws,
            "n_splits": 5,
            "n_selected": [size for size in SWEPT if size <= n_features],
            "models": [
                {"name": "knn", "label": "1NN", "n_neighbors": 1, "metrics": ["accuracy"]},
                {"name": "cut", "n_neighbors": N_NEIGHBORS},
            ],
            "scaling": None,
            "max_samples": n_rows,
        },
        "cluster": {"workers": workers},
        "output": {"path": str(output), "title": f"The trade-off of sSelect on {path.stem}"},
    }


def sweep_lines(run: Path, n_classes: int) -> list[str]:
    """Return accuracies and cut values by trade-off, and which is best by either."""
    rows = [row for row in read_table(Store(run), "evaluation_summary") if row["n_selected"] is not None]
    means = {(row["n_selected"], row["labels"], row["metric"], _trade_off(row)): row["mean"] for row in rows}
    table, notes = [["trade-off", *TRADE_OFFS]], []
    for size, labels in sorted({(row["n_selected"], row["labels"]) for row in rows}):
        total, best = int(labels) * n_classes, {}
        for metric, better in (("accuracy", max), ("cut", min)):
            by = {t: means[size, labels, metric, t] for t in TRADE_OFFS if (size, labels, metric, t) in means}
            best[metric] = better(by, key=lambda t: by[t])
            shown = (f"{by[t]:.3f}" if t in by else "-" for t in TRADE_OFFS)
            table.append([f"{size} features, {total} labels, {metric}", *shown])
        printed = f"; the paper's best: {PRINTED[size, total]}" if (size, total) in PRINTED else ""
        found = f"best accuracy at {best['accuracy']:.1f}, lowest cut at {best['cut']:.1f}{printed}"
        notes.append(f"- {size} features, {total} labels: {found}")
    return [*markdown(*table), *notes]


def _trade_off(row: Mapping[str, Any]) -> float:
    return float(row["method"].rpartition("=")[2])


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, run, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="Folder of .npz files")
    parser.add_argument("--sets", nargs="+", default=list(PRINTED_GAINS), help="Names of the data sets")
    parser.add_argument("--labels", type=int, nargs="+", default=[2, 6, 10])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("runs/papers/sselect"), help="Where Algorithm 3's run lies")
    options = parser.parse_args(arguments)
    for name in present(parser, options.data, options.sets):
        path = options.data / f"{name}.npz"
        data = load(path)
        n_classes = np.unique(data.y).size
        if wrong := [n for n in options.labels if n < n_classes or n % n_classes]:
            parser.error(f"--labels {wrong[0]}: a multiple of the {n_classes} classes of {name} is needed.")
        with connect(ClusterSettings(workers=options.workers)) as client:
            result = experiment(data, options.labels, options.draws, client)
        print(f"{name}: accuracy of 1-NN, mean over {len(N_SELECTED)} numbers of features and {options.draws} draws")
        print("\n".join(table(name, result)), flush=True)
        per_class, run = [n // n_classes for n in options.labels], options.output / name
        draws = max(1, options.draws // 4)
        try:
            done = run_job(make_job(sweep_job(path, run, per_class, draws, options.workers)))
        except DaskfsError as error:
            sys.exit(f"{name}: {error}")
        print(f"{name}: accuracy of 1-NN and cut value by trade-off, mean over {draws} draws and 5 folds")
        print(*sweep_lines(run, n_classes), "", sep="\n", flush=True)
        print(f"report: {done['report']}", file=sys.stderr)


if __name__ == "__main__":
    main()
