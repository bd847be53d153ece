"""Stage "evaluation-tables": all values, their means and differences, and the stability of selections.

Values of different settings, models, metrics, numbers of classes or amounts of labels are never pooled. A *replicate*
is one draw of labels in one draw of classes (:mod:`daskfs.evaluation.significance`). If all draws of labels give equal
values, one counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.evaluation.design import Design, EvaluationParameters, Selection
from daskfs.evaluation.models import Setting, higher_is_better
from daskfs.evaluation.rows import repeated_rows_warnings
from daskfs.evaluation.significance import mean_interval, paired_difference
from daskfs.evaluation.stability import jaccard_index, kuncheva_index, rank_intervals, selection_frequency
from daskfs.evaluation.tables import AMOUNTS, TESTED, Result, Table, results, typed, values_table, write_table
from daskfs.run_warning import CHANGES, LIMITS, RunWarning
from daskfs.stages.cost import Array, Cost, Fixed, MiB, Objects
from daskfs.stages.kind import StageKind
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store

LEAST_TOLD = 100
"""Number of features whose selection frequency is reported at most, or the number to select if that is larger."""
TABLES = Fixed("pyarrow, SciPy's distributions, and the ranks of some features", 96 * MiB)
VALUE_BYTES = 1500
"""Bytes of a test value: its record, its :class:`Result`, and its table row in Python, in Arrow and as CSV."""
SUMMARY_ROW_BYTES = 1000
"""Bytes of a row of another table, as Python objects, in Arrow and as CSV."""
NAME_JSON_BYTES = 200
"""Bytes of a feature name, as a Python string and in the JSON that it is read from."""

SUMMARY_COLUMNS = {
    **typed("method model metric setting"),
    **AMOUNTS,
    **typed("n_values mean std low high higher_is_better"),
}
COMPARISON_COLUMNS = {**typed("setting model metric"), **AMOUNTS, **typed("method other difference"), **TESTED}
GAP_COLUMNS = {**typed("method model metric"), **AMOUNTS, **typed("transductive inductive gap"), **TESTED}
STABILITY_COLUMNS = typed("setting n_classes labels method n_selected n_rankings kuncheva jaccard")
FREQUENCY_COLUMNS = typed(
    "setting n_classes labels method feature name n_selected frequency mean_rank rank_low rank_high"
)


def write_tables(context: Context, parameters: EvaluationParameters, unit: int) -> None:
    """Write every table that has rows."""
    del unit
    for table in evaluation_tables(context, parameters):
        if table.rows:
            write_table(context.store, table)


def evaluation_tables(context: Context, parameters: EvaluationParameters) -> Iterator[Table]:
    """Yield the tables of :data:`daskfs.store.layout.EVALUATION_TABLES` one by one; some may have no row.

    `parameters` are those of the stage "evaluate". :class:`InputError` with the reasons if all rankings of an
    evaluation that the job asks for by name failed.
    """
    design = Design(parameters)
    failed = [one for one in failures(context.store, parameters) if one[0].method != parameters.chance]
    n_wanted = design.n_selections // len(design.methods) * (len(design.methods) - (parameters.chance is not None))
    if parameters.is_asked and failed and len(failed) == n_wanted:
        msg = f"the evaluation could rank nothing. {'; '.join(_grouped_failures(failed, design))}."
        raise InputError(msg)
    values = results(context.store, parameters)
    yield values_table(values)
    folds: str | None = context.store.need_json(layout.EVALUATION_DESIGN)["folds"]
    cubes = cubes_of(values, design, folds)
    yield Table("evaluation_summary", SUMMARY_COLUMNS, [row for cube in cubes for row in _summary(cube)])
    yield Table("comparisons", COMPARISON_COLUMNS, [row for cube in cubes for row in _comparisons(cube)])
    inductive = {cube.what: cube for cube in cubes if cube.setting == "inductive"}
    transductive = [cube for cube in cubes if cube.setting == "transductive" and cube.what in inductive]
    yield Table("gap", GAP_COLUMNS, [row for cube in transductive for row in _gap(cube, inductive[cube.what])])
    groups, n_features = _groups(design), context.tiles.shape.n_features
    rows = [row for group in groups for row in _stability(context.store, *group, design, n_features)]
    yield Table("stability", STABILITY_COLUMNS, rows)
    names = context.tiles.feature_names()
    rows = [row for group in groups for row in _frequencies(context.store, *group, design, names)]
    yield Table("selection_frequency", FREQUENCY_COLUMNS, rows)


# -------------------------------------------------------------------------------------------------- failed selections
def failures(store: Store, parameters: EvaluationParameters) -> list[tuple[Selection, str]]:
    """Return the selections that failed, with the reason; empty if the run's own rankings are tested."""
    if parameters.anew is None:
        return []
    design, failed = Design(parameters), []
    for stage, combined in (("select", False), ("select-consensus", True)):
        for unit in range(design.n_made(combined=combined)):
            reason = (store.records.get(stage, unit) or {}).get("facts", {}).get("failed")
            if reason is not None:
                failed.append((design.selection(design.made(unit, combined=combined)), str(reason)))
    return failed


