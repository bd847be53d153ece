"""Principal components: the leading eigenvectors of C = Z'Z, for centered rows Z.

Of wide data, C is only known by its products with blocks of columns, one pass over the rows each. A block Krylov
subspace, spanned by random columns B and by C B, C C B, ..., holds the leading eigenvectors far more exactly than its
last block alone, which is all that a power iteration keeps.

References
----------
Musco and Musco (2015), Randomized block Krylov methods for stronger and faster approximate singular value
decomposition, Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def first_block(n_features: int, width: int, seed: int) -> np.ndarray:
    """Return random orthonormal columns, shape (n_features, width), float64."""
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n_features, width)))[0]


def next_block(image: np.ndarray, blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Return orthonormal columns that span C B of the last block B, without the directions of all blocks.

    All arrays have shape (n_features, width), float64; `image` is C B.
    """
    block = image
    for _ in range(2):  # once leaves the rounding errors of directions that nearly lie in the other blocks
        for earlier in blocks:
            block = block - earlier @ (earlier.T @ block)
        block = np.linalg.qr(block)[0]
    return block


def leading_of_span(
    blocks: Sequence[np.ndarray], images: Sequence[np.ndarray], n_components: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the leading eigenvectors of C within the span of orthonormal blocks, of which `images` are the images.

    Shapes and order of the results are those of :func:`leading`.
    """
    basis = np.concatenate(blocks, axis=1)
    vectors, values = leading(basis.T @ np.concatenate(images, axis=1), n_components)
    return _fix_signs(basis @ vectors), values


def leading(C: np.ndarray, n_components: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the leading eigenvectors of a symmetric matrix, shape (n, n), float64, and their eigenvalues.

    Shapes (n, n_components) and (n_components,), float64, largest eigenvalue first. The largest coordinate of a vector
    is positive, as in scikit-learn's ``PCA``; vectors whose eigenvalue is 0 within rounding are 0.
    """
    values, vectors = np.linalg.eigh((C + C.T) / 2)
    values, vectors = values[::-1][:n_components], vectors[:, ::-1][:, :n_components]
    is_zero = values <= max(values[0], 0.0) * len(C) * np.finfo(np.float64).eps
    return _fix_signs(np.where(is_zero, 0.0, vectors)), np.where(is_zero, 0.0, values)


def leading_of_rows(Z: np.ndarray, n_components: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the leading eigenvectors of Z'Z for few rows, shape (n_samples, n_features), float64, from Z Z'.

    Shapes (n_features, n_components) and (n_components,), as :func:`leading`.
    """
    left, values = leading(Z @ Z.T, n_components)
    scale = np.divide(1.0, np.sqrt(values), out=np.zeros_like(values), where=values > 0)
    return _fix_signs(Z.T @ (left * scale)), values


def _fix_signs(vectors: np.ndarray) -> np.ndarray:
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return vectors * np.where(largest < 0, -1.0, 1.0)
