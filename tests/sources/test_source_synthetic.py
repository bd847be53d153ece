"""Generated data: the same values whatever is read, and the structure that the names promise."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_selection import chi2, f_classif, mutual_info_regression

from daskfs.errors import InputError
from daskfs.sources import Source, SourceSpec, open_source
from daskfs.sources.some_rows import SomeRows
from tests.sources.array_source import ArraySource

SOURCES = {
    "mixture": "synthetic:mixture?n_samples=9000&n_features=20&n_classes=4&n_informative=5&seed=3",
    "lowrank": "synthetic:lowrank?n_samples=9000&n_features=20&rank=5&noise=0.1&seed=3",
    "sparse": "synthetic:sparse?n_samples=9000&n_features=400&density=0.01&n_informative=12&seed=3",
    "nonlinear": "synthetic:nonlinear?n_samples=9000&n_features=20&seed=3",
}
# Around the borders of the blocks of 4096 rows.
BOUNDS = [0, 1, 17, 4095, 4096, 4097, 6000, 8192, 9000]


@pytest.fixture(params=SOURCES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def dense(source: Source, start: int, stop: int) -> np.ndarray:
    block = source.read_rows(start, stop)
    assert block.shape == (stop - start, source.info.n_features)
    assert block.dtype == source.info.dtype == np.float32
    assert sp.issparse(block) == source.info.is_sparse
    if isinstance(block, sp.csr_matrix):
        assert block.has_canonical_format
        return block.toarray()
    assert block.flags.c_contiguous
    return block


def test_labels_of_some_rows(name: str) -> None:
    """Drawn for these rows alone, and the same as those of all rows."""
    source = open_source(SourceSpec(source=SOURCES[name]))
    column, y = source.labels_column(), source.read_labels()
    assert column is not None
    assert column.read_rows is not None
    assert y is not None
    for start, stop in itertools.pairwise(BOUNDS):
        np.testing.assert_array_equal(column.read_rows(slice(start, stop)), y[start:stop])
    rows = SomeRows(source, 4100)
    numbers = SomeRows(ArraySource(np.arange(9000.0)[:, None]), 4100).read_rows(0, 4100)[:, 0].astype(int)
    np.testing.assert_array_equal(rows.read_labels(), y[numbers])


def whole(name: str) -> tuple[Source, np.ndarray, np.ndarray]:
    source = open_source(SourceSpec(source=SOURCES[name]))
    y = source.read_labels()
    assert y is not None
    assert y.shape == (source.info.n_samples,)
    return source, dense(source, 0, source.info.n_samples), y


def test_any_partition_gives_the_same_values(name: str) -> None:
    source, X, y = whole(name)
    parts = [dense(source, start, stop) for start, stop in itertools.pairwise(BOUNDS)]
    np.testing.assert_array_equal(np.vstack(parts), X)
    again = open_source(SourceSpec(source=SOURCES[name], labels="target"))
    np.testing.assert_array_equal(again.read_labels(), y)
    np.testing.assert_array_equal(dense(again, 5000, 5010), X[5000:5010])
    assert dense(source, 4096, 4096).shape == (0, source.info.n_features)


def test_blocks_differ(name: str) -> None:
    _, X, y = whole(name)
    assert not np.array_equal(X[:4096], X[4096:8192])
    assert not np.array_equal(y[:4096], y[4096:8192])


def test_more_rows_leave_the_first_ones_as_they_are(name: str) -> None:
    source, X, y = whole(name)
    more = open_source(SourceSpec(source=SOURCES[name].replace("9000", "13000")))
    np.testing.assert_array_equal(dense(more, 8000, 9000), X[8000:])
    np.testing.assert_array_equal(more.read_labels()[:9000], y)  # type: ignore[index]
    assert more.info.identity != source.info.identity


def test_the_seed_changes_everything(name: str) -> None:
    source, X, y = whole(name)
    other = open_source(SourceSpec(source=SOURCES[name].replace("seed=3", "seed=4")))
    assert other.info.identity != source.info.identity
    assert not np.array_equal(dense(other, 0, 9000), X)
    assert not np.array_equal(other.read_labels(), y)  # type: ignore[arg-type]
    assert other.info.feature_names != source.info.feature_names


def test_defaults_are_part_of_the_identity() -> None:
    short = open_source(SourceSpec(source="synthetic:mixture"))
    full = open_source(SourceSpec(source="synthetic:mixture?seed=0&n_classes=8"))
    assert short.info.identity == full.info.identity
    assert (short.info.n_samples, short.info.n_features) == (10_000, 64)


def _informative(source: Source) -> np.ndarray:
    assert source.info.feature_names is not None
    return np.array([label.startswith("informative_") for label in source.info.feature_names])


@pytest.mark.parametrize("name", SOURCES)
def test_informative_columns_are_those_that_tell_the_labels(name: str) -> None:
    source, X, y = whole(name)
    if name == "mixture":
        scores = f_classif(X, y)[0]
    elif name == "sparse":
        scores = chi2(X, y)[0]
    elif name == "nonlinear":  # the product of the two tells the classes, and nothing else is as narrow
        assert (y == (X[:, _informative(source)].prod(axis=1) < 0)).mean() > 0.85
        scores = -X.var(axis=0)
    else:
        scores = mutual_info_regression(X[:2000], y[:2000], random_state=0)
    informative = _informative(source)
    assert informative.sum() == {"mixture": 5, "sparse": 12, "lowrank": 8, "nonlinear": 2}[name]
    assert scores[informative].min() > scores[~informative].max()


def test_mixture_has_unit_noise_and_spread_separations() -> None:
    source, X, y = whole("mixture")
    informative = _informative(source)
    means = np.stack([X[y == label].mean(axis=0) for label in range(4)])
    spread = np.sort(means.std(axis=0)[informative])
    np.testing.assert_allclose(spread, np.linspace(0.2, 2, 5), atol=0.08)
    np.testing.assert_allclose((X - means[y]).std(axis=0), 1, atol=0.05)


def test_lowrank_has_that_rank() -> None:
    _, X, _ = whole("lowrank")
    values = np.linalg.svd(X, compute_uv=False)
    assert values[4] > 3 * values[5]


def test_sparse_counts() -> None:
    source, _, _ = whole("sparse")
    block = source.read_rows(0, 9000)
    assert isinstance(block, sp.csr_matrix)
    assert block.data.min() == 1
    assert np.all(block.data == np.round(block.data))
    noise = [index for index, label in enumerate(source.info.feature_names or ()) if label.startswith("noise_")]
    assert block[:, noise].nnz / (9000 * len(noise)) == pytest.approx(0.01, rel=0.05)


def test_nonlinear_is_the_mixture_of_weston_and_others() -> None:
    source, X, y = whole("nonlinear")
    informative = _informative(source)
    noise = X[:, ~informative]
    np.testing.assert_allclose(noise.var(axis=0), 20, rtol=0.08)
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=5 * (20 / 9000) ** 0.5)
    assert y.mean() == pytest.approx(0.5, abs=0.02)
    centers: dict[int, list[tuple[float, float]]] = {0: [(-0.75, -3), (0.75, 3)], 1: [(3, -3), (-3, 3)]}
    pair = X[:, informative]
    for label, (low, high) in centers.items():
        own = pair[y == label]
        upper = own[:, 1] > 0  # 3 deviations from either center
        assert upper.mean() == pytest.approx(0.5, abs=0.03)
        np.testing.assert_allclose(own[~upper].mean(axis=0), low, atol=0.1)
        np.testing.assert_allclose(own[upper].mean(axis=0), high, atol=0.1)
        np.testing.assert_allclose(own[upper].std(axis=0), 1, atol=0.06)
    # of the two likelihoods, that of the other class is larger for 3.1 % of the rows
    likelihood: dict[int, Any] = {
        label: sum(np.exp(-((pair - center) ** 2).sum(axis=1) / 2) for center in some)
        for label, some in centers.items()
    }
    assert ((likelihood[1] > likelihood[0]) != y).mean() == pytest.approx(0.031, abs=0.006)


def test_nonlinear_is_52_columns_wide_by_default() -> None:
    info = open_source(SourceSpec(source="synthetic:nonlinear")).info
    assert (info.n_samples, info.n_features) == (10_000, 52)


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        (
            "synthetic:mixtures",
            ["'synthetic:mixtures'", "'mixture', 'lowrank', 'sparse', 'nonlinear'", "Did you mean 'mixture'?"],
        ),
        ("synthetic:", ["'synthetic:'"]),
        ("synthetic:mixture?n_sample=3", ["'n_sample'", "Did you mean 'n_samples'?"]),
        ("synthetic:mixture?n_samples", ["n_samples=1000&seed=0"]),
        ("synthetic:mixture?n_samples=", ["n_samples is ''", "a whole number"]),
        ("synthetic:mixture?n_samples=1e6", ["n_samples is '1e6'", "a whole number"]),
        ("synthetic:mixture?n_samples=0", ["n_samples is 0", "at least 1"]),
        ("synthetic:mixture?n_classes=1", ["n_classes is 1", "at least 2"]),
        ("synthetic:mixture?n_features=8&n_informative=9", ["n_informative is 9", "at most 8"]),
        ("synthetic:mixture?seed=1&seed=2", ["seed twice"]),
        ("synthetic:mixture?seed=-1", ["seed is -1", "at least 0"]),
        ("synthetic:lowrank?noise=much", ["noise is 'much'", "a number"]),
        ("synthetic:lowrank?noise=inf", ["noise is inf"]),
        ("synthetic:lowrank?noise=nan", ["noise is nan"]),
        ("synthetic:lowrank?rank=1", ["rank is 1", "at least 2"]),
        ("synthetic:lowrank?n_features=5&rank=6", ["rank is 6", "at most 5"]),
        ("synthetic:nonlinear?n_features=1", ["n_features is 1", "at least 2"]),
        ("synthetic:nonlinear?n_classes=3", ["'n_classes'", "'n_samples', 'n_features', 'seed'"]),
        ("synthetic:sparse?density=0.9", ["density is 0.9", "at most 0.5"]),
    ],
)
def test_refused(source: str, parts: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        open_source(SourceSpec(source=source))
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)
