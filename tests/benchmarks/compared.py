"""Benchmark against other packages: the same criterion on the same data, written as tables of docs/compared.md.

    python -m tests.benchmarks.compared [--output docs/compared] [--tables NAME ...] [--scale 1.0]

Tables: ``filters`` (Laplacian Score, Fisher score, variance), ``information`` (mutual information), ``sparse`` (the
filters on CSR), ``svm`` (backward elimination), ``genes`` (counts, against scanpy's highly variable genes),
``neighbors`` (graphs), ``search`` (graphs of a given recall, by ``tests.benchmarks.graph``), ``imports`` and
``versions``. Packages that are not installed are skipped by name; ``pip install scikit-learn skfeature-chappers ITMO_FS
scanpy scikit-misc`` and the extra ``bench`` install all.

Each call is measured in a process of its own with one thread, after a call on a few rows, which imports and compiles.
CPU seconds are those of the process, user and system: the median of three calls, or one call if it takes more than two
seconds. Memory is the growth of the peak in the first call over what the process held before, the data among it. A call
that takes more than ``--seconds`` of CPU or ``--memory`` more GiB of addresses is stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import importlib.metadata
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

MiB, GiB = 2**20, 2**30
TOP = 20
K_SCORE, K_GRAPH = 5, 10
N_CLASSES = 10
N_MARKERS = 200
CHECKED_ROWS = 500
LONG, SHORT = 2.0, 0.2
"""CPU seconds from which on one call is enough, and up to which a call is a loop, as clocks of processors tick."""
ONE_THREAD = {
    name: "1"
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "LOKY_MAX_CPU_COUNT",
    )
}
OURS = "daskfs"
PACKAGES = {
    "daskfs": "daskfs",
    "scikit-learn": "sklearn",
    "skfeature-chappers": "skfeature",
    "ITMO-FS": "ITMO_FS",
    "scanpy": "scanpy",
    "pynndescent": "pynndescent",
}
"""Distributions and the modules that they install."""
FOREIGN = ("skfeature.function.similarity_based.lap_score", "ITMO_FS", "scanpy", "pynndescent")
LIBRARIES = ("umap-learn", "scikit-misc", "faiss-cpu", "hnswlib", "numpy", "scipy", "numba", "dask", "anndata")

Call = Callable[[Any, np.ndarray], np.ndarray]


# ------------------------------------------------------------------------------------ data
def classes(n_samples: int, n_features: int) -> dict[str, Any]:
    """Return ten Gaussian classes, which the later features tell apart better."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((N_CLASSES, n_features)) * np.linspace(0.02, 1, n_features)
    y = rng.integers(0, N_CLASSES, n_samples)
    scales = rng.uniform(0.5, 2, n_features)
    return {"X": (centers[y] + rng.standard_normal((n_samples, n_features))) * scales, "y": y}


def binned(n_samples: int, n_features: int) -> dict[str, Any]:
    """Return the same, each feature cut into ten bins of equal frequency."""
    data = classes(n_samples, n_features)
    ranks = np.argsort(np.argsort(data["X"], axis=0), axis=0)
    return {**data, "X": (ranks * 10 // n_samples).astype(np.float64)}


def halves(n_samples: int, n_features: int) -> dict[str, Any]:
    """Return the same in two classes of five clusters each."""
    data = classes(n_samples, n_features)
    return {**data, "y": data["y"] % 2}


def sparse_classes(n_samples: int, n_features: int, density: float = 0.02) -> dict[str, Any]:
    """Return ten classes of rows in CSR, each with features of its own that are there more often."""
    rng = np.random.default_rng(0)
    rates = rng.gamma(1.0, 1.0, (N_CLASSES, n_features)) * rng.uniform(0.2, 2, n_features)
    y = rng.integers(0, N_CLASSES, n_samples)
    counts = rng.poisson(density * n_features, n_samples)
    columns = np.empty(counts.sum(), np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)])
    for row, label in enumerate(y):
        bounds = slice(starts[row], starts[row + 1])
        columns[bounds] = np.searchsorted(np.cumsum(rates[label]) / rates[label].sum(), rng.random(counts[row]))
    X = sp.csr_matrix((rng.lognormal(0, 0.5, columns.size), columns, starts), shape=(n_samples, n_features))
    X.sum_duplicates()
    return {"X": X, "y": y}