def evaluation_warnings(store: Store, parameters: EvaluationParameters) -> list[RunWarning]:
    """Return warnings about copies of rows and folds, and for each method with failed or short rankings.

    A ranking is short if it has fewer features than are to be tested. `parameters` are those of the stage "evaluate".
    """
    design, failed = Design(parameters), failures(store, parameters)
    warnings = repeated_rows_warnings(store, parameters)
    folds, grouped = store.need_json(layout.EVALUATION_DESIGN)["warnings"], _grouped_failures(failed, design)
    warnings += [RunWarning("folds", LIMITS, f"evaluation: {text}") for text in folds]
    warnings += [RunWarning("rankings failed", CHANGES, f"evaluation: {text}") for text in grouped]
    failed_numbers, fewest = {one.number for one, _ in failed}, dict[str, int]()
    for number in range(design.n_selections):
        if number not in failed_numbers and (method := design.selection(number).method) != parameters.chance:
            n_ranked = int(store.read_arrays(layout.EVALUATION_ORDER.format(number))[1]["n_ranked"])
            fewest[method] = min(n_ranked, fewest.get(method, n_ranked))
    where, there = ("", "") if parameters.anew is None else (" in one of the rankings", " there")
    for method, n_ranked in fewest.items():
        if too_many := [size for size in design.sizes if size > n_ranked]:
            kind = "to select" if parameters.filtered else "with a rank"
            ranked = f"{n_ranked} feature{'' if n_ranked == 1 else 's'} {kind}"
            text = f"{ranked}{where}, not evaluated{there} at {', '.join(map(str, too_many))} features"
            warnings.append(RunWarning("sizes not evaluated", LIMITS, text, (method,), "method"))
    return warnings


def _grouped_failures(failed: Sequence[tuple[Selection, str]], design: Design) -> list[str]:
    reasons: dict[Group, list[str]] = {}
    for selection, reason in failed:
        reasons.setdefault(_group_of(selection), []).append(reason)
    sizes = Counter(_group_of(design.selection(number)) for number in range(design.n_selections)) if reasons else {}
    texts = []
    for (setting, n_classes, labels, method), why in reasons.items():
        words = [method]
        if len(design.settings) > 1:
            words.append(f"in the {setting} setting")
        if n_classes is not None:
            words.append(f"among {n_classes} classes")
        if labels is not None:
            words.append(f"with labels {labels}")
        counted = Counter(why)
        most, count = counted.most_common(1)[0]
        others = f" ({len(why) - count} of them for other reasons)" if len(counted) > 1 else ""
        of = sizes[setting, n_classes, labels, method]
        what = "its ranking failed" if of == 1 else f"{len(why)} of {of} rankings failed"
        texts.append(f"{' '.join(words)}: {what}{others}: {most.rstrip('.')}")
    return texts


Group = tuple[Setting, int | None, float | int | None, str]
"""Setting, number of classes, amount of labels and method of rankings."""


def _group_of(selection: Selection) -> Group:
    return selection.setting, selection.class_subset.n_classes, selection.labels, selection.method


# --------------------------------------------------------------------------------------------------- comparable values
Cell = tuple[int | None, int | None, int | None, int | None]
"""Draw of classes, draw of labels, repeat and fold of a value."""


