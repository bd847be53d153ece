"""Feature ranking on Dask for data that does not fit one machine.

Terms: a *tile* is a Zarr chunk of X; a *band* a row of tiles (some rows, all features); a *slab* a column of tiles (all
rows, some features); a *block* an array passed to a kernel; a *partition* the rows searched together for neighbors; a
*stage* one step of a run; a *unit* one task of a stage, the granularity of resume.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daskfs.api.correlations import distance_correlation_matrix
    from daskfs.api.evaluation import evaluate_selectors
    from daskfs.api.graph import knn_graph
    from daskfs.estimators.chance import RandomOrder
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
    from daskfs.estimators.svm import SVMRFE
    from daskfs.export.api import export_into, export_run
    from daskfs.graph.knn import KNNGraph
    from daskfs.job.job import load_job, make_job
    from daskfs.runs.benchmark import load_study, make_study, run_study
    from daskfs.runs.comparison import compare_runs
    from daskfs.runs.pipeline import run_job
    from daskfs.runs.verification import verify_run
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
    "RandomOrder": "daskfs.estimators.chance",
    "RRPC": "daskfs.estimators.greedy",
    "RedundancyFilter": "daskfs.estimators.greedy",
    "SSUFS": "daskfs.estimators.rescaled",
    "SSelect": "daskfs.estimators.semisupervised",
    "SemiSupervisedLaplacianScore": "daskfs.estimators.semisupervised",
    "SupervisedLaplacianScore": "daskfs.estimators.supervised",
    "SVMRFE": "daskfs.estimators.svm",
    "VarianceScore": "daskfs.estimators.filters",
    "KNNGraph": "daskfs.graph.knn",
    "distance_correlation_matrix": "daskfs.api.correlations",
    "evaluate_selectors": "daskfs.api.evaluation",
    "export_into": "daskfs.export.api",
    "export_run": "daskfs.export.api",
    "knn_graph": "daskfs.api.graph",
    "load_job": "daskfs.job.job",
    "make_job": "daskfs.job.job",
    "compare_runs": "daskfs.runs.comparison",
    "load_study": "daskfs.runs.benchmark",
    "make_study": "daskfs.runs.benchmark",
    "run_job": "daskfs.runs.pipeline",
    "run_study": "daskfs.runs.benchmark",
    "verify_run": "daskfs.runs.verification",
    "__version__": "daskfs.version",
}

__all__ = [
    "DSSFS",
    "LSDF",
    "RLSR",
    "RRPC",
    "SSUFS",
    "SVMRFE",
    "FisherScore",
    "InformationGainScore",
    "KNNGraph",
    "KolmogorovSmirnovScore",
    "LaplacianScore",
    "PearsonScore",
    "RandomOrder",
    "RedundancyFilter",
    "SSelect",
    "SemiSupervisedLaplacianScore",
    "SupervisedLaplacianScore",
    "VarianceScore",
    "__version__",
    "compare_runs",
    "distance_correlation_matrix",
    "evaluate_selectors",
    "export_into",
    "export_run",
    "knn_graph",
    "load_job",
    "load_study",
    "make_job",
    "make_study",
    "run_job",
    "run_study",
    "verify_run",
]


def __getattr__(name: str) -> Any:
    # lazy imports: "daskfs --help" needs neither Dask nor scikit-learn
    if name not in _HOME:
        msg = f"module 'daskfs' has no attribute '{name}'"
        raise AttributeError(msg)
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