def genes(n_samples: int, n_features: int) -> dict[str, Any]:
    """Return counts of cells of ten types in CSR; 200 markers are expressed four to eight times as much in one type."""
    rng = np.random.default_rng(0)
    base = rng.lognormal(-2.5, 1.5, n_features)
    markers = rng.choice(n_features, min(N_MARKERS, n_features // 4), replace=False)
    factors = np.ones((N_CLASSES, n_features))
    factors[rng.integers(0, N_CLASSES, markers.size), markers] = rng.uniform(4, 8, markers.size)
    y = rng.integers(0, N_CLASSES, n_samples)
    depth = rng.lognormal(0, 0.4, n_samples)
    blocks = []
    for start in range(0, n_samples, 1000):
        rows = slice(start, start + 1000)
        rates = base * factors[y[rows]] * depth[rows, None]
        blocks.append(sp.csr_matrix(rng.poisson(rates * rng.gamma(5, 0.2, rates.shape)).astype(np.float32)))
    return {"X": sp.vstack(blocks, format="csr"), "y": y, "markers": markers}


def clusters(n_samples: int, n_features: int) -> dict[str, Any]:
    """Return a hundred Gaussian clusters."""
    from tests.benchmarks.graph import mixture

    return {"X": mixture(n_samples, n_features), "y": np.zeros(n_samples, np.int64)}


def latent(n_samples: int, n_features: int) -> dict[str, Any]:
    """Return ten latent dimensions plus noise."""
    from tests.benchmarks.graph import low_rank

    return {"X": low_rank(n_samples, n_features), "y": np.zeros(n_samples, np.int64)}


def store(folder: Path, data: dict[str, Any]) -> None:
    """Write X and everything else into a folder."""
    X = data["X"]
    if sp.issparse(X):
        sp.save_npz(folder / "X.npz", X, compressed=False)
    else:
        np.save(folder / "X.npy", X)
    for name in set(data) - {"X"}:
        np.save(folder / f"{name}.npy", data[name])


def load(folder: Path) -> tuple[Any, np.ndarray]:
    """Read X and y."""
    X = sp.load_npz(folder / "X.npz") if (folder / "X.npz").exists() else np.load(folder / "X.npy")
    return X, np.load(folder / "y.npy")


# ----------------------------------------------------------------------------------- calls
# Each returns one number for each feature, large for good ones, or the neighbors of each row, (n_samples, K_GRAPH).
def by_position(order: Any, n_features: int) -> np.ndarray:
    """Return numbers that fall along an order of features, the same for all features that it lacks."""
    found = np.full(n_features, -float(n_features))
    found[np.asarray(order, dtype=np.int64)] = -np.arange(len(order), dtype=np.float64)
    return found


def our_laplacian(X: Any, _: np.ndarray) -> np.ndarray:
    from daskfs import LaplacianScore

    chosen = LaplacianScore(n_neighbors=K_SCORE, weights="binary", self_loops=True, n_jobs=1)
    return -chosen.fit(X).scores_


def our_exact_laplacian(X: Any, _: np.ndarray) -> np.ndarray:
    from daskfs import LaplacianScore, knn_graph

    graph = knn_graph(X, K_SCORE, engine="exact", n_jobs=1)
    chosen = LaplacianScore(n_neighbors=K_SCORE, weights="binary", self_loops=True, graph=graph, n_jobs=1)
    return -chosen.fit(X).scores_


def skfeature_laplacian(X: Any, _: np.ndarray) -> np.ndarray:
    from skfeature.function.similarity_based.lap_score import lap_score
    from skfeature.utility.construct_W import construct_W

    W = construct_W(X, metric="euclidean", neighbor_mode="knn", weight_mode="binary", k=K_SCORE)
    return by_position(lap_score(X, W=W, mode="index"), X.shape[1])


def skfeature_dense_laplacian(X: Any, y: np.ndarray) -> np.ndarray:
    return skfeature_laplacian(X.toarray(), y)


def itmo_laplacian(X: Any, y: np.ndarray) -> np.ndarray:
    """Rows of one class are neighbors, too: so that there are none, each row is a class; widths are wide."""
    from ITMO_FS.filters.univariate import laplacian_score

    return -np.asarray(laplacian_score(X, np.arange(y.size), k_neighbors=K_SCORE, t=1e9))


def laplacian_by_hand(X: Any, _: np.ndarray) -> np.ndarray:
    from sklearn.neighbors import kneighbors_graph

    lists = kneighbors_graph(X, K_SCORE, include_self=False)
    W = lists.maximum(lists.T) + sp.identity(X.shape[0], format="csr")
    degrees = np.asarray(W.sum(axis=1)).ravel()
    squares = X.multiply(X) if sp.issparse(X) else X**2
    products = X.multiply(W @ X) if sp.issparse(X) else X * (W @ X)
    mean = np.asarray(degrees @ X).ravel() / degrees.sum()
    weighted = np.asarray(squares.T @ degrees).ravel()
    below = weighted - degrees.sum() * mean**2
    return -(weighted - np.asarray(products.sum(axis=0)).ravel()) / below


def our_fisher(X: Any, y: np.ndarray) -> np.ndarray:
    from daskfs import FisherScore

    return FisherScore().fit(X, y).scores_


def learn_f(X: Any, y: np.ndarray) -> np.ndarray:
    from sklearn.feature_selection import f_classif

    return np.asarray(f_classif(X, y)[0])


def skfeature_fisher(X: Any, y: np.ndarray) -> np.ndarray:
    from skfeature.function.similarity_based.fisher_score import fisher_score

    return by_position(fisher_score(X, y, mode="index"), X.shape[1])


def skfeature_dense_fisher(X: Any, y: np.ndarray) -> np.ndarray:
    return skfeature_fisher(X.toarray(), y)


def itmo_fisher(X: Any, y: np.ndarray) -> np.ndarray:
    from ITMO_FS.filters.univariate import f_ratio_measure

    return np.asarray(f_ratio_measure(X, y))


def itmo_anova(X: Any, y: np.ndarray) -> np.ndarray:
    from ITMO_FS.filters.univariate import anova

    return np.asarray(anova(X, y))


def our_variance(X: Any, _: np.ndarray) -> np.ndarray:
    from daskfs import VarianceScore

    return VarianceScore().fit(X).scores_


def learn_variance(X: Any, _: np.ndarray) -> np.ndarray:
    from sklearn.feature_selection import VarianceThreshold

    return np.asarray(VarianceThreshold().fit(X).variances_)


def our_information(X: Any, y: np.ndarray) -> np.ndarray:
    from daskfs import InformationGainScore

    return InformationGainScore(n_bins=10).fit(X, y).scores_


def learn_information(X: Any, y: np.ndarray) -> np.ndarray:
    from sklearn.feature_selection import mutual_info_classif

    return np.asarray(mutual_info_classif(X, y, discrete_features=True))


def skfeature_information(X: Any, y: np.ndarray) -> np.ndarray:
    from skfeature.utility.mutual_information import information_gain

    return np.array([information_gain(X[:, column], y) for column in range(X.shape[1])])


def itmo_information(X: Any, y: np.ndarray) -> np.ndarray:
    from ITMO_FS.filters.univariate import information_gain

    return np.asarray(information_gain(X, y))


def our_elimination(X: Any, y: np.ndarray) -> np.ndarray:
    from daskfs import SVMRFE

    return -SVMRFE(TOP, n_jobs=1).fit(X, y).ranking_.astype(np.float64)


def our_landmarks(X: Any, y: np.ndarray) -> np.ndarray:
    from daskfs import SVMRFE

    return -SVMRFE(TOP, large_n="landmarks", n_jobs=1).fit(X, y).ranking_.astype(np.float64)


def learn_elimination(X: Any, y: np.ndarray) -> np.ndarray:
    from sklearn.feature_selection import RFE
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    fitted = RFE(SVC(kernel="linear", C=10), n_features_to_select=TOP, step=0.05).fit(
        StandardScaler().fit_transform(X), y
    )
    return -fitted.ranking_.astype(np.float64)


def itmo_elimination(X: Any, y: np.ndarray) -> np.ndarray:
    from ITMO_FS.wrappers import RecursiveElimination
    from sklearn.svm import SVC

    fitted = RecursiveElimination(SVC(kernel="linear", C=10), TOP)
    fitted.fit(X, y)
    return by_position(fitted.__features__, X.shape[1])


def skfeature_elimination(X: Any, y: np.ndarray) -> np.ndarray:
    from skfeature.function.wrapper.svm_backward import svm_backward

    return by_position(svm_backward(X, y, mode="index", n_selected_features=TOP), X.shape[1])


def our_normalized_variance(X: Any, _: np.ndarray) -> np.ndarray:
    from daskfs import VarianceScore

    return VarianceScore(score_scaling="total=10000+log1p").fit(X).scores_


def our_normalized_laplacian(X: Any, _: np.ndarray) -> np.ndarray:
    from daskfs import LaplacianScore

    scaling = "total=10000+log1p"
    chosen = LaplacianScore(graph_scaling=f"{scaling}+zscore+pca=50", score_scaling=scaling, n_jobs=1)
    return -chosen.fit(X).scores_


def our_normalized_fisher(X: Any, y: np.ndarray) -> np.ndarray:
    from daskfs import FisherScore

    return FisherScore(score_scaling="total=10000+log1p").fit(X, y).scores_


def highly_variable(X: Any, flavor: str) -> Any:
    """Return scanpy's table of genes; "seurat" takes log-normalized values, "seurat_v3" counts."""
    import scanpy
    from anndata import AnnData

    cells = AnnData(X.copy())
    if flavor == "seurat":
        scanpy.pp.normalize_total(cells, target_sum=1e4)
        scanpy.pp.log1p(cells)
    n_genes = min(N_MARKERS, X.shape[1] // 4)
    return scanpy.pp.highly_variable_genes(cells, flavor=flavor, n_top_genes=n_genes, inplace=False)


def scanpy_seurat(X: Any, _: np.ndarray) -> np.ndarray:
    return np.nan_to_num(highly_variable(X, "seurat")["dispersions_norm"].to_numpy(np.float64), nan=-np.inf)


def scanpy_seurat_v3(X: Any, _: np.ndarray) -> np.ndarray:
    return np.asarray(highly_variable(X, "seurat_v3")["variances_norm"], np.float64)


def our_graph(X: Any, _: np.ndarray) -> np.ndarray:
    from daskfs import knn_graph

    return knn_graph(X, K_GRAPH, n_jobs=1).indices


def our_exact_graph(X: Any, _: np.ndarray) -> np.ndarray:
    from daskfs import knn_graph

    return knn_graph(X, K_GRAPH, engine="exact", n_jobs=1).indices


def learn_graph(X: Any, _: np.ndarray) -> np.ndarray:
    from sklearn.neighbors import NearestNeighbors

    return np.asarray(NearestNeighbors(n_neighbors=K_GRAPH, n_jobs=1).fit(X).kneighbors(return_distance=False))


def descent_graph(X: Any, _: np.ndarray) -> np.ndarray:
    from pynndescent import NNDescent

    return np.asarray(NNDescent(X, n_neighbors=K_GRAPH + 1, random_state=0, n_jobs=1).neighbor_graph[0][:, 1:])


def scanpy_graph(X: Any, _: np.ndarray) -> np.ndarray:
    """With UMAP's weights, which scanpy always finds as well."""
    import scanpy
    from anndata import AnnData

    cells = AnnData(X)
    scanpy.pp.neighbors(cells, n_neighbors=K_GRAPH + 1, use_rep="X")
    return np.asarray(cells.obsp["distances"].indices.reshape(len(X), -1))


def skfeature_graph(X: Any, _: np.ndarray) -> np.ndarray:
    """Lists are not returned: the rows of the graph, which hold the neighbors and the row itself, are cut to ten."""
    from skfeature.utility.construct_W import construct_W

    W = sp.csr_matrix(construct_W(X, metric="euclidean", neighbor_mode="knn", weight_mode="binary", k=K_GRAPH))
    W.setdiag(0)
    W.eliminate_zeros()
    found = np.empty((len(X), K_GRAPH), np.int64)
    for row in range(len(X)):
        near = W.indices[W.indptr[row] : W.indptr[row + 1]]
        found[row] = near[np.argsort(((X[near] - X[row]) ** 2).sum(axis=1))[:K_GRAPH]]
    return found


# ---------------------------------------------------------------------------------- tables
@dataclass(frozen=True)
class Comparison:
    """The same task in several packages; the first is daskfs, with which agreement is measured."""

    name: str
    title: str
    calls: dict[str, Call]
    compiled_on: tuple[int, int] | None = None
    """Rows and columns of a first call of packages that compile; by default the first of the data."""


@dataclass(frozen=True)
class Table:
    """Comparisons on data of several sizes, ascending."""

    comparisons: tuple[Comparison, ...]
    data: tuple[tuple[str, Callable[[int, int], dict[str, Any]], int, int], ...]
    is_graph: bool = False


LAPLACIAN: dict[str, Call] = {
    "daskfs": our_laplacian,
    "daskfs, exact graph": our_exact_laplacian,
    "scikit-learn and SciPy, by hand": laplacian_by_hand,
    "scikit-feature": skfeature_laplacian,
    "ITMO_FS": itmo_laplacian,
}
FISHER: dict[str, Call] = {
    "daskfs": our_fisher,
    "scikit-learn, f_classif": learn_f,
    "scikit-feature": skfeature_fisher,
    "ITMO_FS, f_ratio_measure": itmo_fisher,
    "ITMO_FS, anova": itmo_anova,
}
SPARSE_LAPLACIAN = {**LAPLACIAN, "scikit-feature, of X.toarray()": skfeature_dense_laplacian}
SPARSE_FISHER = {**FISHER, "scikit-feature, of X.toarray()": skfeature_dense_fisher}
VARIANCE: dict[str, Call] = {
    "daskfs": our_variance,
    "scikit-learn": learn_variance,
}
INFORMATION: dict[str, Call] = {
    "daskfs": our_information,
    "scikit-learn": learn_information,
    "scikit-feature": skfeature_information,
    "ITMO_FS": itmo_information,
}
ELIMINATION: dict[str, Call] = {
    "daskfs, Gaussian kernel": our_elimination,
    "daskfs, Gaussian kernel, landmarks": our_landmarks,
    "scikit-learn, RFE, linear kernel": learn_elimination,
    "scikit-feature, svm_backward, Gaussian kernel": skfeature_elimination,
    "ITMO_FS, linear kernel": itmo_elimination,
}
GENES: dict[str, Call] = {
    "daskfs, VarianceScore": our_normalized_variance,
    "daskfs, LaplacianScore": our_normalized_laplacian,
    "daskfs, FisherScore (labels)": our_normalized_fisher,
    "scanpy, seurat": scanpy_seurat,
    "scanpy, seurat_v3": scanpy_seurat_v3,
}
NEIGHBORS: dict[str, Call] = {
    "daskfs": our_graph,
    "daskfs, exact": our_exact_graph,
    "scikit-learn": learn_graph,
    "pynndescent": descent_graph,
    "scanpy": scanpy_graph,
    "scikit-feature": skfeature_graph,
}
SIZES = ((1000, 100), (2000, 2000), (10_000, 500), (50_000, 64))


def dense(make: Callable[[int, int], dict[str, Any]], n_sizes: int = len(SIZES)) -> tuple[Any, ...]:
    """Return dense data of the first sizes."""
    return tuple((f"{n:,} x {d:,}", make, n, d) for n, d in SIZES[:n_sizes])


TABLES: dict[str, Table] = {
    "filters": Table(
        (
            Comparison("laplacian", "Laplacian Score, 5 neighbors, binary weights", LAPLACIAN, (6000, 8)),
            Comparison("fisher", "Fisher score", FISHER),
            Comparison("variance", "Variance", VARIANCE),
        ),
        dense(classes),
    ),
    "information": Table((Comparison("information", "Mutual information", INFORMATION),), dense(binned)),
    "sparse": Table(
        (
            Comparison("laplacian", "Laplacian Score, 5 neighbors, binary weights", SPARSE_LAPLACIAN),
            Comparison("fisher", "Fisher score", SPARSE_FISHER),
            Comparison("variance", "Variance", VARIANCE),
        ),
        tuple((f"{n:,} x {d:,}, 2 %", sparse_classes, n, d) for n, d in ((2000, 5000), (20_000, 10_000))),
    ),
    "svm": Table((Comparison("elimination", "Backward elimination", ELIMINATION),), dense(halves, 3)),
    "genes": Table(
        (Comparison("genes", "Genes of cells", GENES),),
        tuple((f"{n:,} x {d:,}", genes, n, d) for n, d in ((3000, 5000), (20_000, 10_000))),
    ),
    "neighbors": Table(
        (Comparison("neighbors", "Neighbor graph, 10 neighbors", NEIGHBORS, (9000, 8)),),
        tuple(
            (f"{name}, {n:,} x {d:,}", make, n, d)
            for n, d in SIZES[2:]
            for name, make in (("clusters", clusters), ("low rank", latent))
        ),
        is_graph=True,
    ),
}


def comparison_of(table: str, name: str) -> Comparison:
    """Return a comparison by its names."""
    return next(one for one in TABLES[table].comparisons if one.name == name)


# ------------------------------------------------------------------------ the measured process
def peak_bytes() -> int:
    """Return the peak of this process.

    On Linux that of its memory since it started, or since it began a new one; ru_maxrss counts the parent's, too.
    """
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024


def start_over() -> int:
    """Give free memory back, begin a new peak, and return the bytes that the process holds."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):  # only Linux has it; elsewhere the peak is that of the whole process
        Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def limit(seconds: int, memory: float) -> None:
    """Stop this process after more seconds of its processor, and refuse it more addresses than it has by some GiB."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + seconds + 1, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + int(memory * GiB), hard))


def warm_up(comparison: Comparison, call: Call, X: Any, y: np.ndarray, *, compiles: bool) -> None:
    """Call on a few rows, so that everything is imported and compiled."""
    call(X[:300].copy(), y[:300])
    if compiles and comparison.compiled_on is not None:
        rows, columns = comparison.compiled_on
        data = clusters(rows, columns)
        call(data["X"].astype(X.dtype), data["y"])


def timed(call: Call, X: Any, y: np.ndarray, n_calls: int) -> tuple[float, np.ndarray]:
    """Return the mean CPU seconds of some calls, and the result."""
    started = time.process_time()
    for _ in range(n_calls):
        found = call(X, y)
    return (time.process_time() - started) / n_calls, found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return what one call takes, and leave its result in the folder, or what prevents it."""
    table, name, of, into = options.measure
    folder, repeats, memory = Path(into), options.repeats, options.memory
    comparison = comparison_of(table, name)
    call = comparison.calls[of]
    X, y = load(folder)
    try:
        limit(options.seconds, memory)
        # warming up the slow wrapper of scikit-feature takes longer than it may run
        if call is not skfeature_elimination:
            warm_up(comparison, call, X, y, compiles=of.split(",")[0] in (OURS, "pynndescent", "scanpy"))
        limit(options.seconds, memory)
        held = start_over()
        seconds_of, found = timed(call, X, y, 1)
        peak = peak_bytes()
        cpu = [seconds_of]
        if seconds_of < LONG:
            n_calls = max(1, min(100, int(SHORT / max(seconds_of, 1e-3))))
            cpu = [timed(call, X, y, n_calls)[0] for _ in range(repeats)]
    except ModuleNotFoundError as error:
        return {"failure": f"not installed: {error.name}"}
    except MemoryError:
        return {"failure": f"stopped: more than {memory:g} GiB"}
    except Exception as error:  # noqa: BLE001 - whatever other packages raise is what the table says
        return {"failure": f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"}
    np.save(folder / "result.npy", found)
    return {"cpu": median(cpu), "peak": max(0, peak - held)}


def run_measured(table: str, name: str, of: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one call in a process of its own."""
    out = folder / "measured.json"
    out.unlink(missing_ok=True)
    measured = ["--measure", table, name, of, str(folder)]
    limits = ["--seconds", str(options.seconds), "--memory", str(options.memory), "--repeats", str(options.repeats)]
    command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.compared", *measured, *limits]
    try:
        done = subprocess.run(
            command, env={**os.environ, **ONE_THREAD}, capture_output=True, check=False, timeout=10 * options.seconds
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"stopped: more than {10 * options.seconds} s"}
    if done.returncode == -signal.SIGXCPU:
        return {"failure": f"stopped: more than {options.seconds} s"}
    if not out.exists():
        return {"failure": f"ended with exit code {done.returncode}"}
    return dict(json.loads(out.read_text()))


# --------------------------------------------------------------------------------- results
def three_digits(value: float) -> str:
    """Return a number with three significant digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.001 else "< 0.001"


def agreement(found: np.ndarray, ours: np.ndarray) -> dict[str, str]:
    """Return Spearman's correlation and the number of first features in common."""
    from scipy.stats import spearmanr

    first = [set(np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")[:TOP]) for scores in (found, ours)]
    finite = np.isfinite(found) & np.isfinite(ours)
    spearman = spearmanr(found[finite], ours[finite]).statistic
    return {"Spearman": f"{spearman:.3f}", f"first {TOP}": str(len(first[0] & first[1]))}


def markers_found(found: np.ndarray, folder: Path) -> dict[str, str]:
    """Return how many of as many first features are markers."""
    markers = np.load(folder / "markers.npy")
    first = np.argsort(-np.nan_to_num(found, nan=-np.inf), kind="stable")[: markers.size]
    return {"markers": f"{np.isin(first, markers).sum()} of {markers.size}"}


def recall(found: np.ndarray, X: np.ndarray) -> float:
    """Return the share of true neighbors that lists of some rows hold."""
    rows = np.sort(np.random.default_rng(1).choice(len(X), min(CHECKED_ROWS, len(X)), replace=False))
    squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    distances = squares - 2 * (X[rows].astype(np.float64) @ X.T)
    distances[np.arange(rows.size), rows] = np.inf
    true = np.argpartition(distances, K_GRAPH, axis=1)[:, :K_GRAPH]
    return float(np.mean([np.isin(near, lists).mean() for near, lists in zip(true, found[rows], strict=True)]))


def quality(table: Table, folder: Path, found: np.ndarray, ours: np.ndarray) -> dict[str, str]:
    """Return what is said of a result beside its costs."""
    if table.is_graph:
        return {"recall": f"{recall(found, np.load(folder / 'X.npy')):.3f}"}
    if (folder / "markers.npy").exists():
        return markers_found(found, folder)
    return agreement(found, ours)


def measured_rows(
    name: str, comparison: Comparison, options: argparse.Namespace, folders: list[tuple[str, Path]]
) -> Iterator[dict[str, str]]:
    """Measure a comparison on data of every size."""
    stopped: set[str] = set()
    for title, folder in folders:
        ours: np.ndarray | None = None
        our_cpu = np.nan
        for of in comparison.calls:
            row = {"data": title, "package": of}
            if of in stopped:
                yield row | {"CPU, s": "not tried: stopped on fewer values"}
                continue
            run = run_measured(name, comparison.name, of, folder, options)
            print(f"{comparison.name}, {title}, {of}: {run}", file=sys.stderr, flush=True)
            failure = run.get("failure")
            if failure is not None:
                stopped |= {of} if failure.startswith(("stopped", "not installed")) else set()
                yield row | {"CPU, s": failure}
                continue
            found = np.load(folder / "result.npy")
            if ours is None:
                ours, our_cpu = found, run["cpu"]
            yield row | {
                "CPU, s": three_digits(run["cpu"]),
                "ratio": three_digits(run["cpu"] / our_cpu),
                "memory, MiB": f"{run['peak'] / MiB:,.0f}" if run["peak"] >= MiB else "< 1",
                **quality(TABLES[name], folder, found, ours),
            }


def import_rows(repeats: int) -> Iterator[dict[str, str]]:
    """Measure the imports that the first call needs."""
    imports = ("numpy, scipy.sparse", "daskfs.estimators.graph", "sklearn.feature_selection", *FOREIGN)
    script = (
        "import time; import {0}; from tests.benchmarks.compared import peak_bytes\n"
        "print(time.process_time(), peak_bytes())"
    )
    for module in imports:
        command = [sys.executable, "-W", "ignore", "-c", script.format(module)]
        runs = [subprocess.run(command, capture_output=True, text=True, check=False) for _ in range(repeats)]
        if any(run.returncode for run in runs):
            yield {"import": module, "CPU, s": "not installed"}
            continue
        spent = [[float(number) for number in run.stdout.split()[-2:]] for run in runs]
        cpu, peak = (median(values) for values in zip(*spent, strict=True))
        yield {"import": module, "CPU, s": three_digits(cpu), "memory, MiB": f"{peak / MiB:,.0f}"}


def search_rows(scale: float) -> Iterator[dict[str, str]]:
    """Run the table ``descent`` of ``tests.benchmarks.graph`` in a smaller form."""
    from tests.benchmarks.graph import DATA, descent_table

    shapes = [(max(2000, int(n * scale)), d) for n, d in ((20_000, 64), (10_000, 512))]
    for found in descent_table(shapes, K_GRAPH):
        if found["data"] not in DATA:
            continue
        yield {
            "data": f"{found['data']}, {found['shape']}",
            **{
                title: f"{three_digits(found[cpu])} ({found[reached]:.3f})"
                if np.isfinite(found[cpu])
                else "not installed"
                for title, cpu, reached in (
                    ("daskfs", "cpu_memory", "recall"),
                    ("NNDescent", "nndescent_cpu", "nndescent_recall"),
                    ("faiss IVF-Flat", "faiss_cpu", "faiss_recall"),
                    ("hnswlib", "hnswlib_cpu", "hnswlib_recall"),
                )
            },
        }


def version_rows() -> Iterator[dict[str, str]]:
    """Name the versions of everything that took part."""
    commit = ""
    if git := shutil.which("git"):
        command = [git, "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent).stdout
    yield {"what": "daskfs", "version": f"{importlib.metadata.version('daskfs')}, commit {commit.strip() or 'unknown'}"}
    for package in (*list(PACKAGES)[1:], *LIBRARIES):
        try:
            yield {"what": package, "version": importlib.metadata.version(package)}
        except importlib.metadata.PackageNotFoundError:
            yield {"what": package, "version": "not installed"}
    yield {"what": "Python", "version": platform.python_version()}
    yield {"what": "processors", "version": f"{len(os.sched_getaffinity(0))} shared cores, {platform.machine()}"}


def markdown(rows: list[dict[str, str]]) -> str:
    """Return a table; rows may lack columns. Columns from the third on, and all after a number, are at the right."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    left = ("data", "package", "import", "what", "version")
    lines = [names, ["---" if name in left else "---:" for name in names]]
    lines += [[row.get(name, "").replace("|", "\\|") for name in names] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_tables(options: argparse.Namespace) -> None:
    """Measure and write the tables that are asked for."""
    options.output.mkdir(parents=True, exist_ok=True)
    others: dict[str, Callable[[], Iterator[dict[str, str]]]] = {
        "search": lambda: search_rows(options.scale),
        "imports": lambda: import_rows(options.repeats),
        "versions": version_rows,
    }
    for name in options.tables:
        if name in others:
            (options.output / f"{name}.md").write_text(markdown(list(others[name]())))
            continue
        table = TABLES[name]
        with tempfile.TemporaryDirectory() as made:
            folders = []
            for number, (title, make, n_samples, n_features) in enumerate(table.data):
                folder = Path(made) / str(number)
                folder.mkdir()
                store(folder, make(max(400, int(n_samples * options.scale)), n_features))
                folders.append((title, folder))
            for comparison in table.comparisons:
                rows = list(measured_rows(name, comparison, options, folders))
                kind = "" if len(table.comparisons) == 1 else f"{name}-"
                (options.output / f"{kind}{comparison.name}.md").write_text(markdown(rows))


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    names = [*TABLES, "search", "imports", "versions"]
    parser.add_argument("--output", type=Path, default=Path("docs/compared"))
    parser.add_argument("--tables", nargs="+", choices=names, default=names)
    parser.add_argument("--scale", type=float, default=1.0, help="Multiplies rows.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=60, help="CPU seconds after which a call is stopped.")
    parser.add_argument("--memory", type=float, default=4.0, help="GiB of addresses that a call may add.")
    parser.add_argument(
        "--measure", nargs=4, metavar=("TABLE", "COMPARISON", "PACKAGE", "FOLDER"), help=argparse.SUPPRESS
    )
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    if options.measure:
        found = measure(options)
        Path(options.measure[-1], "measured.json").write_text(json.dumps(found))
        return
    write_tables(options)


if __name__ == "__main__":
    main()