@dataclass(frozen=True)
class Cube:
    """Comparable values: of one setting, model, metric, number of classes and amount of labels.

    `values` has shape (n_methods, n_sizes, n_cells), float64, NaN for no value; `test_share` is the share of the rows
    that a fold tests, 0 without folds.
    """

    setting: str
    model: str
    metric: str
    n_classes: int | None
    labels: float | None
    methods: tuple[str, ...]
    sizes: tuple[int, ...]
    cells: tuple[Cell, ...]
    values: np.ndarray
    test_share: float

    @property
    def replicates(self) -> np.ndarray:
        """Number of the replicate of each cell, shape (n_cells,), int64."""
        numbers: dict[tuple[int | None, ...], int] = {}
        return np.array([numbers.setdefault(cell[:2], len(numbers)) for cell in self.cells], dtype=np.int64)

    @property
    def what(self) -> tuple[Any, ...]:
        """Columns of the tables that say what the values are of, without the setting."""
        return (self.model or None, self.metric, self.n_classes, self.labels)

    def is_counted(self, values: np.ndarray) -> np.ndarray:
        """Return the mask of the values that count: one draw of labels if all draws give the same values, else all.

        `values` has shape (n_cells,), float64; the result has the same shape, bool.
        """
        first: dict[tuple[int | None, ...], float] = {}
        for (subset, draw, *split), value in zip(self.cells, values.tolist(), strict=True):
            same = first.setdefault((subset, *split), value)
            if draw is None or not (same == value or (same != same and value != value)):
                return np.ones(len(self.cells), dtype=bool)
        draws = [cell[1] for cell in self.cells]
        return np.array([draw == draws[0] for draw in draws])

    def by_size(self) -> Iterator[tuple[int | None, np.ndarray]]:
        """Yield each number of features with its values, shape (n_methods, n_cells), float64; last, None with means."""
        for place, size in enumerate(self.sizes):
            yield size, self.values[:, place]
        yield None, means_without_nan(self.values, axis=1)


def means_without_nan(values: np.ndarray, axis: int) -> np.ndarray:
    """Return means over an axis without NaN values; NaN if all are NaN."""
    is_known = ~np.isnan(values)
    count = is_known.sum(axis=axis)
    total = np.where(is_known, values, 0.0).sum(axis=axis)
    return np.asarray(np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0))


