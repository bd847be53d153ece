"""What an evaluation draws: rows, labels, class subsets; and the numbers of selections and tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daskfs.evaluation import drawing
from daskfs.evaluation.design import Design, Selection, draw_labels
from daskfs.evaluation.drawing import labeled_rows, rows_in_use
from daskfs.evaluation.rows import seen_by
from daskfs.kernels.labels import Labels
from daskfs.store.context import Context
from tests.evaluation.test_leakage import FEW, make_data, ranked
from tests.planning import evaluation_parameters, new_rankings


def classes(values: Any) -> Labels:
    return Labels("classification", np.asarray(values, dtype=np.int32), ("a", "b", "c", "d"))


# -------------------------------------------------------------------------------------------------------- labels drawn
@given(
    st.lists(st.integers(-1, 3), min_size=4, max_size=60).filter(lambda values: max(values) >= 0),
    st.lists(st.integers(1, 12), min_size=2, max_size=2).map(sorted),
    st.integers(0, 3),
)
def test_so_many_of_each_class_are_drawn(values: list[int], amounts: list[int], draw: int) -> None:
    """All of a class that has fewer; labeled rows only; and a larger amount has the rows of a smaller one."""
    labels = classes(values)
    fewer, more = (draw_labels(labels, amount, draw, seed=0) for amount in amounts)
    for amount, kept in ((amounts[0], fewer), (amounts[1], more)):
        assert not kept[labels.values < 0].any()
        for code in set(values) - {-1}:
            assert kept[labels.values == code].sum() == min(amount, values.count(code))
    assert not (fewer & ~more).any()


@given(st.lists(st.integers(0, 3), min_size=8, max_size=80), st.floats(0.01, 0.99), st.integers(0, 3))
def test_a_share_of_each_class_is_drawn(values: list[int], share: float, draw: int) -> None:
    kept = draw_labels(classes(values), share, draw, seed=0)
    for code in set(values):
        assert kept[np.array(values) == code].sum() == max(1, round(share * values.count(code)))


def test_of_targets_so_many_are_drawn_of_all() -> None:
    target = Labels("regression", np.where(np.arange(50) % 5, np.arange(50) / 7, np.nan))
    kept = [draw_labels(target, amount, 2, seed=9) for amount in (7, 10, 0.5, 99)]
    assert [int(k.sum()) for k in kept] == [7, 10, 20, 40]
    for smaller, larger in itertools.pairwise(kept):
        assert not (smaller & ~larger).any()
    assert not kept[-1][np.isnan(target.values)].any()


def test_draws_differ_and_the_seed_decides_them() -> None:
    labels = classes(np.arange(80) % 4)
    first = [draw_labels(labels, 3, draw, seed=0).tolist() for draw in range(6)]
    assert len({tuple(kept) for kept in first}) == 6
    assert first == [draw_labels(labels, 3, draw, seed=0).tolist() for draw in range(6)]
    assert first[0] != draw_labels(labels, 3, 0, seed=1).tolist()


def test_every_row_is_drawn_as_often_as_any() -> None:
    """Mean of 2000 draws of 5 of 20: 1/4 with a standard error of 0.0097."""
    labels = classes(np.zeros(20))
    shares = np.mean([draw_labels(labels, 5, draw, seed=0) for draw in range(2000)], axis=0)
    assert np.abs(shares - 0.25).max() < 4.5 * 0.0097


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_methods_and_amounts_are_compared_on_the_same_labels(tmp_path: Path, task: str) -> None:
    """In both settings: the same rows and labels for all methods; of one draw, more labels hold fewer."""
    methods, evaluate = FEW[task], {"setting": "both", "labels": [3, 6, 0.9], "n_draws": 2}
    data = make_data(task)
    found = ranked(data.saved(tmp_path), tmp_path / "run", methods, **evaluate)
    context = Context(found.store)
    seen: dict[tuple[Any, ...], dict[str, tuple[bytes, bytes]]] = {}
    nested: dict[tuple[Any, ...], dict[float, set[int]]] = {}
    for selection in found.orders():
        saw = seen_by(context, found.parameters, selection)
        about = (selection.setting, selection.fold, selection.draw)
        seen.setdefault((*about, selection.labels), {})[selection.method] = (
            saw.places.tobytes(),
            saw.labels.values.tobytes(),
        )
        nested.setdefault(about, {})[float(selection.labels or 0)] = set(saw.places[saw.labels.is_labeled])
        test = np.empty(0) if selection.fold is None else found.parts(selection.fold)[1]
        np.testing.assert_array_equal(saw.places, np.setdiff1d(np.arange(data.y.size), test))
    assert len(seen) == 3 * 2 * (1 + 3)
    for of_methods in seen.values():
        assert len(of_methods) == len(methods)
        assert len(set(of_methods.values())) == 1
    each = 3 if task == "classification" else 1
    for kept in nested.values():
        assert [len(kept[3.0]), len(kept[6.0])] == [3 * each, 6 * each]
        assert kept[3.0] < kept[6.0] < kept[0.9]
    draws = [nested["transductive", None, draw][6.0] for draw in range(2)]
    assert draws[0] != draws[1]


def test_labels_of_rows_that_do_not_count_are_not_drawn(tmp_path: Path) -> None:
    """So that as many count as are asked for."""
    data = make_data("classification", weights=np.arange(108) % 2.0)
    found = ranked(data.saved(tmp_path), tmp_path / "run", FEW["classification"][1:2], labels=[5], setting="both")
    context = Context(found.store)
    for selection in found.orders():
        saw = seen_by(context, found.parameters, selection)
        assert (saw.places[saw.labels.is_labeled] % 2 == 1).all()
        assert np.bincount(saw.labels.values[saw.labels.is_labeled]).tolist() == [5, 5, 5]


# ------------------------------------------------------------------------------------------------------ class subsets
def test_classes_are_drawn_and_their_rows_alone_are_used(tmp_path: Path) -> None:
    data = make_data("classification")
    evaluate = {"setting": "both", "n_classes": [2, 3], "n_subsets": 5, "n_splits": 2}
    found = ranked(data.saved(tmp_path), tmp_path / "run", FEW["classification"], **evaluate)
    class_subsets = {selection.class_subset for selection in found.orders()}
    assert sorted((c.n_classes or 0, c.draw or 0) for c in class_subsets) == [*((2, i) for i in range(5)), (3, 0)]
    subsets = set()
    for class_subset in class_subsets:
        arrays, facts = found.store.read_arrays(f"evaluation/worlds/{class_subset.number}.npz")
        assert len(facts["classes"]) == class_subset.n_classes
        codes = [int(name) for name in facts["classes"]]
        rows = np.flatnonzero(np.isin(data.y, codes))
        np.testing.assert_array_equal(np.sort(arrays["places"][data.is_labeled[arrays["places"]]]), rows)
        subsets.add(tuple(codes))
        for fold in range(2):
            train, test = arrays[f"train-0-{fold}"], arrays[f"test-0-{fold}"]
            np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), rows)
    assert subsets > {(0, 1, 2)}
    assert len(subsets) >= 3


# ------------------------------------------------------------------------------------------------------------ numbers
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "draws": {"labels": [2, 5], "n_draws": 3},
    "inductive": {"setting": "inductive", "n_repeats": 2},
    "everything": {"setting": "both", "labels": [2, 5], "n_draws": 3, "n_repeats": 2, "n_classes": [2, 4]},
    "labeled": {"setting": "inductive", "labels": [2], "n_draws": 2, "train_on": "labeled"},
    "no folds": {"labels": [2], "n_draws": 2, "train_on": "labeled", "n_repeats": 4},
}


def design_of(lists_of_run: bool = False, **keys: Any) -> Design:
    class_subsets = tuple((c, s) for c in keys.get("n_classes", ()) for s in range(2)) or ((None, None),)
    anew = new_rankings(lists_of_run=lists_of_run)
    return Design(evaluation_parameters(("a", "b", "c"), **keys, class_subsets=class_subsets, anew=anew))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_number_stands_for_something_else(shape: str) -> None:
    design = design_of(**SHAPES[shape])
    selections = [design.selection(number) for number in range(design.n_selections)]
    assert [s.number for s in selections] == list(range(design.n_selections))
    keys = {(s.setting, s.method, s.class_subset, s.labels, s.draw, s.repeat, s.fold) for s in selections}
    assert len(keys) == design.n_selections
    tests = [design.trial(unit) for unit in range(design.n_tests)]
    assert len({(t.selection.number, t.sizes, t.repeat) for t in tests}) == design.n_tests
    together = design_of(**SHAPES[shape], tests_together=True)
    grouped = [together.trial(unit) for unit in range(together.n_tests)]
    parts = [(t.selection, size, t.repeat) for t in grouped for size in t.sizes]
    assert set(parts) == {(t.selection, size, t.repeat) for t in tests for size in t.sizes}
    assert (len(parts), together.n_tested_parts) == (design.n_tests, design.n_tested_parts)
    assert {t.selection for t in tests} == set(selections)
    for test in tests:
        if test.selection.setting == "inductive":
            assert test.repeat == test.selection.repeat


def test_how_many_there_are() -> None:
    both = design_of(**SHAPES["everything"])
    draws = 4 * 3 * 2 * 3  # class subsets, draws, amounts, methods
    assert both.n_selections == draws + draws * 2 * 3
    assert both.n_tests == draws * 2 * 2 + draws * 2 * 3 * 2  # sizes x repeats, and sizes of each fold
    free = design_of(**SHAPES["no folds"])
    assert (free.n_selections, free.n_tests, free.trial(0).repeat) == (6, 12, None)


def test_lists_are_found_once_for_each_set_of_rows() -> None:
    design = design_of(lists_of_run=True, **SHAPES["everything"])
    sets = design.sets_of_rows()
    assert len(sets) == len({one.rows for one in sets}) == 4 * (1 + 2 * 3)
    assert {s.rows for s in map(design.selection, range(design.n_selections))} == {one.rows for one in sets}
    whole = design_of(lists_of_run=True, **SHAPES["draws"])
    assert whole.sets_of_rows() == []  # the run's own serve
    assert len(design_of(**SHAPES["draws"]).sets_of_rows()) == 1


# --------------------------------------------------------------------------------------------------------- rows in use
def test_labeled_rows_are_thinned_within_classes_and_as_many_others_are_added() -> None:
    values = np.repeat([0, 1, 2, -1], [600, 300, 100, 3000])
    labels = classes(np.random.default_rng(0).permutation(values))
    rows, n_labeled = rows_in_use(in_blocks(labels), 200, 0, with_unlabeled=True)
    assert (rows.size, n_labeled) == (400, 200)
    assert np.bincount(labels.values[rows] + 1).tolist() == [200, 120, 60, 20]
    assert (np.diff(rows) > 0).all()
    known, n_known = rows_in_use(in_blocks(labels), 200, 0, with_unlabeled=False)
    assert (known.size, n_known) == (200, 200)
    assert set(known) < set(rows)


def in_blocks(labels: Labels, *cuts: int) -> Callable[[], Iterator[Labels]]:
    return lambda: (replace(labels, values=values) for values in np.split(labels.values, cuts))


def shuffled_and_sorted(labels: Labels, max_samples: int, random_state: int) -> Any:
    """Shuffle all labeled rows, and take those of the lowest rank within their class, over its size."""
    known = np.flatnonzero(labels.is_labeled)
    if known.size <= max_samples:
        return known
    shuffled = np.random.default_rng([random_state, known.size]).permutation(known)
    if labels.task == "classification":
        codes = labels.values[shuffled]
        place = np.empty(known.size)
        for code in np.unique(codes):
            own = np.flatnonzero(codes == code)
            place[own] = (np.arange(own.size) + 0.5) / own.size
        shuffled = shuffled[np.argsort(place, kind="stable")]
    return np.sort(shuffled[:max_samples])


@given(
    st.lists(st.integers(-1, 3), min_size=1, max_size=200),
    st.integers(1, 60),
    st.lists(st.integers(0, 200), max_size=3).map(sorted),
    st.booleans(),
    st.integers(0, 3),
)
def test_a_draw_in_blocks_is_that_of_all_rows(
    values: list[int], max_samples: int, cuts: list[int], regression: bool, seed: int
) -> None:
    labels = classes(values)
    if regression:
        labels = Labels("regression", np.where(np.array(values) < 0, np.nan, values))
    found = labeled_rows(in_blocks(labels, *cuts), max_samples, seed)
    np.testing.assert_array_equal(found, shuffled_and_sorted(labels, max_samples, seed))


@pytest.mark.usefixtures("nothing_shuffled")
class TestManyRows:
    @given(
        st.lists(st.integers(-1, 3), min_size=1, max_size=200).filter(lambda values: max(values) >= 0),
        st.integers(1, 60),
        st.lists(st.integers(0, 200), max_size=3).map(sorted),
    )
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_classes_keep_their_shares(self, values: list[int], max_samples: int, cuts: list[int]) -> None:
        labels = classes(values)
        found = labeled_rows(in_blocks(labels, *cuts), max_samples, 0)
        whole = labeled_rows(in_blocks(labels), max_samples, 0)
        np.testing.assert_array_equal(found, whole)
        counts = np.bincount(labels.values[labels.is_labeled], minlength=4)
        assert found.size == min(max_samples, counts.sum())
        assert (np.diff(found) > 0).all()
        shares = np.bincount(labels.values[found], minlength=4) - found.size * counts / counts.sum()
        assert np.abs(shares).max() < 1 + counts.size / 2

    def test_every_row_is_drawn_as_often_as_any(self) -> None:
        """Mean of 2000 draws of 5 of 20: 1/4 with a standard error of 0.0097."""
        labels = classes(np.arange(20) % 2)
        drawn = [labeled_rows(in_blocks(labels, 7), 5, seed) for seed in range(2000)]
        shares = np.bincount(np.concatenate(drawn), minlength=20) / 2000
        for code in (0, 1):  # of the odd row in five, the first class has it
            own = shares[code::2]
            assert np.abs(own - own.mean()).max() < 4.5 * 0.0103


@pytest.fixture
def nothing_shuffled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "SHUFFLED_ROWS", 0)


def test_a_selection_names_its_draw_only_where_labels_are_drawn() -> None:
    first = design_of().selection(0)
    assert first == Selection(0, "a", "transductive", first.class_subset)
