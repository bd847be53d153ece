"""Co-moments (sums of products of deviations) of many columns, accumulated over blocks of rows.

All matrix products have the same shape, whatever the blocks: rows are buffered until a product is full, columns are
split into panels of fixed width, and the last buffers are padded with zeros. So the sums are bit-identical for every
tile height.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from daskfs.kernels.statistics.moments import column_sums, merge_means, row_blocks, weighted_column_sums

PRODUCT_ROWS = 4096
PRODUCT_COLUMNS = 128
COMOMENT_STRETCH_ROWS = 2**16
COMOMENT_STRETCHES = 64


def stretch_rows(n_samples: int) -> int:
    """Return the number of rows in a stretch; stretches are summed separately and merged in order.

    It is a power of two that depends on n_samples only, and gives at most 64 stretches.
    """
    return max(COMOMENT_STRETCH_ROWS, 1 << max(0, -(-n_samples // COMOMENT_STRETCHES) - 1).bit_length())


@dataclass(frozen=True)
class Comoments:
    """Co-moments of some rows.

    `total` is the number of rows or the sum of their weights; `mean`, shape (2, width), is rounded and what that
    leaves out; `matrix`, shape (width, width), float64, holds the sums of products of deviations from the mean, 0 for
    constant columns.
    """

    total: float
    mean: np.ndarray
    matrix: np.ndarray


class ComomentSum:
    """Accumulator of the co-moments of rows that arrive in blocks.

    Deviations are taken from the mean of the first 4096 rows, and the sums are centered for its difference from the
    mean of all rows: an offset of 1e8 costs no digits.

    Parameters
    ----------
    width
        Number of columns.
    n_rows
        Number of rows to come.
    """

    def __init__(self, width: int, n_rows: int) -> None:
        self._width = width
        self._rows = min(PRODUCT_ROWS, -(-n_rows // 64) * 64)
        panel = min(PRODUCT_COLUMNS, -(-width // 8) * 8)
        self._panels = list(row_blocks(width, panel))
        self._waiting = np.zeros((len(self._panels), self._rows, panel))
        self._weights = np.ones(self._rows)
        self._n_waiting = 0
        self._shift: np.ndarray | None = None
        self._total, self._weighted = 0.0, False
        self._sum = np.zeros(width)
        self._matrix = np.zeros((width, width))

    def add(self, block: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Add rows.

        Parameters
        ----------
        block
            Shape (n_rows, width), any real dtype.
        weights
            Frequency weights, shape (n_rows,), non-negative; None for 1 each. Pass weights with every block or with
            none.
        """
        self._weighted = weights is not None
        if weights is not None and not weights.all():  # rows of weight 0 must not affect the shift
            block, weights = block[weights > 0], weights[weights > 0]
        start = 0
        while start < block.shape[0]:
            stop = min(start + self._rows - self._n_waiting, block.shape[0])
            place = slice(self._n_waiting, self._n_waiting + stop - start)
            for panel, columns in zip(self._waiting, self._panels, strict=True):
                panel[place, : columns.stop - columns.start] = block[start:stop, columns]
            if weights is not None:
                self._weights[place] = weights[start:stop]
            self._n_waiting, start = place.stop, stop
            if self._n_waiting == self._rows:
                self._flush()

    def _flush(self) -> None:
        n = self._n_waiting
        if self._shift is None:
            first = np.concatenate([panel[0] for panel in self._waiting])
            means = [column_sums(panel[:n] - panel[0]) / n for panel in self._waiting]
            self._shift = (first + np.concatenate(means)).reshape(len(self._panels), 1, -1)
        self._waiting[:, :n] -= self._shift
        self._waiting[:, n:] = 0.0
        self._weights[n:] = 0.0
        left = self._waiting * self._weights[:, None] if self._weighted else self._waiting
        self._total += float(self._weights[:n].sum()) if self._weighted else n
        for i, rows in enumerate(self._panels):
            sums = weighted_column_sums(self._weights, self._waiting[i]) if self._weighted else column_sums(left[i])
            self._sum[rows] += sums[: rows.stop - rows.start]
            for j, columns in enumerate(self._panels[i:], start=i):
                product = left[i].T @ self._waiting[j]
                self._matrix[rows, columns] += product[: rows.stop - rows.start, : columns.stop - columns.start]
        self._n_waiting = 0

    def result(self) -> Comoments:
        """Return the co-moments of all rows so far; nothing may be added afterwards."""
        if self._n_waiting:
            self._flush()
        shift = np.zeros(self._width)
        if self._shift is not None:
            panels = zip(self._shift, self._panels, strict=True)
            shift = np.concatenate([panel.ravel()[: c.stop - c.start] for panel, c in panels])
        total, matrix = self._total, self._matrix
        if total <= 0:
            return Comoments(0.0, np.stack([shift, self._sum]), matrix)
        for rows in row_blocks(self._width, PRODUCT_COLUMNS):
            matrix[rows, rows.start :] -= np.multiply.outer(self._sum[rows], self._sum[rows.start :] / total)
        mirror_blocks(matrix, row_blocks(self._width, PRODUCT_COLUMNS))
        return Comoments(total, np.stack([shift, self._sum / total]), matrix)


def mirror_blocks(matrix: np.ndarray, blocks: Iterable[slice]) -> None:
    """Copy the upper triangle to the lower one, in place, block of rows by block."""
    for rows in blocks:
        square = matrix[rows, rows]
        square[...] = np.triu(square) + np.triu(square, 1).T
        matrix[rows.stop :, rows] = matrix[rows, rows.stop :].T


def merge_comoments(a: Comoments, b: Comoments) -> Comoments:
    """Merge the co-moments of two disjoint sets of rows (Chan, Golub and LeVeque 1979, Eq. 2.1), overwriting `a`."""
    total = a.total + b.total
    if b.total == 0:
        return a
    if a.total == 0:
        return b
    delta, mean = merge_means(a.mean, b.mean, b.total / total)
    a.matrix[...] += b.matrix
    for rows in row_blocks(delta.size, PRODUCT_COLUMNS):
        a.matrix[rows] += np.multiply.outer(delta[rows] * (a.total * b.total / total), delta)
    return Comoments(total, mean, a.matrix)


def correlations(comoments: Comoments) -> np.ndarray:
    """Return Pearson correlations, shape (width, width), float64, in [-1, 1], with 1 on the diagonal.

    A constant column has correlation 0 with every other column. The matrix of the co-moments is overwritten.
    """
    matrix = comoments.matrix
    scale = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    for rows in row_blocks(scale.size, PRODUCT_COLUMNS):
        matrix[rows] *= inverse[rows, None]
        matrix[rows] *= inverse
        np.clip(matrix[rows], -1.0, 1.0, out=matrix[rows])
    np.fill_diagonal(matrix, 1.0)
    return matrix
