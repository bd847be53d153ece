"""How good a set of features is: errors, clusterings against classes, known features found, cut values.

Arrays in, numbers out. What scikit-learn has, such as the accuracy of a classifier, is taken from there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.kernels.neighbors.rows import prepare_rows
from daskfs.kernels.statistics.normalized_cut import CUT_ROWS, cut_of
from daskfs.kernels.threads import one_thread


def nearest_neighbor_error(X: np.ndarray, y: np.ndarray) -> float:
    """Return the share of rows whose nearest other row is of another class: the leave-one-out error of 1NN.

    The figures of section 4.1 of [1]_ are these errors of single features of Iris.

    Parameters
    ----------
    X
        Dense (n_samples, n_features) array of any real dtype, finite. A column that is constant changes nothing; where
        all are, or there is none, every row's nearest is the first other one.
    y
        Classes, shape (n_samples,), all known.

    Returns
    -------
    float
        In [0, 1]; NaN for fewer than two rows, which have no nearest.

    Notes
    -----
    Euclidean distances are measured in float64 from differences, in blocks of bounded size: exact for integers,
    whatever their offset. Ties go to the lowest row number; squared distances that agree to 2**-40 are tied, so tenths
    of a centimeter are tied as the integers that they stand for.

    References
    ----------
    .. [1] He, Cai, Niyogi (2005), "Laplacian Score for Feature Selection", NIPS 18.
    """
    n_samples = X.shape[0]
    if n_samples < 2:
        return float("nan")
    values = X if X.shape[1] else np.zeros((n_samples, 1))
    rows = prepare_rows(np.ascontiguousarray(values), "euclidean")
    indices, _ = exact_neighbors(rows, np.arange(n_samples), rows, 0, 1)
    return float(np.mean(y[indices[:, 0]] != y))


def cluster_table(y: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the classes, the clusters, and how many rows each pair of them has, shape (n_classes, n_clusters)."""
    classes, of_class = np.unique(y, return_inverse=True)
    names, of_cluster = np.unique(clusters, return_inverse=True)
    cells = np.bincount(of_class.ravel() * names.size + of_cluster.ravel(), minlength=classes.size * names.size)
    return classes, names, cells.reshape(classes.size, names.size)


def cluster_classes(y: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return clusters and the class that the optimal matching gives each, both shape (n_matched,).

    Each class goes to one cluster at most: where there are more clusters than classes, some are not matched.
    """
    from scipy.optimize import linear_sum_assignment

    classes, names, table = cluster_table(y, clusters)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return names[columns], classes[rows]


def classes_of(clusters: np.ndarray, names: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of each row by :func:`cluster_classes`, and whether its cluster has one; shape (n_samples,)."""
    order = np.argsort(names)
    place = order[np.minimum(np.searchsorted(names, clusters, sorter=order), names.size - 1)]
    return classes[place], names[place] == clusters


def matched_accuracy(y: np.ndarray, clusters: np.ndarray) -> float:
    """Return the share of rows in the cluster of their class, under the best one-to-one matching of the two.

    The "AC" of [1]_, with the matching of Kuhn and Munkres.

    Parameters
    ----------
    y
        Classes, shape (n_samples,), all known.
    clusters
        Numbers of clusters, shape (n_samples,). Their number may differ from that of the classes: rows of a cluster, or
        a class, without partner count as wrong.

    Returns
    -------
    float
        In (0, 1]; NaN without rows.

    References
    ----------
    .. [1] He, Cai, Niyogi (2005), "Laplacian Score for Feature Selection", NIPS 18, section 4.2.1.
    """
    if y.shape[0] == 0:
        return float("nan")
    found, known = classes_of(clusters, *cluster_classes(y, clusters))
    return float(np.mean((found == y) & known))


def normalized_mutual_information(y: np.ndarray, clusters: np.ndarray) -> float:
    """Return the mutual information of classes and clusters over the larger of their entropies.

    The normalized MI of [1]_; scikit-learn's ``normalized_mutual_info_score`` with ``average_method="max"``, but 0 and
    not 1 where both are constant: such clusters say nothing of the classes.

    Parameters
    ----------
    y
        Classes, shape (n_samples,), all known.
    clusters
        Numbers of clusters, shape (n_samples,).

    Returns
    -------
    float
        In [0, 1]; 0 where either is constant; NaN without rows.

    References
    ----------
    .. [1] He, Cai, Niyogi (2005), "Laplacian Score for Feature Selection", NIPS 18, section 4.2.1.
    """
    from sklearn.metrics import normalized_mutual_info_score

    _, _, table = cluster_table(y, clusters)
    if min(table.shape, default=0) == 0:
        return float("nan")
    if min(table.shape) == 1:
        return 0.0
    _, codes = np.unique(y, return_inverse=True)
    return float(np.clip(normalized_mutual_info_score(codes, clusters, average_method="max"), 0.0, 1.0))


def hit_rate(order: np.ndarray, informative: Sequence[int] | np.ndarray, n_selected: int) -> float:
    """Return the share of the informative features that are among the first `n_selected` of a ranking.

    Parameters
    ----------
    order
        Features, best first; shape (n_ranked,).
    informative
        Features that are known to matter; repeated ones count once.
    n_selected
        With fewer than there are informative features the share cannot reach 1.

    Returns
    -------
    float
        In [0, 1]; NaN where no feature is informative.
    """
    wanted = np.unique(np.asarray(informative, dtype=np.int64))
    return float(np.isin(wanted, order[:n_selected]).mean()) if wanted.size else float("nan")


def all_on_top(order: np.ndarray, informative: Sequence[int] | np.ndarray) -> bool:
    """Return whether the informative features are ranked before all others, in whatever order.

    This is what Doquire and Verleysen count over their artificial problems ("Graph Laplacian for Semi-supervised
    Feature Selection in Regression Problems", IWANN 2011, section 5). False where no feature is informative.
    """
    wanted = np.unique(np.asarray(informative, dtype=np.int64))
    return hit_rate(order, wanted, wanted.size) == 1.0


def cut_value(X: np.ndarray, n_neighbors: int) -> float:
    """Return how easily rows fall into two clusters: low is separable, 0 falls apart; in [0, 2].

    The second-smallest eigenvalue of the normalized Laplacian of the graph that
    :mod:`daskfs.kernels.statistics.normalized_cut` describes, by which Algorithm 3 of [1]_ chooses its trade-off.

    Parameters
    ----------
    X
        Dense (n_samples, n_features) array, float64, finite: the selected features. Of more than 1,000 rows that many
        are cut, spread evenly over them.
    n_neighbors
        Neighbors of each distinct row, fewer where there are no more.

    Returns
    -------
    float
        NaN where all rows are equal, as they are on constant features.

    References
    ----------
    .. [1] Zhao, Liu (2007), "Semi-supervised Feature Selection via Spectral Analysis", SDM.
    """
    if X.shape[0] > CUT_ROWS:
        from daskfs.store.tiles import spread_rows

        X = X[spread_rows(X.shape[0], CUT_ROWS)]
    with one_thread():  # sums of another number of threads have other last bits
        return cut_of(np.ascontiguousarray(X, dtype=np.float64), n_neighbors).value
