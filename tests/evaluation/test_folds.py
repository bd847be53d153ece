"""Folds: which rows may be where, whatever the rows are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.model_selection import KFold, StratifiedKFold

from daskfs.errors import InputError
from daskfs.evaluation.folds import Folds, cut_folds
from daskfs.kernels.labels import Labels

N = 60


def classes(values: Any) -> Labels:
    values = np.asarray(values, dtype=np.int32)
    return Labels("classification", values, tuple(f"c{i}" for i in range(values.max() + 1)))


def targets(n: int = N) -> Labels:
    return Labels("regression", np.linspace(0, 1, n))


def cut(labels: Labels, rows: Any = None, **keys: Any) -> Folds:
    rows = np.flatnonzero(labels.is_labeled) if rows is None else np.asarray(rows)
    defaults: dict[str, Any] = {"groups": None, "times": None, "n_splits": 3, "n_repeats": 1, "random_state": 0}
    return cut_folds(labels, rows, **{**defaults, **keys})


def cut_or_why(labels: Labels, **keys: Any) -> Folds | str:
    try:
        return cut(labels, **keys)
    except InputError as error:
        return str(error)


def assert_tested_once(folds: Folds, n_rows: int) -> None:
    for repeat in folds.splits:
        np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in repeat])), np.arange(n_rows))
        for train, test in repeat:
            assert (np.diff(train) > 0).all()
            assert (np.diff(test) > 0).all()
            assert test.size
            np.testing.assert_array_equal(np.setdiff1d(np.arange(n_rows), test), train)


def same(first: Folds, second: Folds) -> bool:
    pairs = zip(first.splits, second.splits, strict=True)
    return all(
        np.array_equal(a, b) for r, s in pairs for p, q in zip(r, s, strict=True) for a, b in zip(p, q, strict=True)
    )


class TestWithoutGroupsAndTimes:
    @pytest.mark.parametrize("stratified", [True, False])
    def test_are_those_of_scikit_learn(self, stratified: bool) -> None:
        labels = classes(np.arange(N) % 4) if stratified else targets()
        rows = np.arange(0, N, 2)
        folds = cut(labels, rows, n_splits=5, n_repeats=3, random_state=7)
        assert (folds.kind, folds.warnings) == ("stratified" if stratified else "plain", [])
        for repeat in range(3):
            splitter = (StratifiedKFold if stratified else KFold)(5, shuffle=True, random_state=7 + repeat)
            expected = list(splitter.split(np.zeros(rows.size), labels.values[rows]))
            for (train, test), (expected_train, expected_test) in zip(folds.splits[repeat], expected, strict=True):
                np.testing.assert_array_equal(train, expected_train)
                np.testing.assert_array_equal(test, expected_test)
        assert_tested_once(folds, rows.size)

    def test_repeats_differ(self) -> None:
        folds = cut(targets(), n_repeats=2)
        assert not all(np.array_equal(a[1], b[1]) for a, b in zip(*folds.splits, strict=True))

    def test_a_small_class_is_not_stratified(self) -> None:
        folds = cut(classes([0] * 10 + [1] * 10 + [2]))
        assert folds.kind == "plain"
        assert folds.warnings == ["a class has fewer labeled rows than evaluate.n_splits = 3: folds are not stratified"]

    def test_unlabeled_rows_are_not_there(self) -> None:
        labels = classes([0, -1, 1, 0, 1, -1, 0, 1])
        assert_tested_once(cut(labels), 6)

    @pytest.mark.parametrize("labels", [targets(2), classes([0, 1])], ids=["targets", "classes"])
    def test_fewer_rows_than_folds(self, labels: Labels) -> None:
        with pytest.raises(InputError, match=r"^evaluate\.n_splits is 3, and only 2 rows have a label"):
            cut(labels)

    def test_one_class_in_training(self) -> None:
        with pytest.raises(InputError, match=r"^evaluate\.n_splits = 3: the training part of fold \d holds class 'c0'"):
            cut(classes([0] * 9 + [1]))


class TestGroups:
    @given(data=st.data(), n_splits=st.integers(2, 5), seed=st.integers(0, 100), classify=st.booleans())
    def test_no_group_is_on_both_sides(self, data: st.DataObject, n_splits: int, seed: int, classify: bool) -> None:
        groups = np.array(data.draw(st.lists(st.integers(0, 12), min_size=20, max_size=N)))
        codes = data.draw(st.lists(st.integers(0, 2), min_size=groups.size, max_size=groups.size))
        assume(np.unique(groups).size >= n_splits)
        labels = classes(codes) if classify else targets(groups.size)
        folds = cut_or_why(labels, groups=groups, n_splits=n_splits, n_repeats=2, random_state=seed)
        if isinstance(folds, str):
            assert classify
            assert "training part" in folds
            return
        assert folds.kind == "grouped"
        assert_tested_once(folds, groups.size)
        for repeat in folds.splits:
            for train, test in repeat:
                assert not np.intersect1d(groups[train], groups[test]).size
                assert not classify or np.unique(labels.values[train]).size > 1
        assert same(folds, cut(labels, groups=groups, n_splits=n_splits, n_repeats=2, random_state=seed))

    @pytest.mark.parametrize("n_splits", [2, 3, 6])
    def test_classes_keep_their_shares(self, n_splits: int) -> None:
        """Twelve groups, each of one class only: every fold gets its share of each class's groups."""
        groups = np.repeat(np.arange(12), 5)
        folds = cut(classes(groups % 2), groups=groups, n_splits=n_splits, n_repeats=20)
        assert folds.warnings == []
        for repeat in folds.splits:
            for _, test in repeat:
                assert (groups[test] % 2).mean() == 0.5
                assert np.unique(groups[test]).size == 12 // n_splits

    def test_are_the_same_whatever_the_version_of_scikit_learn(self) -> None:
        """Those that StratifiedGroupKFold shuffles since 1.8."""
        groups = np.repeat([5, 3, 8, 1, 9, 2, 7], [1, 2, 3, 4, 5, 6, 7])
        folds = cut(classes(np.arange(groups.size) % 3 // 2), groups=groups, random_state=4)
        assert [np.unique(groups[test]).tolist() for _, test in folds.splits[0]] == [[7, 8], [1, 9], [2, 3, 5]]

    def test_are_of_the_rows_in_use(self) -> None:
        labels, groups = targets(), np.arange(N) // 2
        rows = np.arange(0, N, 3)
        for train, test in cut(labels, rows, groups=groups).splits[0]:
            assert not np.intersect1d(groups[rows[train]], groups[rows[test]]).size

    @pytest.mark.parametrize("classify", [True, False])
    def test_repeats_differ(self, classify: bool) -> None:
        labels = classes(np.arange(N) % 2) if classify else targets()
        folds = cut(labels, groups=np.arange(N) // 3, n_repeats=2)
        assert not all(np.array_equal(a[1], b[1]) for a, b in zip(*folds.splits, strict=True))

    def test_a_small_class_is_not_stratified(self) -> None:
        folds = cut(classes([0] * 10 + [1] * 10 + [2]), groups=np.arange(21) // 2)
        assert folds.kind == "grouped"
        assert len(folds.warnings) == 1
        assert_tested_once(folds, 21)

    def test_no_fold_is_empty(self) -> None:
        """Two large groups and a tiny one, of which stratification would make two folds."""
        groups = np.array([0] * 9 + [1] * 9 + [2] * 2)
        labels = classes([*[0, 1] * 9, 0, 1])
        for seed in range(20):
            assert_tested_once(cut(labels, groups=groups, random_state=seed), 20)

    def test_fewer_groups_than_folds(self) -> None:
        with pytest.raises(
            InputError, match=r"^data\.groups has 2 groups among the 60 labeled rows, and evaluate\.n_s"
        ):
            cut(targets(), groups=np.arange(N) % 2)

    def test_groups_that_are_the_classes(self) -> None:
        codes = np.arange(N) % 2
        with pytest.raises(
            InputError, match=r"^evaluate\.n_splits = 2: the training part of fold 0 .*data\.groups puts"
        ):
            cut(classes(codes), groups=codes, n_splits=2)


class TestTimes:
    @given(data=st.data(), n_splits=st.integers(2, 5), classify=st.booleans())
    def test_all_training_rows_are_earlier(self, data: st.DataObject, n_splits: int, classify: bool) -> None:
        times = np.array(data.draw(st.lists(st.integers(-5, 15), min_size=20, max_size=N)), dtype=float)
        codes = data.draw(st.lists(st.integers(0, 2), min_size=times.size, max_size=times.size))
        distinct = np.unique(times)
        assume(distinct.size > n_splits)
        labels = classes(codes) if classify else targets(times.size)
        folds = cut_or_why(labels, times=times, n_splits=n_splits)
        if isinstance(folds, str):
            assert classify
            assert "begin later in data.times" in folds
            return
        assert (folds.kind, len(folds.splits), len(folds.splits[0])) == ("timed", 1, n_splits)
        tested: list[int] = []
        for train, test in folds.splits[0]:
            assert train.size
            assert times[train].max() < times[test].min()
            # nothing between the two is left out, nor any row of their times
            np.testing.assert_array_equal(train, np.flatnonzero(times < times[test].min()))
            assert np.isin(np.flatnonzero(np.isin(times, times[test])), test).all()
            assert np.unique(times[test]).size == distinct.size // (n_splits + 1)
            tested.extend(test)
        assert len(set(tested)) == len(tested)
        assert times[tested].max() == times.max()
        np.testing.assert_array_equal(np.flatnonzero(times >= times[tested].min()), np.sort(tested))

    def test_are_of_the_rows_in_use(self) -> None:
        times = np.arange(N, 0, -1.0)
        rows = np.arange(0, N, 3)
        for train, test in cut(targets(), rows, times=times).splits[0]:
            assert times[rows[train]].max() < times[rows[test]].min()

    def test_too_few_times(self) -> None:
        with pytest.raises(InputError, match=r"^data\.times has 3 distinct times .*evaluate\.n_splits is 3: "):
            cut(targets(), times=np.arange(N) % 3.0)
        assert cut(targets(), times=np.arange(N) % 4.0).kind == "timed"

    def test_a_class_that_begins_late(self) -> None:
        times = np.arange(40.0)
        with pytest.raises(
            InputError, match=r"fold 0 holds class 'c0' only; the other classes begin later in data\.tim"
        ):
            cut(classes(times > 15), times=times)
        assert cut(classes(times > 15), times=times, n_splits=2, rows=np.arange(10, 40)).kind == "timed"

    def test_repeats_and_groups_are_refused(self) -> None:
        times = np.arange(float(N))
        with pytest.raises(InputError, match=r"^evaluate\.n_repeats is 2, .*set it to 1"):
            cut(targets(), times=times, n_repeats=2)
        with pytest.raises(InputError, match=r"^data\.groups and data\.times are both there"):
            cut(targets(), times=times, groups=np.arange(N))
