"""Values of an evaluation, side by side."""

from __future__ import annotations

import numpy as np
import pytest

from daskfs.evaluation.summaries import Cell, Cube

NAN = float("nan")
DRAWS: tuple[Cell, ...] = ((None, 4, 0, 0), (None, 4, 0, 1), (None, 7, 0, 0), (None, 7, 0, 1))
FOLDS: tuple[Cell, ...] = ((None, None, 0, 0), (None, None, 0, 1), (None, None, 1, 0), (None, None, 1, 1))


@pytest.mark.parametrize(
    ("cells", "values", "counted"),
    [
        (DRAWS, [0.1, 0.2, 0.1, 0.2], [True, True, False, False]),
        (DRAWS, [0.1, NAN, 0.1, NAN], [True, True, False, False]),
        (DRAWS, [0.1, 0.2, 0.1, 0.3], [True] * 4),
        (DRAWS, [0.1, NAN, 0.1, 0.2], [True] * 4),
        (FOLDS, [0.1, 0.1, 0.1, 0.1], [True] * 4),
    ],
    ids=["draws alike", "draws alike without a value", "draws that differ", "a value in one draw", "folds alike"],
)
def test_draws_of_labels_that_all_came_to_the_same_count_once(
    cells: tuple[Cell, ...], values: list[float], counted: list[bool]
) -> None:
    cube = Cube("inductive", "ridge", "r2", None, 8, ("A",), (3,), cells, np.array([[values]]), 0.5)
    np.testing.assert_array_equal(cube.is_counted(np.array(values)), counted)
