"""The type of a block of X: a dense array or a CSR matrix."""

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
