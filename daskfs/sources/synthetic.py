"""Generated data of any size, such as ``synthetic:mixture?n_samples=300000&n_features=64``.

Rows are drawn in blocks of 4096, each from its own random stream. Any range of rows therefore has the same values
whatever else is read, and a larger n_samples keeps the first rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError, nearest
from daskfs.kernels.blocks import Block, stack_blocks
from daskfs.sources.base import SourceSpec
from daskfs.sources.checks import refuse_options, shorten_names
from daskfs.sources.labeled import LabeledSource
from daskfs.sources.resolve import resolve_feature_names
from daskfs.sources.stored_column import StoredColumn

SYNTHETIC_SCHEME = "synthetic:"
DRAWN_ROWS = 4096
NOISE_AT_ONCE = 1 << 18
# Random streams of one seed: for the structure of all rows, and for one block of rows.
STRUCTURE, ROWS = 1, 2

Values = Mapping[str, int | float]


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter: its default, whose type is that of the value, and its bounds."""

    default: int | float
    least: float
    most: float = float("inf")


def parse_parameters(text: str, parameters: Mapping[str, Parameter], where: str) -> Values:
    """Return every parameter of `parameters` with its value in `text` (``"seed=1&noise=0"``) or its default."""
    values: dict[str, int | float] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text))
    except ValueError as error:
        msg = f"{where}: write parameters as 'n_samples=1000&seed=0', not {text!r}."
        raise InputError(msg) from error
    for name, value in pairs:
        if name not in parameters:
            options = tuple(parameters)
            msg = f"{where} has no parameter {name!r}; it has {shorten_names(options)}.{nearest(name, options)}"
            raise InputError(msg)
        if name in values:
            msg = f"{where} gives {name} twice."
            raise InputError(msg)
        parameter = parameters[name]
        is_whole = isinstance(parameter.default, int)
        try:
            values[name] = int(value) if is_whole else float(value)
        except ValueError:
            msg = f"{where}: {name} is {value!r}, but must be {'a whole number' if is_whole else 'a number'}."
            raise InputError(msg) from None
        check_bounds(name, values[name], parameter.least, parameter.most, where)
    return {name: parameter.default for name, parameter in parameters.items()} | values


def check_bounds(name: str, value: float, least: float, most: float, where: str) -> None:
    """Raise :class:`InputError` unless ``least <= value <= most`` and `value` is finite."""
    if not least <= value <= most or value == float("inf"):
        above = f" and at most {most:g}" if most < float("inf") else ""
        msg = f"{where}: {name} is {value}, but must be at least {least:g}{above}."
        raise InputError(msg)


COMMON = {
    "n_samples": Parameter(10_000, 1),
    "n_features": Parameter(64, 1),
    "seed": Parameter(0, 0, 2**63),
}


