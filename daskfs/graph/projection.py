"""Projection of rows to a few dense float32 columns, in which candidate neighbors are found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.missing import fill_missing, has_missing, observe
from daskfs.kernels.neighbors.cells import BLOCK_ROWS
from daskfs.kernels.neighbors.distance_bounds import all_distances
from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.kernels.neighbors.metrics import Metric, is_own
from daskfs.kernels.neighbors.rows import as_metric_rows, column_spread, metric_rows, observed_means, prepare_rows
from daskfs.kernels.scaling import squared_lengths
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.kernels.threads import one_thread, sklearn_module
from daskfs.stages.cost import HALF_WORD

COMPONENT_CHOICES = (32, 64, 128)
SPARSE_COMPONENTS = COMPONENT_CHOICES[-1]
DIRECTION_BYTES = 2**27
"""Maximum bytes of the float32 directions: with more features, fewer directions are kept."""
FORCED_FEATURES = 4096
"""Above this number of features dense rows are always projected: products of all columns cost more than they gain."""
GRAM_FEATURES = 1024
"""Maximum number of features of dense rows whose directions are eigenvectors of a Gram matrix."""
FITTING_ROWS = 2**13
JUDGING_ROWS = 2**13
ASKED_ROWS = 300
ENOUGH = 0.995
"""Share of the nearest neighbors that the chosen components must keep among the candidates."""

LANDMARKS = 128
"""Rows of the sample whose distances from a row are its columns where cells cannot be cut in X."""
LARGEST_DISTANCE = 1e15
"""Largest of these distances: some metrics are infinite for rows that share nothing."""


@dataclass(frozen=True)
class Space:
    """Map from rows in graph space to float32 rows whose Euclidean distances approximate those of the metric.

    Attributes
    ----------
    metric, random_state
        Metric, whose rows are projected (:func:`~daskfs.kernels.neighbors.rows.as_metric_rows`), and seed.
    center, scale
        Subtracted, shape (n_features,), float64, None for sparse rows; then multiplied. They prevent loss of precision
        to an offset and overflow in float32.
    basis
        Principal directions of a sample, shape (n_features, n_components), float32, or None. :meth:`sketch` adds the
        squared residual of each row; the sum of those of two rows is the expected squared distance outside of the
        directions. It is decisive for counts: rows of small total are near to all others, which a projection alone
        cannot show.
    n_components
        Number of columns, None for all; without a basis, of a sparse random projection, for sparse rows with too many
        features to hold directions.
    fill
        Means of the sampled observed values that replace missing values of sparse rows, shape (n_features,), float64;
        None for 0. In dense rows the center does. Distances here then differ from the final ones.
    landmarks
        Rows of the sample, shape (n_landmarks, n_features), dense or CSR, if pynndescent's function computes distances:
        those from these rows are the columns then.
    kept
        Share of the nearest rows of the sample that are among the candidates found here, if it was estimated.
    """

    metric: Metric
    random_state: int
    center: np.ndarray | None = None
    scale: float = 1.0
    basis: np.ndarray | None = None
    n_components: int | None = None
    fill: np.ndarray | None = None
    landmarks: Block | None = None
    kept: float = 1.0

    def rows(self, X: Block) -> np.ndarray:
        """Project rows of shape (n_rows, n_features), dense or CSR; returns (n_rows, n_columns), float32, C order."""
        if self.landmarks is not None:
            lengths = all_distances(metric_rows(X, self.metric), metric_rows(self.landmarks, self.metric))
            return np.minimum(lengths, LARGEST_DISTANCE).astype(np.float32)
        return self._turn(self.shifted(X))

    def sketch(self, X: Block) -> np.ndarray:
        """Return :meth:`rows` and, as last column, the squared residual; (n_rows, n_columns + 1), float32."""
        values, is_zero = as_metric_rows(X, self.metric)
        values = self._shift(values)
        turned = self._turn(values)
        sketch = np.zeros((turned.shape[0], turned.shape[1] + 1), np.float32)
        sketch[:, :-1] = turned
        if self.basis is not None:
            whole = squared_lengths(values) - np.einsum("ij,ij->i", turned, turned)
            sketch[:, -1] = np.maximum(whole, 0)
        if is_zero is not None:  # at distance 1 from all, half the squared distance of unit rows
            sketch[is_zero, -1] += self.scale**2
        return sketch

    def shifted(self, X: Block) -> Any:
        """Return rows centered, scaled and filled, before projection; shape of `X`, dense or CSR, float32."""
        return self._shift(as_metric_rows(X, self.metric)[0])

    def _shift(self, values: Any) -> Any:
        if self.center is not None:
            keeps = values.dtype.kind == "f" and values.dtype.itemsize >= 4 and self.scale == 1.0
            values = values - self.center.astype(values.dtype if keeps else np.float64)
        if self.scale != 1.0:
            values = values * self.scale
        values = values.astype(np.float32, copy=False)
        if not has_missing(values):
            return values
        if is_sparse(values):
            fill = np.zeros(values.shape[1]) if self.fill is None else self.fill * self.scale
            return fill_missing(values.copy(), fill)
        return np.where(np.isnan(values), np.float32(0), values)

    def _turn(self, values: Any) -> np.ndarray:
        if self.basis is not None and is_sparse(values):
            values = values @ self.basis
        elif self.basis is not None:
            # by fixed blocks, since a product of more rows may round differently
            turned = np.empty((values.shape[0], self.basis.shape[1]), np.float32)
            for block in row_blocks(values.shape[0], BLOCK_ROWS):
                np.matmul(values[block], self.basis, out=turned[block])
            values = turned
        elif self.n_components is not None:
            values = values @ projection(values.shape[1], self.n_components, self.random_state)
        if is_sparse(values):
            values = values.toarray()
        return np.ascontiguousarray(values, dtype=np.float32)


def fitted_space(
    sample: Block,
    metric: Metric,
    components: int | str | None,
    n_samples: int,
    n_neighbors: int,
    width: int,
    random_state: int,
) -> Space:
    """Fit the space to a sample of `n_samples` rows in graph space, shape (n_rows, n_features), dense or CSR.

    Parameters
    ----------
    components
        Number of components, None for all columns, or "auto": the fewest that keep nearly all neighbors in the sample
        among the candidates. If 128 do not suffice, all columns, unless these are very many or rows are sparse.
    n_neighbors, width
        Number of neighbors, and of candidates whose distances are computed.
    """
    n_features = sample.shape[1]
    if not is_own(metric, is_sparse=is_sparse(sample)):
        places = np.random.default_rng(random_state).permutation(sample.shape[0])[:LANDMARKS]
        return Space(metric, random_state, n_components=places.size, landmarks=sample[np.sort(places)])
    values, _ = as_metric_rows(sample, metric)
    if is_sparse(values):
        largest = float(np.fmax.reduce(np.abs(values.data), initial=0.0))
        fill = observe(values).values(values.shape[0], np.dtype(np.float64)) if has_missing(values) else None
        space = Space(metric, random_state, scale=_safe_scale(largest), fill=fill)
        return _sparse_space(space, sample, components, n_samples, n_neighbors, width)
    center = observed_means(values) if has_missing(values) else values.mean(axis=0, dtype=np.float64)
    spread = column_spread(values, center)
    space = Space(metric, random_state, center, _safe_scale(spread))
    if components is None:
        return space
    fitting_rows = np.arange(0, len(values), max(1, len(values) // FITTING_ROWS))
    most = min(components if isinstance(components, int) else COMPONENT_CHOICES[-1], n_features, fitting_rows.size)
    basis = _principal_directions(space.rows(sample[fitting_rows]), most, random_state)
    if isinstance(components, int):
        return replace(space, basis=basis, n_components=basis.shape[1])
    chosen, share_within = _enough_components(
        space, sample[:: max(1, len(values) // JUDGING_ROWS)], basis, n_samples, n_neighbors, width
    )
    if chosen is None and n_features > FORCED_FEATURES:
        chosen = basis.shape[1]
    if chosen is None:
        return space
    return replace(space, basis=np.ascontiguousarray(basis[:, :chosen]), n_components=chosen, kept=share_within)


def directions(n_features: int, components: int | str | None) -> int:
    """Return the maximum number of directions that sparse rows are projected onto.

    It is 0 for few columns, and for so many that too few directions fit in :data:`DIRECTION_BYTES`.
    """
    count = components if isinstance(components, int) else SPARSE_COMPONENTS
    fitting = min(DIRECTION_BYTES // (HALF_WORD * n_features), count)
    return fitting if count < n_features and fitting >= min(count, COMPONENT_CHOICES[0]) else 0


def _sparse_space(
    space: Space, sample: sp.csr_matrix, components: int | str | None, n_samples: int, n_neighbors: int, width: int
) -> Space:
    """Return the space for sparse rows: few columns, as cells need; `components` None means that only cells use it."""
    n_features = sample.shape[1]
    n_components = components if isinstance(components, int) else SPARSE_COMPONENTS
    if n_components >= n_features:
        return space
    fitting_rows = np.arange(0, sample.shape[0], max(1, sample.shape[0] // FITTING_ROWS))
    most = min(directions(n_features, components), fitting_rows.size)
    if not most:
        return replace(space, n_components=n_components)
    basis = _principal_directions(space.shifted(sample[fitting_rows]), most, space.random_state)
    if components == "auto":
        step = sample.shape[0] // JUDGING_ROWS
        judged = sample[::step] if step > 1 else sample  # a copy takes as much memory as all that follows
        chosen, share_within = _enough_components(space, judged, basis, n_samples, n_neighbors, width)
        space, most = replace(space, kept=share_within), chosen or most
    return replace(space, basis=np.ascontiguousarray(basis[:, :most]), n_components=most)


def _safe_scale(spread: float) -> float:
    return 1.0 if spread == 0 or 1e-3 < spread < 1e9 else 1.0 / spread


def _principal_directions(rows: Any, count: int, random_state: int) -> np.ndarray:
    extmath = sklearn_module("utils.extmath")
    with one_thread():  # SciPy loads its own BLAS, which an earlier limit does not cover
        if rows.shape[1] <= GRAM_FEATURES and not is_sparse(rows):
            gram, n_features = rows.T @ rows, rows.shape[1]
            directions = scipy.linalg.eigh(gram, subset_by_index=(n_features - count, n_features - 1))[1][:, ::-1].T
        else:
            _, _, directions = extmath.randomized_svd(rows, count, n_iter=4, random_state=random_state)
    return np.ascontiguousarray(directions.T, dtype=np.float32)


def _enough_components(
    space: Space,
    judged: Block,
    basis: np.ndarray,
    n_samples: int,
    n_neighbors: int,
    width: int,
) -> tuple[int | None, float]:
    """Return the fewest leading directions that keep neighbors among the candidates, None if no choice does.

    Also return the share kept by the last choice. Rank r in the sample is about rank r n_samples / n_rows of all rows.
    """
    rows = space.shifted(judged)
    share = rows.shape[0] / n_samples
    rank = max(1, round(n_neighbors * share))
    allowed = min(int(width * rank / n_neighbors), rows.shape[0])
    queries = np.arange(0, rows.shape[0], max(1, rows.shape[0] // ASKED_ROWS))
    base = prepare_rows(judged if has_missing(judged) else rows, "euclidean")
    nearest = exact_neighbors(base.part(queries), queries, base, 0, rank)[0]
    del base
    squares = squared_lengths(rows)
    turned = rows @ basis
    share_within = 1.0
    for count in COMPONENT_CHOICES:
        if count >= rows.shape[1] // 2 or count > basis.shape[1]:
            break
        lengths = squares[None, :] - 2 * (turned[queries, :count] @ turned[:, :count].T)
        lengths[np.arange(queries.size), queries] = np.inf
        limit = np.partition(lengths, allowed - 1, axis=1)[:, allowed - 1 : allowed]
        share_within = float(np.mean((np.take_along_axis(lengths, nearest, axis=1) <= limit)[nearest >= 0]))
        if share_within >= ENOUGH:
            return count, share_within
    return None, share_within


@lru_cache(maxsize=2)
def projection(n_features: int, n_components: int, random_state: int) -> Any:
    """Return a sparse random projection, CSR (n_features, n_components), float32."""
    random_projection = sklearn_module("random_projection")
    shape_only = np.broadcast_to(np.float32(0), (1, n_features))
    projector = random_projection.SparseRandomProjection(n_components, random_state=random_state)
    components = projector.fit(shape_only).components_
    return components.T.astype(np.float32)
