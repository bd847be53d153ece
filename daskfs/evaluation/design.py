"""Stage "design": draws of classes, labels and folds, and the numbering of selections and units.

Draws depend only on the seed, the class subset and the number of the draw, so methods, numbers of features and
amounts of labels are compared on the same rows. The numbers follow from the parameters alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.criteria.slab import slab_range
from daskfs.errors import InputError
from daskfs.evaluation.drawing import drawing_cost, rows_in_use
from daskfs.evaluation.folds import Folds, check_size, cut_folds
from daskfs.evaluation.keys import EvaluationKeys
from daskfs.evaluation.models import ModelSpec, Setting, fewest_rows
from daskfs.graph.spec import GraphSpec
from daskfs.kernels.labels import Labels
from daskfs.ranking.dropped import selectable
from daskfs.ranking.redundancy import RedundancySpec
from daskfs.ranking.tables import method_scores
from daskfs.sources.base import SAMPLE_COLUMNS
from daskfs.stages.cost import Array, Cost, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape
from daskfs.store.store import Store

DEPTH = 1000
"""Minimum number of features kept of each order, for the rank intervals."""
UNRANKED = -1
"""Selection number of a baseline, which has no ranking."""
SEEN_FEATURE_BYTES = 200
"""Bytes of a feature that models see: a Python integer in a set and in a sorted list, and a method's values of it."""


# ---------------------------------------------------------------------------------------------------------- parameters
@dataclass(frozen=True)
class NewRankings:
    """Settings of rankings that an evaluation makes anew.

    Attributes
    ----------
    search
        Search options of neighbor lists, and the representation of rows; its metric and scaling do not count.
    given
        Kind of the precomputed graph.
    joint_features
        Features that a joint method ranks; None for all.
    lists_of_run
        Whether selections of all rows take the neighbor lists of the run.
    shared
        Names of the lists that folds take from one search among all rows in use.
    memory_limit
        Memory limit of a ranking, in bytes; None if unknown.
    bands_per_unit, n_parts
        Bands of rows that one unit reads, and number of these units.
    """

    search: GraphSpec
    redundancy: RedundancySpec | None
    given: Literal["lists", "matrix"] | None
    joint_features: int | None
    lists_of_run: bool
    shared: tuple[str, ...]
    memory_limit: int | None
    bands_per_unit: int
    n_parts: int


class EvaluationParameters(StageParameters, kw_only=True):
    """Parameters of all stages of an evaluation.

    `n_selected`, `max_samples`, `baselines` and `informative` are keys of the job, as they count for the data.

    Attributes
    ----------
    keys
        Other keys of the block ``evaluate``, as the job has them.
    methods, models
        Methods, a random order last if the evaluation adds one, and models.
    baselines
        Name and number of features of each baseline without ranking.
    chance
        Label of the added random order; None without.
    is_asked
        Whether the job names a setting.
    class_subsets
        Number of classes, and number of the draw, of each subset of classes; None for all.
    informative
        Numbers of features.
    filtered
        Whether redundant features are filtered.
    anew
        How rankings are made anew; None to test the run's own.
    slab_columns
        Columns of a slab of which a unit gathers features.
    tests_together
        Whether one unit tests all numbers of features of a selection: to record a unit takes longer than to test few
        values.
    held_bytes
        Bytes of the rows in use that a process may cache.
    """

    methods: tuple[Method, ...]
    models: tuple[ModelSpec, ...]
    n_selected: tuple[int, ...]
    max_samples: int
    keys: EvaluationKeys
    baselines: tuple[tuple[str, int], ...]
    chance: str | None
    is_asked: bool
    class_subsets: tuple[tuple[int | None, int | None], ...]
    informative: tuple[int, ...]
    filtered: bool
    anew: NewRankings | None
    slab_columns: int
    tests_together: bool = False
    held_bytes: int = 0

    @property
    def new_rankings(self) -> NewRankings:
        """Settings of rankings made anew, for the stages that make them."""
        assert self.anew is not None
        return self.anew


