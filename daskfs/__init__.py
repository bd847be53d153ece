"""Feature ranking on Dask for data that does not fit one machine.

Seven words have one meaning each throughout: a *tile* is one Zarr chunk of X (rows x features), a *band* one row of
tiles (some rows, all features), a *slab* one column of tiles (all rows, one block of features), a *block* an array
handed to a kernel, a
*partition* the rows that are searched together for neighbors, a *unit* one task of a stage and the grain of resume, a
*stage* all units of one step.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daskfs.estimators.filters import (
        FisherScore,
        InformationGainScore,
        KolmogorovSmirnovScore,
        PearsonScore,
        VarianceScore,
    )
    from daskfs.estimators.graph import LaplacianScore
    from daskfs.estimators.greedy import RRPC, RedundancyFilter
    from daskfs.estimators.rescaled import DSSFS, RLSR, SSUFS
    from daskfs.estimators.semisupervised import LSDF, SemiSupervisedLaplacianScore, SSelect
    from daskfs.estimators.supervised import SupervisedLaplacianScore
    from daskfs.graph.api import KNNGraph, knn_graph
    from daskfs.job import load_job, make_job
    from daskfs.pipeline import run_job
    from daskfs.scores.api import distance_correlation_matrix
    from daskfs.version import __version__

_HOME = {
    "DSSFS": "daskfs.estimators.rescaled",
    "FisherScore": "daskfs.estimators.filters",
    "InformationGainScore": "daskfs.estimators.filters",
    "KolmogorovSmirnovScore": "daskfs.estimators.filters",
    "LSDF": "daskfs.estimators.semisupervised",
    "LaplacianScore": "daskfs.estimators.graph",
    "PearsonScore": "daskfs.estimators.filters",
    "RLSR": "daskfs.estimators.rescaled",
    "RRPC": "daskfs.estimators.greedy",
    "RedundancyFilter": "daskfs.estimators.greedy",
    "SSUFS": "daskfs.estimators.rescaled",
    "SSelect": "daskfs.estimators.semisupervised",
    "SemiSupervisedLaplacianScore": "daskfs.estimators.semisupervised",
    "SupervisedLaplacianScore": "daskfs.estimators.supervised",
    "VarianceScore": "daskfs.estimators.filters",
    "KNNGraph": "daskfs.graph.api",
    "distance_correlation_matrix": "daskfs.scores.api",
    "knn_graph": "daskfs.graph.api",
    "load_job": "daskfs.job",
    "make_job": "daskfs.job",
    "run_job": "daskfs.pipeline",
    "__version__": "daskfs.version",
}

__all__ = [
    "DSSFS",
    "LSDF",
    "RLSR",
    "RRPC",
    "SSUFS",
    "FisherScore",
    "InformationGainScore",
    "KNNGraph",
    "KolmogorovSmirnovScore",
    "LaplacianScore",
    "PearsonScore",
    "RedundancyFilter",
    "SSelect",
    "SemiSupervisedLaplacianScore",
    "SupervisedLaplacianScore",
    "VarianceScore",
    "__version__",
    "distance_correlation_matrix",
    "knn_graph",
    "load_job",
    "make_job",
    "run_job",
]


def __getattr__(name: str) -> Any:
    # imports wait for their first use, so that "daskfs --help" does not pay for Dask and scikit-learn
    if name not in _HOME:
        msg = f"module 'daskfs' has no attribute '{name}'"
        raise AttributeError(msg)
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
