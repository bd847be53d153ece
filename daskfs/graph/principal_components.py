"""Stages "pca-basis", "pca-images" and "pca-rows": principal components of the rescaled rows, for a search among them.

"pca-images" multiplies a block of columns by the covariance matrix C in one pass over the rows. "pca-basis" makes the
next block of these products, and the components from all of them. "pca-rows" projects the rows onto these.

Notes
-----
Of few columns a single pass takes C itself. Few rows need no pass: a "pca-basis" unit holds them. Else a block Krylov
subspace is built in :data:`N_PASSES` passes. For 10,000 rows of 2,000 columns, 30 dimensions and noise, the neighbors
in 20 components are those of exact ones, and 95 % of them in 50, of which 20 are noise.

Components are of rows as they count: weights are numbers of equal rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from daskfs.graph.rows import create_own_rows, put_own_rows, searched_shape
from daskfs.graph.spec import GraphSpec
from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.principal_components import first_block, leading, leading_of_rows, leading_of_span, next_block
from daskfs.kernels.regression.centered import CenteredRows, rows_per_block
from daskfs.kernels.scaling import chain_of, without_zscore
from daskfs.kernels.threads import one_thread
from daskfs.stages.cost import PROCESS, WORD, Array, Cost, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape, sample_rows
from daskfs.store.store import Store
from daskfs.tiles.row_partitions import SMALLEST_STRETCH, RowPartitions, cut_parts, reading_cost
from daskfs.tiles.shapes import chunk_bytes

N_PASSES = 5
OVERSAMPLED = 10
"""Columns of a block in addition to the components."""
COVARIANCE_COLUMNS = 1024
"""Columns of which one pass takes the whole covariance matrix."""
WHOLE_ROWS, WHOLE_VALUES = 2048, 2**25
"""Rows, and values of them all, that one unit holds at once in float64."""
SPARSE_BLOCK_VALUES = 2**21
"""Values of the sparse rows that are multiplied together: each block also costs a sum of the size of the result."""
SUMS_BYTES, N_STRETCHES = 2**30, (16, 256)


@dataclass(frozen=True)
class Decomposition:
    """Route by which principal components are found, and its sizes.

    Attributes
    ----------
    scaling
        Scaling of the rows, with its step "pca".
    n_components
        Number of components.
    width
        Columns of a block.
    n_passes
        Passes over the rows that find the components: one where a block is all columns, none for few rows.
    n_stretches
        Maximum number of stretches of rows, of which sums are stored.
    """

    scaling: str
    n_components: int
    width: int
    n_passes: int
    n_stretches: int

    @classmethod
    def of(cls, shape: Shape, spec: GraphSpec) -> Decomposition:
        """Return the decomposition for the rows of a graph; only the size of the data decides."""
        n, p, n_components = shape.n_samples, shape.n_features, searched_shape(shape, spec).n_features
        width, n_passes = n_components + OVERSAMPLED, N_PASSES
        if p <= max(COVARIANCE_COLUMNS, width * n_passes):
            width, n_passes = p, 1
        elif n <= WHOLE_ROWS and n * p <= WHOLE_VALUES:
            width, n_passes = n_components, 0
        n_stretches = int(np.clip(SUMS_BYTES // (WORD * p * width), *N_STRETCHES))
        return cls(str(spec.scaling), n_components, width, n_passes, n_stretches)

    def is_whole(self, shape: Shape) -> bool:
        """Return whether the block of a pass is the identity matrix."""
        return self.width == shape.n_features

    def parts(self, shape: Shape) -> RowPartitions:
        """Return the units of a pass."""
        return cut_parts(shape, self.n_stretches)


class ComponentsParameters(StageParameters):
    """Parameters of "pca-rows"."""

    decomposition: Decomposition


class PassParameters(ComponentsParameters):
    """Parameters of "pca-images" and "pca-basis": also the number of the pass, and the seed of the first block."""

    number: int
    random_state: int


def _rows_at_once(shape: Shape) -> int:
    """Return the number of rows that are multiplied together, a power of two."""
    if not shape.is_sparse:
        return rows_per_block(shape.n_features)
    per_row = max(1, (shape.nnz or 0) // shape.n_samples)
    return 1 << (int(np.clip(SPARSE_BLOCK_VALUES // per_row, 64, SMALLEST_STRETCH)).bit_length() - 1)


def _blocks(
    context: Context, scaling: str, rows: slice, height: int
) -> Iterator[tuple[slice, Block, np.ndarray | None]]:
    """Yield row ranges that end at multiples of `height`, rows that are neither centered nor standardized, and weights.

    Rows are dense or CSR; weights have shape (n_rows, 1), or are None where each row counts for one.
    """
    weights = context.weights(rows)
    for part, values in context.tiles.aligned_rows(rows, height, without_zscore(chain_of(scaling))):
        block_weights = None if weights is None else weights[part.start - rows.start : part.stop - rows.start, None]
        yield part, values, block_weights


def _dense(values: Block) -> np.ndarray:
    return values.toarray() if is_sparse(values) else values


# --------------------------------------------------------------------------------- images
def add_images(context: Context, parameters: PassParameters, unit: int) -> None:
    """Sum Z'Z B over the rows of each stretch of the unit, for the block B of a pass, in one thread."""
    pca, number, store = parameters.decomposition, parameters.number, context.store
    shape = context.tiles.shape
    parts = pca.parts(shape)
    mean, factor, _ = context.tiles.scales.of_components(pca.scaling)
    rows = CenteredRows(mean, factor)
    height = min(rows_per_block(shape.n_features) if pca.is_whole(shape) else _rows_at_once(shape), parts.height)
    with one_thread():
        products = None
        if not pca.is_whole(shape):
            products = rows.products(store.open(layout.PCA_BLOCKS.format(pca.scaling, number))[...])
        sums = np.zeros((shape.n_features, pca.width))
        for part, values, weights in _blocks(context, pca.scaling, parts.rows(unit), height):
            if products is None:
                Z = rows.taken(_dense(values))
                sums += Z.T @ (Z if weights is None else Z * weights)
            else:
                rows.take(values)
                image = products()
                sums += rows.cross(image if weights is None else image * weights)
            if part.stop % parts.height == 0 or part.stop == shape.n_samples:
                name = layout.PCA_SUMS.format(pca.scaling, number, (part.stop - 1) // parts.height)
                store.put_array(name, sums if products is None else rows.scaled(sums))
                sums[...] = 0.0


# ---------------------------------------------------------------------------------- basis
def extend_basis(context: Context, parameters: PassParameters, unit: int) -> None:
    """Add up the products of a pass, and store the next block of columns, or at last the components."""
    del unit
    pca, number, store = parameters.decomposition, parameters.number, context.store
    shape = context.tiles.shape
    with one_thread():
        image = _sum_stretches(store, pca, shape, number - 1) if number else None
        if number < pca.n_passes:
            block = first_block(shape.n_features, pca.width, parameters.random_state)
            if image is not None:
                store.put_array(layout.PCA_IMAGES.format(pca.scaling, number - 1), image)
                block = next_block(image, _read_blocks(store, layout.PCA_BLOCKS, pca, number))
            store.put_array(layout.PCA_BLOCKS.format(pca.scaling, number), block)
            return
        if image is None:
            loadings, values = leading_of_rows(_all_rows(context, pca), pca.n_components)
        elif pca.is_whole(shape):
            loadings, values = leading(image, pca.n_components)
        else:
            blocks = _read_blocks(store, layout.PCA_BLOCKS, pca, number)
            images = [*_read_blocks(store, layout.PCA_IMAGES, pca, number - 1), image]
            loadings, values = leading_of_span(blocks, images, pca.n_components)
    store.put_array(layout.PCA_LOADINGS.format(pca.scaling), loadings)
    variance = context.tiles.scales.of_components(pca.scaling)[2]
    weights = context.weights()
    count = shape.n_samples if weights is None else float(weights.sum())
    shares = values / (count * variance) if variance > 0 else np.zeros_like(values)
    summary = {"n_components": pca.n_components, "explained_variance_ratio": shares.tolist()}
    store.write_json(layout.PCA_SUMMARY.format(pca.scaling), summary)


def _read_blocks(store: Store, name: str, pca: Decomposition, count: int) -> list[np.ndarray]:
    return list(store.read_each((name.format(pca.scaling, number), ...) for number in range(count)))


def _sum_stretches(store: Store, pca: Decomposition, shape: Shape, number: int) -> np.ndarray:
    """Return the sum over all stretches, in order, of the products of one pass."""
    names = (layout.PCA_SUMS.format(pca.scaling, number, i) for i in range(pca.parts(shape).n_stretches))
    sums = np.zeros((shape.n_features, pca.width))
    for part in store.read_each(((name, ...) for name in names), sums.nbytes):
        sums += part
    return sums


def _all_rows(context: Context, pca: Decomposition) -> np.ndarray:
    """Return all rows centered, times the square roots of their weights, shape (n_samples, n_features), float64."""
    shape = context.tiles.shape
    mean, factor, _ = context.tiles.scales.of_components(pca.scaling)
    Z = np.empty((shape.n_samples, shape.n_features))
    for part, values, weights in _blocks(context, pca.scaling, slice(0, shape.n_samples), _rows_at_once(shape)):
        Z[part] = _dense(values)
        Z[part] -= mean[0]
        Z[part] -= mean[1]
        Z[part] *= factor if weights is None else factor * np.sqrt(weights)
    return Z


# ----------------------------------------------------------------------------------- rows
def create_rows(context: Context, parameters: ComponentsParameters) -> None:
    """Create the array of the projected rows."""
    pca = parameters.decomposition
    create_own_rows(context.store, pca.scaling, _projected_shape(context.tiles.shape, pca))


def _projected_shape(shape: Shape, pca: Decomposition) -> Shape:
    return searched_shape(shape, GraphSpec(scaling=pca.scaling))


def project_rows(context: Context, parameters: ComponentsParameters, unit: int) -> None:
    """Project the rows of one unit onto the components, and store them and those of the sample."""
    pca, store, shape = parameters.decomposition, context.store, context.tiles.shape
    projected = _projected_shape(shape, pca)
    mean, factor, _ = context.tiles.scales.of_components(pca.scaling)
    centered = CenteredRows(mean, factor)
    rows, height = pca.parts(shape).rows(unit), min(_rows_at_once(shape), SMALLEST_STRETCH)
    result = np.empty((SMALLEST_STRETCH, pca.n_components), np.float32)
    with one_thread():
        products = centered.products(store.open(layout.PCA_LOADINGS.format(pca.scaling))[...])
        for part, values, _ in _blocks(context, pca.scaling, rows, height):
            centered.take(values)
            first = part.start // SMALLEST_STRETCH * SMALLEST_STRETCH
            result[part.start - first : part.stop - first] = products()
            if part.stop % SMALLEST_STRETCH == 0 or part.stop == shape.n_samples:
                put_own_rows(store, pca.scaling, projected, first, result[: part.stop - first])


# ----------------------------------------------------------------------------------- costs
def _passing_cost(shape: Shape, pca: Decomposition) -> Cost:
    """List what a pass holds of the rows."""
    parts, height = pca.parts(shape), _rows_at_once(shape)
    return (
        *reading_cost(shape, min(parts.per_part * parts.height, shape.n_samples), height),
        Array("products of a block of rows", (3, height, pca.width)),
        Array("means and factors of columns", (6, shape.n_features)),
    )


def images_cost(shape: Shape, pca: Decomposition) -> Cost:
    """Return the memory cost of a "pca-images" unit."""
    results = Array("block of columns, and products with it", (6, shape.n_features, pca.width))
    dense: Cost = ()
    if pca.is_whole(shape) and shape.is_sparse:
        dense = (Array("dense rows", (3, rows_per_block(shape.n_features), shape.n_features)),)
    return PROCESS, *_passing_cost(shape, pca), results, *dense


def basis_cost(shape: Shape, pca: Decomposition) -> Cost:
    """Return the memory cost of a "pca-basis" unit: all rows if they are few, else all blocks and their images."""
    if not pca.n_passes:
        squares = Array("products of rows, and their eigenvectors", (4, shape.n_samples, shape.n_samples))
        rows = Array("all rows, centered", (shape.n_samples, shape.n_features))
        loadings = Array("components", (3, shape.n_features, pca.n_components))
        return PROCESS, rows, squares, loadings, *_passing_cost(shape, pca)
    copies = 6 if pca.n_passes == 1 else 4 * pca.n_passes + 4
    return PROCESS, Array("blocks of columns, and their products", (copies, shape.n_features, pca.width))


def rows_cost(shape: Shape, pca: Decomposition) -> Cost:
    """Return the memory cost of a "pca-rows" unit."""
    return (
        PROCESS,
        *_passing_cost(shape, pca),
        Array("components, and as scaled", (3, shape.n_features, pca.n_components)),
        Array("rows as projected, and as stored", (4, SMALLEST_STRETCH, pca.n_components), "float32"),
        Objects("the sampled rows", sample_rows(_projected_shape(shape, pca)).size, WORD),
    )


PCA_IMAGES_STAGE = StageKind("pca-images", __name__, add_images, images_cost, reads_weights=True)
PCA_BASIS_STAGE = StageKind("pca-basis", __name__, extend_basis, basis_cost, reads_weights=True)
PCA_ROWS_STAGE = StageKind("pca-rows", __name__, project_rows, rows_cost, arrays=create_rows, reads_weights=True)


def plan_components(shape: Shape, spec: GraphSpec) -> Iterator[Stage]:
    """Yield the stages that find the principal components of a graph's rows, and project these."""
    pca = Decomposition.of(shape, spec)
    n_parts, n_stretches = pca.parts(shape).n_parts, pca.parts(shape).n_stretches
    block, read = WORD * shape.n_features * pca.width, chunk_bytes(shape)
    loadings = WORD * shape.n_features * pca.n_components
    for number in range(pca.n_passes + 1):
        parameters, is_last = PassParameters(pca, number, spec.random_state), number == pca.n_passes
        if number or not pca.is_whole(shape):
            yield Stage.of(
                PCA_BASIS_STAGE,
                f"pca-basis-{number}-{spec.scaling}",
                1,
                parameters,
                PCA_BASIS_STAGE.cost(shape, pca),
                bytes_read=n_stretches * block + 2 * number * block if number else read,
                bytes_written=loadings if is_last else min(number + 1, 2) * block,
                clears=layout.PCA_SUMS_OF.format(pca.scaling, number - 1) if number else "",
            )
        if not is_last:
            yield Stage.of(
                PCA_IMAGES_STAGE,
                f"pca-images-{number}-{spec.scaling}",
                n_parts,
                parameters,
                PCA_IMAGES_STAGE.cost(shape, pca),
                bytes_read=read + n_parts * block,
                bytes_written=n_stretches * block,
                needed_until=f"pca-basis-{number + 1}-{spec.scaling}",
            )
    projected = searched_shape(shape, spec)
    rows = projected.n_bands * projected.tile_rows + sample_rows(projected).size
    yield Stage.of(
        PCA_ROWS_STAGE,
        f"pca-rows-{spec.scaling}",
        n_parts,
        ComponentsParameters(pca),
        PCA_ROWS_STAGE.cost(shape, pca),
        bytes_read=read + n_parts * loadings,
        bytes_written=rows * pca.n_components * projected.itemsize,
    )