# ----------------------------------------------------------------------------------------------------------- numbering
@dataclass(frozen=True)
class ClassSubset:
    """The rows of all classes, or of the `n_classes` classes that draw number `draw` chose."""

    number: int
    n_classes: int | None = None
    draw: int | None = None


@dataclass(frozen=True)
class Selection:
    """One ranking that is tested: one method, class subset and draw of labels and, if inductive, one training fold.

    A transductive selection, as in the papers, sees the rows that models are tested on, and possibly some of their
    labels. An inductive one sees only the rows of its training fold and unlabeled rows. Fields that do not apply are
    None; `labels` is the amount that the job asks for.
    """

    number: int
    method: str
    setting: Setting
    class_subset: ClassSubset
    labels: float | int | None = None
    draw: int | None = None
    repeat: int | None = None
    fold: int | None = None

    @property
    def rows(self) -> str:
        """Name of the set of rows: selections of the same rows share neighbor lists."""
        inside = "" if self.fold is None else f"-{self.repeat}-{self.fold}"
        return f"{self.class_subset.number}{inside}"

    @property
    def place(self) -> tuple[int, ...]:
        """Seed key of the rows and the draw, the same for all methods and amounts of labels.

        Empty if the selection sees all rows and labels.
        """
        subset = None if self.class_subset.n_classes is None else self.class_subset.number
        numbers = (subset, self.draw, self.repeat, self.fold)
        return () if set(numbers) == {None} else tuple(0 if number is None else number + 1 for number in numbers)


@dataclass(frozen=True)
class EvaluationUnit:
    """One unit of tests: the first features of a selection, as many as each of `sizes`.

    It covers one repeat of all folds, or the fold of the selection. For a baseline the one size is 0 (a constant
    prediction) or the number of all features.
    """

    selection: Selection
    sizes: tuple[int, ...]
    repeat: int | None