def cubes_of(values: Sequence[Result], design: Design, kind: str | None) -> list[Cube]:
    """Return the values of an evaluation as cubes; `kind` is that of the folds, None without folds."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in values:
        selection = result.selection
        key = (selection.setting, result.model, result.metric, selection.class_subset.n_classes, selection.labels)
        groups.setdefault(key, []).append(result)
    models = {key: place for place, key in enumerate(dict.fromkeys((r.model, r.metric) for r in values))}
    order = sorted(groups, key=lambda k: (design.settings.index(k[0]), models[k[1], k[2]], k[3] or 0, k[4] or 0.0))
    return [_cube(key, groups[key], design, kind) for key in order]


def _cube(key: tuple[Any, ...], results_of_cube: Sequence[Result], design: Design, kind: str | None) -> Cube:
    def cell(result: Result) -> Cell:
        return (result.selection.class_subset.draw, result.selection.draw, result.repeat, result.fold)

    cells = {c: place for place, c in enumerate(dict.fromkeys(cell(result) for result in results_of_cube))}
    methods = {name: place for place, name in enumerate([*design.methods, *(name for name, _ in design.baselines)])}
    n_selected = sorted({*design.sizes, *(size for _, size in design.baselines)})
    sizes = {size: place for place, size in enumerate(n_selected)}
    values = np.full((len(methods), len(sizes), len(cells)), np.nan)
    for result in results_of_cube:
        if result.value is not None:
            place = (methods[result.selection.method], sizes[result.n_selected], cells[cell(result)])
            values[place] = result.value
    share = 0.0
    if any(c[3] is not None for c in cells):
        # the training parts of timed folds grow: half of the rows on average
        share = 2 / (design.n_splits + 3) if kind == "timed" else 1 / design.n_splits
    setting, model, metric, n_classes, labels = key
    amount = None if labels is None else float(labels)
    names = (tuple(methods), tuple(sizes), tuple(cells))
    return Cube(setting, model, metric, n_classes, amount, *names, values, share)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _summary(cube: Cube) -> Iterator[tuple[Any, ...]]:
    better = higher_is_better(cube.metric)
    what = (cube.model or None, cube.metric, cube.setting, cube.n_classes, cube.labels)
    for place, method in enumerate(cube.methods):
        for size, values in cube.by_size():
            counted = cube.is_counted(values[place])
            cell_values = values[place][counted]
            finite = cell_values[~np.isnan(cell_values)]
            if finite.size == 0:
                continue
            interval = mean_interval(cell_values, cube.replicates[counted], cube.test_share)
            bounds = (_number(interval.low), _number(interval.high))
            yield (method, *what, size, finite.size, interval.mean, float(finite.std()), *bounds, better)


def _comparisons(cube: Cube) -> Iterator[tuple[Any, ...]]:
    for one, other in combinations(range(len(cube.methods)), 2):
        # the mean over numbers of features takes those at which both methods have a value
        apart = replace(cube, values=(cube.values[one] - cube.values[other])[None])
        for size, (values,) in apart.by_size():
            if difference := _difference(cube, values, np.zeros_like(values)):
                yield (cube.setting, *cube.what, size, cube.methods[one], cube.methods[other], *difference)


def _difference(cube: Cube, a: np.ndarray, b: np.ndarray) -> tuple[Any, ...]:
    """Return the columns of a paired difference; empty without a pair."""
    apart = a - b
    # differences that are all 0 do not show that the draws are the same: count all
    counted = cube.is_counted(apart) if np.any(apart[~np.isnan(apart)]) else np.ones(apart.size, dtype=bool)
    test = paired_difference(a[counted], b[counted], cube.replicates[counted], cube.test_share)
    if not test.n_pairs:
        return ()
    bounds = map(_number, (test.low, test.high, test.p_value))
    return (test.mean, *bounds, test.n_pairs, higher_is_better(cube.metric))


# ------------------------------------------------------------------------------------------ transductive and inductive
def _gap(transductive: Cube, inductive: Cube) -> Iterator[tuple[Any, ...]]:
    if set(transductive.cells) != set(inductive.cells):  # clusterers have folds in the inductive setting only
        transductive, inductive = _by_replicate(transductive), _by_replicate(inductive)
    places = [inductive.cells.index(cell) for cell in transductive.cells]
    inductive = replace(inductive, cells=transductive.cells, values=inductive.values[:, :, places])
    # the mean over numbers of features takes those at which both settings have a value
    in_both = ~np.isnan(transductive.values + inductive.values)
    both = [replace(cube, values=np.where(in_both, cube.values, np.nan)) for cube in (transductive, inductive)]
    for place, method in enumerate(transductive.methods):
        for (size, seen), (_, unseen) in zip(both[0].by_size(), both[1].by_size(), strict=True):
            if difference := _difference(transductive, unseen[place], seen[place]):
                means = (float(np.nanmean(seen[place])), float(np.nanmean(unseen[place])))
                yield (method, *transductive.what, size, *means, *difference)


def _by_replicate(cube: Cube) -> Cube:
    """Return a cube with the mean value of each replicate."""
    numbers = cube.replicates
    means = [means_without_nan(cube.values[:, :, numbers == number], axis=2) for number in range(numbers.max() + 1)]
    cells = tuple(dict.fromkeys((*cell[:2], None, None) for cell in cube.cells))
    return replace(cube, cells=cells, values=np.stack(means, axis=2), test_share=0.0)


# ----------------------------------------------------------------------------------------------------------- stability
def _groups(design: Design) -> list[tuple[Group, list[Selection]]]:
    """Return the groups of two or more rankings, with the leading columns of their tables."""
    groups: dict[Group, list[Selection]] = {}
    for selection in map(design.selection, range(design.n_selections)):
        setting, n_classes, labels, method = _group_of(selection)
        columns = (setting, n_classes, None if labels is None else float(labels), method)
        groups.setdefault(columns, []).append(selection)

    def place(columns: Group) -> tuple[Any, ...]:
        setting, n_classes, labels, method = columns
        return (design.settings.index(setting), n_classes or 0, labels or 0.0, design.methods.index(method))

    return [(columns, groups[columns]) for columns in sorted(groups, key=place) if len(groups[columns]) > 1]


def _order(store: Store, selection: Selection) -> np.ndarray:
    return store.read_arrays(layout.EVALUATION_ORDER.format(selection.number))[0]["order"]


def _stability(
    store: Store, columns: Group, selections: Sequence[Selection], design: Design, n_features: int
) -> Iterator[tuple[Any, ...]]:
    """Yield rows of stability indices of one group.

    Selections of different draws of classes are of different data, so they are compared within each draw, and the mean
    is reported.
    """
    by_subset: dict[int, list[np.ndarray]] = {}
    for selection in selections:
        by_subset.setdefault(selection.class_subset.number, []).append(_order(store, selection))
    for size in design.sizes:
        subsets = [[order for order in orders if order.size >= size] for orders in by_subset.values()]
        subsets = [orders for orders in subsets if len(orders) > 1]
        if not subsets:
            continue
        kuncheva = [kuncheva_index(orders, size, n_features) for orders in subsets]
        jaccard = [jaccard_index(orders, size) for orders in subsets]
        n_rankings = sum(len(orders) for orders in subsets)
        yield (*columns, size, n_rankings, _mean_of(kuncheva), _mean_of(jaccard))


def _mean_of(indices: Sequence[float | None]) -> float | None:
    defined = [index for index in indices if index is not None]
    return float(np.mean(defined)) if defined else None


def _frequencies(
    store: Store, columns: Group, selections: Sequence[Selection], design: Design, names: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield rows of selection frequencies and ranks, most frequent first.

    At most :data:`LEAST_TOLD` features, or as many as are to be selected, each selected at least once.
    """
    orders = [order for selection in selections if (order := _order(store, selection)).size]
    sizes = [size for size in design.sizes if any(order.size >= size for order in orders)]
    if len(orders) < 2 or not sizes:
        return
    features = np.unique(np.concatenate([order[: max(sizes)] for order in orders]))
    # features that are never selected share the last number, which is left out of the rows
    place = np.full(len(names) + 1, features.size)
    place[features] = np.arange(features.size)
    ranks = rank_intervals([place[order] for order in orders], features.size + 1)
    for size in sizes:
        counted = [place[order[:size]] for order in orders if order.size >= size]
        shares = selection_frequency(counted, size, features.size + 1)[: features.size]
        by_share = np.lexsort((ranks.mean[: features.size], -shares))
        for number in by_share[: min(np.count_nonzero(shares), max(LEAST_TOLD, size))]:
            feature = int(features[number])
            about = (float(rank[number]) for rank in (ranks.mean, ranks.low, ranks.high))
            yield (*columns, feature, names[feature], size, float(shares[number]), *about)


