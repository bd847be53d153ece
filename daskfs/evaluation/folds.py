"""Cross-validation folds of the rows of an evaluation.

Folds depend only on the rows, their labels, groups and times, and the seed, so they are the same for every method,
model and number of features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.labels import Labels
from daskfs.kernels.threads import sklearn_module

Kind = Literal["stratified", "plain", "grouped", "timed"]
TrainAndTest = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Folds:
    """Training and test parts of all repeats.

    Parameters
    ----------
    kind
        "stratified": each fold has the classes' shares. "plain": shuffled rows. "grouped": no group is on both sides.
        "timed": every training row is earlier than every test row; there is one repeat.
    splits
        ``splits[repeat][fold]`` is ``(train, test)``: sorted indices into the rows that were cut, int64. Timed folds
        leave out the rows later than the test part. All others cover all rows, and test each row once in each repeat.
    warnings
        Warnings for the report.
    """

    kind: Kind
    splits: list[list[TrainAndTest]]
    warnings: list[str]


def cut_folds(
    labels: Labels,
    rows: np.ndarray,
    *,
    groups: np.ndarray | None,
    times: np.ndarray | None,
    n_splits: int,
    n_repeats: int,
    random_state: int,
) -> Folds:
    """Cut labeled rows into folds.

    Parameters
    ----------
    labels
        Labels of all rows of X.
    rows
        The rows to cut, all labeled, shape (n_rows,), integers.
    groups
        Group of every row of X, shape (n_samples,), int64: rows of one group stay together. None for no groups.
    times
        Time of every row of X, shape (n_samples,), float64: models are trained on earlier rows. Rows of one time
        stay together. None for no times.
    n_splits
        Number of folds, at least 2. Of T distinct times, the last n_splits runs of ``T // (n_splits + 1)`` are tested.
    n_repeats
        Number of times that the rows are shuffled and cut. Timed folds are not shuffled: it must be 1.
    random_state
        Seed of the first repeat; each next repeat adds one.

    Returns
    -------
    Folds
        Stratified in classification if each class has a row for each fold. Grouped folds are stratified as far as the
        groups allow.

    Raises
    ------
    InputError
        Naming the key: for fewer rows or groups than folds, too few distinct times, a training part with one class,
        groups and times together, or repeats of timed folds.
    """
    values = labels.values[rows]
    warnings: list[str] = []
    kind: Kind
    if times is not None:
        if groups is not None:
            msg = "data.groups and data.times are both there, and folds go by one of them: name only one."
            raise InputError(msg)
        if n_repeats > 1:
            msg = f"evaluate.n_repeats is {n_repeats}, and folds by data.times are always the same: set it to 1."
            raise InputError(msg)
        kind, splits = "timed", [list(_time_folds(times[rows], n_splits))]
    else:
        check_size(rows.size, n_splits)
        stratified = labels.task == "classification"
        if stratified and np.bincount(values)[np.unique(values)].min() < n_splits:
            stratified = False
            text = f"a class has fewer labeled rows than evaluate.n_splits = {n_splits}: folds are not stratified"
            warnings.append(text)
        seeds = range(random_state, random_state + n_repeats)
        if groups is None:
            splitters = sklearn_module("model_selection")
            kind, splitter = ("stratified", splitters.StratifiedKFold) if stratified else ("plain", splitters.KFold)
            splits = [_cut(splitter(n_splits, shuffle=True, random_state=seed), values) for seed in seeds]
        else:
            kind = "grouped"
            splits = _group_folds(values, groups[rows], n_splits, seeds, warnings, stratified=stratified)
    if labels.task == "classification":
        for folds in splits:
            _check_classes(labels, values, folds, kind)
    return Folds(kind, splits, warnings)


def check_size(n_rows: int, n_splits: int) -> None:
    """Raise :class:`InputError` for fewer rows than folds."""
    if n_rows < n_splits:
        msg = f"evaluate.n_splits is {n_splits}, and only {n_rows} rows have a label."
        raise InputError(msg)


def _cut(splitter: Any, values: np.ndarray, groups: np.ndarray | None = None) -> list[TrainAndTest]:
    return list(splitter.split(np.zeros(values.size), values, groups))


def _group_folds(
    values: np.ndarray, groups: np.ndarray, n_splits: int, seeds: range, warnings: list[str], *, stratified: bool
) -> list[list[TrainAndTest]]:
    splitters = sklearn_module("model_selection")
    n_groups = np.unique(groups).size
    if n_groups < n_splits:
        msg = (
            f"data.groups has {n_groups} groups among the {groups.size} labeled rows, and evaluate.n_splits is "
            f"{n_splits}: a fold needs a group of its own, so lower evaluate.n_splits."
        )
        raise InputError(msg)
    if stratified:
        # its own shuffling moves classes' shares to other groups before scikit-learn 1.8 (pull request 32540)
        codes = (_shuffled_codes(groups, seed) for seed in seeds)
        splits = [_cut(splitters.StratifiedGroupKFold(n_splits), values, one) for one in codes]
        # StratifiedGroupKFold assigns groups greedily by the classes' shares, which may leave a fold empty
        if all(test.size for folds in splits for _, test in folds):
            return splits
        warnings.append("folds by data.groups are not stratified: the classes' shares would have left a fold empty")
    return [_cut(splitters.GroupKFold(n_splits, shuffle=True, random_state=seed), values, groups) for seed in seeds]


def _shuffled_codes(groups: np.ndarray, seed: int) -> np.ndarray:
    """Return codes of groups in the random order of scikit-learn 1.8."""
    codes = np.unique(groups, return_inverse=True)[1]
    order = np.random.RandomState(seed).permutation(codes.max() + 1)
    return np.argsort(order)[codes]


def _time_folds(times: np.ndarray, n_splits: int) -> Iterator[TrainAndTest]:
    splitter = sklearn_module("model_selection").TimeSeriesSplit(n_splits)
    distinct, places = np.unique(times, return_inverse=True)
    if distinct.size <= n_splits:
        msg = (
            f"data.times has {distinct.size} distinct times among the {times.size} labeled rows, and "
            f"evaluate.n_splits is {n_splits}: folds by time need one time more than that, so lower evaluate.n_splits."
        )
        raise InputError(msg)
    for train, test in splitter.split(distinct):
        yield np.flatnonzero(places <= train[-1]), np.flatnonzero((places >= test[0]) & (places <= test[-1]))


_ADVICE = {
    "stratified": "label more rows of the other classes",
    "plain": "label more rows of the other classes",
    "grouped": "data.groups puts all rows of the other classes into the groups that are tested together",
    "timed": "the other classes begin later in data.times: fewer folds have longer first training parts",
}


def _check_classes(labels: Labels, values: np.ndarray, folds: list[TrainAndTest], kind: str) -> None:
    for fold, (train, _) in enumerate(folds):
        codes = np.unique(values[train])
        if codes.size < 2:
            name = labels.classes[codes[0]] if labels.classes else codes[0]
            msg = (
                f"evaluate.n_splits = {len(folds)}: the training part of fold {fold} holds class '{name}' only; "
                f"{_ADVICE[kind]}."
            )
            raise InputError(msg)