class Design:
    """Numbering of selections and units; baselines come last, as they have no ranking."""

    def __init__(self, parameters: EvaluationParameters) -> None:
        p = parameters
        self.methods = [method.label for method in p.methods]
        combined = [method.criterion.combines for method in p.methods]
        self._places = {is_combined: np.flatnonzero(np.array(combined) == is_combined) for is_combined in (False, True)}
        self.class_subsets = [ClassSubset(i, *drawn) for i, drawn in enumerate(p.class_subsets)]
        self.amounts: Sequence[float | int | None] = p.keys.labels or (None,)
        self.n_draws = p.keys.n_draws if p.keys.labels else 1
        self.n_repeats, self.n_splits = p.keys.n_repeats, p.keys.n_splits
        self.sizes, self.baselines = p.n_selected, p.baselines
        self._unit_sizes = [self.sizes] if p.tests_together else [(size,) for size in self.sizes]
        self.settings: tuple[Setting, ...] = (
            ("transductive", "inductive") if p.keys.setting == "both" else (p.keys.setting,)
        )
        self.has_folds = p.keys.train_on == "all" or "inductive" in self.settings
        self._lists_of_run = p.anew is not None and p.anew.lists_of_run

    def _draws_of(self, setting: Setting) -> tuple[int, ...]:
        draws = (len(self.class_subsets), self.n_draws, len(self.amounts))
        return (*draws, self.n_repeats, self.n_splits) if setting == "inductive" else draws

    def _selections_of(self, setting: Setting) -> int:
        return math.prod(self._draws_of(setting)) * len(self.methods)

    @property
    def n_selections(self) -> int:
        """Number of rankings that are tested."""
        return sum(map(self._selections_of, self.settings))

    @property
    def has_consensus(self) -> bool:
        """Whether some selections combine others."""
        return self._places[True].size > 0

    def n_made(self, *, combined: bool) -> int:
        """Return the number of selections that combine others, or that do not."""
        return self.n_selections // len(self.methods) * self._places[combined].size

    def made(self, unit: int, *, combined: bool) -> int:
        """Return the number of the selection that a unit of those that combine others, or that do not, makes."""
        places = self._places[combined]
        block, place = divmod(unit, places.size)
        return block * len(self.methods) + int(places[place])

    def beside(self, number: int) -> list[int]:
        """Return the selections that do not combine others, of the same rows and labels as a selection."""
        first = number - number % len(self.methods)
        return [first + int(place) for place in self._places[False]]

    def _setting_at(self, number: int, count: Callable[[Setting], int]) -> tuple[Setting, int]:
        """Return the setting of a number, where each setting has a count of them, and its number among these."""
        for setting in self.settings:
            if number < (n_of_setting := count(setting)):
                break
            number -= n_of_setting
        return setting, number

    def selection(self, number: int) -> Selection:
        """Return the selection of a number."""
        setting, rest = self._setting_at(number, self._selections_of)
        # methods vary fastest, so that consecutive units share their rows
        place, method = divmod(rest, len(self.methods))
        return self._selection(number, self.methods[method], setting, place)

    def _selection(self, number: int, method: str, setting: Setting, place: int) -> Selection:
        subset, draw, amount, *inside = map(int, np.unravel_index(place, self._draws_of(setting)))
        labels = self.amounts[amount]
        draws = None if labels is None else draw
        return Selection(number, method, setting, self.class_subsets[subset], labels, draws, *(inside or (None, None)))

    def _repeats_of(self, setting: Setting) -> int:
        """Return the number of units that test the same numbers of features of a selection."""
        return self.n_repeats if setting == "transductive" and self.has_folds else 1

    def _ranked_tests_of(self, setting: Setting) -> int:
        return self._selections_of(setting) * len(self._unit_sizes) * self._repeats_of(setting)

    def _baseline_tests_of(self, setting: Setting) -> int:
        return math.prod(self._draws_of(setting)) * len(self.baselines) * self._repeats_of(setting)

    @property
    def n_tests(self) -> int:
        """Number of units of tests, those of baselines last."""
        return sum(self._ranked_tests_of(setting) + self._baseline_tests_of(setting) for setting in self.settings)

    @property
    def n_tested_parts(self) -> int:
        """Number of tests over all units and numbers of features: one in each fold of a repeat, or in all."""
        return sum(
            (self._ranked_tests_of(setting) * len(self._unit_sizes[0]) + self._baseline_tests_of(setting))
            * (self.n_splits if setting == "transductive" and self.has_folds else 1)
            for setting in self.settings
        )

    @property
    def most_tested(self) -> int:
        """Largest number of features that a model is tested with."""
        return max(*self.sizes, *(size for _, size in self.baselines), 0)

    @property
    def n_folds(self) -> int:
        """Number of folds over all repeats."""
        return self.n_repeats * self.n_splits if self.has_folds else 0

    def kept_depth(self, n_features: int) -> int:
        """Return the largest number of features kept of an order."""
        return min(n_features, max(DEPTH, *self.sizes))

    def trial(self, unit: int) -> EvaluationUnit:
        """Return the selection or baseline, the numbers of features and the repeat of a unit."""
        n_ranked = sum(map(self._ranked_tests_of, self.settings))
        if unit < n_ranked:
            setting, rest = self._setting_at(unit, self._ranked_tests_of)
            place, rest = divmod(rest, len(self._unit_sizes) * self._repeats_of(setting))
            before = self.settings[: self.settings.index(setting)]
            selection = self.selection(sum(map(self._selections_of, before)) + place)
            which, repeat = divmod(rest, self._repeats_of(setting))
            sizes = self._unit_sizes[which]
        else:
            setting, rest = self._setting_at(unit - n_ranked, self._baseline_tests_of)
            place, rest = divmod(rest, len(self.baselines) * self._repeats_of(setting))
            repeat, which = divmod(rest, len(self.baselines))
            name, size = self.baselines[which]
            sizes = (size,)
            selection = self._selection(UNRANKED, name, setting, place)
        if setting == "inductive":
            return EvaluationUnit(selection, sizes, selection.repeat)
        return EvaluationUnit(selection, sizes, repeat if self.has_folds else None)

    def sets_of_rows(self) -> list[Selection]:
        """Return one selection, without a method, for each set of rows that needs a neighbor search.

        The set of all rows needs none if the run has its lists.
        """
        folds = [(repeat, fold) for repeat in range(self.n_repeats) for fold in range(self.n_splits)]
        return [
            Selection(-1, "", setting, subset, repeat=repeat, fold=fold)
            for setting in self.settings
            for subset in self.class_subsets
            for repeat, fold in (folds if setting == "inductive" else [(None, None)])
            if not (self._lists_of_run and fold is None and subset.n_classes is None)
        ]


