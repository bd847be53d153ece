"""He, Cai and Niyogi (2005), "Laplacian Score for Feature Selection": Iris, and clusterings of images.

    python workflows/papers/laplacian.py [--data FOLDER] [--sets COIL20 ORL ...] [--subsets 20] [--workers 2]

Iris (section 4.1) needs no data: scikit-learn's copy with the two rows that the UCI repository has otherwise. The
figures are the paper's if ties of the nearest neighbor go to the first row, and if the graph is that of rows of unit
length, its edges weigh alike (or exp(-d^2) of the lengths d), and scores are of the values as they are; the paper says
none of this.

Clustering (section 4.2) is of images in FOLDER, .npz files with ``X`` and ``y``. The paper has 24 images of each of 68
persons of CMU PIE, in one pose and expression. PIE_32x32_10subj has 170 of 10 of them, in five poses, and warpPIE10P 21
of 10 in other poses, so the rows of Table 1 are for orientation only. The Laplacian Score, 5 neighbors, and the
variance rank the pixels of all images of 20 random subsets of c classes, k-means puts the images into c clusters by the
first of them (10 starts, of which the best objective counts), and clusters are held against classes: accuracy under the
best matching, and mutual information over the larger entropy. Selection and clustering see the same images, all values
as they are. Pixels that are constant in a subset have no rank there, which leaves out the largest numbers of them on
COIL20. Each set is a job under --output, which goes on where it stopped; its report has the curves, and images of the
scores as in Figure 3.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from reporting import markdown, present
from sklearn.datasets import load_iris

from daskfs import FisherScore, LaplacianScore, VarianceScore, make_job, run_job
from daskfs.errors import DaskfsError
from daskfs.evaluation.metrics import nearest_neighbor_error
from daskfs.evaluation.tables import read_table
from daskfs.store.store import Store

# ------------------------------------------------------------------------------------------------------------- Iris
UCI_ROWS = {34: (49, 31, 15, 1), 37: (49, 31, 15, 1)}
"""Rows of the UCI copy of Iris, from 0, that differ from scikit-learn's; in millimeters."""
PRINTED_CORRELATION = (0.7826, -0.4194, 0.9490, 0.9565)
PRINTED_ERROR = (0.41, 0.52, 0.12, 0.12)
PRINTED_ORDER = {"variance": "F3 F1 F4 F2", "Fisher": "F3 F4 F1 F2"}
FEW, MANY, TURN = "F4 F3 F1 F2", "F3 F4 F1 F2", 15
"""The paper's orders by the Laplacian Score: from 3 neighbors on, and from 15."""


def uci_iris() -> tuple[np.ndarray, np.ndarray]:
    """Return lengths and widths of sepals and petals in whole millimeters, shape (150, 4), and the class index."""
    data = load_iris()
    X = np.rint(10 * data.data)
    for row, values in UCI_ROWS.items():
        X[row] = values
    return X, data.target


def order_of(selector: Any) -> str:
    """Return the features of a fitted selector, best first."""
    return " ".join(f"F{feature + 1}" for feature in np.argsort(selector.ranking_))


def iris_lines() -> list[str]:
    """Return the lines of section 4.1: the paper's figures and the measured ones."""
    X, y = uci_iris()
    correlation = [float(np.corrcoef(column, y)[0, 1]) for column in X.T]
    error = [nearest_neighbor_error(column[:, None], y) for column in X.T]
    figures = {
        "correlation with the class index, paper": PRINTED_CORRELATION,
        "correlation with the class index, here": correlation,
        "error of the nearest neighbor, paper": PRINTED_ERROR,
        "error of the nearest neighbor, here": error,
    }
    rows = [[what, *(f"{value:.4f}" for value in values)] for what, values in figures.items()]
    chosen = {"variance": VarianceScore(), "Fisher": FisherScore()}
    ordered = [[name, PRINTED_ORDER[name], order_of(selector.fit(X, y))] for name, selector in chosen.items()]
    graphs = {k: LaplacianScore(n_neighbors=k, weights="binary", graph_scaling="unit") for k in range(3, 21)}
    orders = {k: order_of(selector.fit(X)) for k, selector in graphs.items()}
    for order, members in groupby(orders, key=lambda k: orders[k]):
        k = list(members)
        printed = " or ".join(dict.fromkeys(FEW if one < TURN else MANY for one in k))
        ordered.append([f"Laplacian Score, {_span(k)} neighbors", printed, order])
    lines = ["Iris of the UCI repository, 150 rows", *markdown(["", "F1", "F2", "F3", "F4"], *rows)]
    return [*lines, *markdown(["features, best first", "paper", "here"], *ordered)[1:-1]]


