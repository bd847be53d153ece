"""Normalized mutual information of a two-way split of the rows with their classes."""

from __future__ import annotations

import numpy as np

from daskfs.kernels.statistics.moments import column_sums

TIE_BITS = 40


def cut_point(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Return the threshold from which a value counts as at or above the mean of its column, shape (width,), float64.

    Parameters
    ----------
    mean, deviation
        Mean, rounded and what that leaves out, (2, width), and standard deviation of each column, shape (width,),
        float64, under the same weights.

    Notes
    -----
    Zhao and Liu (2007) split g = f - mean at 0, with 0 on the upper side. The mean is a rounded sum: for balanced
    values -1, 0 and 1 it may be 1e-17, and the row order would decide the side of the zeros. So a value less than
    2**-40 standard deviations below the mean counts as at the mean.
    """
    below = mean[1] - deviation * 2.0**-TIE_BITS
    point = mean[0] + below
    is_rounded_down = (mean[0] - point) + below > 0  # a value equal to it would lie below
    return np.where(is_rounded_down, np.nextafter(point, np.inf), point)


def normalized_mutual_information(upper: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return I(g, y) / max(H(g), H(y)) of each column's two-way split with the classes, in [0, 1], shape (width,).

    Parameters
    ----------
    upper
        Rows of each class on the upper side, shape (n_classes, width), float64.
    counts
        Rows of each class, shape (n_classes,), float64; classes without rows are allowed.

    Notes
    -----
    Zhao and Liu (2007), Eq. 3.9, for any number of classes. 0 if a column is all on one side, or all rows are of one
    class: the quotient is 0/0 there. Columns whose tables agree up to the order of classes or sides get the same bits,
    and a split equal to the classes gets exactly 1.
    """
    tables = np.concatenate([upper, counts[:, None] - upper])
    total = float(counts.sum())
    n_classes = counts.shape[0]
    sides = np.repeat(np.stack([column_sums(upper), column_sums(tables[n_classes:])]), n_classes, axis=0)
    expected = sides * np.tile(counts, 2)[:, None]
    information = _mean_log(tables, total * tables, expected, total)
    of_cut = _mean_log(sides[::n_classes], total * sides[::n_classes], sides[::n_classes] ** 2, total)
    of_classes = _mean_log(counts[:, None], total * counts[:, None], counts[:, None] ** 2, total)
    largest = np.where(of_cut > 0, np.maximum(of_cut, of_classes), 0.0)
    is_defined = (largest > 0) & (of_classes > 0)
    return np.clip(np.divide(information, largest, out=np.zeros_like(largest), where=is_defined), 0.0, 1.0)


def _mean_log(counts: np.ndarray, above: np.ndarray, below: np.ndarray, total: float) -> np.ndarray:
    """Return the sum over rows of ``counts / total * log(above / below)``, smallest terms first; 0 log 0 is 0."""
    ratio = np.divide(above, below, out=np.ones_like(counts), where=counts > 0)
    return column_sums(np.sort(counts * np.log(ratio), axis=0)) / max(total, 1.0)
