"""How easily rows fall into two clusters: the cut value by which sSelect chooses its trade-off.

Algorithm 3 of Zhao and Liu (2007) reduces the data to the best features of each trade-off, builds a graph on what is
left, and takes the second-smallest eigenvalue of its normalized Laplacian, the relaxed normalized cut: the lower, the
better the features separate the rows. The paper names neither graph nor kernel width, and as printed the value is 0
whenever the graph falls apart, which a few words of text always do: documents without any of them are the same row,
and so are those with one word once; each such heap is a component of its own once it has more rows than k. So:

- Equal rows are one node that weighs as many rows as it has. The full graph over all rows has the same eigenvalue
  then, and no heap of duplicates is disconnected from the rest for lack of neighbors outside it.
- Edges join a node and its k nearest (either way round), and weigh the product of both nodes' rows, whatever their
  length. Under exp(-d**2 / t) two long documents that lie far from all others, and near each other, cut the graph at
  1e-16, and on counts there are always such two: that value says nothing.
- Components with less than a twentieth of the rows are outliers and left out. Where two or more larger ones remain the
  rows do fall apart, and the cut value is 0; where one does, it is that component's.

What was tried: the 1NN accuracy (5 folds, all labels) of the first 10 features under the chosen trade-off, 3 labelled
rows per class, mean of 6 draws (number of features where another). "Best" and "mean" are of the 11 trade-offs, 0.1 is
the paper's.

| value that chooses | PCMAC | RELATHE | CNAE9 | digits | PCMAC, 50 | Isolet, 50 | USPS, 20 |
| --- | --- | --- | --- | --- | --- | --- | --- |
| (best) | .618 | .577 | .529 | .911 | .733 | .729 | .767 |
| (mean) | .565 | .560 | .473 | .874 | .677 | .688 | .688 |
| (0.1) | .608 | .573 | .522 | .838 | .724 | .630 | .755 |
| as above | .604 | .565 | .485 | .894 | .691 | .704 | .607 |
| all rows, duplicates apart | .526 | .558 | .363 | .894 | .663 | .704 | .607 |
| the same, exp(-d**2 / t) | .527 | .558 | .485 | .900 | .617 | .699 | .589 |
| distinct rows, each once | .549 | .552 | .490 | .894 | .621 | .704 | .607 |
| as above, widths by row | .569 | .563 | .485 | .900 | .705 | .699 | .603 |
| full kernel of one width | .558 | .573 | .510 | .876 | .622 | .701 | .601 |
| full kernel, widths by row | .519 | .555 | .502 | .900 | .601 | .682 | .614 |

In this table it lies above the mean of the grid but on USPS, where features at the border of the image cut best under
every rule and tell few classes apart; another draw of RELATHE with 50 features fell below it, too. It is never best,
and on text the paper's 0.1 does as well or better. The rule was chosen on these sets: they are no test of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.kernels.neighbors.rows import prepare_rows

CUT_ROWS = 1000
"""Rows that are cut at most; finding eigenvalues takes time by the cube of them."""
CUT_FEATURES = 50
"""The most features that are looked at where nobody says how many; as many as the paper evaluates."""
OUTLIER_SHARE = 0.05
"""Share of the rows below which a component of the graph is an outlier."""
CUT_BITS = 30
"""Cut values that agree to 2**-30 are equal: libraries for eigenvalues differ beyond that."""


@dataclass(frozen=True)
class Cut:
    """How rows fall apart.

    `value` is the cut value of the graph, in [0, 2]: low is separable, 0 falls apart; `kernel_value` that of the full
    kernel exp(-d**2 / (2 width)), with `width` the median squared length of the graph's edges; both are NaN where all
    rows are equal. `largest_component` is its share of the rows.
    """

    value: float
    kernel_value: float
    width: float
    n_components: int
    largest_component: float
    n_distinct: int


def cut_features(wanted: int | None, n_features: int) -> int:
    """Return how many features of each ranking are looked at: as many as are wanted, or half of them and 50 at most."""
    return min(wanted or min(CUT_FEATURES, max(1, n_features // 2)), n_features)


def cut_of(X: np.ndarray, n_neighbors: int, weights: np.ndarray | None = None) -> Cut:
    """Return how easily rows fall into two clusters.

    Parameters
    ----------
    X
        Dense rows, shape (n_rows, n_columns), finite, float64.
    n_neighbors
        Neighbors of each distinct row in the graph.
    weights
        Shape (n_rows,), float64: how many rows each row counts for; None for one each.
    """
    weights = np.ones(X.shape[0]) if weights is None else weights
    counted = weights > 0
    if X.shape[1] == 0 or not counted.any():
        return Cut(np.nan, np.nan, np.nan, 1, 1.0, int(counted.any()))
    rows, node = np.unique(X[counted] + 0.0, axis=0, return_inverse=True)  # -0.0 becomes 0.0
    node = node.ravel()
    mass = np.bincount(node, weights[counted])
    within = mass**2 - np.bincount(node, weights[counted] ** 2)
    n_distinct = mass.size
    if n_distinct < 2:
        return Cut(np.nan, np.nan, np.nan, 1, 1.0, n_distinct)
    adjacency = _nearest(rows, min(n_neighbors, n_distinct - 1))
    _, component = connected_components(sp.csr_array(adjacency), directed=False)
    shares = np.bincount(component, mass) / mass.sum()
    edges = np.where(adjacency, np.outer(mass, mass), 0.0)
    np.fill_diagonal(edges, within)
    squares = cdist(rows, rows, "sqeuclidean")
    width = float(np.median(squares[adjacency]))
    kernel = np.outer(mass, mass) * np.exp(-squares / (2 * width))
    np.fill_diagonal(kernel, within)
    largest = component == int(shares.argmax())
    falls_apart = np.count_nonzero(shares >= OUTLIER_SHARE) > 1
    value = 0.0 if falls_apart else second_eigenvalue(edges[np.ix_(largest, largest)])
    return Cut(value, second_eigenvalue(kernel), width, shares.size, float(shares.max()), n_distinct)


def _nearest(rows: np.ndarray, k: int) -> np.ndarray:
    """Return which rows are joined, shape (n_rows, n_rows), bool: either is among the other's k nearest."""
    base = prepare_rows(rows, "euclidean")
    indices, _ = exact_neighbors(base, np.arange(rows.shape[0]), base, 0, k)
    adjacency = np.zeros((rows.shape[0], rows.shape[0]), dtype=bool)
    np.put_along_axis(adjacency, indices, True, axis=1)
    return adjacency | adjacency.T


def second_eigenvalue(W: np.ndarray) -> float:
    """Return the second-smallest eigenvalue of the normalized Laplacian of a dense symmetric weight matrix.

    Nodes of degree 0 are left out; NaN where fewer than two are left.
    """
    joined = W.sum(axis=1) > 0
    W = W if joined.all() else W[np.ix_(joined, joined)]
    n = W.shape[0]
    if n < 2:
        return float("nan")
    root = 1 / np.sqrt(W.sum(axis=1))
    affinity = W * root[:, None] * root
    largest = eigh(affinity, eigvals_only=True, subset_by_index=[n - 2, n - 1], overwrite_a=True, check_finite=False)
    return float(max(1.0 - largest[0], 0.0))


def lowest_cut(trade_offs: np.ndarray, values: np.ndarray) -> int | None:
    """Return the place of the trade-off with the lowest cut value, None where there is no value.

    Of equal ones the smallest above 0: at 0 the labels alone rank, and features which these cannot tell apart would
    follow in the order of their numbers.
    """
    if np.isnan(values).all():
        return None
    best = np.flatnonzero(values <= np.nanmin(values) + 2.0**-CUT_BITS)
    return int(best[0] if trade_offs[best[0]] > 0 or best.size == 1 else best[1])
