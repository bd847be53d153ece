"""Metrics of a set of features that scikit-learn lacks: 1NN error, matched clusterings, hit rate, cut value.

References
----------
.. [1] He, Cai, Niyogi (2005), "Laplacian Score for Feature Selection", NIPS 18.
.. [2] Zhao, Liu (2007), "Semi-supervised Feature Selection via Spectral Analysis", SDM.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.kernels.neighbors.rows import prepare_rows
from daskfs.kernels.statistics.normalized_cut import CUT_ROWS, cut_of
from daskfs.kernels.threads import one_thread, sklearn_module
from daskfs.store.shape import spread_rows


def nearest_neighbor_error(X: np.ndarray, y: np.ndarray) -> float:
    """Return the leave-one-out error of 1NN: the share of rows whose nearest other row is of another class.

    The figures of section 4.1 of [1]_ are these errors of single features of Iris.

    Parameters
    ----------
    X
        Dense (n_samples, n_features) array of any real dtype, finite. A constant column changes nothing; if all are
        constant, or there is none, the nearest row is the first other one.
    y
        Classes, shape (n_samples,), any dtype, all known.

    Returns
    -------
    float
        In [0, 1]; NaN for fewer than two rows.

    Notes
    -----
    Euclidean distances are measured in float64 from differences, in blocks of bounded size: exact for integers,
    whatever their offset. Ties go to the lowest row number. Squared distances that agree to 2**-40 are tied, so values
    in tenths tie as the same values times ten do.
    """
    n_samples = X.shape[0]
    if n_samples < 2:
        return float("nan")
    values = X if X.shape[1] else np.zeros((n_samples, 1))
    rows = prepare_rows(np.ascontiguousarray(values), "euclidean")
    indices, _ = exact_neighbors(rows, np.arange(n_samples), rows, 0, 1)
    return float(np.mean(y[indices[:, 0]] != y))


def cluster_classes(y: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Match clusters to classes one-to-one; return the matched clusters and their classes, both of shape (n_matched,).

    `y` and `clusters` have shape (n_samples,). With more clusters than classes, some clusters are not matched.
    """
    from scipy.optimize import linear_sum_assignment

    classes, of_class = np.unique(y, return_inverse=True)
    names, of_cluster = np.unique(clusters, return_inverse=True)
    shape = (classes.size, names.size)
    n_rows = np.bincount(np.ravel_multi_index((of_class, of_cluster), shape), minlength=classes.size * names.size)
    rows, columns = linear_sum_assignment(n_rows.reshape(shape), maximize=True)
    return names[columns], classes[rows]


def classes_of(clusters: np.ndarray, names: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of each row, and whether its cluster is matched (bool), both of shape (n_samples,).

    `clusters` has shape (n_samples,); `names` and `classes` are the result of :func:`cluster_classes`.
    """
    order = np.argsort(names)
    place = order[np.minimum(np.searchsorted(names, clusters, sorter=order), names.size - 1)]
    return classes[place], names[place] == clusters


def matched_accuracy(y: np.ndarray, clusters: np.ndarray) -> float:
    """Return the share of rows in the cluster of their class, under the best one-to-one matching of the two.

    The "AC" of section 4.2.1 of [1]_, with the matching of Kuhn and Munkres.

    Parameters
    ----------
    y
        Classes, shape (n_samples,), any dtype, all known.
    clusters
        Cluster of each row, shape (n_samples,), integers. There may be more or fewer clusters than classes: rows of an
        unmatched cluster or class count as wrong.

    Returns
    -------
    float
        In (0, 1]; NaN without rows.
    """
    if y.shape[0] == 0:
        return float("nan")
    class_of_row, is_matched = classes_of(clusters, *cluster_classes(y, clusters))
    return float(np.mean((class_of_row == y) & is_matched))


def normalized_mutual_information(y: np.ndarray, clusters: np.ndarray) -> float:
    """Return the mutual information of classes and clusters over the larger of their entropies.

    The normalized MI of section 4.2.1 of [1]_; scikit-learn's ``normalized_mutual_info_score`` with
    ``average_method="max"``, but 0 instead of 1 if both are constant: such clusters carry no information about the
    classes.

    Parameters
    ----------
    y, clusters
        As for :func:`matched_accuracy`.

    Returns
    -------
    float
        In [0, 1]; 0 if either is constant; NaN without rows.
    """
    metrics = sklearn_module("metrics")
    classes, codes = np.unique(y, return_inverse=True)
    n_distinct = min(classes.size, np.unique(clusters).size)
    if n_distinct < 2:
        return 0.0 if n_distinct else float("nan")
    return float(np.clip(metrics.normalized_mutual_info_score(codes, clusters, average_method="max"), 0.0, 1.0))


def hit_rate(order: np.ndarray, informative: Sequence[int] | np.ndarray, n_selected: int) -> float:
    """Return the share of the informative features that are among the first `n_selected` of a ranking.

    Parameters
    ----------
    order
        Features, best first, shape (n_ranked,), integers.
    informative
        Features that are known to matter, integers; repeated ones count once.
    n_selected
        Number of features. Below the number of informative ones, the share cannot reach 1.

    Returns
    -------
    float
        In [0, 1]; NaN if no feature is informative.
    """
    truth = np.unique(np.asarray(informative, dtype=np.int64))
    return float(np.isin(truth, order[:n_selected]).mean()) if truth.size else float("nan")


def cut_value(X: np.ndarray, n_neighbors: int) -> float:
    """Return the cut value of rows: low if they separate into two clusters, 0 if their graph is disconnected.

    The second-smallest eigenvalue of the normalized Laplacian of the graph that
    :mod:`daskfs.kernels.statistics.normalized_cut` describes, by which Algorithm 3 of [2]_ chooses its trade-off.

    Parameters
    ----------
    X
        Selected features, dense, shape (n_samples, n_features), float64, finite. Of more than 1,000 rows, 1,000 are
        used, spread evenly.
    n_neighbors
        Neighbors of each distinct row; fewer if there are not as many other rows.

    Returns
    -------
    float
        In [0, 2]; NaN if all rows are equal, as with constant features.
    """
    if X.shape[0] > CUT_ROWS:
        X = X[spread_rows(X.shape[0], CUT_ROWS)]
    with one_thread():  # the last bits of sums depend on the number of threads
        return cut_of(np.ascontiguousarray(X, dtype=np.float64), n_neighbors).value
