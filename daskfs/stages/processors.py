"""Processor types: BLAS and NumPy select kernels by processor, and the last bits of results depend on the kernels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def computed_by() -> str:
    """Describe the BLAS kernels of NumPy and SciPy in this process, and the CPU features that NumPy uses.

    Versions are not included; they are compared before a unit runs.
    """
    import scipy.linalg.blas  # noqa: F401  # otherwise SciPy's BLAS is listed only if something has loaded it
    from threadpoolctl import threadpool_info

    loaded = [library for library in threadpool_info() if library["user_api"] == "blas"]
    kernels = sorted({f"{library['internal_api']} {library.get('architecture', '')}".strip() for library in loaded})
    simd = _simd()
    features = [*simd.get("baseline", ()), *simd.get("found", ())]
    return f"{', '.join(kernels) or 'no known BLAS'}, NumPy {' '.join(features)}".strip()


def pinned_environment(cpu_target: str | None) -> dict[str, str]:
    """Return environment variables that make a process compute as on an x86-64-v3 processor; empty for None.

    They must be set before NumPy is imported. NumPy rejects unknown feature names.
    """
    if cpu_target is None:
        return {}
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