@dataclass(frozen=True)
class RowsInUse:
    """Labels and per-sample columns (weights, groups, times, batches) of the rows in use.

    Each has shape (n_rows,), or is None.
    """

    labels: Labels
    weights: np.ndarray | None
    groups: np.ndarray | None
    times: np.ndarray | None
    batches: np.ndarray | None


def read_rows_in_use(store: Store) -> RowsInUse:
    """Read the labels and per-sample columns of the rows in use, as stage "design" stored them."""
    arrays, facts = store.read_arrays(layout.EVALUATION_SAMPLE_COLUMNS)
    labels = Labels(facts["task"], arrays["labels"], tuple(facts["classes"]))
    return RowsInUse(labels, *map(arrays.get, SAMPLE_COLUMNS))


# ------------------------------------------------------------------------------------------------------ stage "design"
def design_evaluation(context: Context, parameters: EvaluationParameters, unit: int) -> dict[str, Any]:
    """Draw the rows in use, the class subsets and their folds.

    :class:`InputError` without labels, or if they are too few.
    """
    del unit
    store, design, counts = context.store, Design(parameters), context.label_counts()
    if counts is None:
        msg = "evaluate needs labels, and the data have none: set data.labels, or evaluate: null."
        raise InputError(msg)
    seed, is_anew = parameters.keys.random_state, parameters.anew is not None
    rows, n_labeled = rows_in_use(context.label_blocks, parameters.max_samples, seed, with_unlabeled=is_anew)
    in_use, cuts = _put_rows_in_use(context, rows), list[Folds]()
    check_rows(in_use.labels, parameters)
    cut = partial(
        cut_folds,
        in_use.labels,
        groups=in_use.groups,
        times=in_use.times,
        n_splits=design.n_splits,
        n_repeats=design.n_repeats,
        random_state=seed,
    )
    if design.has_folds and all(subset.n_classes is not None for subset in design.class_subsets):
        # all labeled rows have to make folds, too, though only those of class subsets are used
        cut(np.flatnonzero(in_use.labels.is_labeled), n_repeats=1 if in_use.times is None else design.n_repeats)
    for subset in design.class_subsets:
        arrays, facts, folds = _draw_class_subset(in_use.labels, subset, seed, cut if design.has_folds else None)
        store.write_arrays(layout.EVALUATION_CLASS_SUBSET.format(subset.number), arrays, facts)
        if folds is not None:
            cuts.append(folds)
    store.put_array(layout.EVALUATION_ROWS, rows)
    design_facts = {
        "n_rows": n_labeled,
        "n_rows_total": counts.n_labeled,
        "n_unlabeled": int(rows.size) - n_labeled,
        "folds": cuts[0].kind if cuts else None,
        "warnings": list(dict.fromkeys(warning for folds in cuts for warning in folds.warnings)),
    }
    store.write_json(layout.EVALUATION_DESIGN, design_facts)
    return design_facts


def put_orders(context: Context, parameters: EvaluationParameters, unit: int) -> None:
    """Store the run's own rankings as those to test, and the features that any model sees."""
    del unit
    store, design, counts = context.store, Design(parameters), context.label_counts()
    used: set[int] = set()
    n_labeled = 0 if counts is None else counts.n_labeled
    ranked = np.zeros(context.tiles.shape.n_features, dtype=bool)
    for number, method in enumerate(parameters.methods):
        if method.label == parameters.chance:  # the last method: all features that others rank, in random order
            order = np.random.default_rng(parameters.keys.random_state).permutation(np.flatnonzero(ranked))
        else:
            order = selectable(store, method, method_scores(store, method), filtered=parameters.filtered)
            ranked[order] = True
        put_order(context, design, number, order, n_labeled)
        used.update(int(feature) for feature in order[: max(design.sizes)])
    if any(size for _, size in design.baselines):
        used = set(range(ranked.size))
    store.put_array(layout.EVALUATION_FEATURES, np.array(sorted(used), dtype=np.int64))