def _span(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


# ------------------------------------------------------------------------------------------------------- clusterings
SHAPES = {"COIL20": (32, 32), "ORL": (32, 32), "PIE_32x32_10subj": (32, 32), "warpPIE10P": (55, 44)}
"""Rows and columns of the images, which lie in the files column by column."""
CLASSES = (5, 10, 15, 20, 30, 40)
N_SELECTED = (20, 50, 100, 200, 300, 500)
METHODS = {"LaplacianScore": "Laplacian Score", "VarianceScore": "variance"}
METRICS = {"accuracy": "accuracy", "nmi": "normalized mutual information"}
PRINTED: Mapping[tuple[str, int, str], tuple[float, ...]] = {
    ("accuracy", 5, "LaplacianScore"): (0.727, 0.806, 0.831, 0.849, 0.837, 0.644, 0.479),
    ("accuracy", 5, "VarianceScore"): (0.683, 0.698, 0.602, 0.503, 0.482, 0.464, 0.479),
    ("accuracy", 10, "LaplacianScore"): (0.685, 0.743, 0.787, 0.772, 0.711, 0.585, 0.403),
    ("accuracy", 10, "VarianceScore"): (0.494, 0.500, 0.456, 0.418, 0.392, 0.392, 0.403),
    ("accuracy", 30, "LaplacianScore"): (0.591, 0.623, 0.671, 0.650, 0.588, 0.485, 0.358),
    ("accuracy", 30, "VarianceScore"): (0.399, 0.393, 0.390, 0.365, 0.346, 0.340, 0.358),
    ("nmi", 5, "LaplacianScore"): (0.807, 0.866, 0.861, 0.862, 0.850, 0.652, 0.484),
    ("nmi", 5, "VarianceScore"): (0.662, 0.697, 0.609, 0.526, 0.495, 0.482, 0.484),
    ("nmi", 10, "LaplacianScore"): (0.811, 0.849, 0.865, 0.842, 0.796, 0.705, 0.538),
    ("nmi", 10, "VarianceScore"): (0.609, 0.632, 0.600, 0.563, 0.538, 0.529, 0.538),
    ("nmi", 30, "LaplacianScore"): (0.807, 0.826, 0.849, 0.831, 0.803, 0.735, 0.624),
    ("nmi", 30, "VarianceScore"): (0.646, 0.649, 0.649, 0.624, 0.611, 0.608, 0.624),
}
"""Table 1 for 5, 10 and 30 of the 68 persons of CMU PIE, at N_SELECTED and all pixels."""


@dataclass(frozen=True)
class Images:
    """A data set: its file, and how many images, classes and pixels it has."""

    path: Path
    n_images: int
    n_classes: int
    n_pixels: int


def look(path: Path) -> Images:
    """Return what a file holds."""
    with np.load(path) as file:
        n_images, n_pixels = file["X"].shape
        return Images(path, n_images, np.unique(file["y"]).size, n_pixels)


def job_of(images: Images, output: Path, n_subsets: int, classes: Sequence[int], workers: int) -> dict[str, Any]:
    """Return the job of one data set."""
    name = images.path.stem
    return {
        "data": {
            "source": str(images.path),
            "array": "X",
            "labels": "y",
            "task": "classification",
            "image_shape": list(SHAPES[name]),
            "image_order": "F",
        },
        "methods": [{"name": "LaplacianScore", "n_neighbors": 5}, "VarianceScore", "FisherScore"],
        "select": {"n_features": 100},
        "evaluate": {
            "setting": "transductive",
            "baselines": False,
            "n_classes": [n for n in classes if n <= images.n_classes],
            "n_subsets": n_subsets,
            "n_selected": [*N_SELECTED, images.n_pixels],
            "models": [{"name": "kmeans", "n_restarts": 10, "metrics": list(METRICS)}],
            "scaling": None,
            "max_samples": images.n_images,
        },
        "cluster": {"workers": workers},
        "output": {"path": str(output), "title": f"Laplacian Score against variance on {name}"},
    }


def table_lines(images: Images, run: Path) -> list[str]:
    """Return Table 1 for one data set, of its run: means and deviations over subsets, and where one method wins."""
    name, store = images.path.stem, Store(run)
    summary, differences = (read_table(store, table) for table in ("evaluation_summary", "comparisons"))
    sizes = sorted({row["n_selected"] for row in summary if row["n_selected"] is not None})
    n_subsets: dict[int, int] = {}
    for row in summary:
        n_subsets[row["n_classes"]] = max(row["n_values"], n_subsets.get(row["n_classes"], 0))
    cells = {
        (row["metric"], row["n_classes"], row["method"], row["n_selected"]): row
        for row in summary
        if row["n_values"] == n_subsets[row["n_classes"]]  # not of some subsets alone
    }
    lines = [f"{name}: {images.n_images} images, {images.n_classes} classes; k-means on the first pixels of a ranking"]
    for metric, title in METRICS.items():
        table = [[title, *sizes]]
        for c in sorted({row["n_classes"] for row in summary}):
            for method, called in METHODS.items():
                shown = (_shown(cells.get((metric, c, method, size))) for size in sizes)
                table.append([f"{c} classes, {called}", *shown])
                if (metric, c, method) in PRINTED:
                    of_paper = dict(zip((*N_SELECTED, images.n_pixels), PRINTED[metric, c, method], strict=True))
                    table.append(["the paper, on CMU PIE", *(f"{of_paper[size]:.3f}" for size in sizes)])
        lines += [*markdown(*table), *(f"- {line}" for line in verdict(differences, metric))]
    return lines


def _shown(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return "-"
    return f"{cell['mean']:.3f}" + ("" if cell["n_values"] == 1 else f" ± {cell['std']:.2f}")


def verdict(differences: Sequence[Mapping[str, Any]], metric: str) -> list[str]:
    """Return a line for each number of classes: where the Laplacian Score beats the variance, and where it loses, with
    differences over the same subsets whose 95 % interval leaves out 0.
    """
    pairs = [
        row
        for row in differences
        if row["metric"] == metric and {row["method"], row["other"]} == set(METHODS) and row["n_selected"] is not None
    ]
    lines = []
    for c in sorted({row["n_classes"] for row in pairs}):
        outcome: dict[str, list[str]] = {"wins": [], "loses": [], "differs by chance": [], "in one subset": []}
        for row in (row for row in pairs if row["n_classes"] == c):
            sign = 1 if row["method"] == "LaplacianScore" else -1
            if row["low"] is None:
                how = "in one subset"
            elif row["low"] <= 0 <= row["high"]:
                how = "differs by chance"
            else:
                how = "wins" if sign * row["low"] > 0 else "loses"
            outcome[how].append(f"{row['n_selected']} ({sign * row['difference']:+.3f})")
        told = "; ".join(f"{how} at {', '.join(where)}" for how, where in outcome.items() if where)
        lines.append(f"{c} classes: the Laplacian Score {told}")
    return lines


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="Folder of .npz files; none leaves Iris")
    parser.add_argument("--sets", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--classes", type=int, nargs="+", default=list(CLASSES), help="Sizes of the subsets")
    parser.add_argument("--subsets", type=int, default=20, help="Of classes, of each size")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("runs/papers/laplacian"), help="Where the jobs' runs lie")
    options = parser.parse_args(arguments)
    if options.data is not None:
        options.sets = present(parser, options.data, options.sets)
    return options


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, run, and print the tables."""
    options = parsed(arguments)
    print("\n".join(iris_lines()))
    if options.data is None:
        return
    for name in options.sets:
        images, run = look(options.data / f"{name}.npz"), options.output / name
        try:
            done = run_job(make_job(job_of(images, run, options.subsets, options.classes, options.workers)))
        except DaskfsError as error:
            sys.exit(f"{name}: {error}")
        print("\n".join(["", *table_lines(images, run)]), flush=True)
        print(f"report: {done['report']}", file=sys.stderr)


if __name__ == "__main__":
    main()
