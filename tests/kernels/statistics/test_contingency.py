"""Tables of classes and gains against counting one by one and scikit-learn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import mutual_info_score

from daskfs.kernels.statistics.contingency import class_table, information_gain
from daskfs.kernels.statistics.moments import ROW_BLOCK
from tests.cases import each

FloatArray = NDArray[np.float64]


def example(n: int, width: int = 5) -> tuple[NDArray[np.int32], NDArray[np.bool_], FloatArray]:
    rng = np.random.default_rng(n)
    codes = rng.integers(-1, 3, size=n).astype(np.int32)
    return codes, rng.uniform(size=(n, width)) < 0.3, rng.integers(0, 4, size=n).astype(np.float64)


class TestClassTable:
    @each("n", [1, 7, 100, 5 * ROW_BLOCK + 3])
    def test_counts(self, n: int) -> None:
        codes, members, weights = example(n)
        expected = [members[codes == code].sum(axis=0) for code in range(4)]
        np.testing.assert_array_equal(class_table(codes, 4, members), expected)
        expected = [weights[codes == code] @ members[codes == code] for code in range(4)]
        np.testing.assert_array_equal(class_table(codes, 4, members, weights), expected)

    def test_bits_do_not_depend_on_the_width(self) -> None:
        codes, members, _ = example(20_000, 64)
        weights = np.random.default_rng(0).uniform(size=20_000)
        whole = class_table(codes, 3, members, weights)
        for width in (1, 2, 3, 7, 63):
            np.testing.assert_array_equal(class_table(codes, 3, members[:, :width], weights), whole[:, :width])

    def test_no_row_counts(self) -> None:
        table = class_table(np.full(4, -1), 2, np.ones((4, 3), dtype=bool))
        np.testing.assert_array_equal(table, np.zeros((2, 3)))


class TestInformationGain:
    def test_mutual_information_of_scikit_learn(self) -> None:
        rng = np.random.default_rng(2)
        classes, bins = rng.integers(0, 4, size=300), rng.integers(0, 5, size=(300, 8))
        bins[:150] //= 2
        tables = np.zeros((4, 5, 8))
        for column in range(8):
            np.add.at(tables[:, :, column], (classes, bins[:, column]), 1.0)
        expected = [mutual_info_score(classes, column) / np.log(2) for column in bins.T]
        np.testing.assert_allclose(information_gain(tables), expected, rtol=1e-10)

    def test_extremes(self) -> None:
        independent = np.outer([2.0, 6.0, 4.0], [1.0, 5.0])
        known = np.array([[4.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
        empty = np.zeros((3, 2))
        found = information_gain(np.stack([independent, known, empty], axis=2))
        np.testing.assert_array_equal(found, [0.0, 1.0, 0.0])

    def test_scaling_the_counts_changes_nothing(self) -> None:
        tables = np.random.default_rng(3).integers(0, 50, size=(3, 4, 6)).astype(np.float64)
        np.testing.assert_allclose(information_gain(tables * 0.37), information_gain(tables), rtol=1e-12)
        np.testing.assert_array_equal(information_gain(tables * 4), information_gain(tables))
