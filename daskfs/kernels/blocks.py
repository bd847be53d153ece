"""The type of a block of X, a dense array or a CSR matrix, and the dtype of numbers of rows and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Block: TypeAlias = np.ndarray | sp.csr_matrix


def is_sparse(X: object) -> TypeIs[sp.csr_matrix]:
    """Return whether X is a SciPy sparse matrix; sparse blocks are always CSR."""
    return bool(sp.issparse(X))


def index_dtype(size: int) -> np.dtype[np.generic]:
    """Return the dtype of numbers up to `size`: int32, or int64 from 2**31 on."""
    return np.dtype(np.int32 if size < 2**31 else np.int64)
