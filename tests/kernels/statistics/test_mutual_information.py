"""Normalized mutual information of a two-way cut with the classes, and where the cut lies."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import normalized_mutual_info_score

from daskfs.kernels.statistics.mutual_information import cut_point, normalized_mutual_information
from tests.cases import each
from tests.reference.sselect import nmi

FIVE_AND_FIVE = [(1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (4, 0), (4, 1), (5, 0), (1, 1)]
FOOTNOTE_4 = [0.8920, 0.7635, 0.6042, 0.9651, 0.8755, 0.3900, 0.7219, 0.0, 1.0]


def tables(signs: np.ndarray, codes: np.ndarray, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    upper = np.array([signs[codes == code].sum(axis=0) for code in range(n_classes)], dtype=np.float64)
    return upper, np.bincount(codes, minlength=n_classes).astype(np.float64)


def test_footnote_4() -> None:
    """G1: 5 + 5 labeled rows, by rows of either class on the upper side."""
    found = 1 - normalized_mutual_information(np.array(FIVE_AND_FIVE, dtype=np.float64).T, np.array([5.0, 5.0]))
    np.testing.assert_array_equal(found.round(4), FOOTNOTE_4)


@given(st.data())
def test_any_number_of_classes(data: st.DataObject) -> None:
    n, n_classes = data.draw(st.integers(1, 25)), data.draw(st.integers(1, 6))
    codes = data.draw(hnp.arrays(np.int64, n, elements=st.integers(0, n_classes - 1)))
    signs = data.draw(hnp.arrays(np.int64, (n, 3), elements=st.integers(0, 1)))
    found = normalized_mutual_information(*tables(signs, codes, n_classes))
    np.testing.assert_allclose(found, [nmi(column, codes) for column in signs.T], atol=1e-12)
    differs = np.ptp(signs, axis=0) * np.ptp(codes) > 0
    peer = [normalized_mutual_info_score(codes, column, average_method="max") for column in signs.T]
    np.testing.assert_allclose(found, np.where(differs, peer, 0.0), atol=1e-12)
    assert ((found >= 0) & (found <= 1)).all()


@given(st.data())
def test_sides_classes_and_width_change_no_bit(data: st.DataObject) -> None:
    counts = data.draw(hnp.arrays(np.float64, data.draw(st.integers(1, 6)), elements=st.integers(0, 9)))
    share = data.draw(hnp.arrays(np.float64, (counts.size, 4), elements=st.sampled_from([0.0, 0.5, 1.0])))
    upper = np.floor(share * counts[:, None])
    order = data.draw(st.permutations(range(counts.size)))
    expected = normalized_mutual_information(upper, counts)
    np.testing.assert_array_equal(normalized_mutual_information(counts[:, None] - upper, counts), expected)
    np.testing.assert_array_equal(normalized_mutual_information(upper[order], counts[order]), expected)
    one_by_one = [normalized_mutual_information(upper[:, [i]], counts)[0] for i in range(4)]
    np.testing.assert_array_equal(one_by_one, expected)


@each("counts", [(5, 5), (1, 1), (3, 7), (10, 1), (999_983, 17), (4 * 10**7, 6 * 10**7)])
def test_a_cut_that_is_the_classes_has_exactly_all_information(counts: tuple[int, int]) -> None:
    found = normalized_mutual_information(np.array([[counts[0]], [0.0]]), np.array(counts, dtype=np.float64))
    assert found[0] == 1.0


def test_a_cut_with_the_same_shares_has_exactly_none() -> None:
    upper = np.array([[1.0, 3.0], [2.0, 6.0], [5.0, 15.0]])
    assert normalized_mutual_information(upper, np.array([7.0, 14.0, 35.0])).tolist() == [0.0, 0.0]


def test_weights_count_as_rows_do() -> None:
    upper, counts = np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([2.0, 4.0])
    np.testing.assert_allclose(
        normalized_mutual_information(0.25 * upper, 0.25 * counts), normalized_mutual_information(upper, counts)
    )


def test_values_at_the_mean_but_for_rounding_lie_above_the_cut() -> None:
    values = np.array([0.1, 0.2, 0.3, -0.6, 0.0])
    mean, deviation = np.array([[np.mean(values)], [0.0]]), np.array([np.std(values)])
    assert mean[0, 0] != 0.0
    assert (values >= cut_point(mean, deviation)).tolist() == [True, True, True, False, True]
    above = np.nextafter(1e8, np.inf)
    mean = np.array([[above], [1e8 - above]])
    assert (values + 1e8 >= cut_point(mean, deviation)).tolist() == [True, True, True, False, True]
    assert not (values - 1e-9 >= cut_point(np.zeros((2, 1)), deviation))[4]


def test_a_cut_between_two_adjacent_numbers_divides_them() -> None:
    values = np.array([0.3, np.nextafter(0.3, 1.0)])
    for rest in (0.1, 0.5, 0.9):
        for mean in ([[values[0]], [rest * 2.0**-54]], [[values[1]], [(rest - 1) * 2.0**-54]]):
            assert (values >= cut_point(np.array(mean), np.array([2.0**-55]))).tolist() == [False, True]