class Classes:
    """Base of the generators of classes: the informative columns, and the class of each row.

    `rng` is the stream of the structure; subclasses draw from it after the informative columns.
    """

    def __init__(self, values: Values, where: str, rng: np.random.Generator) -> None:
        n_features, n_informative = int(values["n_features"]), int(values["n_informative"])
        check_bounds("n_informative", n_informative, 1, n_features, where)
        self._seed, self._n_classes, self._n_features = int(values["seed"]), int(values["n_classes"]), n_features
        self._informative = np.sort(rng.choice(n_features, n_informative, replace=False))
        self.feature_names = _names(n_features, self._informative, "noise")

    def labels(self, block: int) -> np.ndarray:
        """Return class numbers, int64, shape (4096,)."""
        return self._draw_labels(_stream(self._seed, block, ROWS))

    def _draw_labels(self, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(self._n_classes, size=DRAWN_ROWS)


class Mixture(Classes):
    """Unit noise in all columns; in the informative ones, the classes have different means.

    The standard deviation of the class means ranges from 0.2 to 2 over the informative columns.
    """

    parameters = COMMON | {"n_classes": Parameter(8, 2, DRAWN_ROWS), "n_informative": Parameter(16, 1)}

    def __init__(self, values: Values, where: str) -> None:
        rng = _stream(int(values["seed"]), 0, STRUCTURE)
        super().__init__(values, where, rng)
        separations = rng.permutation(np.linspace(0.2, 2.0, self._informative.size))
        levels = np.arange(self._n_classes) - (self._n_classes - 1) / 2
        order = rng.permuted(np.tile(levels / levels.std(), (self._informative.size, 1)), axis=1)
        self._means = np.ascontiguousarray((order * separations[:, None]).T, dtype=np.float32)

    def rows(self, block: int, first: int, last: int) -> Block:
        """Return the class means plus unit noise, shape (last - first, n_features), float32."""
        rng = _stream(self._seed, block, ROWS)
        labels = self._draw_labels(rng)
        out = _noise(rng, self._n_features, first, last)
        out[:, self._informative] += self._means[labels[first:last]]
        return out


class LowRank:
    """Each column follows two of `rank` latent variables; the target depends only on the first two.

    An informative column mainly follows one of the first two; the other columns follow neither.
    """

    parameters = COMMON | {"rank": Parameter(10, 2, 1024), "noise": Parameter(0.1, 0.0)}

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
        """Return the target, a smooth function of the first two latent variables, float64, shape (4096,)."""
        latent = self._latent(_stream(self._seed, block, ROWS)).astype(np.float64)
        return np.sin(2 * latent[:, 0]) + latent[:, 0] + 0.5 * latent[:, 1] ** 2

    def rows(self, block: int, first: int, last: int) -> Block:
        """Return mixtures of latent variables plus noise, shape (last - first, n_features), float32."""
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
        return rng.standard_normal((DRAWN_ROWS, self._rank), dtype=np.float32)


class SparseCounts(Classes):
    """Positive counts in a CSR matrix: a random background, and informative columns that each mark one class.

    `density` is that of the background. An informative column has a further value in 5 % to 50 % of its class's rows.
    """

    parameters = COMMON | {
        "n_features": Parameter(10_000, 1),
        "density": Parameter(0.002, 0.0, 0.5),
        "n_classes": Parameter(4, 2, DRAWN_ROWS),
        "n_informative": Parameter(64, 1),
    }

    def __init__(self, values: Values, where: str) -> None:
        rng = _stream(int(values["seed"]), 0, STRUCTURE)
        super().__init__(values, where, rng)
        self._density = float(values["density"])
        self._owner = rng.permutation(np.arange(self._informative.size) % self._n_classes)
        self._chance = rng.permutation(np.linspace(0.05, 0.5, self._informative.size))
        self.values_per_row = self._n_features * self._density + float(self._chance.sum()) / self._n_classes

    def rows(self, block: int, first: int, last: int) -> Block:
        """Return counts of at least 1 in a CSR matrix, shape (last - first, n_features), float32."""
        rng = _stream(self._seed, block, ROWS)
        labels = self._draw_labels(rng)
        background = rng.binomial(self._n_features, self._density, size=DRAWN_ROWS)
        rows = np.repeat(np.arange(DRAWN_ROWS), background)
        columns = rng.integers(self._n_features, size=len(rows))
        chances = np.where(labels[:, None] == self._owner, self._chance, 0.0)
        extra_rows, extra = np.nonzero(rng.random(chances.shape) < chances)
        rows = np.concatenate((rows, extra_rows))
        columns = np.concatenate((columns, self._informative[extra]))
        counts = rng.geometric(0.6, size=len(rows)).astype(np.float32)
        matrix = sp.csr_matrix((counts, (rows, columns)), shape=(DRAWN_ROWS, self._n_features))
        return sp.csr_matrix(matrix[first:last])


class Nonlinear(Classes):
    """Two classes in two informative columns, not linearly separable; the others are noise (Weston et al. 2000).

    The centers of class 0 are (-3/4, -3) and (3/4, 3), those of class 1 (3, -3) and (-3, 3), with equal odds and unit
    variance; noise has variance 20. Both classes have mean 0, and equal marginals in the second informative column. The
    Bayes error is 3.1 %.
    """

    parameters = COMMON | {"n_features": Parameter(52, 2)}
    CENTERS = np.array([[0.75, 3.0], [3.0, -3.0]], dtype=np.float32)
    NOISE_VARIANCE = 20.0

    def __init__(self, values: Values, where: str) -> None:
        rng = _stream(int(values["seed"]), 0, STRUCTURE)
        super().__init__({**values, "n_classes": 2, "n_informative": 2}, where, rng)
        self._deviation = np.full(self._n_features, self.NOISE_VARIANCE**0.5, dtype=np.float32)
        self._deviation[self._informative] = 1.0

    def rows(self, block: int, first: int, last: int) -> Block:
        """Return noise, plus a center in informative columns, shape (last - first, n_features), float32."""
        rng = _stream(self._seed, block, ROWS)
        labels = self._draw_labels(rng)
        sides = rng.choice(np.array([-1.0, 1.0], dtype=np.float32), size=DRAWN_ROWS)
        out = _noise(rng, self._n_features, first, last)
        out *= self._deviation
        out[:, self._informative] += (self.CENTERS[labels] * sides[:, None])[first:last]
        return out


def _stream(seed: int, block: int, use: int) -> np.random.Generator:
    # `use` is last and never 0, because a seed sequence ignores trailing zeros.
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, block, use))))


