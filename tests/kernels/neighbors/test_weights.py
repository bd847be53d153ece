"""Edge weights against the reference's, which is written from the formulas."""

from __future__ import annotations

import numpy as np

from daskfs.kernels.neighbors.weights import edge_weights
from tests.cases import each
from tests.reference.graph import binary, cosine, heat

LENGTHS = np.array([0.0, 1e-8, 0.3, 1.0, 1.7, 2.0])


@each("t", [1e-3, 0.7, 2.0, 1e6])
def test_heat(t: float) -> None:
    expected = [heat(t)(float(length)) for length in LENGTHS]
    np.testing.assert_allclose(edge_weights(LENGTHS, "heat", t), expected, rtol=1e-15)


def test_heat_of_a_missing_neighbor_is_zero() -> None:
    assert edge_weights(np.array([np.inf]), "heat", 1.0)[0] == 0.0


def test_binary() -> None:
    expected = [binary()(float(length)) for length in LENGTHS]
    np.testing.assert_array_equal(edge_weights(LENGTHS, "binary", 1.0), expected)


def test_cosine_and_zero_beyond_a_right_angle() -> None:
    expected = [max(cosine()(float(length)), 0.0) for length in LENGTHS]
    np.testing.assert_array_equal(edge_weights(LENGTHS, "cosine", 1.0), expected)
