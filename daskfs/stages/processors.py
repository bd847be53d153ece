"""Kinds of processors: BLAS and NumPy choose their kernels by the processor that they find, and last bits with them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

X86_64_V3 = "x86-64-v3"


@lru_cache(maxsize=1)
def computed_by() -> str:
    """Return what computes in this process: the kernels of the BLAS of NumPy and SciPy, and the features of the
    processor that NumPy uses. Versions are compared before a unit runs.
    """
    import scipy.linalg.blas  # noqa: F401  # else what SciPy brings would count only where something has used it
    from threadpoolctl import threadpool_info

    loaded = [found for found in threadpool_info() if found["user_api"] == "blas"]
    kernels = sorted({f"{found['internal_api']} {found.get('architecture', '')}".strip() for found in loaded})
    simd = _simd()
    features = [*simd.get("baseline", ()), *simd.get("found", ())]
    return f"{', '.join(kernels) or 'no known BLAS'}, NumPy {' '.join(features)}".strip()


def pinned_environment(cpu_target: str | None) -> dict[str, str]:
    """Return the environment that lets a process compute as on processors of a target, whichever it runs on.

    It holds where it is set before NumPy is imported. NumPy refuses names of features that it does not know.
    """
    if cpu_target is None:
        return {}
    assert cpu_target == X86_64_V3
    simd = _simd()
    newer = [
        name for key in ("found", "not found") for name in simd.get(key, ()) if "AVX512" in name or name == "X86_V4"
    ]
    return {
        "OPENBLAS_CORETYPE": "Haswell",
        "MKL_CBWR": "AVX2",
        "NUMBA_CPU_NAME": "haswell",
        **({"NPY_DISABLE_CPU_FEATURES": " ".join(newer)} if newer else {}),
    }


def _simd() -> Mapping[str, Any]:
    import numpy as np

    return np.show_config(mode="dicts")["SIMD Extensions"]