def orders_cost(n_features: int, process: Cost) -> Cost:
    """Return the memory of the unit, which reads the tables of all methods."""
    return (*process, Objects("features that models see", n_features, SEEN_FEATURE_BYTES))


ORDERS_STAGE = StageKind("orders", __name__, put_orders, orders_cost)


def put_order(context: Context, design: Design, number: int, order: np.ndarray, n_labeled: int) -> None:
    """Store the features of `order` (best first, integers) that are kept of a selection."""
    first_features = order[: max(DEPTH, *design.sizes)].astype(np.int64)
    facts = {"n_ranked": int(order.size), "n_labeled": n_labeled}
    context.store.write_arrays(layout.EVALUATION_ORDER.format(number), {"order": first_features}, facts)


# ------------------------------------------------------------------------------------------------------- rows and draws
def check_rows(labels: Labels, parameters: EvaluationParameters) -> None:
    """Raise :class:`InputError` if the rows in use are too few for the folds or models, or have too few classes."""
    values = labels.values[labels.is_labeled]
    check_size(values.size, parameters.keys.n_splits)
    if labels.task == "classification":
        n_classes = np.unique(values).size
        if n_classes < 2:
            msg = "evaluate needs at least two classes among the labeled rows."
            raise InputError(msg)
        for n_wanted in parameters.keys.n_classes or ():
            if n_wanted > n_classes:
                msg = f"evaluate.n_classes has {n_wanted}, and the labeled rows have {n_classes} classes."
                raise InputError(msg)
    elif parameters.keys.n_classes:
        msg = "evaluate.n_classes draws classes, and the labels are targets of a regression: leave it out."
        raise InputError(msg)
    smallest, where = values.size - -(-values.size // parameters.keys.n_splits), "a training fold has"
    if parameters.keys.train_on == "labeled":
        assert parameters.keys.labels is not None
        smallest = int(draw_labels(labels, parameters.keys.labels[0], 0, parameters.keys.random_state).sum())
        where = "a draw of labels has"
    for spec in parameters.models:
        if (needed := fewest_rows(spec)) > smallest:
            msg = (
                f"model {spec.label} of evaluate.models looks at n_neighbors = {needed} rows, and {where} {smallest}: "
                "lower n_neighbors, or label more rows."
            )
            raise InputError(msg)


def _put_rows_in_use(context: Context, rows: np.ndarray) -> RowsInUse:
    labels = context.labels_of(rows)
    assert labels is not None
    columns = {name: context.sample_column_of(name, rows) for name in SAMPLE_COLUMNS}
    arrays = {"labels": labels.values, **{name: values for name, values in columns.items() if values is not None}}
    facts = {"task": labels.task, "classes": list(labels.classes)}
    context.store.write_arrays(layout.EVALUATION_SAMPLE_COLUMNS, arrays, facts)
    return read_rows_in_use(context.store)


def _draw_class_subset(
    labels: Labels, subset: ClassSubset, seed: int, cut: Callable[[np.ndarray], Folds] | None
) -> tuple[dict[str, np.ndarray], dict[str, Any], Folds | None]:
    """Return the arrays and facts of a class subset to store, and its folds; rows are indices into the rows in use."""
    places = np.arange(labels.values.size)
    classes: list[int] = []
    if subset.n_classes is not None:
        generator = np.random.default_rng([seed, subset.n_classes, subset.draw or 0, 2])
        there = np.unique(labels.values[labels.is_labeled])
        classes = sorted(generator.choice(there, subset.n_classes, replace=False).tolist())
        places = np.flatnonzero(np.isin(labels.values, classes))
    arrays, facts = {"places": places}, {"classes": [labels.classes[code] for code in classes]}
    if cut is None:
        return arrays, facts, None
    labeled = places[labels.is_labeled[places]]
    folds = cut(labeled)
    for repeat, splits in enumerate(folds.splits):
        for fold, (train, test) in enumerate(splits):
            arrays[f"train-{repeat}-{fold}"] = labeled[train]
            arrays[f"test-{repeat}-{fold}"] = labeled[test]
    return arrays, facts, folds


def draw_labels(labels: Labels, amount: float | int, draw: int, seed: int) -> np.ndarray:
    """Draw the rows that keep their label.

    Parameters
    ----------
    amount
        Integer: number of rows per class, or in regression of all rows. Float: share of each class, or of all rows.
        A class with fewer rows is taken whole; at least one row of each class is taken.
    draw
        Number of the draw. A larger amount of the same draw contains the labels of a smaller one.

    Returns
    -------
    numpy.ndarray
        True for rows that keep their label, shape (n_rows,), bool.
    """
    labeled_places = np.flatnonzero(labels.is_labeled)
    generator = np.random.default_rng([seed, draw, 3])
    shuffled = labeled_places[generator.permutation(labeled_places.size)]
    keeps_label = np.zeros(labels.values.size, dtype=bool)
    groups = [shuffled]
    if labels.task == "classification":
        codes = labels.values[shuffled]
        groups = [shuffled[codes == code] for code in np.unique(codes)]
    for rows in groups:
        count = max(1, round(amount * rows.size)) if isinstance(amount, float) else int(amount)
        keeps_label[rows[:count]] = True
    return keeps_label


def class_subset_cost(n_rows: int, design: Design, copies: int = 1) -> Cost:
    """Return the memory of the row indices of a class subset and of all its folds."""
    n_listed = 1 + design.n_folds  # each row is in one part of each fold
    return (Array("places of a world's rows, and of its folds", (copies, n_listed, n_rows), "int64"),)


def rows_in_use_cost(n_rows: int) -> Cost:
    """Return the memory of a :class:`RowsInUse`."""
    return (Array("labels of the rows in use, and what else lies beside them", (1 + len(SAMPLE_COLUMNS), n_rows)),)


def design_cost(n_samples: int, n_rows: int, design: Design, process: Cost) -> Cost:
    """Return the memory of the unit, which draws `n_rows` rows and cuts them into folds."""
    return (
        *process,
        *drawing_cost(n_samples, n_rows),
        Array("rows in use", (n_rows,), "int64"),
        *rows_in_use_cost(n_rows),
        Array("labeled rows of a world", (n_rows,), "int64"),
        Array("labels of these", (n_rows,)),
        Array("codes, folds and numbers of these while scikit-learn cuts them", (4, n_rows), "int64"),
        Array("which rows are labeled, of a world, trained with and tested with", (4, n_rows), "bool"),
        *class_subset_cost(n_rows, design, 2),
    )


DESIGN_STAGE = StageKind("design", __name__, design_evaluation, design_cost)


def gather_columns(context: Context, parameters: EvaluationParameters, unit: int) -> None:
    """Store the rows in use of those features of the design that are in one slab."""
    columns = slab_range(unit, parameters.slab_columns, context.tiles.shape.n_features)
    features = context.store.open(layout.EVALUATION_FEATURES)[...]
    inside = features[(features >= columns.start) & (features < columns.stop)]
    if inside.size == 0:
        return
    rows = context.store.open(layout.EVALUATION_ROWS)[...]
    block = context.tiles.unfilled().read_columns(inside, rows, columns.start, columns.stop)
    context.store.put_array(layout.EVALUATION_SLAB.format(unit), block)


def gather_cost(shape: Shape, columns: int, n_rows: int, n_used: int, process: Cost) -> Cost:
    """Return the memory of a unit that reads those of `n_used` features in a slab of `columns`, over `n_rows` rows."""
    return (
        *process,
        Array("band of a slab, as stored, decoded and dense", (3, shape.tile_rows, columns), shape.dtype),
        Array("rows in use, and their places in a band", (5, n_rows), "int64"),
        Array("features that models see", (n_used,), "int64"),
        Array("columns as read, gathered and written", (3, n_rows, min(n_used, columns)), shape.dtype),
    )


GATHER_STAGE = StageKind("gather", __name__, gather_columns, gather_cost)
