"""Dense or sparse."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Block: TypeAlias = np.ndarray | sp.csr_matrix


def is_sparse(X: object) -> TypeIs[sp.csr_matrix]:
    """Return whether X is a SciPy sparse matrix; blocks that are sparse are CSR throughout."""
    return bool(sp.issparse(X))
