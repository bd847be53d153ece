"""Blocks of X, dense arrays or CSR matrices, and the dtype of numbers of rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Block: TypeAlias = np.ndarray | sp.csr_matrix


def is_sparse(X: object) -> TypeIs[sp.csr_matrix]:
    """Return whether X is a SciPy sparse matrix; sparse blocks are always CSR."""
    return bool(sp.issparse(X))


def stack_blocks(blocks: Sequence[Block]) -> Block:
    """Return consecutive blocks of rows as one; a single block as it is."""
    if len(blocks) == 1:
        return blocks[0]
    return sp.csr_matrix(sp.vstack(blocks, format="csr")) if is_sparse(blocks[0]) else np.concatenate(blocks)


def column_extremes(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest value of each column, shape (n_columns,); NaN if all its values are."""
    if is_sparse(block):
        return block.nanmin(axis=0).toarray()[0], block.nanmax(axis=0).toarray()[0]
    return np.fmin.reduce(block, axis=0), np.fmax.reduce(block, axis=0)


def index_dtype(size: int) -> np.dtype[np.generic]:
    """Return the dtype of numbers up to `size`: int32, or int64 from 2**31 on."""
    return np.dtype(np.int32 if size < 2**31 else np.int64)