def evaluation_tables_cost(n_features: int, design: Design, n_metrics: int, process: Cost) -> Cost:
    """Return the memory of the unit; the models have `n_metrics` metrics in total."""
    n_methods = len(design.methods)
    n_groups = len(design.settings) * len({subset.n_classes for subset in design.class_subsets}) * len(design.amounts)
    n_compared = n_groups * n_metrics * (len(design.sizes) + 3) * n_methods * (n_methods + 1) // 2
    n_told = n_groups * n_methods * sum(min(max(LEAST_TOLD, size), n_features) for size in design.sizes)
    # of one group, in the inductive setting
    n_rankings = len(design.class_subsets) * design.n_draws * max(design.n_folds, 1)
    return (
        *process,
        TABLES,
        Objects("values of tests", design.n_tested_parts * n_metrics, VALUE_BYTES),
        Objects("rows of summaries and comparisons", n_compared, SUMMARY_ROW_BYTES),
        Objects("rows of how often features are selected", n_told, SUMMARY_ROW_BYTES),
        Array("orders of a method as read, and their places", (2, n_rankings, design.kept_depth(n_features)), "int64"),
        Objects("names of features", n_features, NAME_JSON_BYTES),
    )


EVALUATION_TABLES_STAGE = StageKind("evaluation-tables", __name__, write_tables, evaluation_tables_cost)