def _noise(rng: np.random.Generator, n_features: int, first: int, last: int) -> np.ndarray:
    """Return rows ``first:last`` of a block's unit noise; earlier rows are drawn and dropped."""
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


Model = Mixture | LowRank | SparseCounts | Nonlinear
MODELS: dict[str, type[Model]] = {
    "mixture": Mixture,
    "lowrank": LowRank,
    "sparse": SparseCounts,
    "nonlinear": Nonlinear,
}


class SyntheticSource(LabeledSource):
    """Generated rows, drawn when they are read; equal parameters give equal rows.

    Parameters
    ----------
    spec
        ``source`` is ``synthetic:`` and one of

        - ``mixture?n_samples=10000&n_features=64&n_classes=8&n_informative=16&seed=0``
        - ``lowrank?n_samples=10000&n_features=64&rank=10&noise=0.1&seed=0``
        - ``sparse?n_samples=10000&n_features=10000&density=0.002&n_classes=4&n_informative=64&seed=0``
        - ``nonlinear?n_samples=10000&n_features=52&seed=0``

        where the parameters shown are the defaults.
    """

    def __init__(self, spec: SourceSpec) -> None:
        refuse_options(spec)
        kind, _, text = spec.source.removeprefix(SYNTHETIC_SCHEME).partition("?")
        where = f"{SYNTHETIC_SCHEME}{kind}"
        if kind not in MODELS:
            msg = f"there is no {where!r}; there are {shorten_names(tuple(MODELS))}.{nearest(kind, tuple(MODELS))}"
            raise InputError(msg)
        values = parse_parameters(text, MODELS[kind].parameters, where)
        self._model: Model = MODELS[kind](values, where)
        super().__init__(spec, "column", labels=("target",), default_labels="target")
        n_samples, n_features = int(values["n_samples"]), int(values["n_features"])
        names = resolve_feature_names(spec, n_features, own_names=self._model.feature_names)
        per_row = getattr(self._model, "values_per_row", None)
        nnz = None if per_row is None else round(n_samples * per_row)
        identity = {"kind": where, "version": 1, **values}
        self.info = self.describe((n_samples, n_features), np.float32, names, identity, nnz, DRAWN_ROWS)

    def _read_rows(self, start: int, stop: int) -> Block:
        if self.info.is_sparse:
            parts = [self._model.rows(*block) for block in _blocks(start, stop)]
            return stack_blocks(parts or [sp.csr_matrix((0, self.info.n_features), dtype=self.info.dtype)])
        out = np.empty((stop - start, self.info.n_features), dtype=self.info.dtype)
        row = 0
        for block, first, last in _blocks(start, stop):
            out[row : row + last - first] = self._model.rows(block, first, last)
            row += last - first
        return out

    def labels_column(self) -> StoredColumn | None:
        """Return the labels, which can be read by rows if they are the source's own."""
        column = super().labels_column()
        is_own = column is not None and self._labels is not None and self._labels.inside
        return dataclasses.replace(column, read_rows=self._labels_of) if column is not None and is_own else column

    def _labels_of(self, rows: slice) -> np.ndarray:
        return np.concatenate([self._model.labels(i)[first:last] for i, first, last in _blocks(rows.start, rows.stop)])

    def _column_in_parts(self, name: str) -> Iterator[np.ndarray]:
        del name
        return (self._model.labels(block)[first:last] for block, first, last in _blocks(0, self.info.n_samples))


def _blocks(start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield (block, first row, end row) within each block that rows ``start:stop`` overlap."""
    for block in range(start // DRAWN_ROWS, -(-stop // DRAWN_ROWS)):
        first = max(start - block * DRAWN_ROWS, 0)
        last = min(stop - block * DRAWN_ROWS, DRAWN_ROWS)
        if first < last:
            yield block, first, last
