"""Quadratic programs with bounds and one sum: conditions of the minimum, and another solver's value."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from daskfs.kernels.svm import quadratic_program
from daskfs.kernels.svm.quadratic_program import BoxProgram, BoxSolution, by_blocks, solve_box
from tests.cases import each
from tests.reference.svm import gaussian, minimize, weston


def value(program: BoxProgram, x: np.ndarray) -> float:
    return float(x @ program.Q @ x / 2.0 - program.q @ x)


def size(program: BoxProgram) -> float:
    return max(1.0, np.abs(program.q).max(), np.diagonal(program.Q).max())


def violation(program: BoxProgram, x: np.ndarray) -> float:
    """By how much the largest multiplier of a variable that may fall exceeds the least of one that may rise."""
    gradient = program.Q @ x - program.q
    margin = 1e-12 * max(1.0, np.abs(x).max())
    rises, falls = x < program.upper - margin, x > program.lower + margin
    return float(max(0.0, gradient[falls].max(initial=-np.inf) - gradient[rises].min(initial=np.inf)))


def assert_solved(program: BoxProgram, found: BoxSolution, tolerance: float = 1e-9) -> None:
    assert (found.x >= program.lower).all()
    assert (found.x <= program.upper).all()
    assert found.x.sum() == pytest.approx(program.total, abs=1e-9 * max(1.0, np.abs(found.x).sum()))
    assert violation(program, found.x) <= tolerance * size(program)
    gradient = program.Q @ found.x - program.q
    inside = (found.x > program.lower) & (found.x < program.upper)
    np.testing.assert_allclose(gradient[inside], -found.offset, atol=tolerance * size(program))


def machine_program(K: np.ndarray, y: np.ndarray, C: float) -> BoxProgram:
    return BoxProgram(K, y, 0.0, np.minimum(0.0, C * y), np.maximum(0.0, C * y))


def sphere_program(K: np.ndarray) -> BoxProgram:
    n = len(K)
    return BoxProgram(2.0 * K, np.diagonal(K).copy(), 1.0, np.zeros(n), np.full(n, np.inf))


@st.composite
def programs(draw: st.DrawFn) -> tuple[BoxProgram, np.ndarray]:
    """Return a program, with rows that are there twice and Q of any rank, and a start within its bounds."""
    n, rank = draw(st.integers(1, 25)), draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    A = rng.normal(size=(n, rank)) * 10.0 ** draw(st.integers(-2, 2))
    for _ in range(draw(st.integers(0, 3))):
        A[rng.integers(n)] = A[rng.integers(n)]
    lower = rng.normal(size=n) * 10.0 ** draw(st.integers(-1, 1))
    upper = lower + rng.exponential(size=n) + 0.01
    if draw(st.booleans()):
        upper[rng.random(n) < 0.5] = np.inf
    start = lower + rng.random(n) * (np.minimum(upper, lower + 1.0) - lower)
    start = np.where(rng.random(n) < 0.3, lower, start)
    if draw(st.booleans()):  # a value of Q where its rank is low, or q may leave it
        q = A @ rng.normal(size=rank)
    else:
        q = rng.normal(size=n)
        A = np.hstack([A, np.eye(n)])
    return BoxProgram(A @ A.T, q, float(start.sum()), lower, upper), start


class TestRandomPrograms:
    @given(programs())
    @settings(max_examples=100)
    def test_conditions(self, given_: tuple[BoxProgram, np.ndarray]) -> None:
        program, start = given_
        found = solve_box(program, start)
        assert_solved(program, found, 1e-8)
        assert found.violation <= 1e-8 * size(program)

    @given(programs())
    @settings(max_examples=40)
    def test_as_interior_points(self, given_: tuple[BoxProgram, np.ndarray]) -> None:
        program, start = given_
        assume(program.lower.sum() + 1e-3 < program.total < program.upper.sum() - 1e-3)
        expected, _ = minimize(program.Q, program.q, program.total, program.lower, program.upper)
        found = solve_box(program, start).x
        worse = value(program, found) - value(program, expected)
        assert worse <= 1e-8 * size(program) * max(1.0, np.abs(found).max()) ** 2

    @given(programs())
    @settings(max_examples=40)
    def test_pairs_alone_come_to_the_same(self, given_: tuple[BoxProgram, np.ndarray]) -> None:
        program, start = given_
        x, is_there = start, False
        for _ in range(5):
            x, is_there = quadratic_program._by_pairs(program, x)
            if is_there:
                break
        assert (x >= program.lower).all()
        assert (x <= program.upper).all()
        found = solve_box(program, start).x
        scale = size(program) * max(1.0, np.abs(found).max()) ** 2
        assert value(program, x) - value(program, found) >= -1e-8 * scale
        if is_there:
            assert value(program, x) - value(program, found) <= 1e-6 * scale

    @given(programs())
    @settings(max_examples=40)
    def test_path_alone_comes_to_the_same(self, given_: tuple[BoxProgram, np.ndarray]) -> None:
        program, start = given_
        x, _ = quadratic_program._by_path(program, start)
        assert (x >= program.lower).all()
        assert (x <= program.upper).all()
        if not program.lower.sum() + 1e-6 < program.total < program.upper.sum() - 1e-6:
            return
        assert x.sum() == pytest.approx(program.total, abs=1e-7 * max(1.0, np.abs(x).sum()))
        found = solve_box(program, start).x
        scale = size(program) * max(1.0, np.abs(found).max()) ** 2
        assert abs(value(program, x) - value(program, found)) <= 1e-7 * scale

    @given(programs(), st.integers(0, 5))
    @settings(max_examples=40)
    def test_any_start_comes_to_the_same(self, given_: tuple[BoxProgram, np.ndarray], seed: int) -> None:
        program, start = given_
        rng = np.random.default_rng(seed)
        other = np.where(rng.random(start.size) < 0.5, program.lower, np.minimum(program.upper, program.lower + 1.0))
        a, b = solve_box(program, start).x, solve_box(program, other).x
        scale = size(program) * max(1.0, np.abs(a).max()) ** 2
        assert abs(value(program, a) - value(program, b)) <= 1e-8 * scale


class TestBlocksAndPairs:
    """Blocks of sets may come back to where they were; pairs then lead to better sets, or a path does."""

    @each("C", [1.0, 1e3])
    @each("n_features", [2, 8, 52])
    @each("n", [10, 60, 150])
    def test_machines(self, n: int, n_features: int, C: float) -> None:
        X, y = weston(n, 3)
        program = machine_program(gaussian(X[:, :n_features], 1.0 / n_features), y, C)
        found = solve_box(program, C * y / 2.0)
        assert_solved(program, found)
        pairs, is_there = np.zeros(n), False
        for _ in range(50):
            pairs, is_there = quadratic_program._by_pairs(program, pairs)
            if is_there:
                break
        assert abs(value(program, pairs) - value(program, found.x)) <= 1e-7 * abs(value(program, found.x))

    def test_blocks_that_turn_in_circles(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """There are such programs among these; every one of them is solved all the same."""
        n_failed = 0
        by_pairs = mock.Mock(wraps=quadratic_program._by_pairs)
        monkeypatch.setattr(quadratic_program, "_by_pairs", by_pairs)
        for seed in range(20):
            X, y = weston(30, seed)
            K = gaussian(X[:, :2], 4.0)
            for program, start in (
                (machine_program(K, y, 10.0), 5.0 * y),
                (sphere_program(K), np.full(30, 1 / 30)),
                (sphere_program(gaussian(X[:, :2], 0.01)), np.full(30, 1 / 30)),
            ):
                n_failed += by_blocks(program, start) is None
                assert_solved(program, solve_box(program, start))
        assert 0 < n_failed <= by_pairs.call_count

    def test_blocks_that_never_hold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Then pairs end it, and say how well."""
        monkeypatch.setattr(quadratic_program, "by_blocks", lambda *_: None)
        X, y = weston(40, 0)
        for program in (machine_program(gaussian(X, 1 / 52), y, 10.0), sphere_program(gaussian(X, 1 / 52))):
            found = solve_box(program, np.clip(y, program.lower, np.minimum(program.upper, 1.0)))
            assert_solved(program, found)
            assert 0 <= found.violation <= 1e-10
            gradient = program.Q @ found.x - program.q
            np.testing.assert_allclose(gradient[found.is_free], -found.offset, atol=1e-9)

    @pytest.mark.parametrize("n", [100, pytest.param(200, marks=pytest.mark.long)])
    def test_kernels_that_are_all_but_singular(self, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of one feature: pairs would take minutes; the end of a path tells the sets."""
        by_path = mock.Mock(wraps=quadratic_program._by_path)
        monkeypatch.setattr(quadratic_program, "_by_path", by_path)
        X, y = weston(n, 0)
        K = gaussian(X[:, :1], 10.0)
        assert np.linalg.cond(K) > 1e15
        sphere = sphere_program(K)
        assert by_blocks(sphere, np.full(n, 1 / n)) is None
        assert_solved(sphere, solve_box(sphere, np.full(n, 1 / n)))
        assert by_path.call_count == 1
        for C in (10.0, 1e5):
            program = machine_program(K, y, C)
            assert_solved(program, solve_box(program, C * y / 2), 1e-11 * C + 1e-9)

    def test_path_where_blocks_never_hold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(quadratic_program, "by_blocks", lambda *_: None)
        monkeypatch.setattr(quadratic_program, "STEPS", 1)
        X, _ = weston(100, 0)
        sphere = sphere_program(gaussian(X[:, :1], 10.0))
        assert_solved(sphere, solve_box(sphere, np.full(100, 0.01)))

    def test_path_without_an_interior(self) -> None:
        program = BoxProgram(np.eye(2), np.ones(2), 0.0, np.zeros(2), np.ones(2))
        x, is_there = quadratic_program._by_path(program, np.zeros(2))
        assert (x.tolist(), is_there) == ([0.0, 0.0], False)
        assert solve_box(program, np.ones(2)).x.tolist() == [0.0, 0.0]

    def test_out_of_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is left undone is said."""
        monkeypatch.setattr(quadratic_program, "by_blocks", lambda *_: None)
        monkeypatch.setattr(quadratic_program, "STEPS", 1)
        monkeypatch.setattr(quadratic_program, "PATH_STEPS", 3)
        X, y = weston(40, 0)
        program = machine_program(gaussian(X, 1 / 52), y, 10.0)
        found = solve_box(program, np.zeros(40))
        assert found.violation == pytest.approx(violation(program, found.x))
        assert found.violation > 1e-3


class TestFewVariables:
    def test_one(self) -> None:
        program = BoxProgram(np.array([[2.0]]), np.array([3.0]), 0.25, np.zeros(1), np.ones(1))
        found = solve_box(program, np.array([0.9]))
        assert found.x.tolist() == [0.25]
        assert found.offset == pytest.approx(2.5)

    def test_one_whose_sum_is_its_bound(self) -> None:
        program = BoxProgram(np.array([[2.0]]), np.array([3.0]), 1.0, np.zeros(1), np.ones(1))
        for start in (0.0, 0.5, 1.0):
            assert solve_box(program, np.array([start])).x.tolist() == [1.0]

    @each("C", [0.1, 1.0, 100.0])
    @each("far", [0.0, 0.5, 3.0])
    def test_two_rows_of_two_classes(self, far: float, C: float) -> None:
        """alpha = min(C, 1 / (1 - k)), and C where they are the same row."""
        k = np.exp(-far)
        program = machine_program(np.array([[1.0, k], [k, 1.0]]), np.array([-1.0, 1.0]), C)
        alpha = C if far == 0 else min(C, 1.0 / (1.0 - k))
        for start in (0.0, C / 2, C):
            found = solve_box(program, np.array([-start, start]))
            np.testing.assert_allclose(found.x, [-alpha, alpha], rtol=1e-12)
            assert found.offset == pytest.approx(0.0, abs=1e-12)

    def test_three_rows(self) -> None:
        """The one in the middle may be at C, and the others share what balances it."""
        x = np.array([0.0, 1.0, 2.0])
        K = np.exp(-(np.subtract.outer(x, x) ** 2))
        for C in (0.5, 5.0):
            program = machine_program(K, np.array([1.0, -1.0, 1.0]), C)
            found = solve_box(program, np.zeros(3))
            assert_solved(program, found)
            assert found.x[0] == pytest.approx(found.x[2])
            assert found.x[1] == pytest.approx(-2 * found.x[0])
        assert found.x[1] == pytest.approx(-4 / (3 - 4 * np.exp(-1) + np.exp(-4)))


class TestDegenerate:
    def test_all_at_bound(self) -> None:
        """C so small that no margin is met; offsets between which nothing changes, and their middle is taken."""
        X, y = weston(40, 1)
        program = machine_program(gaussian(X, 1 / 52), y, 1e-3)
        found = solve_box(program, 5e-4 * y)
        np.testing.assert_array_equal(np.abs(found.x), 1e-3)
        assert not found.is_free.any()
        pull = y - program.Q @ found.x
        assert found.offset == pytest.approx((pull[y > 0].min() + pull[y < 0].max()) / 2)
        assert abs(found.offset) < 0.1

    def test_all_at_bound_but_what_balances_the_larger_class(self) -> None:
        y = np.where(np.arange(40) < 10, 1.0, -1.0)
        X = np.random.default_rng(0).normal(size=(40, 5))
        program = machine_program(gaussian(X, 0.2), y, 1e-3)
        found = solve_box(program, 5e-4 * y)
        assert_solved(program, found)
        assert (found.x[y > 0] == 1e-3).all()
        assert found.x[y < 0].sum() == pytest.approx(-0.01)

    def test_rows_that_are_there_twice(self) -> None:
        """Only their sum is settled."""
        X, y = weston(30, 2)
        once = solve_box(machine_program(gaussian(X, 1 / 52), y, 20.0), 10.0 * y)
        twice = machine_program(gaussian(np.vstack([X, X]), 1 / 52), np.append(y, y), 10.0)
        found = solve_box(twice, 5.0 * twice.q)
        assert_solved(twice, found)
        np.testing.assert_allclose(found.x[:30] + found.x[30:], once.x, atol=1e-7)
        assert found.offset == pytest.approx(once.offset, abs=1e-9)

    def test_a_row_in_both_classes(self) -> None:
        X, y = weston(30, 2)
        program = machine_program(gaussian(np.vstack([X, X[:3]]), 1 / 52), np.append(y, -y[:3]), 10.0)
        found = solve_box(program, 5.0 * program.q)
        assert_solved(program, found)
        np.testing.assert_allclose(np.abs(found.x[30:]), 10.0)

    def test_kernel_of_ones(self) -> None:
        """All rows are the same."""
        y = np.where(np.arange(12) < 5, 1.0, -1.0)
        program = machine_program(np.ones((12, 12)), y, 10.0)
        found = solve_box(program, 5.0 * y)
        assert_solved(program, found)
        assert found.offset == pytest.approx(-1.0)
        sphere = solve_box(sphere_program(np.ones((12, 12))), np.full(12, 1 / 12))
        assert sphere.x.sum() == pytest.approx(1.0)

    def test_linear_kernel_of_one_feature(self) -> None:
        x = np.linspace(-1, 1, 50)
        program = machine_program(np.outer(x, x), np.where(x > 0.3, 1.0, -1.0), 1e4)
        found = solve_box(program, 5e3 * program.q)
        assert_solved(program, found, 1e-8)
        free = np.abs(x[np.abs(found.x) > 1e-6] - 0.3)
        assert free.max() < 0.04, "the rows next to the border carry it"
