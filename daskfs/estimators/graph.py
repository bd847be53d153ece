"""Selectors by criteria on the neighbor graph of X."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array

from daskfs.criteria.registry import Method
from daskfs.criteria.statistics import Denominator
from daskfs.errors import InputError
from daskfs.estimators.base import ScoreSelector, selector
from daskfs.graph.halves import FeatureBlocks
from daskfs.graph.knn import KNNGraph
from daskfs.graph.precomputed import Graph, NeighborLists, WeightMatrix
from daskfs.graph.spec import WidthRule, check_neighbors
from daskfs.kernels.labels import Labels
from daskfs.kernels.neighbors.metrics import Metric, checked_metric
from daskfs.kernels.neighbors.weights import WeightKind
from daskfs.kernels.scaling import Scaling, checked_scaling
from daskfs.kernels.statistics.permutation import FDRMethod
from daskfs.sources.values import unmasked


@selector
class SearchingSelector(ScoreSelector):
    """Base class of selectors that search the neighbors of rows."""

    metric: Metric = "euclidean"
    metric_kwds: Mapping[str, Any] | None = None
    graph: Any = None
    graph_scaling: Scaling | None = None
    n_jobs: int | None = -1

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, use_rep: Any = None) -> Self:
        """Score and rank the features.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`ScoreSelector.fit`.
        use_rep
            Another representation of the rows, such as principal components, shape (n_samples, n_columns), dense and
            finite: rows are neighbors by these columns, compared as they are, whatever `graph_scaling` says; features
            are scored on X. Of an AnnData also the name of a member of ``obsm``. Where metadata routing is enabled,
            ``set_fit_request(use_rep=True)`` has pipelines and searches slice it with the rows. None to compare rows of
            X.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            As in :meth:`ScoreSelector.fit`, and for a `use_rep` of another number of rows, sparse or not finite, or
            beside a precomputed `graph`.
        """
        return self._fit(X, y, sample_weight, use_rep)

    def _given_graph(self) -> Graph | None:
        metric = checked_metric(self.metric, self.metric_kwds)
        return given_graph(self.graph, metric, checked_scaling(self.graph_scaling, "graph_scaling", of_graph=True))


class NeighborSelector(SearchingSelector):
    """Base class of selectors on neighbor lists of X or on a precomputed graph."""

    n_neighbors: int

    def _method(self, n_samples: int, labels: Labels | None) -> tuple[Method, Graph | None]:
        parameters = dict(self._parameters(labels))
        graph = self._given_graph()
        if isinstance(graph, NeighborLists):
            parameters |= graph.settings | {"foreign_graph": True}
            graph.check_size(n_samples, self.n_neighbors)
        elif graph is not None:
            parameters["graph"] = "given"
            graph.check_size(n_samples)
        else:
            check_neighbors(self.n_neighbors, n_samples)
        return self._make_method(parameters), graph


@selector
class GraphSelector(NeighborSelector):
    """Base class of selectors on the weighted neighbor graph of X."""

    n_neighbors: int = 5
    weights: WeightKind = "heat"
    t: WidthRule = "mean"
    self_loops: bool = False


@selector
class LaplacianScore(GraphSelector):
    """Laplacian Score: variation of a feature along the edges of the neighbor graph over its variance; small is good.

    ``f'Lf / f~'D f~`` with ``f~ = f - (f'D1 / 1'D1) 1``, in [0, 2] where D holds the degrees. The numerator is a sum of
    squared differences over edges, so that offsets cause no cancellation. NaN (excluded) for a feature that is constant
    on the rows with an edge. Labels are ignored.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    n_neighbors
        Neighbors of each row, excluding itself, at most n_samples - 1. Two rows have an edge if either lists the other.
    metric, metric_kwds
        Distance between rows, and its arguments, as for :func:`daskfs.knn_graph`.
    weights
        "heat": exp(-d**2 / t). "binary": 1. "cosine": the cosine of the rows (needs metric="cosine").
    t
        Width of the heat kernel: a number, or the "mean" or "median" of the squared edge lengths.
        :class:`ValueError` if every weight underflows to 0. A width s in scikit-feature's exp(-d**2 / (2 s**2)) is
        ``t = 2 * s**2`` here.
    self_loops
        Whether every row has an edge of weight 1 to itself, as in scikit-feature and Cai's MATLAB code. This changes D
        but not the numerator.
    denominator
        "degree": D holds the degrees of the rows, as in the paper. "variance": D is the identity, and f~ = f - mean.
        This is Geary's C times the sum of all degrees over n_samples - 1.
    graph
        Precomputed graph of the same rows; None to search the neighbors. A :class:`KNNGraph` with at least
        `n_neighbors` (its metric and scaling replace the parameters), or a symmetric weight matrix, shape
        (n_samples, n_samples), dense or sparse, float64, whose diagonal holds self-loops; an asymmetric matrix is
        symmetrized by the larger of both entries. A pair of tables, indices and distances, by `metric` after
        `graph_scaling`, or a fitted ``pynndescent.NNDescent``, whose metric replaces the parameter; the row itself is
        left out, and -1 or inf is no neighbor. Or a path: of the neighbor lists of a run or of
        :meth:`KNNGraph.save`, of a sparse matrix in an ``.npz`` file, or of one in AnnData's layout
        (``file.zarr/obsp/NAME``, ``file.h5ad:obsp/NAME``).
    significance
        Whether to test every feature: `pvalues_` say how likely its values score as well if they are permuted over the
        rows, and `qvalues_` follow from them. A feature is tested on a graph that it has not made: the features are
        split in two halves at random, equal ones together, and those of one half are tested on the graph of the other.
        So a small p-value says that a feature shares structure with other features. With `graph`, or `use_rep` in
        `fit`, they are tested on that graph, which must not come from X. Scores and ranks do not change.
    significance_blocks
        Block of each feature, shape (n_features,), of any values: no feature is tested on a graph that others of its
        block have made. If all are in one block, `pvalues_` are NaN, and `reasons_` say so. None for no blocks.
    significance_gap
        Distance along the axis of the features within which none is in a graph that tests another one: in units of the
        names of columns where these are ascending or descending numbers, else in columns. None for no distance.
    fdr_method
        Of `qvalues_`. "bh": Benjamini and Hochberg (1995). "by": Benjamini and Yekutieli (2001), for tests that depend
        on each other in any way; its values are larger.
    graph_scaling, score_scaling
        Scaling of X on the fly, for the graph and for the scored values: None, "zscore" (columns), "unit" (rows),
        "log1p", "total" (every row sum becomes the median of the row sums), "total=10000", or a chain of these in the
        order total, log1p, and unit or zscore, such as "total+log1p+zscore". For the graph, "pca=50" may come last, as
        for :func:`daskfs.knn_graph`.
    n_jobs
        Number of threads, without a Dask client; None for 1, -1 for all cores that the process may use. Results do not
        depend on it.

    References
    ----------
    He, Cai and Niyogi (2005), "Laplacian Score for Feature Selection", NIPS 18, Eq. 1. The paper gives no t.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import LaplacianScore
    >>> LaplacianScore(metric="cosine", weights="binary").fit(load_iris().data).ranking_.tolist()
    [3, 4, 2, 1]
    """

    _criterion = "LaplacianScore"

    denominator: Denominator = "degree"
    significance: bool = False
    significance_blocks: Any = None
    significance_gap: float | None = None
    fdr_method: FDRMethod = "bh"

    def _blocks(self) -> FeatureBlocks:
        blocks, gap = self.significance_blocks, self.significance_gap
        if gap is not None and not gap > 0:
            msg = f"significance_gap is {gap!r}: give a distance above 0, or None for none."
            raise InputError(msg)
        if blocks is not None and np.shape(blocks) != (self.n_features_in_,):
            msg = f"significance_blocks has shape {np.shape(blocks)}, and X has {self.n_features_in_} features."
            raise InputError(msg)
        named = {} if blocks is None else {str(number): str(block) for number, block in enumerate(blocks)}
        return FeatureBlocks.of(self._names(), named, gap)


def given_graph(graph: Any, metric: Metric, scaling: Scaling | None) -> Graph | None:
    """Return the precomputed graph that the parameter `graph` of a selector describes; None for None.

    A matrix has shape (n_samples, n_samples) and is converted to float64. `metric` and `scaling` are those of a pair of
    tables, which does not tell them.
    """
    if graph is None:
        return None
    if isinstance(graph, KNNGraph):
        return NeighborLists("graph", graph.indices, graph.distances, graph.metric, graph.graph_scaling)
    if isinstance(graph, str | Path):
        from daskfs.graph.precomputed_files import open_graph

        return open_graph(graph)
    if hasattr(graph, "neighbor_graph"):
        options = {k: v for k, v in (graph.metric_kwds or {}).items() if k != "n_features"}  # added for sparse rows
        metric, graph = checked_metric(graph.metric, options), graph.neighbor_graph
        if metric == "true_angular":
            msg = "graph holds 1 - angle / pi, which is large where rows are alike: fit one by metric 'cosine'."
            raise InputError(msg)
    if isinstance(graph, tuple) and len(graph) == 2:
        tables = sorted((np.asarray(unmasked(table)) for table in graph), key=lambda table: table.dtype.kind == "f")
        return NeighborLists("graph", tables[0], tables[1], metric, scaling)
    if np.ndim(graph) != 2:
        msg = f"graph is {graph!r}: pass neighbor lists, a matrix of weights, or the path of either."
        raise InputError(msg)
    weights = check_array(
        unmasked(graph), accept_sparse="csr", dtype=np.float64, input_name="graph", ensure_all_finite=False
    )
    return WeightMatrix.of(sp.csr_matrix(weights), "graph")
