"""The public matrix of distance correlations: every form of X, every option, every refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from daskfs import distance_correlation_matrix
from daskfs.criteria.distance_correlation.matrix import FeatureCorrelations
from daskfs.errors import MemoryPlanError
from daskfs.kernels.distance_correlation.spec import CorrelationSpec
from daskfs.plan.inline import find_correlations, memory_context
from tests.optional import pandas as pd
from tests.reference import distance as reference

N, D = 240, 9
WAYS = ("exact", "feature_map")


def values() -> np.ndarray:
    """Multiples of 1/8, which float32 holds, with many zeros, ties, a constant column and a copy."""
    rng = np.random.default_rng(0)
    X = np.round(8 * rng.normal(size=(N, D)) * np.linspace(0.5, 9, D)) / 8
    X[rng.uniform(size=(N, D)) < 0.4] = 0.0
    X[:, 3] = X[:, 0] ** 2
    X[:, 5] = 2.5
    X[:, 7] = X[:, 6]
    return X


X = values()
FORMS: dict[str, Callable[[Path], Any]] = {
    "float32": lambda _: X.astype(np.float32),
    "csr": lambda _: sp.csr_matrix(X),
    "csc": lambda _: sp.csc_matrix(X),
    "frame": lambda _: pd.DataFrame(X, columns=[f"gene {j}" for j in range(D)]),
    "dask": lambda _: da.from_array(X, chunks=(50, 4)),
    "path": lambda folder: saved(folder),
    "zarr": lambda folder: zarr.array(X, store=str(folder / "X.zarr"), chunks=(100, 4)),
    "sparse path": lambda folder: saved(folder, sparse=True),
}


def saved(folder: Path, *, sparse: bool = False) -> Path:
    if sparse:
        sp.save_npz(folder / "X.npz", sp.csr_matrix(X))
        return folder / "X.npz"
    np.save(folder / "X.npy", X)
    return folder / "X.npy"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMS)
def test_one_answer_for_every_form(tmp_path: Path, form: str, way: Any) -> None:
    found = distance_correlation_matrix(FORMS[form](tmp_path), correlation=way)
    np.testing.assert_array_equal(found, distance_correlation_matrix(X, correlation=way))


@pytest.mark.parametrize("way", WAYS)
def test_dask_in_blocks_of_columns(way: Any) -> None:
    found = distance_correlation_matrix(da.from_array(X, chunks=(50, 4)), correlation=way)
    np.testing.assert_array_equal(found, distance_correlation_matrix(X, correlation=way))


@pytest.mark.parametrize("corrected", [False, True])
def test_values(corrected: bool) -> None:
    expected = reference.distance_correlations(X, bias_corrected=corrected)
    exact = distance_correlation_matrix(X, bias_corrected=corrected)
    np.testing.assert_allclose(exact, expected, atol=1e-11)
    mapped = distance_correlation_matrix(X, correlation="feature_map", bias_corrected=corrected)
    np.testing.assert_allclose(mapped, expected, atol=3e-3)
    roots = distance_correlation_matrix(X, squared=False, bias_corrected=corrected)
    np.testing.assert_allclose(roots, np.sqrt(exact), atol=1e-15)
    for found in (exact, mapped, roots):
        np.testing.assert_array_equal(found, found.T)
        np.testing.assert_array_equal(np.diag(found), np.arange(D) != 5)
        assert found[6, 7] == 1
        assert ((found >= 0) & (found <= 1)).all()


def test_more_features_than_a_block_holds() -> None:
    rng = np.random.default_rng(1)
    wide = rng.integers(0, 4, size=(40, 600)).astype(np.float64)
    wide[:, ::3] = rng.normal(size=(40, 200))
    expected = reference.distance_correlations(wide)
    for way, tolerance in (("exact", 1e-11), ("feature_map", 0.05)):
        found, facts = distance_correlation_matrix(wide, correlation=way, return_facts=True)  # type: ignore[call-overload]
        np.testing.assert_allclose(found, expected, atol=tolerance)
        np.testing.assert_array_equal(found, found.T)
        assert np.abs(found - expected).max() <= facts["error_bound"] + 1e-11
    few = np.flatnonzero(np.arange(600) % 3)
    np.testing.assert_allclose(found[np.ix_(few, few)], expected[np.ix_(few, few)], atol=1e-12)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(4, 30), st.sampled_from(WAYS), st.booleans())
def test_order_of_rows_and_repeats(seed: int, n: int, way: Any, corrected: bool) -> None:
    rng = np.random.default_rng(seed)
    own = np.column_stack([rng.integers(0, 3, n), rng.normal(size=(n, 2)), rng.integers(0, 9, n)])
    settings_of = {"correlation": way, "bias_corrected": corrected}
    found = distance_correlation_matrix(own, **settings_of)
    shuffled = distance_correlation_matrix(own[rng.permutation(n)], **settings_of)
    np.testing.assert_allclose(shuffled, found, atol=1e-6)
    weights = rng.integers(0, 3, n)
    if (weights > 0).sum() >= 2 and weights.sum() >= 4:
        weighted = distance_correlation_matrix(own, sample_weight=weights, **settings_of)
        repeated = distance_correlation_matrix(np.repeat(own, weights, axis=0), **settings_of)
        np.testing.assert_allclose(weighted, repeated, atol=1e-6)


def test_scaling() -> None:
    positive = np.abs(X) + 0.125
    np.testing.assert_array_equal(
        distance_correlation_matrix(positive, score_scaling="zscore"), distance_correlation_matrix(positive)
    )
    np.testing.assert_allclose(
        distance_correlation_matrix(positive, score_scaling="log1p"),
        distance_correlation_matrix(np.log1p(positive)),
        atol=1e-12,
    )
    unit = positive / np.linalg.norm(positive, axis=1)[:, None]
    for way in WAYS:
        found = distance_correlation_matrix(positive, score_scaling="unit", correlation=way)  # type: ignore[call-overload]
        np.testing.assert_allclose(found, distance_correlation_matrix(unit, correlation=way), atol=1e-5)  # type: ignore[call-overload]


class TestFacts:
    def test_exact(self) -> None:
        _, facts = distance_correlation_matrix(X, return_facts=True)
        assert facts == {
            "correlation": "exact",
            "n_rows": N,
            "n_components": None,
            "bias_corrected": False,
            "error_bound": 0.0,
            "sampling_error": 0.0,
        }

    def test_of_some_rows(self) -> None:
        found, facts = distance_correlation_matrix(X, n_rows=120, correlation="feature_map", return_facts=True)
        assert facts["n_rows"] == 120
        assert 0.1 < facts["sampling_error"] < 0.2
        assert 0 < facts["error_bound"] < 0.5
        assert 8 <= facts["n_components"] <= 16
        whole = distance_correlation_matrix(X)
        assert 0 < np.abs(found - whole).max() < facts["sampling_error"] + facts["error_bound"]

    def test_weights_of_0_are_no_rows(self) -> None:
        _, facts = distance_correlation_matrix(X, sample_weight=np.arange(N) % 2, return_facts=True)
        assert facts["n_rows"] == N // 2


class TestChoice:
    @pytest.mark.parametrize(
        ("n", "d", "way"),
        [
            (256, 20_000, "exact"),
            (62, 2000, "exact"),
            (1000, 200, "exact"),
            (1000, 201, "feature_map"),
            (10**8, 20_000, "feature_map"),
            (10**8, 20_001, "matrix_free"),
            (62, 20_001, "matrix_free"),
        ],
    )
    def test_by_size(self, n: int, d: int, way: str) -> None:
        context = memory_context(sp.csr_matrix((1, 1)), None)
        shape = context.tiles.shape
        sized = type(shape)(n, d, shape.dtype, shape.is_sparse, shape.nnz, n, d)
        assert CorrelationSpec().resolved(sized).correlation == way
        assert CorrelationSpec(correlation="exact").resolved(sized).correlation == "exact"

    def test_names_tell_specs_apart(self) -> None:
        specs = [
            CorrelationSpec(),
            CorrelationSpec("exact"),
            CorrelationSpec("feature_map"),
            CorrelationSpec("feature_map", 4),
            CorrelationSpec("feature_map", n_rows=None),
            CorrelationSpec("feature_map", bias_corrected=True),
            CorrelationSpec("feature_map", scaling="log1p"),
            CorrelationSpec("matrix_free"),
        ]
        assert len({spec.name for spec in specs}) == len(specs)
        assert CorrelationSpec("exact", 4, scaling="zscore").name == CorrelationSpec("exact").name


class TestWithoutTheMatrix:
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
    def test_products(self, form: Callable[[np.ndarray], Any]) -> None:
        v = np.random.default_rng(2).normal(size=D)
        v[2:5] = 0
        ways: dict[str, FeatureCorrelations] = {
            way: find_correlations(memory_context(form(X), None), CorrelationSpec(way))  # type: ignore[arg-type]
            for way in (*WAYS, "matrix_free")
        }
        expected = reference.distance_correlations(X)
        for way, found in ways.items():
            atol = 0.02 if way == "feature_map" else 1e-11
            np.testing.assert_allclose(found.product(v), expected @ v, atol=atol)
            np.testing.assert_allclose(found.degrees(), expected.sum(axis=1), atol=atol)
            np.testing.assert_allclose(found.columns(6), expected[6], atol=atol)
            np.testing.assert_allclose(found.product(v, v != 0), np.where(v != 0, expected @ v, 0), atol=atol)
            assert found.product(v)[5] == 0
            assert found.columns(6)[7] == pytest.approx(1.0)
            assert found.facts["correlation"] == way

    def test_columns_of_many_blocks(self) -> None:
        wide = np.random.default_rng(3).normal(size=(30, 530))
        found = find_correlations(memory_context(wide, None), CorrelationSpec("exact"))
        matrix = found.matrix()
        for feature in (0, 255, 256, 400, 529):
            np.testing.assert_array_equal(found.columns(feature), matrix[feature])
        v = np.random.default_rng(4).normal(size=530)
        np.testing.assert_allclose(found.product(v), matrix @ v, atol=1e-12)

    def test_is_refused_here(self) -> None:
        with pytest.raises(ValueError, match="'matrix_free' never forms the matrix"):
            distance_correlation_matrix(X, correlation="matrix_free")  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="set bias_corrected to false"):
            CorrelationSpec("matrix_free", bias_corrected=True).resolved(memory_context(X, None).tiles.shape)


class TestRefusals:
    def test_missing_value(self) -> None:
        bad = X.copy()
        bad[[7, 30], 3] = np.nan
        with pytest.raises(ValueError, match="column 3 of X has NaN in row 7"):
            distance_correlation_matrix(bad)

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            ({"correlation": "pearson"}, "correlation must be one of 'auto', 'exact', 'feature_map'"),
            ({"score_scaling": "minmax"}, "score_scaling 'minmax': unknown step 'minmax'"),
            ({"n_components": 0}, "n_components must be from 1 to 64"),
            ({"n_components": 2.5}, "n_components must be a whole number"),
            ({"n_rows": 1}, "n_rows must be None or at least 2"),
            ({"n_rows": True}, "n_rows must be a whole number"),
            ({"sample_weight": np.ones(3)}, "sample_weight"),
            ({"sample_weight": np.arange(N) == 4}, "at least 2 rows that count"),
        ],
    )
    def test_options(self, option: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            distance_correlation_matrix(X, **option)

    def test_too_few_rows(self) -> None:
        with pytest.raises(ValueError, match="at least 2 rows"):
            distance_correlation_matrix(X[:1])
        with pytest.raises(ValueError, match="at least 4 rows"):
            distance_correlation_matrix(X[:3], bias_corrected=True)
        assert distance_correlation_matrix(X[:3]).shape == (D, D)

    def test_too_many_features(self) -> None:
        with pytest.raises(MemoryPlanError, match=r"20001 features take 3[.]0 GiB: give at most 20000"):
            distance_correlation_matrix(sp.csr_matrix((5, 20_001)))

    def test_weights_of_a_path(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=f"sample_weight has 3 values, and X has {N} rows"):
            distance_correlation_matrix(saved(tmp_path), sample_weight=np.ones(3))


@pytest.mark.parametrize("way", WAYS)
def test_smallest(way: Any) -> None:
    np.testing.assert_array_equal(distance_correlation_matrix(X[:2, :1] + [[0], [1]], correlation=way), [[1]])
    pair = np.array([[0, 5, 1], [1, 3, 1]])
    np.testing.assert_allclose(distance_correlation_matrix(pair, correlation=way), [[1, 1, 0], [1, 1, 0], [0, 0, 0]])


def test_constant_features_only() -> None:
    for way in WAYS:
        for corrected in (False, True):
            found = distance_correlation_matrix(np.ones((20, 3)), correlation=way, bias_corrected=corrected)  # type: ignore[call-overload]
            np.testing.assert_array_equal(found, np.zeros((3, 3)))
