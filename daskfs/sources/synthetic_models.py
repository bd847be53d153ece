"""How generated data come about: a Gaussian mixture, a low-rank regression, sparse counts, and two classes of two
clusters each that no line parts.

Rows come in blocks of 4096, each with a random stream of its own, so that any range of rows has the same
values whatever else is read, and the first rows stay the same when there are more of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import Block
from daskfs.sources.parameters import Parameter, check_bounds

BLOCK_ROWS = 4096
NOISE_AT_ONCE = 1 << 18
# Streams of one seed: what holds for all rows, and what is drawn for one block of them.
STRUCTURE, ROWS = 1, 2

Values = Mapping[str, int | float]

COMMON = {
    "n_samples": Parameter(10_000, 1),
    "n_features": Parameter(64, 1),
    "seed": Parameter(0, 0, 2**63),
}


class Model(Protocol):
    """A generator of blocks of rows."""

    is_sparse: bool
    feature_names: tuple[str, ...]

    def rows(self, block: int, first: int, last: int) -> Block:
        """Return rows ``first:last`` of a block, float32."""
        ...

    def labels(self, block: int) -> np.ndarray:
        """Return the labels of all rows of a block, shape (4096,)."""
        ...


class Classes:
    """What generators of classes share: which columns are informative, and the class of each row.

    `rng` is the stream of the structure; what it draws after the columns is up to the generator.
    """

    def __init__(self, values: Values, where: str, rng: np.random.Generator) -> None:
        n_features, n_informative = int(values["n_features"]), int(values["n_informative"])
        check_bounds("n_informative", n_informative, 1, n_features, where)
        self._seed, self._n_classes, self._n_features = int(values["seed"]), int(values["n_classes"]), n_features
        self._informative = np.sort(rng.choice(n_features, n_informative, replace=False))
        self.feature_names = _names(n_features, self._informative, "noise")

    def labels(self, block: int) -> np.ndarray:
        """Return class numbers."""
        return self._draw_labels(_stream(self._seed, block, ROWS))

    def _draw_labels(self, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(self._n_classes, size=BLOCK_ROWS)


class Mixture(Classes):
    """Unit noise everywhere; in the informative columns, the classes have different means.

    The standard deviation of the class means runs from 0.2 to 2 over the informative columns.
    """

    parameters = COMMON | {"n_classes": Parameter(8, 2, BLOCK_ROWS), "n_informative": Parameter(16, 1)}
    is_sparse = False

    def __init__(self, values: Values, where: str) -> None:
        rng = _stream(int(values["seed"]), 0, STRUCTURE)
        super().__init__(values, where, rng)
        separations = rng.permutation(np.linspace(0.2, 2.0, self._informative.size))
        levels = np.arange(self._n_classes) - (self._n_classes - 1) / 2
        order = rng.permuted(np.tile(levels / levels.std(), (self._informative.size, 1)), axis=1)
        self._means = np.ascontiguousarray((order * separations[:, None]).T, dtype=np.float32)

    def rows(self, block: int, first: int, last: int) -> Block:
        """Return the class means plus unit noise."""
        rng = _stream(self._seed, block, ROWS)
        labels = self._draw_labels(rng)
        out = _noise(rng, self._n_features, first, last)
        out[:, self._informative] += self._means[labels[first:last]]
        return out


class LowRank:
    """Each column follows two of `rank` latent variables; the target depends on the first two of these only.

    Informative columns follow one of the first two in the main, the others none of them.
    """

    parameters = COMMON | {"rank": Parameter(10, 2, 1024), "noise": Parameter(0.1, 0.0)}
    is_sparse = False

    def __init__(self, values: Values, where: str) -> None:
        n_features, rank = int(values["n_features"]), int(values["rank"])
        check_bounds("rank", rank, 2, n_features, where)
        self._seed, self._rank, self._n_features = int(values["seed"]), rank, n_features
        self._noise = np.float32(values["noise"])
        rng = _stream(self._seed, 0, STRUCTURE)
        self._main = rng.permutation(np.arange(n_features) % rank)
        # With two latent variables there is no third to mix in.
        self._other = rng.integers(2, rank, size=n_features) if rank > 2 else self._main
        signs = rng.choice([-1.0, 1.0], size=n_features)
        self._main_weight = (signs * rng.uniform(0.5, 1.5, n_features)).astype(np.float32)
        self._other_weight = rng.uniform(-0.4, 0.4, n_features).astype(np.float32)
        self.feature_names = _names(n_features, np.flatnonzero(self._main < 2), "nuisance")

    def labels(self, block: int) -> np.ndarray:
        """Return the target, a smooth function of the first two latent variables."""
        latent = self._latent(_stream(self._seed, block, ROWS)).astype(np.float64)
        return np.sin(2 * latent[:, 0]) + latent[:, 0] + 0.5 * latent[:, 1] ** 2

    def rows(self, block: int, first: int, last: int) -> Block:
        """Return the columns' mixtures of latent variables plus noise."""
        rng = _stream(self._seed, block, ROWS)
        latent = self._latent(rng)[first:last]
        out = _noise(rng, self._n_features, first, last)
        out *= self._noise
        # Value by value: a matrix product may round differently for another number of rows.
        for row, variables in zip(out, latent, strict=True):
            row += variables[self._main] * self._main_weight
            row += variables[self._other] * self._other_weight
        return out

    def _latent(self, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((BLOCK_ROWS, self._rank), dtype=np.float32)


class SparseCounts(Classes):
    """Positive counts in a CSR matrix: columns at random, and informative columns that turn up in one class.

    `density` is that of the background. An informative column has a value in 5 % to 50 % of its class's rows.
    """

    parameters = COMMON | {
        "n_features": Parameter(10_000, 1),
        "density": Parameter(0.002, 0.0, 0.5),
        "n_classes": Parameter(4, 2, BLOCK_ROWS),
        "n_informative": Parameter(64, 1),
    }
    is_sparse = True

    def __init__(self, values: Values, where: str) -> None:
        rng = _stream(int(values["seed"]), 0, STRUCTURE)
        super().__init__(values, where, rng)
        self._density = float(values["density"])
        self._owner = rng.permutation(np.arange(self._informative.size) % self._n_classes)
        self._chance = rng.permutation(np.linspace(0.05, 0.5, self._informative.size))
        self.values_per_row = self._n_features * self._density + float(self._chance.sum()) / self._n_classes

    def rows(self, block: int, first: int, last: int) -> Block:
        """Return counts of at least 1, float32."""
        rng = _stream(self._seed, block, ROWS)
        labels = self._draw_labels(rng)
        background = rng.binomial(self._n_features, self._density, size=BLOCK_ROWS)
        rows = np.repeat(np.arange(BLOCK_ROWS), background)
        columns = rng.integers(self._n_features, size=len(rows))
        chances = np.where(labels[:, None] == self._owner, self._chance, 0.0)
        extra_rows, extra = np.nonzero(rng.random(chances.shape) < chances)
        rows = np.concatenate((rows, extra_rows))
        columns = np.concatenate((columns, self._informative[extra]))
        counts = rng.geometric(0.6, size=len(rows)).astype(np.float32)
        matrix = sp.csr_matrix((counts, (rows, columns)), shape=(BLOCK_ROWS, self._n_features))
        return sp.csr_matrix(matrix[first:last])


class Nonlinear(Classes):
    """Two classes that no line parts, in two informative columns, and wide noise in all others (Weston et al. 2000).

    In the informative columns, rows of class 0 lie round (-3/4, -3) or (3/4, 3), those of class 1 round (3, -3) or
    (-3, 3), with unit variance and equal odds; noise has variance 20. All means are 0 in both classes, and the second
    informative column is distributed alike in both. The best border leaves 3.1 % of the rows on the wrong side.
    """

    parameters = COMMON | {"n_features": Parameter(52, 2)}
    is_sparse = False
    CENTERS = np.array([[0.75, 3.0], [3.0, -3.0]], dtype=np.float32)
    NOISE_VARIANCE = 20.0

    def __init__(self, values: Values, where: str) -> None:
        rng = _stream(int(values["seed"]), 0, STRUCTURE)
        super().__init__({**values, "n_classes": 2, "n_informative": 2}, where, rng)
        self._deviation = np.full(self._n_features, self.NOISE_VARIANCE**0.5, dtype=np.float32)
        self._deviation[self._informative] = 1.0

    def rows(self, block: int, first: int, last: int) -> Block:
        """Return noise, and in the informative columns a center on one side or the other plus unit noise."""
        rng = _stream(self._seed, block, ROWS)
        labels = self._draw_labels(rng)
        sides = rng.choice(np.array([-1.0, 1.0], dtype=np.float32), size=BLOCK_ROWS)
        out = _noise(rng, self._n_features, first, last)
        out *= self._deviation
        out[:, self._informative] += (self.CENTERS[labels] * sides[:, None])[first:last]
        return out


def _stream(seed: int, block: int, use: int) -> np.random.Generator:
    # `use` stands last and is never 0, because trailing zeros make no difference to a seed sequence.
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, block, use))))


def _noise(rng: np.random.Generator, n_features: int, first: int, last: int) -> np.ndarray:
    """Return rows ``first:last`` of the block's unit noise; those before are drawn and dropped."""
    step = max(1, NOISE_AT_ONCE // n_features)
    dropped = np.empty((min(step, first), n_features), dtype=np.float32)
    for row in range(0, first, step):
        rng.standard_normal(dtype=np.float32, out=dropped[: min(step, first - row)])
    out = np.empty((last - first, n_features), dtype=np.float32)
    rng.standard_normal(dtype=np.float32, out=out)
    return out


def _names(n_features: int, informative: np.ndarray, others: str) -> tuple[str, ...]:
    width = max(3, len(str(n_features - 1)))
    chosen = set(informative.tolist())
    return tuple(f"{'informative' if index in chosen else others}_{index:0{width}d}" for index in range(n_features))
